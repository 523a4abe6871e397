"""minibert predict, minibert evaluate."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from minibert.cli.options import QUIET
from minibert.cli.sources import labelled_file
from minibert.cli.task_options import EvaluateCommand, PredictCommand
from minibert.errors import UserError

MODEL = click.option(
    "--model", type=click.Path(path_type=Path), required=True,
    help="A run of `minibert finetune`, or a Hugging Face folder with a task's head.",
)  # fmt: skip
BATCH_SIZE = click.option(
    "--batch-size", type=click.IntRange(min=1), default=32, show_default=True, help="Rows per forward pass."
)
PRECISIONS = ["fp32", "bf16", "fp16", "auto"]
PRECISION_HELP = "fp32: the same answers in any batch, but for rounding; auto: bf16 where the hardware has it, faster."
PRECISION = click.option(
    "--precision", type=click.Choice([*PRECISIONS, "int8"]), default="fp32", show_default=True,
    help=f"{PRECISION_HELP} int8: on CPUs, faster still; `evaluate` says what it loses.",
)  # fmt: skip


@click.command(cls=PredictCommand)
@click.argument("source", metavar="INPUT")
@MODEL
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the predictions [default: standard output].",
)
@click.option(
    "--format", "output_format", default="jsonl", show_default=True,
    help="How predictions are written: jsonl; (ner) conll: word and tag; (qa) squad: one object, id to answer.",
)  # fmt: skip
@BATCH_SIZE
@PRECISION
@QUIET
def predict(
    source: str, model: Path, out: Path | None, output_format: str, batch_size: int, precision: str, quiet: bool,
    **settings: Any,
) -> None:  # fmt: skip
    """Predict labels for the records of INPUT, a file or - for standard input: one prediction for each, in order.

    Labels in INPUT are not looked at.
    """
    out = None if out == Path("-") else out
    refuse_model_folder(model, out)
    with labelled_file(source, out) as path:
        predictor, console = opened(model, settings, precision, quiet)
        from minibert.predict import predict_file

        predict_file(predictor, path, out, output_format=output_format, batch_size=batch_size, console=console)


@click.command(cls=EvaluateCommand)
@click.argument("source", metavar="FILE")
@MODEL
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the scores [default: standard output]."
)
@BATCH_SIZE
@PRECISION
@QUIET
def evaluate(
    source: str, model: Path, out: Path | None, batch_size: int, precision: str, quiet: bool, **settings: Any
) -> None:
    """Measure a model on a labelled FILE (or - for standard input): scores as JSON, tables on the terminal.

    In another precision than float32 the scores in float32 stand beside them (fp32), and the share of records that are
    answered otherwise (differs; null where answers are numbers).
    """
    out = None if out == Path("-") else out
    refuse_model_folder(model, out)
    with labelled_file(source, out) as path:
        predictor, console = opened(model, settings, precision, quiet)
        from minibert.atomic import write_text
        from minibert.console import print_text
        from minibert.predict import evaluate_file

        scores = evaluate_file(predictor, path, batch_size=batch_size, console=console)
        text = json.dumps(without_nan(scores), ensure_ascii=False, indent=1) + "\n"
        if not predictor.accelerator or predictor.accelerator.is_main_process:
            if out is None:
                print_text(text)
            else:
                write_text(out, text)


def refuse_model_folder(model: Path, out: Path | None) -> None:
    """Results never replace a file of the model."""
    if out is not None and out.exists() and out.resolve().parent == model.resolve():
        raise UserError("would overwrite a file of the model", where=f"--out {out}", fix="choose another --out")


def without_nan(scores: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what is not a number is null."""
    return {
        key: without_nan(value) if isinstance(value, dict) else None if math.isnan(value) else value
        for key, value in scores.items()
    }


def opened(model: Path, settings: dict[str, Any], precision: str, quiet: bool) -> tuple[Any, Any]:
    """The model to predict with, and the console of this process."""
    from accelerate import Accelerator

    from minibert.console import Console
    from minibert.predict import Predictor

    flags = {name: value for name, value in settings.items() if value is not None}
    accelerator = Accelerator()
    predictor = Predictor(model, flags, accelerator=accelerator, precision=precision)
    return predictor, Console(quiet=quiet, silent=not accelerator.is_main_process)
