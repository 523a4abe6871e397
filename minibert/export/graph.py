"""A model as other programs see it: three named inputs, named outputs, any number of rows and tokens.

Letters in shape comments: B batch, T tokens, D hidden, N heads, H head size.
"""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from minibert.model.bert import BertEmbeddings, BertLayer, BertModel, BertSelfAttention

INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # (B,T) int64 each
OUTPUTS = (  # transformers' names; a model has those of its class
    "last_hidden_state", "pooler_output", "prediction_logits", "seq_relationship_logits", "logits", "start_logits",
    "end_logits",
)  # fmt: skip
Dims = tuple[dict[int, torch.export.Dim], ...]


class NamedOutputs(nn.Module):
    """input_ids, attention_mask, token_type_ids (B,T) int64 -> the model's outputs by name, no losses."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> dict[str, Tensor]:
        out = vars(self.model(input_ids, attention_mask, token_type_ids))
        return {name: out[name] for name in OUTPUTS if out.get(name) is not None}


class PlainEmbeddings(nn.Module):
    """BertEmbeddings as the sum it is: more tokens than positions are an error in any runtime, not another row."""

    def __init__(self, source: BertEmbeddings) -> None:
        super().__init__()
        self.word_embeddings = source.word_embeddings
        self.position_embeddings = source.position_embeddings
        self.token_type_embeddings = source.token_type_embeddings
        self.LayerNorm = source.LayerNorm

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, real: None = None) -> Tensor:
        """Both (B,T) -> (B*T,D)."""
        rows = self.position_embeddings.weight[: input_ids.shape[1]] + self.token_type_embeddings(token_type_ids)
        x = self.word_embeddings(input_ids) + rows  # (B,T,D)
        return self.LayerNorm(x.flatten(0, 1))  # type: ignore[no-any-return]


class PlainAttention(nn.Module):
    """BertSelfAttention in products and a softmax, its three weights joined once and for all.

    As the model has it, the weights are joined at each call: a runtime would do so too, and int8 would not find them.
    """

    def __init__(self, source: BertSelfAttention) -> None:
        super().__init__()
        self.num_heads = source.num_heads
        weight, bias = source.joined()
        self.qkv = nn.Linear(1, 1, device="meta")
        self.qkv.weight, self.qkv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())

    def forward(
        self, x: Tensor, batch: int, length: int, visible: Tensor, output_attentions: bool
    ) -> tuple[Tensor, None]:
        """x (B*T,D); visible (B,1,1,T) bool -> context (B*T,D); 0 where a row has nothing visible, as in the model."""
        D = x.shape[1]
        H = D // self.num_heads
        parts = self.qkv(x).view(batch, length, 3 * D).split(D, -1)
        q, k, v = (part.unflatten(-1, (self.num_heads, H)).transpose(1, 2) for part in parts)  # (B,N,T,H) each
        hidden = (~visible).to(x.dtype) * torch.finfo(x.dtype).min  # finite: a row of padding gives no NaN
        y = ((q / math.sqrt(H)) @ k.transpose(2, 3) + hidden).softmax(-1) @ v
        y = y * visible.any(-1, keepdim=True).to(x.dtype)
        return y.transpose(1, 2).reshape(x.shape), None


def plain(model: nn.Module) -> nn.Module:
    """A copy that computes the same with operators that every runtime knows; all other weights are shared."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, shared)
    encoder = model if isinstance(model, BertModel) else model.bert
    assert isinstance(encoder, BertModel)
    encoder.embeddings = PlainEmbeddings(encoder.embeddings)  # type: ignore[assignment]
    for layer in encoder.encoder.layer:
        assert isinstance(layer, BertLayer)
        layer.attention.self = PlainAttention(layer.attention.self)  # type: ignore[assignment]
    return model.eval()


def example() -> tuple[Tensor, ...]:
    """Inputs (2,2) to trace with: a size of 1 would stay 1, and one tensor given three times become one input."""
    return tuple(torch.ones(2, 2, dtype=torch.int64) for _ in INPUTS)


def dynamic_shapes(most_tokens: int) -> Dims:
    """Any number of rows and, up to most_tokens, of tokens."""
    batch = torch.export.Dim("batch")
    sequence = torch.export.Dim("sequence", max=most_tokens)
    return tuple({0: batch, 1: sequence} for _ in INPUTS)


@contextmanager
def quietly() -> Iterator[None]:
    """Without what the exporters say of themselves: packages that are not needed, names that are not used."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
