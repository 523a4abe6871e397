"""What a run computes and what its machine could, as machine.json has them."""

import pytest
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from minibert.model.bert import BertConfig
from minibert.training.speed import flops_per_token, machine


@pytest.fixture
def accelerator():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(cpu=True, mixed_precision="no")
    AcceleratorState._reset_state(reset_partial_state=True)


def test_flops_of_a_token_by_hand():
    shape = BertConfig(
        vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )  # fmt: skip
    weights = 2 * (4 * 64 + 2 * 8 * 16)  # two layers: q, k, v and output; the two of the feed-forward part
    assert flops_per_token(shape, 10, 0.0) == 6 * weights + 12 * 2 * 8 * 10
    assert flops_per_token(shape, 10, 0.5) == 6 * weights + 12 * 2 * 8 * 10 + 6 * 0.5 * (800 + 64)


def test_bert_base_computes_what_the_usual_count_says():
    base = BertConfig()  # 85 M weights in its layers: 6 N is 510 M, attention at 512 tokens 57 M
    assert flops_per_token(base, 512, 0.0) == pytest.approx(6 * 84.9e6 + 12 * 12 * 768 * 512, rel=1e-3)


def test_a_machine_says_what_it_is(accelerator):
    found = machine(accelerator, BertConfig(), length=128, through_head=0.15)
    assert (found["processes"], found["precision"]) == (1, "fp32")
    assert found["flops_per_second"] > 1e8
    assert all(found[name] for name in ("device", "threads", "torch", "python", "minibert"))
