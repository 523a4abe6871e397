"""Files of weights -> tensors by stored name: safetensors, PyTorch without its code, both also in shards, TensorFlow 1.

A file is read whole or not at all: what is cut off, damaged or of another kind is an error that names it.
"""

from __future__ import annotations

import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from minibert.atomic import read_json
from minibert.checkpoint.names import WORDS
from minibert.checkpoint.tensorflow import INDEX, Bundle, beside
from minibert.errors import UserError

SAFETENSORS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_SHARDS = "pytorch_model.bin.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
LFS_POINTER = b"version https://git-lfs"
AGAIN = "copy or download it again"
FOREIGN = {  # ending of a file's name: whose it is, and the way out
    ".h5": ("TensorFlow's (Keras)", "from_tf"),
    ".msgpack": ("Flax's", "from_flax"),
    ".onnx": ("ONNX", None),
    ".gguf": ("llama.cpp's (GGUF)", None),
    ".meta": ("a TensorFlow graph without its weights", None),
}


def read_weights(source: Path) -> tuple[Mapping[str, Tensor], Path]:
    """All tensors of a folder or a file on the CPU, in their stored type and under their stored names, and the file.

    TensorFlow's are read one by one, when they are asked for.
    Raises: UserError where there are none, where a file is cut off or no such file, and where a pickle holds code.
    """
    path = find_weights(source)
    kind = kind_of(path)
    assert kind is not None
    try:
        return kind(path), path
    except PermissionError as error:
        raise UserError("may not be read", str(error.filename or path), "change its permissions") from error


def find_weights(source: Path) -> Path:
    """The file that is meant: the only one of its kind in a folder, safetensors before PyTorch's before TensorFlow's.

    source: a folder, a file, or a TensorFlow checkpoint's name without `.index`.
    """
    if not source.is_dir():
        path = source if source.is_file() else beside(source, INDEX)
        if re.search(r"\.data-\d+-of-\d+$", path.name):
            path = beside(path.with_name(path.name.rpartition(".data-")[0]), INDEX)
        if not path.is_file():
            raise UserError(
                "there is no such file or folder", str(source), "name one that is on this machine; none is downloaded"
            )
        if re.search(r"-\d{5}-of-\d{5}\.(safetensors|bin)$", path.name):
            raise UserError("is one shard of several", str(path), "name their folder")
        if kind_of(path) is None:
            raise foreign([path]) or UserError(
                f"{path.suffix or 'a file without an ending'} is no kind of weights that is known", str(path),
                f"one of .safetensors, {', '.join(PICKLES)}, {INDEX} (TensorFlow 1)",
            )  # fmt: skip
        return path
    for name in (SAFETENSORS, SHARDS, PICKLE, PICKLE_SHARDS):
        if (source / name).is_file():
            return source / name
    files = sorted(path for path in source.iterdir() if path.is_file())
    indexes = [path for path in files if path.name.endswith(INDEX)]
    if indexes:
        return choose_index(source, indexes)
    others = [path for path in files if kind_of(path) is not None]
    if others:
        raise UserError(
            f"no {SAFETENSORS} or {PICKLE} here, but {', '.join(path.name for path in others[:5])}", str(source),
            f"minibert convert {others[0]} --out DIR makes a checkpoint of it",
        )  # fmt: skip
    raise foreign(files) or UserError(
        f"no {SAFETENSORS}, {SHARDS}, {PICKLE} or TensorFlow checkpoint ({INDEX}) here", str(source)
    )


def kind_of(path: Path) -> Callable[[Path], Mapping[str, Tensor]] | None:
    """What reads a file of this name."""
    if path.name.endswith(".safetensors"):
        return read_safetensors
    if path.name.endswith(".safetensors.index.json"):
        return lambda index: read_shards(index, read_safetensors)
    if path.name.endswith(".bin.index.json"):
        return lambda index: read_shards(index, read_pickle)
    if path.name.endswith(INDEX):
        return lambda index: Bundle(index.with_suffix(""))
    return read_pickle if path.suffix in PICKLES else None


def choose_index(folder: Path, indexes: list[Path]) -> Path:
    """The TensorFlow checkpoint that the file `checkpoint` names, or the only one."""
    note = folder / "checkpoint"
    text = note.read_text(encoding="utf-8", errors="replace") if note.is_file() else ""
    named = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
    if len(indexes) == 1:
        return indexes[0]
    if named is None:
        raise UserError(
            f"holds {len(indexes)} TensorFlow checkpoints, {', '.join(path.stem for path in indexes)}: which is meant?",
            str(folder), f"name it: minibert convert {indexes[-1].with_suffix('')} --out DIR",
        )  # fmt: skip
    path = folder / f"{Path(named[1]).name}{INDEX}"  # its folder may have another name by now
    if path not in indexes:
        raise UserError(f"names {named[1]!r}, which is not here", str(note), "name the checkpoint that is meant")
    return path


