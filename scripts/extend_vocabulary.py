#!/usr/bin/env python3
"""What a vocabulary that grows is worth: a checkpoint as it is, extended, and extended with random new rows.

    scripts/extend_vocabulary.py CHECKPOINT TEXT... [--add 2000] [--steps 60] [--seeds 3] [--recipe continue]

A tenth of the documents is held out; the tokens are chosen from the rest, on which all models then train as
`minibert pretrain --from` does: the same number of steps, of the same number of rows. Printed, before and after:

    loss per target     the MLM loss that pre-training reports; of one vocabulary only, for targets differ
    of new tokens       the same over those targets that were added
    nats per character  the same words masked whole for every model, each piece predicted after those before it; words
                        that either vocabulary makes [UNK] are not asked for, though they stand in the text

"random" is N(0, initializer_range) with bias 0; "random, own bias" has random embeddings and the bias that
`minibert vocab --extend` gives: the difference of the two says what the bias is worth.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TITLES = ("loss per target", "of new tokens", "nats per character")
NAMES = ("not extended", "extended", "random", "random, own bias")
ROW = 126  # tokens beside [CLS] and [SEP]
MASKED = 0.15  # of the words


def split_corpus(files: Sequence[Path], folder: Path) -> tuple[Path, Path]:
    """train.txt and held_out.txt: a document in ten, by its hash."""
    from hashlib import blake2b

    from minibert.corpus.read import read_documents

    train, held_out = folder / "train.txt", folder / "held_out.txt"
    with train.open("w", encoding="utf-8") as most, held_out.open("w", encoding="utf-8") as few:
        for lines in read_documents(files):
            text = "\n".join(lines)
            digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            (few if int.from_bytes(digest, "big") % 10 == 0 else most).write(text + "\n\n")
    return train, held_out


def randomised(folder: Path, ids: list[int], out: Path, *, seed: int, bias: bool) -> Path:
    """A copy of the extended checkpoint with random embeddings of the added tokens; bias: keep theirs, or 0."""
    import torch

    from minibert.checkpoint.folder import save_checkpoint
    from minibert.checkpoint.pretrained import load
    from minibert.checkpoint.rows import embeddings

    model, tokenizer = load(folder, "pretraining")
    generator = torch.Generator().manual_seed(seed)
    weight = embeddings(model).weight.data
    weight[ids] = torch.randn(len(ids), weight.shape[1], generator=generator) * model.config.initializer_range
    if not bias:
        model.cls.predictions.bias.data[ids] = 0.0
    save_checkpoint(model, tokenizer, out)
    return out


def target_loss(folder: Path, held_out: Path, ids: list[int], examples: int, cache: Path) -> tuple[float, float]:
    """The MLM loss over all held-out targets, and over those that are among ids."""
    import numpy as np
    import torch
    import torch.nn.functional as F
    from accelerate import Accelerator

    from minibert.checkpoint.pretrained import load
    from minibert.config import PretrainConfig
    from minibert.corpus.read import fingerprint
    from minibert.corpus.store import open_store
    from minibert.training.data import PretrainingData
    from minibert.training.pretraining import forward

    model, tokenizer = load(folder, "pretraining")
    store, _ = open_store(
        [held_out], tokenizer, cache / "stores", corpus=fingerprint([held_out]), encoding="utf-8", text_field="text",
        language="auto", words=False, workers=1, progress=lambda characters: None,
    )  # fmt: skip
    documents = np.arange(len(store.hashes))
    config = PretrainConfig(steps=1, eval_examples=examples)
    data = PretrainingData(store, tokenizer, config, documents, documents)
    added = torch.tensor(sorted(ids))
    sums = torch.zeros(4)
    with torch.inference_mode():
        for batch in data.held_out_batches(Accelerator(cpu=True)):
            losses = F.cross_entropy(forward(model, batch).prediction_logits, batch["labels"], reduction="none")
            new = torch.isin(batch["labels"], added)
            sums += torch.stack((losses.sum(), torch.tensor(len(losses)), losses[new].sum(), new.sum()))
    total, targets, of_new, number = sums.tolist()
    return total / targets, of_new / number if number else math.nan


def windows(held_out: Path, tokenizers: Sequence[Any], number: int) -> list[list[str]]:
    """Words of held-out text, in rows that every tokenizer can hold, `number` of them evenly over the text."""
    from minibert.tokenization.words import WordSplitter

    first = tokenizers[0]
    splitter = WordSplitter(
        lowercase=first.lowercase, strip_accents=first.strip_accents, chinese_chars=first.chinese_chars
    )
    rows: list[list[str]] = []
    for document in held_out.read_text(encoding="utf-8").split("\n\n"):
        words = splitter.split(document)
        lengths = [max(len(ids) for ids in each) for each in zip(*(t.encode(words) for t in tokenizers), strict=True)]
        row: list[str] = []
        length = 0
        for word, tokens in zip(words, lengths, strict=True):
            if length + tokens > ROW:
                rows.append(row)
                row, length = [], 0
            row.append(word)
            length += tokens
        if len(row) > 20:
            rows.append(row)
    return rows[:: max(1, len(rows) // number)][:number]


def chosen_words(rows: list[list[str]], tokenizers: Sequence[Any]) -> list[list[int]]:
    """For each row the places of the words that are masked: the same for every model."""
    draw = random.Random(7)
    chosen = []
    for row in rows:
        encoded = [tokenizer.encode(row) for tokenizer in tokenizers]
        fair = [
            i for i in range(len(row))
            if all(t.unk_token_id not in ids[i] for t, ids in zip(tokenizers, encoded, strict=True))
        ]  # fmt: skip
        chosen.append(draw.sample(fair, min(len(fair), max(1, round(MASKED * len(row))))))
    return chosen


def passes(pieces: list[list[int]], places: list[int], tokenizer: Any) -> Iterator[tuple[list[int], dict[int, int]]]:
    """Inputs of one row, and what is to be predicted where: first all first pieces of the masked words, then the second
    ones with the first shown, and so on; words that have no such piece stay masked."""
    for turn in range(max((len(pieces[i]) for i in places), default=0)):
        ids, targets = [tokenizer.cls_token_id], {}
        for i, word in enumerate(pieces):
            if i in places:
                shown = turn if len(word) > turn else 0
                if len(word) > turn:
                    targets[len(ids) + turn] = word[turn]
                ids += word[:shown] + [tokenizer.mask_token_id] * (len(word) - shown)
            else:
                ids += word
        yield [*ids, tokenizer.sep_token_id], targets


def character_loss(folder: Path, rows: list[list[str]], chosen: list[list[int]]) -> float:
    """Nats per character of the chosen words."""
    import torch
    import torch.nn.functional as F

    from minibert.checkpoint.pretrained import load

    model, tokenizer = load(folder, "pretraining")
    jobs = [
        job
        for row, places in zip(rows, chosen, strict=True)
        for job in passes(tokenizer.encode(row), places, tokenizer)
    ]  # fmt: skip
    jobs.sort(key=lambda job: len(job[0]))
    total = 0.0
    with torch.inference_mode():
        for start in range(0, len(jobs), 32):
            batch = jobs[start : start + 32]
            width = max(len(ids) for ids, _ in batch)
            ids = torch.full((len(batch), width), tokenizer.pad_token_id)
            keep = torch.zeros_like(ids)
            for i, (row, _) in enumerate(batch):
                ids[i, : len(row)] = torch.tensor(row)
                keep[i, : len(row)] = 1
            places = torch.tensor([i * width + place for i, (_, targets) in enumerate(batch) for place in targets])
            labels = torch.tensor([label for _, targets in batch for label in targets.values()])
            logits = model(ids, keep, masked_positions=places).prediction_logits
            total += F.cross_entropy(logits, labels, reduction="sum").item()
    return total / sum(len(row[i]) for row, places in zip(rows, chosen, strict=True) for i in places)


def train(start: Path, text: Path, out: Path, args: argparse.Namespace, seed: int, cache: Path) -> Path:
    """`minibert pretrain TEXT --from START --out OUT` for a few steps."""
    from minibert.config import PretrainConfig, load_recipe, resolve
    from minibert.console import Console
    from minibert.pretrain import pretrain

    flags = {"steps": args.steps, "seed": seed, "eval_examples": 16, "save_every": 0, "eval_every": 0}
    config = resolve(PretrainConfig, load_recipe(args.recipe, "pretrain"), ("command line", flags))
    pretrain([text], out, config, start_from=start, cache=cache, console=Console(silent=True))
    return out


def spread(values: list[float]) -> str:
    """Mean, and deviation where they differ; a dash where nothing was measured."""
    if any(math.isnan(value) for value in values):
        return "–"
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(set(values)) > 1 else "")


def main() -> None:
    """Extend, measure, train, measure; print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a model with an MLM head, and its tokenizer")
    parser.add_argument("text", nargs="+", help="text of the domain")
    parser.add_argument("--add", type=int, default=2000, help="tokens to add")
    parser.add_argument("--steps", type=int, default=60, help="steps of training; 0: none")
    parser.add_argument("--seeds", type=int, default=1, help="of the random rows and of training")
    parser.add_argument("--recipe", default="continue", help="what trains")
    parser.add_argument("--examples", type=int, default=192, help="held-out rows")
    args = parser.parse_args()
    from minibert.console import Console
    from minibert.corpus.read import find_files
    from minibert.errors import UserError
    from minibert.extend import extend_checkpoint
    from minibert.tokenization.tokenizer import BertTokenizer

    with tempfile.TemporaryDirectory(prefix="minibert-extend-") as place:
        folder = Path(place)
        try:
            text, held_out = split_corpus(find_files(args.text), folder)
            done = extend_checkpoint(args.checkpoint, [text], folder / "extended", add=args.add, console=Console())
        except UserError as error:
            sys.exit(f"extend_vocabulary: {error}")
        tokenizers = [BertTokenizer.from_pretrained(args.checkpoint), done.tokenizer]
        rows = windows(held_out, tokenizers, args.examples)
        chosen = chosen_words(rows, tokenizers)
        found: dict[str, list[list[float]]] = {name: [] for name in NAMES}
        for seed in range(args.seeds):
            starts = [
                args.checkpoint, folder / "extended",
                *(randomised(folder / "extended", done.ids, folder / f"r{seed}{bias}", seed=seed, bias=bias)
                  for bias in (False, True)),
            ]  # fmt: skip
            for i, (name, start) in enumerate(zip(NAMES, starts, strict=True)):
                figures: list[float] = []
                ends = [start]
                if args.steps:
                    ends.append(train(start, text, folder / f"run{seed}-{i}", args, seed, folder))
                for model in ends:
                    figures += target_loss(model, held_out, done.ids if i else [], args.examples, folder)
                    figures.append(character_loss(model, rows, chosen))
                found[name].append(figures)
                print(f"seed {seed}, {name}: {' '.join(f'{x:.3f}' for x in figures)}", file=sys.stderr, flush=True)
        columns = [f"{title}, {when}" for when in ("step 0", "trained") for title in TITLES][: len(figures)]
        masked = sum(map(len, chosen))
        print(f"{masked:,} words masked in {len(rows):,} rows; {args.seeds} seed(s), {args.steps} steps of training\n")
        print(f"| | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
        for name, lines in found.items():
            print(f"| {name} | " + " | ".join(spread(list(column)) for column in zip(*lines, strict=True)) + " |")


if __name__ == "__main__":
    main()
