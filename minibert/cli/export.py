"""minibert export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from minibert.cli.options import QUIET


@click.command()
@click.option("--model", type=click.Path(path_type=Path), required=True, help="Run folder or any BERT checkpoint.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to make, new or empty.")
@click.option(
    "--format", metavar="onnx|hf|torch", default="onnx", show_default=True,
    help="onnx: model.onnx, for onnxruntime and others; hf: the five files that transformers opens; torch: model.pt2, a"
    " program of torch.export.",
)  # fmt: skip
@click.option(
    "--head", type=click.Choice(["encoder", "pretraining", "mlm", "cls", "ner", "qa"]),
    help="What stands on the encoder [default: what the model was saved with].",
)  # fmt: skip
@click.option(
    "--int8", is_flag=True,
    help="(onnx) Also model_int8.onnx: a quarter to a third of the size, faster, not the same answers; says how many"
    " change.",
)  # fmt: skip
@click.option(
    "--text", type=click.Path(path_type=Path),
    help="Text file whose first lines the result is compared and measured on [default: random tokens].",
)  # fmt: skip
@QUIET
def export(model: Path, out: Path, format: str, head: Any, int8: bool, text: Path | None, quiet: bool) -> None:
    """Write a model for other programs: ONNX, torch.export, or Hugging Face's files alone.

    With onnx and torch the result is run beside the model, and is not written if an output differs by more than
    1e-4 (onnx) or 1e-5 (torch). onnx needs the packages onnx, onnxscript and onnxruntime.
    """
    from minibert.console import Console
    from minibert.export.folder import export_checkpoint

    export_checkpoint(model, out, format=format, head=head, int8=int8, text=text, console=Console(quiet=quiet))
