"""Text classification: one class for each text or pair of texts, any number of labels, or a number.

Letters in shape comments: B rows, C classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minibert.corpus.json_lines import shorten
from minibert.errors import UserError
from minibert.metrics.classification import confusion, per_class, per_label, score_classes, score_labels, score_numbers
from minibert.tasks.base import Batch, Encoded, Feature, Mistake, Prediction, Reading, Record, Scores, Table, Task
from minibert.tasks.cls_rows import ClsConfig, ClsExample, from_values, label_names, read_rows
from minibert.tasks.tables import NAMES, near

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minibert.tokenization.tokenizer import BertTokenizer

NO_CLASS = -100  # the target of a row that counts for nothing
ROWS_SHOWN = 30  # of the table of classes
SQUARE_SHOWN = 12  # classes whose confusions are shown as a square; with more, the most frequent are listed
DEMO = """\
text,label
what a lovely warm film,good
I loved every minute of it,good
a clever and funny story,good
the best day of the year,good
这部电影真好看,good
我很喜欢这个故事,good
a dull and endless film,bad
I hated the noisy music,bad
the plot makes no sense,bad
这本书太无聊了,bad
音乐很难听,bad
the train leaves at nine,neither
会议在下午三点开始,neither
"she said ""bring a map"", and left",neither
"""


class Cls(Task[ClsExample, ClsConfig]):
    """Text classification, as GLUE and CLUE have it.

    Attributes: weights (C,) float32: how much a row of each class counts in the loss; None: as much as any other.
    """

    name = "cls"
    summary = "one class for a text or a pair of texts, several labels, or a number (CSV, TSV, JSONL, parquet)"
    Config = ClsConfig
    formats = NAMES
    trained = ("multi_label", "regression", "labels", "class_weights")

    def __init__(self, config: ClsConfig, labels: Sequence[str] = ()) -> None:
        super().__init__(config, labels)
        self.weights: np.ndarray | None = None

    # ---- data

    def read(self, path: Path, *, gold: bool, train: bool = False) -> Reading[ClsExample]:
        """The rows of a file, every one of them, in training too."""
        return read_rows(path, self.config, gold=gold, faults=self.faults)

    def record(self, example: ClsExample) -> Record:
        gold = " | ".join(example.names) if example.names else "" if example.label in (None, ()) else f"{example.label}"
        return Record(example.text if example.pair is None else f"{example.text}\n{example.pair}", gold, example.where)

    def from_python(self, *inputs: Any, **named: Any) -> list[ClsExample]:
        """A text or a list of texts; for pairs two such arguments, or a list of (text, pair). A dict with "text" and
        "text_pair" stands for one of them, and text=, text_pair= name the arguments.
        """
        return from_values(inputs, named, self.config)

    def labels_of(self, examples: Sequence[ClsExample]) -> list[str]:
        """See label_names. For regression: transformers' name of the only output. Of two classes the second one is the
        positive one for f1.
        """
        return ["LABEL_0"] if self.config.regression else label_names(examples, self.config)

    def settled(self, examples: Sequence[ClsExample]) -> Cls:
        """The task with the training file's labels and, with class_weights, the weight of each class: n / (C n_c), as
        scikit-learn has it.
        """
        task = Cls(self.config, self.labels_of(examples))
        if self.config.class_weights == "balanced":
            task.check(examples)
            counts = Counter(example.label for example in examples)
            absent = [label for label in task.labels if not counts[label]]
            if absent:
                shown = ", ".join(map(shorten, absent[:5]))
                raise UserError(f"no row of the training file is {shown}", "--class-weights", "leave it out")
            shares = [len(examples) / (len(task.labels) * counts[label]) for label in task.labels]
            task.weights = np.array(shares, np.float32)
        return task

    def check(self, examples: Sequence[ClsExample]) -> None:
        """Raises UserError for the first label that is not among the model's, with their number."""
        if self.config.regression:
            return
        unknown = [(e, name) for e in examples for name in e.names if name not in self.label_ids]
        if not unknown:
            return
        example, name = unknown[0]
        shown = ", ".join(self.labels[:20]) + (f" ... {len(self.labels)} in all" if len(self.labels) > 20 else "")
        more = f" ({len(unknown)} such labels in all)" if len(unknown) > 1 else ""
        other = near(name, self.labels)
        fix = f"did you mean {other!r}? " if other else ""
        raise UserError(
            f"the label {name!r} is not among those of training: {shown}{more}", example.where,
            f"{fix}correct the row, or train with rows of that class",
        )  # fmt: skip

    def encode(
        self, examples: Sequence[ClsExample], tokenizer: BertTokenizer, *, gold: bool, first: int = 0
    ) -> Encoded:
        """[CLS] text [SEP] or [CLS] text [SEP] pair [SEP], a row for each example. What is too long is cut at its end,
        of a pair the longer side first. A text without words gives [CLS] [SEP].
        """
        from minibert.tokenization.tokenizer import fit_lengths

        cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        texts = tokenizer.encode([example.text for example in examples])
        pairs = iter(tokenizer.encode([example.pair for example in examples if example.pair is not None]))
        features, cut = [], 0
        for number, (example, ids) in enumerate(zip(examples, texts, strict=True), first):
            sides = [ids] if example.pair is None else [ids, next(pairs)]
            lengths = [len(side) for side in sides]
            kept = fit_lengths(lengths, self.config.max_length - 1 - len(sides))
            cut += kept != lengths
            row = [cls]
            for side, length in zip(sides, kept, strict=True):
                row += [*side[:length], sep]
            second = kept[0] + 2  # behind the first [SEP]: the end of the row where there is no pair
            target = self._target(example) if gold else None
            features.append(Feature(number, np.array(row, np.int32), second, target))
        notes = []
        if cut:
            notes.append(f"{cut} of {len(examples)} rows were cut at {self.config.max_length} tokens (--max-length)")
        return Encoded(features, notes)

    def _target(self, example: ClsExample) -> Any:
        if self.config.regression:
            return example.label
        if self.config.multi_label:
            row = np.zeros(len(self.labels), np.float32)
            row[[self.label_ids[name] for name in example.names]] = 1
            return row
        assert isinstance(example.label, str)
        return self.label_ids[example.label]

    # ---- network

    @classmethod
    def model_class(cls) -> type[nn.Module]:
        """Logits (B,C) from [CLS] through the pooler."""
        from minibert.model.heads import BertForSequenceClassification

        return BertForSequenceClassification

    def facts(self) -> dict[str, Any]:
        """The label names, and which of the three kinds of problem it is."""
        kinds = {"regression": self.config.regression, "multi_label_classification": self.config.multi_label}
        kind = next((name for name, on in kinds.items() if on), "single_label_classification")
        return {**super().facts(), "problem_type": kind}

    @classmethod
    def settings_of(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """multi_label or regression, from problem_type; without it, a single label means regression, as in
        transformers.
        """
        kind = config.get("problem_type")
        single = len(config.get("id2label") or ()) == 1 or config.get("num_labels") == 1
        if kind == "regression" or (kind is None and single):
            return {"regression": True}
        return {"multi_label": True} if kind == "multi_label_classification" else {}

    def losses(self, out: Any, batch: Batch) -> Tensor:
        """(1,): cross entropy of classes, binary cross entropy of each label, or squared error; weighted and summed."""
        import torch.nn.functional as F

        logits, gold = out.logits.float(), batch["labels"]
        if self.config.regression:
            each = (logits.squeeze(-1) - gold) ** 2  # (B,)
        elif self.config.multi_label:
            each = F.binary_cross_entropy_with_logits(logits, gold, reduction="none").sum(-1)  # (B,)
        else:
            each = F.cross_entropy(logits, gold, reduction="none")  # (B,)
        total: Tensor = (each * batch["label_weights"]).sum()[None]
        return total

    def outputs(self, out: Any, features: Sequence[Feature]) -> list[Any]:
        """The logits (C,) of each row."""
        return list(out.logits.float().cpu().numpy()[: len(features)])

    def targets(self, targets: Sequence[Any], T: int) -> Batch:
        """labels (B,) int64, (B,C) or (B,) float32; label_weights (B,): 0 where a row counts for nothing. counts (1,):
        the sum of the weights, of every label where there are several, so that the loss is torch's weighted mean.
        """
        import torch

        if self.config.regression or self.config.multi_label:
            gold = np.array(targets, np.float32)  # (B,) or (B,C), NaN in fillers
            weights = (~np.isnan(gold.reshape(len(gold), -1)[:, 0])).astype(np.float32)
            counts = weights.sum() * (len(self.labels) if self.config.multi_label else 1)
            gold = np.nan_to_num(gold)
        else:
            gold = np.array(targets, np.int64)
            weights = (gold != NO_CLASS).astype(np.float32)
            gold = np.where(gold == NO_CLASS, 0, gold)
            if self.weights is not None:
                weights *= self.weights[gold]
            counts = weights.sum()
        return {
            "labels": torch.from_numpy(gold), "label_weights": torch.from_numpy(weights),
            "counts": torch.tensor([float(counts)]),
        }  # fmt: skip

    def no_target(self) -> Any:
        """A target with weight 0."""
        if self.config.multi_label:
            return np.full(len(self.labels), np.nan, np.float32)
        return math.nan if self.config.regression else NO_CLASS

    # ---- answers

    def decode(
        self, examples: Sequence[ClsExample], features: Sequence[Feature], outputs: Sequence[Any]
    ) -> list[Prediction]:
        """{"id"?, "text", "pair"?, "label", "score", "scores": {label: probability}}, probabilities to 6 digits.

        With multi_label: label is the list of those above one half, score the list of their probabilities. With
        regression: label and score are the number, without scores.
        Raises: UserError where the model gives no number.
        """
        if not examples:
            return []
        logits = np.stack(outputs).astype(np.float64)  # (B,C)
        if not np.isfinite(logits).all():
            place = int(np.flatnonzero(~np.isfinite(logits).all(-1))[0])
            raise UserError(f"the model's output is {logits[place].tolist()}", examples[place].where, "train it anew")
        if self.config.multi_label:
            exact = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
        else:
            exact = np.exp(logits - logits.max(-1, keepdims=True))
            exact /= exact.sum(-1, keepdims=True)
        rows = np.round(exact, 6).tolist()
        predictions = []
        for example, scores, row in zip(examples, logits, rows, strict=True):
            said: Prediction = {} if example.id is None else {"id": example.id}
            said["text"] = example.text
            if example.pair is not None:
                said["pair"] = example.pair
            if self.config.regression:
                number = float(f"{scores[0]:.7g}")  # what float32 knows
                said.update(label=number, score=number)
            elif self.config.multi_label:
                chosen = np.flatnonzero(scores > 0).tolist()
                said.update(label=[self.labels[i] for i in chosen], score=[row[i] for i in chosen])
                said["scores"] = dict(zip(self.labels, row, strict=True))
            else:
                best = int(scores.argmax())
                said.update(label=self.labels[best], score=row[best])
                said["scores"] = dict(zip(self.labels, row, strict=True))
            predictions.append(said)
        return predictions

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Accuracy first; micro F1 with multi_label, Pearson's correlation with regression."""
        if self.config.regression:
            return ("pearson", "spearman", "mse")
        if self.config.multi_label:
            return ("micro_f1", "macro_f1", "accuracy")
        return ("accuracy", "f1", "macro_f1", "mcc")

    def score(self, examples: Sequence[ClsExample], predictions: Sequence[Prediction]) -> Scores:
        """See minibert.metrics.classification. A correlation that is not defined, one side being constant, is 0."""
        if self.config.regression:
            gold = [float(e.label) for e in examples if isinstance(e.label, float)]
            scores = score_numbers(gold, [p["score"] for p in predictions])
            return {k: 0.0 if math.isnan(value) and k != "mse" else value for k, value in scores.items()}
        if self.config.multi_label:
            return score_labels(*self._indicators(examples, predictions))
        return score_classes(*self._classes(examples, predictions), len(self.labels))

    def _classes(
        self, examples: Sequence[ClsExample], predictions: Sequence[Prediction]
    ) -> tuple[list[int], list[int]]:
        gold = [self.label_ids[name] for example in examples for name in example.names]
        return gold, [self.label_ids[prediction["label"]] for prediction in predictions]

    def _indicators(
        self, examples: Sequence[ClsExample], predictions: Sequence[Prediction]
    ) -> tuple[np.ndarray, np.ndarray]:
        gold = np.array([[label in example.names for label in self.labels] for example in examples], np.int64)
        return gold, np.array([[label in p["label"] for label in self.labels] for p in predictions], np.int64)

    def one_sided(self, examples: Sequence[ClsExample], predictions: Sequence[Prediction]) -> str | None:
        if self.config.regression or len({example.names for example in examples}) < 2:
            return None
        given = {str(prediction["label"]) for prediction in predictions}
        return f"every text is labelled {given.pop()!r}" if len(given) == 1 else None

    def tables(self, examples: Sequence[ClsExample], predictions: Sequence[Prediction]) -> list[Table]:
        """Precision, recall and F1 of each class; which classes are taken for which."""
        if self.config.regression or not examples:
            return []
        if self.config.multi_label:
            return [self._by_class(per_label(*self._indicators(examples, predictions)))]
        gold, predicted = self._classes(examples, predictions)
        C = len(self.labels)
        counts = confusion(gold, predicted, C)
        tables = [self._by_class(per_class(gold, predicted, C))]
        if C <= SQUARE_SHOWN:
            rows = [[label, *map(str, row)] for label, row in zip(self.labels, counts.tolist(), strict=True)]
            return [
                *tables,
                Table("confusions: rows are gold, columns predicted", ["", *self.labels], rows, counts=True),
            ]
        wrong = [(int(counts[i, j]), i, j) for i, j in np.argwhere(counts) if i != j]
        wrong.sort(key=lambda item: (-item[0], item[1:]))
        rows = [[self.labels[i], self.labels[j], str(n)] for n, i, j in wrong[:ROWS_SHOWN]]
        title = f"the {len(rows)} most frequent of {len(wrong)} confusions" if wrong else "no confusions"
        return [*tables, Table(title, ["gold", "predicted", "rows"], rows)]

    def mistakes(self, examples: Sequence[ClsExample], predictions: Sequence[Prediction]) -> list[Mistake]:
        """The surest first; of numbers those that are farthest off."""
        found = []
        for example, said in zip(examples, predictions, strict=True):
            label, score, where = said["label"], said["score"], example.where
            if self.config.regression:
                assert isinstance(example.label, float)
                off = abs(label - example.label)
                found.append(
                    (-off, Mistake(example.text, f"{example.label:g}", f"{label:g}", example.pair or "", where=where))
                )
            elif self.config.multi_label:
                if set(label) != set(example.names):
                    scores = said["scores"]
                    wrong = set(label) ^ set(example.names)
                    sure = max(max(scores[name], 1 - scores[name]) for name in wrong)
                    gold, answer = (", ".join(names) or "(none)" for names in (sorted(example.names), sorted(label)))
                    found.append((-sure, Mistake(example.text, gold, answer, example.pair or "", sure, where=where)))
            elif (label,) != example.names:
                gold = ", ".join(example.names)
                found.append((-score, Mistake(example.text, gold, label, example.pair or "", score, where=where)))
        return [mistake for _, mistake in sorted(found, key=lambda item: item[0])]

    def _by_class(self, found: Sequence[Mapping[str, float]]) -> Table:
        order = list(range(len(self.labels)))
        title = "classes"
        if len(order) > ROWS_SHOWN:
            order = sorted(order, key=lambda i: -found[i]["support"])[:ROWS_SHOWN]
            title = f"the {ROWS_SHOWN} most frequent of {len(self.labels)} classes"
        names = ("precision", "recall", "f1")
        rows = [[self.labels[i], *(f"{found[i][k]:.4f}" for k in names), f"{found[i]['support']:,.0f}"] for i in order]
        return Table(title, ["label", *names, "rows"], rows)

    def own_settings(self) -> dict[str, Any]:
        """Without those that only training looks at: the label names themselves are saved."""
        own = super().own_settings()
        return {name: value for name, value in own.items() if name not in ("labels", "class_weights")}

    @classmethod
    def demo(cls, folder: Path) -> Path:
        """demo.csv: fourteen texts of three classes, English and Chinese."""
        path = folder / "demo.csv"
        path.write_text(DEMO, "utf-8")
        return path
