"""minibert convert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from minibert.cli.options import QUIET


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to make, new or empty.")
@click.option(
    "--head", type=click.Choice(["encoder", "pretraining", "mlm", "cls", "ner", "qa"]),
    help="What stands on the encoder [default: what the config names, else what the weights hold].",
)  # fmt: skip
@click.option(
    "--tokenizer", metavar="DIR|vocab.txt", type=click.Path(path_type=Path),
    help="The model's vocabulary, where none lies beside the weights.",
)  # fmt: skip
@click.option(
    "--verify", is_flag=True,
    help="Open the result, and SOURCE where it can, with transformers (to be installed) and compare the outputs.",
)  # fmt: skip
@click.option("--verbose", is_flag=True, help="Name every weight: as it was stored, and as it is called now.")
@QUIET
def convert(
    source: Path, out: Path, head: Any, tokenizer: Path | None, verify: bool, verbose: bool, quiet: bool
) -> None:
    """Make a checkpoint of any BERT: a folder that minibert and transformers open.

    SOURCE is a folder (a minibert run, a Hugging Face or PyTorch model, one of Google's TensorFlow 1 downloads), a file
    of weights (.safetensors .bin .pt .index) with its config beside it, or a TensorFlow checkpoint's name, such as
    chinese_L-12_H-768_A-12/bert_model.ckpt. It is only read.
    """
    from minibert.console import Console
    from minibert.convert import convert as convert_checkpoint

    console = Console(quiet=quiet)
    convert_checkpoint(source, out, head=head, tokenizer=tokenizer, verify=verify, verbose=verbose, console=console)
