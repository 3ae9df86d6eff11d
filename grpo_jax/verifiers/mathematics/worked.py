"""Whether an answer is worked out, or leaves arithmetic to the reader."""

from grpo_jax.verifiers.mathematics.answers import (
    Answer,
    Expression,
    FiniteSet,
    Listing,
    Matrix,
    Quantity,
    Ratio,
    Relation,
    Tuple,
)
from grpo_jax.verifiers.mathematics.tree import is_final


def is_worked_out(answer: Answer) -> bool:
    r"""Whether every number in it is written out: ``5`` or ``1/2``, not ``2+3`` or ``\sqrt{25}``.

    Args:
        answer: The typed answer.

    Returns:
        ``False`` if an operation is left to be done, be it one that cannot be done (``1+\sqrt2``).
    """
    match answer:
        case Expression(tree) | Quantity(tree, _):
            return is_final(tree)
        case FiniteSet(items) | Listing(items, _, _) | Tuple(items, _):
            return all(map(is_worked_out, items))
        case Relation(sides, _, _):
            return all(map(is_worked_out, sides))
        case Matrix(rows):
            return all(is_worked_out(cell) for row in rows for cell in row)
        case Ratio(parts, _):
            return all(map(is_final, parts))
    return True
