"""Labelled data, what holds for every task: good data are silent, each planted fault is found, and nothing else."""

import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minibert.check.findings import Checked
from minibert.check.labelled import add
from minibert.check.labels import check_labels, padding_share, script_shares
from minibert.config import FinetuneConfig
from minibert.errors import UserError
from minibert.tasks import find_tasks
from minibert.tasks.cls import Cls
from minibert.view.page import Both

CHINESE = "今天天气很好我们去公园看花明天下雨就在家里读书写字听音乐做饭洗衣服"


@pytest.mark.parametrize("task", ["cls", "ner", "qa"])
def test_good_data_are_silent(good, letters, task):
    """With a tokenizer and without; what is left are facts."""
    make = {"cls": good.rows, "ner": good.tagged, "qa": good.questions}[task]
    parts = {"train": make(240, 1), "dev": make(120, 2), "test": make(120, 3)}
    for found in (None, letters):
        checked = good.look(task, found, settings={"max_length": 256}, **parts)
        assert checked.findings == []
        assert not checked.doubtful
        assert checked.facts["files"]["train"]["records"] == 240
    json.dumps(checked.facts)
    assert all(section.title.en and section.title.zh for section in checked.sections)


def test_train_alone_is_enough(good):
    assert good.look("cls", train=good.rows(120, 1)).findings == []


def test_a_missing_file_is_a_mistake_of_the_command(tmp_path):
    with pytest.raises(UserError, match="is no file"):
        check_labels("cls", Cls.Config(), train=tmp_path / "none.csv")


def test_an_unknown_format_is_a_mistake_of_the_command(good, tmp_path):
    path = good.write_csv(tmp_path / "a.csv", good.rows(20, 1))
    with pytest.raises(UserError, match="no format"):
        check_labels("cls", Cls.Config(input_format="conll"), train=path)


def test_all_records_that_stop_training_are_found(good, tmp_path):
    """Two kinds, each with its number and its first places; the other records are looked at."""
    lines = [json.dumps({"text": text, "label": label}) for text, label in good.rows(60, 1)]
    lines[3], lines[10], lines[20] = "{", '{"text": 5, "label": "up"}', '{"text": 6, "label": "up"}'
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    checked = good.look("cls", train=path)
    found = [finding for finding in checked.findings if finding.kind == "unreadable"]
    assert [finding.where for finding in found] == [(f"{path}:4",), (f"{path}:11", f"{path}:21")]
    assert "2 records of train stop training: the text is a number" in found[1].message.en
    assert "训练集中有 2 条" in found[1].message.zh
    assert good.doubts(checked) == {"unreadable"}
    assert checked.facts["files"]["train"] | {"records": 57, "faults": 3} == checked.facts["files"]["train"]


def test_a_row_with_another_number_of_cells_is_found_and_the_next_is_read(good, tmp_path):
    path = good.write_csv(tmp_path / "a.csv", [*good.rows(30, 1), ["one", "two", "three"], *good.rows(30, 2)])
    checked = good.look("cls", train=path)
    assert good.one(checked, "unreadable").where == (f"{path}:32",)
    assert checked.facts["files"]["train"]["records"] == 60


