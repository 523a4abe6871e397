"""Training a WordPiece vocabulary: the same bytes from the same text, every character of it covered."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from minibert.errors import UserError
from minibert.tokenization.words import WordSplitter

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; WordPiece makes a longer word one [UNK]
SMALLEST_SIZE = 16  # below that there is hardly a character besides the special tokens
LEAST_COUNT = 2  # a pair seen once teaches nothing
CHUNK = 1 << 16  # characters split at a time


@dataclass(frozen=True)
class Vocabulary:
    """A trained vocabulary and what it cost.

    tokens: special tokens, then single characters and their continuations by falling frequency, then merges as learnt.
    dropped_characters: distinct characters of the corpus for which there was no room.
    unknown_rate: share of the corpus's tokens that are [UNK] under this vocabulary, in [0, 1].
    characters: distinct characters of the corpus after cleaning.
    """

    tokens: list[str]
    dropped_characters: int
    unknown_rate: float
    characters: int


def train_vocabulary(
    lines: Callable[[], Iterable[str]],
    *,
    size: int,
    lowercase: bool,
    strip_accents: bool | None = None,
    progress: Callable[[int], None] | None = None,
) -> Vocabulary:
    """Learn a WordPiece vocabulary from text.

    Args: lines: gives the corpus; called once, read as a stream (memory grows with the distinct words only).
        size: most tokens wanted, special tokens included. A corpus that cannot fill it gives fewer, none gives more.
        strip_accents: None follows lowercase.
        progress: called with the number of characters read so far.
    Returns: Vocabulary. Where `size` cannot hold every character the most frequent are kept (ties by text).
    Raises: UserError for a size below 16 and for a corpus without text.
    Source: `tokenizers` WordPieceTrainer. Differs: no alphabet limit; a total order of ties. The trainer numbers
        continuation pieces in the order of a randomly seeded hash map and breaks ties by number; it is therefore given
        all of them beforehand, in order of (count, text). Words that hold a dropped character teach no merges.
        A Han character is a word of its own and never continues one; 〇, 々 and others that BERT's ranges leave out
        can ("〇〇" is one word), and then have a continuation piece like any letter.
    """
    if size < SMALLEST_SIZE:
        raise UserError(
            f"a vocabulary of {size} tokens is too small: {len(SPECIAL_TOKENS)} are special tokens",
            fix=f"ask for at least {SMALLEST_SIZE}",
        )
    words = count_words(lines(), WordSplitter(lowercase=lowercase, strip_accents=strip_accents), progress)
    if not words:
        raise UserError("no text to train a vocabulary on: the corpus has no word left after cleaning")
    alphabet = _single_pieces(words)
    kept = alphabet[: size - len(SPECIAL_TOKENS)]
    dropped = frozenset(alphabet[len(kept) :])
    writable = {
        word: count
        for word, count in words.items()
        if len(word) <= LONGEST_WORD and not (dropped and _holds(word, dropped))
    }
    tokens = [*SPECIAL_TOKENS, *kept, *_learn_merges(writable, kept, size - len(SPECIAL_TOKENS))]
    assert len(set(tokens)) == len(tokens) <= size
    return Vocabulary(
        tokens=tokens,
        dropped_characters=sum(not piece.startswith(CONTINUATION) for piece in dropped),
        unknown_rate=_unknown_rate(words, writable, tokens),
        characters=sum(not piece.startswith(CONTINUATION) for piece in alphabet),
    )


def count_words(
    lines: Iterable[str], splitter: WordSplitter, progress: Callable[[int], None] | None = None
) -> Counter[str]:
    """How often each of BERT's words occurs in lines."""
    words: Counter[str] = Counter()
    chunk: list[str] = []
    pending = read = 0
    for line in lines:
        chunk.append(line)
        pending += len(line)
        if pending >= CHUNK:
            words.update(splitter.split("\n".join(chunk)))
            read, pending = read + pending, 0
            chunk.clear()
            if progress is not None:
                progress(read)
    words.update(splitter.split("\n".join(chunk)))
    if progress is not None:
        progress(read + pending)
    return words


def _single_pieces(words: Counter[str]) -> list[str]:
    """Every character c, and "##c" where it occurs inside a word, by falling count, c before "##c"."""
    return ranked(single_counts(words))


def single_counts(words: Counter[str]) -> Counter[str]:
    """How often each character c occurs, and as "##c" how often inside a word."""
    anywhere: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for word, count in words.items():
        anywhere[word[0]] += count
        for character in word[1:]:
            inside[character] += count
    anywhere.update(inside)
    return anywhere + Counter({CONTINUATION + character: count for character, count in inside.items()})


def ranked(singles: Counter[str]) -> list[str]:
    """Single pieces by falling count, c before "##c", ties by text."""

    def place(piece: str) -> tuple[int, bool, str]:
        return -singles[piece], len(piece) > 1, piece

    return sorted(singles, key=place)


def _holds(word: str, dropped: frozenset[str]) -> bool:
    return word[0] in dropped or any(CONTINUATION + character in dropped for character in word[1:])


def _learn_merges(words: dict[str, int], known: list[str], size: int) -> list[str]:
    """Pieces longer than a character, at most size - len(known), in the order in which the trainer makes them."""
    if len(known) >= size:
        return []
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=LEAST_COUNT, show_progress=False, special_tokens=known
    )
    learner.train_from_iterator(_repeat(words), trainer)
    ids = learner.get_vocab()
    singles = frozenset(known)
    return [piece for piece in sorted(ids, key=ids.__getitem__) if piece not in singles]


def _repeat(words: dict[str, int]) -> Iterator[str]:
    """Each word as often as it occurs: the trainer counts for itself. Words of one character have no pairs to merge."""
    for word, count in words.items():
        if len(word) > 1:
            for start in range(0, count, 1000):
                yield f"{word} " * min(1000, count - start)


def _unknown_rate(words: Counter[str], writable: dict[str, int], tokens: list[str]) -> float:
    unknown = words.total() - sum(writable.values())
    if not unknown:
        return 0.0
    model = models.WordPiece(
        {token: i for i, token in enumerate(tokens)}, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD
    )
    return unknown / (unknown + sum(count * len(model.tokenize(word)) for word, count in writable.items()))
