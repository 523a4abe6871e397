"""Official scores of extractive question answering, SQuAD v1.1 and v2.0. Of one answer in [0, 1], of a set in [0, 100].

The two official scripts differ in one thing: v2.0 leaves out gold answers of which normalising leaves nothing ("The"),
and takes two answers without words for a full match in F1, where v1.1 gives 0. Exact match is the same otherwise.
"""

from __future__ import annotations

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

Version = Literal["1.1", "2.0"]

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(answer: str) -> str:
    """Lower-case, without ASCII punctuation, English articles and surplus whitespace, in that order."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def exact(answer: str, golds: Sequence[str], *, version: Version = "2.0") -> int:
    """1 where the answer is one of the golds once both are normalised, else 0. No golds: the right answer is ""."""
    return int(normalize(answer) in [normalize(gold) for gold in _accepted(golds, version)])


def f1(answer: str, golds: Sequence[str], *, version: Version = "2.0") -> float:
    """F1 in [0, 1] of the answer's words against those of the gold that suits it best. No golds: as for exact."""
    words = normalize(answer).split()
    return max(_f1_of_words(words, normalize(gold).split(), version) for gold in _accepted(golds, version))


def score_answers(
    gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str], *, version: Version | None = None
) -> dict[str, float]:
    """Scores over a set of questions.

    Args: gold: for each question's id its answers, none where it is unanswerable. predicted: for each id an answer, ""
        for none; ids that are not in gold count for nothing: unmatched has them. version: whose rules; None takes 2.0
        where a question is unanswerable and 1.1 where none is, each the script that such a set comes with.
    Returns: exact and f1 in [0, 100], means over all questions of gold, and total, their number. Where some are
        unanswerable also HasAns_exact HasAns_f1 HasAns_total (if there are answerable ones) and NoAns_exact NoAns_f1
        NoAns_total. The means of an empty set are NaN.
    Warns: of questions without a prediction. They are wrong, also where no answer is right.
    Source: the official evaluate-v1.1.py and evaluate-v2.0.py, value for value. Differs: evaluate-v2.0.py leaves a
        question without a prediction out of the mean, or stops at it.
    """
    has_answer = {question: bool(answers) for question, answers in gold.items()}
    if version is None:
        version = "1.1" if all(has_answer.values()) else "2.0"
    missing, _ = unmatched(gold, predicted)
    if missing:
        shown = ", ".join(map(repr, missing[:3]))
        warnings.warn(f"{len(missing)} of {len(gold)} questions have no prediction: {shown}", stacklevel=2)
    exacts, f1s = {}, {}
    for question, answers in gold.items():
        answer = predicted.get(question)
        exacts[question] = 0 if answer is None else exact(answer, answers, version=version)
        f1s[question] = 0.0 if answer is None else f1(answer, answers, version=version)
    scores = {"exact": _mean(list(exacts.values())), "f1": _mean(list(f1s.values())), "total": len(gold)}
    if not all(has_answer.values()):
        for part, wanted in (("HasAns", True), ("NoAns", False)):
            ids = [question for question in gold if has_answer[question] is wanted]
            if ids:
                scores[f"{part}_exact"] = _mean([exacts[question] for question in ids])
                scores[f"{part}_f1"] = _mean([f1s[question] for question in ids])
                scores[f"{part}_total"] = len(ids)
    return scores


def unmatched(gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The ids of gold without a prediction, and those of predictions that are not in gold; both in their order."""
    return [name for name in gold if name not in predicted], [name for name in predicted if name not in gold]


def best_threshold(
    gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str], no_answer_scores: Mapping[str, float]
) -> dict[str, float]:
    """Tune when to say that there is no answer: where a question's score is above the threshold.

    Args: gold: as in score_answers. predicted: the best answer to each question if it is answered at all.
        no_answer_scores: for each question how much likelier no answer is, such as the null score less the best
        span's; any finite scale. Ids that are not in gold count for nothing.
    Returns: best_exact and best_exact_thresh, the best that any threshold attains in [0, 100] and the lowest that
        attains it, up to the next score; best_f1 and best_f1_thresh likewise. 0.0 where it is best to answer nothing
        and 0.0 does that. An empty set: NaN and 0.0.
    Raises: ValueError for a question without prediction or score, and a score that is not finite.
    Source: find_best_thresh of the official evaluate-v2.0.py, in O(n log n). Differs where that reports a score which
        its threshold does not attain: questions of equal score go over the threshold together; a threshold of 0.0 for
        "answer nothing" is below all scores; an answer without words is right for an unanswerable question.
    """
    for question in gold:
        if question not in predicted or question not in no_answer_scores:
            lacks = "prediction" if question not in predicted else "no-answer score"
            raise ValueError(f"question {question!r} has no {lacks}")
        if not math.isfinite(no_answer_scores[question]):
            raise ValueError(f"the no-answer score of question {question!r} is {no_answer_scores[question]}")
    order = sorted(gold, key=lambda question: no_answer_scores[question])
    unanswered = [0 if gold[question] else 1 for question in order]
    steps = [float(no_answer_scores[question]) for question in order]
    exacts = [float(exact(predicted[question], gold[question])) for question in order]
    f1s = [f1(predicted[question], gold[question]) for question in order]
    best_exact, exact_threshold = _best(steps, exacts, unanswered)
    best_f1, f1_threshold = _best(steps, f1s, unanswered)
    return {
        "best_exact": best_exact,
        "best_exact_thresh": exact_threshold,
        "best_f1": best_f1,
        "best_f1_thresh": f1_threshold,
    }


def _accepted(golds: Sequence[str], version: Version) -> list[str]:
    if version == "2.0":
        golds = [gold for gold in golds if normalize(gold)]
    return list(golds) or [""]


def _f1_of_words(words: list[str], gold: list[str], version: Version) -> float:
    if version == "2.0" and not (words and gold):
        return float(words == gold)
    same = (Counter(words) & Counter(gold)).total()
    if not same:
        return 0.0
    precision, recall = same / len(words), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def _mean(scores: Sequence[float]) -> float:
    return 100.0 * sum(scores) / len(scores) if scores else math.nan


def _best(steps: list[float], answered: list[float], unanswered: list[int]) -> tuple[float, float]:
    """The best score in percent and its threshold. All three (n,) in order of steps, the no-answer scores:
    what a question adds if answered, and if not."""
    if not steps:
        return math.nan, 0.0
    current = best = float(sum(unanswered))
    threshold = 0.0 if steps[0] > 0 else math.nextafter(steps[0], -math.inf)
    for place, step in enumerate(steps):
        current += answered[place] - unanswered[place]
        together = place + 1 < len(steps) and steps[place + 1] == step
        if current > best and not together:
            best, threshold = current, step
    return 100.0 * best / len(steps), threshold