def test_a_file_that_cannot_be_decoded_is_a_finding(good, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\n今天天气很好,好\n".encode("gb18030"))
    finding = good.one(good.look("cls", train=path, dev=good.rows(120, 1)), "unreadable")
    assert "gb18030" in finding.fix.en


@pytest.mark.parametrize(
    ("task", "name", "fault"),
    [
        ("cls", "a.csv.gz", "half"), ("cls", "a.jsonl.gz", "half"), ("ner", "a.conll.gz", "half"),
        ("ner", "a.jsonl.gz", "half"), ("qa", "a.jsonl.gz", "half"), ("cls", "a.csv", "quote"),
    ],
    ids=["csv", "jsonl", "conll", "text and entities", "questions", "a quote that is not closed"],
)  # fmt: skip
def test_what_stands_before_a_fault_is_looked_at(good, tmp_path, monkeypatch, task, name, fault):
    """Half an archive, with a copy at the beginning; what was read before its end is looked at."""
    monkeypatch.setattr("minibert.corpus.decoding.BLOCK_BYTES", 1 << 12)
    draw, rows = random.Random(1), good.rows(400, 1)
    rows[1] = rows[0]
    if fault == "quote":
        path = good.write_csv(tmp_path / name, [*rows[:300], ['"', "up"], *rows[300:]])
        path.write_text(path.read_text("utf-8").replace('""""', '"never closed'), "utf-8")
    else:
        lines = [f"{text},{label}" for text, label in rows]
        if task == "ner" and ".conll" in name:
            lines = [f"{word}\t{'B-LOC' if draw.random() < 0.2 else 'O'}" for text, _ in rows for word in text.split()]
            lines = [f"{line}\n" if i % 12 == 0 else line for i, line in enumerate(lines)]
        elif task == "ner":
            lines = [json.dumps({"text": text, "entities": [{"start": 0, "end": text.index(" "), "label": "LOC"}]})
                     for text, _ in rows]  # fmt: skip
        elif task == "qa":
            lines = [json.dumps(record) for record in good.questions(400, 1)]
        elif ".jsonl" in name:
            lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        else:
            lines.insert(0, "text,label")
        packed = gzip.compress("\n".join(lines).encode())
        path = tmp_path / name
        path.write_bytes(packed[: len(packed) // 2])
    checked = good.look(task, train=path)
    facts = checked.facts["files"]["train"]
    assert 100 < facts["records"] < 400
    assert facts["faults"] == 1
    assert "unreadable" in good.doubts(checked)
    assert "entities" in facts or "contexts" in facts or facts["copies"] == 1


def test_text_in_a_wrong_encoding_is_found(good):
    spoiled = [[f"{text} café naïve".encode().decode("cp1252"), label] for text, label in good.rows(60, 1)]
    assert good.doubts(good.look("cls", train=spoiled)) == {"wrong encoding"}
    spoiled = [[f"{CHINESE} {text}".encode("gb18030").decode("latin-1"), label] for text, label in good.rows(60, 1)]
    assert "wrong encoding" in good.doubts(good.look("cls", train=spoiled))


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        ("<b>{}</b> &amp;", "markup"), ("{} caf\ufffd", "lost characters"), ("{} \x00", "control characters"),
        ("{} \ue412", "private use"), ("{}\u200b", "invisible characters"), ("{} pаss", "mixed scripts"),
    ],
    ids=["html", "lost", "nul", "private use", "invisible", "two scripts"],
)  # fmt: skip
@pytest.mark.parametrize("task", ["cls", "qa"])
def test_what_is_no_text_is_found_as_in_raw_text(good, task, odd, kind):
    if task == "cls":
        spoiled = [[odd.format(text), label] for text, label in good.rows(120, 1)]
    else:
        spoiled = [{**record, "question": odd.format(record["question"])} for record in good.questions(120, 1)]
    checked = good.look(task, dev=spoiled, train=good.rows(300, 2) if task == "cls" else good.questions(300, 2))
    assert kind in good.doubts(checked)
    finding = good.one(checked, kind)
    assert finding.message.en.startswith("dev: ")
    assert finding.message.zh.startswith("验证集：")
    assert finding.where[0].startswith(str(good.folder / "dev.csv:2: ") if task == "cls" else "")


def test_texts_of_two_encodings_are_found(good):
    """Big5 that was read as GBK: in all rows doubtful, in five of 1,200 a note."""
    misread = "這個房間很乾淨服務態度也很好".encode("cp950").decode("gb18030")
    rows = [[f"{text} {misread}", label] for text, label in good.rows(120, 1)]
    assert "wrong encoding" in good.doubts(good.look("cls", train=rows))
    rows = good.rows(1200, 1)
    for row in rows[:5]:
        row[0] += misread
    checked = good.look("cls", train=rows)
    assert "wrong encoding" in good.notes(checked) - good.doubts(checked)


def test_odd_characters_of_few_records_are_a_note(good):
    rows = good.rows(1200, 1)
    for row in rows[:5]:
        row[0] += " \ue412"
    checked = good.look("cls", train=rows)
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"private use"}


def test_odd_characters_in_words_with_tags_are_found(good):
    train = [[(f"{word}\ufffd" if i % 9 == 0 else word, tag) for word, tag in words]
             for i, words in enumerate(good.tagged(240, 1))]  # fmt: skip
    assert good.doubts(good.look("ner", train=train)) == {"lost characters"}


@pytest.mark.parametrize("text", ["", "   ", "\u200b"], ids=["empty", "blank", "invisible"])
def test_texts_without_anything_to_see_are_found(good, text):
    rows = good.rows(120, 1)
    rows[7][0] = text
    checked = good.look("cls", train=rows)
    assert good.doubts(checked) == {"empty texts"}
    assert good.one(checked, "empty texts").where[0].endswith("train.csv:9")


