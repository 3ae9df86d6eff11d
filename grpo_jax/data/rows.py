r"""From a row as it was published to a problem's text and answer."""

import json
import math
import numbers
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from grpo_jax.boxes import boxed
from grpo_jax.config import DataConfig
from grpo_jax.data.programs import PublishedTests, published_tests
from grpo_jax.data.sources import Unreadable

_THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class Row(NamedTuple):
    """A row that can be used.

    Attributes:
        number: Its place, counted from 1.
        problem: The problem's text.
        answer: The reference answer.
        columns: The row as it was read.
        tests: Tests of a program, where a ``tests_format`` says what they are made of.
    """

    number: int
    problem: str
    answer: str
    columns: dict[str, Any]
    tests: PublishedTests | None = None


class BadRow(NamedTuple):
    """A row that is no problem. ``reason`` is one of few phrases, ``detail`` belongs to the row."""

    number: int
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"row {self.number}: {self.reason}{f' ({self.detail})' if self.detail else ''}"


def checked_rows(rows: Iterator[tuple[int, Any]], config: DataConfig) -> tuple[list[Row], list[BadRow]]:
    """Tells rows that can be used from others; of rows with the same problem only the first can.

    Args:
        rows: Row numbers and rows, or ``Unreadable``.
        config: Its ``problem_column``, ``answer_column`` and ``answer_format`` are used.

    Returns:
        The rows that can be used, and what is wrong with each other one.
    """
    usable: list[Row] = []
    bad_rows: list[BadRow] = []
    first_seen: dict[str, int] = {}
    for number, columns in rows:
        row = _checked_row(number, columns, config)
        if isinstance(row, Row):
            first = first_seen.setdefault(normalized(row.problem), number)
            if first != number:
                row = BadRow(number, "duplicate problem", f"same as row {first}")
        bad_rows.append(row) if isinstance(row, BadRow) else usable.append(row)
    return usable, bad_rows


def normalized(text: str) -> str:
    """A problem's text with white space made alike, by which two problems are the same."""
    return " ".join(text.split())


def column(row: Mapping[str, Any], name: str) -> Any:
    """What a row holds in a column.

    Args:
        row: The row.
        name: The column's name, or a path into it: ``reward_model.ground_truth``, ``prompt.0.content``.

    Returns:
        The value, or None where there is none.
    """
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return None
    return value


def _checked_row(number: int, row: Any, config: DataConfig) -> Row | BadRow:
    if isinstance(row, Unreadable):
        return BadRow(number, *row)
    if not isinstance(row, dict):
        return BadRow(number, "not an object", f"got {type(row).__name__}")
    problem = column(row, config.problem_column)
    where = f"column {config.problem_column!r}"
    if problem is None:
        return BadRow(number, "no problem", f"{where}: wanted text; the row has {', '.join(row) or 'no column'}")
    if not isinstance(problem, str):
        return BadRow(number, "problem is not text", f"{where}: got {type(problem).__name__}, wanted text")
    if not problem.strip():
        return BadRow(number, "empty problem", f"{where}: wanted text")
    answer = _answer(number, row, config)
    if isinstance(answer, BadRow):
        return answer
    tests = None
    if config.tests_format != "none":
        try:
            tests = published_tests(row, config.tests_format)
        except ValueError as error:
            return BadRow(number, f"no tests as {config.tests_format} has them", str(error))
    shown = f"{problem}{answer}{tests.shown if tests else ''}"
    return _unicode_fault(number, shown) or _extra_fault(number, row) or Row(number, problem, answer, row, tests)


_WANTED = {
    "plain": "text or a number",
    "gsm8k": "a solution with '#### ' and the answer at its end",
    "boxed": r"a solution with the answer in \boxed{}",
}


def _answer(number: int, row: Mapping[str, Any], config: DataConfig) -> str | BadRow:
    """Takes the answer out of its column, as text."""
    answer = column(row, config.answer_column)
    where, wanted = f"column {config.answer_column!r}", f"wanted {_WANTED[config.answer_format]}"
    if answer is None:
        return BadRow(number, "no answer", f"{where}: {wanted}; the row has {', '.join(row)}")
    if isinstance(answer, str) and not answer.strip():
        return BadRow(number, "empty answer", f"{where}: {wanted}")
    if isinstance(answer, bool) or not isinstance(answer, (str, numbers.Number)):
        return BadRow(number, "answer is neither text nor a number", f"{where}: got {type(answer).__name__}, {wanted}")
    if isinstance(answer, float) and not math.isfinite(answer):
        return BadRow(number, "answer is not finite", f"{where}: got {answer}")
    if config.answer_format == "plain":
        return str(answer)
    found = _behind_hashes(str(answer)) if config.answer_format == "gsm8k" else _last_box(str(answer))
    return found or BadRow(number, "no answer in the solution", f"{where}: {wanted}")


def _behind_hashes(solution: str) -> str:
    _, hashes, answer = solution.rpartition("####")
    return _THOUSANDS_COMMA.sub("", answer.strip()) if hashes else ""


def _last_box(solution: str) -> str:
    boxes = boxed(solution)
    return boxes[-1].content if boxes else ""


def _extra_fault(number: int, row: dict[str, Any]) -> BadRow | None:
    try:
        json.dumps(row, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        # A verifier runs in another process and gets the row as JSON.
        return BadRow(number, "a column that JSON cannot hold", str(error))
    return None


def _unicode_fault(number: int, text: str) -> BadRow | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can write half of a surrogate pair, which no tokenizer can take.
        return BadRow(number, "not valid Unicode")
    return None
