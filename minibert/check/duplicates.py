"""Texts that stand there twice, or nearly.

The same: equal after NFKC, with case, line ends and blanks folded. Nearly the same: of all runs of three words that one
of two texts or both have, four fifths are in both (Jaccard of the sets of runs). A word is a run of letters and digits;
where a script writes none between blanks (Chinese, Japanese, Thai), a character is one. So a text of 30 words with one
of them changed is nearly the same, one of 20 is not. A text of fewer than three words is one run.

MinHash (Broder 1997) finds candidates: signatures of 16-bit minima are cut into bands, and texts that agree in a band
are compared in full. There are as many bands as find a pair at the limit with a probability of .999. Hashes are fixed
functions, so the same texts give the same groups always. Measured on one core: 20 MB of English in 7 s. Libraries
(datasketch 2.0, rensa 0.5) take runs of words as strings, and making these alone takes half of that.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

LIKENESS = 0.8
SHINGLE = 3  # words in a run
ROWS = 5  # minima in a band
MISSED = 0.001  # pairs at the limit that no band finds
SLACK = 0.2  # of an estimate from minima: five deviations
COMPARED = 32  # texts of a bucket that are none of each other's group; a further one is compared with the first of them
MOST_WORDS = 2000  # of a text's beginning that are compared
OF_A_TEXT = 32  # runs that take as much memory as a text without any does
BLOCK = 1 << 20  # runs of words hashed at a time

_WORD = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    "|[^\\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / the golden ratio, as splitmix64 has it

Runs = NDArray[np.uint64]  # the hashes of a text's runs of words, sorted, each once


def folded(text: str) -> str:
    """NFKC, without case, every stretch of blanks one space."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def exact_groups(texts: Sequence[str]) -> list[list[int]]:
    """Places of texts that are the same when folded: groups of two or more, in the order of their first places."""
    places: dict[bytes, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(digest(folded(text)), []).append(place)
    return [group for group in places.values() if len(group) > 1]


def near_groups(texts: Sequence[str], *, likeness: float = LIKENESS) -> list[list[int]]:
    """Places of texts that are the same or nearly: groups of two or more, in the order of their first places.

    A group hangs together by pairs: its ends may be less alike than `likeness`. Texts without a letter or digit are in
    none. Memory: some 10 bytes a character and 200 a text.
    """
    return alike([runs(islice(words(folded(text)), MOST_WORDS)) for text in texts], likeness=likeness)


def digest(text: str) -> bytes:
    """8 bytes that stand for a text; two of ten million texts share theirs with a probability of 3 in a million."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def words(text: str) -> Iterator[str]:
    """The words of a folded text, as they are compared."""
    return (match[0] for match in _WORD.finditer(text))


def runs(words: Iterable[str]) -> Runs:
    """The hashes of all runs of SHINGLE words, or of all words if there are fewer; none if there are none."""
    codes = np.array([crc32(word.encode("utf-8", "surrogatepass")) for word in words], np.uint64)
    if not len(codes):
        return codes
    size = min(SHINGLE, len(codes))
    hashed = np.zeros(len(codes) - size + 1, np.uint64)
    for first in range(size):
        hashed = mixed(hashed + codes[first : len(codes) - size + 1 + first] + _SPREAD)
    return np.unique(hashed)


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finalizer (Steele, Lea and Flood 2014): every bit of x moves half of the result's bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def alike(sets: Sequence[Runs], *, likeness: float = LIKENESS) -> list[list[int]]:
    """near_groups for sets of runs."""
    places = [place for place, found in enumerate(sets) if len(found)]
    if len(places) < 2:
        return []
    num_bands = math.ceil(math.log(MISSED) / math.log(1 - likeness**ROWS)) if likeness < 1 else 1
    signatures = minima([sets[place] for place in places], num_bands * ROWS)
    parent = list(range(len(places)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place

    for band in range(num_bands):
        keys = np.zeros(len(places), np.uint64)
        for row in range(band * ROWS, band * ROWS + ROWS):
            keys = mixed(keys + signatures[:, row] + _SPREAD)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], keys[order[1:]] != keys[order[:-1]]]))
        for bucket in np.split(order, starts[1:]):
            if len(bucket) > 1:
                others: list[int] = []  # the first places of groups in this bucket
                for place in bucket.tolist():
                    near = np.mean(signatures[others] == signatures[place], axis=1) if others else ()
                    for other, estimate in zip(others, near, strict=True):
                        if root(place) == root(other):
                            break
                        if (
                            estimate > likeness - SLACK
                            and jaccard(sets[places[place]], sets[places[other]]) >= likeness
                        ):
                            low, high = sorted((root(place), root(other)))
                            parent[high] = low
                            break
                    else:
                        if len(others) < COMPARED:
                            others.append(place)
    groups: dict[int, list[int]] = {}
    for index, place in enumerate(places):
        groups.setdefault(root(index), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def minima(sets: Sequence[Runs], number: int) -> NDArray[np.uint16]:
    """(texts, number): 16 bits of the least value that each of `number` hash functions has over a text's runs."""
    sizes = [len(found) for found in sets]
    seeds = mixed(np.arange(1, 2 * number + 1, dtype=np.uint64) * _SPREAD).reshape(2, number)
    signatures = np.empty((len(sets), number), np.uint16)
    first = 0
    while first < len(sets):
        last, total = first, 0
        while last < len(sets) and (last == first or total + sizes[last] <= BLOCK):
            total += sizes[last]
            last += 1
        block = np.concatenate(sets[first:last])
        starts = np.cumsum([0, *sizes[first : last - 1]])
        for row, (add, times) in enumerate(zip(*seeds, strict=True)):
            least = np.minimum.reduceat((block ^ add) * (times | np.uint64(1)), starts)
            signatures[first:last, row] = mixed(least).astype(np.uint16)
        first = last
    return signatures


def jaccard(a: Runs, b: Runs) -> float:
    """The share of what both have in what either has."""
    both = len(np.intersect1d(a, b, assume_unique=True))
    return both / (len(a) + len(b) - both)


class Repeats:
    """What comes again in a stream of texts, none of them kept.

    Of more than `most` different texts a half is followed, then a quarter, chosen by their digests, so that all copies
    of a text are followed or none: shares stay right. Attributes: share: of the different texts that are followed.
        counts: how often each text came that came again. first: where each stood first.
    """

    def __init__(self, most: int = 1 << 20) -> None:
        self.most, self.share = most, 1.0
        self.first: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.seen = 0  # texts that were followed

    def add(self, code: int, place: int) -> None:
        """A text's digest as a number, and where it stands."""
        if self.share < 1 and not self._is_followed(code):
            return
        self.seen += 1
        if code in self.first:
            self.counts[code] = self.counts.get(code, 1) + 1
            return
        self.first[code] = place
        if len(self.first) > self.most:
            self.share /= 2
            lost = [old for old in self.first if not self._is_followed(old)]
            for old in lost:
                del self.first[old]
                self.seen -= self.counts.pop(old, 1)

    def _is_followed(self, code: int) -> bool:
        return code < self.share * 2**64

    @property
    def extra_share(self) -> float:
        """The share of texts that are copies of an earlier one."""
        return (self.seen - len(self.first)) / self.seen if self.seen else 0.0


class NearSample:
    """Sets of runs of a stream's texts for `alike`, no more than `most` runs in all, a text counted as OF_A_TEXT more.

    Of more texts a half is kept, then a quarter, chosen by their smallest run: texts that are nearly the same have the
    same one mostly, and are kept together. Attributes: share: of the texts that are kept. places: where they stand.
    """

    def __init__(self, most: int = 1 << 23) -> None:
        self.most, self.share = most, 1.0
        self.places: list[str] = []
        self.sets: list[Runs] = []
        self._held = 0

    def add(self, found: Runs, place: str) -> None:
        """A text's runs, and where it stands."""
        if not len(found) or not self._is_kept(found):
            return
        self.places.append(place)
        self.sets.append(found)
        self._held += len(found) + OF_A_TEXT
        while self._held > self.most and len(self.sets) > 1:
            self.share /= 2
            kept = [number for number, old in enumerate(self.sets) if self._is_kept(old)]
            self.places = [self.places[number] for number in kept]
            self.sets = [self.sets[number] for number in kept]
            self._held = sum(len(old) + OF_A_TEXT for old in self.sets)

    def _is_kept(self, found: Runs) -> bool:
        return self.share == 1 or int(mixed(found[:1])[0]) < self.share * 2**64
