"""Which languages a sample of lines is in, by py3langid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from minibert.check.findings import Finding, Section
from minibert.view.page import Both, percent

LEAST_LETTERS = 40  # of a line that is asked about; a Han character or kana counts as four
ASKED = 300  # characters of a line that are looked at
STRAY = (0.02, 0.25)  # a share of another language in it looks like an oversight; a larger one is meant
LEAST_LINES = 5
TENTHS = 10

# py3langid's own 139 contain close relatives, and it takes one for the other: with Wu and Cantonese it takes 7 % of a
# Chinese newspaper for them, with Nigerian Pidgin 3 % of the BBC's news
LANGUAGES = (
    "af ar az be bg bn ca cs da de el en es et fa fi fr he hi hr hu hy id it ja ka kk km kn ko lo lt lv mk ml mn mr ms "
    "my ne nl no pa pl pt ro ru si sk sl sq sr sv sw ta te th tl tr uk ur uz vi zh"
).split()
NAMES = {
    "zh": Both("Chinese", "中文"), "en": Both("English", "英文"), "ja": Both("Japanese", "日文"),
    "ko": Both("Korean", "韩文"), "de": Both("German", "德文"), "fr": Both("French", "法文"),
    "es": Both("Spanish", "西班牙文"), "ru": Both("Russian", "俄文"), "pt": Both("Portuguese", "葡萄牙文"),
    "it": Both("Italian", "意大利文"), "ar": Both("Arabic", "阿拉伯文"), "vi": Both("Vietnamese", "越南文"),
}  # fmt: skip
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@cache
def identifier() -> Any:
    """py3langid's, for LANGUAGES."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    found.set_languages([name for name in LANGUAGES if name in found.labels])
    return found


def language_of(line: str) -> str | None:
    """The language of a line; None if it is too short to say."""
    line = line[:ASKED]
    letters = letters_of(line)
    if letters < LEAST_LETTERS or letters < len(line) / 2:
        return None
    return str(identifier().classify(line)[0])


def letters_of(line: str) -> int:
    """How much text a line holds: letters, a Han character or kana counted as four."""
    return sum(map(str.isalpha, line)) + 3 * len(_WIDE.findall(line))


class Languages:
    """The languages of a sample. lines: (place in the order of the corpus, where in words, the line)."""

    def __init__(self, lines: Sequence[tuple[int, str, str]]) -> None:
        self.asked = [(place, where, line, language_of(line)) for place, where, line in lines]
        self.known = [item for item in self.asked if item[3] is not None]
        sizes: Counter[str] = Counter()
        for *_, line, language in self.known:
            sizes[str(language)] += letters_of(line[:ASKED])
        total = sizes.total() or 1
        self.shares = {language: size / total for language, size in sizes.most_common()}

    def section(self) -> Section | None:
        """A bar a language."""
        if not self.known:
            return None
        lines = len(self.known)
        return Section(
            Both("Languages", "语言"),
            Both(
                f"Of {lines:,} lines drawn at random that are long enough to tell. Of English news 4 in 1,000 are told "
                "wrong, of Chinese none.",
                f"随机抽取 {lines:,} 行足够长的文本判断所得。实测英文新闻每千行约 4 行判断有误，中文没有误判。",
            ),
            bars=[
                (NAMES.get(name, name), share, percent(share))
                for name, share in list(self.shares.items())[:8]
                if share >= 0.002
            ],
        )

    def findings(self) -> list[Finding]:
        """A language that looks like an oversight; several that are meant; a corpus that is sorted by language."""
        found = []
        (main, *others) = self.shares or [""]
        for name in others:
            mine = [where + ": " + line[:60] for _, where, line, language in self.known if language == name]
            label = NAMES.get(name, Both(name, name))
            share = percent(self.shares[name])
            if STRAY[0] <= self.shares[name] and len(mine) >= LEAST_LINES:
                stray = self.shares[name] <= STRAY[1]
                found.append(
                    Finding(
                        "another language", "doubtful" if stray else "note",
                        Both(
                            f"{share} of the text is {label.en}, the rest mostly "
                            f"{NAMES.get(main, Both(main, main)).en}",
                            f"有 {share} 的文本是{label.zh}，其余大多是{NAMES.get(main, Both(main, main)).zh}",
                        ),
                        Both(
                            "if it is not meant, take these documents out: a small model learns one language better",
                            "如果不是有意为之，请去掉这些文档：小模型学一种语言学得更好",
                        ) if stray else None,
                        mine[:3],
                    )
                )  # fmt: skip
        return found + self._in_parts()

    def _in_parts(self) -> list[Finding]:
        """Whether the beginning and the end are in different languages, both of one."""
        tenth = max(1, len(self.known) // TENTHS)
        ordered = [str(language) for *_, language in sorted(self.known)]
        ends = [Counter(part).most_common(1) for part in (ordered[:tenth], ordered[-tenth:])]
        if len(ordered) < 10 * TENTHS or not all(ends):
            return []
        (first, many), (last, most) = ends[0][0], ends[1][0]
        if first == last or min(many, most) < 0.8 * tenth:
            return []
        a, b = (NAMES.get(name, Both(name, name)) for name in (first, last))
        return [
            Finding(
                "sorted", "note",
                Both(
                    f"The corpus begins in {a.en} and ends in {b.en}. That does no harm: minibert draws documents in "
                    "random order",
                    f"语料以{a.zh}开头、以{b.zh}结尾。这没有害处：minibert 按随机顺序取文档",
                ),
            )
        ]  # fmt: skip
