"""The best measurement, and patience."""

import math

import pytest

from minibert.training.best import Best, is_lower_better


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("loss", [0.50, 0.30, 0.40, 0.35], 2),
        ("f1", [0.20, 0.90, 0.60, 0.90], 2),  # of equal ones the earliest
        ("loss", [0.50, math.nan, 0.40], 3),
        ("accuracy", [math.nan, 0.1, 0.05], 2),
        ("masked_loss", [3.0, 1.0, 2.0], 2),
        ("mse", [3.0, 1.0, 2.0], 2),
        ("exact", [0.0, 0.0], 1),
        ("f1", [math.nan, math.nan], None),
    ],
)
def test_best_of_a_history(metric, values, best):
    tracker = Best(metric)
    for step, value in enumerate(values, 1):
        tracker.better(value, step)
    assert tracker.step == best


def test_patience_counts_measurements_since_the_best():
    tracker = Best("loss")
    waited = []
    for step, value in enumerate([0.50, 0.30, 0.40, 0.35], 1):
        tracker.better(value, step)
        waited.append(tracker.waited)
    assert waited == [0, 0, 1, 2]  # patience 1 ends after the third


def test_state_goes_on():
    tracker = Best("f1")
    tracker.better(0.5, 3)
    tracker.better(0.4, 6)
    again = Best("f1", **tracker.state())
    assert again == tracker
    assert not again.better(0.5, 9)
    assert again.better(0.6, 12)


@pytest.mark.parametrize(
    ("metric", "lower"),
    [("loss", True), ("eval_foo_loss", True), ("mse", True), ("error", True), ("f1", False), ("exact", False),
     ("accuracy", False), ("cmrc_em", False), ("pearson", False), ("lossless_share", False)],
)  # fmt: skip
def test_direction(metric, lower):
    assert is_lower_better(metric) is lower
