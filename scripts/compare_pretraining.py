#!/usr/bin/env python3
"""Held-out loss at equal numbers of tokens: minibert beside transformers' Trainer, from the same initial weights.

    scripts/compare_pretraining.py CORPUS... --runs DIR [--settings quick classic] [--tokens 1e6] [--seeds 0 1 2]
                                   [--only minibert] [--json FILE] [--plot FILE.svg]

  minibert           its own loop, examples, masks and optimizers, as `minibert pretrain --no-nsp` runs them
  Trainer            BertForMaskedLM and DataCollatorForLanguageModeling on blocks of the same training documents, full
                     to the last token
  Trainer, examples  the same on minibert's examples: whole sentences of one document, some of them short

  quick              the recipe of that name. The Trainer is given its Muon + AdamW and its schedule
  classic            AdamW 1e-3, N(0, .02), dropout .1, mask rate .15. The Trainer has its own optimizer and schedule

All have the same vocabulary, text, rates, precision and batch size, and are measured by the same code on the same
held-out examples with the same masks. Tokens are real ones, [CLS] and [SEP] included and padding not. Each training
writes a file of its own into DIR and is not done again, so a command that was stopped goes on, and two may share the
work with --only. Where DIR holds everything, nothing but the table is made. --plot needs matplotlib.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _bench_common import (
    apart,
    cores,
    machine,
    make_tokenizer,
    parser,
    report,
    run_main,
    table,
    versions,
)
from _trainer_peers import quiet

OURS, BLOCKS, EXAMPLES = "minibert", "Trainer", "Trainer, examples"
SIDES = (OURS, BLOCKS, EXAMPLES)
SETTINGS = ("quick", "classic")
Measured = dict[str, Any]  # tokens, nominal, seconds, and what pretraining.measure returns


class Curve:
    """Measures a training where it comes nearest to each of some numbers of tokens."""

    def __init__(self, marks: Sequence[float], measure: Callable[[], dict[str, float]]) -> None:
        self.marks, self.measure = list(marks), measure
        self.points: list[Measured] = []
        self.before = self.seconds = 0.0
        self.clock = time.perf_counter()

    def step(self, tokens: int, *, last: bool = False) -> None:
        """To be told of each optimizer step: the tokens seen until then. Measuring does not count as training."""
        self.seconds += time.perf_counter() - self.clock
        half, self.before = (tokens - self.before) / 2, tokens
        if self.marks and (last or tokens + half >= self.marks[0]):
            found = {"nominal": self.marks.pop(0), "tokens": tokens, "seconds": self.seconds, **self.measure()}
            self.points.append(found)
            print(f"  {tokens:,} tokens: held-out loss {found['mlm_loss']:.3f}", file=sys.stderr, flush=True)
        self.clock = time.perf_counter()


def config_of(args: Any, setting: str, seed: int, steps: int = 1) -> Any:
    """The settings of a minibert run."""
    from minibert.config import PretrainConfig, load_recipe, resolve

    classic = {
        "dropout": 0.1, "attention_dropout": 0.1, "init": "normal", "optimizer": "adamw", "lr": 1e-3, "mask_rate": 0.15
    }  # fmt: skip
    recipe = load_recipe("quick", "pretrain") if setting == "quick" else ("classic", classic)
    size = {
        "vocab_size": args.vocab_size, "layers": args.layers, "hidden_size": args.hidden_size, "heads": args.heads,
        "max_length": args.length, "batch_size": args.batch_size, "micro_batch_size": args.batch_size,
        "precision": args.precision,
    }  # fmt: skip
    own = {
        "minutes": None, "steps": steps, "seed": seed, "nsp": False, "eval_share": 0.03, "eval_examples": 4096, **size
    }  # fmt: skip
    return resolve(PretrainConfig, recipe, ("options", own))


def prepare(args: Any) -> tuple[Any, Any]:
    """The tokenizer and the token store, made in DIR where they are not there yet."""
    from minibert.atomic import write_whole
    from minibert.corpus.read import find_files, fingerprint
    from minibert.corpus.store import open_store
    from minibert.tokenization.tokenizer import BertTokenizer

    files = find_files(args.corpus)
    folder = args.runs / "tokenizer"
    if not folder.is_dir():
        made = make_tokenizer(files, args.vocab_size, args.vocab)
        write_whole(folder, made.save_pretrained)
    tokenizer = BertTokenizer.from_pretrained(folder)
    return tokenizer, open_store(files, tokenizer, args.runs / "stores", corpus=fingerprint(files))[0]


def train(args: Any, setting: str, side: str, seed: int) -> list[Measured]:
    """One training, measured on its way."""
    import torch
    from accelerate import Accelerator

    from minibert.console import Console
    from minibert.corpus.batches import A_LENGTH, Cursor
    from minibert.corpus.pairs import split_documents
    from minibert.training.data import PretrainingData
    from minibert.training.pretraining import log_unigram, measure
    from minibert.training.setup import make_model

    quiet()
    torch.set_num_threads(args.threads)
    tokenizer, store = prepare(args)
    config = config_of(args, setting, seed)
    pool, held_out = split_documents(store.hashes, config.eval_share)
    counts = store.token_counts(len(tokenizer), without=held_out)
    model = make_model(config, tokenizer, counts, None, Console(silent=True))
    unigram = log_unigram(counts)
    marks = [args.every * i for i in range(1, math.ceil(args.tokens / args.every))] + [args.tokens]

    # as many steps of minibert's stream as come nearest to the number of tokens
    examples: list[Any] = []
    seen = 0
    for rows, _ in PretrainingData(store, tokenizer, config, pool, held_out).stream().batches(Cursor()):
        size = int(rows[:, A_LENGTH].sum()) + 2 * len(rows)
        if seen + size / 2 >= args.tokens:
            break
        seen += size
        examples.append(rows)
    config = config_of(args, setting, seed, steps=len(examples))
    data = PretrainingData(store, tokenizer, config, pool, held_out)

    def judge(accelerator: Any) -> dict[str, float]:
        model.to(accelerator.device)
        return measure(accelerator, model, data.held_out_batches(accelerator), unigram, tokenizer.mask_token_id)

    if side == OURS:
        accelerator = Accelerator(mixed_precision=precision_of(args), cpu=args.cpu)
        first = judge(accelerator)
        curve = Curve(marks, lambda: judge(accelerator))
        run_minibert(accelerator, config, data, model, curve)
    else:
        if side == EXAMPLES:
            rows = [store.ids(start, n).tolist() for batch in examples for start, n in batch[:, [3, 4]].tolist()]
            steps = len(examples)
        else:
            rows = blocks_of(store, pool, args.length - 2)
            steps = round(args.tokens / (args.batch_size * args.length))
        with tempfile.TemporaryDirectory(prefix="compare-pretraining-") as folder:
            trainer, theirs = make_trainer(args, config, steps, rows, model, tokenizer, Path(folder), setting)
            first = judge(trainer.accelerator)

            def judge_theirs() -> dict[str, float]:
                left = model.load_state_dict(theirs.state_dict(), strict=False)
                assert not left.unexpected_keys, left
                assert all("pooler" in key or "seq_relationship" in key for key in left.missing_keys), left
                return judge(trainer.accelerator)

            assert abs(judge_theirs()["mlm_loss"] - first["mlm_loss"]) < 1e-6, "other initial weights"
            curve = Curve(marks, judge_theirs)
            run_trainer(trainer, curve, steps)
    return [{"nominal": 0, "tokens": 0, "seconds": 0.0, **first}, *curve.points]


def precision_of(args: Any) -> str:
    """What accelerate calls the precision."""
    from minibert.training.devices import resolve_precision

    return resolve_precision(args.precision)


def run_minibert(accelerator: Any, config: Any, data: Any, model: Any, curve: Curve) -> None:
    """minibert's own training."""
    from minibert.corpus.batches import Cursor
    from minibert.training.optim import StepSchedule, build_optimizers

    optimizers = build_optimizers(
        model, name=config.optimizer, lr=config.lr, muon_lr=config.muon_lr, weight_decay=config.weight_decay,
        adam_beta2=config.adam_beta2, muon_decay=config.muon_decay,
    )  # fmt: skip
    model.train()
    network = accelerator.prepare(model)
    place = {"step": 0, "phase": 0, "cursor": Cursor().state(), "elapsed": 0.0, "tokens": 0}
    for step in data.steps(accelerator, network, optimizers, StepSchedule(config.steps), place):
        curve.step(place["tokens"], last=step.step == config.steps)


