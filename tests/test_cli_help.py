"""`minibert --help` answers at once."""

import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 0.3
TRIES = 10


def cpu_of_children() -> float:
    """Seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_in_under_300_ms():
    """The best of several runs counts, and waiting for a core that others hold does not: it is no fault of ours."""
    best = wall = float("inf")
    for _ in range(TRIES):
        started, used = time.perf_counter(), cpu_of_children()
        done = subprocess.run([sys.executable, "-m", "minibert", "--help"], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        wall = min(wall, time.perf_counter() - started)
        best = min(best, cpu_of_children() - used)
        if wall < SECONDS:
            break
    assert "pretrain" in done.stdout
    print(f"{wall:.3f} s, {best:.3f} s of them computing")
    assert min(best, wall) < SECONDS