def test_copies_in_a_part_are_found(good):
    rows = good.rows(120, 1)
    checked = good.look("cls", train=[*rows, *rows[:30]])
    assert good.doubts(checked) == {"copies"}
    assert good.one(checked, "copies").where[0].endswith("train.csv:122")


def test_near_copies_in_a_part_are_found(good):
    rows = good.rows(120, 1)
    long = [[f"{a[0]} {b[0]} {c[0]}", a[1]] for a, b, c in zip(rows, good.rows(120, 2), good.rows(120, 3), strict=True)]
    near = [[f"{text} end", label] for text, label in long[:30]]
    assert good.doubts(good.look("cls", train=[*long, *near])) == {"near copies"}


def test_few_copies_are_a_note(good):
    rows = good.rows(120, 1)
    checked = good.look("cls", train=[*rows, rows[0]])
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"copies"}


@pytest.mark.parametrize("part", ["dev", "test"])
def test_texts_of_train_in_another_part_are_found(good, part):
    train = good.rows(240, 1)
    checked = good.look("cls", train=train, **{part: [*good.rows(118, 2), *train[:2]]})
    assert good.doubts(checked) == {"leakage"}
    assert good.one(checked, "leakage").where[0].endswith(f"{part}.csv:120")
    assert checked.facts["leakage"][f"train-{part}"] == {"same": 2, "nearly": 0}


def test_texts_of_dev_in_test_are_found(good):
    dev = good.rows(120, 2)
    checked = good.look("cls", train=good.rows(240, 1), dev=dev, test=[*good.rows(117, 3), *dev[:3]])
    assert good.doubts(checked) == {"leakage"}
    assert checked.facts["leakage"]["dev-test"]["same"] == 3


def test_texts_that_are_nearly_those_of_train_are_found(good):
    train = [[f"{a[0]} {b[0]} {c[0]}", a[1]] for a, b, c in zip(*(good.rows(240, s) for s in (1, 2, 3)), strict=True)]
    dev = [[f"{text} end", label] for text, label in train[:30]]
    checked = good.look("cls", train=train, dev=[*good.rows(120, 4), *dev])
    assert good.doubts(checked) == {"near leakage"}


def test_the_same_text_with_two_labels_is_found(good):
    rows = good.rows(120, 1)
    other = [[text, "up" if label == "down" else "down"] for text, label in rows[:3]]
    checked = good.look("cls", train=[*rows, *other])
    assert good.doubts(checked) == {"conflicts"}
    assert checked.facts["conflicts"] == 3
    section = next(one for one in checked.sections if "different labels" in one.title.en)
    assert len(section.rows) == 3


def test_another_script_in_dev_is_found(good):
    dev = [[CHINESE[i % 20 :] + CHINESE[: i % 17] + str(i), label] for i, (_, label) in enumerate(good.rows(120, 2))]
    checked = good.look("cls", train=good.rows(240, 1), dev=dev)
    assert "other scripts" in good.doubts(checked)
    assert "cjk 100 %" in good.one(checked, "other scripts").message.en


def test_scripts_are_counted_by_letter():
    assert script_shares(["ab 今天 12 !?"]) == {"latin": 0.5, "cjk": 0.5}


@pytest.mark.parametrize("task", ["cls", "qa"])
@pytest.mark.parametrize(("number", "found"), [(9, "doubtful"), (60, "note"), (120, "")])
def test_little_to_learn_from_is_found(good, task, number, found):
    train = (good.rows if task == "cls" else good.questions)(number, 1)
    checked = good.look(task, train=train)
    assert ("little to learn from" in good.doubts(checked)) == (found == "doubtful")
    assert ("little to learn from" in good.notes(checked)) == (found == "note")


def test_empty_texts_are_no_copies_of_each_other(good):
    train = good.rows(120, 1)
    for i, text in enumerate(["", "  ", "\u200b"]):
        train[i][0] = text
    checked = good.look("cls", train=train, dev=[["", "up"], [" ", "down"]])
    assert good.doubts(checked) == {"empty texts", "few to measure"}
    assert checked.facts["leakage"]["train-dev"] == {"same": 0, "nearly": 0}
    assert checked.facts["conflicts"] == 0


def test_a_dev_set_that_tells_little_is_found(good):
    checked = good.look("cls", train=good.rows(240, 1), dev=good.rows(40, 2))
    assert good.doubts(checked) == {"few to measure"}
    assert "6.3 points" in good.one(checked, "few to measure").message.en  # sqrt(.8 * .2 / 40) = .0632


