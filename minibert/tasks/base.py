"""What a task is. One file a task holds everything that is particular to it; everything else asks through this class.

The chain, for training and for prediction (without the gold) alike:

    read -> examples -> encode -> features -> batch -> the model -> losses, outputs -> decode -> predictions -> score

An example is one record of the user's file and has exactly one prediction. A feature is one row of a batch: a long
example may be cut into several windows. Letters in shape comments: B rows, T tokens, K loss terms.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from minibert.config import FinetuneConfig
from minibert.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minibert.tokenization.tokenizer import BertTokenizer

T = TypeVar("T")
E = TypeVar("E")  # a task's example
C = TypeVar("C", bound=FinetuneConfig)  # a task's settings

Batch = dict[str, Any]
Prediction = dict[str, Any]  # one JSON object
Scores = dict[str, float]
LINE_ENDS = {ord(c): f"\\u{ord(c):04x}" for c in "\u0085\u2028\u2029"}  # str.splitlines() would cut a record there
OTHER_FORMATS = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet", ".conll", ".bio", ".iob", ".ner")
MULTIPLE = 8  # lengths of batches: few shapes, which suit the kernels


@dataclass
class Reading(Generic[E]):
    """What a file held.

    Attributes: examples: one for each record, in order. skipped, repaired: {"where": "train.json, question 'q3'",
        "reason": ...} of records that training leaves out or mends; empty where predictions are wanted. notes:
        sentences for the user ("3 texts are empty").
    """

    examples: list[E]
    skipped: list[dict[str, str]] = field(default_factory=list)
    repaired: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Record(NamedTuple):
    """What a person sees of an example: its text, what it is labelled with, and where it stands in the file."""

    text: str
    gold: str = ""
    where: str = ""


@dataclass(slots=True)
class Feature:
    """One row of a batch.

    Attributes: example: the place of its example in the list. ids (T,): with [CLS] and [SEP]. second: the first place
        with token type 1, T where there is none. target: what the task's losses need; None without gold. extra: what
        the task's decode needs.
    """

    example: int
    ids: np.ndarray
    second: int
    target: Any = None
    extra: Any = None


@dataclass
class Encoded:
    """Features in the order of their examples; notes: sentences for the user ("12 texts were cut at 128 tokens").

    skipped: {"where", "reason"} of examples that have features but no target, so that nothing is learnt of them.
    """

    features: list[Feature]
    notes: list[str] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """Something to look at: a title, the names of the columns, rows of as many cells.

    counts: all cells but a row's first are whole numbers that are compared with each other, as in a confusion matrix.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    counts: bool = False


@dataclass(frozen=True)
class Mistake:
    """A record that is not answered as wanted, for a person to look at.

    Attributes: text: what was read, as far as it matters here. gold, answer: in words. pair: a second text, or the
        question. score: how sure the model is, 0 to 1; None where it gives no probability. marks: (start, end, whose,
        label) of places in the text; whose: "gold", "answer", or "both" where they agree. where: the record's place in
        its file.
    """

    text: str
    gold: str
    answer: str
    pair: str = ""
    score: float | None = None
    marks: Sequence[tuple[int, int, str, str]] = ()
    where: str = ""

    def shortened(self, longest: int) -> Mistake:
        """With texts of so many characters at most, and the marks that are left."""
        text, pair = (t if len(t) <= longest else f"{t[:longest]} …" for t in (self.text, self.pair))
        return replace(self, text=text, pair=pair, marks=[mark for mark in self.marks if mark[1] <= longest])


