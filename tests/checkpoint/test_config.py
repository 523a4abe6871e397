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
    ],
)
def test_another_model_is_refused_by_name(raw: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_config(tmp_path)


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", "not a JSON object")])
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
