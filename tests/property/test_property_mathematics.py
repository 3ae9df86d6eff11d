"""What must hold for the comparison of any two texts."""

import string

import hypothesis
from hypothesis import strategies as st

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.equivalence import judge

OPTIONS = MathematicsConfig()
PIECES = (
    "0 1 2 7 10 0.5 1,000 x y n e i a_1 + - * / ^ ! = < ( ) [ ] { } | , : % $ ' . "
    + r"\frac{1}{2} \frac12 \sqrt{3} \sqrt "
    r"\pi \sin \log_2 \cdot \times \le \ne \in \cup \pm \{ \} \left( \right) \text{ cm} \text{ or } ^\circ \% \$ "
    r"\begin{pmatrix} \end{pmatrix} & \\ \overline{3} \mathbb{R} \emptyset \boxed{ km \land \lor \pmod | "
    r"A^{-1} B \circ f \mathbf{a} C( (B) dozen old no five 9:45 am yes √ ² ½ ∞ − ×"
).split()

texts = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=string.printable, max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
)

numbers = st.one_of(
    st.integers(-999, 999).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
    st.sampled_from(("x", "y", r"\pi", r"\sqrt{2}", "0.25", "n")),
)
expressions = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({parts[0]}){parts[1]}({parts[2]})"),
        st.tuples(inner, st.integers(0, 4)).map(lambda parts: f"({parts[0]})^{{{parts[1]}}}"),
        st.tuples(inner, inner).map(lambda parts: rf"\frac{{{parts[0]}}}{{{parts[1]}}}"),
        inner.map(lambda part: rf"\sqrt{{{part}}}"),
    ),
    max_leaves=5,
)
spaces = st.sampled_from(("", " ", "  ", r"\,", r"\;", r"\ ", r"\!", "\n", "~", r"\quad "))


@hypothesis.given(texts, texts)
def test_no_text_breaks_the_judge_and_the_order_does_not_matter(gold, answer):
    assert judge(gold, answer, OPTIONS).equal == judge(answer, gold, OPTIONS).equal


@hypothesis.given(texts)
def test_every_text_equals_itself_unless_nothing_is_left_of_it(text):
    judgement = judge(text, text, OPTIONS)
    assert judgement.equal or (judgement.error and judgement.answer.normal_form == "")


@hypothesis.given(texts, texts)
def test_the_same_question_gets_the_same_judgement(gold, answer):
    assert judge(gold, answer, OPTIONS) == judge(gold, answer, OPTIONS)


@hypothesis.given(expressions, expressions, spaces, spaces)
def test_space_around_operators_changes_nothing(left, right, before, after):
    # A tilde before a number would say that it is approximate.
    for sign in "+*=<":
        assert judge(f"{left}{sign}{right}", f"{left}{before}{sign}{after}{right}{after}", OPTIONS).equal


@hypothesis.given(expressions, expressions)
def test_a_difference_of_one_is_seen(left, right):
    sum_ = f"{left}+{right}"
    assert not judge(sum_, f"{sum_}+1", OPTIONS).equal
    assert not judge(sum_, f"{sum_}+10^{{-70}}", OPTIONS).equal


@hypothesis.given(expressions, expressions)
def test_terms_commute_and_brackets_do_not_matter(left, right):
    judgement = judge(f"({left})+({right})", rf"$\left({right}\right)+{{({left})}}$.", OPTIONS)
    assert judgement.equal or judgement.reason in ("undefined", "too large to evaluate")


@hypothesis.given(st.lists(numbers, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_lists_and_sets_have_no_order_and_tuples_do(items, source):
    shuffled = list(items)
    source.shuffle(shuffled)
    assert judge(", ".join(items), ", ".join(shuffled), OPTIONS).equal
    assert judge(rf"\{{{','.join(items)}\}}", rf"\{{{','.join(shuffled)}\}}", OPTIONS).equal
    if not any(judge(one, other, OPTIONS).equal for one, other in zip(items, shuffled, strict=True)):
        assert not judge(f"({', '.join(items)})", f"({', '.join(shuffled)})", OPTIONS).equal
