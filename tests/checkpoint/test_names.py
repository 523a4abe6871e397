import pytest
import torch
from torch import Tensor

from minibert.checkpoint.names import WORDS, canonical, canonical_weights, find_prefix, map_names
from minibert.errors import UserError


def mapped(*stored: str) -> dict[str, str]:
    return {weight.stored: weight.name for weight in map_names(stored, "file").kept}


@pytest.mark.parametrize(
    ("prefix", "stored", "expected"),
    [
        ("bert.", "bert.encoder.layer.0.output.dense.weight", "encoder.layer.0.output.dense.weight"),
        ("", "encoder.layer.0.output.dense.weight", "encoder.layer.0.output.dense.weight"),
        ("module.bert.", "module.bert.pooler.dense.bias", "pooler.dense.bias"),
        ("module.bert.", "module.cls.predictions.bias", "cls.predictions.bias"),
        ("model.bert.", "model.classifier.weight", "classifier.weight"),
        ("model.bert.", "loss.weight", "loss.weight"),
        ("bert_model.", "bert_model.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("bert_model.", "classifier.weight", "classifier.weight"),
        ("encoder.", "encoder.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("encoder.", "encoder.pooler.dense.bias", "pooler.dense.bias"),
        ("0.auto_model.", "0.auto_model.pooler.dense.bias", "pooler.dense.bias"),
        ("my_bert.", "my_bert.pooler.dense.bias", "pooler.dense.bias"),
        ("bert.", "bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"),
        ("bert.", "cls.predictions.transform.LayerNorm.beta", "cls.predictions.transform.LayerNorm.bias"),
        ("bert.", "classifier.gamma", "classifier.gamma"),  # only a LayerNorm's
        ("bert.", "bert.encoder.ln.weight", "encoder.ln.weight"),
        ("_orig_mod.module.bert.", "_orig_mod.module.bert.pooler.dense.bias", "pooler.dense.bias"),
        ("bert.", "bert.encoder.layer.1._orig_mod.output.dense.bias", "encoder.layer.1.output.dense.bias"),
        ("bert.", "bert._fsdp_wrapped_module.pooler.dense.bias", "pooler.dense.bias"),
        ("bert.", "cls.predictions.decoder.bias", "cls.predictions.bias"),
        ("bert.", "cls.predictions.decoder.weight", "cls.predictions.decoder.weight"),
    ],
)
def test_stored_names_become_the_models(prefix: str, stored: str, expected: str) -> None:
    assert mapped(prefix + WORDS, stored) == {prefix + WORDS: WORDS, stored: expected}


@pytest.mark.parametrize(
    ("stored", "expected", "transposed"),
    [
        ("bert/embeddings/word_embeddings", WORDS, False),
        ("bert/embeddings/token_type_embeddings", "embeddings.token_type_embeddings.weight", False),
        ("bert/embeddings/LayerNorm/gamma", "embeddings.LayerNorm.weight", False),
        ("bert/encoder/layer_11/attention/self/query/kernel", "encoder.layer.11.attention.self.query.weight", True),
        ("bert/encoder/layer_0/output/LayerNorm/beta", "encoder.layer.0.output.LayerNorm.bias", False),
        ("bert/pooler/dense/kernel", "pooler.dense.weight", True),
        ("cls/predictions/output_bias", "cls.predictions.bias", False),
        ("cls/predictions/transform/dense/kernel", "cls.predictions.transform.dense.weight", True),
        ("cls/predictions/transform/LayerNorm/gamma", "cls.predictions.transform.LayerNorm.weight", False),
        ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight", False),
        ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias", False),
        ("cls/squad/output_weights", "qa_outputs.weight", False),
        ("cls/squad/output_bias", "qa_outputs.bias", False),
        ("output_weights", "classifier.weight", False),
        ("output_bias", "classifier.bias", False),
    ],
)
def test_googles_names_become_the_models(stored: str, expected: str, transposed: bool) -> None:
    (weight,) = [w for w in map_names({"bert/embeddings/word_embeddings", stored}, "f").kept if w.stored == stored]
    assert (weight.name, weight.transposed) == (expected, transposed)


@pytest.mark.parametrize(
    "stored",
    ["global_step", "bert/pooler/dense/kernel/adam_m", "output_bias/adam_v", "bert/x/Adam_1", "beta1_power",
     "bert.embeddings.position_ids", "bert.embeddings.token_type_ids"],
)  # fmt: skip
def test_what_is_no_weight_is_dropped_with_a_reason(stored: str) -> None:
    names = map_names(["bert." + WORDS, stored], "f")
    assert [weight.name for weight in names.kept] == [WORDS]
    assert "no weight" in names.dropped[stored]


def test_what_was_changed_is_told() -> None:
    stored = ["m.bert." + WORDS, "m.bert.embeddings.LayerNorm.gamma", "m._orig_mod.cls.predictions.decoder.bias"]
    assert [weight.changes for weight in map_names(stored, "f").kept] == [
        ("'m.' taken off",),
        ("'m.' taken off", "gamma, beta -> weight, bias"),
        ("a wrapper's name taken out", "'m.' taken off", "the decoder's bias is the one bias"),
    ]
    (kernel,) = map_names(["bert/pooler/dense/kernel"], "f").kept
    assert kernel.changes == ("TensorFlow's name", "a kernel, transposed")
    assert map_names(["bert." + WORDS], "f").kept[0].changes == ()


def test_kernels_are_transposed_and_in_their_own_memory() -> None:
    kernel = torch.arange(6.0).view(2, 3)
    weights = canonical_weights({"bert/pooler/dense/kernel": kernel, "output_weights": kernel}, "f")
    (dense,) = [weight for name, weight in weights.items() if "dense" in name]
    assert torch.equal(dense, kernel.T)
    assert dense.is_contiguous()
    assert torch.equal(weights["classifier.weight"], kernel)


def test_one_bias_is_the_decoders_and_two_stay_to_be_compared() -> None:
    first, second = torch.zeros(3), torch.ones(3)
    stored: dict[str, Tensor] = {"bert." + WORDS: first, "cls.predictions.decoder.bias": second}
    assert canonical_weights(stored, "f")["cls.predictions.bias"] is second
    both = canonical_weights({**stored, "cls.predictions.bias": first}, "f")
    assert both["cls.predictions.bias"] is first
    assert both["cls.predictions.decoder.bias"] is second


def test_both_biases_stay_apart_under_a_wrapper_too() -> None:
    stored = ["m.bert." + WORDS, "m.cls.predictions.decoder.bias", "m.cls.predictions.bias"]
    assert [*mapped(*stored).values()] == [WORDS, "cls.predictions.decoder.bias", "cls.predictions.bias"]


def test_two_stored_names_for_one_weight_are_refused() -> None:
    stored = ["bert." + WORDS, "embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"]
    with pytest.raises(UserError, match=r"file: both 'embeddings.LayerNorm.gamma' and 'bert.embeddings.LayerNorm.weig"):
        mapped(*stored)


def test_two_berts_in_one_file_are_refused() -> None:
    with pytest.raises(UserError, match=r"file: holds 2 BERTs, under 'query.bert.' and 'passage.bert.': which is mean"):
        find_prefix(["query.bert." + WORDS, "passage.bert." + WORDS], "file")


def test_own_names_lose_bert_alone() -> None:
    assert canonical("bert.pooler.dense.bias") == "pooler.dense.bias"
    assert canonical("cls.predictions.bias") == "cls.predictions.bias"
