"""minibert embed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from minibert.cli.options import QUIET
from minibert.cli.predict import BATCH_SIZE, PRECISION_HELP, PRECISIONS, refuse_model_folder
from minibert.cli.sources import labelled_file


@click.command()
@click.argument("source", metavar="INPUT")
@click.option("--model", type=click.Path(path_type=Path), required=True, help="A run, or any folder with a BERT in it.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the vectors [default: standard output].")
@click.option(
    "--format", "kind", type=click.Choice(["npy", "jsonl", "parquet"]),
    help="npy: an array, (texts, width); jsonl: an object a text; parquet: a table [default: by --out's name; jsonl].",
)  # fmt: skip
@click.option(
    "--layer", type=int, default=-1, show_default=True,
    help="Whose vectors: -1 the last layer's, 0 the embeddings, 1, 2, ...; negative numbers count from the end.",
)  # fmt: skip
@click.option(
    "--pooling", type=click.Choice(["mean", "cls", "none"]), default="mean", show_default=True,
    help="mean: over a text's tokens, [CLS] and [SEP] among them; cls: [CLS] alone; none: a vector a token.",
)  # fmt: skip
@click.option("--normalize", is_flag=True, help="Make every vector 1 long, so that a product is a cosine.")
@click.option("--max-length", type=int, help="Most tokens of a text; longer ones are cut [default: the model's].")
@click.option(
    "--text-field", "--text-column", default="text", show_default=True,
    help="Field or column that holds the text; its number where CSV has no header. The others are carried over.",
)  # fmt: skip
@click.option(
    "--input-format", type=click.Choice(["auto", "txt", "csv", "tsv", "jsonl", "parquet"]), default="auto",
    show_default=True, help="auto: by INPUT's name, or by its first line; txt: a line is a text, an empty one too.",
)  # fmt: skip
@click.option("--encoding", default="utf-8", show_default=True, help="Encoding of INPUT, but for parquet.")
@click.option("--delimiter", default="", help="Character between the cells of CSV [default: , or tab, by the name].")
@click.option(
    "--header/--no-header", default=True, show_default=True,
    help="Whether the first line of CSV and TSV names the columns; else they are called 1, 2, ...",
)  # fmt: skip
@click.option(
    "--quoting/--no-quoting", default=True, show_default=True, help='Whether "..." in CSV and TSV encloses a cell.'
)
@BATCH_SIZE
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help=PRECISION_HELP)
@QUIET
def embed(
    source: str, model: Path, out: Path | None, kind: str | None, layer: int, pooling: Any, normalize: bool,
    max_length: int | None, batch_size: int, precision: str, quiet: bool, **reading: Any,
) -> None:  # fmt: skip
    """Contextual vectors for the texts of INPUT, a file or - for standard input: a record for each, in order.

    INPUT: .txt (a text a line), .jsonl, .csv, .tsv, .parquet, each also .gz .bz2 .xz .zst.
    """
    out = None if out == Path("-") else out
    refuse_model_folder(model, out)
    with labelled_file(source, out) as path:
        from accelerate import Accelerator

        from minibert.console import Console
        from minibert.vectors.embed import Embedder
        from minibert.vectors.files import check_out, embed_file, output_format
        from minibert.vectors.records import Source

        if out is not None:
            check_out(out)
        kind = output_format(kind, out, pooling)
        accelerator = Accelerator()
        embedder = Embedder(
            model, layer=layer, pooling=pooling, max_length=max_length, normalize=normalize, precision=precision,
            accelerator=accelerator,
        )  # fmt: skip
        embed_file(
            embedder, Source(path, all_fields=kind != "npy", **reading), out, kind=kind, batch_size=batch_size,
            console=Console(quiet=quiet, silent=not accelerator.is_main_process),
        )  # fmt: skip
