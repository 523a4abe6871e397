"""Weights, gradients and optimizer states that are spread over the processes, as torch's FSDP2 does it.

The model stays whole on the CPU and a copy of it is trained; `whole` brings the trained weights back where they are
measured or saved. Checkpoints are the same as those of other runs: any of them goes on under FSDP2, and back. Where
nobody asks for FSDP2 nothing here does anything.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from minibert.errors import UserError
from minibert.model.bert import BertLayer
from minibert.training.optim import Optimizers, gathered, spread_like

USE_FSDP2 = (
    "BERT's states fit into one device: take plain data-parallel training, or FSDP2 (recipes/accelerate/fsdp2.yaml)"
)
NOT_HERE = {  # what `accelerate launch` sets -> what it stands for
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism_config",
}
NOT_IN_FSDP2 = {
    "FSDP_OFFLOAD_PARAMS": ("fsdp_offload_params", "leave it out"),
    "FSDP_ACTIVATION_CHECKPOINTING": (
        "fsdp_activation_checkpointing",
        "leave it out; --gradient-checkpointing does it",
    ),
}


class HasState(Protocol):
    """What a checkpoint wants of an optimizer."""

    def state_dict(self) -> dict[str, Any]: ...


def is_asked_for() -> bool:
    """Whether the launcher's configuration names FSDP."""
    return says_yes("ACCELERATE_USE_FSDP") and torch.distributed.is_available()


def says_yes(name: str) -> bool:
    """Whether a variable of the environment is switched on."""
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


def check_launcher() -> None:
    """Raises UserError where the launcher is told to spread a model in a way that minibert does not know."""
    for name, what in NOT_HERE.items():
        if says_yes(name):
            raise UserError(f"minibert does not train with {what}", where="accelerate launch", fix=USE_FSDP2)
    if not is_asked_for():
        return
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise UserError(
            "minibert does not train with version 1 of FSDP", where="accelerate launch",
            fix="set fsdp_version: 2 in its configuration, as recipes/accelerate/fsdp2.yaml does",
        )  # fmt: skip
    for name, (setting, fix) in NOT_IN_FSDP2.items():
        if says_yes(name):
            raise UserError(f"minibert does not know {setting}", where="accelerate launch", fix=fix)


def check_settings(*, precision: str, compiled: bool) -> None:
    """Raises UserError for settings that do not go together with FSDP2."""
    if is_asked_for() and precision == "fp16":
        raise UserError("fp16 does not go together with FSDP2", where="--precision", fix="take bf16 or fp32")
    if is_asked_for() and compiled:
        raise UserError("--compile does not go together with FSDP2", where="--compile", fix="leave one of them out")


def prepare(accelerator: Accelerator, model: nn.Module) -> nn.Module:
    """The network that is trained: the model, wrapped for the devices; under FSDP2 a copy that is spread over them."""
    if not (is_asked_for() and torch.distributed.is_initialized()):
        network: nn.Module = accelerator.prepare(model)
        return network
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network = accelerator.prepare_model(copy.deepcopy(model), evaluation_mode=True)  # its precision, and no wrapper
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    again = os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false"
    for module in network.modules():
        if isinstance(module, BertLayer):
            fully_shard(module, mesh=mesh, reshard_after_forward=again)
    fully_shard(network, mesh=mesh)
    return network


def is_spread(network: nn.Module) -> bool:
    """Whether the network's weights are spread over the processes."""
    return hasattr(network, "unshard")


@contextmanager
def whole(accelerator: Accelerator, network: nn.Module, model: nn.Module) -> Iterator[nn.Module]:
    """The model with the weights that the network has now, on this process's device. All processes have to ask."""
    if not is_spread(network):
        yield model  # the network trains its weights
        return
    with torch.no_grad():
        for parameter, trained in zip(model.parameters(), network.parameters(), strict=True):
            parameter.copy_(gathered(trained))
    yield model.to(accelerator.device)
    model.to("cpu")


@contextmanager
def without_sync(accelerator: Accelerator, network: nn.Module) -> Iterator[None]:
    """Gradients are added up on each process alone, for all but the last micro-batch of a step."""
    spread: Any = network
    with nullcontext() if is_spread(network) else accelerator.no_sync(network):
        if is_spread(network):
            spread.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            if is_spread(network):
                spread.set_requires_gradient_sync(True)


# ---- tensors and the states of optimizers


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All that an optimizer trains, in the order in which its state numbers them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class WholeState:
    """An optimizer's state with whole tensors on the CPU. All processes have to make one; kept: this one wants it."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, kept: bool) -> None:
        def own(value: Any) -> Any:
            full = gathered(value)
            return full.cpu() if kept and isinstance(full, Tensor) else full if kept else None

        self.state = optimizer.state_dict()
        self.state["state"] = {
            number: {name: own(value) for name, value in of_one.items()}
            for number, of_one in self.state["state"].items()
        }

    def state_dict(self) -> dict[str, Any]:
        """As the optimizer's."""
        return self.state


def whole_states(optimizers: Optimizers, *, kept: bool) -> Sequence[HasState]:
    """What state_dict can be asked of for a checkpoint: the optimizers; under FSDP2 their gathered states."""
    if not any(hasattr(parameter, "full_tensor") for parameter in chain(*map(parameters_of, optimizers))):
        return optimizers
    return [WholeState(optimizer, kept=kept) for optimizer in optimizers]


def load_whole(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """load_state_dict, of a state with whole tensors."""
    parameters = parameters_of(optimizer)
    state = {
        number: {name: spread_like(value, parameters[number]) for name, value in of_one.items()}
        for number, of_one in saved["state"].items()
    }
    optimizer.load_state_dict({**saved, "state": state})
