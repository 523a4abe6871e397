"""A person's first look at a pre-trained model: what does it put where [MASK] stands?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from minibert.checkpoint.pretrained import load_masked_lm
from minibert.errors import UserError
from minibert.model.heads import BertForMaskedLM
from minibert.tokenization.shown import MASK, encode_masked
from minibert.tokenization.tokenizer import BertTokenizer

Answer = dict[str, Any]  # {"token": str, "score": float}


def fill_masks(path: Path, texts: Sequence[str], *, top_k: int = 5) -> list[list[list[Answer]]]:
    """The likeliest tokens at each [MASK] of each text.

    Returns: for each text, for each of its masks in order, top_k answers, the likeliest first; scores are
        probabilities over the vocabulary. Several masks of a text are filled independently of each other.
    Raises: UserError for a text without [MASK] or longer than the model takes, or a model that has no MLM head.
    """
    model, tokenizer = load_masked_lm(path)
    encoded = [encode(tokenizer, text, model.config.max_position_embeddings, i) for i, text in enumerate(texts, 1)]
    return [fill(model, tokenizer, ids, top_k) for ids in encoded]


def encode(tokenizer: BertTokenizer, text: str, limit: int, number: int) -> list[int]:
    """Token ids of a text with its masks; number: which text it is, for messages."""
    where = f"text {number}"
    if MASK not in text:
        raise UserError(f"there is no {MASK} in {text!r}", where, f"put {MASK} where a word is to be guessed")
    ids = [tokenizer.cls_token_id, *(number for number, _ in encode_masked(tokenizer, text)), tokenizer.sep_token_id]
    if len(ids) > limit:
        raise UserError(f"it has {len(ids)} tokens, the model takes {limit}", where, "cut it round the masks")
    return ids


def fill(model: BertForMaskedLM, tokenizer: BertTokenizer, ids: list[int], top_k: int) -> list[list[Answer]]:
    """fill_masks for the ids of one text."""
    input_ids = torch.tensor([ids])
    masked = (input_ids[0] == tokenizer.mask_token_id).nonzero()[:, 0]
    with torch.inference_mode():
        scores = model(input_ids, masked_positions=masked).logits.softmax(-1)  # (P,V)
    best = scores[:, : len(tokenizer)].topk(min(top_k, len(tokenizer)))
    return [
        [{"token": tokenizer.tokens[i], "score": round(score, 6)} for i, score in zip(row_ids, row_scores, strict=True)]
        for row_ids, row_scores in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def in_lines(text: str, answers: list[list[Answer]]) -> str:
    """The answers for people: the text, and under it a line for each mask, numbered where there are several."""
    lines = [text]
    for number, row in enumerate(answers, 1):
        which = f"  mask {number}:" if len(answers) > 1 else ""
        lines.append(f"{which}  " + "  ".join(f"{answer['token']} {answer['score']:.1%}" for answer in row))
    return "\n".join(lines)
