"""A folder on disk <-> a model: config.json, model.safetensors and the tokenizer's files, as transformers has them.

Writing is not atomic here: the caller fills `x.partial` and renames it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from minibert.checkpoint.config import config_to_dict, load_config
from minibert.checkpoint.names import DECODER_WEIGHT, ENCODER, MLM_BIAS, WORDS, canonical, canonical_weights
from minibert.checkpoint.weights import SAFETENSORS, read_weights
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.draw import truncated_normal
from minibert.model.heads import BertLanguageModel

M = TypeVar("M", bound=nn.Module)


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
    config = model.config
    assert isinstance(config, BertConfig)
    text = json.dumps(config_to_dict(config, type(model).__name__), indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    weights = {  # named_parameters() has a tied tensor once, under the name that transformers keeps
        name: parameter.detach().to("cpu", torch.float32).contiguous() for name, parameter in model.named_parameters()
    }
    save_file(weights, folder / SAFETENSORS, metadata={"format": "pt"})  # older transformers refuse a file without
    # safetensors makes a file that none but its owner may read; a folder is to be shared as a whole.
    (folder / SAFETENSORS).chmod((folder / "config.json").stat().st_mode & 0o777)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def load_model(
    cls: type[M], folder: Path | str, *, config: BertConfig | None = None, seed: int | None = None,
    leave_out: tuple[str, ...] = (),
) -> tuple[M, LoadReport]:  # fmt: skip
    """Open a checkpoint as a model of class `cls`, in float32 on the CPU and in eval mode.

    Heads and the pooler may be missing: they get N(0, initializer_range), biases 0, drawn from `seed` (None: torch's
    global generator), and are named in the report. config: instead of the folder's, such as one with other dropout.
    leave_out: beginnings of names that are not taken from the file, such as those of a head for other labels.
    Raises: UserError where an encoder weight is missing, of another shape, or has no place in the config; where the
        decoder is not tied; and as load_config and read_weights do. A file is read in full before anything is made.
    """
    folder = Path(folder)
    config = config or load_config(folder)
    tensors, path = read_weights(folder)
    weights = canonical_weights(tensors, str(path))
    weights = {name: weight for name, weight in weights.items() if not name.startswith(leave_out)}
    with torch.device("meta"):  # no time spent on values that the file replaces
        model = cls(config)
    own = {canonical(name): (name, tuple(parameter.shape)) for name, parameter in model.named_parameters()}
    check_weights(weights, own, str(path))

    generator = None if seed is None else torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    fresh = []
    for short, (name, shape) in own.items():
        if short in weights:
            # A copy: the tensors that were read are windows on the file, which may be written again.
            state[name] = weights[short].to(torch.float32, copy=True)
        else:
            fresh.append(name)
            state[name] = first_value(name, shape, config.initializer_range, generator)
    model.load_state_dict(state, strict=False, assign=True)
    if isinstance(model, BertLanguageModel):
        model.tie_weights()
    assert not any(parameter.is_meta for parameter in model.parameters())
    used = own.keys() | ({DECODER_WEIGHT} if MLM_BIAS in own else set())
    return model.eval(), LoadReport(tuple(fresh), tuple(sorted(weights.keys() - used)))


def check_weights(weights: dict[str, Tensor], own: dict[str, tuple[str, tuple[int, ...]]], where: str) -> None:
    """Raises UserError where the file's weights are not those of this model."""
    for short, (_, shape) in own.items():
        if short not in weights:
            if short.startswith(ENCODER):
                raise UserError(f"the encoder's weight {short!r} {shape} is missing", where)
        elif tuple(weights[short].shape) != shape:
            raise UserError(f"{short!r} is {tuple(weights[short].shape)}, but the config makes it {shape}", where)
    homeless = sorted(name for name in weights if name.startswith(ENCODER) and name not in own)
    if homeless:
        raise UserError(
            f"{len(homeless)} encoder weights have no place in the config's model, {homeless[0]!r} for one",
            where,
            "the config.json beside it is of another model: num_hidden_layers and model_type are the likely ones",
        )
    decoder = weights.get(DECODER_WEIGHT)
    if MLM_BIAS in own and decoder is not None and not torch.equal(decoder, weights[WORDS]):
        raise UserError(
            f"{DECODER_WEIGHT!r} differs from the word embeddings: its output is not tied to its input, as BERT's is",
            where,
        )


def first_value(name: str, shape: tuple[int, ...], std: float, generator: torch.Generator | None) -> Tensor:
    """BERT's classic initial value for one parameter, known by its name."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if name.endswith("LayerNorm.weight"):
        return torch.ones(shape)
    return truncated_normal(shape, std, generator)


def check_vocabulary(tokenizer_length: int, config: BertConfig, where: str) -> None:
    """Raises UserError where the tokenizer has ids without an embedding; a larger, padded matrix is right."""
    if tokenizer_length > config.vocab_size:
        raise UserError(
            f"the tokenizer has {tokenizer_length} tokens but the model only {config.vocab_size} embeddings",
            where,
            "use the vocabulary that the model was trained with",
        )
