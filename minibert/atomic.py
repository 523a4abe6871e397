"""Files and folders that are complete or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibert.errors import UserError

NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG)


def write_whole(target: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder or file that is complete or absent: fill(partial), flush to disk, rename.

    A link stays one: what it points to is written.
    Raises: UserError where it cannot be written, where a file would take the place of a folder, and for devices and
        pipes, which a rename would put an end to.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file() and not target.is_dir():
        raise UserError(
            "is a device or a pipe, no file", where=str(target), fix="name a file; or leave --out out and redirect (>)"
        )
    clear_leftovers(target.parent, glob.escape(target.name))
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fill(partial)
        for path in [partial, *partial.rglob("*")] if partial.is_dir() else [partial]:
            flush(path)
        if target.is_dir() and not partial.is_dir():  # somebody's whole folder
            raise UserError("is a folder; a file is to be written there", where=str(target), fix="name a file")
        if target.is_dir():  # a folder cannot be renamed onto a full one; two processes may be at it
            remove(target)
        os.replace(partial, target)
        flush(target.parent)
    except BaseException as error:
        with suppress(OSError):
            remove(partial)
        # torch and safetensors wrap what the system says of a full disk in errors of their own
        if isinstance(error, OSError | RuntimeError) or type(error).__name__ == "SafetensorError":
            reason = getattr(error, "strerror", None) or str(error)
            place = (
                "choose another place"
                if getattr(error, "errno", None) in NO_PLACE
                else "make room or choose another place"
            )
            raise UserError(
                f"cannot be written: {reason}", where=str(target), fix=f"{place}; what was written before is whole"
            ) from error
        raise


def refuse_full(folder: Path) -> None:
    """Raises UserError where a new folder is to be made and something is there already; an empty folder is nothing."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError("is there already and is not empty", where=str(folder), fix="choose another --out")


def clear_leftovers(folder: Path, pattern: str) -> None:
    """Delete what processes that were killed have left half-written beside targets of these names."""
    for left in folder.glob(f"{pattern}.partial-*"):
        if not is_running(left.name.rpartition("-")[2]):
            remove(left)


def is_running(pid: str) -> bool:
    """Whether a process of this machine has that number; True where that cannot be told."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):
        return True
    return True


def remove(path: Path) -> None:
    """Delete a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Make the disk hold what was written, so that a rename cannot come before it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """Write plain values as JSON; numpy's and torch's numbers become plain ones."""
    text = json.dumps(content, ensure_ascii=False, indent=1, default=float) + "\n"
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text."""

    def fill(partial: Path) -> None:
        partial.write_text(text, "utf-8", errors="backslashreplace")  # file names may hold bytes that are no text

    write_whole(path, fill)
