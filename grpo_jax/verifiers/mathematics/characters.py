"""Unicode to the plain and LaTeX spelling that the tokenizer reads."""

import re
import unicodedata

from grpo_jax.verifiers.mathematics.limits import UnreadableError
from grpo_jax.verifiers.mathematics.vocabulary import words

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸ", "0123456789+-=()nixy", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₒₓₕₖₗₘₙₚₛₜᵢⱼ", "0123456789+-=()aeoxhklmnpstij", strict=True))
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(map(re.escape, _SUPERSCRIPTS))}]+")
_SUBSCRIPT_RUN = re.compile(f"[{''.join(map(re.escape, _SUBSCRIPTS))}]+")

_GREEK = words(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon "
    "phi chi psi omega"
)

_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0e\ufe0f"


def _greek() -> dict[str, str]:
    letters = {}
    for name in _GREEK:
        for prefix, spelling in (("SMALL", name), ("CAPITAL", name.capitalize())):
            letter = unicodedata.lookup(f"GREEK {prefix} LETTER {'lamda' if name == 'lambda' else name}")
            letters[letter] = f"\\{spelling} "
    return letters | {"ϕ": "\\phi ", "ϵ": "\\epsilon ", "ϑ": "\\theta ", "Ω": "\\Omega ", "µ": "\\mu "}


_REPLACEMENTS = {
    **_greek(),
    **dict.fromkeys(_INVISIBLE, ""),
    **dict.fromkeys("−‐‑‒–—﹣－", "-"),
    **dict.fromkeys("\u00a0\u2007\u202f\u2009\u200a\u2002\u2003\u3000\u2005\u2006\u2004\u2008\u205f", " "),
    **dict.fromkeys("×✕✖⨯", "*"),
    **dict.fromkeys("·⋅∙•∗", "*"),
    **dict.fromkeys("÷∕⁄／", "/"),
    **dict.fromkeys("′’‘", "'"),
    **dict.fromkeys("≤⩽≦", "\\le "),
    **dict.fromkeys("≥⩾≧", "\\ge "),
    **dict.fromkeys("∅⌀", "\\emptyset "),
    **dict.fromkeys("…⋯", "\\ldots "),
    **dict.fromkeys("⟨〈", "\\langle "),
    **dict.fromkeys("⟩〉", "\\rangle "),
    "≠": "\\ne ",
    "≈": "\\approx ",
    "≡": "\\equiv ",
    "∼": "\\sim ",
    "±": "\\pm ",
    "∓": "\\mp ",
    "√": "\\surd ",
    "∛": "\\cbrt ",
    "∞": "\\infty ",
    "∪": "\\cup ",
    "∩": "\\cap ",
    "∈": "\\in ",
    "∖": "\\setminus ",
    "ℝ": "\\mathbb{R}",
    "ℤ": "\\mathbb{Z}",
    "ℕ": "\\mathbb{N}",
    "ℚ": "\\mathbb{Q}",
    "ℂ": "\\mathbb{C}",
    "°": "^\\circ ",
    "º": "^\\circ ",
    "∘": "\\circ ",
    "℃": "^\\circ C",
    "℉": "^\\circ F",
    "∠": "\\angle ",
    "△": "\\triangle ",
    "⌊": "\\lfloor ",
    "⌋": "\\rfloor ",
    "⌈": "\\lceil ",
    "⌉": "\\rceil ",
    "∑": "\\sum ",
    "∏": "\\prod ",
    "∧": "\\land ",
    "∨": "\\lor ",
    "¢": " cents",
    "٪": "%",
    "％": "%",
    "٫": ".",
    "“": '"',
    "”": '"',
}


def to_ascii_mathematics(text: str) -> str:
    r"""Rewrites mathematical Unicode: ``x²`` to ``x^{2}``, ``½`` to ``\frac{1}{2}``, full-width digits to ASCII.

    Args:
        text: Any text.

    Returns:
        The text with every known character rewritten; letters of other scripts stay.

    Raises:
        UnreadableError: if there are control, direction or surrogate characters: what is seen would
            not be what is read.
    """
    if text.isascii():
        rewritten = text
    else:
        text = _SUPERSCRIPT_RUN.sub(lambda run: _script("^", run[0], _SUPERSCRIPTS), text)
        text = _SUBSCRIPT_RUN.sub(lambda run: _script("_", run[0], _SUBSCRIPTS), text)
        rewritten = "".join(character if character.isascii() else _rewrite(character) for character in text)
    if any((character < " " and character not in "\t\n\r") or character == "\x7f" for character in rewritten):
        raise UnreadableError("control character")
    return rewritten


def _script(mark: str, run: str, table: dict[str, str]) -> str:
    return f"{mark}{{{''.join(table[character] for character in run)}}}"


def _rewrite(character: str) -> str:
    if character in _REPLACEMENTS:
        return _REPLACEMENTS[character]
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co"):
        raise UnreadableError("control character")
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    compatible = unicodedata.normalize("NFKC", character)
    if "⁄" in compatible:
        numerator, _, denominator = compatible.partition("⁄")
        return f"\\frac{{{numerator}}}{{{denominator}}}" if denominator else character
    return "".join(_REPLACEMENTS.get(part, part) for part in compatible)
