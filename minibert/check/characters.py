"""What a text is written in, character by character: scripts, and what is no text."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from minibert.check.findings import Finding, Section
from minibert.check.misread import WAYS, mended, misread
from minibert.view.page import Both, percent

PLACES = 3  # shown of each kind
LEAST = 3  # fewer odd characters than this are a note
ODD_SHARE = 1e-5  # of a text's characters: lost, wrongly decoded, control, private-use and mixed-script ones
INVISIBLE_SHARE = 1e-3
MISREAD_SHARE = 1e-3  # of a text's characters; one document among thousands is a note
MARKUP_SHARE = 5e-3  # of a text's characters that stand in tags and entities
UNBROKEN_SHARE = 5e-3
WIDTH_SHARE = 0.1  # of letters and digits, that are full-width: a note
MIXED_SHARE = 0.02  # of the lines, with both widths of digits or of letters; measured: People's Daily of 1998, all of
# whose digits are full-width, 0; Chinese reviews .0013; both together .0006
LEAST_WIDE = 100
NARROWED = "text.translate({n: n - 0xFEE0 for a, z in ('０９', 'ＡＺ', 'ａｚ') for n in range(ord(a), ord(z) + 1)})"
LONGEST_RUN = 60  # letters and digits of base64; no word is so long

_AS_1252 = bytes(range(0x80, 0xC0)).decode("cp1252", "ignore") + "\x81\x8d\x8f\x90\x9d"
_TRAIL = "[" + re.escape("".join({*map(chr, range(0x80, 0xC0)), *_AS_1252})) + "]"
_MOJIBAKE = re.compile(f"[\u00c2-\u00df]{_TRAIL}|[\u00e0-\u00ef]{_TRAIL}{{2}}|\u00f0{_TRAIL}{{3}}")
_TAGS = (
    "a|b|i|u|p|em|br|hr|h[1-6]|li|ol|ul|dl|dt|dd|td|tr|th|div|img|nav|pre|sub|sup|svg|body|code|font|form|head|html|"
    "link|meta|path|span|input|label|style|table|tbody|thead|title|button|center|iframe|option|script|select|strong|"
    "article|section|blockquote|footer|header|main|ref"
)
_MARKUP = re.compile(
    rf"</?(?:{_TAGS})(?:\s[^<>\n]{{0,500}})?/?>|<!--"
    r"|&(?:amp|lt|gt|nbsp|quot|apos|[lr][sd]quo|#\d{1,7}|#x[\da-f]{1,6});",
    re.IGNORECASE,
)
_UNBROKEN = re.compile(f"[A-Za-z0-9+/]{{{LONGEST_RUN},}}={{0,2}}|[!-~]{{300,}}")
_TWO_SCRIPTS = re.compile("[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z]")  # Greek beside Latin is a formula
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_WIDTHS = (
    (re.compile("[0-9]"), re.compile("[\uff10-\uff19]")),
    (re.compile("[A-Za-z]"), re.compile("[\uff21-\uff3a\uff41-\uff5a]")),
)
_INVISIBLE = frozenset(map(chr, (0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A))))

_SCRIPTS = {
    "CJK": Both("Han (Chinese)", "汉字"), "LATIN": Both("Latin", "拉丁字母"), "HIRAGANA": Both("kana", "假名"),
    "KATAKANA": Both("kana", "假名"), "HANGUL": Both("Hangul", "谚文"), "CYRILLIC": Both("Cyrillic", "西里尔字母"),
    "GREEK": Both("Greek", "希腊字母"), "ARABIC": Both("Arabic", "阿拉伯字母"), "HEBREW": Both("Hebrew", "希伯来字母"),
    "THAI": Both("Thai", "泰文"), "DEVANAGARI": Both("Devanagari", "天城文"),
    "FULLWIDTH": Both("full-width Latin", "全角拉丁字母"), "HALFWIDTH": Both("half-width kana", "半角假名"),
}  # fmt: skip


@dataclass
class Oddity:
    """One kind of thing that is no text: how often, how many characters, and the first places, each once."""

    count: int = 0
    characters: int = 0
    where: dict[str, str] = field(default_factory=dict)  # place -> text there


class Characters:
    """Counts the characters of a text that is handed over part by part."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.odd: dict[str, Oddity] = {}
        self.lines = self.mixed = 0  # mixed: lines with digits, or letters, of both widths
        self._kinds: dict[str, str] = {}  # of the odd characters met so far
        self._misread: Counter[str] = Counter()  # private-use characters that were others

    def add(self, lines: Sequence[str], place_of: Callable[[int], str]) -> None:
        """Some lines. place_of: where the n-th of them stands."""
        text = "\n".join(lines)
        met = Counter(text)
        self._kinds |= {one: kind for one in met.keys() - self.counts.keys() if (kind := kind_of(one))}
        self.counts.update(met)
        ends = list(accumulate(len(line) + 1 for line in lines))

        def note(kind: str, at: int, end: int, said: str = "") -> int:
            """Returns: where the next line begins."""
            found = self.odd.setdefault(kind, Oddity())
            found.count += 1
            found.characters += end - at
            number = bisect_right(ends, at)
            if len(found.where) < PLACES and (place := place_of(number)) not in found.where:
                first = ends[number] - len(lines[number]) - 1
                found.where[place] = said or text[max(first, at - 20) : min(end, at + 40) + 20].split("\n")[0]
            return ends[number]

        spans = []
        if not text.isascii():
            for way, at, end in misread(text):
                shown = text[at : min(end, at + 40)]
                note(way, at, end, f"{shown} = {mended(text[at:end], way)}"[:100])
                spans.append((at, end))
                self._misread.update(one for one in text[at:end] if kind_of(one) == "private use")
        for character in self._kinds.keys() & met.keys():
            kind, at = self._kinds[character], text.find(character)
            while at >= 0 and len(self.odd.setdefault(kind, Oddity()).where) < PLACES:
                inside = any(first <= at < end for first, end in spans)
                at = text.find(character, at + 1 if inside else note(kind, at, at + 1))
        self.lines += len(lines)
        if not text.isascii():
            if _WIDE.search(text):
                self.mixed += sum(map(is_of_both_widths, lines))
            for match in _MOJIBAKE.finditer(text):
                if is_mojibake(match[0]):
                    note("wrong encoding", *match.span())
            for match in _TWO_SCRIPTS.finditer(text):
                note("mixed scripts", *match.span())
        if "<" in text or "&" in text:
            for match in _MARKUP.finditer(text):
                note("markup", *match.span())
        for match in _UNBROKEN.finditer(text):
            note("unbroken text", *match.span())

    @property
    def total(self) -> int:
        """Characters, line ends left out."""
        return self.counts.total() - self.counts["\n"]

    def of_kind(self, kind: str) -> int:
        """How many characters are of one of the kinds that kind_of names."""
        return sum(self.counts[one] - self._misread[one] for one, its in self._kinds.items() if its == kind)

    def scripts(self) -> list[tuple[Both | str, int]]:
        """Letters by script, the commonest first."""
        found: Counter[Both | str] = Counter()
        for character, count in self.counts.items():
            if character.isalpha():
                name = unicodedata.name(character, "?").split()[0].split("-")[0]
                found[_SCRIPTS.get(name, name.capitalize())] += count
        return found.most_common()

    def wide(self) -> tuple[int, int]:
        """Letters and digits of ASCII, and those of the same kind in full width."""
        narrow = sum(count for character, count in self.counts.items() if character.isascii() and character.isalnum())
        return narrow, sum(count for character, count in self.counts.items() if _WIDE.match(character))

    def section(self) -> Section:
        """Scripts, and the commonest characters that are neither letters, digits nor blanks."""
        scripts = self.scripts()
        letters = sum(count for _, count in scripts) or 1
        return Section(
            Both("Scripts", "文字"),
            lead=Both("Shares of the letters.", "各种文字在所有字母（汉字）中的占比。"),
            bars=[(name, count / letters, percent(count / letters)) for name, count in scripts[:8]],
        )

    def findings(self) -> list[Finding]:
        """What is no text, kind by kind."""
        total = self.total or 1
        found = []
        for kind, (share, message, fix) in _WORDS.items():
            odd = self.odd.get(kind, Oddity())
            count = self.of_kind(kind) if kind in _OF_CHARACTERS else odd.count
            size = odd.characters if kind in ("markup", "unbroken text", *WAYS) else count
            if count:
                doubtful = count >= LEAST and size >= share * total
                shown = share_in_words(size / total)
                found.append(
                    Finding(
                        "wrong encoding" if kind in WAYS else kind, "doubtful" if doubtful else "note",
                        Both(
                            message.en.format(f"{count:,}", shown.en), message.zh.format(f"{count:,}", shown.zh)
                        ),
                        fix,
                        [f"{place}: {said}" for place, said in odd.where.items()],
                    )
                )  # fmt: skip
        narrow, wide = self.wide()
        mixed = self.mixed / (self.lines or 1)
        said = share_in_words(mixed)
        said = Both(said.en, f"{said.zh} 的") if mixed else Both("none", "没有")
        if wide >= LEAST_WIDE and (mixed >= MIXED_SHARE or wide >= WIDTH_SHARE * (narrow + wide)):
            found.append(
                Finding(
                    "full width", "doubtful" if mixed >= MIXED_SHARE else "note",
                    Both(
                        f"{wide:,} of {narrow + wide:,} letters and digits are full-width (Ａ１), and {said.en} of the "
                        "lines mix both widths: to a model A and Ａ are different characters",
                        f"{narrow + wide:,} 个字母和数字中有 {wide:,} 个是全角（Ａ１），{said.zh}行全角半角混用："
                        "对模型来说 A 与 Ａ 是不同的字符",
                    ),
                    Both(
                        f"to make them one, map letters and digits alone: {NARROWED} (NFKC "
                        "would turn ，：！？ into ASCII too)",
                        f"如需统一，只转换字母和数字：{NARROWED}（不要用 NFKC：它会把，：！？也变成半角）",
                    ),
                )
            )  # fmt: skip
        return found


