"""Scores of text classification: one class a text, several labels a text, or a number. All but mse in [-1, 1].

Legend: n texts, C classes, L labels. scikit-learn and scipy take a second to import and are loaded when first needed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def score_classes(gold: Sequence[int], predicted: Sequence[int], num_classes: int) -> dict[str, float]:
    """Scores where each text has exactly one class.

    Args: gold, predicted (n,) class numbers in 0..num_classes-1.
    Returns: accuracy. f1: with two classes that of class 1, as GLUE has it; with another number the mean over classes
        weighted by their share of gold. macro_f1: the plain mean over the classes that occur in gold or are predicted;
        a class that does neither is left out, as scikit-learn does without `labels`. mcc: Matthews correlation in
        [-1, 1], 0 where gold or predicted is constant. Whatever has a denominator of 0 is 0; with no text at all
        everything is NaN.
    Raises: ValueError for differing lengths, a number that is no class, or no whole number.
    Source: scikit-learn's f1_score and matthews_corrcoef, zero_division=0.
    """
    table = confusion(gold, predicted, num_classes)
    total = int(table.sum())
    if not total:
        return dict.fromkeys(("accuracy", "f1", "macro_f1", "mcc"), math.nan)
    from sklearn.metrics import f1_score, matthews_corrcoef

    present = np.flatnonzero(table.sum(axis=0) + table.sum(axis=1))
    if num_classes == 2:
        f1 = f1_score(gold, predicted, labels=[1], average="macro", zero_division=0)
    else:
        f1 = f1_score(gold, predicted, labels=present, average="weighted", zero_division=0)
    # scikit-learn warns of a single class, where the correlation is 0 by its own definition
    mcc = matthews_corrcoef(gold, predicted) if len(present) > 1 else 0.0
    return {
        "accuracy": int(table.trace()) / total,
        "f1": float(f1),
        "macro_f1": float(f1_score(gold, predicted, labels=present, average="macro", zero_division=0)),
        "mcc": float(mcc),
    }


def confusion(gold: Sequence[int], predicted: Sequence[int], num_classes: int) -> NDArray[np.int64]:
    """Count the texts of each pair of classes: (C,C) int64, a row for each gold class, a column for each predicted.

    Raises: ValueError as score_classes.
    """
    rows = _class_numbers(gold, "gold", num_classes)
    columns = _class_numbers(predicted, "predicted", num_classes)
    if len(rows) != len(columns):
        raise ValueError(f"{len(rows)} gold classes but {len(columns)} predicted ones")
    counts = np.bincount(rows * num_classes + columns, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def per_class(gold: Sequence[int], predicted: Sequence[int], num_classes: int) -> list[dict[str, float]]:
    """For each class, in order: precision, recall, f1 and support, the number of its texts in gold.

    What has a denominator of 0 is 0. Raises: ValueError as score_classes.
    """
    table = confusion(gold, predicted, num_classes)
    return _table(table.diagonal(), table.sum(axis=0), table.sum(axis=1))


def score_labels(gold: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """Scores where each text has any number of labels.

    Args: gold, predicted (n,L) of 0 and 1: text i has label j.
    Returns: micro_f1 over all pairs of text and label. macro_f1: the plain mean over all L labels, one that occurs
        nowhere counting 0, as scikit-learn has it. accuracy: the share of texts whose set of labels is exactly right.
        With no text at all everything is NaN.
    Raises: ValueError for shapes that differ or are not (n,L), and for values other than 0 and 1.
    Source: scikit-learn's f1_score and accuracy_score on indicator matrices, zero_division=0.
    """
    truth, guess = _indicators(gold, predicted)
    if not truth.size:
        return dict.fromkeys(("micro_f1", "macro_f1", "accuracy"), math.nan)
    from sklearn.metrics import f1_score

    if truth.shape[1] == 1:  # scikit-learn would take one column for two classes
        micro = macro = f1_score(truth[:, 0], guess[:, 0], labels=[1], average="macro", zero_division=0)
    else:
        micro = f1_score(truth, guess, average="micro", zero_division=0)
        macro = f1_score(truth, guess, average="macro", zero_division=0)
    exact = int((truth == guess).all(axis=1).sum())
    return {"micro_f1": float(micro), "macro_f1": float(macro), "accuracy": exact / len(truth)}


def per_label(gold: ArrayLike, predicted: ArrayLike) -> list[dict[str, float]]:
    """For each label, in order: precision, recall, f1 and support, the number of texts that have it in gold.

    What has a denominator of 0 is 0. Raises: ValueError as score_labels.
    """
    truth, guess = _indicators(gold, predicted)
    return _table((truth & guess).sum(axis=0), guess.sum(axis=0), truth.sum(axis=0))


def score_numbers(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Scores where each text has a number.

    Args: gold, predicted (n,).
    Returns: pearson and spearman correlation in [-1, 1], equal numbers sharing their mean rank; mse, the mean squared
        error in the square of the numbers' unit. A correlation is NaN where a side is constant or n < 2; everything
        is NaN where n = 0 or a predicted number is not finite.
    Raises: ValueError for differing lengths or a gold number that is not finite.
    """
    truth, guess = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if truth.ndim != 1 or truth.shape != guess.shape:
        raise ValueError(f"gold of shape {truth.shape} but predicted of shape {guess.shape}: both are to be (n,)")
    if not np.isfinite(truth).all():
        place = int(np.flatnonzero(~np.isfinite(truth))[0])
        raise ValueError(f"gold number {place} is {truth[place]}")
    scores = dict.fromkeys(("pearson", "spearman", "mse"), math.nan)
    if not len(truth) or not np.isfinite(guess).all():
        return scores
    with np.errstate(over="ignore"):
        scores["mse"] = float(np.mean((truth - guess) ** 2))
    if (truth == truth[0]).all() or (guess == guess[0]).all():
        return scores
    from scipy.stats import pearsonr, spearmanr

    with warnings.catch_warnings():
        # of a side that is nearly constant: there is no better value to be had
        warnings.simplefilter("ignore")
        scores["pearson"] = float(pearsonr(truth, guess).statistic)
        scores["spearman"] = float(spearmanr(truth, guess).statistic)
    return scores


