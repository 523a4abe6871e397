"""minibert vocab."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from minibert.cli.sources import corpus_files
from minibert.errors import UserError


@click.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for vocab.txt and the tokenizer's files."
)
@click.option(
    "--vocab-size",
    type=int,
    default=8000,
    show_default=True,
    help="Entries; never more, fewer if the text holds no more.",
)
@click.option(
    "--uncased/--cased", "lowercase", default=True, help="Lower-case the text, or keep the case [default: --uncased]."
)
@click.option(
    "--strip-accents/--keep-accents", default=None, help="Drop accents and other marks [default: as --uncased]."
)
@click.option("--encoding", default="utf-8", show_default=True, help="Encoding of text files.")
@click.option(
    "--text-field", default="text", show_default=True, help="Field that holds the text in .jsonl and .parquet."
)
@click.option("--quiet", is_flag=True, help="Print warnings and errors alone.")
def vocab(
    corpus: tuple[str, ...], out: Path, vocab_size: int, lowercase: bool, strip_accents: bool | None, encoding: str,
    text_field: str, quiet: bool,
) -> None:  # fmt: skip
    """Train a WordPiece vocabulary alone; `pretrain --tokenizer` and transformers take the folder."""
    from minibert.console import Console
    from minibert.corpus.vocabulary import make_vocabulary

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("is there already and is not empty", where=str(out), fix="choose another --out")
    with tempfile.TemporaryDirectory(prefix="minibert-") as spool:
        make_vocabulary(
            corpus_files(corpus, Path(spool)), out, size=vocab_size, lowercase=lowercase, strip_accents=strip_accents,
            encoding=encoding, text_field=text_field, console=Console(quiet=quiet),
        )  # fmt: skip
