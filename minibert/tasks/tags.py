"""Tag schemes: which one a file has, its tags as IOB2, and a model's labels as tags.

IOB2 ("bio"): B-X begins an entity of type X, I-X goes on with it. IOB1: I-X begins one too, B-X only directly after
another X. BIOES: E-X ends one, S-X is one alone; BMES and BILOU write other letters for the same (M = I, L = E, U = S).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from minibert.metrics.tagging import to_bio

Scheme = Literal["bio", "iob1", "bioes"]

SCHEMES = "O; B-X and I-X (bio, iob1); B-X, I-X, E-X, S-X, or their letters in BMES and BILOU (bioes)"
LETTERS: dict[Scheme, str] = {"bio": "BI", "iob1": "BI", "bioes": "BIESMLU"}

_PREFIXED = re.compile(r"[BIESMLU]-\S(?:[^\t\r\n]*\S)?")
_SAME_LETTER = str.maketrans("MLU", "IES")


def is_tag(tag: str) -> bool:
    """True for O and for a tag of any scheme."""
    return tag == "O" or _PREFIXED.fullmatch(tag) is not None


def type_of(tag: str) -> str:
    """The entity's type in a tag other than O."""
    return tag[2:]


def tell_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that tags are written in, from the letters and from where B stands.

    IOB1 it is only where an entity begins with I- and no B- stands but next to an entity of its own type.
    """
    begun_by_i = False
    plain_b = False
    for tags in sentences:
        last = "O"
        for tag in tags:
            if tag[0] in "ESMLU":
                return "bioes"
            if tag[0] != "O":
                continues = last != "O" and type_of(last) == type_of(tag)
                begun_by_i |= tag[0] == "I" and not continues
                plain_b |= tag[0] == "B" and not continues
            last = tag
    return "iob1" if begun_by_i and not plain_b else "bio"


def standard(tags: Sequence[str], scheme: Scheme) -> tuple[list[str], int]:
    """A sentence's valid tags as IOB2, and how many stand where the scheme has another letter.

    Such a sequence (I- after O in IOB2, a B- in BIOES without an E-) is read as conlleval reads it.
    """
    found = to_bio(tags, scheme)
    if scheme == "iob1":
        return found, 0
    if scheme == "bio":
        wanted, given = found, list(tags)
    else:
        wanted = as_bioes(found)
        given = [tag[0].translate(_SAME_LETTER) + tag[1:] for tag in tags]
    return found, sum(a != b for a, b in zip(wanted, given, strict=True))


def as_bioes(tags: Sequence[str]) -> list[str]:
    """IOB2 tags as BIOES."""
    found = []
    for tag, following in zip(tags, (*tags[1:], "O"), strict=False):
        ends = tag != "O" and not (following[0] == "I" and type_of(following) == type_of(tag))
        found.append(("S" if tag[0] == "B" else "E") + tag[1:] if ends else tag)
    return found


def bare_types(labels: Iterable[str]) -> frozenset[str]:
    """The labels of a model that are types without a letter: PER instead of B-PER and I-PER.

    Where some labels have a letter, those without are no types: marks such as X or [CLS] that old taggers learnt.
    """
    others = {label for label in labels if label != "O"}
    return frozenset() if any(map(is_tag, others)) else frozenset(others)


def tags_of_labels(labels: Sequence[str]) -> list[str]:
    """What each of a model's labels says, as a tag of O, B, I, E, S: a bare type X is I-X, a mark is O."""
    bare = bare_types(labels)
    found = []
    for label in labels:
        if label in bare:
            found.append(f"I-{label}")
        else:
            found.append(label[0].translate(_SAME_LETTER) + label[1:] if is_tag(label) else "O")
    return found


def label_numbers(labels: Sequence[str]) -> dict[str, int]:
    """BIOES tag -> the number of the label that a model says for it, whatever scheme its labels are in.

    A tag that no label can say (I-X, where training had only entities of one word) is left out.
    """
    numbers = {label: i for i, label in enumerate(labels)}
    spelled = {"S": "SUBI", "B": "BI", "E": "ELI", "I": "IM"}
    types = {type_of(tag) for tag in tags_of_labels(labels) if tag != "O"}
    found = {"O": numbers["O"]} if "O" in numbers else {}
    for name in types:
        for letter, letters in spelled.items():
            said = [f"{other}-{name}" for other in letters] + [name]
            number = next((numbers[label] for label in said if label in numbers), None)
            if number is not None:
                found[f"{letter}-{name}"] = number
    return found
