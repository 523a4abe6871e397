"""minibert export: a checkpoint -> a folder that other programs run, checked against the model before it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import torch

from minibert.atomic import refuse_full, write_whole
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint, save_config
from minibert.checkpoint.pretrained import HEADS, BertModel, Head, Pretrained, find_class
from minibert.console import Console
from minibert.errors import UserError
from minibert.export import check
from minibert.export.onnx_file import (
    FLOAT32,
    INT8,
    OPSET,
    check_packages,
    onnx_program,
    open_onnx,
    save_int8,
    save_onnx,
)
from minibert.export.program import PROGRAM, open_program, save_program, torch_program
from minibert.tokenization.tokenizer import BertTokenizer

FORMATS = ("onnx", "hf", "torch")
MOST_ONNX, MOST_TORCH = 1e-4, 1e-5  # differences of any output, in float32


def export_checkpoint(
    path: Path, out: Path, *, format: str = "onnx", head: Head | None = None, int8: bool = False,
    text: Path | None = None, console: Console,
) -> None:  # fmt: skip
    """Write a model in another format, with its config.json (labels are in it) and its tokenizer's files.

    Args: path: whatever `load` opens. out: a folder that is new or empty. format: "onnx" (model.onnx), "torch"
        (model.pt2), "hf" (the five files that transformers opens). head: as in `load`. int8: a second file,
        model_int8.onnx. text: a file whose lines the result is compared and measured on, instead of random tokens.
    Raises: UserError for what is not there or does not fit together, and where the result is not the model.
    """
    check_request(out, format, head, int8=int8, text=text)
    if format == "onnx":
        check_packages()
    model, tokenizer = open_whole(path, head, console)
    limit, types = model.config.max_position_embeddings, model.config.type_vocab_size
    lengths = [min(length, limit) for length in check.LENGTHS]
    sample = check.random_rows(tokenizer, lengths, types) if text is None else check.text_rows(tokenizer, text, limit)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.say(f"{path}: {type(model).__name__}, {parameters / 1e6:.1f} million parameters")
    if format == "onnx":
        fill = onnx_folder(model, tokenizer, sample, int8, console)
    elif format == "torch":
        fill = torch_folder(model, tokenizer, sample, console)
    else:
        fill = hf_folder(model, tokenizer)
    write_whole(out, fill)
    for file in sorted(out.iterdir()):
        console.say(f"  {file.stat().st_size / 1000:10,.0f} kB  {out / file.name}")
    if format == "onnx":
        console.say(snippet(out, FLOAT32, row_length(model, tokenizer)))


def check_request(out: Path, format: str, head: str | None, *, int8: bool, text: Path | None) -> None:
    """Raises UserError for options that do not fit together, before anything is opened."""
    if format not in FORMATS:
        raise UserError(f"there is no format {format!r}", where="--format", fix=f"one of {', '.join(FORMATS)}")
    if head is not None and head not in HEADS:
        raise UserError(f"there is no head {head!r}", where="--head", fix=f"one of {', '.join(get_args(Head))}")
    if int8 and format != "onnx":
        raise UserError(f"weights of 8 bits are for ONNX, not for {format!r}", where="--int8", fix="--format onnx")
    if text is not None and format == "hf":
        raise UserError("nothing is computed with this format", where="--text", fix="leave --text out")
    refuse_full(out)


def open_whole(path: Path, head: Head | None, console: Console) -> tuple[Pretrained, BertTokenizer]:
    """`load` without anything random in the result: an encoder may lack its pooler, which is then left out.

    Raises: UserError as load does, and where a head is not in the checkpoint.
    """
    config = load_config(path)
    kind = find_class(config, path) if head is None else HEADS[head]
    tokenizer = BertTokenizer.from_pretrained(path)
    check_vocabulary(len(tokenizer), config, str(path))
    model, report = load_model(kind, path)
    if isinstance(model, BertModel) and all(name.startswith("pooler.") for name in report.fresh):
        if report.fresh:
            model.pooler = None
            console.say(f"{path}: there is no pooler in it: pooler_output is left out")
    elif report.fresh:
        raise UserError(
            f"a part of {kind.__name__} is not in it: {', '.join(report.fresh)}", where=str(path),
            fix="--head encoder exports what is there, `minibert finetune` trains a head",
        )  # fmt: skip
    if head is None and report.ignored:
        console.warn(f"{path}: {', '.join(report.ignored)}: no part of {kind.__name__}, left out")
    return model, tokenizer


def save_description(model: Pretrained, tokenizer: BertTokenizer, folder: Path) -> None:
    """config.json and the tokenizer's files."""
    folder.mkdir(exist_ok=True)
    save_config(model, folder)
    tokenizer.save_pretrained(folder)


