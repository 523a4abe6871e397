"""Files and folders that are complete or absent, whatever happens while they are written; JSON files, whole."""

from __future__ import annotations

import errno
import glob
import json
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from minibert.errors import UserError

PARTIAL = ".partial-"  # between the name of what is to be there and whose work it is
TMPDIR = "name another place in the variable TMPDIR"
IS_FULL = (errno.ENOTEMPTY, errno.EEXIST)
MOST_JSON = 1 << 30  # bytes: a hundred times the largest tokenizer.json
NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG)


def write_whole(
    target: Path, fill: Callable[[Path], None], *, keep: Callable[[Path], bool] = lambda _: False
) -> None:  # fmt: skip
    """Make a folder or file that is complete or absent: fill(partial), flush to disk, rename.

    A link stays one: what it points to is written. Of several processes that write the same, the last one's stays; a
    folder that is there meanwhile and that keep(target) says to keep stays too, for somebody may have opened it.
    Raises: UserError where it cannot be written, where a file would take the place of a folder, and for devices and
        pipes, which a rename would put an end to.
    """
    target = Path(os.path.realpath(target))
    if is_device(target):
        raise UserError(
            "is a device or a pipe, no file", where=str(target), fix="name a file; or leave --out out and redirect (>)"
        )
    clear_leftovers(target.parent, glob.escape(target.name))
    partial = beside(target)
    with written(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            remove(partial)  # of a dead process that had this one's number
            fill(partial)
            for path in [partial, *partial.rglob("*")] if partial.is_dir() else [partial]:
                flush(path)
            if target.is_dir() and not partial.is_dir():  # somebody's whole folder
                raise UserError("is a folder; a file is to be written there", where=str(target), fix="name a file")
            put(partial, target, keep)
            flush(target.parent)
        except BaseException:
            with suppress(OSError):
                remove(partial)
            raise


def is_device(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def put(partial: Path, target: Path, keep: Callable[[Path], bool]) -> None:
    """Rename, in place of what is there; of a folder that keep(target) says to keep, nothing is changed."""
    while True:
        try:
            os.replace(partial, target)
        except OSError as error:  # a folder cannot be renamed onto a full one
            if not partial.is_dir() or (error.errno not in IS_FULL and not target.is_dir()):
                raise
            if target.is_dir() and keep(target):
                remove(partial)
                return
            delete_folder(target)  # another process may put the next one there before this one does
        else:
            return


@contextmanager
def written(place: Path | str, *, elsewhere: str = "choose another place") -> Iterator[None]:
    """What the system says while a place is written, as a UserError that names the place. elsewhere: how to mend it."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch's own error comes from what the system said
        system = next((found for found in causes(error) if isinstance(found, OSError)), None)
        if system is None:
            raise
        mend = elsewhere if system.errno in NO_PLACE else f"make room or {elsewhere}"
        raise UserError(
            f"cannot be written: {system.strerror or system}", where=str(place),
            fix=f"{mend}; what was written before is whole",
        ) from error  # fmt: skip
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # whose library is not imported for its name
            raise
        raise UserError(
            f"cannot be written: {error}", where=str(place),
            fix=f"make room or {elsewhere}; what was written before is whole",
        ) from error  # fmt: skip


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def refuse_full(folder: Path) -> None:
    """Raises UserError where a new folder is to be made and something is there already; an empty folder is nothing."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError("is there already and is not empty", where=str(folder), fix="choose another --out")


def beside(target: Path) -> Path:
    """Where this process fills what is to become `target`. No other process has that name, of any machine."""
    return target.with_name(f"{target.name}{PARTIAL}{machine()}-{os.getpid()}")


def machine() -> str:
    """Eight hex digits for that in which a process's number is its own: the machine, and the container on it."""
    try:
        container = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # elsewhere than on Linux
        container = ""
    return blake2b(f"{platform.node()} {container}".encode(), digest_size=4).hexdigest()


def clear_leftovers(folder: Path, pattern: str, *, anybodys: bool = False) -> None:
    """Delete what processes that were killed have left half-written beside targets of these names.

    Those of other machines may be alive. anybodys: they are not, for a lock has kept them out.
    """
    for left in folder.glob(f"{pattern}{PARTIAL}*"):
        where, _, number = left.name.rpartition(PARTIAL)[2].partition("-")
        if anybodys or (where == machine() and not is_running(number.partition("-")[0])):
            with suppress(OSError):  # another user's
                remove(left)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for a while. One that a killed process has left is deleted by the next call."""
    place = temporary_place()
    clear_leftovers(place, "minibert-*")
    with written(place, elsewhere=TMPDIR):
        folder = tempfile.mkdtemp(prefix="minibert-", suffix=f"{PARTIAL}{machine()}-{os.getpid()}", dir=place)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_place() -> Path:
    """Where files for a while lie. Raises: UserError where nothing can be written in any of the usual places."""
    with written("folder for temporary files", elsewhere=TMPDIR):
        return Path(tempfile.gettempdir())


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
    """Delete a file or folder, if it is there. A folder goes in one step: half of one is never taken for a whole."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif PARTIAL in path.name:  # nobody takes it for a whole one
        shutil.rmtree(path)
    else:
        delete_folder(path)


def delete_folder(path: Path) -> None:
    """Give a folder another name, which takes no time, and delete it then. Another process may be quicker."""
    aside = path.with_name(f"{beside(path).name}-old")
    remove(aside)
    with suppress(FileNotFoundError):
        path.rename(aside)
    remove(aside)


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


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises: UserError, with the line, for what cannot be read or is no JSON."""
    try:
        if path.stat().st_size > MOST_JSON:
            raise UserError(f"has {path.stat().st_size:,} bytes: more than such a file ever holds", where=str(path))
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 at byte {error.start}", where=str(path)) from error
    except RecursionError as error:
        raise UserError("not JSON that can be read: it is nested too deep", where=str(path)) from error
    except ValueError as error:  # a whole number of more than 4,300 digits
        raise UserError(f"not JSON that can be read: {error}", where=str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text."""

    def fill(partial: Path) -> None:
        partial.write_text(text, "utf-8", errors="backslashreplace")  # file names may hold bytes that are no text

    write_whole(path, fill)
