"""torch.compile for a training run, and whether it pays: what it takes at the start, what it saves at each step."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from minibert.atomic import causes
from minibert.corpus.batches import Batch
from minibert.errors import UserError
from minibert.training.loop import on_device

TRIES = 3  # passes that are timed; the fastest counts


def compile_model(
    model: nn.Module, network: nn.Module, batch: Batch, loss_sums: Callable[[nn.Module, Batch], Tensor],
    accelerator: Accelerator, *, cache: Path, passes: int,
) -> str:  # fmt: skip
    """Compile the model for batches of this shape. Weights, gradients and random numbers of the run stay as they are.

    Args: network: the model as the accelerator has prepared it. cache: where kernels are kept, so that the next run
        starts sooner; TORCHINDUCTOR_CACHE_DIR names another place. passes: in an optimizer step, on this process.
    Returns: what it took and saves, in words.
    Raises: UserError where it cannot be compiled, for want of a C++ compiler for one.
    """
    kernels = Path(os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.absolute())))
    try:
        kernels.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=kernels):  # whether one may write there
            pass
    except OSError as error:
        raise no_place(kernels, error.strerror or str(error)) from error
    batch = on_device(batch, accelerator.device)

    def timed() -> float:
        began = time.perf_counter()
        accelerator.backward(loss_sums(network, batch).sum())
        if accelerator.device.type == "cuda":
            torch.cuda.synchronize(accelerator.device)
        took = time.perf_counter() - began
        model.zero_grad(set_to_none=True)
        return took

    timed()  # what is prepared once is prepared here
    usual = min(timed() for _ in range(TRIES))
    try:
        model.compile(dynamic=False)
        first = timed()
    except Exception as error:  # torch has many kinds of it
        full = os.strerror(errno.ENOSPC)  # it or the compiler says so, somewhere
        if any(full in str(cause) for cause in causes(error)):
            raise no_place(kernels, full) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"the model cannot be compiled: {lines[0]}", where="--compile",
            fix="it needs a C++ compiler (g++) on a CPU and triton on a GPU; without --compile nothing is needed",
        ) from error  # fmt: skip
    compiled = min(timed() for _ in range(TRIES))
    return worth(first - compiled, passes * usual, passes * compiled)


def no_place(kernels: Path, reason: str) -> UserError:
    """The error of a cache for compiled code that cannot be written."""
    return UserError(
        f"compiled code cannot be written there: {reason}", where=str(kernels),
        fix="--cache DIR names another place (and TORCHINDUCTOR_CACHE_DIR before it)",
    )  # fmt: skip


def check_compiler(device: torch.device) -> None:
    """Raises UserError where --compile would fail for want of a C++ compiler: before the text is read, not after."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")  # as torch looks for it
    if device.type == "cpu" and shutil.which(name) is None:
        raise UserError(
            f"there is no C++ compiler: {name} was not found", where="--compile",
            fix="install g++ (or name one in CXX), or leave --compile out",
        )  # fmt: skip


def worth(took: float, usual: float, compiled: float) -> str:
    """Seconds that compiling took, seconds of a step without and with it -> a line."""
    line = f"compiled in {took:.0f} s: a step takes {compiled:.3g} s instead of {usual:.3g}"
    if compiled >= usual:
        return f"{line}, which does not pay: leave --compile out"
    return f"{line}, which pays after {ceil(took / (usual - compiled)):,} steps"
