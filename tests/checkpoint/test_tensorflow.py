"""The reader against a writer made from the description alone; files that TensorFlow itself wrote were read once."""

from __future__ import annotations

import contextlib
import random
import runpy
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.checkpoint.crc32c import crc32c, masked_crc32c
from minibert.checkpoint.tensorflow import Bundle, Damaged, read_index, read_message
from minibert.errors import UserError

W = runpy.run_path(str(Path(__file__).with_name("tensorflow_files.py")))
TENSORS = {
    "bert/embeddings/word_embeddings": torch.arange(12.0).reshape(4, 3),
    "bert/half": torch.tensor([1.5, -2.0], dtype=torch.float16),
    "bert/brain": torch.tensor([[0.125]], dtype=torch.bfloat16),
    "double": torch.tensor([1e300, 2.0], dtype=torch.float64),
    "empty": torch.zeros(0, 5),
    "global_step": torch.tensor(7),
    **{f"layer_{i}/some/kernel": torch.full((2, 2), float(i)) for i in range(30)},
}


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def test_checksum_is_the_published_one() -> None:
    """RFC 3720, B.4: the check values of CRC-32C."""
    for data, value in ((b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"", 0)):
        assert crc32c(as_array(data)) == value
    assert masked_crc32c(as_array(b"")) == 0xA282EAD8


@pytest.mark.parametrize("length", [1, 3, 4, 5, 16, 63, 64, 65, 1000, 4097, 70_001])
def test_checksum_of_any_length_is_that_of_one_byte_after_the_other(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert crc32c(as_array(data)) == W["crc32c"](data)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_type_comes_back_from_any_shard_and_block(shards: int, tmp_path: Path) -> None:
    W["write_checkpoint"](tmp_path / "bert_model.ckpt", TENSORS, shards=shards)
    bundle = Bundle(tmp_path / "bert_model.ckpt")
    assert len(bundle) == len(TENSORS)
    for name, tensor in TENSORS.items():
        assert bundle[name].dtype == tensor.dtype
        assert torch.equal(bundle[name], tensor)


def files(folder: Path) -> list[Path]:
    W["write_checkpoint"](folder / "m.ckpt", TENSORS, shards=2)
    return sorted(folder.iterdir())


def read_all(prefix: Path) -> dict[str, torch.Tensor]:
    return dict(Bundle(prefix))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_cut_off_anywhere_is_an_error(which: int, tmp_path: Path) -> None:
    path = files(tmp_path)[which]
    whole = path.read_bytes()
    for kept in {*range(0, len(whole), 37), len(whole) - 1}:
        path.write_bytes(whole[:kept])
        with pytest.raises(UserError, match=r"m\.ckpt\S+: (cut off|damaged)"):
            Bundle(tmp_path / "m.ckpt")  # at once, whichever tensor is wanted


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_wrong_bit_anywhere_is_an_error(which: int, tmp_path: Path) -> None:
    """An error, or in the block about the table itself, which nothing needs, no matter at all."""
    path = files(tmp_path)[which]
    whole = path.read_bytes()
    draw = random.Random(0)
    for at in sorted(draw.sample(range(len(whole)), 120)):
        if path.suffix == ".index" and len(whole) - 48 <= at < len(whole) - 8:
            continue
        changed = bytearray(whole)
        changed[at] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        try:
            tensors = read_all(tmp_path / "m.ckpt")
        except UserError:
            continue
        assert path.suffix == ".index", at
        assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items()), at


def test_missing_files_are_named(tmp_path: Path) -> None:
    data, _, _ = files(tmp_path)
    data.unlink()
    with pytest.raises(UserError, match=r"m.ckpt.index: the data file m.ckpt.data-00000-of-00002 is missing"):
        Bundle(tmp_path / "m.ckpt")


