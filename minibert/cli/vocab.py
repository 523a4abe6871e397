"""minibert vocab."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from minibert.atomic import refuse_full, temporary_folder
from minibert.cli.options import QUIET
from minibert.cli.sources import corpus_files
from minibert.errors import UserError

OF_A_NEW_VOCABULARY = {
    "vocab_size": "--vocab-size", "lowercase": "--uncased/--cased", "strip_accents": "--strip-accents/--keep-accents",
}  # fmt: skip
OF_EXTENDING = {"add": "--add", "min_count": "--min-count"}


MOST = 10**7  # entries; the trainer makes room for all of them at once


@click.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True,
    help="Folder for vocab.txt and the tokenizer's files; with --extend for a whole checkpoint.",
)  # fmt: skip
@click.option(
    "--extend", type=click.Path(path_type=Path), metavar="CHECKPOINT",
    help="Instead of a new vocabulary: this model, its vocabulary grown by what the text has and it lacks.",
)  # fmt: skip
@click.option(
    "--add", type=int, default=2000, show_default=True,
    help="With --extend: tokens to add; fewer if the text holds no more.",
)  # fmt: skip
@click.option(
    "--min-count", type=int, default=3, show_default=True,
    help="With --extend: add nothing that stands fewer times in the text.",
)  # fmt: skip
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
@QUIET
def vocab(
    corpus: tuple[str, ...], out: Path, extend: Path | None, add: int, min_count: int, vocab_size: int,
    lowercase: bool, strip_accents: bool | None, encoding: str, text_field: str, quiet: bool,
) -> None:  # fmt: skip
    """Train a WordPiece vocabulary alone; `pretrain --tokenizer` and transformers take the folder.

    With --extend grow that of a checkpoint for a domain: characters that it does not know, then the words and parts of
    words that it spells in many pieces. [unusedN] rows are filled first; all other tokens keep their ids, all other
    weights their values. Go on with `pretrain --from OUT` or `finetune --model OUT`.
    """
    refuse_lost_flags(extend)
    for name, value in (("--add", add), ("--min-count", min_count)):
        if value < 1:
            raise UserError(f"is {value}", where=name, fix="give 1 or more")
    if vocab_size > MOST:
        raise UserError(
            f"is {vocab_size}; no vocabulary has so many entries", where="--vocab-size", fix=f"{MOST} or fewer"
        )
    refuse_full(out)
    with temporary_folder() as spool:
        from minibert.console import Console

        console = Console(quiet=quiet)
        files = corpus_files(corpus, spool, console)
        if extend is not None:
            from minibert.extend import extend_checkpoint

            extend_checkpoint(
                extend, files, out, add=add, min_count=min_count, encoding=encoding, text_field=text_field,
                console=console,
            )  # fmt: skip
            return
        from minibert.corpus.vocabulary import make_vocabulary

        make_vocabulary(
            files, out, size=vocab_size, lowercase=lowercase, strip_accents=strip_accents, encoding=encoding,
            text_field=text_field, console=console,
        )  # fmt: skip


def refuse_lost_flags(extend: Path | None) -> None:
    """Options of the one kind of call have no effect in the other: say so."""
    context = click.get_current_context()
    foreign = OF_EXTENDING if extend is None else OF_A_NEW_VOCABULARY
    given = [
        flag for name, flag in foreign.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given and extend is None:
        raise UserError(
            "belongs to --extend, which is not there", where=" and ".join(given),
            fix="add --extend CHECKPOINT, or ask for a new vocabulary's size with --vocab-size",
        )  # fmt: skip
    if given:
        raise UserError(
            "--extend goes on with the checkpoint's own vocabulary and how it reads text; its embeddings know no other",
            where=" and ".join(given), fix="leave it out; --add says how many tokens are added",
        )  # fmt: skip
