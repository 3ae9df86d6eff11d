"""Bounds on the work that a text may cause, and what is raised beyond them.

Every bound is checked before the work is done, so that a judgement ends by itself.
"""

MAX_CHARACTERS = 10_000
"""Characters of an answer or a reference."""
MAX_NESTING = 30
"""Brackets within brackets, once doubled ones are dropped; also powers of powers."""
MAX_PARSER_DEPTH = 90
"""Atoms, arguments and powers within one another; far from Python's own limit."""
MAX_BARS = 10
"""Absolute values within one another."""
MAX_DIGITS = 2_000
"""Digits of one written number, without zeros that do not count."""
MAX_BITS = 100_000
"""Bits of an exact number."""
MAX_MAGNITUDE_BITS = 5_000
"""Binary exponent of an approximated number."""
MAX_FACTORIAL = 8_000
"""Largest number whose factorial is multiplied out."""
MAX_TERMS = 2_000
"""Terms of a sum or product that are added up."""
MAX_WORK = 250_000
"""Work of one judgement; one unit is about a microsecond."""
MAX_ITEMS = 200
"""Elements of a list, set or matrix."""
MAX_UNORDERED_ITEMS = 60
"""Elements of a list or set that are compared in any order."""


class UnreadableError(ValueError):
    """A text has no reading; the message is a short, stable phrase."""


class TooLargeError(ValueError):
    """An evaluation would take more work or memory than allowed."""


class UndefinedError(ValueError):
    """An expression has no value, such as a division by zero."""


class InexactError(ValueError):
    """An expression has no exact rational value that is known here."""


class Budget:
    """The work that one judgement may still do. It counts operations, not time, so that verdicts do not vary.

    Attributes:
        left: Work that is left, in units of about a microsecond.
        peak_bits: Largest binary exponent, up or down, of the approximate numbers met so far.
    """

    def __init__(self, work: int = MAX_WORK) -> None:
        """Starts with this much work."""
        self.left = work
        self.peak_bits = 0

    def charge(self, work: int) -> None:
        """Takes work off the budget.

        Args:
            work: In units of about a microsecond.

        Raises:
            TooLargeError: if no work is left.
        """
        self.left -= work
        if self.left < 0:
            raise TooLargeError("too much to evaluate")