def blocks_of(store: Any, pool: Any, room: int) -> list[list[int]]:
    """The training documents one behind the other, cut into blocks; what is left at the end is dropped."""
    import numpy as np

    flat = np.concatenate([store.ids(*store.document_span(int(document))) for document in pool])
    return flat[: len(flat) // room * room].reshape(-1, room).tolist()


def make_trainer(
    args: Any, config: Any, steps: int, rows: list[list[int]], model: Any, tokenizer: Any, work: Path, setting: str
) -> tuple[Any, Any]:
    """The Trainer and its model, which begins with the weights of `model`."""
    import torch
    import transformers

    from minibert.checkpoint.folder import save_checkpoint
    from minibert.training.optim import Progress, build_optimizers, rate_at

    save_checkpoint(model, tokenizer, work / "initial")
    theirs = transformers.BertForMaskedLM.from_pretrained(work / "initial", dtype=torch.float32)
    peer = transformers.AutoTokenizer.from_pretrained(work / "initial")
    cls, sep = peer.cls_token_id, peer.sep_token_id
    data = [
        {
            "input_ids": [cls, *row, sep], "attention_mask": [1] * (len(row) + 2),
            "special_tokens_mask": [1, *[0] * len(row), 1],
        }
        for row in rows
    ]  # fmt: skip
    own: dict[str, Any] = {}
    if setting == "quick":
        optimizer = together(
            build_optimizers(
                theirs,
                name=config.optimizer,
                lr=config.lr,
                muon_lr=config.muon_lr,
                weight_decay=config.weight_decay,
                adam_beta2=config.adam_beta2,
                muon_decay=config.muon_decay,
            )
        )

        def rate(step: int) -> float:
            return rate_at(Progress(step / steps, (step + 1) / steps), config.warmup)

        own["optimizers"] = (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate))
    settings = transformers.TrainingArguments(
        output_dir=str(work), per_device_train_batch_size=config.batch_size, max_steps=steps, seed=config.seed,
        bf16=precision_of(args) == "bf16", use_cpu=args.cpu or not torch.cuda.is_available(), save_strategy="no",
        report_to=[], disable_tqdm=True, logging_strategy="no", include_num_input_tokens_seen="non_padding",
        learning_rate=config.lr, adam_beta2=config.adam_beta2, adam_epsilon=1e-6, weight_decay=config.weight_decay,
        warmup_steps=config.warmup, lr_scheduler_type="linear", max_grad_norm=config.clip,
    )  # fmt: skip
    trainer = transformers.Trainer(
        theirs, settings, train_dataset=data,
        data_collator=transformers.DataCollatorForLanguageModeling(peer, mlm_probability=config.mask_rate), **own,
    )  # fmt: skip
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, theirs


