"""Files at other places, `s3://bucket/text` and whatever else fsspec knows: found, fetched once, written.

The network is used for a place that the user has named and for nothing else. What is fetched lies in the cache, each
file whole or absent, under a name that changes when the file at its place does.
"""

from __future__ import annotations

import errno
import glob
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.callbacks import Callback

from minibert.atomic import remove, write_whole
from minibert.console import Console
from minibert.errors import UserError, installing

try:
    import fcntl
except ImportError:  # Windows has none: two processes may fetch the same file, each of them whole
    fcntl = None  # type: ignore[assignment]

AT_A_TIME = 8  # files on their way together; an interruption loses no more than these
MARKS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "Last-Modified", "mtime", "created")
OF_THIS_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def is_remote(name: str) -> bool:
    """Whether a name is that of a place that fsspec opens; `file://` is this machine's."""
    return re.match(r"([a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]*://", name) is not None and not name.startswith("file://")


@dataclass(frozen=True)
class RemoteFile:
    """A file at another place. mark: changes when the content does, as far as the place tells. size: None: not told."""

    url: str
    size: int | None
    mark: str
    path: str = field(repr=False)
    filesystem: Any = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The last part of its name, whose ending says what it is."""
        return PurePosixPath(self.path).name


def find(pattern: str, *, missing_ok: bool = False) -> dict[str, dict[str, RemoteFile]]:
    """What a name or a pattern with * stands for: each place with its files by their names in it; "" is the place
    itself where that is a file.

    Raises: UserError if nothing is there and that is not ok, or the place cannot be reached.
    """
    with as_user_error(pattern, "read"):
        filesystem, path = fsspec.url_to_fs(pattern)
        filesystem.invalidate_cache()
        if glob.has_magic(path):
            found = filesystem.glob(path, detail=True)
            if "/." not in path:  # as on this machine, where * stands for no name that begins with a dot
                found = {at: about for at, about in found.items() if "/." not in at}
        else:
            try:
                found = {path: filesystem.info(path)}
            except FileNotFoundError:
                if missing_ok:
                    return {}
                raise
        places = {filesystem.unstrip_protocol(at): _files(filesystem, at, found[at]) for at in sorted(found)}
    if not any(places.values()) and not missing_ok:
        raise UserError("there is nothing", where=pattern, fix="check the name; quote a pattern if the shell is not to")
    return places


def _files(filesystem: Any, path: str, info: dict[str, Any]) -> dict[str, RemoteFile]:
    if info["type"] != "directory":
        return {"": _described(filesystem, path, info)}
    inside = filesystem.find(path, detail=True)
    return {
        name.removeprefix(path).lstrip("/"): _described(filesystem, name, about)
        for name, about in inside.items()
        if about["type"] != "directory" and not name.endswith("/")
    }


def _described(filesystem: Any, path: str, info: dict[str, Any]) -> RemoteFile:
    mark = next((f"{key} {info[key]}" for key in MARKS if info.get(key)), "")
    return RemoteFile(filesystem.unstrip_protocol(path), info.get("size"), mark, path, filesystem)


def fetched(files: Sequence[RemoteFile], cache: Path, console: Console) -> list[Path]:
    """The files' copies on this machine, in the same order."""
    targets = {cache / "remote" / _key([file]) / (file.name or "file"): file for file in files}
    _fetch(targets, cache / "remote", console)
    return list(targets)


def fetched_folder(url: str, files: Mapping[str, RemoteFile], cache: Path, console: Console) -> Path:
    """A folder on this machine with these files of the place `url`, under their names in it."""
    folder = cache / "remote" / _key(files.values()) / (PurePosixPath(url).name or "folder")
    outside = [name for name in files if ".." in name.split("/") or name.startswith("/")]
    if outside:
        raise UserError(f"a file there is named {outside[0]!r}, which leads out of the folder", where=url)
    _fetch({folder / name: file for name, file in files.items()}, cache / "remote", console)
    return folder


def fetched_top(url: str, cache: Path, console: Console) -> Path:
    """A file's copy, or a folder's with the files that lie at its top: a tokenizer, a checkpoint."""
    files = {name: file for place in find(url).values() for name, file in place.items() if "/" not in name}
    if "" in files:
        return fetched([files[""]], cache, console)[0]
    return fetched_folder(url, files, cache, console)


