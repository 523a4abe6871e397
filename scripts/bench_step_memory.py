#!/usr/bin/env python3
"""Peak memory of pre-training steps, beside transformers' Trainer with the same model and batch.

    scripts/bench_step_memory.py CORPUS... [--layers 12 --hidden-size 768 --heads 12] [--batch-size 8] [--json FILE]

Every contestant runs in a process of its own: libraries, model, optimizer, a few steps. Peak RSS is what the system
counted at most (VmHWM), what is there before the model is made is given beside it. Dropout is .1 everywhere.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from _bench_common import (
    alternate,
    apart,
    cores,
    machine,
    make_tokenizer,
    medians,
    parser,
    ratio,
    report,
    run_main,
    table,
    versions,
)
from bench_pretrain import Minibert, Trainer, vocabulary_file

OURS, OURS_LESS, TRAINER = "minibert", "minibert --gradient-checkpointing", "Trainer"


def peak_mb() -> float:
    """The most memory that this process has had, in MB (10^6 bytes)."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def steps(kind: str, args: Any, store_folder: Path, work: Path) -> dict[str, Any]:
    """Some steps of one contestant, in a process of its own: peak, peak before the model, seconds a step."""
    import torch
    import transformers

    from minibert.corpus.read import find_files, fingerprint
    from minibert.corpus.store import open_store
    from minibert.tokenization.tokenizer import BertTokenizer

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    tokenizer = BertTokenizer.from_pretrained(work / "tokenizer")
    files = find_files(args.corpus)
    store, _ = open_store(files, tokenizer, store_folder, corpus=fingerprint(files), workers=1)
    before = peak_mb()
    contestant: Any
    if kind == TRAINER:
        contestant = Trainer(args, store, work / "tokenizer", work, args.precision)
    else:
        contestant = Minibert(args, store, tokenizer, 0.1, gradient_checkpointing=kind == OURS_LESS)
    result = contestant.round()
    return {"peak": peak_mb(), "before": before, "seconds": result["seconds"] / args.steps}


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=3)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--layers", type=int, default=12)
    options.add_argument("--hidden-size", type=int, default=768)
    options.add_argument("--heads", type=int, default=12)
    options.add_argument("--vocab-size", type=int, default=30522)
    options.add_argument("--vocab", type=Path, help="vocab.txt [default: as in bench_pretrain.py]")
    options.add_argument("--length", type=int, default=128)
    options.add_argument("--batch-size", type=int, default=8)
    options.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="bf16")
    options.add_argument("--steps", type=int, default=2, help="counted steps")
    options.add_argument("--skip", type=int, default=1, help="steps before them")
    options.add_argument("--threads", type=int, default=cores())
    args = options.parse_args()
    args.compile = False
    hardware = machine()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-step-memory-") as folder:
        work = Path(folder)
        apart(prepare, args, work)
        contestants = {
            kind: (lambda kind=kind: apart(steps, kind, args, work / "store", work))
            for kind in (OURS, OURS_LESS, TRAINER)
        }
        found = alternate(args.rounds, contestants, lambda result: f"{result['peak']:,.0f} MB")
    rows = []
    for kind, results in found.items():
        share = "" if kind == TRAINER else f"{ratio(results, found[TRAINER], 'peak')['median']:.2f}"
        figures = [f"{medians(results, key):,.0f}" for key in ("peak", "before")]
        rows.append([kind, *figures, f"{medians(results, 'seconds'):.2f}", share])
    table(["", "peak RSS, MB", "before the model", "s a step", "of the Trainer's peak"], rows)
    report(args, hardware, versions("minibert", "transformers", "torch", "accelerate"), {"rounds": found})


def prepare(args: Any, work: Path) -> None:
    """Vocabulary and token store, once for all."""
    from minibert.corpus.read import find_files, fingerprint
    from minibert.corpus.store import open_store

    files = find_files(args.corpus)
    tokenizer = make_tokenizer(files, args.vocab_size, vocabulary_file(args))
    tokenizer.save_pretrained(work / "tokenizer")
    open_store(files, tokenizer, work / "store", corpus=fingerprint(files), workers=1)


if __name__ == "__main__":
    run_main(main)
