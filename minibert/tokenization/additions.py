"""What a vocabulary lacks for a text of another kind: the characters and the pieces that make the text shortest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tokenizers import models

from minibert.tokenization.vocabulary import CONTINUATION, LONGEST_WORD, ranked, single_counts

LONGEST_RUN = 8  # pieces that become one at a time; a longer word takes two rounds
MOST_SPLIT_WORDS = 1 << 18  # words that teach additions, the most frequent ones: bounds memory, whatever the text


@dataclass(frozen=True)
class Additions:
    """What a vocabulary lacks for a text, in the order in which it is to be added.

    characters: c and "##c" of words that were [UNK]. pieces: words, their beginnings and their continuations that the
        vocabulary (with these characters) spells with two tokens or more.
    """

    characters: list[str]
    pieces: list[str]


def find_additions(words: Counter[str], tokens: Sequence[str], *, most: int, least: int) -> Additions:
    """The tokens that make a text shortest under a vocabulary which is there already.

    Characters that make words [UNK] come first, by falling count, c before "##c" (which comes where c stands inside a
    word). Then, one after the other, the run of pieces that saves most tokens as one token: count x (pieces - 1), ties
    by text. A run is a whole word, the beginning of words, or a continuation; each choice changes how words are split,
    and the next one is made on that. WordPiece takes the longest piece and does not go back: a token that would make a
    word of the text [UNK], or other words longer by as much as it saves, has to wait until these are split otherwise.
    The same result for the same counts, whatever their order.

    Args: words: as count_words gives them, under the vocabulary's own settings. most: tokens wanted; fewer where the
        text holds no more. least: nothing is added that would stand fewer times in the text.
    """
    known = set(tokens)
    unknown = Counter(
        {word: count for word, count in words.items() if len(word) <= LONGEST_WORD and spell(word, known) is None}
    )
    singles = single_counts(unknown)
    characters = [piece for piece in ranked(singles) if piece not in known and singles[piece] >= least][:most]
    known.update(characters)
    split = _SplitWords(words, known)
    return Additions(characters, split.merge(most - len(characters), least))


def spell(word: str, known: Collection[str]) -> list[str] | None:
    """WordPiece's pieces of a word, or of a continuation ("##aceae"), longest match first; None where it is [UNK].

    Differs from the tokenizer: a word of more than 100 characters is not refused.
    """
    inside = len(CONTINUATION) if word.startswith(CONTINUATION) and len(word) > len(CONTINUATION) else 0
    start, pieces = inside, []
    while start < len(word):
        prefix = CONTINUATION if start else ""
        for end in range(len(word), start, -1):
            piece = prefix + word[start:end]
            if piece in known:
                break
        else:
            return None
        pieces.append(piece)
        start = end
    return pieces


def count_tokens(words: Counter[str], tokens: Sequence[str]) -> tuple[int, int]:
    """(tokens, [UNK] among them) of a text whose words were counted."""
    model = models.WordPiece(
        {token: i for i, token in enumerate(tokens)}, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD
    )
    total = unknown = 0
    for word, count in words.items():
        pieces = model.tokenize(word)
        total += count * len(pieces)
        unknown += count * (pieces[0].value == "[UNK]")
    return total, unknown


class _SplitWords:
    """Words of several pieces under a growing vocabulary, and what each run of pieces would save as one token.

    pieces: word -> its pieces. holders: piece -> words that it stands in. saved: run, by the token that it would be
    -> tokens that it would save. seen: the same -> times that it stands in the text.
    in_the_way: word -> tokens that cannot be added as long as it is split as it is.
    """

    def __init__(self, words: Counter[str], known: set[str]) -> None:
        self.words, self.known, self.at_first = words, known, frozenset(known)
        self.pieces: dict[str, list[str]] = {}
        self.holders: defaultdict[str, set[str]] = defaultdict(set)
        self.saved: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.in_the_way: defaultdict[str, list[str]] = defaultdict(list)
        self.heap: list[tuple[int, str]] = []
        split = (word for word in words if word not in known and len(word) <= LONGEST_WORD)
        for word in sorted(split, key=lambda word: (-words[word], word))[:MOST_SPLIT_WORDS]:
            pieces = spell(word, known)
            if pieces is not None and len(pieces) > 1:
                self._enter(word, pieces)

    def merge(self, most: int, least: int) -> list[str]:
        """Make the best run a token, again and again -> the new tokens in order."""
        self.heap = [(-saved, token) for token, saved in self.saved.items() if self.seen[token] >= least]
        heapify(self.heap)
        added: list[str] = []
        while self.heap and len(added) < most:
            negative, token = heappop(self.heap)
            if self.seen[token] < least:
                continue
            if -negative != self.saved[token]:  # it has lost words to other runs since
                heappush(self.heap, (-self.saved[token], token))
            elif self._add(token, least):
                added.append(token)
        return added

    def _add(self, token: str, least: int) -> bool:
        """Take a token into the vocabulary and split its words anew; False, and no change, where that cannot be."""
        if spell(token, self.at_first) is None:  # nothing to make its embedding of
            return False
        inside = token.startswith(CONTINUATION)
        text = token.removeprefix(CONTINUATION)
        # Where the new piece is taken now, the longest known piece that begins it was taken until now.
        first = spell(token, self.known)
        assert first is not None
        places = [word for word in self.holders[first[0]] if (text in word[1:] if inside else word.startswith(text))]
        self.known.add(token)
        anew = {word: spell(word, self.known) for word in places}
        saved = {
            word: self.words[word] * (len(self.pieces[word]) - (len(pieces) if pieces else LONGEST_WORD))
            for word, pieces in anew.items()
        }
        if sum(saved.values()) < least or None in anew.values():
            self.known.discard(token)
            for word, tokens in saved.items():
                if tokens < 0:
                    self.in_the_way[word].append(token)
            return False
        changed: set[str] = set()
        for word, pieces in anew.items():
            assert pieces is not None
            if pieces != self.pieces[word]:
                self._leave(word)
                if len(pieces) > 1:
                    changed |= self._enter(word, pieces)
        for run in changed:
            if self.seen[run] >= least:
                heappush(self.heap, (-self.saved[run], run))
        return True

    def _enter(self, word: str, pieces: list[str]) -> set[str]:
        """Take a word in as it is split -> its runs."""
        self.pieces[word] = pieces
        for piece in pieces:
            self.holders[piece].add(word)
        return self._count(word, self.words[word])

    def _leave(self, word: str) -> None:
        for piece in set(self.pieces[word]):
            self.holders[piece].discard(word)
        self._count(word, -self.words[word])
        del self.pieces[word]
        for token in self.in_the_way.pop(word, ()):
            heappush(self.heap, (-self.saved[token], token))

    def _count(self, word: str, times: int) -> set[str]:
        runs = set()
        pieces = self.pieces[word]
        for start in range(len(pieces)):
            run = pieces[start]
            for end in range(start + 1, min(len(pieces), start + LONGEST_RUN)):
                run += pieces[end].removeprefix(CONTINUATION)
                self.saved[run] += times * (end - start)
                self.seen[run] += times
                runs.add(run)
        return runs
