"""What a person sees in the terminal: progress bars where it is one, plain lines where output is piped."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from minibert.errors import UserError, printable

if TYPE_CHECKING:
    from rich.console import Console as Rich
    from rich.console import ConsoleOptions, RenderResult

Update = Callable[..., None]
WIDEST = 100  # columns: nothing is stretched over a wider terminal
REFRESHES = 4  # of a live display, a second
EVERY = 20  # lines of a progress in a pipe: one for each twentieth of the way


@dataclass
class Standing:
    """How a training stands, for people. Who made it may change it: a bar shows what it says now.

    Attributes: parts: the most important first; a narrow terminal shows as many as it has room for. more: what only a
        log file shows. speed: beside the bar. curve: the loss from the beginning on.
    """

    parts: tuple[str, ...] = ()
    more: str = ""
    speed: str = ""
    curve: tuple[float, ...] = ()


def is_live(stream: Any) -> bool:
    """Whether somebody looks at a stream on a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def has_colour(stream: Any) -> bool:
    """Whether a stream takes colours: https://no-color.org."""
    return is_live(stream) and not os.environ.get("NO_COLOR")


class Console:
    """Messages on stderr, so that stdout stays for results. quiet: warnings alone. Control characters are escaped."""

    def __init__(self, *, quiet: bool = False, silent: bool = False) -> None:
        from rich.console import Console as Rich

        self.quiet, self.silent = quiet or silent, silent
        self.live = is_live(sys.stderr)
        self.bar: _Bar | None = None  # what is on the screen now
        # a log file is as wide as its lines: no table is cut off there; a terminal knows its width better than what an
        # environment was given before it was resized
        self.rich = Rich(
            file=cast(IO[str], Steady(sys.stderr)), highlight=False, emoji=False, soft_wrap=True,
            force_terminal=self.live, force_jupyter=False, color_system="auto" if has_colour(sys.stderr) else None,
            width=None if self.live else 400,
            _environ={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
        )  # fmt: skip

    def say(self, text: str = "") -> None:
        if not self.quiet:
            self.rich.print(self._wrapped(text), markup=False)

    def warn(self, text: str) -> None:
        if not self.silent:
            from rich.text import Text

            word, rest = self._wrapped(f"warning: {text}").split(" ", 1)
            self.rich.print(Text.assemble((word, "bold yellow"), f" {rest}"))

    def warn_from_signal(self, text: str) -> None:
        """A line from a signal's handler; not by print: the signal may have come in the middle of one."""
        if self.bar is not None:
            self.bar.told = text
        else:
            with suppress(OSError):
                os.write(2, f"\n{text}\n".encode())

    def table(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns: what, and how much."""
        if self.quiet:
            return
        width = max(len(name) for name, _ in rows)
        self.rich.print(self._wrapped(title), markup=False, style="bold")
        for name, value in rows:
            self.rich.print(self._wrapped(f"  {name:<{width}}  {value}", indent=width + 4), markup=False)

    def grid(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table with a head; all but the first column stand at the right."""
        if self.quiet:
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for i, name in enumerate(columns):
            table.add_column(Text(printable(name)), justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self.rich.print(self._wrapped(title), markup=False, style="bold")
        self.rich.print(table)

    def results(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], then: Sequence[tuple[str, str]]
    ) -> None:
        """The end of a run: its table, and what to do next: (for what, the command), which is never broken."""
        if self.quiet:
            return
        from rich.cells import cell_len

        self.rich.print()
        self.grid(title, columns, rows)
        self.rich.print("next", style="bold")
        width = max(len(name) for name, _ in then)
        longest = max(cell_len(command) for _, command in then)
        between = "\n    " if width + 4 + longest > self.rich.width else " " * 2
        for name, command in then:
            self.rich.print(printable(f"  {name:<{width}}{between}{command}"), markup=False)

    @contextmanager
    def progress(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Update]:
        """A bar with the time that is left on a terminal; elsewhere a plain line now and then.

        Args: total: None where nobody knows it. unit: what is counted, where the numbers are worth to be shown.
        Yields: update(done, standing): done in units of total; standing: a Standing, of a training.
        """
        if self.quiet:
            yield lambda done, standing=None: None
        elif not self.live:
            yield _Lines(label, total, unit)
        else:
            from rich.live import Live

            self.bar = _Bar(label, total, unit)
            live = Live(
                cast(Any, self.bar), console=self.rich, refresh_per_second=REFRESHES,
                redirect_stdout=sys.stdout.isatty(),
            )  # fmt: skip
            try:  # from the first character on: Ctrl-C may come while the bar is being drawn
                live.start(refresh=True)
                self.rich.show_cursor(True)  # nobody brings it back for a process that is killed
                yield self.bar
            finally:
                live.stop()
                self.rich.show_cursor(True)
                self.bar = None

    def _wrapped(self, text: str, indent: int | None = None) -> str:
        text = printable(text)
        return wrapped(text, min(self.rich.width, WIDEST), indent) if self.live else text


def wrapped(text: str, width: int, indent: int | None = None) -> str:
    """Lines of so many columns where words allow it; a path or a `command` is never broken, so that it can be copied.

    indent: of what follows in a line (default: two more than the line's own).
    """
    from rich.cells import cell_len

    lines = []
    for line in text.split("\n"):
        deep = len(line) - len(line.lstrip(" ")) + 2 if indent is None else indent
        row = ""
        for word in re.findall(r"\s*(?:`[^`]*`|\S)+", line):
            if row.strip() and cell_len(row + word) > width:
                lines.append(row)
                row = " " * deep + word.lstrip()
            else:
                row += word
        lines.append(row)
    return "\n".join(lines)


def print_text(text: str, *, styled: bool = False) -> None:
    """Results on standard output, in UTF-8 whatever the locale says; a line end is a line end.

    On a terminal control characters are escaped; files and pipes get every character as it is. styled: the escapes in
    there are minibert's own colours, and what came from users has been escaped before.

    Raises: SystemExit(141), as the system ends other programs, where whoever read them has seen enough. UserError where
        they go into a file on a full disk.
    """
    stream = getattr(sys.stdout, "buffer", None)
    if sys.stdout.isatty() and not styled:
        text = printable(text)
    if stream is None or hasattr(sys.stdout, "rich_proxied_file"):  # a stream of text, or a bar that text stands above
        sys.stdout.write(text)
    else:
        try:
            sys.stdout.flush()
            left = memoryview(text.encode("utf-8", "backslashreplace"))
            while left:  # with PYTHONUNBUFFERED less may be written than is given, as where a disk becomes full
                left = left[stream.write(left) or 0 :]
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more is flushed into it
            if isinstance(error, BrokenPipeError):
                raise SystemExit(128 + 13) from None
            raise UserError(
                f"cannot be written: {error.strerror}", where="standard output", fix="make room, or name a file: --out"
            ) from error


def counting(update: Update) -> Callable[[int], None]:
    """Turn "so many more" into a progress bar's "so many in all"."""
    done = [0]

    def add(more: int) -> None:
        done[0] += more
        update(done[0])

    return add


def part_of(update: Update, first: int, number: int) -> Callable[[float], None]:
    """Turn "this share of so many, from the first on" into a progress bar's "so many in all"."""
    return lambda share: update(int(first + share * number))


class Steady:
    """Standard error for a run of days: nobody may be listening any more (a closed terminal, a pipe whose reader has
    ended, a log on a full disk), and that is no reason to lose the run."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with self._lost():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._lost():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):  # what is still in its buffer would fail again at the end
                with suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


class _Way:
    """How far something has come, and how long it will still take."""

    def __init__(self, label: str, total: float | None, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.began = time.monotonic()
        self.first: tuple[float, float] | None = None  # time and place; a run that goes on begins in the middle
        self.newest = (self.began, 0.0)
        self.standing: Standing | None = None

    def __call__(self, done: float, standing: Standing | None = None) -> None:
        self.newest = (time.monotonic(), done)
        self.first = self.first or self.newest
        self.standing = standing or self.standing

    @property
    def share(self) -> float | None:
        """Of the way, None where nobody knows it."""
        return min(self.newest[1] / self.total, 1.0) if self.total else None

    def rate(self) -> float:
        """Units a second since the first call, which may have had to wait for much; 0 where there is no telling."""
        if self.first is None or self.newest[1] <= self.first[1]:
            return 0.0
        return (self.newest[1] - self.first[1]) / max(self.newest[0] - self.first[0], 1e-9)

    def time(self) -> str:
        """What is left of it; what it took, at the end or where nobody knows the end."""
        now, rate = time.monotonic(), self.rate()
        if self.total is None or self.share == 1.0:
            return f"in {clock(now - self.began)}"
        if not rate:
            return ""
        return f"{clock(max(0.0, (self.total - self.newest[1]) / rate - (now - self.newest[0])))} left"

    def amount(self) -> str:
        """The numbers, where there is a unit for them."""
        if not self.unit:
            return ""
        done = short(self.newest[1]) + (f" of {short(self.total)}" if self.total else "")
        rate = self.rate()
        return f"{done} {self.unit}" + (f", {short(rate)}/s" if rate else "")


class _Bar(_Way):
    """Progress on a terminal: a line with a bar, and for a training one that says how it stands."""

    told = ""  # by a signal's handler

    def __rich_console__(self, console: Rich, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width = options.max_width - 1  # a terminal may go to the next line with the last column
        lines = [self.first_line(width, options.ascii_only)]
        if self.standing is not None:
            lines.append(self.second_line(self.standing, width, options.ascii_only))
        if self.told:
            lines.append(Text(printable(self.told), "bold yellow"))
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
            yield line

    def first_line(self, width: int, ascii_only: bool) -> Any:
        from rich.text import Text

        share = self.share
        end = Text("" if share is None else f" {int(100 * share):3d}%", "bold")
        speed = self.standing.speed if self.standing else self.amount()
        line = Text(self.label, "bold")
        for text, style in ((self.time(), "cyan"), (speed, "dim")):
            if text and line.cell_len + end.cell_len + 2 + len(text) <= width:
                end.append(f"  {text}", style)
        room = min(40, width - line.cell_len - 1 - end.cell_len)
        if share is not None and room >= 5:
            full = int(room * share)
            line.append(" ")
            line.append(("#" if ascii_only else "━") * full, "green" if share == 1 else "cyan")
            line.append(("-" if ascii_only else "─") * (room - full), "dim")
        return line.append_text(end)

    def second_line(self, standing: Standing, width: int, ascii_only: bool) -> Any:
        from rich.text import Text

        line = Text()
        for part in standing.parts:
            if line and line.cell_len + 2 + len(part) > width:
                break
            line.append(f"  {part}" if line else part)
        room = min(24, width - line.cell_len - 2)
        if len(standing.curve) > 1 and room >= 6 and not ascii_only:
            line.append(f"  {sparkline(standing.curve, room)}", "cyan")
        return line


class _Lines(_Way):
    """Progress for a log file: a line now and then, and after a minute of silence. What has been said is not said again
    until there is something new."""

    def __init__(self, label: str, total: float | None, unit: str) -> None:
        super().__init__(label, total, unit)
        self.part, self.said, self.when = 0, "", self.began

    def __call__(self, done: float, standing: Standing | None = None) -> None:
        super().__call__(done, standing)
        part = int(EVERY * (self.share or 0) + 1e-9)
        if part <= self.part and self.newest[0] - self.when <= 60:
            return
        now = self.standing
        said = now.parts if now else (self.amount(),)
        if said[0] and said[0] == self.said:
            return
        share = "" if self.share is None else f" {int(100 * self.share):3d}%"
        parts = (f"{self.label}{share}", *said, *((now.more, now.speed) if now else ()), self.time())
        print(printable("  ".join(filter(None, parts))), file=cast(IO[str], Steady(sys.stderr)), flush=True)
        self.part, self.said, self.when = part, said[0], self.newest[0]


def clock(seconds: float) -> str:
    """0:07, 12:05, 3:00:00, 2 d 5 h."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    if hour >= 48:
        return f"{hour // 24} d {hour % 24} h"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def short(number: float) -> str:
    """A number that is read at a glance: 7.3, 950, 12,345, 12.3 million."""
    if number >= 1e6:
        return f"{number / 1e6:,.1f} million"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Values as bars of eight heights; of more than there is room for, every so many are left out."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    low, high = min(values), max(values)
    return "".join("▁▂▃▄▅▆▇█"[int(7.99 * (value - low) / (high - low)) if high > low else 0] for value in values)
