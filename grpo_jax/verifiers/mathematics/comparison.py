"""Comparing two typed answers under the options of the verifier."""

import fractions

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.answers import (
    Answer,
    BaseNumber,
    Expression,
    FiniteSet,
    Listing,
    Matrix,
    Points,
    Quantity,
    Ratio,
    RealSet,
    Region,
    Relation,
    Text,
    Tuple,
)
from grpo_jax.verifiers.mathematics.approximation import approximates
from grpo_jax.verifiers.mathematics.collections import same_items
from grpo_jax.verifiers.mathematics.conventions import same_integration_constant, values_by_name, without_half
from grpo_jax.verifiers.mathematics.limits import Budget
from grpo_jax.verifiers.mathematics.ordering import proportional
from grpo_jax.verifiers.mathematics.probing import Outcome, compare
from grpo_jax.verifiers.mathematics.quantities import PERCENT, multiple
from grpo_jax.verifiers.mathematics.regions import region_of, same_region
from grpo_jax.verifiers.mathematics.relations import constant_equation, same_relation
from grpo_jax.verifiers.mathematics.tree import Apply, Constant, Number, Tree, is_infinite
from grpo_jax.verifiers.mathematics.units import is_count, unit_named

_GROWTH = frozenset(("call O", "call o", "call Theta", "call Omega"))
_HUNDREDTH = Number(fractions.Fraction(1, 100))
_RADIANS_IN_DEGREE = Apply("div", (Constant("pi"), Number(fractions.Fraction(180))))

# The word does not tell money from mass.
_POUNDS = {unit_named("pound"), unit_named("sterling")}
_DEGREE, _RADIAN = unit_named("degree"), unit_named("radian")


