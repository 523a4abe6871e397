"""Fine-tuning, from a checkpoint and a labelled file to a model for a task. Read `finetune` from top to bottom."""

from __future__ import annotations

import shlex
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

from minibert.atomic import remove, write_json
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint
from minibert.config import FinetuneConfig
from minibert.console import Console
from minibert.corpus.batches import Cursor, StepBatches, load_steps
from minibert.corpus.read import fingerprint
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.report.page import describe_run
from minibert.run_folder import held, is_finished, load_metrics, load_settings, publish, resume_with, save_settings
from minibert.tasks.base import Feature, Prediction, Scores, check_types
from minibert.tasks.data import AnyTask, Part, check_choice, describe, read_parts, show_data
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training import state
from minibert.training.best import Best
from minibert.training.devices import SAME_OUT, Stop, check_same, leaves_padding_out, make_accelerator
from minibert.training.inference import in_float32, infer
from minibert.training.loop import train_steps
from minibert.training.memory import check_memory, explaining_lack
from minibert.training.optim import StepSchedule, build_optimizers
from minibert.training.record import Record
from minibert.training.rows import RowCollator, RowStream
from minibert.training.setup import new_model, refuse_unknown, save_memory
from minibert.training.sharding import check_settings, is_spread, prepare, whole, whole_states
from minibert.training.speed import machine
from minibert.training.watch import Watch

HEADS = ("classifier.", "qa_outputs.")
MISTAKES_KEPT, LONGEST_SHOWN = 30, 600  # of a part, in answers.json; characters of a text there
FEW_STEPS = 100  # of a fine-tuning: 1,000 rows in batches of 32, three times, are 94


@dataclass
class Measured:
    """A model on one part: what the task says of it, and its predictions."""

    scores: Scores
    predictions: list[Prediction]
    task: AnyTask  # with what was tuned on dev


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
            console.results(
                f"done: {out}, {metrics['steps']:,} steps", columns, rows,
                [
                    ("try it", f"minibert predict --model {shlex.quote(str(out))} {shlex.quote(str(asked))}"),
                    ("look at the run", str(out / "report.html")),
                ],
            )  # fmt: skip
        accelerator.wait_for_everyone()
        accelerator.end_training()
    return metrics


def check_model(model: Path, shape: BertConfig, tokenizer: BertTokenizer, config: FinetuneConfig) -> None:
    """Raises UserError where a checkpoint does not fit its tokenizer or the settings."""
    check_vocabulary(len(tokenizer), shape, str(model))
    limit = shape.max_position_embeddings
    if config.max_length > limit:
        raise UserError(
            f"rows of {config.max_length} tokens are longer than the model's {limit} positions", where="--max-length",
            fix=f"take --max-length {limit} or less",
        )  # fmt: skip
    if config.freeze.isdecimal() and int(config.freeze) > shape.num_hidden_layers:
        raise UserError(f"--freeze {config.freeze}: the model has {shape.num_hidden_layers} layers", where="--freeze")


def check_same_data(out: Path, data: str) -> None:
    """Refuse to go on with files whose content has changed. data: their fingerprint."""
    if load_settings(out).get("data") != data:
        raise UserError(
            "the labelled files are not those that this run was started with", where=str(out),
            fix="bring the old ones back, or start anew with another --out",
        )  # fmt: skip


# ---- the training


