"""minibert fill-mask."""

from __future__ import annotations

import json
from pathlib import Path

import click

from minibert.cli.sources import stdin_lines
from minibert.errors import UserError


@click.command("fill-mask")
@click.option("--model", type=click.Path(path_type=Path), required=True, help="Run folder or any BERT checkpoint.")
@click.option("--top-k", type=click.IntRange(min=1), default=5, show_default=True, help="Answers for each [MASK].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a text, for programs.")
@click.argument("texts", nargs=-1)
def fill_mask(model: Path, top_k: int, as_json: bool, texts: tuple[str, ...]) -> None:
    """Let a model guess what stands at each [MASK] of the TEXTS (or of the lines of standard input, with -)."""
    if not texts:
        raise UserError("no text was given", where="TEXTS", fix="minibert fill-mask --model RUN 'The [MASK] is blue.'")
    lines = stdin_lines() if texts == ("-",) else list(texts)
    from minibert.console import print_text
    from minibert.fill_mask import fill_masks, in_lines

    for text, answers in zip(lines, fill_masks(model, lines, top_k=top_k), strict=True):
        if as_json:
            print_text(json.dumps({"text": text, "masks": answers}, ensure_ascii=False) + "\n")
        else:
            print_text(in_lines(text, answers) + "\n")
