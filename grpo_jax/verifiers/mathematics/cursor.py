"""A position in a list of tokens, and the numbers that are written there."""

import contextlib
import fractions
from collections.abc import Iterator

from grpo_jax.verifiers.mathematics import numerals
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import MAX_PARSER_DEPTH, UnreadableError
from grpo_jax.verifiers.mathematics.tree import Number, Tree


class Cursor:
    """A list of tokens with a position in it."""

    def __init__(self, tokens: list[Token]) -> None:
        """Starts at the first token."""
        self.position = 0
        self._tokens = list(tokens)
        self._depth = 0

    def peek(self, ahead: int = 0) -> Token | None:
        """The token at or after the position, or ``None`` past the end."""
        index = self.position + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def take(self) -> Token:
        """Returns the token at the position and steps over it."""
        token = self.peek()
        if token is None:
            raise UnreadableError("unexpected end")
        self.position += 1
        return token

    def at_operator(self, *values: str) -> bool:
        """Whether one of these operators stands at the position."""
        token = self.peek()
        return token is not None and token.kind == "operator" and token.value in values

    def starts_unit(self, ahead: int) -> bool:
        """Whether a unit stands there."""
        token = self.peek(ahead)
        return token is not None and token.kind in ("unit", "unit word")

    @contextlib.contextmanager
    def deeper(self) -> Iterator[None]:
        """Counts one level of nesting."""
        self._depth += 1
        if self._depth > MAX_PARSER_DEPTH:
            raise UnreadableError("nested too deep")
        yield
        self._depth -= 1


class NumberParser(Cursor):
    """The parsing of numbers: decimals, repeating decimals, mixed numbers."""

    def number(self, token: Token) -> Tree:
        """Reads the number that starts with a token.

        Args:
            token: The token before the position.

        Returns:
            The number.

        Raises:
            UnreadableError: if it has no value that can be told.
        """
        following = self.peek()
        if following is not None and "." in token.value:
            repeated = self._repeating(token, following)
            if repeated is not None:
                return repeated
        if following is not None and following.kind == "name" and following.value == "x" and token.value == "0":
            # 0xFF is no product.
            raise UnreadableError("not an expression")
        tree = numerals.decimal(token.value)
        return self._mixed(tree) if token.value.isdigit() and isinstance(tree, Number) else tree

    def _repeating(self, token: Token, following: Token) -> Number | None:
        if following.kind == "ellipsis":
            split = numerals.period_before_ellipsis(token.value)
            if split is None:
                raise UnreadableError("an ellipsis after digits without a period")
            self.take()
            return numerals.repeating(*split)
        bar = following.kind == "decoration" and following.value in ("overline", "bar", "dot")
        if not bar and not (following.value == "(" and not following.gap):
            return None
        inner = [self.peek(1 + offset) for offset in range(3)]
        if bar and inner[0] is not None and inner[0].kind == "number" and inner[0].value.isdigit():
            # \bar3 without braces.
            period, length = inner[0].value, 2
        elif inner[1] is not None and inner[1].kind == "number" and inner[1].value.isdigit() and bar:
            period, length = inner[1].value, 4
        elif not bar and inner[0] is not None and inner[0].value.isdigit() and getattr(inner[1], "value", "") == ")":
            period, length = inner[0].value, 3
        else:
            return None
        self.position += length
        return numerals.repeating(token.value, period)

    def _mixed(self, whole: Number) -> Number:
        r"""Reads ``1 1/2`` and ``1\frac{1}{2}`` as a mixed number; an improper fraction makes a product."""
        part = self._plain_fraction()
        if part is None or not 0 < part[0] < 1:
            return whole
        self.position += part[1]
        return Number(whole.value + part[0])

    def _plain_fraction(self) -> tuple[fractions.Fraction, int] | None:
        tokens = [self.peek(offset) for offset in range(7)]
        kinds = [token.kind if token is not None else "" for token in tokens]
        values = [token.value if token is not None else "" for token in tokens]
        first = tokens[0]
        if kinds[:3] == ["number", "operator", "number"] and values[1] == "/" and first is not None and first.gap:
            numerator, denominator, length = values[0], values[2], 3
        elif values[:2] == ["frac", "{"] and values[3:5] == ["}", "{"] and values[6] == "}":
            numerator, denominator, length = values[2], values[5], 7
        elif values[0] == "frac" and kinds[1] == "number" and len(values[1]) == 2:
            numerator, denominator, length = *values[1], 2
        else:
            return None
        if not (numerator.isdigit() and denominator.isdigit() and denominator.strip("0")):
            return None
        return fractions.Fraction(int(numerator), int(denominator)), length
