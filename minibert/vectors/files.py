"""A file of texts -> a file of vectors, a block at a time: memory stays flat however long the file is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from minibert.atomic import write_whole
from minibert.console import Console, part_of, print_text
from minibert.errors import UserError
from minibert.vectors.embed import Embedder, Vectors, cut_note
from minibert.vectors.records import Record, Source
from minibert.vectors.writers import SUFFIXES, JsonWriter, Tokens, Writer, writer

BLOCK = 4096  # records with one vector each that are read, computed and written at a time
BLOCK_OF_TOKENS = 128  # records with a vector for each token


def output_format(name: str | None, out: Path | None, pooling: str) -> str:
    """npy, jsonl or parquet: what the user says, or what the output's name says; standard output is JSONL.

    Raises: UserError where neither says it, and for what a format cannot hold.
    """
    if out is None:
        if name not in (None, "jsonl"):
            raise UserError(f"standard output takes JSONL, not {name}", "--format", "add --out FILE")
        return "jsonl"
    found = name or SUFFIXES.get(out.suffix.lower())
    if found is None:
        raise UserError("its name says no format", f"--out {out}", f"end it in {' '.join(SUFFIXES)}, or --format")
    if found == "npy" and pooling == "none":
        raise UserError(
            "an array has rows of one length, and texts have different numbers of tokens", "--format npy",
            "--format jsonl or parquet, or --pooling mean or cls",
        )  # fmt: skip
    return found


def check_out(out: Path) -> None:
    """Raises UserError for an output that is there already; an empty file is none."""
    if out.is_dir() or (out.exists() and out.stat().st_size):
        what = "is a folder" if out.is_dir() else "is there already"
        raise UserError(what, f"--out {out}", "choose another --out")


def embed_file(
    embedder: Embedder, source: Source, out: Path | None, *, kind: str, batch_size: int, console: Console
) -> None:
    """Vectors of a file's texts, one record for each in order, to a file or, as JSONL, to standard output.

    Args: kind: of output_format. The file is read twice: once before anything is computed, to see that it is right.
    """
    target = writer(kind, width=embedder.width, tokens=embedder.pooling == "none")
    for block in blocks(source, BLOCK):
        target.check(block)
    if not target.total:
        raise UserError("holds no texts", str(source.path), "a text a line, or a record with a text")
    for note in source.notes:
        console.say(f"{'standard input' if source.path.name == 'stdin' else source.path.name}: {note}")
    main = embedder.accelerator is None or embedder.accelerator.is_main_process
    found = results(embedder, source, target, batch_size, console)
    if out is None or not main:
        for result in found:
            if main:
                assert isinstance(target, JsonWriter)
                print_text(target.text(*result))
        return

    def fill(partial: Path) -> None:
        target.open(partial)
        try:
            for result in found:
                target.write(*result)
        finally:
            target.close()

    write_whole(out, fill)
    console.say(f"{target.total:,} texts: {out}")


def results(
    embedder: Embedder, source: Source, target: Writer, batch_size: int, console: Console
) -> Iterator[tuple[list[Record], list[Tokens], list[Vectors]]]:
    """All records with their tokens and vectors, block by block."""
    done = cut = 0
    with console.progress("embedding", target.total, unit="texts") as update:
        for block in blocks(source, BLOCK_OF_TOKENS if target.tokens else BLOCK):
            rows, more = embedder.rows([record.text for record in block], spans=target.tokens)
            vectors = embedder.vectors(rows, batch_size=batch_size, progress=part_of(update, done, len(block)))
            names = embedder.tokenizer.convert_ids_to_tokens
            tokens = [Tokens(names(row.ids[1:-1]) if target.tokens else [], row.spans) for row in rows]
            yield block, tokens, vectors
            done, cut = done + len(block), cut + more
            update(done)
    if done != target.total:
        raise UserError(f"changed while it was read: {target.total} records, then {done}", str(source.path))
    if cut:
        console.say(cut_note(cut, done, embedder.max_length))


def blocks(records: Iterable[Record], size: int) -> Iterator[list[Record]]:
    """The records, a list at a time."""
    left = iter(records)
    while block := list(islice(left, size)):
        yield block
