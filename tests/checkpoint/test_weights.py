import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from minibert.checkpoint.weights import PICKLE, SAFETENSORS, SHARDS, read_weights
from minibert.errors import UserError

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}


def write_shards(folder: Path) -> None:
    for name, shard in (("a", "model-1.safetensors"), ("b", "model-2.safetensors")):
        save_file({name: TENSORS[name]}, folder / shard)
    index = {"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / SHARDS).write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize("form", ["safetensors", "shards", "pickle"])
def test_each_form_gives_the_same_tensors(form: str, tmp_path: Path) -> None:
    if form == "safetensors":
        save_file(TENSORS, tmp_path / SAFETENSORS)  # without metadata
    elif form == "shards":
        write_shards(tmp_path)
    else:
        torch.save(TENSORS, tmp_path / PICKLE)
    tensors, path = read_weights(tmp_path)
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert path.parent == tmp_path


@pytest.mark.parametrize("kept", [0, 5, 60, -1])
def test_cut_off_safetensors_is_refused(kept: int, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / SAFETENSORS)
    whole = (tmp_path / SAFETENSORS).read_bytes()
    (tmp_path / SAFETENSORS).write_bytes(whole[:kept])
    with pytest.raises(UserError, match=r"model.safetensors: cut off or no safetensors file"):
        read_weights(tmp_path)


def test_missing_shard_and_missing_weight_are_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    save_file({"c": torch.ones(1)}, tmp_path / "model-2.safetensors")
    with pytest.raises(UserError, match="1 weights are in no shard, 'b' for one"):
        read_weights(tmp_path)
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"the shard 'model-2.safetensors' is missing"):
        read_weights(tmp_path)
    (tmp_path / SHARDS).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="no 'weight_map' in it"):
        read_weights(tmp_path)


class Trap:
    """What a hostile pickle holds: a call that is made when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


def test_pickle_with_code_is_not_opened(tmp_path: Path) -> None:
    torch.save({"a": Trap(tmp_path / "sprung")}, tmp_path / PICKLE)
    with pytest.raises(UserError, match="a pickle may run any code"):
        read_weights(tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("kept", [0, 40, -10])
def test_cut_off_pickle_is_refused(kept: int, tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / PICKLE)
    (tmp_path / PICKLE).write_bytes((tmp_path / PICKLE).read_bytes()[:kept])
    with pytest.raises(UserError, match="cut off"):
        read_weights(tmp_path)


def test_pickle_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"model": TENSORS, "step": 3}, tmp_path / PICKLE)
    with pytest.raises(UserError, match="not a dictionary of tensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["bert_model.ckpt.index", "tf_model.h5"])
def test_tensorflows_files_are_named_with_the_way_out(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=r"TensorFlow's") as caught:
        read_weights(tmp_path)
    assert "from_tf=True" in str(caught.value)


def test_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model.safetensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [b"", b"Repository not found\n", bytes(range(256)), b"\x80\x02}", b".", b"e" * 90])
def test_what_is_no_pickle_at_all_is_refused(tmp_path, content):
    (tmp_path / PICKLE).write_bytes(content)
    with pytest.raises(UserError, match=PICKLE):
        read_weights(tmp_path)
