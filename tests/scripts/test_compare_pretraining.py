"""scripts/compare_pretraining.py: when a training is measured, and the table that its measurements make."""

import argparse
import json
import math

import pytest
import torch

from minibert.training.optim import build_optimizers


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("compare_pretraining")


def curve(*losses):
    return [
        {"nominal": 100 * i, "tokens": 100 * i + i, "mlm_loss": loss, "masked_accuracy": 0.1 * i,
         "unigram_accuracy": 0.05, "num_targets": 1234.0}
        for i, loss in enumerate(losses)
    ]  # fmt: skip


def test_a_training_is_measured_where_it_is_nearest(script):
    seen = []
    watched = script.Curve([100, 200, 250], lambda: {"mlm_loss": float(len(seen))})
    for tokens in (40, 80, 121, 170, 240):  # 80 is nearer to 100 than 121 is
        watched.step(tokens)
        seen.append(tokens)
    watched.step(244, last=True)  # the last number is what the training was to reach
    assert [(point["nominal"], point["tokens"]) for point in watched.points] == [(100, 80), (200, 240), (250, 244)]
    assert [point["mlm_loss"] for point in watched.points] == [1.0, 4.0, 5.0]


def test_means_deviations_and_the_error_of_the_difference_by_hand(script):
    rows = script.compare([curve(7, 5.0), curve(7, 5.2), curve(7, 5.4)], [curve(7, 5.1), curve(7, 5.3)])
    assert [row["tokens"] for row in rows] == [0, 100]
    assert rows[0]["difference"] == rows[0]["error"] == 0
    assert rows[1]["ours"] == pytest.approx(5.2)
    assert rows[1]["ours_deviation"] == pytest.approx(0.2)
    assert rows[1]["theirs_deviation"] == pytest.approx(math.sqrt(0.02))
    assert rows[1]["difference"] == pytest.approx(0.0, abs=1e-12)
    assert rows[1]["error"] == pytest.approx(math.sqrt(0.04 / 3 + 0.02 / 2))
    assert script.in_cells(rows[1])[:2] == ["100", "5.200 ± 0.200"]
    assert math.isnan(script.compare([curve(7)], [curve(7)])[0]["error"])


def test_other_numbers_of_tokens_are_not_compared(script):
    other = [{**point, "nominal": 2 * point["nominal"]} for point in curve(7, 5)]
    with pytest.raises(ValueError, match="same numbers of tokens"):
        script.compare([curve(7, 5)], [other])


def options(folder, **changed):
    given = {
        "runs": folder, "settings": ["quick"], "sides": ["minibert", "Trainer"], "seeds": [0, 4], "corpus": ["x.txt"],
        "tokens": 100.0, "every": 100.0, "vocab_size": 50, "layers": 1, "hidden_size": 8, "heads": 1, "length": 16,
        "batch_size": 2, "precision": "fp32", "json": folder / "all.json", "plot": None,
    }  # fmt: skip
    return argparse.Namespace(**{**given, **changed})


def test_the_table_takes_the_trainings_that_are_there(script, tmp_path, capsys):
    args = options(tmp_path)
    hardware = {"cores": 2, "cpu": "a CPU", "load": 0}
    for side, seed, last in (("minibert", 0, 5.0), ("minibert", 4, 5.5), ("Trainer", 0, 5.125), ("Trainer", 3, 9.0)):
        run = {"asked": script.asked(args), "points": curve(7, last)}
        script.run_file(args, "quick", side, seed).write_text(json.dumps(run), "utf-8")
    script.show(args, hardware)
    shown = capsys.readouterr().out
    assert "quick: 2 and 1 seeds; held-out loss of 1,234 targets" in shown
    assert "5.250 ± 0.354  5.125 ± nan      +0.125" in shown
    assert "[MASK] accuracy at the end: 10.0% and 10.0%; unigram 5.0%" in shown
    written = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert len(written["curves"]["quick"]["minibert"]) == 2
    with pytest.raises(SystemExit, match=r"quick-minibert-0\.json was made with other options"):
        script.show(options(tmp_path, length=32), hardware)


def test_several_optimizers_as_one_do_what_they_do_apart(script):
    def steps(wrap):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)
        model = torch.nn.ModuleDict({"encoder": torch.nn.ModuleDict({"layer": torch.nn.ModuleList([layer])})})
        optimizers = build_optimizers(model, name="muon", lr=0.1, muon_lr=0.02, weight_decay=0.01, adam_beta2=0.98)
        assert len(optimizers) == 2
        one = script.together(optimizers) if wrap else None
        schedule = torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 / (step + 1)) if one else None
        for step in range(3):
            for group in (group for optimizer in optimizers for group in optimizer.param_groups if not wrap):
                group["lr"] = group["peak_lr"] / (step + 1)
            layer(torch.ones(1, 4)).square().sum().backward()
            if one:
                one.load_state_dict(one.state_dict())  # as accelerate does
                one.step()
                schedule.step()
                one.zero_grad()
            else:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        return [p.detach().clone() for p in model.parameters()]

    for apart, joined in zip(steps(False), steps(True), strict=True):
        assert torch.equal(apart, joined)