def test_what_is_longer_than_the_rows_is_a_note(good, letters):
    checked = good.look("cls", letters, settings={"max_length": 32}, train=good.rows(120, 1))
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"long records"}
    assert checked.facts["files"]["train"]["too_long"] > 60


def test_text_that_the_vocabulary_does_not_know_is_found(good, letters):
    rows = [[f"{text} {CHINESE}", label] for text, label in good.rows(120, 1)]
    checked = good.look("cls", letters, settings={"max_length": 256}, train=rows)
    assert "unknown tokens" in good.doubts(checked)


def test_the_share_of_padding_is_that_of_the_batches():
    """Two batches of two rows in a window of 50: sorted by length, so 7 and 8 tokens, 15 and 16; one and one padded."""
    config = FinetuneConfig(batch_size=2)
    assert padding_share([8, 16, 7, 15], config) == pytest.approx(2 / 48)
    assert padding_share([8, 16, 8, 16], FinetuneConfig(batch_size=4)) == pytest.approx(16 / 64)
    assert padding_share([8, 16, 8, 16], FinetuneConfig(batch_size=4, micro_batch_size=2)) == 0


def test_much_padding_is_a_note(good, letters):
    rows = good.rows(32, 1)
    rows[0][0] = " ".join(text for text, _ in rows[:12])
    checked = good.look("cls", letters, settings={"max_length": 512}, train=rows)
    assert good.doubts(checked) == set()
    assert "padding" in good.notes(checked)


def test_a_setting_that_leaves_no_room_is_a_finding(good, letters):
    checked = good.look("qa", letters, settings={"max_length": 70, "stride": 60}, train=good.questions(40, 1))
    assert "windows would not move on" in good.one(checked, "unreadable").message.en


def test_what_only_settling_the_task_sees_is_a_finding(good, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("up\ndown\nlevel\nnever\n", "utf-8")
    settings = {"labels": str(labels), "class_weights": "balanced"}
    finding = good.one(good.look("cls", settings=settings, train=good.rows(120, 1)), "unreadable")
    assert "no row of the training file is 'never'" in finding.message.en


DROPPED_IN = """
from pathlib import Path
from minibert.check.labels import check_labels
from minibert.tasks import find_tasks
from minibert.tokenization.tokenizer import BertTokenizer
task = find_tasks()["long"]
train = task.demo(Path("."))
Path("dev.txt").write_text(train.read_text("utf-8").replace("b\\n", "c\\n"), "utf-8")
tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "one"], lowercase=True)
checked = check_labels("long", task.Config(), train=train, dev=Path("dev.txt"), tokenizer=tokenizer)
print(*sorted({finding.kind for finding in checked.findings}), sep=", ")
print(checked.facts["files"]["train"]["records"], checked.facts["leakage"]["train-dev"]["same"])
"""


def test_a_task_that_is_dropped_in_is_looked_at(root, tmp_path):
    """What is common to all tasks works for one that knows nothing of checks."""
    shutil.copytree(root / "minibert", tmp_path / "minibert", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "tests" / "tasks" / "toy.py", tmp_path / "minibert" / "tasks" / "long.py")
    done = subprocess.run(
        [sys.executable, "-c", DROPPED_IN], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kinds, numbers = done.stdout.splitlines()
    assert kinds == "few to measure, leakage, little to learn from, padding, unknown tokens"
    assert numbers == "8 6"  # "b" and "a b" are others in dev


def test_every_task_has_a_record_for_people(tmp_path):
    """Its text and, where there are labels, its gold; the place is that of the file."""
    for name, kind in find_tasks().items():
        task = kind(kind.Config())
        path = kind.demo(tmp_path)
        example = task.read(path, gold=True).examples[0]
        record = task.record(example)
        assert record.text, name
        assert record.gold, name


def test_faults_are_raised_where_nobody_collects_them(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,b,c\n", "utf-8")
    task = Cls(Cls.Config())
    with pytest.raises(UserError, match="3 cells"):
        task.read(path, gold=True)
    task.faults = []
    assert task.read(path, gold=True).examples == []
    assert len(task.faults) == 1


def test_places_of_a_finding_are_different_ones():
    checked = Checked(Both("", ""), {})
    add(checked, "kind", "note", "en", "zh", where=["a:1", "a:1", "a:1", "b:2"])
    assert checked.findings[0].where == ("a:1", "b:2")
