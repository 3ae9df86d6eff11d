"""From the text of an answer to a flat list of tokens with matched brackets."""

import re

from grpo_jax.verifiers.mathematics import vocabulary
from grpo_jax.verifiers.mathematics.brackets import Token, drop_doubled_brackets, group
from grpo_jax.verifiers.mathematics.limits import MAX_DIGITS, MAX_NESTING, UnreadableError
from grpo_jax.verifiers.mathematics.token_words import join_degrees, resolve_words

_PATTERN = re.compile(
    r"(?P<space>[\s~]+)"
    r"|(?P<number>(?:[0-9]+(?:\.(?![.])[0-9]*)?|\.[0-9]+|\.(?=\\(?:overline|bar|dot)))(?:[eE][+-]?[0-9]+(?![A-Za-z0-9.]))?)"
    r"|(?P<command>\\(?:[A-Za-z]+|[^A-Za-z]))"
    r"|(?P<word>[^\W\d_]+)"
    r"|(?P<symbol>\.\.\.+|\*\*|<=|>=|=<|!=|<>|==|->|&&|\{,\}|[-+*/^_(){}\[\]|<>=!,;:&'%$€£¥₹?\"])"
)


_SYMBOL_KINDS = {
    **dict.fromkeys("+-*/^_!'", "operator"),
    "**": "operator",
    **dict.fromkeys(("=", "==", "<", ">", "<=", ">=", "!=", "<>", "=<", "->"), "relation"),
    **dict.fromkeys("([{", "open"),
    **dict.fromkeys(")]}", "close"),
    **dict.fromkeys(",;", "separator"),
    "{,}": "thousands",
    "|": "bar",
    "&": "cell",
    "&&": "connective",
    ":": "colon",
    "%": "percent",
    **dict.fromkeys("$€£¥₹", "currency"),
}

_COMMAND_TOKENS = {
    **{name: ("function", function) for name, function in vocabulary.FUNCTIONS.items()},
    **{name: ("relation", relation) for name, relation in vocabulary.RELATIONS.items() if name.isalpha()},
    **{name: ("set operation", operation) for name, operation in vocabulary.SET_OPERATIONS.items()},
    **{name: ("name", name.removeprefix("var")) for name in vocabulary.GREEK},
    **{name: ("connective", word) for name, word in vocabulary.CONNECTIVES.items() if name.isalpha()},
    **{name: ("decoration", name) for name in vocabulary.DECORATIONS},
    **dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac", "nicefrac", "sfrac"), ("command", "frac")),
    **dict.fromkeys(("binom", "dbinom", "tbinom"), ("command", "binom")),
    **dict.fromkeys(("ldots", "dots", "cdots", "dotsc", "dotsb", "vdots", "ddots"), ("ellipsis", "ldots")),
    **dict.fromkeys(("lvert", "rvert", "vert", "|", "lVert", "rVert", "Vert"), ("bar", "|")),
    **dict.fromkeys(("cdot", "times", "ast", "bullet"), ("operator", "*")),
    **{name: ("open", name) for name in ("langle", "lfloor", "lceil")},
    **{name: ("close", name) for name in ("rangle", "rfloor", "rceil")},
    **dict.fromkeys(("emptyset", "varnothing", "O"), ("empty set", "")),
    **dict.fromkeys(("circ", "degree", "textdegree"), ("degree", "")),
    **{"sum": ("command", "sum"), "prod": ("command", "prod"), "choose": ("operator", "choose")},
    **{"over": ("operator", "over")},
    **{"sqrt": ("command", "sqrt"), "surd": ("function", "sqrt"), "div": ("operator", "/")},
    **{"pi": ("constant", "pi"), "infty": ("constant", "infinity"), "imath": ("name", "i")},
    **{"pm": ("plus minus", "pm"), "mp": ("plus minus", "mp"), "in": ("in", ""), "angle": ("angle", "")},
    **{name: ("angle", name) for name in ("det", "dim", "ker", "arg", "deg")},
    **{"triangle": ("angle", "triangle"), "%": ("percent", "%"), "$": ("currency", "$"), "&": ("connective", "and")},
    **{"{": ("open", "lbrace"), "}": ("close", "rbrace"), "lbrace": ("open", "lbrace"), "rbrace": ("close", "rbrace")},
    **{"(": ("open", "("), ")": ("close", ")"), "\\": ("row", ""), "prime": ("operator", "'"), "_": ("operator", "_")},
    **{"bmod": ("operator", "mod"), "mod": ("operator", "mod"), "pmod": ("command", "pmod"), "euro": ("currency", "€")},
    **{"pounds": ("currency", "£"), "colon": ("colon", ":"), "ratio": ("colon", ":"), "lbrack": ("open", "[")},
    **{"rbrack": ("close", "]"), "cr": ("row", "")},
}

