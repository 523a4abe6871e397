"""Words of texts, and entities on them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tasks.word_spans import Entity, WordFinder, fit_entities, joined
from minibert.tokenization.words import WordSplitter

FINDER = WordFinder()
SPLITTER = WordSplitter(lowercase=False, strip_accents=False)


def words(text):
    return [text[a:b] for a, b in FINDER.spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \u3000\n", []),
        ("John's car.", ["John", "'", "s", "car", "."]),
        ("我在EU工作2020年！", ["我", "在", "EU", "工", "作", "2020", "年", "！"]),
        ("Ünïted e\u0301", ["Ünïted", "e\u0301"]),
        ("\u200bhan\u200bd\u200b x", ["han\u200bd", "x"]),  # zero-width: inside a word it belongs to it
        ("\u200b\u2060", []),
        ("a\xa0b\u2028c", ["a", "b", "c"]),
        ("x\ud83dy", ["x\ud83dy"]),
        ("😀 10km", ["😀", "10km"]),
        ("New-York", ["New", "-", "York"]),
    ],
)
def test_words_of_a_text(text, expected):
    assert words(text) == expected


@settings(deadline=None)
@given(st.text(st.sampled_from("aB1. 北京-é\u200b\u0301\t\u3000😀ก한カ\U0002b820\x00\ufffd"), max_size=20) | st.text())
def test_words_are_those_of_bert_and_stand_where_they_are_said_to(text):
    kept = "".join(c for c in text if not "\ud800" <= c <= "\udfff")
    cleaned = [SPLITTER.split(word) for word in words(kept)]
    assert [piece for pieces in cleaned for piece in pieces] == SPLITTER.split(kept)
    assert all(len(pieces) == 1 for pieces in cleaned)
    spans = FINDER.spans(text)
    assert all(0 <= a < b <= len(text) for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in pairwise(spans))


TEXT = (
    "Mary Jones left Paris-Nord today"  # Mary 0-4, Jones 5-10, left 11-15, Paris 16-21, - 21, Nord 22-26, today 27-32
)
SPANS = FINDER.spans(TEXT)


def fit(*entities, move=True):
    return fit_entities(SPANS, [Entity(*e) for e in entities], move=move)


def test_entities_on_word_borders():
    found = fit(("PER", 0, 10), ("LOC", 16, 21))
    assert found.tags == ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"]
    assert (found.moved, found.left_out) == ([], [])
    assert fit(("PER", 0, 11), ("LOC", 15, 21), move=False).tags == found.tags  # blanks at the ends do not count
    assert fit(("PER", 0, 4), ("PER", 0, 4)).left_out == []  # said twice
    assert fit(("PER", 0, 4), ("LOC", 5, 10), ("X", 11, 15)).tags[:3] == ["B-PER", "B-LOC", "B-X"]


def test_entities_that_end_inside_a_word():
    entity = ("PER", 6, 12)
    moved = fit(entity)
    assert moved.tags == ["O", "B-PER", "I-PER", "O", "O", "O", "O"]
    assert moved.moved == [Entity(*entity)]
    kept = fit(entity, move=False)
    assert set(kept.tags) == {"O"}
    assert kept.left_out == [(Entity(*entity), "begins or ends inside a word")]


def test_entities_that_overlap():
    found = fit(("LOC", 5, 10), ("PER", 0, 10))
    assert found.tags[:3] == ["B-PER", "I-PER", "O"]
    assert found.left_out == [(Entity("LOC", 5, 10), "overlaps another one")]
    assert fit(("X", 0, 4), ("PER", 0, 10)).tags[:2] == ["B-PER", "I-PER"]
    # one that fits goes before one that has to be moved
    found = fit(("PER", 1, 10), ("LOC", 5, 10))
    assert found.tags[:2] == ["O", "B-LOC"]
    assert found.left_out == [(Entity("PER", 1, 10), "overlaps another one")]


def test_an_entity_of_blanks_holds_no_word():
    assert fit(("PER", 4, 5)).left_out == [(Entity("PER", 4, 5), "holds no word")]


def test_words_joined_as_people_write_them():
    assert joined(["New", "York"]) == "New York"
    assert joined(["北", "京", "，", "东", "京"]) == "北京，东京"
    assert joined(["北", "京", "U", "2", "的"]) == "北京 U 2 的"
    assert joined(["カ", "ラ"]) == "カラ"
    assert joined(["서울", "시"]) == "서울 시"
    assert joined(["a", "", "b"]) == "a  b"
    assert joined([]) == ""
