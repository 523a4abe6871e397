"""The peer of bench_data.py: what google-research/bert's create_pretraining_data.py does, written anew.

Pure Python as there: the whole corpus lies in memory as lists of token strings, and each instance holds its tokens.
What Google's script does after that (ids, padding, TFRecord files) is left out, which is in its favour.
Source: https://github.com/google-research/bert, tokenization.py and create_pretraining_data.py, for the rules alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

LONGEST_WORD = 200
HAN = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """A training instance of two segments with its masks."""

    tokens: list[str]
    segment_ids: list[int]
    is_random_next: bool
    positions: list[int]
    labels: list[str]


def is_punctuation(character: str) -> bool:
    """ASCII that is no letter, digit or blank counts, and so does all that Unicode calls punctuation."""
    code = ord(character)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(character).startswith("P")


def words_of(text: str) -> list[str]:
    """Clean, put blanks around Han characters, lower-case, drop accents, split at blanks and punctuation."""
    clean = []
    for character in text:
        code = ord(character)
        if character in " \t\n\r" or unicodedata.category(character) == "Zs":
            clean.append(" ")
        elif code in (0, 0xFFFD) or unicodedata.category(character) in ("Cc", "Cf"):
            continue
        elif any(first <= code <= last for first, last in HAN):
            clean.append(f" {character} ")
        else:
            clean.append(character)
    found = []
    for word in "".join(clean).split():
        plain = [c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn"]
        part: list[str] = []
        for character in plain:
            if is_punctuation(character):
                if part:
                    found.append("".join(part))
                    part = []
                found.append(character)
            else:
                part.append(character)
        if part:
            found.append("".join(part))
    return found


def pieces_of(word: str, vocabulary: dict[str, int]) -> list[str]:
    """The longest entry from the left, again and again; [UNK] where there is none."""
    if len(word) > LONGEST_WORD:
        return ["[UNK]"]
    pieces = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocabulary:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def tokenize(text: str, vocabulary: dict[str, int]) -> list[str]:
    """Tokens of a line."""
    return [piece for word in words_of(text) for piece in pieces_of(word, vocabulary)]


def read(lines: Iterable[str], vocabulary: dict[str, int]) -> list[list[list[str]]]:
    """Documents of sentences of tokens: a line is a sentence, a blank line ends a document."""
    documents: list[list[list[str]]] = [[]]
    for line in lines:
        line = line.strip()
        if not line:
            documents.append([])
            continue
        tokens = tokenize(line, vocabulary)
        if tokens:
            documents[-1].append(tokens)
    return [document for document in documents if document]


def instances(
    documents: list[list[list[str]]], vocabulary: dict[str, int], rng: Random, *, max_length: int = 128,
    short_share: float = 0.1, mask_rate: float = 0.15, max_predictions: int = 20,
) -> list[Instance]:  # fmt: skip
    """All instances of a corpus (dupe_factor 1), in random order."""
    rng.shuffle(documents)
    words = list(vocabulary)
    found = []
    for index in range(len(documents)):
        for a, b, is_random in pairs(documents, index, rng, max_length - 3, short_share):
            tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
            segment_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            tokens, positions, labels = masked(tokens, rng, words, mask_rate, max_predictions)
            found.append(Instance(tokens, segment_ids, is_random, positions, labels))
    rng.shuffle(found)
    return found


def pairs(
    documents: list[list[list[str]]], index: int, rng: Random, room: int, short_share: float
) -> Iterable[tuple[list[str], list[str], bool]]:
    """The segment pairs of one document: (A, B, whether B is from elsewhere)."""
    document = documents[index]
    target = rng.randint(2, room) if rng.random() < short_share else room
    chunk: list[list[str]] = []
    length = 0
    i = 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            b: list[str] = []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != index:
                        break
                partner = documents[other]
                for sentence in partner[rng.randint(0, len(partner) - 1) :]:
                    b.extend(sentence)
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end  # the sentences that were not used come again
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                if rng.random() < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            yield a, b, is_random
            chunk, length = [], 0
        i += 1


def masked(
    tokens: list[str], rng: Random, words: list[str], rate: float, most: int
) -> tuple[list[str], list[int], list[str]]:
    """Hide tokens: 80 % [MASK], 10 % as they are, 10 % random. Returns: (tokens, positions, labels)."""
    candidates = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    chosen = sorted(candidates[: min(most, max(1, round(len(tokens) * rate)))])
    out = list(tokens)
    for i in chosen:
        if rng.random() < 0.8:
            out[i] = "[MASK]"
        elif rng.random() >= 0.5:
            out[i] = words[rng.randint(0, len(words) - 1)]
    return out, chosen, [tokens[i] for i in chosen]
