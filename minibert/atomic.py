"""Files and folders that are complete or absent, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minibert.errors import UserError


def write_whole(target: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder or file that is complete or absent: fill(partial), flush to disk, rename."""
    partial = target.with_name(target.name + ".partial")
    remove(partial)
    try:
        fill(partial)
        for path in [partial, *partial.rglob("*")] if partial.is_dir() else [partial]:
            flush(path)
        if target.is_dir():  # a folder cannot be renamed onto a full one
            remove(target)
        os.replace(partial, target)
        flush(target.parent)
    except OSError as error:
        remove(partial)
        raise UserError(
            f"cannot be written: {error.strerror or error}", where=str(target),
            fix="make room or choose another place; what was written before is whole",
        ) from error  # fmt: skip


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
        partial.write_text(text, "utf-8")

    write_whole(path, fill)
