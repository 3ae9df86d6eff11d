"""Host-side contracts between data, rollout, verifiers and training (standard library only)."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


class FinishReason(enum.IntEnum):
    """Why a completion ended."""

    STOP = 0
    """The model emitted one of its end-of-sequence tokens, or completed a stop text."""
    LENGTH = 1
    """The token limit was reached first: the completion is truncated."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One problem whose answer a program can check.

    Attributes:
        identifier: Unique within its data source; stable across runs.
        prompt: Exactly the text that the model is given.
        answer: The reference answer that verifiers compare with.
        extra: Every further column of the source row, unchanged.
    """

    identifier: str
    prompt: str
    answer: str
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """One sampled completion as a verifier sees it.

    Attributes:
        text: The decoded completion without its end-of-sequence token, up to the stop text that ended it.
        length_tokens: Number of sampled tokens, the one that ended it included.
        finish: Why it ended. A truncated completion was ended by no token.
    """

    text: str
    length_tokens: int
    finish: FinishReason


LARGEST_REWARD = 1e15
"""Size up to which rewards of a large batch can be squared and added up in float32, which ends at 3.4e38."""


class RewardOutOfRange(ValueError):  # noqa: N818
    """A reward that no group could be normalised with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says about one completion.

    A time-out of the model's own work and an unparsable answer are verdicts with a reason.
    ``error`` is kept for faults of the judge itself: such a completion is no wrong answer, and it
    takes no part in its group's statistics or in the loss.

    Attributes:
        reward: Finite, and at most ``LARGEST_REWARD`` in size. Has no meaning when ``error`` is set (it is 0 then).
        correct: Whether the answer is right, whatever else the reward contains.
        parsed: The answer that was extracted, or ``None`` where there was none.
        reason: A short, stable phrase for people and counters (``"equal"``, ``"no answer block"``).
        seconds: Wall seconds that the judgement took.
        error: The judge failed, not the completion.
        parts: Reward by component name, before weights, for composed verifiers.
        part_seconds: Wall seconds by component name, of those components that were asked.
        failed_part: The component that failed, where ``error`` is set and a component did.
        flags: Remarks on how the verdict came about, in a stable order (``"approximate"``, ``"unit_missing"``).
    """

    reward: float
    correct: bool
    parsed: str | None
    reason: str
    seconds: float = 0.0
    error: bool = False
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    part_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    failed_part: str = ""
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # False for NaN too.
        if not abs(self.reward) <= LARGEST_REWARD:
            raise RewardOutOfRange(
                f"a verdict's reward must be finite and at most {LARGEST_REWARD:g} in size, got {self.reward!r} "
                f"({self.reason})"
            )
        for name in ("parsed", "reason"):
            text = getattr(self, name)
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                # Half a character has no place in a file or on a screen.
                object.__setattr__(self, name, text.encode(errors="backslashreplace").decode())
