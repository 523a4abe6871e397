"""What a corpus is made of: files of text, here or at other places, or one store that `minibert prepare` has made."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, takewhile
from pathlib import Path, PurePosixPath

from minibert.console import Console
from minibert.corpus.prepared import check_complete, check_sent, is_store, is_store_folder
from minibert.corpus.read import find_files, is_known, is_of_text, known_suffixes
from minibert.errors import UserError
from minibert.remote import RemoteFile, fetched, fetched_folder, find, is_remote

Source = Path | RemoteFile


@dataclass(frozen=True)
class RemoteStore:
    """A prepared store at another place: its files by their names in it."""

    url: str
    files: dict[str, RemoteFile]


def find_sources(patterns: Sequence[str]) -> list[Source] | RemoteStore | Path:
    """What the patterns name: files of text, each once, as find_files says, or a prepared store (a Path: its folder).

    Raises: UserError if a pattern finds nothing, for a store beside something else, and for one that is not complete.
    """
    found: dict[str, Source] = {}
    for pattern in patterns:
        store: RemoteStore | Path | None = None
        files: list[Source] = []
        if is_remote(pattern):
            for url, inside in find(pattern).items():
                if is_store(inside):
                    store = RemoteStore(url, inside)
                files += _texts(inside)
            if not files and store is None:
                raise UserError("the place holds no text", pattern, f"known are {known_suffixes()}")
        elif is_store_folder(Path(pattern)):
            store = Path(pattern)
        else:
            files += find_files([pattern])
        if store is not None:
            where = str(store) if isinstance(store, Path) else store.url
            if len(patterns) > 1:
                raise UserError("is a prepared store, which is a whole corpus", where, "name it alone")
            if isinstance(store, Path):
                check_complete((path.name for path in store.iterdir()), where)
            else:
                check_sent(store.files, where)
            return store
        for file in files:
            found.setdefault(os.path.realpath(file) if isinstance(file, Path) else file.url, file)
    return list(found.values())


def _texts(inside: dict[str, RemoteFile]) -> list[Source]:
    """The files of text at a place, in the order that a folder of this machine has."""
    if "" in inside:
        return [inside[""]]
    names = [PurePosixPath(name) for name in inside]
    return [inside[str(name)] for name in sorted(names) if is_known(name) and all(map(is_of_text, name.parts))]


def on_this_machine(sources: Sequence[Source] | RemoteStore | Path, cache: Path, console: Console) -> list[Path]:
    """The files that are meant, those of other places fetched; of a prepared store its folder alone."""
    if isinstance(sources, Path):
        return [sources]
    if isinstance(sources, RemoteStore):
        return [fetched_folder(sources.url, sources.files, cache, console)]
    elsewhere = [file for file in sources if isinstance(file, RemoteFile)]
    copies = dict(zip(elsewhere, fetched(elsewhere, cache, console), strict=True)) if elsewhere else {}
    return [copies[file] if isinstance(file, RemoteFile) else file for file in sources]


def size_of(source: Source) -> int:
    """Bytes on disk; of a place that does not tell: 0."""
    return source.stat().st_size if isinstance(source, Path) else source.size or 0


def corpus_digest(sources: Sequence[Source]) -> str:
    """Stands for the list of a corpus's files, their sizes and their names below the folder that they share.

    It is the same on machines that see them at different places.
    """
    parts = [PurePosixPath(file.absolute() if isinstance(file, Path) else file.url).parts for file in sources]
    folders = zip(*(part[:-1] for part in parts), strict=False)
    shared = sum(1 for _ in takewhile(lambda same: len(set(same)) == 1, folders))
    known = [("/".join(part[shared:]), size_of(file)) for part, file in zip(parts, sources, strict=True)]
    return blake2b(json.dumps(known).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def share_of(sizes: Sequence[int], shard: int, of: int) -> slice:
    """Which files are shard number `shard` (from 1): a range, none empty, of about equal bytes. Together they are all.

    Raises: UserError if there are fewer files than shards.
    """
    if len(sizes) < of:
        raise UserError(
            f"{len(sizes)} file{'s' * (len(sizes) != 1)} cannot be shared out to {of} shards: a file is never cut",
            where="--shard", fix=f"take {len(sizes)} shards or fewer, or split the files between documents",
        )  # fmt: skip
    ends = list(accumulate(sizes, initial=0))
    bounds = [0]
    for number in range(1, of):
        wanted = ends[-1] * number / of
        at = bisect_left(ends, wanted)
        if at and wanted - ends[at - 1] < ends[at] - wanted:
            at -= 1
        bounds.append(min(max(at, bounds[-1] + 1), len(sizes) - (of - number)))
    bounds.append(len(sizes))
    return slice(bounds[shard - 1], bounds[shard])
