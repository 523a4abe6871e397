"""Hide tokens for the masked-token objective, without a random state.

Every draw is a function of (seed, epoch, document, ordinal, place in the sequence, what it is for): the same masks for
any batch, worker or process, and after a resume. B sequences, T tokens.
"""

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

IGNORED = -100  # the label that the loss leaves out

_GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's step: 2^64 / golden ratio
_WORD = 0xFFFFFFFFFFFFFFFF
_ORDER, _ACTION, _REPLACEMENT = 0, 1, 2  # streams of mask_tokens


def _mix(x: Keys) -> Keys:
    """Scatter the bits of each number: the output function of splitmix64 (Steele, Lea, Flood 2014), a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def example_keys(
    seed: int, epoch: int | NDArray[np.int64], documents: NDArray[np.int64], ordinals: NDArray[np.int64]
) -> Keys:
    """One 64-bit key an example: documents (B,), ordinals (B,) of the example in its document -> (B,) uint64."""
    key = np.array([seed & _WORD], dtype=np.uint64)  # an array, never a scalar: numpy warns of overflow in scalars
    for part in (np.atleast_1d(epoch), documents, ordinals):
        key = _mix(key + np.uint64(_GOLDEN)) ^ np.asarray(part, dtype=np.int64).astype(np.uint64)
    return _mix(key + np.uint64(_GOLDEN))


def _uniform_at(keys: Keys, places: NDArray[np.int64], stream: int) -> NDArray[np.float64]:
    """Uniform draws at keys and places of one broadcast shape."""
    base = _mix(keys ^ np.uint64((stream + 1) * _GOLDEN & _WORD))
    bits = _mix(base + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniforms(keys: Keys, T: int, stream: int) -> NDArray[np.float64]:
    """Draws in [0, 1): keys (B,) -> (B,T); the value at t depends on (key, t, stream) only, not on B or T."""
    return _uniform_at(keys[:, None], np.arange(T)[None, :], stream)


def mask_tokens(
    ids: Ids,
    lengths: NDArray[np.int64],
    maskable: Flags,
    keys: Keys,
    *,
    rate: float,
    mask_id: int,
    ordinary_ids: Ids,
    word_start: Flags | None = None,
    max_predictions: int | None = None,
) -> tuple[Ids, Ids]:
    """Choose max(1, round(length * rate)) tokens of each sequence: 80 % become mask_id, 10 % random, 10 % stay.

    Args:
        ids: (B,T). lengths: (B,) tokens with special tokens, without padding.
        maskable: (B,T), False on special tokens and padding. A sequence without any gets no label, others at least 1.
        keys: (B,) from example_keys.
        rate: share of the tokens to predict, in (0, 1].
        ordinary_ids: what a random replacement is drawn from: no special and no unused token.
        word_start: (B,T): hide whole words, True where a token begins one; a token after a special token always does.
            Words are taken in random order, one that would exceed the number is passed over. Where every word is longer
            than the number, the shortest is taken whole.
        max_predictions: no sequence gets more labels than this; only that last word may be cut to keep it.
    Returns: inputs (B,T), labels (B,T): the original id where chosen, else -100.
    Raises: ValueError if rate, max_predictions or ordinary_ids are out of range.
    Source: google-research/bert create_masked_lm_predictions. Differs: no special token is ever drawn; word groups end
        at special tokens; a sequence of nothing but long words still gets a label.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate {rate} is not in (0, 1]")
    if max_predictions is not None and max_predictions < 1:
        raise ValueError(f"max_predictions {max_predictions} is less than 1")
    if not len(ordinary_ids):
        raise ValueError("ordinary_ids is empty: a random replacement has nothing to be drawn from")
    wanted = np.maximum(1, np.rint(lengths * rate)).astype(np.int64)  # (B,)
    if max_predictions is not None:
        wanted = np.minimum(wanted, max_predictions)
    order = uniforms(keys, ids.shape[1], _ORDER)
    if word_start is None:
        chosen = _choose_tokens(maskable, order, wanted)
    else:
        chosen = _choose_words(maskable, word_start, order, wanted, max_predictions or ids.shape[1])

    labels = np.where(chosen, ids, IGNORED)
    inputs = ids.copy()
    row, place = np.nonzero(chosen)
    action = _uniform_at(keys[row], place, _ACTION)
    draw = _uniform_at(keys[row], place, _REPLACEMENT)
    random_ids = ordinary_ids[(draw * len(ordinary_ids)).astype(np.int64)]
    inputs[row, place] = np.where(action < 0.8, mask_id, np.where(action < 0.9, random_ids, ids[row, place]))
    return inputs, labels


def _choose_tokens(maskable: Flags, order: NDArray[np.float64], wanted: NDArray[np.int64]) -> Flags:
    """(B,T): in each row the wanted number of maskable tokens that come first in order, all if there are fewer."""
    rows = np.arange(len(maskable))
    number = np.minimum(wanted, maskable.sum(axis=1))
    order = np.where(maskable, order, np.inf)
    ranked = np.sort(order, axis=1)
    last = np.where(number > 0, ranked[rows, np.maximum(number - 1, 0)], -1.0)
    return order <= last[:, None]


def _choose_words(
    maskable: Flags, word_start: Flags, order: NDArray[np.float64], wanted: NDArray[np.int64], most: int
) -> Flags:
    """(B,T): whole words in random order, up to the wanted number of tokens; a word's place is its first token's."""
    B, T = maskable.shape
    rows = np.arange(B)
    after_special = np.ones_like(maskable)
    after_special[:, 1:] = ~maskable[:, :-1]
    first = maskable & (word_start | after_special)  # (B,T)
    word = np.maximum.accumulate(np.where(first, np.arange(T), 0), axis=1)  # (B,T) the place of each token's word
    sizes = np.bincount((rows[:, None] * T + word)[maskable], minlength=B * T).reshape(B, T)
    order = np.where(first, order, np.inf)
    ranked = np.argsort(order, axis=1, kind="stable")
    taken = np.zeros_like(maskable)
    total = np.zeros(B, dtype=np.int64)
    for rank in range(int(first.sum(axis=1).max(initial=0))):
        at = ranked[:, rank]
        size = sizes[rows, at]  # 0 where the row has no more words
        fits = (size > 0) & (total + size <= wanted)
        taken[rows, at] = fits
        total += size * fits
        if (total == wanted).all():
            break
    chosen = taken[rows[:, None], word] & maskable
    for row in np.flatnonzero((total == 0) & maskable.any(axis=1)):  # every word is too long
        at = min(np.flatnonzero(first[row]), key=lambda place: (sizes[row, place], order[row, place]))
        chosen[row, at : at + min(sizes[row, at], most)] = True
    return chosen
