"""Broken files for scripts/fuzz.py: what happens to good ones on their way to a user, drawn from a random generator."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import struct
from collections.abc import Callable
from typing import Any

import zstandard

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "gb18030", "big5", "cp1252", "latin-1", "shift_jis")
BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00")
LINE_ENDS = (b"\n", b"\r\n", b"\r", b"\x0b", b"\x0c", b"\xc2\x85", b"\xe2\x80\xa8")
ODD_BYTES = (
    b"\0", b"\0" * 40, b"\xed\xa0\x80", b"\xff", b"\x80", b"\xc3", b"\xf4\x90\x80\x80", b"\x1b[31m", b"\x1b]0;x\x07",
    b"\x7f", b"\x08", b'"', b'""', b"'", b'\\"', b",", b"\t", b";", b"{", b"}", b"[", b"]", b"\\ud83d", b"\\u0000",
    b" ", b"\xe3\x80\x80", b"\xe2\x80\x8b", b"\xcc\x81", b"\xe2\x80\xae", b"# ", b"-DOCSTART-", b"<html>", b"NaN",
    b"1e999", b"-0", b"9" * 5000, b"null", b"%PDF-1.4", b"PK\x03\x04", b"\x1f\x8b\x08", b"GIF89a", b"\x89PNG\r\n",
    b"version https://git-lfs.github.com/spec/v1\n",
)  # fmt: skip
WHOLE = (b"", b"\n", b" ", b"\xef\xbb\xbf", b"\r\n\r\n", b"\t\t\n \n", b"\xe3\x80\x80\n", b"\0", b"\0" * 3000, b"{}",
         b"[]", b"null", b"0", b'""', b"{", b"[" * 100_000, b'{"a":' * 100_000, b'"' * 1001, b",\n" * 50,
         b"\x1b[2J" * 50, bytes(range(256)) * 8)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e300, 10**12, 10**30, "", " ", "x", "\ud800", "\0", "\x1b[31m", "a\nb",
    "../../etc/passwd", "/etc/passwd", "x" * 20_000, [], {}, [[]], [None], [1, 2], ["a"], ["a", "a"], {"a": 1},
    {"": ""}, [{}], "1", "NaN", "true", "[UNK]", -(2**63), 2**63, 10**6,
)  # fmt: skip
RAW_VALUES = (
    "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 50_000 + "]" * 50_000, "[" * 300 + "]" * 300,
    '{"a":' * 2000 + "1" + "}" * 2000, "'a'", "undefined", "01", "",
)  # fmt: skip
PLACEHOLDER = "@raw@"

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress,
}  # fmt: skip


def damaged(data: bytes, draw: random.Random, times: int = 0) -> bytes:
    """Bytes with one to three accidents."""
    for _ in range(times or draw.choice((1, 1, 1, 2, 3))):
        data = draw.choice(ACCIDENTS)(data, draw)
    return data


def cut(data: bytes, draw: random.Random) -> bytes:
    """Its beginning alone."""
    return data[: draw.randrange(len(data) + 1)]


def flip(data: bytes, draw: random.Random) -> bytes:
    """Some bits changed."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def insert(data: bytes, draw: random.Random) -> bytes:
    """Something foreign in the middle."""
    place = draw.randrange(len(data) + 1)
    what = draw.choice((draw.choice(ODD_BYTES), draw.choice(BOMS), draw.choice(LINE_ENDS), draw.randbytes(8)))
    return data[:place] + what * draw.choice((1, 1, 1, 2, 300)) + data[place:]


def leave_out(data: bytes, draw: random.Random) -> bytes:
    """A hole."""
    a, b = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
    return data[:a] + data[min(b, a + draw.choice((1, 2, 16, 1000))) :]


def twice(data: bytes, draw: random.Random) -> bytes:
    """A part once more, or all of it."""
    a, b = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
    return data + data if draw.random() < 0.3 else data[:b] + data[a:b] + data[b:]


