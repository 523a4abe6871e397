"""The training of one seed: its model, its place in the data, and the best measurement so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate import Accelerator
from torch import nn

from minibert.atomic import write_json
from minibert.config import FinetuneConfig
from minibert.console import Console
from minibert.corpus.batches import Cursor, StepBatches, load_steps
from minibert.finetune.result import answers
from minibert.run_folder import resume_with
from minibert.tasks.base import Feature, Scores
from minibert.training import state
from minibert.training.best import Best
from minibert.training.devices import SAME_OUT, Stop, check_same, leaves_padding_out
from minibert.training.loop import train_steps
from minibert.training.memory import check_memory
from minibert.training.optim import StepSchedule, build_optimizers
from minibert.training.record import Record
from minibert.training.rows import RowCollator, RowStream
from minibert.training.sharding import is_spread, prepare, whole, whole_states
from minibert.training.watch import Watch

if TYPE_CHECKING:
    from minibert.finetune.run import Run

FEW_STEPS = 100  # of a fine-tuning: 1,000 rows in batches of 32, three times, are 94


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
            console.say(few_steps_in_words(config))
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
            unpadded=leaves_padding_out(self.accelerator, run.shape),
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
            task, examples, predictions = measured.task, self.run.parts["dev"].reading.examples, measured.predictions
            said = answers(task, examples, predictions, task.tables(examples, predictions))
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


def few_steps_in_words(config: FinetuneConfig) -> str:
    """What may come of few steps, and what of that which mends it is not done yet."""
    ways = ["more --epochs"]
    if config.batch_size > 8:
        ways.append("a smaller --batch-size")
    if config.lr < 3e-4:
        ways.append(f"a higher --lr ({'1e-4; ' if config.lr < 1e-4 else ''}3e-4 for small models)")
    said = " or ".join(filter(None, (", ".join(ways[:-1]), ways[-1])))
    return f"  few steps: a model may learn next to nothing in them. What mends it: {said}"


def in_short(step: int, epochs: float, scores: Scores, best: Best) -> str:
    """A measurement on dev in one line."""
    shown = ", ".join(f"{key} {value:.4g}" for key, value in list(scores.items())[:5])
    mark = "  (the best so far)" if best.step == step else ""
    return f"step {step}, epoch {epochs:.3g}: dev {shown}{mark}"
