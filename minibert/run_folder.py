"""A run's folder: whether it may be used, and the settings it was started with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from minibert.atomic import PARTIAL, clear_leftovers, read_json, remove, write_json, write_whole, written
from minibert.config import LENGTHS, known_fields, resolve
from minibert.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has none: nobody is kept out there
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

LOCK = ".lock"
TRIES = 100  # to lock a folder that others make and delete
OF_A_START = ("settings.json", "data.json", "machine.json", "log.jsonl", "answers.json")  # without the result
OF_THE_END = ("metrics.json", "report.html", "README.md")
FILES = (*OF_A_START, *OF_THE_END, ".model", "checkpoints", "checkpoints/step-*")
TRACKERS = ("tensorboard", "trackio")  # their folders
PARTS = (*FILES, "seeds", *(f"seeds/*/{name}" for name in FILES))  # all that is written whole or not at all

MAY_CHANGE = frozenset(("keep", "log_every", "save_every", "eval_every", "workers", "micro_batch_size", "tracker"))


def is_finished(out: Path) -> bool:
    """metrics.json is written last."""
    return (out / "metrics.json").is_file()


def is_begun(out: Path) -> bool:
    """settings.json is written before the first step."""
    return (out / "settings.json").is_file()


@contextmanager
def held(out: Path, *, resume: bool) -> Iterator[None]:
    """Make the run folder and keep other runs out of it; a run that fails before its first checkpoint leaves nothing.

    What a run that was killed has left half-written there is deleted.
    Raises: UserError if the folder cannot be made, is in use, or holds another run.
    """
    with lock(out) as alone:
        for name in PARTS:
            clear_leftovers(out, name, anybodys=alone)
        try:
            if not resume:
                check_new(out)
            try:
                yield
            except BaseException:
                if not resume and not has_checkpoints(
                    out
                ):  # all that is in there is this run's: check_new has seen to it
                    for name in (*OF_A_START, "seeds", *TRACKERS):
                        remove(out / name)
                raise
        finally:
            with suppress(OSError):
                (out / LOCK).unlink(missing_ok=True)
                out.rmdir()  # unless it is not empty


def clear_up(out: Path, *names: str) -> None:
    """Delete what a run that was killed at its very end had still to delete, and these; not while it is at it."""
    with suppress(UserError, OSError), held(out, resume=True):
        for name in names:
            remove(out / name)


@contextmanager
def lock(out: Path) -> Iterator[bool]:
    """Make a folder and lock it. The lock is the system's: one whose owner has died holds nobody up.

    Yields: whether others are kept out: not on Windows, nor on a file system without locks.
    Raises: UserError if the folder cannot be made, or another process has it.
    """
    path = out / LOCK
    in_use = UserError("is in use by another run", where=str(out), fix="wait for its end, or choose another --out")
    for _ in range(TRIES):
        with written(out):
            out.mkdir(parents=True, exist_ok=True)
            try:
                handle = path.open("a", encoding="utf-8")
            except FileNotFoundError:
                continue  # the run that was there before has just deleted the folder
        with handle:
            alone = fcntl is not None
            try:
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise in_use from None
            except OSError:
                alone = False
            if not alone or is_still(path, handle.fileno()):
                yield alone
                return
    raise in_use


def is_still(path: Path, handle: int) -> bool:
    """Whether an open file is the one of that name: a lock on one that its owner has deleted keeps nobody out."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def has_checkpoints(out: Path) -> bool:
    """Whether a run in this folder has got so far that there is something to go on from, or a model at its top."""
    got = ("metrics.json", "checkpoints", "model.safetensors")
    return any((place / name).exists() for place in (out, *out.glob("seeds/*")) for name in got)


