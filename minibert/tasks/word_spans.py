"""Text -> words with their places, and entities of characters -> tags of words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

Span = tuple[int, int]  # start, end: characters of a text, end exclusive

# A word is a character that stands alone, or a run of others; a character that BERT drops (zero-width) belongs to the
# run that it stands inside.
_WORDS = re.compile(r"1|w(?:\.*w)*")


class Entity(NamedTuple):
    """A labelled piece of a text."""

    label: str
    start: int
    end: int


class WordFinder:
    """Cuts text where BERT does before WordPiece: at blanks, and round punctuation and Han characters."""

    def __init__(self) -> None:
        self._kinds = _Kinds()

    def spans(self, text: str) -> list[Span]:
        """The words of text. Nothing is cleaned or changed: a word is text[start:end]."""
        return [match.span() for match in _WORDS.finditer(text.translate(self._kinds))]


class _Kinds(dict[int, str]):
    """Code point -> 1 for a word alone, w for a part of a word, a blank, or a dot for what BERT drops."""

    def __init__(self) -> None:
        super().__init__()
        from minibert.tokenization.words import WordSplitter

        self._split = WordSplitter(lowercase=False, strip_accents=False).split

    def __missing__(self, code: int) -> str:
        words = self._split(f"a{chr(code)}a")
        self[code] = kind = "." if words == ["aa"] else "w 1"[len(words) - 1]
        return kind


class Fitted(NamedTuple):
    """Entities on words.

    Attributes: tags: of the words, IOB2. moved: entities that begin or end inside a word; they are tagged with the
        whole word. left_out: entities that cannot be tagged, with the reason.
    """

    tags: list[str]
    moved: list[Entity]
    left_out: list[tuple[Entity, str]]


def fit_entities(words: Sequence[Span], entities: Sequence[Entity], *, move: bool) -> Fitted:
    """Tags for the words of a text from the entities in it.

    Blanks at an entity's ends do not count. Of entities that overlap the outer one is tagged, else the first. move:
    tag an entity that begins or ends inside a word on the whole word; otherwise it is left out.
    """
    starts, ends = [start for start, _ in words], [end for _, end in words]
    fitted = Fitted(["O"] * len(words), [], [])
    placed = []
    for entity in sorted(set(entities), key=lambda entity: (entity.start, -entity.end, entity.label)):
        first, stop = bisect_right(ends, entity.start), bisect_left(starts, entity.end)
        if first >= stop:
            fitted.left_out.append((entity, "holds no word"))
            continue
        inside = starts[first] < entity.start or ends[stop - 1] > entity.end
        if inside and not move:
            fitted.left_out.append((entity, "begins or ends inside a word"))
            continue
        placed.append((inside, first, stop, entity))
    for inside, first, stop, entity in sorted(placed, key=lambda item: item[0]):  # stable: those that fit come first
        if any(tag != "O" for tag in fitted.tags[first:stop]):
            fitted.left_out.append((entity, "overlaps another one"))
            continue
        fitted.tags[first:stop] = [f"B-{entity.label}", *[f"I-{entity.label}"] * (stop - first - 1)]
        if inside:
            fitted.moved.append(entity)
    return fitted


_CJK = re.compile("[\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")


def joined(words: Sequence[str]) -> str:
    """Words as text: a blank between two of them, unless both characters there are Chinese or Japanese."""
    text = "".join(words[:1])
    for word in words[1:]:
        close = bool(text and word and _CJK.match(text[-1]) and _CJK.match(word[0]))
        text += word if close else f" {word}"
    return text
