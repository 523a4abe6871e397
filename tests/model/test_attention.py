"""Padding that is not computed: the same outputs and gradients as with it, by every head, and by the kernel's calls."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from minibert.model import attention, heads
from minibert.model.attention import RealTokens
from minibert.model.bert import BertConfig, BertModel

SHAPE: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 40,
}  # fmt: skip
HEADS = [
    "BertForPreTraining", "BertForMaskedLM", "BertForSequenceClassification", "BertForTokenClassification",
    "BertForQuestionAnswering",
]  # fmt: skip


def model_of(name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    made = getattr(heads, name, BertModel)(BertConfig(**SHAPE, **changes))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made.eval()


def one_by_one(query: Tensor, key: Tensor, value: Tensor, begin: Tensor, same: Tensor, most: int, also: int) -> Tensor:
    """What torch's varlen_attn is documented to compute: (M,N,H) each, rows from begin[i] to begin[i + 1]."""
    assert begin.dtype == same.dtype == torch.int32
    assert begin is same
    assert most == also >= int(begin.diff().max())
    rows = []
    for first, end in zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True):
        q, k, v = (x[first:end].transpose(0, 1) for x in (query, key, value))  # (N,t,H)
        rows.append(F.scaled_dot_product_attention(q, k, v).transpose(0, 1))
    return torch.cat(rows)


@pytest.fixture(params=["padded inside", "kernel"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "kernel":
        varlen = pytest.importorskip("torch.nn.attention.varlen")
        monkeypatch.setattr(varlen, "varlen_attn", one_by_one)
        monkeypatch.setattr(attention, "has_varlen", lambda *args: True)


def test_real_tokens_say_what_the_mask_says(batch: dict[str, Tensor]) -> None:
    real = RealTokens.of(batch["attention_mask"])
    assert real.starts.tolist() == [0, 20, 32, 52, 57]
    assert real.places.tolist() == [*range(32), *range(40, 65)]
    assert torch.equal(real.mask(4, 20), batch["attention_mask"].bool())
    assert real.among(torch.tensor([0, 31, 40, 64]), 80).tolist() == [0, 31, 32, 56]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("types", [True, False])
def test_every_state_is_the_same_and_padding_is_0(norm: str, types: bool, batch: dict[str, Tensor]) -> None:
    model = model_of("BertModel", norm=norm)
    if not types:
        del batch["token_type_ids"]
    kept = batch["attention_mask"].bool()
    with torch.no_grad():
        want = model(**batch, output_hidden_states=True)
        got = model(**{**batch, "attention_mask": RealTokens.of(kept)}, output_hidden_states=True)
    assert (got.pooler_output - want.pooler_output).abs().max() < 1e-5
    for a, b in zip(got.hidden_states, want.hidden_states, strict=True):
        assert (a[kept] - b[kept]).abs().max() < 1e-5
        assert (a[~kept] == 0).all()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.usefixtures("way")
def test_every_head_and_its_gradient_are_the_same(name: str, checkpointing: bool, batch: dict[str, Tensor]) -> None:
    model = model_of(name).train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
        if hasattr(module, "num_heads"):
            module.dropout = 0.0
    model.bert.encoder.gradient_checkpointing = checkpointing
    chosen = torch.tensor([1, 5, 21, 30, 41, 63])
    extra: dict[str, Any] = {
        "BertForPreTraining": {
            "masked_positions": chosen, "labels": chosen % 50, "next_sentence_label": torch.tensor([0, 1, 1, 0])
        },
        "BertForMaskedLM": {"masked_positions": chosen, "labels": chosen % 50},
        "BertForSequenceClassification": {"labels": torch.tensor([0, 1, 1, 0])},
        "BertForTokenClassification": {"positions": chosen, "labels": chosen % 2},
        "BertForQuestionAnswering": {
            "start_positions": torch.tensor([1, 3, 2, 4]), "end_positions": torch.tensor([5, 9, 2, 4])
        },
    }[name]  # fmt: skip
    found = []
    for mask in (batch["attention_mask"], RealTokens.of(batch["attention_mask"])):
        if name == "BertForQuestionAnswering":  # its loss is over padding too: logits of real tokens instead
            out = model(batch["input_ids"], mask, batch["token_type_ids"])
            kept = batch["attention_mask"].bool()
            loss = out.start_logits[kept].square().sum() + out.end_logits[kept].sum()
        else:
            loss = model(batch["input_ids"], mask, batch["token_type_ids"], **extra).loss
        model.zero_grad()
        loss.backward()
        found.append((loss.item(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    (want, wanted), (got, gotten) = found
    assert got == pytest.approx(want, rel=1e-5)
    assert len(wanted) == len(gotten) > 40
    for a, b in zip(gotten, wanted, strict=True):
        assert (a - b).abs().max() < 1e-5 * max(1.0, b.abs().max().item())


def test_attention_weights_and_dropout_take_the_padded_way(
    batch: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "has_varlen", lambda *args: True)
    monkeypatch.setattr(attention, "varlen_attention", lambda *args: pytest.fail("it knows neither"))
    model = model_of("BertModel", attention_probs_dropout_prob=0.5)
    kept = batch["attention_mask"].bool()
    real = {**batch, "attention_mask": RealTokens.of(kept)}
    with torch.no_grad():
        weights = model(**real, output_attentions=True).attentions[2]
        want = model(**batch, output_attentions=True).attentions[2]
        assert weights.shape == (4, 4, 20, 20)
        rows = kept[:, None, :, None].expand_as(want)
        assert (weights - want)[rows].abs().max() < 1e-5
        model.train()(**real)


def test_kernel_is_for_half_precision_on_a_gpu_alone() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert not attention.has_varlen(cpu, torch.bfloat16, 64)
    assert not attention.has_varlen(gpu, torch.float32, 64)
    assert not attention.has_varlen(gpu, torch.bfloat16, 12)
