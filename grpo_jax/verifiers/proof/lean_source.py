"""Reads Lean 4 sources far enough to tell commands from comments, strings and names.

A first filter: it keeps code that runs while Lean reads a file (macros, elaborators, evaluation) out, and with it all
known ways to tamper with Lean from inside.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

DIAGNOSTICS = frozenset(
    {"#eval", "#eval!", "#check", "#check_failure", "#print", "#reduce", "#synth", "#guard", "#help", "#find", "#where"}
)
"""Commands that only show something: they are taken out of a source, and never run."""

_FIRST = "A-Za-z_\u0391-\u039f\u03a1\u03a2\u03a4-\u03ba\u03bc-\u03fb\u1f00-\u1ffe\u2100-\u214f\U0001d49c-\U0001d59f"
_REST = _FIRST + "0-9'!?\u2080-\u2089\u2090-\u209c\u1d62-\u1d6a\u2c7c"
_PART = f"(?:[{_FIRST}][{_REST}]*|«[^»]*»)"
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<line>--[^\n]*)|(?P<comment>/-)"
    r'|r(?P<fence>\#*)"(?P<raw>.*?)(?:"(?P=fence)|\Z)|"(?P<string>(?:[^"\\]|\\.)*)(?:"|\Z)'
    rf"|(?P<hash>\#[A-Za-z][{_REST}]*)|(?P<name>{_PART}(?:\.{_PART})*)"
    r"|(?P<other>''|'(?:\\[^'\n]*'?|[^'\\])'|:=|[0-9][0-9A-Za-z_]*|.)",
    re.DOTALL,
)
_COMMENT_PART = re.compile(r"/-|-/")
_WORD_IN_STRING = re.compile(r"[#\w.!]+|\S")

_NO_PROOF = {"sorry", "admit", "axiom", "unsafe", "native_decide", "implemented_by", "extern", "opaque"}
# These change what the statement says, or can.
_CONTEXT = {"instance", "variable", "include", "omit", "notation", "notation3", "infix", "infixl", "infixr", "prefix"}
_CONTEXT |= {"postfix", "syntax", "declare_syntax_cat", "macro", "macro_rules"}
# These run code in Lean.
_CODE = {"run_cmd", "run_elab", "run_meta", "run_tac", "by_elab", "elab", "elab_rules", "initialize", "include_str"}
_CODE |= {f"{builtin}{name}" for builtin in ("", "builtin_") for name in ("simproc", "dsimproc", "initialize")}
_CODE |= {f"{builtin}{name}_decl" for builtin in ("", "builtin_") for name in ("simproc", "dsimproc")}
_CODE |= {"declare_config_elab", "declare_command_config_elab", "declare_simp_like_tactic"}
_CODE |= {"register_option", "register_builtin_option", "register_simp_attr", "register_label_attr"}
_REFUSED = _NO_PROOF | _CONTEXT | _CODE | DIAGNOSTICS | {"import", "#exit"}
_ATTRIBUTES = frozenset(
    {"simp", "ext", "refl", "symm", "trans", "congr", "gcongr", "mono", "push_cast", "norm_cast", "simps", "nolint"}
    | {"reducible", "semireducible", "irreducible", "inline", "noinline", "specialize", "match_pattern"}
    | {"elab_as_elim", "inherit_doc", "deprecated"}
)
_OPTIONS = re.compile(
    r"maxRecDepth|(?:synthInstance\.)?max(?:Heartbeats|Size)|(?:pp|linter|trace)\..*|(?:relaxedA|a)utoImplicit"
    r"|exponentiation\.threshold|profiler|warningAsError"
)
_ZERO = re.compile(r"0[xXbBoO]?[0_]*")
_UNFINISHED = re.compile(r"\s*:=\s*(?:by\b\s*)?(?:sorry\s*)?\Z")


class Token(NamedTuple):
    """A word or sign outside of comments and strings.

    Attributes:
        text: The text, a name without its quotes.
        start: Where it starts.
        end: Where it ends.
    """

    text: str
    start: int
    end: int


class Parts(NamedTuple):
    """A file's imports, and the rest of it."""

    imports: tuple[str, ...]
    body: str


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a source."""
    return (token for token, is_string in _scan(source) if not is_string)


def _scan(source: str) -> Iterator[tuple[Token, bool]]:
    """Tokens and contents of strings, with whether they are the latter."""
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        assert match is not None, "any character is a token"
        position = _comment_end(source, match.end()) if match.lastgroup == "comment" else match.end()
        if match.lastgroup in ("hash", "name", "other"):
            yield Token(match.group().replace("«", "").replace("»", ""), match.start(), position), False
        elif match.lastgroup in ("raw", "string"):
            yield Token(match.group(match.lastgroup), match.start(), position), True


def _words(source: str) -> list[str]:
    """Texts of the tokens. As soon as one string holds a brace, it may be code, and so all strings are read as code."""
    scanned = list(_scan(source))
    words = [token.text for token, is_string in scanned if not is_string]
    strings = [token.text for token, is_string in scanned if is_string]
    if any("{" in text for text in strings):
        for text in strings:
            words += _WORD_IN_STRING.findall(text)
    return words


def _comment_end(source: str, position: int) -> int:
    depth = 1
    for match in _COMMENT_PART.finditer(source, position):
        depth += 1 if match.group() == "/-" else -1
        if depth == 0:
            return match.end()
    return len(source)


def refused_command(source: str, forbidden: Sequence[str] = ()) -> str | None:
    """Finds what no proof may hold.

    Args:
        source: The text without imports and diagnostics.
        forbidden: Further phrases.

    Returns:
        Its name, or ``None``.
    """
    words = _words(source)
    phrases = {phrase: [token.text for token in tokens(phrase)] for phrase in forbidden}
    for at, word in enumerate(words):
        for phrase, wanted in phrases.items():
            if words[at : at + len(wanted)] == wanted:
                return phrase
        following = words[at + 1 : at + 3]
        if word in _REFUSED:
            return word
        if word == "eval" and following[:1] == ["%"]:
            return "eval%"
        if word == "set_option" and not _is_allowed_option(following):
            return " ".join([word, *following])
        if word in ("@", "attribute") and following[:1] == ["["]:
            refused = set(_attributes(words[at + 2 :])) - _ATTRIBUTES
            if refused:
                return f"attribute {min(refused)}"
    return None


def _is_allowed_option(following: Sequence[str]) -> bool:
    # A limit of 0 is no limit.
    return len(following) == 2 and bool(_OPTIONS.fullmatch(following[0])) and not _ZERO.fullmatch(following[1])


def _attributes(words: Sequence[str]) -> Iterator[str]:
    depth, begins = 0, True
    for word in words:
        if word == "]" and depth == 0:
            return
        depth += {"[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}.get(word, 0)
        if begins and word not in ("local", "scoped", "-"):
            yield word
            begins = False
        begins |= word == "," and depth == 0


def without_diagnostics(source: str) -> str:
    """Takes out the commands that only show something, each up to the next token at the start of a line."""
    kept: list[str] = []
    position, dropping = 0, False
    for token in tokens(source):
        if dropping and (token.start == 0 or source[token.start - 1] == "\n"):
            kept.append("\n")
            position, dropping = token.start, False
        if not dropping and token.text in DIAGNOSTICS:
            kept.append(source[position : token.start])
            dropping = True
    if not dropping:
        kept.append(source[position:])
    return "".join(kept)


def split_imports(source: str) -> Parts:
    """Divides a file into its leading imports and the rest."""
    imports, end = [], 0
    found = tokens(source)
    while (word := next(found, None)) is not None and word.text == "import":
        module = next(found, None)
        if module is None:
            break
        imports.append(module.text)
        end = module.end
    return Parts(tuple(imports), source[end:])


def refused_import(imports: Sequence[str], allowed: Collection[str]) -> str | None:
    """The first import that is neither allowed itself nor lies below an allowed name."""
    for module in imports:
        if module not in allowed and module.partition(".")[0] not in allowed:
            return module
    return None


def declaration(statement: str, theorem: str) -> str:
    """The statement as a theorem that only lacks its proof."""
    statement = _UNFINISHED.sub("", statement)
    first = next(tokens(statement), None)
    if first is not None and first.text in ("theorem", "lemma"):
        return statement
    return f"theorem {theorem} : {statement}"


def completed(body: str, statement: str) -> str:
    """The body, with the statement before it if it is only a proof."""
    words = iter(tokens(body))
    first = next(words, None)
    if first is None or first.text not in (":=", "by"):
        return body
    return f"{statement} :=\n{body[first.end :] if first.text == ':=' else body[first.start :]}"
