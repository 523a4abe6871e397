"""Scores of tagging: whole entities found, not tags. Plain Python, in [0, 1].

A tag is O, or a letter that says where in an entity the token stands and, after a hyphen, the entity's label: B-PER.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Entity = tuple[str, int, int]  # label, first token, the token after the last

# Each scheme's letters, and which of IOBES each stands for: BMES says M, BILOU says L and U.
_LETTERS = {
    "bio": {"B": "B", "I": "I"},
    "iob1": {"B": "B", "I": "I"},
    "bioes": {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"},
}


def to_bio(tags: Sequence[str], scheme: Literal["bio", "iob1", "bioes"] = "bio") -> list[str]:
    """Rewrite a sentence's tags as IOB2: B- on each entity's first token, I- on the others.

    What is one entity is decided as find_entities does, so that no scheme loses or moves one. Tags that already are
    proper IOB2 stay as they are; an I- that begins an entity becomes B-: compare the two lists to count them.

    Args: tags of one sentence. scheme: iob1 begins an entity with I-, and with B- only next to one of the same label;
        bioes includes BMES and BILOU, the same with other letters.
    Returns: as many tags. A label is kept as it is written, also where there is none (B and I alone).
    Raises: ValueError for a tag that is not one of the scheme's, with its place.
    """
    letters = _LETTERS[scheme]
    known = []
    for place, tag in enumerate(tags):
        if tag == "O":
            known.append(tag)
        elif tag[:1] in letters and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)):
            known.append(letters[tag[0]] + tag[1:])
        else:
            wanted = ", ".join(["O", *(f"{letter}-LABEL" for letter in letters)])
            raise ValueError(f"tag {place + 1} is {tag!r}: the scheme {scheme} has {wanted}")
    result = ["O"] * len(tags)
    for _, start, end in find_entities(known):
        label = known[start][1:]
        result[start:end] = ["B" + label, *["I" + label] * (end - start - 1)]
    return result


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence as conlleval and seqeval's default mode read them, from IOB1, IOB2 or IOBES tags.

    An entity begins at B and S, at I and E after O, E or S, and wherever the label changes: an I- after O or after
    another label begins one. It ends before the next B, S or O, after E and S, and where the label changes. A tag
    without a label has the label "_"; a label is what follows the first hyphen after the letter.

    Returns: (label, start, end) in order, end exclusive.
    Raises: ValueError for an empty tag.
    Source: seqeval 1.2.2 get_entities, value for value. That includes tags which are none, such as "PER": their first
        letter is taken for the prefix. score_entities warns of them.
    """
    found = []
    last, last_label, start = "O", "", 0
    for place, (letter, label) in enumerate((*map(_parts, tags), ("O", "_"))):
        changes = label != last_label
        if last in "ES" or (last in "BI" and letter in "BSO") or (changes and last not in "O."):
            found.append((last_label, start, place))
        if letter in "BS" or (letter in "IE" and last in "OES") or (changes and letter not in "O."):
            start = place
        last, last_label = letter, label
    return found


def find_strict_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence of which every tag is right by IOB2: B-, then I- of the same label.

    An I- that follows no tag of its label belongs to no entity.

    Returns: (label, start, end) in order, end exclusive.
    Raises: ValueError for a tag that is not O, B or I.
    Source: seqeval 1.2.2, mode="strict", scheme=IOB2, value for value.
    """
    found: list[Entity] = []
    label, start = "", -1  # start -1: in no entity
    for place, tag in enumerate((*tags, "O")):
        if tag[:1] not in ("O", "B", "I"):
            raise ValueError(f"tag {place + 1} is {tag!r}: IOB2 has O, B-LABEL and I-LABEL")
        name = tag[1:].strip("-") or "_"
        if start >= 0 and not (tag[0] == "I" and name == label):
            found.append((label, start, place))
            start = -1
        if tag[0] == "B":
            label, start = name, place
    return found


def score_entities(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, strict: bool = False
) -> dict[str, float]:
    """Scores over all entities of all sentences: one is right where label, start and end are.

    Args: gold, predicted: for each sentence its tags. strict: read both as find_strict_entities does, not as
        find_entities. The score that papers report is the default, conlleval's.
    Returns: precision, recall, f1 (0 where there is nothing to divide by), and support, the number of gold entities.
    Raises: ValueError for differing numbers of sentences, or of tags in a sentence; for an empty tag; if strict, for a
        tag that is not IOB2.
    Source: seqeval 1.2.2 precision_score, recall_score, f1_score, value for value.
    """
    right, found, there = _counts(gold, predicted, strict=strict)
    return _scores(right.total(), found.total(), there.total())


def per_type(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, strict: bool = False
) -> dict[str, dict[str, float]]:
    """score_entities for each label that occurs in gold or is predicted, in order of label."""
    right, found, there = _counts(gold, predicted, strict=strict)
    return {label: _scores(right[label], found[label], there[label]) for label in sorted({*found, *there})}


def _parts(tag: str) -> tuple[str, str]:
    """A tag's letter and label."""
    if not tag:
        raise ValueError("a tag is empty")
    rest = tag[1:]
    return tag[0], (rest.split("-", maxsplit=1)[-1]) or "_"


def _counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, strict: bool
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """For each label, the entities that are predicted rightly, predicted, and in gold."""
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold sentences but {len(predicted)} predicted ones")
    for number, (a, b) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(a) != len(b):
            raise ValueError(f"sentence {number} has {len(a)} gold tags but {len(b)} predicted ones")
        for tag in (*a, *b):
            if not tag or (strict and tag[0] not in "OBI"):
                wanted = "O, B-LABEL and I-LABEL" if strict else "no empty tag"
                raise ValueError(f"sentence {number} has the tag {tag!r}: there is {wanted} here")
    find = find_strict_entities if strict else find_entities
    # all sentences in one row with O between them, as seqeval lays them
    there, found = (find(list(_in_a_row(side))) for side in (gold, predicted))
    odd = {tag for side in (gold, predicted) for tags in side for tag in tags if not _is_tag(tag)}
    if odd:
        warnings.warn(f"not tags of IOB2 or IOBES: {', '.join(map(repr, sorted(odd)[:5]))}", stacklevel=3)
    right = set(there) & set(found)
    return _of_labels(right), _of_labels(found), _of_labels(there)


def _in_a_row(sentences: Sequence[Sequence[str]]) -> Iterator[str]:
    for tags in sentences:
        yield from tags
        yield "O"


def _is_tag(tag: str) -> bool:
    return tag in ("O", "B", "I", "E", "S") or tag.startswith(("B-", "I-", "E-", "S-"))


def _of_labels(entities: Iterable[Entity]) -> Counter[str]:
    return Counter(label for label, _, _ in entities)


def _scores(right: int, found: int, there: int) -> dict[str, float]:
    precision = right / found if found else 0.0
    recall = right / there if there else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": there}
