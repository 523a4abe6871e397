"""Which tokens begin a word: what whole-word masking hides together."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from minibert.errors import UserError, installing

HAN = re.compile(  # BERT's ranges: the characters that become one token each (google-research/bert tokenization.py)
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def word_starts(
    text: str, offsets: Sequence[tuple[int, int]], is_continuation: Sequence[bool] | NDArray[np.bool_]
) -> list[bool]:
    """Tell for each token of one sentence whether it begins a word.

    A `##` piece belongs to the token before it. In text with Han characters the segmenter jieba cuts the raw text as
    well: a token inside a word that has Han characters belongs to that word (海 南 is one, t 恤 too) if the word begins
    where a token begins and the token ends within it; a token that does not align is its own word.

    Args:
        text: the sentence as it was read, before lower-casing and other normalisation.
        offsets: (T,) character spans of the tokens in text, in order.
        is_continuation: (T,) True for `##` pieces.
    Returns: (T,) True where a token begins a word.
    Raises: UserError if text has Han characters and the segmenter is not installed.
    """
    flags = is_continuation.tolist() if isinstance(is_continuation, np.ndarray) else is_continuation
    starts = [not flag for flag in flags]
    if not HAN.search(text):
        return starts
    words = iter(_segment(text))
    word_start = word_end = 0
    joins = False  # whether later tokens inside the present word belong to it
    for index, (start, end) in enumerate(offsets):
        while start >= word_end and (word := next(words, None)) is not None:
            word_start, word_end = word_end, word_end + len(word)
            joins = len(word) > 1 and start == word_start and starts[index] and HAN.search(word) is not None
        if joins and word_start < start and end <= word_end:
            starts[index] = False
    return starts


def _segment(text: str) -> list[str]:
    """Cut text into words that join to text again."""
    try:
        import rjieba
    except ImportError:
        raise UserError(
            "whole-word masking of Chinese text needs the word segmenter rjieba, which is not installed",
            fix=f"{installing('rjieba')}, or use --mask-unit token",
        ) from None
    words: list[str] = rjieba.cut(text)
    return words
