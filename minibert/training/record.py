"""log.jsonl: one JSON object a line, and the same numbers to a tracker."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from minibert.atomic import write_text
from minibert.training.loop import Step, refuse_not_finite

MOST_UNREAD = 100  # steps


class Record:
    """The log of a run. On the main process alone it writes; everywhere it counts the same.

    Args: resume_step: the step that a resumed run goes on from; later lines of the old log are taken out.
        terms: names of the loss terms. lr: highest learning rate. tracker: none, tensorboard or trackio.
    """

    def __init__(
        self,
        out: Path,
        accelerator: Accelerator,
        *,
        terms: tuple[str, ...],
        lr: float,
        log_every: int,
        tracker: str,
        resume_step: int,
    ) -> None:
        self.accelerator, self.terms, self.lr, self.log_every = accelerator, terms, lr, log_every
        self.last_evaluation: dict[str, float] = {}
        self.note = ""
        self.clock = time.monotonic()
        self.paused = 0.0
        self.tokens: int | None = None
        self.unread: list[Step] = []
        self.path = out / "log.jsonl" if accelerator.is_main_process else None
        if self.path is not None:
            write_text(self.path, "".join(_lines_until(self.path, resume_step)))
        if tracker != "none":
            os.environ.setdefault("TRACKIO_DIR", str(out / "trackio"))  # trackio's own place is the user's cache
            accelerator.init_trackers("tensorboard" if tracker == "tensorboard" else out.resolve().name)

    def step(self, step: Step, epoch: int, tokens: int) -> str:
        """Log a step if it is its turn. tokens: seen in the whole run. Returns: the newest line for people.

        Only when it is a step's turn are its numbers read, for which a GPU has to be waited for.
        """
        self.unread.append(step)
        if self.tokens is None:
            self.tokens = tokens - step.num_tokens
        if step.step % self.log_every and step.step != 1 and step.share < 1:
            if len(self.unread) >= MOST_UNREAD:
                self.check()
            return self.note
        self.check()
        now = time.monotonic()
        speed = (tokens - self.tokens) / max(now - self.clock - self.paused, 1e-9)
        self.clock, self.tokens, self.paused = now, tokens, 0.0
        losses = dict(zip(self.terms, step.losses.tolist(), strict=True))
        loss = sum(losses.values())
        line = {
            "step": step.step, "epoch": epoch, "loss": loss, **losses, "lr": self.lr * step.rate,
            "grad_norm": float(step.grad_norm), "tokens": tokens, "tokens_per_second": round(speed, 1),
        }  # fmt: skip
        self._write(line)
        self.accelerator.log({k: v for k, v in line.items() if k != "step"}, step=step.step)
        self.note = f"step {step.step}  loss {loss:.3f}  lr {self.lr * step.rate:.2e}  {speed:,.0f} tokens/s"
        return self.note

    def check(self) -> None:
        """Raises UserError where a step since the last look was not finite; to be asked before anything is saved."""
        refuse_not_finite(self.unread)
        self.unread = []

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Measuring and saving are not training: their time does not count into tokens per second."""
        began = time.monotonic()
        yield
        self.paused += time.monotonic() - began

    def evaluation(self, step: int, found: dict[str, float]) -> None:
        """Log a measurement on held-out text; an empty one is none."""
        if not found:
            return
        self.last_evaluation = found
        self._write({"step": step, "eval": found})
        self.accelerator.log({f"eval_{k}": v for k, v in found.items()}, step=step)

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            # JSON has no NaN: what is not a number is null
            clean = json.loads(json.dumps(line), parse_constant=lambda name: None)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(clean) + "\n")


def _lines_until(path: Path, step: int) -> list[str]:
    """The lines of an earlier log up to a step, without one that was cut off; none for a new run."""
    kept = []
    if step > 0 and path.is_file():
        for line in path.read_text("utf-8", errors="replace").splitlines(keepends=True):
            try:
                if json.loads(line)["step"] <= step and line.endswith("\n"):
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
    return kept
