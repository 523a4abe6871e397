"""What is printed, and that nobody has to be there to read it."""

import subprocess
import sys

import pytest

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
