"""Texts that stand there twice, or nearly."""

from itertools import combinations
from random import Random

import numpy as np
import pytest

from minibert.check.duplicates import (
    NearSample,
    Repeats,
    alike,
    exact_groups,
    folded,
    jaccard,
    near_groups,
    runs,
    words,
)


def text_of(rng: Random, length: int) -> list[str]:
    return [f"w{rng.randrange(5000)}" for _ in range(length)]


def with_changes(words: list[str], places: list[int]) -> list[str]:
    return ["changed" if place in places else word for place, word in enumerate(words)]


def test_exact_groups_fold_case_width_blanks_and_line_ends():
    texts = ["The cat\r\nsat", "ＡＢＣ　１２３", "the  CAT sat ", "other", "abc 123", "", " "]
    assert exact_groups(texts) == [[0, 2], [1, 4], [5, 6]]


def test_runs_of_words_and_of_characters():
    assert list(words(folded("The U.S. 今天好 e-mail"))) == ["the", "u", "s", "今", "天", "好", "e", "mail"]
    assert len(runs(words("a b c d"))) == 2
    assert len(runs(words("a b"))) == 1  # shorter than a run: all of it
    assert len(runs(words("！？"))) == 0
    assert len(runs(["a"] * 50)) == 1  # a set


def test_near_groups_find_one_word_in_thirty_and_not_one_in_twenty():
    rng = Random(1)
    thirty, twenty = text_of(rng, 30), text_of(rng, 20)
    texts = [thirty, with_changes(thirty, [15]), twenty, with_changes(twenty, [10])]
    # 28 runs, 3 of them changed: 25/31 = .806; 18 runs: 15/21 = .714
    assert near_groups([" ".join(text) for text in texts]) == [[0, 1]]
    assert near_groups([" ".join(text) for text in texts], likeness=0.7) == [[0, 1], [2, 3]]


def test_near_groups_chinese_by_character():
    text = "中共中央总书记国家主席发表新年讲话向全国各族人民致以诚挚的问候和良好的祝愿"
    texts = [text, text.replace("诚挚", "真挚"), text.replace("全国", "海外") + "谢谢大家", "今天我要上学了"]
    assert near_groups(texts) == [[0, 1]]


@pytest.mark.parametrize(
    ("texts", "groups"),
    [
        (["Good movie!", "good movie.", "bad movie"], [[0, 1]]),
        (["", "?!", "..."], []),  # nothing to compare
        (["ok", "OK.", "no"], [[0, 1]]),
        ([], []),
        (["alone"], []),
    ],
    ids=["punctuation", "no word", "one word", "none", "one"],
)
def test_near_groups_short_texts(texts, groups):
    assert near_groups(texts) == groups


def test_near_groups_are_those_of_all_pairs_compared_one_by_one():
    rng = Random(3)
    texts = []
    for _ in range(60):
        base = text_of(rng, rng.randrange(20, 80))
        texts.append(" ".join(base))
        for _ in range(rng.randrange(4)):
            texts.append(" ".join(with_changes(base, rng.sample(range(len(base)), rng.randrange(4)))))
    rng.shuffle(texts)
    sets = [runs(words(text)) for text in texts]
    parent = list(range(len(texts)))
    for a, b in combinations(range(len(texts)), 2):
        if jaccard(sets[a], sets[b]) >= 0.8:
            old, new = parent[b], parent[a]
            parent = [new if group == old else group for group in parent]
    wanted = [[i for i, group in enumerate(parent) if group == root] for root in dict.fromkeys(parent)]
    assert near_groups(texts) == [group for group in wanted if len(group) > 1]
    assert near_groups(texts) == near_groups(texts)


def test_many_texts_with_half_of_their_words_in_common_are_no_group():
    rng = Random(4)
    header = text_of(rng, 100)
    texts = [" ".join(header + text_of(rng, 100)) for _ in range(400)]
    assert near_groups(texts) == []


def test_repeats_count_copies():
    repeats = Repeats()
    for place, code in enumerate([7, 8, 7, 9, 7, 8]):
        repeats.add(code, place)
    assert repeats.counts == {7: 3, 8: 2}
    assert repeats.first[8] == 1
    assert repeats.extra_share == 0.5


def test_repeats_keep_their_share_when_they_are_many():
    codes = [int(code) for code in np.random.default_rng(5).integers(0, 2**64, 20_000, dtype=np.uint64)]
    repeats = Repeats(most=1000)
    for place, code in enumerate(codes + codes[:5000]):
        repeats.add(code, place)
    assert len(repeats.first) <= 1000
    assert repeats.share == 1 / 32
    assert abs(repeats.extra_share - 0.2) < 0.06  # n = 781, sigma .014


def test_near_sample_keeps_pairs_together():
    rng = Random(6)
    sample = NearSample(most=10_000)
    for pair in range(400):  # 40,000 runs each, of 100 words
        base = text_of(rng, 102)
        for copy in range(2):
            sample.add(runs(with_changes(base, [50] if copy else [])), str(2 * pair + copy))
    assert sum(map(len, sample.sets)) <= 10_000
    assert sample.share == 1 / 8
    groups = [[int(sample.places[i]) for i in group] for group in alike(sample.sets)]
    assert all(b == a + 1 and a % 2 == 0 for a, b in groups)
    assert len(groups) * 2 > 0.85 * len(sample.sets)
