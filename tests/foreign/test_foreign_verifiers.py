"""Environments made of the classes of the ``verifiers`` library itself (pip install 'verifiers<0.2')."""

import json

import pytest

vf = pytest.importorskip("verifiers", reason="needs pip install 'verifiers<0.2'")
if not hasattr(vf, "Rubric"):
    pytest.skip(
        "this release of verifiers has another kind of environment; needs 'verifiers<0.2'", allow_module_level=True
    )

from grpo_jax.config import DataConfig, VerifierConfig  # noqa: E402
from grpo_jax.data.chat import conversation  # noqa: E402
from grpo_jax.data.files import FileTask  # noqa: E402
from grpo_jax.data.splits import SPLITS  # noqa: E402
from grpo_jax.foreign import environments  # noqa: E402
from grpo_jax.records import Completion, FinishReason  # noqa: E402
from grpo_jax.verifiers.pool import VerifierPool  # noqa: E402

MODULE = """
import json
import verifiers as vf
from datasets import Dataset

def load_environment(kind="SingleTurnEnv", count=60):
    rows = [
        {"question": f"{n} + {n}?", "answer": str(2 * n), "info": json.dumps({"level": n % 3})} for n in range(count)
    ]
    parser = vf.XMLParser(["think", "answer"], answer_field="answer")

    async def right(parser, completion, answer):
        return 1.0 if parser.parse_answer(completion) == answer else 0.0

    def polite(completion, info, state):
        assert info["level"] == state["info"]["level"]
        return float(completion[-1].content.startswith("<think>"))

    rubric = vf.Rubric(funcs=[right, polite], weights=[1.0, 0.25], parser=parser)
    if kind == "ToolEnv":
        return vf.ToolEnv(tools=[], dataset=Dataset.from_list(rows), rubric=rubric)
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows), system_prompt="Add.", parser=parser, rubric=rubric
    )
"""


@pytest.fixture
def name(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text(MODULE)
    return str(path)


def test_its_data_set_and_rubric_are_used(name):
    task = FileTask(DataConfig(task="environment", path=name))
    problem = task.problems("test")[0]
    assert sum(len(task.problems(split)) for split in SPLITS) == 60
    [system, user] = conversation(problem, "")
    assert (system, user["role"]) == ({"role": "system", "content": "Add."}, "user")
    texts = (f"<think>t</think><answer>{problem.answer}</answer>", f"<answer>{problem.answer}</answer>", "no")
    with VerifierPool(VerifierConfig(rewards=("environment",), environment=name), 1, 60.0) as pool:
        facts = pool.wait_until_ready()
        verdicts = [pool.submit(problem, Completion(text, 5, FinishReason.STOP)).result() for text in texts]
    assert facts["environment"].endswith(": right, polite")
    assert [(verdict.reward, verdict.correct, verdict.error) for verdict in verdicts] == [
        (1.25, True, False),
        (1.0, True, False),
        (0.0, False, False),
    ], verdicts


def test_one_with_tools_is_refused(name):
    with pytest.raises(environments.EnvironmentFault, match=r"is a ToolEnv, wanted a SingleTurnEnv"):
        environments.load(f"{name}:{json.dumps({'kind': 'ToolEnv'})}")
