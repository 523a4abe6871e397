import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint
from minibert.errors import UserError
from minibert.model.bert import BertConfig, BertModel
from minibert.model.heads import BertForMaskedLM, BertForPreTraining, BertForSequenceClassification

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}
IDS = torch.arange(5, 15)[None]
CLASSES = [BertModel, BertForPreTraining, BertForMaskedLM]
Weights = dict[str, Tensor]


def randomise(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def outputs(model: nn.Module) -> list[Tensor]:
    with torch.no_grad():
        result = model(IDS)
    names = ("prediction_logits", "seq_relationship_logits", "logits", "last_hidden_state", "pooler_output")
    return [value for name in names if (value := getattr(result, name, None)) is not None]


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    """1e-6: worst seen 5e-7 on values up to 4."""
    mine, other = outputs(ours), outputs(theirs)
    assert len(mine) == len(other) > 0
    for a, b in zip(mine, other, strict=True):
        assert (a - b).abs().max() <= 1e-6 * max(1.0, b.abs().max().item())


@pytest.fixture
def reference(tmp_path: Path) -> tuple[Path, nn.Module]:
    """A folder that transformers wrote, and the model that is in it."""
    theirs = randomise(transformers.BertForPreTraining(transformers.BertConfig(**SHAPE)))
    theirs.save_pretrained(tmp_path / "theirs")  # type: ignore[operator]
    return tmp_path / "theirs", theirs


def rewrite(folder: Path, change: Callable[[Weights], Weights]) -> None:
    path = folder / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(weights), path, metadata={"format": "pt"})


def reconfigure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_transformers_opens_what_we_save(cls: Any, norm: str, positions: str, tmp_path: Path) -> None:
    ours = randomise(cls(BertConfig(norm=norm, positions=positions, **SHAPE)))
    save_checkpoint(ours, None, tmp_path)
    name = ("Megatron" if norm == "pre" else "") + cls.__name__
    theirs, info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert (
        type(transformers.AutoModel.from_pretrained(tmp_path)).__name__
        == name.split("For")[0].removesuffix("Model") + "Model"
    )
    assert_same(ours, theirs.eval())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("cls", CLASSES)
