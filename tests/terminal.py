"""A program on a real pseudo-terminal, and what a person sees there. tests/conftest.py offers it as `terminal`."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pyte

PATIENCE = 120  # seconds: a program that hangs fails the test
BEGIN = """
import os, sys
os.open(os.ttyname(0), os.O_RDWR)  # the terminal is this session's own: Ctrl-C comes
gate = int(sys.argv.pop(1))
def wait():
    os.read(gate, 1)
"""


class Terminal:
    """Runs Python code on a terminal of so many columns. In the code `wait()` waits for `go()` here."""

    def __init__(self, code: str, *args: object, columns: int = 80, rows: int = 40, **environment: str) -> None:
        self.master, slave = pty.openpty()
        self.rows, self.raw = rows, b""
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self.stream = pyte.ByteStream(self.screen)
        self.resize(columns)
        gate, self.gate = os.pipe()
        foreign = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")  # of whoever runs the tests
        inherited = {name: value for name, value in os.environ.items() if name not in foreign}
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + code, str(gate), *map(str, args)],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, pass_fds=(gate,),
            env={**inherited, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
        )  # fmt: skip
        os.close(slave)
        os.close(gate)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, columns, 0, 0))
        self.screen.resize(self.rows, columns)

    def go(self) -> None:
        os.write(self.gate, b".")

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def lines(self) -> list[str]:
        """All that a person can see or scroll back to, without what is blank at the ends."""
        above = ["".join(line[x].data for x in sorted(line)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in (*above, *self.screen.display)).strip("\n").split("\n")

    def until(self, seen: Callable[[list[str]], object]) -> list[str]:
        """Wait until a person sees it."""
        end = time.monotonic() + PATIENCE
        while not seen(self.lines()):
            assert time.monotonic() < end, "\n".join(self.lines())
            assert self._read(), "\n".join(("it has ended:", *self.lines()))
        return self.lines()

    def end(self) -> list[str]:
        """Let it run to its end, of which `code` is the exit code then."""
        while self._read():
            pass
        self.code = self.process.wait(PATIENCE)
        return self.lines()

    def close(self) -> None:
        """Of the window: what is written from now on goes nowhere."""
        os.close(self.master)
        self.master = -1

    def clear_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.gate)
        if self.master >= 0:
            self.close()

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], PATIENCE)
        assert ready, "\n".join(("nothing comes:", *self.lines()))
        try:
            more = os.read(self.master, 65536)
        except OSError:  # Linux says so where the other end is closed
            return False
        self.raw += more
        self.stream.feed(more)
        return bool(more)
