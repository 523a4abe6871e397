"""Files -> documents, as a stream.

The text contract: a blank line ends a document, so does the end of a file. A line is blank if str.strip() leaves
nothing of it (ideographic blanks too); a line of zero-width characters alone is not blank, though it will have no
tokens. In JSONL and parquet a record is a document. Source: google-research/bert create_pretraining_data.py.
"""

import difflib
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path, PurePath
from typing import IO, BinaryIO

from minibert.atomic import TMPDIR, temporary_place, written
from minibert.corpus.decoding import BLOCK_BYTES, COMPRESSIONS, byte_blocks, check_encoding, doubt, line_blocks
from minibert.corpus.json_lines import has_escaped_surrogate, numbered_lines, parse_object, refuse_half_pairs, type_name
from minibert.errors import UserError

STDIN = "-"
FORMATS = (".txt", ".jsonl", ".parquet")
SHARD = re.compile(r"shard-(\d{5})-of-(\d{5})")  # a folder that `minibert prepare` makes: no text, whatever lies in it

LISTED = 1000  # records that are left out whose places are kept
DOUBTED = 100  # files whose beginnings are looked at

_PARQUET_ROWS = 1024  # read at a time


def find_files(patterns: Sequence[str]) -> list[Path]:
    """The files that the patterns name, each file once, in the order of the patterns.

    A pattern is a file (an unknown suffix is read as text), a folder (searched to its depth for the known suffixes, in
    sorted order, names that begin with a dot left out) or a glob, `**` too, whose matches count as if each were named.
    Raises: UserError if a pattern finds nothing. ValueError for STDIN: the caller has put spool_stdin's file there.
    """
    found: dict[str, Path] = {}
    for pattern in patterns:
        if pattern == STDIN:
            raise ValueError("standard input is to be spooled first")
        if os.path.lexists(pattern):
            files = _files_of(Path(pattern))
            if not files:
                raise UserError(
                    _nothing_in(Path(pattern)), pattern, f"known are {known_suffixes()}; name other files one by one"
                )
        else:
            matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
            files = [file for match in matches for file in _files_of(Path(match))]
            if not files:
                raise UserError("no such file or folder", pattern, _near_name(Path(pattern)))
        for file in files:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _files_of(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(
            "neither a file nor a folder (a broken link, a pipe?)", str(path), f"send a pipe to standard input, {STDIN}"
        )

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot be read: {error.strerror}", str(error.filename)) from error

    files = []
    for folder, subfolders, names in os.walk(path, onerror=refuse):
        subfolders[:] = [name for name in subfolders if is_of_text(name)]
        files += [Path(folder, name) for name in names if is_of_text(name) and _format(Path(name))]
    return sorted(file for file in files if file.is_file())


def is_of_text(name: str) -> bool:
    """Whether a file or folder of this name, inside a folder, is read: not what is hidden, nor a prepared store."""
    return not name.startswith(".") and SHARD.fullmatch(name) is None


def is_known(path: PurePath) -> bool:
    """Whether the ending of a name is that of a file of text."""
    return _format(path) is not None


def _format(path: PurePath) -> str | None:
    """`.txt`, `.jsonl` or `.parquet`, whatever the compression; None if the suffix is another."""
    name = path.name.lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((suffix for suffix in FORMATS if name.endswith(suffix)), None)


def is_parquet(path: PurePath) -> bool:
    """Whether a file is no text but a parquet table, compressed or not."""
    return _format(path) == ".parquet"


def known_suffixes() -> str:
    """The endings of files of text, in words."""
    return f"{' '.join(FORMATS)}, each also with {' '.join(COMPRESSIONS)}"


def _nothing_in(folder: Path) -> str:
    suffixes = sorted({Path(name).suffix for _, _, names in os.walk(folder) for name in names})
    return "the folder holds no text" + (f", only {' '.join(suffixes[:8])}" if any(suffixes) else "")


def _near_name(path: Path) -> str | None:
    if glob.has_magic(str(path)):
        return "the pattern matches nothing; quote it if the shell should leave it alone"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    near = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=3)
    return f"did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else None


def spool_stdin(stream: BinaryIO, folder: Path) -> Path:
    """Copies standard input to folder/stdin.txt: a corpus is read twice, for the vocabulary and for the examples."""
    path = folder / "stdin.txt"
    with written(folder, elsewhere=TMPDIR), path.open("wb") as file:
        shutil.copyfileobj(stream, file, BLOCK_BYTES)
    return path


