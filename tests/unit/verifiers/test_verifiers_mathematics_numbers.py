"""Numbers in every spelling, with and without units."""

import pytest

from grpo_jax.config.mathematics import MathematicsConfig
from tests.unit.verifiers.mathematics_tables import assert_judged, pairs

OPTIONS = MathematicsConfig()

# One reference, and ways to write it.
EQUAL = {
    "integer": {
        "42": [
            "+42",
            "42.0",
            "42.00",
            r"\(42\)",
            r"\[42\]",
            "$$42$$",
            "*42*",
            "__42__",
            "`42`",
            "{42}",
            "042",
            "0042.0",
        ],
        "-5": ["−5", "(-5)"],
        "0": ["-0", "0.0"],
        "7": ["7/1"],
    },
    "thousands": {
        "1000": ["1 000", r"1\,000", r"1\;000", "1{,}000", r"1,\!000"],
        "1000000": ["1 000 000", "1,000,000"],
        "12500": ["12,500", "12 500"],
        "12500.50": ["12,500.50"],
        "12345678": ["12,345,678"],
        "1,234,567": ["1234567"],
        "1234": ["1,234.0", "1 234"],
    },
    "fraction": {
        "1/2": [
            r"\dfrac{1}{2}",
            r"\cfrac{1}{2}",
            "1 / 2",
            "2/4",
            "0.5",
            "50/100",
            r"\frac{1}{ 2 }",
            r"{1 \over 2}",
            "1÷2",
            r"\frac{0.5}{1}",
        ],
        r"-\frac{3}{4}": [r"\frac{3}{-4}", "-.75", "-(3/4)", "-3/4"],
        r"\frac{3}{4}": [r"\frac{3}{4}."],
        r"\frac{2}{3}": [r"\frac{2x}{3x}", r"\left. \frac{2}{3} \right."],
        r"\frac{22}{7}": ["3.142857"],
        r"\frac{1}{2}": [r"\frac{1}{2}\cdot 1"],
        r"\frac{1}{100}": ["0.01"],
        r"\frac{a}{b}": ["a/b"],
        r"\frac{\frac{1}{2}}{3}": [r"\frac{1}{6}"],
    },
    "missing_braces": {
        "1/2": [r"\tfrac12"],
        "3/4": [r"\frac34"],
        "1/12": [r"\frac1{12}", r"\frac{1}{12}"],
        r"3\sqrt7": [r"3\sqrt{7}"],
        r"\frac{\pi}{4}": [r"\frac{\pi}4", r"\frac\pi{4}"],
        r"\frac{x}{2}": [r"\frac x2"],
        r"\frac{x}{y}": [r"\frac xy"],
        "2^{10}": ["2^10"],
        "x_1": ["x_{1}"],
        "x_{1}+x_2": ["x_1+x_{2}"],
        r"\sqrt{2}": [r"\sqrt 2"],
        r"\frac{12}{5}": [r"\frac{12}5"],
    },
    "mixed": {
        "3/2": [r"1\dfrac12", r"1 \frac{1}{2}", "1½"],
        "-3/2": [r"-1\frac{1}{2}", "-1 1/2"],
        "11/4": ["2 3/4", r"2\,\frac{3}{4}", r"2+\frac{3}{4}"],
        r"5\frac{1}{3}": ["16/3", r"5.\overline{3}"],
    },
    "percent": {
        "28%": [r"28\%"],
        r"28\%": [r"28\text{ percent}", r"28 \%", r"\frac{28}{100}", "0.28", "28"],
        "28": [r"28\%"],
        r"33\frac{1}{3}\%": [r"\frac{100}{3}\%"],
        "5": [r"5\%"],
    },
    "currency": {
        "15": ["$15"],
        r"\$15": ["15 dollars", r"\$15.00"],
        r"\$1,000": ["1000"],
        r"\$1,000.50": ["$1000.50"],
        "€5": ["5 euros"],
        r"\$5": ["500 cents", "5 USD"],
        r"-\$5": [r"\$-5", "-$5"],
    },
    "units": {
        r"60 \text{ mph}": ["60 miles per hour", r"60\text{ miles/hour}"],
        r"3 \text{ hours}": ["3 h", r"3\text{ h}", "180 minutes"],
        r"5 \text{ meters}": ["5 m", "5m", "5 metres", r"5\ \mathrm{m}"],
        r"5 \text{ cm}": ["50 mm"],
        r"12 \text{ cm}^2": ["12 cm²", r"12\,\text{cm}^{2}", "12 square centimeters", "12 sq cm"],
        r"9.8\text{ m/s}^2": [r"9.8\ \mathrm{m/s^2}", "9.8 m/s^2"],
        r"10 \text{ kg}": ["10 kilograms"],
        "5": ["5 apples"],
        r"20 \text{ apples}": ["20 apples"],
        r"1 \text{ foot}": ["12 inches"],
        r"2.5 \text{ L}": ["2500 mL"],
        r"100^\circ\text{C}": ["100 degrees Celsius"],
        r"10\text{ N}": ["10 newtons"],
        r"36\pi\text{ cm}^3": [r"36\pi cm^3"],
        r"5\text{ units}": ["5"],
    },
    "scientific": {
        "300000": ["3×10⁵", "3*10^5", "3e5", "3E5", "3.0e5", "3e+5", "3·10^5", r"0.3\times10^6"],
        r"1.5\times10^{-4}": ["0.00015", "1.5e-4"],
        "2e-1": ["-1+2e"],
        "10^6": ["1000000", "1,000,000"],
    },
    "tiny": {
        "2^{-99}": [r"\frac{2}{2^{100}}"],
        r"\frac{1}{10^{20}}": ["10^{-20}"],
        r"\sqrt{10^{-40}}": ["10^{-20}"],
        "0.0000001": ["10^{-7}"],
    },
    "big_ints": {
        "2^{1000}": [r"2^{999}\cdot 2"],
        "100!": [r"99!\cdot 100", "101!/101"],
        r"\binom{100}{50}": ["100891344545564193334812497256"],
        "12345678901234567890": ["12,345,678,901,234,567,890"],
        "20!": ["2432902008176640000"],
        "2^{2^{10}}": ["2^{1024}"],
    },
    "rounding": {
        r"\sqrt2": ["1.41421356237"],
        "2/3": ["0.666667"],
    },
    "repeating": {
        "1/3": [
            r"0.\overline{3}",
            r"0.\bar{3}",
            r"0.\bar3",
            "0.(3)",
            "0.333...",
            r"0.333\ldots",
            r"0.333\dots",
            r"0.\dot{3}",
            r".\overline{3}",
            r"0.\overline{33}",
            r"0.3\overline{3}",
        ],
        "1/6": ["0.1666...", "0.1(6)"],
        "2/3": [r"0.\overline{6}"],
        "1/7": ["0.(142857)", "0.142857142857..."],
        "1": ["0.999..."],
        "1/9": [r"0.\overline{1}"],
        "41/333": [r"0.\overline{123}"],
        "1/11": [r"0.\overline{09}"],
        "-1/3": [r"-0.\overline{3}"],
        r"12.\overline{3}": ["37/3"],
    },
    "words": {
        "1": ["one"],
        "20": ["twenty", r"\text{Twenty}"],
        "42": ["42,", "42;"],
    },
    "conventions": {
        "£5": ["5 pounds"],
        "75¢": ["75 cents", r"\$0.75"],
        r"\$5": [r"US\$5", "US $5"],
        "5 years": ["5 years old"],
        r"100\text{ km/h}": ["100 km/h", "100"],
        "36 km/h": ["10 m/s"],
        "7 p.m.": ["7:00 PM", "7 pm"],
        "9:45": ["9:45 am", "9:45 p.m."],
        "36": ["3 dozen", "3 dozen eggs"],
        "36 eggs": ["3 dozen eggs"],
        r"30^\circ": [r"\pi/6 radians"],
        r"\pi/6": [r"\frac{\pi}{6}\text{ radians}"],
    },
}