_GROUPED = vocabulary.TEXT_COMMANDS | vocabulary.TRANSPARENT_COMMANDS | {"textcolor"}


def tokenize(text: str, short_units: bool = False) -> list[Token]:
    r"""Splits a text into tokens.

    Args:
        text: ASCII mathematics (see ``to_ascii_mathematics``).
        short_units: Whether a single letter after a number may be a unit outside ``\text{}`` too.

    Returns:
        The tokens; numbers with thousands separators are joined, doubled brackets are dropped.

    Raises:
        UnreadableError: for a character or command without a meaning, unmatched or too deep brackets,
            or a number that is too long.
    """
    tokens: list[Token] = []
    _scan(text, False, tokens, 0)
    return drop_doubled_brackets(resolve_words(join_degrees(tokens), short_units))


def _scan(text: str, is_text: bool, tokens: list[Token], depth: int) -> None:
    if depth > MAX_NESTING:
        raise UnreadableError("nested too deep")
    position, gap = 0, False
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise UnreadableError("unexpected character")
        position, value, kind = match.end(), match[0], match.lastgroup
        if kind == "space":
            gap = True
            continue
        if kind == "command":
            position, gap = _command(value[1:], text, position, gap, is_text, tokens, depth)
            continue
        if kind == "number" and len(value) > MAX_DIGITS:
            value = _shortened(value)
        if kind == "symbol":
            kind, value = _symbol(value)
        tokens.append(Token(str(kind), value, gap, is_text))
        gap = False


def _shortened(number: str) -> str:
    """Drops leading zeros, and zeros at the end of decimals."""
    number = number.lstrip("0") or "0"
    if "." in number and number[-1] == "0":
        number = number.rstrip("0")
    if len(number) > MAX_DIGITS:
        raise UnreadableError("number too long")
    return number


def _symbol(value: str) -> tuple[str, str]:
    if value.startswith("..."):
        return "ellipsis", "ldots"
    if value not in _SYMBOL_KINDS:
        raise UnreadableError("unexpected character")
    kind = _SYMBOL_KINDS[value]
    if kind == "relation":
        return kind, vocabulary.RELATIONS[value]
    return kind, "^" if value == "**" else "and" if value == "&&" else value


def _command(
    name: str, text: str, position: int, gap: bool, is_text: bool, tokens: list[Token], depth: int
) -> tuple[int, bool]:
    """Handles one command; returns where to go on and whether white space was seen."""
    if name in vocabulary.SPACE_COMMANDS:
        return position, True
    if name in vocabulary.IGNORED_COMMANDS:
        # An invisible partner of a bracket: \left. and \right.
        return position + (name in ("left", "right") and text.startswith(".", position)), gap
    if name in vocabulary.SKIPPED_ARGUMENT_COMMANDS:
        return group(text, position)[1], True
    if name in ("begin", "end"):
        environment, position = group(text, position)
        tokens.append(Token(name, environment, gap))
        return position, False
    if name in _GROUPED:
        return _grouped(name, text, position, gap, is_text, tokens, depth)
    if name == "mathbb":
        content, position = group(text, position)
        tokens.append(Token("number set", content.strip(), gap))
        return position, False
    if name == "not":
        return _negated(text, position, gap, tokens)
    if name not in _COMMAND_TOKENS:
        raise UnreadableError(f"unknown command \\{name[:20]}")
    kind, value = _COMMAND_TOKENS[name]
    if name == "times" and _VECTOR.match(text, position):
        value = "cross"
    tokens.append(Token(kind, value, gap, is_text))
    return position, False


def _grouped(
    name: str, text: str, position: int, gap: bool, is_text: bool, tokens: list[Token], depth: int
) -> tuple[int, bool]:
    """Scans the argument of a command that only changes how it looks."""
    if name == "textcolor":
        position = group(text, position)[1]
    content, position = group(text, position)
    first = len(tokens)
    _scan(content, is_text or name in vocabulary.TEXT_COMMANDS, tokens, depth + 1)
    if gap and len(tokens) > first:
        tokens[first] = tokens[first]._replace(gap=True)
    # What follows a text with a space at its end is a new word.
    return position, content[-1:].isspace() or (gap and len(tokens) == first)


_VECTOR = re.compile(r"\s*\\(?:mathbf|bm|boldsymbol|pmb|vec|overrightarrow)\s*(?:\{\s*)?[A-Za-z]")
_NEGATED = re.compile(r"\s*(=|\\in(?![a-zA-Z]))")


def _negated(text: str, position: int, gap: bool, tokens: list[Token]) -> tuple[int, bool]:
    match = _NEGATED.match(text, position)
    if match is None:
        raise UnreadableError("unknown negation")
    tokens.append(Token("relation", "!=" if match[1] == "=" else "notin", gap))
    return match.end(), False
