"""What the machine can do, and what it is told: precision, workers, signals."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.state import AcceleratorState
from accelerate.utils import GradientAccumulationPlugin, gather_object

from minibert.errors import UserError, installing
from minibert.model.answering import DTYPES
from minibert.model.attention import has_varlen
from minibert.model.bert import BertConfig
from minibert.training.sharding import check_launcher

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # glibc's numbers, from malloc.h
LOST = re.compile("gloo|NCCL|nccl|[Cc]onnection|peer")  # in torch's errors where a process does not answer
SILENCE = timedelta(minutes=30)  # a process that is waited for that long is taken for lost; saving may take minutes
SAME_OUT = "start all machines with the same options, and let --out be on a disk that they share"
PULSE = 5.0  # seconds between the signs of life of a process that others wait for
PRECISIONS = ("auto", "fp32", "bf16", "fp16")


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
    if precision not in PRECISIONS:
        raise UserError(f"there is no precision {precision!r}", where="--precision", fix=", ".join(PRECISIONS))
    if precision == "auto":
        return "bf16" if has_bf16() else "no"
    if precision == "fp16" and not torch.cuda.is_available():
        raise UserError("fp16 needs a GPU", where="--precision", fix="take --precision auto")
    return "no" if precision == "fp32" else precision


def answering_precision(precision: str, device: torch.device) -> str:
    """auto | fp32 | bf16 | fp16 | int8 -> no | bf16 | fp16 | int8: what a model that only answers computes in.

    Raises: UserError for int8 where torch has no products of it: on a GPU, and in builds without oneDNN.
    """
    if precision not in (*PRECISIONS, "int8"):
        raise UserError(
            f"there is no precision {precision!r}", where="--precision", fix=", ".join((*PRECISIONS, "int8"))
        )
    if precision != "int8":
        return resolve_precision(precision)
    if device.type != "cpu":
        raise UserError(
            f"int8 is for CPUs, and this would run on {device.type}", where="--precision",
            fix="take --precision auto, or set ACCELERATE_USE_CPU=true",
        )  # fmt: skip
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise UserError("int8 needs a torch with oneDNN", where="--precision", fix="take --precision auto")
    return precision


def check_tracker(tracker: str) -> None:
    """Refuse a tracker whose package is not there: accelerate would pass over it without a word."""
    if tracker != "none" and find_spec(tracker) is None:
        raise UserError(f"{tracker} is not installed", where="--tracker", fix=installing(tracker))


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for what is asked for next.

    A step's largest arrays (gradients of the embeddings, logits) are asked for anew each time; above 32 MB glibc gives
    them back to the system at once, and gets them back page by page, which is a tenth of a small model's step. The peak
    grows by a few percent. Nothing is done elsewhere than with glibc, nor where its variables say how it is to work.
    Returns: whether it was done.
    """
    told = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if told or set_option is None:
        return False
    return bool(set_option(MMAP_THRESHOLD, 1 << 30) and set_option(TRIM_THRESHOLD, (1 << 31) - 1))


def make_accelerator(*, precision: str, tracker: str, out: Path, batch_size: int) -> Accelerator:
    """The devices of a training run. Raises: UserError if the processes cannot share a batch; no such tracker."""
    check_tracker(tracker)
    check_launcher()
    keep_freed_memory()
    AcceleratorState._reset_state()  # of an earlier call in this process, which may have had another precision
    accelerator = Accelerator(
        mixed_precision=resolve_precision(precision),
        log_with=None if tracker == "none" else tracker,
        project_dir=str(out),
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),  # the loop accumulates by itself
        kwargs_handlers=[InitProcessGroupKwargs(timeout=SILENCE)],
    )
    if batch_size % accelerator.num_processes:
        raise UserError(
            f"batch_size ({batch_size}) is not a multiple of the processes ({accelerator.num_processes})",
            where="--batch-size", fix=f"take {batch_size + -batch_size % accelerator.num_processes}",
        )  # fmt: skip
    return accelerator