def _key(files: Any) -> str:
    known = [(file.url, file.size, file.mark) for file in files]
    return blake2b(json.dumps(known).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _fetch(targets: Mapping[Path, RemoteFile], folder: Path, console: Console) -> None:
    """Bring what is missing; of several processes on this machine one does it, and the others find it."""

    def missing() -> list[tuple[Path, RemoteFile]]:
        return [(target, file) for target, file in targets.items() if not _is_there(target, file)]

    if not missing():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot be written: {error.strerror}", where=str(folder), fix="--cache DIR names another place"
        ) from error
    with lock:
        if fcntl is not None:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        left = missing()  # what another process has not brought meanwhile
        total = sum(file.size or 0 for _, file in left)
        if left:
            where = f"{left[0][1].url}{' ...' if len(left) > 1 else ''}"
            console.say(f"fetching {len(left):,} file{'s' * (len(left) > 1)}, {total / 1e6:.1f} MB: {where}")
        with console.progress("fetching", total / 1e6 or None, unit="MB") as update:
            done = [0]

            def more(size: int) -> None:
                done[0] += size
                update(done[0] / 1e6)

            for _, group in groupby(left, lambda item: item[1].filesystem):
                while batch := dict(islice(group, AT_A_TIME)):
                    _fetch_batch(batch, folder / "batch", more)


def _is_there(target: Path, file: RemoteFile) -> bool:
    return target.is_file() and file.size in (None, target.stat().st_size)


def _fetch_batch(batch: Mapping[Path, RemoteFile], place: Path, more: Callable[[int], None]) -> None:
    """Bring some files of one file system together, check them, then move each to its target."""
    files = list(batch.values())
    filesystem = files[0].filesystem

    def fill(partial: Path) -> None:
        partial.mkdir()
        copies = [partial / str(number) for number in range(len(files))]
        with as_user_error(files[0].url + " ..." * (len(files) > 1), "read"):
            filesystem.get([file.path for file in files], list(map(str, copies)), callback=_Bytes(more))
            now = [_described(filesystem, file.path, filesystem.info(file.path)) for file in files]
        for file, copy, after in zip(files, copies, now, strict=True):
            if file.size not in (None, size := copy.stat().st_size):
                raise UserError(f"{size:,} bytes came of {file.size:,}", where=file.url, fix="fetch it again")
            if "ETag" in file.mark and after.mark != file.mark:
                raise UserError("has changed while it was fetched", where=file.url, fix="start again")

    try:
        write_whole(place, fill)
    except UserError as error:
        if error.where == str(place.absolute()):
            fix = "make room, or --cache DIR names another place"
            raise UserError(error.problem, where=error.where, fix=fix) from error
        raise
    for number, target in enumerate(batch):
        target.parent.mkdir(parents=True, exist_ok=True)
        (place / str(number)).replace(target)
    remove(place)


class _Bytes(Callback):  # type: ignore[misc]
    """Tells how many bytes have come, over all files that are on their way."""

    def __init__(self, more: Callable[[int], None]) -> None:
        super().__init__()
        self.more = more

    def branched(self, path_1: str, path_2: str, **kwargs: Any) -> Callback:
        return _OneFile(self.more)


class _OneFile(Callback):  # type: ignore[misc]
    def __init__(self, more: Callable[[int], None]) -> None:
        super().__init__()
        self.more = more

    def relative_update(self, inc: int = 1) -> None:
        self.more(inc)


def sent(folder: Path, url: str, *, last: str) -> None:
    """Write a folder's files to the place `url`; the one named `last` comes when all others are there."""
    with as_user_error(url, "written"):
        filesystem, path = fsspec.url_to_fs(url)
        filesystem.makedirs(path, exist_ok=True)
        for file in sorted(folder.iterdir(), key=lambda file: (file.name == last, file.name)):
            filesystem.put_file(str(file), f"{path.rstrip('/')}/{file.name}")


def read_bytes(file: RemoteFile) -> bytes:
    """The content of a small file."""
    with as_user_error(file.url, "read"):
        content: bytes = file.filesystem.cat_file(file.path)
    return content


@contextmanager
def as_user_error(url: str, done: str) -> Iterator[None]:
    """What goes wrong at another place is told as one message; what goes wrong on this disk stays what it is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OF_THIS_DISK:
            raise
        raise _told(error, url, done) from error


def _told(error: Exception, url: str, done: str) -> UserError:
    protocol = re.split("://|::", url)[0]
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ImportError):
        package = getattr(error.__cause__ or error, "name", None) or protocol
        return UserError(
            f"{protocol}:// needs the package {package}, which is not installed", url, installing(package.split(".")[0])
        )
    if isinstance(error, ValueError) and "rotocol not known" in said:
        return UserError(
            f"there is no kind of place {protocol}://", url, "s3://, gs://, https:// and others that fsspec knows"
        )
    if isinstance(error, FileNotFoundError):
        or_what = "or no server that answers" if protocol.startswith("http") else "folder or bucket"
        return UserError(f"there is no such file, {or_what} ({said})", url, "check the name")
    if type(error).__name__ == "NoCredentialsError" or isinstance(error, PermissionError):
        fix = f"give credentials as the tools of {protocol} take them"
        if protocol == "s3":
            fix = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; FSSPEC_S3_ANON=true for a public bucket"
        return UserError(f"may not be {done}: {said}", url, fix)
    return UserError(
        f"cannot be {done}: {said}", url, "try again where the connection has failed; nothing half is left in the cache"
    )
