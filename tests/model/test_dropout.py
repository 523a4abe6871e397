"""Dropout on the CPU: its rate, its scale, its gradient, and that it follows from the generator alone."""

import math

import pytest
import torch

from minibert.model.dropout import Dropout, dropout, keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.03, 0.9])
def test_share_of_zeros_is_the_rate(rate):
    """n = 4,000,000 elements; five sigma of a share are 5 sqrt(p (1-p) / n)."""
    torch.manual_seed(0)
    keep = keep_mask(torch.Size((1000, 4000)), rate)
    assert keep.float().mean().item() == pytest.approx(1 - rate, abs=5 * math.sqrt(rate * (1 - rate) / 4e6) + 1e-5)
    lanes = keep.view(-1, 4).float().mean(0)  # four elements share a random number: none of them is special
    assert (lanes - (1 - rate)).abs().max() < 5 * math.sqrt(rate * (1 - rate) / 1e6) + 1e-5


def test_elements_are_independent():
    """The correlation of neighbours, n = 1,000,000: sigma .001."""
    torch.manual_seed(1)
    keep = keep_mask(torch.Size((1_000_001,)), 0.5).float() - 0.5
    for shift in (1, 2, 3, 4):
        assert abs((4 * keep[shift:] * keep[:-shift]).mean().item()) < 0.005


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 1, 11)])
def test_values_and_gradient_share_the_mask(dtype, shape):
    torch.manual_seed(0)
    x = (torch.rand(shape) + 1).to(dtype).requires_grad_()
    y = dropout(x, 0.25)
    y.backward(torch.ones_like(y))
    kept = y != 0
    assert y.dtype == dtype
    assert torch.allclose(y[kept].float(), (x[kept] / 0.75).float(), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6)
    assert ((x.grad != 0) == kept).all()
    assert torch.allclose(x.grad[kept].float(), torch.tensor(1 / 0.75), rtol=1e-2)


def test_follows_from_the_seed():
    masks = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        masks.append(keep_mask(torch.Size((100,)), 0.5))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_nothing_is_done_outside_training_or_at_rate_zero():
    x = torch.randn(4, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert not torch.equal(Dropout(0.5).train()(x), x)
