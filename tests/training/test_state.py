"""Checkpoints are complete or absent, and damage is seen."""

import json
import subprocess
import sys

import pytest
import torch

from minibert.atomic import machine
from minibert.errors import UserError
from minibert.training import state


def make(folder, step, optimizers=()):
    path = state.checkpoint_path(folder, step)
    state.save_state(
        path,
        lambda p: (p / "model.safetensors").write_bytes(bytes(1000)),
        list(optimizers),
        None,
        {"step": step, "cursor": {"epoch": 0}},
    )
    return path


def test_newest_of_two_checkpoints_is_found(tmp_path):
    make(tmp_path, 5)
    newest = make(tmp_path, 10)
    assert state.newest_complete(tmp_path) == (newest, [])
    assert state.load_place(newest)["step"] == 10


def test_no_checkpoints_are_no_error(tmp_path):
    assert state.newest_complete(tmp_path / "absent") == (None, [])


def truncate(path):
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    return "500 bytes instead of 1000"


def lose_state(path):
    (path / state.STATE / "optimizer.pt").unlink()
    return "optimizer.pt is missing"


def flip(path):
    weights = path / "model.safetensors"
    weights.write_bytes(b"x" + weights.read_bytes()[1:])
    return "has been changed"


def lose_manifest(path):
    (path / state.STATE / state.MANIFEST).write_text("{")
    return "manifest.json is missing or broken"


@pytest.mark.parametrize("damage", [truncate, lose_state, flip, lose_manifest])
def test_damaged_newest_checkpoint_is_named_and_passed_over(tmp_path, damage):
    older, newest = make(tmp_path, 5), make(tmp_path, 10)
    said = damage(newest)
    found, broken = state.newest_complete(tmp_path)
    assert found == older
    assert [path for path, _ in broken] == [newest]
    assert said in broken[0][1]


def test_debris_of_a_killed_save_is_no_checkpoint(tmp_path):
    whole = make(tmp_path, 5)
    gone = subprocess.Popen(["true"])
    gone.wait()
    debris = tmp_path / f"step-000007.partial-{machine()}-{gone.pid}"
    debris.mkdir()
    (debris / "model.safetensors").write_bytes(b"")
    (tmp_path / "checkpoint-999999.tmp").mkdir()
    assert state.newest_complete(tmp_path) == (whole, [])
    make(tmp_path, 10)
    state.keep_newest(tmp_path, 2, 10)
    assert not debris.exists()


def test_failed_save_leaves_nothing_and_the_older_one_whole(tmp_path):
    older = make(tmp_path, 5)

    def full_disk(partial):
        (partial / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left on device"):
        state.save_state(state.checkpoint_path(tmp_path, 10), full_disk, [], None, {"step": 10})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000005"]
    assert state.newest_complete(tmp_path) == (older, [])


def test_only_the_newest_are_kept_by_number_not_by_name(tmp_path):
    for step in (999_999, 1_000_000, 1_000_001):
        make(tmp_path, step)
    state.keep_newest(tmp_path, 2, 1_000_001)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-1000000", "step-1000001"]


def test_a_broken_checkpoint_of_a_later_step_does_not_push_out_the_new_one(tmp_path):
    make(tmp_path, 300)
    truncate(make(tmp_path, 471))  # passed over on resuming; 300 has just been saved anew
    state.keep_newest(tmp_path, 1, 300)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000300"]


def test_full_disk_in_the_middle_of_a_tensor_is_a_user_error(tmp_path):
    # the limit on file sizes acts like a full disk: torch and safetensors report it in their own ways
    code = """
import resource, signal, sys, torch
from pathlib import Path
from safetensors.torch import save_file
from minibert.errors import UserError
from minibert.training import state
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
weight = torch.nn.Parameter(torch.zeros(100_000))
optimizer = torch.optim.AdamW([weight]); weight.grad = torch.ones(100_000); optimizer.step()
big = lambda p: save_file({"x": torch.zeros(100_000)}, p / "model.safetensors")
for fill, optimizers in ((big, []), (lambda p: None, [optimizer])):
    try:
        state.save_state(Path(sys.argv[1]) / "step-000001", fill, optimizers, None, {})
    except UserError as error:
        print("UserError", error.where)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.count("UserError") == 2, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_optimizer_state_comes_back_bit_for_bit(tmp_path):
    def train():
        torch.manual_seed(3)
        weight = torch.nn.Parameter(torch.randn(4, 3))
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        for _ in range(2):
            weight.grad = torch.randn(4, 3)
            optimizer.step()
        return weight, optimizer

    weight, optimizer = train()
    path = make(tmp_path, 1, [optimizer])
    fresh_weight = torch.nn.Parameter(weight.detach().clone())
    fresh = torch.optim.AdamW([fresh_weight], lr=0.5)
    state.load_state(path, [fresh], None)
    for w, o in ((weight, optimizer), (fresh_weight, fresh)):
        w.grad = torch.ones(4, 3)
        o.step()
    assert torch.equal(weight, fresh_weight)


def test_state_of_another_optimizer_is_refused(tmp_path):
    path = make(tmp_path, 1)
    weight = torch.nn.Parameter(torch.randn(2, 2))
    with pytest.raises(UserError, match="another --optimizer"):
        state.load_state(path, [torch.optim.AdamW([weight])], None)


def test_place_is_plain_json(tmp_path):
    path = make(tmp_path, 7)
    assert json.loads((path / state.STATE / "place.json").read_text())["step"] == 7
