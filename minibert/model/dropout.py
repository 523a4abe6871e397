"""Dropout. On a CPU torch draws a number for each element; in a small model that is a quarter of a training step."""

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16  # each element has 16 random bits: the rate is exact to 1 in 65,536


def keep_mask(shape: torch.Size, rate: float) -> Tensor:
    """True where an element stays, each with probability 1 - rate; four elements share a number of 64 bits."""
    size = prod(shape)
    bits = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(1 << 63), None)
    return (bits.view(torch.int16)[:size] >= round(rate * LEVELS) - LEVELS // 2).view(shape)


class CpuDropout(torch.autograd.Function):
    """F.dropout with a mask of keep_mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = keep_mask(x.shape, rate)
        ctx.save_for_backward(keep)
        ctx.scale = 1 / (1 - rate)
        return torch.where(keep, x, 0).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return torch.where(keep, gradients[0], 0).mul_(ctx.scale), None


def dropout(x: Tensor, rate: float) -> Tensor:
    """x with each element zero with probability `rate`, the others divided by 1 - rate; random by torch's generator."""
    if rate == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    return CpuDropout.apply(x, rate)  # type: ignore[no-any-return, no-untyped-call]


class Dropout(nn.Module):
    """dropout in training, nothing otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.p = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"
