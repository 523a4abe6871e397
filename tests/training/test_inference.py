"""Outputs of all rows, in order, whatever batches they were in."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from minibert.training.inference import in_float32, infer, length_batches


@dataclass
class Row:
    ids: np.ndarray
    target: float | None = None


class Sums:
    """The model's output is the sum of a row's numbers; the loss its distance to the target."""

    terms = ("loss",)

    def __init__(self):
        self.shapes = []

    def batch(self, rows, pad_id):
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([[*row.ids.tolist(), *[pad_id] * (width - len(row.ids))] for row in rows])
        self.shapes.append(tuple(ids.shape))
        batch = {"ids": ids.float()}
        if rows[0].target is not None:
            batch["labels"] = torch.tensor([row.target for row in rows])
            batch["counts"] = torch.tensor([float(len(rows))])
        return batch

    def forward(self, model, batch):
        return model(batch["ids"].sum(1, keepdim=True))[:, 0]

    def losses(self, out, batch):
        return (out - batch["labels"]).abs().sum()[None]

    def outputs(self, out, rows):
        return out.tolist()


@pytest.fixture
def model():
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.zero_()
    return layer.train()


def rows_of(lengths, target=None):
    return [Row(np.full(n, i + 1), target) for i, n in enumerate(lengths)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 10])
def test_outputs_come_in_order(model, batch_size):
    lengths = [3, 1, 5, 2, 2, 4, 1]
    outputs, loss = infer(model, Sums(), rows_of(lengths), pad_id=0, batch_size=batch_size)
    assert outputs == [(i + 1) * n for i, n in enumerate(lengths)]
    assert np.isnan(loss)
    assert model.training  # as it was


def test_progress_goes_by_the_work_and_ends_at_one(model):
    shares = []
    infer(model, Sums(), rows_of([4, 4, 2, 2, 2]), pad_id=0, batch_size=2, progress=shares.append)
    assert shares == [8 / 14, 12 / 14, 1.0]


def test_loss_is_the_mean_over_all_rows(model):
    _, loss = infer(model, Sums(), rows_of([1, 1, 1], 1.0), pad_id=0, batch_size=2)
    assert loss == pytest.approx((0 + 1 + 2) / 3)


def test_longest_first_and_little_padding(model):
    task = Sums()
    infer(model, task, rows_of([1, 9, 1, 8, 2, 2]), pad_id=0, batch_size=2)
    assert task.shapes == [(2, 9), (2, 2), (2, 1)]


def test_no_rows_at_all(model):
    assert infer(model, Sums(), [], pad_id=0, batch_size=2)[0] == []


def test_ends_early_when_told(model):
    asked = iter([False, True])
    outputs, _ = infer(model, Sums(), rows_of([3, 2, 1]), pad_id=0, batch_size=1, stopped=lambda: next(asked))
    assert outputs == [3, None, None]


def test_a_batch_holds_so_many_tokens_at_most():
    lengths = [100, 90, 40, 30, 30, 5, 5, 5, 300]
    batches = length_batches(lengths, 3, most_tokens=120)
    assert [batch.tolist() for batch in batches] == [[8], [0], [1], [2, 3, 4], [5, 6, 7]]


def test_float32_whatever_prepare_has_done_to_the_model():
    """accelerate puts autocast round a model's forward; the copy shares the weights and has none."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    model = nn.Linear(4, 4)
    prepared = Accelerator(mixed_precision="bf16", cpu=True).prepare(model)
    AcceleratorState._reset_state(True)
    x = torch.randn(2, 4)
    plain = in_float32(prepared)
    assert plain.weight is model.weight
    assert torch.equal(plain(x), nn.functional.linear(x, model.weight, model.bias))
    assert not torch.equal(prepared(x), plain(x))


def test_batches_do_not_depend_on_who_computes_them():
    lengths = np.random.default_rng(0).integers(1, 50, 101)
    batches = length_batches(lengths, 8)
    assert sorted(np.concatenate(batches)) == list(range(101))
    means = [lengths[batch].mean() for batch in batches]
    assert means == sorted(means, reverse=True)
