"""From raw text to a BERT, and from a BERT to an answer.

What is imported here comes with torch, and is therefore loaded when it is first used.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minibert.checkpoint.pretrained import BertForMaskedLM as BertForMaskedLM
    from minibert.checkpoint.pretrained import BertForPreTraining as BertForPreTraining
    from minibert.checkpoint.pretrained import BertForQuestionAnswering as BertForQuestionAnswering
    from minibert.checkpoint.pretrained import BertForSequenceClassification as BertForSequenceClassification
    from minibert.checkpoint.pretrained import BertForTokenClassification as BertForTokenClassification
    from minibert.checkpoint.pretrained import BertModel as BertModel
    from minibert.checkpoint.pretrained import load as load
    from minibert.errors import UserError as UserError
    from minibert.model.bert import BertConfig as BertConfig
    from minibert.predict import pipeline as pipeline
    from minibert.tokenization.tokenizer import BertTokenizer as BertTokenizer
    from minibert.vectors.embed import embed as embed

__version__ = version("minibert")

_PLACES = {
    "BertConfig": "minibert.model.bert",
    "BertForMaskedLM": "minibert.checkpoint.pretrained",
    "BertForPreTraining": "minibert.checkpoint.pretrained",
    "BertForQuestionAnswering": "minibert.checkpoint.pretrained",
    "BertForSequenceClassification": "minibert.checkpoint.pretrained",
    "BertForTokenClassification": "minibert.checkpoint.pretrained",
    "BertModel": "minibert.checkpoint.pretrained",
    "BertTokenizer": "minibert.tokenization.tokenizer",
    "UserError": "minibert.errors",
    "embed": "minibert.vectors.embed",
    "load": "minibert.checkpoint.pretrained",
    "pipeline": "minibert.predict",
}

__all__ = [
    "BertConfig", "BertForMaskedLM", "BertForPreTraining", "BertForQuestionAnswering", "BertForSequenceClassification",
    "BertForTokenClassification", "BertModel", "BertTokenizer", "UserError", "__version__", "embed", "load",
    "pipeline",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'minibert' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
