"""A writer of TensorFlow 1 checkpoints, made from the format's description alone; what tests have the reader read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    TABLE.append(_byte)
NUMBERS = {torch.float32: 1, torch.float64: 2, torch.int64: 9, torch.bfloat16: 14, torch.float16: 19, torch.bool: 10}


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32)


def varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(items: list[tuple[bytes, bytes]], kind: int = 0) -> bytes:
    """Entries with shared beginnings, a restart at every fourth; kind and checksum behind."""
    out, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(items):
        shared = 0
        if i % 4 == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    for place in restarts or [0]:
        out += place.to_bytes(4, "little")
    out += (len(restarts) or 1).to_bytes(4, "little") + bytes([kind])
    return out + masked(out).to_bytes(4, "little")


def table(items: list[tuple[bytes, bytes]], *, per_block: int = 7, kind: int = 0) -> bytes:
    out, handles = b"", []
    for first in range(0, len(items), per_block):
        content = block(items[first : first + per_block], kind)
        handles.append((items[first : first + per_block][-1][0], varint(len(out)) + varint(len(content) - 5)))
        out += content
    footer = b""
    for content in (block([]), block(handles)):
        footer += varint(len(out)) + varint(len(content) - 5)
        out += content
    return out + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def entry(dtype: int, shape: tuple[int, ...], shard: int, offset: int, data: bytes) -> bytes:
    dimensions = b"".join(field(2, field(1, size)) for size in shape)
    place = field(3, shard) + field(4, offset) + field(5, len(data))
    return field(1, dtype) + field(2, dimensions) + place + varint(6 << 3 | 5) + masked(data).to_bytes(4, "little")


def header(shards: int, endianness: int = 0) -> bytes:
    return field(1, shards) + field(2, endianness) + field(3, field(1, 1))


def write_checkpoint(prefix: Path, tensors: Mapping[str, Tensor], *, shards: int = 1) -> None:
    """PREFIX.index and PREFIX.data-...: tensors dealt out to data files in turn."""
    files = [b""] * shards
    items = [(b"", header(shards))]
    for i, name in enumerate(sorted(tensors, key=str.encode)):
        tensor, shard = tensors[name], i % shards
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        items.append((name.encode(), entry(NUMBERS[tensor.dtype], tuple(tensor.shape), shard, len(files[shard]), data)))
        files[shard] += data
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(items))
    for shard, data in enumerate(files):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(data)


def google_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A PyTorch BERT's state dict as Google's programs store it, with the optimizer's moments and the step."""
    heads = {
        "cls.predictions.bias": "cls/predictions/output_bias",
        "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
        "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
        "qa_outputs.weight": "cls/squad/output_weights",
        "qa_outputs.bias": "cls/squad/output_bias",
        "classifier.weight": "output_weights",
        "classifier.bias": "output_bias",
    }
    out = {}
    for name, tensor in weights.items():
        path = name.replace("layer.", "layer_").replace(".", "/")
        if name in heads:
            path = heads[name]
        elif "LayerNorm" in name:
            path = path.replace("LayerNorm/weight", "LayerNorm/gamma").replace("LayerNorm/bias", "LayerNorm/beta")
        elif name.endswith("embeddings.weight"):
            path = path.removesuffix("/weight")
        elif name.endswith(".weight"):
            path, tensor = path.removesuffix("weight") + "kernel", tensor.T
        out[path] = tensor
        out[f"{path}/adam_m"] = out[f"{path}/adam_v"] = torch.zeros_like(tensor)
    return {**out, "global_step": torch.tensor(1000)}
