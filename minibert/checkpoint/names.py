"""Names of weights: what other programs wrote -> what the model calls them.

Known forms: transformers (with and without `bert.`); anything put before all names (`module.`, `model.`, ...); pieces
put inside names by torch.compile, FSDP and activation checkpointing; old LayerNorm names (`gamma`, `beta`); Google's
TensorFlow 1 names, whose kernels are transposed; buffers that are no weights (`position_ids`); and the three ways in
which a tied decoder is stored: absent, in full, or its bias alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from minibert.errors import UserError

ENCODER = ("embeddings.", "encoder.")
WORDS = "embeddings.word_embeddings.weight"
CLASSIFIER = "classifier.weight"
MLM_BIAS, DECODER_WEIGHT, DECODER_BIAS = (
    "cls.predictions.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
)
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
WRAPPERS = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# Google's BERT and the optimizers of TensorFlow 1: moments beside each weight, and numbers of the training.
TENSORFLOW_STATE = re.compile(
    r"(^|/)(adam_[mv]|Adam(_1)?|LAMB(_1)?|lamb_[mv]|Momentum|beta[12]_power|(global|good|bad)_steps?|loss_scale)$"
)
TENSORFLOW_HEADS = {  # (labels, hidden), as here: not transposed
    "cls/predictions/output_bias": MLM_BIAS,
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",  # run_squad.py
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": CLASSIFIER,  # run_classifier.py
    "output_bias": "classifier.bias",
}


@dataclass(frozen=True)
class Mapped:
    """A stored weight and its canonical name, as in a bare BertModel: without `bert.`, while heads keep their own names
    (`cls.predictions.bias`). changes: in words, what the name went through beside `bert.`."""

    stored: str
    name: str
    transposed: bool
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """kept: weights, in stored order. dropped: stored names of what is no weight, with the reason."""

    kept: tuple[Mapped, ...]
    dropped: dict[str, str]


def canonical(name: str) -> str:
    """The canonical name of one of the model's own parameters."""
    return name.removeprefix("bert.")


def map_names(stored_names: Iterable[str], where: str) -> Names:
    """Find the canonical name of everything in a file.

    Raises: UserError where two stored names mean the same weight, or there are several BERTs. where: the file.
    """
    dropped: dict[str, str] = {}
    first: list[tuple[str, str, bool, list[str]]] = []
    for stored in stored_names:
        if TENSORFLOW_STATE.search(stored):
            dropped[stored] = "the training's own, no weight"
            continue
        name, transposed = from_tensorflow(stored) if "/" in stored or stored in TENSORFLOW_HEADS else (stored, False)
        changes = ["TensorFlow's name"] if name != stored else []
        if transposed:
            changes.append("a kernel, transposed")
        bare = WRAPPERS.sub("", name)
        if bare != name:
            changes.append("a wrapper's name taken out")
        first.append((stored, bare, transposed, changes))

    prefix = find_prefix([name for _, name, _, _ in first], where)
    outer = prefix.removesuffix("bert.") if f".{prefix}".endswith(".bert.") else prefix
    present = {name for _, name, _, _ in first}
    kept: dict[str, Mapped] = {}
    for stored, name, transposed, changes in first:
        for beginning in (prefix, outer):
            if beginning and name.startswith(beginning):
                name = name.removeprefix(beginning)
                if outer:
                    changes.append(f"{outer!r} taken off")
                break
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            if name.endswith("LayerNorm" + old):
                name = name.removesuffix(old) + new
                changes.append("gamma, beta -> weight, bias")
        if name in BUFFERS:
            dropped[stored] = "a buffer, no weight"
            continue
        if name == DECODER_BIAS and outer + MLM_BIAS not in present:
            name = MLM_BIAS
            changes.append("the decoder's bias is the one bias")
        if name in kept:
            raise UserError(f"both {kept[name].stored!r} and {stored!r} are the weight {name!r}", where)
        kept[name] = Mapped(stored, name, transposed, tuple(changes))
    return Names(tuple(kept.values()), dropped)


def canonical_weights(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Every weight under its canonical name and in the model's layout.

    A stored decoder stays, for the reader to compare with what it is tied to.
    """
    weights: dict[str, Tensor] = {}
    for mapped in map_names(tensors, where).kept:
        tensor = tensors[mapped.stored]
        weights[mapped.name] = tensor.t().contiguous() if mapped.transposed and tensor.ndim == 2 else tensor
    return weights


def find_prefix(names: Iterable[str], where: str) -> str:
    """What stands before `embeddings.word_embeddings.weight`, "bert." for one; "" where that is not there."""
    prefixes = [name.removesuffix(WORDS) for name in names if f".{name}".endswith(f".{WORDS}")]
    if len(prefixes) > 1:
        raise UserError(
            f"holds {len(prefixes)} BERTs, under {prefixes[0]!r} and {prefixes[1]!r}: which is meant?", where,
            "save the state_dict() of that one alone",
        )  # fmt: skip
    return prefixes[0] if prefixes else ""


def from_tensorflow(stored: str) -> tuple[str, bool]:
    """Google's name -> transformers' name, but for gamma and beta; and whether the array is to be transposed."""
    if stored in TENSORFLOW_HEADS:
        return TENSORFLOW_HEADS[stored], False
    name = re.sub(r"(^|/)layer_(\d+)(?=/)", r"\1layer/\2", stored).replace("/", ".")
    if name.endswith("_embeddings"):
        return f"{name}.weight", False
    if name.endswith(".kernel"):
        return f"{name.removesuffix('kernel')}weight", True
    return name, False
