r"""Balanced ``\boxed{}`` in solutions and completions (standard library only)."""

import re
from typing import NamedTuple

_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)\s*(\{)|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s+([^\s{}$\\]+)")


class Box(NamedTuple):
    r"""One ``\boxed{}`` of a text.

    Attributes:
        start: Where the command begins.
        end: Where the text goes on after it.
        content: What stands in it, without surrounding white space.
        depth: Braces around it that are open.
    """

    start: int
    end: int
    content: str
    depth: int


def boxed(text: str) -> list[Box] | None:
    r"""Finds all ``\boxed{}`` that are in no other one.

    Args:
        text: Any text.

    Returns:
        The boxes in order; ``None`` if one is never closed.
    """
    boxes: list[Box] = []
    # One entry for every open brace: the match that opened a box, or None.
    open_braces: list[re.Match[str] | None] = []
    open_boxes = 0
    for match in _BOX_OR_BRACE.finditer(text):
        if match[1] is not None:
            open_braces.append(match)
            open_boxes += 1
        elif match[0] == "{":
            open_braces.append(None)
        elif match[0] == "}" and open_braces:
            opening = open_braces.pop()
            open_boxes -= opening is not None
            if opening is not None and open_boxes == 0:
                content = text[opening.end() : match.start()].strip()
                boxes.append(Box(opening.start(), match.end(), content, len(open_braces)))
    if open_boxes:
        return None
    return boxes or [
        Box(match.start(), match.start(1) + len(content), content, 0)
        for match in _BARE_BOX.finditer(text)
        for content in [match[1].rstrip(".,;")]
    ]
