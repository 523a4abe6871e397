"""What the machine can do, and what it is told: precision, workers, signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from accelerate import Accelerator

from minibert.errors import UserError


def has_bf16() -> bool:
    """Whether the device computes bfloat16 products in hardware."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if torch.backends.mps.is_available():
        return False
    # torch has no public question for this; where a release drops these, float32 is right everywhere
    asks = (getattr(torch.cpu, name, lambda: False) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(ask() for ask in asks)


def resolve_precision(precision: str) -> str:
    """auto | fp32 | bf16 | fp16 -> the name that accelerate knows: no | bf16 | fp16."""
    if precision == "auto":
        return "bf16" if has_bf16() else "no"
    if precision == "fp16" and not torch.cuda.is_available():
        raise UserError("fp16 needs a GPU", where="--precision", fix="take --precision auto")
    return "no" if precision == "fp32" else precision


def worker_count(workers: int) -> int:
    """--workers, or one process a core."""
    if workers:
        return workers
    # a job is often given fewer cores than the machine has
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def on_signal() -> Iterator[Callable[[Accelerator], int]]:
    """Let SIGTERM and Ctrl-C wait for the end of a step; a second one ends the program at once.

    Yields: stopped(accelerator) -> the signal's number, 0 if none came; the same on all processes.
    """
    came = [0]

    def note(number: int, frame: FrameType | None) -> None:
        if came[0]:
            raise SystemExit(128 + number)
        came[0] = number

    def stopped(accelerator: Accelerator) -> int:
        if accelerator.num_processes == 1:
            return came[0]
        seen = torch.tensor([came[0]], device=accelerator.device)
        return int(accelerator.gather(seen).max())

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
