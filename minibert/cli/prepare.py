"""minibert prepare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from minibert.atomic import temporary_folder
from minibert.cli.options import QUIET, setting_options
from minibert.cli.sources import corpus_sources, full_name, on_disk
from minibert.cli.vocab import OF_A_NEW_VOCABULARY
from minibert.config import PretrainConfig, default_of, known_fields
from minibert.errors import UserError

SETTINGS = ("encoding", "text_field", "language", "mask_unit", "lowercase", "strip_accents", "workers")


@click.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option("--out", required=True, help="Store to make or to add a shard to: a folder, or a place such as s3://...")
@click.option(
    "--tokenizer", required=True, help="vocab.txt or tokenizer folder (minibert vocab), the same for all shards."
)
@click.option(
    "--shard", default="1/1", show_default=True, metavar="I/N",
    help="Prepare part I of N alone: 1/N on one machine, 2/N on another, to N/N.",
)  # fmt: skip
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder for files of other places [default: $MINIBERT_CACHE or ~/.cache/minibert].",
)
@QUIET
@setting_options(PretrainConfig, only=SETTINGS)
def prepare(
    corpus: tuple[str, ...], out: str, tokenizer: str, shard: str, cache: Path | None, quiet: bool, **settings: Any
) -> None:
    """Tokenise text once, on one machine or on several, to a store that `minibert pretrain STORE --out RUN` reads.

    CORPUS is as in `pretrain`. With --shard I/N each machine runs the same command with its own I, and takes its share
    of the files; training on all shards is the same, to the last bit, as on one store of the whole.
    """
    number, of = shard_of(shard)
    for name, default in ((name, default_of(known_fields(PretrainConfig)[name])) for name in SETTINGS):
        settings[name] = default if settings[name] is None else settings[name]
    with temporary_folder() as spool:
        sources = corpus_sources(tuple(full_name(name) for name in corpus), spool)
        if not isinstance(sources, list):
            raise UserError("is a prepared store; text is needed", where=corpus[0], fix="name files of text")
        from minibert.console import Console
        from minibert.corpus.cache import cache_folder

        console = Console(quiet=quiet)
        place = on_disk(tokenizer, cache, console)
        given = {name: settings.pop(name) for name in ("lowercase", "strip_accents")}
        lost = [flag for name, flag in OF_A_NEW_VOCABULARY.items() if given.get(name) is not None]
        if place.is_dir() and lost:
            raise UserError(
                f"--tokenizer brings its own; these have no effect: {', '.join(lost)}", fix="leave them out"
            )
        from minibert.prepare import prepare as run
        from minibert.tokenization.tokenizer import BertTokenizer

        run(
            sources, full_name(out),
            BertTokenizer.from_pretrained(place, **given), shard=number, of=of,
            encoding=settings["encoding"], text_field=settings["text_field"], language=settings["language"],
            words=settings["mask_unit"] == "word", workers=settings["workers"], cache=cache_folder(cache),
            console=console,
        )  # fmt: skip


def shard_of(text: str) -> tuple[int, int]:
    """ "2/4" -> (2, 4)."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"is {text!r}", where="--shard", fix="give I/N with I from 1 to N, such as 1/4, 2/4, 3/4, 4/4")
    return int(match[1]), int(match[2])