def check_new(out: Path) -> None:
    """Refuse a folder that holds a run, or something else that files would be mixed into."""
    if is_finished(out):
        raise UserError("holds a finished run", where=str(out), fix="choose another --out")
    if is_begun(out):
        raise UserError(
            "holds a run that is not finished", where=str(out), fix="--resume goes on with it; or choose another --out"
        )
    if out.exists() and not out.is_dir():
        raise UserError("is a file; a run needs a folder", where=str(out), fix="choose another --out")
    begun = f"settings.json{PARTIAL}"  # by a start that was killed; the lock's owner deletes it
    if out.is_dir() and any(path.name != LOCK and not path.name.startswith(begun) for path in out.iterdir()):
        raise UserError("is a folder with other files in it", where=str(out), fix="choose another --out")


def resume_with(command: str, out: Path) -> str:
    """The words that tell how to go on with an unfinished run."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    program = "accelerate launch -m minibert" if several else "minibert"
    return f"resume with: `{program} {command} --out {shlex.quote(str(out))} --resume`"


def publish(out: Path, fill: Callable[[Path], None]) -> None:
    """The model at the top of the run folder: fill(folder) writes its files; each is then there whole or not at all."""
    finished = out / ".model"
    write_whole(finished, fill)
    for path in finished.iterdir():
        path.replace(out / path.name)
    remove(finished)


def save_settings(out: Path, command: str, settings: Any, places: Mapping[str, Any]) -> None:
    """settings.json: the resolved settings, which --recipe takes again, and where things were read from."""
    named = {name: place and (list(place) if isinstance(place, list) else str(place)) for name, place in places.items()}
    content = {"minibert": version("minibert"), "command": command, **named, "settings": asdict(settings)}
    write_json(out / "settings.json", content)


def load_settings(out: Path) -> dict[str, Any]:
    """The content of a run's settings.json."""
    found = read_json(out / "settings.json")
    if isinstance(found, dict) and isinstance(found.get("settings"), dict):
        return found
    raise UserError("is not the settings file of a run", where=str(out / "settings.json"))


def load_metrics(out: Path) -> dict[str, Any]:
    """The content of a finished run's metrics.json."""
    found = read_json(out / "metrics.json")
    if isinstance(found, dict):
        return found
    raise UserError("is not the metrics file of a run", where=str(out / "metrics.json"))


def resumed_settings(
    config: type[T], out: Path, flags: Mapping[str, Any], recipe: Mapping[str, Any] | None = None
) -> tuple[T, dict[str, Any]]:
    """The settings of a run that goes on, and what else its settings.json says.

    Args: flags, recipe: what it was started with may be said again: one script starts a run and goes on with it.
    Raises: UserError if one of them would make it another run.
    """
    saved = load_settings(out)
    before = resolve(config, (str(out / "settings.json"), saved["settings"]))
    changed = [
        f"{name} ({getattr(before, name)} -> {value})"
        for name, value in said_again(recipe or {}, flags).items()
        if name in known_fields(config) and value != getattr(before, name) and name not in MAY_CHANGE
    ]
    if changed:
        raise UserError(
            f"--resume continues the run as it was set; this differs: {', '.join(changed)}",
            where=str(out),
            fix=f"leave these out, or start anew with another --out; {', '.join(sorted(MAY_CHANGE))} may change",
        )
    allowed = {name: value for name, value in flags.items() if name in MAY_CHANGE}
    return resolve(config, (str(out / "settings.json"), saved["settings"]), ("--resume", allowed)), saved


def said_again(recipe: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's settings with the flags over them; a flag of steps, epochs or minutes wins over all three."""
    kept = {
        name: value
        for name, value in recipe.items()
        if not (name in LENGTHS and any(flags.get(length) is not None for length in LENGTHS))
    }
    return {**kept, **flags}


def check_same_places(out: Path, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a corpus, checkpoint or tokenizer that is not the one the run was started with; None was not given."""
    for name, place in given.items():
        if place is None:
            continue
        now = str(place.absolute()) if isinstance(place, Path) else place
        if now != saved.get(name):
            raise UserError(
                f"--resume continues the run as it was set; {name} differs: {saved.get(name)} -> {now}", where=str(out),
                fix="leave it out, or start anew with another --out",
            )  # fmt: skip
