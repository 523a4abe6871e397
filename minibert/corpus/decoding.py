"""The bytes of a file, plain or compressed, to lines of text: strict about the encoding, exact about where it fails."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, cast

from minibert.errors import UserError

BLOCK_BYTES = 1 << 18  # decompressed bytes decoded at a time: measured faster than 1 MB, which leaves the cache
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

_ZST_INPUT_BYTES = 1 << 13  # zstd's output is not bounded per call: feed it little
_WINDOW_BYTES = 2000  # looked at to name a likely encoding
_BOMS = {  # the longer first: UTF-32 LE begins as UTF-16 LE does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_EATS_BOM = ("utf-8-sig", "utf-16", "utf-32")
_ENCODING_FIX = "--encoding NAME, e.g. gb18030, big5, utf-16, cp1252"
_MAGIC = {
    b"\x1f\x8b": "gzip data: name it .txt.gz (or .jsonl.gz)",
    b"BZh": "bzip2 data: name it .txt.bz2 (or .jsonl.bz2)",
    b"\xfd7zXZ": "xz data: name it .txt.xz (or .jsonl.xz)",
    b"\x28\xb5\x2f\xfd": "zstd data: name it .txt.zst (or .jsonl.zst)",
    b"PAR1": "parquet data: name it .parquet",
    b"PK\x03\x04": "a zip archive (or .docx, .xlsx): unpack it to text",
    b"%PDF": "a PDF: convert it to text",
}


def byte_blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed by its suffix, in blocks of about BLOCK_BYTES, none of them empty.

    Raises: UserError if the file cannot be opened or read, or is a truncated or damaged archive.
    """
    compression = path.suffix.lower()
    try:
        if compression == ".zst":
            yield from _zst_blocks(path)
            return
        with _open(path, compression) as stream:
            while block := stream.read(BLOCK_BYTES):
                yield block
    except EOFError as error:
        raise UserError(
            f"the {compression} archive ends too early: it is truncated", str(path), "fetch it again"
        ) from error
    except (OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"cannot be read: {error.strerror}", str(path)) from error
        raise UserError(f"not an intact {compression} archive: {error}", str(path), "fetch it again") from error


def _open(path: Path, compression: str) -> IO[bytes]:
    if compression == ".gz":
        return cast(IO[bytes], gzip.open(path))
    if compression == ".bz2":
        return bz2.open(path)
    return lzma.open(path) if compression == ".xz" else path.open("rb")


def _zst_blocks(path: Path) -> Iterator[bytes]:
    """Frame after frame, because the library's own stream takes a truncated last frame for the end of the file."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # what `zstd --long=31` needs
    frame = None
    with path.open("rb") as stream:
        try:
            while chunk := stream.read(_ZST_INPUT_BYTES):
                while chunk:
                    frame = frame or decompressor.decompressobj()
                    if block := frame.decompress(chunk):
                        yield block
                    chunk = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
    if frame is not None:
        raise EOFError


def check_encoding(encoding: str) -> str:
    """The codec's canonical name. Raises: UserError if Python has no text encoding of that name."""
    try:
        with suppress(UnicodeDecodeError):  # one byte is no whole UTF-16 character
            b" ".decode(encoding)  # codecs.lookup alone would also accept "hex" and "rot13"
        codecs.getincrementaldecoder(encoding)
        return codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        fix = "--encoding takes e.g. utf-8, utf-16, gb18030, big5, shift_jis, euc-kr, cp1252, latin-1"
        raise UserError(f"unknown encoding {encoding!r}", "encoding", fix) from error


def line_blocks(path: Path, encoding: str = "utf-8") -> Iterator[list[str]]:
    r"""The file's lines without their ends, a list a block; memory is flat but for a line longer than a block.

    A line ends at \n, \r\n or \r and nowhere else. A byte order mark is dropped as the file's first character only.
    Raises: UserError if the bytes are not of this encoding, with line (from 1) and offset (from 0, decompressed).
    """
    codec = check_encoding(encoding)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("strict"), translate=True)
    unfinished: list[str] = []  # pieces of the line that goes on in the next block
    num_lines = num_bytes = 0
    head = b""
    at_start = True
    for block in chain(byte_blocks(path), (b"",)):
        if not num_bytes:
            head = block[:_WINDOW_BYTES]
            _refuse_foreign_bom(path, head, codec)
        num_bytes += len(block)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as error:
            raise _undecodable(path, error, codec, decoder, block, num_lines, num_bytes, head) from error
        if at_start and text:
            at_start = False
            _refuse_binary(path, text, head, codec)
            if codec not in _EATS_BOM:
                text = text.removeprefix("\ufeff")
        lines = text.split("\n")
        unfinished.append(lines[0])
        if len(lines) > 1:
            lines[0] = "".join(unfinished)
            unfinished = [lines.pop()]
            num_lines += len(lines)
            yield lines
    if last := "".join(unfinished):
        yield [last]


