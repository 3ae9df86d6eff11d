"""Units of measurement: names, sizes and dimensions, with exact factors."""

import dataclasses
import fractions

from grpo_jax.verifiers.mathematics.vocabulary import words

Dimensions = tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of base units.

    Attributes:
        factor: Its size in base units, exact.
        dimensions: Base units with their powers, sorted by name.
    """

    factor: fractions.Fraction
    dimensions: Dimensions

    def times(self, other: "Unit", power: int = 1) -> "Unit":
        """This unit multiplied by a power of another one."""
        powers = dict(self.dimensions)
        for name, exponent in other.dimensions:
            powers[name] = powers.get(name, 0) + exponent * power
        dimensions = tuple(sorted((name, exponent) for name, exponent in powers.items() if exponent))
        return Unit(self.factor * other.factor**power, dimensions)


NO_UNIT = Unit(fractions.Fraction(1), ())

# Spellings separated by spaces: size and dimension. Prefixed metric units are added below.
_TABLE = """
metre m meter meters metre metres | 1 | length
inch in inch inches | 127/5000 | length
foot ft foot feet | 381/1250 | length
yard yd yard yards yds | 1143/1250 | length
mile mi mile miles | 201168/125 | length
gram g gram grams | 1 | mass
tonne tonne tonnes ton tons | 1000000 | mass
pound lb lbs pound pounds | 45359237/100000 | mass
ounce oz ounce ounces | 45359237/1600000 | mass
second s sec secs second seconds | 1 | time
minute min mins minute minutes | 60 | time
hour h hr hrs hour hours | 3600 | time
day day days | 86400 | time
week week weeks | 604800 | time
month month months | 1 | month
year yr yrs year years | 12 | month
decade decade decades | 120 | month
litre L l liter liters litre litres | 1/1000 | length^3
gallon gal gallon gallons | 473176473/125000000000 | length^3
quart qt quart quarts | 473176473/500000000000 | length^3
pint pt pint pints | 473176473/1000000000000 | length^3
cup cup cups | 473176473/2000000000000 | length^3
acre acre acres | 316160658/78125 | length^2
hectare ha hectare hectares | 10000 | length^2
mph mph | 1397/3125 | length time^-1
kph kph kmph kmh | 5/18 | length time^-1
degree deg degs degree degrees | 1 | angle
radian rad rads radian radians | 1 | radian
dollar dollar dollars USD usd bucks | 1 | dollar
cent cent cents | 1/100 | dollar
euro euro euros EUR eur | 1 | euro
sterling GBP gbp | 1 | sterling
penny pence | 1/100 | sterling
yen yen JPY jpy | 1 | yen
rupee rupee rupees INR inr Rs | 1 | rupee
joule J joule joules | 1000 | mass length^2 time^-2
newton N newton newtons | 1000 | mass length time^-2
watt W watt watts | 1000 | mass length^2 time^-3
pascal Pa pascal pascals | 1000 | mass length^-1 time^-2
hertz Hz hertz | 1 | time^-1
volt V volt volts | 1 | volt
ampere A amp amps ampere amperes | 1 | ampere
ohm ohm ohms | 1 | ohm
kelvin K kelvin kelvins | 1 | kelvin
mole mol mole moles | 1 | mole
celsius celsius Celsius | 1 | celsius
fahrenheit fahrenheit Fahrenheit | 1 | fahrenheit
calorie cal calorie calories | 1 | calorie
bit bit bits | 1 | bit
byte byte bytes | 8 | bit
dozen dozen | 12 |
piece piece pieces item items | 1 | piece
person person persons people | 1 | person
unit unit units | 1 | unit
"""

# Things that are counted. Each is a unit of its own: five apples are not five oranges.
_COUNTED = words(
    "apple ball bag bird block book bottle box boy bus candy car card chair child choice chocolate coin combination "
    "cookie cow cube customer digit dog edge egg employee face fish flower game girl grade guest integer kid letter "
    "line man marble match member mile number orange outcome page pair path pen pencil permutation player point "
    "problem pupil question round row score seat sheep shirt slice song step stamp sticker student subset sweet team "
    "term ticket time toy tree triangle turn vertex vote way win woman word worker zero "
    "solution root factor divisor side diagonal rectangle arrangement sequence group committee handshake"
)
_IRREGULAR = {
    **{"child": "children", "man": "men", "woman": "women", "vertex": "vertices", "box": "boxes", "bus": "buses"},
    **{"candy": "candies", "match": "matches", "fish": "fish", "sheep": "sheep"},
}

_PREFIXES = {
    **{"k": (3, "kilo"), "c": (-2, "centi"), "m": (-3, "milli"), "d": (-1, "deci"), "M": (6, "mega")},
    **{"G": (9, "giga"), "n": (-9, "nano")},
}
_PREFIXED = {
    **{
        "metre": ("m", "kcmdn"),
        "gram": ("g", "kcm"),
        "litre": ("L", "cmd"),
        "joule": ("J", "kmM"),
        "watt": ("W", "kmMG"),
    },
    **{
        "newton": ("N", "kM"),
        "pascal": ("Pa", "kM"),
        "hertz": ("Hz", "kMG"),
        "second": ("s", "mn"),
        "volt": ("V", "km"),
    },
    **{"ampere": ("A", "m"), "calorie": ("cal", "k"), "mole": ("mol", "m")},
}


def _dimension(text: str) -> Dimensions:
    powers = []
    for part in text.split():
        name, _, power = part.partition("^")
        powers.append((name, int(power or 1)))
    return tuple(sorted(powers))


def _build() -> tuple[dict[str, Unit], dict[str, str]]:
    known, spellings = {}, {}
    for line in _TABLE.strip().splitlines():
        names, factor, dimensions = line.split("|")
        name, *variants = names.split()
        known[name] = Unit(fractions.Fraction(factor.strip()), _dimension(dimensions))
        spellings.update(dict.fromkeys(variants, name))
    for base, (symbol, prefixes) in _PREFIXED.items():
        for prefix in prefixes:
            power, word = _PREFIXES[prefix]
            name = f"{word}{base}"
            known[name] = Unit(known[base].factor * fractions.Fraction(10) ** power, known[base].dimensions)
            spellings[prefix + symbol] = name
            for spelling in [spelling for spelling, target in list(spellings.items()) if target == base]:
                if len(spelling) > 3:
                    spellings[word + spelling] = name
    spellings |= {"ml": "millilitre", "cl": "centilitre", "dl": "decilitre", "cc": "millilitre"}
    for thing in sorted(_COUNTED):
        known.setdefault(thing, Unit(fractions.Fraction(1), ((thing, 1),)))
        for spelling in (thing, _IRREGULAR.get(thing, thing + "s")):
            spellings.setdefault(spelling, thing)
    return known, spellings


_UNITS, _SPELLINGS = _build()
_COUNTED_DIMENSIONS = _COUNTED | {"piece", "person", "unit"}
CURRENCIES = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee"}


def is_count(unit: Unit) -> bool:
    """Whether a unit only says what is counted, so that the bare number is the whole count."""
    return all(name in _COUNTED_DIMENSIONS for name, _ in unit.dimensions)


def canonical_name(word: str) -> str | None:
    """The name of the unit that a word or abbreviation stands for, or ``None``.

    Args:
        word: Such as ``km``, ``Hours`` or ``feet``; abbreviations of one or two letters keep their case.
    """
    name = _SPELLINGS.get(word)
    if name is None and len(word) > 2:
        name = _SPELLINGS.get(word.casefold())
    return name


def unit_named(name: str) -> Unit:
    """The unit with this canonical name."""
    return _UNITS[name]
