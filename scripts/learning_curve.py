#!/usr/bin/env python3
"""Print the held-out curve of one or more runs of the same recipe as a Markdown table: learning_curve.py RUN [RUN ...]

Runs are told apart by their seeds; with several, each figure is mean +- standard deviation. Figures are those of
[MASK] positions alone: one target in ten is shown as it is, and copying it is no knowledge.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

COLUMNS = {"masked_accuracy": ("accuracy", 100, ".1f"), "masked_perplexity": ("perplexity", 1, ".1f"),
           "mlm_loss": ("MLM loss", 1, ".3f"), "nsp_accuracy": ("next sentence", 100, ".1f")}  # fmt: skip


def evaluations(run: Path) -> dict[int, dict[str, Any]]:
    """Step -> measurement, with the tokens seen until then."""
    tokens, found = 0, {}
    for line in (run / "log.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        tokens = entry.get("tokens", tokens)
        if "eval" in entry:
            found[entry["step"]] = {**entry["eval"], "tokens": tokens}
    return found


def spread(values: list[float], scale: float, form: str) -> str:
    """Mean, and deviation where there are several."""
    scaled = [value * scale for value in values]
    shown = format(statistics.mean(scaled), form)
    return shown + (f" ± {format(statistics.stdev(scaled), form)}" if len(scaled) > 1 else "")


def main() -> None:
    """Read the logs, print the table."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    runs = [Path(name) for name in sys.argv[1:]]
    seeds = [json.loads((run / "settings.json").read_text("utf-8"))["settings"]["seed"] for run in runs]
    curves = [evaluations(run) for run in runs]
    first = next(iter(curves[0].values()))
    print(f"{len(runs)} run(s), seeds {', '.join(map(str, seeds))}; unigram accuracy {first['unigram_accuracy']:.1%}\n")
    print("| step | tokens (M) | " + " | ".join(title for title, _, _ in COLUMNS.values()) + " |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    # the last measurement of a run by the clock is at a step of its own: the ends are shown in one row
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    rows = [[curve[step] for curve in curves] for step in shared]
    if len({max(curve) for curve in curves}) > 1:
        rows.append([curve[max(curve)] for curve in curves])
        shared.append(-1)
    for step, row in zip(shared, rows, strict=True):
        tokens = spread([entry["tokens"] for entry in row], 1e-6, ".2f")
        cells = [spread([entry[name] for entry in row], scale, form) if name in row[0] else "–"
                 for name, (_, scale, form) in COLUMNS.items()]  # fmt: skip
        print(f"| {step if step >= 0 else 'end'} | {tokens} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
