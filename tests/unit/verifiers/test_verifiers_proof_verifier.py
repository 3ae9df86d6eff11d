import sys

import pytest

from grpo_jax.config.checks import ConfigError
from grpo_jax.config.proof import ProofConfig
from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.base import ChecksReferences, NeedsStart, UnusableVerifierError, Verifier
from grpo_jax.verifiers.proof import contracts
from grpo_jax.verifiers.proof.contracts import Challenge, Challenges, ProofRefusedError
from grpo_jax.verifiers.proof.verifier import ProofVerifier
from grpo_jax.verifiers.sandbox.contracts import Execution
from tests.unit.verifiers import fake_lean

FAKE = fake_lean.command()
PROBLEM = Problem("p", "", "", {"statement": "theorem t : 2 + 2 = 4", "theorem": "t"})
PROOF = "theorem t : 2 + 2 = 4 := rfl"


def verifier_with(**settings):
    fake = {"prover": "lean4", "lean_command": FAKE, "read_paths": (sys.base_prefix,)}
    return ProofVerifier(ProofConfig(**(fake | settings)), SandboxConfig())


@pytest.fixture(scope="module")
def verifier():
    made = verifier_with()
    yield made
    made.close()


def done(text):
    return Completion(text, 9, FinishReason.STOP)


def test_it_is_a_verifier_of_all_kinds(verifier):
    assert isinstance(verifier, Verifier)
    assert isinstance(verifier, NeedsStart)
    assert isinstance(verifier, ChecksReferences)


def test_a_fenced_proof_after_thinking_is_judged(verifier):
    text = f"<think>```lean\ntheorem t : 1 = 2 := rfl\n```</think>Here it is:\n```lean4\n{PROOF}\n```\n"
    verdict = verifier(PROBLEM, done(text))
    assert (verdict.reward, verdict.correct, verdict.reason) == (1.0, True, "proved")
    assert verdict.parsed == PROOF + "\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROOF, "no code block"),
        (f"```python\n{PROOF}\n```", "no code block"),
        ("```lean\n\n```", "empty program"),
        (f"```lean\n{PROOF} \ud800\n```", "no valid text"),
    ],
)
def test_a_completion_without_a_proof_fails(verifier, text, reason):
    verdict = verifier(PROBLEM, done(text))
    assert (verdict.reward, verdict.correct, verdict.error, verdict.reason) == (0.0, False, False, reason)


def test_a_truncated_completion_fails(verifier):
    verdict = verifier(PROBLEM, Completion(f"```lean\n{PROOF}\n```", 9, FinishReason.LENGTH))
    assert (verdict.reward, verdict.error, verdict.reason) == (0.0, False, "truncated")


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [
        ({"theorem": "t"}, "problem 'p': extra['statement']: got '', wanted a text"),
        ({"statement": 3, "theorem": "t"}, "extra['statement']: got 3, wanted a text"),
        ({"statement": "True", "theorem": "t.\nQuit"}, "extra['theorem']: got 't.\\nQuit', wanted a theorem's name"),
        ({"statement": "True", "theorem": "t", "preamble": None}, "extra['preamble']: got None, wanted a text"),
        ({"statement": "True", "theorem": "t", "prover": "lean3"}, "extra['prover']: got 'lean3', wanted coq or lean4"),
    ],
)
def test_a_useless_problem_is_an_error(verifier, extra, wanted):
    problem = Problem("p", "", "", extra)
    fault = verifier.reference_fault(problem)
    assert wanted in fault
    verdict = verifier(problem, done(f"```\n{PROOF}\n```"))
    assert (verdict.reward, verdict.error, verdict.reason) == (0.0, True, fault)


def test_a_good_problem_has_no_fault(verifier):
    assert verifier.reference_fault(PROBLEM) == ""


