"""Optimizers and the learning rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Optimizers = list[torch.optim.Optimizer]


def build_optimizers(
    model: nn.Module,
    *,
    name: str,
    lr: float,
    muon_lr: float,
    weight_decay: float,
    adam_beta2: float,
    muon_decay: float = 0.0,
) -> Optimizers:
    """AdamW for everything, or Muon for the matrices inside the layers (decayed by muon_decay) and AdamW for the rest.

    Biases and LayerNorm weights are not decayed, embeddings are. Each group keeps its highest rate in "peak_lr".
    Source: google-research/bert optimization.py. Differs: AdamW's bias correction is on (arXiv 2006.05987).
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    for parameter_name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name == "muon" and ".layer." in parameter_name and parameter.ndim == 2:
            matrices.append(parameter)
        elif parameter.ndim < 2:
            plain.append(parameter)
        else:
            decayed.append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay, "peak_lr": lr},
        {"params": plain, "weight_decay": 0.0, "peak_lr": lr},
    ]
    optimizers: Optimizers = [torch.optim.AdamW(groups, lr=lr, betas=(0.9, adam_beta2), eps=1e-6, fused=True)]
    if matrices:
        optimizers.append(Muon([{"params": matrices, "peak_lr": muon_lr}], lr=muon_lr, weight_decay=muon_decay))
    return optimizers


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal, for matrices (Jordan et al. 2024).

    The same update as torch.optim.Muon with Nesterov momentum; matrices of one shape are worked on
    together, which on small models costs a fraction of the time.

    Args: lr: size of an update: each has singular values near lr * sqrt(max(1, rows / columns)). weight_decay: as
        AdamW's, each step takes lr * weight_decay of a matrix away. Without it the matrices grow step by step, whatever
        the gradient.
    """

    COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Newton-Schulz iteration towards singular values of 1
    ITERATIONS = 5

    def __init__(self, params: Any, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = closure() if closure else None
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                gradients: list[Tensor] = [p.grad for p in parameters]  # type: ignore[misc]
                for p in parameters:
                    if "momentum" not in self.state[p]:
                        self.state[p]["momentum"] = torch.zeros_like(p)
                momenta = [self.state[p]["momentum"] for p in parameters]
                torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
                updates = [gathered(u) for u in torch._foreach_lerp(gradients, momenta, group["momentum"])]  # Nesterov
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                found = self.orthogonal(torch.stack(updates)).float().unbind()
                steps = [spread_like(step, p) for step, p in zip(found, parameters, strict=True)]
                if decay := group["lr"] * group.get(
                    "weight_decay", 0.0
                ):  # a run that was begun without goes on without
                    torch._foreach_mul_(parameters, 1 - decay)
                torch._foreach_add_(parameters, steps, alpha=-group["lr"] * scale)
        return loss

    @classmethod
    def orthogonal(cls, update: Tensor) -> Tensor:
        """(n,R,C) matrices -> about the nearest with all singular values 1, in bfloat16."""
        a, b, c = cls.COEFFICIENTS
        x = update.bfloat16()
        tall = x.shape[1] > x.shape[2]
        if tall:
            x = x.mT
        x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
        for _ in range(cls.ITERATIONS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x.mT if tall else x


def gathered(value: Any) -> Any:
    """The whole of a tensor that is spread over the processes, which all have to ask; anything else as it is."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def spread_like(value: Any, parameter: Tensor) -> Any:
    """This process's share of a whole tensor, as a parameter that is spread has its own; anything else as it is."""
    if not hasattr(parameter, "full_tensor") or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(parameter, DTensor)
    # every process has the whole: none of it is sent
    return distribute_tensor(
        value.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


@dataclass(frozen=True)
class Progress:
    """How far training is, as shares of the whole: before the coming step, and (about) after it."""

    before: float
    after: float


def rate_at(progress: Progress, warmup: float) -> float:
    """The factor on every peak rate: linear from 0 to 1 over the share `warmup`, then linear to 0 at the end.

    Counted in steps of a run of S with w = warmup * S: step k = 0, 1 ... has (k + 1) / w, then (S - k) / (S - w).
    """
    rising = progress.after / warmup if warmup > 0 else 1.0
    falling = (1 - progress.before) / (1 - warmup) if warmup < 1 else 1.0
    return max(0.0, min(1.0, rising, falling))


class StepSchedule:
    """Training that lasts a number of optimizer steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def progress(self, step: int) -> Progress | None:
        """Of the coming step (counted from 0); None where training is over."""
        return Progress(step / self.steps, (step + 1) / self.steps) if step < self.steps else None

    def finished(self) -> None:
        """To be told when a step is done."""

    def warmup_share(self, warmup: float) -> float:
        """Warm-up as a share of the training; from 1 on it is given in steps."""
        return warmup if warmup < 1 else min(1.0, warmup / self.steps)

    def elapsed(self) -> float:
        """Seconds that a resumed run has to be told of."""
        return 0.0


class TimeSchedule:
    """Training that lasts a time by the clock.

    Args: seconds: the whole time. reserve: seconds of it to leave for what comes after the last step. elapsed: what was
        taken before. agree: makes all processes take the first one's times.
    """

    def __init__(
        self,
        seconds: float,
        *,
        reserve: float,
        elapsed: float = 0.0,
        agree: Callable[[list[float]], list[float]] = list,
    ) -> None:
        self.seconds = seconds - reserve
        self.began = time.monotonic() - elapsed
        self.agree = agree
        self.now = elapsed  # when the last step began
        self.took = 0.0  # by the last step alone, without what measuring and saving took

    def progress(self, step: int) -> Progress | None:
        """Of the coming step; None where less than half of another step fits."""
        self.now, self.took = self.agree([self.elapsed(), self.took])
        if self.now + self.took / 2 >= self.seconds:
            return None
        after = self.now + max(self.took, 1e-3)
        return Progress(self.now / self.seconds, min(1.0, after / self.seconds))

    def finished(self) -> None:
        """To be told when a step is done."""
        self.took = self.elapsed() - self.now

    def warmup_share(self, warmup: float) -> float:
        """Warm-up as a share of the training."""
        assert warmup < 1, "the config refuses a warm-up in steps where the length is a time"
        return warmup

    def elapsed(self) -> float:
        """Seconds of the whole training until now."""
        return time.monotonic() - self.began
