"""Settings: one declaration, layers that win over each other, and messages for every mistake."""

import dataclasses
import json

import pytest

from minibert.config import PretrainConfig, kinds, list_recipes, load_recipe, resolve
from minibert.errors import UserError


def test_later_layers_win():
    found = resolve(PretrainConfig, ("recipe", {"steps": 5, "lr": 0.1, "layers": 3}), ("flags", {"lr": 0.2}))
    assert (found.steps, found.lr, found.layers) == (5, 0.2, 3)


@pytest.mark.parametrize("name", ["steps", "epochs", "minutes"])
def test_a_length_by_flag_replaces_the_recipes_other_length(name):
    found = resolve(PretrainConfig, ("recipe", {"minutes": 3.0}), ("flags", {name: 7}))
    assert found.length_name == name
    assert getattr(found, name) == 7


def test_two_lengths_at_once_are_refused():
    with pytest.raises(UserError, match="steps and minutes"):
        resolve(PretrainConfig, ("flags", {"steps": 5, "minutes": 1.0}))


def test_no_length_is_refused():
    with pytest.raises(UserError, match="none of them"):
        PretrainConfig()


def test_a_misspelt_setting_is_named_with_the_right_one():
    with pytest.raises(UserError, match=r"(?s)recipes/typo\.toml: unknown setting 'stepz'.*did you mean 'steps'"):
        resolve(PretrainConfig, ("recipes/typo.toml", {"stepz": 5}))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("steps", "5", "whole number"), ("steps", 5.5, "whole number"), ("lr", "fast", "a number"),
        ("nsp", 1, "true or false"), ("steps", True, "whole number"), ("optimizer", "sgd", "adamw, muon"),
        ("encoding", 8, "text"), ("nsp", None, "true or false"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_refused_with_place_and_value(name, value, said):
    with pytest.raises(UserError, match=said) as caught:
        resolve(PretrainConfig, ("file.toml", {name: value}))
    assert str(caught.value).startswith("file.toml: ")
    assert repr(value) in str(caught.value)


def test_a_whole_number_serves_where_a_number_is_wanted():
    assert resolve(PretrainConfig, ("f", {"steps": 1, "lr": 1})).lr == 1.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 10, "micro_batch_size": 4}, r"batch_size \(10\).*micro_batch_size \(4\)"),
        ({"hidden_size": 30, "heads": 4}, r"hidden_size \(30\).*heads \(4\)"),
        ({"long_length": 64}, r"long_length \(64\) is below max_length \(128\)"),
        ({"mask_rate": 0.0}, "mask_rate is 0.0"),
        ({"mask_rate": 1.5}, "mask_rate is 1.5"),
        ({"eval_share": -0.1}, "eval_share is -0.1"),
        ({"eval_share": 1.0}, "eval_share is 1.0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": float("inf")}, "lr is inf"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_length": 4}, "max_length is 4"),
        ({"vocab_size": 5}, "vocab_size is 5"),
        ({"seed": 2**63}, "the most is"),
        ({"weight_decay": float("inf")}, "weight_decay is inf"),
        ({"clip": float("inf")}, "finite number, 0 or more"),
        ({"seed": -1}, "seed is -1"),
        ({"init": "neighbour", "hidden_size": 9, "heads": 3}, "even head size"),
    ],
)
def test_impossible_values_are_refused_with_their_numbers(changes, said):
    with pytest.raises(UserError, match=said):
        PretrainConfig(steps=1, **changes)


def test_steps_of_zero_and_negative_minutes_are_refused():
    for changes in ({"steps": 0}, {"epochs": -1.0}, {"minutes": 0.0}, {"minutes": float("nan")}):
        with pytest.raises(UserError, match="above 0"):
            PretrainConfig(**changes)


def test_warmup_in_steps_needs_a_length_in_steps():
    PretrainConfig(steps=100, warmup=10)
    with pytest.raises(UserError, match="share"):
        PretrainConfig(minutes=1.0, warmup=10)


def test_every_field_has_a_help_and_a_known_type():
    for item in dataclasses.fields(PretrainConfig):
        assert len(item.metadata["help"]) > 10, item.name
        kind, _ = kinds(PretrainConfig)[item.name]
        assert kind in (int, float, bool, str) or kind.__args__


def test_recipe_by_name_by_file_and_by_a_runs_settings(tmp_path):
    where, quick = load_recipe("quick", "pretrain")
    assert where.endswith("quick.toml")
    assert "description" not in quick
    toml = tmp_path / "mine.toml"
    toml.write_text('description = "x"\nsteps = 7\n')
    assert load_recipe(str(toml), "pretrain") == (str(toml), {"steps": 7})
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"minibert": "0.1", "settings": {"steps": 8}}))
    assert load_recipe(str(settings), "pretrain")[1] == {"steps": 8}


def test_unknown_recipe_lists_the_known_and_the_nearest():
    with pytest.raises(UserError, match=r"(?s)no recipe 'quik'; known: .*quick.*did you mean 'quick'"):
        load_recipe("quik", "pretrain")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.toml", b"steps = "), ("a.toml", b"\xff\xfe"), ("a.json", b"{"), ("a.json", b"[1]"),
     ("a.json", b'{"settings": 3}'), ("a.json", b"[" * 100_000)],
)  # fmt: skip
def test_broken_recipe_files_are_user_errors(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_recipe(str(path), "pretrain")
    assert str(path) in str(caught.value)


def test_absent_recipe_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_recipe(str(tmp_path / "none.toml"), "pretrain")


def test_every_recipe_says_what_it_is_for():
    found = list_recipes("pretrain")
    assert len(found) >= 18
    assert all(len(purpose) > 15 for purpose in found.values())
