#!/usr/bin/env python3
"""Examples a second of fine-tuning and of prediction, beside transformers on the same machine, data and checkpoint.

    scripts/bench_finetune.py --model CHECKPOINT [--cls FILE[:LENGTH] ...] [--ner FILE] [--qa FILE] [--rounds 3]

Training, a step lasting from the end of the one before, loading and padding included, with dropout .1 and AdamW:
  minibert                 the loop that `minibert finetune` runs
  Trainer, padded          every row padded to max_length: run_glue's and run_qa's way, run_ner's with
                           --pad_to_max_length
  Trainer, batch           padded to the batch's longest, in random order: run_ner's way (for ner only)
  Trainer, grouped         padded to the batch's longest in eights, rows of like length together (group_by_length)
A round takes --steps batches of a pass over the file, evenly from the shortest to the longest, in the order that each
side's own sampler made for the whole pass: so few steps would else say more of the batches drawn than of the speed.
Rows are read and encoded before; how long that took is given beside, for both sides.

Prediction, raw text to answers, tokenisation included, on the model that minibert has just trained:
  minibert                 Predictor.predict in float32, batches of 32; in bfloat16 where the hardware has it; and in
                           int8 on a CPU
  pipeline                 transformers.pipeline in float32, at its default of one text at a time, and at the fastest of
                           batches of 8, 16 and 32. For qa transformers has none since version 5: a plain loop with its
                           tokenizer and model instead, see _trainer_peers.py

Examples are the file's records; where they take several rows (qa), both sides' rows are counted by their own number.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _bench_common import (
    ROOT,
    alternate,
    cores,
    give_freed_memory_back,
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
from _trainer_peers import collator, peer_model, peer_rows, peer_tokenizer, predictor, quiet, step_ends

OURS, PADDED, BATCH, GROUPED = "minibert", "Trainer, padded", "Trainer, batch", "Trainer, grouped"
LENGTHS = {"cls": 128, "ner": 128, "qa": 384}
DEFAULTS = ("data/zh/reviews/train.csv", "data/en/bbc/train.csv")
FIGURE = "examples_per_second"


@dataclass
class Given:
    """Batches in a given order: a stream for load_steps."""

    rows: np.ndarray  # (steps, batch_size)
    batch_size: int

    def batches(self, cursor: Any) -> Iterator[tuple[np.ndarray, Any]]:
        """All of them, each with a cursor that nobody looks at."""
        for batch in self.rows:
            yield batch, cursor


class DataSet:
    """One labelled file, read once, and encoded by both sides."""

    def __init__(self, args: argparse.Namespace, kind: str, path: Path, length: int, work: Path) -> None:
        from minibert.tasks import find_tasks
        from minibert.tokenization.tokenizer import BertTokenizer

        self.args, self.path, self.work = args, path, work
        self.name = f"{kind}: {path.parent.name}/{path.name}, {length} tokens"
        work.mkdir()
        self.tokenizer, self.peer_tokenizer = BertTokenizer.from_pretrained(args.model), peer_tokenizer(args.model)
        cls = find_tasks()[kind]
        task = cls(cls.Config(max_length=length))
        self.examples = evenly(task.read(path, gold=True, train=True).examples, args.examples)
        self.task = task.settled(self.examples)
        self.task.encode(self.examples[:8], self.tokenizer, gold=True)  # what is made once is made here
        peer_rows(self.task, self.examples[:8], self.peer_tokenizer)
        began = time.perf_counter()
        features = self.task.encode(self.examples, self.tokenizer, gold=True).features
        encoded = time.perf_counter()
        self.rows = peer_rows(self.task, self.examples, self.peer_tokenizer)
        ended = time.perf_counter()
        self.features = [feature for feature in features if feature.target is not None]
        seconds = {OURS: encoded - began, "transformers": ended - encoded}
        self.encoding = {side: len(self.examples) / took for side, took in seconds.items()}
        wanted = args.batch_size or (12 if kind == "qa" else 32 if length <= 128 else 16)
        self.batch_size = min(wanted, len(self.rows), len(self.features))
        self.model: Any = None  # that was trained last

    def chosen(self, order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(skip + steps, batch_size) row numbers of a pass in this order: its longest batch and middle ones to warm up,
        then the middle ones of as many equal parts of its batches as there are steps, by the longest row in them.
        """
        args, size = self.args, self.batch_size
        batches = order[: len(order) // size * size].reshape(-1, size)
        by_length = batches[np.argsort(lengths[batches].max(1), kind="stable")]
        places = (np.arange(args.steps) + 0.5) * len(by_length) / args.steps
        counted = np.random.default_rng(0).permutation(by_length[places.astype(int)])
        warm = [-1, *[len(by_length) // 2] * (args.skip - 1)]
        return np.concatenate([by_length[warm], counted])

    # ---- training

    def train_minibert(self, precision: str, seeds: Iterator[int]) -> dict[str, Any]:
        """A round of minibert's training."""
        import torch

        from minibert.checkpoint.config import load_config
        from minibert.checkpoint.folder import load_model
        from minibert.corpus.batches import Cursor, load_steps
        from minibert.finetune.run import HEADS, task_shape
        from minibert.training.devices import make_accelerator
        from minibert.training.loop import train_steps
        from minibert.training.optim import StepSchedule, build_optimizers
        from minibert.training.rows import FILLER, RowCollator, RowStream

        task, config = self.task, self.task.config
        lengths = np.array([len(feature.ids) for feature in self.features])
        order = np.concatenate(RowStream(lengths.tolist(), seed=next(seeds), batch_size=self.batch_size).epoch(0))
        batches = self.chosen(order[order != FILLER], lengths)
        accelerator = make_accelerator(
            precision=precision, tracker="none", out=self.work, batch_size=self.batch_size
        )  # fmt: skip
        shape = task_shape(load_config(self.args.model), task)
        model, _ = load_model(task.model_class(), self.args.model, config=shape, seed=0, leave_out=HEADS)
        model.train()
        network = accelerator.prepare(model)
        optimizers = build_optimizers(
            model, name="adamw", lr=config.lr, muon_lr=0.0, weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
        )  # fmt: skip
        collate = RowCollator(self.features, None, lambda rows: task.batch(rows, self.tokenizer.pad_token_id))
        schedule = StepSchedule(len(batches))
        training = train_steps(
            accelerator, network, optimizers,
            load_steps(Given(batches, self.batch_size), collate, Cursor(), micro_batch_size=self.batch_size), schedule,
            lambda module, batch: task.losses(task.forward(module, batch), batch), first_step=0, warmup=config.warmup,
            clip=config.clip, seed=0,
        )  # fmt: skip
        ends = []
        for _ in training:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
        self.model = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        eights = -(-lengths[batches[self.args.skip :]].max(1) // 8) * 8
        computed = float(np.minimum(eights, config.max_length).mean())
        return self.result(ends, len(self.features), computed)

    def train_peer(self, layout: str, precision: str, seeds: Iterator[int]) -> dict[str, Any]:
        """A round of transformers' Trainer."""
        import torch
        from transformers.trainer_pt_utils import get_length_grouped_indices

        lengths = np.array([len(row["input_ids"]) for row in self.rows])
        random = torch.Generator().manual_seed(next(seeds))
        if layout == GROUPED:
            order = np.array(get_length_grouped_indices(lengths.tolist(), self.batch_size, generator=random))
        else:
            order = torch.randperm(len(lengths), generator=random).numpy()
        batches = self.chosen(order, lengths)
        config = self.task.config
        give_freed_memory_back()
        ends = step_ends(
            peer_model(self.task, self.args.model), [self.rows[i] for i in batches.reshape(-1)],
            collator(self.task, self.peer_tokenizer, to_max=layout == PADDED), self.work, precision=precision,
            batch_size=self.batch_size, learning_rate=config.lr, weight_decay=config.weight_decay,
            warmup_steps=config.warmup,
        )  # fmt: skip
        assert len(ends) == len(batches), "train() made other steps than it was told"
        eights = -(-lengths[batches[self.args.skip :]].max(1) // 8) * 8
        return self.result(ends, len(self.rows), config.max_length if layout == PADDED else float(eights.mean()))

    def result(self, ends: Sequence[float], num_rows: int, computed: float) -> dict[str, Any]:
        """A round's figures. num_rows: that the examples have become; computed: tokens of a row with its padding."""
        seconds = ends[-1] - ends[self.args.skip - 1]
        done = self.args.steps * self.batch_size * len(self.examples) / num_rows
        return {FIGURE: done / seconds, "seconds": seconds, "examples": done, "tokens_per_row": computed}

    # ---- prediction

    def save(self) -> Path:
        """The model that was trained last, as a folder that both sides open."""
        from minibert.checkpoint.folder import save_checkpoint

        folder = self.work / "model"
        save_checkpoint(self.model, self.tokenizer, folder)
        return folder

    def inputs(self) -> tuple[list[Any], list[Any]]:
        """The same raw inputs for minibert (as minibert.pipeline takes them, made to examples) and transformers."""
        chosen = evenly(self.examples, self.args.predictions)
        if self.task.name == "qa":
            pairs = [(example.question, example.context) for example in chosen]
            return self.task.from_python([{"question": q, "context": c} for q, c in pairs]), pairs
        texts = [" ".join(e.tokens) if self.task.name == "ner" else e.text for e in chosen]
        return self.task.from_python(texts), texts


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """So many of the items, from all over the list; all of them where there are no more."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def timed(predict: Callable[[], Any], examples: int) -> dict[str, Any]:
    """Call and count."""
    began = time.perf_counter()
    found = predict()
    seconds = time.perf_counter() - began
    assert len(found) == examples, "every input has one prediction"
    return {FIGURE: examples / seconds, "seconds": seconds, "examples": examples}


def show(result: dict[str, Any]) -> str:
    """A result while waiting."""
    return f"{result[FIGURE]:,.1f} examples/s"


# ---- the two contests


def measure_training(data: DataSet, args: argparse.Namespace) -> dict[str, Any]:
    """All contestants in turns: their rounds, and minibert's ratio to each peer of the same precision."""
    layouts = [PADDED, *([BATCH] if data.task.name == "ner" else []), GROUPED]
    contestants: dict[str, Callable[[], dict[str, Any]]] = {}
    ours_of = {}
    for precision in args.precision:
        ours = f"{OURS}, {precision}"
        contestants[ours] = partial(data.train_minibert, precision, iter(range(args.rounds)))
        for layout in layouts:
            contestants[f"{layout}, {precision}"] = partial(
                data.train_peer, layout, precision, iter(range(args.rounds))
            )
            ours_of[f"{layout}, {precision}"] = ours
    found = alternate(args.rounds, contestants, show)
    return {
        "rounds": found,
        "ratios": {name: {ours: ratio(found[ours], found[name], FIGURE)} for name, ours in ours_of.items()},
    }


def measure_prediction(data: DataSet, args: argparse.Namespace) -> dict[str, Any]:
    """The same for prediction; ratios are of minibert in float32, in bfloat16 where the hardware has it, and in int8
    on a CPU.
    """
    import torch

    from minibert.predict import Predictor
    from minibert.training.devices import has_bf16

    folder = data.save()
    examples, inputs = data.inputs()
    ours = {
        f"{OURS}, {precision}": Predictor(folder, precision=precision)
        for precision, there in (("fp32", True), ("bf16", has_bf16()), ("int8", not torch.cuda.is_available()))
        if there
    }
    peer = predictor(data.task, folder)
    few = min(len(inputs), 64)
    alike = [same(data.task.name, model.predict(examples[:few]), peer(inputs[:few], 8)) for model in ours.values()]
    speeds = {size: timed(partial(peer, inputs[:few], size), few)[FIGURE] for size in (8, 16, 32)}
    best = max(speeds, key=lambda size: speeds[size])
    what = "plain loop" if data.task.name == "qa" else "pipeline"
    peers = {f"{what}, batch 1, fp32": 1, f"{what}, batch {best}, fp32": best}
    contestants: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(timed, partial(model.predict, examples, batch_size=32), len(examples))
        for name, model in ours.items()
    }
    contestants |= {name: partial(timed, partial(peer, inputs, size), len(inputs)) for name, size in peers.items()}
    found = alternate(args.rounds, contestants, show)
    return {
        "rounds": found, "batch_speeds": speeds, "same": dict(zip(ours, alike, strict=True)),
        "ratios": {name: {mine: ratio(found[mine], found[name], FIGURE) for mine in ours} for name in peers},
    }  # fmt: skip


def same(kind: str, ours: Sequence[Any], theirs: Sequence[Any]) -> float | None:
    """Share of inputs with the same label or answer; none for ner, where a pipeline has its own way to join pieces."""
    if kind == "ner":
        return None
    theirs = theirs if kind == "qa" else [item["label"] for item in theirs]
    key = "answer" if kind == "qa" else "label"
    return float(np.mean([mine[key] == other for mine, other in zip(ours, theirs, strict=True)]))


# ---- command line


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--model", required=True, type=Path, help="a checkpoint that both sides open")
    options.add_argument(
        "--cls", nargs="+", metavar="FILE[:LENGTH]",
        help="labelled texts [default, without --ner and --qa: what scripts/real_data.py brings]",
    )  # fmt: skip
    options.add_argument("--ner", nargs="+", metavar="FILE[:LENGTH]", help="tagged sentences")
    options.add_argument("--qa", nargs="+", metavar="FILE[:LENGTH]", help="questions")
    options.add_argument("--examples", type=int, default=6400, help="at most so many of a file, evenly [default: 6400]")
    options.add_argument("--predictions", type=int, default=200, help="of which so many are predicted [default: 200]")
    options.add_argument("--batch-size", type=int, default=0, help="rows [default: 32, over 128 tokens 16, qa 12]")
    options.add_argument("--precision", nargs="+", choices=["bf16", "fp32"], default=["bf16"], help="of training")
    options.add_argument("--steps", type=int, default=5, help="counted steps in a round [default: 5]")
    options.add_argument("--skip", type=int, default=2, help="steps before them [default: 2]")
    options.add_argument("--threads", type=int, default=cores(), help="torch's threads [default: one for each core]")
    options.add_argument("--only", choices=["training", "prediction"], help="[default: both]")
    args = options.parse_args()
    for name in ("rounds", "examples", "predictions", "steps", "skip"):
        if getattr(args, name) < 1:
            options.error(f"--{name} is 1 or more")
    given = [(kind, *split_length(item, LENGTHS[kind])) for kind in LENGTHS for item in getattr(args, kind) or ()]
    files = given or [("cls", ROOT / name, LENGTHS["cls"]) for name in DEFAULTS if (ROOT / name).is_file()]
    if missing := [str(path) for _, path, _ in files if not path.is_file()]:
        options.error(f"no such file: {', '.join(missing)}")
    if not files:
        options.error("no data: give --cls, --ner or --qa, or bring some with scripts/real_data.py en zh")
    hardware = machine()
    quiet()
    import torch

    from minibert.errors import UserError

    torch.set_num_threads(args.threads)
    found = {}
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-finetune-") as folder:
        for number, (kind, path, length) in enumerate(files):
            try:
                data = DataSet(args, kind, path, length, Path(folder) / str(number))
            except UserError as error:
                sys.exit(f"bench_finetune: {error}")
            found[data.name] = measure(data, args)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{args.threads} threads"
    print(f"\n{args.model.name}, {device}; medians of {args.rounds} rounds")
    report(args, hardware, versions("minibert", "transformers", "torch", "accelerate"), {"data": found})


def split_length(item: str, length: int) -> tuple[Path, int]:
    """FILE or FILE:LENGTH."""
    path, _, number = item.rpartition(":")
    return (Path(path), int(number)) if path and number.isdecimal() else (Path(item), length)


def measure(data: DataSet, args: argparse.Namespace) -> dict[str, Any]:
    """Both contests on one data set, with their tables."""
    print(f"{data.name}", flush=True)
    if args.only == "prediction":
        data.train_minibert(args.precision[0], iter([0]))  # a model to predict with
    found: dict[str, Any] = {"examples": len(data.examples), "batch_size": data.batch_size, "encoding": data.encoding}
    if args.only != "prediction":
        found["training"] = measure_training(data, args)
        print_training(data, args, found["training"])
    if args.only != "training":
        found["prediction"] = measure_prediction(data, args)
        print_prediction(data, found["prediction"])
    return found


def against(found: dict[str, Any], name: str, columns: int) -> list[str]:
    """minibert's ratios to one of the lines, as cells; empty ones on minibert's own."""
    return [*map(spread, found["ratios"][name].values())] if name in found["ratios"] else [""] * columns


def print_training(data: DataSet, args: argparse.Namespace, found: dict[str, Any]) -> None:
    """The table of one data set."""
    print(
        f"\ntraining: {len(data.examples):,} examples, rows: {len(data.features):,} and {len(data.rows):,} of "
        f"transformers; batches of {data.batch_size}, {args.steps} steps a round"
    )
    table(
        ["", "examples/s", "ms a step", "tokens a row", "minibert against it"],
        [
            [
                name, f"{medians(results, FIGURE):,.1f}", f"{1000 * medians(results, 'seconds') / args.steps:,.0f}",
                f"{medians(results, 'tokens_per_row'):,.0f}", *against(found, name, 1),
            ]
            for name, results in found["rounds"].items()
        ],
    )  # fmt: skip
    speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in data.encoding.items())
    print(f"encoding before, once, in examples/s (not in the figures above): {speeds}\n", flush=True)


def print_prediction(data: DataSet, found: dict[str, Any]) -> None:
    """The table of one data set."""
    ours = list(found["same"])
    print("prediction:")
    table(
        ["", "examples/s", *(f"{name} against it" for name in ours)],
        [
            [name, f"{medians(results, FIGURE):,.1f}", *against(found, name, len(ours))]
            for name, results in found["rounds"].items()
        ],
    )
    alike = [f"{name} {share:.1%}" for name, share in found["same"].items() if share is not None]
    what = "answers" if data.task.name == "qa" else "labels"
    print(f"the same {what} as transformers: {'; '.join(alike)}\n" if alike else "", flush=True)


if __name__ == "__main__":
    run_main(main)
