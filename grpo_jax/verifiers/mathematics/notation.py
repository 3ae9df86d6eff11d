"""Notations that are rewritten before a text is cut into tokens."""

import re

_REWRITTEN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # The space after a row of a matrix.
        (r"\\\\\s?\[-?[0-9.]{1,8}\s?(?:ex|em|pt|cm|mm|in)\]", r"\\\\ "),
        # 6.02 x 10^23; an integer times x may be a term of a polynomial.
        (r"(?<![0-9.])([0-9]{1,3}\.[0-9]{1,30})\s?[xX]\s?(?=10\s?\^)", r"\1*"),
        (r"(?<![A-Za-z\\])log(2|10)\s?(?=\()", r"\\log_{\1}"),
        (r"(?<![A-Za-z\\])US\s?(?=\\?\$)", ""),
        (r"(?<=[0-9}])\{\}$", ""),
        (r"(\d\s(?:years?|months?|weeks?|days?))[ -]old$", r"\1"),
        (r"\\mathbb\s?(?:\{R\}|R)\s?(?:\^\s?(?:\{\+\}|\+)|_\s?\{\s?>\s?0\s?\})$", r"(0,\\infty)"),
        (r"\\mathbb\s?(?:\{R\}|R)\s?(?:-|\\backslash)\s?(?=\\\{)", r"\\mathbb{R}\\setminus "),
    )
)


def plain_notation(content: str) -> str:
    r"""Rewrites what has a plainer spelling, such as ``6.02 x 10^{23}``, ``\\[1ex]`` or ``US\$5``.

    Args:
        content: The answer without its surroundings, in ASCII mathematics.

    Returns:
        The same answer.
    """
    for pattern, replacement in _REWRITTEN:
        content = pattern.sub(replacement, content)
    return content
