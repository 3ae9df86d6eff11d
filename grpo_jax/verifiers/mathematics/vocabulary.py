"""The words and LaTeX commands that have a meaning; whatever is not listed here has none."""


def words(text: str) -> frozenset[str]:
    """The words of a text as a set; spares the tables their quotation marks."""
    return frozenset(text.split())


FUNCTIONS = {
    **{
        name: name
        for name in words(
            "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch "
            "arcsinh arccosh arctanh ln log exp gcd lcm max min abs floor ceil"
        )
    },
    **{"lg": "log10", "log10": "log10", "log2": "log2", "sqrt": "sqrt", "cbrt": "cbrt", "surd": "sqrt"},
    **{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"},
    **{"atanh": "arctanh", "arctg": "arctan", "tg": "tan", "ctg": "cot", "cosec": "csc", "ceiling": "ceil"},
    **{"arsinh": "arcsinh", "arcosh": "arccosh", "artanh": "arctanh"},
}
"""Functions by the word that names them, in plain text and as a command."""

POWERED = words("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth sech csch ln log log2 log10")
"""Functions that take an exponent before their argument."""

INVERSE = {
    **{"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc"},
    **{"sinh": "arcsinh", "cosh": "arccosh", "tanh": "arctanh"},
}
"""Functions by those whose exponent -1 means them."""

OF_SETS = frozenset(("min", "max", "gcd", "lcm"))
"""Functions whose arguments may stand in braces."""

ROUNDING = {"lfloor": "floor", "lceil": "ceil"}
"""Brackets that round what is in them."""

UNKNOWN_FUNCTIONS = words("f g F G O Theta Omega Gamma")
"""Letters that are applied when a parenthesis follows; any other letter is multiplied."""

GREEK = words(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron rho varrho "
    "sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega "
    "Alpha Beta Epsilon Zeta Eta Iota Kappa Mu Nu Omicron Pi Rho Tau Chi ell hbar"
)

INFINITE_WORDS = frozenset(("infinity", "infty", "inf", "oo"))

RELATIONS = {
    **{"=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "<>": "!=", "=<": "<="},
    **{"le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "ge": ">=", "geq": ">=", "geqslant": ">="},
    **{"geqq": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "equiv": "equiv", "approx": "approx"},
    **{"sim": "sim", "cong": "cong", "simeq": "approx", "propto": "propto", "mid": "mid", "to": "to"},
    **{"rightarrow": "to", "perp": "perp", "parallel": "parallel", "subset": "subset", "subseteq": "subseteq"},
    **{"implies": "implies", "Rightarrow": "implies", "iff": "iff", "Leftrightarrow": "iff", "notin": "notin"},
    **{"doteq": "approx", "->": "to", "approxeq": "approx", "coloneqq": "=", "triangleq": "="},
}

SET_OPERATIONS = {"cup": "union", "cap": "intersection", "setminus": "difference", "backslash": "difference"}

OPENING = {"(": ")", "[": "]", "{": "}", "lbrace": "rbrace", "langle": "rangle", "lfloor": "rfloor", "lceil": "rceil"}
CLOSING = frozenset(OPENING.values())

SPACE_COMMANDS = frozenset(
    [
        ",",
        ";",
        ":",
        ">",
        " ",
        "\n",
        "quad",
        "qquad",
        "thinspace",
        "enspace",
        "medspace",
        "thickspace",
        "space",
        "nobreakspace",
    ]
)
IGNORED_COMMANDS = words(
    "! left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr middle displaystyle textstyle "
    "scriptstyle scriptscriptstyle limits nolimits tiny scriptsize footnotesize small normalsize large Large LARGE "
    "huge Huge bf it rm sf tt bfseries itshape mathstrut strut negthinspace null relax normalfont centering "
    "boldmath noindent"
)
SKIPPED_ARGUMENT_COMMANDS = words("hspace vspace phantom hphantom vphantom label color mskip kern tag")
TEXT_COMMANDS = words(
    "text textbf textit textrm textsf texttt textnormal textup mathrm mathbf mathit mathsf mathtt mbox hbox "
    "operatorname bm boldsymbol pmb emph rm mathnormal textsc"
)
TRANSPARENT_COMMANDS = words("boxed fbox underline mathcal mathscr mathfrak framebox ensuremath mathop")
DECORATIONS = words("vec hat bar overline tilde widehat widetilde dot ddot overrightarrow")

CONNECTIVES = {"and": "and", "or": "or", "land": "land", "lor": "lor", "&&": "and"}
"""Words and commands that join the parts of a list; the commands make statements of them."""

UNIT_WORDS = {"per": "per", "square": "2", "sq": "2", "cubic": "3", "cu": "3", "squared": "^2", "cubed": "^3"}

SCALES = {"thousand": "1000", "million": "1000000", "billion": "1000000000", "trillion": "1000000000000"}

_FIRST_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty
"""
NUMBER_WORDS = {word: number for number, word in enumerate(_FIRST_NUMBERS.split())}
