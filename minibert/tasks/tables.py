"""Records from tables: CSV, TSV, JSONL, parquet and plain lines, each record with the place where it begins.

Cells of CSV and TSV are text and stay it: "NA", "null" and "01" are what they look like, only an empty cell is empty.
Python's csv module is not used: it does not tell where a record began, limits the length of a cell for the whole
process, and takes a blank before an opening quote for text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minibert.corpus.json_lines import has_escaped_surrogate, numbered_lines, parse_object, refuse_half_pairs, shorten
from minibert.corpus.read import seekable
from minibert.errors import UserError
from minibert.tasks.base import note, until_fault

FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".txt": "txt",
}  # fmt: skip
NAMES = ("csv", "tsv", "jsonl", "parquet", "txt")
Row = tuple[str, list[Any]]  # where it begins ("dev.csv:3"), the values asked for

LONGEST_CELL = 1 << 24  # characters of a cell over several lines: a shelf of books
LONGEST_NAME = 200  # characters of a name that others are compared with

_PARQUET_ROWS = 1024  # read at a time


@dataclass(frozen=True)
class TableReader:
    """How tables are read, and what is wanted of them.

    Attributes: wanted: option -> the column it names, in the order of a row's values: {"--text-column": "text"}.
        encoding: of all but parquet. delimiter: one character; "" is the format's own. header: whether the first line
        of CSV and TSV names the columns; otherwise they are called 1, 2, ... places: column -> number, for names that
        stand for a place where no column has a name and there are no more columns than these. quoting: whether a
        quote at a cell's begin is CSV's. notes: sentences for the user are added here. faults: as in Task.
    """

    wanted: Mapping[str, str]
    encoding: str = "utf-8"
    delimiter: str = ""
    header: bool = True
    places: Mapping[str, str] = field(default_factory=dict)
    quoting: bool = True
    notes: list[str] = field(default_factory=list)
    faults: list[UserError] | None = None

    def rows(self, path: Path, layout: str) -> Iterator[Row]:
        """The records of a file of the format `layout` (csv, tsv, jsonl, parquet, txt), in order.

        Raises: UserError for whatever cannot be read exactly, with file:line, or the row of a parquet file.
        """
        if layout == "parquet":
            rows = self._parquet_rows(path)
        elif layout == "jsonl":
            rows = self._json_rows(path)
        elif layout == "txt":
            rows = self._text_rows(path)
        else:
            rows = self._csv_rows(path, self.delimiter or ("\t" if layout == "tsv" else ","))
        return until_fault(rows, self.faults)

    def guess(self, path: Path, *, gold: bool) -> str:
        """The format of a file whose name does not say it, from its first line; a note says what was taken for granted.

        JSONL begins with "{"; CSV and TSV have a first line that names the text column; all else is plain text where no
        labels are needed. Raises: UserError where that leaves a doubt.
        """
        first = next((line for _, line in numbered_lines(path, self.encoding) if line.strip()), "")
        column = self.wanted["--text-column"]
        say = f"--input-format {'|'.join(NAMES)}"
        if first.lstrip().startswith("{"):
            layout, why = "jsonl", "its first line begins with {"
        else:
            layout = "txt"
            cells: list[str] = []
            for name, delimiter in (("csv", self.delimiter or ","), ("tsv", "\t")):
                found = [cell.strip().strip('"') for cell in first.split(delimiter)]
                if column in found and len(found) > len(cells):
                    layout, cells = name, found
            if gold and layout == "txt":
                raise UserError(f"its name says no format, and its first line no column {column!r}", f"{path}", say)
            if not gold and len(cells) == 1:
                raise UserError(f"the first line is {column!r}: a text, or the name of a column?", f"{path}:1", say)
            why = "a line is a text" if layout == "txt" else "its first line names the columns"
        self.notes.append(f"read as {layout}: {why} ({say} says otherwise)")
        return layout

    # ---- CSV and TSV

    def _csv_rows(self, path: Path, delimiter: str) -> Iterator[Row]:
        records = csv_records(path, self.encoding, delimiter, quoting=self.quoting)
        number, first = next((record for record in records if record[1]), (0, []))
        if not number:
            raise UserError("the file is empty", str(path), "a first line with the columns' names, and a row a line")
        if self.header:
            columns = [cell.strip() for cell in first]
            places = self._places(columns, f"{path}:{number}", delimiter)
        else:
            places = self._numbered(first, f"{path}:{number}")
            yield f"{path}:{number}", [first[i] for i in places]
        empty: list[int] = []
        for number, cells in records:
            if not cells:
                empty.append(number)
                continue
            if empty and len(first) == 1:
                fix = 'remove it, or write an empty text as ""'
                note(UserError("an empty line", f"{path}:{empty[0]}", fix), self.faults)
                empty.clear()
            if len(cells) != len(first):
                shown = ", ".join(shorten(cell) for cell in cells[:8])
                whose = "the header" if self.header else "the first line"
                fix = f'a cell that holds {delimiter!r} or a line break stands in quotes: "a{delimiter} b"'
                problem = f"{len(cells)} cells where {whose} has {len(first)}: {shown}"
                note(UserError(problem, f"{path}:{number}", fix), self.faults)
                continue
            yield f"{path}:{number}", [cells[i] for i in places]
        if empty and len(first) > 1:
            self.notes.append(f"{len(empty)} empty lines were passed over")

    def _places(self, columns: Sequence[str], where: str, delimiter: str = "") -> list[int]:
        """Where the wanted columns are."""
        for option, name in self.wanted.items():
            if columns.count(name) == 1:
                continue
            if name in columns:
                raise UserError(f"{columns.count(name)} columns are called {name!r}", where, "rename all but one")
            shown = ", ".join(shorten(column) for column in columns[:20]) or "none"
            fix = f"{option} {near(name, columns) or 'NAME'}"
            other = next((mark for mark in ";\t,|" if len(columns) == 1 and mark in columns[0]), "")
            if delimiter:
                fix += ", or --no-header if the first line is data"
                fix = f"--delimiter {other!r}" if other else fix
            raise UserError(f"no column {name!r}; there are {shown}", where, fix)
        return [columns.index(name) for name in self.wanted.values()]

    def _numbered(self, first: Sequence[str], where: str) -> list[int]:
        """Where the wanted columns are in a file without a header; the first line is data."""
        names = self.wanted.values()
        if all(name in [cell.strip() for cell in first] for name in names) and not any(n.isdecimal() for n in names):
            shown = ", ".join(map(shorten, first))
            raise UserError(f"the first line is a header: {shown}", where, "leave --no-header out")
        guessed = len(first) <= len(self.places)
        wanted = {option: self.places.get(name, name) if guessed else name for option, name in self.wanted.items()}
        for option, name in wanted.items():
            if not name.isdecimal() or not 1 <= int(name) <= len(first):
                shown = ", ".join(shorten(cell) for cell in first[:20])
                problem = f"no column {name!r}: without a header columns are called 1 to {len(first)}: {shown}"
                raise UserError(problem, where, f"{option} N")
        if wanted != self.wanted:
            told = ", ".join(f"{option} {name}" for option, name in wanted.items())
            self.notes.append(f"no header: {told}")
        return [int(name) - 1 for name in wanted.values()]

    # ---- the other formats

    def _json_rows(self, path: Path) -> Iterator[Row]:
        for number, line in numbered_lines(path, self.encoding):
            if not line or line.isspace():
                continue
            where = f"{path}:{number}"
            try:
                values = self._json_values(line, where)
            except UserError as error:
                note(error, self.faults)
            else:
                yield where, values

    def _json_values(self, line: str, where: str) -> list[Any]:
        """The wanted values of a line."""
        fix = 'one JSON object a line: {"text": "..."}, or --input-format'
        record = parse_object(line, where, fix, unique_keys=True)
        for option, name in self.wanted.items():
            if name not in record:
                shown = ", ".join(shorten(key) for key in list(record)[:20]) or "none"
                fix = f"{option} {near(name, list(record)) or 'NAME'}"
                raise UserError(f"no field {name!r}; there are {shown}", where, fix)
        values = [record[name] for name in self.wanted.values()]
        if has_escaped_surrogate(line):
            refuse_half_pairs(values, where)
        return values

    def _text_rows(self, path: Path) -> Iterator[Row]:
        for option in self.wanted:
            if option != "--text-column":
                fix = f'a .csv, .tsv, .jsonl or .parquet file (--input-format says which), or {option} ""'
                raise UserError(f"plain text holds a text a line and nothing for {option}", str(path), fix)
        for number, line in numbered_lines(path, self.encoding):
            yield f"{path}:{number}", [line]

    def _parquet_rows(self, path: Path) -> Iterator[Row]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        number = 0
        try:
            with seekable(path) as source, pq.ParquetFile(source) as file:
                self._places(file.schema_arrow.names, str(path))
                for batch in file.iter_batches(_PARQUET_ROWS, columns=list(set(self.wanted.values()))):
                    columns = [batch.column(name).to_pylist() for name in self.wanted.values()]
                    for values in zip(*columns, strict=True):
                        number += 1
                        yield f"{path}: row {number}", list(values)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
            raise UserError(
                f"cannot be read as parquet after row {number}: {reason}", str(path),
                "write or fetch it again; --input-format, if it is no parquet",
            ) from error  # fmt: skip


def csv_records(path: Path, encoding: str, delimiter: str, *, quoting: bool = True) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file, each with the number of the line where it begins, from 1; an empty line has none.

    As RFC 4180 says: a cell in quotes may hold delimiters, line breaks (which become "\\n") and doubled quotes. Beyond
    it, as everybody reads it: a quote inside a cell without quotes is text.
    Raises: UserError, at the line where the record begins, for a quote that is not closed, has text behind it or a
        blank before it; in TSV also for a quoted cell over tabs and lines, where quotes are mostly text.
    """
    lines = numbered_lines(path, encoding)
    fix = 'double a quote that is text, inside quotes ("say ""hi"""), or --no-quoting if all quotes are text'
    for begin, line in lines:
        if not quoting or '"' not in line:
            yield begin, line.split(delimiter) if line else []
            continue
        cells: list[str] = []
        where, start, place = f"{path}:{begin}", line, 0
        while place <= len(line):
            if not line.startswith('"', place):
                end = line.find(delimiter, place)
                end = len(line) if end < 0 else end
                cell = line[place:end]
                if cell[:1] in (" ", "\u3000") and cell.lstrip().startswith('"') and delimiter != "\t":
                    raise UserError(f"a blank before the quote: {shorten(cell)}", where, f"remove it, or {fix}")
                cells.append(cell)
                place = end + 1
                continue
            parts: list[str] = []
            size = 0
            place += 1
            while (end := line.find('"', place)) < 0 or line.startswith('""', end):
                if end >= 0:
                    parts.append(line[place : end + 1])
                    place = end + 2
                    continue
                parts.append(line[place:] + "\n")
                size += len(parts[-1])
                if size > LONGEST_CELL:
                    raise UserError(f"a quote that is not closed in {size:,} characters: {shorten(start)}", where, fix)
                number, line = next(lines, (0, ""))
                if not number:
                    raise UserError(f"a quote that is never closed: {shorten(start)}", where, fix)
                place = 0
            cells.append("".join(parts) + line[place:end])
            place = end + 2
            if end + 1 < len(line) and line[end + 1] != delimiter:
                shown = shorten(line[max(0, end - 30) :])
                raise UserError(f"text behind a closing quote: {shown}", where, fix)
            if delimiter == "\t" and "\t" in cells[-1] and "\n" in cells[-1]:
                raise UserError(f"a quoted cell over tabs and lines: {shorten(cells[-1])}", where, fix)
        yield begin, cells


def near(name: str, names: Sequence[str]) -> str:
    """The one of the names that is most like `name`, whatever the case; "" where none is."""
    if len(name) > LONGEST_NAME:  # the comparison takes the product of both lengths
        return ""
    folded = {other.casefold(): other for other in reversed(names)}
    found = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[found[0]] if found else ""
