"""CMRC 2018's official score of Chinese answers. Of one answer in [0, 1], of a set in [0, 100]."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence

# The marks that the official script drops. It also lists a double ellipsis, which equals no single character.
_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAN = re.compile("([\u4e00-\u9fa5])")  # the script's range: later Han characters count as letters of a word

_SYMBOL = r"[;@#$%&?!()\[\]{}<>«»‘„\u2012-\u2015]"
_END = rf"(?=\s|$|{_SYMBOL}|\.{{2}}|\.\W*$|,(?!\d)|\"|'')"  # where a word may end
_CLOSING = r"[\])}>\"'»]*"
_STOP = rf"\.(?={_CLOSING}\s*$)|(?<=\w[^\W\d])\.(?={_CLOSING}\s)"  # of the last sentence, or of another
_CLITIC = rf"n't{_END}|'(?:s|m|d|ll|re|ve)?{_END}"
_OPENING = r"(?<!\w)'(?=\w)(?!(?:s|m|d|n|t|ll|re|ve)\b)"  # an apostrophe before a word that is no clitic
_WORD = re.compile(rf"""
    \.{{2,}} | {_SYMBOL} | ,(?!\d) | {_STOP} | "|'' | {_OPENING} | {_CLITIC}
    | (?: (?! {_SYMBOL} | {_STOP} | {_OPENING} | {_CLITIC} | \.\. | ,(?!\d) | '' ) [^\s"] )+
""", re.VERBOSE)  # fmt: skip


def exact(answer: str, golds: Sequence[str]) -> int:
    """1 where the answer is one of the golds, but for case, outer whitespace and the marks; else 0. No golds: the right
    answer is empty."""
    return int(_without_marks(answer) in [_without_marks(gold) for gold in golds or [""]])


def f1(answer: str, golds: Sequence[str]) -> float:
    """F1 in [0, 1] of the longest run of segments that the answer shares with a gold, for the gold that suits it best.

    An answer without segments gets 0, also where a gold has none. No golds: 1 for an answer without segments.
    """
    segments = segment(answer)
    if not golds:
        return float(not segments)
    return max(_f1_of_segments(segments, segment(gold)) for gold in golds)


def score_answers(gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str]) -> dict[str, float]:
    """Scores over a set of questions.

    Args: gold: for each question's id its answers, none where it is unanswerable. predicted: for each id an answer, ""
        for none; ids that are not in gold count for nothing.
    Returns: cmrc_f1 and cmrc_em in [0, 100], means over all questions of gold; NaN if there are none.
    Warns: of questions without a prediction. They are wrong, as in the official script.
    Source: the official cmrc2018_evaluate.py (v5), value for value but for what `segment` says. Its find_lcs finds the
        longest common run, without gaps, and not the longest common subsequence. Differs: an unanswerable question, at
        which the script stops, is right where the answer is empty.
    """
    missing = [question for question in gold if question not in predicted]
    if missing:
        shown = ", ".join(map(repr, missing[:3]))
        warnings.warn(f"{len(missing)} of {len(gold)} questions have no prediction: {shown}", stacklevel=2)
    if not gold:
        return {"cmrc_f1": math.nan, "cmrc_em": math.nan}
    answered = [(predicted[question], golds) for question, golds in gold.items() if question in predicted]
    return {
        "cmrc_f1": 100.0 * sum(f1(answer, golds) for answer, golds in answered) / len(gold),
        "cmrc_em": 100.0 * sum(exact(answer, golds) for answer, golds in answered) / len(gold),
    }


def segment(text: str) -> list[str]:
    """Lower-case segments without the marks: each Han character alone, between them words, numbers and punctuation.

    Source: mixed_segmentation of the official script, which has NLTK split what stands between Han characters: at
        whitespace, punctuation and English clitics ("it's", "don't"), but not inside numbers ("1,000", "3.5"). Differs
        from NLTK in English alone: its fused words (cannot, gonna, ...) stay whole here; a full stop inside a text is
        split off after a word of two letters or more, where NLTK knows some abbreviations (dr., vs.); and rare
        combinations of quotation marks.
    """
    pieces = _HAN.split(text.lower().strip().translate(_MARKS))  # Han characters at odd places
    return [part for place, piece in enumerate(pieces) for part in ([piece] if place % 2 else _words(piece))]


def longest_common_run(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest run of neighbours that is in both. O(len(a) len(b)) time, O(len(b)) memory."""
    longest = 0
    above = [0] * (len(b) + 1)  # above[j]: length of the common run that ends at the item before and at b[j - 1]
    for item in a:
        row = [0] * (len(b) + 1)
        for j, other in enumerate(b, 1):
            if item == other:
                row[j] = above[j - 1] + 1
                longest = max(longest, row[j])
        above = row
    return longest


def _words(piece: str) -> list[str]:
    words = []
    for match in _WORD.finditer(piece):
        word = match[0]
        if word in ('"', "''"):  # NLTK tells opening from closing
            before = piece[: match.start()][-1:]
            opens = before in tuple(" ([{<«‘„") or (word == '"' and not before)
            word = "``" if opens else "''"
        words.append(word)
    return words


def _without_marks(text: str) -> str:
    return text.lower().strip().translate(_MARKS)


def _f1_of_segments(answer: list[str], gold: list[str]) -> float:
    shared = longest_common_run(answer, gold)
    if not shared:
        return 0.0
    precision, recall = shared / len(answer), shared / len(gold)
    return 2 * precision * recall / (precision + recall)
