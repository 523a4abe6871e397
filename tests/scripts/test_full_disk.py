"""Two commands of scripts/full_disk.py; the rest of it takes minutes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "full_disk.py"


def no_small_disks() -> bool:
    """Whether the system lets nobody mount a tmpfs in a namespace of his own."""
    mount = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "-o", "size=4k", "none", "/mnt"]
    try:
        return subprocess.run(mount, capture_output=True).returncode != 0
    except OSError:
        return True


@pytest.mark.skipif(no_small_disks(), reason="needs unshare and a tmpfs of its own")
def test_full_disks_are_said_and_nothing_is_lost():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--cases", "vocab --out,predict > file"], capture_output=True, text=True,
        timeout=600, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as it should be") == 2
