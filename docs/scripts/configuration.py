"""Writes docs/configuration.md: every key with its default, its unit and what configs/base.py says of it.

python -m docs.scripts.configuration
"""

import ast
import dataclasses
import io
import tokenize
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs import base
from grpo_jax.config import RunConfig

PAGE = Path(__file__).resolve().parents[1] / "configuration.md"
BASE = Path(base.__file__)

UNITS = ("tokens", "seconds", "steps", "mebibytes", "kibibytes", "characters", "completions", "problems")
KINDS = {bool: "True or False", int: "whole number", float: "number", str: "text", tuple: "list"}

HEAD = """# Configuration

A configuration file gives the keys that it changes (`get_config()` returns an `ml_collections.ConfigDict`); all others
have the defaults below. `--config.SECTION.KEY=VALUE` changes one key on the command line. A key that does not exist is
an error that names the nearest one, and so is a value that nothing would read.

<!-- Made by `python -m docs.scripts.configuration` out of configs/base.py and grpo_jax/config. -->
"""


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of the configuration.

    Attributes:
        path: Dotted path.
        default: Its default.
        kind: Its unit, or what sort of value it takes.
        comment: What it means; empty where configs/base.py says nothing.
    """

    path: str
    default: Any
    kind: str
    comment: str


def comments_of(source: str) -> dict[str, str]:
    """What configs/base.py says of each key, above it or behind it.

    Args:
        source: Text of the file.

    Returns:
        Comments by dotted path.
    """
    said = _said(source)
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}

    def comment(first: int, last: int) -> str:
        above = []
        while said.get(first - 1, (False, ""))[0]:
            first -= 1
            above.insert(0, said[first][1])
        behind = [said[last][1]] if last in said and not said[last][0] else []
        return " ".join(above + behind)

    def walk(value: ast.expr, path: str, first: int) -> Iterator[tuple[str, str]]:
        match value:
            case ast.Call(func=ast.Name("ConfigDict"), args=[ast.Dict() as value]) | (ast.Dict() as value):
                for key, inner in zip(value.keys, value.values, strict=True):
                    assert isinstance(key, ast.Constant), f"{path} has a key that is no text"
                    yield from walk(inner, f"{path}.{key.value}", key.lineno)
            case ast.Call(func=ast.Name(name)) if name in functions:
                returned = functions[name].body[-1]
                assert isinstance(returned, ast.Return)
                assert returned.value is not None
                yield from walk(returned.value, path, first)
            case _:
                yield path, comment(first, value.end_lineno or first)

    found: dict[str, str] = {}
    for statement in functions["get_config"].body:
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name("config"), attr=name)], value=value):
                found |= dict(walk(value, name, statement.lineno))
    return found


def _said(source: str) -> dict[int, tuple[bool, str]]:
    """Every comment by its line, and whether it has the line to itself."""
    return {
        token.start[0]: (not token.line[: token.start[1]].strip(), token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }


def keys(defaults: Any, comments: dict[str, str], path: str = "") -> Iterator[Key]:
    """Every key below a section of the configuration, in order; sections of one class have their own defaults."""
    hints = typing.get_type_hints(type(defaults))
    for field in dataclasses.fields(defaults):
        where, default = f"{path}{field.name}", getattr(defaults, field.name)
        if dataclasses.is_dataclass(default):
            yield from keys(default, comments, f"{where}.")
        else:
            yield Key(where, default, _kind(field.name, hints[field.name]), _meaning(where, hints, field, comments))


def _kind(name: str, hint: Any) -> str:
    inner = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    optional = types.NoneType in typing.get_args(hint)
    kind = inner[0] if optional else typing.get_origin(hint) or hint
    last = name.split("_")[-1]
    unit = last if last in UNITS and (kind is int or last == "seconds") else ""
    return ("choice" if kind is typing.Literal else unit or KINDS[kind]) + (" or None" if optional else "")


def _meaning(path: str, hints: dict[str, Any], field: dataclasses.Field, comments: dict[str, str]) -> str:
    comment, hint = comments.get(path, ""), hints[field.name]
    choices: Sequence[Any] = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    if any(str(choice) not in comment for choice in choices):
        comment = "; ".join(filter(None, (", ".join(map(str, choices)), comment)))
    return comment


def page() -> str:
    """The page's text."""
    comments = comments_of(BASE.read_text(encoding="utf-8"))
    sections = {"": list(keys(RunConfig(), comments))}
    for key in sections.pop(""):
        sections.setdefault(key.path.rpartition(".")[0], []).append(key)
    parts = [HEAD]
    for section, listed in sections.items():
        heading = f"## `{section}`\n\n{_section_text(section)}\n" if section else "## The run\n"
        rows = [f"| `{key.path}` | `{key.default!r}` | {key.kind} | {_cell(key.comment)} |" for key in listed]
        parts.append("\n".join([heading, "| key | default | unit or kind | meaning |", "|---|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _section_text(path: str) -> str:
    node: Any = RunConfig()
    for name in path.split("."):
        node = getattr(node, name)
    return (type(node).__doc__ or "").strip().partition("\n")[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
