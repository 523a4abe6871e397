"""Files of weights -> tensors by stored name: safetensors, sharded safetensors, PyTorch pickles without code."""

import json
import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from minibert.errors import UserError

SAFETENSORS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"


def read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    """All tensors of a folder on the CPU, in their stored type and under their stored names, and the file they are of.

    Raises: UserError where there are none, where a file is cut off or no such file, and where a pickle holds code.
    """
    if (folder / SAFETENSORS).is_file():
        return read_safetensors(folder / SAFETENSORS), folder / SAFETENSORS
    if (folder / SHARDS).is_file():
        return read_shards(folder / SHARDS), folder / SHARDS
    if (folder / PICKLE).is_file():
        return read_pickle(folder / PICKLE), folder / PICKLE
    if any(folder.glob("*.ckpt*")) or any(folder.glob("*.h5")):
        raise UserError(
            "these weights are TensorFlow's, which minibert does not read",
            str(folder),
            "take the PyTorch or safetensors files of the same model, or write them with transformers 4 and TensorFlow:"
            f" BertForPreTraining.from_pretrained({str(folder)!r}, from_tf=True).save_pretrained(OUT)",
        )
    raise UserError(f"no {SAFETENSORS}, {SHARDS} or {PICKLE} here", str(folder))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """One file of safetensors."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cut off or no safetensors file ({error})", str(path), "copy or download it again") from error


def read_shards(index: Path) -> dict[str, Tensor]:
    """All the shards that an index names."""
    try:
        shard_of = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted(set(shard_of.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("no index of shards: no 'weight_map' in it", str(index)) from error
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        if not (index.parent / shard).is_file():
            raise UserError(f"the shard {shard!r} is missing", str(index), "copy or download it again")
        tensors.update(read_safetensors(index.parent / shard))
    lost = sorted(shard_of.keys() - tensors.keys())
    if lost:
        raise UserError(f"{len(lost)} weights are in no shard, {lost[0]!r} for one", str(index))
    return tensors


def read_pickle(path: Path) -> dict[str, Tensor]:
    """A PyTorch file, opened with weights_only=True alone."""
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            "holds more than tensors, or is cut off; a pickle may run any code, so it is not opened",
            str(path),
            f"write it again as {SAFETENSORS} where you trust it",
        ) from error
    # what is no pickle at all fails in as many ways
    except (RuntimeError, EOFError, OSError, IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"cut off or no PyTorch file ({error})", str(path), "copy or download it again") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise UserError("not a dictionary of tensors", str(path), "save model.state_dict() alone")
    return tensors
