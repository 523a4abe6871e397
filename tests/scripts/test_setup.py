"""scripts/setup: what it refuses before it installs anything."""

import os
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"


def setup(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Never gets as far as pip: a Python that is not there stops it at the latest."""
    environment = {**os.environ, "PYTHON": "/no/such/python", **environment}
    return subprocess.run([SETUP, *arguments], capture_output=True, text=True, env=environment)


def test_an_unknown_kind_is_named():
    done = setup("tests")
    assert (done.returncode, done.stderr) == (2, "setup: error: unknown kind 'tests'\n  fix: run or dev\n")


def test_a_python_that_was_asked_for_is_not_replaced_by_another(tmp_path):
    done = setup(MINIBERT_VENV=str(tmp_path / "venv"))
    assert done.returncode == 2
    assert done.stderr.startswith("setup: error: no Python 3.10 or newer at PYTHON=/no/such/python\n  fix: ")
    assert not (tmp_path / "venv").exists()


def test_a_folder_that_it_did_not_make_is_not_touched(tmp_path):
    (tmp_path / "pyvenv.cfg").write_text("home = somewhere\n")
    done = setup(MINIBERT_VENV=str(tmp_path))
    assert done.returncode == 2
    assert "was not made by scripts/setup and will not be touched\n  fix: move it away" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pyvenv.cfg"]


@pytest.mark.parametrize("place", ["venv", "../venv"])
def test_a_relative_place_is_refused(place):
    done = setup(MINIBERT_VENV=place)
    assert (done.returncode, done.stderr) == (2, f"setup: error: MINIBERT_VENV={place} is not an absolute path\n")
