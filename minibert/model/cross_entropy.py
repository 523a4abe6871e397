"""The summed cross-entropy of many rows over a large vocabulary, on a CPU a few rows at a time.

torch's own writes the logits in float32, their log-softmax and its gradient: three arrays of rows x vocabulary, which
are a sixth of a small model's training step. A few rows at a time stay in the processor's cache. R rows, C classes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORED = -100  # a label that counts for nothing, as in torch's cross_entropy
BLOCK = 1 << 17  # logits that are worked on together: half a megabyte of float32


class CpuCrossEntropy(torch.autograd.Function):
    """F.cross_entropy(logits.float(), labels, reduction="sum"), with its gradient in the precision of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        rows = max(1, BLOCK // logits.shape[1])
        normalisers = []  # log of the sum of exponentials
        for block in torch.split(logits, rows):
            x = block.float()
            highest = x.amax(1, keepdim=True)
            normalisers.append(highest[:, 0] + (x - highest).exp_().sum(1).log_())
        normaliser = torch.cat(normalisers)  # (R,)
        kept = labels != IGNORED
        gold = logits.gather(1, labels.clamp(min=0)[:, None])[:, 0].float()
        ctx.save_for_backward(logits, labels, normaliser)
        return torch.where(kept, normaliser - gold, 0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, labels, normaliser = ctx.saved_tensors
        rows = max(1, BLOCK // logits.shape[1])
        scale = torch.where(labels != IGNORED, gradients[0].float(), 0)[:, None]  # (R,1)
        places = labels.clamp(min=0)[:, None]
        found = torch.empty_like(logits)
        for first in range(0, len(logits), rows):
            part = slice(first, first + rows)
            x = (logits[part].float() - normaliser[part, None]).exp_().mul_(scale[part])
            found[part] = x.scatter_add_(1, places[part], -scale[part])
        found[labels == IGNORED] = 0  # and not NaN where such a row's logits are
        return found, None


def summed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over the rows whose label is not -100, in float32. logits (R,C) of any precision, labels (R,)."""
    if logits.device.type != "cpu" or torch.compiler.is_compiling() or logits.dtype == torch.float64:
        return F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    return CpuCrossEntropy.apply(logits, labels)  # type: ignore[no-any-return, no-untyped-call]
