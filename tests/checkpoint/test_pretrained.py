from pathlib import Path

import pytest
import torch

from minibert.checkpoint.pretrained import BertForMaskedLM, BertForPreTraining, BertModel
from minibert.model import bert, heads
from minibert.model.bert import BertConfig

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
    with pytest.warns(UserWarning, match=r"BertForPreTraining starts fresh: bert\.pooler\.dense\.weight"):
        BertForPreTraining.from_pretrained(tmp_path)
