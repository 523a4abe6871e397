"""States that are spread over processes: here over one, which has all of each; tests/test_processes.py has two."""

import copy

import pytest
import torch
from accelerate import Accelerator

from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.heads import BertForPreTraining
from minibert.training import sharding
from minibert.training.optim import build_optimizers

SHAPE = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "does not train with DeepSpeed\n  fix: .*fsdp2.yaml"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, "does not train with Megatron-LM"),
        ({"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}, "does not train with a parallelism_config"),
        ({"ACCELERATE_USE_FSDP": "true"}, "does not train with version 1 of FSDP\n  fix: set fsdp_version: 2"),
        (
            {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"},
            "does not know fsdp_offload_params",
        ),
        (
            {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_ACTIVATION_CHECKPOINTING": "true"},
            "does not know fsdp_activation_checkpointing\n  fix: leave it out; --gradient-checkpointing does it",
        ),
    ],
    ids=["deepspeed", "megatron", "parallelism", "fsdp1", "offload", "checkpointing"],
)
def test_other_ways_to_spread_a_model_are_refused(monkeypatch, environment, message):
    sharding.check_launcher()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=rf"(?s)accelerate launch: minibert {message}"):
        sharding.check_launcher()


def test_settings_that_do_not_fit_fsdp2_are_refused(monkeypatch):
    sharding.check_settings(precision="fp16", compiled=True)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    sharding.check_settings(precision="bf16", compiled=False)
    with pytest.raises(UserError, match="fp16 does not go together with FSDP2"):
        sharding.check_settings(precision="fp16", compiled=False)
    with pytest.raises(UserError, match="--compile does not go together with FSDP2"):
        sharding.check_settings(precision="no", compiled=True)


@pytest.fixture
def asked_for(monkeypatch):
    """A group of one process, and a launcher that asks for FSDP2."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    accelerator = Accelerator(cpu=True)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield accelerator
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_states_come_back_whole_and_go_on(asked_for, name):
    def trained(network, steps, saved=None):
        optimizers = build_optimizers(network, name=name, lr=0.01, muon_lr=0.01, weight_decay=0.1, adam_beta2=0.99)
        for optimizer, state in zip(optimizers, saved or (), strict=False):
            sharding.load_whole(optimizer, state)
        for step in steps:
            torch.manual_seed(step)
            network(
                torch.randint(30, (2, 8)), masked_positions=torch.arange(5)
            ).prediction_logits.square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return optimizers

    torch.manual_seed(0)
    plain = BertForPreTraining(BertConfig(**SHAPE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    model = copy.deepcopy(plain)
    network = sharding.prepare(asked_for, model)
    assert sharding.is_spread(network)
    assert not sharding.is_spread(plain)
    optimizers = trained(network, range(2))
    wanted = trained(plain, range(2))
    states = sharding.whole_states(optimizers, kept=True)
    assert sharding.whole_states(wanted, kept=True) is wanted
    saved = [state.state_dict() for state in states]
    for one, other in zip(saved, (optimizer.state_dict() for optimizer in wanted), strict=True):
        for number, values in one["state"].items():
            for key, value in values.items():
                assert type(value) is torch.Tensor
                assert torch.allclose(value, other["state"][number][key], atol=1e-6)
    again = copy.deepcopy(plain)
    trained(plain, range(2, 4), [optimizer.state_dict() for optimizer in wanted])
    later = sharding.prepare(asked_for, again)
    trained(later, range(2, 4), saved)
    with sharding.whole(asked_for, later, again) as found:
        assert found is again
        for one, other in zip(found.parameters(), plain.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-5)
