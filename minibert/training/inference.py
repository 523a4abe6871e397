"""A model's outputs for many rows, each row once, on any number of processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from minibert.corpus.batches import Batch, without_padding
from minibert.training.loop import on_device, sum_over_processes

CPU_TOKENS = 512  # for each thread, in a batch on a CPU: what larger ones compute with leaves the cache


class Rows(Protocol):
    """What turns rows into batches and a model's output into each row's own; a task does."""

    terms: ClassVar[tuple[str, ...]]

    def batch(self, features: Sequence[Any], pad_id: int) -> Batch: ...

    def forward(self, model: nn.Module, batch: Batch) -> Any: ...

    def losses(self, out: Any, batch: Batch) -> Tensor: ...

    def outputs(self, out: Any, features: Sequence[Any]) -> list[Any]: ...


def length_batches(lengths: Sequence[int], batch_size: int, most_tokens: int | None = None) -> list[np.ndarray]:
    """Row numbers in batches of like length, the longest first: what does not fit into memory shows at once.

    Args: batch_size: most rows in a batch. most_tokens: most tokens in one, padding included; a row always fits.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    batches = []
    first = 0
    while first < len(order):
        longest = int(lengths[order[first]])
        rows = batch_size if most_tokens is None else max(1, min(batch_size, most_tokens // max(longest, 1)))
        batches.append(order[first : first + rows])
        first += rows
    return batches


def in_float32(model: nn.Module) -> nn.Module:
    """The same weights without the autocast that accelerate's prepare has put round a model's forward."""
    plain = copy.copy(model)
    vars(plain).pop("forward", None)
    return plain


@torch.inference_mode()
def infer(
    model: nn.Module,
    rows: Rows,
    features: Sequence[Any],
    *,
    pad_id: int,
    batch_size: int,
    accelerator: Accelerator | None = None,
    autocast: AbstractContextManager[Any] | None = None,
    unpadded: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[list[Any], float]:
    """Every feature's output, in order, and the loss where features have targets (NaN where not): a mean for each term.

    Batches are the same for any number of processes, which take turns; every process gets all outputs.
    Args: model: not wrapped for several devices. accelerator: None computes here alone, where the model is. unpadded:
        leave the padding out, see RealTokens. stopped: asked between batches; once it is true the rest is left out, and
        the result is of no use. progress: is told the share that is done, after each batch.
    """
    rank, processes = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    found: list[tuple[int, Any]] = []
    sums = torch.zeros(2, len(rows.terms), dtype=torch.float64)  # losses, counts
    lengths = [len(feature.ids) for feature in features]
    most_tokens = CPU_TOKENS * torch.get_num_threads() if device.type == "cpu" else None
    mine = length_batches(lengths, batch_size, most_tokens)[rank::processes]
    work = np.cumsum([len(numbers) * lengths[numbers[0]] for numbers in mine])
    for i, numbers in enumerate(mine):
        if stopped():
            break
        chosen = [features[i] for i in numbers]
        batch = rows.batch(chosen, pad_id)
        batch = on_device(without_padding(batch) if unpadded else batch, device)
        with autocast or nullcontext():
            out = rows.forward(model, batch)
        found += zip(numbers.tolist(), rows.outputs(out, chosen), strict=True)
        if "counts" in batch:
            sums += torch.stack((rows.losses(out, batch), batch["counts"])).double().cpu()
        progress(float(work[i] / work[-1]))
    model.train(was_training)
    if accelerator is not None and processes > 1:
        found = gather_object(found)
        sums = sum_over_processes(accelerator, sums.to(device)).cpu()
    outputs: list[Any] = [None] * len(features)
    for number, output in found:
        outputs[number] = output
    losses, counts = sums
    return outputs, float((losses / counts.clamp(min=1)).sum()) if counts.sum() else float("nan")
