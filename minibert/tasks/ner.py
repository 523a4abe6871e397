"""Named entities: a tag for each word.

A word's first piece carries its tag. Tags are IOB2, whatever scheme the training file has; entities are read and scored
as conlleval does. Letters in shape comments: B rows, T tokens, W words, C labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from minibert.config import FinetuneConfig, check_bounds, opt
from minibert.errors import UserError
from minibert.metrics.tagging import find_entities, per_type, score_entities, to_bio
from minibert.tasks.base import (
    Batch,
    Encoded,
    Feature,
    Mistake,
    Prediction,
    Reading,
    Record,
    Scores,
    Table,
    Task,
    input_format,
)
from minibert.tasks.conll import write_conll
from minibert.tasks.ner_files import FORMATS, NerExample, NerReader, example_of_record, example_of_text
from minibert.tasks.tags import as_bioes, label_numbers, tags_of_labels, type_of
from minibert.tasks.word_spans import WordFinder, joined
from minibert.tasks.word_windows import IGNORED, WordRows

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minibert.tokenization.tokenizer import BertTokenizer

DIGITS = 6  # of a score in a prediction
DEMO = """
John/B-PER Smith/I-PER lives/O in/O Rome/B-LOC ./O
Mary/B-PER works/O for/O Acme/B-ORG Bank/I-ORG ./O
Acme/B-ORG Bank/I-ORG left/O Paris/B-LOC ./O
Paris/B-LOC and/O Rome/B-LOC are/O old/O ./O
Smith/B-PER met/O Mary/B-PER Jones/I-PER there/O ./O
nobody/O was/O there/O ./O
王/B-PER 明/I-PER 住/O 在/O 北/B-LOC 京/I-LOC 。/O
李/B-PER 红/I-PER 去/O 了/O 上/B-LOC 海/I-LOC 。/O
北/B-ORG 京/I-ORG 大/I-ORG 学/I-ORG 很/O 大/O 。/O
上/B-ORG 海/I-ORG 银/I-ORG 行/I-ORG 在/O 上/B-LOC 海/I-LOC 。/O
王/B-PER 红/I-PER 在/O 银/O 行/O 。/O
今/O 天/O 下/O 雨/O 了/O 。/O
"""


@dataclass(frozen=True, kw_only=True)
class NerConfig(FinetuneConfig):
    """Settings of named entities."""

    epochs: float = opt(5.0, "passes over the training file")
    batch_size: int = opt(16, "rows per optimizer step, over all processes")
    scheme: Literal["auto", "bio", "iob1", "bioes"] = opt(
        "auto", "how tags mark an entity's begin; auto: told from the tags; bioes: BMES and BILOU too"
    )
    stride: int | None = opt(
        None,
        "tokens that two neighbouring windows of a long sentence share (the overlap, not the step; default: a "
        "quarter of max-length)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, {"stride": 0}, {})
        if self.stride is not None and self.stride >= self.max_length - 2:
            raise UserError(
                f"stride ({self.stride}), the overlap of windows, is not below the {self.max_length - 2} tokens that "
                f"max_length ({self.max_length}) leaves for words: windows would not move on",
                where="stride", fix=f"--stride {self.max_length // 4}, or a larger --max-length",
            )  # fmt: skip

    @property
    def overlap(self) -> int:
        """Tokens that windows share."""
        return self.max_length // 4 if self.stride is None else self.stride


class Ner(Task[NerExample, NerConfig]):
    """Tags for words, and the entities that they mark."""

    name = "ner"
    summary = "named entities: a tag for each word"
    Config = NerConfig
    formats = ("conll", "jsonl", "txt")
    output_formats = ("jsonl", "conll")
    answer = "tags"

    def __init__(self, config: NerConfig, labels: Sequence[str] = ()) -> None:
        super().__init__(config, labels)
        self.tags = tags_of_labels(self.labels)  # what each label says
        self.types = sorted({type_of(tag) for tag in self.tags if tag != "O"})

    # ---- data

    def read(self, path: Path, *, gold: bool, train: bool = False) -> Reading[NerExample]:
        config = self.config
        layout = input_format(path, config, FORMATS)
        if layout == "txt" and config.input_format == "auto":
            layout = ""  # words with tags are often called .txt
        scheme = None if config.scheme == "auto" else config.scheme
        return NerReader(layout, config.encoding, scheme, self.labels, gold, train, self.faults).read(path)

    def record(self, example: NerExample) -> Record:
        text = joined(example.tokens) if example.text is None else example.text
        return Record(text, " ".join(example.tags or ()), example.where())

    def from_python(self, *inputs: Any, **named: Any) -> list[NerExample]:
        """A text, a record ({"text": ...} or {"tokens": [...]}), or a list whose items are these or lists of words."""
        if named or len(inputs) != 1:
            raise UserError(
                f"{len(inputs)} inputs, named {', '.join(named) or 'none'}: ner takes one text or one list",
                fix="put several texts into a list",
            )
        single = isinstance(inputs[0], str | Mapping)
        return [self._example(item, i) for i, item in enumerate([inputs[0]] if single else inputs[0])]

    def _example(self, item: Any, number: int) -> NerExample:
        if isinstance(item, str):
            return example_of_text(item, self._finder)
        if isinstance(item, Mapping):
            return example_of_record(item, f"input {number}", self._finder)
        if isinstance(item, Sequence) and all(isinstance(word, str) for word in item):
            return NerExample(list(item))
        raise UserError(f"{item!r} is no text and no list of words", where=f"input {number}")

    @cached_property
    def _finder(self) -> WordFinder:
        return WordFinder()

    def labels_of(self, examples: Sequence[NerExample]) -> list[str]:
        return sorted({tag for example in examples for tag in example.tags or ()})

    def check(self, examples: Sequence[NerExample]) -> None:
        known = set(self.types)
        for example in examples:
            types = {type_of(tag) for tag in example.tags or () if tag != "O"} | set(example.missed)
            if types <= known:
                continue
            name = min(types - known)
            words = [i for i, tag in enumerate(example.tags or ()) if tag != "O" and type_of(tag) == name]
            word = f" of {example.tokens[words[0]]!r}" if words else ""
            raise UserError(
                f"the model knows no entities of the type {name!r}{word}; it has learnt {', '.join(self.types)}",
                example.where(words[0] if words else 0), "label it in the training file too, or correct it here",
            )  # fmt: skip

    def encode(
        self, examples: Sequence[NerExample], tokenizer: BertTokenizer, *, gold: bool, first: int = 0
    ) -> Encoded:
        rows = WordRows(tokenizer, self.config.max_length, self.config.overlap)
        numbers = label_numbers(self.labels)
        features: list[Feature] = []
        for i, example in enumerate(examples, first):
            targets = None
            if gold:
                tags = as_bioes(example.tags or ())
                targets = np.array([numbers.get(tag, IGNORED) for tag in tags], np.int64)
            features += rows.rows(i, example.tokens, targets)
        return Encoded(features, rows.notes())

    # ---- network

    @classmethod
    def model_class(cls) -> type[nn.Module]:
        from minibert.model.heads import BertForTokenClassification

        return BertForTokenClassification

    def losses(self, out: Any, batch: Batch) -> Tensor:
        import torch.nn.functional as F

        logits = out.logits.flatten(0, 1).float()  # (B*T,C)
        return F.cross_entropy(logits, batch["labels"].flatten(), ignore_index=IGNORED, reduction="sum")[None]

    def outputs(self, out: Any, features: Sequence[Feature]) -> list[Any]:
        """(W,C) float32 for the words that take their answer from the feature."""
        logits = out.logits.float().cpu().numpy()  # (B,T,C)
        return [row[feature.extra] for row, feature in zip(logits, features, strict=True)]

    def targets(self, targets: Sequence[NDArray[np.int64]], T: int) -> Batch:
        import torch

        labels = torch.full((len(targets), T), IGNORED)
        for i, target in enumerate(targets):
            labels[i, : len(target)] = torch.from_numpy(target)
        return {"labels": labels, "counts": (labels != IGNORED).sum()[None].float()}

    def no_target(self) -> NDArray[np.int64]:
        return np.empty(0, np.int64)

    # ---- answers

    def decode(
        self, examples: Sequence[NerExample], features: Sequence[Feature], outputs: Sequence[NDArray[np.float32]]
    ) -> list[Prediction]:
        """Of each word the likeliest label. An entity's score is the mean probability of its words' labels."""
        if not examples:
            return []
        logits = np.concatenate(outputs).astype(np.float64)  # the words of all examples, in order
        ends = list(accumulate((len(example.tokens) for example in examples), initial=0))
        assert len(logits) == ends[-1], "every word has one answer"
        best = logits.argmax(-1)
        scores = 1 / np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)  # softmax of the largest
        said = [self.tags[i] for i in best.tolist()]
        return [
            self._prediction(example, to_bio(said[start:end], "bioes"), scores[start:end])
            for example, start, end in zip(examples, ends, ends[1:], strict=False)
        ]

    def _prediction(self, example: NerExample, tags: list[str], scores: NDArray[np.float64]) -> Prediction:
        entities = []
        for label, first, stop in find_entities(tags):
            start, end, text = first, stop, ""
            if example.text is None:
                text = joined(example.tokens[first:stop])
            else:
                start, end = example.spans[first][0], example.spans[stop - 1][1]
                text = example.text[start:end]
            score = round(float(scores[first:stop].mean()), DIGITS)
            entities.append({"label": label, "start": start, "end": end, "text": text, "score": score})
        text_first = {} if example.text is None else {"text": example.text}
        return {**text_first, "tokens": list(example.tokens), "tags": tags, "entities": entities}

    @property
    def metric_names(self) -> tuple[str, ...]:
        """f1 of all entities and what it is made of, then f1 of each type."""
        return ("f1", "precision", "recall", *(f"{name}_f1" for name in self.types))

    def score(self, examples: Sequence[NerExample], predictions: Sequence[Prediction]) -> Scores:
        """precision, recall, f1 and support over all entities as conlleval has them, and TYPE_f1 ... for each type."""
        gold, predicted = _tag_rows(examples, predictions)
        scores = score_entities(gold, predicted)
        for name, values in self._types(gold, predicted).items():
            scores |= {f"{name}_{key}": value for key, value in values.items()}
        return scores

    def one_sided(self, examples: Sequence[NerExample], predictions: Sequence[Prediction]) -> str | None:
        gold, predicted = _tag_rows(examples, predictions)
        found, wanted = ({tag for row in rows for tag in row} for rows in (predicted, gold))
        return "no entity is found in any text" if found == {"O"} != wanted else None

    def tables(self, examples: Sequence[NerExample], predictions: Sequence[Prediction]) -> list[Table]:
        gold, predicted = _tag_rows(examples, predictions)
        columns = ("precision", "recall", "f1", "support")
        everything = {**self._types(gold, predicted), "all": score_entities(gold, predicted)}
        rows = [
            (name, *(f"{values[key]:.4f}" for key in columns[:3]), f"{values['support']:,.0f}")
            for name, values in everything.items()
        ]
        return [Table("entities by type", ("type", *columns), rows)]

    def mistakes(self, examples: Sequence[NerExample], predictions: Sequence[Prediction]) -> list[Mistake]:
        """The sentences with the most wrong entities first."""
        found = []
        for example, said in zip(examples, predictions, strict=True):
            gold, answer = (set(find_entities(tags)) for tags in (example.tags or (), said["tags"]))
            if gold == answer and not example.missed:
                continue
            text, spans = with_places(example)
            entities = sorted(gold | answer, key=lambda entity: (entity[1], entity[2], entity[0]))
            marks = [
                (spans[first][0], spans[stop - 1][1], _whose((label, first, stop), gold, answer), label)
                for label, first, stop in entities
            ]
            said_of = {e: f"{e[0]} {text[spans[e[1]][0] : spans[e[2] - 1][1]]}" for e in entities}
            words = [", ".join(dict.fromkeys(said_of[e] for e in entities if e in own)) for own in (gold, answer)]
            lost = f" (and {len(example.missed)} that no tag can say)" if example.missed else ""
            mistake = Mistake(
                text,
                (words[0] or "(none)") + lost,
                words[1] or "(none)",
                marks=marks,
                where=example.where() if example.path else "",
            )
            found.append((-len(gold ^ answer) - len(example.missed), mistake))
        return [mistake for _, mistake in sorted(found, key=lambda item: item[0])]

    def _types(self, gold: list[list[str]], predicted: list[list[str]]) -> dict[str, dict[str, float]]:
        """The scores of every type of the model, also where it does not occur: seeds and measurements agree in them."""
        nothing = {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
        return dict(sorted({**dict.fromkeys(self.types, nothing), **per_type(gold, predicted)}.items()))

    def write(self, predictions: Sequence[Prediction], output_format: str) -> str:
        if output_format == "conll":
            return write_conll((prediction["tokens"], prediction["tags"]) for prediction in predictions)
        return super().write(predictions, output_format)

    @classmethod
    def demo(cls, folder: Path) -> Path:
        sentences = [[word.rsplit("/", 1) for word in line.split()] for line in DEMO.split("\n")]
        path = folder / "demo.jsonl"
        records = (
            {"tokens": [token for token, _ in sentence], "tags": [tag for _, tag in sentence]}
            for sentence in sentences
            if sentence
        )
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8", newline="")
        return path


def with_places(example: NerExample) -> tuple[str, list[tuple[int, int]]]:
    """The text of a sentence, and where each word stands in it."""
    if example.text is not None:
        return example.text, [(start, end) for start, end in example.spans]
    text, spans = "", []
    for word in example.tokens:
        longer = joined((text, word)) if text else word
        spans.append((len(longer) - len(word), len(longer)))
        text = longer
    return text, spans


def _whose(entity: Any, gold: set[Any], answer: set[Any]) -> str:
    return "both" if entity in gold and entity in answer else "gold" if entity in gold else "answer"


def _tag_rows(
    examples: Sequence[NerExample], predictions: Sequence[Prediction]
) -> tuple[list[list[str]], list[list[str]]]:
    """The tags of gold and predictions; a gold entity that no tags can say is a sentence of its own that has none."""
    gold, predicted = [], []
    for example, prediction in zip(examples, predictions, strict=True):
        gold.append(list(example.tags or ()))
        predicted.append(list(prediction["tags"]))
        for name in example.missed:
            gold.append([f"B-{name}"])
            predicted.append(["O"])
    return gold, predicted
