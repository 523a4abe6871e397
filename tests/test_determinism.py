"""The same command gives the same bytes: whatever Python's hash seed, the workers, the cache and the folder are.

On a CPU with the same number of threads; docs/robustness.md says what is equal elsewhere. Resumed runs, micro-batches
and numbers of processes have tests of their own (test_pretrain.py, test_finetune.py, test_processes.py).
"""

import json
import os
import subprocess
import sys

import pytest

RUN = """
import sys
from pathlib import Path
from minibert.cli import commands
from minibert.corpus import store

out, workers, groups = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store.ALONE_BELOW_BYTES, store.CHUNK_CHARACTERS = 0, groups  # a small text is shared out over the workers too
small = ["--max-length", "32", "--precision", "fp32", "--log-every", "1", "--quiet"]
commands.main([
    "pretrain", "text.txt", "--out", str(out / "pre"), "--cache", str(out / "cache"), "--workers", workers,
    "--vocab-size", "60", "--layers", "2", "--hidden-size", "32", "--heads", "2", "--batch-size", "8",
    "--micro-batch-size", "4", "--steps", "6", "--eval-every", "3", "--max-positions", "64", *small,
], standalone_mode=False)
commands.main([
    "finetune", "--task", "cls", "--model", str(out / "pre"), "--train", "rows.csv", "--dev", "rows.csv",
    "--out", str(out / "fine"), "--epochs", "2", "--batch-size", "8", *small,
], standalone_mode=False)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs in processes of their own that differ in all that must not count."""
    folder = tmp_path_factory.mktemp("deterministic")
    words = "red blue old new cat dog sun moon runs sings sleeps eats".split()
    lines = [" ".join(words[(i * j + j) % 12] for j in range(2, 9)) for i in range(400)]
    (folder / "text.txt").write_text("\n".join(line + ("\n" if i % 4 == 3 else "") for i, line in enumerate(lines)))
    rows = [f"{line},{'ab'[line.count('cat') % 2]}" for line in lines[:40]]
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    for name, hash_seed, workers, groups in (("one", "1", "1", "200000"), ("other place", "4321", "3", "700")):
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(folder / name), workers, groups], cwd=folder, capture_output=True,
            text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return folder / "one", folder / "other place"


@pytest.mark.parametrize("stage", ["pre", "fine"])
def test_files_have_the_same_bytes(runs, stage):
    one, other = (folder / stage for folder in runs)
    names = {path.name for path in one.iterdir() if path.is_file()}
    assert names == {path.name for path in other.iterdir() if path.is_file()}
    for name in sorted(names - {"log.jsonl", "settings.json", "machine.json", "report.html"}):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("stage", ["pre", "fine"])
def test_logs_differ_in_speed_alone(runs, stage):
    logs = []
    for folder in runs:
        lines = [json.loads(line) for line in (folder / stage / "log.jsonl").read_text().splitlines()]
        assert len(lines) >= 6
        logs.append([{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines])
    assert logs[0] == logs[1]
