"""Charts as small SVG of our own, so that they follow the page's colours: light, dark, and on paper.

Every chart has a title and a description for those who cannot see it. Series differ in colour, in dash and marker, and
are named where they end; `palette` is checked by a test for the colour-blind. All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeVar

from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

__all__ = ["DARK", "LIGHT", "Bar", "Chart", "Charts", "Interval", "Line", "Track"]

LIGHT = ("#0b62a4", "#c2410c", "#1a1a1a", "#b7367c", "#2f9e6b", "#86161d")
DARK = ("#5cb0ff", "#ff9d4d", "#f2f2f2", "#cb8dc9", "#5bffa5", "#f4e02e")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")
_MARKERS = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
    "M-4,-4H4V4H-4Z",
    "M0,-5L5,4H-5Z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "M-5,-4H5L0,5Z",
    "M-4.5,-1.5H-1.5V-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5Z",
)
_WIDTH, _HEIGHT = 640, 260
_LEFT, _TOP, _BOTTOM = 58, 14, 44
_MOST_POINTS = 300
_LETTER = 6.6
"""Pixels of a letter, about."""

Value = float | None
_Row = TypeVar("_Row")


class Chart(NamedTuple):
    """A drawing, and the heading above it."""

    title: str
    svg: Markup


@dataclass(frozen=True)
class Line:
    """A series over an axis; None leaves a hole. `low` and `high` are shaded; `raw` is drawn faint beneath."""

    name: str
    x: Sequence[float]
    y: Sequence[Value]
    low: Sequence[Value] = ()
    high: Sequence[Value] = ()
    raw: Sequence[Value] = ()


@dataclass(frozen=True)
class Track:
    """Points of a plane: `end` is marked, `way` leads to it, `spread` are standard deviations of x and y."""

    name: str
    end: tuple[float, float] | None
    way: Sequence[tuple[float, float]] = ()
    spread: tuple[float, float] | None = None
    dots: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Bar:
    """A bar; `mark` is a figure to compare it with."""

    name: str
    value: float
    text: str
    mark: float | None = None


@dataclass(frozen=True)
class Interval:
    """A value with its interval, in a row of its own."""

    name: str
    value: float
    low: float | None
    high: float | None
    text: str


@dataclass
class _Frame:
    """Where numbers lie on the paper."""

    x: tuple[float, float]
    y: tuple[float, float]
    right: float
    height: int = _HEIGHT
    left: int = _LEFT

    def px(self, x: float) -> float:
        return self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - self.left - self.right)

    def py(self, y: float) -> float:
        return self.height - _BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.height - _TOP - _BOTTOM)


@dataclass
class Charts:
    """Draws the charts of one page, whose identifiers must differ."""

    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def lines(
        self,
        title: str,
        lines: Sequence[Line],
        x_label: str,
        y_label: str,
        marks: Sequence[tuple[float, str]] = (),
        from_zero: bool = False,
    ) -> Chart:
        """Series over a common axis. Args: marks: levels to compare with, and what they are."""
        columns = [column for line in lines for column in (line.y, line.low, line.high, line.raw)]
        values = [v for column in columns for v in column if v is not None and math.isfinite(v)]
        xs = [x for line in lines for x in line.x]
        if not any(_real(v) for line in lines for v in line.y):
            return self._nothing(title, f"{y_label}: nothing was measured.")
        ys = _extent([*values, *(level for level, _ in marks), *([0.0] if from_zero else [])])
        names = [line.name for line in lines] if len(lines) > 1 else []
        frame = _Frame(_extent(xs, exact=True), ys, self._room([*names, *(text for _, text in marks)]))
        parts = [*self._axes(frame, x_label, y_label), *self._levels(frame, marks)]
        labels = [(frame.py(level), text, "ref") for level, text in marks]
        for k, line in enumerate(lines):
            parts += self._line(frame, k, line)
            if len(lines) > 1:
                last = [y for y in line.y if y is not None and math.isfinite(y)]
                labels.append((frame.py(last[-1]) if last else 0.0, line.name, f"t{k % len(LIGHT)}"))
        parts += self._at_the_end(frame, labels)
        said = [_said(line, x_label) for line in lines] + [f"{text}: {level:.4g}." for level, text in marks]
        return self._svg(title, f"{y_label} over {x_label}. " + " ".join(said), parts)

    def plane(
        self, title: str, tracks: Sequence[Track], x_label: str, y_label: str, marks: Sequence[tuple[float, str]] = ()
    ) -> Chart:
        """Points, and ways to them. Args: marks: levels of y."""
        points = [p for track in tracks for p in (*track.way, *track.dots, *([track.end] if track.end else []))]
        if not points:
            return self._nothing(title, f"{y_label} against {x_label}: nothing was measured.")
        for track in tracks:
            if track.end and track.spread:
                (x, y), (dx, dy) = track.end, track.spread
                points += [(x - dx, y - dy), (x + dx, y + dy)]
        labels = [track.name for track in tracks if track.name]
        across = _extent([max(0.0, x) for x, _ in points] + [0.0])
        ys = _extent([y for _, y in points] + [level for level, _ in marks])
        frame = _Frame((0.0, across[1]), ys, self._room([*labels, *(text for _, text in marks)]), height=300)
        parts = [*self._axes(frame, x_label, y_label), *self._levels(frame, marks)]
        ends = [(frame.py(level), text, "ref") for level, text in marks]
        for k, track in enumerate(tracks):
            c = k % len(LIGHT)
            if len(track.way) > 1:
                parts.append(f'<path class="l c{c} faint" d="{_path(frame, _thin(track.way))}"/>')
            parts += [_circle(frame, x, y, c) for x, y in track.dots]
            if track.end is None:
                continue
            x, y = track.end
            if track.spread:
                dx, dy = track.spread
                for a, b in (((x - dx, y), (x + dx, y)), ((x, y - dy), (x, y + dy))):
                    parts.append(f'<path class="l c{c} thin" d="{_path(frame, [a, b])}"/>')
            parts.append(_marker(frame.px(x), frame.py(y), k))
            ends.append((frame.py(y), track.name, f"t{c}"))
        parts += self._at_the_end(frame, ends)
        said = [
            f"{track.name or 'the run'}: {x_label} {track.end[0]:.4g}, {y_label} {track.end[1]:.4g}."
            for track in tracks
            if track.end
        ]
        dots = sum(len(track.dots) for track in tracks)
        said += [f"{dots} dots, {x_label} up to {max(x for x, _ in points):.4g}."] if dots else []
        return self._svg(title, f"{y_label} against {x_label}. " + " ".join(said), parts, height=300)

    def bars(self, title: str, bars: Sequence[Bar], unit: str, mark: str = "") -> Chart:
        """Horizontal bars on a scale from 0. Args: mark: what the bars' marks are."""
        most = max((max(bar.value, bar.mark or 0.0) for bar in bars), default=0.0)
        left = min(250, 16 + int(_LETTER * max((len(bar.name) for bar in bars), default=0)))
        frame = _Frame((0.0, most or 1.0), (0.0, 1.0), 110, left=left)
        row, parts = 26, []
        for k, bar in enumerate(bars):
            y, end = 8 + k * row, frame.px(bar.value)
            parts += [
                f'<text class="k" x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>',
                f'<rect class="b" x="{left}" y="{y}" width="{max(0.5, end - left):.1f}" height="18" rx="2"/>',
                f'<text class="v" x="{end + 6:.1f}" y="{y + 13}">{escape(bar.text)}</text>',
            ]
            if bar.mark is not None:
                x = frame.px(bar.mark)
                parts.append(f'<path class="ref" d="M{x:.1f},{y - 3}V{y + 21}"/>')
        said = [f"{bar.name}: {bar.text}" + (f" ({mark}: {bar.mark:.4g})" if bar.mark else "") for bar in bars]
        return self._svg(title, f"Bars, {unit}. " + "; ".join(said) + ".", parts, height=16 + row * len(bars))

    def columns(self, title: str, values: Sequence[float], x_label: str, y_label: str, names: Sequence[str]) -> Chart:
        """Vertical columns, one a thing that is numbered or named."""
        if not values:
            return self._nothing(title, f"{y_label}: nothing was recorded.")
        frame = _Frame((-0.5, len(values) - 0.5), (0.0, max(values) * 1.08 or 1.0), 16, height=200)
        parts = list(self._axes(frame, x_label, y_label, ticks_x=False))
        base, width = frame.py(0.0), max(1.0, 0.8 * (frame.px(1) - frame.px(0)))
        every = -(-len(values) // 16)
        for k, value in enumerate(values):
            x, top = frame.px(k), frame.py(value)
            shape = f'x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{max(0.0, base - top):.1f}"'
            parts.append(f'<rect class="b" {shape}><title>{escape(names[k])}: {value:g}</title></rect>')
            if k % every == 0:
                parts.append(
                    f'<text class="k" x="{x:.1f}" y="{base + 15:.1f}" text-anchor="middle">{escape(names[k])}</text>'
                )
        said = f"{len(values)} columns from {min(values):g} to {max(values):g}."
        return self._svg(title, f"{y_label} by {x_label}. {said}", parts, height=200)

    def intervals(self, title: str, rows: Sequence[Interval], x_label: str) -> Chart:
        """Values with their intervals, a row each, and a line at 0."""
        if not rows:
            return self._nothing(title, f"{x_label}: nothing can be compared.")
        ends = [v for row in rows for v in (row.value, row.low, row.high) if v is not None]
        left = min(230, 20 + int(_LETTER * max(len(row.name) for row in rows)))
        right = 20 + 6.0 * max(len(row.text) for row in rows)
        height = 24 * len(rows) + 20 + _BOTTOM
        frame = _Frame(_extent([*ends, 0.0]), (0.0, 1.0), right, height=height, left=left)
        parts = [*self._axes(frame, x_label, "", ticks_y=False)]
        zero = frame.px(0.0)
        parts.append(f'<path class="zero" d="M{zero:.1f},{_TOP}V{height - _BOTTOM}"/>')
        for k, row in enumerate(rows):
            y = 30 + 24 * k
            if row.low is not None and row.high is not None:
                a, b = frame.px(row.low), frame.px(row.high)
                parts.append(f'<path class="l c0" d="M{a:.1f},{y}H{b:.1f}M{a:.1f},{y - 5}v10M{b:.1f},{y - 5}v10"/>')
            parts += [
                _marker(frame.px(row.value), y, 0),
                f'<text class="k" x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(row.name)}</text>',
                f'<text class="v" x="{_WIDTH - right + 10:.1f}" y="{y + 4}">{escape(row.text)}</text>',
            ]
        said = "; ".join(f"{row.name}: {row.text}" for row in rows)
        return self._svg(title, f"{x_label}. {said}.", parts, height=height)

    def _svg(self, title: str, description: str, parts: Sequence[str], height: int = _HEIGHT) -> Chart:
        number = next(self._numbers)
        label, told = f"figure-{number}-title", f"figure-{number}-text"
        head = (
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{label} {told}" '
            f'style="max-width:{_WIDTH}px"><title id="{label}">{escape(title)}</title>'
            f'<desc id="{told}">{escape(description)}</desc>'
        )
        return Chart(title, Markup(head + "".join(parts) + "</svg>"))

    def _nothing(self, title: str, why: str) -> Chart:
        text = f'<text class="k" x="{_WIDTH / 2}" y="34" text-anchor="middle">{escape(why)}</text>'
        return self._svg(title, why, [text], height=60)

    @staticmethod
    def _room(names: Sequence[str]) -> float:
        """To the right of the frame, for names."""
        longest = max(map(len, names), default=0)
        return max(104.0, min(190.0, 22 + _LETTER * longest)) if longest else 20.0

    @staticmethod
    def _axes(frame: _Frame, x_label: str, y_label: str, ticks_x: bool = True, ticks_y: bool = True) -> Iterator[str]:
        bottom, right = frame.height - _BOTTOM, _WIDTH - frame.right
        if ticks_y:
            for tick, text in _ticks(frame.y, 5):
                y = frame.py(tick)
                yield f'<path class="g" d="M{frame.left},{y:.1f}H{right:.1f}"/>'
                yield f'<text class="k" x="{frame.left - 7}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        if ticks_x:
            for tick, text in _ticks(frame.x, 7):
                x = frame.px(tick)
                yield f'<path class="a" d="M{x:.1f},{bottom}v4"/>'
                yield f'<text class="k" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{text}</text>'
        yield f'<path class="a" d="M{frame.left},{bottom}H{right:.1f}"/>'
        middle = (frame.left + right) / 2
        yield f'<text class="n" x="{middle:.1f}" y="{frame.height - 8}" text-anchor="middle">{escape(x_label)}</text>'
        height = (_TOP + bottom) / 2
        place = f'x="{-height:.1f}" y="13" transform="rotate(-90)" text-anchor="middle"'
        yield f'<text class="n" {place}>{escape(y_label)}</text>'

    @staticmethod
    def _levels(frame: _Frame, marks: Sequence[tuple[float, str]]) -> Iterator[str]:
        for level, _ in marks:
            yield f'<path class="ref" d="M{frame.left},{frame.py(level):.1f}H{_WIDTH - frame.right:.1f}"/>'

    @staticmethod
    def _at_the_end(frame: _Frame, labels: Sequence[tuple[float, str, str]]) -> Iterator[str]:
        """Names beside where their lines end, apart from each other."""
        placed = -math.inf
        ordered = sorted(labels, key=lambda label: label[0])
        lowest = frame.height - _BOTTOM - 14 * (len(ordered) - 1)
        for k, (y, text, kind) in enumerate(ordered):
            placed = max(min(y, lowest + 14 * k), placed + 14)
            x = _WIDTH - frame.right + 8
            yield f'<text class="e {kind}" x="{x:.1f}" y="{placed + 4:.1f}">{escape(text)}</text>'

    @staticmethod
    def _line(frame: _Frame, k: int, line: Line) -> Iterator[str]:
        c, dash = k % len(LIGHT), _DASHES[k % len(_DASHES)]
        if line.low and line.high:
            for piece in _pieces(line.x, line.low, line.high):
                there = [(x, high) for x, _, high in piece]
                back = [(x, low) for x, low, _ in reversed(piece)]
                yield f'<path class="band f{c}" d="{_path(frame, there + back)}Z"/>'
        for faint, values in ((True, line.raw), (False, line.y)):
            for piece in _pieces(line.x, values):
                points = [(x, y) for x, y in piece]
                if len(points) == 1:
                    yield _circle(frame, *points[0], c)
                else:
                    style = "faint" if faint else "" if not dash else f'" stroke-dasharray="{dash}'
                    yield f'<path class="l c{c} {style}" d="{_path(frame, points)}"/>'


def _pieces(x: Sequence[float], *columns: Sequence[Value]) -> Iterator[list[tuple[float, ...]]]:
    """What lies between holes, of few enough points to draw."""
    rows = _thin(list(zip(x, *columns, strict=False)))
    piece: list[tuple[float, ...]] = []
    for row in rows:
        if all(_real(value) for value in row):
            piece.append(tuple(float(value) for value in row if value is not None))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _thin(rows: Sequence[_Row]) -> list[_Row]:
    """Every so manieth, and the last."""
    step = -(-len(rows) // _MOST_POINTS) if rows else 1
    return [*rows[::step], *([rows[-1]] if rows and (len(rows) - 1) % step else [])]


def _path(frame: _Frame, points: Sequence[tuple[float, ...]]) -> str:
    return "M" + "L".join(f"{frame.px(x):.1f},{frame.py(y):.1f}" for x, y in points)


def _circle(frame: _Frame, x: float, y: float, c: int) -> str:
    return f'<circle class="d f{c}" cx="{frame.px(x):.1f}" cy="{frame.py(y):.1f}" r="3.5"/>'


def _marker(x: float, y: float, k: int) -> str:
    shape = _MARKERS[k % len(_MARKERS)]
    return f'<path class="m f{k % len(LIGHT)}" transform="translate({x:.1f},{y:.1f})" d="{shape}"/>'


def _real(value: Value) -> bool:
    return value is not None and math.isfinite(value)


def _extent(values: Sequence[float], exact: bool = False) -> tuple[float, float]:
    """From the least to the most, with some room; never empty."""
    low, high = min(values), max(values)
    room = 0.0 if exact and high > low else 0.06 * (high - low) or max(0.05 * abs(high), 0.5 if exact else 1e-3)
    return (low - room if low - room >= 0 or low < 0 or exact else min(0.0, low), high + room)


def _ticks(ends: tuple[float, float], most: int) -> list[tuple[float, str]]:
    ticks = [t for t in MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(*ends) if ends[0] <= t <= ends[1]]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) if ticks else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    digits += round(step * 10**digits, 6) % 1 > 1e-6
    say: Callable[[float], str] = lambda t: f"{t + 0.0:,.{digits}f}" if 1e-4 < step < 1e6 else f"{t:.3g}"  # noqa: E731
    return [(float(t), say(float(t))) for t in ticks]


def _said(line: Line, x_label: str) -> str:
    """A series in words."""
    found = [(x, y) for x, y in zip(line.x, line.y, strict=False) if y is not None and math.isfinite(y)]
    name = f"{line.name}: " if line.name else ""
    if not found:
        return f"{name}nothing."
    least, most = min(y for _, y in found), max(y for _, y in found)
    (x0, y0), (x1, y1) = found[0], found[-1]
    return f"{name}{y0:.4g} at {x_label} {x0:g}, {y1:.4g} at {x1:g}; between {least:.4g} and {most:.4g}."