def test_we_open_what_transformers_saves(cls: Any, norm: str, tmp_path: Path) -> None:
    prefix = "Megatron" if norm == "pre" else ""
    config = getattr(transformers, f"{prefix}BertConfig")(**SHAPE)
    theirs = randomise(getattr(transformers, prefix + cls.__name__)(config))
    theirs.save_pretrained(tmp_path)  # type: ignore[operator]
    ours, report = load_model(cls, tmp_path)
    assert (report.fresh, report.ignored) == ((), ())
    assert not ours.training
    assert_same(ours, theirs)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_file_holds_what_transformers_writes(norm: str, tmp_path: Path) -> None:
    prefix = "Megatron" if norm == "pre" else ""
    config = getattr(transformers, f"{prefix}BertConfig")(**SHAPE)
    getattr(transformers, f"{prefix}BertForPreTraining")(config).save_pretrained(tmp_path / "theirs")
    save_checkpoint(BertForPreTraining(BertConfig(norm=norm, **SHAPE)), None, tmp_path / "ours")
    theirs, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert {k: (v.shape, v.dtype) for k, v in ours.items()} == {k: (v.shape, v.dtype) for k, v in theirs.items()}
    with safe_open(tmp_path / "ours" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    written = json.loads((tmp_path / "ours" / "config.json").read_text(encoding="utf-8"))
    assert written["architectures"] == [f"{prefix}BertForPreTraining"]
    assert written["vocab_size"] == 40


def test_saving_twice_gives_the_same_bytes_and_permissions(tmp_path: Path) -> None:
    model = BertForPreTraining(BertConfig(**SHAPE))
    for name in ("a", "b"):
        save_checkpoint(model, None, tmp_path / name)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    modes = {(tmp_path / "a" / file).stat().st_mode for file in ("config.json", "model.safetensors")}
    assert len(modes) == 1  # who may read one file may read the other


def test_tokenizer_is_saved_beside_the_model(tmp_path: Path) -> None:
    class Tokenizer:
        def save_pretrained(self, folder: Path, /) -> None:
            (folder / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")

    save_checkpoint(BertModel(BertConfig(**SHAPE)), Tokenizer(), tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / "vocab.txt").is_file()


def old_norm_names(weights: Weights) -> Weights:
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    return {old(name): tensor for name, tensor in weights.items()}


def no_prefix(weights: Weights) -> Weights:
    return {name.removeprefix("bert."): tensor for name, tensor in weights.items()}


def wrapped(weights: Weights) -> Weights:
    return {f"module.{name}": tensor for name, tensor in weights.items()}


def in_a_model_of_ones_own(weights: Weights) -> Weights:
    return {f"model.{name}": tensor for name, tensor in weights.items()} | {"loss.weight_of_classes": torch.ones(2)}


def compiled(weights: Weights) -> Weights:
    return {f"_orig_mod.{name}".replace("layer.1.", "layer.1._orig_mod."): t for name, t in weights.items()}


def with_buffers(weights: Weights) -> Weights:
    return {**weights, "bert.embeddings.position_ids": torch.arange(24)[None]}


def full_decoder(weights: Weights) -> Weights:
    words = weights["bert.embeddings.word_embeddings.weight"].clone()
    bias = weights["cls.predictions.bias"].clone()
    return {**weights, "cls.predictions.decoder.weight": words, "cls.predictions.decoder.bias": bias}


def only_decoder_bias(weights: Weights) -> Weights:
    bias = weights.pop("cls.predictions.bias")
    return {**weights, "cls.predictions.decoder.bias": bias}


@pytest.mark.parametrize(
    "form",
    [old_norm_names, no_prefix, wrapped, in_a_model_of_ones_own, compiled, with_buffers, full_decoder,
     only_decoder_bias],
)  # fmt: skip
def test_every_known_form_of_names_is_read(
    form: Callable[[Weights], Weights], reference: tuple[Path, nn.Module], tmp_path: Path
) -> None:
    folder, theirs = reference
    rewrite(folder, form)
    ours, report = load_model(BertForPreTraining, folder)
    assert report.fresh == ()
    assert report.ignored == (("loss.weight_of_classes",) if form is in_a_model_of_ones_own else ())
    assert_same(ours, theirs)
    head = ours.cls.predictions
    assert head.decoder.weight.data_ptr() == ours.bert.embeddings.word_embeddings.weight.data_ptr()
    assert head.decoder.bias is head.bias
    ours(IDS, labels=IDS).loss.backward()
    torch.optim.SGD(ours.parameters(), lr=0.1).step()
    save_checkpoint(ours, None, tmp_path / "again")
    again, info = transformers.BertForPreTraining.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(info.values()), info
    assert_same(ours, again)


def test_pytorch_file_and_half_precision_are_read_as_float32(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    weights = {name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()}
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    ours, _ = load_model(BertForPreTraining, folder)
    for name, parameter in ours.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, weights[name].float())


def test_missing_heads_start_fresh_and_are_named(reference: tuple[Path, nn.Module]) -> None:
    """n = 2 * 16 * 16 fresh weights, cut at two sigma of .02."""
    folder, theirs = reference
    rewrite(folder, lambda w: {k: v for k, v in w.items() if not k.startswith(("cls.", "bert.pooler."))})
    a, report = load_model(BertForPreTraining, folder, seed=1)
    b, _ = load_model(BertForPreTraining, folder, seed=1)
    c, _ = load_model(BertForPreTraining, folder, seed=2)
    assert set(report.fresh) == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "cls.predictions.bias",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    }
    fresh = a.cls.predictions.transform.dense.weight
    assert 0.01 < fresh.std() < 0.025
    assert fresh.abs().max() <= 0.04
    assert (a.cls.predictions.transform.LayerNorm.weight == 1).all()
    assert (a.cls.predictions.bias == 0).all()
    assert torch.equal(fresh, b.cls.predictions.transform.dense.weight)
    assert not torch.equal(fresh, c.cls.predictions.transform.dense.weight)
    with torch.no_grad():
        assert (a.bert(IDS).last_hidden_state - theirs.bert(IDS).last_hidden_state).abs().max() < 1e-5  # type: ignore[operator]


def test_weights_without_a_place_are_reported(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {**w, "classifier.weight": torch.zeros(2, 16)})
    _, report = load_model(BertForMaskedLM, folder)
    assert set(report.ignored) == {
        "classifier.weight",
        "cls.seq_relationship.bias",
        "cls.seq_relationship.weight",
        "pooler.dense.bias",
        "pooler.dense.weight",
    }
    assert report.fresh == ()


def test_missing_encoder_weight_is_refused(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    lost = "bert.encoder.layer.1.output.dense.weight"
    rewrite(folder, lambda w: {k: v for k, v in w.items() if k != lost})
    with pytest.raises(UserError, match=r"'encoder.layer.1.output.dense.weight' \(16, 32\) is missing"):
        load_model(BertForPreTraining, folder)


def test_wrong_shape_is_refused_with_both(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    reconfigure(folder, vocab_size=48)
    with pytest.raises(
        UserError, match=r"'embeddings.word_embeddings.weight' is \(40, 16\), but the config makes it \(48, 16\)"
    ):
        load_model(BertForPreTraining, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 1}, r"the weights have 2 layers, the config 1 \(num_hidden_layers\)"),
        ({"num_hidden_layers": 10**4}, "the weights have 2 layers, the config 10000"),  # at once
        ({"model_type": "megatron-bert"}, r"'encoder.layer.0.attention.ln.weight' \(16,\) is missing"),
        ({"vocab_size": 10**8}, r"is \(40, 16\), but the config makes it \(100000000, 16\)"),
    ],
)
def test_config_of_another_encoder_is_refused(
    change: dict[str, Any], message: str, reference: tuple[Path, nn.Module]
) -> None:
    folder, _ = reference
    reconfigure(folder, **change)
    with pytest.raises(UserError, match=rf"model.safetensors: .*{message}"):
        load_model(BertForPreTraining, folder)


