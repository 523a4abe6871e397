"""A line -> its sentences, by the sentencex library, with its slips at quotes, brackets and mixed scripts mended.

sentencex 1.0 is quadratic in a line with non-ASCII characters (measured: 180 kB of Chinese 1.2 s), so long lines go
through in windows.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise

from sentencex import segment

_KANA = re.compile(
    "[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]"
)  # without the middle dot and the long mark: Chinese names have them
_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_END = re.compile("[.!?。！？．｡…‥‼⁇⁈⁉]")  # all ends of sentence that a Latin, Chinese or Japanese line has
_WORD = re.compile(r"\w")

_CLOSERS = re.compile(
    "(?:[」』】）》〉〕〗｝］)\\]}”’»]|[\"'](?=\\s|$))+"
)  # at the front of a piece, they belong to the one before
_OPENERS = re.compile(
    "(?<=\\s)[\"'“‘「『【（《〈〔〖｛［(\\[{«]+$"
)  # at the end of a piece, they belong to the next one
_MAY_OPEN = "\"'“‘「『【（《〈〔〖｛［([{«\n"  # the last characters of all that _OPENERS finds
_GOES_ON = re.compile("\\s*[,;:，、；：]")  # no sentence begins so
_DECIMAL = re.compile(r"\d[.．]$")  # of `３．７`: the full-width point ends sentences too
_WIDE_BLANK = re.compile(r"\s*[^\S\x00-\x7f]\s*(?=\.)")  # not a blank of one byte, before a full stop
_ASCII_TAIL = re.compile("[ -~]{0,60}$")

_WINDOW = 1000  # characters given to the library at a time
_HEAD = 30  # characters after a full stop that decide, with those before it, whether it ends an abbreviation


def split_sentences(line: str, language: str = "auto") -> list[str]:
    """The sentences of a line, stripped; together they are the line but for blanks. A blank line has none.

    Closing quotes and brackets stay with their sentence. What has no letter or digit (an emoji, a bracket) is part of
    the sentence before. `……` and `；` end nothing.
    Args: language: a code that sentencex knows (another is taken as English) or "auto": Japanese where the line has
        kana, Chinese where it has Han characters, else English.
    """
    line = line.strip()
    if language == "auto":
        language = _language_of(line)
    if line.isascii() or language in ("zh", "ja"):  # other scripts have ends of their own
        end = _END.search(line)
        if end is None or _WORD.search(line, end.end()) is None:
            return [line] if line else []
    pieces = _mended(_cut(language, line), language) if len(line) <= _WINDOW else _pieces(line, language)
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _language_of(line: str) -> str:
    if line.isascii():
        return "en"
    if _KANA.search(line):
        return "ja"
    return "zh" if _HAN.search(line) else "en"


def _pieces(line: str, language: str) -> Iterator[str]:
    """The line cut in sentences. The last two of a window are cut again in the next, which shows what follows them."""
    start, size = 0, _WINDOW
    while len(line) - start > size:
        pieces = _mended(_cut(language, line[start : start + size]), language)
        if len(pieces) < 3:
            size *= 2
            continue
        yield from pieces[:-2]
        start += sum(map(len, pieces[:-2]))
        size = _WINDOW
    yield from _mended(_cut(language, line[start:]), language)


def _cut(language: str, text: str) -> list[str]:
    r"""The library's pieces. It ends with a panic at `J\u3000.` (1.0.32): such blanks are common ones to it."""
    if text.isascii() or _WIDE_BLANK.search(text) is None:
        return list(segment(language, text))
    plain = _WIDE_BLANK.sub(lambda blanks: " " * len(blanks[0]), text)
    ends = accumulate(map(len, segment(language, plain)), initial=0)
    return [text[begin:end] for begin, end in pairwise(ends)]


def _mended(pieces: list[str], language: str) -> list[str]:
    """Moves quotes and brackets to the sentence they belong to and joins what was cut inside a sentence."""
    mended = pieces[:1]
    eastern = language in ("zh", "ja")
    for piece in pieces[1:]:
        left = mended[-1]
        may_open = left[-1:] in _MAY_OPEN
        if piece[:1].isalpha() and not may_open and not (eastern and left.rstrip().endswith(".")):
            mended.append(piece)  # most are so, and nothing of what follows can be the case
            continue
        mended.pop()
        if closers := _CLOSERS.match(piece):
            left, piece = left + closers[0], piece[closers.end() :]
        elif may_open and (openers := _OPENERS.search(left)):
            left, piece = left[: openers.start()], openers[0] + piece
        if not _WORD.search(piece) or _GOES_ON.match(piece) or _cut_in_number_or_abbreviation(left, piece, language):
            mended.append(left + piece)
        else:
            mended += [left, piece]
    return mended


def _cut_in_number_or_abbreviation(left: str, right: str, language: str) -> bool:
    """True for `３．|７`, and for `Mr. |Wang` and `U.|S.` in Chinese, where the library knows no abbreviations."""
    if right[0].isdigit() and _DECIMAL.search(left, len(left) - 2):
        return True
    if language not in ("zh", "ja") or not left.rstrip().endswith("."):
        return False
    tail = _ASCII_TAIL.search(left, max(0, len(left) - 60))
    assert tail is not None  # it can match nothing
    end = 0
    for piece in _cut("en", tail[0] + right[:_HEAD]):
        end += len(piece)
        if end >= len(tail[0]):
            break
    return end != len(tail[0])
