"""A token store seen as one pre-training run's batches: phases, held-out examples, and the steps over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from minibert.config import PretrainConfig
from minibert.corpus.batches import Batch, Collator, Cursor, ExampleStream, load_steps
from minibert.corpus.store import TokenStore, worker_count
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training import pretraining
from minibert.training.devices import leaves_padding_out
from minibert.training.loop import Schedule, Step, train_steps
from minibert.training.optim import Optimizers

# held-out examples and masks are the same in every run, whatever its seed and mask rate: runs can be compared
EVAL_SEED, EVAL_MASK_RATE = 7, 0.15
SHOWN = 8  # held-out examples whose answers are kept for the report
MOST_LOADERS = 4  # loader processes beside one training process; more would wait for each other


class PretrainingData:
    """The batches of a run. pool: documents to train on. held_out: documents to measure on."""

    def __init__(
        self,
        store: TokenStore,
        tokenizer: BertTokenizer,
        config: PretrainConfig,
        pool: np.ndarray,
        held_out: np.ndarray,
    ) -> None:
        self.store, self.tokenizer, self.config, self.pool, self.held_out = store, tokenizer, config, pool, held_out
        self.held_out_rows: np.ndarray | None = None

    def stream(self, max_length: int = 0) -> ExampleStream:
        """The order of the training examples, in the first phase or at another length."""
        return self._stream(self.pool, max_length or self.config.max_length, self.config.seed)

    def collator(self, max_length: int = 0) -> Collator:
        """What makes batches of training examples."""
        return self._collator(max_length or self.config.max_length, self.config.seed, self.config.mask_rate)

    def _stream(self, pool: np.ndarray, max_length: int, seed: int) -> ExampleStream:
        config = self.config
        return ExampleStream(
            self.store, pool, seed=seed, batch_size=config.batch_size, max_length=max_length, nsp=config.nsp,
            short_share=config.short_share,
        )  # fmt: skip

    def _collator(self, max_length: int, seed: int, mask_rate: float) -> Collator:
        return Collator(
            self.store, self.tokenizer, seed=seed, mask_rate=mask_rate, words=self.config.mask_unit == "word",
            max_length=max_length, static=self.config.compile,
        )  # fmt: skip

    def held_out_batches(self, accelerator: Accelerator) -> Iterator[Batch]:
        """This process's share of the held-out examples: always the same ones with the same masks."""
        config = self.config
        collator = self._collator(config.max_length, EVAL_SEED, EVAL_MASK_RATE)
        mine = self._measured()[accelerator.process_index :: accelerator.num_processes]
        for first in range(0, len(mine), config.micro_batch_size):
            yield collator[mine[first : first + config.micro_batch_size]]

    def _measured(self) -> np.ndarray:
        """The held-out examples that are measured on, by length: less padding."""
        if self.held_out_rows is None:
            stream = self._stream(self.held_out, self.config.max_length, EVAL_SEED)
            rows = stream.plan(0, np.arange(len(self.held_out)))[: self.config.eval_examples]
            self.held_out_rows = rows[np.argsort(rows[:, 4] + rows[:, 6], kind="stable")]
        return self.held_out_rows

    def shown_batch(self) -> Batch:
        """A few of the held-out examples, short and long, with their masks: to look at what is answered."""
        rows = self._measured()
        chosen = rows[np.unique(np.linspace(0, len(rows) - 1, SHOWN).astype(int))]
        return self._collator(self.config.max_length, EVAL_SEED, EVAL_MASK_RATE)[chosen]

    def phases(self) -> list[tuple[int, int, float]]:
        """(max_length, micro_batch_size, share of the training to end at) of each phase."""
        config = self.config
        if not config.long_length:
            return [(config.max_length, config.micro_batch_size, 1.0)]
        fits = max(1, config.micro_batch_size * config.max_length // config.long_length)  # as many tokens at once
        fits = next(n for n in range(fits, 0, -1) if config.batch_size % n == 0)
        return [(config.max_length, config.micro_batch_size, 1 - config.long_share), (config.long_length, fits, 1.0)]

    def longest_batches(self, processes: int) -> list[tuple[int, Callable[[int], Batch]]]:
        """Of each phase: the rows of a micro-batch on one of so many processes, and what makes one of rows that are as
        long as rows can be, with as many masked tokens."""
        config = self.config
        most = config.batch_size // processes
        return [(min(rows, most), partial(self._longest, length)) for length, rows, _ in self.phases()]

    def _longest(self, length: int, rows: int) -> Batch:
        targets = rows * math.ceil(self.config.mask_rate * length)
        ids = torch.full((rows, length), self.tokenizer.mask_token_id, dtype=torch.long)
        return {
            "input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids),
            "masked_positions": torch.arange(targets), "labels": ids.new_ones(targets),
            "next_sentence_label": ids.new_zeros(rows),
        }  # fmt: skip

    def steps(
        self, accelerator: Accelerator, network: nn.Module, optimizers: Optimizers, schedule: Schedule,
        place: dict[str, Any], stopped: Callable[[], int],
    ) -> Iterator[Step]:  # fmt: skip
        """The optimizer steps of all phases from `place` on, which is kept up to date for checkpoints.

        stopped: asked between micro-batches, see train_steps.
        """
        config = self.config
        on_cpu = accelerator.device.type == "cpu"  # there the loaders would take the cores that compute
        loaders = min(MOST_LOADERS, max(1, worker_count(config.workers) // accelerator.num_processes))
        unpadded = not config.compile and leaves_padding_out(accelerator, accelerator.unwrap_model(network).config)
        phases = self.phases()
        for phase in range(place["phase"], len(phases)):
            max_length, micro_batch_size, until = phases[phase]
            cursor = Cursor.from_state(place["cursor"])
            if phase != place["phase"]:
                cursor = Cursor(epoch=cursor.epoch + 1)
            batches = load_steps(
                self.stream(max_length), self.collator(max_length), cursor, micro_batch_size=micro_batch_size,
                rank=accelerator.process_index, processes=accelerator.num_processes,
                num_workers=0 if on_cpu else loaders, pin_memory=accelerator.device.type == "cuda",
                unpadded=unpadded,
            )  # fmt: skip
            for step in train_steps(
                accelerator, network, optimizers, batches, schedule, pretraining.loss_sums, first_step=place["step"],
                warmup=schedule.warmup_share(config.warmup), clip=config.clip, seed=config.seed, until=until,
                stopped=stopped,
            ):  # fmt: skip
                place.update(
                    step=step.step, phase=phase, cursor=step.cursor.state(), elapsed=schedule.elapsed(),
                    tokens=place["tokens"] + step.num_tokens,
                )  # fmt: skip
                yield step

    def count(self) -> int:
        """Examples in a pass of the first phase."""
        return self.stream().count()

    def steps_of(self, epochs: float) -> int:
        """Optimizer steps in so many passes."""
        return max(1, math.ceil(epochs * self.count() / self.config.batch_size))
