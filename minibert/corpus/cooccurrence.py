"""First word vectors from the text: words that stand near the same words begin near each other.

Levy, Goldberg and Dagan 2015 (doi 10.1162/tacl_a_00134): positive pointwise mutual information, contexts smoothed by
the power .75, a singular value decomposition with the root of the singular values. V entries, D wide.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minibert.atomic import write_whole
from minibert.corpus.store import TokenStore
from minibert.errors import UserError

WINDOW = 10  # tokens to each side: wide, for what a text is about. Grammar is soon learnt anyway
SMOOTHING = 0.75
MOST_TOKENS = 3_000_000  # counted, in documents drawn at random
ROUNDS = 3  # of the decomposition's power iteration
FORMAT = 1  # to be raised when the vectors change


def word_vectors(
    store: TokenStore, documents: NDArray[np.int64], folder: Path, *, size: int, width: int
) -> tuple[NDArray[np.float32], bool]:
    """The vectors (V,D) of unit length for the text of these documents; 0 for a word that does not stand in it.

    Kept in `folder`, where the same ones are found again. Returns: (vectors, whether they were there already).
    Raises: UserError where they cannot be written.
    """
    asked = [FORMAT, store.name, blake2b(documents.tobytes(), digest_size=8).hexdigest(), size, width]
    target = folder / f"{blake2b(json.dumps(asked).encode(), digest_size=12).hexdigest()}.npy"
    try:
        found = np.load(target, allow_pickle=False)
        if found.shape == (size, width) and found.dtype == np.float32:
            return found, True
    except (OSError, ValueError, EOFError):
        pass  # not there, or broken: made anew
    made = decomposed(neighbours(store, documents, size), width)

    def fill(partial: Path) -> None:
        with partial.open("wb") as file:
            np.save(file, made, allow_pickle=False)

    try:
        write_whole(target, fill)
    except UserError as error:
        raise UserError(error.problem, where=error.where, fix="--cache DIR names another place") from error
    return made, False


def neighbours(store: TokenStore, documents: NDArray[np.int64], size: int) -> Any:
    """How often each two words stand within WINDOW of each other in a document: a symmetric sparse matrix (V,V)."""
    import scipy.sparse

    order = np.random.Generator(np.random.Philox(key=[FORMAT, 0])).permutation(documents)
    texts: list[NDArray[np.int64]] = []
    room, between = MOST_TOKENS, np.full(WINDOW, -1)
    for document in order.tolist():
        ids = np.asarray(store.ids(*store.document_span(document)))[:room]
        texts += [ids, between]
        room -= len(ids)
        if room <= 0:
            break
    flat = np.concatenate(texts).astype(np.int64)
    together = scipy.sparse.csr_matrix((size, size))
    for distance in range(1, WINDOW + 1):
        left, right = flat[:-distance], flat[distance:]
        both = (left >= 0) & (right >= 0)
        pairs = (left[both], right[both])
        together = together + scipy.sparse.coo_matrix((np.ones(int(both.sum())), pairs), shape=(size, size)).tocsr()
    return together + together.T


def decomposed(together: Any, width: int) -> NDArray[np.float32]:
    """Counts of pairs (V,V) -> the leading parts of their mutual information (V,D), without their mean, of length 1."""
    import scipy.sparse
    from sklearn.utils.extmath import randomized_svd

    pairs, size = together.tocoo(), together.shape[0]
    alone = np.asarray(together.sum(0)).ravel()
    context = alone**SMOOTHING
    context /= max(context.sum(), 1.0)
    information = np.log(pairs.data / (alone[pairs.row] * context[pairs.col]))
    kept = information > 0
    matrix = scipy.sparse.csr_matrix((information[kept], (pairs.row[kept], pairs.col[kept])), shape=together.shape)
    parts = min(width, size - 1)
    left, values, _ = randomized_svd(matrix, parts, n_iter=ROUNDS, random_state=0)
    found, there = np.zeros((size, width), np.float32), alone > 0
    found[:, :parts] = left * np.sqrt(values)
    found[there] -= found[there].sum(0) / max(1, there.sum())
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    found /= np.where(lengths > 1e-6, lengths, 1)
    found[~there] = 0
    return found
