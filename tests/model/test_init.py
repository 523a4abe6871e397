import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from minibert.errors import UserError
from minibert.model.bert import BertConfig, BertModel
from minibert.model.heads import BertForPreTraining
from minibert.model.init import initialise, log_frequency


def make_config(**changes: object) -> BertConfig:
    shape = {
        "vocab_size": 1000,
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "max_position_embeddings": 64,
    }
    return BertConfig(**{**shape, **changes})  # type: ignore[arg-type]


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_normal_is_truncated_at_two_sigma_with_its_own_spread() -> None:
    """n = 256,000 word weights. A normal cut at 2 sigma has .8796 of its sigma; the estimate of a spread has a relative
    sigma below 1/sqrt(2n) = .0014: bounds at 5 of them. The mean's sigma is .0176/sqrt(n) = 3.5e-5."""
    model = BertForPreTraining(make_config())
    initialise(model, scheme="normal", seed=3)
    words = model.bert.embeddings.word_embeddings.weight
    assert words.abs().max() <= 0.04
    assert words.std().item() == pytest.approx(0.02 * 0.8796, rel=5 * 0.0014)
    assert abs(words.mean().item()) < 5 * 3.5e-5
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "LayerNorm" in name:
            assert (parameter == 1).all(), name
        else:  # the smallest, seq_relationship, has n = 512: 1/sqrt(2n) = .031
            assert parameter.std().item() == pytest.approx(0.0176, rel=0.16), name


@pytest.mark.parametrize("scheme", ["normal", "neighbour"])
def test_draw_depends_on_the_seed_alone(scheme: str) -> None:
    model = BertForPreTraining(make_config(num_hidden_layers=1))
    results = []
    threads = torch.get_num_threads()
    try:
        for seed, num_threads in ((1, 1), (1, 2), (2, 1)):
            torch.set_num_threads(num_threads)
            torch.manual_seed(100 * num_threads)
            before = torch.get_rng_state()
            initialise(model, scheme=scheme, seed=seed)
            assert torch.equal(torch.get_rng_state(), before)
            results.append(weights(model).clone())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize(("norm", "layers"), [("post", 2), ("pre", 1)])
