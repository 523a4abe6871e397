"""Sentences to rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tasks.word_windows import IGNORED, WordRows, cut_words, owned_words
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, "a", "b", "##b", "##a", "."], lowercase=True)
LENGTHS = st.lists(st.integers(1, 6), max_size=80)


@pytest.mark.parametrize(
    ("num_words", "room", "overlap", "windows"),
    [
        (0, 4, 1, [(0, 0)]),
        (4, 4, 1, [(0, 4)]),
        (5, 4, 1, [(0, 4), (1, 5)]),  # the last reaches back as far as there is room
        (10, 4, 1, [(0, 4), (3, 7), (6, 10)]),
        (10, 4, 0, [(0, 4), (4, 8), (6, 10)]),
        (6, 4, 3, [(0, 4), (1, 5), (2, 6)]),
    ],
)
def test_windows_by_hand(num_words, room, overlap, windows):
    assert cut_words(list(range(num_words + 1)), room, overlap) == windows


def test_windows_of_whole_words():
    # words of 3, 3, 2, 6, 1 tokens in a room of 7: the third would be shared, but then the long one would not fit
    assert cut_words([0, 3, 6, 8, 14, 15], 7, 2) == [(0, 2), (2, 3), (3, 5)]


@given(LENGTHS, st.integers(6, 12), st.integers(0, 5))
def test_windows_hold_every_word_and_go_on(lengths, room, overlap):
    ends = [0, *np.cumsum(lengths).tolist()]
    windows = cut_words(ends, room, overlap)
    assert windows[0][0] == 0
    assert windows[-1][1] == len(lengths)
    assert all(ends[b] - ends[a] <= room for a, b in windows)
    for (a, b), (c, d) in pairwise(windows):
        assert a < c <= b < d
    for (_, b), (c, _) in pairwise(windows[:-1]):
        assert ends[b] - ends[c] <= overlap
    if sum(lengths) <= room:
        assert windows == [(0, len(lengths))]


@given(LENGTHS, st.integers(6, 12), st.integers(0, 5))
def test_each_word_is_where_it_has_most_context(lengths, room, overlap):
    ends = [0, *np.cumsum(lengths).tolist()]
    windows = cut_words(ends, room, overlap)
    owned = owned_words(np.array(ends), windows)
    assert [w for first, last in owned for w in range(first, last)] == list(range(len(lengths)))
    for i, (first, last) in enumerate(owned):
        for w in range(first, last):
            context = [min(ends[w] - ends[a], ends[b] - ends[w + 1]) if a <= w < b else -1 for a, b in windows]
            assert context.index(max(context)) == i


def test_a_row_of_pieces_and_targets():
    rows = WordRows(TOKENIZER, 16, 4)
    (feature,) = rows.rows(7, ["ab", "b", "a."], np.array([2, 0, 1]))
    assert TOKENIZER.decode(feature.ids, skip_special_tokens=False) == "[CLS] ab b a . [SEP]"
    assert feature.ids.tolist()[1:3] == TOKENIZER.convert_tokens_to_ids(["a", "##b"])
    assert feature.example == 7
    assert feature.second == len(feature.ids) == 7
    assert feature.extra.tolist() == [1, 3, 4]
    assert feature.target.tolist() == [IGNORED, 2, IGNORED, 0, 1, IGNORED, IGNORED]
    assert rows.notes() == []


def test_pieces_are_those_of_transformers(tmp_path):
    from transformers import AutoTokenizer

    TOKENIZER.save_pretrained(tmp_path)
    words = ["ab", "Áb", "zz", "b.a", "a"]
    theirs = AutoTokenizer.from_pretrained(tmp_path)(words, is_split_into_words=True)
    (feature,) = WordRows(TOKENIZER, 32, 4).rows(0, words, None)
    assert feature.ids.tolist() == theirs["input_ids"]
    assert feature.extra.tolist() == [theirs.word_ids().index(w) for w in range(len(words))]


def test_words_of_nothing_and_words_without_end():
    rows = WordRows(TOKENIZER, 8, 2)
    features = rows.rows(0, ["\u200b", "", " ", "ab" * 20, "a"], None)
    assert [TOKENIZER.convert_ids_to_tokens(f.ids) for f in features] == [
        ["[CLS]", "[UNK]", "[UNK]", "[UNK]", "[SEP]"],
        ["[CLS]", "a", "##b", "##a", "##b", "##a", "##b", "[SEP]"],
        ["[CLS]", "a", "[SEP]"],
    ]
    assert [f.extra.tolist() for f in features] == [[1, 2, 3], [1], [1]]
    assert rows.notes() == [
        (
            "sentences of more than 6 tokens, cut into 3 windows with an overlap of 2 (a step of 4), each word "
            "answered where it has most context: 1"
        ),
        "words of more than 6 tokens, of which the first are read: 1",
        "words of which the tokenizer leaves nothing, read as [UNK]: 3",
    ]


def test_no_words_are_one_row_of_nothing():
    (feature,) = WordRows(TOKENIZER, 8, 2).rows(0, [], np.array([], np.int64))
    assert feature.ids.tolist() == [TOKENIZER.cls_token_id, TOKENIZER.sep_token_id]
    assert len(feature.extra) == 0
    assert set(feature.target.tolist()) == {IGNORED}


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "ab", "abab", "\u200b", "z"]), min_size=1, max_size=300), st.integers(16, 64))
def test_every_word_has_one_place_and_one_target(words, max_length):
    targets = np.arange(len(words))
    features = WordRows(TOKENIZER, max_length, max_length // 4).rows(0, words, targets)
    assert all(len(f.ids) <= max_length for f in features)
    assert np.concatenate([f.target[f.extra] for f in features]).tolist() == targets.tolist()
    assert sum(int((f.target != IGNORED).sum()) for f in features) == len(words)
    firsts = [ids[0] if ids else TOKENIZER.unk_token_id for ids in TOKENIZER.encode(words)]
    assert np.concatenate([f.ids[f.extra] for f in features]).tolist() == firsts
