"""What the lines of a corpus look like: those that come again and again, hard line breaks, numbers and code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from minibert.check.findings import Finding, Section
from minibert.view.page import Both, percent

SAMPLE = 4000  # lines drawn at random, for languages, numbers and code
PIECE = 1000  # characters: a longer line is several to the sample
FOLLOWED = 1 << 17  # different lines that are counted; of more, those that came once so far are forgotten
OFTEN = 10  # times that a line stands there to be one that comes again
LEAST_LINE = 8  # characters of one; "Yes." and "（完）" are nobody's header
REPEATED_SHARE = 0.02  # of a text's characters
NOTED_SHARE = 0.002
WRAPPED_SHARE = 0.2  # of the places where a line follows another
ENDS_INSIDE = 0.05  # of those: lines in which a sentence ends and another begins. Queries and titles have none
LEAST_PAIRS = 50
NUMBERS_SHARE, CODE_SHARE = 0.2, 0.2  # of the sample's characters

_GOES_ON = re.compile("[a-zà-ÿ,]\n[a-zà-ÿ]")
_ENDS = re.compile(r"[.!?][\"”’)]?\s+\w|[。！？][”’」』）]?\w")
_HAN_END, _HAN_START = re.compile("[\u4e00-\u9fff，、]$"), re.compile("[\u4e00-\u9fff]")
_CODE = re.compile(
    r"[;{}]\s*$|^\s*(?:(?:def|class) \w+.*:|from [\w.]+ import |import [\w.]+$|#include\b|</?\w+>|//|/\*|\}|@\w+$)"
)


class Lines:
    """Looks at lines as they come. sample: (number of the line, where it stands, its text), drawn at random."""

    def __init__(self) -> None:
        self.total = self.characters = self.pairs = self.wrapped = self.ended = 0
        self.sample: list[tuple[int, str, str]] = []
        self.counts: dict[str, int] = {}
        self.forgotten = False
        self._random = Random(0)

    def add(self, documents: Sequence[Sequence[str]], place_of: Callable[[int], str]) -> None:
        """Documents as lists of lines. place_of: where the n-th line of them all stands."""
        counts, draw = self.counts, self._random.random
        number = -1
        for lines in documents:
            self.characters += sum(map(len, lines))
            self.pairs += max(0, len(lines) - 1)
            self.wrapped += len(_GOES_ON.findall("\n".join(lines)))
            for at, line in enumerate(lines):
                number += 1
                self.ended += _ENDS.search(line) is not None
                if at > 1 and _HAN_START.match(line) and _HAN_END.search(lines[at - 1]):  # filled lines are alike long
                    self.wrapped += abs(len(lines[at - 1]) - len(lines[at - 2])) <= 1
                if LEAST_LINE <= len(line) <= PIECE:
                    counts[line] = counts.get(line, 0) + 1
                for first in range(0, len(line), PIECE):
                    self.total += 1
                    if len(self.sample) < SAMPLE:
                        self.sample.append((self.total, place_of(number), line[first : first + PIECE]))
                    elif (place := int(draw() * self.total)) < SAMPLE:
                        self.sample[place] = (self.total, place_of(number), line[first : first + PIECE])
        least = 1
        while len(counts) > FOLLOWED:
            self.forgotten, least = True, least + 1
            self.counts = counts = {line: count for line, count in counts.items() if count >= least}

    def repeated(self) -> list[tuple[str, int]]:
        """Lines that stand there OFTEN times or more, those that fill most characters first."""
        found = [(line, count) for line, count in self.counts.items() if count >= OFTEN]
        return sorted(found, key=lambda item: (-item[1] * len(item[0]), item[0]))

    def repeated_share(self) -> float:
        """The share of the text's characters that stand in copies of such lines."""
        return sum((count - 1) * len(line) for line, count in self.repeated()) / (self.characters or 1)

    def share_of(self, is_one: Callable[[str], bool]) -> float:
        """The share of the sample's characters in lines of a kind."""
        sizes: Counter[bool] = Counter()
        for *_, line in self.sample:
            sizes[is_one(line)] += len(line)
        return sizes[True] / (sizes.total() or 1)

    def section(self) -> Section | None:
        """The lines that come again."""
        rows = [(line[:80], f"{count:,}") for line, count in self.repeated()[:10]]
        if not rows:
            return None
        return Section(
            Both("Lines that come again", "反复出现的行"),
            Both(
                f"Lines of {LEAST_LINE} characters and more that stand there {OFTEN} times or more"
                + (", counted at least so often." if self.forgotten else "."),
                f"长度不少于 {LEAST_LINE} 个字符、出现 {OFTEN} 次以上的行"
                + ("（次数为下限）。" if self.forgotten else "。"),
            ),
            columns=(Both("line", "行"), Both("times", "次数")), rows=rows,
        )  # fmt: skip

    def findings(self) -> list[Finding]:
        """Boilerplate, hard line breaks, numbers, code."""
        found = []
        repeated, share = self.repeated(), self.repeated_share()
        if share >= NOTED_SHARE:
            line, count = repeated[0]
            found.append(
                Finding(
                    "repeated lines", "doubtful" if share >= REPEATED_SHARE else "note",
                    Both(
                        f"{percent(share)} of the text are copies of {len(repeated):,} lines that come again and "
                        "again; "
                        f"{line[:60]!r} stands there {count:,} times",
                        f"{percent(share)} 的文本是 {len(repeated):,} 行的反复出现；{line[:60]!r} 出现了 {count:,} 次",
                    ),
                    Both(
                        "remove headers, footers and menus: the model would learn them by heart",
                        "删去页眉、页脚和菜单：否则模型会把它们背下来",
                    ),
                )
            )  # fmt: skip
        share = self.wrapped / (self.pairs or 1)
        inside = self.ended >= ENDS_INSIDE * self.wrapped
        if self.wrapped >= LEAST_PAIRS and share >= WRAPPED_SHARE and inside:
            found.append(
                Finding(
                    "wrapped lines", "doubtful",
                    Both(
                        f"{percent(share)} of the line ends stand inside a sentence: the text was broken to a width, "
                        "and "
                        "each line is taken for a sentence or more",
                        f"{percent(share)} 的换行在句子中间：文本被按固定宽度折行，而每一行会被当作单独的句子",
                    ),
                    Both(
                        "join the lines of a paragraph (for Latin text `fmt -w 100000` does), a blank line between "
                        "documents",
                        "把同一段的行接起来，文档之间用空行分隔",
                    ),
                )
            )  # fmt: skip
        for kind, is_one, limit, message, fix in (
            (
                "numbers", is_numbers, NUMBERS_SHARE,
                Both(
                    "{} of the text are lines of numbers and signs, as in tables",
                    "{} 的文本是数字和符号组成的行，像是表格",
                ),
                Both(
                    "leave tables out: there is little to learn from a masked number",
                    "去掉表格：被遮住的数字学不到什么",
                ),
            ),
            (
                "code", is_code, CODE_SHARE,
                Both("{} of the text looks like program code", "{} 的文本看起来是程序代码"),
                Both("leave it out, if the model is for natural language", "如果模型用于自然语言，请去掉"),
            ),
        ):  # fmt: skip
            share = self.share_of(is_one)
            if share >= limit:
                shown = percent(share)
                where = [f"{where}: {line[:60]}" for _, where, line in self.sample if is_one(line)][:3]
                message = Both(message.en.format(shown), message.zh.format(shown))
                found.append(Finding(kind, "doubtful", message, fix, where))
        return found


def is_numbers(line: str) -> bool:
    """Whether most of a line is digits and signs."""
    letters = sum(map(str.isalpha, line))
    return any(map(str.isdigit, line)) and 2 * letters < len(line) - line.count(" ")


def is_code(line: str) -> bool:
    """Whether a line looks like a line of a program."""
    return _CODE.search(line) is not None
