"""Sentences -> rows: a long sentence is cut into overlapping windows of whole words.

Legend: W words of a sentence; T tokens of a row. No gold is looked at to choose where windows begin.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minibert.tasks.base import Feature

if TYPE_CHECKING:
    from minibert.tokenization.tokenizer import BertTokenizer

IGNORED = -100  # a target that counts for nothing


@dataclass
class WordRows:
    """Makes the rows of sentences.

    Attributes: max_length: most tokens of a row, [CLS] and [SEP] included. overlap: tokens that windows share.
        num_cut, num_rows: sentences cut into windows, and how many. num_long: words of more tokens than a row has,
        which keep the first ones. num_unknown: words that the tokenizer leaves nothing of, such as a zero-width
        character; [UNK] stands for them.
    """

    tokenizer: BertTokenizer
    max_length: int
    overlap: int
    num_cut: int = field(default=0, init=False)
    num_rows: int = field(default=0, init=False)
    num_long: int = field(default=0, init=False)
    num_unknown: int = field(default=0, init=False)

    def rows(self, number: int, words: list[str], targets: NDArray[np.int64] | None) -> list[Feature]:
        """The features of the sentence `number`. targets (W,): the class of each word, or IGNORED.

        A feature's extra are the places (N,) in the row of the first pieces of the words that take their answer from
        it: those that have most context there. Each word is in one feature's, in order; a feature's target (T,) has
        their classes. A sentence without words is one row of nothing.
        """
        room = self.max_length - 2
        pieces = self.tokenizer.encode(words)
        for i, ids in enumerate(pieces):
            if not ids:
                self.num_unknown += 1
                pieces[i] = [self.tokenizer.unk_token_id]
            elif len(ids) > room:
                self.num_long += 1
                pieces[i] = ids[:room]
        ends = np.zeros(len(words) + 1, np.int64)
        np.cumsum([len(ids) for ids in pieces], out=ends[1:])
        flat = np.fromiter((token for ids in pieces for token in ids), np.int32, int(ends[-1]))
        windows = cut_words(ends.tolist(), room, self.overlap)
        if len(windows) > 1:
            self.num_cut += 1
            self.num_rows += len(windows)
        features = []
        for (start, stop), (first, last) in zip(windows, owned_words(ends, windows), strict=True):
            if first == last and words:
                continue  # all of its words have more context elsewhere
            row = np.empty(int(ends[stop] - ends[start]) + 2, np.int32)
            row[0], row[-1] = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
            row[1:-1] = flat[ends[start] : ends[stop]]
            places = (ends[first:last] - ends[start] + 1).astype(np.int32)
            target = None
            if targets is not None:
                target = np.full(len(row), IGNORED, np.int64)
                target[places] = targets[first:last]
            features.append(Feature(number, row, len(row), target, places))
        return features

    def notes(self) -> list[str]:
        """What there is to say of the sentences so far."""
        step = self.max_length - 2 - self.overlap
        said = {
            f"sentences of more than {self.max_length - 2} tokens, cut into {self.num_rows} windows with an overlap of "
            f"{self.overlap} (a step of {step}), each word answered where it has most context": self.num_cut,
            f"words of more than {self.max_length - 2} tokens, of which the first are read": self.num_long,
            "words of which the tokenizer leaves nothing, read as [UNK]": self.num_unknown,
        }
        return [f"{what}: {count}" for what, count in said.items() if count]


def cut_words(ends: Sequence[int], room: int, overlap: int) -> list[tuple[int, int]]:
    """(first word, word after the last) of each window; together they hold every word, one is enough if all fit.

    A window holds as many words as fit; the next begins so many before its end that at most `overlap` tokens are in
    both, the last as far before it as there is room.
    Args: ends (W+1,): tokens before each word, and of all. No word has more than `room` tokens; overlap < room.
    """
    last = len(ends) - 1
    windows: list[tuple[int, int]] = []
    start = 0
    while True:
        stop = bisect_right(ends, ends[start] + room) - 1
        if stop >= last:
            windows.append((min(start, bisect_left(ends, ends[last] - room)), last))
            return windows
        windows.append((start, stop))
        shared = bisect_left(ends, ends[stop] - overlap)
        fits = bisect_left(ends, ends[stop + 1] - room)  # every window brings a word that is new
        start = max(shared, fits, start + 1)


def owned_words(ends: NDArray[np.int64], windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """For each window its words that have most context there, as (first, after the last).

    A word's context in a window is the tokens on that side of it which has fewer; of equal windows the first has it.
    The words of a window are in one piece: going right a word's left side grows and its right side shrinks, so that a
    later window, which has less on the left and more on the right, stays the better one.
    """
    most = np.full(len(ends) - 1, -1)
    owner = np.zeros(len(ends) - 1, np.int64)
    for i, (start, stop) in enumerate(windows):
        context = np.minimum(ends[start:stop] - ends[start], ends[stop] - ends[start + 1 : stop + 1])
        better = context > most[start:stop]
        most[start:stop][better] = context[better]
        owner[start:stop][better] = i
    numbers = np.arange(len(windows))
    firsts, lasts = np.searchsorted(owner, numbers, "left"), np.searchsorted(owner, numbers, "right")
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
