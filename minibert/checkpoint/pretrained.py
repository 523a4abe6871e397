"""The model classes that users import: the networks of minibert.model, which know tensors only, plus the disk."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args, overload

from torch import nn

from minibert.checkpoint.config import MOST_LABELS, load_config
from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint
from minibert.checkpoint.names import CLASSIFIER, DECODER_BIAS, MLM_BIAS, map_names
from minibert.checkpoint.weights import read_weights
from minibert.errors import UserError
from minibert.model import bert, heads
from minibert.tokenization.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from minibert.model.bert import BertConfig

P = TypeVar("P", bound="Pretrained")
Head = Literal["encoder", "pretraining", "mlm", "cls", "ner", "qa"]


class Pretrained(nn.Module):
    """from_pretrained and save_pretrained, as people know them from transformers."""

    config: BertConfig

    @classmethod
    def from_pretrained(cls: type[P], path: str | Path, *, num_labels: int | None = None) -> P:
        """Open a minibert run or any folder with a BERT in it: float32, on the CPU, in eval mode.

        Args: num_labels: outputs of a classification or tagging head. Where the checkpoint has another number, its
            head and its names of labels are left out, and a new head is drawn.
        Warns where parts of the model start fresh, and names them. Raises: UserError as load_model does.
        """
        return opened(cls, path, num_labels)

    def save_pretrained(self, path: str | Path) -> None:
        """Write config.json and model.safetensors; the tokenizer has its own save_pretrained."""
        save_checkpoint(self, None, path)


class BertModel(Pretrained, bert.BertModel):
    """bert.BertModel that opens and saves itself."""


class BertForPreTraining(Pretrained, heads.BertForPreTraining):
    """heads.BertForPreTraining that opens and saves itself."""


class BertForMaskedLM(Pretrained, heads.BertForMaskedLM):
    """heads.BertForMaskedLM that opens and saves itself."""


class BertForSequenceClassification(Pretrained, heads.BertForSequenceClassification):
    """heads.BertForSequenceClassification that opens and saves itself."""


class BertForTokenClassification(Pretrained, heads.BertForTokenClassification):
    """heads.BertForTokenClassification that opens and saves itself."""


class BertForQuestionAnswering(Pretrained, heads.BertForQuestionAnswering):
    """heads.BertForQuestionAnswering that opens and saves itself."""


HEADS: Mapping[Head, type[Pretrained]] = {
    "encoder": BertModel,
    "pretraining": BertForPreTraining,
    "mlm": BertForMaskedLM,
    "cls": BertForSequenceClassification,
    "ner": BertForTokenClassification,
    "qa": BertForQuestionAnswering,
}


def opened(cls: type[P], path: str | Path, num_labels: int | None) -> P:
    """from_pretrained; a warning points at whoever called the function that called this one."""
    if num_labels is not None and not 1 <= num_labels <= MOST_LABELS:
        raise UserError(f"num_labels is {num_labels}", fix=f"a number from 1 to {MOST_LABELS:,}")
    model, report = load_model(cls, path, num_labels=num_labels)
    if report.fresh:
        what = f"{cls.__name__} starts with fresh weights for what {path} lacks: {', '.join(report.fresh)}"
        warnings.warn(what, stacklevel=3)
    return model


def find_class(config: BertConfig, path: Path | str) -> type[Pretrained]:
    """The class of what lies in a folder: see choose_class. The weights' names are read where the config is silent."""
    if config.extra.get("architectures"):
        return choose_class(config, ())
    tensors, file = read_weights(Path(path))
    return choose_class(config, {mapped.name for mapped in map_names(tensors, str(file)).kept})