def other_encoding(data: bytes, draw: random.Random) -> bytes:
    """Written in another encoding, or read in a wrong one and written again."""
    text = data.decode("utf-8", "replace")
    if draw.random() < 0.3:
        return data.decode(draw.choice(("latin-1", "cp1252", "gb18030")), "replace").encode()
    return text.encode(draw.choice(ENCODINGS), "replace")


def other_line_ends(data: bytes, draw: random.Random) -> bytes:
    """Each line end another one."""
    lines = data.split(b"\n")
    return b"".join(line + draw.choice(LINE_ENDS[:3] if draw.random() < 0.9 else LINE_ENDS) for line in lines)


def bom(data: bytes, draw: random.Random) -> bytes:
    """A byte order mark at the beginning."""
    return draw.choice(BOMS) + data


def huge(data: bytes, draw: random.Random) -> bytes:
    """A long run of one character, or of many of something."""
    place = draw.randrange(len(data) + 1)
    unit = draw.choice((b"a", b"a ", b"\xe5\xad\x97", b'"', b",", b"\\", b"x\n", b"\r", b"[", b"#", b"\xcc\x81"))
    return data[:place] + unit * (100_000 // len(unit)) + data[place:]


def shuffled(data: bytes, draw: random.Random) -> bytes:
    """Its lines in another order."""
    lines = data.splitlines(keepends=True)
    draw.shuffle(lines)
    return b"".join(lines)


def whole(data: bytes, draw: random.Random) -> bytes:
    """Something else altogether."""
    return draw.choice(WHOLE) if draw.random() < 0.7 else draw.randbytes(draw.choice((1, 10, 300, 5000)))


ACCIDENTS = (cut, cut, flip, flip, insert, insert, insert, leave_out, twice, other_encoding, other_line_ends, bom, huge,
             shuffled, whole)  # fmt: skip


def odd_value(value: Any, draw: random.Random) -> Any:
    """A JSON value of the wrong kind, often near the right one."""
    if isinstance(value, str) and draw.random() < 0.3:
        return value + draw.choice(("\ud800", "\0", " ", "\n", "\u2028", "\x1b[1m", "字" * 300, "\u200b", "́"))
    if isinstance(value, int | float) and draw.random() < 0.4:
        return value + draw.choice((1, -1, 0.5, 1000, -1000))
    if isinstance(value, list) and value and draw.random() < 0.4:
        return draw.choice(([value], value + value, value[:-1], [*value, None], value[::-1]))
    return draw.choice(VALUES) if draw.random() < 0.8 else PLACEHOLDER


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        holder = todo.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, inner in list(items):
            found.append((holder, key))
            todo.append(inner)
    return found


def damaged_json(value: Any, draw: random.Random) -> str:
    """A JSON value with one to three accidents to its structure, as text."""
    value = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        found = places(value)
        if not found:
            return json.dumps(odd_value(value, draw))
        holder, key = draw.choice(found)
        kind = draw.random()
        if kind < 0.65:
            holder[key] = odd_value(holder[key], draw)
        elif kind < 0.8:
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw.choice((key.upper(), key + " ", "", "x", "\x1b[1m"))] = holder.pop(key)
        else:
            holder.insert(draw.randrange(len(holder) + 1), holder[key])
    text = json.dumps(value, ensure_ascii=draw.random() < 0.7)
    if found and draw.random() < 0.05:  # a key twice
        keys = [key for holder, key in found if isinstance(key, str)]
        text = text.replace("{", f"{{{json.dumps(draw.choice(keys or ['a']))}: 1, ", 1)
    return text.replace(json.dumps(PLACEHOLDER), draw.choice(RAW_VALUES))


def broken_json(value: Any, draw: random.Random) -> bytes:
    """A JSON file, damaged in its structure or in its bytes."""
    if draw.random() < 0.75:
        return damaged_json(value, draw).encode("utf-8", "surrogatepass")
    return damaged(json.dumps(value, ensure_ascii=False).encode(), draw)


