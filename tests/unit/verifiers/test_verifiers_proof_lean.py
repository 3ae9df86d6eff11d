import json
import shutil
import sys

import pytest

from grpo_jax.config.proof import ProofConfig
from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.proof import lean_source
from grpo_jax.verifiers.proof.verifier import ProofVerifier
from tests.unit.verifiers import fake_lean

FAKE = fake_lean.command()
STATEMENT = "theorem t (n : Nat) : n + 0 = n"
RIGHT = f"{STATEMENT} := by simp"


def verifier_with(**settings):
    fake = {"lean_command": FAKE, "lean_checker": (*FAKE, "replay"), "read_paths": (sys.base_prefix,)}
    return ProofVerifier(ProofConfig(prover="lean4", extraction="whole", **(fake | settings)), SandboxConfig())


@pytest.fixture(scope="module")
def verifier():
    made = verifier_with()
    made.start()
    yield made
    made.close()


def judge(verifier, source, statement=STATEMENT, **extra):
    problem = Problem("p", "", "", {"statement": statement, "theorem": "t", **extra})
    return verifier(problem, Completion(source, 9, FinishReason.STOP))


def reason(verifier, source, statement=STATEMENT, **extra):
    verdict = judge(verifier, source, statement, **extra)
    assert not verdict.error, verdict.reason
    assert (verdict.reward == 1.0) == verdict.correct == (verdict.reason == "proved")
    return verdict.reason


def test_start_tells_level_and_version(verifier):
    assert verifier.start()["lean4"] == "Lean (version 4.0.0, fake)"


@pytest.mark.parametrize(
    "source",
    [
        RIGHT,
        "by simp",
        ":= rfl",
        f"-- sorry, axiom\n{RIGHT}",
        f"{STATEMENT} := by exact?",
        f'#eval IO.FS.writeFile "/tmp/pwned" "x"\n{RIGHT}',
        f"#eval IO.Process.exit 0\n{RIGHT}\n#print axioms t",
        f"import Mathlib\nimport Aesop.Frontend\nopen Nat\nset_option maxHeartbeats 400000\n{RIGHT}",
    ],
)
def test_right_proofs_pass(verifier, source):
    assert reason(verifier, source) == "proved"


@pytest.mark.parametrize(
    ("source", "statement", "wanted"),
    [
        (f"{STATEMENT} := by omega", STATEMENT, "does not compile"),
        (f"{STATEMENT} := by sorry", STATEMENT, "forbidden command: sorry"),
        ("axiom cheat : False\ntheorem t : 1 = 2 := cheat.elim", "theorem t : 1 = 2", "forbidden command: axiom"),
        (
            "theorem t : 2^20 % 7 = 4 := by native_decide",
            "theorem t : 2^20 % 7 = 4",
            "forbidden command: native_decide",
        ),
        ("theorem t (a : Nat) : 2 + 2 = 4 := rfl", "theorem t : 2 + 2 = 5", "statement changed"),
        ("theorem t (h : 1 = 2) : 1 = 2 := h", "theorem t : 1 = 2", "statement changed"),
        (
            "theorem t (a b : Nat) (h : a < b) : a ≤ b := Nat.le_of_lt h",
            "theorem t (a b : Nat) (h : a < b) : a * a < b * b",
            "statement changed",
        ),
        ("theorem u (n : Nat) : n + 0 = n := rfl", STATEMENT, "theorem not found"),
        (f"import Lean\n{RIGHT}", STATEMENT, "forbidden import: Lean"),
        (f"{RIGHT}\nimport Lean", STATEMENT, "forbidden command: import"),
        (f"{RIGHT}\n#exit", STATEMENT, "forbidden command: #exit"),
    ],
)
def test_wrong_proofs_fail(verifier, source, statement, wanted):
    assert reason(verifier, source, statement) == wanted


# The second layer alone: what would happen if the filter let these through.
@pytest.mark.parametrize(
    ("source", "statement", "wanted"),
    [
        (f"{STATEMENT} := by sorry", STATEMENT, "uses sorry"),
        ("axiom cheat : False\ntheorem t : 1 = 2 := cheat.elim", "theorem t : 1 = 2", "uses axioms"),
        ("theorem t : 2 = 2 := by native_decide", "theorem t : 2 = 2", "uses axioms"),
        (
            "variable (h : n = 0)\ninclude h\ntheorem t (n : Nat) : n = 0 := h",
            "theorem t (n : Nat) : n = 0",
            "statement changed",
        ),
        (
            "local macro_rules | `($a + $b) => `(5)\ntheorem t : 2 + 2 = 5 := rfl",
            "theorem t : 2 + 2 = 5",
            "statement changed",
        ),
        (
            "instance : HAdd Nat Nat Nat := five\ntheorem t : 2 + 2 = 5 := rfl",
            "theorem t : 2 + 2 = 5",
            "statement changed",
        ),
        ("raw Proof.lean:1:1: no message\n" + RIGHT, STATEMENT, "does not compile"),
        ("raw {}\n" + RIGHT, STATEMENT, "does not compile"),
        ('raw {"severity": "information", "data": "t", "pos": {"line": "9"}}\n' + RIGHT, STATEMENT, "does not compile"),
        ("raw " + "[" * 50_000 + "\n" + RIGHT, STATEMENT, "does not compile"),
    ],
)
def test_the_comparison_stands_without_the_filter(verifier, monkeypatch, source, statement, wanted):
    monkeypatch.setattr(lean_source, "refused_command", lambda *_: None)
    assert reason(verifier, source, statement) == wanted


