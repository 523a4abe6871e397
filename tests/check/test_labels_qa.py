"""Questions: each planted fault is found by its kind, and nothing else is doubtful."""

import json

import pytest

ANSWER = "answers"


def answer(record, text, start):
    """The record with another answer."""
    return {**record, ANSWER: [{"text": text, "answer_start": start}]}


@pytest.mark.parametrize("move", [3, -2, 400], ids=["behind", "before", "outside"])
def test_answers_that_are_not_at_their_place_are_found(good, move):
    train = good.questions(120, 1)
    for record in train[5:8]:
        record[ANSWER][0]["answer_start"] += move
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == {"misplaced answers"}
    assert len(good.one(checked, "misplaced answers").where) == 3


def test_an_answer_that_the_context_does_not_hold_is_found(good):
    train = good.questions(120, 1)
    train[5] = answer(train[5], "never said", 3)
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == {"misplaced answers"}
    assert "1 of them cannot be learnt" in good.one(checked, "misplaced answers").message.en


def test_a_later_answer_that_is_misplaced_is_found(good):
    train = good.questions(120, 1)
    text = train[5][ANSWER][0]["text"]
    train[5][ANSWER].append({"text": text, "answer_start": 1})
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == {"misplaced answers"}
    assert "is not at 1" in good.one(checked, "misplaced answers").where[0]


@pytest.mark.parametrize("kind", ["blank answers", "blank questions", "blank contexts"])
def test_blanks_are_found(good, kind):
    train = good.questions(120, 1)
    if kind == "blank answers":
        train[6][ANSWER].append({"text": " ", "answer_start": 0})
    elif kind == "blank questions":
        train[6]["question"] = "  "
    else:
        train[6] |= {"context": " ", ANSWER: []}
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == {kind}
    assert good.one(checked, kind).where == ("train.jsonl, question '1-6'",)


@pytest.mark.parametrize("kind", ["a blank", "a comma"])
def test_answers_with_loose_ends_are_found(good, kind):
    train = good.questions(120, 1)
    for i in range(0, 40, 4):
        text, start = train[i][ANSWER][0].values()
        context = train[i]["context"]
        if kind == "a comma":
            context = context[: start + len(text)] + "," + context[start + len(text) :]
        for record in train[i : i + 4]:
            record["context"] = context
        for record in train[i + 1 : i + 4]:
            record[ANSWER][0]["answer_start"] += kind == "a comma"
        train[i] = answer(train[i], context[start : start + len(text) + 1], start)
    assert good.doubts(good.look("qa", train=train)) == {"loose edges"}


def test_answers_of_cut_words_are_found(good):
    train = good.questions(120, 1)
    for i in range(0, 40, 4):
        text, start = train[i][ANSWER][0].values()
        train[i] = answer(train[i], text[1:], start + 1)
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == {"cut words"}


def test_answers_inside_chinese_are_no_cut_words(good):
    record = {"question": "谁住在上海？", "context": "小明住在北京，他的妹妹小红住在上海，她喜欢画马。", ANSWER: []}
    train = [answer({**record, "id": str(i), "question": f"{i}{record['question']}"}, "小红", 11) for i in range(4)]
    assert "cut words" not in good.doubts(good.look("qa", train=train))


def test_ids_that_stand_twice_are_found(good):
    dev = good.questions(120, 2)
    dev[7]["id"] = dev[3]["id"]
    checked = good.look("qa", train=good.questions(120, 1), dev=dev)
    assert good.doubts(checked) == {"duplicate ids"}
    assert len(good.one(checked, "duplicate ids").where) == 1  # a question's place is its id


@pytest.mark.parametrize("kind", ["contradictions", "copies"])
def test_questions_that_are_asked_twice_are_found(good, kind):
    train = good.questions(120, 1)
    for i in range(0, 40, 4):
        train[i + 1]["question"] = train[i]["question"].upper()
        if kind == "copies":
            train[i + 1][ANSWER] = train[i][ANSWER]
    assert good.doubts(good.look("qa", train=train)) == {kind}


def test_answers_that_share_nothing_are_found(good):
    train = good.questions(120, 1)
    for i in range(0, 40, 4):
        train[i][ANSWER].append(train[i + 1][ANSWER][0])
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == {"answers apart"}


def test_answers_that_say_the_same_are_none(good):
    train = good.questions(120, 1)
    for record in train:
        text, start = record[ANSWER][0].values()
        record[ANSWER].append({"text": text.split()[0], "answer_start": start})
    assert good.look("qa", train=train).findings == []


def test_answers_that_are_too_long_to_be_predicted_are_found(good, letters):
    settings = {"max_length": 384, "max_answer_length": 4}
    assert good.doubts(good.look("qa", letters, settings=settings, train=good.questions(120, 1))) == {"long answers"}


