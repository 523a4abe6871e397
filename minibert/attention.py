"""Where a model's heads look: the attention weights of a text, or of several beside each other, as one page.

Letters in shape comments: L layers, N heads, T tokens.
Sources: Clark et al. 2019 (what heads look at, entropy), Abnar & Zuidema 2020 (rollout); Jain & Wallace 2019 and
Wiegreffe & Pinter 2019 (what weights say and what not).
"""

from __future__ import annotations

import base64
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from minibert.checkpoint.folder import check_vocabulary, load_model
from minibert.checkpoint.pretrained import BertModel
from minibert.errors import UserError
from minibert.tokenization.shown import ShownToken, batch_of, shown_row
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.view.page import Both, write_page

# Where does "it" look? The two sentences that the literature tells it with (Vaswani et al.'s authors, 2017).
EXAMPLE = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
)
STEPS = 1000  # a weight is kept as a whole number of thousandths
MOST_WEIGHTS = 12_000_000  # of a page; some 0.6 bytes each
MOSTLY = 0.5  # a head that gives so much to one place is named for it

WHERE = {  # a head's measures, in the order of the table
    "previous": Both("the token before", "前一个词元"),
    "next": Both("the token after", "后一个词元"),
    "self": Both("the token itself", "词元自身"),
    "cls": Both("[CLS]", "[CLS]"),
    "sep": Both("[SEP]", "[SEP]"),
}


@dataclass(frozen=True)
class Seen:
    """A row and the weights of its tokens: weights (L,N,T,T), the last axis being what is looked at."""

    row: list[ShownToken]
    weights: Tensor


def look(model: BertModel, row: list[ShownToken]) -> Seen:
    """Raises: UserError where the weights are not finite."""
    with torch.inference_mode():
        found = model(**batch_of(row), output_attentions=True).attentions
    weights = torch.stack(found).squeeze(1)  # (L,N,T,T)
    if not weights.isfinite().all():
        raise UserError("the model gives weights that are not finite", fix="take a checkpoint from before it diverged")
    return Seen(row, weights)


def attention_page(path: Path, rows: Sequence[Sequence[str]], out: Path) -> list[Seen]:
    """Write the page of all layers and heads.

    Args: path: any BERT. rows: for each row its one or two texts; several rows are shown beside each other.
    Raises: UserError for what is no BERT, for texts that do not fit it, and for more weights than a page can hold.
    """
    tokenizer = BertTokenizer.from_pretrained(path)
    model, _ = load_model(BertModel, path)  # a missing pooler is drawn: no weight comes from it
    config = model.config
    check_vocabulary(len(tokenizer), config, str(path))
    limit, types = config.max_position_embeddings, config.type_vocab_size
    shown = [shown_row(tokenizer, texts, limit=limit, types=types) for texts in rows]
    refuse_large([len(row) for row in shown], config.num_hidden_layers, config.num_attention_heads)
    seen = [look(model, row) for row in shown]
    measures = [measured(one) for one in seen]
    write_page(
        out, "attention.html", scripts=("attention.js",),
        model=path.resolve().name, config=config, rows=[list(zip(row, keys(row), strict=True)) for row in shown],
        measures=measures, named=[named_heads(found) for found in measures], where=WHERE, mostly=MOSTLY,
        most=sorted({f"{math.log2(len(row)):.2f}" for row in shown}, key=float),
        plain=[{name: values.round(4).tolist() for name, values in found.items()} for found in measures],
        data=[packed(one) for one in seen], steps=STEPS, token=first_token(shown[0]), head=first_head(measures[0]),
    )  # fmt: skip
    return seen


def refuse_large(lengths: Sequence[int], layers: int, heads: int) -> None:
    """Raises: UserError where the rows have more weights than a page can hold."""
    weights = layers * heads * sum(length**2 for length in lengths)
    if weights > MOST_WEIGHTS:
        most = int((MOST_WEIGHTS / layers / heads / len(lengths)) ** 0.5)
        raise UserError(
            f"{layers} layers x {heads} heads of {' and '.join(map(str, lengths))} tokens are {weights:,} weights; a"
            f" page holds {MOST_WEIGHTS:,}", where="TEXT",
            fix=f"cut the text to {most} tokens, [CLS] and [SEP] among them",
        )  # fmt: skip


