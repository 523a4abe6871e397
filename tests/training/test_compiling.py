"""--compile: what it says of itself, what it leaves alone, and what happens where there is no compiler."""

import errno
import os

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from minibert.errors import UserError
from minibert.training.compiling import check_compiler, compile_model, worth


def test_break_even_by_hand():
    assert worth(60.4, 0.5, 0.25) == "compiled in 60 s: a step takes 0.25 s instead of 0.5, which pays after 242 steps"
    assert worth(60.4, 0.5, 0.5).endswith("a step takes 0.5 s instead of 0.5, which does not pay: leave --compile out")


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return (self.w * x).sum()


def compiled(monkeypatch, tmp_path, backend):
    original = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **kwargs: original(self, **{**kwargs, "backend": backend}))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that what is set below goes with the test
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    model = Line()
    said = compile_model(
        model, model, {"x": torch.ones(3)}, lambda module, batch: module(batch["x"]).view(1), Accelerator(cpu=True),
        cache=tmp_path, passes=2,
    )  # fmt: skip
    return model, said


def test_weights_gradients_and_the_cache_of_others_are_left_alone(monkeypatch, tmp_path):
    graphs = []
    model, said = compiled(monkeypatch, tmp_path, lambda graph, inputs: graphs.append(graph) or graph)
    assert len(graphs) == 1
    assert "a step takes" in said
    assert model.w.item() == 2.0
    assert model.w.grad is None
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)


def test_no_compiler_is_said_with_the_way_out(monkeypatch, tmp_path):
    def broken(graph, inputs):
        raise RuntimeError("g++ was not found")

    with pytest.raises(UserError, match="the model cannot be compiled") as caught:
        compiled(monkeypatch, tmp_path, broken)
    assert caught.value.where == "--compile"
    assert "g++" in str(caught.value)


def test_a_full_disk_is_said_and_not_blamed_on_the_compiler(monkeypatch, tmp_path):
    def full(graph, inputs):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("the backend has failed") from error

    with pytest.raises(UserError, match="compiled code cannot be written there: No space left on device") as caught:
        compiled(monkeypatch, tmp_path, full)
    assert caught.value.where == str(tmp_path)


@pytest.mark.parametrize("given", [None, "TORCHINDUCTOR_CACHE_DIR"])
def test_a_place_that_cannot_be_written_is_named(monkeypatch, tmp_path, given):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
    if given is None:
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    with pytest.raises(UserError, match="cannot be written") as caught:
        compile_model(Line(), Line(), {}, None, Accelerator(cpu=True), cache=tmp_path / "file", passes=1)
    assert caught.value.where == str(tmp_path / "file")
    assert "--cache" in str(caught.value)


def test_a_compiler_is_looked_for_before_the_text_is_read(monkeypatch):
    monkeypatch.setenv("CXX", "/there/is/none")
    with pytest.raises(UserError, match="/there/is/none was not found"):
        check_compiler(torch.device("cpu"))
    check_compiler(torch.device("cuda"))  # triton brings what it needs
