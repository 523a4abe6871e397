"""A few of the kills of scripts/torture.py, all of them aimed: while something is written, and at the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="its runs are forked")
def test_killed_runs_end_as_if_nobody_had_touched_them(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "torture.py"), "--preloaded", "--aimed", "--kills", "6", "--work", str(tmp_path),
         "--kinds", "pretrain-muon,cls"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pretrain-muon" in done.stdout
    assert "equal to the last bit" in done.stdout
