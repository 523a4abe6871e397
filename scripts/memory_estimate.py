#!/usr/bin/env python3
"""The memory that minibert says training will take, beside what the process really took.

    scripts/memory_estimate.py CORPUS...

Each run is a process of its own: a few steps of pre-training without held-out text. Both figures are what comes on top
of the process as it is before the optimizer is made (VmRSS then, VmHWM at the end).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = (
    "--recipe quick",
    "--recipe mini --batch-size 64 --micro-batch-size 64 --precision fp32",
    "--recipe base --batch-size 8 --micro-batch-size 8",
    "--recipe base --batch-size 32 --micro-batch-size 32",
    "--recipe base --batch-size 32 --micro-batch-size 32 --gradient-checkpointing",
    "--recipe base --batch-size 16 --micro-batch-size 8 --attention-dropout .1 --precision fp32",
)
FLAG = "--one-run"


def memory(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    return int(re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))[0]) * 1024


def one_run(words: list[str]) -> None:
    """Train, and print the estimate and the truth as JSON."""
    from minibert.cli import commands
    from minibert.training import memory as module

    found = {}
    tell = module.tell

    def noted(need: module.Need, rows: int, *args: object, **settings: object) -> None:
        found.update(estimate=need.of(rows), before=memory("VmRSS"))
        tell(need, rows, *args, **settings)  # type: ignore[arg-type]

    module.tell = noted
    commands.main(["pretrain", *words, "--steps", "3", "--eval-share", "0", "--quiet"], standalone_mode=False)
    print(json.dumps({"estimate": found["estimate"], "real": memory("VmHWM") - found["before"]}))


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == [FLAG]:
        one_run(sys.argv[2:])
        return
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'estimate':>10} {'real':>10}  ratio  run")
        for number, run in enumerate(RUNS):
            words = [*sys.argv[1:], "--out", f"{folder}/{number}", "--cache", f"{folder}/cache", *run.split()]
            done = subprocess.run(
                [sys.executable, __file__, FLAG, *words], stdout=subprocess.PIPE, text=True, check=True,
                stderr=subprocess.DEVNULL, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
            )  # fmt: skip
            figures = json.loads(done.stdout.splitlines()[-1])
            estimate, real = figures["estimate"] / 1e9, figures["real"] / 1e9
            print(f"{estimate:7.2f} GB {real:7.2f} GB  {estimate / real:5.2f}  {run}", flush=True)


if __name__ == "__main__":
    main()
