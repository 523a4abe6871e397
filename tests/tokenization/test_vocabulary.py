from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary, train_vocabulary

REPOSITORY = Path(__file__).resolve().parents[2]
HAN = [chr(0x4E00 + i) for i in range(1500)]


def train(*lines: str, size: int = 1000, lowercase: bool = True, strip_accents: bool | None = None) -> Vocabulary:
    return train_vocabulary(lambda: lines, size=size, lowercase=lowercase, strip_accents=strip_accents)


def many_han() -> list[str]:
    """1,500 distinct characters: the i-th occurs once, and 20 times more among the first 300."""
    return ["".join(HAN[i : i + 40]) for i in range(0, 1500, 40)] + ["".join(HAN[:300])] * 20


def test_every_character_is_covered_where_there_is_room() -> None:
    vocabulary = train(*many_han(), size=3000)
    assert set(HAN) <= set(vocabulary.tokens)
    assert (vocabulary.dropped_characters, vocabulary.unknown_rate, vocabulary.characters) == (0, 0.0, 1500)
    assert vocabulary.tokens[:5] == list(SPECIAL_TOKENS)
    assert len(vocabulary.tokens) == 1505, "Han characters are words of their own: there is nothing to merge"


def test_the_size_is_never_exceeded_and_the_most_frequent_characters_are_kept() -> None:
    vocabulary = train(*many_han(), size=200)
    assert vocabulary.tokens == [*SPECIAL_TOKENS, *HAN[:195]]
    assert vocabulary.dropped_characters == 1305
    # 300 characters occur 21 times, 1,200 once; 195 of the frequent ones are kept.
    assert vocabulary.unknown_rate == pytest.approx((105 * 21 + 1200) / (300 * 21 + 1200))


def test_unknown_rate_is_that_of_the_tokenizer() -> None:
    draw = random.Random(5)
    lines = ["".join(draw.choices("abcdefghijklmnop 中文字 ", range(1, 22), k=60)) for _ in range(50)] + ["y" * 101]
    vocabulary = train(*lines, size=20)
    tokenizer = BertTokenizer.from_tokens(vocabulary.tokens, lowercase=True)
    ids = [i for row in tokenizer.encode(lines) for i in row]
    assert 0 < vocabulary.unknown_rate < 1
    assert vocabulary.unknown_rate == ids.count(tokenizer.unk_token_id) / len(ids)
    assert len(vocabulary.tokens) == 20


def test_a_word_of_more_than_100_characters_is_unknown_and_teaches_no_merges() -> None:
    vocabulary = train(*["ab " + "cd" * 51] * 2)
    assert vocabulary.tokens[5:] == ["c", "d", "##d", "##c", "a", "b", "##b", "ab"]
    assert vocabulary.unknown_rate == 2 / (2 + 2)


def test_merges_come_by_falling_count() -> None:
    text = [f"{word} " * count for word, count in [("ab", 1500), ("a", 5000), ("xy", 2500)]]
    assert train(*text).tokens[5:] == ["a", "x", "y", "##y", "b", "##b", "xy", "ab"]


def test_merges_fill_the_size_and_no_more() -> None:
    text = ["low lower lowest new newer newest wide wider widest slow slower"] * 5
    assert len(train(*text, size=40).tokens) == 40
    full = train(*text, size=10_000)
    assert {"lower", "widest"} <= set(full.tokens)
    assert len(full.tokens) < 120, "a corpus that cannot fill the size gives a smaller vocabulary"
    assert len(set(full.tokens)) == len(full.tokens)


def test_alphabet_comes_by_falling_count_with_ties_by_text() -> None:
    vocabulary = train("c b b a a", size=100)
    assert vocabulary.tokens[5:] == ["a", "b", "c"]
    assert train("ab ba 中 中 中", size=100).tokens[5:] == ["中", "a", "b", "##a", "##b"]


def test_a_continuation_is_never_kept_without_its_character() -> None:
    text = "xa xa xa xb xb yb zc c"
    for size in range(16, 20):
        tokens = train(text * 1, *[chr(0x4E00 + i) * 2 for i in range(20)], size=size).tokens
        assert all(token[2:] in tokens for token in tokens if token.startswith("##"))
        assert len(tokens) == size


