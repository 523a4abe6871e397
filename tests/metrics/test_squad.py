"""The official SQuAD scores, by hand from what the two scripts do."""

import json
import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.metrics.squad import best_threshold, exact, f1, normalize, score_answers, unmatched

GOLD = {"1": ["Paris"], "2": [], "3": [], "4": ["the cat sat"], "5": ["x y"]}
PREDICTED = {"1": "paris.", "2": "", "3": "x", "4": "cat"}


@pytest.mark.parametrize(
    ("answer", "normal"),
    [
        ("The  Cat's\tpyjamas!", "cats pyjamas"),
        ("a.n. apple", "apple"),  # punctuation goes first: "a.n." is then "an"
        ("the-cat", "thecat"),
        ("Athens, a town", "athens town"),
        ("“smart” — quotes", "“smart” — quotes"),  # ASCII punctuation alone
        ("A", ""),
        ("中国 的", "中国 的"),
    ],
)
def test_normalize(answer, normal):
    assert normalize(answer) == normal


def test_one_answer():
    assert exact("the Paris.", ["London", "paris"]) == 1
    assert exact("Paris city", ["paris"]) == 0
    # 2 of 3 and 2 of 2 words; a repeated word counts once for each time that it is in both
    assert f1("in Paris France", ["London", "Paris France"]) == pytest.approx(0.8)
    assert f1("cat cat cat", ["cat dog"]) == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    assert f1("a dog", ["cat"]) == 0.0


@pytest.mark.parametrize(
    ("answer", "golds", "version", "expected"),
    [
        ("", [], "2.0", (1, 1.0)),
        ("the", [], "2.0", (1, 1.0)),  # nothing is left of it
        ("x", [], "2.0", (0, 0.0)),
        ("", ["cat"], "2.0", (0, 0.0)),
        ("an", ["The"], "1.1", (1, 0.0)),  # v1.1: no common word
        ("an", ["The"], "2.0", (1, 1.0)),  # v2.0: the gold answer is left out, then "" is right
        ("an", ["The", "cat"], "1.1", (1, 0.0)),
        ("an", ["The", "cat"], "2.0", (0, 0.0)),
    ],
)
def test_answers_without_words(answer, golds, version, expected):
    assert (exact(answer, golds, version=version), f1(answer, golds, version=version)) == expected


