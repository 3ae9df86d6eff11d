"""The smallest parts of an expression: numbers, names, brackets, fractions, roots, functions, sums."""

import abc
import fractions
from collections.abc import Callable

from grpo_jax.verifiers.mathematics import numerals, vocabulary
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.cursor import NumberParser
from grpo_jax.verifiers.mathematics.differentials import derivative_of
from grpo_jax.verifiers.mathematics.limits import MAX_BARS, MAX_NESTING, UnreadableError
from grpo_jax.verifiers.mathematics.tree import Apply, Constant, Number, Symbol, Tree, canonical, describe

_ATOM_KINDS = frozenset(("name", "constant", "function", "command", "decoration"))


class AtomParser(NumberParser, abc.ABC):
    """The parsing of everything that binds tighter than a power."""

    def __init__(self, tokens: list[Token]) -> None:
        """Starts at the first token."""
        super().__init__(tokens)
        self._bound_names: set[str] = set()
        self._in_bars = 0

    @abc.abstractmethod
    def expression(self) -> Tree:
        """Parses a sum."""

    @abc.abstractmethod
    def product(self) -> Tree:
        """Parses a product."""

    @abc.abstractmethod
    def power(self) -> Tree:
        """Parses a power."""

    def starts_factor(self) -> bool:
        """Whether a factor without a sign before it stands at the position; a number does only after ``!``."""
        token = self.peek()
        if token is None:
            return False
        if token.kind == "bar":
            return not self._in_bars
        if token.kind == "open":
            following = self.peek(1)
            # 5{1} is set as 51.
            return token.value != "lbrace" and not (
                token.value == "{" and following is not None and following.kind == "number"
            )
        if token.kind == "number":
            # 3!2! is a product.
            return not token.gap and self._tokens[self.position - 1].value == "!"
        return token.kind in _ATOM_KINDS and token.value != "pmod"

    def atom(self) -> Tree:
        """Parses one operand."""
        with self.deeper():
            return self._operand(self.take())

    def _operand(self, token: Token) -> Tree:
        match token.kind:
            case "number":
                return self.number(token)
            case "name":
                return self._name(token)
            case "constant":
                return Constant(token.value)
            case "open":
                return self._bracketed(token)
            case "bar":
                return self._between_bars()
            case "function":
                return self._function(token.value)
            case "command":
                return self._command(token.value)
            case "decoration":
                return self._decorated(token.value)
        raise UnreadableError("not an expression")

    def postfix(self, tree: Tree) -> Tree:
        """Applies the factorials and degree signs that follow."""
        for _ in range(MAX_NESTING):
            token = self.peek()
            if self.at_operator("!"):
                self.take()
                double = self.at_operator("!")
                if double:
                    self.take()
                tree = Apply("double factorial" if double else "factorial", (tree,))
            elif token is not None and token.kind == "degree":
                self.take()
                tree = Apply("degree", (tree,))
            else:
                return tree
        raise UnreadableError("nested too deep")

    def _name(self, token: Token) -> Tree:
        name = token.value + self._subscript()
        while self.at_operator("'"):
            self.take()
            name += "'"
        following = self.peek()
        if name in ("e", "i") and name not in self._bound_names:
            return Constant(name)
        base = token.value
        if name == "C" and following is not None and following.value == "(":
            return self._combinations()
        if base in vocabulary.UNKNOWN_FUNCTIONS and following is not None and following.value == "(":
            self.take()
            return Apply(f"call {name}", tuple(self._arguments(")")))
        return Symbol(name)

    def _combinations(self) -> Tree:
        """``C(5, 2)``; with anything but two numbers, a variable that is multiplied."""
        kinds = [token.kind if (token := self.peek(ahead)) is not None else "" for ahead in range(5)]
        if kinds != ["open", "number", "separator", "number", "close"]:
            return Symbol("C")
        self.take()
        return Apply("binom", tuple(self._arguments(")")))

    def _subscript(self) -> str:
        """Reads ``_{...}`` as a canonical piece of a name."""
        if not self.at_operator("_"):
            return ""
        self.take()
        token = self.take()
        if token.kind in ("number", "name"):
            return f"_{token.value}"
        if token.kind == "word":
            return f"_{token.value}"
        if token.kind == "open" and token.value == "{":
            parts = []
            while (following := self.peek()) is not None and following.kind != "close":
                parts.append(self._subscript_part())
            self._close("}")
            return f"_{','.join(parts)}"
        raise UnreadableError("not a subscript")

    def _subscript_part(self) -> str:
        following = self.peek()
        if following is not None and following.kind in ("word", "unit", "separator"):
            return self.take().value
        return canonical(self.expression())

    def _arguments(self, closing: str) -> list[Tree]:
        arguments = [self._free(self.expression)]
        while (following := self.peek()) is not None and following.kind == "separator":
            self.take()
            arguments.append(self._free(self.expression))
        self._close(closing)
        return arguments

    def _free(self, parse: Callable[[], Tree]) -> Tree:
        """Parses within brackets, where a bar may open again."""
        outer, self._in_bars = self._in_bars, 0
        tree = parse()
        self._in_bars = outer
        return tree

    def _close(self, value: str) -> None:
        token = self.take()
        if token.kind != "close" or token.value != value:
            raise UnreadableError("not an expression")

    def _bracketed(self, token: Token) -> Tree:
        if token.value not in "([{" and token.value not in vocabulary.ROUNDING:
            raise UnreadableError("not an expression")
        tree = self._free(self.expression)
        self._close(vocabulary.OPENING[token.value])
        return Apply(vocabulary.ROUNDING[token.value], (tree,)) if token.value in vocabulary.ROUNDING else tree

    def _between_bars(self) -> Tree:
        self._in_bars += 1
        if self._in_bars > MAX_BARS:
            raise UnreadableError("nested too deep")
        tree = self.expression()
        self._in_bars -= 1
        if self.take().kind != "bar":
            raise UnreadableError("not an expression")
        return Apply("abs", (tree,))

    def _function(self, name: str) -> Tree:
        base = exponent = None
        for _ in range(2):
            if name == "log" and self.at_operator("_") and base is None:
                self.take()
                base = self._argument()
            elif name in vocabulary.POWERED and self.at_operator("^") and exponent is None:
                self.take()
                exponent = self._signed_argument()
        if exponent is not None and exponent == Number(fractions.Fraction(-1)) and name in vocabulary.INVERSE:
            name, exponent = vocabulary.INVERSE[name], None
        tree = self._applied(name, base)
        return tree if exponent is None else Apply("pow", (tree, exponent))

    def _applied(self, name: str, base: Tree | None) -> Tree:
        token = self.peek()
        brackets = ("(", "[", "lbrace") if name in vocabulary.OF_SETS else ("(", "[")
        if token is not None and token.value in brackets and token.kind == "open":
            self.take()
            arguments = tuple(self._arguments(vocabulary.OPENING[token.value]))
        elif (token is not None and token.value == "{") or name in ("sqrt", "cbrt"):
            arguments = (self._argument(),)
        else:
            arguments = (self._bare_argument(),)
        if base is not None:
            return Apply("log base", (*arguments, base))
        return Apply(name, arguments)

    def _bare_argument(self) -> Tree:
        r"""The argument of a function without brackets: ``\sin 2x`` but not the cosine in ``\sin x\cos x``."""
        negative = False
        while self.at_operator("-"):
            self.take()
            negative = not negative
        factors = [self.power()]
        while self.starts_factor():
            token = self.peek()
            if token is None or token.kind in ("function", "open", "bar"):
                break
            factors.append(self.power())
        tree = factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))
        return Apply("neg", (tree,)) if negative else tree

    def _argument(self) -> Tree:
        """One LaTeX argument: a braced group, or a single atom."""
        with self.deeper():
            return self.atom()

    def _digit_or_argument(self) -> Tree:
        """As LaTeX reads it: without braces, only the first digit of a number belongs to the command."""
        token = self.peek()
        if token is None or token.kind != "number" or len(token.value) == 1:
            return self._argument()
        self._tokens[self.position] = token._replace(value=token.value[1:])
        return numerals.decimal(token.value[0])

    def _signed_argument(self) -> Tree:
        negative = self.at_operator("-")
        if negative:
            self.take()
        tree = self._argument()
        if isinstance(tree, Number) and negative:
            return Number(-tree.value)
        if isinstance(tree, Apply) and tree.operation == "neg" and tree.arguments == (Number(fractions.Fraction(1)),):
            return Number(fractions.Fraction(-1))
        return Apply("neg", (tree,)) if negative else tree

    def _command(self, name: str) -> Tree:
        if name in ("frac", "binom"):
            first, second = self._digit_or_argument(), self._digit_or_argument()
            derivative = derivative_of(first, second) if name == "frac" else None
            if derivative is not None:
                return derivative
            return Apply("div" if name == "frac" else "binom", (first, second))
        if name == "sqrt":
            return self._root()
        if name in ("sum", "prod"):
            return self._series(name)
        raise UnreadableError("not an expression")

    def _root(self) -> Tree:
        token = self.peek()
        index = None
        if token is not None and token.value == "[":
            self.take()
            index = self._free(self.expression)
            self._close("]")
        radicand = self._digit_or_argument()
        return Apply("sqrt", (radicand,)) if index is None else Apply("root", (radicand, index))

    def _series(self, name: str) -> Tree:
        bounds: dict[str, Tree] = {}
        variable = None
        for _ in range(2):
            if self.at_operator("_") and variable is None:
                self.take()
                variable, bounds["_"] = self._lower_bound()
            elif self.at_operator("^") and "^" not in bounds:
                self.take()
                bounds["^"] = self._argument()
        if variable is None or set(bounds) != {"_", "^"}:
            raise UnreadableError("a sum without bounds")
        outer, self._bound_names = self._bound_names, self._bound_names | {variable.name}
        term = self.product()
        self._bound_names = outer
        return Apply(name, (variable, bounds["_"], bounds["^"], term))

    def _lower_bound(self) -> tuple[Symbol, Tree]:
        opening, letter, equals = self.take(), self.take(), self.take()
        if opening.value != "{" or letter.kind != "name" or equals.value != "=":
            raise UnreadableError("a sum without bounds")
        first = self.expression()
        self._close("}")
        return Symbol(letter.value), first

    def _decorated(self, name: str) -> Tree:
        inner = self._argument()
        return Symbol(f"{name} {describe(inner)}")
