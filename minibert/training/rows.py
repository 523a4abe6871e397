"""Rows of labelled data in batches: every row once a pass, rows of like length together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from minibert.corpus.batches import Batch, Cursor

GROUP_BATCHES = 50  # batches that are sorted by length together: enough for little padding, few enough for chance
FILLER = -1  # stands in the last batch of a pass, so that every process has a row


class RowStream:
    """An endless stream of batches of row numbers. The order is a function of (seed, epoch).

    Args: lengths (n,): tokens of each row. batch_size: rows in a batch, over all processes. The last batch of a pass
        has what is left, filled up with FILLER to a multiple of the processes.
    """

    def __init__(self, lengths: Sequence[int], *, seed: int, batch_size: int, processes: int = 1) -> None:
        self.lengths, self.seed, self.batch_size, self.processes = np.asarray(lengths), seed, batch_size, processes

    @property
    def steps_per_epoch(self) -> int:
        """Batches in a pass."""
        return math.ceil(len(self.lengths) / self.batch_size)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The row numbers of each batch: GROUP_BATCHES batches at a time sorted by length, then shuffled."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        order = random.permutation(len(self.lengths))
        full = len(order) // self.batch_size * self.batch_size
        window = GROUP_BATCHES * self.batch_size
        windows = [order[first : min(first + window, full)] for first in range(0, full, window)]
        by_length = [rows[np.argsort(self.lengths[rows], kind="stable")] for rows in windows]
        batches = np.concatenate([order[:0], *by_length]).reshape(-1, self.batch_size)
        rest = order[full:]
        last = np.concatenate([rest, np.full(-len(rest) % self.processes, FILLER)])
        return [*batches[random.permutation(len(batches))], *([last] if len(last) else [])]

    def batches(self, cursor: Cursor) -> Iterator[tuple[np.ndarray, Cursor]]:
        """From the cursor on, without end: (row numbers, the cursor behind them)."""
        epoch, done = cursor.epoch, cursor.batch
        while True:
            batches = self.epoch(epoch)
            for i in range(done, len(batches)):
                behind = Cursor(epoch, 0, i + 1) if i + 1 < len(batches) else Cursor(epoch + 1)
                yield batches[i], behind
            epoch, done = epoch + 1, 0

    def num_tokens(self, rows: np.ndarray) -> int:
        """Tokens of these rows; fillers have none."""
        return int(self.lengths[rows[rows != FILLER]].sum())


class RowCollator(Dataset[Batch]):
    """Row numbers -> a batch of tensors. make: rows of data to a batch; filler: the row that stands for FILLER."""

    def __init__(self, rows: Sequence[Any], filler: Any, make: Callable[[list[Any]], Batch]) -> None:
        self.rows, self.filler, self.make = rows, filler, make

    def __getitem__(self, numbers: np.ndarray) -> Batch:
        return self.make([self.filler if i == FILLER else self.rows[i] for i in numbers.tolist()])
