"""A BERT that somebody else trained: MiniLM (6 layers, 384 wide), brought by `scripts/real_data.py models`.

Skipped where data/ does not hold it.
"""

import pytest
import torch

import minibert
from minibert.console import Console
from minibert.finetune.story import finetune
from minibert.tasks import find_tasks

SENTENCES = ("A man is eating food.", "A man is eating a piece of bread.")


@pytest.fixture(scope="module")
def minilm(root):
    folder = root / "data" / "models" / "minilm"
    if not folder.is_dir():
        pytest.skip("no data/models/minilm: scripts/real_data.py models brings it")
    return folder


def test_vectors_are_those_that_were_published(minilm):
    a, b = minibert.embed(minilm, SENTENCES, pooling="mean", normalize=True)
    assert float(a @ b) == pytest.approx(0.7553, abs=0.001)


def test_every_layer_is_that_of_transformers(minilm):
    import transformers

    model, tokenizer = minibert.load(minilm)
    batch = tokenizer([*SENTENCES, "今天 naïve [MASK] " + "word " * 60], text_pairs=["and a pair", "", "b"])
    theirs = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    ids = transformers.AutoTokenizer.from_pretrained(minilm)(list(SENTENCES))["input_ids"]
    assert [row[: len(one)].tolist() for row, one in zip(tokenizer(SENTENCES)["input_ids"], ids, strict=True)] == ids
    with torch.no_grad():
        mine, other = (m(**batch, output_hidden_states=True, output_attentions=True) for m in (model, theirs))
    keep = batch["attention_mask"].bool()
    for a, b in zip(mine.hidden_states, other.hidden_states, strict=True):
        assert (a - b)[keep].abs().max() <= 1e-5  # seen: 6e-6
    for a, b in zip(mine.attentions, other.attentions, strict=True):
        assert (a - b).transpose(1, 2)[keep].abs().max() <= 1e-5
    assert (mine.pooler_output - other.pooler_output).abs().max() <= 1e-5


def test_it_is_fine_tuned_and_answers(minilm, tmp_path):
    lines = [f"{good} {what},{label}" for good, label in (("wonderful", "pos"), ("terrible", "neg"))
             for what in "film hotel meal book day song view room".split()]  # fmt: skip
    train = tmp_path / "train.csv"
    train.write_text("text,label\n" + "\n".join(lines) + "\n", "utf-8")
    kind = find_tasks()["cls"]
    config = kind.Config(epochs=8.0, batch_size=8, lr=3e-4, precision="fp32")
    finetune(kind, config, minilm, tmp_path / "run", train=train, console=Console(quiet=True))
    answers = minibert.pipeline(tmp_path / "run")(["a wonderful evening", "what a terrible evening"])
    assert [answer["label"] for answer in answers] == ["pos", "neg"]
