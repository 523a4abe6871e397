"""Scaled dot-product attention over flat rows of tokens, by the way that is fastest where it is computed.

Letters in shape comments: B batch, T tokens, M flat tokens (B * T, or the real ones alone), N heads, H head size.
"""

import math
from importlib.util import find_spec
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from minibert.model.dropout import dropout


class RealTokens(NamedTuple):
    """Which tokens of a padded batch (B,T) are no padding. It says what an attention mask says and stands in its place;
    with it nothing is computed for padding, and the output is 0 there."""

    places: Tensor  # (M,) int64: their places in the flattened batch, ascending; at least one in each row
    starts: Tensor  # (B+1,) int32: where each row begins among them, and M

    @classmethod
    def of(cls, attention_mask: Tensor) -> "RealTokens":
        """From a mask (B,T). To be made on the CPU: of a GPU's mask nobody knows M without waiting for it."""
        kept = attention_mask.bool()
        return cls(kept.flatten().nonzero().squeeze(1), F.pad(kept.sum(1).cumsum(0), (1, 0)).int())

    def mask(self, batch: int, length: int) -> Tensor:
        """The mask (B,T), bool."""
        return self.padded(torch.ones_like(self.places, dtype=torch.bool), batch * length).view(batch, length)

    def padded(self, x: Tensor, size: int) -> Tensor:
        """x (M,...) -> (B*T,...), 0 at padding; size: B * T."""
        return x.new_zeros(size, *x.shape[1:]).index_copy(0, self.places, x)

    def among(self, rows: Tensor, size: int) -> Tensor:
        """Places in the flattened batch (R,) -> places among the real tokens."""
        return self.padded(torch.arange(self.places.shape[0], device=rows.device), size)[rows]


Visible = Tensor | RealTokens | None  # (B,1,1,T) bool; None for everything


def attention(
    qkv: Tensor, heads: int, batch: int, length: int, visible: Visible, rate: float, want_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Every token's mean of its row's values.

    Args: qkv (M,3*N*H): queries, keys and values side by side. visible: what may be attended to; with RealTokens qkv is
        of those alone. rate: of dropout on the weights.
    Returns: (M,N*H); the weights (B,N,T,T) if wanted.
    """
    if isinstance(visible, RealTokens):
        if not want_weights and rate == 0 and has_varlen(qkv.device, qkv.dtype, qkv.shape[1] // heads // 3):
            return varlen_attention(qkv, heads, visible.starts, length), None
        padded = visible.padded(qkv, batch * length)
        mask = visible.mask(batch, length)[:, None, None, :]
        y, weights = attention(padded, heads, batch, length, mask, rate, want_weights)
        return y.index_select(0, visible.places), weights
    parts = qkv.view(batch, length, 3, heads, qkv.shape[1] // heads // 3).permute(2, 0, 3, 1, 4)  # (3,B,N,T,H)
    if want_weights or (qkv.device.type == "cpu" and explicit_is_faster(parts, rate)):
        y, weights = explicit_attention(parts, visible, rate)
    else:
        q, k, v = parts.unbind()
        y, weights = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=rate), None
    return y.transpose(1, 2).reshape(qkv.shape[0], qkv.shape[1] // 3), weights if want_weights else None


def explicit_is_faster(qkv: Tensor, rate: float) -> bool:
    """Measured on a CPU: the fused kernel has no dropout of its own, and in bfloat16 it is slow on short rows."""
    return rate > 0 or (qkv.dtype == torch.bfloat16 and (qkv.shape[3] < 256 or torch.is_grad_enabled()))


def explicit_attention(qkv: Tensor, visible: Tensor | None, rate: float) -> tuple[Tensor, Tensor]:
    """qkv (3,B,N,T,H), visible (B,1,1,T) -> context (B,N,T,H), weights (B,N,T,T)."""
    _, B, N, T, H = qkv.shape
    q, k, v = qkv.reshape(3, B * N, T, H).unbind()
    scores = torch.bmm(q / math.sqrt(H), k.transpose(1, 2)).view(B, N, T, T)
    if visible is not None:
        scores = scores + (~visible).to(q.dtype) * torch.finfo(q.dtype).min  # finite: nothing visible gives no NaN
    weights = dropout(scores.softmax(-1), rate)
    return torch.bmm(weights.view(B * N, T, T), v).view(B, N, T, H), weights


def has_varlen(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether torch has a kernel for rows of unequal length there. Untested: written without a GPU at hand."""
    low = dtype in (torch.bfloat16, torch.float16)
    if not (device.type == "cuda" and low and head_size % 8 == 0 and head_size <= 256):
        return False
    if find_spec("torch.nn.attention.varlen") is None:  # it came with torch 2.10
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)  # FlashAttention's least


def varlen_attention(qkv: Tensor, heads: int, starts: Tensor, longest: int) -> Tensor:
    """qkv (M,3*N*H) of rows that begin at starts (B+1,) -> (M,N*H), without padding anywhere."""
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = qkv.view(qkv.shape[0], 3, heads, -1).unbind(1)  # (M,N,H) each
    y = varlen_attn(q, k, v, starts, starts, longest, longest)
    assert isinstance(y, Tensor)  # nothing else was asked for
    return y.reshape(qkv.shape[0], -1)
