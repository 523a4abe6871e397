import pytest
import torch

from minibert.checkpoint.names import canonical, canonical_weights
from minibert.errors import UserError


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("bert.encoder.layer.0.output.dense.weight", "encoder.layer.0.output.dense.weight"),
        ("encoder.layer.0.output.dense.weight", "encoder.layer.0.output.dense.weight"),
        ("module.bert.pooler.dense.bias", "pooler.dense.bias"),
        ("_orig_mod.module.embeddings.LayerNorm.weight", "embeddings.LayerNorm.weight"),
        ("bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"),
        ("cls.predictions.transform.LayerNorm.beta", "cls.predictions.transform.LayerNorm.bias"),
        ("classifier.gamma", "classifier.gamma"),  # only a LayerNorm's
        ("bert.encoder.ln.weight", "encoder.ln.weight"),
        ("cls.predictions.bias", "cls.predictions.bias"),
    ],
)
def test_stored_names_become_the_models(stored: str, expected: str) -> None:
    assert canonical(stored) == expected


def test_buffers_are_left_out_and_the_decoders_bias_is_the_one_bias() -> None:
    first, second = torch.zeros(3), torch.ones(3)
    stored = {"bert.embeddings.position_ids": first, "cls.predictions.decoder.bias": second}
    assert canonical_weights(stored, "f") == {"cls.predictions.bias": second}
    both = {"cls.predictions.bias": first, "cls.predictions.decoder.bias": second}
    assert canonical_weights(both, "f")["cls.predictions.bias"] is first


def test_two_stored_names_for_one_weight_are_refused() -> None:
    stored = {"embeddings.LayerNorm.gamma": torch.zeros(1), "bert.embeddings.LayerNorm.weight": torch.ones(1)}
    with pytest.raises(UserError, match=r"file: both 'embeddings.LayerNorm.gamma' and 'bert.embeddings.LayerNorm.weig"):
        canonical_weights(stored, "file")
