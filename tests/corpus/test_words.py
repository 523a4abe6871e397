import sys
from itertools import pairwise

import numpy as np
import pytest

from minibert.corpus import words
from minibert.corpus.masking import IGNORED, example_keys, mask_tokens
from minibert.corpus.words import word_starts
from minibert.errors import UserError


def characters(text: str) -> list[tuple[int, int]]:
    """One token a character, none for blanks."""
    return [(place, place + 1) for place, character in enumerate(text) if not character.isspace()]


def starts(text: str, offsets: list[tuple[int, int]], continuation: list[bool] | None = None) -> list[int]:
    return [int(start) for start in word_starts(text, offsets, continuation or [False] * len(offsets))]


def segmented(monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Make the segmenter cut at the bars of text; return the text without them."""
    monkeypatch.setattr(words, "_segment", lambda _: text.split("|"))
    return text.replace("|", "")


def test_english_pieces_join_the_word_before_them() -> None:
    text = "unbelievable, isn't it"
    offsets = [(0, 2), (2, 7), (7, 12), (12, 13), (14, 17), (17, 18), (18, 19), (20, 22)]
    continuation = [False, True, True, False, False, False, False, False]
    assert starts(text, offsets, continuation) == [1, 0, 0, 1, 1, 1, 1, 1]
    assert word_starts(text, offsets, np.array(continuation)) == word_starts(text, offsets, continuation)


def test_text_without_han_needs_no_segmenter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    assert starts("カタカナ と 한국어", [(0, 4), (5, 6), (7, 10)]) == [1, 1, 1]
    assert starts("", []) == []


def test_missing_segmenter_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(UserError, match="rjieba") as error:
        word_starts("中国", characters("中国"), [False, False])
    assert "-m pip install rjieba" in str(error.value)


def test_chinese_words_follow_the_segmenter(monkeypatch: pytest.MonkeyPatch) -> None:
    text = segmented(monkeypatch, "南京市|长江大桥|很|长|。")
    assert starts(text, characters(text)) == [1, 0, 0, 1, 0, 0, 0, 1, 1, 1]


def test_offsets_count_characters_beyond_the_basic_plane_and_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = segmented(monkeypatch, " |😀| |\U00020bb7野家| \u3000|在|东京|\u200b|吗")
    kept = [span for span in characters(text) if text[span[0]] != "\u200b"]
    assert starts(text, kept) == [1, 1, 0, 0, 1, 1, 0, 1]


def test_latin_letters_inside_a_chinese_word_belong_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = segmented(monkeypatch, "买|T恤|去|卡拉OK|吧")
    assert starts(text, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 8), (8, 9)]) == [1, 1, 0, 1, 1, 0, 0, 1]


def test_latin_words_in_chinese_text_keep_to_their_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = segmented(monkeypatch, "用|minibert|和|3.14|吧")
    offsets = [(0, 1), (1, 5), (5, 9), (9, 10), (10, 11), (11, 12), (12, 14), (14, 15)]
    assert starts(text, offsets, [False, False, True] + [False] * 5) == [1, 1, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "offsets", "continuation", "expected"),
    [
        # the word 大学 begins inside a token: 学 is its own word
        ("北大|学生|会", [(0, 1), (1, 3), (3, 4), (4, 5)], None, [1, 1, 1, 1]),
        # a token that reaches beyond its word
        ("甲乙|丙丁", [(0, 1), (1, 3), (3, 4)], None, [1, 1, 1]),
        # the word's first character was dropped by the tokenizer
        ("甲乙丙|丁", [(1, 2), (2, 3), (3, 4)], None, [1, 1, 1]),
        # the word begins at a piece: ab ##c 超
        ("ab|c超", [(0, 2), (2, 3), (3, 4)], [False, True, False], [1, 0, 1]),
        # several tokens of one character (jamo of a decomposed syllable) fall back on their pieces
        ("한|中文", [(0, 1), (0, 1), (1, 2), (2, 3)], [False, True, False, False], [1, 0, 1, 0]),
    ],
)
def test_a_token_that_does_not_align_is_its_own_word(
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    offsets: list[tuple[int, int]],
    continuation: list[bool] | None,
    expected: list[int],
) -> None:
    assert starts(segmented(monkeypatch, text), offsets, continuation) == expected


def test_the_real_segmenter_loses_no_character() -> None:
    pytest.importorskip("rjieba")
    draw = np.random.default_rng(0)
    alphabet = [chr(code) for code in (*range(0x300), *range(0x4E00, 0x4E80), 0x20BB7, 0x1F600, 0x3000, 0x2028, 0xAC00)]
    for _ in range(500):
        text = "".join(draw.choice(alphabet, draw.integers(0, 30)))
        assert "".join(words._segment(text)) == text


def test_a_run_of_characters_is_not_one_word() -> None:
    pytest.importorskip("rjieba")
    text = "今天我们去北京大学图书馆看中文小说"
    offsets = characters(text)
    flags = word_starts(text, offsets, [False] * len(offsets))
    spans = np.flatnonzero([*flags, True])
    found = ["".join(text[start:stop]) for start, stop in pairwise(spans)]
    assert "".join(found) == text
    assert "今天" in found
    assert len(found) >= 6

    B, T = 400, len(text) + 2
    word_start = np.array([True, *flags, True])[None, :].repeat(B, axis=0)
    maskable = np.ones((B, T), dtype=bool)
    maskable[:, [0, -1]] = False
    _, labels = mask_tokens(
        np.full((B, T), 7), np.full(B, T), maskable, example_keys(0, 0, np.arange(B), np.zeros(B, dtype=np.int64)),
        rate=0.15, mask_id=4, ordinary_ids=np.arange(5, 9), word_start=word_start,
    )  # fmt: skip
    chosen = (labels != IGNORED).sum(axis=1)
    assert chosen.min() >= 1
    assert chosen.max() == 3
