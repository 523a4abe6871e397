#!/usr/bin/env python3
"""How fast a vocabulary is trained, beside `tokenizers` alone on the same files. Say MB of raw text a second.

    scripts/bench_vocab.py CORPUS... [--sizes 8000 30522] [--rounds 3] [--json FILE]

  minibert                      files -> vocabulary, reading included; always the same one, every character covered
  tokenizers, threads           BertWordPieceTokenizer.train on the same files, with as many threads as there are cores
  tokenizers, one thread        the same without threads, as minibert trains

Both lower-case. Each measurement runs in a fresh process, imports not counted. Compressed, JSONL and parquet files are
not for `tokenizers`: give plain text.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _bench_common import (
    alternate,
    apart,
    machine,
    medians,
    parser,
    ratio,
    report,
    run_main,
    spread,
    table,
    versions,
)


def measure_minibert(files: list[Path], size: int) -> dict[str, Any]:
    """Files into a vocabulary."""
    from minibert.corpus.read import read_pieces
    from minibert.tokenization.vocabulary import train_vocabulary

    began = time.perf_counter(), time.process_time()
    vocabulary = train_vocabulary(
        lambda: (line for piece, _ in read_pieces(files) for line in piece), size=size, lowercase=True
    )
    return {
        "seconds": time.perf_counter() - began[0], "cpu": time.process_time() - began[1],
        "entries": len(vocabulary.tokens),
    }  # fmt: skip


def measure_tokenizers(files: list[Path], size: int, threads: bool) -> dict[str, Any]:
    """The same by the library that minibert's trainer is made of."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads else "false"
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    began = time.perf_counter(), time.process_time()
    tokenizer.train([str(file) for file in files], vocab_size=size, show_progress=False)
    return {
        "seconds": time.perf_counter() - began[0], "cpu": time.process_time() - began[1],
        "entries": tokenizer.get_vocab_size(),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    from minibert.corpus.read import find_files

    options = parser(__doc__)
    options.add_argument("corpus", nargs="+", help="plain text files or folders")
    options.add_argument("--sizes", type=int, nargs="+", default=[8000, 30522], help="entries asked for")
    args = options.parse_args()
    hardware = machine()
    files = find_files(args.corpus)
    megabytes = sum(len(file.read_bytes()) for file in files) / 1e6  # read: they are in memory for all from now on
    contestants: dict[str, Callable[[], dict[str, Any]]] = {}
    for size in args.sizes:
        contestants[f"{size:,}: minibert"] = partial(apart, measure_minibert, files, size)
        for threads in (True, False):
            name = f"{size:,}: tokenizers, {'threads' if threads else 'one thread'}"
            contestants[name] = partial(apart, measure_tokenizers, files, size, threads)
    found = alternate(args.rounds, contestants, lambda result: f"{result['seconds']:.2f} s")
    ratios = {
        name: ratio(results, found[f"{name.partition(':')[0]}: minibert"], "seconds")
        for name, results in found.items()
        if not name.endswith("minibert")
    }
    print(f"{megabytes:.1f} MB, medians of {args.rounds} rounds\n")
    table(
        ["", "MB/s", "seconds", "CPU seconds", "entries", "minibert is faster by"],
        [
            [
                name, f"{megabytes / medians(results, 'seconds'):.2f}", f"{medians(results, 'seconds'):.2f}",
                f"{medians(results, 'cpu'):.2f}", f"{results[0]['entries']:,}",
                spread(ratios[name]) if name in ratios else "",
            ]
            for name, results in found.items()
        ],
    )  # fmt: skip
    report(args, hardware, versions("minibert", "tokenizers"), {"rounds": found, "ratios": ratios})


if __name__ == "__main__":
    run_main(main)
