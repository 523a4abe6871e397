"""TensorFlow 1 checkpoints without TensorFlow: `NAME.index` and `NAME.data-00000-of-0000N` -> tensors by stored name.

The index is a table in LevelDB's format, uncompressed: blocks of entries whose keys share their beginnings, an index
block that says where they are, a footer that says where the index block is. A key is a tensor's name, its value a
protocol buffer (BundleEntryProto): type, shape, and where its bytes lie in which data file. Blocks and tensors carry a
CRC-32C, and everything that is read is checked against it.
Source: tensorflow/core/util/tensor_bundle, tensorflow/core/protobuf/tensor_bundle.proto, LevelDB's table_format.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from minibert.checkpoint.crc32c import masked_crc32c
from minibert.errors import UserError

INDEX = ".index"
FOOTER = 48
TABLE_MARK = 0xDB4775248B80FB57
LONGEST_NAME, MOST_TENSORS = 1024, 100_000  # keys share their beginnings: without a limit a small file fills the memory
LARGEST_INDEX = 1 << 28  # bytes; BERT's has 10**4
MOST_DIMENSIONS = 8
TYPES = {  # DataType of tensorflow/core/framework/types.proto
    1: torch.float32, 2: torch.float64, 3: torch.int32, 9: torch.int64, 14: torch.bfloat16, 19: torch.float16,
}  # fmt: skip
OBJECT_BASED = "/.ATTRIBUTES/VARIABLE_VALUE"  # how TensorFlow 2 ends its names
Message = dict[int, list[int | bytes]]  # a protocol buffer: values by field number


class Damaged(ValueError):
    """Bytes that are not what the format has there; the file's name is added where it is known."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies: bytes offset..offset + size of data file `shard`. sliced: in parts under other keys."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    sliced: bool


class Bundle(Mapping[str, Tensor]):
    """A checkpoint's tensors by name; each is read, and its checksum compared, when it is asked for.

    prefix: the path without `.index`. Raises: UserError for an index that is damaged or of TensorFlow 2, for data files
        that are missing or too short; when a tensor is asked for, where its bytes are damaged or of no known type.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix, self.index = prefix, beside(prefix, INDEX)
        try:
            if self.index.stat().st_size > LARGEST_INDEX:
                raise Damaged("an index is never so large")
            header, self.entries = read_index(self.index.read_bytes())
            self.num_shards = one(header, 1)
            check_sizes(self.entries, self.num_shards)
        except Damaged as error:
            raise UserError(f"damaged or no index ({error})", str(self.index), "copy or download it again") from error
        except UserError as error:
            raise UserError(error.problem, str(self.index), error.fix) from error
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", str(self.index)) from error
        if any(name.endswith(OBJECT_BASED) for name in self.entries):
            raise UserError(
                "a TensorFlow 2 checkpoint: its names are those of the objects in the program that wrote it",
                str(self.index),
                "take the model's TensorFlow 1, PyTorch or safetensors files, or convert it with"
                " convert_bert_original_tf2_checkpoint_to_pytorch.py of transformers 4",
            )
        self.check_files()

    def check_files(self) -> None:
        """Raises UserError where a data file is missing or ends before its tensors do."""
        ends: dict[int, int] = {}
        for entry in self.entries.values():
            ends[entry.shard] = max(ends.get(entry.shard, 0), entry.offset + entry.size)
        for shard, end in sorted(ends.items()):
            path = self.data_file(shard)
            if not path.is_file():
                raise UserError(f"the data file {path.name} is missing", str(self.index), "copy or download it again")
            length = path.stat().st_size
            if length < end:
                raise UserError(f"cut off: {length} bytes of at least {end}", str(path), "copy or download it again")

    def data_file(self, shard: int) -> Path:
        return beside(self.prefix, f".data-{shard:05d}-of-{self.num_shards:05d}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, name: str) -> Tensor:
        entry = self.entries[name]
        path = self.data_file(entry.shard)
        if entry.sliced:
            raise UserError(
                f"{name!r} is stored in slices (a partitioned variable), which are not read",
                str(self.index),
                "save it again in TensorFlow without a partitioner",
            )
        if entry.dtype not in TYPES:
            raise UserError(f"{name!r} is of TensorFlow's type {entry.dtype}, which is no number here", str(self.index))
        try:
            data = np.fromfile(path, np.uint8, count=entry.size, offset=entry.offset)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", str(path)) from error
        if len(data) != entry.size or masked_crc32c(data) != entry.crc:
            raise UserError(
                f"damaged: the bytes of {name!r} do not have their checksum", str(path), "copy or download it again"
            )
        if not entry.size:  # torch does not see nothing as another type
            return torch.empty(entry.shape, dtype=TYPES[entry.dtype])
        return torch.from_numpy(data).view(TYPES[entry.dtype]).reshape(entry.shape)


def beside(prefix: Path, ending: str) -> Path:
    """One of a checkpoint's files; its name may have dots of its own."""
    return prefix.with_name(prefix.name + ending)


