from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minibert.errors import UserError
from minibert.model.attention import explicit_attention
from minibert.model.bert import BertConfig, BertModel

TOLERANCE = 1e-6  # worst seen: 5.4e-7; the least of the faults below gives 5.7e-5
TINY = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference, in units of the largest value where that is more than 1."""
    worst = (a - b).detach().abs().max().item()
    return worst / max(1.0, b.detach().abs().max().item())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_encoder_equals_transformers_in_every_output(
    norm: str, activation: str, make_pair: Callable[..., Any], batch: dict[str, Tensor]
) -> None:
    ours, theirs = make_pair("BertModel", norm, hidden_act=activation)
    with torch.no_grad():
        mine = ours(**batch, output_attentions=True, output_hidden_states=True)
        other = theirs(**batch, output_attentions=True, output_hidden_states=True)
        plain = ours(**batch)
    assert distance(mine.last_hidden_state, other.last_hidden_state) <= TOLERANCE
    assert distance(mine.pooler_output, other.pooler_output) <= TOLERANCE
    assert len(mine.hidden_states) == len(other.hidden_states) == 4
    assert len(mine.attentions) == len(other.attentions) == 3
    for a, b in zip(mine.hidden_states + mine.attentions, other.hidden_states + other.attentions, strict=True):
        assert a.shape == b.shape
        assert distance(a, b) <= TOLERANCE
    assert distance(plain.last_hidden_state, mine.last_hidden_state) <= TOLERANCE  # fused against explicit
    assert plain.attentions is None
    assert plain.hidden_states is None


def swap_norms(model: BertModel, batch: dict[str, Tensor]) -> None:
    first = model.encoder.layer[0]
    first.attention.output.LayerNorm, first.output.LayerNorm = first.output.LayerNorm, first.attention.output.LayerNorm


def forget_segments(model: BertModel, batch: dict[str, Tensor]) -> None:
    del batch["token_type_ids"]


def forget_mask(model: BertModel, batch: dict[str, Tensor]) -> None:
    del batch["attention_mask"]


def loosen_eps(model: BertModel, batch: dict[str, Tensor]) -> None:
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 1e-5


def approximate_gelu(model: BertModel, batch: dict[str, Tensor]) -> None:
    for layer in model.encoder.layer:
        layer.intermediate.activation = lambda x: F.gelu(x, approximate="tanh")


def scale_by_hidden_size(model: BertModel, batch: dict[str, Tensor]) -> None:
    for layer in model.encoder.layer:
        layer.attention.self.query.weight.data.mul_((8 / 32) ** 0.5)


@pytest.mark.parametrize(
    "fault", [swap_norms, forget_segments, forget_mask, loosen_eps, approximate_gelu, scale_by_hidden_size]
)
def test_tolerance_is_broken_by_each_known_fault(
    fault: Callable[[Any, dict[str, Tensor]], None], make_pair: Callable[..., Any], batch: dict[str, Tensor]
) -> None:
    ours, theirs = make_pair("BertModel")
    with torch.no_grad():
        right = theirs(**batch).last_hidden_state
        fault(ours, batch)
        assert distance(ours(**batch).last_hidden_state, right) > 10 * TOLERANCE


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_state_dict_has_the_names_of_transformers_and_no_other(norm: str, make_pair: Callable[..., Any]) -> None:
    ours, theirs = make_pair("BertModel", norm)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_no_mask_equals_a_full_mask(make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, _ = make_pair("BertModel")
    full = torch.ones(4, 20)
    with torch.no_grad():
        with_mask = ours(batch["input_ids"], full).last_hidden_state
        assert distance(with_mask, ours(batch["input_ids"]).last_hidden_state) <= TOLERANCE


@pytest.mark.parametrize("precise", [True, False])
def test_what_is_hidden_changes_nothing(precise: bool, make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, _ = make_pair("BertModel")
    other = {**batch, "input_ids": torch.where(batch["attention_mask"] == 1, batch["input_ids"], 3)}
    assert not torch.equal(other["input_ids"], batch["input_ids"])
    kept = batch["attention_mask"].bool()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=not precise):
        assert torch.equal(ours(**batch).last_hidden_state[kept], ours(**other).last_hidden_state[kept])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_padding_alone_is_finite(dtype: torch.dtype) -> None:
    model = BertModel(BertConfig(**TINY)).eval()
    with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
        output = model(torch.zeros(2, 5, dtype=torch.long), torch.tensor([[1] * 5, [0] * 5])).last_hidden_state
        output.sum().backward()
    assert output.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_explicit_attention_in_bfloat16_is_as_exact_as_the_fused_kernel() -> None:
    """The path that bfloat16 takes on a CPU. Both round; ours by no more than twice as much (measured: 1.0 times)."""
    random = torch.Generator().manual_seed(0)
    qkv = torch.randn(3, 2, 4, 24, 64, generator=random)
    visible = (torch.arange(24) < torch.tensor([[24], [9]]))[:, None, None, :]
    low = qkv.bfloat16()
    exact = F.scaled_dot_product_attention(*low.float().unbind(), attn_mask=visible)
    fused = F.scaled_dot_product_attention(*low.unbind(), attn_mask=visible).float()
    ours, weights = explicit_attention(low, visible, 0.0)
    assert (ours.float() - exact).pow(2).mean() < 4 * (fused - exact).pow(2).mean()
    assert (weights[1, :, :, 9:] == 0).all()


def test_token_types_absent_are_all_zero(make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, _ = make_pair("BertModel")
    ids = batch["input_ids"]
    with torch.no_grad():
        absent, zero = ours(ids).last_hidden_state, ours(ids, None, torch.zeros_like(ids)).last_hidden_state
    assert distance(absent, zero) <= TOLERANCE


def test_dropout_of_attention_is_a_setting_of_its_own(batch: dict[str, Tensor]) -> None:
    """Hidden dropout 0, attention dropout .5: training differs from one call to the next, in both attention paths."""
    config = BertConfig(**TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    model = BertModel(config)
    for explicit in (False, True):
        model.train()
        a, b = (model(**batch, output_attentions=explicit).last_hidden_state for _ in range(2))
        assert distance(a, b) > 1e-3
        model.eval()
        a, b = (model(**batch, output_attentions=explicit).last_hidden_state for _ in range(2))
        assert torch.equal(a, b)
    still = BertModel(BertConfig(**TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).train()
    assert torch.equal(still(**batch).last_hidden_state, still(**batch).last_hidden_state)


def test_sinusoidal_positions_are_vaswanis_and_are_not_trained() -> None:
    model = BertModel(BertConfig(**TINY, positions="sinusoidal"))
    table = model.embeddings.position_embeddings.weight
    assert not table.requires_grad
    unit = table / (0.02 * 2**0.5)
    # position 3, third pair of 16: rate 10000^(-2/16)
    angle = torch.tensor(3 * 10000 ** (-2 / 16))
    assert distance(unit[3, 4:6], torch.stack((angle.sin(), angle.cos()))) < 1e-6
    assert unit.pow(2).mean().item() == pytest.approx(0.5, abs=1e-6)


def test_more_tokens_than_positions_names_both_numbers() -> None:
    model = BertModel(BertConfig(**TINY, max_position_embeddings=8))
    with pytest.raises(ValueError, match=r"9 tokens are more than max_position_embeddings \(8\)"):
        model(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_size": 30}, r"hidden_size \(30\) is not a multiple of num_attention_heads \(4\)"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
        ({"norm": "middle"}, "norm is 'middle'"),
        ({"positions": "relative"}, "positions is 'relative'"),
        ({"hidden_size": 33, "num_attention_heads": 3, "positions": "sinusoidal"}, "even hidden_size, not 33"),
    ],
)
def test_config_refuses_what_cannot_be_built(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BertConfig(**{**TINY, **wrong})


def test_a_new_model_has_berts_initial_values_from_the_global_seed() -> None:
    torch.manual_seed(5)
    a = BertModel(BertConfig(**TINY))
    torch.manual_seed(5)
    b = BertModel(BertConfig(**TINY))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert a.embeddings.word_embeddings.weight.abs().max() <= 0.04


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradient_checkpointing_keeps_less_and_gives_the_same_gradients(norm: str, batch: dict[str, Tensor]) -> None:
    """Dropout too is the same the second time. Kept for the gradient: bytes of all tensors, counted once."""
    config = BertConfig(**{**TINY, "num_hidden_layers": 4}, norm=norm, attention_probs_dropout_prob=0.2)
    torch.manual_seed(0)
    model = BertModel(config).train()
    found: list[tuple[int, list[Tensor]]] = []
    for less in (False, True):
        model.encoder.gradient_checkpointing = less
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = model(**batch)
        size = sum(kept.values())
        model.zero_grad()
        (out.last_hidden_state.sum() + out.pooler_output.square().sum()).backward()
        found.append((size, [parameter.grad.clone() for parameter in model.parameters()]))
    (all_of_it, plain), (little, anew) = found
    assert little < 0.4 * all_of_it
    assert all(torch.equal(a, b) for a, b in zip(plain, anew, strict=True))


def test_gradient_checkpointing_is_nothing_without_a_gradient(batch: dict[str, Tensor]) -> None:
    model = BertModel(BertConfig(**TINY)).eval()
    with torch.no_grad():
        plain = model(**batch, output_attentions=True)
        model.encoder.gradient_checkpointing = True
        again = model(**batch, output_attentions=True)
    assert torch.equal(plain.last_hidden_state, again.last_hidden_state)
    assert len(again.attentions) == len(plain.attentions)
