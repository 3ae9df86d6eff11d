"""Charts as SVG: no script is needed to see them, and colours come from the page's style sheet."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from grpo_jax.reporting.markup import Markup, element, joined

Number = float | int

COLORS = 8
"""Colours of the style sheet."""
WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 24
MOST_POINTS, MOST_AREA_POINTS = 240, 100
"""A line or an area has no more; of longer ones neighbouring values are averaged."""
SMOOTHED_SHARE = 20
"""A running mean reaches over this part of a line."""


@dataclasses.dataclass(frozen=True)
class Series:
    """Values over steps.

    Attributes:
        label: Its name in the legend.
        steps: Rising.
        values: One for each step.
        color: Number of its colour.
    """

    label: str
    steps: Sequence[Number]
    values: Sequence[Number]
    color: int = 0


@dataclasses.dataclass(frozen=True)
class Chart:
    """A drawn chart.

    Attributes:
        svg: The drawing.
        readout: What the page's script needs to show values under the pointer.
    """

    svg: Markup
    readout: dict[str, object]


@dataclasses.dataclass(frozen=True)
class _Frame:
    """Where steps and values lie in the drawing."""

    first: Number
    last: Number
    low: Number
    high: Number

    def x(self, step: Number) -> Number:
        return round(LEFT + (step - self.first) / ((self.last - self.first) or 1) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: Number) -> Number:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(HEIGHT - BOTTOM - min(max(share, 0), 1) * (HEIGHT - TOP - BOTTOM), 1)

    def points(self, steps: Sequence[Number], values: Sequence[Number]) -> str:
        return " ".join(f"{self.x(step)},{self.y(value)}" for step, value in zip(steps, values, strict=True))


Limits = tuple[Number | None, Number | None, Number | None]
"""Lower and upper end of an axis and what it reaches at least; None for what the values need."""


def lines(series: Sequence[Series], limits: Limits, *, dots: bool, description: str) -> Chart:
    """Draws lines over a common axis of steps.

    Args:
        series: One or more, none of them empty.
        limits: Of the axis of values.
        dots: Mark each value and draw no running mean, as for evaluations.
        description: What the chart shows, for who cannot see it.

    Returns:
        The chart.
    """
    thin = [_thinned(one, MOST_POINTS) for one in series]
    smooth = [one if dots else _smoothed(one) for one in thin]
    # With a running mean beside it a single spike may leave the picture; what is drawn bold never does.
    bold = [value for one in smooth for value in one.values]
    frame = _frame(thin, bold, limits)
    drawn: list[Markup] = [_axes(frame)]
    for raw, mean in zip(thin, smooth, strict=True):
        color = color_class(raw.color)
        if mean is not raw and len(series) == 1:
            drawn.append(element("polyline", points=frame.points(raw.steps, raw.values), class_=f"raw {color}"))
        drawn.append(element("polyline", points=frame.points(mean.steps, mean.values), class_=f"bold {color}"))
        if dots or len(raw.steps) == 1:
            drawn += [
                element("circle", cx=frame.x(step), cy=frame.y(value), r=2.2, class_=f"dot {color}")
                for step, value in zip(mean.steps, mean.values, strict=True)
            ]
    return Chart(_svg(drawn, description), _readout(frame, smooth))


def stacked(series: Sequence[Series], high: Number | None, *, description: str) -> Chart:
    """Draws areas on top of each other.

    Args:
        series: All over the same steps, lowest area first.
        high: Upper end of the axis, or None for what all but the largest twentieth of the sums need.
        description: What the chart shows.

    Returns:
        The chart.
    """
    thin = [_thinned(one, MOST_AREA_POINTS) for one in series]
    steps = thin[0].steps
    sums = [math.fsum(values) for values in zip(*(one.values for one in thin), strict=True)]
    # The first step compiles and would flatten all others.
    typical = 1.2 * sorted(sums)[int(0.95 * (len(sums) - 1))]
    frame = _Frame(steps[0], steps[-1], 0.0, high if high is not None else typical or 1.0)
    drawn, base = [], [0.0] * len(steps)
    for one in thin:
        top = [under + value for under, value in zip(base, one.values, strict=True)]
        edge = f"{frame.points(steps, top)} {frame.points(steps[::-1], base[::-1])}"
        drawn.append(element("polygon", points=edge, class_=f"area {color_class(one.color)}"))
        base = top
    return Chart(_svg([*drawn, _axes(frame)], description), _readout(frame, thin))


def color_class(number: int) -> str:
    """The style sheet's class of a colour; beyond the last one they come again, as dashed lines."""
    return f"c{number % COLORS}{' dashed' if number >= COLORS else ''}"


