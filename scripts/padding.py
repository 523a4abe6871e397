#!/usr/bin/env python3
"""What share of the computed tokens is padding: in minibert's batches, in random order, and padded to the full length.

    scripts/padding.py VOCAB KIND=FILE...     KIND is text (pre-training), or a task: cls, ner, qa

The batches are those of a whole pass, with seed 0 and the settings' defaults. Their lengths are multiples of 8;
"unrounded" is what would be left if they were as long as their longest row.
"""

import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bench_common import table

from minibert.config import PretrainConfig
from minibert.corpus.batches import Cursor
from minibert.corpus.read import find_files, fingerprint
from minibert.corpus.store import open_store
from minibert.tasks import find_tasks
from minibert.tasks.data import read_parts
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.data import PretrainingData
from minibert.training.inference import CPU_TOKENS, length_batches
from minibert.training.rows import RowStream


def row(name: str, make: Any, rows: Any, batches: Any, size: int, longest: int) -> list[str]:
    """A line of the table. make: rows to a batch; batches: the rows in minibert's order; size: rows in a batch."""
    mixed, real, computed, unrounded = np.random.default_rng(0).permutation(rows), 0, 0, 0
    for batch in map(make, batches):
        number, width = batch["input_ids"].shape
        keep = batch["attention_mask"]
        real, computed = real + batch["num_tokens"], computed + number * width
        unrounded += number * (width if keep is None else int(keep.sum(1).max()))
    drawn = sum(make(mixed[first : first + size])["input_ids"].numel() for first in range(0, len(mixed), size))
    tokens = [computed, unrounded, drawn, longest * len(rows)]
    return [name, f"{real / len(rows):.0f}", *(f"{1 - real / number:.1%}" for number in tokens)]


def of_text(tokenizer: BertTokenizer, path: str, work: str) -> Iterator[list[str]]:
    """Pre-training, with and without pairs and short examples."""
    store, _ = open_store(files := find_files([path]), tokenizer, Path(work), corpus=fingerprint(files))
    for nsp, short in ((True, 0.1), (True, 0.0), (False, 0.1), (False, 0.0)):
        config = PretrainConfig(nsp=nsp, short_share=short, steps=1)
        data = PretrainingData(store, tokenizer, config, np.arange(len(store)), np.zeros(0, np.int64))
        batches = [b for b, _ in islice(data.stream().batches(Cursor()), data.count() // config.batch_size)]
        name = f"{path}: {'pairs' if nsp else 'no pairs'}, short {short:g}"
        yield row(
            name, data.collator().__getitem__, np.concatenate(batches), batches, config.batch_size, config.max_length
        )


def of_task(tokenizer: BertTokenizer, name: str, path: str) -> Iterator[list[str]]:
    """Fine-tuning, and prediction on a CPU."""
    kind = find_tasks()[name]
    task, parts = read_parts(kind(kind.Config()), {"train": Path(path)}, tokenizer)
    features, size = parts["train"].features, task.config.batch_size
    lengths = [len(feature.ids) for feature in features]
    most = CPU_TOKENS * torch.get_num_threads()
    ways = {
        f"training, {size} rows": (size, RowStream(lengths, seed=0, batch_size=size).epoch(0)),
        f"prediction, {most:,} tokens": (32, length_batches(lengths, 32, most)),
    }
    made, numbers = (lambda part: task.batch([features[i] for i in part], 0)), np.arange(len(features))
    for way, (rows, batches) in ways.items():
        yield row(f"{path}: {way}", made, numbers, batches, rows, task.config.max_length)


if __name__ == "__main__":
    if len(sys.argv) < 3 or not all("=" in argument for argument in sys.argv[2:]):
        sys.exit(__doc__)
    own = BertTokenizer.from_pretrained(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="padding-") as work:
        lines = []
        for kind, _, path in (argument.partition("=") for argument in sys.argv[2:]):
            lines += of_text(own, path, work) if kind == "text" else of_task(own, kind, path)
    table(["padding", "tokens a row", "minibert", "unrounded", "random order", "full length"], lines)
