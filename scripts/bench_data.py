#!/usr/bin/env python3
"""How fast raw text becomes tokens that training can read, beside two other ways. Say MB of raw text a second.

    scripts/bench_data.py CORPUS... [--rounds 3] [--json FILE]

  minibert         text -> sentences -> token store on disk, with all workers and with one (text under 8 MB never has
                   more); nothing is in the cache
  google           the algorithm of create_pretraining_data.py in pure Python, text -> instances (see _google_data.py),
                   on the first --google-mb MB; it wants a sentence a line, and finding them is not counted
  datasets.map     Dataset.from_text and .map(batched=True) with transformers' fast tokenizer, which writes input_ids of
                   lines: once with as many processes as minibert's workers, once with the tokenizer's own threads

With --loader also what a training step waits for where no worker loads: planning examples from the store and making
batches of them, in CPU seconds a million tokens, and how many tokens a second a model may take until that is 3 %.

One vocabulary for all. Each measurement runs in a fresh process; imports and loading the vocabulary are not counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _bench_common import (
    alternate,
    apart,
    bytes_of,
    cores,
    documents_of,
    machine,
    make_tokenizer,
    medians,
    parser,
    ratio,
    report,
    run_main,
    spread,
    table,
    versions,
    write_documents,
)


def measure_minibert(files: list[Path], vocabulary: Path, workers: int, words: bool, work: Path) -> dict[str, Any]:
    """Text into the ready token store."""
    import datasets  # noqa: F401  imported before the clock starts
    import pyarrow  # noqa: F401

    from minibert.corpus.read import fingerprint
    from minibert.corpus.store import open_store
    from minibert.tokenization.tokenizer import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(vocabulary)
    with tempfile.TemporaryDirectory(dir=work) as cache:
        began = time.perf_counter()
        store, there = open_store(
            files, tokenizer, Path(cache), corpus=fingerprint(files), words=words, workers=workers
        )  # fmt: skip
        seconds = time.perf_counter() - began
        assert not there, "a fresh folder holds no store"
        facts = store.facts
    return {
        "seconds": seconds, "documents": facts["documents"], "rows": facts["sentences"], "tokens": facts["tokens"]
    }  # fmt: skip


def measure_google(sentences: Path, vocabulary: Path) -> dict[str, Any]:
    """A file of sentences into instances."""
    from random import Random

    import _google_data as google_data

    entries = {token: i for i, token in enumerate((vocabulary / "vocab.txt").read_text("utf-8").split("\n")) if token}
    began = time.perf_counter()
    with sentences.open(encoding="utf-8") as file:
        documents = google_data.read(file, entries)
    found = google_data.instances(documents, entries, Random(12345))
    seconds = time.perf_counter() - began
    lengths = [len(sentence) for document in documents for sentence in document]
    return {
        "seconds": seconds, "documents": len(documents), "rows": len(lengths), "tokens": sum(lengths),
        "instances": len(found),
    }  # fmt: skip


def measure_datasets(files: list[Path], vocabulary: Path, processes: int | None, work: Path) -> dict[str, Any]:
    """Lines into input_ids on disk. processes: None: no process is started, the tokenizer uses threads."""
    import os

    os.environ["TOKENIZERS_PARALLELISM"] = "true" if processes is None else "false"
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(vocabulary)
    assert tokenizer.is_fast

    def encode(batch: dict[str, list[str]]) -> Any:
        return tokenizer(
            batch["text"], add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
        )

    with tempfile.TemporaryDirectory(dir=work) as cache:
        began = time.perf_counter()
        lines = datasets.Dataset.from_text([str(file) for file in files], cache_dir=cache)
        ready = lines.map(encode, batched=True, num_proc=processes, remove_columns=["text"])
        seconds = time.perf_counter() - began
        column = ready.data.column("input_ids")
        tokens = sum(len(chunk.flatten()) for chunk in column.chunks)
        return {"seconds": seconds, "documents": None, "rows": len(ready), "tokens": tokens}


LOADER_SHAPES = ((32, 128), (8, 128), (32, 512))  # examples in a batch, most tokens of one
LOADER_SHARE = 0.03


def measure_loader(
    files: list[Path], vocabulary: Path, shape: tuple[int, int], words: bool, batches: int, work: Path
) -> dict[str, Any]:
    """Planning and collating, in CPU seconds a token: nothing else is waited for where the store is in memory."""
    import numpy as np

    from minibert.corpus.batches import Collator, Cursor, ExampleStream
    from minibert.corpus.read import fingerprint
    from minibert.corpus.store import open_store
    from minibert.tokenization.tokenizer import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(vocabulary)
    store, _ = open_store(files, tokenizer, work / "stores", corpus=fingerprint(files), words=words)
    batch_size, max_length = shape
    stream = ExampleStream(
        store, np.arange(len(store)), seed=0, batch_size=batch_size, max_length=max_length, nsp=True, short_share=0.1
    )
    collator = Collator(store, tokenizer, seed=0, mask_rate=0.15, words=words, max_length=max_length)
    positions = stream.blocks(0)[0]
    began = time.process_time()
    stream.plan(0, positions)
    planning = (time.process_time() - began) / int(stream.document_tokens[positions].sum())
    planned = stream.batches(Cursor())
    rows = [next(planned)[0] for _ in range(batches)]
    collator[rows[0]]
    began = time.process_time()
    tokens = sum(collator[row]["num_tokens"] for row in rows)
    collating = (time.process_time() - began) / tokens
    return {"planning": planning, "collating": collating, "batch_seconds": collating * tokens / batches}


def loader_table(args: Any, files: list[Path], vocabulary: Path, work: Path) -> dict[str, list[dict[str, Any]]]:
    """Measure and print what loading costs a step."""
    contestants: dict[str, Callable[[], dict[str, Any]]] = {}
    for words in (False, True):
        for shape in LOADER_SHAPES:
            name = f"batch {shape[0]}, length {shape[1]}, mask {'words' if words else 'tokens'}"
            contestants[name] = partial(apart, measure_loader, files, vocabulary, shape, words, 300, work)
    found = alternate(args.rounds, contestants, lambda result: f"{1e3 * result['batch_seconds']:.2f} ms a batch")
    print(f"\nloading, CPU seconds a million tokens, medians of {args.rounds} rounds\n")
    rows = []
    for name, results in found.items():
        planning, collating = medians(results, "planning"), medians(results, "collating")
        milliseconds = 1e3 * medians(results, "batch_seconds")
        rows.append(
            [
                name, f"{planning * 1e6:.3f}", f"{collating * 1e6:.3f}", f"{milliseconds:.2f}",
                f"{LOADER_SHARE / (planning + collating):,.0f}",
            ]
        )  # fmt: skip
    table(["", "planning", "collating", "ms a batch", f"tokens/s at which it is {LOADER_SHARE:.0%}"], rows)
    return found


def sentences_of(files: list[Path], megabytes: float, vocabulary: Path, target: Path) -> dict[str, Any]:
    """Write the first documents with a sentence a line, and count minibert's tokens of them."""
    from minibert.corpus.sentences import split_sentences
    from minibert.tokenization.tokenizer import BertTokenizer

    documents = list(documents_of(files, megabytes))
    split = [[s for line in document for s in split_sentences(line, "auto")] for document in documents]
    write_documents(target, split)
    tokenizer = BertTokenizer.from_pretrained(vocabulary)
    tokens = sum(len(ids) for document in split for ids in tokenizer.encode(document))
    return {"bytes": sum(map(bytes_of, documents)), "tokens": tokens}


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--workers", type=int, default=cores(), help="processes [default: one for each core]")
    options.add_argument("--google-mb", type=float, default=3.0, help="MB of text for the pure Python peer")
    options.add_argument("--vocab-size", type=int, default=8000, help="entries of the vocabulary, trained before")
    options.add_argument("--vocab", type=Path, help="vocab.txt to take instead")
    options.add_argument("--words", action="store_true", help="minibert finds whole words too, which the others do not")
    options.add_argument("--loader", action="store_true", help="also measure what a training step waits for")
    args = options.parse_args()
    hardware = machine()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-data-") as folder:
        measure_all(args, hardware, Path(folder))