def broken_lines(values: list[Any], draw: random.Random) -> bytes:
    """A file of JSON lines: one of them damaged in its structure, or the file in its bytes."""
    lines = [json.dumps(value, ensure_ascii=False).encode() for value in values]
    if draw.random() < 0.6:
        place = draw.randrange(len(values))
        lines[place] = damaged_json(values[place], draw).encode("utf-8", "surrogatepass")
        return b"\n".join(lines) + b"\n" * draw.choice((0, 1, 1, 3))
    return damaged(b"\n".join(lines) + b"\n", draw)


def packed(name: str, data: bytes, draw: random.Random) -> tuple[str, bytes]:
    """A file, now and then in an archive, which is whole, damaged, of several parts, or not what its name says."""
    if draw.random() < 0.75:
        return name, data
    ending = draw.choice(list(PACKERS))
    pack = PACKERS[ending if draw.random() < 0.9 else draw.choice(list(PACKERS))]
    kind = draw.random()
    if kind < 0.3:
        data = pack(data)
    elif kind < 0.5:
        place = draw.randrange(len(data) + 1)
        data = pack(data[:place]) + pack(data[place:])
    elif kind < 0.65:
        data = pack(data) + draw.choice((b"\0", b"\0" * 512, b"rubbish", pack(b"more")[:-3], draw.randbytes(20)))
    elif kind < 0.95:
        data = damaged(pack(data), draw, 1)
    return name + ending, data


def parquet(columns: dict[str, list[Any]], draw: random.Random) -> bytes:
    """A parquet file of these columns, one of them of another kind now and then, damaged half of the time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: pa.array(values) for name, values in columns.items()}
    length = len(next(iter(columns.values())))
    if draw.random() < 0.5:
        name = draw.choice(list(arrays))
        strange = draw.choice(("null", "int", "float", "list", "struct", "bytes", "nan", "none", "dict", "view", "date",
                               "decimal", "large", "gone", "again", "empty"))  # fmt: skip
        kinds: dict[str, Callable[[], Any]] = {
            "null": lambda: pa.nulls(length),
            "int": lambda: pa.array(range(length)),
            "float": lambda: pa.array([1.5] * length),
            "nan": lambda: pa.array([float("nan")] * length),
            "list": lambda: pa.array([["a"]] * length),
            "struct": lambda: pa.array([{"a": "b"}] * length),
            "bytes": lambda: pa.array([b"\xff\xfe"] * length),
            "none": lambda: pa.array([*columns[name][:-1], None]),
            "dict": lambda: pa.array(["a"] * length).dictionary_encode(),
            "view": lambda: pa.array(["a"] * length, pa.string_view()),
            "date": lambda: pa.array([0] * length, pa.date32()),
            "decimal": lambda: pa.array([1] * length, pa.decimal128(5, 2)),
            "large": lambda: pa.array(["a"] * length, pa.large_string()),
        }
        if strange == "gone":
            del arrays[name]
            arrays = arrays or {"other": pa.array(["a"] * length)}
        elif strange == "empty":
            arrays = {name: array[:0] for name, array in arrays.items()}
        elif strange != "again":
            arrays[name] = kinds[strange]()
        table = pa.table(arrays)
        if strange == "again":
            table = table.append_column(name, table.column(name))
    else:
        table = pa.table(arrays)
    stream = io.BytesIO()
    pq.write_table(table, stream, compression=draw.choice(("none", "snappy", "gzip", "zstd")))
    data = stream.getvalue()
    return data if draw.random() < 0.4 else damaged(data, draw, 1)


def safetensors(data: bytes, draw: random.Random) -> bytes:
    """A safetensors file: its header damaged as JSON, of another length than it says, or the whole in its bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    kind = draw.random()
    if kind < 0.5:
        header = damaged_json(json.loads(data[8 : 8 + length]), draw).encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(header)) + header + data[8 + length :]
    if kind < 0.65:
        said = draw.choice((0, 1, length - 1, length + 1, 10**8 + 1, 10**11, 2**63, 2**64 - 1, len(data)))
        return struct.pack("<Q", said) + data[8:]
    return damaged(data, draw, 1)


class Opens:
    """What a pickle does that makes a file when it is opened."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return open, (self.marker, "w")
