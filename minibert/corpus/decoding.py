"""The bytes of a file, plain or compressed, to lines of text: strict about the encoding, exact about where it fails."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, cast

from minibert.errors import UserError

BLOCK_BYTES = 1 << 18  # decompressed bytes decoded at a time: measured faster than 1 MB, which leaves the cache
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
MARK_BYTES = 4  # of the longest byte order mark
LEAST_ODD = 3  # lines or characters that are odd in the same way
LONGEST_LINE = 1 << 28  # characters; text8, the longest line that people train on, has 10**8

_ZST_INPUT_BYTES = 1 << 13  # zstd's output is not bounded per call: feed it little
_XZ_MEMORY = 1 << 31  # bytes that a file may ask for; `xz -9` needs 65 MB
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_WINDOW_BYTES = 2000  # looked at to name a likely encoding
_BOMS = {  # the longer first: UTF-32 LE begins as UTF-16 LE does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_EATS_BOM = ("utf-8-sig", "utf-16", "utf-32")
_ENCODING_FIX = "--encoding NAME, e.g. gb18030, big5, utf-16, cp1252"
_NO_TEXT = {  # kinds of files that are written in characters of text
    b"%PDF-": ("a PDF", "convert it to text"),
    b"{\\rtf": ("an RTF document", "save it as plain text"),
    b"version https://git-lfs": ("a Git LFS pointer, not the file itself", "fetch it: git lfs pull"),
}
_MAGIC = {
    b"\x1f\x8b": "gzip data: name it .txt.gz (or .jsonl.gz)",
    b"BZh": "bzip2 data: name it .txt.bz2 (or .jsonl.bz2)",
    b"\xfd7zXZ": "xz data: name it .txt.xz (or .jsonl.xz)",
    b"\x28\xb5\x2f\xfd": "zstd data: name it .txt.zst (or .jsonl.zst)",
    b"PAR1": "parquet data: name it .parquet",
    b"PK\x03\x04": "a zip archive (or .docx, .xlsx): unpack it to text",
}


def byte_blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed by its suffix, in blocks of about BLOCK_BYTES, none of them empty.

    Raises: UserError if the file cannot be opened or read, or is a truncated or damaged archive.
    """
    compression = path.suffix.lower()
    try:
        if compression in COMPRESSIONS and not path.stat().st_size:
            raise EOFError
        if compression == ".zst":
            yield from _zst_blocks(path)
        elif compression == ".bz2":
            yield from _streams(path, bz2.BZ2Decompressor)
        elif compression == ".xz":
            yield from _streams(path, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY))
        else:
            with cast(IO[bytes], gzip.open(path)) if compression == ".gz" else path.open("rb") as stream:
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


def _streams(path: Path, make: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> Iterator[bytes]:
    """Stream after stream, zeros between them passed over.

    The libraries' own readers take whatever is no stream for the end of the file, and leave out what comes behind it.
    """
    stream, begun, ended = make(), False, 0
    data = b""
    with path.open("rb") as file:
        while True:
            if not data and (not begun or stream.needs_input) and not (data := file.read(BLOCK_BYTES)):
                break
            if not begun:
                data = data.lstrip(b"\0")
                begun = bool(data)
                continue
            if block := stream.decompress(data, BLOCK_BYTES):
                yield block
            data = b""
            if stream.eof:
                data, stream, begun, ended = stream.unused_data, make(), False, ended + 1
    if begun or not ended:
        raise EOFError


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


def line_blocks(path: Path, encoding: str = "utf-8", *, longest: int = LONGEST_LINE) -> Iterator[list[str]]:
    r"""The file's lines without their ends, a list a block; memory is flat but for a line longer than a block.

    A line ends at \n, \r\n or \r and nowhere else. A byte order mark is dropped as the file's first character only.
    Raises: UserError if the bytes are not of this encoding, with line (from 1) and offset (from 0, decompressed), if
        they are no text, and for a line of more than `longest` characters.
    """
    codec = check_encoding(encoding)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("strict"), translate=True)
    unfinished: list[str] = []  # pieces of the line that goes on in the next block
    num_lines = num_bytes = length = 0
    head = b""
    at_start = True
    for block in chain(_with_whole_mark(byte_blocks(path)), (b"",)):
        if not num_bytes:
            head = block[:_WINDOW_BYTES]
            _refuse_foreign_bom(path, head, codec)
        num_bytes += len(block)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as error:
            raise _undecodable(path, error, codec, decoder, block, num_lines, num_bytes, head) from error
        _refuse_nulls(path, text, num_lines + 1, head, codec)
        if at_start and text:
            at_start = False
            _refuse_binary(path, text, head, codec)
            if codec not in _EATS_BOM:
                text = text.removeprefix("\ufeff")
        lines = text.split("\n")
        unfinished.append(lines[0])
        length += len(lines[0])
        if length > longest:
            fix = "break it into lines, such as a sentence a line"
            raise UserError(f"a line of more than {longest:,} characters", f"{path}:{num_lines + 1}", fix)
        if len(lines) > 1:
            lines[0] = "".join(unfinished)
            unfinished = [lines.pop()]
            length = len(unfinished[0])
            num_lines += len(lines)
            yield lines
    if last := "".join(unfinished):
        yield [last]