def check_sizes(entries: Mapping[str, Entry], num_shards: int) -> None:
    """Raises Damaged where an entry contradicts itself, so that what is read later is as large as the file at most."""
    for name, entry in entries.items():
        if entry.shard >= num_shards:
            raise Damaged(f"{name!r} is in data file {entry.shard} of {num_shards}")
        if len(entry.shape) > MOST_DIMENSIONS or any(size >= 1 << 32 for size in entry.shape):
            raise Damaged(f"{name!r} has the shape {entry.shape}")
        if entry.dtype in TYPES and not entry.sliced:
            size = prod(entry.shape) * TYPES[entry.dtype].itemsize
            if size != entry.size:
                raise Damaged(f"{name!r} {entry.shape} takes {size} bytes, not {entry.size}")


# ---- the index file


def read_index(data: bytes) -> tuple[Message, dict[str, Entry]]:
    """An index file -> its header (BundleHeaderProto) and the tensors' entries.

    Raises: Damaged. UserError for what is whole and not read: compressed blocks, big-endian data.
    """
    header: Message | None = None
    entries: dict[str, Entry] = {}
    for key, value in read_table(data):
        if not key:
            header = read_message(value)
        elif key[0]:  # slices of a partitioned variable begin with a zero byte
            try:
                entries[key.decode()] = read_entry(value)
            except UnicodeDecodeError as error:
                raise Damaged(f"the name {key!r} is not UTF-8") from error
    if header is None:
        raise Damaged("no header")
    if one(header, 2):
        raise UserError("these weights are stored big-endian, which is not read", fix="save them on another machine")
    return header, entries


def read_entry(data: bytes) -> Entry:
    """BundleEntryProto. Its fields: 1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c, 7 slices."""
    message = read_message(data)
    shape = []
    for part in message.get(2, []):  # TensorShapeProto: 2 dim, each with 1 size
        for dimension in read_message(as_bytes(part)).get(2, []):
            shape.append(one(read_message(as_bytes(dimension)), 1))
    dtype, shard, offset, size, crc = (one(message, number) for number in (1, 3, 4, 5, 6))
    return Entry(dtype, tuple(shape), shard, offset, size, crc, sliced=7 in message)


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All entries of a table, in the order of their keys, which are all different."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != TABLE_MARK:
        raise Damaged("it does not end as a table does")
    footer = data[-FOOTER:-8]
    _, at = read_handle(footer, 0)  # of a block about the table itself
    (offset, size), _ = read_handle(footer, at)
    last: bytes | None = None
    count = 0
    for _, handle in read_block(data, offset, size):
        block, _ = read_handle(handle, 0)
        for key, value in read_block(data, *block):
            count += 1
            if last is not None and key <= last:
                raise Damaged("its keys are not in order")
            if count > MOST_TENSORS:
                raise Damaged(f"more than {MOST_TENSORS} tensors")
            yield key, value
            last = key


def read_handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Where a block is: ((offset, size), the place after what was read)."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def read_block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of one block: its bytes, a byte for the compression, the checksum of both."""
    end = offset + size
    if end + 5 > len(data):
        raise Damaged("a block lies beyond its end")
    if masked_crc32c(np.frombuffer(data, np.uint8, size + 1, offset)) != int.from_bytes(
        data[end + 1 : end + 5], "little"
    ):
        raise Damaged("a block does not have its checksum")
    if data[end]:
        raise UserError(
            f"a block of the index is compressed (kind {data[end]}), which is not read", fix="save it with TensorFlow"
        )
    # behind the entries: where a search may start (4 bytes each), and how many of these places there are
    restarts = int.from_bytes(data[end - 4 : end], "little") if size >= 4 else 0
    end -= 4 * (restarts + 1)
    if end < offset:
        raise Damaged("a block is shorter than it says")
    key, at = b"", offset
    while at < end:
        shared, at = read_varint(data, at)
        own, at = read_varint(data, at)
        length, at = read_varint(data, at)
        if shared > len(key) or at + own + length > end or shared + own > LONGEST_NAME:
            raise Damaged("an entry is longer than it can be")
        key = key[:shared] + data[at : at + own]
        at += own + length
        yield key, data[at - length : at]


# ---- protocol buffers


def read_message(data: bytes) -> Message:
    """Fields by number, numbers and byte strings, without knowing what they mean."""
    message: Message = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 in (1, 2, 5):  # eight bytes; as many as are said; four bytes
            length = {1: 8, 5: 4}.get(tag & 7)
            if length is None:
                length, at = read_varint(data, at)
            if at + length > len(data):
                raise Damaged("a field is cut off")
            value = data[at : at + length]
            value = value if tag & 7 == 2 else int.from_bytes(value, "little")
            at += length
        else:
            raise Damaged(f"a field of kind {tag & 7}")
        message.setdefault(tag >> 3, []).append(value)
    return message


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in seven bits a byte, the least first: (number, the place after it)."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise Damaged("a number is cut off or too long")


def one(message: Message, number: int) -> int:
    """The last value of a field, 0 where it is left out, as protocol buffers have it."""
    value = message.get(number, [0])[-1]
    if not isinstance(value, int):
        raise Damaged(f"field {number} is not a number")
    return value


def as_bytes(value: int | bytes) -> bytes:
    """The value of a field that holds a message."""
    if not isinstance(value, bytes):
        raise Damaged("a number where a message should be")
    return value
