"""Which rows are in which batch."""

import numpy as np
import pytest

from minibert.corpus.batches import Cursor, load_steps
from minibert.training.rows import FILLER, RowCollator, RowStream


def lengths(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 200, n)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize(("n", "batch_size"), [(1, 6), (7, 6), (12, 6), (103, 12), (5000, 36), (5, 600)])
def test_a_pass_has_every_row_once_and_few_fillers(n, batch_size, processes):
    stream = RowStream(lengths(n), seed=3, batch_size=batch_size, processes=processes)
    for epoch in (0, 1):
        batches = stream.epoch(epoch)
        assert len(batches) == stream.steps_per_epoch
        rows = np.concatenate(batches)
        assert sorted(rows[rows != FILLER]) == list(range(n))
        assert all(len(batch) == batch_size and FILLER not in batch for batch in batches[:-1])
        assert len(batches[-1]) % processes == 0
        assert (batches[-1] == FILLER).sum() < processes


def test_order_follows_from_seed_and_epoch_alone():
    stream = RowStream(lengths(100), seed=0, batch_size=8)
    again = RowStream(lengths(100), seed=0, batch_size=8)
    order = np.concatenate(stream.epoch(2))
    assert (order == np.concatenate(again.epoch(2))).all()
    assert (order != np.concatenate(stream.epoch(1))).any()
    assert (order != np.concatenate(RowStream(lengths(100), seed=1, batch_size=8).epoch(2))).any()


def test_like_lengths_share_a_batch():
    """Padding of 5,000 rows in batches of 32: under a twentieth; in random order it is about half."""
    all_lengths = lengths(5000)
    padded = random_padded = 0
    random = np.random.default_rng(1).permutation(5000)[:4992].reshape(-1, 32)
    for batch, other in zip(RowStream(all_lengths, seed=0, batch_size=32).epoch(0)[:-1], random, strict=True):
        padded += all_lengths[batch].max() * 32
        random_padded += all_lengths[other].max() * 32
    assert padded < 1.05 * all_lengths.sum() < 1.8 * all_lengths.sum() < random_padded


def test_batches_are_not_in_order_of_length():
    all_lengths = lengths(3200)
    means = [all_lengths[batch].mean() for batch in RowStream(all_lengths, seed=0, batch_size=32).epoch(0)]
    # correlation of 100 independent places: sigma .1
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.35


@pytest.mark.parametrize("done", [0, 1, 2, 3, 4, 7])
def test_a_cursor_goes_on_in_the_middle(done):
    stream = RowStream(lengths(11), seed=5, batch_size=4)
    whole = stream.batches(Cursor())
    first = [next(whole) for _ in range(done)]
    cursor = first[-1][1] if first else Cursor()
    rest = stream.batches(Cursor.from_state(cursor.state()))
    for _ in range(5):
        (a, behind), (b, same) = next(whole), next(rest)
        assert (a == b).all()
        assert behind.state() == same.state()


@pytest.mark.parametrize(("processes", "micro"), [(1, 2), (2, 2), (2, 1), (3, 2)])
def test_processes_and_micro_batches_share_each_batch(processes, micro):
    stream = RowStream(lengths(10), seed=0, batch_size=6, processes=processes)
    collator = RowCollator(list(range(10)), "filler", list)
    steps = [
        load_steps(stream, collator, Cursor(), micro_batch_size=micro, rank=rank, processes=processes)
        for rank in range(processes)
    ]
    for batch in stream.epoch(0):
        expected = ["filler" if row == FILLER else row for row in batch.tolist()]
        begun = [next(own) for own in steps]
        assert {step.num_tokens for step in begun} == {sum(lengths(10)[row] for row in batch if row != FILLER)}
        found = [step.micro_batches for step in begun]
        assert len({len(one) for one in found}) == 1
        seen = [row for one in found for rows in one for row in rows]
        assert sorted(map(str, seen)) == sorted(map(str, expected))
