"""Checkpoints that training goes on from: a Hugging Face folder with a `training_state` folder in it.

A checkpoint is complete or absent: it is filled as `step-N.partial` and renamed, and its manifest, written last, holds
the size and hash of every file, so that later damage is seen too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from minibert.atomic import clear_leftovers, read_json, remove, write_whole
from minibert.checkpoint.weights import load_pickle
from minibert.errors import UserError
from minibert.training.optim import Optimizers
from minibert.training.sharding import HasState, load_whole

STATE = "training_state"
MANIFEST = "manifest.json"
NEEDED = {f"{STATE}/optimizer.pt", f"{STATE}/place.json"}
OLDER = "delete this checkpoint's folder, and --resume goes on from the one before it, or begins anew"


KINDS: dict[str, tuple[type, ...]] = {
    "step": (int,), "phase": (int,), "tokens": (int,), "cursor": (dict,), "best": (dict,), "record": (dict,),
    "store": (str,), "elapsed": (int, float), "reserve": (int, float), "measured": (int,), "share": (int, float),
}  # fmt: skip


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)


def save_state(
    folder: Path,
    save_model: Callable[[Path], None],
    optimizers: Sequence[HasState],
    scaler: Any,
    place: dict[str, Any],
) -> None:
    """Write one complete checkpoint. place: step, cursor, elapsed ... plain values, for JSON."""

    def fill(partial: Path) -> None:
        (partial / STATE).mkdir(parents=True)
        save_model(partial)
        state = {
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "scaler": scaler.state_dict() if scaler is not None else None,
        }
        with (partial / STATE / "optimizer.pt").open("wb") as file:  # of a name torch says no reason if it fails
            torch.save(state, file)
        (partial / STATE / "place.json").write_text(json.dumps(place), "utf-8")
        sizes = {str(path.relative_to(partial)): [path.stat().st_size, _digest(path)] for path in _files(partial)}
        (partial / STATE / MANIFEST).write_text(json.dumps(sizes, indent=1), "utf-8")

    write_whole(folder, fill)


def fault_of(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is complete."""
    manifest = folder / STATE / MANIFEST
    try:
        expected = json.loads(manifest.read_text("utf-8"))
        if NEEDED - expected.keys():
            return f"{STATE}/{MANIFEST} is missing or broken"
        for name, (size, digest) in expected.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size:
                return f"{name} has {path.stat().st_size} bytes instead of {size}"
            if _digest(path) != digest:
                return f"{name} has been changed"
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return f"{STATE}/{MANIFEST} is missing or broken"
    return None


def newest_complete(checkpoints: Path) -> tuple[Path | None, list[tuple[Path, str]]]:
    """The complete checkpoint with the highest step, and the broken ones above it with what is wrong with each."""
    found = []
    for path in checkpoints.glob("step-*") if checkpoints.is_dir() else ():
        if match := re.fullmatch(r"step-(\d+)", path.name):
            found.append((int(match[1]), path))
    broken: list[tuple[Path, str]] = []
    for _, path in sorted(found, reverse=True):
        fault = fault_of(path)
        if fault is None:
            return path, broken
        broken.append((path, fault))
    return None, broken


def load_place(folder: Path) -> dict[str, Any]:
    """Where in the training a checkpoint stands: step, cursor, time, tokens. Raises: UserError for what is no place."""
    path = folder / STATE / "place.json"
    place = read_json(path)
    if not isinstance(place, dict) or not all(is_kept(name, place.get(name)) for name in {*KINDS, *place}):
        raise UserError("is not the place of a run", where=str(path), fix=OLDER)
    return place


def is_kept(name: str, value: Any) -> bool:
    """Whether a value is one that save_state writes under this name; None where it is not there."""
    if value is None:
        return name != "step"
    if type(value) not in KINDS.get(name, (type(value),)):
        return False
    if name == "store":  # the name of a folder beside others
        return re.fullmatch("(prepared-)?[0-9a-f]*", value) is not None
    return not isinstance(value, int | float) or 0 <= value < 1e18


def load_state(folder: Path, optimizers: Optimizers, scaler: Any) -> None:
    """Put the state of optimizers and scaler back; the weights are loaded like any model's.

    Raises: UserError for a file that does not hold such a state; none of its code is run.
    """
    path = folder / STATE / "optimizer.pt"
    state = load_pickle(path)
    try:
        if len(state["optimizers"]) != len(optimizers):
            raise UserError("was saved with another --optimizer", where=str(folder))
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            load_whole(optimizer, saved)
        if scaler is not None and state["scaler"] is not None:
            scaler.load_state_dict(state["scaler"])
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"is not the state of this run's optimizer ({error})", where=str(path), fix=OLDER) from error


def checkpoint_path(checkpoints: Path, step: int) -> Path:
    """The folder of a step's checkpoint."""
    return checkpoints / f"step-{step:06d}"


def keep_newest(checkpoints: Path, keep: int, step: int, *, also: int | None = None) -> None:
    """Delete all but the newest `keep` checkpoints and that of step `also`, once that of `step` is complete.

    Those of later steps are what a resumed run has passed over as broken and is about to write again: they go too.
    """
    steps = sorted(int(m[1]) for p in checkpoints.glob("step-*") if (m := re.fullmatch(r"step-(\d+)", p.name)))
    clear_leftovers(checkpoints, "step-*")
    past = [other for other in steps if other <= step]
    for other in steps:
        if other not in past[-keep:] and other != also:
            remove(checkpoint_path(checkpoints, other))
