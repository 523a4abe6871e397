"""minibert attention."""

from __future__ import annotations

from pathlib import Path

import click

from minibert.cli.options import QUIET
from minibert.cli.predict import refuse_model_folder
from minibert.errors import UserError


@click.command()
@click.argument("texts", metavar="TEXT [TEXT2]", nargs=-1)
@click.option("--model", type=click.Path(path_type=Path), required=True, help="A run, or any folder with a BERT in it.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The page: an HTML file.")
@click.option(
    "--beside", multiple=True, metavar="TEXT", help="Another text on the same page, to compare; may be said again."
)
@click.option("--example", is_flag=True, help='In place of TEXT: "The animal didn\'t cross the street ...", twice.')
@QUIET
def attention(
    texts: tuple[str, ...], model: Path, out: Path, beside: tuple[str, ...], example: bool, quiet: bool
) -> None:
    """Where the heads of a model look: a page with every layer and head for TEXT, or for TEXT and TEXT2 as one row.

    The page needs no network. [MASK] in a text is a mask.
    """
    if example and (texts or beside):
        raise UserError("--example brings its own texts", where="TEXT", fix="leave out the one or the other")
    if not example and not 1 <= len(texts) <= 2:
        many = "no text was given" if not texts else f"{len(texts)} texts were given; a row has one or two"
        fix = "minibert attention --model RUN 'A sentence.' --out page.html; --beside compares further texts"
        raise UserError(many, where="TEXT", fix=fix)
    refuse_model_folder(model, out)
    from minibert.attention import EXAMPLE, attention_page
    from minibert.console import Console
    from minibert.view.page import check_place

    check_place(out)
    rows = [(text,) for text in EXAMPLE] if example else [texts, *((text,) for text in beside)]
    attention_page(model, rows, out)
    Console(quiet=quiet).say(f"written: {out}")
