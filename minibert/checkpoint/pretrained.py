"""The model classes that users import: the networks of minibert.model, which know tensors only, plus the disk."""

import warnings
from pathlib import Path
from typing import TypeVar

from torch import nn

from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint
from minibert.model import bert, heads
from minibert.tokenization.tokenizer import BertTokenizer

P = TypeVar("P", bound="Pretrained")


class Pretrained(nn.Module):
    """from_pretrained and save_pretrained, as people know them from transformers."""

    @classmethod
    def from_pretrained(cls: type[P], path: str | Path) -> P:
        """Open a minibert run or a Hugging Face folder. Warns, naming them, where parts of the model start fresh."""
        model, report = load_model(cls, path)
        if report.fresh:
            warnings.warn(f"{path} lacks and {cls.__name__} starts fresh: {', '.join(report.fresh)}", stacklevel=2)
        return model

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


CLASSES = {
    kind.__name__: kind
    for kind in (
        BertModel, BertForPreTraining, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification,
        BertForQuestionAnswering,
    )
}  # fmt: skip


def load(path: str | Path) -> tuple[Pretrained, BertTokenizer]:
    """A checkpoint's model, of the class it was saved as (BertModel where that is none of minibert's), and tokenizer.

    Raises: UserError for a folder that is no BERT, and for a vocabulary larger than the embedding.
    """
    config = load_config(path)
    names = [name.removeprefix("Megatron") for name in config.extra.get("architectures") or ()]
    kind = next((CLASSES[name] for name in names if name in CLASSES), BertModel)
    tokenizer = BertTokenizer.from_pretrained(path)
    check_vocabulary(len(tokenizer), config, str(path))
    return kind.from_pretrained(path), tokenizer
