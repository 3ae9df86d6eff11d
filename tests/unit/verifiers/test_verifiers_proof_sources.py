import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.verifiers.proof import coq_source, lean_source

COQ_PIECES = st.lists(
    st.sampled_from(['"', '""', "(*", "*)", "Load", ". ", "...", " ", "\n", "#[", "]", "x", "Fail", ":", "é", "(", "1"])
)
LEAN_PIECES = st.lists(
    st.sampled_from(
        ['"', "\\", "'", "/-", "-/", "--", "#eval", "x", "«", "»", ".", " ", "\n", "r#", "{", "}", "\u2115", "@["]
    )
)


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ('Load "x".', "Load"),
        ('Time Fail #[local] Load "x".', "Load"),
        ('Timeout 3 Redirect "a" Cd "/".', "Cd"),
        ("- { all: Drop. }", "Drop"),
        ("[x]: Quit.", "Quit"),
        ('Declare (* comment *) ML\nModule "p".', "Declare ML Module"),
        ("Unset Guard Checking.", "Unset Guard Checking"),
        ("#[global] Unset Positivity Checking.", "Unset Positivity Checking"),
        ("Unset Universe Checking", "Unset Universe Checking"),
        ("Local Set Typing Flags.", "Set Typing Flags"),
        ("#[bypass_check(guard)] Fixpoint f (n : nat) := f n.", "bypass_check"),
        ("#[local, bypass_check(universes = yes)] Definition x := 1.", "bypass_check"),
        ('Add Rec LoadPath "/" as X.', "Add Rec LoadPath"),
        ("Recursive Extraction f.", "Recursive Extraction"),
        ('(* " *) " *) Load "x".', "Load"),
        ('Definition s := "a "" (* ". Load "x".', "Load"),
        ("Lemma l : x = y.(* now *)Drop.", "Drop"),
    ],
)
def test_coq_commands_are_found(source, command):
    assert coq_source.refused_command(source) == command


@pytest.mark.parametrize(
    "source",
    [
        "(* Load. (* Drop. *) Quit. *) Definition x := 1.",
        '(* a string "*)" in a comment. Drop. *) Definition x := 1.',
        'Definition s := "Load. Drop. ".',
        "Inductive instruction := Load | Store | Drop.",
        "Definition Load_all := 1. Check Load_all.",
        "Lemma Load.Drop : True.",
        "Set Guard Checking. Unset Printing All.",
        'Redirect "x" Print nat.',
        "(* no end. Drop.",
    ],
)
def test_coq_names_comments_and_strings_are_no_commands(source):
    assert coq_source.refused_command(source) is None


def test_coq_phrases_may_be_forbidden():
    assert coq_source.refused_command("Proof. now lia. Qed.", ("lia",)) == "lia"
    assert coq_source.refused_command("Proof. set_lia; (* lia *) auto. Qed.", ("lia",)) is None
    assert coq_source.refused_command("Require  Import Lia.", ("Import Lia",)) == "Import Lia"


def test_coq_context_repeats_settings_and_imports_definitions():
    preamble = "From Coq Require Import Lia.\nLocal Open Scope nat_scope.\n(* c. *) Definition d := 1."
    assert coq_source.context(preamble, "M") == (
        "From Coq Require Import Lia.\nLocal Open Scope nat_scope.\nRequire Import M."
    )
    assert coq_source.context("Require Import Lia.", "M") == "Require Import Lia."


def test_coq_bare_proofs():
    assert coq_source.is_bare_proof(" (* c *) Proof. auto. Qed.")
    assert not coq_source.is_bare_proof("Theorem t : True. Proof. auto. Qed.")
    assert not coq_source.is_bare_proof("")


