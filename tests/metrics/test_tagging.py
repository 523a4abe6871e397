"""Entities in tags: by hand, and value for value with seqeval."""

import random
import warnings
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
from seqeval.metrics.v1 import precision_recall_fscore_support as strict_precision_recall_fscore_support
from seqeval.scheme import IOB2

from minibert.metrics.tagging import (
    find_entities,
    find_strict_entities,
    per_type,
    score_entities,
    to_bio,
)

TAGS = "O O O B I E S B-A I-A E-A S-A B-B-C I-B-C I-B B-- B-A- I-A- B-北京 I-北京".split()
IOB2_TAGS = [tag for tag in TAGS if tag[0] in "OBI"]
ODD_TAGS = [*TAGS, *"PER X . O-X .-A IA I B- I-- BA-C M-A - 北".split()]


def lines(text):
    return [line.split() for line in text.splitlines()]


def drawn(draw, tags):
    gold = [[draw.choice(tags) for _ in range(draw.randint(0, 7))] for _ in range(draw.randint(1, 3))]
    return gold, [[tag if draw.random() < 0.6 else draw.choice(tags) for tag in sentence] for sentence in gold]


def test_f01_an_inside_tag_may_begin_an_entity():
    gold, predicted = [["B-PER", "I-PER", "O", "B-LOC"]], [["I-PER", "I-PER", "O", "B-LOC"]]
    assert score_entities(gold, predicted) == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 2}
    strict = score_entities(gold, predicted, strict=True)
    assert strict == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}


def test_f01_iob1():
    tags = ["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]
    assert find_entities(tags) == [("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5)]
    assert to_bio(tags, "iob1") == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]


def test_f01_shared(shared):
    case = shared / "cases" / "F01"
    expected = dict(line.split(": ") for line in (case / "expected.txt").read_text().splitlines()[1:])
    gold, predicted = (lines((case / name).read_text()) for name in ("gold.txt", "pred.txt"))
    assert score_entities(gold, predicted)["f1"] == float(expected["f1_default"])
    assert score_entities(gold, predicted, strict=True)["f1"] == pytest.approx(
        float(expected["f1_strict_iob2"]), abs=1e-6
    )
    tags = [line.split()[-1] for line in (case / "iob1.conll").read_text().splitlines() if line.strip()]
    found = "; ".join(f"{label} {start} {end - 1}" for label, start, end in find_entities(tags))
    assert found == expected["iob1_entities"]


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("B-A B-A I-A", [("A", 0, 1), ("A", 1, 3)]),
        ("O I-A I-B O", [("A", 1, 2), ("B", 2, 3)]),
        ("S-A B-A I-A E-A E-A", [("A", 0, 1), ("A", 1, 4), ("A", 4, 5)]),
        ("B-ORG-GOV I-ORG-GOV I-ORG", [("ORG-GOV", 0, 2), ("ORG", 2, 3)]),
        ("B I O S", [("_", 0, 2), ("_", 3, 4)]),
        ("I-A", [("A", 0, 1)]),
        ("", []),
    ],
)
def test_entities_by_hand(tags, entities):
    assert find_entities(tags.split()) == entities


def test_strict_entities_by_hand():
    assert find_strict_entities("I-A B-A I-A I-B B-B O I-B B-A".split()) == [("A", 1, 3), ("B", 4, 5), ("A", 7, 8)]


def test_scores_by_hand():
    # gold A A B, predicted A B B, right: one A and one B
    gold = lines("B-A O B-A\nB-B I-B O")
    predicted = lines("B-A O B-B\nB-B I-B O")
    assert score_entities(gold, predicted) == pytest.approx(
        {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "support": 3}
    )
    assert per_type(gold, predicted) == {
        "A": {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2},
        "B": {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1},
    }


def test_the_same_place_in_another_sentence_is_another_entity():
    assert score_entities(lines("B-A\nO"), lines("O\nB-A"))["f1"] == 0.0
    assert score_entities(lines("O B-A\nI-A"), lines("O B-A\nI-A"))["support"] == 2


@pytest.mark.parametrize("sentences", [[], [[]], [["O", "O"]]])
def test_no_entities_score_nothing(sentences):
    assert score_entities(sentences, sentences) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert per_type(sentences, sentences) == {}


