"""CMRC 2018's score, by hand from what the official script does."""

import math
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.metrics.cmrc import exact, f1, longest_common_run, score_answers, segment


# What NLTK 3.10's word_tokenize, with its English sentence model, makes of what stands between the Han characters.
@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("他在 1998 年获得 NBA", "他 在 1998 年 获 得 nba"),
        ("苹果iPhone 6s（金色）。", "苹 果 iphone 6s 金 色"),
        ("1,000 km/h (approx.)", "1,000 kmh ( approx . )"),
        ("3.5英寸，约10%", "3.5 英 寸 约 10 %"),
        ('"ok" he said', "`` ok '' he said"),
        ('获NBA "MVP" 奖', "获 nba `` mvp '' 奖"),
        ("It's 10% of the U.S., isn't it?", "it 's 10 % of the u.s. , is n't it ?"),
        ("go home. then j. smith", "go home . then j. smith"),
        ("x ... y", "x ... y"),
        ("a-b:c", "abc"),  # marks go without leaving a gap
        ("㐀々のハン", "㐀々のハン"),  # not in the script's range of Han characters: a word
        ("龥龦龧", "龥 龦龧"),  # the range ends at U+9FA5
        ("𠀀中", "𠀀 中"),
        ("……", "……"),  # the script's list has them as a pair, so that neither is dropped
        ("·《》", ""),
        ("", ""),
    ],
)
def test_segments(text, segments):
    assert segment(text) == segments.split()


def test_f1_counts_a_run_without_gaps():
    # the longest common subsequence of 中国北京 and 中北京 has 3 segments, the longest common run 2: the script's F1
    assert longest_common_run("中国北京", "中北京") == 2
    assert f1("中国北京", ["中北京"]) == pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))


def test_f1_by_hand():
    assert f1("1998 年", ["1998年"]) == 1.0
    # 北京 of 2 and 4, and 北京市 of 2 and 3 segments: the better one
    assert f1("北京", ["中国北京", "北京市"]) == pytest.approx(0.8)
    assert f1("上海", ["北京"]) == 0.0
    assert f1("《红楼梦》", ["红楼梦"]) == 1.0


def test_exact_by_hand():
    assert exact("“北京”。", ["上海", "北京"]) == 1
    assert exact(" ABC ", ["abc"]) == 1
    assert exact("北 京", ["北京"]) == 0  # inner blanks count, as in the script
    assert exact("北京市", ["北京"]) == 0


def test_answers_without_segments():
    assert (exact("。", ["，"]), f1("。", ["，"])) == (1, 0.0)  # the script's values
    assert (exact("", []), f1("", [])) == (1, 1.0)
    assert (exact("北", []), f1("北", [])) == (0, 0.0)
    assert (exact("", ["北京"]), f1("", ["北京"])) == (0, 0.0)


def test_scores_are_means_over_all_questions():
    gold = {"1": ["北京", "北京市"], "2": ["上海"], "3": ["1998年"], "4": ["x"]}
    with pytest.warns(UserWarning, match="1 of 4 questions have no prediction: '4'"):
        scores = score_answers(gold, {"1": "北京。", "2": "上海市", "3": "广州", "9": "x"})
    assert scores == pytest.approx({"cmrc_f1": 100 * (1 + 0.8) / 4, "cmrc_em": 25.0})


def test_no_questions_are_no_crash():
    assert all(math.isnan(score) for score in score_answers({}, {}).values())


@given(st.text("ab中国", max_size=12), st.text("ab中国", max_size=12))
@settings(deadline=None)
def test_longest_common_run_as_difflib(a, b):
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    assert longest_common_run(a, b) == matcher.find_longest_match(0, len(a), 0, len(b)).size


@given(st.text(st.sampled_from("ab1.,;!\"'()[]«»‘„… \n中國·，-"), max_size=20))
@settings(deadline=None)
def test_segments_hold_every_character_but_marks_and_blanks(text):
    joined = "".join(segment(text)).replace("``", "''")
    kept = "".join(character for character in text if character not in "·，-" and not character.isspace())
    assert joined == kept.replace('"', "''")  # NLTK's names for quotation marks
    assert f1(text, [text]) == float(bool(kept))
    assert exact(text, [text]) == 1
