"""Many texts -> ids at once, by table look-ups over arrays of characters. Shapes: C characters, T tokens, B texts.

Blanks and the characters that are words of their own (punctuation, Han) cut text whatever stands beside them, so a text
is those and the runs of other characters between them. A character alone has one id, found in a table of 65,536 places;
a run is asked for once and then remembered. What either means is asked of WordSplitter and of `tokenizers`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minibert.tokenization.words import WordSplitter, without_surrogates

REMEMBERED_RUNS = 1 << 18
LONGEST_REMEMBERED = 100  # characters; longer runs hardly come again
_BLANK, _DROPPED, _END = ord(" "), 0x200B, ord("\n")
_SIZE_BITS = 32  # a place in the pool of ids and a number of ids in one integer: place << 32 | number


class BulkEncoder:
    """Encodes texts without special tokens.

    Args: look_up: a word -> ids of its pieces.
    """

    def __init__(self, splitter: WordSplitter, look_up: Callable[[str], list[int]]) -> None:
        self._splitter, self._look_up = splitter, look_up
        self._lock = Lock()  # a tokenizer may serve several threads, and what is remembered is shared by them
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    def _forget(self) -> None:
        self._pool = array("i", [0])  # the ids of all runs and single characters, one after the other
        self._runs = _Runs(self._ask)
        self._letters = np.zeros(1 << 16, np.uint16)  # what stands for a character in a run, a blank outside; 0 unmet
        self._alone = np.zeros(1 << 16, np.bool_)  # a word of its own, or the end of a text
        self._ids_of = np.zeros(1 << 16, np.int64)  # of these: where its ids are in the pool
        self._letters[_END], self._alone[_END] = _BLANK, True

    def __call__(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """(ids (T,) of all texts in a row, lengths (B,) in tokens). Memory: some 60 bytes a character."""
        if not texts:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        with self._lock:
            return self._encoded(texts)

    def _encoded(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        if len(self._runs) >= REMEMBERED_RUNS or len(self._pool) >= 8 * REMEMBERED_RUNS:
            self._forget()  # bounds memory; frequent words are back within a few lines
        codes = _characters(texts)
        letters = self._letters[codes]
        if not letters.all():
            self._meet(np.unique(codes[letters == 0]).tolist())
            letters = self._letters[codes]
        inside = letters != _BLANK
        begins = inside.copy()
        begins[1:] &= ~inside[:-1]
        places = np.flatnonzero(begins | self._alone[codes])  # of runs, single characters and ends, in order
        units, is_run = codes[places], begins[places]
        found = self._ids_of[units]
        runs = letters.tobytes().decode("utf-16-le").split()
        found[is_run] = np.fromiter(map(self._runs.__getitem__, runs), np.int64, len(runs))
        sizes = found & ((1 << _SIZE_BITS) - 1)
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        shifts = np.repeat((found >> _SIZE_BITS) - (ends - sizes), sizes)
        text_ends = np.concatenate([[0], ends[units == _END], [total]])
        return np.frombuffer(self._pool, np.intc)[shifts + np.arange(total)], np.diff(text_ends)

    def _meet(self, codes: list[int]) -> None:
        """Fill the tables' places of these UTF-16 units. Halves of a pair stand for themselves, inside runs."""
        becomes = self._splitter.becomes
        for code in codes:
            self._letters[code] = code
            if 0xD800 <= code <= 0xDFFF:
                continue
            result = becomes(code)
            if not result:
                self._letters[code] = _DROPPED  # dropped too, and str.split() takes it for no blank
            elif result == " ":
                self._letters[code] = _BLANK
            elif len(result) == 3 and result[0] == result[2] == " ":
                self._letters[code], self._alone[code] = _BLANK, True
                self._ids_of[code] = self._keep(self._look_up(result[1]))
            elif len(result) == 1 and result <= "\uffff" and becomes(ord(result)) == result:  # not REORDERED
                self._letters[code] = ord(result)

    def _ask(self, run: str) -> int:
        return self._keep([id_ for word in self._splitter.split(run) for id_ in self._look_up(word)])

    def _keep(self, ids: list[int]) -> int:
        """Put ids into the pool. Returns: where they are."""
        place = len(self._pool)
        self._pool.extend(ids)
        return place << _SIZE_BITS | len(ids)


class _Runs(dict[str, int]):
    """Run -> where its ids are. Text repeats its words: most are found here, the others are asked for once."""

    def __init__(self, ask: Callable[[str], int]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, run: str) -> int:
        place = self._ask(run)
        if len(run) <= LONGEST_REMEMBERED:
            self[run] = place
        return place


def _characters(texts: Sequence[str]) -> NDArray[np.uint16]:
    """The texts' UTF-16 units, (C,), a line feed between two texts and nowhere else."""
    joined = "\n".join(texts)
    if joined.count("\n") >= len(texts):
        joined = "\n".join([text.replace("\n", " ") for text in texts])  # a blank to BERT as any other
    try:
        units = joined.encode("utf-16-le")
    except UnicodeEncodeError:
        units = without_surrogates(joined).encode("utf-16-le")
    return np.frombuffer(units, "<u2")
