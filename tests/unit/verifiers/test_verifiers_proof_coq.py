import shutil

import pytest

from grpo_jax.config.proof import ProofConfig
from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.proof import coq_source
from grpo_jax.verifiers.proof.verifier import ProofVerifier

pytestmark = pytest.mark.skipif(
    shutil.which("coqc") is None, reason="Coq is not installed: there is no 'coqc' on PATH (apt-get install coq)"
)

STATEMENT = "forall n : nat, n + 0 = n"
TACTICS = "intro n; induction n as [|n IHn]; [reflexivity | simpl; rewrite IHn; reflexivity]"
PROOF = f"Proof. {TACTICS}. Qed."
RIGHT = f"Theorem t : {STATEMENT}. {PROOF}"
CLASSIC = "Coq.Logic.Classical_Prop.classic"


def verifier_with(**settings):
    return ProofVerifier(ProofConfig(extraction="whole", **settings), SandboxConfig())


@pytest.fixture(scope="module")
def verifier():
    made = verifier_with(compile_seconds=3.0)
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def classical():
    made = verifier_with(coq_axioms=(CLASSIC,))
    yield made
    made.close()


def judge(verifier, source, **extra):
    problem = Problem("p", "", "", {"statement": STATEMENT, "theorem": "t", **extra})
    return verifier(problem, Completion(source, 9, FinishReason.STOP))


def reason(verifier, source, **extra):
    verdict = judge(verifier, source, **extra)
    assert not verdict.error, verdict.reason
    assert (verdict.reward == 1.0) == verdict.correct == (verdict.reason == "proved")
    return verdict.reason


@pytest.mark.parametrize(
    "tactics",
    ["induction n; [reflexivity | simpl; f_equal; assumption]", "lia", "intuition auto with arith", "auto with arith"],
)
def test_the_goal_of_a_bare_proof_is_open_to_tactics(verifier, tactics):
    assert reason(verifier, f"Proof. {tactics}. Qed.", preamble="Require Import Lia Arith.") == "proved"


def test_a_bare_proof_of_another_thing_is_refused(verifier):
    statement = "forall n : nat, n + 1 = n"
    assert reason(verifier, "Proof. lia. Qed.", statement=statement, preamble="Require Import Lia.") == (
        "does not compile"
    )


@pytest.mark.parametrize(
    "source",
    [
        RIGHT,
        f"Require Challenge.\nTheorem t : Challenge.goal. {PROOF}",
        f"Require Import Challenge.\nDefinition t : goal. {PROOF}",
        PROOF,
        f'(* Admitted. Axiom (* nested *) "*)" Load *) {RIGHT}',
        f"Set Universe Polymorphism.\n{RIGHT}",
        f"Lemma helper : 1 = 1. Proof. reflexivity. Qed.\n{RIGHT}\nAxiom unused : False.",
        f'{RIGHT}\nRedirect "pwned" Print nat.',
    ],
)
def test_right_proofs_pass(verifier, source):
    assert reason(verifier, source) == "proved"