class Task(ABC, Generic[E, C]):
    """A kind of label to learn and to predict. An instance is a task with its settings and its label names.

    Class attributes: name: as in --task. summary: one line. Config: the settings, FinetuneConfig with the task's own.
        formats: what input_format may be, beside auto. output_formats: what predictions can be written as; jsonl first.
        terms: names of the loss terms, for the log. answer: the key of a prediction that holds its answer. trained: own
        settings that a model has from its training; they cannot be changed afterwards.
    Attributes: faults: None, and read raises the first mistake of a file; or a list, to which read adds the mistakes of
        records, which it leaves out, and what keeps it from reading on, behind the records before that.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type[FinetuneConfig]]
    formats: ClassVar[tuple[str, ...]]
    output_formats: ClassVar[tuple[str, ...]] = ("jsonl",)
    terms: ClassVar[tuple[str, ...]] = ("loss",)
    answer: ClassVar[str] = "label"
    trained: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: C, labels: Sequence[str] = ()) -> None:
        self.config = config
        self.labels = tuple(labels)
        self.label_ids = {label: i for i, label in enumerate(self.labels)}
        self.faults: list[UserError] | None = None

    # ---- data

    @abstractmethod
    def read(self, path: Path, *, gold: bool, train: bool = False) -> Reading[E]:
        """The records of a file.

        gold: labels are needed, and their absence is an error; otherwise none is looked at. train: records that cannot
        be learnt are left out and counted; never where predictions or scores are wanted, which each record has.
        Raises: UserError with file:line, the value and the fix.
        """

    def record(self, example: E) -> Record:
        """An example as a person sees it. A task whose examples are more than a text has its own."""
        return Record(str(example))

    @abstractmethod
    def from_python(self, *inputs: Any, **named: Any) -> list[E]:
        """The inputs of a minibert.pipeline call, a list or one, as examples without gold."""

    def labels_of(self, examples: Sequence[E]) -> list[str]:
        """The label names that training examples have, sorted; a task without labels has none."""
        return []

    def settled(self, examples: Sequence[E]) -> Task[E, C]:
        """This task with all that its training examples decide: label names, and what a task adds to them."""
        return type(self)(self.config, self.labels_of(examples))

    def check(self, examples: Sequence[E]) -> None:
        """Raises UserError, with the place and the value, for a gold label that is not among self.labels."""

    @abstractmethod
    def encode(self, examples: Sequence[E], tokenizer: BertTokenizer, *, gold: bool, first: int = 0) -> Encoded:
        """Features of at most config.max_length tokens; with gold, their targets. first: number of the first one."""

    # ---- network

    @classmethod
    @abstractmethod
    def model_class(cls) -> type[nn.Module]:
        """The network, by its class in minibert.model.heads; the class's name goes into config.json."""

    def facts(self) -> dict[str, Any]:
        """What config.json says of the head, in transformers' words."""
        if not self.labels:
            return {}
        return {"id2label": {str(i): label for i, label in enumerate(self.labels)}, "label2id": self.label_ids}

    @classmethod
    def settings_of(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that the config.json of a model from elsewhere decides."""
        return {}

    def forward(self, model: nn.Module, batch: Batch) -> Any:
        """The model's output for a batch."""
        return model(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])

    @abstractmethod
    def losses(self, out: Any, batch: Batch) -> Tensor:
        """(K,): the sum of each loss term over the batch's targets, in float32; batch["counts"] says their numbers."""

    @abstractmethod
    def outputs(self, out: Any, features: Sequence[Feature]) -> list[Any]:
        """For each feature what decode needs of the model's output: numpy arrays, without padding."""

    def batch(self, features: Sequence[Feature], pad_id: int) -> Batch:
        """Rows to tensors: input_ids (B,T), token_type_ids (B,T), attention_mask (B,T) or None where nothing is padded,
        num_tokens without padding, and what `targets` adds where the features have targets: counts (K,) at least.
        """
        import torch

        lengths = np.array([len(feature.ids) for feature in features])
        T = width_of(int(lengths.max()), self.config.max_length)
        ids = np.full((len(features), T), pad_id, np.int64)
        types = np.zeros((len(features), T), np.int64)
        for i, feature in enumerate(features):
            ids[i, : len(feature.ids)] = feature.ids
            types[i, feature.second : len(feature.ids)] = 1
        full = bool((lengths == T).all())
        batch: Batch = {
            "input_ids": torch.from_numpy(ids),
            "token_type_ids": torch.from_numpy(types),
            "attention_mask": None if full else torch.from_numpy((np.arange(T) < lengths[:, None]).astype(np.int64)),
            "num_tokens": int(lengths.sum()),
        }
        if features[0].target is not None:
            batch.update(self.targets([feature.target for feature in features], T))
        return batch

    @abstractmethod
    def targets(self, targets: Sequence[Any], T: int) -> Batch:
        """The targets of B features as tensors, among them counts (K,) float32: targets of each loss term."""

    @abstractmethod
    def no_target(self) -> Any:
        """The target of a row that fills a batch up: it counts for no loss term."""

    # ---- answers

    @abstractmethod
    def decode(self, examples: Sequence[E], features: Sequence[Feature], outputs: Sequence[Any]) -> list[Prediction]:
        """One prediction for each example, in order, in the user's own words. feature.example counts from the first of
        the examples given here.
        """

    @property
    @abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """Names that --best may have, the default first; "loss" is one for every task."""

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> Scores:
        """Predictions against the examples' gold."""

    def tuned(self, examples: Sequence[E], features: Sequence[Feature], outputs: Sequence[Any]) -> dict[str, Any]:
        """Settings that are chosen on the dev set, such as a threshold; they are saved with the model."""
        return {}

    def tables(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> list[Table]:
        """What a person wants to see beside the scores."""
        return []

    def mistakes(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> list[Mistake]:
        """Records that are answered otherwise than the gold has it, those first that a person should look at first."""
        return []

    def one_sided(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> str | None:
        """In words, that a model gives the one answer everywhere where the gold has several; None where it does not."""
        return None

    def write(self, predictions: Sequence[Prediction], output_format: str) -> str:
        """Predictions as text: JSONL, or another of the task's output_formats."""
        text = "".join(json.dumps(prediction, ensure_ascii=False) + "\n" for prediction in predictions)
        return text.translate(LINE_ENDS)

    # ---- for tests and for people who want to see the form of the data

    @classmethod
    @abstractmethod
    def demo(cls, folder: Path) -> Path:
        """Write a tiny labelled file that can be learnt by heart, of about a dozen records; returns its path."""

    # ---- settings

    def with_settings(self, settings: Mapping[str, Any]) -> Task[E, C]:
        """The same task, with all that it was settled to, and some settings changed."""
        other = copy.copy(self)
        other.config = replace(self.config, **settings)
        return other

    @classmethod
    def saved_settings(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that a config.json brings: what minibert wrote there, or what another program's words mean."""
        ours = config.get("minibert")
        if not isinstance(ours, dict):
            return cls.settings_of(config)
        settings = ours.get("settings")
        if not isinstance(settings, dict):
            raise UserError(
                "'minibert' names no settings", where="config.json", fix="it is of a damaged or foreign run"
            )
        return dict(settings)

    def own_settings(self) -> dict[str, Any]:
        """The task's own settings where they are not the defaults: what a saved model has to remember."""
        shared = {f.name for f in fields(FinetuneConfig)} - {"max_length"}
        own = [f for f in fields(self.config) if f.name not in shared]
        return {f.name: getattr(self.config, f.name) for f in own if getattr(self.config, f.name) != f.default}


def width_of(longest: int, max_length: int) -> int:
    """Tokens in the rows of a batch, padding included, whose longest row has so many."""
    return max(min(-(-longest // MULTIPLE) * MULTIPLE, max_length), longest)


def note(error: UserError, faults: list[UserError] | None) -> None:
    """Raise a record's mistake; where faults are collected, add it to them, and the reader goes on."""
    if faults is None:
        raise error
    faults.append(error)


def until_fault(items: Iterator[T], faults: list[UserError] | None) -> Iterator[T]:
    """All of them; where faults are collected, those before a mistake that stops a file, which is added to them."""
    try:
        yield from items
    except UserError as error:
        note(error, faults)


def check_types(features: Sequence[Feature], types: int, where: str) -> None:
    """Raises UserError where rows of two texts are to go into a model that knows one type of tokens."""
    if types < 2 and any(feature.second < len(feature.ids) for feature in features):
        raise UserError("has one token type; rows of two texts need two", where=where, fix="take another checkpoint")


def refuse_trained(kind: type[Task[Any, Any]], settings: Mapping[str, Any]) -> None:
    """Raises UserError for settings that a trained model has for good."""
    for name in kind.trained:
        if name in settings:
            flag = f"--{name.replace('_', '-')}"
            raise UserError("is decided when a model is trained", where=flag, fix=f"leave it out: {flag} is finetune's")


def refuse_foreign(kind: type[Task[Any, Any]], settings: Mapping[str, Any]) -> None:
    """Raises UserError for settings that this task does not have, such as those of another task."""
    own = {f.name for f in fields(kind.Config)}
    foreign = [name for name in settings if name not in own]
    if foreign:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        raise UserError(f"the task {kind.name} has no setting {', '.join(foreign)}", where=flags, fix="leave it out")


def input_format(path: Path, config: FinetuneConfig, formats: Mapping[str, str]) -> str:
    """The format of an input file: what the user said, or what its name says.

    Args: formats: suffix (".csv") -> format, for all that the task reads; a compression's suffix (.gz) is passed over.
    Returns: a format; "" where neither says it, and the reader has to look into the file.
    Raises: UserError for a format that the task does not read.
    """
    known = sorted(set(formats.values()))
    if config.input_format != "auto":
        if config.input_format not in known:
            raise UserError(
                f"{config.input_format!r} is no format of this task", where="--input-format",
                fix=f"one of {', '.join(known)}",
            )  # fmt: skip
        return config.input_format
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".bz2", ".xz", ".zst"):
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in formats and suffix in OTHER_FORMATS:
        raise UserError(
            f"files of labels that end in {suffix} are not of this task", where=str(path),
            fix=f"--input-format {'|'.join(known)}, if that is what it holds",
        )  # fmt: skip
    return formats.get(suffix, "")
