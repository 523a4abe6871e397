"""The best answer spans in the windows of a context. Legend: N tokens of the context, n of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from minibert.tasks.windows import Window


class Span(NamedTuple):
    """A possible answer: start and end (exclusive) in characters of the context, and its score, a sum of two logits."""

    start: int
    end: int
    score: float


def max_context(windows: Sequence[Window]) -> list[NDArray[np.bool_]]:
    """For each window of a context, (n,): True for the tokens that have more context here than in any other window.

    A token's context is the smaller of the numbers of tokens before and after it, and a hundredth of the window's
    length; of equals the first window has it. Each token is True in exactly one window. Source: google-research/bert.
    """
    total = max((window.first + window.length for window in windows), default=0)
    best = np.full(total, -1.0)
    owner = np.full(total, -1)
    for i, window in enumerate(windows):
        inside = slice(window.first, window.first + window.length)
        place = np.arange(window.length)
        context = np.minimum(place, window.length - 1 - place) + 0.01 * window.length
        more = context > best[inside]
        best[inside][more] = context[more]
        owner[inside][more] = i
    return [owner[window.first : window.first + window.length] == i for i, window in enumerate(windows)]


def best_spans(
    windows: Sequence[Window], logits: Sequence[NDArray[np.float32]], *, longest: int, most: int
) -> Iterator[Span]:
    """The spans of a context with the highest scores, the best first; of equal ones the earlier, then the shorter.

    A span lies in one window, has at most `longest` tokens, and begins with a token that has most context there. Every
    such span is looked at. Logits that are not finite are passed over.
    Args: logits: for each window (2,1+n), start and end logits of [CLS] and of its context tokens. most: spans wanted.
    """
    found = []
    for window, own, (starts, ends) in zip(windows, max_context(windows), logits, strict=True):
        rows = np.flatnonzero(own)
        if not len(rows):
            continue
        width = min(longest, window.length)
        padded = np.concatenate((_finite(ends[1:]), np.full(width - 1, -np.inf)))
        band = _finite(starts[1:])[rows, None] + sliding_window_view(padded, width)[rows]  # (rows,width)
        scores = band.reshape(-1)
        least = np.partition(scores, -most)[-most] if len(scores) > most else -np.inf
        chosen = np.flatnonzero((scores >= least) & (scores > -np.inf))
        firsts = window.first + rows[chosen // width]
        found.append(np.stack((scores[chosen], firsts, firsts + chosen % width)))
    if not found:
        return
    all_scores, first_tokens, last_tokens = np.concatenate(found, axis=1)  # token numbers are exact in float64
    order = np.lexsort((last_tokens, first_tokens, -all_scores))[:most]
    offsets = windows[0].offsets
    begins = offsets[first_tokens[order].astype(np.int64), 0]
    ends_at = offsets[last_tokens[order].astype(np.int64), 1]
    yield from map(Span, begins.tolist(), ends_at.tolist(), all_scores[order].tolist())


def _finite(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.where(np.isfinite(logits), logits, -np.inf).astype(np.float64)


def null_score(logits: Sequence[NDArray[np.float32]]) -> float:
    """The score of no answer: the least of the windows' sums of [CLS]'s logits. Source: google-research/bert."""
    return min(float(starts[0]) + float(ends[0]) for starts, ends in logits)
