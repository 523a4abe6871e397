import json
import warnings
from pathlib import Path

import pytest
import torch

from minibert.checkpoint.pretrained import (
    HEADS,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    Pretrained,
    load,
)
from minibert.errors import UserError
from minibert.model import bert, heads
from minibert.model.bert import BertConfig
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

SHAPE = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)


@pytest.mark.parametrize("cls", [BertModel, BertForPreTraining, BertForMaskedLM])
def test_each_class_comes_back_as_itself(cls: type, tmp_path: Path) -> None:
    model = cls(SHAPE)
    model.save_pretrained(tmp_path)
    again = cls.from_pretrained(str(tmp_path))  # type: ignore[attr-defined]
    assert type(again) is cls
    assert cls.__name__ in (tmp_path / "config.json").read_text(encoding="utf-8")
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_classes_are_those_of_the_network() -> None:
    assert isinstance(BertModel(SHAPE), bert.BertModel)
    assert isinstance(BertForPreTraining(SHAPE), heads.BertForPreTraining)
    assert isinstance(BertForMaskedLM(SHAPE), heads.BertForMaskedLM)


def test_fresh_parts_are_named_in_a_warning(tmp_path: Path) -> None:
    BertForMaskedLM(SHAPE).save_pretrained(tmp_path)
    with pytest.warns(
        UserWarning,
        match=r"BertForPreTraining starts with fresh .* lacks: bert\.pooler\.dense\.weight",
    ):
        BertForPreTraining.from_pretrained(tmp_path)
    BertTokenizer.from_tokens([*SPECIAL_TOKENS, "a"], lowercase=True).save_pretrained(tmp_path)
    for call in (lambda: load(tmp_path, "pretraining"), lambda: BertForPreTraining.from_pretrained(tmp_path)):
        with pytest.warns(UserWarning, match="fresh weights") as caught:
            call()
        assert caught[0].filename == __file__  # the caller's line, not minibert's own


@pytest.mark.parametrize("kind", list(HEADS.values()))
def test_where_the_config_names_no_class_the_weights_say_which_it_is(kind: type[Pretrained], tmp_path: Path) -> None:
    saved(kind, tmp_path, architectures=None)
    model, _ = load(tmp_path)
    assert type(model) is kind


def test_a_class_that_is_not_known_here_gives_the_encoder_and_says_so(tmp_path: Path) -> None:
    saved(BertForSequenceClassification, tmp_path, architectures=["BertForMultipleChoice"])
    with pytest.warns(UserWarning, match="BertForMultipleChoice, is none of minibert's: .*head= names"):
        model, _ = load(tmp_path)
    assert type(model) is BertModel
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(load(tmp_path, "cls")[0]) is BertForSequenceClassification


@pytest.mark.parametrize("number", [0, -1, 10**12])
def test_a_number_of_labels_that_cannot_be_is_refused(number: int, tmp_path: Path) -> None:
    saved(BertForSequenceClassification, tmp_path, architectures=["BertForSequenceClassification"])
    with pytest.raises(UserError, match=rf"num_labels is {number}\n  fix: a number from 1 to 1,000,000"):
        load(tmp_path, num_labels=number)


def saved(kind: type[Pretrained], folder: Path, *, architectures: list[str] | None) -> None:
    """A small model with a tokenizer, whose config names these architectures, or none."""
    kind(SHAPE).save_pretrained(folder)  # type: ignore[arg-type]
    BertTokenizer.from_tokens([*SPECIAL_TOKENS, "a"], lowercase=True).save_pretrained(folder)
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), "architectures": architectures}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}), encoding="utf-8")
