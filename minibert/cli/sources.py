"""Where text comes from: files as they are named, standard input as a file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from minibert.atomic import TMPDIR, temporary_folder, written
from minibert.errors import UserError, printable

if TYPE_CHECKING:
    from minibert.console import Console
    from minibert.corpus.sources import RemoteStore, Source


NOT_PLAIN = (".csv", ".tsv", ".json", ".html", ".xml")  # text, but not for people as it stands


def full_name(name: str) -> str:
    """A place as it may be kept and used from anywhere: a path made absolute; standard input and URLs as they are."""
    if name == "-" or is_elsewhere(name):
        return name
    return str(Path(name.removeprefix("file://")).absolute())


def is_elsewhere(name: str) -> bool:
    """Whether a name is a URL such as s3://bucket/text, which fsspec opens."""
    if "://" not in name:
        return False
    from minibert.remote import is_remote

    return is_remote(name)


def on_disk(name: str, cache: Path | None, console: Console) -> Path:
    """A file or a small folder (a tokenizer, a checkpoint), fetched if it is at another place."""
    if not is_elsewhere(name):
        return Path(full_name(name))
    from minibert.corpus.cache import cache_folder
    from minibert.remote import fetched_top

    return fetched_top(name, cache_folder(cache), console)


def corpus_sources(corpus: tuple[str, ...], spool: Path, *, warn: bool = True) -> list[Source] | RemoteStore | Path:
    """What the names of a corpus stand for; standard input becomes a file, for it is read more than once.

    warn: say of tables and pages that they are read as plain text.
    """
    from minibert.corpus.read import STDIN, spool_stdin
    from minibert.corpus.sources import find_sources

    if STDIN in corpus:
        refuse_several("standard input", "CORPUS")
        if len(corpus) > 1:
            raise UserError("standard input (-) and files together", where="CORPUS", fix="name one or the other")
        return [spool_stdin(stdin(), spool)]
    sources = find_sources(corpus)
    for file in sources if warn and isinstance(sources, list) else []:
        name = file if isinstance(file, Path) else file.url
        suffix = Path(file.name).suffix.lower()
        if suffix in NOT_PLAIN:
            click.echo(f"warning: {printable(str(name))}: read as plain text, line by line, {suffix} or not", err=True)
    return sources


def corpus_files(
    corpus: tuple[str, ...], spool: Path, console: Console, *, cache: Path | None = None, store: bool = False
) -> list[Path]:
    """The files of text that are meant, on this machine. store: one prepared store may be meant instead: its folder."""
    from minibert.corpus.cache import cache_folder
    from minibert.corpus.sources import on_this_machine

    sources = corpus_sources(corpus, spool)
    if not isinstance(sources, list) and not store:
        raise UserError("is a prepared store; text is needed", where=corpus[0], fix="name files of text")
    return on_this_machine(sources, cache_folder(cache), console)


@contextmanager
def labelled_file(name: str, out: Path | None) -> Iterator[Path]:
    """The file that is meant. Standard input (-) and pipes become a file without a suffix, which messages do not name.

    Raises: UserError for a folder, for what is not there, and for an input that `out` would overwrite.
    """
    path = Path(name)
    if name != "-":
        if path.is_dir() or not path.exists():
            problem = "is a folder; a file is needed" if path.is_dir() else "there is no such file"
            raise UserError(problem, where=name, fix="give the file with the records, or - for standard input")
        if path.is_file():
            if out is not None and out.exists() and out.samefile(path):
                raise UserError("would overwrite the input", where=f"--out {out}", fix="choose another --out")
            yield path
            return
    refuse_several("standard input" if name == "-" else "a pipe", name)
    with temporary_folder() as folder:
        spooled = folder / "stdin"
        with (
            nullcontext(stdin()) if name == "-" else path.open("rb") as source,
            written(folder, elsewhere=TMPDIR),
            spooled.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
        try:
            yield spooled
        except UserError as error:
            where = error.where and error.where.replace(str(spooled), "standard input" if name == "-" else name)
            raise UserError(error.problem, where, error.fix) from error


def refuse_several(what: str, where: str) -> None:
    """Raises UserError where several processes would each read a part of it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"{what} can be read by one process only", where=where, fix="write it to a file first")


def stdin() -> BinaryIO:
    """Standard input as bytes."""
    if sys.stdin is None:
        raise UserError("is closed", where="standard input", fix="pipe the text in, or name files")
    return sys.stdin.buffer


def stdin_lines() -> list[str]:
    """The lines of standard input."""
    try:
        text = stdin().read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8: byte {error.start}", where="standard input", fix="recode it first") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