def test_neighbour_heads_look_at_their_offset(norm: str, layers: int) -> None:
    """Mean weight on the offset's position, over 6 random sentences of 64, where there is such a position. An even
    spread would give 1/64. Measured: .52 to .58. In deeper pre-LN layers the outputs of the layers
    below outweigh the positions and no head has a peak before training."""
    model = BertModel(make_config(norm=norm)).eval()
    initialise(model, scheme="neighbour", seed=0, head_share=1.0)
    ids = torch.randint(1000, (6, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        attentions = model(ids, output_attentions=True).attentions
    for i, layer in enumerate(attentions[:layers]):
        for head, offset in enumerate((-1, 1, -2, 2)):
            towards = layer[:, head].diagonal(offset, dim1=-2, dim2=-1)  # (6, 64 - |offset|)
            assert towards.mean() > 0.5, (i, offset)


def test_half_of_the_heads_and_two_post_norm_layers_are_left_free() -> None:
    model = BertModel(make_config())
    initialise(model, scheme="neighbour", seed=0, head_share=0.5)
    for i, layer in enumerate(model.encoder.layer):
        key = layer.attention.self.key.weight.view(4, 64, 256)
        strongest = key.abs().amax(dim=(1, 2))  # sqrt(2) + noise in a neighbour head; else 5.5 sigma of 1/16 = .34
        assert ((strongest > 1.2) == torch.tensor([True, True, False, False]) if i < 2 else strongest < 0.5).all()


def test_neighbour_positions_are_as_heavy_as_words() -> None:
    model = BertModel(make_config())
    initialise(model, scheme="neighbour", seed=0)
    table = model.embeddings.position_embeddings.weight
    assert table.pow(2).mean().sqrt().item() == pytest.approx(0.02, rel=1e-4)
    # the fastest pair: pi radians a position; the second: pi * 10000^(-1/128)
    assert table[1, :2].tolist() == pytest.approx([0.0, -0.0283], abs=1e-4)
    angle = 5 * math.pi * 10000 ** (-1 / 128)
    assert table[5, 2:4].tolist() == pytest.approx([0.0283 * math.sin(angle), 0.0283 * math.cos(angle)], abs=1e-4)


@pytest.mark.parametrize(("norm", "factor"), [("post", 0.1), ("pre", 0.3)])
def test_neighbour_weights_go_by_fan_in_and_output_projections_start_small(norm: str, factor: float) -> None:
    """n >= 65,536 a matrix: relative sigma of a spread .0028, bounds at 5."""
    model = BertForPreTraining(make_config(norm=norm))
    initialise(model, scheme="neighbour", seed=0, head_share=0.5)
    layer = model.bert.encoder.layer[3]
    for dense, spread in (
        (layer.attention.self.value, 1 / 16),
        (layer.intermediate.dense, 1 / 16),
        (layer.attention.output.dense, factor / 16),
        (layer.output.dense, factor / math.sqrt(512)),
        (model.cls.predictions.transform.dense, 1 / 16),
    ):
        assert dense.weight.std().item() == pytest.approx(spread, rel=5 * 0.0028)
        assert (dense.bias == 0).all()


def test_mlm_bias_is_the_log_of_smoothed_frequencies() -> None:
    model = BertForPreTraining(make_config(vocab_size=6))
    counts = np.array([0, 3, 0, 1])  # two rows of padding follow
    initialise(model, scheme="neighbour", seed=0, token_counts=counts)
    expected = torch.tensor([1, 4, 1, 2, 1, 1]).div(10).log()
    assert torch.allclose(model.cls.predictions.bias, expected)
    assert torch.allclose(log_frequency(counts, 6), expected)
    initialise(model, scheme="normal", seed=0, token_counts=counts)
    assert (model.cls.predictions.bias == 0).all()


@pytest.mark.parametrize("scheme", ["normal", "neighbour"])
def test_given_word_vectors_are_as_long_as_drawn_ones(scheme: str) -> None:
    model, drawn = (BertForPreTraining(make_config()) for _ in range(2))
    words, plain = (m.bert.embeddings.word_embeddings.weight for m in (model, drawn))
    given = np.random.default_rng(0).normal(size=tuple(words.shape)).astype(np.float32)
    given /= np.linalg.norm(given, axis=1, keepdims=True)
    given[5] = 0  # a word of which nothing is known
    initialise(model, scheme=scheme, seed=0, word_vectors=given)
    initialise(drawn, scheme=scheme, seed=0)
    assert torch.equal(words[5], plain[5])
    length = words.shape[1] ** 0.5 * model.config.initializer_range
    torch.testing.assert_close(words[6:], torch.from_numpy(given[6:]) * length)
    others = [(a, b) for (name, a), (_, b) in zip(model.named_parameters(), drawn.named_parameters(), strict=True)
              if "word_embeddings" not in name]  # fmt: skip
    assert all(torch.equal(a, b) for a, b in others)


def test_neighbour_model_starts_near_the_unigram_loss() -> None:
    """A corpus in which token i has weight 1/(i+1): unigram loss by arithmetic. n = 4,096 tokens, sigma of one loss
    about 1.9 nats: .03 for their mean; the logits' own spread adds about .02 * 16 squared and halved, .05."""
    frequency = 1 / torch.arange(1, 1001)
    frequency /= frequency.sum()
    model = BertForPreTraining(make_config()).eval()
    initialise(model, scheme="neighbour", seed=0, token_counts=(frequency * 1e6).numpy().astype(np.int64))
    generator = torch.Generator().manual_seed(0)
    ids, labels = (torch.multinomial(frequency, 64 * 64, True, generator=generator).view(64, 64) for _ in range(2))
    with torch.no_grad():
        loss = model(ids, labels=labels).loss.item()
    unigram = -(frequency * frequency.log()).sum().item()
    assert loss == pytest.approx(unigram, abs=0.2)


def test_decoder_is_still_tied_and_positions_trainable() -> None:
    model = BertForPreTraining(make_config())
    initialise(model, scheme="neighbour", seed=0)
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert model.bert.embeddings.position_embeddings.weight.requires_grad


def test_fixed_positions_survive_the_normal_draw() -> None:
    model = BertModel(make_config(positions="sinusoidal"))
    table = model.embeddings.position_embeddings.weight.clone()
    initialise(model, scheme="normal", seed=0)
    assert torch.equal(model.embeddings.position_embeddings.weight, table)


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UserError, match="init is 'xavier'"):
        initialise(BertModel(make_config(num_hidden_layers=1)), scheme="xavier", seed=0)
    odd = BertModel(make_config(hidden_size=33, num_attention_heads=3, num_hidden_layers=1))
    with pytest.raises(UserError, match="even hidden_size, not 33"):
        initialise(odd, scheme="neighbour", seed=0)
