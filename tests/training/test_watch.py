"""What is odd about a run is found, and nothing else."""

import json
import math
import random

import pytest

from minibert.training.watch import BEFORE, RECENT, Watch

PRE, FINE = ("mlm_loss", "nsp_loss"), ("loss",)


def kinds(watch, losses, norms=None, share=0.1):
    """What a watch finds in steps with these losses, one tuple a step."""
    found = []
    for number, values in enumerate(losses, 1):
        norm = norms[number - 1] if norms else 1.0
        found += [(f.step, f.kind) for f in watch.step(number, share, values, norm)]
    return found


def noisy(levels, sigma, seed):
    draw = random.Random(seed)
    return [(max(0.0, level + draw.gauss(0, sigma)),) for level in levels]


@pytest.mark.parametrize("seed", range(20))
def test_usual_runs_raise_nothing(seed):
    """Losses that fall, level out and are noisy: 20 runs of 600 steps."""
    falling = [7 * math.exp(-i / 200) + 0.5 for i in range(600)]
    norms = [math.exp(random.Random(seed + i).gauss(0, 0.7)) for i in range(600)]
    assert kinds(Watch(FINE), noisy(falling, 0.25, seed), norms) == []


@pytest.mark.parametrize("seed", range(20))
def test_small_batches_with_a_few_hard_rows_raise_nothing(seed):
    """The end of a fine-tuning: near zero, but one batch in ten has a row that is wrong."""
    draw = random.Random(seed)
    losses = [(draw.expovariate(1) if draw.random() < 0.1 else 0.01,) for _ in range(600)]
    assert kinds(Watch(FINE), losses) == []


def test_one_bad_batch_is_no_jump():
    levels = [3.0] * 100 + [9.0] + [3.0] * 100
    assert kinds(Watch(FINE), noisy(levels, 0.05, 0)) == []


def test_a_jump_is_said_once_soon_after_it():
    found = kinds(Watch(FINE), noisy([3.0] * 100 + [6.5] * 200, 0.05, 0))
    ((step, kind),) = found
    assert kind == "loss-jump"
    assert 100 < step <= 100 + RECENT


def test_a_gradient_that_grows_is_said():
    norms = [1.0] * 100 + [50.0] * 50
    ((step, kind),) = kinds(Watch(FINE), [(3.0,)] * 150, norms)
    assert kind == "gradient-growth"
    assert 100 < step <= 100 + RECENT


def test_a_head_worse_than_chance_is_said():
    uniform = math.log(1000)  # 6.9
    found = kinds(Watch(PRE, uniform=uniform), [(6.0, 0.6)] * BEFORE + [(8.5, 0.6)] * RECENT)
    assert "mlm-exploded" in {kind for _, kind in found}
    assert kinds(Watch(PRE, uniform=uniform), [(7.0, 0.7)] * 100) == []  # the first steps of any run


@pytest.mark.parametrize(
    ("step", "share", "masked", "said"),
    [
        (500, 1.0, 6.58, True),
        (500, 0.5, 6.58, True),
        (500, 0.4, 6.58, False),
        (500, 1.0, 6.4, False),
        (9, 1.0, 6.58, False),
    ],
)
def test_the_plateau_is_said_from_half_of_the_training_on(step, share, masked, said):
    found = Watch(PRE).measured(step, share, {"masked_loss": masked, "unigram_loss": 6.6})
    assert [finding.kind for finding in found] == ["mlm-plateau"] * said


@pytest.mark.parametrize(("accuracy", "pairs", "said"), [(0.5, 500, True), (0.54, 500, True), (0.56, 500, False)])
def test_next_sentences_at_chance_are_said(accuracy, pairs, said):
    """500 throws of a coin: sigma is .022."""
    values = {"masked_loss": 3.0, "unigram_loss": 6.6, "nsp_accuracy": accuracy, "num_pairs": pairs}
    assert [finding.kind for finding in Watch(PRE).measured(500, 1.0, values)] == ["nsp-chance"] * said
    assert Watch(PRE).measured(500, 1.0, {"masked_loss": 3.0, "unigram_loss": 6.6}) == []


def test_next_sentences_at_chance_are_told_from_the_steps_where_nothing_is_held_out():
    assert [kind for _, kind in kinds(Watch(PRE), [(3.0, 0.693)] * 100, share=0.6)] == ["nsp-chance"]
    assert kinds(Watch(PRE), [(3.0, 0.693)] * 100, share=0.4) == []
    assert kinds(Watch(PRE), [(3.0, 0.5)] * 100, share=0.6) == []
    assert kinds(Watch(PRE), [(3.0, 0.0)] * 100, share=0.6) == []  # --no-nsp


@pytest.mark.parametrize(("last", "said"), [(2.0, True), (1.99, True), (1.5, False)])
def test_a_loss_that_has_not_fallen_is_said_at_the_end(last, said):
    watch = Watch(FINE)
    kinds(watch, [(2.0,)] * 30 + [(last,)] * 30)
    assert [finding.kind for finding in watch.ended(60)] == ["not-learning"] * said


def test_very_short_runs_say_nothing_of_learning():
    watch = Watch(FINE)
    kinds(watch, [(2.0,)] * 5)
    assert watch.ended(5) == []


@pytest.mark.parametrize(("rate", "said"), [(0.0, False), (0.05, False), (0.06, True)])
def test_many_unknown_tokens_are_said(rate, said):
    assert [finding.kind for finding in Watch(FINE).data(rate)] == ["unknown-tokens"] * said


@pytest.mark.parametrize("cut", [1, 49, 60, 101, 104, 130])
def test_a_run_that_is_resumed_finds_the_same(cut):
    losses = noisy([3.0] * 100 + [6.5] * 60, 0.05, 1)
    whole = Watch(FINE)
    expected = kinds(whole, losses)
    first = Watch(FINE)
    found = kinds(first, losses[:cut])
    second = Watch(FINE, state=json.loads(json.dumps(first.state())))
    found += [(step + cut, kind) for step, kind in kinds(second, losses[cut:])]
    assert found == expected
    assert second.state() == whole.state()


def test_one_answer_everywhere_is_said_once():
    watch = Watch(FINE)
    assert watch.answered(9, "dev", None) == []
    (finding,) = watch.answered(9, "dev", "every text is labelled 'pos'")
    assert finding.text.startswith("dev: every text is labelled 'pos'")
    assert watch.answered(9, "test", "every text is labelled 'pos'") == []


def test_a_loss_that_has_risen_points_at_the_learning_rate_in_the_shortest_run_too():
    watch = Watch(FINE)
    kinds(watch, [(1.6,), (50.0,), (400.0,), (1357.0,)])
    (finding,) = watch.answered(4, "dev", "every text is labelled 'pos'")
    assert "a lower --lr" in finding.text
    (finding,) = watch.ended(4)
    assert "risen (1.6 in the first step, 1.36e+03 in the last): a learning rate that is far too high" in finding.text