HEADER = W["header"](1)
ENTRY = W["entry"](1, (1,), 0, 0, bytes(4))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(b"a", ENTRY)], "no header"),
        ([(b"", HEADER), (b"b", ENTRY), (b"a", ENTRY)], "keys are not in order"),
        ([(b"", HEADER), (b"a", ENTRY), (b"a", ENTRY)], "keys are not in order"),
        ([(b"", HEADER), (b"a", W["entry"](1, (2,), 0, 0, bytes(4)))], r"'a' \(2,\) takes 8 bytes, not 4"),
        ([(b"", HEADER), (b"a", W["entry"](1, (2**64 - 1,), 0, 0, b""))], "'a' has the shape"),
        ([(b"", HEADER), (b"a", W["entry"](1, (0, 2**40), 0, 0, b""))], "'a' has the shape"),
        ([(b"", HEADER), (b"a", W["entry"](1, (1,), 3, 0, bytes(4)))], "'a' is in data file 3 of 1"),
        ([(b"", HEADER), (b"\xff", ENTRY)], "is not UTF-8"),
        ([(b"", HEADER), (b"a", b"\x0b")], "a field of kind 3"),
        ([(b"", HEADER), (b"a", b"\xff" * 11)], "a number is cut off or too long"),
        ([(b"", HEADER), (b"a", b"\x0a\x7f")], "a field is cut off"),
        ([(b"", HEADER), (b"a", W["field"](2, 5))], "a number where a message should be"),
        ([(b"", HEADER), (b"a", W["field"](1, b"x"))], "field 1 is not a number"),
        ([(b"", HEADER), (b"a" * 2000, ENTRY)], "an entry is longer than it can be"),
        ([(b"", W["header"](1, endianness=1))], "stored big-endian"),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(
    items: list[tuple[bytes, bytes]], message: str, tmp_path: Path
) -> None:
    (tmp_path / "m.index").write_bytes(W["table"](items))
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(4))
    with pytest.raises(UserError, match=rf"m\.index: .*{message}"):
        Bundle(tmp_path / "m")


def test_what_is_whole_and_not_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(4))

    def bundle(items: list[tuple[bytes, bytes]], kind: int = 0) -> Bundle:
        (tmp_path / "m.index").write_bytes(W["table"](items, kind=kind))
        return Bundle(tmp_path / "m")

    with pytest.raises(UserError, match=r"m\.index: a block of the index is compressed \(kind 1\)"):
        bundle([(b"", HEADER)], kind=1)
    with pytest.raises(UserError, match="TensorFlow 2 checkpoint") as caught:
        bundle([(b"", HEADER), (b"model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE", ENTRY)])
    assert "convert_bert_original_tf2_checkpoint_to_pytorch.py" in str(caught.value)
    sliced = bundle([(b"", HEADER), (b"\0slice", ENTRY), (b"a", ENTRY + W["field"](7, b""))])
    assert [*sliced] == ["a"]
    with pytest.raises(UserError, match="'a' is stored in slices"):
        sliced["a"]
    words = bundle([(b"", HEADER), (b"a", W["entry"](7, (1,), 0, 0, bytes(4)))])
    with pytest.raises(UserError, match="'a' is of TensorFlow's type 7"):
        words["a"]


def test_small_file_of_long_names_does_not_fill_the_memory() -> None:
    """Each key is the one before and a byte more, four bytes in the file: a square of memory without a limit."""
    items = b"".join(bytes([*W["varint"](i), 1, 0, 97]) for i in range(200_000))
    content = items + bytes(4) + (1).to_bytes(4, "little") + b"\0"
    content += W["masked"](content).to_bytes(4, "little")
    handle = W["varint"](0) + W["varint"](len(content) - 5)
    index = W["block"]([(b"z", handle)])
    footer = handle + W["varint"](len(content)) + W["varint"](len(index) - 5)
    data = content + index + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    tracemalloc.start()
    with pytest.raises(Damaged):
        read_index(data)
    assert tracemalloc.get_traced_memory()[1] < 30 * len(data)
    tracemalloc.stop()


def result_or_message(read: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(Damaged, UserError):
        read(data)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_index_a_message_or_damaged(data: bytes) -> None:
    result_or_message(read_message, data)
    result_or_message(read_index, data)
    result_or_message(read_index, data + bytes.fromhex("57fb808b247547db"))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=30)), max_size=12), st.integers(1, 5), st.booleans()
)
def test_any_entries_with_right_checksums_too(items: list[tuple[bytes, bytes]], per_block: int, ordered: bool) -> None:
    if ordered:
        items = [(b"", HEADER), *sorted(dict(items).items())]
    result_or_message(read_index, W["table"](items, per_block=per_block))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120), st.binary(max_size=20))
def test_any_block_with_a_right_checksum_too(content: bytes, handles: bytes) -> None:
    content += b"\0"
    content += W["masked"](content).to_bytes(4, "little")
    index = W["block"]([(b"k", W["varint"](0) + W["varint"](len(content) - 5)), (b"l", handles)])
    footer = W["varint"](0) * 2 + W["varint"](len(content)) + W["varint"](len(index) - 5)
    result_or_message(read_index, content + index + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db"))
