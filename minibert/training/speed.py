"""What a run computes, and what its machine could: machine.json, from which the report takes the share that is used."""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from minibert.model.bert import BertConfig
from minibert.training.loop import sum_over_processes

CPU_SIDE, GPU_SIDE = 768, 8192  # of the square matrices whose product is timed
MEASURED = 0.15  # seconds: where others compute too, a single product may be slow
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def machine(accelerator: Accelerator, shape: BertConfig, *, length: float, through_head: float) -> dict[str, Any]:
    """The content of machine.json. To be called by all processes at once: they may share cores.

    Args: length: mean tokens of a row. through_head: share of the tokens that go through the MLM head, 0 without one.
    Returns: device, processes, threads, precision, versions; flops_per_token of training; flops_per_second of a matrix
        product alone, all processes together: no training reaches it, a share of half of it is good.
    """
    rate = torch.tensor(product_rate(accelerator), dtype=torch.float32, device=accelerator.device)
    return {
        "device": device_name(accelerator.device),
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "precision": "fp32" if accelerator.mixed_precision == "no" else accelerator.mixed_precision,
        "minibert": version("minibert"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "flops_per_token": flops_per_token(shape, length, through_head),
        "flops_per_second": float(sum_over_processes(accelerator, rate)),
    }


def flops_per_token(shape: BertConfig, length: float, through_head: float) -> float:
    """Of a training step, forward and backward; what padding and recomputing cost is not in it.

    6 N + 12 L D T + 6 f (D V + D^2): 6 for each weight of the L layers (N = L (4 D^2 + 2 D F)), attention's two
    products over T tokens, and 6 for each weight of the MLM head on the share f of the tokens that goes through it.
    """
    D, F, L = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    weights = L * (4 * D * D + 2 * D * F)
    return 6 * weights + 12 * L * D * length + 6 * through_head * (D * shape.vocab_size + D * D)


def product_rate(accelerator: Accelerator) -> float:
    """FLOP a second of a square matrix product in the run's precision: the best of those that fit into MEASURED s."""
    device = accelerator.device
    side = GPU_SIDE if device.type == "cuda" else CPU_SIDE
    a = torch.ones(side, side, dtype=HALF.get(accelerator.mixed_precision, torch.float32), device=device)
    best, until = float("inf"), time.perf_counter() + MEASURED
    while best == float("inf") or time.perf_counter() < until:
        wait_for(device)
        began = time.perf_counter()
        a @ a
        wait_for(device)
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """A GPU's or a processor's name, as its maker has it; what kind it is where that is not to be had."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    if device.type == "cpu":
        with suppress(OSError):
            for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
        return platform.processor() or platform.machine() or "CPU"
    return device.type
