from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.corpus.masking import IGNORED, example_keys, mask_tokens, uniforms

PAD, CLS, SEP, MASK = 0, 2, 3, 4
ORDINARY = np.arange(10, 1000)  # 5 .. 9 stand for unused tokens


def batch_of(lengths: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences [CLS] words [SEP] padding: ids (B,T), maskable (B,T)."""
    B = len(lengths)
    place = np.arange(T)
    ids = np.random.default_rng(0).choice(ORDINARY, (B, T))
    ids[:, 0] = CLS
    ids[np.arange(B), lengths - 1] = SEP
    ids[place >= lengths[:, None]] = PAD
    return ids, (place > 0) & (place < lengths[:, None] - 1)


def keys_of(B: int, epoch: int = 0) -> np.ndarray:
    return example_keys(0, epoch, np.arange(B), np.zeros(B, dtype=np.int64))


def mask(ids: np.ndarray, lengths: np.ndarray, maskable: np.ndarray, keys: np.ndarray, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"rate": 0.15, "mask_id": MASK, "ordinary_ids": ORDINARY}
    return mask_tokens(ids, lengths, maskable, keys, **defaults | settings)


def test_labels_fall_on_ordinary_tokens_at_the_rate_and_are_hidden_80_10_10() -> None:
    lengths = np.random.default_rng(1).integers(3, 64, 10_000)
    ids, maskable = batch_of(lengths, 64)
    untouched = ids.copy()
    inputs, labels = mask(ids, lengths, maskable, keys_of(10_000))
    chosen = labels != IGNORED
    assert np.array_equal(ids, untouched)
    assert not chosen[~maskable].any()
    assert np.array_equal(labels[chosen], ids[chosen])
    assert np.array_equal(inputs[~chosen], ids[~chosen])
    assert np.array_equal(chosen.sum(axis=1), [max(1, round(length * 0.15)) for length in lengths.tolist()])

    n = chosen.sum()
    assert n > 45_000
    masked = inputs[chosen] == MASK
    kept = inputs[chosen] == ids[chosen]
    others = inputs[chosen][~masked & ~kept]
    sigma = (0.1 * 0.9 / n) ** 0.5  # .0014; of the random tenth one in 990 is the token itself
    assert abs(masked.mean() - 0.8) < 5 * (0.8 * 0.2 / n) ** 0.5
    assert abs(kept.mean() - 0.1) < 5 * sigma
    assert abs(len(others) / n - 0.1) < 5 * sigma
    assert others.min() >= 10
    # chi-square over 990 ids, about 4,600 draws: mean 989, sigma sqrt(2 * 989) = 44
    counts = np.bincount(others - 10, minlength=990)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 989 + 5 * 44.5


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(2, 24), min_size=1, max_size=6), st.floats(0.01, 1), st.integers(0, 2**64), st.booleans())
def test_every_sequence_with_a_maskable_token_has_a_label(
    lengths: list[int], rate: float, seed: int, whole_words: bool
) -> None:
    of = np.array(lengths)
    ids, maskable = batch_of(of, 24)
    keys = example_keys(seed, 0, np.arange(len(of)), np.zeros(len(of), dtype=np.int64))
    word_start = np.random.default_rng(seed).random((len(of), 24)) < 0.4 if whole_words else None
    inputs, labels = mask(ids, of, maskable, keys, rate=rate, word_start=word_start)
    chosen = (labels != IGNORED).sum(axis=1)
    assert np.array_equal(chosen > 0, maskable.any(axis=1))
    assert not (labels != IGNORED)[~maskable].any()
    assert np.array_equal(inputs[~maskable], ids[~maskable])
    if not whole_words:
        assert np.array_equal(chosen, np.minimum(np.maximum(1, np.rint(of * rate)), maskable.sum(axis=1)))


def test_sequence_without_a_maskable_token_is_left_alone_in_a_batch() -> None:
    lengths = np.array([2, 3, 9])
    ids, maskable = batch_of(lengths, 9)
    for word_start in (None, np.ones((3, 9), dtype=bool)):
        inputs, labels = mask(ids, lengths, maskable, keys_of(3), word_start=word_start)
        assert (labels != IGNORED).sum(axis=1).tolist() == [0, 1, 1]
        assert np.array_equal(inputs[0], ids[0])


def test_positions_are_uniform() -> None:
    lengths = np.full(20_000, 22)
    ids, maskable = batch_of(lengths, 22)
    _, labels = mask(ids, lengths, maskable, keys_of(20_000))
    counts = (labels != IGNORED).sum(axis=0)[1:-1]  # 3 of 20 places: p = .15
    assert counts.sum() == 60_000
    assert (np.abs(counts - 3000) < 5 * (20_000 * 0.15 * 0.85) ** 0.5).all()


@pytest.mark.parametrize("whole_words", [False, True])
def test_mask_of_an_example_does_not_depend_on_its_batch(whole_words: bool) -> None:
    draw = np.random.default_rng(2)
    lengths = draw.integers(3, 40, 50)
    ids, maskable = batch_of(lengths, 48)
    word_start = draw.random((50, 48)) < 0.6 if whole_words else None
    keys = keys_of(50)
    inputs, labels = mask(ids, lengths, maskable, keys, word_start=word_start)
    for rows, T in ((draw.permutation(50), 48), (np.array([7]), int(lengths[7])), (np.arange(20, 30), 40)):
        part = np.ix_(rows, np.arange(T))
        words = None if word_start is None else word_start[part]
        some = mask(ids[part], lengths[rows], maskable[part], keys[rows], word_start=words)
        assert np.array_equal(some[0], inputs[part])
        assert np.array_equal(some[1], labels[part])


def test_masks_of_two_epochs_are_independent() -> None:
    lengths = np.full(5000, 42)
    ids, maskable = batch_of(lengths, 42)
    first, second = (mask(ids, lengths, maskable, keys_of(5000, epoch))[1][:, 1:-1] != IGNORED for epoch in (0, 1))
    # 6 of 40 places each time: 5,000 * 40 * .15^2 = 4,500 common ones, hypergeometric sigma sqrt(5,000 * .667) = 57
    assert abs((first & second).sum() - 4500) < 5 * 57


def test_each_part_of_the_key_matters() -> None:
    zero, one = np.array([0]), np.array([1])
    keys = [
        example_keys(*parts)[0]
        for parts in ((0, 0, zero, zero), (1, 0, zero, zero), (0, 1, zero, zero), (0, 0, one, zero), (0, 0, zero, one))
    ]
    assert len(set(keys)) == 5
    by_row = example_keys(0, np.array([0, 1]), np.array([0, 0]), np.array([0, 0]))  # a batch across two epochs
    assert by_row.tolist() == [keys[0], keys[2]]
    documents, ordinals = (part.ravel() for part in np.meshgrid(np.arange(1000), np.arange(200)))
    assert len(np.unique(example_keys(5, 3, documents, ordinals))) == 200_000
    assert example_keys(-1, 0, zero, zero)[0] == example_keys(2**64 - 1, 0, zero, zero)[0]


def test_uniforms_are_uniform_and_independent_of_stream_and_place() -> None:
    values = uniforms(keys_of(2000), 50, 0)
    assert values.min() >= 0
    assert values.max() < 1
    n = values.size  # 100,000: mean .5, sigma of the mean .2887 / sqrt(n); chi-square over 100 cells
    assert abs(values.mean() - 0.5) < 5 * 0.2887 / n**0.5
    counts = np.bincount((values.ravel() * 100).astype(int), minlength=100)
    assert ((counts - n / 100) ** 2 / (n / 100)).sum() < 99 + 5 * 198**0.5
    for other in (
        uniforms(keys_of(2000), 50, 1),
        uniforms(keys_of(2000, epoch=1), 50, 0),
        np.roll(values, 1, axis=1),
        np.roll(values, 1, axis=0),
    ):
        assert abs(np.corrcoef(values.ravel(), other.ravel())[0, 1]) < 5 / n**0.5
    assert np.array_equal(uniforms(keys_of(2000), 20, 0), values[:, :20])


def test_draws_are_the_same_on_every_machine() -> None:
    keys = example_keys(7, 2, np.array([0, 123_456_789]), np.array([0, 5]))
    assert keys.tolist() == [7853601728871359162, 7196028460153658313]
    assert uniforms(keys, 2, 1).tolist() == [
        [0.9133842094217791, 0.05136343291840051],
        [0.03420597004041781, 0.4844649818441812],
    ]


def test_words_are_hidden_whole_or_not_at_all() -> None:
    lengths = np.random.default_rng(3).integers(20, 64, 3000)
    ids, maskable = batch_of(lengths, 64)
    word_start = np.random.default_rng(4).random((3000, 64)) < 0.6
    _, labels = mask(ids, lengths, maskable, keys_of(3000), word_start=word_start)
    chosen = labels != IGNORED
    inside = maskable[:, 1:] & maskable[:, :-1] & ~word_start[:, 1:]  # belongs to the token before it
    assert np.array_equal(chosen[:, 1:][inside], chosen[:, :-1][inside])
    wanted = np.maximum(1, np.rint(lengths * 0.15))
    assert (chosen.sum(axis=1) <= wanted).all()
    assert chosen.sum() > 0.99 * wanted.sum()


def test_each_token_of_a_word_draws_for_itself() -> None:
    lengths = np.full(4000, 12)
    ids, maskable = batch_of(lengths, 12)
    word_start = np.arange(12) % 2 == 1 | np.zeros((4000, 12), dtype=bool)  # words of two tokens at 1, 3, ...
    inputs, labels = mask(ids, lengths, maskable, keys_of(4000), word_start=word_start)
    hidden = (inputs == MASK)[labels != IGNORED].reshape(-1, 2)
    n = len(hidden)
    assert n == 4000
    both = hidden.all(axis=1).mean()
    assert abs(both - 0.64) < 5 * (0.64 * 0.36 / n) ** 0.5


def test_a_word_longer_than_the_number_is_passed_over() -> None:
    lengths = np.full(500, 14)  # two tokens to hide: [CLS] five two three two [SEP]
    ids, maskable = batch_of(lengths, 14)
    word_start = np.zeros((500, 14), dtype=bool)
    word_start[:, [1, 6, 8, 11]] = True
    _, labels = mask(ids, lengths, maskable, keys_of(500), word_start=word_start)
    chosen = labels != IGNORED
    assert (chosen.sum(axis=1) == 2).all()
    assert not chosen[:, [1, 2, 3, 4, 5, 8, 9, 10]].any()
    n = chosen[:, 6].sum()  # of 500, p = .5, sigma 11.2
    assert abs(n - 250) < 5 * 11.2
    assert np.array_equal(chosen[:, 6], chosen[:, 7])


def test_a_word_ends_at_a_special_token() -> None:
    # [CLS] a ##b [SEP] ##c ##d [SEP]: B lost the front of its word
    ids = np.tile(np.array([[CLS, 11, 12, SEP, 13, 14, SEP]]), (200, 1))
    maskable = np.array([[False, True, True, False, True, True, False]]).repeat(200, axis=0)
    word_start = np.array([[True, True, False, True, False, False, True]]).repeat(200, axis=0)
    _, labels = mask(ids, np.full(200, 7), maskable, keys_of(200), rate=0.3, word_start=word_start)
    found = {tuple(row) for row in (labels != IGNORED).tolist()}
    first = (False, True, True, False, False, False, False)
    second = (False, False, False, False, True, True, False)
    assert found == {first, second}


def test_only_long_words_the_shortest_is_hidden_whole() -> None:
    ids, maskable = batch_of(np.full(100, 10), 10)  # one token to hide: [CLS] three two three [SEP]
    lengths = np.full(100, 10)
    word_start = np.zeros((100, 10), dtype=bool)
    word_start[:, [1, 4, 6]] = True
    _, labels = mask(ids, lengths, maskable, keys_of(100), rate=0.1, word_start=word_start)
    assert (labels[:, [4, 5]] != IGNORED).all()
    assert (labels != IGNORED).sum() == 200
    _, labels = mask(ids, lengths, maskable, keys_of(100), rate=0.1, word_start=word_start, max_predictions=1)
    assert (labels[:, 4] != IGNORED).all()
    assert (labels != IGNORED).sum() == 100


def test_max_predictions_caps_the_number() -> None:
    lengths = np.array([5, 40, 64])
    ids, maskable = batch_of(lengths, 64)
    _, labels = mask(ids, lengths, maskable, keys_of(3), rate=0.5, max_predictions=7)
    assert (labels != IGNORED).sum(axis=1).tolist() == [2, 7, 7]


def test_rounding_never_exceeds_the_share_of_the_longest_sequence() -> None:
    for rate in (0.01, 0.1, 0.15, 0.2, 0.3, 0.4, 1.0):
        for T in (8, 64, 128, 512):
            lengths = np.arange(3, T + 1)
            ids, maskable = batch_of(lengths, T)
            _, labels = mask(ids, lengths, maskable, keys_of(T - 2), rate=rate)
            assert (labels != IGNORED).sum(axis=1).max() <= np.ceil(rate * T)


def test_draws_do_not_touch_the_global_random_state() -> None:
    lengths = np.full(4, 20)
    ids, maskable = batch_of(lengths, 20)
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    first = mask(ids, lengths, maskable, keys_of(4))
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]
    np.random.seed(4)
    assert np.array_equal(first[0], mask(ids, lengths, maskable, keys_of(4))[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"rate": 0.0}, "rate"), ({"rate": 1.1}, "rate"), ({"max_predictions": 0}, "max_predictions"),
     ({"ordinary_ids": np.array([], dtype=np.int64)}, "ordinary_ids")],
)  # fmt: skip
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    lengths = np.array([6])
    ids, maskable = batch_of(lengths, 6)
    with pytest.raises(ValueError, match=message):
        mask(ids, lengths, maskable, keys_of(1), **settings)