# One reference, and answers that do not equal it.
DIFFERENT = {
    "integer": {
        "-5": ["--5"],
        "42": ["4 2", "24", "420", "4.2", "-42", "42!", '"42"', "forty-two"],
        "1": ["I", "i", "two"],
        "10": ["1O"],
    },
    "thousands": {
        "1000": [r"\num{1000}", "1, 000"],
        "12500": ["12,50", "1,25,00"],
        "12345678": ["1,2345,678"],
        "1234": ["12 34"],
        "10": ["1,0"],
    },
    "fraction": {
        r"\frac{3}{4}": ["3:4", r"\frac{3}{5}", r"-\frac{3}{4}"],
        r"\frac{1}{3}": ["0.3", "0.33", "0.333"],
        r"\frac{a}{b}": [r"\frac{b}{a}"],
    },
    "missing_braces": {
        "x^{2}": ["x^{3}"],
        r"\sqrt{21}": [r"\sqrt21"],
        r"\frac{1}{25}": [r"\frac125"],
    },
    "mixed": {
        "11/4": [r"2\cdot\frac{3}{4}", "23/4", r"2\frac{4}{3}"],
        r"5\frac{1}{3}": ["5/3"],
    },
    "percent": {
        r"28\%": [r"29\%", r"280\%", "0.0028"],
        "5": [r"6\%"],
    },
    "currency": {
        r"\$5": ["€5", "£5", "5 cents", "USD 5"],
    },
    "units": {
        r"60 \text{ mph}": ["60 km/h"],
        r"3 \text{ hours}": ["3 minutes", "4 hours"],
        r"5 \text{ meters}": ["5 yards"],
        r"5 \text{ cm}": ["5 cm^2", "5 mm", "5 in"],
        r"12 \text{ cm}^2": ["12 cm", "12 cm^3"],
        r"9.8\text{ m/s}^2": ["9.8 m/s"],
        r"10 \text{ kg}": ["10 lb"],
        r"20 \text{ apples}": ["20 oranges"],
        r"100^\circ\text{C}": [r"100^\circ\text{F}"],
        "5x": ["5 m"],
    },
    "scientific": {
        "300000": ["3 x 10^5", r"3\times10^4"],
        r"1.5\times10^{-4}": ["1.5e4"],
        "10^6": ["10^5"],
        r"6.02\times10^{23}": [r"6.02\cdot10^{22}"],
        "5e3": ["5"],
    },
    "tiny": {
        "2^{-99}": ["2^{-98}"],
        "10^{-50}": ["0", "10^{-51}"],
        "0": ["10^{-300}"],
        "e^{-200}": ["0", "e^{-201}"],
        "1+10^{-60}": ["1"],
        r"\sqrt{2}+10^{-80}": [r"\sqrt{2}"],
        r"\pi\cdot 10^{-100}": [r"\pi\cdot10^{-101}"],
        r"1+10^{-30}\sqrt2": ["1"],
        "0.0000001": ["0"],
    },
    "big_ints": {
        "2^{1000}": ["2^{1000}+1"],
        "10^{100}": ["10^{99}"],
        r"\binom{100}{50}": [r"\binom{100}{49}"],
        "12345678901234567890": ["12345678901234567891"],
    },
    "rounding": {
        r"\pi": ["3.1415", "355/113", "3"],
        r"\sqrt2": ["1.41", "1.414"],
        "2/3": ["0.67", "0.6666"],
        "1.5": ["1.50000001"],
        "100": ["99.9999999"],
        "0.5": ["0.49999999"],
        "0.1+0.2": ["0.30000000000000004"],
        "2.5": ["2.49"],
        "e": ["2.718"],
        "0.333": ["1/3"],
        "12.35": ["12.345"],
    },
    "repeating": {
        "1/3": [r"0.\overline{34}", "0.3"],
        "1": ["0.99"],
    },
    "words": {
        "5": ["six", "five six"],
    },
    "conventions": {
        "£5": ["5 kg"],
        "75¢": [r"\$75"],
        "9:45 pm": ["9:45 am"],
        "9:45": ["9:46 am"],
        "3": ["3 dozen", "3 dozen eggs"],
        r"30^\circ": ["30 radians"],
    },
}


@pytest.mark.parametrize(("gold", "answer"), pairs(EQUAL))
def test_equal_in_both_orders(gold, answer):
    assert_judged(gold, answer, OPTIONS, equal=True)


@pytest.mark.parametrize(("gold", "answer"), pairs(DIFFERENT))
def test_different_in_both_orders(gold, answer):
    assert_judged(gold, answer, OPTIONS, equal=False)