def is_of_both_widths(line: str) -> bool:
    """Whether digits, or letters, stand there in full width and as ASCII."""
    return bool(_WIDE.search(line)) and any(plain.search(line) and wide.search(line) for plain, wide in _WIDTHS)


def share_in_words(share: float) -> Both:
    """A share that is more than nothing."""
    return Both("< 0.01 %", "不到 0.01 %") if share < 1e-4 else Both(percent(share), percent(share))


def kind_of(character: str) -> str | None:
    """What is wrong with a character by itself; None for nearly all."""
    if character == "\ufffd":
        return "lost characters"
    if character == "\ufeff":
        return "byte order marks"
    if character in _INVISIBLE:
        return "invisible characters"
    if character < " " or "\x7f" <= character <= "\x9f":
        return None if character in "\n\t\r" else "control characters"
    if character >= "\ud800" and (unicodedata.category(character) in ("Co", "Cs") or is_noncharacter(character)):
        return "private use"  # what is unassigned to this Python is none: newer emoji are
    return None


def is_noncharacter(character: str) -> bool:
    """Whether Unicode has promised that this will never be a character."""
    return "\ufdd0" <= character <= "\ufdef" or ord(character) & 0xFFFE == 0xFFFE


def is_mojibake(text: str) -> bool:
    """Whether characters are the bytes of one UTF-8 character, read as cp1252 or latin-1."""
    data = b"".join(bytes((ord(one),)) if one <= "\xff" else one.encode("cp1252") for one in text)
    try:
        return data.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


