"""A model that only answers: projections joined for good, weights in the precision of their products.

Letters in shape comments: R rows, K inputs, N outputs.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from minibert.model.bert import BertLayer, BertSelfAttention

LARGEST = 127  # of an int8 number's magnitude here: one sign has no 128
HALF = 63  # of a weight's, where the hardware adds two products in 16 bits: 2 * 255 * 63 fits
TINY = torch.finfo(torch.float32).tiny
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Int8Linear(nn.Module):
    """A linear layer whose product is of int8 numbers. Weights are rounded once, with a scale for each output; inputs
    at each call, with a scale for each row, so that no row's result depends on another's. The sums are exact.

    Source: torchao's Int8DynamicActivationInt8WeightConfig. Differs: plain operators; the hardware itself is asked
    what it can add.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """weight (N,K), bias (N,): of the layer in float32; K is 2 or more (torch's product of one column is wrong)."""
        super().__init__()
        limit = LARGEST if adds_in_32_bits() else HALF
        scale = (weight.abs().amax(1, keepdim=True) / limit).clamp(min=TINY)  # (N,1)
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """(R,K) float32 -> (R,N) float32; a row that is not finite gives NaN."""
        scale = (x.abs().amax(1, keepdim=True) / LARGEST).clamp_(min=TINY)  # (R,1)
        y = torch._int_mm((x / scale).round_().to(torch.int8), self.weight.t()).float()  # (R,N)
        return torch.addcmul(self.bias, y.mul_(scale), self.scale)


@cache
def adds_in_32_bits() -> bool:
    """Whether products of int8 numbers are added as they are: x86 without VNNI adds two at a time in 16 bits, and what
    does not fit there is cut.
    """
    rows, columns = torch.full((16, 64), LARGEST, dtype=torch.int8), torch.full((64, 64), LARGEST, dtype=torch.int8)
    return bool((torch._int_mm(rows, columns.t()) == 64 * LARGEST**2).all())


@torch.no_grad()
def for_answers(model: nn.Module, precision: str) -> None:
    """Make `model` one that only answers, in place: it can be neither trained nor saved any more.

    Args: precision: "no": float32. "bf16", "fp16": linear layers have their weights in it for good, as autocast, which
        is still to be used, has them at each call. "int8": the encoder's linear layers are Int8Linear; on a CPU.
    """
    for part in model.modules():
        if isinstance(part, BertSelfAttention):
            weight, bias = part.joined()
            part.joint = nn.Linear(1, 1, device="meta")
            part.joint.weight, part.joint.bias = nn.Parameter(weight), nn.Parameter(bias)
            del part.query, part.key, part.value
    for part in list(model.modules()):
        if precision in DTYPES and isinstance(part, nn.Linear):
            part.to(DTYPES[precision])
        elif precision == "int8" and isinstance(part, BertLayer):
            for owner, name in (
                (part.attention.self, "joint"), (part.attention.output, "dense"), (part.intermediate, "dense"),
                (part.output, "dense"),
            ):  # fmt: skip
                dense = getattr(owner, name)
                setattr(owner, name, Int8Linear(dense.weight.detach(), dense.bias.detach()))
