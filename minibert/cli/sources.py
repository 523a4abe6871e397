"""Where text comes from: files as they are named, standard input as a file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from minibert.atomic import TMPDIR, temporary_folder, written
from minibert.errors import UserError


def corpus_files(corpus: tuple[str, ...], spool: Path) -> list[Path]:
    """The files that are meant; standard input becomes a file, for it is read more than once."""
    from minibert.corpus.read import STDIN, find_files, spool_stdin

    if STDIN in corpus:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError(
                "standard input can be read by one process only", where="CORPUS", fix="write the text to a file first"
            )
        if len(corpus) > 1:
            raise UserError("standard input (-) and files together", where="CORPUS", fix="name one or the other")
        return [spool_stdin(stdin(), spool)]
    files = find_files(corpus)
    for file in files:
        if file.suffix.lower() in (".csv", ".tsv", ".json", ".html", ".xml"):
            click.echo(f"warning: {file}: read as plain text, line by line, {file.suffix} or not", err=True)
    return files


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
