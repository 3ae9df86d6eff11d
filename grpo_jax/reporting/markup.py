"""HTML that is safe by construction: text is escaped unless a function of this module made it."""

import html
import json
from collections.abc import Sequence
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


VOID = frozenset({"br", "input", "line", "meta", "path", "polygon", "polyline", "rect", "circle"})
"""Elements that are written without an end tag."""


def escaped(text: object) -> Markup:
    """Turns anything into HTML that shows its text; markup stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text), quote=True))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Builds an element.

    Args:
        tag: Its name.
        *children: Text, which is escaped, or markup; None is left out.
        **attributes: ``class_`` is ``class``, ``stroke_width`` is ``stroke-width``; those that are None or False are
            left out, and True is an attribute without a value.

    Returns:
        The element.

    >>> element("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in VOID:
        return Markup(f"<{tag}{written}>" if tag in ("br", "input", "meta") else f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def joined(*children: object) -> Markup:
    """Puts text and markup one after the other; None is left out."""
    return Markup("".join(escaped(child) for child in children if child is not None))


def table(head: tuple[object, ...], rows: Sequence[tuple[object, ...]], class_: str | None = None) -> Markup:
    """Builds a table that scrolls sideways where it is too wide.

    Args:
        head: Column titles.
        rows: Cells; the first of each row is its title.
        class_: Class of the table.

    Returns:
        The table.
    """
    titles = element("tr", *(element("th", title, scope="col") for title in head))
    lines = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    whole = element("table", element("thead", titles), element("tbody", *lines), class_=class_)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"table: {head[0]}")


def embedded_json(identifier: str, value: Any) -> Markup:
    """Puts data into the page for its script.

    Inside a script element nothing is unescaped, so what could end the element or begin a comment is written as JSON's
    own escapes.

    Args:
        identifier: The element's id.
        value: JSON values.

    Returns:
        A script element that no browser runs.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json" id="{escaped(identifier)}">{text}</script>')
