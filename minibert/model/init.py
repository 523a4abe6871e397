"""Initial values: the classic ones, and those that leave the plateau in minutes (reference.md 10).

The draw depends on the seed alone: not on torch's global generator, nor on the number of threads.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minibert.errors import UserError
from minibert.model.bert import BertConfig, BertLayer, BertModel, BertSelfAttention
from minibert.model.draw import draw_normal, sinusoids

SCHEMES = ("normal", "neighbour")


@torch.no_grad()
def initialise(
    model: nn.Module,
    *,
    scheme: str,
    seed: int,
    head_share: float = 0.5,
    token_counts: NDArray[np.int64] | None = None,
    word_vectors: NDArray[np.float32] | None = None,
) -> None:
    """Fill every parameter of `model` (a BertModel, or a model with one at `.bert`).

    Args: scheme: "normal": N(0, initializer_range) truncated at two sigma, biases 0, LayerNorm 1/0. "neighbour": heads
        that look at the tokens beside them and weights by fan-in.
        head_share: share of each layer's heads that start as neighbour heads, in [0, 1]; neighbour alone reads it.
        token_counts (up to V,): how often the corpus has each token; their log becomes the MLM bias; neighbour alone.
        word_vectors (V,D): rows of length 1 that become the words' first vectors, as long as drawn ones are on average;
        rows of 0 leave the drawn one.
    Raises: UserError for an unknown scheme, or an odd hidden size with "neighbour".
    """
    bert = model if isinstance(model, BertModel) else model.get_submodule("bert")
    assert isinstance(bert, BertModel)
    config, generator = bert.config, torch.Generator().manual_seed(seed)
    positions = bert.embeddings.position_embeddings.weight
    fixed_positions = positions.clone()
    draw_normal(model, config.initializer_range, generator)
    if config.positions == "sinusoidal":
        positions.copy_(fixed_positions)
    if scheme == "neighbour":
        start_at_neighbours(model, bert, generator, head_share, token_counts)
    elif scheme != "normal":
        raise UserError(f"init is {scheme!r}", fix=f"one of {', '.join(SCHEMES)}")
    if word_vectors is not None:
        given = torch.from_numpy(word_vectors)
        known = given.any(1)
        words = bert.embeddings.word_embeddings.weight
        words[known] = config.initializer_range * math.sqrt(config.hidden_size) * given[known]


def start_at_neighbours(
    model: nn.Module,
    bert: BertModel,
    generator: torch.Generator,
    head_share: float,
    token_counts: NDArray[np.int64] | None,
) -> None:
    """The part of `initialise` that makes neighbour heads; a normal draw has gone before it."""
    config = bert.config
    if config.hidden_size % 2:
        raise UserError(f"neighbour heads need an even hidden_size, not {config.hidden_size}")
    # As heavy as the words; radians per position: the fastest pair has a period of two tokens.
    table = sinusoids(
        config.max_position_embeddings,
        config.hidden_size,
        amplitude=math.sqrt(2) * config.initializer_range,
        fastest=math.pi,
    )
    bert.embeddings.position_embeddings.weight.copy_(table)
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear) and not name.endswith(("decoder", "seq_relationship")):
            fan_in = part.weight.shape[1]
            part.weight.copy_(torch.randn(part.weight.shape, generator=generator) / math.sqrt(fan_in))
    num_neighbours = round(head_share * config.num_attention_heads)
    for i, layer in enumerate(bert.encoder.layer):
        assert isinstance(layer, BertLayer)
        for dense in (layer.attention.output.dense, layer.output.dense):
            dense.weight.mul_(0.1 if config.norm == "post" else 0.3)
        # Measured: in post-LN, neighbour heads in four layers learn less than in two.
        if config.norm == "pre" or i < 2:
            for head in range(num_neighbours):
                offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)  # -1 +1 -2 +2 ...
                set_neighbour_head(layer.attention.self, config, head, offset, generator)
    if token_counts is not None:
        for name, parameter in model.named_parameters():
            if name.endswith("predictions.bias"):
                parameter.copy_(log_frequency(token_counts, config.vocab_size))


def set_neighbour_head(
    attention: BertSelfAttention, config: BertConfig, head: int, offset: int, generator: torch.Generator
) -> None:
    """Make `head` attend from position p to p + offset: the key reads the fastest pairs, the query the same pairs
    turned by offset, so that their product is largest where the key's position is the query's plus offset."""
    size = config.hidden_size // config.num_attention_heads
    pairs = size // 2
    rate = math.pi * 10000.0 ** (-torch.arange(pairs, dtype=torch.float64) / (config.hidden_size // 2))
    even = torch.arange(0, 2 * pairs, 2)
    select = torch.zeros(size, config.hidden_size, dtype=torch.float64)
    select[even, even] = select[even + 1, even + 1] = 1.0
    turn = torch.zeros(size, config.hidden_size, dtype=torch.float64)
    turn[even, even] = turn[even + 1, even + 1] = torch.cos(rate * offset)
    turn[even, even + 1] = torch.sin(rate * offset)  # sin(a + b) = sin a cos b + cos a sin b
    turn[even + 1, even] = -torch.sin(rate * offset)
    rows = slice(head * size, (head + 1) * size)
    for linear, pattern in ((attention.key, select), (attention.query, turn)):
        noise = config.initializer_range * torch.randn(pattern.shape, generator=generator)
        linear.weight[rows] = (math.sqrt(2) * pattern).float() + noise


def log_frequency(token_counts: NDArray[np.int64], vocab_size: int) -> Tensor:
    """Log of the add-one-smoothed frequencies (V,); rows of a padded vocabulary count as never seen."""
    counts = np.ones(vocab_size, dtype=np.float64)
    counts[: len(token_counts)] += token_counts
    return torch.from_numpy(np.log(counts / counts.sum())).float()
