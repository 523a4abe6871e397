"""Fine-tuning as a whole. Read `finetune` from top to bottom."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from minibert.atomic import remove, write_json
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_length, check_vocabulary
from minibert.config import FinetuneConfig
from minibert.console import Console
from minibert.corpus.read import fingerprint
from minibert.errors import UserError
from minibert.finetune.result import choose, in_rows, keep_best_seed, which_is_kept
from minibert.finetune.run import Run
from minibert.model.bert import BertConfig
from minibert.report.page import describe_run
from minibert.run_folder import held, load_settings, save_settings
from minibert.tasks.base import check_types
from minibert.tasks.data import AnyTask, check_choice, describe, read_parts, show_data
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.devices import SAME_OUT, Stop, check_same, make_accelerator
from minibert.training.setup import refuse_unknown
from minibert.training.sharding import check_settings
from minibert.training.speed import machine


def finetune(
    kind: type[AnyTask],
    config: FinetuneConfig,
    model: Path,
    out: Path,
    *,
    train: Path,
    dev: Path | None = None,
    test: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train a task's model on a labelled file; the run folder `out` then holds the best one, and its scores.

    Args: kind: the task's class. model: a minibert run or a Hugging Face folder. dev: chooses the epoch that is kept
        (without it the last one is). test: measured once, with the model that is kept. resume: continue the unfinished
        run in `out` exactly. dry_run: stop after reading and encoding the data.
    Returns: the content of metrics.json (of data.json after a dry run).
    Raises: UserError for everything that a user can mend, before the first step. SystemExit(128 + signal) after SIGTERM
        or Ctrl-C, saved.
    """
    accelerator = make_accelerator(
        precision=config.precision, tracker=config.tracker, out=out, batch_size=config.batch_size
    )
    check_settings(precision=accelerator.mixed_precision, compiled=False)
    main = accelerator.is_main_process
    if console is None or not main:
        console = Console(silent=not main)
    with held(out, resume=resume) if main and not dry_run else nullcontext():
        shape = load_config(model)
        tokenizer = BertTokenizer.from_pretrained(model)
        check_model(model, shape, tokenizer, config)
        task, parts = read_parts(kind(config), {"train": train, "dev": dev, "test": test}, tokenizer)
        check_choice(task, parts)
        for part in parts.values():
            check_types(part.features, shape.type_vocab_size, str(model))
        facts = describe(task, parts, tokenizer)
        show_data(task, parts, facts, console)
        refuse_unknown(facts["train"]["unknown_rate"], str(train))
        marks = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
        if all(np.isin(feature.ids, marks).all() for feature in parts["train"].features):
            raise UserError("no record holds a token of text", where=str(train), fix="look at its columns and encoding")
        if dry_run:
            return facts
        data = fingerprint([part.path for part in parts.values()])
        check_same(accelerator, (resume, config, data), "the settings, files, or what is in --out, are", SAME_OUT)
        if resume:
            check_same_data(out, data)
        if main:
            if not resume:
                places = {"task": kind.name, "model": model, "train": train, "dev": dev, "test": test, "data": data}
                save_settings(out, "finetune", config, places)
            write_json(out / "data.json", facts)
        computed = machine(accelerator, shape, length=facts["train"]["mean_length"], through_head=0.0)
        if main:
            write_json(out / "machine.json", computed)
        run = Run(accelerator, task, tokenizer, shape, model, parts, out, console, facts["train"]["unknown_rate"])
        with Stop(accelerator, console.warn_from_signal) as stop:
            results = [
                run.one_seed(config.seed + i, out if config.seeds == 1 else out / "seeds" / str(config.seed + i), stop)
                for i in range(config.seeds)
            ]
            metrics = choose(task, results)
            if main and config.seeds > 1:
                keep_best_seed(out, metrics["seed"])
            accelerator.wait_for_everyone()
        if main:
            describe_run(out, metrics, console)
            write_json(out / "metrics.json", metrics)  # comes last and marks a finished run
            remove(out / "checkpoints")  # nothing goes on from them
            columns, rows = in_rows(metrics)
            asked = test or dev or train
            asked = asked.relative_to(Path.cwd()) if asked.is_relative_to(Path.cwd()) else asked
            kept = which_is_kept(metrics)
            console.results(
                f"done: {out}, {metrics['steps']:,} steps" + (f"; kept: {kept}" if kept else ""), columns, rows,
                [
                    ("try it", f"minibert predict --model {shlex.quote(str(out))} {shlex.quote(str(asked))}"),
                    *([("look at the run", str(page))] if (page := out / "report.html").is_file() else []),
                ],
            )  # fmt: skip
        accelerator.wait_for_everyone()
        accelerator.end_training()
    return metrics


def check_model(model: Path, shape: BertConfig, tokenizer: BertTokenizer, config: FinetuneConfig) -> None:
    """Raises UserError where a checkpoint does not fit its tokenizer or the settings."""
    check_vocabulary(len(tokenizer), shape, str(model))
    check_length(config.max_length, shape)
    if config.freeze.isdecimal() and int(config.freeze) > shape.num_hidden_layers:
        raise UserError(f"--freeze {config.freeze}: the model has {shape.num_hidden_layers} layers", where="--freeze")


def check_same_data(out: Path, data: str) -> None:
    """Refuse to go on with files whose content has changed. data: their fingerprint."""
    if load_settings(out).get("data") != data:
        raise UserError(
            "the labelled files are not those that this run was started with", where=str(out),
            fix="bring the old ones back, or start anew with another --out",
        )  # fmt: skip
