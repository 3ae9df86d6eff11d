"""Recursive descent from tokens to the tree of one expression; see ``atoms`` for its smallest parts."""

from grpo_jax.verifiers.mathematics.atoms import AtomParser
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import UnreadableError
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Symbol, Tree


class ExpressionParser(AtomParser):
    """sum = [sign] product {sign product}; product = power {[* /] power}; power = atom {! ^ power}."""

    def __init__(self, tokens: list[Token]) -> None:
        """Starts at the first token."""
        super().__init__(tokens)
        self._has_matrices = any(_is_inverted(index, tokens) for index in range(len(tokens)))

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
            elif self.at_operator("cross", "compose"):
                # Neither product commutes.
                operation = f"call {self.take().value}"
                over[-1] = Apply(operation, (over[-1], self.power()))
            elif self.starts_factor():
                over.append(self.power())
            else:
                break
        numerator = multiply(over, ordered=self._has_matrices)
        if not under:
            return numerator
        return Apply("div", (numerator, multiply(under, ordered=self._has_matrices)))

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


def _is_inverted(index: int, tokens: list[Token]) -> bool:
    """Whether a capital letter with an inverse or a transpose stands there: a matrix, most likely."""
    letter, *power = tokens[index : index + 5]
    values = [token.value for token in power]
    values = values[:1] + values[2:] if values[1:2] == ["{"] else values
    return _is_capital(letter.value) and (values[:3] == ["^", "-", "1"] or values[:2] in (["^", "T"], ["^", "top"]))


def _is_capital(name: str) -> bool:
    return name[:1].isascii() and name[:1].isupper() and len(name.partition("_")[0]) == 1


def multiply(factors: list[Tree], *, ordered: bool) -> Tree:
    """The product of factors.

    Args:
        factors: At least one.
        ordered: Whether capital letters are matrices: unless all of them are powers of the same one, they do not
            commute.

    Returns:
        The tree; its ``call product`` is a product whose factors stay in order.
    """
    if ordered:
        matrices = [factor for factor in factors if _matrix_name(factor)]
        if len(set(map(_matrix_name, matrices))) > 1:
            factors = [factor for factor in factors if not _matrix_name(factor)]
            factors.append(Apply("call product", tuple(matrices)))
    return factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))


def _matrix_name(tree: Tree) -> str:
    if isinstance(tree, Apply) and tree.operation == "pow":
        return _matrix_name(tree.arguments[0])
    return tree.name if isinstance(tree, Symbol) and _is_capital(tree.name) else ""


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
