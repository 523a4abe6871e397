"""Which spans of which documents make an example: planned from lengths alone, before any token is read.

The tokens of the whole corpus lie in one flat array. Sentence s is tokens sentence_start[s] .. sentence_start[s + 1],
document d the sentences doc_first[d] .. doc_first[d + 1]; neither is ever empty.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from minibert.errors import UserError

COLUMNS = ("document", "ordinal", "a_start", "a_length", "b_start", "b_length", "is_random")

_WORD = 0xFFFFFFFFFFFFFFFF

SMALLEST_SPLIT = 20  # documents; of fewer none are held out


@dataclass(frozen=True)
class Layout:
    """Where documents and sentences begin: doc_first (documents + 1,) int64, sentence_start (sentences + 1,) int64."""

    doc_first: NDArray[np.int64]
    sentence_start: NDArray[np.int64]


def plan_documents(
    layout: Layout,
    pool: NDArray[np.int64],
    positions: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    max_length: int,
    nsp: bool,
    short_share: float = 0.1,
) -> NDArray[np.int64]:
    """Plan the examples of some documents for one epoch.

    Args:
        pool: (M,) distinct document ids that the run's examples and random partners are drawn from.
        positions: indices into pool: the documents to plan now. What a document gets depends on (seed, epoch, its id,
            pool, layout), not on the other positions of the call.
        max_length: tokens of an example with its special tokens: [CLS] A [SEP] B [SEP], without nsp [CLS] A [SEP].
        short_share: probability that a chunk aims at a uniform length of 2 .. room instead of the whole room.
    Returns: (examples, 7) int64, columns COLUMNS, grouped by document in the order of positions. ordinal counts a
        document's examples. Starts are places in the flat token array. is_random: 1 B is from another document, 0 B
        follows A; without nsp b_length is 0, b_start the end of A and is_random -1.
    Raises: UserError if nsp is asked of a pool of fewer than two documents. ValueError if max_length leaves no room.
    Source: google-research/bert create_instances_from_document. Differs: the target length is drawn for each chunk, not
        for each document; the random partner is always another document (Google keeps the same one after ten draws); a
        chunk of one sentence of a longer document is cut in two for a true pair half of the time (Google always makes a
        random one, and on real text, where such chunks are one in eight, IsNext is 44 % instead of 50 %).
    """
    room = max_length - (3 if nsp else 2)
    if room < 2:
        raise ValueError(f"max_length {max_length} leaves no room for two tokens beside the special tokens")
    if nsp and len(pool) < 2:
        raise UserError(
            f"next-sentence prediction needs at least 2 documents, the corpus has {len(pool)}",
            fix="mark document boundaries with a blank line, or use --no-nsp",
        )
    # memoryviews: single numbers come out as Python ints several times faster than from numpy, and nothing is copied
    doc_first = np.ascontiguousarray(layout.doc_first, dtype=np.int64).data
    starts = np.ascontiguousarray(layout.sentence_start, dtype=np.int64).data
    ids = np.ascontiguousarray(pool, dtype=np.int64).data
    rng = Random()
    rows = array("q")
    stream = (seed & _WORD) << 128 | (epoch & _WORD) << 64
    for place in np.asarray(positions, dtype=np.int64).tolist():
        rng.seed(stream | ids[place])
        if nsp:
            _plan_pairs(rows, doc_first, starts, ids, place, room, short_share, rng)
        else:
            _plan_windows(rows, doc_first, starts, ids[place], room, short_share, rng)
    return np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))


def _plan_pairs(
    rows: "array[int]",
    doc_first: "memoryview[int]",
    starts: "memoryview[int]",
    ids: "memoryview[int]",
    place: int,
    room: int,
    short_share: float,
    rng: Random,
) -> None:
    """Append the sentence pairs of the document ids[place]."""
    random = rng.random  # int(random() * n) is a uniform draw from 0 .. n - 1, several times faster than randrange
    others = len(ids) - 1
    document = ids[place]
    sentence, end = doc_first[document], doc_first[document + 1]
    alone = end - sentence == 1  # a document of one sentence: only a random B can follow, and the summary warns of many
    ordinal = 0
    while sentence < end:
        target = 2 + int(random() * (room - 1)) if random() < short_share else room
        chunk_end = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
        size = chunk_end - sentence
        a_start = starts[sentence]
        if size > 1:
            a_end = sentence + 1 + int(random() * (size - 1))
            a_stop = starts[a_end]
            is_random = random() < 0.5
        else:
            a_end, a_stop = chunk_end, starts[chunk_end]
            is_random = alone or a_stop - a_start == 1 or random() < 0.5
            if not is_random:
                a_stop = a_start + 1 + int(random() * (a_stop - a_start - 1))
        if is_random:
            other = int(random() * others)
            partner = ids[other + (other >= place)]
            first, last = doc_first[partner], doc_first[partner + 1]
            first += int(random() * (last - first))
            b_start = starts[first]
            b_stop = starts[bisect_left(starts, b_start + target - (a_stop - a_start), first + 1, last)]
            sentence = a_end  # the chunk's other sentences go back to the stream
        else:
            b_start, b_stop = a_stop, starts[chunk_end]
            sentence = chunk_end
        a_length, b_length = a_stop - a_start, b_stop - b_start
        excess = a_length + b_length - room
        if excess > 0:
            # one token at a time from the longer side, B at a tie: first the longer's surplus, then B and A in turn
            surplus = a_length - b_length
            from_a, from_b = (min(excess, surplus), 0) if surplus > 0 else (0, min(excess, -surplus))
            both = excess - from_a - from_b
            from_a += both // 2
            from_b += both - both // 2
            a_length -= from_a
            b_length -= from_b
            # each leaves from the front with probability .5: as many of them as there are ones in as many random bits
            a_start += rng.getrandbits(from_a).bit_count() if from_a else 0
            b_start += rng.getrandbits(from_b).bit_count() if from_b else 0
        rows.extend((document, ordinal, a_start, a_length, b_start, b_length, is_random))
        ordinal += 1


def _plan_windows(
    rows: "array[int]",
    doc_first: "memoryview[int]",
    starts: "memoryview[int]",
    document: int,
    room: int,
    short_share: float,
    rng: Random,
) -> None:
    """Append the document's consecutive windows: whole sentences up to the target, no token left out.

    A sentence longer than the target but not than the room is a window by itself; a longer one is cut into pieces of
    the target.
    """
    random = rng.random
    sentence, end = doc_first[document], doc_first[document + 1]
    start = starts[sentence]
    ordinal = 0
    while sentence < end:
        target = 2 + int(random() * (room - 1)) if random() < short_share else room
        window_end = bisect_right(starts, start + target, sentence + 1, end + 1) - 1
        if window_end == sentence and starts[sentence + 1] - start <= room:
            window_end += 1
        stop = starts[window_end] if window_end > sentence else start + target
        rows.extend((document, ordinal, start, stop - start, stop, 0, -1))
        sentence, start = window_end, stop
        ordinal += 1


def split_documents(hashes: NDArray[np.uint64], share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hold out about share of the documents: those with the smallest hashes of their text.

    Equal hashes (duplicate texts) go together, so that no text is on both sides; a group of duplicates that is larger
    than what is still wanted is passed over. Of fewer than 20 documents none are held out, otherwise at least 2, unless
    duplicates are so many that this would take more than half of the documents: then none.

    Args: hashes (documents,) uint64. share in [0, 1).
    Returns: (train ids, held-out ids), both sorted int64.
    """
    if not 0 <= share < 1:
        raise ValueError(f"share {share} is not in [0, 1)")
    n = len(hashes)
    held = np.zeros(n, dtype=np.bool_)
    if share > 0 and n >= SMALLEST_SPLIT:
        _, group, sizes = np.unique(hashes, return_inverse=True, return_counts=True)  # groups in order of hash
        wanted = min(max(2, round(share * n)), n - 2)
        taken = np.zeros(len(sizes), dtype=np.bool_)
        total = 0
        for index, size in enumerate(sizes.tolist()):
            if total + size <= wanted:
                taken[index] = True
                total += size
            if total == wanted:
                break
        if total < 2:  # every group that is left holds more than is wanted: take the smallest
            smallest = int(np.argmin(np.where(taken, n, sizes)))
            taken[smallest] = True
            if sizes[taken].sum() > n // 2:
                taken[:] = False
        held = taken[group.reshape(-1)]
    return np.flatnonzero(~held), np.flatnonzero(held)


def summary(plan: NDArray[np.int64]) -> dict[str, int | float | None]:
    """Count a plan: examples, tokens (with special tokens), mean_length (tokens), is_next_share or None."""
    is_random = plan[:, COLUMNS.index("is_random")]
    pairs = int((is_random >= 0).sum())
    tokens = int(plan[:, 3].sum() + plan[:, 5].sum()) + 2 * len(plan) + pairs
    return {
        "examples": len(plan),
        "tokens": tokens,
        "mean_length": tokens / len(plan) if len(plan) else 0.0,
        "is_next_share": float((is_random == 0).sum()) / pairs if pairs else None,
    }
