#!/usr/bin/env python3
"""Print what a pre-training run has learnt, beside what counting words alone would reach: show_metrics.py RUN"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Read RUN/metrics.json and print it for a person."""
    metrics = json.loads((Path(sys.argv[1]) / "metrics.json").read_text(encoding="utf-8"))
    print("Words hidden by [MASK] in text that the model has never seen:")
    print(f"  {'':24}{'accuracy':>9}{'loss':>8}")
    for name, prefix in (("this model", "masked"), ("always the commonest", "unigram")):
        print(f"  {name:24}{metrics[f'{prefix}_accuracy']:9.1%}{metrics[f'{prefix}_loss']:8.2f}")


if __name__ == "__main__":
    main()