@pytest.mark.parametrize("tags", [TAGS, ODD_TAGS])
def test_value_for_value_as_seqeval(tags):
    draw = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2000):
            gold, predicted = drawn(draw, tags)
            for sentence in gold:
                assert find_entities(sentence) == [(label, a, b + 1) for label, a, b in get_entities(sentence)]
            expected = precision_recall_fscore_support(gold, predicted, average="micro")
            assert tuple(score_entities(gold, predicted).values()) == expected
            expected = list(zip(*precision_recall_fscore_support(gold, predicted), strict=True))
            assert [tuple(scores.values()) for scores in per_type(gold, predicted).values()] == expected


def test_value_for_value_as_strict_seqeval():
    draw = random.Random(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2000):
            gold, predicted = drawn(draw, IOB2_TAGS)
            expected = strict_precision_recall_fscore_support(gold, predicted, average="micro", scheme=IOB2)
            assert tuple(score_entities(gold, predicted, strict=True).values()) == expected
            expected = list(zip(*strict_precision_recall_fscore_support(gold, predicted, scheme=IOB2), strict=True))
            assert [tuple(scores.values()) for scores in per_type(gold, predicted, strict=True).values()] == expected


def test_what_is_no_tag_is_warned_of():
    with pytest.warns(UserWarning, match="not tags of IOB2 or IOBES: 'PER'"):
        score_entities([["PER", "O"]], [["O", "O"]])


@pytest.mark.parametrize(
    ("gold", "predicted", "strict", "message"),
    [
        ("O\nO O", "O\nO", False, "sentence 2 has 2 gold tags but 1"),
        ("O\nO", "O", False, "2 gold sentences but 1"),
        ("O O\nS-A", "O O\nO", True, "sentence 2 has the tag 'S-A': there is O, B-LABEL and I-LABEL here"),
    ],
)
def test_tags_that_cannot_be_scored(gold, predicted, strict, message):
    with pytest.raises(ValueError, match=message):
        score_entities(lines(gold), lines(predicted), strict=strict)


def test_an_empty_or_foreign_tag_is_refused():
    with pytest.raises(ValueError, match="a tag is empty"):
        find_entities(["O", ""])
    with pytest.raises(ValueError, match="tag 2 is ''"):
        find_strict_entities(["O", ""])
    with pytest.raises(ValueError, match="tag 1 is 'S-A': IOB2 has O, B-LABEL and I-LABEL"):
        find_strict_entities(["S-A"])
    with pytest.raises(ValueError, match="sentence 2 has the tag '': there is no empty tag here"):
        score_entities([["O"], ["O"]], [["O"], [""]])


@pytest.mark.parametrize(
    ("tags", "scheme", "expected"),
    [
        ("B-A I-A O B-A", "bio", "B-A I-A O B-A"),
        ("I-A I-A I-B", "bio", "B-A I-A B-B"),
        ("S-A B-A I-A E-A S-B-C O", "bioes", "B-A B-A I-A I-A B-B-C O"),
        ("B-A M-A E-A S-B", "bioes", "B-A I-A I-A B-B"),
        ("B-A I-A L-A U-B", "bioes", "B-A I-A I-A B-B"),
        ("B M E S O", "bioes", "B I I B O"),
        ("B-A- I-A-", "bio", "B-A- I-A-"),
        ("", "bio", ""),
    ],
)
def test_schemes_as_iob2(tags, scheme, expected):
    assert to_bio(tags.split(), scheme) == expected.split()


@given(st.lists(st.sampled_from("O B-A I-A B-B I-B E-A S-A E-B S-B B I E S".split()), max_size=12))
@settings(deadline=None)
def test_iob2_keeps_every_entity_and_is_proper(tags):
    result = to_bio(tags, "bioes")
    assert find_entities(result) == find_entities(tags)
    assert find_strict_entities(result) == find_entities(tags)
    assert to_bio(result) == result
    assert all(a[1:] == b[1:] for a, b in pairwise(["O", *result]) if b[0] == "I")


@pytest.mark.parametrize(
    ("tag", "scheme"),
    [("E-A", "bio"), ("S-A", "iob1"), ("X-A", "bioes"), ("PER", "bio"), ("B-", "bio"), ("BA", "bio"), ("", "bio"),
     ("O-A", "bio"), ("b-A", "bio"), ("B_A", "bio")],
)  # fmt: skip
def test_a_tag_of_another_scheme_is_refused(tag, scheme):
    with pytest.raises(ValueError, match=rf"tag 2 is '{tag}': the scheme {scheme} has O, B-LABEL, I-LABEL"):
        to_bio(["O", tag], scheme)
