"""A model as a program of torch.export: runs where torch is, without minibert."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from minibert.export.graph import INPUTS, NamedOutputs, dynamic_shapes, example, quietly

PROGRAM = "model.pt2"


def torch_program(model: nn.Module, most_tokens: int) -> torch.export.ExportedProgram:
    """The model as it computes on a CPU without gradients, in memory; the inputs' sizes are checked when it runs."""
    with quietly(), torch.no_grad():
        named = NamedOutputs(model).eval()
        return torch.export.export(named, example(), dynamic_shapes=dynamic_shapes(most_tokens))


def save_program(program: torch.export.ExportedProgram, folder: Path) -> None:
    """Write model.pt2."""
    content = io.BytesIO()  # torch's own writing ends the process where the disk is full
    with quietly():
        torch.export.save(program, content)
    (folder / PROGRAM).write_bytes(content.getbuffer())


def open_program(path: Path) -> Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]:
    """What runs the file: inputs by name -> outputs by name."""
    with quietly():
        module = torch.export.load(path).module()

    def run(rows: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.no_grad():
            out = module(*(torch.from_numpy(rows[name]) for name in INPUTS))
        return {name: value.numpy() for name, value in out.items()}

    return run
