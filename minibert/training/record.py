"""log.jsonl: one JSON object a line, and the same numbers to a tracker."""

from __future__ import annotations

import json
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from minibert.atomic import write_text, written
from minibert.console import Standing
from minibert.errors import UserError
from minibert.training.best import Best
from minibert.training.loop import Step, refuse_not_finite
from minibert.training.watch import Finding, Watch

MOST_UNREAD = 100  # steps
SMOOTH = 20  # steps that a loss is the mean of, for people
FAIR = 30.0  # seconds of training that the speed is taken over, for people
POINTS = 240  # of the curve, from the begin to the end


class Record:
    """The log of a run. On the main process alone it writes; everywhere it counts the same.

    Args: before: `state` of a run that goes on, which says how much of the old log stays; None for a new one.
        terms: names of the loss terms. lr: highest learning rate. tracker: none, tensorboard or trackio. watch: looks
        at every step, from its state on; what it finds goes into the log and to `warn`. measured: of a measurement, the
        figure that people see beside the best so far, and what they know it by ("dev f1").
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
        before: dict[str, Any] | None,
        watch: Watch,
        warn: Callable[[str], None],
        measured: tuple[str, str],
    ) -> None:
        self.watch, self.warn = watch, warn
        self.accelerator, self.terms, self.lr, self.log_every = accelerator, terms, lr, log_every
        self.last_evaluation: dict[str, float] = {}
        metric, self.score_name = measured
        self.score = Best(metric)
        self.score_now: float | None = None
        self.scored: int | None = None  # the step of score_now
        self.standing: Standing | None = None
        self.parts: tuple[str, ...] = ()
        self.curve: dict[int, float] = {}
        self.trained = 0.0  # seconds, since this process began
        self.marks: list[tuple[float, int]] = []  # seconds trained, tokens: at the lines that the speed is taken from
        self.clock = time.monotonic()
        self.paused = 0.0
        self.tokens: int | None = None
        self.unread: list[Step] = []
        self.last_step = 0  # since this process began
        self.out, self.tracker = out, tracker
        self.path = out / "log.jsonl" if accelerator.is_main_process else None
        kept = _first_lines(self.path, before["lines"]) if before and self.path is not None else []
        self.lines = before["lines"] if before else 0
        for line in kept:
            # no measurement, or a line that somebody has changed
            with suppress(ValueError, LookupError, TypeError, AttributeError):
                found = json.loads(line)
                self._note_score(found["step"], found["eval"])
        if self.path is not None:
            write_text(self.path, "".join(kept))
        if tracker != "none":
            os.environ.setdefault("TRACKIO_DIR", str(out / "trackio"))  # trackio's own place is the user's cache
            with self._tracking():
                accelerator.init_trackers("tensorboard" if tracker == "tensorboard" else out.resolve().name)

    def step(self, step: Step, epoch: int, tokens: int) -> Standing | None:
        """Log a step if it is its turn. tokens: seen in the whole run. Returns: how the training stands, for people.

        Only when it is a step's turn are its numbers read, for which a GPU has to be waited for.
        """
        self.unread.append(step)
        self.last_step = step.step
        if self.tokens is None:
            self.tokens = tokens - step.num_tokens
        if step.step % self.log_every and step.step != 1 and step.share < 1:
            if len(self.unread) >= MOST_UNREAD:
                self.check()
            return self.standing
        self.check()
        now = time.monotonic()
        took = max(now - self.clock - self.paused, 1e-9)
        speed = (tokens - self.tokens) / took
        self.trained += took
        self.clock, self.tokens, self.paused = now, tokens, 0.0
        losses = dict(zip(self.terms, step.losses.tolist(), strict=True))
        loss = sum(losses.values())
        line = {
            "step": step.step, "epoch": epoch, "loss": loss, **losses, "lr": self.lr * step.rate,
            "grad_norm": float(step.grad_norm), "tokens": tokens, "tokens_per_second": round(speed, 1),
        }  # fmt: skip
        self._write(line)
        self._track({k: v for k, v in line.items() if k != "step"}, step.step)
        # of several losses people see the first, the one that a measurement has too
        all_losses = [terms[0] for terms in self.watch.losses]
        recent, before = all_losses[-SMOOTH:], all_losses[:-SMOOTH]
        smooth = statistics.fmean(recent)
        self.curve[int(POINTS * step.share)] = smooth
        mean = f" ({len(recent)}-step mean)" if len(recent) > 1 else ""
        moved = f" {trend(before, recent)}" if len(before) >= SMOOTH else ""
        self.parts = (f"step {step.step}", f"{self.terms[0].replace('_', ' ')} {smooth:.3f}{mean}{moved}")
        self.standing = self.standing or Standing()
        self.standing.more = f"lr {self.lr * step.rate:.2e}"
        self.standing.speed = f"{self._fair_speed(tokens) or speed:,.0f} tokens/s"
        self.standing.curve = tuple(self.curve.values())
        self._stand()
        return self.standing

    def _fair_speed(self, tokens: int) -> float | None:
        """Tokens a second over the newest FAIR seconds of training: a line may stand for one step, or for many. None at
        the first line, whose step has to wait for more than the training."""
        self.marks.append((self.trained, tokens))
        while len(self.marks) > 2 and self.trained - self.marks[1][0] >= FAIR:
            del self.marks[0]
        (began, before), *later = self.marks
        return (tokens - before) / (self.trained - began) if later else None

    def _stand(self) -> None:
        """Say how the training stands after a new line or a new measurement."""
        if self.standing is None:
            return
        parts = list(self.parts)
        if self.score_now is not None:
            parts.append(f"{self.score_name} {self.score_now:.4g} (step {self.scored})")
        if self.score.value is not None:
            parts.append(f"best {self.score.value:.4g}")
        self.standing.parts = tuple(parts)

    def _note_score(self, step: int, found: dict[str, Any]) -> None:
        """For people, who look at what this run has learnt: the measurement before its first step is none of that."""
        if step == 0:
            return
        self.score_now, self.scored = found.get(self.score.metric), step
        self.score.better(math.nan if self.score_now is None else self.score_now, step)

    def check(self) -> None:
        """Look at the steps since the last look; to be asked before anything is saved. Raises: UserError where one was
        not finite."""
        refuse_not_finite(self.unread)
        if self.unread:
            numbers = torch.stack([torch.cat((s.losses.float(), s.grad_norm.float().view(1))) for s in self.unread])
            for step, (*losses, norm) in zip(self.unread, numbers.tolist(), strict=True):
                self.note_findings(self.watch.step(step.step, step.share, losses, norm))
        self.unread = []

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint that is saved now."""
        return {"lines": self.lines, "watch": self.watch.state()}

    def note_findings(self, findings: Sequence[Finding], *, quiet: bool = False) -> None:
        """Log what is odd, and say it unless somebody has."""
        for finding in findings:
            self._write({"step": finding.step, "warning": finding.kind, "message": finding.text})
            if quiet:
                continue
            self.warn(f"step {finding.step}: {finding.text}" if finding.step else finding.text)

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Log an error that ends the run."""
        try:
            yield
        except UserError as error:
            if self.last_step:
                with suppress(UserError, OSError):  # the disk may be what is wrong
                    self._write({"step": self.last_step, "error": error.problem})
            raise

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
        self.check()
        self.last_evaluation = found
        self._note_score(step, found)
        self._stand()
        self._write({"step": step, "eval": found})
        self._track({f"eval_{k}": v for k, v in found.items()}, step)

    def _track(self, values: dict[str, Any], step: int) -> None:
        """To the tracker."""
        with self._tracking():
            self.accelerator.log(values, step=step)

    @contextmanager
    def _tracking(self) -> Iterator[None]:
        """What a tracker cannot write is said once: tensorboard's thread would say it too, before it is raised here."""
        said, threading.excepthook = threading.excepthook, lambda args: None
        try:
            with written(f"{self.out} ({self.tracker})"):
                yield
        finally:
            threading.excepthook = said

    def _write(self, line: dict[str, Any]) -> None:
        self.lines += 1
        if self.path is not None:
            # JSON has no NaN: what is not a number is null
            clean = json.loads(json.dumps(line), parse_constant=lambda name: None)
            with written(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(clean) + "\n")


def trend(before: Sequence[float], now: Sequence[float]) -> str:
    """falling, level or rising, where level is all that two standard errors may explain."""
    moved = statistics.fmean(now) - statistics.fmean(before)
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(now) / len(now))
    return "level" if abs(moved) <= 2 * error else "falling" if moved < 0 else "rising"


def _first_lines(path: Path, number: int) -> list[str]:
    """So many lines of an earlier log, as far as they are there and whole."""
    if not path.is_file():
        return []
    lines = path.read_text("utf-8", errors="replace").splitlines(keepends=True)[:number]
    return [line for line in lines if line.endswith("\n")]
