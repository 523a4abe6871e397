"""Curves as SVG, drawn by matplotlib. Words stand beside the drawing, in HTML, so that they come in both languages."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from markupsafe import Markup

from minibert.view.page import Both

SIZE = (6.0, 2.7)  # inches of 72 points
BOX = (0.105, 0.135, 0.985, 0.965)  # left, bottom, right, top of the axes, as shares of the drawing
NUM_COLOURS = 8
MOST_POINTS = 400  # of a curve; a longer one is thinned, each point the mean of its neighbours
INK, RULE = "#a10001", "#a10002"  # stand for what the page's style says
LINE_COLOURS = tuple(f"#b100{number:02x}" for number in range(1, NUM_COLOURS + 1))


@dataclass(frozen=True)
class Line:
    """A curve: x ascending. dots: measurements far apart, each of them shown."""

    name: Both | str
    x: Sequence[float]
    y: Sequence[float | None]
    dots: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing with what stands round it; parts.html's macro `figure` shows it."""

    title: Both
    note: Both | None
    svg: Markup
    legend: Sequence[tuple[Both | str, int, bool]]  # name, number of its colour, dashed
    data: dict[str, Any]  # the curves' points and where they lie, for page.js


def curves(title: Both, lines: Sequence[Line], *, note: Both | None = None, from_zero: bool = False) -> Figure:
    """Lines over one axis of steps. Values that are no finite numbers leave a gap. from_zero: the axis begins at 0."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # what it does is of no interest to a run
    lines = [thinned(line) for line in lines]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "minibert", "font.size": 8.5}):
        drawing = Drawing(figsize=SIZE)
        FigureCanvasSVG(drawing)
        left, bottom, right, top = BOX
        axes = drawing.add_axes((left, bottom, right - left, top - bottom))
        for number, line in enumerate(lines):
            axes.plot(
                line.x, [math.nan if y is None else y for y in line.y],
                color=LINE_COLOURS[number % NUM_COLOURS], linewidth=1.4,
                linestyle="--" if line.dashed else "-",
                marker="o" if line.dots or len(line.x) == 1 else "", markersize=3.2, clip_on=False,
            )  # fmt: skip
        every = sorted({x for line in lines for x in line.x})
        if len(every) > 1:
            axes.set_xlim(every[0], every[-1])
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        axes.tick_params(colors=INK, length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        target = StringIO()
        drawing.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    xs = every if len(every) <= 2 * MOST_POINTS else every[:: len(every) // MOST_POINTS]
    return Figure(
        title, note, styled(target.getvalue(), str(title)),
        [(line.name, number % NUM_COLOURS + 1, line.dashed) for number, line in enumerate(lines)],
        {
            "left": left, "right": right, "low": 1 - bottom, "high": 1 - top, "xs": xs,
            "lines": [values_at(line, xs) for line in lines],
        },
    )  # fmt: skip


def tick(value: float) -> str:
    """A number at an axis: 0.5, 12k, 3M, 1e-4."""
    if value and abs(value) < 1e-3:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def thinned(line: Line) -> Line:
    """At most MOST_POINTS points; each is the mean of those it stands for. The last x stays."""
    each = math.ceil(len(line.x) / MOST_POINTS)
    if each <= 1:
        return line
    x, y = [], []
    for first in range(0, len(line.x), each):
        there = [value for value in line.y[first : first + each] if value is not None and math.isfinite(value)]
        x.append(line.x[min(first + each, len(line.x)) - 1])
        y.append(sum(there) / len(there) if there else None)
    return Line(line.name, x, y, line.dots, line.dashed)


def values_at(line: Line, xs: Sequence[float]) -> list[float | None]:
    """The line's own points where xs has them; None elsewhere and for what is not finite."""
    there = dict(zip(line.x, line.y, strict=True))
    found = [there.get(x) for x in xs]
    return [None if value is None or not math.isfinite(value) else float(f"{value:.5g}") for value in found]


def styled(svg: str, title: str) -> Markup:
    """matplotlib's file as a part of a page: its colours are the style's, its size is the page's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img" aria-label="@">', svg, count=1)
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # a page has several drawings
    svg = re.sub(r"font-family: [^;]*; ", "", svg)
    svg = svg.replace(INK, "var(--soft)").replace(RULE, "var(--rule)")
    for number, colour in enumerate(LINE_COLOURS, 1):
        svg = svg.replace(colour, f"var(--line-{number})")
    return Markup(svg.replace('aria-label="@"', Markup('aria-label="{}"').format(title)))