def _class_numbers(numbers: Sequence[int], side: str, num_classes: int) -> NDArray[np.int64]:
    """The numbers as an array (n,) if each is a class. side: whose they are, for messages."""
    array: NDArray[Any] = np.asarray(numbers)
    if not array.size:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{side} is to be a row of whole numbers, not {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero((array < 0) | (array >= num_classes))
    if len(wrong):
        raise ValueError(f"{side} {wrong[0]} is class {array[wrong[0]]} of 0..{num_classes - 1}")
    return array.astype(np.int64)


def _indicators(gold: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Both sides as (n,L) bool."""
    sides = []
    for side, values in (("gold", gold), ("predicted", predicted)):
        array = np.asarray(values)
        if array.shape == (0,):
            array = array.reshape(0, 0)
        if array.ndim != 2:
            raise ValueError(f"{side} of shape {array.shape} is to be (texts, labels)")
        if not ((array == 0) | (array == 1)).all():
            raise ValueError(f"{side} holds values other than 0 and 1")
        sides.append(array.astype(np.bool_))
    if sides[0].shape != sides[1].shape:
        raise ValueError(f"gold of shape {sides[0].shape} but predicted of shape {sides[1].shape}")
    return sides[0], sides[1]


def _table(right: NDArray[np.int64], found: NDArray[np.int64], support: NDArray[np.int64]) -> list[dict[str, float]]:
    """One row for each class from its counts: predicted rightly, predicted, in gold."""
    return [
        {
            "precision": hits / guesses if guesses else 0.0,
            "recall": hits / there if there else 0.0,
            "f1": 2 * hits / (guesses + there) if guesses + there else 0.0,
            "support": there,
        }
        for hits, guesses, there in zip(right.tolist(), found.tolist(), support.tolist(), strict=True)
    ]
