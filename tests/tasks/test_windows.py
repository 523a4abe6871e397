"""Questions to rows: windows and targets, by hand and as transformers has them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.errors import UserError
from minibert.tasks.data import read_parts
from minibert.tasks.qa import Qa, QaConfig
from minibert.tasks.squad_files import QaExample
from minibert.tasks.windows import cut_windows, tokens_of, with_marks
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

WORDS = [f"w{i}" for i in range(40)]
TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, "q", *WORDS], lowercase=True)


def example(first, last, id="1", question="q q", words=WORDS):
    context = " ".join(words)
    start = context.index(words[first])
    answer = " ".join(words[first : last + 1])
    return QaExample(id, question, context, (answer,), (start, start + len(answer)))


def encode(*examples, gold=True, **changes):
    config = {"max_length": 20, "stride": 5, **changes}
    return Qa(QaConfig(**config)).encode(examples, TOKENIZER, gold=gold)


def test_windows_and_targets_by_hand():
    encoded = encode(example(13, 16))
    shown = [TOKENIZER.convert_ids_to_tokens(feature.ids) for feature in encoded.features]
    assert shown == [
        ["[CLS]", "q", "q", "[SEP]", *WORDS[first:last], "[SEP]"]
        for first, last in [(0, 15), (10, 25), (20, 35), (30, 40)]
    ]  # fmt: skip
    assert [feature.target for feature in encoded.features] == [(0, 0), (7, 10), (0, 0), (0, 0)]
    assert [feature.second for feature in encoded.features] == [4] * 4
    assert encoded.notes == ["windows of up to 15 tokens, overlap 5: a step of 10; questions with more than one: 1"]
    assert {feature.ids.dtype for feature in encoded.features} == {np.dtype("int32")}
    assert len({id(feature.extra.offsets) for feature in encoded.features}) == 1


def test_an_answer_that_is_whole_in_no_window_is_reported_and_not_learnt_as_none():
    encoded = encode(example(13, 16), example(12, 25, id="q2"))
    assert [feature.target for feature in encoded.features[4:]] == [(-1, -1)] * 4
    (note,) = encoded.notes[1:]
    assert note.startswith(
        "answers that are whole in no window, whose questions are not in the loss: 1 ('q2'); a larger"
    )


def test_questions_without_an_answer_point_at_cls():
    assert {f.target for f in encode(QaExample("1", "q", " ".join(WORDS), ())).features} == {(0, 0)}


def test_an_answer_without_a_place_counts_for_nothing():
    lost = QaExample("1", "q", "w1 w2 \u200b", ("w9",), None)
    without_tokens = QaExample("2", "q", "w1 w2 \u200b", ("\u200b",), (6, 7))
    encoded = encode(lost, without_tokens)
    assert [feature.target for feature in encoded.features] == [(-1, -1)] * 2
    assert "answers without a place in the context, whose questions are not in the loss: 2" in encoded.notes


def test_without_gold_there_are_no_targets():
    features = encode(QaExample("1", "q", "w1"), QaExample("2", "q", ""), gold=False).features
    assert [feature.target for feature in features] == [None, None]
    assert TOKENIZER.convert_ids_to_tokens(features[1].ids) == ["[CLS]", "q", "[SEP]", "[SEP]"]
    assert features[1].extra.length == 0


def test_features_count_their_examples_from_first():
    examples = [QaExample("1", "q", "w1"), QaExample("2", "q", " ".join(WORDS))]
    encoded = Qa(QaConfig(max_length=20, stride=5)).encode(examples, TOKENIZER, gold=False, first=7)
    assert [feature.example for feature in encoded.features] == [7, 8, 8, 8, 8]


def test_what_is_said_of_odd_questions():
    encoded = encode(
        example(1, 3, question="q " * 9),
        QaExample("2", "q", "w12", ("w1",), (0, 2)),
        max_question_length=8, max_length=64, max_answer_length=2,
    )  # fmt: skip
    assert encoded.features[0].second == 10
    assert encoded.notes == [
        "every context fits into one window of up to 60 tokens",
        "questions of more than 8 tokens, cut there: 1",
        "answers that begin or end inside a token, all of which is learnt: 1",
        "answers of more than 2 tokens, the most that is predicted: 1",
    ]
    assert encode(QaExample("1", "q", "w1", None), gold=False, stride=99).notes == [
        "every context fits into one window of up to 16 tokens; a longer one would need a --stride below 16"
    ]
    assert encode().notes == []


def test_windows_that_would_not_move_on_are_refused():
    with pytest.raises(UserError, match=r"question '1': stride \(15\).*max_length \(20\).*\(15 tokens\)"):
        encode(example(1, 2), stride=15)
    assert len(encode(example(1, 2), stride=14).features) == 26
    with pytest.raises(UserError, match=r"max_length \(8\) leaves no room .* a question of 5 tokens"):
        encode(example(1, 2, question="q " * 5), max_length=8)


def test_blanks_round_a_question_do_not_count():
    plain, padded = QaExample("1", "q q", "w1"), QaExample("2", " " * 300 + "q q  ", "w1")
    one, other = encode(plain, padded, gold=False).features
    assert one.ids.tolist() == other.ids.tolist()


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_cut_windows_cover_everything_in_steps(num_tokens, room, data):
    overlap = data.draw(st.integers(0, room - 1))
    windows = cut_windows(num_tokens, room, overlap)
    assert [first for first, _ in windows] == [i * (room - overlap) for i in range(len(windows))]
    assert all(length == room for _, length in windows[:-1])
    assert sum(windows[-1]) == num_tokens
    assert all(first + room < num_tokens for first, _ in windows[:-1])


def test_an_overlap_as_long_as_the_window_is_a_bug():
    with pytest.raises(ValueError, match="an overlap of 5 in windows of 5"):
        cut_windows(9, 5, 5)


def test_tokens_of_blanks_and_parts():
    offsets = np.array([(0, 2), (3, 6), (6, 9)], np.int32)
    assert tokens_of(offsets, 2, 6) == (1, 1)
    assert tokens_of(offsets, 1, 7) == (0, 2)
    assert tokens_of(offsets, 2, 3) is None
    assert tokens_of(offsets[:0], 0, 3) is None


def test_marks_after_a_token_belong_to_it():
    context = "Zoe\u0308 कि x"
    tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, "zoe", "क", "x"], lowercase=True)
    _, offsets = tokenizer.encode_with_offsets([context])[0]
    cut = [context[start:end] for start, end in with_marks(context, offsets)]
    assert cut == ["Zoe\u0308", "कि", "x"]
    assert with_marks("", []).shape == (0, 2)
    assert with_marks("e\u0308", [(0, 1), (1, 2)]).tolist() == [[0, 1], [1, 2]]


ODD = [
    "Paris",
    "İstanbul",
    "straße",
    "Zoë",
    "Zoe\u0308",
    "𠀀𠀁",
    "👨\u200d👩\u200d👧",
    "é",
    "한국",
    "北京",
    "ﬁn",
    "ا\u0650",
    "x\u0301y",
]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(ODD), min_size=1, max_size=30),
    st.sampled_from([" ", "  ", "\r\n", "\u3000", ", "]),
    st.data(),
)
def test_targets_cut_the_answer_from_the_context(words, blank, data):
    """Answers that begin and end at words: lower-casing, accents and characters of two units shift nothing."""
    lowercase = data.draw(st.booleans())
    letters = sorted({c for w in ODD for c in w + w.lower()} | {","})
    pieces = [*letters, *[f"##{letter}" for letter in letters]]
    tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, "q", *pieces], lowercase=lowercase)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 3, len(words) - 1)))
    context = blank + blank.join(words) + blank
    start = len(blank.join(["", *words[:first], ""]))
    answer = blank.join(words[first : last + 1])
    assert context[start : start + len(answer)] == answer
    question = QaExample("1", "q", context, (answer,), (start, start + len(answer)))
    encoded = Qa(QaConfig(max_length=54, stride=42)).encode([question], tokenizer, gold=True)
    labelled = [feature for feature in encoded.features if feature.target[0] > 0]
    assert labelled
    for feature in labelled:
        window = feature.extra
        a, b = (place - feature.second + window.first for place in feature.target)
        assert context[window.offsets[a, 0] : window.offsets[b, 1]] == answer


@pytest.mark.parametrize(("language", "vocabulary"), [("en", "uncased_en"), ("zh", "zh")])
def test_rows_are_those_of_transformers(shared, tmp_path, language, vocabulary):
    from transformers import AutoTokenizer

    tokenizer = BertTokenizer.from_pretrained(shared / "data" / "vocab" / f"{vocabulary}.txt")
    tokenizer.save_pretrained(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    task = Qa(QaConfig(max_length=96, stride=24))
    examples = task.read(shared / "data" / "xquad" / f"xquad.{language}.json", gold=True, train=True).examples[::20]
    features = iter(task.encode(examples, tokenizer, gold=True).features)
    for i, example in enumerate(examples):
        rows = theirs(
            example.question, example.context, truncation="only_second", max_length=96, stride=24,
            return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        for ids, types, offsets in zip(rows["input_ids"], rows["token_type_ids"], rows["offset_mapping"], strict=True):
            feature = next(features)
            window, second = feature.extra, feature.second
            assert (feature.ids.tolist(), feature.example, second) == (ids, i, types.index(1))
            assert window.offsets[window.first : window.first + window.length].tolist() == [
                list(o) for o in offsets[second:-1]
            ]
            assert feature.target == their_target(offsets, second, *example.span)
    assert next(features, None) is None


def their_target(offsets, second, start, end):
    """The labels of transformers' run_qa."""
    first, last = second, len(offsets) - 2
    if not (offsets[first][0] <= start and offsets[last][1] >= end):
        return 0, 0
    while first <= len(offsets) - 2 and offsets[first][0] <= start:  # theirs runs on over [SEP]
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def test_the_shared_case_of_cut_answers(shared):
    folder = shared / "cases" / "G03"
    task = Qa(QaConfig(max_length=20, stride=5))
    examples = task.read(folder / "train.json", gold=True, train=True).examples
    encoded = task.encode(examples, BertTokenizer.from_pretrained(folder / "vocab.txt"), gold=True)
    starts, ends = zip(*[feature.target for feature in encoded.features[:4]], strict=True)
    assert (starts, ends) == ((0, 7, 0, 0), (0, 10, 0, 0))
    assert [feature.target for feature in encoded.features[4:]] == [(-1, -1)] * 4
    assert json.dumps(encoded.notes).count("'2'") == 1


def test_questions_that_are_not_in_the_loss_are_listed(tmp_path):
    context = " ".join(WORDS)
    answers = {"q1": " ".join(WORDS[13:17]), "q2": " ".join(WORDS[12:26])}
    questions = [{"id": name, "question": "q q", "answers": [text]} for name, text in answers.items()]
    content = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    path = tmp_path / "train.json"
    path.write_text(json.dumps(content), "utf-8")
    _, parts = read_parts(Qa(QaConfig(max_length=20, stride=5)), {"train": path, "dev": path}, TOKENIZER)
    (skipped,) = parts["train"].reading.skipped
    assert skipped["where"] == "train.json, question 'q2'"
    assert "whole in no window" in skipped["reason"]
    assert parts["dev"].reading.skipped == []  # it is measured all the same
