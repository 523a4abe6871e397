import contextlib
import io
import json
import random
import re
import runpy
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from minibert.checkpoint.names import WORDS
from minibert.checkpoint.weights import PICKLE, PICKLE_SHARDS, SAFETENSORS, SHARDS, find_weights, read_weights
from minibert.errors import UserError

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}


def write_shards(folder: Path, *, index: str = SHARDS, ending: str = "safetensors") -> None:
    for name, shard in (("a", f"model-1.{ending}"), ("b", f"model-2.{ending}")):
        save = torch.save if ending == "bin" else save_file
        save({name: TENSORS[name]}, folder / shard)
    content = {"metadata": {}, "weight_map": {"a": f"model-1.{ending}", "b": f"model-2.{ending}"}}
    (folder / index).write_text(json.dumps(content), encoding="utf-8")


def write_tensorflow(folder: Path, name: str = "bert_model.ckpt") -> None:
    runpy.run_path(str(Path(__file__).with_name("tensorflow_files.py")))["write_checkpoint"](folder / name, TENSORS)


FORMS: dict[str, Callable[[Path], object]] = {
    SAFETENSORS: lambda folder: save_file(TENSORS, folder / SAFETENSORS),  # without metadata
    SHARDS: write_shards,
    PICKLE: lambda folder: torch.save(TENSORS, folder / PICKLE),
    PICKLE_SHARDS: lambda folder: write_shards(folder, index=PICKLE_SHARDS, ending="bin"),
    "bert_model.ckpt.index": write_tensorflow,
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_gives_the_same_tensors(name: str, tmp_path: Path) -> None:
    FORMS[name](tmp_path)
    for source in (tmp_path, tmp_path / name):
        tensors, path = read_weights(source)
        assert path == tmp_path / name
        assert {*tensors} == {*TENSORS}
        assert all(torch.equal(tensors[key], TENSORS[key]) for key in TENSORS)


def test_the_first_of_several_forms_is_read(tmp_path: Path) -> None:
    for name, write in reversed(FORMS.items()):
        write(tmp_path)
        assert find_weights(tmp_path).name == name


@pytest.mark.parametrize("name", FORMS)
def test_cut_off_anywhere_is_an_error(name: str, tmp_path: Path) -> None:
    """Each file of each form, at some forty lengths."""
    FORMS[name](tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for kept in {*range(0, len(whole), max(1, len(whole) // 40)), *range(max(0, len(whole) - 3), len(whole))}:
            path.write_bytes(whole[:kept])
            with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))}/\S+: "):
                dict(read_weights(tmp_path)[0])
        path.write_bytes(whole)
    dict(read_weights(tmp_path)[0])


@pytest.mark.parametrize("name", [*FORMS, "old.pt"])
def test_damage_anywhere_gives_tensors_or_a_message(name: str, tmp_path: Path) -> None:
    """No traceback of a library's; whether damage is found depends on the format, TensorFlow's alone has checksums."""
    if name == "old.pt":
        torch.save(TENSORS, tmp_path / name, _use_new_zipfile_serialization=False)
    else:
        FORMS[name](tmp_path)
    draw = random.Random(0)
    path = tmp_path / name
    whole = path.read_bytes()
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(draw.choice((1, 1, 3))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        path.write_bytes(changed)
        with contextlib.suppress(UserError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dict(read_weights(path)[0])


def test_missing_shard_and_missing_weight_are_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    save_file({"c": torch.ones(1)}, tmp_path / "model-2.safetensors")
    with pytest.raises(UserError, match="1 weights are not in the shard named for them, 'b' for one"):
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


def test_weight_is_taken_from_the_shard_that_is_named_for_it(tmp_path: Path) -> None:
    write_shards(tmp_path)
    save_file({"b": TENSORS["b"], "a": torch.zeros(9), "more": torch.zeros(1)}, tmp_path / "model-2.safetensors")
    tensors, _ = read_weights(tmp_path)
    assert tensors.keys() == TENSORS.keys()
    assert torch.equal(tensors["a"], TENSORS["a"])


@pytest.mark.parametrize(
    "shard", ["../out.safetensors", "/etc/passwd", "..", "", "a\\b", "C:x", "a\0b", 3, None, ["x"]]
)
def test_shard_outside_the_folder_is_refused(shard: object, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "out.safetensors")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / SHARDS).write_text(json.dumps({"weight_map": {"a": shard}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"is no plain name of a file|no 'weight_map' in it"):
        read_weights(folder)


def test_pickle_with_code_is_not_opened(tmp_path: Path) -> None:
    torch.save({"a": Trap(tmp_path / "sprung")}, tmp_path / PICKLE)
    with pytest.raises(UserError, match=r"more than tensors: getattr; a pickle may run any code") as caught:
        read_weights(tmp_path)
    assert "ask for model.safetensors" in str(caught.value)
    assert not (tmp_path / "sprung").exists()
    torch.load(tmp_path / PICKLE, weights_only=False)
    assert (tmp_path / "sprung").exists()  # it would have been


@pytest.mark.parametrize("packed", [False, True])
def test_wrong_bit_in_a_pytorch_file_is_found(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / PICKLE
    torch.save(TENSORS, path)
    whole = path.read_bytes()
    if packed:
        with zipfile.ZipFile(io.BytesIO(whole)) as stored, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in stored.infolist():
                archive.writestr(part.filename, stored.read(part))
    else:
        at = whole.index(TENSORS["a"].numpy().tobytes())
        path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])
    with pytest.raises(UserError, match=r"pytorch_model.bin: damaged: 'pytorch_model/\S+' in it is not as torch.save"):
        read_weights(tmp_path)


def test_pickle_of_something_else_is_refused(tmp_path: Path) -> None:
    for content in ({"step": 3}, {"model": TENSORS, "step": 3}, [TENSORS], torch.ones(3)):
        torch.save(content, tmp_path / PICKLE)
        with pytest.raises(UserError, match="not a dictionary of tensors"):
            read_weights(tmp_path)


BERT = {"bert." + WORDS: torch.ones(4, 2), "bert.pooler.dense.bias": torch.zeros(2)}


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict", 7])
def test_state_dict_one_level_down_is_found(key: object, tmp_path: Path) -> None:
    torch.save({"epoch": 3, key: BERT, "optimizer": {"state": {0: {"m": torch.ones(1)}}}}, tmp_path / "x.pt")
    tensors, _ = read_weights(tmp_path / "x.pt")
    assert tensors.keys() == BERT.keys()


def test_two_state_dicts_are_refused_by_name(tmp_path: Path) -> None:
    torch.save({"model": BERT, "ema": BERT}, tmp_path / "x.pt")
    with pytest.raises(UserError, match="holds several BERTs, 'model', 'ema': which is meant"):
        read_weights(tmp_path / "x.pt")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(1).expand(1 << 20, 1 << 20),  # 4 TB of four bytes
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.ones(3, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_all_their_values_are_refused(make: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    torch.save({**BERT, "odd": make()}, tmp_path / PICKLE)
    with pytest.raises(UserError, match=r"'odd' is no plain tensor with all its values|cut off or no PyTorch file"):
        read_weights(tmp_path)


def test_header_of_a_hundred_gigabytes_is_a_message(tmp_path: Path) -> None:
    (tmp_path / SAFETENSORS).write_bytes((10**11).to_bytes(8, "little") + b"{}")
    with pytest.raises(UserError, match="cut off or no safetensors file"):
        read_weights(tmp_path)
    text = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    (tmp_path / SAFETENSORS).write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(UserError, match="cut off or no safetensors file"):
        read_weights(tmp_path)


def test_git_lfs_pointer_is_named(tmp_path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
    for name in (SAFETENSORS, PICKLE):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=f"{name}: is a Git LFS pointer") as caught:
            read_weights(tmp_path / name)
        assert "git lfs pull" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tf_model.h5", r"TensorFlow's \(Keras\)(.|\n)*from_tf=True"),
        ("flax_model.msgpack", "Flax's(.|\n)*from_flax=True"),
        ("model.onnx", "these weights are ONNX"),
        ("bert.Q8_0.gguf", r"llama.cpp's \(GGUF\)"),
        ("bert_model.ckpt.meta", "a TensorFlow graph without its weights"),
        ("bert_model.ckpt.data-00000-of-00001", "its index file bert_model.ckpt.index is missing"),
        ("uncased_L-12_H-768_A-12.zip", "is packed(.|\n)*unpack it"),
    ],
)
def test_files_of_others_are_named_with_the_way_out(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=message):
        read_weights(tmp_path)
    if ".data-" not in name:
        with pytest.raises(UserError, match=message):
            read_weights(tmp_path / name)


def test_weights_under_another_name_are_pointed_at(tmp_path: Path) -> None:
    torch.save(BERT, tmp_path / "epoch3.pt")
    with pytest.raises(UserError, match=r"no model.safetensors or pytorch_model.bin here, but epoch3.pt") as caught:
        read_weights(tmp_path)
    assert f"minibert convert {tmp_path / 'epoch3.pt'}" in str(caught.value)


def test_files_that_are_no_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: there is no such file or folder"):
        read_weights(tmp_path / "nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"notes.txt: .txt is no kind of weights that is known"):
        read_weights(tmp_path / "notes.txt")


@pytest.mark.parametrize("name", ["bert_model.ckpt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"])
def test_tensorflow_checkpoint_is_known_by_any_of_its_names(name: str, tmp_path: Path) -> None:
    write_tensorflow(tmp_path)
    assert {*read_weights(tmp_path / name)[0]} == {*TENSORS}


def test_one_of_several_tensorflow_checkpoints_must_be_named(tmp_path: Path) -> None:
    for step in (1000, 2000):
        write_tensorflow(tmp_path, f"model.ckpt-{step}")
    with pytest.raises(UserError, match=r"holds 2 TensorFlow checkpoints, model.ckpt-1000, model.ckpt-2000") as caught:
        read_weights(tmp_path)
    assert f"minibert convert {tmp_path / 'model.ckpt-2000'} --out DIR" in str(caught.value)
    assert read_weights(tmp_path / "model.ckpt-1000")[1].name == "model.ckpt-1000.index"
    note = tmp_path / "checkpoint"
    note.write_text('model_checkpoint_path: "/old/place/model.ckpt-1000"\nall_model_checkpoint_paths: "x"\n')
    assert read_weights(tmp_path)[1].name == "model.ckpt-1000.index"
    note.write_text('model_checkpoint_path: "model.ckpt-3000"\n')
    with pytest.raises(UserError, match=r"checkpoint: names 'model.ckpt-3000', which is not here"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", [SAFETENSORS, PICKLE])
def test_weights_that_may_not_be_read_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FORMS[name](tmp_path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / name))

    monkeypatch.setattr("minibert.checkpoint.weights.load_file", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(UserError, match=f"{name}: may not be read"):
        read_weights(tmp_path)


def test_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model.safetensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [b"", b"Repository not found\n", bytes(range(256)), b"\x80\x02}", b".", b"e" * 90])
def test_what_is_no_pickle_at_all_is_refused(tmp_path, content):
    (tmp_path / PICKLE).write_bytes(content)
    with pytest.raises(UserError, match=PICKLE):
        read_weights(tmp_path)


def test_a_shard_alone_and_a_program_are_called_by_their_names(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(UserError, match="is one shard of several\n  fix: name their folder"):
        read_weights(tmp_path / "model-00001-of-00002.safetensors")
    with zipfile.ZipFile(tmp_path / "traced.pt", "w") as archive:  # as torch.jit.save lays it out
        archive.writestr("traced/code/__torch__.py", "")
        archive.writestr("traced/data.pkl", b"")
    with pytest.raises(UserError, match="is a TorchScript program, not weights"):
        read_weights(tmp_path / "traced.pt")