def foreign(files: list[Path]) -> UserError | None:
    """What to say of files that others can read."""
    for path in files:
        if path.suffix in FOREIGN:
            whose, flag = FOREIGN[path.suffix]
            fix = "take the PyTorch, safetensors or TensorFlow 1 files of the same model"
            if flag:
                fix += (
                    ", or write them with transformers 4: BertForPreTraining.from_pretrained("
                    f"{str(path.parent)!r}, {flag}=True).save_pretrained(OUT)"
                )
            return UserError(f"these weights are {whose}, which minibert does not read", str(path), fix)
        if path.suffix in (".zip", ".gz", ".tar", ".tgz"):
            return UserError("is packed", str(path), "unpack it and name the folder")
        if re.search(r"\.data-\d+-of-\d+$", path.name):
            index = path.name.rpartition(".data-")[0] + INDEX
            return UserError(f"its index file {index} is missing", str(path), AGAIN)
    return None


def damaged(path: Path, problem: str) -> UserError:
    """What to say of a file that does not hold what its name says."""
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        return UserError("is a Git LFS pointer, not the weights themselves", str(path), "fetch them: git lfs pull")
    return UserError(problem, str(path), AGAIN)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """One file of safetensors."""
    try:
        return load_file(path)
    except PermissionError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        raise damaged(path, f"cut off or no safetensors file ({error})") from error


def read_shards(index: Path, read: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
    """All the tensors that an index names, each from the shard that it is said to be in."""
    try:
        shard_of = read_json(index)["weight_map"]
        shards = sorted(set(shard_of.values()))
    except (UserError, KeyError, TypeError, AttributeError) as error:
        raise damaged(index, "no index of shards: no 'weight_map' in it") from error
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        if not isinstance(shard, str) or not 0 < len(shard) < 256 or set(shard) & set("/\\\0:") or shard in (".", ".."):
            raise UserError(
                f"the shard {shard!r} is no plain name of a file", str(index), "its folder holds all shards"
            )
        if not (index.parent / shard).is_file():
            raise UserError(f"the shard {shard!r} is missing", str(index), AGAIN)
        content = read(index.parent / shard)
        tensors.update({name: tensor for name, tensor in content.items() if shard_of.get(name) == shard})
    lost = sorted(shard_of.keys() - tensors.keys())
    if lost:
        raise UserError(f"{len(lost)} weights are not in the shard named for them, {lost[0]!r} for one", str(index))
    return tensors


def read_pickle(path: Path) -> dict[str, Tensor]:
    """A PyTorch file's state dict."""
    check_archive(path)
    return state_dict(load_pickle(path), path)


def load_pickle(path: Path) -> Any:
    """What a PyTorch file holds, opened with weights_only=True alone: no code of the file is ever run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old ways of writing, which the file's reader cannot mend
            return torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked is None:
            raise damaged(path, "cut off or no PyTorch file, or one that holds more than tensors") from error
        raise UserError(
            f"holds more than tensors: {asked[1]}; a pickle may run any code, so it is not opened", str(path),
            f"ask for {SAFETENSORS}; or, where you trust whoever made it, write the tensors alone: "
            "content = torch.load(FILE, weights_only=False), then torch.save content.state_dict() if that is a model,"
            ' content["state_dict"] or the like if it is a dictionary',
        ) from error  # fmt: skip
    # what is no pickle at all fails in as many ways
    except (RuntimeError, EOFError, OSError, LookupError, ValueError, TypeError, AttributeError, AssertionError,
            ArithmeticError, MemoryError, ImportError, struct.error) as error:  # fmt: skip
        raise damaged(path, f"cut off or no PyTorch file ({error})") from error


def check_archive(path: Path) -> None:
    """Raises UserError where parts of a zip archive, which PyTorch's files are, do not have their checksums.

    torch.load does not look. Files from before PyTorch 1.6 are no archives and have no checksums.
    """
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            if any("/code/" in name for name in archive.namelist()):
                raise UserError(
                    "is a TorchScript program, not weights",
                    str(path),
                    "take the file that torch.save(state_dict) wrote",
                )
            packed = [part.filename for part in archive.infolist() if part.compress_type != zipfile.ZIP_STORED]
            broken = packed[0] if packed else archive.testzip()
    except PermissionError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, EOFError, struct.error) as error:
        raise damaged(path, f"cut off or damaged ({error})") from error
    if broken is not None:
        raise damaged(path, f"damaged: {broken!r} in it is not as torch.save wrote it")


def state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    """The weights in what a PyTorch file holds: itself, or one level down, as in {"state_dict": ..., "epoch": 3}."""
    candidates = {"": content}
    if isinstance(content, dict) and not has_words(content):
        candidates = {str(key): value for key, value in content.items() if has_words(value)} or candidates
    if len(candidates) > 1:
        raise UserError(
            f"holds several BERTs, {', '.join(map(repr, candidates))}: which is meant?", str(path),
            "save the state_dict() of that one alone",
        )  # fmt: skip
    (found,) = candidates.values()
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError("not a dictionary of tensors", str(path), "save model.state_dict() alone")
    for name, tensor in found.items():
        if not isinstance(name, str) or not is_plain(tensor):
            raise UserError(f"{name!r} is no plain tensor with all its values", str(path), "save it as such")
    return found


def has_words(content: Any) -> bool:
    """Whether this is a dictionary with a BERT's word embeddings in it."""
    return isinstance(content, dict) and any(str(key).endswith(WORDS) for key in content)


def is_plain(tensor: Tensor) -> bool:
    """Not sparse, not quantized, not without values, and no larger than what is stored of it."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu" or tensor.is_nested:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
