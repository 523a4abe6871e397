"""The scores as evaluate.Metric classes: `add_batch`, `compute(predictions=..., references=...)`, without any network.

Without cache_dir what is added is kept in memory and nothing is written; with it, in temporary files there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as ListOf

from minibert.metrics import classification, cmrc, squad, tagging

_STRING, _WHOLE, _REAL = Value("string"), Value("int64"), Value("float64")


class _LocalMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """A metric that does not write to the home folder, as evaluate's do.

    Args: config_name: free, a name for the files in cache_dir. cache_dir: folder for temporary files, instead of
        memory; shared by all processes where num_process > 1. Others: evaluate.Metric's.
    """

    about = ""  # one sentence
    inputs = ""
    source = ""  # address
    layouts: tuple[Features, ...] = ()  # the forms that inputs may have, the first that fits is taken

    def __init__(
        self, config_name: str | None = None, *, cache_dir: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        if cache_dir is None:
            if options.get("num_process", 1) != 1:
                raise ValueError("several processes need a cache_dir that all of them reach")
            options["keep_in_memory"] = True
        self._writes = cache_dir is not None
        super().__init__(config_name, cache_dir=None if cache_dir is None else os.fspath(cache_dir), **options)

    def _build_data_dir(self) -> str:
        return str(super()._build_data_dir()) if self._writes else ""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.about,
            citation="",
            inputs_description=self.inputs,
            features=list(self.layouts),
            reference_urls=[self.source],
        )

    def add(self, *, prediction: Any = None, reference: Any = None, **kwargs: Any) -> None:
        """Add one record. Raises: as add_batch."""
        self.add_batch(predictions=[prediction], references=[reference], **kwargs)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add as many records as there are predictions: lists, arrays or tensors.

        Raises: TypeError or ValueError for inputs of another form, ValueError for differing lengths.
        """
        if predictions is None or references is None:
            raise ValueError("predictions and references are both needed")
        guesses = [self._record(record, "prediction") for record in _plain(predictions)]
        truths = [self._record(record, "reference") for record in _plain(references)]
        if len(guesses) != len(truths):
            raise ValueError(f"{len(guesses)} predictions but {len(truths)} references")
        if guesses:
            super().add_batch(predictions=guesses, references=truths, **kwargs)

    def compute(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> dict[str, Any] | None:
        """Add what is given, score all that was added since the last call, and forget it.

        Returns: the scores; None in a process other than the first.
        Raises: as add_batch; ValueError for what the scores' functions refuse, and where nothing was added.
        """
        given = predictions is not None or references is not None
        if given:
            self.add_batch(predictions=predictions, references=references)
        if self.writer is None and self.num_process == 1:
            if not given:
                raise ValueError("there is nothing to score: add predictions and references first")
            empty: dict[str, Any] = self._compute(predictions=[], references=[], **kwargs)
            return empty
        scores: dict[str, Any] | None = super().compute(**kwargs)
        return scores

    def _record(self, record: Any, side: str) -> Any:
        """One record in the form that layouts has. Raises: TypeError or ValueError for another form."""
        raise NotImplementedError


class Classification(_LocalMetric):
    """One class a text: accuracy f1 macro_f1 mcc, as classification.score_classes.

    Predictions and references: class numbers, or names. compute's labels: the classes in order, by default 0 to the
    largest number (at least two classes), or the names that occur, sorted. Of two classes f1 is the second one's.
    """

    about = "Accuracy, F1 and Matthews correlation where each text has one class."
    inputs = "predictions, references: list of int or list of str."
    source = "https://scikit-learn.org/stable/modules/model_evaluation.html"
    layouts = tuple(Features({"predictions": kind, "references": kind}) for kind in (_STRING, _WHOLE))

    def _record(self, record: Any, side: str) -> int | str:
        if not isinstance(record, int | str):
            raise TypeError(f"a {side} is {record!r}, not a class number or name")
        return record

    def _compute(
        self, *, predictions: list[Any], references: list[Any], labels: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        if labels is None:
            found = {*predictions, *references}
            named = any(isinstance(label, str) for label in found)
            labels = sorted(found) if named else range(max(2, *(int(label) + 1 for label in found), 0))
        numbers = _numbered(labels)
        gold, guessed = ([_number(numbers, label) for label in side] for side in (references, predictions))
        return classification.score_classes(gold, guessed, len(labels))


class MultiLabelClassification(_LocalMetric):
    """Any number of labels a text: micro_f1 macro_f1 accuracy, as classification.score_labels.

    Predictions and references: for each text a list of its labels' names, or a row of 0 and 1. compute's labels: the
    names in order, by default those that occur.
    """

    about = "F1 and exact accuracy where each text has any number of labels."
    inputs = "predictions, references: list of list of str, or list of rows of 0 and 1."
    source = "https://scikit-learn.org/stable/modules/model_evaluation.html"
    layouts = tuple(Features({"predictions": ListOf(kind), "references": ListOf(kind)}) for kind in (_STRING, _WHOLE))

    def _record(self, record: Any, side: str) -> list[Any]:
        return _list_of(record, side, (str, int), "names or of 0 and 1")

    def _compute(
        self, *, predictions: list[Any], references: list[Any], labels: Sequence[str] | None = None
    ) -> dict[str, Any]:
        if not any(isinstance(label, str) for row in (*references, *predictions) for label in row) and labels is None:
            if len({len(row) for row in (*references, *predictions)}) > 1:
                raise ValueError("the rows of 0 and 1 differ in length")
            return classification.score_labels(references, predictions)
        if labels is None:
            labels = sorted({label for row in (*references, *predictions) for label in row})
        numbers = _numbered(labels)
        gold: list[list[int]] = []
        guessed: list[list[int]] = []
        for rows, texts in ((gold, references), (guessed, predictions)):
            for names in texts:
                marked = {_number(numbers, name) for name in names}
                rows.append([int(number in marked) for number in range(len(labels))])
        return classification.score_labels(gold, guessed)


class Regression(_LocalMetric):
    """A number a text: pearson spearman mse, as classification.score_numbers."""

    about = "Pearson and Spearman correlation and mean squared error."
    inputs = "predictions, references: list of numbers."
    source = "https://docs.scipy.org/doc/scipy/reference/stats.html"
    layouts = (Features({"predictions": _REAL, "references": _REAL}),)

    def _record(self, record: Any, side: str) -> float:
        if not isinstance(record, int | float):
            raise TypeError(f"a {side} is {record!r}, not a number")
        return float(record)

    def _compute(self, *, predictions: list[Any], references: list[Any]) -> dict[str, Any]:
        return classification.score_numbers(references, predictions)


class Entities(_LocalMetric):
    """Entities in tags: precision recall f1 support, as tagging.score_entities, and per_type, the same by label.

    Predictions and references: for each sentence a list of tags. compute's strict: as score_entities has it.
    """

    about = "Entity-level precision, recall and F1, as conlleval and seqeval's default."
    inputs = "predictions, references: list of list of tags such as B-PER, I-PER, O."
    source = "https://github.com/chakki-works/seqeval"
    layouts = (Features({"predictions": ListOf(_STRING), "references": ListOf(_STRING)}),)

    def _record(self, record: Any, side: str) -> list[Any]:
        return _list_of(record, side, (str,), "tags")

    def _compute(self, *, predictions: list[Any], references: list[Any], strict: bool = False) -> dict[str, Any]:
        return {
            **tagging.score_entities(references, predictions, strict=strict),
            "per_type": tagging.per_type(references, predictions, strict=strict),
        }


class _Answers(_LocalMetric):
    inputs = 'predictions: list of {"id", "prediction_text"}; references: list of {"id", "answers": {"text": [...]}}.'
    layouts = (
        Features(
            {
                "predictions": {"id": _STRING, "prediction_text": _STRING},
                "references": {"id": _STRING, "answers": ListOf(_STRING)},
            }
        ),
    )

    def _record(self, record: Any, side: str) -> dict[str, Any]:
        wanted = "answers" if side == "reference" else "prediction_text"
        if not isinstance(record, Mapping) or not isinstance(record.get("id"), str) or wanted not in record:
            raise ValueError(f"a {side} is {record!r}: it needs a text as 'id' and {wanted!r}")
        name, found = record["id"], record[wanted]
        if side == "reference":
            texts = found.get("text") if isinstance(found, Mapping) else found
            if isinstance(texts, list | tuple):
                texts = [answer.get("text") if isinstance(answer, Mapping) else answer for answer in texts]
            return {"id": name, wanted: _list_of(texts, f"reference {name!r}", (str,), "answers")}
        if not isinstance(found, str) or len(record) > 2:
            raise ValueError(f"the prediction {record!r} is not a text as 'id' and one as {wanted!r} alone")
        return {"id": name, wanted: found}

    def _questions(self, predictions: list[Any], references: list[Any]) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Gold answers and predicted answer by id."""
        gold = {record["id"]: record["answers"] for record in references}
        guessed = {record["id"]: record["prediction_text"] for record in predictions}
        for side, once, records in (("references", gold, references), ("predictions", guessed, predictions)):
            if len(once) < len(records):
                raise ValueError(f"{len(records) - len(once)} of {len(records)} {side} repeat an id")
        return gold, guessed


class SquadAnswers(_Answers):
    """SQuAD: exact f1 total, HasAns_* and NoAns_*, as squad.score_answers. In any order: ids match.

    Predictions: {"id", "prediction_text"}, "" for no answer. References: {"id", "answers"}, answers as in SQuAD and in
    evaluate ({"text": [...], "answer_start": [...]} or [{"text", "answer_start"}]) or a list of texts.
    """

    about = "The official scores of SQuAD v1.1 and v2.0."
    source = "https://rajpurkar.github.io/SQuAD-explorer/"

    def _compute(
        self, *, predictions: list[Any], references: list[Any], version: squad.Version | None = None
    ) -> dict[str, Any]:
        return squad.score_answers(*self._questions(predictions, references), version=version)


class CmrcAnswers(_Answers):
    """CMRC 2018: cmrc_f1 cmrc_em, as cmrc.score_answers. Inputs are those of SquadAnswers."""

    about = "The official scores of CMRC 2018."
    source = "https://github.com/ymcui/cmrc2018"

    def _compute(self, *, predictions: list[Any], references: list[Any]) -> dict[str, Any]:
        return cmrc.score_answers(*self._questions(predictions, references))


def _plain(values: Any) -> Any:
    """Lists and Python's own numbers from lists, arrays and tensors, or anything within lists."""
    if hasattr(values, "tolist"):
        return values.tolist()
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


def _list_of(values: Any, side: str, kinds: tuple[type, ...], what: str) -> list[Any]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, kinds) for value in values):
        raise TypeError(f"a {side} is {values!r}, not a list of {what}")
    return list(values)


def _numbered(labels: Sequence[Any]) -> dict[Any, int]:
    return {label: number for number, label in enumerate(labels)}


def _number(numbers: Mapping[Any, int], label: Any) -> int:
    if label not in numbers:
        raise ValueError(f"{label!r} is not one of the labels {', '.join(map(repr, numbers))}")
    return numbers[label]
