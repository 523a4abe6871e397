#!/usr/bin/env python3
"""What `minibert pretrain --compile` takes at the start and saves at each step: with an empty cache, and again.

    scripts/bench_compile.py CORPUS... [--recipe quick] [--set layers=4 ...] [--rounds 1] [--json FILE]

Runs the command twice for each round, with a --cache of its own, and reads what it says: seconds to compile, seconds of
a step without and with it, and the number of steps after which it has paid.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _bench_common import (
    machine,
    medians,
    parser,
    report,
    run_main,
    table,
    versions,
)

SAID = re.compile(r"compiled in ([\d.]+) s: a step takes ([\d.e-]+) s instead of ([\d.e-]+)")


def run(args: Any, work: Path) -> dict[str, float]:
    """One run of a few steps: what it says of compiling."""
    with tempfile.TemporaryDirectory(dir=work) as out:
        flags = [part for pair in args.set for part in ("--" + pair.partition("=")[0], pair.partition("=")[2])]
        command = [
            sys.executable, "-m", "minibert", "pretrain", *args.corpus, "--recipe", args.recipe, "--out", f"{out}/run",
            "--cache", str(work / "cache"), "--steps", "2", "--eval-examples", "1", "--compile", *flags,
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    found = SAID.search(done.stdout + done.stderr)
    if done.returncode or not found:
        raise SystemExit(done.stderr or f"nothing was said of compiling: {' '.join(command)}")
    took, compiled, usual = map(float, found.groups())
    return {"took": took, "compiled": compiled, "usual": usual}


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=1)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--recipe", default="quick")
    options.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, as flags without --")
    args = options.parse_args()
    hardware = machine()
    rounds: dict[str, list[dict[str, float]]] = {"empty cache": [], "again": []}
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-compile-") as work:
            for name, results in rounds.items():
                results.append(run(args, Path(work)))
                print(f"round {number + 1} of {args.rounds}  {name}: {results[-1]}", file=sys.stderr, flush=True)
    rows = []
    for name, results in rounds.items():
        took, compiled, usual = (medians(results, key) for key in ("took", "compiled", "usual"))
        pays = f"{took / (usual - compiled):,.0f}" if usual > compiled else "never"
        rows.append([name, f"{took:.0f}", f"{usual:.3f}", f"{compiled:.3f}", f"{usual / compiled:.2f}x", pays])
    table(["", "s to compile", "s a step", "compiled", "faster by", "pays after steps"], rows)
    report(args, hardware, versions("minibert", "torch"), {"rounds": rounds})


if __name__ == "__main__":
    run_main(main)