def _refuse_foreign_bom(path: Path, head: bytes, codec: str) -> None:
    for bom, name in _BOMS.items():
        if head.startswith(bom):
            if not codec.startswith(name):
                raise UserError(
                    f"begins with the byte order mark of {name}, not {codec}", str(path), f"--encoding {name}"
                )
            return


def _refuse_binary(path: Path, text: str, head: bytes, codec: str) -> None:
    """A few NULs are text's dirt; where they are a tenth, the file is binary or UTF-16 read as bytes."""
    nulls = text.count("\0")
    if nulls >= 8 and nulls * 10 >= len(text):
        problem = f"{nulls} of the first {len(text)} characters are NUL: this is not {codec} text"
        fix = _kind_of_binary(head) or _likely_encoding(head, codec)
        raise UserError(problem, str(path), fix or "give text files only, or name their encoding: --encoding NAME")


def _undecodable(
    path: Path,
    error: UnicodeError,
    codec: str,
    decoder: io.IncrementalNewlineDecoder,
    block: bytes,
    num_lines: int,
    num_bytes: int,
    head: bytes,
) -> UserError:
    """Where and why decoding stopped. num_lines: before this block. num_bytes: through its end. head: of the file."""
    if not isinstance(error, UnicodeDecodeError):  # UTF-16 or UTF-32 without the byte order mark that it needs
        fix = _likely_encoding(head, codec) or f"--encoding {codec}-le or {codec}-be"
        return UserError(f"not {codec} text: {error}", str(path), fix)
    offset = num_bytes - len(error.object) + error.start  # error.object ends where the block does
    held = len(error.object) - len(block)  # bytes of a character that began in the block before
    good = ""
    with suppress(UnicodeError):  # UTF-16 without its byte order mark fails in this second way too
        good = decoder.decode(block[: max(0, error.start - held)])
    line = num_lines + 1 + good.count("\n") + (decoder.getstate()[1] & 1)  # the flag: a \r that waits for its \n
    problem = f"byte 0x{error.object[error.start]:02x} at offset {offset} is not {codec} ({error.reason})"
    if codec == "utf-8" and sum(character > "\x7f" for character in good[-_WINDOW_BYTES:]) > 8:
        fix = "the text before it is utf-8: mend this byte, or name the encoding of the whole file: --encoding NAME"
    else:
        odd = offset % 2 if error.start else 0  # UTF-16's characters begin at even offsets
        window = error.object[error.start - odd : error.start + _WINDOW_BYTES]
        fix = _kind_of_binary(head) or _likely_encoding(window, codec) or _ENCODING_FIX
    return UserError(problem, f"{path}:{line}", fix)


def _kind_of_binary(head: bytes) -> str | None:
    return next((f"it holds {kind}" for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def _likely_encoding(window: bytes, codec: str) -> str | None:
    """A fix that names the first encoding in which the bytes are plausible text."""
    for name in ("utf-8", "gb18030", "big5", "utf-16-le", "utf-16-be", "cp1252"):
        try:
            text = codecs.getincrementaldecoder(name)("strict").decode(window)  # which may end inside a character
        except UnicodeDecodeError:
            continue
        if name != codec and _is_plausible(text, name):
            return f"it looks like {name}: --encoding {name}"
    return None


def _is_plausible(text: str, encoding: str) -> bool:
    """True if the characters are common ones: random bytes make Han characters too, but rare ones."""
    if not text or any(character < " " and character not in "\t\r\n" for character in text):
        return False
    foreign = [character for character in text if character > "\x7f"]
    if encoding == "utf-8":
        return bool(foreign)
    if encoding == "cp1252":
        letters = sum(character.isalpha() or character in "‘’“”–—…€£°«»©®§·" for character in foreign)
        return 0 < len(foreign) < 0.4 * len(text) and letters >= 0.8 * len(foreign)
    if encoding.startswith("utf-16") and not foreign:
        return True
    han = sum("\u4e00" <= character <= "\u9fff" for character in foreign)
    common = sum(bool(character.encode("big5" if encoding == "big5" else "gb2312", "ignore")) for character in foreign)
    return han >= 0.5 * len(foreign) and common >= 0.8 * len(foreign) > 0
