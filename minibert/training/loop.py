"""The training loop: a generator of optimizer steps. Saving, measuring and logging are its caller's for-body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor, nn

from minibert.corpus.batches import Batch, Cursor, StepBatches
from minibert.errors import UserError
from minibert.training.optim import Optimizers, Progress, gathered, rate_at
from minibert.training.sharding import without_sync


class Schedule(Protocol):
    """How long training lasts; StepSchedule and TimeSchedule are the two."""

    def progress(self, step: int) -> Progress | None: ...

    def finished(self) -> None: ...

    def warmup_share(self, warmup: float) -> float: ...

    def elapsed(self) -> float: ...


@dataclass(frozen=True)
class Step:
    """What an optimizer step did. Tensors, so that nobody waits for a device unless a number is wanted."""

    step: int  # counted from 1
    losses: Tensor  # (K,) means over all targets of the step, one for each loss term; 0 where a term has no target
    grad_norm: Tensor  # before clipping
    rate: float  # factor on every peak learning rate
    share: float  # of the whole training that is done
    num_tokens: int  # of all processes, without padding
    cursor: Cursor  # the place in the data behind this step
    finite: Tensor  # bool: the losses and the gradient are finite numbers, or float16's scaler has mended it


def refuse_not_finite(steps: Sequence[Step]) -> None:
    """Raises UserError for the first step of these that spoilt the weights; waits for the device once."""
    if steps:
        flags: list[bool] = torch.stack([step.finite for step in steps]).tolist()
        for step, finite in zip(steps, flags, strict=True):
            if not finite:
                raise not_finite(step)


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors on a device."""
    moved: Batch = send_to_device(batch, device, non_blocking=True)
    return moved


def dropout_seed(seed: int, step: int, micro: int, rank: int) -> int:
    """The generator's seed for one forward pass: with it, resuming needs no generator's state."""
    return (((seed * 1_000_003 + step) * 1_000_003 + micro) * 65_537 + rank) & 0x7FFF_FFFF_FFFF_FFFF


def train_steps(
    accelerator: Accelerator,
    model: nn.Module,
    optimizers: Optimizers,
    steps: Iterator[StepBatches],
    schedule: Schedule,
    loss_sums: Callable[[nn.Module, Batch], Tensor],
    *,
    first_step: int,
    warmup: float,
    clip: float,
    seed: int,
    until: float = 1.0,
    stopped: Callable[[], int] = lambda: 0,
) -> Iterator[Step]:
    """Optimizer steps until the schedule says that training is over.

    Args: model: prepared by the accelerator. optimizers: as they are. loss_sums: (model, batch) -> (K,) sums of
        the loss terms over the batch's targets, of which batch["counts"] (K,) says the number. first_step: steps done
        before, 0 at first. warmup: share of the training, see rate_at. clip: largest gradient norm, 0 for none. until:
        share of the training to end at. stopped: asked before each micro-batch, by all processes; once it is true a
        step that has begun is given up, the weights are those of the step before, and no more come.
    Raises: UserError before an update with a loss or gradient that is not finite; the weights are then as they were.
        Not on a GPU, which would have to be waited for at each step: there the caller gives its steps to
        refuse_not_finite, before it saves anything at the latest.

    Each loss term is one mean over its targets in the whole step: all micro-batches of all processes.
    """
    number = first_step
    scaler = accelerator.scaler  # of float16
    while not stopped() and (progress := schedule.progress(number)) is not None and progress.before < until:
        number += 1
        rate = rate_at(progress, warmup)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * rate
        step = next(steps)
        micro_batches = [on_device(batch, accelerator.device) for batch in step.micro_batches]
        local = torch.stack([batch["counts"] for batch in micro_batches]).sum(0)
        counts = sum_over_processes(accelerator, local).clamp(min=1)  # (K,)
        total = torch.zeros_like(counts)
        for i, batch in enumerate(micro_batches):
            if i and stopped():
                return
            torch.manual_seed(dropout_seed(seed, number, i, accelerator.process_index))
            last = i == len(micro_batches) - 1
            with nullcontext() if last else without_sync(accelerator, model):
                losses = loss_sums(model, batch) / counts  # (K,)
                # data-parallel training averages gradients over processes; here they are to be summed
                accelerator.backward(losses.sum() * accelerator.num_processes)
            total += losses.detach()
        losses = sum_over_processes(accelerator, total)
        for optimizer in optimizers if scaler else ():
            scaler.unscale_(optimizer)
        norm = gathered(nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else float("inf")))
        finite = torch.isfinite(losses).all()
        # float16's scaler skips a step whose gradient overflows and halves its scale; only where that does not help
        # is it a fault
        if scaler is None or scaler.get_scale() < 1:
            finite = finite & torch.isfinite(norm)
        done = Step(number, losses, norm.detach(), rate, progress.after, step.num_tokens, step.cursor, finite)
        if accelerator.device.type == "cpu":
            refuse_not_finite([done])
        for optimizer in optimizers:
            if scaler:
                scaler.step(optimizer)
            else:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if scaler:
            scaler.update()
        schedule.finished()
        yield done


def sum_over_processes(accelerator: Accelerator, value: Tensor) -> Tensor:
    """The sum of a tensor over all processes; itself where there is one."""
    if accelerator.num_processes == 1:
        return value
    summed: Any = accelerator.reduce(value, "sum")
    return summed  # type: ignore[no-any-return]


def not_finite(step: Step) -> UserError:
    """The error of a step that would spoil the weights; names the step and the batch by its place in the data."""
    values = ", ".join(f"{value:g}" for value in step.losses.tolist())
    return UserError(
        f"step {step.step} is not finite (losses {values}; gradient norm {float(step.grad_norm):g}) and was not saved",
        where=f"epoch {step.cursor.epoch}, block {step.cursor.block}, batch {step.cursor.batch}",
        fix="a new run with a lower --lr or a longer --warmup (or --precision fp32); it may begin at a checkpoint of "
        "this one from before the loss rose: pretrain --from, finetune --model RUN/checkpoints/step-N",
    )