def test_weights_of_something_else_are_refused(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {"wte.weight": torch.zeros(4, 4)})
    with pytest.raises(
        UserError, match=r"'embeddings.word_embeddings.weight' is missing among its 1 tensors, 'wte.weight' for one"
    ):
        load_model(BertForPreTraining, folder)


def test_encoder_weight_without_a_place_is_refused(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {**w, "bert.encoder.layer.0.attention.new.weight": torch.zeros(1)})
    with pytest.raises(UserError, match=r"1 encoder weights have no place .*, 'encoder.layer.0.attention.new.weight'"):
        load_model(BertForPreTraining, folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_type_is_read_as_float32(dtype: torch.dtype, reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {name: tensor.to(dtype) for name, tensor in full_decoder(w).items()})
    ours, _ = load_model(BertForPreTraining, folder)
    stored = load_file(folder / "model.safetensors")
    for name, parameter in ours.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, stored[name].float())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool])
def test_weights_that_are_no_floating_point_are_refused(dtype: torch.dtype, reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    name = "bert.encoder.layer.0.output.dense.weight"
    rewrite(folder, lambda w: {**w, name: w[name].to(dtype)})
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(UserError, match=f"'encoder.layer.0.output.dense.weight' is stored as {kind}"):
        load_model(BertForPreTraining, folder)


def test_empty_weight_is_refused(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {**w, "cls.predictions.bias": torch.zeros(0)})
    with pytest.raises(UserError, match=r"'cls.predictions.bias' is \(0,\), but the config makes it \(40,\)"):
        load_model(BertForPreTraining, folder)


def classifier(folder: Path, rows: int, **config: Any) -> None:
    """Put a head with so many labels on the reference, and other words on labels into its config."""
    head = {"classifier.weight": torch.ones(rows, 16), "classifier.bias": torch.zeros(rows)}
    rewrite(folder, lambda w: {**w, **head})
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in raw.items() if key not in ("id2label", "label2id")}
    path.write_text(json.dumps({**kept, **config}), encoding="utf-8")


@pytest.mark.parametrize("config", [{}, {"num_labels": 5}, {"id2label": {str(i): f"x{i}" for i in range(5)}}])
def test_head_says_how_many_labels_where_the_config_does_not(
    config: dict[str, Any], reference: tuple[Path, nn.Module]
) -> None:
    folder, _ = reference
    classifier(folder, 5, mine=1, problem_type="multi_label_classification", **config)
    ours, report = load_model(BertForSequenceClassification, folder)
    assert report.fresh == ()
    assert (ours.classifier.weight == 1).all()
    assert ours.config.num_labels == len(ours.config.extra["id2label"]) == 5
    assert (ours.config.extra["mine"], ours.config.extra["problem_type"]) == (1, "multi_label_classification")