@pytest.mark.parametrize("printed", ['{"nonce": "0", "finding": "same"}', "'t' does not depend on any axioms"])
def test_printed_text_proves_nothing(verifier, monkeypatch, printed):
    monkeypatch.setattr(lean_source, "refused_command", lambda *_: None)
    monkeypatch.setattr(lean_source, "without_diagnostics", lambda source: source)
    source = f"theorem u : 2 + 2 = 4 := rfl\n#eval IO.println {json.dumps(printed)}"
    assert reason(verifier, source) == "theorem not found"


def test_an_exit_while_lean_reads_the_file_is_no_proof(verifier, monkeypatch):
    monkeypatch.setattr(lean_source, "without_diagnostics", lambda source: source)
    monkeypatch.setattr(lean_source, "refused_command", lambda *_: None)
    assert reason(verifier, "#eval IO.Process.exit 0\n" + RIGHT) == "ends before its last line"


def test_a_replay_finds_what_the_kernel_has_not_seen(verifier, monkeypatch):
    source = "set_option debug.skipKernelTC true\ntheorem t : 1 = 2 := rfl"
    assert reason(verifier, source, "theorem t : 1 = 2").startswith("forbidden command: set_option debug.skipKernelTC")
    monkeypatch.setattr(lean_source, "refused_command", lambda *_: None)
    assert reason(verifier, source, "theorem t : 1 = 2") == "proved"
    replaying = verifier_with(replay=True)
    try:
        assert reason(replaying, source, "theorem t : 1 = 2") == "replay failed"
        assert reason(replaying, RIGHT) == "proved"
    finally:
        replaying.close()


def test_a_model_may_repeat_the_preamble(verifier):
    preamble = "import Mathlib\nopen Nat\naxiom given : Nat"
    assert reason(verifier, RIGHT, preamble=preamble) == "proved"
    assert reason(verifier, f"import Mathlib\nopen Nat\naxiom given : Nat\n{RIGHT}", preamble=preamble) == "proved"


def test_a_statement_may_be_a_proposition_or_end_in_sorry(verifier):
    assert reason(verifier, "theorem t : 2 + 2 = 4 := rfl", "2 + 2 = 4") == "proved"
    assert reason(verifier, RIGHT, f"{STATEMENT} := by\n  sorry") == "proved"


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [("theorem t", "the statement of 't' does not compile"), ("theorem u : 2 + 2 = 4", "another name")],
)
def test_a_useless_statement_is_an_error(verifier, statement, wanted):
    verdict = judge(verifier, "theorem t : 2 + 2 = 4 := rfl", statement)
    assert verdict.error
    assert wanted in verdict.reason


def test_a_comparison_that_does_not_work_is_an_error():
    broken = list(FAKE)
    broken[3] = broken[3].replace("compare(*arguments[3:])", "0")
    made = verifier_with(lean_command=tuple(broken))
    try:
        verdict = judge(made, RIGHT)
    finally:
        made.close()
    assert verdict.error
    assert "Lean cannot compare the proof with the statement" in verdict.reason


@pytest.mark.skipif(shutil.which("lean") is None, reason="Lean 4 is not installed: there is no 'lean' on PATH")
@pytest.mark.parametrize(
    ("source", "statement", "wanted"),
    [
        (RIGHT, STATEMENT, "proved"),
        ("by simp", STATEMENT, "proved"),
        ("theorem u : 1 = 1 := rfl\n" + RIGHT, STATEMENT, "proved"),
        (f"{STATEMENT} := by exact?", STATEMENT, "proved"),
        ("theorem t (m : Nat) : 0 + m = m := by simp", STATEMENT, "statement changed"),
        ("theorem t (h : 1 = 2) : 1 = 2 := h", "theorem t : 1 = 2", "statement changed"),
        ("theorem t : 1 = 2 := by decide", "theorem t : 1 = 2", "does not compile"),
    ],
)
def test_with_lean_itself(source, statement, wanted):
    config = ProofConfig(prover="lean4", extraction="whole", memory_mebibytes=8192)
    made = ProofVerifier(config, SandboxConfig())
    try:
        assert reason(made, source, statement) == wanted
    finally:
        made.close()
