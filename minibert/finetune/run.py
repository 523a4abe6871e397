"""What all seeds of a run share: the model's making, its measurement, what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

from minibert.atomic import remove, write_json
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import load_model, save_checkpoint
from minibert.config import FinetuneConfig
from minibert.console import Console
from minibert.finetune.result import answers, copy_model
from minibert.finetune.seed import Training
from minibert.model.bert import BertConfig
from minibert.run_folder import is_finished, load_metrics, publish
from minibert.tasks.base import Prediction, Scores
from minibert.tasks.data import AnyTask, Part
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training import state
from minibert.training.devices import Stop
from minibert.training.inference import in_float32, infer
from minibert.training.memory import explaining_lack
from minibert.training.setup import new_model, save_memory

HEADS = ("classifier.", "qa_outputs.")


@dataclass
class Measured:
    """A model on one part: what the task says of it, and its predictions."""

    scores: Scores
    predictions: list[Prediction]
    task: AnyTask  # with what was tuned on dev


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
                tables = task.tables(examples, measured.predictions)
                said[name] = answers(task, examples, measured.predictions, tables)
                training.record.note_findings(
                    training.record.watch.answered(last, name, task.one_sided(examples, measured.predictions))
                )
                for table in tables:
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
