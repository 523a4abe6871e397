"""What a run begins with: the model, how long to train, and both in words."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model
from minibert.config import PretrainConfig
from minibert.console import Console
from minibert.errors import UserError
from minibert.model.bert import BertConfig, BertEncoder
from minibert.model.heads import BertForPreTraining
from minibert.model.init import initialise
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.data import PretrainingData
from minibert.training.memory import free_memory, gb
from minibert.training.optim import StepSchedule, TimeSchedule

MOST_UNKNOWN = 0.5  # of the tokens; what is left says next to nothing
M = TypeVar("M", bound=nn.Module)


def check_positions(config: PretrainConfig, source: Path | None) -> None:
    """Refuse examples that are longer than the model's inputs may be."""
    longest = max(config.max_length, config.long_length)
    limit = load_config(source).max_position_embeddings if source else config.max_positions
    if longest > limit:
        fix = f"take --max-length {limit} or less" if source else f"add --max-positions {longest}"
        where = str(source) if source else "--max-length"
        raise UserError(f"examples of {longest} tokens are longer than the model's {limit} positions", where, fix)


def refuse_unknown(share: float, where: str) -> None:
    """Refuse to train where most of what the model would see is [UNK]."""
    if share > MOST_UNKNOWN:
        raise UserError(
            f"{share:.0%} of the tokens are [UNK]: the vocabulary does not know this text", where=where,
            fix="take a model or --tokenizer for the text's language and script; if it is right, look at the file's "
            "encoding",
        )  # fmt: skip


def make_model(
    config: PretrainConfig, tokenizer: BertTokenizer, token_counts: np.ndarray, source: Path | None, console: Console,
    *, word_vectors: np.ndarray | None = None, quiet: bool = False,
) -> BertForPreTraining:  # fmt: skip
    """A new model (word_vectors: see initialise), or one from a checkpoint; what the checkpoint lacks starts fresh and
    is named."""
    if source is not None:
        stored = load_config(source)
        shape = replace(
            stored, hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=config.attention_dropout,
        )  # fmt: skip
        check_vocabulary(len(tokenizer), shape, str(source))
        model, report = load_model(BertForPreTraining, source, config=shape, seed=config.seed)
        if config.nsp and shape.type_vocab_size < 2:
            raise UserError("has one token type; sentence pairs need two", where=str(source), fix="add --no-nsp")
        if not quiet:
            console.say(f"weights: {source}")
            if rates(stored) != rates(shape):
                console.say(f"  dropout: {rates(shape)}; the checkpoint has {rates(stored)}")
            if report.fresh:
                console.say(f"  not in there, so they start fresh: {', '.join(report.fresh)}")
        return model
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=config.hidden_size, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, intermediate_size=config.ffn_size or 4 * config.hidden_size,
        hidden_act=config.activation, hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.attention_dropout, max_position_embeddings=config.max_positions,
        pad_token_id=tokenizer.pad_token_id, norm=config.norm, positions=config.positions,
    )  # fmt: skip
    model = new_model(BertForPreTraining, shape, "take a smaller recipe or --hidden-size")
    initialise(
        model, scheme=config.init, seed=config.seed, head_share=config.neighbour_share, token_counts=token_counts,
        word_vectors=word_vectors,
    )  # fmt: skip
    return model


def new_model(kind: type[M], shape: BertConfig, fix: str) -> M:
    """A model of random weights. Raises: UserError where there is no memory for it, before it is made."""
    D, wide = shape.hidden_size, shape.intermediate_size
    words = (shape.vocab_size + shape.max_position_embeddings) * D
    size = 4 * (words + shape.num_hidden_layers * (4 * D * D + 2 * D * wide))  # float32; biases and norms are little
    free = free_memory(torch.device("cpu"))
    if free is not None and size > free:
        raise UserError(
            f"a model of {size / 4e6:,.0f} M parameters takes {gb(size)} of memory, and {gb(free)} are free", fix=fix
        )
    try:
        return kind(shape)
    except (RuntimeError, MemoryError, OverflowError) as error:
        of = f"{shape.num_hidden_layers} layers, {shape.hidden_size} wide, {shape.vocab_size} tokens"
        raise UserError(f"a model of {of} does not fit into memory", fix=fix) from error


def save_memory(model: nn.Module) -> None:
    """Switch gradient checkpointing on in all encoders of a model."""
    for module in model.modules():
        if isinstance(module, BertEncoder):
            module.gradient_checkpointing = True


def rates(config: BertConfig) -> str:
    """Both dropout rates in words."""
    return f"{config.hidden_dropout_prob:g}, {config.attention_probs_dropout_prob:g} on attention"


def as_trained(
    config: PretrainConfig, shape: BertConfig, tokenizer: BertTokenizer, source: Path | None
) -> PretrainConfig:
    """The settings as settings.json has them: where the model came from a checkpoint, that model's."""
    if source is None:
        return config
    shown: dict[str, Any] = {
        "layers": shape.num_hidden_layers, "hidden_size": shape.hidden_size, "heads": shape.num_attention_heads,
        "ffn_size": shape.intermediate_size, "activation": shape.hidden_act, "norm": shape.norm,
        "positions": shape.positions, "max_positions": shape.max_position_embeddings, "vocab_size": len(tokenizer),
        "lowercase": tokenizer.lowercase, "strip_accents": tokenizer.strip_accents, "init": "normal",
        "word_init": "random",
    }  # fmt: skip
    return replace(config, **shown)


def make_schedule(
    config: PretrainConfig, data: PretrainingData, accelerator: Accelerator, *, elapsed: float, reserve: float
) -> StepSchedule | TimeSchedule:
    """How long training lasts: so many steps, or so long by the clock."""
    if config.minutes is None:
        return StepSchedule(config.steps or data.steps_of(config.epochs or 1))
    seconds = 60 * config.minutes
    if elapsed <= reserve and elapsed + reserve >= seconds:  # nothing trained yet, and no time to
        raise UserError(
            f"{config.minutes:g} minutes leave no time to train: measuring on held-out text takes {reserve:.0f} s",
            where="--minutes", fix="give more time, or lower --eval-examples",
        )  # fmt: skip

    def agree(values: list[float]) -> list[float]:
        return list(broadcast_object_list(values)) if accelerator.num_processes > 1 else values

    return TimeSchedule(seconds, reserve=reserve, elapsed=elapsed, agree=agree)


def plan_in_words(
    config: PretrainConfig, model: BertForPreTraining, accelerator: Accelerator, schedule: StepSchedule | TimeSchedule
) -> str:
    """What is about to be trained, in two lines: the model; how long, how much at once, on what."""
    shape = model.config
    parameters = sum(p.numel() for p in model.parameters())
    length = f"{schedule.steps:,}" if isinstance(schedule, StepSchedule) else f"{config.minutes:g} minutes,"
    processes = accelerator.num_processes
    rounds = ceil(config.batch_size / (config.micro_batch_size * processes))
    at_once = min(config.micro_batch_size, ceil(config.batch_size / processes))
    at_once_in_words = f", {at_once} at a time" if rounds > 1 else ""
    if processes > 1:
        at_once_in_words = f", {f'{rounds} x ' if rounds > 1 else ''}{at_once} on each of {processes} processes"
    precision = "fp32" if accelerator.mixed_precision == "no" else accelerator.mixed_precision
    return (
        f"model: {shape.num_hidden_layers} layers, {shape.hidden_size} wide, {parameters / 1e6:.1f} M parameters\n"
        f"training: {length} steps of {config.batch_size} sequences{at_once_in_words}, "
        f"{precision} on {accelerator.device}"
    )
