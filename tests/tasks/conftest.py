"""A small random BERT whose vocabulary covers a text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minibert.checkpoint.pretrained import BertModel
from minibert.model.bert import BertConfig
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import train_vocabulary


@pytest.fixture(scope="session")
def checkpoint_for() -> Callable[..., Path]:
    def make(text: str, folder: Path, **changes: Any) -> Path:
        vocabulary = train_vocabulary(lambda: iter(text.splitlines()), size=400, lowercase=True)
        tokenizer = BertTokenizer.from_tokens(vocabulary.tokens, lowercase=True)
        shape = {
            "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
            "max_position_embeddings": 64,
        }  # fmt: skip
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(tokenizer), **{**shape, **changes})).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make
