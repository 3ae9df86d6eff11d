"""Recursive descent from tokens to the tree of one expression; see ``atoms`` for its smallest parts."""

from grpo_jax.verifiers.mathematics.atoms import AtomParser
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import UnreadableError
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Tree


class ExpressionParser(AtomParser):
    """sum = [sign] product {sign product}; product = power {[* /] power}; power = atom {! ^ power}."""

    def expression(self) -> Tree:
        """Parses a sum and leaves the position after it.

        Returns:
            The tree.

        Raises:
            UnreadableError: if no expression starts here.
        """
        terms = [self._signed_product()]
        while self.at_operator("+", "-"):
            terms.append(self._signed_product())
        tree = terms[0] if len(terms) == 1 else Apply("add", tuple(terms))
        while self.at_operator("mod"):
            self.take()
            tree = Apply("mod", (tree, self._signed_product()))
        if self.at_operator("over", "choose"):
            operation = "div" if self.take().value == "over" else "binom"
            with self.deeper():
                tree = Apply(operation, (tree, self.expression()))
        return tree

    def _signed_product(self) -> Tree:
        negative = self._signs()
        tree = self.product()
        return negate(tree) if negative else tree

    def _signs(self) -> bool:
        negative = False
        while self.at_operator("+", "-"):
            negative ^= self.take().value == "-"
        return negative

    def product(self) -> Tree:
        """Parses factors that are multiplied or divided, with or without a sign in between."""
        over, under = [self.power()], []
        while True:
            if self.at_operator("*"):
                self.take()
                over.append(self._signed_power())
            elif self.at_operator("/") and not self.starts_unit(1):
                self.take()
                under.append(self._signed_power())
            elif self.starts_factor():
                over.append(self.power())
            else:
                break
        numerator = over[0] if len(over) == 1 else Apply("mul", tuple(over))
        if not under:
            return numerator
        return Apply("div", (numerator, under[0] if len(under) == 1 else Apply("mul", tuple(under))))

    def _signed_power(self) -> Tree:
        negative = self._signs()
        tree = self.power()
        return negate(tree) if negative else tree

    def power(self) -> Tree:
        """Parses an atom with the factorials, degrees and exponents after it."""
        with self.deeper():
            tree = self.postfix(self.atom())
            if not self.at_operator("^"):
                return tree
            self.take()
            exponent = self._exponent()
            return self.postfix(Apply("pow", (tree, exponent)))

    def _exponent(self) -> Tree:
        negative = self._signs()
        token = self.peek()
        if token is not None and token.kind == "open" and token.value == "{":
            tree = self.postfix(self.atom())
        else:
            # Plain text: 2^3^2 is 2^(3^2).
            tree = self.power()
        return negate(tree) if negative else tree


def negate(tree: Tree) -> Tree:
    """The negative of a tree; of a number, a number."""
    if isinstance(tree, Number):
        return Number(-tree.value, tree.digits)
    return Apply("neg", (tree,))


def parse_expression(tokens: list[Token]) -> tuple[Tree, list[Token]]:
    """Parses as many tokens as belong to one expression.

    Args:
        tokens: The tokens of one answer or of a part of it.

    Returns:
        The tree, and the tokens after it (a unit, perhaps).

    Raises:
        UnreadableError: if no expression starts there.
    """
    parser = ExpressionParser(tokens)
    tree = parser.expression()
    return tree, tokens[parser.position :]


def parse_whole(tokens: list[Token]) -> Tree:
    """Parses tokens that are one expression and nothing else."""
    tree, rest = parse_expression(tokens)
    if rest:
        raise UnreadableError("not an expression")
    return tree