class Run:
    """What all seeds of a run share."""

    def __init__(
        self, accelerator: Accelerator, task: AnyTask, tokenizer: BertTokenizer, shape: BertConfig, source: Path,
        parts: dict[str, Part], out: Path, console: Console, unknown_rate: float,
    ) -> None:  # fmt: skip
        self.unknown_rate = unknown_rate
        self.accelerator, self.task, self.tokenizer, self.source = accelerator, task, tokenizer, source
        self.parts, self.out, self.console = parts, out, console
        self.config: FinetuneConfig = task.config
        self.rows = [feature for feature in parts["train"].features if feature.target is not None]
        self.shape = task_shape(shape, task)
        per_process = self.config.batch_size // accelerator.num_processes
        self.micro_batch_size = min(self.config.micro_batch_size or per_process, per_process, len(self.rows))
        self.leave_out = () if has_head_for(shape, task) else HEADS

    def make_model(self, seed: int, resume_from: Path | None) -> nn.Module:
        """The encoder with the task's head; what the checkpoint lacks starts fresh and is named."""
        config, cls = self.config, self.task.model_class()
        if resume_from is not None:
            model, _ = load_model(cls, resume_from, config=self.shape)
        elif config.scratch:
            torch.manual_seed(seed)
            model = new_model(cls, self.shape, "leave --scratch out, or mend the sizes in config.json")
            self.console.say("weights: random, in the checkpoint's shape (--scratch)")
        else:
            model, report = load_model(cls, self.source, config=self.shape, seed=seed, leave_out=self.leave_out)
            self.console.say(f"weights: {self.source}")
            if report.fresh:
                self.console.say(f"  not in there, so they start fresh: {', '.join(report.fresh)}")
        freeze(model, config.freeze)
        if config.gradient_checkpointing:
            save_memory(model)
        return model

    def one_seed(self, seed: int, folder: Path, stop: Stop) -> dict[str, Any]:
        """Train with one seed in a folder of its own; returns its scores. What is there already is gone on with."""
        if folder != self.out:
            if is_finished(folder):
                return load_metrics(folder)
            if self.accelerator.is_main_process:
                folder.mkdir(parents=True, exist_ok=True)
            self.accelerator.wait_for_everyone()
            self.console.say(f"seed {seed}:")
        training = Training(self, seed, folder, stop)
        with training.record.noting_failure(), explaining_lack():
            training.train()
        result = self.finish(folder, training, stop)
        training.end_if_told()
        epoch = round(result["best_step"] / training.stream.steps_per_epoch, 2)
        result = {"seed": seed, "best_epoch": epoch, **result}
        if self.accelerator.is_main_process and folder != self.out:
            write_json(folder / "metrics.json", result)
            remove(folder / "checkpoints")  # the seed is finished: nothing goes on from them
        self.accelerator.wait_for_everyone()
        self.accelerator.free_memory()
        return result

    def finish(self, folder: Path, training: Training, stop: Stop) -> dict[str, Any]:
        """The model that is kept goes to the top of the folder; returns its scores on all there is."""
        accelerator, best, last = self.accelerator, training.best, training.place["step"]
        step = best.step or last
        kept = state.checkpoint_path(folder / "checkpoints", step)
        shape = load_config(kept)
        task = self.task.with_settings(self.task.saved_settings(shape.extra))
        model, _ = load_model(task.model_class(), kept, config=shape)
        model.to(accelerator.device)
        result: dict[str, Any] = {
            "steps": last, "best_step": step, "best_metric": best.metric if best.step else None,
        }  # fmt: skip
        said: dict[str, Any] = {"step": step}
        for name in ("dev", "test"):
            if name in self.parts:
                with self.console.progress(f"measuring {name}", 1.0) as update:
                    measured = self.measure(model, name, task, stop, tune=False, progress=update)
                if stop.agreed():
                    return result
                result[name] = measured.scores
                examples = self.parts[name].reading.examples
                said[name] = answers(task, examples, measured.predictions)
                training.record.note_findings(
                    training.record.watch.answered(last, name, task.one_sided(examples, measured.predictions))
                )
                for table in task.tables(examples, measured.predictions):
                    self.console.grid(f"{name}: {table.title}", table.columns, table.rows)
        if accelerator.is_main_process:
            if said.keys() > {"step"}:
                write_json(folder / "answers.json", said)
            publish(folder, lambda target: copy_model(kept, target))
        accelerator.wait_for_everyone()
        return result

    def loss_sums(self, model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
        """(K,): the sums of the loss terms over a batch."""
        return self.task.losses(self.task.forward(model, batch), batch)

    def measure(
        self, model: nn.Module, name: str, task: AnyTask, stop: Stop, *, tune: bool = True,
        progress: Callable[[float], None] = lambda share: None,
    ) -> Measured:  # fmt: skip
        """A model on dev or test, in float32; the same on all processes. tune: choose the task's settings on it.

        Where a signal came meanwhile there are no scores.
        """
        part, accelerator = self.parts[name], self.accelerator
        outputs, loss = infer(
            in_float32(model), task, part.features, pad_id=self.tokenizer.pad_token_id,
            batch_size=self.config.micro_batch_size or self.config.batch_size, accelerator=accelerator,
            stopped=lambda: bool(stop.signal), progress=progress,
        )  # fmt: skip
        if stop.agreed():
            return Measured({}, [], task)
        examples = part.reading.examples
        if tune:
            task = task.with_settings(task.tuned(examples, part.features, outputs))
        predictions = task.decode(examples, part.features, outputs)
        scores = {"loss": loss, **task.score(examples, predictions)}
        if accelerator.num_processes > 1:  # one answer for all, to the last bit
            scores = broadcast_object_list([scores])[0]
        return Measured(scores, predictions, task)

    def save_model(self, model: nn.Module, task: AnyTask, folder: Path) -> None:
        """The five files, with what the task was tuned to."""
        network: Any = model
        trained = network.config
        network.config = task_shape(self.shape, task)
        save_checkpoint(model, self.tokenizer, folder)
        network.config = trained


class Training:
    """One seed's training: its model, optimizers, place in the data, and the best measurement so far."""

    def __init__(self, run: Run, seed: int, folder: Path, stop: Stop) -> None:
        self.run, self.seed, self.folder, self.stop = run, seed, folder, stop
        self.accelerator, config, task = run.accelerator, run.config, run.task
        resume_from = find_checkpoint(folder, run.console)
        check_same(run.accelerator, resume_from and resume_from.name, "the newest checkpoint is", SAME_OUT)
        self.place: dict[str, Any] = {
            "step": 0,
            "cursor": Cursor().state(),
            "tokens": 0,
            "best": {},
            "record": None,
            "measured": None,
        }
        if resume_from is not None:
            self.place = state.load_place(resume_from)
        self.model = run.make_model(seed, resume_from)
        self.model.train()
        self.network = prepare(self.accelerator, self.model)
        self.optimizers = build_optimizers(
            self.network, name="adamw", lr=config.lr, muon_lr=0.0, weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
        )  # fmt: skip
        if seed == config.seed and not is_spread(self.network):
            longest = max(run.rows, key=lambda feature: len(feature.ids))
            check_memory(
                self.model, self.accelerator, self.optimizers, run.loss_sums,
                [(run.micro_batch_size, lambda n: task.batch([longest] * n, run.tokenizer.pad_token_id))],
                run.console, can_save=not config.gradient_checkpointing,
            )  # fmt: skip
        if resume_from is not None:
            state.load_state(resume_from, self.optimizers, self.accelerator.scaler)
        self.best = best_so_far(config.best or task.metric_names[0], self.place["best"], folder, run.console)
        self.record = Record(
            folder, self.accelerator, terms=task.terms, lr=config.lr, log_every=config.log_every,
            tracker=config.tracker, before=self.place["record"], warn=run.console.warn,
            measured=(self.best.metric, f"dev {self.best.metric}"),
            watch=Watch(task.terms, state=(self.place["record"] or {}).get("watch")),
        )  # fmt: skip
        self.chosen = task  # with what was tuned when the best model was measured
        self.saved_step = self.place["step"] if resume_from else -1
        self.stream = RowStream(
            [len(feature.ids) for feature in run.rows], seed=seed, batch_size=config.batch_size,
            processes=self.accelerator.num_processes,
        )  # fmt: skip
        self.schedule = StepSchedule(max(1, ceil(config.epochs * self.stream.steps_per_epoch)))

    def train(self) -> None:
        """All steps, with measurements on dev and checkpoints in between."""
        config, schedule, console = self.run.config, self.schedule, self.run.console
        console.say(plan_in_words(config, self.model, self.accelerator, schedule.steps))
        if schedule.steps < FEW_STEPS:
            console.say(
                "  few steps: a model may learn next to nothing in them. More --epochs, a smaller --batch-size or a "
                "higher --lr (1e-4; 3e-4 for small models) mend it"
            )
        every = config.eval_every or self.stream.steps_per_epoch
        number = self.place["step"]
        due = number and "dev" in self.run.parts and (number % every == 0 or number == schedule.steps)
        if due and self.place["measured"] != number:  # a signal came while the part that is gone on with measured
            self.measure()
            self.saved_step = -1  # what was found is part of the checkpoint
            self.save()
        if self.out_of_patience():  # a run that goes on and was at its end
            return
        if self.place["step"] == 0:
            self.record.note_findings(self.record.watch.data(self.run.unknown_rate))
        with console.progress("training", 1.0) as update:
            for step in train_steps(
                self.accelerator, self.network, self.optimizers, self.steps(), schedule, self.run.loss_sums,
                first_step=self.place["step"], warmup=schedule.warmup_share(config.warmup), clip=config.clip,
                seed=self.seed, stopped=self.stop.agreed,
            ):  # fmt: skip
                tokens = self.place["tokens"] + step.num_tokens
                self.place.update(step=step.step, cursor=step.cursor.state(), tokens=tokens)
                epoch = (step.step - 1) // self.stream.steps_per_epoch
                update(step.share, self.record.step(step, epoch, tokens))
                with self.record.pause():
                    if step.step % every == 0 or step.step == schedule.steps:
                        self.measure()
                        self.save()
                    elif config.save_every and step.step % config.save_every == 0:
                        self.save()
                if self.out_of_patience():
                    console.say(f"no better {self.best.metric} in {self.best.waited} measurements: training ends here")
                    break
        self.end_if_told()
        self.record.note_findings(self.record.watch.ended(self.place["step"]))

    def steps(self) -> Iterator[StepBatches]:
        """The batches from the run's place on."""
        run, tokenizer = self.run, self.run.tokenizer
        filler = Feature(0, np.array([tokenizer.cls_token_id, tokenizer.sep_token_id]), 2, run.task.no_target())
        collator = RowCollator(run.rows, filler, lambda rows: run.task.batch(rows, tokenizer.pad_token_id))
        processes = self.accelerator.num_processes
        return load_steps(
            self.stream, collator, Cursor.from_state(self.place["cursor"]), rank=self.accelerator.process_index,
            micro_batch_size=run.micro_batch_size, processes=processes,
            pin_memory=self.accelerator.device.type == "cuda",
            unpadded=leaves_padding_out(self.accelerator, task_shape(run.shape, run.task)),
        )  # fmt: skip

    def measure(self) -> None:
        """On dev, where there is one; notes whether it is the best so far."""
        if "dev" not in self.run.parts:
            return
        step = self.place["step"]
        with whole(self.accelerator, self.network, self.model) as model:
            measured = self.run.measure(model, "dev", self.run.task, self.stop)
        self.end_if_told()
        self.place["measured"] = step
        if self.accelerator.is_main_process:
            said = answers(measured.task, self.run.parts["dev"].reading.examples, measured.predictions)
            write_json(self.folder / "answers.json", {"step": step, "dev": said})
        self.record.evaluation(step, measured.scores)
        if self.best.better(measured.scores[self.best.metric], step):
            self.chosen = measured.task
        self.place["best"] = self.best.state()
        self.run.console.say(in_short(step, step / self.stream.steps_per_epoch, measured.scores, self.best))

    def out_of_patience(self) -> bool:
        """Whether the best measurement is too long ago."""
        return bool(self.run.config.patience) and self.best.waited >= self.run.config.patience

    def save(self) -> None:
        """A checkpoint of this step, if there is none yet."""
        step = self.place["step"]
        if self.saved_step == step:
            return
        self.record.check()
        self.place["record"] = self.record.state()
        self.accelerator.wait_for_everyone()
        main = self.accelerator.is_main_process
        states = whole_states(self.optimizers, kept=main)
        with whole(self.accelerator, self.network, self.model) as model:
            if main:
                checkpoints = self.folder / "checkpoints"
                state.save_state(
                    state.checkpoint_path(checkpoints, step),
                    lambda target: self.run.save_model(model, self.chosen, target),
                    states, self.accelerator.scaler, self.place,
                )  # fmt: skip
                state.keep_newest(checkpoints, self.run.config.keep, step, also=self.best.step)
        self.accelerator.wait_for_everyone()
        self.saved_step = step

    def end_if_told(self) -> None:
        """After a signal: save, say how to go on, end."""
        if signal := self.stop.agreed():
            self.save()
            self.run.console.warn(
                f"stopped at step {self.place['step']}, which is saved; {resume_with('finetune', self.run.out)}"
            )
            raise SystemExit(128 + signal)


def answers(task: AnyTask, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
    """What answers.json says of a part: the task's tables, and the records that are answered otherwise than wanted."""
    wrong = task.mistakes(examples, predictions)
    return {
        "tables": [asdict(table) for table in task.tables(examples, predictions)],
        "records": len(examples),
        "wrong": len(wrong),
        "mistakes": [asdict(mistake.shortened(LONGEST_SHOWN)) for mistake in wrong[:MISTAKES_KEPT]],
    }


def task_shape(shape: BertConfig, task: AnyTask) -> BertConfig:
    """The checkpoint's config with the task's head, labels, settings and dropout."""
    config = task.config
    stale = ("id2label", "label2id", "num_labels", "_num_labels", "problem_type", "minibert", "finetuning_task")
    extra = {key: value for key, value in shape.extra.items() if key not in stale}
    own = {"minibert": {"task": task.name, "settings": task.own_settings()}}
    return replace(
        shape, hidden_dropout_prob=config.dropout, attention_probs_dropout_prob=config.attention_dropout,
        classifier_dropout=None, extra={**extra, **task.facts(), **own},
    )  # fmt: skip


def has_head_for(shape: BertConfig, task: AnyTask) -> bool:
    """Whether the checkpoint's head answers in the same labels, so that training goes on from it."""
    facts = task.facts()
    names = {str(key): str(value) for key, value in (shape.extra.get("id2label") or {}).items()}
    return bool(names == facts.get("id2label", names))


def freeze(model: nn.Module, what: str) -> None:
    """Take parts of the encoder out of the training: "embeddings", or them and the first N layers."""
    if not what:
        return
    encoder: Any = model.bert
    frozen = [encoder.embeddings, *encoder.encoder.layer[: int(what) if what.isdecimal() else 0]]
    for part in frozen:
        part.requires_grad_(False)


def best_so_far(metric: str, before: Mapping[str, Any], folder: Path, console: Console) -> Best:
    """The best measurement of a run that goes on. Where its checkpoint has been lost (the newest one was damaged, and
    the best of then is gone), what comes is measured against nothing."""
    best = Best(metric, **before)
    if best.step is not None:
        kept = state.checkpoint_path(folder / "checkpoints", best.step)
        if fault := state.fault_of(kept):
            console.warn(f"{kept}, the best so far, is lost ({fault}): the best of what comes is kept")
            return Best(metric)
    return best


def find_checkpoint(folder: Path, console: Console) -> Path | None:
    """The newest complete checkpoint; broken ones are named and passed over."""
    newest, broken = state.newest_complete(folder / "checkpoints")
    for path, fault in broken:
        console.warn(f"{path} is not complete ({fault}); passed over")
    if newest is not None:
        console.say(f"going on from {newest}")
    return newest


# ---- the end


def choose(task: AnyTask, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """metrics.json: the scores of the seed that is kept, and of all of them with mean and deviation."""
    best = Best(task.config.best or task.metric_names[0])
    kept = results[0]
    for result in results:
        if "dev" in result and best.better(result["dev"][best.metric], result["seed"]):
            kept = result
    metrics = {"task": task.name, **kept, "seeds": list(results)}
    if len(results) > 1:
        for word, over in (("mean", statistics.fmean), ("deviation", statistics.stdev)):
            metrics[word] = {
                name: {key: over([r[name][key] for r in results]) for key in results[0][name]}
                for name in ("dev", "test")
                if name in results[0]
            }
    return metrics


def keep_best_seed(out: Path, seed: int) -> None:
    """The model and the log of one seed to the top of the run; the others' models go, their logs and scores stay."""
    publish(out, lambda target: copy_model(out / "seeds" / str(seed), target, without=("metrics.json",)))
    for folder in (out / "seeds").iterdir():
        for path in folder.iterdir():
            if path.name not in ("log.jsonl", "metrics.json", "answers.json"):
                remove(path)


def copy_model(source: Path, target: Path, without: Sequence[str] = ()) -> None:
    """The files of a checkpoint, without the folder that training goes on from."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file() and path.name not in without:
            shutil.copyfile(path, target / path.name)


def plan_in_words(config: FinetuneConfig, model: nn.Module, accelerator: Accelerator, steps: int) -> str:
    """What is about to be trained."""
    parameters = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    share = "" if trained == parameters else f", {trained / 1e6:.1f} M of them trained"
    precision = "fp32" if accelerator.mixed_precision == "no" else accelerator.mixed_precision
    return (
        f"training: {steps:,} steps of {config.batch_size} rows ({config.epochs:g} epochs), "
        f"{parameters / 1e6:.1f} M parameters{share}, {precision} on {accelerator.device}"
    )


def in_short(step: int, epochs: float, scores: Scores, best: Best) -> str:
    """A measurement on dev in one line."""
    shown = ", ".join(f"{key} {value:.4g}" for key, value in list(scores.items())[:5])
    mark = "  (the best so far)" if best.step == step else ""
    return f"step {step}, epoch {epochs:.3g}: dev {shown}{mark}"


def in_rows(metrics: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The scores as a table for people: its columns and its rows."""
    parts = [name for name in ("dev", "test") if name in metrics]
    if not parts:
        return [""], [["nothing was measured: add --dev FILE or --test FILE"]]
    rows = []
    for key in dict.fromkeys(key for name in parts for key in metrics[name]):
        row = [key]
        for name in parts:
            value = metrics[name].get(key)
            row.append("" if value is None else f"{value:.4g}")
            if "mean" in metrics:
                mean, deviation = metrics["mean"][name].get(key), metrics["deviation"][name].get(key)
                row.append("" if mean is None else f"{mean:.4g} +- {deviation:.2g}")
        rows.append(row)
    spread = [f"mean of {len(metrics['seeds'])} seeds"] if "mean" in metrics else []
    return ["", *(column for name in parts for column in (name, *spread))], rows