def test_words_with_a_dropped_character_teach_no_merges() -> None:
    lines = ["q".join(["ab"] * 2) + " " + "cd " * 3] * 2 + ["".join(HAN[:4]) * 100]
    frequent = [*HAN[:4], "c", "##d", "d"]
    tokens = train(*lines, *["abcd abcd"] * 30, size=24).tokens
    assert set(frequent) <= set(tokens)
    assert not any("q" in token and len(token.lstrip("#")) > 1 for token in train(*lines, size=16).tokens)


def test_invisible_characters_never_enter_the_vocabulary() -> None:
    vocabulary = train("wa\u200bter so\u00adft\ufeff", "\u200b", "\u2060\u200d", "water soft")
    assert not [token for token in vocabulary.tokens if any(c in token for c in "\u200b\u200d\u00ad\u2060\ufeff")]
    assert {"water", "soft"} <= set(vocabulary.tokens)


def test_blanks_between_chinese_words_change_nothing() -> None:
    spaced = train("她 喜欢 早晨 的 咖啡 ！", "早晨 好")
    plain = train("她喜欢早晨的咖啡！", "早晨好")
    assert spaced == plain
    assert not any(token.startswith("##") for token in plain.tokens)


def test_han_beside_letters_is_never_a_continuation() -> None:
    tokens = train("iPhone手机x光abc豈丽a𠀀b " * 3, size=500).tokens
    assert "手" in tokens
    assert "𠀀" in tokens
    assert not [t for t in tokens if t.startswith("##") and any(ord(c) >= 0x3400 for c in t)]


def test_accents_are_kept_or_dropped_as_set() -> None:
    assert "é" not in train("café").tokens
    assert "##é" in train("café", strip_accents=False).tokens
    assert "##É" in train("CAFÉ", lowercase=False).tokens


def test_size_too_small_is_the_users_error() -> None:
    with pytest.raises(UserError, match="a vocabulary of 15 tokens is too small"):
        train("text", size=15)


@pytest.mark.parametrize("lines", [[], ["", " "], ["\u200b\u3000"]])
def test_corpus_without_text_is_the_users_error(lines: list[str]) -> None:
    with pytest.raises(UserError, match="no text"):
        train(*lines)


def test_the_corpus_is_read_once_as_a_stream_and_progress_counts_its_characters() -> None:
    calls, seen = [], []

    def lines() -> object:
        calls.append(1)
        return (f"line {i} of a long corpus" for i in range(10_000))

    train_vocabulary(lines, size=100, lowercase=True, progress=seen.append)  # type: ignore[arg-type]
    assert calls == [1]
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == sum(len(f"line {i} of a long corpus") for i in range(10_000))


TRAIN = """
import random, sys
from minibert.tokenization.vocabulary import train_vocabulary
draw = random.Random(1)
syllables = ["lo", "we", "st", "ne", "wi", "de", "r", "ka", "mi", "tu", "中", "é"]
lines = ["low lower lowest new newer wide wider"] * 5
lines += [" ".join("".join(draw.choices(syllables, k=draw.randint(1, 5))) for _ in range(9)) for _ in range(150)]
sys.stdout.buffer.write("\\n".join(train_vocabulary(lambda: lines, size=300, lowercase=True).tokens).encode())
"""


def test_the_same_bytes_whatever_the_hash_seed_and_the_threads() -> None:
    results = []
    for seed, threads, parallel in [("0", "1", "false"), ("1", "2", "true"), ("77", "2", "true"), ("3", "1", "true")]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", str(REPOSITORY))]),
            "PYTHONHASHSEED": seed,
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": parallel,
        }
        results.append(subprocess.run([sys.executable, "-c", TRAIN], env=environment, check=True, capture_output=True))
    assert len({result.stdout for result in results}) == 1
    assert len(results[0].stdout.split(b"\n")) == 300


def test_equal_counts_give_the_same_order_many_times_over() -> None:
    """Without the alphabet handed to the trainer the order differs in nearly every run."""
    draw = random.Random(2)
    lines = [" ".join("".join(draw.choices("abcd", k=draw.randint(2, 14))) for _ in range(8)) for _ in range(12)]
    assert len({tuple(train(*lines, size=150).tokens) for _ in range(8)}) == 1