def fingerprint(files: Sequence[Path]) -> str:
    """32 hex digits of BLAKE2b over the BLAKE2b of each file's bytes, in order, and how they are read.

    Names and times do not count, but the kind that a name's ending tells does.

    Raises: UserError if a file cannot be read.
    """
    total = blake2b(digest_size=16)
    for path in files:
        own = blake2b()
        with _readable(path), path.open("rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                own.update(block)
        total.update(own.digest() + f"{_format(path) or FORMATS[0]} {path.suffix.lower() in COMPRESSIONS}".encode())
    return total.hexdigest()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", str(path)) from error


def doubts(files: Sequence[Path], encoding: str) -> list[str]:
    """What is odd in the beginnings of text files, a sentence each; the first DOUBTED files are looked at."""
    found = []
    for path in files[:DOUBTED]:
        if _format(path) != ".parquet" and (odd := doubt("\n".join(next(line_blocks(path, encoding), [])))):
            found.append(f"{path}: {odd}")
    return found


@dataclass
class Skipped:
    """Records that hold no text, and so are no documents: how many, and where the first of them stand."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, where: str) -> None:
        self.count += 1
        if self.count <= LISTED:
            self.first.append(where)


def read_documents(files: Sequence[Path], *, encoding: str = "utf-8", text_field: str = "text") -> Iterator[list[str]]:
    r"""The documents of the files as a stream, each its stripped non-blank lines; a document without any is left out.

    A line ends at \n, \r\n or \r only. Memory is flat: one block of a file, one document.
    Args: encoding: of text and JSONL. text_field: of JSONL objects, the column of parquet.
    Raises: UserError with file, line (or row) and fix for whatever cannot be read exactly; nothing is skipped or
        replaced. An unknown encoding is refused at the call, all else when the stream gets there.
    """
    check_encoding(encoding)
    return _joined(_pieces(files, encoding, text_field, Skipped()))


def read_pieces(
    files: Sequence[Path], *, encoding: str = "utf-8", text_field: str = "text", skipped: Skipped | None = None
) -> Iterator[tuple[list[str], bool]]:
    """read_documents for documents of any length: (some lines, whether the document ends with them), never many lines.

    skipped: is told of the records without text while they are read.

    A text file without blank lines is one document: this is how it is read without being held in memory.
    """
    check_encoding(encoding)
    return _pieces(files, encoding, text_field, Skipped() if skipped is None else skipped)


def _joined(pieces: Iterator[tuple[list[str], bool]]) -> Iterator[list[str]]:
    document: list[str] = []
    for lines, ends in pieces:
        document += lines
        if ends:
            yield document
            document = []


def _pieces(
    files: Sequence[Path], encoding: str, text_field: str, skipped: Skipped
) -> Iterator[tuple[list[str], bool]]:
    for path in files:
        if _format(path) == ".parquet":
            yield from _records(_parquet_texts(path, text_field), skipped)
        elif _format(path) == ".jsonl":
            yield from _records(_jsonl_texts(path, encoding, text_field), skipped)
        else:
            yield from _text_pieces(line_blocks(path, encoding))


def _text_pieces(blocks: Iterable[list[str]]) -> Iterator[tuple[list[str], bool]]:
    begun = False  # whether lines of the document have been given out already
    for block in blocks:
        lines = [line.strip() for line in block]
        start = 0
        while True:
            try:
                end = lines.index("", start)
            except ValueError:
                break
            if begun or end > start:
                yield lines[start:end], True
            begun, start = False, end + 1
        if start < len(lines):
            yield lines[start:], False
            begun = True
    if begun:
        yield [], True


def _records(texts: Iterable[tuple[str, str]], skipped: Skipped) -> Iterator[tuple[list[str], bool]]:
    for where, text in texts:
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if document := [line for line in map(str.strip, text.split("\n")) if line]:
            yield document, True
        else:
            skipped.add(where)


def _jsonl_texts(path: Path, encoding: str, text_field: str) -> Iterator[tuple[str, str]]:
    """Where a record stands, and its text."""
    key = f'"{text_field}"'
    for number, line in numbered_lines(path, encoding):
        if not line or line.isspace():
            continue
        where = f"{path}:{number}"
        twice = line.count(key) > 1  # looking for keys that stand twice takes as long as reading them
        record = parse_object(line, where, f'one JSON object a line: {{"{text_field}": "..."}}', unique_keys=twice)
        if text_field not in record:
            raise _no_field(text_field, list(record), where)
        text = record[text_field]
        if not isinstance(text, str):
            raise _no_string(text_field, type_name(text), where)
        if has_escaped_surrogate(line):
            refuse_half_pairs(text, where)
        yield where, text


def _no_field(text_field: str, fields: list[str], where: str) -> UserError:
    near = difflib.get_close_matches(text_field, fields, n=1)
    shown = ", ".join(map(repr, fields[:20])) or "none"
    return UserError(
        f"no field {text_field!r}; there are {shown}", where, f"--text-field {near[0] if near else 'NAME'}"
    )


def _no_string(text_field: str, kind: str, where: str) -> UserError:
    return UserError(
        f"{text_field!r} is {kind}, not a string", where, "--text-field NAME names the field that holds the text"
    )


def _parquet_texts(path: Path, text_field: str) -> Iterator[tuple[str, str]]:
    """Where a record stands, and its text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row, rows = 0, count(1)
    try:
        with seekable(path) as source, pq.ParquetFile(source, buffer_size=BLOCK_BYTES) as file:
            if file.schema_arrow.names.count(text_field) > 1:
                raise UserError(f"several columns are called {text_field!r}", str(path), "rename all but one")
            if text_field not in file.schema_arrow.names:
                raise _no_field(text_field, file.schema_arrow.names, str(path))
            kind = file.schema_arrow.field(text_field).type
            values = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values)):
                raise _no_string(text_field, f"a column of {kind}", str(path))
            for batch in file.iter_batches(_PARQUET_ROWS, columns=[text_field]):
                for text, row in zip(batch.column(0).to_pylist(), rows):  # noqa: B905 - endless
                    if text is None:
                        raise _no_string(text_field, "null", f"{path}: row {row}")
                    yield f"{path}: row {row}", text
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise UserError(f"cannot be read as parquet after row {row}: {reason}", str(path)) from error


@contextmanager
def seekable(path: Path) -> Iterator[IO[bytes]]:
    """The parquet file itself, or a temporary decompressed copy: parquet is read from its end."""
    if path.suffix.lower() not in COMPRESSIONS:
        with path.open("rb") as stream:
            yield stream
        return
    with written(temporary_place(), elsewhere=TMPDIR):
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        try:
            for block in byte_blocks(path):
                copy.write(block)
            copy.seek(0)
        except BaseException:
            with suppress(OSError):  # what could not be written is not written now
                copy.close()
            raise
    with copy:
        yield copy
