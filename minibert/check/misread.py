"""Chinese that was read in the encoding of the other Chinese and written again: Big5 as GBK, GBK as Big5.

Each character is then another one, and nearly all of those are rare. Both encodings have the common characters in a
block of their own: text of the wrong encoding leaves that block, and comes back to it when it is decoded anew. Measured
shares of the block, before and after: Big5 read as GBK .11 to .22 and .90 to 1; GBK read as Big5 .50 and .84; Japanese
as it should be .34 and .40, simplified Chinese .89 and .22, traditional Chinese .90 and .11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

AROUND = 40  # characters on each side of one that makes it doubtful are looked at
LEAST = 8  # of them are not ASCII
WAS_COMMON, IS_COMMON = 0.6, 0.75

# what common characters become, and is rare otherwise: 一是我有在了; 是這就會要, 的一在了 (private use)
_SIGNS = re.compile("[岆珨婓扂衄賸]|[琌硂碞穦璶\ue000-\ue765]")
_BLOCKS = {"gb18030": (0xB0, 0xD7, 0xA1), "cp950": (0xA4, 0xC6, 0x40)}  # first byte from, to, second from
WAYS = {"Big5 as GBK": ("gb18030", "cp950"), "GBK as Big5": ("cp950", "gb18030")}  # taken for, is


def misread(text: str) -> Iterator[tuple[str, int, int]]:
    """Where text was read wrongly: the way, the first character, and the one behind the last; none overlap."""
    end = 0
    for sign in _SIGNS.finditer(text):
        at = sign.start()
        if at < end:
            continue
        before, behind = text[max(end, at - AROUND) : at], text[at : at + AROUND]
        start = at - len(re.split(r"\s", before)[-1])
        stop = at + len(re.split(r"\s", behind)[0])
        for way in WAYS:
            if mended(text[start:stop], way):
                yield way, start, stop
                end = stop
                break


def mended(text: str, way: str) -> str | None:
    """The text in its right encoding; None if it was not read in this wrong way, for all that can be told."""
    taken, its = WAYS[way]
    found = text.encode(taken, "ignore").decode(its, "ignore")
    foreign = sum(character > "\x7f" for character in text)
    if foreign < LEAST or common_share(text, taken) > WAS_COMMON or common_share(found, its) < IS_COMMON:
        return None
    return found


def common_share(text: str, encoding: str) -> float:
    """Of the characters that are not ASCII, those in the encoding's block of common ones."""
    foreign = [character.encode(encoding, "ignore") for character in text if character > "\x7f"]
    first, last, second = _BLOCKS[encoding]
    return sum(len(two) == 2 and first <= two[0] <= last and two[1] >= second for two in foreign) / (len(foreign) or 1)
