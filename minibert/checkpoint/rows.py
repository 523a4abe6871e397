"""More word embeddings than a model had, whatever stands on its encoder."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from minibert.checkpoint.pretrained import Pretrained
from minibert.model import bert
from minibert.model.heads import BertLanguageModel


def add_rows(model: Pretrained, number: int) -> None:
    """So many more embeddings, and outputs of the tied decoder, all zero; the config says so."""
    words = embeddings(model)
    words.weight = nn.Parameter(grown_rows(words.weight.data, number))
    words.num_embeddings += number
    if isinstance(model, BertLanguageModel):
        model.cls.predictions.bias = nn.Parameter(grown_rows(model.cls.predictions.bias.data, number))
        model.tie_weights()
    model.config = encoder(model).config = replace(model.config, vocab_size=model.config.vocab_size + number)


def grown_rows(values: Tensor, number: int) -> Tensor:
    """values (V, ...) -> (V + number, ...), zero at the end."""
    return torch.cat((values, values.new_zeros(number, *values.shape[1:])))


def encoder(model: Pretrained) -> bert.BertModel:
    """What stands below the head of any of the classes."""
    found = model if isinstance(model, bert.BertModel) else model.bert
    assert isinstance(found, bert.BertModel)
    return found


def embeddings(model: Pretrained) -> nn.Embedding:
    """The word embeddings of any of the classes."""
    return encoder(model).embeddings.word_embeddings
