"""A row for the model as people look at it: each token with the characters that they wrote. [MASK] is a mask there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer

if TYPE_CHECKING:
    import torch

MASK = "[MASK]"


@dataclass(frozen=True)
class ShownToken:
    """A token of a row. token: as the vocabulary has it. text: what the user wrote there, or the token itself where
    that is a special one. joined: it goes on with the word before it. unknown: it stands for what the vocabulary lacks.
    """

    id: int
    token: str
    text: str
    segment: int = 0
    special: bool = False
    joined: bool = False
    unknown: bool = False


def encode_masked(tokenizer: BertTokenizer, text: str) -> list[tuple[int, str]]:
    """Each token's id and its characters in the text. To the tokenizer a literal [MASK] is text: here it is a mask."""
    found = []
    parts = text.split(MASK)
    for i, (part, (ids, spans)) in enumerate(zip(parts, tokenizer.encode_with_offsets(parts), strict=True)):
        if i:
            found.append((tokenizer.mask_token_id, MASK))
        found += [(number, part[start:end]) for number, (start, end) in zip(ids, spans, strict=True)]
    return found


def shown_row(tokenizer: BertTokenizer, texts: Sequence[str], *, limit: int, types: int) -> list[ShownToken]:
    """[CLS] A [SEP], or of two texts [CLS] A [SEP] B [SEP].

    Args: limit, types: the model's positions and token types.
    Raises: UserError for a text without a token, for a row of more than `limit` tokens, and for two texts where the
        model knows one type.
    """
    if len(texts) > types:
        raise UserError(f"the model has one token type; {len(texts)} texts in a row need two", "TEXT", "give one text")
    row = [special(tokenizer, tokenizer.cls_token_id, 0)]
    for segment, text in enumerate(texts):
        tokens = encode_masked(tokenizer, text)
        if not tokens:
            raise UserError(f"there is no word in {text!r}", where="TEXT", fix="give a sentence")
        for number, characters in tokens:
            row.append(
                ShownToken(
                    number, tokenizer.tokens[number], characters or tokenizer.tokens[number], segment,
                    joined=bool(tokenizer.is_continuation[number]), special=number == tokenizer.mask_token_id,
                    unknown=number == tokenizer.unk_token_id,
                )
            )  # fmt: skip
        row.append(special(tokenizer, tokenizer.sep_token_id, segment))
    if len(row) > limit:
        raise UserError(
            f"the text has {len(row)} tokens with [CLS] and [SEP], the model takes {limit}", where="TEXT",
            fix="cut the text",
        )  # fmt: skip
    return row


def special(tokenizer: BertTokenizer, number: int, segment: int) -> ShownToken:
    """[CLS] or [SEP]."""
    return ShownToken(number, tokenizer.tokens[number], tokenizer.tokens[number], segment, special=True)


def batch_of(row: Sequence[ShownToken]) -> dict[str, torch.Tensor]:
    """The row for a model: input_ids, token_type_ids, attention_mask, (1,T) each."""
    import torch

    ids = torch.tensor([[token.id for token in row]])
    types = torch.tensor([[token.segment for token in row]])
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": torch.ones_like(ids)}
