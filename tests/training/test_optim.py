"""Learning rates by hand, decay groups, Muon against torch's own."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from minibert.training import optim
from minibert.training.optim import Muon, Progress, StepSchedule, TimeSchedule, build_optimizers, rate_at


def rates(steps, warmup):
    schedule = StepSchedule(steps)
    share = schedule.warmup_share(warmup)
    return [rate_at(schedule.progress(step), share) for step in range(steps)]


def test_rate_rises_and_falls_by_hand():
    # 10 steps, 4 of warm-up: quarters up, then from the fifth step on sixths down; no step has rate 0
    expected = [1 / 4, 2 / 4, 3 / 4, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert rates(10, 4) == pytest.approx(expected)
    assert rates(10, 0.4) == pytest.approx(expected)


def test_rate_without_warmup_starts_at_the_top():
    assert rates(4, 0) == pytest.approx([1, 3 / 4, 2 / 4, 1 / 4])


def test_rate_of_a_warmup_longer_than_the_training_only_rises():
    assert rates(4, 8) == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1])


def test_step_schedule_ends_after_its_steps():
    schedule = StepSchedule(3)
    assert schedule.progress(2) == Progress(2 / 3, 1.0)
    assert schedule.progress(3) is None


def test_time_schedule_ends_with_its_time_and_its_rate_with_it(monkeypatch):
    now = [7.0]
    monkeypatch.setattr(optim, "time", SimpleNamespace(monotonic=lambda: now[0]))
    schedule = TimeSchedule(0.5, reserve=0.1)
    step, rates = 0, []
    while (progress := schedule.progress(step)) is not None:
        rates.append(rate_at(progress, 0.1))
        step += 1
        now[0] += 0.02
        schedule.finished()
        if step == 5:
            now[0] += 0.1  # measuring: counts as time, but not as a step's length
    assert (step, now[0]) == (15, pytest.approx(7.4))  # (.5 - .1 - .1) / .02 steps
    assert rates[-1] == pytest.approx((0.4 - 0.38) / 0.4 / 0.9)
    assert max(rates) == 1


def test_time_schedule_counts_what_an_earlier_part_took():
    assert TimeSchedule(100, reserve=10, elapsed=91).progress(5) is None
    assert TimeSchedule(100, reserve=10, elapsed=89).progress(5) is not None


def test_processes_with_other_clocks_end_at_the_same_step():
    # two processes, the second one's clock ahead and its steps longer: it takes the first one's word for both
    said = []

    def tell(values):
        said.append(list(values))
        return values

    first = TimeSchedule(10, reserve=0, agree=tell)
    second = TimeSchedule(10, reserve=0, elapsed=9.9, agree=lambda values: said[-1])
    for step in range(20):
        first.began -= 0.7  # each step takes that long
        first.finished()
        second.took = 5.0
        a, b = first.progress(step), second.progress(step)
        assert a == b
        if a is None:
            break
    assert a is None
    assert 13 <= step <= 15


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(7, 4)
        self.layer = nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 4)])
        self.norm = nn.LayerNorm(4)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(4, 8)])})


def test_biases_and_norms_are_not_decayed_and_embeddings_are():
    model = Small()
    (adamw,) = build_optimizers(model, name="adamw", lr=1e-3, muon_lr=0.02, weight_decay=0.01, adam_beta2=0.999)
    decayed, plain = adamw.param_groups
    assert {id(p) for p in decayed["params"]} == {id(p) for p in model.parameters() if p.ndim == 2}
    assert decayed["weight_decay"] == 0.01
    assert plain["weight_decay"] == 0.0
    assert {id(p) for p in plain["params"]} == {id(p) for p in model.parameters() if p.ndim == 1}


def test_muon_takes_the_matrices_inside_the_layers_alone():
    model = Small()
    adamw, muon = build_optimizers(
        model, name="muon", lr=1e-3, muon_lr=0.02, weight_decay=0.01, adam_beta2=0.999, muon_decay=0.3
    )
    assert muon.param_groups[0]["weight_decay"] == 0.3
    inside = [p for name, p in model.named_parameters() if ".layer." in name and p.ndim == 2]
    assert [id(p) for p in muon.param_groups[0]["params"]] == [id(p) for p in inside]
    taken = {id(p) for group in adamw.param_groups for p in group["params"]}
    assert taken == {id(p) for p in model.parameters()} - {id(p) for p in inside}


@pytest.mark.parametrize("decay", [0.0, 5.0])
@pytest.mark.parametrize("shape", [(8, 8), (16, 4), (4, 16)])
def test_muon_steps_as_torchs_own(shape, decay):
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape)) for _ in range(3)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    a = Muon(ours, lr=0.02, momentum=0.95, weight_decay=decay)
    b = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=decay, nesterov=True)
    for _ in range(3):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(shape)
            q.grad = p.grad.clone()
        a.step()
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        # both iterate in bfloat16: 3 steps of size .02 * sqrt(max(1, R/C)), each right to about a hundredth
        torch.testing.assert_close(p, q, rtol=0, atol=3 * 0.02 * max(1, shape[0] / shape[1]) ** 0.5 * 0.02)


def test_a_run_that_was_begun_before_there_was_decay_goes_on_without():
    torch.manual_seed(0)
    old, new = (nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    saved = Muon([old], lr=0.1).state_dict()
    for group in saved["param_groups"]:
        del group["weight_decay"]
    resumed, without = Muon([old], lr=0.1, weight_decay=5.0), Muon([new], lr=0.1)
    resumed.load_state_dict(saved)
    for parameter, optimizer in ((old, resumed), (new, without)):
        parameter.grad = torch.arange(16.0).view(4, 4)
        optimizer.step()
    assert torch.equal(old, new)


def test_muon_makes_singular_values_near_one():
    torch.manual_seed(1)
    values = torch.linalg.svdvals(Muon.orthogonal(torch.randn(2, 24, 12)).float())
    assert values.min() > 0.6
    assert values.max() < 1.3
