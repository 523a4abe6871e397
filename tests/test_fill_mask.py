"""Filling masks: the answers of the model's own head, in their order."""

import pytest
import torch

from minibert.checkpoint.folder import load_model, save_checkpoint
from minibert.errors import UserError
from minibert.fill_mask import fill_masks, in_lines
from minibert.model.bert import BertConfig, BertModel
from minibert.model.heads import BertForMaskedLM
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *"北京市上海天", "##x", "."], lowercase=True)


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, initializer_range=1.0,
    )  # fmt: skip
    save_checkpoint(BertForMaskedLM(config), TOKENIZER, tmp_path / "model")
    return tmp_path / "model"


def test_answers_are_the_heads_probabilities_for_each_mask(checkpoint):
    (answers,) = fill_masks(checkpoint, ["北[MASK]市[MASK]。"], top_k=3)
    model, _ = load_model(BertForMaskedLM, checkpoint)
    ids = [2, *TOKENIZER.encode(["北"])[0], 4, *TOKENIZER.encode(["市"])[0], 4, *TOKENIZER.encode(["。"])[0], 3]
    with torch.no_grad():
        scores = model(torch.tensor([ids])).logits[0].softmax(-1)
    assert len(answers) == 2
    for row, position in zip(answers, (2, 4), strict=True):
        best = scores[position].topk(3)
        assert [TOKENIZER.tokens.index(a["token"]) for a in row] == best.indices.tolist()
        assert [a["score"] for a in row] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_more_answers_than_tokens_are_all_tokens(checkpoint):
    (answers,) = fill_masks(checkpoint, ["[MASK]"], top_k=1000)
    assert sum(a["score"] for a in answers[0]) == pytest.approx(1, abs=1e-4)
    assert len(answers[0]) == len(TOKENIZER)


def test_text_without_a_mask_is_refused(checkpoint):
    with pytest.raises(UserError, match=r"text 2: there is no \[MASK\] in '北京'"):
        fill_masks(checkpoint, ["北[MASK]", "北京"])


def test_text_longer_than_the_model_is_refused_with_both_numbers(checkpoint):
    with pytest.raises(UserError, match=r"text 1: it has 23 tokens.*16"):
        fill_masks(checkpoint, ["北" * 20 + "[MASK]"])


def test_model_without_the_head_is_refused(tmp_path, checkpoint):
    model, _ = load_model(BertModel, checkpoint)
    save_checkpoint(model, TOKENIZER, tmp_path / "encoder")
    with pytest.raises(UserError, match="no head for masked tokens"):
        fill_masks(tmp_path / "encoder", ["北[MASK]"])


def test_lines_for_people():
    shown = in_lines("a [MASK]", [[{"token": "b", "score": 0.5}, {"token": "c", "score": 0.25}]])
    assert shown == "a [MASK]\n  b 50.0%  c 25.0%"
    shown = in_lines("[MASK] a [MASK]", [[{"token": "b", "score": 0.5}], [{"token": "c", "score": 0.25}]])
    assert shown == "[MASK] a [MASK]\n  mask 1:  b 50.0%\n  mask 2:  c 25.0%"