CHEATS = {
    "admitted": (f"Theorem t : {STATEMENT}. Admitted.", "uses axioms"),
    "admit": (f"Theorem t : {STATEMENT}. Proof. admit. Admitted.", "uses axioms"),
    "aborted": (f"Theorem t : {STATEMENT}. Abort.", "theorem not found"),
    "nothing": ("Definition u := 0.", "theorem not found"),
    "in a module": (f"Module M. {RIGHT} End M.", "theorem not found"),
    "axiom": (f"Axiom t : {STATEMENT}.", "uses axioms"),
    "axiom of False": (f"Axiom no : False. Theorem t : {STATEMENT}. Proof. destruct no. Qed.", "uses axioms"),
    "parameter of a module": (
        "Require Challenge. Module Type T. Parameter p : Challenge.goal. End T. Declare Module M : T."
        " Definition t := M.p.",
        "uses axioms",
    ),
    "included module type": (
        f"Module Type T. Axiom p : {STATEMENT}. End T. Module M. Include T. End M. Module N := M. Definition t := N.p.",
        "uses axioms",
    ),
    "functor": (
        f"Module Type T. Axiom p : {STATEMENT}. End T. Module F (X : T). Definition q := X.p. End F."
        " Declare Module A : T. Module B := F A. Definition t := B.q.",
        "uses axioms",
    ),
    "sealed module": (
        f"Module Type T. Parameter p : {STATEMENT}. End T. Module M : T. Axiom p : {STATEMENT}. End M."
        " Definition t := M.p.",
        "uses axioms",
    ),
    "section": (
        f"Section S. Hypothesis h : {STATEMENT}. Theorem t : {STATEMENT}. Proof. exact h. Qed. End S.",
        "statement changed",
    ),
    "other statement": ("Theorem t : forall n : nat, 0 + n = n. Proof. reflexivity. Qed.", "statement changed"),
    "True": ("Theorem t : True. Proof. exact I. Qed.", "statement changed"),
    "shadowed module": (
        "Module Challenge. Definition goal := True. End Challenge. Theorem t : Challenge.goal. Proof. exact I. Qed.",
        "statement changed",
    ),
    "notation for the goal": (
        "Require Challenge. Notation \"'Challenge.goal'\" := True. Theorem t : True. Proof. exact I. Qed.",
        "statement changed",
    ),
    "notation for equality": (
        'Notation "a = b" := (le b a) : type_scope. Theorem t : forall n : nat, n + 0 = n. '
        "Proof. induction n; [apply le_n | apply le_n_S; assumption]. Qed.",
        "statement changed",
    ),
    "own numbers": (
        'Inductive nat := O. Definition add (a b : nat) := a. Infix "+" := add. Notation "0" := O.'
        f" Theorem t : {STATEMENT}. Proof. reflexivity. Qed.",
        "statement changed",
    ),
    "abbreviation": ("Notation t := (fun n : nat => eq_refl n).", "statement changed"),
    "coercion": (
        "Require Challenge. Inductive B := b. Axiom no : False."
        " Definition f (_ : B) : Challenge.goal := match no with end."
        " Coercion f : B >-> Challenge.goal. Definition t := b.",
        "statement changed",
    ),
    "guard": (
        f"#[bypass_check(guard)] Fixpoint f (n : nat) : False := f n. {RIGHT}",
        "forbidden command: bypass_check",
    ),
    "positivity": ("Unset Positivity Checking. " + RIGHT, "forbidden command: Unset Positivity Checking"),
    "universes": ("#[global] Unset Universe Checking. " + RIGHT, "forbidden command: Unset Universe Checking"),
    "type in type": (
        "Set Universe Checking. Set Definitional UIP. Inductive seq {A} (a : A) : A -> SProp := srefl : seq a a."
        " Definition c (x : nat) (e : seq x x) : nat := match e in seq _ y return nat with srefl _ => 3 end."
        f" Lemma l : forall e : seq 0 0, c 0 e = 3. Proof. reflexivity. Qed. Theorem t : {STATEMENT}."
        f" Proof. pose (l (srefl 0)). {TACTICS}. Qed.",
        "uses axioms",
    ),
    "universe": ("Definition U := Type. Fixpoint x : U := U. Theorem t : False. Proof. Qed.", "does not compile"),
    "printed text": (
        f'Theorem t : {STATEMENT}. Admitted. Goal True. idtac "Closed under the global context". Abort.',
        "uses axioms",
    ),
    "settings of the printer": (
        "#[global] Set Printing Depth 1. #[global] Set Silent. Axiom no : False."
        f" Theorem t : {STATEMENT}. Proof. destruct no. Qed.",
        "uses axioms",
    ),
    "error at the end": (RIGHT + " Fail Check 0. Check undefined.", "does not compile"),
    "open proof": (f"{RIGHT} Theorem u : True. Proof.", "does not compile"),
    "plugin": ('Declare ML Module "ltac_plugin". ' + RIGHT, "forbidden command: Declare ML Module"),
    "load": ('Fail Timeout 3 Load "x". ' + RIGHT, "forbidden command: Load"),
    "extraction": (RIGHT + ' Extraction "Challenge.vo" nat.', "forbidden command: Extraction"),
    "folder": ('Cd "/". ' + RIGHT, "forbidden command: Cd"),
    "no end": (f"Theorem t : {STATEMENT}. Proof. repeat (idtac; assert True by exact I). Qed.", "time limit"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_is_no_proof_fails(verifier, name):
    source, wanted = CHEATS[name]
    verdict = judge(verifier, source)
    assert (verdict.reward, verdict.correct, verdict.error) == (0.0, False, False)
    assert verdict.reason == wanted


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (CHEATS["guard"][0].replace(PROOF, "Proof. destruct (f 0). Qed."), "uses axioms"),
        (
            "#[global] Unset Universe Checking. Definition U : Type@{Set} := Type. "
            + RIGHT.replace("Theorem", "Lemma"),
            "uses axioms",
        ),
        (
            "Unset Positivity Checking. Inductive B : Set := mk : (B -> False) -> B."
            f" Theorem t : {STATEMENT}. Proof. assert (F : B -> False) by (intros [f]; exact (f (mk f)))."
            " destruct (F (mk F)). Qed.",
            "uses axioms",
        ),
        (f'{RIGHT}\nPrint Universes "Challenge.vo".', "proved"),
        (
            'Require Import Extraction. Theorem t : True. exact I. Qed. Extraction "Challenge.vo" nat.',
            "statement changed",
        ),
    ],
)
def test_the_check_stands_without_the_filter(verifier, monkeypatch, source, wanted):
    monkeypatch.setattr(coq_source, "refused_command", lambda *_: None)
    assert reason(verifier, source) == wanted


