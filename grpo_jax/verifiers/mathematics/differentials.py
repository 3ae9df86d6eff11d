"""Quotients of differentials, which are no fractions to be reduced."""

from grpo_jax.verifiers.mathematics.tree import Apply, Symbol, Tree, describe


def derivative_of(numerator: Tree, denominator: Tree) -> Symbol | None:
    """Reads ``dy/dx``, ``d/dx`` or ``d^2 y/dx^2`` as one name.

    Args:
        numerator: What stands above.
        denominator: What stands below.

    Returns:
        The name, or ``None`` if one of them does not begin with ``d``.
    """
    if not _is_differential(numerator) or not _is_differential(denominator):
        return None
    return Symbol(f"{_name(numerator)}/{_name(denominator)}")


def _is_differential(tree: Tree) -> bool:
    if isinstance(tree, Apply) and tree.operation in ("mul", "pow"):
        return _is_differential(tree.arguments[0])
    return tree == Symbol("d")


def _name(tree: Tree) -> str:
    if isinstance(tree, Apply) and tree.operation == "mul":
        return "".join(map(describe, tree.arguments))
    return describe(tree)