def choose_class(config: BertConfig, names: Collection[str]) -> type[Pretrained]:
    """The class that a config names as its architecture, or where it names none what the weights hold.

    names: the weights', canonical. An architecture that is none of minibert's gives the encoder alone.
    """
    named = [str(name).removeprefix("Megatron") for name in config.extra.get("architectures") or ()]
    if named:
        classes = {kind.__name__: kind for kind in HEADS.values()}
        return next((classes[name] for name in named if name in classes), BertModel)
    if MLM_BIAS in names or DECODER_BIAS in names:
        return BertForPreTraining if "cls.seq_relationship.weight" in names else BertForMaskedLM
    if CLASSIFIER in names:
        return BertForSequenceClassification if "pooler.dense.weight" in names else BertForTokenClassification
    return BertForQuestionAnswering if "qa_outputs.weight" in names else BertModel


def foreign_architecture(config: BertConfig) -> str | None:
    """What to say of a config whose architecture is none of minibert's."""
    named = config.extra.get("architectures")
    if not named or choose_class(config, ()) is not BertModel or any(name.endswith("BertModel") for name in named):
        return None
    return f"its architecture, {', '.join(named)}, is none of minibert's: the encoder alone is opened"


@overload
def load(path: str | Path, head: None = ..., *, num_labels: int | None = ...) -> tuple[Pretrained, BertTokenizer]: ...
@overload
def load(
    path: str | Path, head: Literal["encoder"], *, num_labels: int | None = ...
) -> tuple[BertModel, BertTokenizer]: ...
@overload
def load(
    path: str | Path, head: Literal["pretraining"], *, num_labels: int | None = ...
) -> tuple[BertForPreTraining, BertTokenizer]: ...
@overload
def load(
    path: str | Path, head: Literal["mlm"], *, num_labels: int | None = ...
) -> tuple[BertForMaskedLM, BertTokenizer]: ...
@overload
def load(
    path: str | Path, head: Literal["cls"], *, num_labels: int | None = ...
) -> tuple[BertForSequenceClassification, BertTokenizer]: ...
@overload
def load(
    path: str | Path, head: Literal["ner"], *, num_labels: int | None = ...
) -> tuple[BertForTokenClassification, BertTokenizer]: ...
@overload
def load(
    path: str | Path, head: Literal["qa"], *, num_labels: int | None = ...
) -> tuple[BertForQuestionAnswering, BertTokenizer]: ...


def load(
    path: str | Path, head: Head | None = None, *, num_labels: int | None = None
) -> tuple[Pretrained, BertTokenizer]:
    """A checkpoint's model, in eval mode, and its tokenizer.

    Args: path: a minibert run, or any folder with a BERT in it. head: what stands on the encoder: "encoder" (nothing),
        "pretraining", "mlm", "cls", "ner", "qa"; None: what it was saved with, or where the config does not say
        it, what is there (BertModel, with a warning, where that is none of minibert's). What the checkpoint lacks
        starts fresh, with a warning. num_labels: as in from_pretrained.
    Raises: UserError for a folder that is no BERT, for a vocabulary larger than the embedding, and an unknown head.
    """
    config = load_config(path)
    if head is not None and head not in HEADS:
        raise UserError(f"there is no head {head!r}", fix=f"one of {', '.join(get_args(Head))}")
    kind = find_class(config, path) if head is None else HEADS[head]
    if head is None and (problem := foreign_architecture(config)):
        warnings.warn(f"{path}: {problem}; head= names another part", stacklevel=2)
    tokenizer = BertTokenizer.from_pretrained(path)
    check_vocabulary(len(tokenizer), config, str(path))
    return opened(kind, path, num_labels), tokenizer


def load_masked_lm(path: str | Path) -> tuple[BertForMaskedLM, BertTokenizer]:
    """A checkpoint that guesses masked tokens, in eval mode, and its tokenizer.

    Raises: UserError as load, and where the checkpoint has no head for it.
    """
    tokenizer = BertTokenizer.from_pretrained(path)
    model, report = load_model(BertForMaskedLM, path)
    check_vocabulary(len(tokenizer), model.config, str(path))
    if any(name.startswith("cls.predictions") for name in report.fresh):
        raise UserError(
            f"has no head for masked tokens (not in there: {', '.join(report.fresh)})", where=str(path),
            fix="take a pre-trained model, not a fine-tuned one",
        )  # fmt: skip
    return model, tokenizer