@given(COQ_PIECES)
def test_coq_sentences_are_a_division_of_any_text(pieces):
    source = "".join(pieces)
    assert source.startswith("".join(sentence.text for sentence in coq_source.sentences(source)))


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("theorem t : 1 = 2 := by sorry", "sorry"),
        ("theorem t : P := by\n  admit", "admit"),
        ("axiom a : False", "axiom"),
        ("private unsafe def f := 1", "unsafe"),
        ("@[implemented_by g] def f := 1", "attribute implemented_by"),
        ('@[simp, extern "f"] def f := 1', "attribute extern"),
        ("attribute [local instance] f", "attribute instance"),
        ("attribute [command_elab x] f", "attribute command_elab"),
        ("@[local simproc] def f := 1", "attribute simproc"),
        ("local instance : Add Nat := f", "instance"),
        ('local infixl:65 " + " => f', "infixl"),
        ("open Lean in\nrun_cmd f", "run_cmd"),
        ("example : P := by run_tac f", "run_tac"),
        ("set_option debug.skipKernelTC true", "set_option debug.skipKernelTC true"),
        ("set_option debug.«skipKernelTC» true", "set_option debug.skipKernelTC true"),
        ("set_option maxHeartbeats 0 in", "set_option maxHeartbeats 0"),
        ("set_option maxHeartbeats 0x00 in", "set_option maxHeartbeats 0x00"),
        ("set_option", "set_option"),
        ("/- a /- b -/ -/ axiom a : P", "axiom"),
        ("def c := '\"' axiom a : P --\"", "axiom"),
        ("def c := '\\'' axiom a : P --'", "axiom"),
        ('def s := "\\"" axiom a : P --"', "axiom"),
        ('def s := r#"""# axiom a : P --"', "axiom"),
        ('def s := s!"{by native_decide}"', "native_decide"),
        ('def s := s!"{\'"\'}" run_cmd f ""', "run_cmd"),
        ("def h' := 1 axiom a : P", "axiom"),
        ("def f := λsorry => 1", "sorry"),
        ("def f := eval% g", "eval%"),
        ("theorem t : P := by\n  #eval f", "#eval"),
        ("#exit", "#exit"),
        ("«axiom» a : P", "axiom"),
    ],
)
def test_lean_commands_are_found(source, command):
    assert lean_source.refused_command(source) == command


@pytest.mark.parametrize(
    "source",
    [
        "-- sorry\n/- axiom /- sorry -/ macro -/\n/-- instance -/\ntheorem t : P := by simp",
        'def s := "sorry axiom"',
        "theorem sorry_free (h' : List.prefix a b) : Foo.axiom := by simp [not_sorry, h'.notation]",
        "@[simp, local ext, -simp] theorem t : P := f '' s ++ #s",
        "attribute [local simp] foo in\ntheorem t : P := rfl",
        "set_option maxHeartbeats 400000 in\nset_option pp.all true\nset_option autoImplicit false",
        "theorem t : P := by exact?",
        "theorem t : P := by decide +kernel",
    ],
)
def test_lean_names_comments_and_strings_are_no_commands(source):
    assert lean_source.refused_command(source) is None


def test_lean_phrases_may_be_forbidden():
    assert lean_source.refused_command("theorem t : P := by exact?", ("exact?",)) == "exact?"
    assert lean_source.refused_command("theorem t : P := by simp_all", ("simp",)) is None


def test_lean_diagnostics_are_taken_out():
    source = "#eval do\n  f\n  -- #print\ntheorem t : P := by\n  simp\n#print axioms t\n#check t -- x"
    assert lean_source.without_diagnostics(source) == "\ntheorem t : P := by\n  simp\n\n"
    assert lean_source.without_diagnostics('def s := "#eval"\n') == 'def s := "#eval"\n'


def test_lean_imports_are_divided_from_the_rest():
    parts = lean_source.split_imports("-- c\nimport Mathlib\nimport A.B /- c -/\nopen Nat\nimport C")
    assert parts.imports == ("Mathlib", "A.B")
    assert parts.body == " /- c -/\nopen Nat\nimport C"
    assert lean_source.split_imports("theorem t : P := rfl").imports == ()
    assert lean_source.split_imports("import").imports == ()


def test_lean_imports_are_allowed_by_root_or_name():
    assert lean_source.refused_import(("Mathlib.Data.Nat", "A.B"), ("Mathlib", "A.B")) is None
    assert lean_source.refused_import(("Mathlib", "MathlibX"), ("Mathlib",)) == "MathlibX"


@given(LEAN_PIECES)
def test_lean_tokens_are_in_order_in_any_text(pieces):
    source = "".join(pieces)
    found = list(lean_source.tokens(source))
    assert all(before.end <= after.start for before, after in itertools.pairwise(found))
    assert all(0 <= token.start < token.end <= len(source) for token in found)
    assert "#eval" not in [token.text for token in lean_source.tokens(lean_source.without_diagnostics(source))]
