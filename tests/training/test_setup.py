"""What a run begins with, in words."""

from types import SimpleNamespace

import pytest
from torch import nn

from minibert.config import PretrainConfig
from minibert.training.optim import StepSchedule, TimeSchedule
from minibert.training.setup import plan_in_words


@pytest.mark.parametrize(
    ("schedule", "settings", "processes", "said"),
    [
        (StepSchedule(1000), {}, 1, "1,000 steps of 32 sequences"),
        (TimeSchedule(120, reserve=1), {"minutes": 2}, 1, "2 minutes, steps of 32 sequences"),
        (StepSchedule(9), {"batch_size": 256}, 1, "9 steps of 256 sequences, 32 at a time"),
        (StepSchedule(9), {"batch_size": 64}, 2, "9 steps of 64 sequences, 32 on each of 2 processes"),
        (StepSchedule(9), {"batch_size": 256}, 2, "9 steps of 256 sequences, 4 x 32 on each of 2 processes"),
    ],
    ids=["steps", "minutes", "rounds", "processes", "rounds and processes"],
)  # fmt: skip
def test_the_plan_in_words(schedule, settings, processes, said):
    length = {} if "minutes" in settings else {"steps": schedule.steps}
    config = PretrainConfig(**({"batch_size": 32, "micro_batch_size": 32} | length | settings))
    model = nn.Linear(1000, 1100, bias=False)
    model.config = SimpleNamespace(num_hidden_layers=2, hidden_size=64)
    accelerator = SimpleNamespace(num_processes=processes, mixed_precision="no", device="cpu")
    model_line, training_line = plan_in_words(config, model, accelerator, schedule).split("\n")
    assert model_line == "model: 2 layers, 64 wide, 1.1 M parameters"
    assert training_line == f"training: {said}, fp32 on cpu"