def hf_folder(model: Pretrained, tokenizer: BertTokenizer) -> Callable[[Path], None]:
    """What fills a folder with Hugging Face's five files."""
    return lambda folder: save_checkpoint(model, tokenizer, folder)


def torch_folder(
    model: Pretrained, tokenizer: BertTokenizer, sample: check.Sample, console: Console
) -> Callable[[Path], None]:
    """What fills a folder with a program of torch.export, and compares it with the model."""
    config = model.config
    program = torch_program(model, config.max_position_embeddings)
    extremes = check.extremes(tokenizer, config.max_position_embeddings, config.type_vocab_size)

    def fill(folder: Path) -> None:
        save_description(model, tokenizer, folder)
        save_program(program, folder)
        ours, theirs = check.runner(model), open_program(folder / PROGRAM)
        batches = [*extremes, sample]
        worst = check.check_equal(model, theirs, batches, most=MOST_TORCH, name=PROGRAM)
        say_equal(PROGRAM, worst, MOST_TORCH, batches, console)
        say_speeds({"minibert": ours, PROGRAM: theirs}, sample, console)

    return fill


def onnx_folder(
    model: Pretrained, tokenizer: BertTokenizer, sample: check.Sample, int8: bool, console: Console
) -> Callable[[Path], None]:
    """What fills a folder with a model in ONNX, and compares onnxruntime with the model."""
    config = model.config
    program = onnx_program(model, config.max_position_embeddings)
    extremes = check.extremes(tokenizer, config.max_position_embeddings, config.type_vocab_size)

    def fill(folder: Path) -> None:
        save_description(model, tokenizer, folder)
        large = save_onnx(program, folder)
        ours = check.runner(model)
        runs = {"minibert": ours, FLOAT32: open_onnx(folder / FLOAT32)}
        batches = [*extremes, sample]
        worst = check.check_equal(model, runs[FLOAT32], batches, most=MOST_ONNX, name=FLOAT32)
        console.say(f"ONNX, opset {OPSET}: batch and sequence of any size, up to {extremes[1].keep.size} tokens")
        say_equal(FLOAT32, worst, MOST_ONNX, batches, console)
        if int8:
            save_int8(folder, large)
            runs[INT8] = open_onnx(folder / INT8)
            say_losses(model, runs, sample, console)
        say_speeds(runs, sample, console)

    return fill


def say_equal(name: str, worst: float, most: float, batches: list[check.Sample], console: Console) -> None:
    """That the outputs are the model's, and where that was seen."""
    shapes = ", ".join(batch.shape for batch in batches)
    verdict = f"{most:.0e} is allowed" if worst <= most else "some token's numbers float32 does not hold better"
    console.say(f"{name} differs from minibert by at most {worst:.1e} ({verdict}); rows x tokens: {shapes}")


def say_losses(model: Pretrained, runs: dict[str, check.Run], sample: check.Sample, console: Console) -> None:
    """What 8 bits cost, in figures, and what the figures are not."""
    multi_label = model.config.extra.get("problem_type") == "multi_label_classification"
    rows = check.losses(runs["minibert"], runs[INT8], sample, multi_label=multi_label)
    columns = ["output", "largest difference", "spread of the output", "what changes"]
    console.grid(f"What 8 bits cost, on {sample.name}", columns, rows)
    console.say("  Changed answers are other than the model's, right or wrong. 8 bits cost nothing on one kind of text")
    console.say("  and points on another: measure on your own labelled text before you rely on them.")


def say_speeds(runs: dict[str, check.Run], sample: check.Sample, console: Console) -> None:
    """Milliseconds beside each other."""
    threads = torch.get_num_threads()
    title = f"Speed on {threads} thread{'s' if threads > 1 else ''} of the CPU, medians"
    console.grid(title, ["rows x tokens", *runs], check.speeds(runs, sample))


def row_length(model: Pretrained, tokenizer: BertTokenizer) -> int:
    """Most tokens of a row: what the task was trained with, for `predict` cuts there; else what the model takes."""
    ours = model.config.extra.get("minibert")
    settings = ours.get("settings", {}) if isinstance(ours, dict) else {}
    return int(settings.get("max_length") or min(model.config.max_position_embeddings, tokenizer.model_max_length))


def snippet(folder: Path, file: str, limit: int) -> str:
    """How the result is used, in five lines."""
    return f"""
import minibert, onnxruntime
tokenizer = minibert.BertTokenizer.from_pretrained({str(folder)!r})
session = onnxruntime.InferenceSession({str(folder / file)!r})
batch = tokenizer(["Some text."], max_length={limit})
outputs = session.run(None, {{name: tensor.numpy() for name, tensor in batch.items()}})
"""
