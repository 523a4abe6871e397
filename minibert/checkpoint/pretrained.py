"""The model classes that users import: the networks of minibert.model, which know tensors only, plus the disk."""

import warnings
from pathlib import Path
from typing import TypeVar

from torch import nn

from minibert.checkpoint.folder import load_model, save_checkpoint
from minibert.model import bert, heads

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