def together(optimizers: Any) -> Any:
    """Several optimizers as one, which is what the Trainer takes."""
    import torch

    class Together(torch.optim.Optimizer):
        """Shares its groups with the optimizers inside, so that a scheduler reaches them."""

        def __init__(self) -> None:
            super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})

        def step(self, closure: Any = None) -> None:
            for optimizer in optimizers:
                optimizer.step()

        def state_dict(self) -> dict[str, Any]:
            return {"state": {}, "param_groups": []}

        def load_state_dict(self, _: Any) -> None:
            """accelerate hands back what state_dict gave, to move it to a device: here everything is in place."""

    return Together()


def run_trainer(trainer: Any, curve: Curve, steps: int) -> None:
    """The Trainer's own training."""
    import transformers

    class Watch(transformers.TrainerCallback):
        """Tells the curve of each step."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            curve.clock = time.perf_counter()

        def on_step_end(self, _: Any, state: Any, __: Any, **___: Any) -> None:
            curve.step(int(state.num_input_tokens_seen), last=state.global_step == steps)

    trainer.add_callback(Watch())
    trainer.train()


# ---- what comes of it


def compare(
    ours: Sequence[Sequence[Measured]], theirs: Sequence[Sequence[Measured]], key: str = "mlm_loss"
) -> list[dict[str, float]]:
    """The two curves over seeds: for each number of tokens means, deviations, the difference and its standard error.

    Args: of each training its measurements, all at the same nominal numbers. The error takes the seeds of both sides
        for independent: sqrt(s^2 / n + t^2 / m). One seed has no deviation: NaN.
    """
    rows = []
    for points in zip(*ours, *theirs, strict=True):
        if len({point["nominal"] for point in points}) != 1:
            raise ValueError("the trainings were not measured at the same numbers of tokens")
        row: dict[str, float] = {"tokens": points[0]["nominal"]}
        sides = ([p[key] for p in points[: len(ours)]], [p[key] for p in points[len(ours) :]])
        for name, values in zip(("ours", "theirs"), sides, strict=True):
            row[name] = statistics.mean(values)
            row[f"{name}_deviation"] = statistics.stdev(values) if len(values) > 1 else math.nan
        row["difference"] = row["ours"] - row["theirs"]
        row["error"] = math.sqrt(row["ours_deviation"] ** 2 / len(ours) + row["theirs_deviation"] ** 2 / len(theirs))
        rows.append(row)
    return rows


def in_cells(row: Mapping[str, float]) -> list[str]:
    """A row for people."""
    return [
        f"{row['tokens']:,.0f}", f"{row['ours']:.3f} ± {row['ours_deviation']:.3f}",
        f"{row['theirs']:.3f} ± {row['theirs_deviation']:.3f}", f"{row['difference']:+.3f}", f"{row['error']:.3f}",
    ]  # fmt: skip


def draw(path: Path, found: Mapping[str, Mapping[str, Sequence[Sequence[Measured]]]]) -> None:
    """One panel a setting: the mean of each side, its deviation as a band."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "minibert", "font.size": 9})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.2), squeeze=False)
    for panel, (setting, sides) in zip(panels[0], found.items(), strict=True):
        for (side, curves), style in zip(sides.items(), ("-", "--", ":"), strict=False):
            rows = compare(curves, curves)
            x, y = [row["tokens"] / 1e6 for row in rows], [row["ours"] for row in rows]
            spread = [0.0 if math.isnan(row["ours_deviation"]) else row["ours_deviation"] for row in rows]
            (line,) = panel.plot(x, y, style, label=side, linewidth=1.4)
            panel.fill_between(
                x, [a - b for a, b in zip(y, spread, strict=True)], [a + b for a, b in zip(y, spread, strict=True)],
                color=line.get_color(), alpha=0.2, linewidth=0,
            )  # fmt: skip
        panel.set(title=setting, xlabel="million tokens", ylabel="held-out MLM loss")
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def run_file(args: Any, setting: str, side: str, seed: int) -> Path:
    """Where a training's measurements lie."""
    return Path(args.runs) / f"{setting}-{side.replace(', ', '-').lower()}-{seed}.json"


