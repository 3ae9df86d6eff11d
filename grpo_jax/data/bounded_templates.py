"""Templates that nobody vouches for: jinja's sandbox, with an end to what their loops and macros do."""

import contextvars
from typing import Any

import jinja2
import jinja2.nodes
import jinja2.sandbox

MAX_TURNS = 100_000
"""Turns of loops, calls of macros and numbers of ranges in one rendering; a message of a conversation takes a few."""

_turns: contextvars.ContextVar[int] = contextvars.ContextVar("turns", default=0)


class TemplateNeverEnds(jinja2.TemplateError):
    """A template went on for more than ``MAX_TURNS``."""


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """A sandbox whose templates count what they do; what one expression makes of a long text is not counted."""

    def __init__(self, **options: Any) -> None:
        """Takes the options of jinja's environments."""
        super().__init__(**options)
        self.globals["range"] = self._range

    def bounded(self, source: str) -> jinja2.Template:
        """Compiles a template that counts its turns.

        Args:
            source: Its text.

        Returns:
            The template, for ``render``.

        Raises:
            jinja2.TemplateError: for a text that is no template.
        """
        tree = self.parse(source)
        for loop in tree.find_all(jinja2.nodes.For):
            loop.body.insert(0, jinja2.nodes.ExprStmt(_counting()))
            if loop.test is not None:
                # Items that a condition leaves out never come to the body.
                loop.test = jinja2.nodes.And(_counting(), loop.test)
        for called in tree.find_all((jinja2.nodes.Macro, jinja2.nodes.CallBlock, jinja2.nodes.Block)):
            called.body.insert(0, jinja2.nodes.ExprStmt(_counting()))
        tree.set_environment(self)
        return self.from_string(tree)

    def render(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        """Renders a template, counting from 0.

        Args:
            template: From ``bounded``.
            variables: What it sees.

        Returns:
            The text.

        Raises:
            TemplateNeverEnds: if it takes more than ``MAX_TURNS``.
            Exception: whatever else a template can raise.
        """
        _turns.set(0)
        return template.render(variables)

    def count(self, turns: int = 1) -> bool:
        """What compiled templates call at each turn; True, to stand in conditions."""
        _turns.set(_turns.get() + turns)
        if _turns.get() > MAX_TURNS:
            raise TemplateNeverEnds(f"its loops and macros took more than {MAX_TURNS:,} turns")
        return True

    def _range(self, *bounds: int) -> range:
        numbers = jinja2.sandbox.safe_range(*bounds)
        self.count(len(numbers))
        return numbers


def _counting() -> jinja2.nodes.Call:
    """A call that no template can write or replace: it is no name."""
    return jinja2.nodes.Call(jinja2.nodes.EnvironmentAttribute("count"), [], [], None, None, lineno=1)
