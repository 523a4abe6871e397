"""What a person sees in the terminal: progress bars where it is one, plain lines where output is piped."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from minibert.errors import UserError, printable

Update = Callable[..., None]


class Console:
    """Messages on stderr, so that stdout stays for results. quiet: warnings alone. Control characters are escaped."""

    def __init__(self, *, quiet: bool = False, silent: bool = False) -> None:
        from rich.console import Console as Rich

        self.quiet, self.silent = quiet or silent, silent
        # a log file is as wide as its lines: no table is cut off there
        self.rich = Rich(
            file=cast(IO[str], Steady()), highlight=False, emoji=False, soft_wrap=True,
            width=None if sys.stderr.isatty() else 400,
        )  # fmt: skip

    def say(self, text: str = "") -> None:
        if not self.quiet:
            self.rich.print(printable(text), markup=False)

    def warn(self, text: str) -> None:
        if not self.silent:
            self.rich.print(f"warning: {printable(text)}", markup=False, style="yellow")

    def table(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns: what, and how much."""
        if self.quiet:
            return
        width = max(len(name) for name, _ in rows)
        self.rich.print(printable(title), markup=False, style="bold")
        for name, value in rows:
            self.rich.print(printable(f"  {name:<{width}}  {value}"), markup=False)

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
        self.rich.print(printable(title), markup=False, style="bold")
        self.rich.print(table)

    @contextmanager
    def progress(self, label: str, total: float | None = None) -> Iterator[Update]:
        """A bar with time left on a terminal; elsewhere a plain line now and then.

        Yields: update(done, note): done in units of total.
        """
        if self.quiet:
            yield lambda done, note="": None
        elif self.rich.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns: list[Any] = [TextColumn("{task.description}")]
            if total:
                columns += [
                    BarColumn(),
                    TextColumn("{task.percentage:3.0f}%"),
                    TimeRemainingColumn(),
                    TextColumn("left"),
                ]
            else:
                columns += [TimeElapsedColumn()]
            with Progress(*columns, TextColumn("{task.fields[note]}"), console=self.rich, transient=False) as bar:
                task = bar.add_task(label, total=total, note="")
                yield lambda done, note="": bar.update(task, completed=done, note=note)
        else:
            yield _Lines(label, total)


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
    if stream is None:  # somebody has put a text stream in its place
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
    """Turn "so many characters more" into a progress bar's "so many in all"."""
    done = [0]

    def add(characters: int) -> None:
        done[0] += characters
        update(done[0], f"{done[0] / 1e6:.1f} million characters")

    return add


class Steady:
    """Standard error for a run of days: nobody may be listening any more (a closed terminal, a pipe whose reader has
    ended, a log on a full disk), and that is no reason to lose the run."""

    def write(self, text: str) -> int:
        with self._lost():
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with self._lost():
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):  # what is still in its buffer would fail again at the end
                with suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Lines:
    """Progress for a log file: a line at every tenth of the way, and after a minute of silence."""

    def __init__(self, label: str, total: float | None) -> None:
        self.label, self.total = label, total
        self.tenth, self.said = 0, time.monotonic()

    def __call__(self, done: float, note: str = "") -> None:
        now = time.monotonic()
        tenth = int(10 * done / self.total) if self.total else 0
        if tenth > self.tenth or now - self.said > 60:
            share = f" {100 * done / self.total:3.0f}%" if self.total else ""
            print(f"{self.label}{share}  {note}", file=cast(IO[str], Steady()), flush=True)
            self.tenth, self.said = tenth, now
