"""The search for spans against a plain one that looks at every pair."""

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tasks.spans import best_spans, max_context, null_score
from minibert.tasks.windows import Window, cut_windows


def windows_of(num_tokens, room, overlap):
    offsets = np.array([(2 * i, 2 * i + 1) for i in range(num_tokens)], np.int32).reshape(-1, 2)
    return [Window(offsets, first, length) for first, length in cut_windows(num_tokens, room, overlap)]


def every_span(windows, logits, longest):
    """(score, start, end) of all spans, the best first, with google-research/bert's rule of most context."""
    found = []
    for i, (window, (starts, ends)) in enumerate(zip(windows, logits, strict=True)):
        for a in range(window.length):
            token = window.first + a
            context = [
                min(token - w.first, w.first + w.length - 1 - token) + 0.01 * w.length
                if w.first <= token < w.first + w.length
                else -1
                for w in windows
            ]
            if context.index(max(context)) != i:
                continue
            for b in range(a, min(a + longest, window.length)):
                score = float(starts[1 + a]) + float(ends[1 + b])
                found.append((score, 2 * token, 2 * (window.first + b) + 1))
    return sorted(found, key=lambda span: (-span[0], span[1], span[2]))


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(1, 12), st.integers(1, 14), st.integers(1, 200), st.data())
def test_the_search_is_exact(num_tokens, room, longest, most, data):
    windows = windows_of(num_tokens, room, data.draw(st.integers(0, room - 1)))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):  # many ties
        logits = [random.integers(-2, 3, (2, 1 + w.length)).astype(np.float32) for w in windows]
    else:
        logits = [random.normal(size=(2, 1 + w.length)).astype(np.float32) for w in windows]
    found = [(span.score, span.start, span.end) for span in best_spans(windows, logits, longest=longest, most=most)]
    assert found == every_span(windows, logits, longest)[:most]


def test_most_context_by_hand():
    """Six tokens in windows of four with an overlap of two: tokens 2 and 3 are in both, each nearer one's middle."""
    own = [mask.tolist() for mask in max_context(windows_of(6, 4, 2))]
    assert own == [[True, True, True, False], [False, True, True, True]]


def test_a_longer_window_counts_a_hundredth_of_a_token_more_for_each_of_its_tokens():
    """Windows of 300 and 110 tokens. Token 250 has 49 after it in the first and 50 before it in the second."""
    first, second = max_context(windows_of(310, 300, 100))
    assert first[[249, 250, 251]].tolist() == [True, True, False]  # 49 + 3 > 50 + 1.1, but 48 + 3 < 51 + 1.1
    assert second[[49, 50, 51]].tolist() == [False, False, True]


@given(st.integers(1, 60), st.integers(1, 20), st.data())
def test_each_token_has_most_context_in_one_window(num_tokens, room, data):
    windows = windows_of(num_tokens, room, data.draw(st.integers(0, room - 1)))
    seen = np.zeros(num_tokens, int)
    for window, own in zip(windows, max_context(windows), strict=True):
        seen[window.first : window.first + window.length] += own
    assert (seen == 1).all()


def test_logits_that_are_not_finite_are_passed_over():
    windows = windows_of(3, 5, 0)
    logits = np.array([[0, np.nan, 1, np.inf], [0, 0, 2, -np.inf]], np.float32)
    assert [(span.start, span.end) for span in best_spans(windows, [logits], longest=3, most=9)] == [(2, 3)]
    assert list(best_spans(windows_of(0, 5, 0), [np.zeros((2, 1), np.float32)], longest=3, most=9)) == []


def test_the_null_score_is_the_least_of_the_windows():
    logits = [np.array([[a, 9], [b, 9]], np.float32) for a, b in [(1, 2), (-1, 0.5), (3, -3)]]
    assert null_score(logits) == -0.5


def test_a_context_of_fifty_thousand_tokens_takes_a_moment():
    windows = windows_of(50_000, 320, 128)
    random = np.random.default_rng(0)
    logits = [random.normal(size=(2, 1 + window.length)).astype(np.float32) for window in windows]
    began = time.perf_counter()
    assert len(list(best_spans(windows, logits, longest=30, most=1000))) == 1000
    assert time.perf_counter() - began < 3  # measured: 0.1 s
