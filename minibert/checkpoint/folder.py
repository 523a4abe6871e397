"""A folder on disk <-> a model: config.json, model.safetensors and the tokenizer's files, as transformers has them.

Writing is not atomic here: the caller fills `x.partial` and renames it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from minibert.checkpoint.config import config_to_dict, load_config, name_labels, with_labels
from minibert.checkpoint.names import (
    CLASSIFIER,
    DECODER_BIAS,
    DECODER_WEIGHT,
    ENCODER,
    MLM_BIAS,
    WORDS,
    canonical,
    canonical_weights,
)  # fmt: skip
from minibert.checkpoint.weights import SAFETENSORS, read_weights
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.draw import truncated_normal
from minibert.model.heads import BertLanguageModel

M = TypeVar("M", bound=nn.Module)
LAYER = re.compile(r"encoder\.layer\.(\d+)\.")


class SavesItself(Protocol):
    """A tokenizer, as far as this module knows one."""

    def save_pretrained(self, folder: Path, /) -> object:
        """Write its files into the folder."""


@dataclass(frozen=True)
class LoadReport:
    """fresh: parameters that the file lacks and that have initial values. ignored: weights that have no place here."""

    fresh: tuple[str, ...]
    ignored: tuple[str, ...]


def save_checkpoint(model: nn.Module, tokenizer: SavesItself | None, folder: Path | str) -> None:
    """Write a folder that transformers opens: float32, each tied weight once.

    model: one of the model classes itself, not wrapped for several devices or compiled; its `config` is written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_config(model, folder)
    weights = {  # named_parameters() has a tied tensor once, under the name that transformers keeps
        name: parameter.detach().to("cpu", torch.float32).contiguous() for name, parameter in model.named_parameters()
    }
    save_file(weights, folder / SAFETENSORS, metadata={"format": "pt"})  # older transformers refuse a file without
    # safetensors makes a file that none but its owner may read; a folder is to be shared as a whole.
    (folder / SAFETENSORS).chmod((folder / "config.json").stat().st_mode & 0o777)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def save_config(model: nn.Module, folder: Path) -> None:
    """Write config.json."""
    config = model.config
    assert isinstance(config, BertConfig)
    text = json.dumps(config_to_dict(config, type(model).__name__), indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def load_model(
    cls: type[M], folder: Path | str, *, config: BertConfig | None = None, seed: int | None = None,
    leave_out: tuple[str, ...] = (), num_labels: int | None = None,
) -> tuple[M, LoadReport]:  # fmt: skip
    """Open a checkpoint as a model of class `cls`, in float32 on the CPU and in eval mode.

    Heads and the pooler may be missing: they get N(0, initializer_range), biases 0, drawn from `seed` (None: torch's
    global generator), and are named in the report. config: instead of the folder's, such as one with other dropout.
    leave_out: beginnings of names that are not taken from the file, such as those of a head for other labels.
    num_labels: outputs of a classification or tagging head; None: what the folder's config says, or where it says
    nothing, what the weights have. A stored head with another number is left out.
    Raises: UserError where an encoder weight is missing, of another shape, or has no place in the config; where the
        decoder is not tied; where a weight is not finite; and as load_config and read_weights do. A file is
        read in full before anything is made.
    """
    folder = Path(folder)
    settled = config or load_config(folder)
    tensors, path = read_weights(folder)
    weights = canonical_weights(tensors, str(path))
    weights = {name: weight for name, weight in weights.items() if not name.startswith(leave_out)}
    if config is None:
        settled, weights = settle_labels(settled, weights, num_labels)
    return build_model(cls, settled, weights, str(path), seed=seed)


def settle_labels(
    config: BertConfig, weights: dict[str, Tensor], num_labels: int | None = None
) -> tuple[BertConfig, dict[str, Tensor]]:
    """The config with as many labels as are asked for, or where it says nothing as the stored head has; the weights
    without a head that has another number. See load_model."""
    head = weights.get(CLASSIFIER)
    rows = head.shape[0] if head is not None and head.ndim == 2 else 0
    if num_labels is None:
        if rows and not config.extra.get("id2label") and rows != config.num_labels:
            config = replace(config, extra={**config.extra, **name_labels(rows)})
        return config, weights
    if num_labels != config.num_labels:
        config = replace(config, extra=with_labels(config.extra, num_labels))
    if rows != num_labels:
        weights = {name: weight for name, weight in weights.items() if not name.startswith("classifier.")}
    return config, weights


def build_model(
    cls: type[M], config: BertConfig, weights: Mapping[str, Tensor], where: str, *, seed: int | None = None
) -> tuple[M, LoadReport]:
    """A model of weights by canonical name; see load_model. where: the file that they are of."""
    check_encoder(weights, config, where)
    with torch.device("meta"):  # no time spent on values that the file replaces, nor memory on sizes that are wrong
        model = cls(config)
    own = {canonical(name): (name, tuple(parameter.shape)) for name, parameter in model.named_parameters()}
    check_weights(weights, own, where)

    generator = None if seed is None else torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    fresh, spoilt = [], []
    for short, (name, shape) in own.items():
        if short in weights:
            # A copy: the tensors that were read are windows on the file, which may be written again.
            state[name] = weights[short].to(torch.float32, copy=True)
            if not state[name].sum(dtype=torch.float64).isfinite():  # a sum of finite float32s is finite there
                spoilt.append(short)
        else:
            fresh.append(name)
            state[name] = first_value(name, shape, config.initializer_range, generator)
    if spoilt:
        problem = f"{len(spoilt)} weights are not finite, {spoilt[0]} the first"
        raise UserError(problem, where, "take a checkpoint from before the training went astray")
    model.load_state_dict(state, strict=False, assign=True)
    if isinstance(model, BertLanguageModel):
        model.tie_weights()
    assert not any(parameter.is_meta for parameter in model.parameters())
    used = own.keys() | ({DECODER_WEIGHT, DECODER_BIAS} if MLM_BIAS in own else set())
    return model.eval(), LoadReport(tuple(fresh), tuple(sorted(weights.keys() - used)))


def check_encoder(weights: Mapping[str, Tensor], config: BertConfig, where: str) -> None:
    """Raises UserError where there is no BERT or one with another number of layers: before any layer is made."""
    if WORDS not in weights:
        others = f", {next(iter(weights))!r} for one" if weights else ""
        problem = f"the encoder's weight {WORDS!r} is missing among its {len(weights)} tensors{others}"
        raise UserError(problem, where, "take the file of a BERT's weights")
    layers = len({match[1] for name in weights if (match := LAYER.match(name))})
    if layers != config.num_hidden_layers:
        raise UserError(
            f"the weights have {layers} layers, the config {config.num_hidden_layers} (num_hidden_layers)", where,
            "the config.json beside it is of another model",
        )  # fmt: skip


def check_weights(weights: Mapping[str, Tensor], own: Mapping[str, tuple[str, tuple[int, ...]]], where: str) -> None:
    """Raises UserError where the file's weights are not those of this model."""
    for short, (_, shape) in own.items():
        if short not in weights:
            if short.startswith(ENCODER):
                raise UserError(f"the encoder's weight {short!r} {shape} is missing", where)
            continue
        found = tuple(weights[short].shape)
        if short == CLASSIFIER and found != shape and found[1:] == shape[1:]:
            raise UserError(
                f"the head has {found[0]} labels, the config {shape[0]}", where,
                f"in Python num_labels={found[0]} takes the head, another number draws a new one; or mend id2label in"
                " config.json",
            )  # fmt: skip
        if found != shape:
            raise UserError(f"{short!r} is {found}, but the config makes it {shape}", where)
        if not weights[short].is_floating_point():
            kind = str(weights[short].dtype).removeprefix("torch.")
            fix = "weights are floating point; take a file that is not quantized"
            raise UserError(f"{short!r} is stored as {kind}", where, fix)
    homeless = sorted(name for name in weights if name.startswith(ENCODER) and name not in own)
    if homeless:
        raise UserError(
            f"{len(homeless)} encoder weights have no place in the config's model, {homeless[0]!r} for one",
            where,
            "the config.json beside it is of another model: model_type is the likely cause",
        )
    if MLM_BIAS not in own:
        return
    for name, tied, words in (
        (DECODER_WEIGHT, WORDS, "the word embeddings: its output is not tied to its input"),
        (DECODER_BIAS, MLM_BIAS, f"{MLM_BIAS!r}: it has two biases and not one"),
    ):
        stored = weights.get(name)
        if stored is not None and not torch.equal(stored.float(), weights[tied].float()):
            raise UserError(f"{name!r} differs from {words}, as BERT's is", where)


def first_value(name: str, shape: tuple[int, ...], std: float, generator: torch.Generator | None) -> Tensor:
    """BERT's classic initial value for one parameter, known by its name."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if name.endswith("LayerNorm.weight"):
        return torch.ones(shape)
    return truncated_normal(shape, std, generator)


def check_length(max_length: int, config: BertConfig) -> None:
    """Raises UserError where rows of so many tokens are longer than the model's inputs may be."""
    limit = config.max_position_embeddings
    if max_length > limit:
        raise UserError(
            f"rows of {max_length} tokens are longer than the model's {limit} positions", where="--max-length",
            fix=f"take --max-length {limit} or less",
        )  # fmt: skip


def check_vocabulary(tokenizer_length: int, config: BertConfig, where: str) -> None:
    """Raises UserError where the tokenizer has ids without an embedding; a larger, padded matrix is right."""
    if tokenizer_length > config.vocab_size:
        raise UserError(
            f"the tokenizer has {tokenizer_length} tokens but the model only {config.vocab_size} embeddings",
            where,
            "use the vocabulary that the model was trained with",
        )