_OF_CHARACTERS = ("lost characters", "byte order marks", "invisible characters", "control characters", "private use")
_WORDS = {  # kind: share from which it is doubtful, what it is ({0} how many, {1} share of the characters), the fix
    "lost characters": (
        ODD_SHARE,
        Both(
            "U+FFFD (�) characters: {0}. Text was lost when somebody decoded it",
            "U+FFFD（�）字符：{0} 个。之前解码时丢失了文字",
        ),
        Both("go back to the source and decode it in its own encoding", "回到原始数据，用正确的编码重新解码"),
    ),
    "wrong encoding": (
        ODD_SHARE,
        Both(
            "UTF-8 that was read as cp1252 or latin-1 and written again (Ã© for é): {0} times",
            "UTF-8 被当作 cp1252 或 latin-1 读入又写出（例如 é 变成 Ã©）：{0} 处",
        ),
        Both(
            "decode the source as UTF-8, or mend the text with the Python package ftfy",
            "按 UTF-8 重新解码原始数据，或用 Python 包 ftfy 修复",
        ),
    ),
    "Big5 as GBK": (
        MISREAD_SHARE,
        Both(
            "Big5 that was read as GBK and written again (traditional Chinese as 琌硂ぃ): {0} times, {1} of the text",
            "Big5 编码的繁体中文被当作 GBK 读入又写出（乱码，如 琌硂ぃ）：{0} 处，占 {1}",
        ),
        Both(
            "decode the source as Big5, or bring it back: text.encode('gb18030').decode('cp950')",
            "按 Big5 重新解码原始数据，或还原：text.encode('gb18030').decode('cp950')",
        ),
    ),
    "GBK as Big5": (
        MISREAD_SHARE,
        Both(
            "GBK that was read as Big5 and written again (simplified Chinese as 扂岆): {0} times, {1} of the text",
            "GBK 编码的简体中文被当作 Big5 读入又写出（乱码，如 扂岆）：{0} 处，占 {1}",
        ),
        Both(
            "decode the source as gb18030, or bring it back: text.encode('cp950').decode('gb18030')",
            "按 gb18030 重新解码原始数据，或还原：text.encode('cp950').decode('gb18030')",
        ),
    ),
    "control characters": (
        ODD_SHARE,
        Both(
            "control characters (NUL is one): {0}. minibert drops them",
            "控制字符（包括 NUL）：{0} 个。minibert 会丢弃它们",
        ),
        Both("look at the places: the text may be damaged there", "查看这些位置：那里的文本可能已损坏"),
    ),
    "private use": (
        ODD_SHARE,
        Both(
            "private-use characters: {0}. They mean nothing outside of one font or program",
            "私用区字符：{0} 个。离开特定字体或程序就没有意义",
        ),
        Both("replace them by what they stand for, or remove them", "换成它们所代表的字符，或删去"),
    ),
    "mixed scripts": (
        ODD_SHARE,
        Both(
            "words that mix Latin and Cyrillic letters, which look alike (а and a): {0}. No model knows such words",
            "混用形似的拉丁字母和西里尔字母（а 与 a）的单词：{0} 处。模型不认识这样的词",
        ),
        Both("replace the look-alikes: they are traces of OCR or of spam", "换回同一种字母：这通常来自 OCR 或垃圾信息"),
    ),
    "byte order marks": (
        1.0,
        Both(
            "byte order marks (U+FEFF) inside the text, from files that were joined: {0}. minibert drops them",
            "正文中的字节顺序标记（U+FEFF），多半来自文件拼接：{0} 个。minibert 会丢弃它们",
        ),
        None,
    ),
    "invisible characters": (
        INVISIBLE_SHARE,
        Both(
            "invisible characters (soft hyphens, zero-width blanks, marks of direction): {0}, {1} of the text. "
            "minibert "
            "drops them",
            "不可见字符（软连字符、零宽空格、方向标记）：{0} 个，占 {1}。minibert 会丢弃它们",
        ),
        Both("remove them, if other programs read the text too", "如果其他程序也要读这份文本，请删去"),
    ),
    "markup": (
        MARKUP_SHARE,
        Both(
            "HTML tags and entities: {0}, {1} of the text. They are read as words",
            "HTML 标签和实体：{0} 个，占 {1}。它们会被当作词来读",
        ),
        Both("extract the text first, for instance with trafilatura", "先抽取正文，例如用 trafilatura"),
    ),
    "unbroken text": (
        UNBROKEN_SHARE,
        Both(
            f"runs of {LONGEST_RUN} and more characters without a blank (base64, keys, data): {{0}}, {{1}} of the "
            "text. "
            "Each is [UNK] or a long row of pieces",
            f"长度在 {LONGEST_RUN} 以上、没有空格的字符串（base64、密钥、数据）：{{0}} 段，占 {{1}}。"
            "会变成 [UNK] 或一长串碎片",
        ),
        Both("remove them", "删去它们"),
    ),
}  # fmt: skip
