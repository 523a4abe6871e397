"""The loop: one mean over all targets of a step, the rate by hand, clipping, and a stop before harm."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from minibert.corpus.batches import Cursor, StepBatches
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.heads import BertForPreTraining
from minibert.training import pretraining
from minibert.training.loop import train_steps
from minibert.training.optim import Muon, StepSchedule


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.w * x


def loss_sums(model, batch):
    return torch.stack((model(batch["sum"]), model(batch["other"])))


def batch(total, targets, other=0.0, pairs=0):
    return {
        "sum": torch.tensor(total), "other": torch.tensor(other),
        "counts": torch.tensor([float(targets), float(pairs)]), "num_tokens": 10,
    }  # fmt: skip


def run(micro_batches, *, steps=1, lr=0.1, clip=0.0, warmup=0.0, stopped=lambda: 0):
    accelerator = Accelerator(cpu=True)
    model = Weight()
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak_lr": lr}], lr=lr)
    batches = itertools.repeat(StepBatches(micro_batches, Cursor(epoch=1), 10 * len(micro_batches)))
    found = list(
        train_steps(
            accelerator,
            model,
            [optimizer],
            batches,
            StepSchedule(steps),
            loss_sums,
            first_step=0,
            warmup=warmup,
            clip=clip,
            seed=0,
            stopped=stopped,
        )
    )
    return found, model


def test_loss_is_a_mean_over_all_targets_not_a_mean_of_means():
    # sums 2 and 3 over 1 and 3 targets: (2 + 3) / 4, and not (2 / 1 + 3 / 3) / 2 = 1.5
    (step,), model = run([batch(2.0, 1), batch(3.0, 3)])
    assert step.losses.tolist() == [1.25, 0.0]
    assert step.grad_norm.item() == pytest.approx(1.25)
    assert model.w.item() == pytest.approx(1 - 0.1 * 1.25)
    assert step.num_tokens == 20


def test_each_loss_term_has_its_own_count():
    (step,), _ = run([batch(2.0, 4, other=3.0, pairs=2), batch(2.0, 4, other=1.0, pairs=2)])
    assert step.losses.tolist() == [0.5, 1.0]
    assert step.grad_norm.item() == pytest.approx(1.5)


def test_micro_batch_without_targets_adds_nothing():
    (step,), model = run([batch(0.0, 0), batch(3.0, 3)])
    assert step.losses.tolist() == [1.0, 0.0]
    assert model.w.item() == pytest.approx(0.9)


def test_step_without_any_target_is_no_nan_and_no_move():
    (step,), model = run([batch(0.0, 0)])
    assert step.losses.tolist() == [0.0, 0.0]
    assert model.w.item() == 1.0


def test_gradient_is_clipped_and_the_norm_reported_is_the_one_before():
    (step,), model = run([batch(8.0, 2)], clip=1.0)
    assert step.grad_norm.item() == pytest.approx(4.0)
    assert model.w.item() == pytest.approx(1 - 0.1 * 1.0, abs=1e-6)


def test_rates_follow_the_schedule():
    steps, _ = run([batch(0.0, 1)], steps=4, warmup=0.5)
    assert [step.rate for step in steps] == pytest.approx([0.5, 1.0, 1.0, 0.5])
    assert [step.step for step in steps] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_before_the_update(value):
    seen = {}

    def poisoned(model, batch):
        seen["model"] = model
        return loss_sums(model, batch) * value

    accelerator = Accelerator(cpu=True)
    model = Weight()
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak_lr": 0.1}], lr=0.1)
    steps = train_steps(
        accelerator, model, [optimizer], itertools.repeat(StepBatches([batch(1.0, 1)], Cursor(epoch=3, batch=8), 10)),
        StepSchedule(5), poisoned, first_step=2, warmup=0.0, clip=1.0, seed=0,
    )  # fmt: skip
    with pytest.raises(UserError, match="step 3 is not finite") as caught:
        next(steps)
    assert "epoch 3" in str(caught.value)
    assert "batch 8" in str(caught.value)
    assert model.w.item() == 1.0


def test_phase_ends_at_its_share():
    accelerator = Accelerator(cpu=True)
    model = Weight()
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak_lr": 0.1}], lr=0.1)
    schedule = StepSchedule(10)
    steps = train_steps(
        accelerator, model, [optimizer], itertools.repeat(StepBatches([batch(1.0, 1)], Cursor(), 10)), schedule,
        loss_sums, first_step=0, warmup=0.0, clip=0.0, seed=0, until=0.9,
    )  # fmt: skip
    assert [step.step for step in steps] == list(range(1, 10))


def test_float16_scaler_undoes_its_scale_once_for_each_optimizer_and_skips_an_overflow():
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    accelerator.backward = lambda loss: accelerator.scaler.scale(loss).backward()
    model = nn.ModuleDict({"a": Weight(), "b": Weight()})
    optimizers = [
        torch.optim.SGD([{"params": model[name].parameters(), "peak_lr": 0.1}], lr=0.1) for name in ("a", "b")
    ]
    calls = []

    def sums(model, batch):
        calls.append(1)
        overflow = float("inf") if len(calls) == 2 else 1.0  # in the gradient alone: the loss stays finite
        both = model["a"](batch["sum"]) + model["b"](batch["sum"])
        both.register_hook(lambda gradient: gradient * overflow)
        return torch.stack((both, 0 * both.detach()))

    steps = train_steps(
        accelerator, model, optimizers, itertools.repeat(StepBatches([batch(2.0, 1)], Cursor(), 10)), StepSchedule(3),
        sums, first_step=0, warmup=1.0, clip=0.0, seed=0,
    )  # fmt: skip
    next(steps)
    moved = 1 - 0.1 / 3 * 2.0
    assert [model[n].w.item() for n in ("a", "b")] == pytest.approx([moved, moved])
    skipped = next(steps)
    assert [model[n].w.item() for n in ("a", "b")] == pytest.approx([moved, moved])
    assert skipped.finite  # no fault: the scaler mends it
    assert not torch.isfinite(skipped.grad_norm)
    assert accelerator.scaler.get_scale() == 512.0


@pytest.mark.parametrize(("asked", "steps"), [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (7, 2)])
def test_a_step_that_is_given_up_leaves_the_weights_of_the_one_before(asked, steps):
    """Three micro-batches: a signal is looked for before each of them, at 1, 2 and 3, then 4, 5 and 6."""
    calls = itertools.count(1)
    found, model = run([batch(1.0, 1)] * 3, steps=2, stopped=lambda: next(calls) >= asked)
    assert len(found) == steps
    assert model.w.item() == pytest.approx((1.0, 0.9, 0.85)[steps])  # a gradient of 1 at rates .1 and .05


class Elsewhere:
    """An accelerator whose device holds no values: who asks for one gets an error, where a GPU would be waited for."""

    device, num_processes, process_index, scaler = torch.device("meta"), 1, 0, None

    def no_sync(self, model):
        return nullcontext()

    def backward(self, loss):
        loss.backward()


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, lr=0.1), Muon])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_no_step_of_pre_training_waits_for_the_device(optimizer, dropout):
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    model = BertForPreTraining(config).to("meta").train()
    matrices = [p for p in model.bert.encoder.parameters() if p.ndim == 2]
    chosen = optimizer([{"params": matrices, "peak_lr": 0.1}])
    ids = torch.zeros(4, 8, dtype=torch.long)
    example = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": ids, "num_tokens": 32,
        "masked_positions": torch.tensor([3, 9]), "labels": torch.tensor([5, 6]), "counts": torch.tensor([2.0, 4.0]),
        "next_sentence_label": torch.tensor([0, 1, 0, 1]),
    }  # fmt: skip
    steps = train_steps(
        Elsewhere(), model, [chosen], itertools.repeat(StepBatches([example, example], Cursor(), 64)), StepSchedule(3),
        pretraining.loss_sums, first_step=0, warmup=0.1, clip=1.0, seed=0,
    )  # fmt: skip
    found = list(steps)
    assert [step.step for step in found] == [1, 2, 3]
    with pytest.raises((RuntimeError, NotImplementedError)):  # the check of this check
        float(found[0].grad_norm)
