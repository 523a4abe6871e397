"""A run as its folder tells of it, whether it is finished or not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from minibert.atomic import read_json
from minibert.config import FinetuneConfig, PretrainConfig, load_recipe
from minibert.errors import UserError
from minibert.run_folder import is_begun, is_finished, load_settings
from minibert.tasks import find_tasks

MOST_STEPS = 2**53  # more cannot be drawn
DEFAULT_RECIPE = "quick"  # of pre-training: what its settings are where nothing is said


@dataclass
class Log:
    """log.jsonl, sorted: steps, measurements, warnings; error: what ended the run; broken: lines that are no JSON."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    measured: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    broken: int = 0

    def column(self, name: str) -> tuple[list[float], list[float | None]]:
        """(steps, values) of one thing that is logged with the steps."""
        there = [line for line in self.steps if name in line]
        return [line["step"] for line in there], [number(line[name]) for line in there]

    def evaluation(self, name: str) -> tuple[list[float], list[float | None]]:
        """(steps, values) of one thing that is measured."""
        there = [(step, found) for step, found in self.measured if name in found]
        return [step for step, _ in there], [number(found[name]) for _, found in there]


@dataclass
class Run:
    """What is known of a run.

    Attributes: settings: resolved. places: what settings.json names beside them. data, machine, answers, metrics,
        config: the files of these names, {} where one is not there (yet). seeds: the logs by seed, where there are
        several.
    """

    folder: Path
    command: str
    settings: dict[str, Any]
    places: dict[str, Any]
    data: dict[str, Any]
    machine: dict[str, Any]
    answers: dict[str, Any]
    metrics: dict[str, Any]
    config: dict[str, Any]
    log: Log
    seeds: dict[str, Log]
    finished: bool

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def task(self) -> str:
        """cls, ner, qa; "" for pre-training."""
        return str(self.places.get("task") or "")

    @property
    def step(self) -> int:
        """The last one that is known."""
        logged = int(self.log.steps[-1]["step"]) if self.log.steps else 0
        return int(number(self.metrics.get("steps")) or logged)

    @property
    def seconds(self) -> float | None:
        """Of training alone, without measuring and saving; None where no log says it."""
        total, before = 0.0, 0
        for line in self.log.steps:
            speed, tokens = number(line.get("tokens_per_second")), number(line.get("tokens"))
            if speed and tokens is not None:
                total += (tokens - before) / speed
                before = int(tokens)
        return total or None

    @property
    def tokens_per_second(self) -> float | None:
        """Of the whole training."""
        tokens = self.log.column("tokens")[1]
        return tokens[-1] / self.seconds if self.seconds and tokens and tokens[-1] else None

    @property
    def share_of_machine(self) -> float | None:
        """Of the rate that matrix products alone have there; None where that was measured while others computed, so
        that more than all of it would have been used."""
        per_token, rate = (number(self.machine.get(name)) for name in ("flops_per_token", "flops_per_second"))
        speed = self.tokens_per_second
        share = speed * per_token / rate if speed and per_token and rate else None
        return share if share is not None and share <= 1 else None

    @property
    def parameters(self) -> int | None:
        """Numbers in the model's file; None where there is none yet."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.folder / "model.safetensors", "numpy") as file:
                return int(sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys()))  # noqa: SIM118
        except (OSError, SafetensorError):
            return None

    def changed_settings(self) -> list[tuple[str, Any, Any]]:
        """(name, value, default) of the settings that are not what a run has where nothing is said."""
        usual = defaults(self.command, self.task)
        return [
            (name, value, usual.get(name))
            for name, value in self.settings.items()
            if name not in usual or usual[name] != value
        ]


def defaults(command: str, task: str) -> dict[str, Any]:
    """The settings of a run for which nothing is said: the default recipe's, or the task's."""
    kinds = find_tasks()
    config: type[Any] = PretrainConfig
    if command == "finetune":
        config = kinds[task].Config if task in kinds else FinetuneConfig
    usual = {item.name: item.default for item in fields(config)}
    if command == "pretrain":
        recipe = load_recipe(DEFAULT_RECIPE, "pretrain")[1]
        usual |= recipe
        if any(recipe.get(name) is not None for name in ("steps", "epochs", "minutes")):
            usual |= {name: recipe.get(name) for name in ("steps", "epochs", "minutes")}
    return usual


def read_run(folder: Path) -> Run:
    """What the folder of a run tells, finished or not.

    Raises: UserError where it is no run's folder, or one of its files is damaged.
    """
    if not is_begun(folder):
        if folder.is_dir() and (folder / "config.json").is_file():
            problem = "is a model without the record of a run (settings.json)"
        else:
            problem = "is not the folder of a run" if folder.exists() else "there is no such folder"
        raise UserError(problem, where=str(folder), fix="name the --out of `minibert pretrain` or `minibert finetune`")
    saved = load_settings(folder)
    found = {name: _object(folder / f"{name}.json") for name in ("data", "machine", "answers", "metrics", "config")}
    places = {name: value for name, value in saved.items() if name not in ("settings", "minibert")}
    seeds = {
        path.parent.name: read_log(path)
        for path in sorted(folder.glob("seeds/*/log.jsonl"), key=lambda path: (len(path.parent.name), path))
    }
    log = read_log(folder / "log.jsonl")
    if not log.steps and seeds:  # unfinished, with several seeds: the newest one is looked at
        newest = list(seeds)[-1]
        log = seeds[newest]
        found["answers"] = _object(folder / "seeds" / newest / "answers.json")
    return Run(
        folder, str(saved.get("command", "")), saved["settings"], places, **found, log=log, seeds=seeds,
        finished=is_finished(folder),
    )  # fmt: skip


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict):
        raise UserError("is not a file of a run: it holds no JSON object", where=str(path))
    return found


def read_log(path: Path) -> Log:
    """log.jsonl; a line that is cut off or no JSON is counted and passed over."""
    log = Log()
    if not path.is_file():
        return log
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            _sort_in(line, log)
    return log


def _sort_in(line: str, log: Log) -> None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        log.broken += 1
        return
    step = said.get("step") if isinstance(said, dict) else None
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < MOST_STEPS:
        log.broken += 1
        return
    if isinstance(said.get("eval"), dict):
        log.measured.append((step, said["eval"]))
    elif "warning" in said:
        log.warnings.append(said)
    elif "error" in said:
        log.error = said
    else:
        log.steps.append(said)


@contextmanager
def read_from(path: Path) -> Iterator[None]:
    """While a page shows what a file holds. Raises: UserError, naming the file, where that is not of its kind."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, UndefinedError, ValueError) as error:
        raise UserError(
            f"is damaged: it does not hold what such a file holds ({type(error).__name__}: {error})", where=str(path),
            fix="bring it back, or move it away: the page does without it",
        ) from error  # fmt: skip


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number that no float is as large as
        return None


def numbers(found: Mapping[str, Any]) -> dict[str, float]:
    """Those values of a file that are finite numbers."""
    return {name: value for name in found if (value := number(found[name])) is not None}
