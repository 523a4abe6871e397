"""A fine-tuned model at work: predictions for a file, scores on a labelled file, and answers in Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from minibert.atomic import write_whole
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_length, check_vocabulary, load_model
from minibert.config import resolve
from minibert.console import Console, part_of, print_text
from minibert.corpus.read import doubts
from minibert.errors import UserError
from minibert.model.answering import DTYPES, for_answers
from minibert.model.attention import has_varlen
from minibert.model.bert import BertConfig
from minibert.tasks import find_tasks
from minibert.tasks.base import Encoded, Prediction, Task, check_types, refuse_foreign, refuse_trained
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.devices import answering_precision
from minibert.training.inference import infer

AnyTask = Task[Any, Any]
CHUNK = 4096  # examples that are encoded, computed and written at a time: memory stays flat


class Predictor:
    """A model, its task and its tokenizer.

    Args: path: a run of `minibert finetune`, or a Hugging Face folder with a task's head. settings: win over those that
        were saved with the model. accelerator: None computes in this process alone. precision: fp32; bf16, fp16 on a
        GPU, auto: bf16 where the hardware has it; int8 on a CPU, for the encoder's linear layers.
    Raises: UserError for a folder that holds no model for a task, and a precision that is not to be had.
    """

    def __init__(
        self, path: Path | str, settings: Mapping[str, Any] | None = None, *, accelerator: Accelerator | None = None,
        precision: str = "fp32",
    ) -> None:  # fmt: skip
        path = Path(path)
        device = accelerator.device if accelerator else torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.precision = answering_precision(precision, device)
        self.path, self.settings = path, settings
        config = load_config(path)
        self.task = task_of(path, config, settings or {})
        self.tokenizer = BertTokenizer.from_pretrained(path)
        check_vocabulary(len(self.tokenizer), config, str(path))
        limit = config.max_position_embeddings
        if self.task.config.max_length > limit:
            if settings and "max_length" in settings:
                check_length(settings["max_length"], config)
            self.task = self.task.with_settings({"max_length": limit})
        self.model: nn.Module
        self.model, report = load_model(self.task.model_class(), path, config=config)
        if report.fresh:
            raise UserError(
                f"has no head for the task {self.task.name} (not in there: {', '.join(report.fresh)})", where=str(path),
                fix=f"minibert finetune --task {self.task.name} --model {path} ... trains one",
            )  # fmt: skip
        self.accelerator, self.types = accelerator, config.type_vocab_size
        for_answers(self.model, self.precision)
        self.model.to(device)
        head_size = config.hidden_size // config.num_attention_heads
        self.unpadded = has_varlen(device, DTYPES.get(self.precision, torch.float32), head_size)

    def predict(
        self, examples: Sequence[Any], *, batch_size: int = 32, note: Callable[[str], None] = lambda text: None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Prediction]:  # fmt: skip
        """One prediction for each example, in order. note: is told, for one, how many texts were cut. progress: as in
        answers."""
        encoded = self.task.encode(examples, self.tokenizer, gold=False)
        for text in encoded.notes:
            note(text)
        return self.answers(examples, encoded, batch_size, progress)[0]

    def answers(
        self, examples: Sequence[Any], encoded: Encoded, batch_size: int,
        progress: Callable[[float], None] = lambda share: None,
    ) -> tuple[list[Prediction], float]:  # fmt: skip
        """A prediction for each example, from its features, and the loss where these have targets, else NaN.

        progress: is told the share that is done.
        """
        check_types(encoded.features, self.types, str(self.path))
        outputs, loss = infer(
            self.model, self.task, encoded.features, pad_id=self.tokenizer.pad_token_id, batch_size=batch_size,
            accelerator=self.accelerator, autocast=self.autocast(), unpadded=self.unpadded, progress=progress,
        )  # fmt: skip
        return self.task.decode(examples, encoded.features, outputs), loss

    def autocast(self) -> AbstractContextManager[Any] | None:
        """Half precision where it was asked for."""
        if self.precision not in DTYPES:
            return None
        return torch.autocast(next(self.model.parameters()).device.type, DTYPES[self.precision])

    def in_float32(self) -> Predictor:
        """The same checkpoint and settings, to compare with."""
        return Predictor(self.path, self.settings, accelerator=self.accelerator)


def task_of(path: Path, config: BertConfig, settings: Mapping[str, Any]) -> AnyTask:
    """The task that a checkpoint was trained for: what minibert wrote into its config.json, or its architecture."""
    tasks = find_tasks()
    ours = config.extra.get("minibert")
    name = ours.get("task") if isinstance(ours, dict) else None
    if name is None:
        wanted = [str(kind).removeprefix("Megatron") for kind in config.extra.get("architectures") or ()]
        name = next((name for name, kind in tasks.items() if kind.model_class().__name__ in wanted), None)
        if name is None:
            raise UserError(
                f"is no model for a task: its architecture is {', '.join(wanted) or 'not named'}", where=str(path),
                fix=f"minibert finetune --task {'|'.join(tasks)} --model {path} --train FILE --out RUN makes one",
            )  # fmt: skip
    if not isinstance(name, str) or name not in tasks:
        raise UserError(f"was trained for the task {name!r}, which is not here", where=str(path))
    kind = tasks[name]
    refuse_foreign(kind, settings)
    refuse_trained(kind, settings)
    saved = kind.saved_settings(config.extra)
    resolved = resolve(kind.Config, (str(path / "config.json"), saved), ("command line", settings))
    named = config.extra.get("id2label") or {str(i): f"LABEL_{i}" for i in range(config.num_labels)}
    labels = [str(named[str(i)]) for i in range(len(named))]
    if len(set(labels)) < len(labels):
        twice = next(label for label, times in Counter(labels).items() if times > 1)
        raise UserError(f"id2label has the label {twice!r} twice", str(path / "config.json"), "name each once")
    return kind(resolved, labels)


def predict_file(
    predictor: Predictor, source: Path, out: Path | None, *, output_format: str, batch_size: int, console: Console
) -> None:
    """Predictions for a file's records, to a file or to standard output; labels in it are not looked at."""
    task = predictor.task
    if output_format not in task.output_formats:
        raise UserError(
            f"the task {task.name} does not write {output_format!r}", where="--format",
            fix=f"one of {', '.join(task.output_formats)}",
        )  # fmt: skip
    reading = task.read(source, gold=False)
    say = notes_about(source, console)
    for doubt in doubts([source], task.config.encoding):
        console.warn(doubt)
    for note in reading.notes:
        say(note)
    main = predictor.accelerator is None or predictor.accelerator.is_main_process

    def text() -> Iterator[str]:
        done: list[Prediction] = []
        with console.progress("predicting", len(reading.examples) or None, "records") as update:
            for first in range(0, len(reading.examples), CHUNK):
                examples = reading.examples[first : first + CHUNK]
                chunk = predictor.predict(
                    examples, batch_size=batch_size, note=say,
                    progress=part_of(update, first, len(examples)),
                )  # fmt: skip
                if output_format == "jsonl":
                    yield task.write(chunk, output_format)
                else:  # the others may be one thing as a whole
                    done += chunk
        if output_format != "jsonl":
            yield task.write(done, output_format)

    if out is None or not main:
        for piece in text():
            if main:
                print_text(piece)
        return

    def fill(partial: Path) -> None:
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.writelines(text())

    write_whole(out, fill)
    console.say(f"{len(reading.examples):,} predictions: {out}")


