"""`minibert --help` answers at once."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 0.3
TRIES = 10


def test_help_answers_in_under_300_ms():
    """The best of several runs counts: the machine may be busy with something else."""
    best = float("inf")
    for _ in range(TRIES):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "minibert", "--help"], capture_output=True, text=True, cwd=ROOT)
        best = min(best, time.perf_counter() - started)
        assert done.returncode == 0, done.stderr
        if best < SECONDS / 2:
            break
    assert "pretrain" in done.stdout
    assert best < SECONDS