@pytest.mark.parametrize(("prover", "remedy"), [("coq", "apt-get install coq"), ("lean4", "Install it with elan")])
def test_a_prover_that_is_not_there_is_no_wrong_answer(prover, remedy):
    config = ProofConfig(prover=prover, coq_command=("no-such-coqc",), lean_command=("no-such-lean",))
    verifier = ProofVerifier(config, SandboxConfig())
    with pytest.raises(UnusableVerifierError, match=rf"config\.verifier\.proof\..*got 'no-such-.*{remedy}"):
        verifier.start()
    verdict = verifier(PROBLEM, done(f"```\n{PROOF}\n```"))
    assert verdict.error
    assert remedy in verdict.reason


def test_a_prover_that_does_not_answer_is_unusable():
    with pytest.raises(UnusableVerifierError, match=r"lean_command: .*--print-prefix' fails"):
        verifier_with(lean_command=("false",)).start()
    with pytest.raises(UnusableVerifierError, match=r"lean_command: .*--print-prefix' answers nothing"):
        verifier_with(lean_command=("true",)).start()


def test_a_checker_that_is_not_there_is_unusable():
    verifier = verifier_with(replay=True, lean_checker=("no-such-checker",))
    with pytest.raises(UnusableVerifierError, match=r"lean_checker: got 'no-such-checker'.*set replay to False"):
        verifier.start()
    verifier.close()


def test_a_problem_may_choose_its_prover(verifier):
    other = ProofVerifier(ProofConfig(lean_command=FAKE, read_paths=(sys.base_prefix,)), SandboxConfig())
    try:
        problem = Problem("p", "", "", {**PROBLEM.extra, "prover": "lean4"})
        assert other(problem, done(f"```\n{PROOF}\n```")).reason == "proved"
    finally:
        other.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exit_code": None, "timed_out": True}, "time limit"),
        ({"exit_code": -24}, "time limit"),
        ({"exit_code": None, "out_of_memory": True}, "memory limit"),
        ({"exit_code": 1, "stderr": b"Error: Out of memory."}, "memory limit"),
        ({"exit_code": None, "output_truncated": True}, "output limit"),
        ({"exit_code": -11}, "prover crashed"),
    ],
)
def test_a_step_that_does_not_finish_refuses_the_proof(changes, reason):
    usual = {"exit_code": 0, "stdout": b"", "stderr": b"", "timed_out": False, "output_truncated": False}
    execution = Execution(**(usual | {"out_of_memory": False, "seconds": 1.0} | changes))
    with pytest.raises(ProofRefusedError, match=f"^{reason}$"):
        contracts.refuse_unfinished(execution)


def test_compiled_challenges_are_kept_up_to_a_number(monkeypatch):
    monkeypatch.setattr(contracts, "MAX_CHALLENGES", 2)
    built = []
    challenges = Challenges(lambda challenge: built.append(challenge.statement) or challenge.statement.encode())
    for statement in ("a", "a", "b", "c", "a"):
        assert challenges.compiled(Challenge(statement, "t")) == statement.encode()
    assert built == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"compile_seconds": 0.0}, r"config\.verifier\.proof\.compile_seconds: got 0\.0"),
        ({"memory_mebibytes": 1}, r"memory_mebibytes: got 1, wanted 64 or more"),
        ({"coq_command": ()}, r"coq_command: got \(\), wanted a program"),
        ({"lean_paths": ("lib",)}, r"lean_paths: got 'lib', wanted absolute paths"),
        ({"read_paths": ("lib",)}, r"read_paths: got 'lib', wanted absolute paths"),
        ({"coq_axioms": ("classic",)}, r"coq_axioms: got 'classic', wanted full names"),
        ({"forbidden": (" ",)}, r"forbidden: got ' ', wanted words"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, wanted):
    with pytest.raises(ConfigError, match=wanted):
        ProofConfig(**settings).validate("verifier.proof")


def test_the_default_settings_are_valid_and_add_up():
    config = ProofConfig(compile_seconds=3.0, check_seconds=1.0)
    config.validate("verifier.proof")
    assert config.longest_seconds == 8.0