def measure_all(args: Any, hardware: dict[str, Any], work: Path) -> None:
    """Every contestant in turns, then the table."""
    from minibert.corpus.read import find_files

    files = find_files(args.corpus)
    size = sum(len(file.read_bytes()) for file in files)  # read: the files are in memory for all from now on
    plain = all(file.suffix == ".txt" for file in files)
    vocabulary = work / "vocabulary"
    vocabulary.mkdir()
    tokenizer = make_tokenizer(files, args.vocab_size, args.vocab)
    tokenizer.save_pretrained(vocabulary)
    part = sentences_of(files, args.google_mb, vocabulary, work / "sentences.txt")

    google = f"google, first {part['bytes'] / 1e6:.1f} MB"
    contestants: dict[str, Callable[[], dict[str, Any]]] = {}
    for workers in sorted({args.workers, 1}, reverse=True):
        name = f"minibert, {workers} worker{'s' if workers > 1 else ''}"
        contestants[name] = partial(apart, measure_minibert, files, vocabulary, workers, args.words, work)
    ours = next(iter(contestants))
    contestants[google] = partial(apart, measure_google, work / "sentences.txt", vocabulary)
    if plain:
        several = f"datasets.map, {args.workers} processes"
        contestants[several] = partial(apart, measure_datasets, files, vocabulary, args.workers, work)
        contestants["datasets.map, threads"] = partial(apart, measure_datasets, files, vocabulary, None, work)
    else:
        print("datasets.map is left out: it is measured on plain .txt files alone", file=sys.stderr)

    found = alternate(args.rounds, contestants, lambda result: f"{result['seconds']:.2f} s")
    for name, results in found.items():
        for result in results:
            result["mb_per_second"] = (part["bytes"] if name == google else size) / 1e6 / result["seconds"]
    ratios = {name: ratio(found[ours], results, "mb_per_second") for name, results in found.items() if name != ours}

    print(
        f"{size / 1e6:.1f} MB in {len(files)} file{'s' if len(files) > 1 else ''}, vocabulary of {len(tokenizer):,}, "
        f"medians of {args.rounds} rounds\n"
    )
    table(
        ["", "MB/s", "seconds", "sentences", "tokens", "Mtokens/s", f"{ours} are faster by"],
        [
            [
                name, f"{medians(results, 'mb_per_second'):.2f}", f"{medians(results, 'seconds'):.2f}",
                f"{results[0]['rows']:,}{' lines' if name.startswith('datasets') else ''}", f"{results[0]['tokens']:,}",
                f"{results[0]['tokens'] / 1e6 / medians(results, 'seconds'):.2f}",
                spread(ratios[name]) if name in ratios else "",
            ]
            for name, results in found.items()
        ],
    )  # fmt: skip
    print(
        f"\ngoogle's part has {part['tokens']:,} tokens by minibert, {found[google][0]['tokens']:,} by the peer; "
        f"{found[google][0]['instances']:,} instances were made"
    )
    loading = loader_table(args, files, vocabulary, work) if args.loader else {}
    report(
        args, hardware, versions("minibert", "datasets", "transformers", "tokenizers", "sentencex", "pyarrow"),
        {"bytes": size, "google_part": part, "vocabulary": len(tokenizer), "rounds": found, "ratios": ratios,
         "loader": loading},
    )  # fmt: skip


if __name__ == "__main__":
    run_main(main)