def runs_of(args: Any, setting: str, side: str) -> list[list[Measured]]:
    """The trainings that are there, in order of their seeds; exits where one was made with other options."""
    found = []
    for seed in args.seeds:
        file = run_file(args, setting, side, seed)
        if file.is_file():
            run = json.loads(file.read_text("utf-8"))
            if run["asked"] != asked(args):
                sys.exit(f"compare_pretraining: {file} was made with other options; take another --runs")
            found.append(run["points"])
    return found


def asked(args: Any) -> dict[str, Any]:
    """The options that decide what a training finds."""
    names = (
        "tokens", "every", "vocab_size", "layers", "hidden_size", "heads", "length", "batch_size", "precision"
    )  # fmt: skip
    return {"corpus": [*map(str, args.corpus)], **{name: getattr(args, name) for name in names}}


def main() -> None:
    """Train what is missing, then the table."""
    options = parser(__doc__)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--runs", type=Path, required=True, metavar="DIR", help="where each training's figures go")
    options.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    options.add_argument("--sides", nargs="+", choices=SIDES, default=[OURS, BLOCKS], help="what the table compares")
    options.add_argument("--only", choices=SIDES, help="train this side alone now")
    options.add_argument("--tokens", type=float, default=1e6, help="real tokens in a training [default: a million]")
    options.add_argument("--every", type=float, default=1e5, help="tokens between measurements")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="a training of each side for each")
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--hidden-size", type=int, default=256)
    options.add_argument("--heads", type=int, default=4)
    options.add_argument("--vocab-size", type=int, default=8000, help="entries of the vocabulary, trained on the text")
    options.add_argument("--vocab", type=Path, help="vocab.txt instead of training one")
    options.add_argument("--length", type=int, default=128, help="tokens in an example")
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="bf16")
    options.add_argument("--threads", type=int, default=cores(), help="torch's threads [default: one for each core]")
    options.add_argument("--cpu", action="store_true", help="also where there is a GPU")
    options.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves (matplotlib)")
    args = options.parse_args()
    if args.plot and find_spec("matplotlib") is None:
        options.error("--plot needs matplotlib: pip install matplotlib")
    hardware = machine()
    args.runs.mkdir(parents=True, exist_ok=True)
    apart(prepare_alone, args)
    for seed in args.seeds:
        for setting in args.settings:
            for side in [args.only] if args.only else args.sides:
                file = run_file(args, setting, side, seed)
                if file.is_file():
                    continue
                print(f"{setting}, {side}, seed {seed}", file=sys.stderr, flush=True)
                points = apart(train, args, setting, side, seed)
                part = file.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps({"asked": asked(args), "points": points}, indent=1) + "\n", "utf-8")
                part.replace(file)
    show(args, hardware)


