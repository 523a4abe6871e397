import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from minibert.checkpoint.config import config_from_dict, config_to_dict, load_config
from minibert.errors import UserError
from minibert.model.bert import BertConfig

GOOGLE = {"hidden_size": 16, "num_attention_heads": 2, "vocab_size": 40, "directionality": "bidi", "mine": {"a": 1}}


@pytest.mark.parametrize("name", ["config.json", "bert_config.json"])
def test_googles_config_has_no_type_and_extra_keys(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(GOOGLE), encoding="utf-8")
    config = load_config(tmp_path)
    assert (config.hidden_size, config.norm, config.layer_norm_eps, config.pad_token_id) == (16, "post", 1e-12, 0)
    assert config.extra == {"directionality": "bidi", "mine": {"a": 1}}
    written = config_to_dict(config, "BertForPreTraining")
    assert written["model_type"] == "bert"
    assert written["architectures"] == ["BertForPreTraining"]
    assert written["mine"] == {"a": 1}


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_config_comes_back_as_it_was(norm: str) -> None:
    config = BertConfig(hidden_size=24, num_attention_heads=3, norm=norm, positions="sinusoidal", hidden_act="relu")
    again = config_from_dict(config_to_dict(config, "BertModel"), "here")
    assert config_to_dict(again, "BertModel") == config_to_dict(config, "BertModel")
    assert (again.norm, again.positions, again.hidden_act) == (norm, "sinusoidal", "relu")


@pytest.mark.parametrize("theirs", [transformers.BertConfig(), transformers.MegatronBertConfig()])
def test_config_of_transformers_loses_no_key(theirs: Any) -> None:
    raw = json.loads(theirs.to_json_string(use_diff=False))
    written = config_to_dict(config_from_dict(raw, "here"), "BertModel")
    stale = {"transformers_version", "dtype", "torch_dtype", "architectures"}
    assert {k: v for k, v in raw.items() if k not in stale}.items() <= written.items()


def test_type_of_the_file_that_was_read_is_not_written_again() -> None:
    config = config_from_dict({"torch_dtype": "float16", "transformers_version": "3.1"}, "here")
    written = config_to_dict(config, "BertModel")
    assert written["dtype"] == "float32"
    assert "torch_dtype" not in written


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"model_type": "roberta"}, "config.json: model_type is 'roberta'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_size": "16"}, "hidden_size is '16', not of type int"),
        ({"hidden_size": True}, "hidden_size is True, not of type int"),
        ({"hidden_act": "swish"}, "config.json: hidden_act is 'swish'"),
        ({"id2label": ["a", "b"]}, r"id2label is \['a', 'b'\], not an object of names"),
        ({"num_labels": 0}, "num_labels is 0, not a number from 1 to 1,000,000"),
        ({"_num_labels": 10**12}, "num_labels is 1000000000000, not a number"),
        ({"num_labels": True}, "num_labels is True"),
        ({"architectures": "BertModel"}, "architectures is 'BertModel', not a list of names"),
        ({"architectures": [3]}, r"architectures is \[3\]"),
        ({"architectures": ["RobertaModel"]}, "names the architecture 'RobertaModel' and no model_type"),
        ({"id2label": {"0": "a", "2": "b"}}, 'id2label has the keys 0, 2\n  fix: "0" to "1" are wanted'),
        ({"id2label": {"no": "a"}}, "id2label has the keys no"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob is 1.5"),
        ({"attention_probs_dropout_prob": -1}, "attention_probs_dropout_prob is -1"),
        ({"classifier_dropout": float("nan")}, "classifier_dropout is nan"),
        ({"layer_norm_eps": -1e-12}, "layer_norm_eps is -1e-12"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan"),
        ({"initializer_range": float("inf")}, "initializer_range inf"),
        ({"vocab_size": 40, "pad_token_id": 40}, "pad_token_id is 40 of 40 tokens"),
        ({"pad_token_id": -1}, "pad_token_id is -1"),
    ],
)
def test_another_model_is_refused_by_name(raw: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "not a JSON object"), ("[" * 100_000, "not JSON")]
)
def test_broken_config_is_a_users_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_config(tmp_path)


def test_folder_without_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config.json or bert_config.json here"):
        load_config(tmp_path)


def test_a_span_head_is_not_made_as_wide_as_the_labels_of_another_task() -> None:
    """transformers' BertForQuestionAnswering has num_labels outputs."""
    config = BertConfig(extra={"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}})
    assert "id2label" in config_to_dict(config, "BertForTokenClassification")
    assert not {"id2label", "label2id"} & config_to_dict(config, "BertForQuestionAnswering").keys()


@pytest.mark.parametrize("key", ["num_labels", "_num_labels"])
def test_old_number_of_labels_becomes_names(key: str) -> None:
    config = config_from_dict({key: 3, "mine": 1}, "here")
    assert config.num_labels == 3
    assert config.extra["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert config.extra["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    assert transformers.BertConfig.from_dict(config_to_dict(config, "BertModel")).num_labels == 3
    assert config_to_dict(config, "BertModel")["mine"] == 1


def test_names_of_labels_win_over_an_old_number() -> None:
    config = config_from_dict({"num_labels": 3, "id2label": {"0": "a", "1": "b"}}, "here")
    assert config.extra == {"id2label": {"0": "a", "1": "b"}}
    assert config_from_dict({"num_labels": 3, "id2label": None}, "here").num_labels == 3
    assert "id2label" not in config_from_dict({"num_labels": None}, "here").extra


def test_missing_folder_and_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder") as caught:
        load_config(tmp_path / "google-bert" / "bert-base-chinese")
    assert "none is downloaded" in str(caught.value)
    for name in ("w.bin", "bert_model.ckpt.index"):
        (tmp_path / name).touch()
    for name in ("w.bin", "bert_model.ckpt.index", "bert_model.ckpt"):
        with pytest.raises(UserError, match="is a file; a checkpoint is a folder") as caught:
            load_config(tmp_path / name)
        assert f"minibert convert {tmp_path / name} --out DIR" in str(caught.value)


def test_config_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").touch()

    def refuse(*args: Any, **kwargs: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UserError, match=r"config.json: cannot be read: Permission denied"):
        load_config(tmp_path)


def test_the_folder_one_is_in_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOGLE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_config(".").hidden_size == 16


@pytest.mark.parametrize("names", [["RobertaForMaskedLM"], ["HF_ColBERT"]])
def test_a_model_type_is_believed_whatever_the_class_is_called(names: list[str]) -> None:
    assert config_from_dict({"model_type": "bert", "architectures": names}, "here").extra["architectures"] == names