def notes_about(source: Path, console: Console) -> Callable[[str], None]:
    """What says a note about a file; standard input was spooled to one of that name."""
    name = "standard input" if source.name == "stdin" else source.name
    return lambda note: console.say(f"{name}: {note}")


def evaluate_file(predictor: Predictor, source: Path, *, batch_size: int, console: Console) -> dict[str, Any]:
    """Scores of a model on a labelled file, and the task's tables on the terminal.

    In another precision than float32 two keys more: "fp32", the scores in float32, and "differs", the share of records
    that are answered otherwise there (NaN where answers are numbers).
    """
    task = predictor.task
    reading = task.read(source, gold=True)
    if not reading.examples:
        raise UserError("holds nothing to measure", where=str(source), fix="give a file with labelled records")
    task.check(reading.examples)
    encoded = task.encode(reading.examples, predictor.tokenizer, gold=True)
    say = notes_about(source, console)
    for doubt in doubts([source], task.config.encoding):
        console.warn(doubt)
    for note in (*reading.notes, *encoded.notes):
        say(note)
    examples = reading.examples
    with console.progress("measuring", len(examples), "records") as update:
        predictions, loss = predictor.answers(examples, encoded, batch_size, part_of(update, 0, len(examples)))
    scores: dict[str, Any] = {"loss": loss, **task.score(reading.examples, predictions)}
    for table in task.tables(reading.examples, predictions):
        console.grid(table.title, table.columns, table.rows)
    if predictor.precision == "no":
        return scores
    exact_predictions, exact_loss = predictor.in_float32().answers(reading.examples, encoded, batch_size)
    exact = {"loss": exact_loss, **task.score(reading.examples, exact_predictions)}
    differs = share_that_differs(task, predictions, exact_predictions)
    rows = [
        (name, *(f"{round(number, 4) + 0:.4f}" for number in (exact[name], scores[name], scores[name] - exact[name])))
        for name in ("loss", *task.metric_names)
        if name in scores
    ]
    title = f"{predictor.precision} beside float32"
    if not math.isnan(differs):
        title += f": {differs:.2%} of {len(predictions):,} records are answered otherwise"
    console.grid(title, ("", "fp32", predictor.precision, "difference"), rows)
    return {**scores, "fp32": exact, "differs": differs}


def share_that_differs(task: AnyTask, predictions: Sequence[Prediction], others: Sequence[Prediction]) -> float:
    """Share of records with another answer; NaN where answers are numbers, which always differ a little."""
    pairs = [(one[task.answer], other[task.answer]) for one, other in zip(predictions, others, strict=True)]
    if any(isinstance(answer, float) for answer, _ in pairs):
        return math.nan
    return sum(bool(one != other) for one, other in pairs) / len(pairs)


class Pipeline:
    """A model to be called with texts; see `pipeline`."""

    def __init__(self, predictor: Predictor, batch_size: int) -> None:
        self.predictor, self.batch_size = predictor, batch_size

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """One input gives one prediction, a list gives a list, computed in batches of like length.

        cls: a text, or a text and its pair. ner: a text; a list may hold lists of words too. qa: question=, context=.
        """
        examples = self.predictor.task.from_python(*inputs, **named)
        predictions = self.predictor.predict(examples, batch_size=self.batch_size)
        first = next(iter((*inputs, *named.values())))
        return predictions[0] if isinstance(first, str | Mapping) else predictions


def pipeline(path: str | Path, *, batch_size: int = 32, precision: str = "fp32", **settings: Any) -> Pipeline:
    """A fine-tuned model as a function; the task is the checkpoint's.

    Args: path: a run of `minibert finetune`, or a Hugging Face folder with a task's head. precision: as a Predictor's.
        settings: of the task, such as max_length or max_answer_length.
    Raises: UserError for a folder that holds no model for a task, or an unknown setting.
    """
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}", fix="1 or more")
    return Pipeline(Predictor(path, settings, precision=precision), batch_size)
