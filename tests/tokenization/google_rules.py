"""Google's rules for BERT's tokens in plain Python, one function a rule, and every character where minibert differs.

The rules are written from the description of google-research/bert's tokenization.py, not from `tokenizers`, and slow on
purpose: no tables, no cache. Characters are classified by Python's unicodedata, as there. For tests and
scripts/check_tokenizers.py; docs/tokenization.md tells what the differences mean.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

HAN_BLOCKS = (
    range(0x4E00, 0x9FFF + 1),  # Unified Ideographs
    range(0x3400, 0x4DBF + 1),  # Extension A
    range(0x20000, 0x2A6DF + 1),  # B
    range(0x2A700, 0x2B73F + 1),  # C
    range(0x2B740, 0x2B81F + 1),  # D
    range(0x2B820, 0x2CEAF + 1),  # E; `tokenizers` begins at 2B920
    range(0xF900, 0xFAFF + 1),  # Compatibility Ideographs
    range(0x2F800, 0x2FA1F + 1),  # their supplement
)


def is_han(character: str) -> bool:
    """True for what stands alone as Chinese. Kana, Hangul, 々, 〇 and Extensions F and later do not."""
    return any(ord(character) in block for block in HAN_BLOCKS)


def is_punctuation(character: str) -> bool:
    """All of ASCII that prints and is neither letter nor digit ($ and ` too), and every P* of Unicode."""
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


def is_dropped(character: str) -> bool:
    """NUL, the replacement character, and controls and invisible formats except tab and line ends."""
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def is_blank(character: str) -> bool:
    """What cleaning turns into a blank. U+2028 and U+2029 are not; splitting at white space ends words there too."""
    return character in "\t\n\r" or unicodedata.category(character) == "Zs"


def clean(text: str, *, han: bool = True) -> str:
    """Invisible characters dropped, white space to blanks, blanks round Han characters."""
    kept = (" " if is_blank(c) else c for c in text if not is_dropped(c))
    return "".join(f" {c} " if han and is_han(c) else c for c in kept)


def without_accents(word: str) -> str:
    """Decomposed, and without non-spacing marks."""
    return "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")


def split_at_punctuation(word: str) -> Iterator[str]:
    """Runs of other characters, and each punctuation character by itself."""
    for punctuation, run in groupby(word, is_punctuation):
        if punctuation:
            yield from run
        else:
            yield "".join(run)


def words_of(text: str, *, lowercase: bool, strip_accents: bool | None = None, han: bool = True) -> list[str]:
    """BasicTokenizer. strip_accents, which Google ties to lowercase, and han are settings of `transformers`."""
    strip = lowercase if strip_accents is None else strip_accents
    found = []
    for word in clean(text, han=han).split():
        word = word.lower() if lowercase else word
        word = without_accents(word) if strip else word
        found += split_at_punctuation(word)
    return " ".join(found).split()


def ids_of(word: str, ids: Mapping[str, int], *, longest_word: int = 200) -> list[int]:
    """WordpieceTokenizer: the longest entry from the left again and again; one [UNK] where there is none."""
    found: list[int] = []
    if len(word) > longest_word:
        return [ids["[UNK]"]]
    rest = word
    while rest:
        mark = "##" if found else ""
        length = next((n for n in range(len(rest), 0, -1) if mark + rest[:n] in ids), None)
        if length is None:
            return [ids["[UNK]"]]
        found.append(ids[mark + rest[:length]])
        rest = rest[length:]
    return found


def encode(
    text: str, ids: Mapping[str, int], *, lowercase: bool, strip_accents: bool | None = None, longest_word: int = 200
) -> list[int]:
    """Ids of text without [CLS] and [SEP]. longest_word: characters; 200 at Google, 100 in `tokenizers`."""
    words = words_of(text, lowercase=lowercase, strip_accents=strip_accents)
    return [piece for word in words for piece in ids_of(word, ids, longest_word=longest_word)]


# --- where minibert, which is `tokenizers`, differs ---

SIGMA = "\u03a3"
CONTEXTS = ("{0}", "a{0}b", "a{0}")  # a character by itself, between letters, at a word's end


def codes_of(ranges: str) -> frozenset[int]:
    """ "61D 1B4E-1B4F" -> those code points."""
    bounds = [[int(bound, 16) for bound in part.split("-")] for part in ranges.split()]
    return frozenset(code for first, *last in bounds for code in range(first, (last or [first])[0] + 1))


@dataclass(frozen=True)
class Difference:
    """A set of characters that minibert treats otherwise than Google, for one cause.

    holds: (character, lowercase, strip_accents) -> whether it shows. Python's Unicode, which is Google's, changes from
    version to version (3.10 has 13.0, 3.15 has 17.0); the lists have what 13.0 to 17.0 give together.
    """

    name: str
    codes: frozenset[int]
    holds: Callable[[str, bool, bool], bool]


DIFFERENCES = (
    Difference("final sigma", frozenset({ord(SIGMA)}), lambda c, lower, strip: lower),
    Difference("Extension E", codes_of("2B820-2B91F"), lambda c, lower, strip: True),
    Difference("private use", codes_of("E000-F8FF F0000-FFFFD 100000-10FFFD"), lambda c, lower, strip: True),
    Difference("surrogate", codes_of("D800-DFFF"), lambda c, lower, strip: True),
    Difference(
        "newer punctuation",
        codes_of(
            "61D 9FD A76 C77 C84 1B4E-1B4F 1B7D-1B7F 2E43-2E4F 2E52-2E5D 10D6E 10EAD 10ED0 10F55-10F59 10F86-10F89 "
            "113D4-113D5 113D7-113D8 1144B-1144F 1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946 119E2 "
            "11A3F-11A46 11A9A-11A9C 11A9E-11AA2 11B00-11B09 11BE1 11C41-11C45 11C70-11C71 11EF7-11EF8 11F43-11F4F "
            "11FFF 12FF1-12FF2 16D6D-16D6F 16E97-16E9A 16FE2 1E5FF 1E95E-1E95F"
        ),
        lambda c, lower, strip: unicodedata.category(c).startswith("P"),
    ),
    Difference(
        "former punctuation",
        codes_of("166D 111C9"),
        lambda c, lower, strip: not unicodedata.category(c).startswith("P"),
    ),
    Difference(
        "newer mark",
        codes_of(
            "7FD 897-89F 8CA-8E1 9FE AFA-AFF B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1885-1886 1ABF-1ADD 1AE0-1AEB "
            "1DF6-1DFB A82C A8C5 A8FF A9BD 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFF 10F46-10F50 10F82-10F85 "
            "11070 11073-11074 110C2 111CF 1123E 11241 1133B 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11438-1143F "
            "11442-11444 11446 1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 119DA-119DB 119E0 "
            "11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 11B60 "
            "11B62-11B64 11B66 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 "
            "11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 11F00-11F01 "
            "11F36-11F3A 11F40 11F42 11F5A 13440 13447-13455 1611E-16129 1612D-1612F 16F4F 16FE4 1CF00-1CF2D "
            "1CF30-1CF46 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E08F 1E130-1E136 1E2AE "
            "1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5 1E944-1E94A"
        ),
        lambda c, lower, strip: strip and unicodedata.category(c) == "Mn",
    ),
    Difference(
        "former mark", codes_of("1734 1171E"), lambda c, lower, strip: strip and unicodedata.category(c) != "Mn"
    ),
    Difference(
        "newer decomposition",
        codes_of("105C9 105E4 11383 11385 1138E 11391 113C5 113C7-113C8 11938 16D68-16D6A"),
        lambda c, lower, strip: strip and unicodedata.decomposition(c) != "",
    ),
    Difference(
        "newer format",
        codes_of("890-891 8E2 110CD 13430-1343F"),
        lambda c, lower, strip: unicodedata.category(c) == "Cf",
    ),
    Difference(
        "newer capital",  # here `tokenizers` knows more than Python
        codes_of(
            "1C89 2C2F A7C0 A7CB-A7CC A7CE A7D0 A7D2 A7D4 A7D6 A7D8 A7DA A7DC 10570-1057A 1057C-1058A 1058C-10592 "
            "10594-10595 10D50-10D65 16EA0-16EB8"
        ),
        lambda c, lower, strip: lower and c.lower() == c,
    ),
)
DIFFERING = frozenset[int]().union(*(difference.codes for difference in DIFFERENCES))


def known_differences(*, lowercase: bool, strip_accents: bool) -> dict[int, str]:
    """Code point -> name of its difference, for all that differ in one of CONTEXTS under this Python's Unicode."""
    return {
        code: difference.name
        for difference in DIFFERENCES
        for code in difference.codes
        if difference.holds(chr(code), lowercase, strip_accents)
    }


def differing(
    codes: Iterable[int], one: Callable[[str], list[str]], other: Callable[[str], list[str]]
) -> Iterator[int]:
    """Code points for which two ways to split text into words differ in one of CONTEXTS."""
    codes = list(codes)
    for start in range(0, len(codes), 64):
        block = [(code, [context.format(chr(code)) for context in CONTEXTS]) for code in codes[start : start + 64]]
        text = " ".join(" ".join(texts) for _, texts in block)
        if one(text) != other(text):
            yield from (code for code, texts in block if any(one(text) != other(text) for text in texts))


def without_differences(text: str) -> str:
    """text without the characters that are treated differently; a capital sigma as a small one."""
    return "".join(c for c in text.replace(SIGMA, SIGMA.lower()) if ord(c) not in DIFFERING)
