import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from minibert.model.bert import BertConfig
from minibert.model.heads import BertForMaskedLM, BertForPreTraining, mean_cross_entropy

TOLERANCE = 1e-6  # worst seen: 7e-7
POSITIONS = torch.tensor([3, 0, 21, 44, 44, 79])  # flat in 4 x 20: a [CLS], a place twice, the very last


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference, in units of the largest value where that is more than 1."""
    worst = (a - b).detach().abs().max().item()
    return worst / max(1.0, b.detach().abs().max().item())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_pre_training_equals_transformers(norm: str, make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, theirs = make_pair("BertForPreTraining", norm)
    labels = torch.where(torch.arange(80).view(4, 20) % 5 == 0, batch["input_ids"], -100)
    gold = {"labels": labels, "next_sentence_label": torch.tensor([0, 1, 1, 0])}
    with torch.no_grad():
        mine, other = ours(**batch, **gold), theirs(**batch, **gold)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert distance(mine.prediction_logits, other.prediction_logits) <= TOLERANCE
    assert distance(mine.seq_relationship_logits, other.seq_relationship_logits) <= TOLERANCE
    assert distance(mine.loss, other.loss) <= TOLERANCE


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_masked_lm_equals_transformers(norm: str, make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, theirs = make_pair("BertForMaskedLM", norm)
    labels = torch.where(torch.arange(80).view(4, 20) % 3 == 0, batch["input_ids"], -100)
    with torch.no_grad():
        mine, other = ours(**batch, labels=labels), theirs(**batch, labels=labels)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert distance(mine.logits, other.logits) <= TOLERANCE
    assert distance(mine.loss, other.loss) <= TOLERANCE


TASK_HEADS = [
    ("BertForSequenceClassification", {"labels": torch.tensor([0, 2, 1, 2])}),
    ("BertForTokenClassification", {"labels": torch.where(torch.arange(80).view(4, 20) % 3 == 0, 1, -100)}),
    (
        "BertForQuestionAnswering",
        {"start_positions": torch.tensor([3, 0, 19, 25]), "end_positions": torch.tensor([5, 0, 20, 1])},
    ),
]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("name", "gold"), TASK_HEADS, ids=lambda value: value if isinstance(value, str) else "")
def test_task_heads_equal_transformers(
    name: str, gold: dict[str, Tensor], norm: str, make_pair: Callable[..., Any], batch: dict[str, Tensor]
) -> None:
    labels = {} if name.endswith("Answering") else {"id2label": {0: "a", 1: "b", 2: "c"}}
    ours, theirs = make_pair(name, norm, **labels)
    with torch.no_grad():
        mine, other = ours(**batch, **gold), theirs(**batch, **gold)
        more = ours(**batch, output_hidden_states=True, output_attentions=True)
        their_more = theirs(**batch, output_hidden_states=True, output_attentions=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key in ("logits", "start_logits", "end_logits"):
        if hasattr(other, key):
            assert distance(getattr(mine, key), getattr(other, key)) <= TOLERANCE
            assert distance(getattr(more, key), getattr(other, key)) <= TOLERANCE
    assert distance(mine.loss, other.loss) <= TOLERANCE
    keep = batch["attention_mask"].bool()
    for x, y in zip(more.hidden_states, their_more.hidden_states, strict=True):
        assert distance(x[keep], y[keep]) <= TOLERANCE
    for x, y in zip(more.attentions, their_more.attentions, strict=True):
        assert distance(x, y) <= TOLERANCE


@pytest.mark.parametrize(
    ("problem", "id2label", "labels"),
    [
        ("multi_label_classification", {0: "a", 1: "b", 2: "c"}, torch.tensor([[0, 1, 1.0]] * 4)),
        ("regression", {0: "LABEL_0"}, torch.tensor([0.5, 1, -2, 7])),
        (None, {0: "LABEL_0"}, torch.tensor([0.5, 1, -2, 7])),
    ],
)
def test_losses_of_other_problems_equal_transformers(
    problem: str | None,
    id2label: dict[int, str],
    labels: Tensor,
    make_pair: Callable[..., Any],
    batch: dict[str, Tensor],
) -> None:
    torch.manual_seed(0)
    ours, theirs = make_pair("BertForSequenceClassification", id2label=id2label, problem_type=problem)
    with torch.no_grad():
        assert distance(ours(**batch, labels=labels).loss, theirs(**batch, labels=labels).loss) <= TOLERANCE


@pytest.mark.parametrize("hidden_states", [False, True])
def test_tags_at_positions_are_the_full_logits_gathered(
    hidden_states: bool, make_pair: Callable[..., Any], batch: dict[str, Tensor]
) -> None:
    ours, _ = make_pair("BertForTokenClassification", id2label={0: "a", 1: "b", 2: "c"})
    with torch.no_grad():
        full = ours(**batch).logits
        few = ours(**batch, positions=POSITIONS, output_hidden_states=hidden_states).logits
    assert distance(few, full.flatten(0, 1)[POSITIONS]) <= TOLERANCE


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("hidden_states", [False, True])
def test_masked_positions_are_the_full_logits_gathered(
    norm: str, hidden_states: bool, make_pair: Callable[..., Any], batch: dict[str, Tensor]
) -> None:
    ours, _ = make_pair("BertForPreTraining", norm)
    with torch.no_grad():
        full = ours(**batch)
        few = ours(**batch, masked_positions=POSITIONS, output_hidden_states=hidden_states, output_attentions=True)
    assert distance(few.prediction_logits, full.prediction_logits.flatten(0, 1)[POSITIONS]) <= TOLERANCE
    assert distance(few.seq_relationship_logits, full.seq_relationship_logits) <= TOLERANCE
    assert few.attentions[-1].shape == (4, 4, 20, 20)
    if hidden_states:
        assert [tuple(x.shape) for x in few.hidden_states] == [(4, 20, 32)] * 4


def test_masked_positions_give_the_same_loss_and_gradients(
    make_pair: Callable[..., Any], batch: dict[str, Tensor]
) -> None:
    ours, _ = make_pair("BertForPreTraining")
    places = POSITIONS.unique()
    labels = torch.full((80,), -100)
    labels[places] = batch["input_ids"].flatten()[places]
    gradients = []
    for gold in ({"labels": labels.view(4, 20)}, {"labels": labels[places], "masked_positions": places}):
        ours.zero_grad()
        ours(**batch, **gold, next_sentence_label=torch.tensor([0, 1, 1, 0])).loss.backward()
        gradients.append([p.grad.clone() for p in ours.parameters()])
    for full, few in zip(*gradients, strict=True):
        assert distance(full, few) <= TOLERANCE


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradient_reaches_each_parameter(norm: str, make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, _ = make_pair("BertForPreTraining", norm)
    ours(
        **batch, masked_positions=POSITIONS, labels=torch.arange(6), next_sentence_label=torch.tensor([0, 1, 1, 0])
    ).loss.backward()
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_loss_is_the_sum_of_the_means_given(make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, _ = make_pair("BertForPreTraining")
    tokens, pairs = torch.tensor([4, -100, 7, 9, -100, 2]), torch.tensor([0, 1, 1, 0])
    with torch.no_grad():
        both = ours(**batch, masked_positions=POSITIONS, labels=tokens, next_sentence_label=pairs)
        mlm = ours(**batch, masked_positions=POSITIONS, labels=tokens).loss
        nsp = ours(**batch, masked_positions=POSITIONS, next_sentence_label=pairs).loss
        none = ours(**batch).loss
    counted = tokens != -100
    assert distance(mlm, F.cross_entropy(both.prediction_logits[counted], tokens[counted])) <= TOLERANCE
    assert distance(nsp, F.cross_entropy(both.seq_relationship_logits, pairs)) <= TOLERANCE
    assert distance(both.loss, mlm + nsp) <= TOLERANCE
    assert none is None


def test_labels_that_are_all_ignored_cost_nothing() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    loss = mean_cross_entropy(logits, torch.full((3,), -100))
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_loss_of_bfloat16_logits_is_summed_in_float32() -> None:
    """4,096 losses of ln 2: bfloat16 would stop counting at 256 or so."""
    loss = mean_cross_entropy(torch.zeros(4096, 2, dtype=torch.bfloat16), torch.zeros(4096, dtype=torch.long))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(2), abs=1e-5)


def test_no_masked_position_at_all_is_zero_loss(make_pair: Callable[..., Any], batch: dict[str, Tensor]) -> None:
    ours, _ = make_pair("BertForMaskedLM")
    nothing = torch.zeros(0, dtype=torch.long)
    output = ours(**batch, masked_positions=nothing, labels=nothing)
    assert output.logits.shape == (0, 50)
    assert output.loss.item() == 0.0


@pytest.mark.parametrize("cls", [BertForPreTraining, BertForMaskedLM])
def test_decoder_stays_tied_after_a_step(cls: Any, batch: dict[str, Tensor]) -> None:
    model = cls(BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4))
    words, head = model.bert.embeddings.word_embeddings.weight, model.cls.predictions
    before = words.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(**batch, labels=batch["input_ids"]).loss.backward()
    optimizer.step()
    assert head.decoder.weight is words
    assert head.decoder.bias is head.bias
    assert distance(words, before) > 0
    assert len([name for name, _ in model.named_parameters() if "decoder" in name]) == 0


def test_loss_before_training_is_that_of_guessing(batch: dict[str, Tensor]) -> None:
    """MLM near ln V, NSP near ln 2. n = 512 targets. Logits of sigma s add about s^2/2: here s = .02 * sqrt(128) = .23,
    .03 in all; the mean of 512 logits of that sigma deviates by .01. 0.1 is more than three such sigma off."""
    torch.manual_seed(0)
    model = BertForPreTraining(BertConfig(vocab_size=3000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2))
    ids = torch.randint(3000, (8, 64))
    with torch.no_grad():
        mlm = model(ids, labels=ids.flip(1)).loss.item()
        nsp = model(ids, next_sentence_label=torch.arange(8) % 2).loss.item()
    assert mlm == pytest.approx(math.log(3000), abs=0.1)
    assert nsp == pytest.approx(math.log(2), abs=0.05)


def test_autocast_reaches_the_logits_and_leaves_the_rest_in_float32(batch: dict[str, Tensor]) -> None:
    model = BertForPreTraining(BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4))
    with torch.autocast("cpu", torch.bfloat16):
        output = model(**batch, labels=batch["input_ids"])
    output.loss.backward()
    assert output.prediction_logits.dtype == torch.bfloat16  # nothing on the way turned the products precise and slow
    assert output.loss.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
