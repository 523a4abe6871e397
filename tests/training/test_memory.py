"""What training will take: counted by hand where it can be, and said with a way out."""

from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from minibert.console import Console
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.heads import BertForPreTraining
from minibert.training import memory, pretraining
from minibert.training.memory import Need, estimate, explaining_lack, free_memory, tell
from minibert.training.optim import build_optimizers


@pytest.fixture
def accelerator():
    AcceleratorState._reset_state()  # of another test, which may have had another precision
    return Accelerator(cpu=True)


class Squares(nn.Module):
    """Keeps its input (rows, 1000) and nothing else for the gradient."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000))

    def forward(self, x):
        return (x * self.weight).sum()


def test_need_of_a_product_by_hand(accelerator):
    model = Squares()
    adamw = torch.optim.AdamW(model.parameters())
    need = estimate(model, accelerator, [adamw], lambda m, b: m(b["x"]), lambda rows: {"x": torch.ones(rows, 1000)})
    row = 4000 * memory.BESIDE * 2  # the input, and as much for the gradient of what is largest
    assert need.row == pytest.approx(row, abs=2)
    assert need.batch <= 2
    assert need.fixed == memory.LIBRARIES + 4000 * (1 + 2 + 2)  # gradient, two of the largest, AdamW's two averages
    assert need.of(10) == pytest.approx(need.fixed + 10 * row, abs=20)


def batch_of(rows, length=32, targets=5):
    ids = torch.full((rows, length), 4)
    return {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids),
        "masked_positions": torch.arange(rows * targets), "labels": ids.new_ones(rows * targets),
        "next_sentence_label": ids.new_zeros(rows),
    }  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"attention_probs_dropout_prob": 0.0}, {"norm": "pre"}])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_is_kept_grows_with_the_rows_in_a_straight_line(settings, optimizer, accelerator):
    shape = BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, **settings
    )
    model = BertForPreTraining(shape).train()
    optimizers = build_optimizers(model, name=optimizer, lr=1e-3, muon_lr=0.02, weight_decay=0.0, adam_beta2=0.999)
    before = [parameter.clone() for parameter in model.parameters()]
    need = estimate(model, accelerator, optimizers, pretraining.loss_sums, batch_of)
    from_more = estimate(
        model, accelerator, optimizers, pretraining.loss_sums, lambda rows: batch_of(8 * rows)
    )  # 8 and 16 rows
    assert need.batch + 16 * need.row == pytest.approx(from_more.batch + 2 * from_more.row, rel=0.02)
    assert all(map(torch.equal, before, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_less_is_kept_with_gradient_checkpointing(accelerator):
    shape = BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=6, num_attention_heads=2, intermediate_size=64)
    model = BertForPreTraining(shape).train()
    usual = estimate(model, accelerator, [], pretraining.loss_sums, batch_of)
    model.bert.encoder.gradient_checkpointing = True
    less = estimate(model, accelerator, [], pretraining.loss_sums, batch_of)
    assert less.row < usual.row / 2


GB = 10**9


@pytest.fixture
def told():
    said = []
    return said, SimpleNamespace(say=said.append, warn=lambda text: said.append("warning: " + text))


def test_what_fits_is_said(told):
    said, console = told
    tell(Need(GB, 0, GB // 10), 10, 3 * GB, console, can_save=True)
    assert said == ["memory: about 2.0 GB for training beside the weights, 3.0 GB free"]


def test_what_may_not_fit_is_warned_of_with_a_batch_that_does(told):
    said, console = told
    tell(Need(GB, 0, GB // 10), 12, 2 * GB, console, can_save=True)  # 2.2 GB; 6 rows are 1.6, 90 % of 2.0 are free
    (line,) = said
    assert line == (
        "warning: training takes about 2.2 GB of memory, and 2.0 GB are free: the system may end the run. "
        "--micro-batch-size 6 takes about 1.6 GB; --gradient-checkpointing takes less; so does a smaller model"
    )


@pytest.mark.parametrize(
    ("need", "can_save", "fix"),
    [
        (Need(GB, 0, GB), True, "--micro-batch-size 1 takes about 2.0 GB; --gradient-checkpointing takes less"),
        (Need(9 * GB, 0, GB), False, "take a smaller model or a larger machine"),
    ],
)
def test_what_cannot_fit_is_refused(need, can_save, fix):
    with pytest.raises(UserError, match="training takes about") as caught:
        tell(need, 8, 3 * GB, Console(silent=True), can_save=can_save)
    assert fix in caught.value.fix


def test_a_model_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    from minibert.training import setup

    shape = BertConfig(vocab_size=1000, hidden_size=8192, num_hidden_layers=200, num_attention_heads=64)
    monkeypatch.setattr(setup, "free_memory", lambda device: 23 * GB)
    # by hand: 200 (4 x 8192^2 + 2 x 8192 x 3072) + (1000 + 512) 8192
    with pytest.raises(
        UserError, match=r"a model of 63,766 M parameters takes 255.1 GB of memory, and 23.0 GB are free"
    ):
        setup.new_model(BertForPreTraining, shape, "take a smaller recipe")


def test_free_memory_is_the_least_that_anybody_grants(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable: 4000000 kB\nSwapFree: 1000 kB\n")
    assert memory._meminfo(meminfo) == 4_001_000 * 1024
    assert memory._meminfo(tmp_path / "none") is None
    group = tmp_path / "fs/job/step"
    group.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/job/step\n4:memory:/old\n3:cpu:/job\n")
    root = tmp_path / "fs"
    folders = memory._groups(tmp_path / "cgroup", root)
    assert folders == [group, root / "job", root, root / "memory/old", root / "memory"]
    for folder, most in ((group, "max"), (root / "job", "3000")):
        (folder / "memory.max").write_text(most)
        (folder / "memory.current").write_text("2500")
        (folder / "memory.stat").write_text("anon 1\ninactive_file 400\n")
    assert [memory._group_free(folder) for folder in folders] == [None, 900, None, None, None]
    old = root / "memory/old"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("5000")
    (old / "memory.usage_in_bytes").write_text("1000")
    (old / "memory.stat").write_text("total_inactive_file 10\n")
    assert memory._group_free(old) == 4010
    (old / "memory.limit_in_bytes").write_text(str((1 << 63) - 4096))
    assert memory._group_free(old) is None

    monkeypatch.setattr(memory, "_meminfo", lambda: 9000)
    monkeypatch.setattr(memory, "_groups", lambda: folders)
    assert free_memory(torch.device("cpu")) == 900
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert free_memory(torch.device("cpu")) == 450
    assert free_memory(torch.device("meta")) is None


def test_lack_of_memory_is_one_message():
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ):
        with pytest.raises(UserError, match="the memory has run out"), explaining_lack():
            raise error
    with pytest.raises(RuntimeError, match="shape"), explaining_lack():
        raise RuntimeError("shape")
