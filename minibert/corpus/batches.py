"""From planned examples to batches of tensors.

The order of examples is a function of (seed, epoch); a batch's content of (seed, epoch, example). A Cursor says where
in that order one stands, so that a run goes on exactly where it ended, with any number of workers and processes.

Legend: b examples in a batch, T tokens in its longest example, P masked positions over the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from minibert.corpus.masking import example_keys, mask_tokens
from minibert.corpus.orphans import end_with_parent
from minibert.corpus.pairs import COLUMNS, plan_documents
from minibert.corpus.store import TokenStore
from minibert.model.attention import RealTokens
from minibert.tokenization.tokenizer import BertTokenizer

Batch = dict[str, Any]  # what collate returns; see there

BLOCK_TOKENS = 8_000_000  # text planned and shuffled at a time: bounds memory, and the wait before a step
GROUP_BATCHES = 32  # batches among which examples of like length are brought together
EPOCH, DOCUMENT, ORDINAL, A_START, A_LENGTH, B_START, B_LENGTH, IS_RANDOM = range(len(COLUMNS) + 1)


@dataclass(frozen=True)
class Cursor:
    """A place in the stream of batches: how much of which block of which epoch has been given out."""

    epoch: int = 0
    block: int = 0
    batch: int = 0
    carry: np.ndarray = field(default_factory=lambda: np.zeros((0, len(COLUMNS) + 1), np.int64))  # not a full batch yet

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "block": self.block, "batch": self.batch, "carry": self.carry.tolist()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Cursor:
        carry = np.array(state["carry"], np.int64).reshape(-1, len(COLUMNS) + 1)
        return cls(state["epoch"], state["block"], state["batch"], carry)


class ExampleStream:
    """An endless stream of batches of planned examples, pass after pass over a pool of documents.

    Each pass goes through the documents in a new random order and plans them anew. Batches are always full: what is
    left at the end of a pass joins the next. Examples of like length share a batch, so that little padding is computed.

    Args: pool: ids of the documents. batch_size: examples in a batch, over all processes.
    """

    def __init__(
        self, store: TokenStore, pool: np.ndarray, *, seed: int, batch_size: int, max_length: int, nsp: bool,
        short_share: float,
    ) -> None:  # fmt: skip
        self.store, self.pool, self.seed, self.batch_size = store, pool, seed, batch_size
        self.max_length, self.nsp, self.short_share = max_length, nsp, short_share
        starts = store.layout.sentence_start[store.layout.doc_first]
        self.document_tokens = np.diff(starts)[pool]

    def plan(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """The examples of some documents of the pool, in a random order: rows of (epoch, *COLUMNS)."""
        rows = plan_documents(
            self.store.layout, self.pool, positions, seed=self.seed, epoch=epoch, max_length=self.max_length,
            nsp=self.nsp, short_share=self.short_share,
        )  # fmt: skip
        keys = example_keys(self.seed + 1, epoch, rows[:, 0], rows[:, 1])  # + 1: not the numbers that masks come from
        rows = rows[np.argsort(keys, kind="stable")]
        return np.concatenate([np.full((len(rows), 1), epoch, np.int64), rows], axis=1)

    def blocks(self, epoch: int) -> list[np.ndarray]:
        """The pool's positions in this epoch's random order, cut into blocks of about BLOCK_TOKENS."""
        order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(len(self.pool))
        block_of = np.cumsum(self.document_tokens[order]) // BLOCK_TOKENS
        return np.split(order, np.flatnonzero(np.diff(block_of)) + 1)

    def num_tokens(self, rows: np.ndarray) -> int:
        """Tokens of these examples with their [CLS] and [SEP]s, without padding."""
        return int(_lengths(rows).sum())

    def count(self, epoch: int = 0) -> int:
        """How many examples a pass has."""
        return sum(len(self.plan(epoch, positions)) for positions in self.blocks(epoch))

    def batches(self, cursor: Cursor) -> Iterator[tuple[np.ndarray, Cursor]]:
        """From the cursor on, without end: (rows (batch_size, 8), the cursor behind them)."""
        epoch, block, done, carry = cursor.epoch, cursor.block, cursor.batch, cursor.carry
        while True:
            blocks = self.blocks(epoch)
            while block < len(blocks):
                rows = np.concatenate([carry, self.plan(epoch, blocks[block])])
                full = len(rows) // self.batch_size * self.batch_size
                batches = self._grouped(rows[:full], epoch, block)
                for i in range(done, len(batches)):
                    yield batches[i], Cursor(epoch, block, i + 1, carry)
                carry, block, done = rows[full:], block + 1, 0
            epoch, block = epoch + 1, 0

    def _grouped(self, rows: np.ndarray, epoch: int, block: int) -> np.ndarray:
        """(n, 8) -> (n / batch_size, batch_size, 8): like lengths together, the batches in random order."""
        lengths = rows[:, A_LENGTH] + rows[:, B_LENGTH]
        window = self.batch_size * GROUP_BATCHES
        order = np.concatenate(
            [np.zeros(0, np.int64)]
            + [
                first + np.argsort(lengths[first : first + window], kind="stable")
                for first in range(0, len(rows), window)
            ]
        )
        batches = rows[order].reshape(-1, self.batch_size, rows.shape[1])
        generator = np.random.Generator(np.random.Philox(key=[self.seed, (epoch << 32) + block + 1]))
        return np.concatenate(
            [batches[:0]]
            + [
                part[generator.permutation(len(part))]
                for part in np.split(batches, range(GROUP_BATCHES, len(batches), GROUP_BATCHES))
            ]
        )


def _lengths(rows: np.ndarray) -> np.ndarray:
    """(b,): tokens of each example as [CLS] A [SEP] B [SEP], or [CLS] A [SEP]."""
    lengths: np.ndarray = rows[:, A_LENGTH] + rows[:, B_LENGTH] + 2 + (rows[:, B_LENGTH] > 0)
    return lengths


class Collator(Dataset[Batch]):
    """Rows of planned examples -> a batch of tensors, masks drawn.

    Indexed by the rows themselves (a sampler hands them over), so that loader workers do the work.

    Args: static: pad every batch to `max_length` tokens and the same number of masked positions, for torch.compile.
    """

    def __init__(
        self, store: TokenStore, tokenizer: BertTokenizer, *, seed: int, mask_rate: float, words: bool, max_length: int,
        static: bool = False,
    ) -> None:  # fmt: skip
        self.store, self.seed, self.mask_rate, self.words = store, seed, mask_rate, words
        self.max_length, self.static = max_length, static
        self.cls, self.sep, self.pad = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
        self.mask = tokenizer.mask_token_id
        self.ordinary_ids = tokenizer.ordinary_ids

    def __getitem__(self, rows: np.ndarray) -> Batch:
        """rows (b, 8) -> a dict of

        input_ids (b,T) int64; token_type_ids (b,T); attention_mask (b,T), or None where nothing is padded;
        masked_positions (P,) int64, places in the flattened (b*T) batch; labels (P,) the original ids there (-100 where
        P is filled up to a multiple of 32, or in a static batch to the same number always); next_sentence_label (b,)
        0 IsNext, 1 random, -100 without pairs; counts (2,) float32, targets of the two losses; num_tokens, not counting
        padding.
        """
        ids, types, lengths, starts = self._laid_out(rows)
        B, T = ids.shape
        maskable = (ids != self.cls) & (ids != self.sep) & (np.arange(T) < lengths[:, None])
        keys = example_keys(self.seed, rows[:, EPOCH], rows[:, DOCUMENT], rows[:, ORDINAL])
        inputs, labels = mask_tokens(
            ids, lengths, maskable, keys, rate=self.mask_rate, mask_id=self.mask, ordinary_ids=self.ordinary_ids,
            word_start=starts, max_predictions=math.ceil(self.mask_rate * self.max_length),
        )  # fmt: skip
        positions = np.flatnonzero(labels.reshape(-1) != -100)
        targets = labels.reshape(-1)[positions]
        num_targets = len(positions)
        # filled up so that few shapes occur: kernels are kept for every shape that has occurred, hundreds of megabytes
        fill = (B * math.ceil(self.mask_rate * T) if self.static else -(-num_targets // 32) * 32) - num_targets
        positions, targets = np.pad(positions, (0, fill)), np.pad(targets, (0, fill), constant_values=-100)
        is_random = rows[:, IS_RANDOM]
        next_sentence = np.where(is_random < 0, -100, is_random)
        full = bool((lengths == T).all()) and not self.static  # one shape, and one kind of input
        return {
            "input_ids": torch.from_numpy(inputs),
            "token_type_ids": torch.from_numpy(types),
            "attention_mask": None if full else torch.from_numpy((np.arange(T) < lengths[:, None]).astype(np.int64)),
            "masked_positions": torch.from_numpy(positions),
            "labels": torch.from_numpy(targets),
            "next_sentence_label": torch.from_numpy(next_sentence),
            "counts": torch.tensor([num_targets, int((is_random >= 0).sum())], dtype=torch.float32),
            "num_tokens": int(lengths.sum()),
        }

    def batch_length(self, longest: int) -> int:
        """T of a batch whose longest example has so many tokens: a multiple of 8, which suits the kernels."""
        return self.max_length if self.static else min(self.max_length, -(-longest // 8) * 8)

    def _laid_out(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """[CLS] A [SEP] B [SEP], or [CLS] A [SEP]: ids (b,T), token types (b,T), lengths (b,), word starts (b,T)."""
        lengths = _lengths(rows)
        T = self.batch_length(int(lengths.max()))
        ids = np.full((len(rows), T), self.pad, np.int64)
        types = np.zeros((len(rows), T), np.int64)
        starts = np.ones((len(rows), T), bool) if self.words else None
        for i, row in enumerate(rows.tolist()):
            a, b = row[A_LENGTH], row[B_LENGTH]
            ids[i, 0] = self.cls
            ids[i, 1 : 1 + a] = self.store.ids(row[A_START], a)
            ids[i, 1 + a] = self.sep
            if b:
                ids[i, 2 + a : 2 + a + b] = self.store.ids(row[B_START], b)
                ids[i, 2 + a + b] = self.sep
                types[i, 2 + a : 3 + a + b] = 1
            if starts is not None:
                starts[i, 1 : 1 + a] = self.store.starts_word(row[A_START], a)
                starts[i, 1] = True  # a cut can leave the middle of a word at the front
                if b:
                    starts[i, 2 + a : 2 + a + b] = self.store.starts_word(row[B_START], b)
                    starts[i, 2 + a] = True
        return ids, types, lengths, starts


def without_padding(batch: Batch) -> Batch:
    """The batch with RealTokens for its attention mask; itself where nothing is padded."""
    mask = batch["attention_mask"]
    return batch if mask is None else {**batch, "attention_mask": RealTokens.of(mask)}


class Unpadded(Dataset[Batch]):
    """A collator's batches without padding."""

    def __init__(self, collator: Dataset[Batch]) -> None:
        self.collator = collator

    def __getitem__(self, rows: np.ndarray) -> Batch:
        return without_padding(self.collator[rows])


