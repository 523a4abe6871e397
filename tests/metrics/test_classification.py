"""Scores of classes, labels and numbers, by hand and against scikit-learn's own."""

import math

import numpy as np
import pytest
from sklearn import metrics as peer

from minibert.metrics.classification import (
    confusion,
    per_class,
    per_label,
    score_classes,
    score_labels,
    score_numbers,
)


def test_two_classes_by_hand():
    # class 1: 2 right of 3 predicted and 2 in gold: P 2/3, R 1, F 4/5. class 0: P 1, R 1/2, F 2/3
    scores = score_classes([0, 0, 1, 1], [0, 1, 1, 1], 2)
    # the correlation: of 2, 1, 0 and 1 texts, over the root of the product of the four sums
    assert scores == pytest.approx({"accuracy": 0.75, "f1": 0.8, "macro_f1": 11 / 15, "mcc": 2 / math.sqrt(12)})


def test_more_classes_by_hand_leave_out_the_one_that_occurs_nowhere():
    # class 0: F 1 (support 1); class 1: P 1, R 1/2, F 2/3 (support 2); class 3: predicted only, F 0; class 2: nowhere
    scores = score_classes([0, 1, 1], [0, 1, 3], 4)
    assert scores["f1"] == pytest.approx((1 + 2 * 2 / 3) / 3)
    assert scores["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert scores["accuracy"] == pytest.approx(2 / 3)


def test_classes_as_scikit_learn():
    draw = np.random.default_rng(0)
    for _ in range(60):
        num_classes = int(draw.integers(2, 6))
        gold, predicted = draw.integers(0, num_classes, (2, int(draw.integers(1, 12))))
        if len({*gold, *predicted}) < 2:
            continue
        scores = score_classes(gold.tolist(), predicted.tolist(), num_classes)
        average = "binary" if num_classes == 2 else "weighted"
        assert scores["f1"] == peer.f1_score(gold, predicted, average=average, zero_division=0)
        assert scores["macro_f1"] == peer.f1_score(gold, predicted, average="macro", zero_division=0)
        assert scores["mcc"] == peer.matthews_corrcoef(gold, predicted)
        assert scores["accuracy"] == peer.accuracy_score(gold, predicted)
        classes = list(range(num_classes))
        assert (confusion(gold, predicted, num_classes) == peer.confusion_matrix(gold, predicted, labels=classes)).all()
        rows = peer.precision_recall_fscore_support(gold, predicted, labels=classes, zero_division=0)
        table = per_class(gold, predicted, num_classes)
        np.testing.assert_allclose([list(row.values()) for row in table], np.transpose(rows), rtol=1e-15)


@pytest.mark.parametrize(
    ("gold", "predicted", "f1"),
    [([1, 1], [1, 1], 1.0), ([0, 0], [0, 0], 0.0), ([0], [1], 0.0), ([1], [0], 0.0)],
)
def test_one_class_alone_is_no_crash_and_no_warning(gold, predicted, f1):
    scores = score_classes(gold, predicted, 2)
    assert scores["f1"] == f1
    assert scores["mcc"] == 0.0


def test_of_a_single_class():
    assert score_classes([0, 0], [0, 0], 1) == {"accuracy": 1.0, "f1": 1.0, "macro_f1": 1.0, "mcc": 0.0}


def test_nothing_has_no_score():
    assert all(math.isnan(score) for score in score_classes([], [], 2).values())
    assert all(math.isnan(score) for score in score_labels([], []).values())
    assert all(math.isnan(score) for score in score_numbers([], []).values())
    assert confusion([], [], 2).tolist() == [[0, 0], [0, 0]]


def test_confusion_has_a_row_for_each_gold_class():
    table = confusion([0, 0, 2], [0, 1, 1], 3)
    assert table.tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert table.dtype == np.int64


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([0, 1], [0], "2 gold classes but 1"),
        ([0, 2], [0, 1], "gold 1 is class 2 of 0..1"),
        ([0, 1], [0, -1], "predicted 1 is class -1 of 0..1"),
        ([0.0, 1.0], [0, 1], "whole numbers, not float64"),
        ([[0], [1]], [0, 1], "of shape"),
        ([True], [1], "not bool"),
    ],
)
def test_classes_that_are_none(gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        score_classes(gold, predicted, 2)


def test_labels_by_hand():
    gold = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    predicted = [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    # label 0: 1 of 1 and 2: F 2/3; label 1: 1 of 2 and 1: F 2/3; label 2 nowhere: 0. Together 2 of 3 and 3
    scores = score_labels(gold, predicted)
    assert scores == pytest.approx({"micro_f1": 2 / 3, "macro_f1": 4 / 9, "accuracy": 1 / 3})
    assert per_label(gold, predicted) == [
        {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2},
        {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1},
        {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0},
    ]


def test_one_label_is_not_taken_for_two_classes():
    scores = score_labels([[1], [0], [0], [0]], [[1], [1], [0], [0]])
    assert scores == pytest.approx({"micro_f1": 2 / 3, "macro_f1": 2 / 3, "accuracy": 3 / 4})


def test_labels_as_scikit_learn():
    draw = np.random.default_rng(1)
    for _ in range(40):
        gold, predicted = draw.random((2, int(draw.integers(1, 8)), int(draw.integers(2, 5)))) < 0.4
        scores = score_labels(gold, predicted.astype(int))
        assert scores["micro_f1"] == peer.f1_score(gold, predicted, average="micro", zero_division=0)
        assert scores["macro_f1"] == peer.f1_score(gold, predicted, average="macro", zero_division=0)
        assert scores["accuracy"] == peer.accuracy_score(gold, predicted)


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([[1, 0]], [[1]], "shape"),
        ([1, 0], [[1, 0]], r"to be \(texts, labels\)"),
        ([[1, 0]], [[1, 2]], "predicted holds values other than 0 and 1"),
        ([[1, 0.5]], [[1, 1]], "gold holds"),
    ],
)
def test_labels_that_are_none(gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        score_labels(gold, predicted)


def test_numbers_by_hand():
    scores = score_numbers([1, 2, 3, 4], [2, 1, 4, 3])
    # deviations -1.5 -.5 .5 1.5 and -.5 -1.5 1.5 .5: 3 / 5; every error is 1
    assert scores == pytest.approx({"pearson": 0.6, "spearman": 0.6, "mse": 1.0})
    # ranks 1 2.5 2.5 4 against 1 2 3 4: 4.5 / sqrt(4.5 * 5)
    assert score_numbers([1, 2, 2, 9], [1, 2, 3, 4])["spearman"] == pytest.approx(4.5 / math.sqrt(22.5))


@pytest.mark.parametrize(
    ("gold", "predicted"), [([2, 2, 2], [1, 2, 3]), ([1, 2, 3], [5, 5, 5]), ([1], [4]), ([0.1] * 3, [0.1] * 3)]
)
def test_a_constant_side_has_no_correlation(gold, predicted):
    scores = score_numbers(gold, predicted)
    assert math.isnan(scores["pearson"])
    assert math.isnan(scores["spearman"])
    assert scores["mse"] == np.mean((np.array(gold) - predicted) ** 2)


def test_a_nearly_constant_side_is_no_warning():
    assert score_numbers([1, 2, 3], [1, 1, 1 + 2**-52])["spearman"] == pytest.approx(math.sqrt(3) / 2)


def test_a_diverged_model_has_no_score():
    assert all(math.isnan(score) for score in score_numbers([1, 2, 3], [1, math.nan, math.inf]).values())
    assert score_numbers([1, 2], [1, 1e308])["mse"] == math.inf


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [([1, math.nan], [1, 2], "gold number 1 is nan"), ([1, 2], [1], "shape"), ([[1]], [[1]], "shape")],
)
def test_numbers_that_are_none(gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        score_numbers(gold, predicted)
