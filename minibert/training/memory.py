"""How much memory training will need, told before the first step, and how much there is.

What autograd keeps of a batch is counted, not guessed: one row and two rows are sent through the model, and what is
kept grows with the rows in a straight line. To it come the gradients and the optimizer's averages. Sizes are bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from minibert.console import Console
from minibert.corpus.batches import Batch
from minibert.errors import UserError
from minibert.training.loop import on_device
from minibert.training.optim import Muon, Optimizers

BESIDE = 1.3  # computing takes gradients of what is kept too, a part at a time; scripts/memory_estimate.py measures it
LIBRARIES = 100_000_000  # compiled kernels and the like
SURELY_TOO_MUCH = 1.5  # times what is free: the system would end the run
ROOM = 0.9  # of what is free, to be filled by a suggestion
UNLIMITED = 1 << 60  # control groups without a limit say a number above this


@dataclass(frozen=True)
class Need:
    """What training takes beside the weights."""

    fixed: int  # gradients, the optimizer's averages and what its step computes with
    batch: int  # what a micro-batch of any size takes
    row: int  # what each of its rows takes

    def of(self, rows: int) -> int:
        """With micro-batches of so many rows."""
        return self.fixed + self.batch + rows * self.row


def estimate(
    model: nn.Module, accelerator: Accelerator, optimizers: Optimizers,
    loss_sums: Callable[[nn.Module, Batch], Tensor], make_batch: Callable[[int], Batch],
) -> Need:  # fmt: skip
    """The need of a model (not wrapped for several devices). make_batch: a batch of so many rows, the longest there
    are."""
    kept = [
        _kept_bytes(model, accelerator, loss_sums, on_device(make_batch(rows), accelerator.device)) for rows in (1, 2)
    ]
    row = max(0, kept[1] - kept[0])
    return Need(_fixed_bytes(model, optimizers), max(0, kept[0] - row), row)


def _kept_bytes(
    model: nn.Module, accelerator: Accelerator, loss_sums: Callable[[nn.Module, Batch], Tensor], batch: Batch
) -> int:
    """What autograd keeps of a batch, each piece once, and the largest piece again, whose gradient stands beside it."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with accelerator.autocast(), saved_tensors_hooks(note, lambda tensor: tensor):
        losses = loss_sums(model, batch)
    del losses
    return int(BESIDE * (sum(kept.values()) + max(kept.values(), default=0)))


def _fixed_bytes(model: nn.Module, optimizers: Optimizers) -> int:
    sizes = [
        parameter.numel() * parameter.element_size() for parameter in model.parameters() if parameter.requires_grad
    ]
    # gradients; those of the word embeddings come from two places
    total = LIBRARIES + sum(sizes) + 2 * max(sizes)
    for optimizer in optimizers:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        size = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        if isinstance(optimizer, Muon):  # one average; a step works on all matrices of one shape at once
            by_shape: dict[torch.Size, int] = {}
            for parameter in parameters:
                by_shape[parameter.shape] = by_shape.get(parameter.shape, 0) + 12 * parameter.numel()
            total += size + max(by_shape.values(), default=0)
        else:  # AdamW's two averages
            total += 2 * size
    return total


def free_memory(device: torch.device) -> int | None:
    """Memory that a process of this machine can still have on a device; None where that cannot be told."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = [_meminfo(), *map(_group_free, _groups())]
    known = [size for size in found if size is not None]
    return min(known) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if known else None


def _meminfo(path: Path = Path("/proc/meminfo")) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in path.read_text("ascii").splitlines())
        return sum(int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError):
        return None


def _groups(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """The folders of the control groups that limit this process's memory, of either version."""
    try:
        lines = [line.split(":", 2) for line in own.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return []
    folders = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        place = Path(path.strip("/"))
        # inside a container the path may be that of outside: then the root is the container's own
        folders += [base / part for part in (place, *place.parents)]
    return folders


def _group_free(folder: Path) -> int | None:
    """Bytes below a control group's limit; what it has of files can be taken back."""
    for limit, usage, files in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = int((folder / limit).read_text("ascii"))
            used = int((folder / usage).read_text("ascii"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
            return None if most > UNLIMITED else max(0, most - used + int(stat.get(files, 0)))
        except (OSError, ValueError):  # "max" is no limit
            continue
    return None


def check_memory(
    model: nn.Module, accelerator: Accelerator, optimizers: Optimizers,
    loss_sums: Callable[[nn.Module, Batch], Tensor], batches: Sequence[tuple[int, Callable[[int], Batch]]],
    console: Console, *, can_save: bool,
) -> None:  # fmt: skip
    """Estimate and tell. batches: of each phase the rows of a micro-batch, no more than a process has in a step, and
    what makes one. can_save: see tell. Raises: UserError where it cannot fit."""
    free = free_memory(accelerator.device)
    if free is None:
        return
    needs = [(estimate(model, accelerator, optimizers, loss_sums, make), rows) for rows, make in batches]
    need, rows = max(needs, key=lambda pair: pair[0].of(pair[1]))
    tell(need, rows, free, console, can_save=can_save)


def tell(need: Need, rows: int, free: int, console: Console, *, can_save: bool) -> None:
    """Say what training will take; warn where it may not fit.

    Args: rows: of a micro-batch. can_save: --gradient-checkpointing is not on yet.
    Raises: UserError where it cannot fit.
    """
    total = need.of(rows)
    if total <= free:
        console.say(f"memory: about {gb(total)} for training beside the weights, {gb(free)} free")
        return
    problem = f"training takes about {gb(total)} of memory, and {gb(free)} are free"
    ways = []
    most = min(rows - 1, int(ROOM * free - need.of(0)) // max(need.row, 1), 10**6)
    if fitting := next((n for n in range(most, 0, -1) if rows % n == 0), 0):
        ways.append(f"--micro-batch-size {fitting} takes about {gb(need.of(fitting))}")
    if can_save:
        ways.append("--gradient-checkpointing takes less")
    ways.append("so does a smaller model" if ways else "take a smaller model or a larger machine")
    fix = "; ".join(ways)
    if total > SURELY_TOO_MUCH * free:
        raise UserError(problem, where="--micro-batch-size", fix=fix)
    console.warn(f"{problem}: the system may end the run. {fix}")


def gb(size: int) -> str:
    """A size in words."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


@contextmanager
def explaining_lack() -> Iterator[None]:
    """Raises: UserError where torch finds no more memory."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise UserError(
            "the memory has run out", where="--micro-batch-size",
            fix="resume with a smaller --micro-batch-size (the results are the same), or start with "
            "--gradient-checkpointing or a smaller model",
        ) from error  # fmt: skip
