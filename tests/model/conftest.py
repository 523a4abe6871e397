"""The same random weights in one of our models and in its namesake of transformers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from minibert.model import bert, heads
from minibert.model.bert import BertConfig

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
Pair = tuple[Any, Any]


@pytest.fixture
def make_pair() -> Callable[..., Pair]:
    def make(name: str, norm: str = "post", **changes: Any) -> Pair:
        torch.manual_seed(0)
        prefix = "Megatron" if norm == "pre" else ""
        changes = dict(changes)
        head = {key: changes.pop(key) for key in ("id2label", "problem_type") if key in changes}
        config = getattr(transformers, f"{prefix}BertConfig")(**SHAPE, **changes, **head, attn_implementation="eager")
        theirs = getattr(transformers, prefix + name)(config).eval()
        with torch.no_grad():
            for parameter in theirs.parameters():  # every one: biases and LayerNorms too
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        ours = getattr(bert if name == "BertModel" else heads, name)(
            BertConfig(norm=norm, extra=head, **SHAPE, **changes)
        ).eval()
        ours.load_state_dict(theirs.state_dict())  # strict: the names are the same
        return ours, theirs

    return make


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """Padding and second segments in play. B=4, T=20."""
    random = torch.Generator().manual_seed(1)
    keep = torch.ones(4, 20, dtype=torch.long)
    keep[1, 12:] = keep[3, 5:] = 0
    types = (torch.arange(20) >= torch.tensor([7, 4, 19, 2])[:, None]).long()
    return {
        "input_ids": torch.randint(50, (4, 20), generator=random),
        "attention_mask": keep,
        "token_type_ids": types,
    }
