"""Many texts at once have the words that `tokenizers` finds in each alone."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tokenization import bulk
from minibert.tokenization.bulk import BulkEncoder
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.words import WordSplitter, without_surrogates

SETTINGS = [(True, None), (False, None), (True, False), (False, True)]
SPLITTERS = {how: WordSplitter(lowercase=how[0], strip_accents=how[1]) for how in SETTINGS}
ODD = [
    *("a", "B", "É", "e\u0301", "İ", "ß", "ﬁ", "가", "ो", "ё", "\u1b06", "\u0338", "≠", "Å", "豈", "中", "々", "𠀀"),
    *(" ", "\n", "\r\n", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u3000", "\xa0", ".", "，", "$", "\u200b"),
    *("\x00", "\ufffd", "\ud83d", "\udc00", "😀", "\u302e", "\U0001d165", "\u1b44", "\u302f", "\U0001d16d", "\uffff"),
]


def spelt(word: str) -> list[int]:
    """Instead of a vocabulary: ids that tell every word from every other."""
    return [*map(ord, word), 0]


def expected(splitter: WordSplitter, text: str) -> list[int]:
    normal = splitter.normalizer.normalize_str(without_surrogates(text))
    return [id_ for word, _ in splitter.pre_tokenizer.pre_tokenize_str(normal) for id_ in spelt(word)]


def encoded(encoder: BulkEncoder, texts: list[str]) -> list[list[int]]:
    ids, lengths = encoder(texts)
    assert len(lengths) == len(texts)
    assert lengths.sum() == len(ids)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] if texts else []


@pytest.mark.parametrize("how", SETTINGS[:2])
def test_every_character_of_the_basic_plane_has_the_words_of_tokenizers(how: tuple[bool, bool | None]) -> None:
    splitter = SPLITTERS[how]
    encoder = BulkEncoder(splitter, spelt)
    for first in range(0, 0x10000, 256):
        texts = [f"É{chr(code)}ç {chr(code)}中" for code in range(first, first + 256)]
        assert encoded(encoder, texts) == [expected(splitter, text) for text in texts], hex(first)


@given(
    st.lists(st.text(st.characters()) | st.text("ab ,\n中"), max_size=6),
    st.sampled_from(SETTINGS),
)
@settings(max_examples=300, deadline=None)
def test_any_texts_have_the_words_of_tokenizers(texts: list[str], how: tuple[bool, bool | None]) -> None:
    splitter = SPLITTERS[how]
    encoder = BulkEncoder(splitter, spelt)
    for _ in range(2):  # the second time all is remembered
        assert encoded(encoder, texts) == [expected(splitter, text) for text in texts]


@given(st.lists(st.sampled_from(ODD), max_size=12).map("".join), st.sampled_from(SETTINGS))
@settings(max_examples=600, deadline=None)
def test_odd_characters_have_the_words_of_tokenizers(text: str, how: tuple[bool, bool | None]) -> None:
    splitter = SPLITTERS[how]
    assert encoded(BulkEncoder(splitter, spelt), ["x", text]) == [expected(splitter, "x"), expected(splitter, text)]


def test_halves_of_a_pair_do_not_join() -> None:
    encoder = BulkEncoder(SPLITTERS[True, None], spelt)
    assert encoded(encoder, ["a\ud83d", "\udc00b", "\ud83d\udc00c"]) == [spelt("a"), spelt("b"), spelt("c")]


def test_line_feed_inside_a_text_is_a_blank() -> None:
    encoder = BulkEncoder(SPLITTERS[True, None], spelt)
    assert encoded(encoder, ["a\nb\n", "", "\n", "c"]) == [spelt("a") + spelt("b"), [], [], spelt("c")]


def test_no_text_has_no_ids() -> None:
    encoder = BulkEncoder(SPLITTERS[True, None], spelt)
    assert encoded(encoder, []) == []
    assert encoded(encoder, ["", ""]) == [[], []]


def test_memory_of_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "REMEMBERED_RUNS", 3)
    encoder = BulkEncoder(SPLITTERS[True, None], spelt)
    longest = "x" * (bulk.LONGEST_REMEMBERED + 1)
    for i in range(20):
        texts = [f"w{i} hello, 中 {longest}", f"w{i + 1}"]
        assert encoded(encoder, texts) == [expected(SPLITTERS[True, None], text) for text in texts]
        assert len(encoder._runs) <= 5
        assert longest not in encoder._runs
    assert len(encoder._pool) < 500


def test_threads_that_share_a_tokenizer_get_the_same_ids():
    letters = "abcdefghij"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    words = ["".join(word) for word in product(letters, repeat=4)]
    texts = [" ".join(words[first::40]) for first in range(40)]
    right = BertTokenizer.from_tokens(tokens, lowercase=True).encode(texts)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            shared = pickle.loads(pickle.dumps(BertTokenizer.from_tokens(tokens, lowercase=True)))
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda text, shared=shared: shared.encode([text])[0], texts))
            assert found == right
    finally:
        sys.setswitchinterval(before)