def _with_whole_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, in the first block all that a byte order mark may have."""
    first = b""
    for block in blocks:
        first += block
        if len(first) >= MARK_BYTES:
            yield first
            yield from blocks
            return
    if first:
        yield first


def _refuse_foreign_bom(path: Path, head: bytes, codec: str) -> None:
    for bom, name in _BOMS.items():
        if head.startswith(bom):
            if not codec.startswith(name):
                raise UserError(
                    f"begins with the byte order mark of {name}, not {codec}", str(path), f"--encoding {name}"
                )
            return


def _refuse_nulls(path: Path, text: str, line: int, head: bytes, codec: str) -> None:
    """A few NULs are text's dirt; where they are a tenth, the file is binary, UTF-16 read as bytes, or was not written
    to its end before the machine stopped.
    """
    nulls = text.count("\0")
    if nulls >= 8 and nulls * 10 >= len(text):
        line += text.count("\n", 0, text.index("\0"))
        where = str(path) if line == 1 else f"{path}:{line}"
        problem = f"{nulls} of {len(text)} characters are NUL: this is not {codec} text"
        fix = _kind_of_binary(head) or _likely_encoding(head, codec)
        raise UserError(problem, where, fix or "give text files only, or name their encoding: --encoding NAME")


def _refuse_binary(path: Path, text: str, head: bytes, codec: str) -> None:
    """The same for other control characters, which random bytes are in many encodings, and for known kinds of files."""
    for magic, (kind, fix) in _NO_TEXT.items():
        if head.startswith(magic):
            raise UserError(f"is {kind}", str(path), fix)
    controls = len(_CONTROL.findall(text))
    if controls >= 8 and controls * 10 >= len(text):
        problem = f"{controls} of the first {len(text)} characters are control characters: this is not {codec} text"
        fix = _kind_of_binary(head) or "give text files only, or name their encoding: --encoding NAME"
        raise UserError(problem, str(path), fix)


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


def doubt(text: str) -> str | None:
    """What a person should know of the beginning of a text that is none of a person's; None where nothing is odd.

    Text that was lost when it was written, that was decoded in a wrong encoding and written again, or a page of HTML.
    """
    if text.count("\ufffd") >= LEAST_ODD and text.count("\ufffd") * 1000 > len(text):
        return (
            f"{text.count(chr(0xFFFD))} of its first {len(text)} characters are U+FFFD: text was lost on the way here"
        )
    if re.match(r"\s*<(!doctype html|html|\?xml)\b", text, re.IGNORECASE):
        return "it begins as a page of HTML or XML: its tags are read as text"
    foreign = [line for line in text.split("\n") if not line.isascii()][:1000]
    for was, taken in (("utf-8", "cp1252"), ("utf-8", "latin-1"), ("gb18030", "latin-1")):
        found = [(line, mended) for line in foreign if (mended := _mended(line, was, taken))]
        if len(found) >= LEAST_ODD and 2 * len(found) > len(foreign):
            line, mended = found[0]
            return f"it is {was} that was read as {taken} and written again: {line[:40]!r} was {mended[:40]!r}"
    return None


def _mended(line: str, was: str, taken: str) -> str | None:
    """A line that was decoded as `taken` as it was meant; None where it was not, for all that can be told."""
    try:
        text = line.encode(taken).decode(was)
    except UnicodeError:
        return None
    return text if was == "utf-8" or _is_plausible(text, was) else None


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
