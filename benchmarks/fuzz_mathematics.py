# ruff: noqa: RUF001, SIM905 - the texts are what models write
"""Fuzzes the verifier of mathematics: no exception, no slow judgement, symmetric and reflexive verdicts.

    nice python -m benchmarks.fuzz_mathematics --minutes 10 --seed 0

Texts are grown from fragments of answers, by mutation of whole answers, and from random bytes. Every finding is
printed as a line of JSON; the exit status is 1 if there is one.
"""

import argparse
import json
import random
import sys
import time
import traceback

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.equivalence import judge

LIMIT_SECONDS = 1.0

FRAGMENTS = (
    r"0 1 2 3 7 10 42 100 -5 0.5 .25 3.14 1,000 12{,}500 1e5 3e-7 1/2 2/3 \frac{1}{2} \frac12 \dfrac{3}{4} \frac{x}{y} "
    r"x y n a b f(x) x_1 x^2 x^{10} e i \pi \theta \alpha \infty -\infty \emptyset \mathbb{R} \mathbb{Z} "
    r"\sqrt{2} \sqrt[3]{5} \sqrt2 √3 ½ ² ³ π ∞ ≤ ∪ ° × − \sin \cos \tan \ln \log \log_2 \exp \arcsin \sin^2 \sin^{-1} "
    r"+ - * / ^ _ ! = < > \le \ge \ne \in \cup \cap \setminus \pm \mp , ; : | ( ) [ ] { } \{ \} \left( \right) "
    r"\langle \rangle \lfloor \rfloor \text{ cm} \text{m}^2 \text{ and } \text{or} \text{A} (A) km h \% \$ $ ^\circ "
    r"\cdot \times \div \, \; \! \  \\ & \begin{pmatrix} \end{pmatrix} \overline{3} 0.\overline{3} 0.(3) "
    r"\ldots \binom{5}{2} \sum_{k=1}^{10} \prod_{k=1}^{5} \sum_{i=0}^{\infty} \int \lim \mod 5! !! \boxed{5} \boxed{ "
    r"\mathrm{e} yes no None nan inf undefined x=5 x>3 -2<x<7 [0,1) 3:4 1011_2 2A_{16} 12:30 {1,2} \{1,2\} (1,2) "
    r"^{9^{9^9}} 10^{10^{10}} 99999! 9**9**9 (x+1)^{99} \over \choose \not= \frac \sqrt ** == eval( __import__( \x00 \d"
).split(" ")
WHOLE = (
    r"\frac{-1\pm\sqrt{13}}{4}",
    r"(-\infty,2)\cup(2,\infty)",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
    r"\{1,2,\frac{3}{2}\}",
    r"x=1 \text{ or } x=-2",
    r"2^{n+1}-\frac{n(n+1)}{2}",
    r"e^{2\pi i/3}",
    r"60 \text{ miles per hour}",
    r"\sum_{k=1}^{n} \frac{1}{k!}",
    r"\log_{10}\left(\frac{x^2+1}{\sqrt{x}}\right)",
    r"\$1,234.50",
    r"-2\le x<\sqrt[3]{7}",
    r"F_n=F_{n-1}+F_{n-2}",
    r"\arcsin\frac{\sqrt3}{2}+90^\circ",
    r"x^3-3x^2y+3xy^2-y^3",
    r"3\frac{1}{7}\%",
)
ALPHABET = "0123456789xyzabcefinABC+-*/^_=<>!,;:|()[]{}\\$%&'\". \t\n½²√π∞−×°éж中\u200b"


def grown(source: random.Random) -> str:
    """Makes a text of random fragments, often within brackets or a power."""
    text = ""
    for _ in range(source.choice((1, 2, 3, 5, 8, 20, 60))):
        piece = source.choice(FRAGMENTS)
        match source.randrange(8):
            case 0:
                piece = f"({piece})"
            case 1:
                piece = f"^{{{piece}}}"
            case 2:
                piece = f"\\frac{{{piece}}}{{{source.choice(FRAGMENTS)}}}"
            case 3:
                text = f"\\sqrt{{{text}}}"
        text += source.choice(("", "", " ", "+", ",")) + piece
    return text


def mutated(text: str, source: random.Random) -> str:
    """Changes a text in a few places, or blows a part of it up."""
    for _ in range(source.randrange(1, 6)):
        start, end = sorted((source.randrange(len(text) + 1), source.randrange(len(text) + 1)))
        match source.randrange(7):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + source.choice(ALPHABET) + text[start:]
            case 2:
                text = text[:start] + source.choice(FRAGMENTS) + text[end:]
            case 3:
                text = text[:end] + text[start:]
            case 4:
                text = text[:start] + text[start:end] * source.choice((2, 3, 50, 700)) + text[end:]
            case 5:
                depth = source.choice((1, 5, 40, 300))
                left, right = source.choice(
                    (("(", ")"), ("{", "}"), ("\\sqrt{", "}"), ("[", "]"), ("2^{", "}"), ("-", ""))
                )
                text = text[:start] + left * depth + text[start:end] + right * depth + text[end:]
            case 6:
                text = text.swapcase()
        text = text[:11_000]
    return text


