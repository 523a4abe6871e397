"""What is printed, and that nobody has to be there to read it."""

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest

from minibert.console import print_text

RUN = """
import os, sys
from minibert.console import Console
console = Console()
read, write = os.pipe()
if sys.argv[1] == "pipe":
    os.close(read)
    os.dup2(write, 2)
else:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
console.say("said")
console.warn("warned")
console.table("table", [("a", "b")])
with console.progress("training", 1.0) as update:
    update(0.5, "half")
print("went on")
"""


@pytest.mark.parametrize("end", ["pipe", "full"])
def test_a_reader_that_has_gone_ends_nothing(end):
    """A closed terminal, `2>&1 | head`, a log on a full disk: the run goes on, and its exit code is its own."""
    done = subprocess.run([sys.executable, "-c", RUN, end], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == "went on\n"
    assert done.returncode == 0


def test_results_are_whole_where_less_is_written_than_was_given(monkeypatch):
    """As PYTHONUNBUFFERED has it."""

    class Short(io.BytesIO):
        def write(self, data):
            return super().write(bytes(data[:3]))

    stream = SimpleNamespace(buffer=Short(), flush=lambda: None, isatty=lambda: False)
    monkeypatch.setattr(sys, "stdout", stream)
    print_text("ten letters\n")
    assert stream.buffer.getvalue() == b"ten letters\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_into_a_full_disk_are_one_message(unbuffered):
    code = "from minibert.cli import commands, main; import minibert.console as c; "
    code += "commands.main = lambda **how: c.print_text('x' * 5000); main()"
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            env={"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "minibert: error: standard output: cannot be written: No space left on device\n"
        "  fix: make room, or name a file: --out\n"
    )
