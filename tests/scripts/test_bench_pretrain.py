"""scripts/bench_pretrain.py: the count of FLOPs, and that transformers' model gets the same task as minibert's."""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import minibert
from minibert.model.bert import BertConfig
from minibert.training import pretraining

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def bench_pretrain(load_script):
    return load_script("bench_pretrain")


def shape(**changes):
    settings = {"layers": 1, "hidden_size": 2, "length": 4, "batch_size": 5, "heads": 1}
    return argparse.Namespace(**(settings | changes))


def test_flops_by_hand(bench_pretrain):
    # 6 * 12 * 2^2 = 288 of the layer, 12 * 2 * 4 = 96 of attention, 6 * .5 * (2 * 10 + 2^2) = 72 of the head
    assert bench_pretrain.flops_per_token(shape(), 10, 0.5) == 288 + 96 + 72
    # BERT-base, every token through the head: 6 * 84,934,656 + 12 * 12 * 768 * 128 + 6 * (768 * 30,522 + 768^2)
    base = shape(layers=12, hidden_size=768, length=128)
    assert bench_pretrain.flops_per_token(base, 30522, 1.0) == 509_607_936 + 14_155_776 + 144_184_320


def test_products_are_those_of_a_step_without_attention(bench_pretrain, monkeypatch):
    products = bench_pretrain.Products(shape(layers=3), 10, "fp32")
    seconds = iter(range(1, 100))
    monkeypatch.setattr(bench_pretrain, "best_seconds", lambda product: product() is not None and next(seconds))
    products.measure()
    assert len(products.best) == 6 * 3  # four of a layer, two of the head; forward and for two gradients
    # 20 rows, 3 layers of 12 * 2^2 weights; round(.15 * 20) = 3 rows through 2 * 2 and 2 * 10; three products of each
    flops = 3 * 2 * (3 * 20 * 48 + 3 * 4 + 3 * 20)
    assert products.rate() == flops / (3 * sum(range(1, 13)) + sum(range(13, 19)))
    products.measure()  # slower now: the first times stay
    assert products.rate() == flops / (3 * sum(range(1, 13)) + sum(range(13, 19)))


def test_transformers_model_has_the_same_loss_on_the_same_batch(bench_pretrain, tmp_path):
    import transformers

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, initializer_range=0.5,
    )  # fmt: skip
    ours = minibert.BertForPreTraining(config).eval()
    ours.save_pretrained(tmp_path)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, 40, (3, 8)))
    ids[:, 0] = 2
    batch = {
        "input_ids": ids, "token_type_ids": (torch.arange(8) > 4).long().expand(3, 8),
        "attention_mask": (torch.arange(8) < torch.tensor([[8], [6], [7]])).long(),
        "masked_positions": torch.tensor([1, 5, 9, 20, 0, 0]),  # the last two fill up
        "labels": torch.tensor([7, 11, 30, 39, -100, -100]), "next_sentence_label": torch.tensor([0, 1, 1]),
        "counts": torch.tensor([4.0, 3.0]),
    }  # fmt: skip
    with torch.no_grad():
        wanted = (pretraining.loss_sums(ours, batch) / batch["counts"]).sum()
        found = (bench_pretrain.peer_losses(theirs, batch) / batch["counts"]).sum()
    assert wanted > 5
    assert torch.isclose(found, wanted, rtol=1e-5)


def test_an_unknown_peer_is_named():
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench_pretrain.py", "x.txt", "--peers", "trainer,nobody"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "unknown peer: nobody; known: trainer, trainer-fp32, model" in done.stderr
