"""scripts/_trainer_peers.py: what transformers is given to learn and to answer is what minibert is given."""

import numpy as np
import pytest
import torch

from minibert.checkpoint.pretrained import BertForQuestionAnswering
from minibert.model.bert import BertConfig
from minibert.predict import Predictor
from minibert.tasks import find_tasks
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer


@pytest.fixture(scope="module")
def peers(load_script):
    return load_script("_trainer_peers")


def data(name, folder, **settings):
    """A task's demo file read by the task, its rows, and a tokenizer that cuts its words into pieces."""
    kind = find_tasks()[name]
    path = kind.demo(folder)
    characters = sorted(set(path.read_text("utf-8").lower()) - set(" \n"))
    tokenizer = BertTokenizer.from_tokens(
        [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters), "the", "in", "who"], lowercase=True
    )
    tokenizer.save_pretrained(folder / "tokenizer")
    examples = kind(kind.Config(**settings)).read(path, gold=True, train=True).examples
    task = kind(kind.Config(**settings)).settled(examples)
    return task, examples, task.encode(examples, tokenizer, gold=True).features, tokenizer


@pytest.mark.parametrize(
    ("name", "settings", "targets"),
    [
        ("cls", {"max_length": 16}, lambda row: row["labels"]),
        ("ner", {"max_length": 128}, lambda row: row["labels"]),
        ("qa", {"max_length": 64, "stride": 24}, lambda row: (row["start_positions"], row["end_positions"])),
    ],
)
def test_both_sides_learn_the_same_rows(peers, tmp_path, name, settings, targets):
    task, examples, features, _ = data(name, tmp_path, **settings)
    rows = peers.peer_rows(task, examples, peers.peer_tokenizer(tmp_path / "tokenizer"))
    assert len(features) >= len(examples) > 5
    if name == "qa":
        assert len(features) > len(examples)  # windows are compared too
    assert [row["input_ids"] for row in rows] == [feature.ids.tolist() for feature in features]
    segments = [[int(t >= feature.second) for t in range(len(feature.ids))] for feature in features]
    assert [row["token_type_ids"] for row in rows] == segments
    for row, feature in zip(rows, features, strict=True):
        assert np.array_equal(targets(row), feature.target)


def test_rows_are_padded_to_the_most_or_to_the_longest_in_eights(peers, tmp_path):
    task, examples, _, _ = data("cls", tmp_path, max_length=100)
    tokenizer = peers.peer_tokenizer(tmp_path / "tokenizer")
    rows = peers.peer_rows(task, examples[:2], tokenizer)
    longest = max(len(row["input_ids"]) for row in rows)
    assert peers.collator(task, tokenizer, to_max=True)(rows)["input_ids"].shape == (2, 100)
    assert peers.collator(task, tokenizer, to_max=False)(rows)["input_ids"].shape == (2, -(-longest // 8) * 8)


def test_truncation_and_padding_of_a_tokenizer_file_do_not_count(peers, tmp_path):
    _, _, _, tokenizer = data("cls", tmp_path)
    raw = peers.peer_tokenizer(tmp_path / "tokenizer").backend_tokenizer
    raw.enable_truncation(4)
    raw.enable_padding(length=4)
    raw.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    peer = peers.peer_tokenizer(tmp_path / "tokenizer")
    for text in ("i", "the the the the the"):
        assert peer(text)["input_ids"][1:-1] == tokenizer.encode([text])[0]


def test_the_plain_loop_answers_as_minibert_does(peers, tmp_path, monkeypatch):
    # every place is looked at, and contexts have one window: of several, minibert asks the one with most context
    monkeypatch.setattr(peers, "QA_STARTS", 200)
    settings = {"max_length": 192, "max_answer_length": 8, "unanswerable": "no"}
    task, examples, features, tokenizer = data("qa", tmp_path, **settings)
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=192, initializer_range=0.5,
    )  # fmt: skip
    BertForQuestionAnswering(shape).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    ours = Predictor(tmp_path / "model", settings).predict(examples)
    answers = [prediction["answer"] for prediction in ours]
    assert len(features) == len(examples)
    assert len(set(answers)) > 3
    loop = peers.predictor(task, tmp_path / "model")
    pairs = [(example.question, example.context) for example in examples]
    for batch_size in (1, 4):
        assert loop(pairs, batch_size) == answers
