"""Tag schemes: told, rewritten, and what a model's labels say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from minibert.metrics.tagging import find_entities
from minibert.tasks.tags import as_bioes, bare_types, is_tag, label_numbers, standard, tags_of_labels, tell_scheme

BIO = st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]), max_size=12)


@pytest.mark.parametrize(
    ("tag", "right"),
    [
        ("O", True), ("B-PER", True), ("I-creative-work", True), ("E-人名", True), ("S-A b", True), ("M-X", True),
        ("L-X", True), ("U-X", True), ("", False), ("B", False), ("B-", False), ("B- ", False), ("X-PER", False),
        ("PER", False), ("b-PER", False), ("o", False), ("B_PER", False), ("B-PER ", False), ("B-\tX", False),
        ("B-a\nb", False),
    ],
)  # fmt: skip
def test_what_a_tag_is(tag, right):
    assert is_tag(tag) is right


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["B-PER", "I-PER", "O", "B-LOC"]], "bio"),
        ([["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]], "iob1"),
        ([["I-PER", "O"]], "iob1"),
        ([["I-PER", "O"], ["B-PER", "O"]], "bio"),  # an I- out of order in IOB2
        ([["I-PER", "I-LOC"], ["O", "B-LOC"]], "bio"),
        ([["B-PER", "O", "B-LOC", "I-LOC"], ["S-LOC"]], "bioes"),
        ([["B-PER", "E-PER"]], "bioes"),
        ([["B-PER", "M-PER", "E-PER"]], "bioes"),
        ([["U-PER", "O"]], "bioes"),
        ([["O"]], "bio"),
        ([], "bio"),
    ],
)
def test_scheme_is_told_from_the_tags(sentences, scheme):
    assert tell_scheme(sentences) == scheme


def test_standard_counts_what_is_out_of_order():
    assert standard(["I-PER", "I-PER", "O", "I-LOC", "B-LOC"], "iob1") == (
        ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"],
        0,
    )
    assert standard(["I-PER", "I-PER", "O", "B-LOC"], "bio") == (["B-PER", "I-PER", "O", "B-LOC"], 1)
    assert standard(["S-PER", "B-LOC", "I-LOC", "E-LOC"], "bioes") == (["B-PER", "B-LOC", "I-LOC", "I-LOC"], 0)
    assert standard(["U-PER", "B-LOC", "I-LOC", "L-LOC"], "bioes") == (["B-PER", "B-LOC", "I-LOC", "I-LOC"], 0)
    assert standard(["S-PER", "B-LOC", "M-LOC", "E-LOC"], "bioes") == (["B-PER", "B-LOC", "I-LOC", "I-LOC"], 0)
    assert standard(["B-PER", "O", "E-LOC"], "bioes") == (["B-PER", "O", "B-LOC"], 2)  # no end; no begin


@given(BIO)
def test_bioes_and_back_keeps_every_entity(tags):
    bio, _ = standard(tags, "bio")
    assert find_entities(bio) == [(a, b, c + 1) for a, b, c in get_entities(tags)]
    bioes = as_bioes(bio)
    assert standard(bioes, "bioes") == (bio, 0)
    for label, start, end in find_entities(bio):
        letters = "S" if end - start == 1 else "B" + "I" * (end - start - 2) + "E"
        assert bioes[start:end] == [f"{letter}-{label}" for letter in letters]


def test_what_labels_of_models_from_elsewhere_say():
    assert tags_of_labels(["O", "B-MISC", "I-MISC"]) == ["O", "B-MISC", "I-MISC"]
    assert tags_of_labels(["O", "PER", "LOC"]) == ["O", "I-PER", "I-LOC"]
    assert tags_of_labels(["LABEL_0", "LABEL_1"]) == ["I-LABEL_0", "I-LABEL_1"]
    assert tags_of_labels(["B-PER", "M-PER", "E-PER", "S-PER", "O"]) == ["B-PER", "I-PER", "E-PER", "S-PER", "O"]
    assert tags_of_labels(["U-PER", "L-PER"]) == ["S-PER", "E-PER"]
    assert tags_of_labels(["X", "[CLS]", "[SEP]", "O", "B-PER"]) == ["O", "O", "O", "O", "B-PER"]
    assert bare_types(["O", "PER"]) == {"PER"}
    assert bare_types(["X", "B-PER"]) == frozenset()


@pytest.mark.parametrize(
    ("labels", "spelled"),
    [
        (["O", "B-PER", "I-PER"], {"O": "O", "S-PER": "B-PER", "B-PER": "B-PER", "E-PER": "I-PER", "I-PER": "I-PER"}),
        (["O", "PER"], {"O": "O", "S-PER": "PER", "B-PER": "PER", "E-PER": "PER", "I-PER": "PER"}),
        (["O", "B-PER"], {"O": "O", "S-PER": "B-PER", "B-PER": "B-PER"}),
        (["I-PER"], {"S-PER": "I-PER", "B-PER": "I-PER", "E-PER": "I-PER", "I-PER": "I-PER"}),
        (
            ["B-PER", "M-PER", "E-PER", "S-PER"],
            {"S-PER": "S-PER", "B-PER": "B-PER", "E-PER": "E-PER", "I-PER": "M-PER"},
        ),
        (
            ["B-PER", "I-PER", "L-PER", "U-PER"],
            {"S-PER": "U-PER", "B-PER": "B-PER", "E-PER": "L-PER", "I-PER": "I-PER"},
        ),
    ],
)
def test_gold_in_the_words_of_a_model(labels, spelled):
    assert {tag: labels[i] for tag, i in label_numbers(labels).items()} == spelled