class Stream(Protocol):
    """An order of examples, cut into batches for whole optimizer steps."""

    batch_size: int

    def batches(self, cursor: Cursor) -> Iterator[tuple[np.ndarray, Cursor]]: ...

    def num_tokens(self, rows: np.ndarray) -> int: ...


@dataclass(frozen=True)
class StepBatches:
    """What one process computes in one optimizer step."""

    micro_batches: list[Batch]
    cursor: Cursor  # the place in the stream behind this step
    num_tokens: int  # of all processes, without padding


def load_steps(
    stream: Stream, collator: Dataset[Batch], cursor: Cursor, *, micro_batch_size: int, rank: int = 0,
    processes: int = 1, num_workers: int = 0, pin_memory: bool = False, unpadded: bool = False,
) -> Iterator[StepBatches]:  # fmt: skip
    """The steps from the cursor on, for this process; together the processes compute the stream's whole batch.

    Args: unpadded: say which tokens are real by RealTokens, so that the model leaves the padding out.

    Micro-batch m of process r holds the rows from (m * processes + r) * micro_batch_size on. Where the batch is not a
    multiple of that, the last round is shared out evenly: processes differ by one example at most.
    """
    width = micro_batch_size * processes
    begun: list[tuple[int, Cursor, int]] = []  # of each batch: its micro-batches, the cursor behind it, its tokens

    def places() -> Iterator[np.ndarray]:
        for rows, behind in stream.batches(cursor):
            begun.append((-(-len(rows) // width), behind, stream.num_tokens(rows)))
            for first in range(0, len(rows), width):
                yield np.array_split(rows[first : first + width], processes)[rank]

    if unpadded:
        collator = Unpadded(collator)
    loader = DataLoader(
        collator, sampler=_Sampler(places), batch_size=None, num_workers=num_workers, pin_memory=pin_memory,
        multiprocessing_context="forkserver" if num_workers else None, persistent_workers=False,
        worker_init_fn=end_with_parent,
    )  # fmt: skip
    batches = iter(loader)
    while True:
        first = next(batches)
        rounds, behind, tokens = begun.pop(0)
        yield StepBatches([first, *(next(batches) for _ in range(rounds - 1))], behind, tokens)


class _Sampler:
    """Lets DataLoader take its indices from a generator, anew each time it is iterated."""

    def __init__(self, places: Any) -> None:
        self.places = places

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.places())