def all_views(weights: Tensor) -> Tensor:
    """weights (L,N,T,T) -> (L * (N+1) + 2, T, T): each layer's heads and their mean, the mean of all, the rollout."""
    means = weights.mean(1, keepdim=True)  # (L,1,T,T)
    by_layer = torch.cat((weights, means), 1).flatten(0, 1)
    return torch.cat((by_layer, weights.mean((0, 1))[None], rollout(weights)[None]))


def rollout(weights: Tensor) -> Tensor:
    """How much of each token could have reached each other through all layers (Abnar & Zuidema 2020): the product of
    the layers' means over heads, each half mixed with the identity, which stands for the residual.

    (L,N,T,T) -> (T,T), rows that sum to 1.
    """
    product = torch.eye(weights.shape[-1])
    for mean in weights.mean(1):
        product = (mean + torch.eye(len(mean))) / 2 @ product
    return product


def packed(seen: Seen) -> str:
    """All views as thousandths of 16 bits, low bytes first and then high ones, deflated, in base64."""
    steps = np.rint(all_views(seen.weights).double().numpy() * STEPS).astype(np.uint16)
    planes = (steps & 255).astype(np.uint8).tobytes() + (steps >> 8).astype(np.uint8).tobytes()
    return base64.b64encode(zlib.compress(planes, 9)).decode()


def measured(seen: Seen) -> dict[str, NDArray[np.float64]]:
    """What can be said of a head in a number, (L,N) each: entropy, in bits, the mean over the tokens that look; and the
    mean share that goes to each place of WHERE, over the tokens that have such a place."""
    weights = seen.weights.double()
    entropy = -(weights * weights.clamp(min=1e-30).log2()).sum(-1).mean(-1)
    last = [i for i, token in enumerate(seen.row) if token.token == "[SEP]"]
    found = {
        "entropy": entropy,
        "previous": weights.diagonal(-1, -2, -1).mean(-1),
        "next": weights.diagonal(1, -2, -1).mean(-1),
        "self": weights.diagonal(0, -2, -1).mean(-1),
        "cls": weights[..., 0].mean(-1),
        "sep": weights[..., last].sum(-1).mean(-1),
    }
    return {name: values.numpy() for name, values in found.items()}


def named_heads(measures: dict[str, NDArray[np.float64]]) -> dict[str, list[tuple[int, int, float]]]:
    """For each place the heads (layer, head from 1) that give it more than MOSTLY, the strongest first."""
    found = {}
    for place in WHERE:
        layers, heads = np.nonzero(measures[place] > MOSTLY)
        there = [(int(i) + 1, int(j) + 1, float(measures[place][i, j])) for i, j in zip(layers, heads, strict=True)]
        found[place] = sorted(there, key=lambda head: -head[2])
    return found


def first_head(measures: dict[str, NDArray[np.float64]]) -> tuple[int, int]:
    """The head that a page begins with (layer, head from 1): of the last layer, the one that chooses most."""
    return len(measures["entropy"]), int(measures["entropy"][-1].argmin()) + 1


def first_token(row: Sequence[ShownToken]) -> int:
    """The token that a page begins with: "it" where it is said, else the first that is no special one."""
    said_it = [i for i, token in enumerate(row) if token.text.lower() == "it"]
    return (said_it or [i for i, token in enumerate(row) if not token.special] or [1])[0]


def keys(row: Sequence[ShownToken]) -> list[str]:
    """What a token has in common with the same one in another row: its id, and as the how-manieth it comes."""
    times: Counter[int] = Counter()
    found = []
    for token in row:
        times[token.id] += 1
        found.append(f"{token.id}-{times[token.id]}")
    return found
