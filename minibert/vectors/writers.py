"""Vectors to a file: an array, JSON lines or a parquet table, a block of records at a time."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from minibert.errors import UserError
from minibert.tasks.base import LINE_ENDS
from minibert.vectors.records import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from minibert.vectors.embed import Vectors

SUFFIXES = {".npy": "npy", ".jsonl": "jsonl", ".parquet": "parquet"}


@dataclass
class Tokens:
    """A text's tokens, and where each stands in it, in characters; none where the text has one vector."""

    tokens: list[str]
    spans: list[tuple[int, int]]


class Writer(ABC):
    """A format. All records are shown to it once before there are vectors, so that what does not fit is said at once.

    Args: width: D. tokens: whether a record has a vector for each token (T,D), and not one (D,).
    """

    all_fields = True  # whether it writes what stands beside the text

    def __init__(self, *, width: int, tokens: bool) -> None:
        self.width, self.tokens = width, tokens
        self.total = 0  # records that were shown
        self.own = ("tokens", "offsets", "vectors") if tokens else ("vector",)

    def check(self, records: Sequence[Record]) -> None:
        """Look at records. Raises: UserError for a field that the format cannot hold."""
        self.total += len(records)
        for record in records if self.all_fields else ():
            for name in self.own:
                if name in record.fields:
                    raise UserError(f"there is a field {name!r} already", record.where, "rename it, or --format npy")

    def open(self, path: Path) -> None:
        """Begin a file."""
        self.file: IO[bytes] = path.open("wb")

    @abstractmethod
    def write(self, records: Sequence[Record], tokens: Sequence[Tokens], vectors: Sequence[Vectors]) -> None:
        """Add records with their vectors."""

    def close(self) -> None:
        """The file is whole."""
        self.file.close()


class NpyWriter(Writer):
    """numpy.load gives (records, D) float32."""

    all_fields = False

    def open(self, path: Path) -> None:
        super().open(path)
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.total, self.width)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def write(self, records: Sequence[Record], tokens: Sequence[Tokens], vectors: Sequence[Vectors]) -> None:
        self.file.write(np.stack(vectors).astype("<f4").tobytes())


class JsonWriter(Writer):
    """One object a record: its fields, and "vector"; or "tokens", "offsets" and "vectors"."""

    def check(self, records: Sequence[Record]) -> None:
        super().check(records)
        for record in records:
            head(record)

    def write(self, records: Sequence[Record], tokens: Sequence[Tokens], vectors: Sequence[Vectors]) -> None:
        self.file.write(self.text(records, tokens, vectors).encode("utf-8", "backslashreplace"))

    def text(self, records: Sequence[Record], tokens: Sequence[Tokens], vectors: Sequence[Vectors]) -> str:
        """The lines of some records."""
        lines = []
        for record, its, vector in zip(records, tokens, vectors, strict=True):
            if self.tokens:
                own = f'"tokens": {json.dumps(its.tokens, ensure_ascii=False)}, "offsets": {json.dumps(its.spans)}, '
                own += f'"vectors": [{", ".join(map(numbers, vector))}]'
            else:
                own = f'"vector": {numbers(vector)}'
            lines.append(f"{head(record)}, {own}}}\n")
        return "".join(lines).translate(LINE_ENDS)


class ParquetWriter(Writer):
    """The columns of the input, and "vector": a list of D float32; or "tokens", "offsets" and "vectors"."""

    def __init__(self, *, width: int, tokens: bool) -> None:
        super().__init__(width=width, tokens=tokens)
        import pyarrow as pa

        self.schema = pa.schema([])
        vector = pa.list_(pa.float32(), width)
        self.kinds = [vector]
        if tokens:
            self.kinds = [pa.list_(pa.string()), pa.list_(pa.list_(pa.int32(), 2)), pa.list_(vector)]

    def check(self, records: Sequence[Record]) -> None:
        import pyarrow as pa

        super().check(records)
        names = list(dict.fromkeys(name for record in records for name in record.fields))
        for name in names:
            kind = column(records, name).type
            with told(records, name):
                if pa.types.is_struct(kind) and not kind.num_fields:
                    raise pa.ArrowInvalid("parquet has no empty object")
                more = pa.schema([(name, kind)])
                self.schema = pa.unify_schemas([self.schema, more], promote_options="permissive")

    def open(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().open(path)
        self.given = list(self.schema)
        for name, kind in zip(self.own, self.kinds, strict=True):
            self.schema = self.schema.append(pa.field(name, kind))
        self.table = pq.ParquetWriter(self.file, self.schema)

    def write(self, records: Sequence[Record], tokens: Sequence[Tokens], vectors: Sequence[Vectors]) -> None:
        import pyarrow as pa

        columns = [column(records, field.name, field.type) for field in self.given]
        if self.tokens:
            ends = np.cumsum([0, *map(len, vectors)])
            words = [word for its in tokens for word in its.tokens]
            spans = np.array([span for its in tokens for span in its.spans], np.int32)
            inner = [pa.array(words, pa.string()), fixed(spans, 2), fixed(np.concatenate(vectors), self.width)]
            columns += [pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values) for values in inner]
        else:
            columns.append(fixed(np.stack(vectors), self.width))
        self.table.write_table(pa.Table.from_arrays(columns, schema=self.schema))

    def close(self) -> None:
        self.table.close()
        super().close()


def writer(output_format: str, *, width: int, tokens: bool) -> Writer:
    """The format npy, jsonl or parquet."""
    kinds: dict[str, type[Writer]] = {"npy": NpyWriter, "jsonl": JsonWriter, "parquet": ParquetWriter}
    return kinds[output_format](width=width, tokens=tokens)


@contextmanager
def told(records: Sequence[Record], name: str) -> Iterator[None]:
    """A UserError in place of what pyarrow says of a column."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        problem = f"the field {name!r} makes no column: {' '.join(str(error).split())}"
        where = f"{records[0].where} or behind it"
        raise UserError(problem, where, "--format jsonl takes it as it is") from error


def column(records: Sequence[Record], name: str, kind: pa.DataType | None = None) -> pa.Array:
    """A field of some records as a column; null where a record has none. kind: None is what the values tell."""
    import pyarrow as pa

    with told(records, name):
        return pa.array([record.fields.get(name) for record in records], kind)


def fixed(values: np.ndarray, size: int) -> pa.FixedSizeListArray:
    """Numbers as a column of lists that are all of one size."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), size)


def numbers(vector: Vectors) -> str:
    """A JSON array; nine digits give the same float32 again."""
    return "[" + ", ".join([f"{value:.9g}" for value in vector.tolist()]) + "]"


def head(record: Record) -> str:
    """A record as JSON without its last brace. Raises: UserError for what JSON has no word for."""
    try:
        return json.dumps(record.fields, ensure_ascii=False, allow_nan=False, default=plain)[:-1]
    except (TypeError, ValueError) as error:
        problem = f"a field makes no JSON: {error}"
        raise UserError(problem, record.where, "--format parquet or npy") from error


def plain(value: Any) -> str:
    """What parquet has and JSON has not, as text. Raises: TypeError, as json.dumps expects, for the rest."""
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as text")
