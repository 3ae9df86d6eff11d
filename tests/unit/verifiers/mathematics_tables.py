"""Tables of references and answers, `{kind: {reference: answers}}`, as parameters of tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.equivalence import judge


def pairs(table: Mapping[str, Mapping[str, Sequence[str]]]) -> list[Any]:
    """Every (reference, answer) of a table as a named parameter."""
    return [
        pytest.param(gold, answer, id=f"{kind}-{gold}-{answer}"[:80].encode("ascii", "replace").decode())
        for kind, references in table.items()
        for gold, answers in references.items()
        for answer in answers
    ]


def assert_judged(gold: str, answer: str, options: MathematicsConfig, *, equal: bool) -> None:
    """Whichever of two answers is the reference, the verdict is the same."""
    forth, back = judge(gold, answer, options), judge(answer, gold, options)
    assert (forth.equal, back.equal) == (equal, equal), (forth, back)
