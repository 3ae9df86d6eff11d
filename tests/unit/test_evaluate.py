"""The command repeats a run's own test, judges published models and servers alike, and refuses what cannot work."""

import json
import sys

import jax
import pytest

from grpo_jax import convert, evaluate, train
from tests.unit.rollout.test_rollout_endpoint import KEY, choice, server

CONFIG = """
from ml_collections import ConfigDict

def get_config(rewards="numeric"):
    verifier = {"rewards": (rewards,)} | ({"function": "REWARD:judge"} if rewards == "function" else {})
    return ConfigDict({
        "steps": 0,
        "seed": 3,
        "model": {"num_layers": 1, "d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 8, "d_ff": 16},
        "data": {"prompt_template": "{problem}=", "digits": 2, "validation_problems": 8, "test_problems": 8},
        "verifier": verifier,
        "rollout": {"prompts_per_step": 8, "completions_per_prompt": 2, "max_new_tokens": 24},
        "algorithm": {"micro_batch_completions": 8, "kl_beta": 0.0},
        "evaluation": {"test_samples_per_problem": 4},
    })
"""
REWARD = """
from grpo_jax.records import Verdict

def judge(problem, completion):
    # Something that random texts get right now and then, and that depends on every token.
    right = sum(map(ord, completion.text)) % 3 == 0
    return Verdict(float(right), correct=right, parsed=completion.text[:1], reason="")
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs")
    (folder / "reward.py").write_text(REWARD)
    (folder / "tiny.py").write_text(CONFIG.replace("REWARD", str(folder / "reward.py")))
    return folder / "tiny.py"


@pytest.fixture(scope="module")
def run(config):
    """A run that has ended, with its own evaluation on record."""
    folder = config.parent / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["train", f"--config={config}:function", f"--workdir={folder}"])
        assert train.main() == 0
    return folder


@pytest.fixture
def command(monkeypatch, capsys):
    def run_it(*arguments):
        monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments)])
        assert evaluate.main() == 0
        return capsys.readouterr().out

    return run_it


def result_of(command, *arguments):
    return json.loads(command(*arguments, "--json=-"))


def test_a_run_is_tested_as_it_tested_itself(command, run, tmp_path):
    own = json.loads((run / "summary.json").read_text())["test_pass_at_1_after"]
    found = result_of(command, f"--model={run}", f"--out={tmp_path / 'out'}")
    assert found["scores"]["pass@1"]["value"] == pytest.approx(own, abs=1e-9)
    assert 0 < own < 1, "equal zeros would say nothing"
    assert list(found["scores"]) == ["pass@1", "pass@4", "maj@4"]
    assert (found["problems"], found["completions"], found["judge_errors"]) == (8, 32, 0)
    assert found["model"].startswith("step 0 of grpo in")
    rows = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert len(rows) == 32
    assert sum(row["correct"] for row in rows) / 32 == pytest.approx(own)
    logged = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    own_texts = [row["completion"] for row in logged if row["split"] == "test"][-8:]
    assert [row["completion"] for row in rows if row["sample"] == 0] == own_texts
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
    # The same again, to the bit, and other noise with another seed.
    assert result_of(command, f"--model={run}") == found
    assert result_of(command, f"--model={run}", "--seed=4")["mean_length_tokens"] != found["mean_length_tokens"]


def test_a_published_folder_needs_a_configuration_and_brings_its_tokenizer(command, run, config, tmp_path):
    convert.convert(run, tmp_path / "published")
    found = result_of(command, f"--model={tmp_path / 'published'}", f"--config={config}:function")
    assert found["scores"] == result_of(command, f"--model={run}")["scores"]
    with pytest.raises(ValueError, match=r"--config: got none, wanted a configuration: .*published is no run folder"):
        command(f"--model={tmp_path / 'published'}")


def test_overrides_change_what_a_run_brings_and_the_table_is_for_people(command, run):
    text = command(f"--model={run}", "--config.rollout.max_new_tokens=2", "--samples=2", "--k=1,2", "--max_problems=5")
    assert "5 problems (test), 2 completions each, temperature 1, seed 3" in text
    assert "0 completions without an answer, " in text
    assert "maj@2" in text
    greedy = result_of(command, f"--model={run}", "--temperature=0", "--samples=1", "--split=validation")
    assert (greedy["sampling"]["temperature"], greedy["completions"]) == (0.0, 8)


def test_a_mesh_that_shares_parameters_gives_the_same(command, run):
    shared = ["--config.mesh.data=2", "--config.mesh.fsdp=4"]
    assert len(jax.devices()) == 8
    assert result_of(command, f"--model={run}", *shared)["scores"] == result_of(command, f"--model={run}")["scores"]


@pytest.fixture
def problems(tmp_path):
    rows = [{"problem": f"{n}+1", "answer": str(n + 1), "kind": {"level": f"[{n % 2}]"}} for n in range(30)]
    rows[4]["kind"] = None
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["--config.data.task=file", "--config.data.digits=3", f"--config.data.path={path}", "--split=all"]


def solved(number, path, body):
    """Solves what ends in an odd digit, and answers 0 otherwise; the judge cannot be told from a model here."""
    chat = path.endswith("/chat/completions")
    text = body["messages"][-1]["content"] if chat else body["prompt"]
    left = int(text.partition("+")[0])
    return choice(f"<answer>{left + 1 if left % 2 else 0}</answer>", chat=chat)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_server_is_judged_by_category(command, config, problems, monkeypatch, tmp_path, api):
    monkeypatch.setenv("THE_KEY", KEY)
    with server(solved) as (url, seen, _):
        found = result_of(
            command,
            f"--endpoint={url}",
            "--endpoint_model=remote",
            f"--endpoint_api={api}",
            "--endpoint_key_env=THE_KEY",
            f"--config={config}",
            *problems,
            "--category=kind.level",
            "--samples=2",
            f"--out={tmp_path / 'out'}",
        )
    assert len(seen) == 60
    assert all(headers["Authorization"] == f"Bearer {KEY}" for _, _, headers in seen)
    rates = {
        name: (score["pass@1"]["value"], score["pass@1"]["problems"]) for name, score in found["categories"].items()
    }
    assert rates == {"(none)": (0.0, 1), "[0]": (0.0, 14), "[1]": (1.0, 15)}
    assert found["scores"]["maj@2"]["value"] == found["scores"]["pass@1"]["value"] == 0.5
    assert found["model"] == f"remote at {url}"
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert KEY not in written + json.dumps(found)


def test_the_chat_template_is_applied_here_for_a_server_that_completes(command, config, run, problems, tmp_path):
    convert.convert(run, tmp_path / "published")
    (tmp_path / "published" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}=")
    chat = ["--config.data.chat=True", f"--config.data.tokenizer={tmp_path / 'published'}"]
    asked = ["--endpoint_model=m", f"--config={config}", *problems, "--max_problems=3", *chat]
    with server(solved) as (url, seen, _):
        command(f"--endpoint={url}", "--endpoint_api=completions", *asked)
        command(f"--endpoint={url}", *asked)
    assert all(body["prompt"].endswith("==") for path, body, _ in seen if path == "/v1/completions")
    assert all(body["messages"][0]["content"].endswith("=") for path, body, _ in seen if path != "/v1/completions")
    assert {path for path, _, _ in seen} == {"/v1/completions", "/v1/chat/completions"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"wanted either --model MODEL or --endpoint URL"),
        (["--model=RUN", "--endpoint=http://h/v1"], r"wanted either --model"),
        (["--model=RUN", "--endpoint_model=x"], r"--endpoint_model: wanted none without --endpoint"),
        (["--model=RUN", "--split=tests"], r"--split: got 'tests', wanted one of train, validation, test, all"),
        (["--model=RUN", "--split=all"], r"data\.task: got 'addition', wanted 'file'"),
        (["--model=RUN", "--samples=0"], r"--samples: got 0, wanted 1 or more"),
        (["--model=RUN", "--max_problems=0"], r"--max_problems: got 0"),
        (["--model=RUN", "--k=1,9"], r"--k: got \['1', '9'\], wanted numbers from 1 to the 4 of --samples"),
        (["--model=RUN", "--k=one"], r"--k: got 'one', wanted numbers such as 1,4,8"),
        (["--model=RUN", "--temperature=0"], r"--samples: got 4, wanted 1, since --temperature 0"),
        (["--model=RUN", "--temperature=-1"], r"--temperature: got -1\.0, wanted 0 or more"),
        (["--model=RUN", "--seed=-1"], r"--seed: got -1"),
        (["--model=RUN", "--category=level"], r"--category: got 'level', wanted a column of the problems: "),
        (["--model=RUN", "--config.data.tokenizer=bytes"], r"data\.tokenizer: got bytes, which has 263 ids, wanted at"),
        (["--model=RUN", "--config.steps=9"], r"config\.steps: wanted none, since an evaluation does not read it: it"),
        (
            ["--model=RUN", "--config.model.d_model=32"],
            r"config\.model\.d_model: wanted none, .*: the model is that of",
        ),
        (["--model=RUN", "--json=absent/x"], r"--json: absent/x cannot be written"),
        (
            ["--model=RUN", "--out=/proc/x"],
            r"--out: /proc/x cannot be made: No such file or directory\. Choose",
        ),
        (["--model=RUN", "--out=CONFIG/x"], r"--out: .*/x cannot be made: Not a directory"),
        (["--model=RUN", "--out=RUN"], r"--out: .* holds an evaluation already"),
        (["--model=absent", "--config=CONFIG"], r"--model: absent is neither a \.gguf file nor a folder"),
        (
            ["--model=RUN", "--config.mesh.data=1", "--config.mesh.tensor=8"],
            r"^config\.mesh: parameter .* wanted a mult",
        ),
        (["--model=RUN", "--config.mesh.data=3"], r"^config\.mesh: got"),
        (["--endpoint=http://h/v1", "--config=CONFIG"], r"--endpoint_model: got None, wanted the model's name"),
        (["--endpoint=http://h/v1"], r"--config: got none, wanted a configuration: http://h/v1 is no run folder"),
        (["--endpoint=h", "--endpoint_model=m", "--config=CONFIG"], r"--endpoint: got 'h', wanted http://HOST"),
        (
            ["--endpoint=http://h/v1", "--endpoint_model=m", "--config=CONFIG", "--endpoint_api=messages"],
            r"--endpoint_api: got 'messages', wanted completions or chat",
        ),
        (
            ["--endpoint=http://h/v1", "--endpoint_model=m", "--config=CONFIG", "--endpoint_key_env=NOT_SET_HERE"],
            r"--endpoint_key_env: got 'NOT_SET_HERE', wanted a variable that is set",
        ),
        (
            ["--endpoint=http://h/v1", "--endpoint_model=m", "--config=CONFIG", "--endpoint_concurrency=0"],
            r"--endpoint_concurrency: got 0",
        ),
    ],
)
def test_command_lines_that_cannot_work_are_refused(command, run, config, arguments, message):
    given = [argument.replace("RUN", str(run)).replace("CONFIG", str(config)) for argument in arguments]
    with pytest.raises((ValueError, RuntimeError, FileExistsError), match=message):
        command(*given)
