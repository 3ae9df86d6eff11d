"""What each option changes, and the flags that tell of it."""

import dataclasses

import pytest

from grpo_jax.config.checks import ConfigError
from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.equivalence import judge


@pytest.mark.parametrize(
    ("option", "value", "gold", "answer"),
    [
        ("percent", "strict", r"40\%", "0.4"),
        ("percent", "strict", r"40\%", "40"),
        ("percent", "fraction", r"40\%", "40"),
        ("percent", "number", r"40\%", "0.4"),
        ("missing_unit", False, r"8\text{ cm}", "8"),
        ("missing_unit", False, r"\$8", "8"),
        ("convert_units", False, "2 hours", "120 minutes"),
        ("convert_units", False, r"60^\circ", r"\pi/3"),
        ("approximation_digits", 0, "2/7", "0.2857142857"),
        ("approximation_digits", 12, r"\sqrt{7}", "2.64575131"),
        ("list_order", "same", "4, 9", "9, 4"),
        ("list_as_set", False, "4, 9", r"\{4, 9\}"),
        ("vector_as_tuple", False, r"\begin{pmatrix}4\\9\end{pmatrix}", "(4,9)"),
        ("interval_as_inequality", False, r"(-\infty,4)", "x<4"),
        ("name_optional", False, "4", "x=4"),
        ("choice_ignores_case", False, "D", "d"),
        ("choice_with_text", False, "D", "D: 40"),
    ],
)
def test_what_is_equal_by_default_and_not_without_the_option(option, value, gold, answer):
    default = MathematicsConfig()
    without = dataclasses.replace(default, **{option: value})
    for first, second in ((gold, answer), (answer, gold)):
        assert judge(first, second, default).equal
        assert not judge(first, second, without).equal


@pytest.mark.parametrize(
    ("option", "value", "gold", "answer"),
    [
        ("decimal_comma", True, "2.75", "2,75"),
        ("tuple_as_list", True, "(4, 9)", "4, 9"),
        ("base_as_value", True, "211_3", "22"),
        ("base_as_value", True, "10110_2", "211_3"),
        ("ratio_as_fraction", True, "4:9", r"\frac{4}{9}"),
        ("approximation_digits", 3, r"\sqrt{7}", "2.65"),
    ],
)
def test_what_is_equal_with_the_option_only(option, value, gold, answer):
    default = MathematicsConfig()
    with_option = dataclasses.replace(default, **{option: value})
    for first, second in ((gold, answer), (answer, gold)):
        assert not judge(first, second, default).equal
        assert judge(first, second, with_option).equal


@pytest.mark.parametrize(
    ("percent", "equal", "different"),
    [("fraction", "0.4", "40"), ("number", "40", "0.4"), ("either", "40", "4"), ("strict", r"40.0\%", "0.4")],
)
def test_what_a_percent_sign_stands_for(percent, equal, different):
    options = MathematicsConfig(percent=percent)
    assert judge(r"40\%", equal, options).equal
    assert not judge(r"40\%", different, options).equal


@pytest.mark.parametrize(
    ("gold", "answer", "flags"),
    [
        ("17", "17", ()),
        ("17", "17.0", ()),
        (r"\frac{17}{2}", "8.5", ()),
        ("17", "8+9", ("unevaluated",)),
        ("17", r"\sqrt{289}", ("unevaluated",)),
        (r"\sqrt{12}", r"2\sqrt{3}", ()),
        (r"7^{8^{9^{10}}}", r"7^{8^{9^{10}}}", ("unevaluated",)),
        (r"\frac{2}{7}", "0.285714", ("approximate",)),
        (r"17\text{ kg}", "17", ("unit_missing",)),
        (r"\$17", "17", ("unit_missing",)),
        (r"17\%", "0.17", ("percent_ambiguous",)),
        ("4, 9", "9, 4", ("reordered",)),
        ("4, 9", "4, 9.0", ()),
        (r"17\text{ kg}", "8+9", ("unevaluated", "unit_missing")),
        ("17", "18", ()),
    ],
)
def test_flags(gold, answer, flags):
    assert judge(gold, answer, MathematicsConfig()).flags == flags


@pytest.mark.parametrize("digits", [-1, 1, 2, 41])
def test_a_coarse_approximation_is_refused(digits):
    with pytest.raises(ConfigError, match=r"verifier\.math\.approximation_digits: got .*, wanted 0 or 3 to 40"):
        MathematicsConfig(approximation_digits=digits).validate("verifier.math")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"extraction": "boxed", "unclosed_answer": True}, "unclosed_answer"),
        ({"extraction": "whole", "unclosed_answer": True}, "unclosed_answer"),
        ({"extraction": "whole", "last_box": True}, "last_box"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(settings, key):
    with pytest.raises(ConfigError, match=f"math.{key}: got True, wanted False, since extraction is "):
        MathematicsConfig(**settings).validate("math")


def test_the_defaults_are_valid():
    MathematicsConfig().validate("math")


@pytest.mark.parametrize(
    "answer",
    ["(D)(E)", "(D) or (E)", "D: 40, E: 50", "D) not sure", "D. is wrong", "(D) (A) (B) (C)", "E: 40", "D) or e)"],
)
def test_a_choice_with_a_second_thought_is_none(answer):
    assert not judge("D", answer, MathematicsConfig()).equal


@pytest.mark.parametrize("answer", ["D: 40", "(D) 40", r"\text{(D) }40", "D. the red one", r"\textbf{(D)}\ 40"])
def test_a_choice_may_repeat_its_text(answer):
    assert judge("D", answer, MathematicsConfig()).equal
