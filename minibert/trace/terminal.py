"""The tour on a terminal: a readable page of text, with a little colour where there is some."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from minibert.errors import printable
from minibert.trace.steps import NO_BREAK, Matrix, Step, Table, Tour, chosen, labels, num, with_gaps
from minibert.view.page import Both

Language = Literal["en", "zh"]
MOST_ROWS, WIDEST = 7, 100
LABEL, CELL, GAP = 10, 8, 3  # columns of the terminal
UNITS = {  # what stays on one line
    "en": re.compile(r"[^ ]+ *| +"),
    "zh": re.compile(rf"[“（]*(?:[!-~{NO_BREAK}₀-₉−·×√…]+|.)[，。；：、）”]* *", re.DOTALL),
}


def in_terminal(tour: Tour, *, language: Language, width: int, colour: bool) -> str:
    """The tour as text of so many columns; with escapes for colour if wanted."""
    target = StringIO()
    console = Console(
        file=target, width=min(width, WIDEST), force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    teller = Teller(tour, language, min(width, WIDEST))
    for part in teller.all():
        console.print(part)
    lines = target.getvalue().split("\n")
    return "\n".join(lines if colour else [line.rstrip() for line in lines]).replace(NO_BREAK, " ")


class Teller:
    """Puts the parts of a tour into words of one language."""

    def __init__(self, tour: Tour, language: Language, width: int) -> None:
        self.tour, self.language, self.width = tour, language, width
        self.labels = [printable(label) for label in labels(tour.passed.row)]

    def say(self, words: Both | str) -> str:
        return printable(words if isinstance(words, str) else words[self.language == "zh"])

    def prose(self, words: Both, style: str = "", *, indent: int = 3) -> Text:
        """Words in lines; rich would break them at blanks alone, of which Chinese has few, and at no-break ones too."""
        return Text("\n".join(in_lines(self.say(words), self.width - indent, self.language)), style=style)

    def all(self) -> Iterator[RenderableType]:
        """The head, then each chapter with its steps numbered through."""
        config, tour = self.tour.passed.config, self.tour
        L, D, N, V = config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.vocab_size
        H, who, post = D // N, self.labels[tour.followed], config.norm == "post"
        yield Text(printable(tour.text), style="bold")
        shape = Both(
            f"{L} layers, {D} wide, {N} heads of {H}, {V:,} words; LayerNorm {'after' if post else 'before'} each"
            f" sub-layer. Shown in full: layer {tour.layer}, head {tour.head} ({tour.why.en}--layer, --head choose"
            f" others). Examples follow “{who}”, marked >.",
            f"{L} 层，维度 {D}，{N} 个头、每头 {H} 维，词表 {V:,} 项；LayerNorm 在子层之{'后' if post else '前'}。"
            f"完整展示第 {tour.layer} 层第 {tour.head} 头（{tour.why.zh}可用 --layer、--head 另选）。例子跟随“{who}”，"
            "以 > 标记。",
        )
        yield self.prose(shape, "dim", indent=0)
        number = 0
        for chapter in self.tour.chapters:
            yield Text()
            yield Rule(Text(self.say(chapter.title), style="bold cyan"), align="left", style="cyan")
            for step in chapter.steps:
                number += 1
                yield Text()
                yield self.step(step, number)

    def step(self, step: Step, number: int) -> RenderableType:
        parts: list[RenderableType] = [
            Text(f"{number}. {self.say(step.title)}", style="bold"),
            Text(f"   {self.say(step.formula)}", style="cyan"),
            Text(f"   {step.shape}", style="dim"),
            Padding(self.prose(step.words), (0, 0, 0, 3)),
        ]
        if step.table is not None:
            parts.append(Padding(self.table(step.table), (0, 0, 0, 3)))
        parts += [Padding(self.matrix(matrix), (1, 0, 0, 3)) for matrix in step.matrices]
        parts += [Padding(self.prose(line, "green"), (0, 0, 0, 3)) for line in step.worked]
        return Group(*parts)

    def table(self, table: Table) -> RenderableType:
        grid = Grid(box=None, pad_edge=False, header_style="dim")
        for i, column in enumerate(table.columns):
            side: Literal["left", "right"] = "right" if i >= table.numbers_from else "left"
            grid.add_column(Text(self.say(column)), justify=side, overflow="fold")
        for i, row in enumerate(table.rows):
            grid.add_row(*(Text(self.say(cell)) for cell in row), style="bold" if i == table.marked else "")
        return grid

    def matrix(self, matrix: Matrix) -> RenderableType:
        """A few rows and columns; ... stands for the rest."""
        rows, columns = matrix.values.shape
        follow = self.tour.followed if matrix.tokens else None
        across = self.columns(matrix)
        down = chosen(rows, MOST_ROWS, follow)
        hidden = [j for j in range(columns) if j not in across]
        what = self.say(matrix.what)
        lines = [Text.assemble((f"{matrix.symbol} ", "bold"), (f"({rows}, {columns}) {what}", "dim"))]
        heads = Text(" " * (LABEL + 2), style="dim")
        for j in across:
            label = "" if j is None else printable(matrix.columns[j]) if matrix.columns else str(j + 1)
            heads.append(right("…", GAP) if j is None else right(label, CELL))
        sums = [("Σ", list(range(columns)))] if matrix.shares else []
        if sums and hidden:
            sums.insert(0, (self.say(Both("Σ of …", "… 之和")), hidden))
        for name, _ in sums:
            heads.append(right(name, CELL))
        lines.append(heads)
        largest = float(matrix.values.abs().max())
        for i in down:
            if i is None:
                lines.append(Text(f"  {'…':<{LABEL}}", style="dim"))
                continue
            label = self.labels[i] if matrix.tokens else self.say(matrix.row_names[i])
            mark, style = ("> ", "bold") if i == follow else ("  ", "")
            line = Text(mark + set_cell_size(fitted(label, LABEL), LABEL), style=style)
            for j in across:
                value = None if j is None else float(matrix.values[i, j])
                faint = value is None or abs(value) < largest / 20
                shade = "dim" if faint else "yellow" if abs(value or 0) == largest else ""
                line.append(right("…", GAP) if value is None else right(num(value), CELL), style=shade)
            for _, summed in sums:
                line.append(right(num(matrix.values[i, summed].sum()), CELL), style="dim")
            lines.append(line)
        return Group(*lines)

    def columns(self, matrix: Matrix) -> list[int | None]:
        """Those there is room for. Where some are wanted most it is they, with room left for the sums of shares, so
        that scores and weights show the same."""
        count = matrix.values.shape[1]
        if (count + matrix.shares) * CELL <= self.width - 3 - LABEL - 2:
            return list(range(count))
        room = self.width - 3 - LABEL - 2 - (2 * CELL if matrix.wanted else 0)
        for most in range(min(count, room // CELL), 1, -1):
            found = with_gaps(matrix.wanted[:most], count) if matrix.wanted else chosen(count, most)
            if sum(GAP if j is None else CELL for j in found) <= room:
                return found
        return with_gaps(matrix.wanted[:1] or [0], count)


def in_lines(text: str, width: int, language: Language) -> list[str]:
    """Lines of so many columns, broken at blanks and, in Chinese, behind any Chinese character, not inside other words
    nor before punctuation; never at a no-break blank."""
    lines = [""]
    for unit in UNITS[language].findall(text):
        if cell_len(lines[-1] + unit.rstrip(" ")) > width and lines[-1]:
            lines.append("")
        lines[-1] += unit if lines[-1] else unit.lstrip(" ")
    return [line.rstrip(" ") for line in lines]


def right(text: str, size: int) -> str:
    """Text at the right end of so many columns, cut to leave a blank; Chinese characters are two wide."""
    text = fitted(text, size - 1)
    return " " * (size - cell_len(text)) + text


def fitted(text: str, size: int) -> str:
    """Text of so many columns at most; where it is cut it keeps its place."""
    if cell_len(text) <= size:
        return text
    stem = text.rstrip("₀₁₂₃₄₅₆₇₈₉")
    place = text[len(stem) :]
    return set_cell_size(stem, size - 1 - len(place)).rstrip() + "…" + place


def language_of(environment: Mapping[str, str]) -> Language:
    """What the locale asks for: Chinese or, for everybody else, English."""
    found = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    return "zh" if found.lower().startswith("zh") else "en"
