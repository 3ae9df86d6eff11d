"""The bounds that make every judgement end: each is reached from both sides."""

import fractions
import subprocess
import sys

import pytest

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics import limits
from grpo_jax.verifiers.mathematics.characters import to_ascii_mathematics
from grpo_jax.verifiers.mathematics.equivalence import judge
from grpo_jax.verifiers.mathematics.exact import exact_value
from grpo_jax.verifiers.mathematics.limits import (
    Budget,
    InexactError,
    TooLargeError,
    UndefinedError,
    UnreadableError,
)
from grpo_jax.verifiers.mathematics.numeric import approximate_value
from grpo_jax.verifiers.mathematics.parser import parse_whole
from grpo_jax.verifiers.mathematics.probing import Outcome, compare
from grpo_jax.verifiers.mathematics.surface import strip_surroundings
from grpo_jax.verifiers.mathematics.tokens import tokenize

OPTIONS = MathematicsConfig()


def tree(text):
    return parse_whole(tokenize(text))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("8", " " * 50_000 + "8" + "\n" * 50_000),
        ("8", "0" * 9_000 + "8"),
        ("8", "8." + "0" * 9_000),
        ("8", "(" * 400 + "8" + ")" * 400),
        ("8", "{" * 400 + "8" + "}" * 400),
        ("8", r"\boxed{" * 20 + "8" + "}" * 20),
        ("8", "-" * 2_000 + "8"),
        ("1000", "+".join("1" * 1_000)),
        ("7" * 1_900, "7" * 1_900 + ".0"),
    ],
)
def test_long_ways_to_write_a_number(gold, answer):
    assert judge(gold, answer, OPTIONS).equal


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("1" * (limits.MAX_CHARACTERS + 1), "unreadable: too long"),
        ("${8}", "of another type"),
        ("8\x07", "unreadable: control character"),
        ("8\ud800", "unreadable: control character"),
        ("\u202e8", "unreadable: control character"),
        ("~~8~~", "unreadable: struck out or approximate"),
        ("", "unreadable: empty"),
        (r"\text{}", "unreadable: empty"),
        ("7" * (limits.MAX_DIGITS + 1), "of another type"),
        (r"\sqrt{" * 40 + "8" + "}" * 40, "of another type"),
        ("{" * 5_000, "of another type"),
        ("2^" * 2_000 + "8", "of another type"),
        ("8" + "!" * 2_000, "of another type"),
        (r"\sin " * 1_000 + "8", "of another type"),
        ("|" * 2_000 + "8", "of another type"),
        (",".join("8" * 1_000), "of another type"),
        (r"2^{2^{2^{100}}}", "too large to evaluate"),
        (r"(9^9)!", "too large to evaluate"),
        (r"\binom{10^8}{10^7}", "too large to evaluate"),
        (r"\sum_{k=1}^{10^9}k", "too large to evaluate"),
        ("1e999999", "too large to evaluate"),
        ("7-7/(3-3)", "undefined"),
        ("0^{-1}", "undefined"),
        ("(-3)!", "undefined"),
        (r"\ln 0", "undefined"),
    ],
)
def test_what_is_refused_has_a_reason(answer, reason):
    assert (judge("8", answer, OPTIONS).equal, judge("8", answer, OPTIONS).reason) == (False, reason)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"[\prod_{k=1}^{0i}(0.5!+k),7)\cup(7,\infty)", r"(7,\infty)\cup[\prod_{k=1}^{0i}(0.5!+k),7)"),
        (r"[100,e)\cup(\arctan(7\cosh i),\infty)", r"(\arctan(7\cosh i),\infty)\cup[100,e)"),
        ("|" * 500 + "8", "8" + "|" * 500),
        ("8" + " " * 9_000 + "6", "8" + "\t" * 9_000 + "6"),
        (r"[\tan 2,\sqrt{n})\cup(\arctan((e^n)!),\infty)", r"[\tan 2,\sqrt{n})\cup(\infty,\arctan((e^n)!))"),
        (r"\sin(\pi)", r"\sin(\pi)+x-x"),
        (r"\sum_{k=1}^{\tan(\arctan(y))} k^{\cosh(10)}", r"\sum_{k=1}^{\tan(\arctan(y))} k^{\cosh(10)}+0"),
        ("di", "{" * 300 + "}" * 300 + "di"),
        (r".\overline{x}", r"0.\overline{x}"),
    ],
)
def test_texts_that_once_broke_the_judge(text, answer):
    assert judge(text, answer, OPTIONS).equal == judge(answer, text, OPTIONS).equal


def test_numbers_up_to_the_limit_are_exact():
    bits = limits.MAX_BITS // 2
    assert exact_value(tree(f"2^{{{bits}}}"), Budget()) == 2**bits
    with pytest.raises(TooLargeError, match="number too large"):
        exact_value(tree(f"2^{{{limits.MAX_BITS}}}"), Budget())
    assert exact_value(tree("1000!/999!"), Budget()) == 1000
    with pytest.raises(TooLargeError, match="number too large"):
        exact_value(tree(f"{limits.MAX_FACTORIAL + 1}!"), Budget())