def test_g10():
    with pytest.warns(UserWarning, match="1 of 5 questions have no prediction: '5'"):
        scores = score_answers(GOLD, PREDICTED)
    assert scores == pytest.approx(
        {"exact": 40.0, "f1": 160 / 3, "total": 5, "HasAns_exact": 100 / 3, "HasAns_f1": 500 / 9, "HasAns_total": 3,
         "NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2}
    )  # fmt: skip


def test_g10_answerable_questions_alone():
    with pytest.warns(UserWarning, match="1 of 3"):
        scores = score_answers({name: golds for name, golds in GOLD.items() if golds}, PREDICTED)
    assert scores == pytest.approx({"exact": 100 / 3, "f1": 500 / 9, "total": 3})


def test_g10_shared(shared):
    case = shared / "cases" / "G10"
    data = json.loads((case / "gold.json").read_text())["data"]
    questions = [question for article in data for part in article["paragraphs"] for question in part["qas"]]
    gold = {question["id"]: [answer["text"] for answer in question["answers"]] for question in questions}
    with pytest.warns(UserWarning, match="have no prediction"):
        scores = score_answers(gold, json.loads((case / "pred.json").read_text()))
    for line in (case / "expected.txt").read_text().splitlines()[1:]:
        name, value = line.split(": ")
        assert scores[name] == pytest.approx(float(value), abs=1e-6)


def test_the_version_is_that_of_the_set():
    assert score_answers({"1": ["The"]}, {"1": "an"})["f1"] == 0.0
    assert score_answers({"1": ["The"], "2": []}, {"1": "an", "2": ""})["f1"] == 100.0
    assert score_answers({"1": ["The"]}, {"1": "an"}, version="2.0")["f1"] == 100.0


def test_a_missing_prediction_is_wrong_also_where_no_answer_is_right():
    with pytest.warns(UserWarning, match="no prediction"):
        assert score_answers({"1": []}, {})["exact"] == 0.0


def test_no_questions_are_no_crash():
    scores = score_answers({}, {"1": "x"})
    assert scores["total"] == 0
    assert math.isnan(scores["exact"])
    assert math.isnan(scores["f1"])
    assert best_threshold({}, {}, {})["best_exact_thresh"] == 0.0


def test_unanswerable_questions_alone():
    scores = score_answers({"1": [], "2": []}, {"1": "", "2": "x"})
    assert scores == {"exact": 50.0, "f1": 50.0, "total": 2, "NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2}


def test_unmatched_ids_are_told_and_do_not_count():
    assert unmatched(GOLD, {"9": "x", **PREDICTED}) == (["5"], ["9"])
    assert score_answers({"1": ["x"]}, {"1": "x", "9": "y"}) == {"exact": 100.0, "f1": 100.0, "total": 1}


def test_best_threshold_by_hand():
    gold = {"a": ["x"], "b": [], "c": ["y z"], "d": [], "e": ["w"]}
    predicted = {"a": "x", "b": "q", "c": "y", "d": "q", "e": "v"}
    scores = {"a": 0.1, "b": 0.4, "c": 0.2, "d": 0.9, "e": 0.3}
    # nothing answered: 2 of 5 right. a: +1 exact; c: +0 exact, +2/3 F1; e: +0; b, d: -1
    assert best_threshold(gold, predicted, scores) == pytest.approx(
        {"best_exact": 60.0, "best_exact_thresh": 0.1, "best_f1": 100 * (2 + 1 + 2 / 3) / 5, "best_f1_thresh": 0.2}
    )


def test_best_threshold_takes_equal_scores_together():
    # the official loop would report 100 at 1.0, where the second question is answered as well: 50
    found = best_threshold({"a": ["x"], "b": []}, {"a": "x", "b": "q"}, {"a": 1.0, "b": 1.0})
    assert found == {"best_exact": 50.0, "best_exact_thresh": 0.0, "best_f1": 50.0, "best_f1_thresh": 0.0}


def test_best_threshold_of_differences_below_zero():
    # answering nothing is best, which 0.0 would not do
    found = best_threshold({"a": []}, {"a": "q"}, {"a": -3.0})
    assert found["best_exact"] == 100.0
    assert found["best_exact_thresh"] < -3.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([[], ["cat"], ["cat sat"], ["The"]]),
            st.sampled_from(["cat", "dog", "", "the"]),
            st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 1.5, 3.0]),
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(deadline=None)
def test_best_threshold_is_attained_and_is_the_best(rows):
    gold = {str(i): golds for i, (golds, _, _) in enumerate(rows)}
    predicted = {str(i): answer for i, (_, answer, _) in enumerate(rows)}
    no_answer = {str(i): score for i, (_, _, score) in enumerate(rows)}

    def at(threshold, score):
        points = [
            (not gold[name]) if no_answer[name] > threshold else score(predicted[name], gold[name]) for name in gold
        ]
        return 100.0 * sum(points) / len(points)

    found = best_threshold(gold, predicted, no_answer)
    for name, score in (("exact", exact), ("f1", f1)):
        assert at(found[f"best_{name}_thresh"], score) == pytest.approx(found[f"best_{name}"], abs=1e-9)
        best = max(at(threshold, score) for threshold in (-math.inf, *no_answer.values()))
        assert found[f"best_{name}"] == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("predicted", "scores", "message"),
    [
        ({}, {"a": 0.0}, "question 'a' has no prediction"),
        ({"a": "x"}, {}, "question 'a' has no no-answer score"),
        ({"a": "x"}, {"a": math.nan}, "no-answer score of question 'a' is nan"),
    ],
)
def test_best_threshold_needs_every_question(predicted, scores, message):
    with pytest.raises(ValueError, match=message):
        best_threshold({"a": ["x"]}, predicted, scores)


def test_many_questions_are_quick():
    names = [str(i) for i in range(20000)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gold = {name: ["cat"] if int(name) % 2 else [] for name in names}
        found = best_threshold(gold, dict.fromkeys(names, "cat"), {name: float(not gold[name]) for name in names})
    assert found == {"best_exact": 100.0, "best_exact_thresh": 0.0, "best_f1": 100.0, "best_f1_thresh": 0.0}