def interval_bars(rows: Sequence[tuple[str, Number, Number, Number, int]]) -> Markup:
    """Draws shares with their intervals, one below the other on an axis from 0 to 1.

    Args:
        rows: Label, value, lower end, upper end and colour of each.

    Returns:
        The drawing.
    """
    left, line_height = 92, 26
    height = line_height * len(rows) + 22
    place = lambda share: round(left + share * (WIDTH - left - 14), 1)  # noqa: E731
    drawn = [
        joined(
            element("line", x1=place(tick), x2=place(tick), y1=2, y2=height - 18, class_="grid"),
            element("text", f"{tick:.0%}", x=place(tick), y=height - 5, class_="tick middle"),
        )
        for tick in (0, 0.25, 0.5, 0.75, 1)
    ]
    for index, (label, value, low, high, color) in enumerate(rows):
        y = line_height * index + 15
        shown = label if len(label) <= 16 else f"{label[:15]}…"
        drawn += [
            element("text", shown, x=left - 8, y=y + 4, class_="label end"),
            element("line", x1=place(low), x2=place(high), y1=y, y2=y, class_=f"whisker {color_class(color)}"),
            element("circle", cx=place(value), cy=y, r=4.5, class_=f"dot {color_class(color)}"),
        ]
    described = "; ".join(f"{label} {value:.1%}, {low:.1%} to {high:.1%}" for label, value, low, high, _ in rows)
    return element("svg", *drawn, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=described, class_="bars")


def _svg(drawn: Sequence[Markup], description: str) -> Markup:
    cross = element("line", x1=0, x2=0, y1=TOP, y2=HEIGHT - BOTTOM, class_="cross")
    return element("svg", *drawn, cross, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=description)


def _axes(frame: _Frame) -> Markup:
    drawn = []
    for tick in _ticks(frame.low, frame.high):
        y = frame.y(tick)
        drawn += [
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"),
            element("text", _number(tick, frame.high - frame.low), x=LEFT - 6, y=y + 3.5, class_="tick end"),
        ]
    for step in _ticks(frame.first, frame.last, whole=True):
        anchor = "end" if step > frame.first + 0.93 * (frame.last - frame.first) else "middle"
        drawn.append(element("text", f"{step:,.0f}", x=frame.x(step), y=HEIGHT - 8, class_=f"tick {anchor}"))
    return joined(*drawn)


def _frame(series: Sequence[Series], bold: Sequence[Number], limits: Limits) -> _Frame:
    low, high, at_least = limits
    first = min(one.steps[0] for one in series)
    last = max(one.steps[-1] for one in series)
    bottom, top = min(bold) if low is None else low, max(bold) if high is None else high
    margin = 0.08 * ((top - bottom) or abs(top) or 1)
    top = top + margin if high is None else top
    return _Frame(first, last, bottom - margin if low is None else low, top if at_least is None else max(top, at_least))


def _ticks(low: Number, high: Number, whole: bool = False) -> list[Number]:
    """Three to six round numbers from low to high."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / 4
    unit = 10 ** math.floor(math.log10(raw))
    size = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    size = max(1.0, round(size)) if whole else size
    start = math.ceil(low / size - 1e-9)
    return [index * size for index in range(start, math.floor(high / size + 1e-9) + 1)]


def _number(value: Number, span: Number) -> str:
    value = 0.0 if abs(value) < 1e-12 * max(span, 1e-30) else value
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if sign == 'k' else size):.4g}{sign}"
    return f"{value:.1e}".replace("e-0", "e-") if value and abs(value) < 1e-3 else f"{value:,.4g}"


def _thinned(series: Series, most: int) -> Series:
    size = math.ceil(len(series.steps) / most)
    if size == 1:
        return series
    starts = range(0, len(series.steps), size)
    return dataclasses.replace(
        series,
        steps=[series.steps[min(start + size, len(series.steps)) - 1] for start in starts],
        values=[statistics.fmean(series.values[start : start + size]) for start in starts],
    )


def _smoothed(series: Series) -> Series:
    reach = len(series.values) // SMOOTHED_SHARE // 2
    if reach == 0:
        return series
    places = range(len(series.values))
    means = [statistics.fmean(series.values[max(0, place - reach) : place + reach + 1]) for place in places]
    return dataclasses.replace(series, values=means)


def _readout(frame: _Frame, series: Sequence[Series]) -> dict[str, object]:
    return {
        "left": LEFT / WIDTH,
        "right": (WIDTH - RIGHT) / WIDTH,
        "first": frame.first,
        "last": frame.last,
        "width": WIDTH,
        "series": [
            {"label": one.label, "steps": list(one.steps), "values": [float(f"{value:.4g}") for value in one.values]}
            for one in series
        ],
    }