def prepare_alone(args: Any) -> None:
    """prepare, in a process that keeps nothing of it."""
    prepare(args)


def show(args: Any, hardware: dict[str, Any]) -> None:
    """The tables, the JSON file, the figure."""
    found = {
        setting: {side: runs for side in args.sides if (runs := runs_of(args, setting, side))}
        for setting in args.settings
    }
    tables: dict[str, Any] = {}
    for setting, sides in found.items():
        for side, runs in sides.items():
            if side == OURS or OURS not in sides:
                continue
            rows = tables[f"{setting}: {OURS} and {side}"] = compare(sides[OURS], runs)
            last = {
                name: statistics.mean(curve[-1]["masked_accuracy"] for curve in sides[name]) for name in (OURS, side)
            }
            print(
                f"\n{setting}: {len(sides[OURS])} and {len(runs)} seeds; held-out loss of "
                f"{runs[0][0]['num_targets']:,.0f} targets, mean ± deviation over the seeds\n"
            )
            table(["tokens", OURS, side, "difference", "its error"], map(in_cells, rows))
            print(
                f"\n[MASK] accuracy at the end: {last[OURS]:.1%} and {last[side]:.1%}; "
                f"unigram {runs[0][0]['unigram_accuracy']:.1%}"
            )
    if args.plot:
        draw(args.plot, found)
    software = versions("minibert", "transformers", "torch", "accelerate")
    report(args, hardware, software, {"tables": tables, "curves": found})
    print("losses are the same on a busy machine")


if __name__ == "__main__":
    run_main(main)