class Comparison:
    """One comparison under way: its options, the work that is left, and what it noticed."""

    def __init__(self, options: MathematicsConfig, budget: Budget) -> None:
        """Starts without flags."""
        self.flags: set[str] = set()
        self.reason = "not equal"
        self._options = options
        self._budget = budget

    def equal(self, gold: Answer, answer: Answer) -> bool:
        """Whether two answers are equal; the order of the two does not matter.

        Args:
            gold: One typed answer.
            answer: The other one.

        Returns:
            The verdict. ``flags`` then tell which conventions it used, ``reason`` why it is negative.

        Raises:
            TooLargeError: if the work is used up.
            UndefinedError: if an end point of an interval has no value.
        """
        self.reason = "not equal"
        if type(gold) is type(answer):
            return self._same_type(gold, answer)
        if self._mixed(gold, answer) or self._mixed(answer, gold):
            return True
        if self.reason == "not equal" and not _comparable(gold, answer):
            self.reason = "of another type"
        return False

    def _same_type(self, gold: Answer, answer: Answer) -> bool:
        match gold, answer:
            case Expression(left), Expression(right):
                return self._same_value(left, right)
            case Quantity(), Quantity():
                return self._same_quantity(gold, answer)
            case Relation(), Relation():
                return same_relation(gold, answer, self.equal, self._budget)
            case RealSet(), RealSet():
                return self._same_sets(gold, answer)
            case Ratio(), Ratio():
                return self._same_ratio(gold, answer)
            case BaseNumber(), BaseNumber():
                same_value = gold.value == answer.value
                return same_value and (self._options.base_as_value or gold.base == answer.base)
            case Text(words, read), Text(other, other_read):
                # What has no reading equals nothing but its own text.
                return read and other_read and words == other
        return self._same_collection(gold, answer)

    def _same_sets(self, gold: RealSet, answer: RealSet) -> bool:
        if gold.variable is not None and answer.variable is not None and gold.variable != answer.variable:
            return False
        return same_region(gold.region, answer.region, self._budget)

    def _same_value(self, left: Tree, right: Tree) -> bool:
        infinite = is_infinite(left), is_infinite(right)
        if any(infinite):
            return infinite[0] == infinite[1]
        outcome = compare(left, right, self._budget)
        if outcome is Outcome.EQUAL or self._same_growth(left, right):
            return True
        other_name = same_integration_constant(left, right)
        if other_name is not None and compare(other_name, right, self._budget) is Outcome.EQUAL:
            return True
        if outcome is not Outcome.DIFFERENT:
            self.reason = outcome.value
            return False
        if approximates(left, right, self._options.approximation_digits, self._budget):
            self.flags.add("approximate")
            return True
        return False

    def _same_growth(self, left: Tree, right: Tree) -> bool:
        """``O(2n)`` is ``O(n)``: a positive factor does not change what grows alike."""
        match left, right:
            case Apply(name, (one,)), Apply(other, (another,)) if name == other and name in _GROWTH:
                return proportional(one, another, self._budget) == 1
        return False

    def _same_quantity(self, gold: Quantity, answer: Quantity) -> bool:
        if {gold.unit, answer.unit} == _POUNDS:
            return self._same_value(gold.value, answer.value)
        if self._options.convert_units and {gold.unit, answer.unit} == {_DEGREE, _RADIAN}:
            turned = [_in_radians(quantity) for quantity in (gold, answer)]
            return self._same_value(turned[0], turned[1])
        if gold.unit.dimensions != answer.unit.dimensions:
            self.reason = "another unit"
            return False
        if gold.unit == answer.unit:
            return self._same_value(gold.value, answer.value)
        if not self._options.convert_units:
            self.reason = "another unit"
            return False
        sizes = [multiple(quantity.value, quantity.unit.factor) for quantity in (gold, answer)]
        return self._same_value(sizes[0], sizes[1])

    def _same_collection(self, gold: Answer, answer: Answer) -> bool:
        match gold, answer:
            case Listing(), Listing():
                return self._same_listing(gold, answer)
            case FiniteSet(left), FiniteSet(right):
                return same_items(left, right, self.equal, as_sets=True)
            case Tuple(left), Tuple(right):
                return len(left) == len(right) and all(map(self.equal, left, right))
            case Matrix(left), Matrix(right):
                return self._same_matrix(left, right)
        return False

    def _same_listing(self, gold: Listing, answer: Listing) -> bool:
        if gold.name is not None and answer.name is not None and gold.name != answer.name:
            return False
        if _names_clash(gold, answer) or _names_clash(answer, gold):
            return False
        if gold.joint and answer.joint and gold.joint != answer.joint:
            return False
        same_order = len(gold.items) == len(answer.items) and all(map(self._quietly, gold.items, answer.items))
        if same_order:
            return all(map(self.equal, gold.items, answer.items))
        if gold.sequence or answer.sequence or self._options.list_order == "same":
            return False
        if same_items(gold.items, answer.items, self.equal):
            self.flags.add("reordered")
            return True
        return False

    def _quietly(self, left: Answer, right: Answer) -> bool:
        flags = set(self.flags)
        same = self.equal(left, right)
        self.flags = flags
        return same

    def _same_matrix(self, left: tuple[tuple[Answer, ...], ...], right: tuple[tuple[Answer, ...], ...]) -> bool:
        if len(left) != len(right) or len(left[0]) != len(right[0]):
            return False
        return all(self.equal(a, b) for rows in zip(left, right, strict=True) for a, b in zip(*rows, strict=True))

    def _same_ratio(self, gold: Ratio, answer: Ratio) -> bool:
        if len(gold.parts) != len(answer.parts):
            return False
        if all(self._same_value(a, b) for a, b in zip(gold.parts, answer.parts, strict=True)):
            return True
        if gold.clock and answer.clock:
            return False
        zero = Number(fractions.Fraction(0))
        parts = (*gold.parts, *answer.parts)
        if any(compare(part, zero, self._budget) is Outcome.EQUAL for part in parts):
            return False
        first, other = gold.parts[0], answer.parts[0]
        return all(
            compare(Apply("mul", (a, other)), Apply("mul", (b, first)), self._budget) is Outcome.EQUAL
            for a, b in zip(gold.parts[1:], answer.parts[1:], strict=True)
        )

    def _mixed(self, one: Answer, other: Answer) -> bool:
        """Compares answers of two types in one order; ``equal`` tries both."""
        options = self._options
        match one, other:
            case Quantity(), Expression(tree):
                return self._without_unit(one, tree)
            case Relation(operators=("=", *_)), _ if one.name is not None and not isinstance(other, Relation | RealSet):
                return options.name_optional and self._value_of(one, other)
            case Ratio((first, second)), Expression(tree):
                return options.ratio_as_fraction and self._same_value(Apply("div", (first, second)), tree)
            case BaseNumber(), Expression(tree):
                value = Number(fractions.Fraction(one.value))
                return options.base_as_value and self._same_value(value, tree)
            case RealSet(), FiniteSet() | Tuple() | Relation():
                return self._same_set(one.region, one.variable, other)
            case Tuple(), Relation():
                interval = region_of(one)
                return interval is not None and self._same_set(interval.region, None, other)
        return self._mixed_collections(one, other)

    def _mixed_collections(self, one: Answer, other: Answer) -> bool:
        options = self._options
        match one, other:
            case Ratio(), Text() if options.missing_unit and without_half(one, other):
                self.flags.add("unit_missing")
                return True
            case FiniteSet(()), Text("no solution"):
                return True
            case Listing(items), FiniteSet():
                return options.list_as_set and len(items) > 1 and same_items(items, other.items, self.equal, True)
            case Listing(items, name, False), RealSet(Points(values), variable) if name == variable:
                points = tuple(map(Expression, values))
                return options.list_as_set and same_items(items, points, self.equal, as_sets=True)
            case Listing(items, None, False, "and"), Tuple(parts) if (values := values_by_name(items)) is not None:
                return options.name_optional and len(values) == len(parts) and all(map(self.equal, values, parts))
            case Listing(items, _, False), Tuple(parts):
                return options.tuple_as_list and len(items) == len(parts) and all(map(self.equal, items, parts))
            case Matrix(rows), Tuple(parts) if options.vector_as_tuple and 1 in (len(rows), len(rows[0])):
                cells = [cell for row in rows for cell in row]
                return len(cells) == len(parts) and all(map(self.equal, cells, parts))
        return False

    def _same_set(self, region: Region, variable: str | None, other: Answer) -> bool:
        real_set = region_of(other)
        if real_set is None:
            return False
        if isinstance(other, Relation):
            if not self._options.interval_as_inequality or (other.operators == ("=",) and variable is None):
                return False
            if variable is not None and variable != real_set.variable:
                return False
        return same_region(region, real_set.region, self._budget)

    def _value_of(self, equation: Relation, other: Answer) -> bool:
        """Compares ``x = 5`` or ``x = 2 + 3 = 5`` with a value; all sides must agree."""
        if set(equation.operators) != {"="} or not constant_equation(equation, self.equal):
            return False
        return self.equal(equation.sides[-1], other)

    def _without_unit(self, quantity: Quantity, tree: Tree) -> bool:
        if quantity.unit == PERCENT:
            return self._without_percent(quantity.value, tree)
        if quantity.unit == _RADIAN:
            # A radian is the bare number.
            return self._same_value(quantity.value, tree)
        # Three dozen eggs are 36, but three metres are not said to be 300.
        counted = multiple(quantity.value, quantity.unit.factor) if is_count(quantity.unit) else quantity.value
        if self._options.missing_unit and self._same_value(counted, tree):
            self.flags.add("unit_missing")
            return True
        if quantity.unit == _DEGREE and self._options.convert_units:
            return self._same_value(_in_radians(quantity), tree)
        return False

    def _without_percent(self, value: Tree, tree: Tree) -> bool:
        allowed = self._options.percent
        if allowed in ("fraction", "either") and self._same_value(Apply("mul", (value, _HUNDREDTH)), tree):
            self.flags.add("percent_ambiguous")
            return True
        if allowed in ("number", "either") and self._same_value(value, tree):
            self.flags.add("percent_ambiguous")
            return True
        return False


def _in_radians(angle: Quantity) -> Tree:
    return angle.value if angle.unit == _RADIAN else Apply("mul", (angle.value, _RADIANS_IN_DEGREE))


def _names_clash(named: Listing, values: Listing) -> bool:
    """Whether ``x = 1, y = 2`` meets a list of bare values: ``x_1 = 1, x_2 = 2`` may, different letters may not."""
    names = {item.name for item in named.items if isinstance(item, Relation) and item.name is not None}
    letters = {name.partition("_")[0] for name in names}
    return len(letters) > 1 and not any(isinstance(item, Relation) for item in values.items)


def _comparable(gold: Answer, answer: Answer) -> bool:
    return {type(gold), type(answer)} == {Quantity, Expression} or Text not in {type(gold), type(answer)}
