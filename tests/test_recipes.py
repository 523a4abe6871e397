"""Every recipe opens, says what a person needs to know, and takes two steps at a reduced size."""

import json
import math

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

import pytest

from minibert.config import PretrainConfig, list_recipes, load_recipe, recipes_folder, resolve
from minibert.console import Console
from minibert.finetune.story import finetune
from minibert.pretrain import pretrain
from minibert.tasks import find_tasks

NAMES = list(list_recipes("pretrain"))
TASKS = find_tasks()
FOR_TASKS = list(list_recipes("finetune"))
ALL = [("pretrain", name) for name in NAMES] + [("finetune", name) for name in FOR_TASKS]
PUBLISHED = {
    "tiny": (2, 128, 2), "mini": (4, 256, 4), "small": (4, 512, 8), "medium": (8, 512, 8), "base": (12, 768, 12),
    "large": (24, 1024, 16),
}  # fmt: skip
REDUCED = {
    "layers": 1, "hidden_size": 32, "heads": 2, "ffn_size": 64, "vocab_size": 100, "max_length": 32, "batch_size": 8,
    "micro_batch_size": 4, "steps": 2, "workers": 1, "compile": False, "max_positions": 64, "warmup": 0.1,
}  # fmt: skip


def test_the_named_recipes_are_there():
    sized = [name + suffix for name in ("quick", "classic", *PUBLISHED) for suffix in ("", "-zh")]
    assert set(sized) | {"base-paper", "continue", "cpu-budget", "gpu-day"} <= set(NAMES)


@pytest.mark.parametrize(("stage", "name"), ALL)
def test_recipe_begins_with_purpose_result_hardware_and_command(stage, name):
    text = (recipes_folder() / stage / f"{name}.toml").read_text("utf-8")
    for word in ("# Purpose:", "# Expected:", "# Hardware:", "# Command:"):
        assert word in text
    assert f"minibert {stage} " in text
    assert f"--recipe {name} " in text
    assert tomllib.loads(text)["description"]


@pytest.mark.parametrize("name", [n + s for n in PUBLISHED for s in ("", "-zh")])
def test_sizes_are_the_published_ones(name):
    config = resolve(PretrainConfig, load_recipe(name, "pretrain"))
    assert (config.layers, config.hidden_size, config.heads) == PUBLISHED[name.removesuffix("-zh")]


def test_paper_recipe_is_the_papers():
    config = resolve(PretrainConfig, load_recipe("base-paper", "pretrain"))
    assert (config.steps, config.batch_size, config.lr, config.warmup) == (1_000_000, 256, 1e-4, 10_000)
    assert (config.max_length, config.long_length, config.long_share) == (128, 512, 0.1)
    assert (config.dropout, config.attention_dropout, config.weight_decay) == (0.1, 0.1, 0.01)
    assert (config.mask_rate, config.nsp, config.norm, config.activation) == (0.15, True, "post", "gelu")


@pytest.mark.parametrize("name", NAMES)
def test_recipe_takes_two_steps(name, corpus, tmp_path):
    where, settings = load_recipe(name, "pretrain")
    long = {"long_length": 64, "long_share": 0.5} if settings.get("long_length") else {}
    config = resolve(PretrainConfig, (where, settings), ("test", {**REDUCED, **long}))
    pretrain([corpus], tmp_path / "run", config, console=Console(silent=True))
    losses = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert next(line["step"] for line in losses if "loss" in line) == 1
    assert all(math.isfinite(line["loss"]) for line in losses if "loss" in line)
    assert (tmp_path / "run/model.safetensors").is_file()


def test_every_task_has_a_recipe_and_a_chinese_one():
    assert {name + suffix for name in TASKS for suffix in ("", "-zh")} <= set(FOR_TASKS)


def test_names_are_of_one_stage_only():
    assert not set(NAMES) & set(FOR_TASKS)


@pytest.mark.parametrize("name", FOR_TASKS)
def test_recipe_for_a_task_takes_two_steps(name, tmp_path, checkpoint_for):
    place, values = load_recipe(name, "finetune")
    kind = TASKS[values.pop("task")]
    assert kind.name == name.split("-")[0]
    demo = kind.demo(tmp_path)
    model = checkpoint_for(demo.read_text("utf-8"), tmp_path / "model", hidden_size=32, num_hidden_layers=1)
    layers = [(place, values), ("test", {"max_length": 48, "batch_size": 8, "epochs": 1.0})]
    if "stride" in layers[0][1]:
        layers[1][1]["stride"] = 8
    config = resolve(kind.Config, *layers)
    finetune(kind, config, model, tmp_path / "run", train=demo, dev=demo, console=Console(silent=True))
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
    assert (tmp_path / "run/model.safetensors").is_file()
