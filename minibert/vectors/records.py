"""The records of a file: a text and whatever else stands there, as a stream that can be begun again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minibert.corpus.decoding import COMPRESSIONS, check_encoding
from minibert.corpus.json_lines import (
    has_escaped_surrogate,
    in_words,
    numbered_lines,
    parse_object,
    refuse_half_pairs,
    shorten,
)  # fmt: skip
from minibert.corpus.read import seekable
from minibert.errors import UserError
from minibert.tasks.tables import FORMATS, TableReader, csv_records, near

TEXT = "--text-column"  # as TableReader's messages name it
WORD_A_LINE = (".conll", ".conllu", ".bio", ".iob", ".iob2")
PLACES = {"text": "1"}  # where the text is in a file of one column without a header


@dataclass(frozen=True)
class Record:
    """Where it begins ("notes.jsonl:3"), its text, and all its fields in their order, the text among them."""

    where: str
    text: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A file of texts, and how it is read.

    Attributes: input_format: txt, csv, tsv, jsonl, parquet; "auto" goes by the name, and where that says nothing by the
        first line. text_field: the column or field of the text, its number where CSV has no header. delimiter: of CSV
        and TSV, "" the format's own. all_fields: whether records bring what else stands in them; otherwise the text
        alone. notes: sentences for the user are added here while it is read.
    """

    path: Path
    input_format: str = "auto"
    text_field: str = "text"
    encoding: str = "utf-8"
    delimiter: str = ""
    header: bool = True
    quoting: bool = True
    all_fields: bool = True
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.delimiter != "\\t" and (len(self.delimiter) > 1 or self.delimiter in ('"', "\n", "\r")):
            fix = r"one character, no quote and no line break; \t is a tab"
            raise UserError(f"delimiter is {self.delimiter!r}", "--delimiter", fix)

    def __iter__(self) -> Iterator[Record]:
        """Every record, an empty line of plain text too: rows and lines agree.

        Raises: UserError with file:line for whatever cannot be read exactly, or is no text.
        """
        self.notes.clear()
        check_encoding(self.encoding)
        layout = self._layout()
        if layout == "jsonl":
            yield from self._json_records()
            return
        names = self._names(layout)
        for where, values in self._reader(names).rows(self.path, layout):
            fields = dict(zip(names, values, strict=True))
            yield self._record(where, fields)

    def _layout(self) -> str:
        """The file's format."""
        if self.input_format != "auto":
            return self.input_format
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        if suffixes and suffixes[-1] in COMPRESSIONS:
            suffixes.pop()
        if suffixes and suffixes[-1] in WORD_A_LINE:
            fix = "give sentences; or, if each line is a text all the same, --input-format txt"
            raise UserError(f"a {suffixes[-1]} file has a word a line", str(self.path), fix)
        known = FORMATS.get(suffixes[-1] if suffixes else "", "")
        return known or self._reader([self.text_field]).guess(self.path, gold=False)

    def _reader(self, names: list[str]) -> TableReader:
        wanted = {TEXT if name == self.text_field else name: name for name in names}
        delimiter = "\t" if self.delimiter == "\\t" else self.delimiter
        return TableReader(wanted, self.encoding, delimiter, self.header, PLACES, self.quoting, self.notes)

    def _names(self, layout: str) -> list[str]:
        """The columns that are wanted, in their order."""
        names = []
        if layout == "parquet" and self.all_fields:
            names = parquet_columns(self.path)
        elif layout in ("csv", "tsv") and self.all_fields:
            delimiter = self._reader([]).delimiter or ("\t" if layout == "tsv" else ",")
            records = csv_records(self.path, self.encoding, delimiter, quoting=self.quoting)
            first = next((cells for _, cells in records if cells), [])
            numbers = [str(i) for i in range(1, len(first) + 1)]
            names = [cell.strip() for cell in first] if self.header else numbers
        # without the text among them, the reader says what is there
        return names if self.text_field in names else [self.text_field]

    def _json_records(self) -> Iterator[Record]:
        for number, line in numbered_lines(self.path, self.encoding):
            if not line or line.isspace():
                continue
            where = f"{self.path}:{number}"
            fix = f'one JSON object a line: {{"{self.text_field}": "..."}}, or --input-format'
            fields = parse_object(line, where, fix, unique_keys=True)
            if self.text_field not in fields:
                shown = ", ".join(shorten(key) for key in list(fields)[:20]) or "none"
                fix = f"--text-field {near(self.text_field, list(fields)) or 'NAME'}"
                raise UserError(f"no field {self.text_field!r}; there are {shown}", where, fix)
            if not self.all_fields:
                fields = {self.text_field: fields[self.text_field]}
            if has_escaped_surrogate(line):
                refuse_half_pairs(fields, where)
            yield self._record(where, fields)

    def _record(self, where: str, fields: dict[str, Any]) -> Record:
        text = fields[self.text_field]
        if not isinstance(text, str):
            problem = f"the text is {in_words(text)}"
            raise UserError(problem, where, "--text-field names a column of texts")
        return Record(where, text, fields)


def parquet_columns(path: Path) -> list[str]:
    """The names of a file's columns; none where it cannot be read, which its reader then says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with seekable(path) as source, pq.ParquetFile(source) as file:
            return [str(name) for name in file.schema_arrow.names]
    except (pa.ArrowException, OSError):
        return []