def expression(source: random.Random, depth: int) -> str:
    """Makes a well-formed expression with operations nested up to ``depth``."""
    if depth <= 0 or source.random() < 0.15:
        return source.choice(
            ("0", "1", "2", "3", "7", "10", "0.5", "12", "100", "x", "y", "n", "\\pi", "e", "i", "x_1")
        )
    parts = [expression(source, depth - source.randrange(1, 3)) for _ in range(3)]
    template = source.choice(
        (
            "{0}+{1}", "{0}-{1}", "{0}*{1}", "({0})({1})", "\\frac[{0}][{1}]", "({0})^[{1}]", "({0})/({1})", "-({0})",
            "\\sqrt[{0}]", "\\sin({0})", "\\ln({0})", "e^[{0}]", "({0})!", "|{0}|", "\\binom[{0}][{1}]",
            "\\log_[{0}]({1})", "\\sum_[k=1]^[{0}] k^[{1}]", "\\lfloor {0}\\rfloor", "({0})^[({1})^[{2}]]",
            "\\arctan({0})", "f({0})", "\\tan({0})", "\\cosh({0})", "\\prod_[k=1]^[{0}]({1}+k)", "2^[{0}]", "{0}{1}",
        )
    )  # fmt: skip
    return template.replace("[", "{{").replace("]", "}}").format(*parts)


def well_formed(source: random.Random) -> str:
    """Makes a text that can be read: an expression, or a relation, list, set or interval of some."""
    first, second, third = (expression(source, source.randrange(5)) for _ in range(3))
    return source.choice(
        (
            *[first] * 6,
            f"x={first}", f"{first}={second}", f"{first}<{second}", f"{first}\\le x<{second}", f"{first}, {second}",
            f"\\{{{first},{second},{third}\\}}", f"({first},{second})", f"[{first},{second})\\cup({third},\\infty)",
            f"{first}\\pm {second}", f"{first}:{second}", f"{first}\\text{{ cm}}", f"{first}\\%", f"\\${first}",
            f"\\begin{{pmatrix}}{first}&{second}\\\\{third}&1\\end{{pmatrix}}", f"{first} \\text{{ or }} {second}",
        )
    )  # fmt: skip


def rearranged(text: str, source: random.Random) -> str:
    """Writes an expression in a way that leaves its value as it is, or changes it a little."""
    return (
        source.choice(
            (
                "({0})",
                "{0}+0",
                "1*({0})",
                "-(-({0}))",
                "({0})+x-x",
                "\\left({0}\\right)",
                "{0}+10^{{-40}}",
                "({0})*2/2",
                "$ {0} $.",
            )
        )
        .replace("{0}", text)
        .replace("{{", "{")
        .replace("}}", "}")
    )


def random_text(source: random.Random) -> str:
    """Makes one text by one of five ways."""
    if source.random() < 0.6:
        return well_formed(source)
    match source.randrange(4):
        case 0:
            return grown(source)
        case 1:
            return source.randbytes(source.randrange(200)).decode(
                source.choice(("latin-1", "utf-8")), "surrogateescape"
            )
        case 2:
            return "".join(source.choices(ALPHABET, k=source.randrange(1, 60)))
    return mutated(source.choice(WHOLE), source)


def findings(gold: str, answer: str, options: MathematicsConfig) -> list[str]:
    """Judges a pair in both orders and each text with itself.

    Args:
        gold: One text.
        answer: The other one.
        options: Options of the verifier.

    Returns:
        What is wrong; empty if nothing is.
    """
    problems: list[str] = []
    judgements = []
    for first, second in ((gold, answer), (answer, gold), (gold, gold)):
        started = time.process_time()
        try:
            judgements.append(judge(first, second, options))
        except Exception:
            return [traceback.format_exc(limit=-4)]
        seconds = time.process_time() - started
        if seconds > LIMIT_SECONDS:
            problems.append(f"{seconds:.2f} s")
    forth, back, itself = judgements
    if forth.equal != back.equal:
        problems.append(f"not symmetric: {forth.reason} / {back.reason}")
    if not itself.equal and not itself.error:
        problems.append(f"not reflexive: {itself.reason}")
    return problems


def main() -> int:
    """Fuzzes for as long as asked; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="CPU minutes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    source, options = random.Random(arguments.seed), MathematicsConfig()
    pairs = found = 0
    slowest = 0.0
    while time.process_time() < arguments.minutes * 60:
        gold = random_text(source)
        answer = source.choice((mutated, mutated, rearranged, rearranged, lambda _, source: random_text(source)))(
            gold, source
        )
        started = time.process_time()
        problems = findings(gold, answer, options)
        slowest = max(slowest, (time.process_time() - started) / 3)
        pairs += 1
        for problem in problems:
            found += 1
            print(json.dumps({"gold": gold[:600], "answer": answer[:600], "problem": problem}), flush=True)
    print(f"{pairs} pairs, {found} findings, slowest judgement about {slowest:.2f} s", file=sys.stderr)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