def test_labels_of_the_config_and_the_head_that_differ_are_named(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    classifier(folder, 5, id2label={"0": "a", "1": "b", "2": "c"})
    with pytest.raises(UserError, match="the head has 5 labels, the config 3") as caught:
        load_model(BertForSequenceClassification, folder)
    assert "in Python num_labels=5 takes the head" in str(caught.value)
    load_model(BertForPreTraining, folder)


@pytest.mark.parametrize(("wanted", "fresh"), [(5, 0), (3, 2), (4, 2)])
def test_wanted_number_of_labels_takes_the_head_that_has_it(
    wanted: int, fresh: int, reference: tuple[Path, nn.Module]
) -> None:
    folder, _ = reference
    classifier(folder, 5, id2label={"0": "a", "1": "b", "2": "c"})
    ours, report = load_model(BertForSequenceClassification, folder, num_labels=wanted)
    assert (len(ours.classifier.weight), len(report.fresh)) == (wanted, fresh)
    assert len(ours.config.extra["id2label"]) == wanted


def test_untied_decoder_is_refused_where_it_matters(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {**w, "cls.predictions.decoder.weight": torch.zeros(40, 16)})
    with pytest.raises(UserError, match="differs from the word embeddings"):
        load_model(BertForPreTraining, folder)
    load_model(BertModel, folder)


def test_two_biases_of_the_decoder_must_be_one(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    rewrite(folder, lambda w: {**w, "cls.predictions.decoder.bias": w["cls.predictions.bias"] + 1})
    with pytest.raises(UserError, match=r"'cls.predictions.decoder.bias' differs from 'cls.predictions.bias'"):
        load_model(BertForPreTraining, folder)
    load_model(BertModel, folder)


def test_loaded_model_is_no_window_on_the_file(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    ours, _ = load_model(BertForPreTraining, folder)
    before = outputs(ours)
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(2000)
        file.write(bytes(path.stat().st_size - 2000))
    for a, b in zip(before, outputs(ours), strict=True):
        assert torch.equal(a, b)


def test_loading_leaves_the_global_generator_alone(reference: tuple[Path, nn.Module]) -> None:
    state = torch.get_rng_state()
    load_model(BertForPreTraining, reference[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_another_config_may_be_given(reference: tuple[Path, nn.Module]) -> None:
    ours, _ = load_model(BertForPreTraining, reference[0], config=BertConfig(hidden_dropout_prob=0.0, **SHAPE))
    assert ours.bert.embeddings.dropout.p == 0.0


def test_fixed_positions_come_back_fixed(tmp_path: Path) -> None:
    ours = BertForPreTraining(BertConfig(positions="sinusoidal", **SHAPE))
    save_checkpoint(ours, None, tmp_path)
    again, _ = load_model(BertForPreTraining, tmp_path)
    assert not again.bert.embeddings.position_embeddings.weight.requires_grad
    assert again.bert.embeddings.word_embeddings.weight.requires_grad


def test_tokenizer_larger_than_the_model_is_refused_with_both_numbers() -> None:
    config = BertConfig(**SHAPE)
    check_vocabulary(33, config, "vocab.txt")
    check_vocabulary(40, config, "vocab.txt")
    with pytest.raises(UserError, match=r"vocab.txt: the tokenizer has 48 tokens but the model only 40 embeddings"):
        check_vocabulary(48, config, "vocab.txt")


def test_tensorflow_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    theirs = randomise(transformers.BertForPreTraining(transformers.BertConfig(**SHAPE)))
    writer = runpy.run_path(str(Path(__file__).with_name("tensorflow_files.py")))
    weights = {name: parameter.detach() for name, parameter in theirs.named_parameters()}
    writer["write_checkpoint"](tmp_path / "bert_model.ckpt", writer["google_names"](weights), shards=2)
    (tmp_path / "bert_config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    ours, report = load_model(BertForPreTraining, tmp_path)
    assert (report.fresh, report.ignored) == ((), ())
    assert_same(ours, theirs)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e300])
def test_a_weight_that_is_no_finite_number_is_refused_by_name(value: float, reference: tuple[Path, nn.Module]) -> None:
    """1e300 is finite in the file, not in float32. torch's attention can swallow a NaN: outputs do not show it."""
    folder, _ = reference
    name = "bert.encoder.layer.0.attention.self.query.weight"

    def spoil(weights: Weights) -> Weights:
        spoilt = weights[name].double()
        spoilt[3, 5] = value
        return {**weights, name: spoilt}

    rewrite(folder, spoil)
    with pytest.raises(UserError, match=r"safetensors: 1 weights are not finite, encoder.layer.0.attention.self.q"):
        load_model(BertModel, folder)


def test_the_largest_numbers_are_finite(reference: tuple[Path, nn.Module]) -> None:
    folder, _ = reference
    largest = torch.full((40,), torch.finfo(torch.float32).max)
    rewrite(folder, lambda weights: {**weights, "cls.predictions.bias": largest})
    model, _ = load_model(BertForPreTraining, folder)
    assert torch.equal(model.cls.predictions.bias, largest)