def test_answers_that_no_window_holds_are_found(good, letters):
    train = good.questions(120, 1)
    for i in range(0, 40, 4):
        train[i] = answer(train[i], train[i]["context"][:150].rsplit(" ", 1)[0], 0)
    settings = {"max_length": 64, "stride": 8, "max_answer_length": 400, "max_question_length": 20}
    checked = good.look("qa", letters, settings=settings, train=train)
    assert good.doubts(checked) == {"answers in no window"}
    assert checked.facts["files"]["train"]["lost_answers"] >= 10


def test_unanswerable_questions_are_counted(good):
    train = good.questions(120, 1)
    for record in train[::3]:
        record[ANSWER] = []
    checked = good.look("qa", train=train)
    assert good.doubts(checked) == set()
    assert "40 of 120" in good.one(checked, "unanswerable questions").message.en
    for record in train[4:]:
        record[ANSWER] = []
    assert good.doubts(good.look("qa", train=train)) == {"unanswerable questions"}


def test_a_file_of_which_nothing_is_learnt_is_found(good):
    train = [{**record, ANSWER: []} for record in good.questions(20, 1)]
    checked = good.look("qa", settings={"unanswerable": "no"}, train=train)
    assert good.doubts(checked) == {"unreadable", "unanswerable questions"}
    assert "none of the records of train can be learnt" in good.one(checked, "unreadable").message.en
    assert "20 of 20" in good.one(checked, "unanswerable questions").message.en


def test_questions_that_stand_in_their_context_are_found(good):
    train = good.questions(120, 1)
    for i in range(0, 40, 4):
        for record in train[i : i + 4]:
            record["context"] += f" {train[i]['question']}"
    assert good.doubts(good.look("qa", train=train)) == {"questions in their context"}


@pytest.mark.parametrize("nearly", [False, True], ids=["the same", "nearly"])
def test_contexts_of_train_in_dev_are_found(good, nearly):
    train, dev = good.questions(120, 1), good.questions(120, 2)
    for i in range(16):
        dev[i] = {**train[i], "id": f"x{i}", "question": dev[i]["question"]}
        if nearly:
            dev[i]["context"] += " end"
    checked = good.look("qa", train=train, dev=dev)
    assert good.doubts(checked) == {"near leakage" if nearly else "leakage"}
    assert checked.facts["leakage"]["train-dev"] == {"same": 4 * (not nearly), "nearly": 4 * nearly}


def test_all_questions_that_stop_training_are_found(good, tmp_path):
    paragraphs = [{"context": "a b c", "qas": [{"id": str(i), "question": f"q{i}?", ANSWER: []}]} for i in range(9)]
    paragraphs[2]["qas"][0]["question"] = 5
    paragraphs[4]["qas"][0].pop("id")
    paragraphs[6].pop("context")
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [p]} for p in paragraphs]}), "utf-8")
    checked = good.look("qa", train=path)
    found = [finding for finding in checked.findings if finding.kind == "unreadable"]
    assert [finding.where[0].split(": ")[1].split(",")[0] for finding in found] == [
        "article 3",
        "article 5",
        "article 7",
    ]
    assert checked.facts["files"]["train"]["records"] == 6


# ---- the shared cases


def test_case_g01_answers_that_are_not_at_their_place(good, case):
    folder, _ = case("G01")
    message = good.one(good.look("qa", train=folder / "train.json"), "misplaced answers").message.en
    assert "2 of 3 questions" in message
    assert "1 of them cannot be learnt" in message


def test_case_g03_an_answer_that_no_window_holds(good, case):
    from minibert.tokenization.tokenizer import BertTokenizer

    folder, _ = case("G03")
    tokenizer = BertTokenizer.from_pretrained(folder / "vocab.txt")
    settings = {"max_length": 20, "stride": 5}
    checked = good.look("qa", tokenizer, settings=settings, train=folder / "train.json")
    assert good.one(checked, "answers in no window").where == ("train.json, question '2'",)


def test_case_g04_questions_without_answer(good, case):
    folder, _ = case("G04")
    checked = good.look("qa", train=folder / "mixed.json")
    assert "3 of 4" in good.one(checked, "unanswerable questions").message.en
    assert "no 'answers'" in good.one(good.look("qa", train=folder / "predict.json"), "unreadable").message.en
    checked = good.look("qa", settings={"unanswerable": "no"}, train=folder / "mixed.json")
    assert "unanswerable questions" in good.doubts(checked)
    assert "misplaced answers" not in good.doubts(checked)
    finding = good.one(checked, "unanswerable questions")
    assert "3 of 4" in finding.message.en
    assert finding.where == tuple(f"mixed.json, question '{number}'" for number in (2, 3, 4))


def test_case_g07_blanks_round_a_context_are_kept(good, case):
    folder, _ = case("G07")
    assert good.doubts(good.look("qa", train=folder / "train.json")) == {"little to learn from"}


def test_case_g10_an_empty_gold(good, case):
    folder, _ = case("G10")
    checked = good.look("qa", train=folder / "gold.json")
    assert checked.facts["files"]["train"]["unanswerable"] == 2
    assert "they are learnt where they are found" in good.one(checked, "misplaced answers").message.en
