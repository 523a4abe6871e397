"""Files of questions: every layout, and every way in which one can be wrong."""

import bz2
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibert.errors import UserError
from minibert.tasks.qa import Qa, QaConfig
from minibert.tasks.squad_files import Answer, locate

CONTEXT = "The Pure Land school was founded in Kyoto in 1175."


def written(folder, content, name="q.json"):
    path = folder / name
    data = content if isinstance(content, str | bytes) else json.dumps(content, ensure_ascii=False)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def squad(*questions, context=CONTEXT):
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def question(id="1", answers=(), **more):
    return {"id": id, "question": "Where?", "answers": list(answers), **more}


def answer(text, start):
    return {"text": text, "answer_start": start}


KYOTO = answer("Kyoto", 36)


def read(path, gold=True, train=False, **settings):
    return Qa(QaConfig(**settings)).read(path, gold=gold, train=train)


def refused(path, **options):
    with pytest.raises(UserError) as caught:
        read(path, **options)
    return str(caught.value)


# layouts


FLAT = {"id": "1", "question": "Where?", "context": CONTEXT, "answers": [KYOTO]}
LISTS = {**FLAT, "answers": {"text": ["Kyoto"], "answer_start": [36]}}
TEXTS = {**FLAT, "answers": ["Kyoto"]}
CMRC = {
    "context_id": "C", "context_text": CONTEXT, "title": "t",
    "qas": [{"query_text": "Where?", "query_id": "1", "answers": ["Kyoto", "Kyoto"]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.json", squad(question(answers=[KYOTO]))),
        ("q.json", squad(question(answers=[KYOTO]))["data"]),
        ("q.json", {"version": "v2.0", "data": [FLAT]}),
        ("q.json", [FLAT]),
        ("q.json", [CMRC]),
        ("q.json", json.dumps(FLAT) + "\n"),
        ("q", json.dumps(FLAT)),
        ("q", json.dumps(squad(question(answers=[KYOTO])), indent=1)),
        ("q.jsonl", FLAT),
        ("q.ndjson", LISTS),
        ("q.jsonl", TEXTS),
        ("q.jsonl", "\n" + json.dumps(FLAT) + "\r\n \r\n"),
        ("q.jsonl", b"\xef\xbb\xbf" + json.dumps(FLAT).encode()),
        ("q.json", b"\xef\xbb\xbf" + json.dumps(squad(question(answers=[KYOTO]))).encode()),
        ("q.json.bz2", bz2.compress(json.dumps(squad(question(answers=[KYOTO]))).encode())),
    ],
)
def test_every_layout_gives_the_same_question(tmp_path, name, content):
    (example,) = read(written(tmp_path, content, name), train=True).examples
    assert (example.id, example.question, example.context) == ("1", "Where?", CONTEXT)
    assert set(example.texts) == {"Kyoto"}
    assert example.span == (36, 41)


def test_other_encodings(tmp_path):
    path = written(
        tmp_path, json.dumps({**FLAT, "context": "在京都。"}, ensure_ascii=False).encode("gb18030"), "q.jsonl"
    )
    assert read(path, gold=False, encoding="gb18030").examples[0].context == "在京都。"
    assert "gb18030" in refused(path)


def test_the_context_is_verbatim(tmp_path):
    content = squad(question(answers=[answer("Paris", 5)]), context="  \r\n Paris is big.  ")
    reading = read(written(tmp_path, content), train=True)
    assert reading.examples[0].context == "  \r\n Paris is big.  "
    assert (reading.examples[0].span, reading.skipped, reading.repaired) == ((5, 10), [], [])


def test_jsonl_records_without_an_id_have_their_number(tmp_path):
    lines = [{**FLAT, "id": None}, {key: value for key, value in FLAT.items() if key != "id"}, {**FLAT, "id": 7}]
    path = written(tmp_path, "\n\n".join(map(json.dumps, lines)), "q.jsonl")
    assert [example.id for example in read(path).examples] == [1, 2, 7]


# gold


def test_misplaced_answers_are_repaired_or_skipped_in_training(tmp_path):
    path = written(
        tmp_path,
        squad(
            question("1", [KYOTO]),
            question("2", [answer("Pure Land", 5)]),
            question("3", [answer("kyoto temple", 36)]),
            question("4", [answer("in", 0)]),
            question("5", [answer("Osaka", 3), KYOTO]),
            question("6", [answer("Kyoto", -14)]),
        ),
    )
    reading = read(path, train=True)
    spans = {example.id: example.context[slice(*example.span)] for example in reading.examples}
    assert spans == {"1": "Kyoto", "2": "Pure Land", "5": "Kyoto", "6": "Kyoto"}
    assert [(one["where"], one["reason"]) for one in reading.repaired] == [
        ("q.json, question '2'", "its answer 'Pure Land' begins at 4, not at 5"),
        (
            "q.json, question '5'",
            "its answer 'Osaka' is not in the context, and not at 3; another of its answers is learnt",
        ),
        ("q.json, question '6'", "its answer 'Kyoto' begins at 36, not at -14"),
    ]
    assert [(one["where"], one["reason"]) for one in reading.skipped] == [
        ("q.json, question '3'", "its answer 'kyoto temple' is not in the context, and not at 36"),
        ("q.json, question '4'", "its answer 'in' occurs 2 times in the context, and not at 0"),
    ]
    kept = read(path)
    assert [example.id for example in kept.examples] == list("123456")
    assert (kept.skipped, kept.repaired) == ([], [])
    assert kept.examples[2].texts == ("kyoto temple",)


def test_a_file_with_nothing_to_learn(tmp_path):
    path = written(tmp_path, squad(question(answers=[answer("Osaka", 3)])))
    assert "none of its questions can be learnt (1 in all); of the first: its answer 'Osaka'" in refused(
        path, train=True
    )


@given(st.text("ab", min_size=1, max_size=8), st.text("ab", min_size=1, max_size=3), st.integers(-1, 9))
def test_what_is_located_is_the_answer(context, text, start):
    places = [i for i in range(len(context)) if context[i : i + len(text)] == text]
    span, trouble = locate(context, [Answer(text, start)])
    expected = start if start in places else places[0] if len(places) == 1 else None
    assert span == (None if expected is None else (expected, expected + len(text)))
    assert bool(trouble) is (start not in places)


def test_unanswerable_questions(tmp_path):
    path = written(
        tmp_path,
        squad(
            question("1", [KYOTO], is_impossible=False),
            question("2", is_impossible=True),
            question("3"),
            {"id": "4", "question": "Why?", "is_impossible": True, "plausible_answers": [answer("school", 14)]},
            {"id": "5", "question": "Why?", "plausible_answers": [answer("school", 14)]},
            question("6", [KYOTO], is_impossible=True),
            question("7", [answer(" ", 3)]),
            question("8", is_impossible=False),
        ),
    )
    for train in (True, False):
        reading = read(path, train=train)
        assert [example.texts for example in reading.examples] == [("Kyoto",), *[()] * 7]
        assert (reading.skipped, reading.repaired) == ([], [])
        assert set(reading.notes) == {
            "questions marked is_impossible that have answers, taken for unanswerable: 1",
            "questions with a blank answer, which does not count: 1",
            "questions marked as possible that have no answer, taken for unanswerable: 1",
        }
    skipped = read(path, train=True, unanswerable="no").skipped
    assert [one["reason"] for one in skipped] == ["it has no answer, and unanswerable is 'no'"] * 7
    kept = read(path, unanswerable="no")
    assert len(kept.examples) == 8
    assert "questions without an answer, which this model will not say: 7" in kept.notes


def test_prediction_needs_no_answers_and_looks_at_none(tmp_path):
    path = written(tmp_path, squad({"id": "1", "question": "Where?"}, question("2", ["nonsense", 3])))
    assert [example.texts for example in read(path, gold=False).examples] == [None, None]
    assert "article 1, paragraph 1, question '1': no 'answers'" in refused(path)


def test_blank_questions_and_contexts_are_counted(tmp_path):
    lines = [{**FLAT, "question": " "}, {**FLAT, "id": "2", "context": ""}]
    notes = read(written(tmp_path, "\n".join(map(json.dumps, lines)), "q.jsonl"), gold=False).notes
    assert notes == ["blank questions: 1", "questions with a blank context, where nothing can be found: 1"]


# what is wrong


def flat(**changes):
    return {**FLAT, **changes}


PLACE = ": article 1, paragraph 1, question "


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.json", "", "q.json: is empty"),
        ("q.jsonl", "\n", "q.jsonl: holds no questions"),
        ("q.json", {"data": []}, "q.json: holds no questions"),
        ("q.json", '{"data":\n [}', "q.json:2:3: not JSON: Expecting value"),
        ("q.jsonl", json.dumps(FLAT) + "\n{", "q.jsonl:2:2: not JSON"),
        ("q.json", "[" * 100_000, "q.json: JSON that is nested too deep"),
        ("q.json", "[" + "1" * 5000 + "]", "q.json: not JSON that can be read"),
        ("q.json", "3", "is no file of questions: 3"),
        ("q.json", {"questions": []}, "is no file of questions: an object with 'questions'"),
        ("q.json", [3], "article 1: is 3, not an object"),
        ("q.json", [{"title": "t"}], "article 1: no 'paragraphs'; there are 'title'"),
        ("q.json", [{"paragraphs": {}}], "article 1: 'paragraphs' is a JSON object of 0, not a list"),
        ("q.json", [{"paragraphs": [{"context": "c"}]}], "article 1, paragraph 1: no 'qas'; there are 'context'"),
        ("q.json", [{"paragraphs": [{"qas": []}]}], "article 1, paragraph 1: no 'context'; there are 'qas'"),
        ("q.json", squad("who?"), "article 1, paragraph 1: question 1 is 'who?', not an object"),
        ("q.json", squad(question(None, [KYOTO])), f"{PLACE}1: the question has no 'id'"),
        ("q.json", squad(question(True, [KYOTO])), f"{PLACE}true: 'id' is true"),
        ("q.json", squad({"id": "x", "answers": []}), f"{PLACE}'x': no 'question'; there are 'id', 'answers'"),
        ("q.json", squad(question(answers=[3])), f"{PLACE}'1': an answer is 3"),
        ("q.json", squad(question(answers=[{"answer_start": 3}])), f"{PLACE}'1': no 'text'"),
        ("q.json", squad(question(answers=[answer(3, 3)])), f"{PLACE}'1': 'text' is 3, not a string"),
        ("q.json", squad(question(answers=[answer("a", "3")])), "'answer_start' is '3', no whole number"),
        ("q.json", squad(question(answers=[answer("a", True)])), "'answer_start' is true, no whole number"),
        ("q.json", squad({"id": "1", "question": "?", "answers": "a"}), "'answers' is 'a'"),
        ("q.json", squad(question(is_impossible="no")), "'is_impossible' is 'no'"),
        ("q.json", squad(question("1"), question("1")), f"{PLACE}'1': the id '1' is that of two questions, number 1"),
        ("q.json", '{"data": [], "data": []}', "q.json: not JSON that can be read: the key 'data' stands twice"),
        ("q.jsonl", '{"question": "?", "context": "c", "question": "!"}', "q.jsonl:1: not JSON that can be read"),
        ("q.jsonl", flat(context=3), "q.jsonl:1: 'context' is 3, not a string"),
        ("q.jsonl", [3], "q.jsonl:1: is a JSON list of 1, not an object"),
        ("q.jsonl", flat(answers={"text": "a"}), "q.jsonl:1: 'answers' is a JSON object of 1"),
        ("q.jsonl", {**FLAT, "answers": {"text": ["a"], "answer_start": []}}, "'answer_start' is a JSON list of 0"),
        ("q.jsonl", r'{"question": "\ud800", "context": "c"}', r"'question' holds \ud800: half of a surrogate pair"),
        ("q.jsonl", json.dumps(flat(answers=["\udc00"])), r"'answers' holds \udc00: half"),
        ("q.jsonl", json.dumps(flat(id="\udc00")), r"'id' holds \udc00: half"),
        ("q.json", json.dumps(FLAT).encode("utf-16"), "byte order mark of utf-16"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path, name, content, message):
    assert message in refused(written(tmp_path, content, name))


def test_questions_without_answers_alone_are_learnt_only_where_that_is_said(tmp_path):
    path = written(tmp_path, squad(question("1", [])))
    error = refused(path, train=True, unanswerable="no")
    assert "none of its questions can be learnt (1 in all)" in str(error)
    assert "--unanswerable yes" in str(error)
    assert len(read(path, train=True).examples) == 1


def test_ids_may_repeat_where_they_are_no_keys(tmp_path):
    twice = squad(question("1", [KYOTO]), question("1", [KYOTO]))
    reading = read(written(tmp_path, twice), train=True)
    assert (len(reading.examples), reading.notes) == (2, ["questions with an id that an earlier one has: 1"])
    lines = written(tmp_path, f"{json.dumps(FLAT)}\n{json.dumps(FLAT)}", "q.jsonl")
    assert read(lines, gold=False).notes == ["questions with an id that an earlier one has: 1"]


def test_an_unknown_format_is_refused(tmp_path):
    assert "'csv' is no format of this task" in refused(written(tmp_path, squad(question())), input_format="csv")


KEYS = "data paragraphs qas context question id answers text answer_start is_impossible context_text query_text".split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("a\ud800 ", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["q.json", "q.jsonl"]), st.booleans(), st.booleans())
def test_any_json_is_read_or_refused(tmp_path_factory, content, name, gold, nested):
    if nested:
        content = {"data": [{"paragraphs": [{"context": "a a", "qas": [content]}]}]}
    path = written(tmp_path_factory.mktemp("q"), json.dumps(content), name)
    try:
        reading = read(path, gold=gold, train=gold)
    except UserError:
        return
    assert all(isinstance(example.question, str) for example in reading.examples)


# the shared cases


def test_shared_cases(shared):
    cases = shared / "cases"
    assert len(read(cases / "A01" / "qa_bom.json").examples) == 1
    reading = read(cases / "G01" / "train.json", train=True)
    assert (len(reading.examples), len(reading.repaired), len(reading.skipped)) == (2, 1, 1)
    mixed = read(cases / "G04" / "mixed.json", train=True)
    assert [example.texts for example in mixed.examples] == [("Rome",), (), (), ()]
    assert len(read(cases / "G04" / "predict.json", gold=False).examples) == 1
    blanks = read(cases / "G07" / "train.json", train=True)
    assert (blanks.examples[0].context[slice(*blanks.examples[0].span)], blanks.skipped) == ("Paris", [])