def test_axioms_are_allowed_by_name(classical):
    use = "Require Import Coq.Logic.Classical. Theorem t : {0}. Proof. pose (classic True). {1} Qed."
    assert reason(classical, use.format(STATEMENT, f"{TACTICS}.")) == "proved"
    assert reason(classical, RIGHT) == "proved"


@pytest.mark.parametrize(
    "source",
    [
        f"Axiom no : False. Theorem t : {STATEMENT}. Proof. pose (classic True). destruct no. Qed.",
        f"Module Classical_Prop. Axiom classic : False. End Classical_Prop. Theorem t : {STATEMENT}."
        " Proof. destruct Classical_Prop.classic. Qed.",
        "#[global] Set Printing Depth 1. #[global] Set Printing Width 1. Axiom no : False."
        f" Theorem t : {STATEMENT}. Proof. pose (classic True). destruct no. Qed.",
    ],
)
def test_other_axioms_do_not_pass_for_allowed_ones(classical, source):
    assert reason(classical, f"Require Import Coq.Logic.Classical. {source}") == "uses axioms"


def test_an_unknown_allowed_axiom_is_an_error():
    made = verifier_with(coq_axioms=("Coq.Logic.Nothing.none",))
    try:
        verdict = judge(made, f"Axiom t : {STATEMENT}.")
    finally:
        made.close()
    assert verdict.error
    assert "coq_axioms: Coq does not know them all" in verdict.reason


def test_a_replay_checks_the_compiled_proof_again():
    made = verifier_with(replay=True)
    try:
        assert reason(made, RIGHT) == "proved"
    finally:
        made.close()


def test_further_commands_may_be_refused():
    made = verifier_with(forbidden=("Redirect", "lia"))
    try:
        assert reason(made, f'{RIGHT} Redirect "x" Print nat.') == "forbidden command: Redirect"
    finally:
        made.close()


def test_a_preamble_is_seen_by_statement_and_proof(verifier):
    preamble = (
        "Require Import Arith.\nOpen Scope nat_scope.\n"
        "Fixpoint double (n : nat) := match n with 0 => 0 | S m => S (S (double m)) end."
    )
    extra = {"statement": "forall n, double n = n + n", "preamble": preamble}
    proof = "Proof. intro n; induction n; [reflexivity | simpl; rewrite IHn, Nat.add_succ_r; reflexivity]. Qed."
    assert reason(verifier, f"Theorem t : forall n, double n = n + n. {proof}", **extra) == "proved"
    assert reason(verifier, proof, **extra) == "proved"
    own = "Definition double (n : nat) := n + n. Theorem t : forall n, double n = n + n. Proof. reflexivity. Qed."
    assert reason(verifier, own, **extra) == "statement changed"


def test_a_statement_that_does_not_compile_is_an_error(verifier):
    verdict = judge(verifier, RIGHT, statement="forall n, undefined n")
    assert verdict.error
    assert "the statement of 't' does not compile" in verdict.reason
    assert "undefined" in verdict.reason


def test_too_much_output_ends_a_proof(verifier):
    source = f'{RIGHT} Goal True. do 100000 (idtac "{"x" * 1000}"). Abort.'
    assert reason(verifier, source) == "output limit"


def test_too_much_memory_ends_a_proof():
    made = verifier_with(memory_mebibytes=700)
    try:
        assert reason(made, f"{RIGHT} Definition many := Eval vm_compute in Nat.pow 2 28.") == "memory limit"
    finally:
        made.close()