@pytest.mark.parametrize("evaluate", [exact_value, lambda tree, budget: approximate_value(tree, 50, budget)])
def test_work_is_counted(evaluate):
    double_sum = tree(r"\sum_{i=1}^{50}\sum_{j=1}^{50} ij")
    assert evaluate(double_sum, Budget()) == 1275**2
    with pytest.raises(TooLargeError, match="too much to evaluate"):
        evaluate(double_sum, Budget(2_000))


@pytest.mark.parametrize(
    "answer",
    [
        r"\sum_{i=1}^{1999}\sum_{j=1}^{1999} 0\cdot \binom{8000}{4000}",
        r"5 + \sum_{i=1}^{190}\sum_{j=1}^{20} 0\cdot 8000!",
        r"\sum_{i=1}^{1999} \sqrt{8000!}",
        r"\sum_{i=1}^{1999} \sqrt[3]{8000!}",
        r"\sum_{i=1}^{1999} (7999!!-7999!!)",
        r"\prod_{i=1}^{1999} 8000!/8000!",
        r"\sum_{i=1}^{1999} \frac{1}{4000!+i}",
    ],
)
def test_long_integers_are_charged_by_their_size(answer):
    assert judge("5", answer, OPTIONS).reason == "too large to evaluate"


def test_a_factorial_costs_what_its_size_says():
    budget, small = Budget(), Budget()
    exact_value(tree("8000!"), budget)
    exact_value(tree("20!"), small)
    assert limits.MAX_WORK - budget.left > 1_000
    assert limits.MAX_WORK - small.left < 10


def test_exhausted_work_is_no_equality():
    assert compare(tree("x+1"), tree("1+x"), Budget(10)) is Outcome.TOO_LARGE


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (r"\pi", InexactError, "irrational"),
        (r"\sqrt{2}", InexactError, "irrational"),
        ("x", InexactError, "a variable"),
        ("1/0", UndefinedError, "division by zero"),
        ("0^0", UndefinedError, "a power of zero"),
        ("(-1)!", UndefinedError, "factorial of a negative number"),
    ],
)
def test_what_has_no_exact_value(text, error, message):
    with pytest.raises(error, match=message):
        exact_value(tree(text), Budget())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3/4-1", fractions.Fraction(-1, 4)),
        (r"\sqrt{\frac{49}{64}}", fractions.Fraction(7, 8)),
        (r"\sqrt[3]{-27}", -3),
        ("16^{3/4}", 8),
        (r"\gcd(12,18)+\operatorname{lcm}(4,6)", 18),
        ("7!!", 105),
        (r"\prod_{k=2}^{5}\frac{k+1}{k}", 3),
        (r"17\bmod 5", 2),
    ],
)
def test_exact_values(text, value):
    assert exact_value(tree(text), Budget()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(1", "unbalanced brackets"),
        ("1)", "unbalanced brackets"),
        ("(1}", "unbalanced brackets"),
        (r"\frac{1", "unbalanced"),
        (r"\text", "missing argument"),
        (r"\nonsense", r"unknown command \\nonsense"),
        (r"\not<", "unknown negation"),
        ("5 § 6", "unexpected character"),
        ("[" * 40 + "]" * 40, "nested too deep"),
        (r"\text{" * 40 + "}" * 40, "nested too deep"),
    ],
)
def test_what_is_no_list_of_tokens(text, message):
    with pytest.raises(UnreadableError, match=message):
        tokenize(text)


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("x² + y₁₀", "x^{2} + y_{10}"),
        ("1½", r"1\frac{1}{2}"),
        ("\uff14\uff12", "42"),
        ("7\u2009500", "7 500"),
        ("π≤τ", r"\pi \le \tau "),
        ("plain", "plain"),
    ],
)
def test_unicode_is_rewritten(text, rewritten):
    assert to_ascii_mathematics(text) == rewritten


@pytest.mark.parametrize(
    ("text", "content", "is_text"),
    [
        (r" $\boxed{\text{ Yes }}$. ", "Yes", True),
        (r"\[ 8 \]", "8", False),
        ("**8**", "8", False),
        (r"\frac{1}{2}", r"\frac{1}{2}", False),
        (r"\text{a} + \text{b}", r"\text{a} + \text{b}", False),
        ("0.333...", "0.333...", False),
    ],
)
def test_surroundings_are_taken_off(text, content, is_text):
    assert strip_surroundings(text) == (content, is_text)


def test_simple_answers_load_no_computer_algebra():
    program = (
        "import sys\n"
        "from grpo_jax.config.mathematics import MathematicsConfig\n"
        "from grpo_jax.verifiers.mathematics.equivalence import judge\n"
        "assert judge('3/4', '0.75', MathematicsConfig()).equal\n"
        "print([name for name in ('mpmath', 'sympy', 'jax', 'numpy') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
