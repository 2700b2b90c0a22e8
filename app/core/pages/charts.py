"""SVG charts for pages: plain bars and stacked bars.

Series differ by pattern, so that a chart is readable without colours. Equal numbers give equal SVG.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

WIDTH: Final = 720
_HEIGHT: Final = 240
_LEFT: Final = 56
_RIGHT: Final = 12
_TOP: Final = 28
_BOTTOM: Final = 44
_TICKS_MOST: Final = 5
_LEAST: Final = 4
"""Minimum value at the top of the vertical axis, so that one item is no full bar."""

_LABELS_MAX: Final = 12
"""Maximum number of labels below an axis. More labels would overlap."""

_PATTERNS: Final = (
    ("solid", ""),
    (
        "hatched",
        '<rect width="8" height="8" fill="#fff"/><path d="M-2 2 L2 -2 M0 8 L8 0 M6 10 L10 6" '
        'stroke="#9a3b26" stroke-width="2.2"/>',
    ),
    (
        "dotted",
        '<rect width="8" height="8" fill="#f3ead2"/><circle cx="2" cy="2" r="1.5" fill="#7a5c00"/>'
        '<circle cx="6" cy="6" r="1.5" fill="#7a5c00"/>',
    ),
    (
        "lined",
        '<rect width="8" height="8" fill="#fff"/><path d="M0 2 H8 M0 6 H8" stroke="#666" '
        'stroke-width="1"/>',
    ),
)
"""Patterns that distinguish the series, even in black and white."""

_SOLID: Final = "#2f4b6e"

SERIES_MAX: Final = len(_PATTERNS)


@dataclass(frozen=True, slots=True)
class Series:
    """Named series of values, one for each label of the chart. No value is negative."""

    name: str
    values: Sequence[int]


def bars(
    name: str, *, title: str, about: str, labels: Sequence[str], values: Sequence[int]
) -> Markup:
    """Draw a bar for each label, with the bar's value above it. `name` must be unique on the
    page."""
    return stacked(name, title=title, about=about, labels=labels, series=[Series("", values)])


def stacked(
    name: str, *, title: str, about: str, labels: Sequence[str], series: Sequence[Series]
) -> Markup:
    """Draw a stacked bar for each label, with one pattern for each series.

    `name` must be unique on the page. Raises ValueError for too many series, or a series without
    one value for each label.
    """
    if len(series) > SERIES_MAX or any(len(each.values) != len(labels) for each in series):
        raise ValueError(f"at most {SERIES_MAX} series, each with a value for every label")
    totals = [sum(each.values[place] for each in series) for place in range(len(labels))]
    step = nice_step(max(totals, default=0))
    highest = max(*totals, _LEAST) if totals else _LEAST
    scale = _Scale(count=len(labels), top=step * -(-highest // step))  # the first tick not below it
    parts = [*_axis(scale, step), *_stacks(name, scale, series), *_below(scale, labels)]
    parts += _values(scale, totals) if len(series) == 1 else _legend(name, series)
    drawing = "".join(parts)
    defined = "".join(
        f'<pattern id="{name}-{word}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f"{drawn}</pattern>"
        for word, drawn in _PATTERNS
        if f"#{name}-{word}" in drawing
    )
    return Markup(  # noqa: S704  # every text in it has been escaped
        f'<svg role="img" aria-labelledby="{name}-title {name}-about" width="{WIDTH}" '
        f'height="{_HEIGHT}" viewBox="0 0 {WIDTH} {_HEIGHT}" font-size="11" '
        'font-family="sans-serif" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-about">{escape(about)}</desc>'
        f"<defs>{defined}</defs>{drawing}</svg>"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    count: int
    top: int

    @property
    def step(self) -> float:
        return (WIDTH - _LEFT - _RIGHT) / max(self.count, 1)

    def x(self, place: int) -> float:
        return _LEFT + place * self.step

    def y(self, value: int) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.top


def nice_step(highest: int) -> int:
    """Return the distance of an axis's ticks: 1, 2 or 5 times a power of ten.

    Five ticks must reach up to `highest`.
    """
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power * _TICKS_MOST >= highest:
                return digit * power
        power *= 10


def _axis(scale: _Scale, step: int) -> Iterator[str]:
    for value in range(0, scale.top + 1, step):
        y = _number(scale.y(value))
        yield f'<path d="M{_LEFT} {y} H{WIDTH - _RIGHT}" stroke="#bbb" stroke-width="1"/>'
        yield f'<text x="{_LEFT - 6}" y="{y}" dy="4" text-anchor="end">{value:,}</text>'


def _stacks(name: str, scale: _Scale, series: Sequence[Series]) -> Iterator[str]:
    gap = min(scale.step * 0.2, 8)
    below = [0] * scale.count
    for pattern, each in zip(_PATTERNS, series, strict=False):
        for place, value in enumerate(each.values):
            if value:
                top, bottom = scale.y(below[place] + value), scale.y(below[place])
                below[place] += value
                yield (
                    f'<rect x="{_number(scale.x(place) + gap / 2)}" y="{_number(top)}" '
                    f'width="{_number(scale.step - gap)}" height="{_number(bottom - top)}" '
                    f'fill="{_fill(name, pattern[0])}" stroke="#333" stroke-width="0.6"/>'
                )


def _fill(name: str, word: str) -> str:
    return _SOLID if word == "solid" else f"url(#{name}-{word})"


def _values(scale: _Scale, totals: Sequence[int]) -> Iterator[str]:
    if len(totals) <= _LABELS_MAX:
        for place, total in enumerate(totals):
            x, y = scale.x(place) + scale.step / 2, scale.y(total) - 4
            yield f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="middle">{total:,}</text>'


def _below(scale: _Scale, labels: Sequence[str]) -> Iterator[str]:
    every = -(-len(labels) // _LABELS_MAX)
    for place in range(0, len(labels), every or 1):
        x = _number(scale.x(place) + scale.step / 2)
        lines = [label := labels[place]]
        blanks = [at for at, sign in enumerate(label) if sign == " "]
        if len(label) > 10 and blanks:
            off = [abs(2 * at - len(label)) for at in blanks]
            middle = blanks[off.index(min(off))]
            lines = [label[:middle], label[middle + 1 :]]
        for line, words in enumerate(lines):
            y = _HEIGHT - _BOTTOM + 15 + 13 * line
            yield f'<text x="{x}" y="{y}" text-anchor="middle">{escape(words)}</text>'


def _legend(name: str, series: Sequence[Series]) -> Iterator[str]:
    x = float(_LEFT)
    for pattern, each in zip(_PATTERNS, series, strict=False):
        yield (
            f'<rect x="{_number(x)}" y="4" width="14" height="14" '
            f'fill="{_fill(name, pattern[0])}" stroke="#333" stroke-width="0.6"/>'
        )
        yield f'<text x="{_number(x + 20)}" y="15">{escape(each.name)}</text>'
        x += 44 + 6.5 * len(each.name)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
