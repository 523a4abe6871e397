"""minibert trace."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from minibert.cli.options import QUIET
from minibert.cli.predict import refuse_model_folder

RUNS = Path("runs")
NARROWEST = 60


@click.command()
@click.argument("text")
@click.option(
    "--model", type=click.Path(path_type=Path),
    help="A pre-trained run, or any BERT with its head for masked tokens [default: the one run in runs/].",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Write the tour as a page, an HTML file, instead.")
@click.option("--layer", type=int, default=1, show_default=True, help="The layer that is shown in full.")
@click.option("--head", type=int, help="The head that is shown in full [default: one of median entropy].")
@click.option("--language", type=click.Choice(["en", "zh"]), help="Of the terminal's tour [default: the locale's].")
@QUIET
def trace(
    text: str, model: Path | None, out: Path | None, layer: int, head: int | None, language: Any, quiet: bool
) -> None:  # fmt: skip
    """Follow TEXT through a model step by step: tokens, embeddings, a layer with its heads, the answer.

    Every number is read from the forward pass. [MASK] in TEXT is a mask, which the model fills.
    """
    from minibert.console import Console, has_colour, print_text
    from minibert.trace.forward import only_run, open_and_follow
    from minibert.trace.told import tell
    from minibert.view.page import check_place

    console = Console(quiet=quiet)
    if model is None:
        model = only_run(RUNS)
        console.say(f"model: {model}, the only run in {RUNS}/ (--model names another)")
    refuse_model_folder(model, out)
    if out is not None:
        check_place(out)
    tour = tell(open_and_follow(model, text), text, layer=layer, head=head)
    if out is not None:
        from minibert.trace.page import trace_page

        trace_page(tour, model, out)
        console.say(f"written: {out}")
        return
    from minibert.trace.terminal import in_terminal, language_of

    colour = has_colour(sys.stdout)
    width = max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80
    shown = in_terminal(tour, language=language or language_of(os.environ), width=width, colour=colour)
    print_text(shown, styled=colour)
