from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tokenization.words import WordSplitter, without_surrogates

SETTINGS = [(True, None), (False, None), (True, False), (False, True)]


def words_of_tokenizers(splitter: WordSplitter, text: str) -> list[str]:
    normal = splitter.normalizer.normalize_str(without_surrogates(text))
    return [word for word, _ in splitter.pre_tokenizer.pre_tokenize_str(normal)]


@pytest.mark.parametrize(("lowercase", "strip_accents"), SETTINGS)
def test_split_gives_the_words_of_tokenizers_for_every_character_of_the_basic_plane(
    lowercase: bool, strip_accents: bool | None
) -> None:
    splitter = WordSplitter(lowercase=lowercase, strip_accents=strip_accents)
    for first in range(0, 0x10000, 16):
        text = " ".join(f"É{chr(code)}ç{chr(code)}" for code in range(first, first + 16))
        assert splitter.split(text) == words_of_tokenizers(splitter, text), hex(first)


@given(st.text(), st.sampled_from(SETTINGS))
@settings(max_examples=300, deadline=None)
def test_split_gives_the_words_of_tokenizers_for_any_text(text: str, how: tuple[bool, bool | None]) -> None:
    splitter = WordSplitter(lowercase=how[0], strip_accents=how[1])
    assert splitter.split(text) == words_of_tokenizers(splitter, text)


@pytest.mark.parametrize(
    "marks",
    [
        *("\u302e\U0001d165", "\U0001d165\u302e", "\U0001d165\u1b44", "\uaa7b\ua9c0\u302f"),
        *("\U0001d16d\u302e", "\U0001e000\u302f"),  # of the two the first has the higher class, 226 and 230
    ],
)
def test_split_reorders_spacing_marks_as_tokenizers_does(marks: str) -> None:
    """Normalising character by character would leave these marks in their old order."""
    splitter = WordSplitter(lowercase=True)
    assert splitter.split(f"x a{marks} 中") == words_of_tokenizers(splitter, f"x a{marks} 中")


def test_split_drops_invisible_characters_and_isolates_han_and_punctuation() -> None:
    splitter = WordSplitter(lowercase=True)
    assert splitter.split("Ca\u200bfé\u00ad\ufeff,中\u2060文 a\u3000b\x00\x1fc\u0085d") == [
        *("cafe", ",", "中", "文", "a", "bcd")
    ]
    assert splitter.split("\u200b \u2060\u200d") == []


def test_split_drops_lone_surrogates() -> None:
    assert WordSplitter(lowercase=True).split("a\ud83db \udc00") == ["ab"]
