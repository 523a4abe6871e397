"""The cross-entropy of a few rows at a time, against torch's own in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from minibert.model import cross_entropy
from minibert.model.cross_entropy import IGNORED, summed_cross_entropy


def both(logits: Tensor, labels: Tensor, factor: float = 0.25) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(loss, gradient) of ours, and of torch's own in float64."""
    ours, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    loss, right = summed_cross_entropy(ours, labels), F.cross_entropy(exact, labels, reduction="sum")
    (loss * factor).backward()
    (right * factor).backward()
    assert ours.grad is not None
    assert exact.grad is not None
    return loss.detach(), ours.grad, right.detach(), exact.grad


@pytest.fixture(params=[1, 64, 1 << 20])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a row, of some rows, and one of all."""
    monkeypatch.setattr(cross_entropy, "BLOCK", request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_loss_and_gradient_are_torchs_in_float32(scale: float) -> None:
    torch.manual_seed(0)
    logits, labels = scale * torch.randn(13, 17), torch.randint(17, (13,))
    labels[[2, 3, 12]] = IGNORED
    loss, gradient, right, exact = both(logits, labels)
    assert loss.item() == pytest.approx(right.item(), rel=1e-6)
    assert (gradient - exact).abs().max() < 1e-7 * scale
    assert (gradient[[2, 3, 12]] == 0).all()


@pytest.mark.usefixtures("block")
def test_gradient_of_bfloat16_logits_is_the_exact_one_rounded() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(13, 17).bfloat16(), torch.randint(17, (13,))
    loss, gradient, right, exact = both(logits, labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(right.item(), rel=1e-6)
    assert gradient.dtype == torch.bfloat16
    # 2^-8 of each value is what bfloat16 rounds; the rest is float32's
    assert ((gradient.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-7).all()


def test_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 7.0]], requires_grad=True)
    loss = summed_cross_entropy(logits, torch.tensor([0, 1, IGNORED]))
    loss.backward()
    assert loss.item() == pytest.approx(2 * 0.6931472)
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0.5], [0.5, -0.5], [0.0, 0.0]]


def test_no_row_that_counts_and_no_row_at_all() -> None:
    logits = torch.full((2, 3), float("nan"), requires_grad=True)
    loss = summed_cross_entropy(logits, torch.full((2,), IGNORED))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    none = torch.zeros(0, 3, requires_grad=True)
    summed_cross_entropy(none, torch.zeros(0, dtype=torch.long)).backward()
    assert none.grad is not None
    assert none.grad.shape == (0, 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(value: float) -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = value
    assert not torch.isfinite(summed_cross_entropy(logits, torch.tensor([0, 1, 2])))