def check_same(accelerator: Accelerator, value: object, what: str, fix: str) -> None:
    """Raises UserError where processes of a run have read or been told different things; all have to ask."""
    if accelerator.num_processes > 1:
        values: list[str] = gather_object([repr(value)])
        others = [rank for rank, other in enumerate(values) if other != values[0]]
        if others:
            raise UserError(f"{what} not the same for process {others[0]} as for process 0", fix=fix)


@contextmanager
def one_reads_first(accelerator: Accelerator) -> Iterator[None]:
    """One process of each machine does what is in the block, however long it takes; then the others find what it left.

    Meanwhile it gives signs of life, so that the others wait no longer than SILENCE for one that is lost.
    """
    if accelerator.num_processes == 1:
        yield
        return
    group = torch.distributed.new_group(backend="gloo", timeout=SILENCE)
    done = threading.Event()
    faults: list[RuntimeError] = []

    def until_all_are_done() -> None:
        try:
            ready = torch.tensor([0])
            while not ready:
                ready = torch.tensor([int(done.is_set())])
                torch.distributed.all_reduce(ready, torch.distributed.ReduceOp.MIN, group=group)
                done.wait(PULSE)
        except RuntimeError as error:
            faults.append(error)

    if accelerator.is_local_main_process:
        thread = threading.Thread(target=until_all_are_done, daemon=True)
        thread.start()
        yield  # what is read stays, even where somebody is lost meanwhile
        done.set()
        thread.join()
    else:
        done.set()
        until_all_are_done()
    if faults:
        raise faults[0]
    if not accelerator.is_local_main_process:
        yield


def lost_process(error: RuntimeError) -> UserError | None:
    """What to say of an error of torch's where another process of the run is gone; None where it is of another kind."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not LOST.search(f"{type(error).__name__} {error}"):
        return None
    return UserError(
        "another process of this run has ended or does not answer, so this one ends too",
        where=f"process {os.environ.get('RANK', '?')}",
        fix="look for that process's message (memory? a machine that is gone?); a training then goes on with --resume",
    )


def leaves_padding_out(accelerator: Accelerator, shape: BertConfig) -> bool:
    """Whether a training batch is computed faster without its padding: where one kernel attends over rows of unequal
    length. It knows no dropout. Elsewhere batches of like length are padded, a few percent of them."""
    dtype = DTYPES.get(accelerator.mixed_precision, torch.float32)
    head_size = shape.hidden_size // shape.num_attention_heads
    return shape.attention_probs_dropout_prob == 0 and has_varlen(accelerator.device, dtype, head_size)


class Stop:
    """Lets SIGTERM, Ctrl-C and the end of the terminal wait for the next micro-batch; a second one ends at once.

    Launchers pass a signal on that the terminal has already sent to everybody: under one, two within three seconds are
    one. warn: takes a line from a signal's handler.
    """

    def __init__(self, accelerator: Accelerator, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self.signal = 0  # that came to this process
        self.came = 0.0
        self.grace = 3.0 if "LOCAL_RANK" in os.environ else 0.0
        self.speaks = accelerator.is_main_process
        self.processes = accelerator.num_processes
        # of the hosts, so that no GPU has to be waited for
        self.group = (
            torch.distributed.new_group(backend="gloo", timeout=SILENCE)
            if self.processes > 1 and accelerator.device.type != "cpu"
            else None
        )

    def __enter__(self) -> Stop:
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
        heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup
        self.before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.signal and now - self.came >= self.grace:
            raise SystemExit(128 + number)
        if not self.signal:
            self.signal, self.came = number, now
            if self.speaks:
                self.warn(f"{signal.Signals(number).name}: saving, then ending; once more ends at once")

    def agreed(self) -> int:
        """The signal that came to any process, 0 for none; the same on all of them, which all have to ask."""
        if self.processes == 1:
            return self.signal
        seen = torch.tensor([self.signal])
        torch.distributed.all_reduce(seen, torch.distributed.ReduceOp.MAX, group=self.group)
        return int(seen)
