"""Classification: each planted fault is found by its kind, and nothing else is doubtful."""

import random

import pytest

from minibert.check.balance import alike, bare, shift

PAIRS = {"pair_column": "pair"}


def relabelled(rows, change):
    """The rows with the labels that change(number, label) gives."""
    return [[text, change(i, label)] for i, (text, label) in enumerate(rows)]


def numbered(good, number, seed):
    """Rows with a number from 0 to 5."""
    draw = random.Random(seed)
    return [[text, f"{draw.uniform(0, 5):.2f}"] for text, _ in good.rows(number, seed)]


def test_one_label_for_nearly_all_is_found(good):
    train = relabelled(good.rows(400, 1), lambda i, label: "down" if i % 20 == 0 else "up")
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"imbalance"}
    assert "95 %" in good.one(checked, "imbalance").message.en


@pytest.mark.parametrize(("number", "level"), [(3, "doubtful"), (15, "note")])
def test_labels_of_few_rows_are_found(good, number, level):
    train = relabelled(good.rows(300, 1), lambda i, label: "other" if i < number else label)
    finding = good.one(checked := good.look("cls", train=train), "rare labels")
    assert finding.level == level
    assert "'other'" in finding.message.en
    assert good.doubts(checked) == ({"rare labels"} if level == "doubtful" else set())


def test_one_label_only_is_found(good):
    checked = good.look("cls", train=relabelled(good.rows(60, 1), lambda i, label: "up"))
    assert good.doubts(checked) == {"one label"}


@pytest.mark.parametrize(
    "other", ["Up", "ｕｐ", "u p", "u\u200bp", "u_p", "uр"], ids=["case", "width", "blank", "invisible", "mark", "look"]
)
def test_labels_that_look_alike_are_found(good, other):
    train = relabelled(good.rows(300, 1), lambda i, label: other if label == "up" and i % 2 else label)
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"labels alike"}
    assert len(good.one(checked, "labels alike").where) == 2


def test_blanks_round_a_label_do_not_matter(good):
    train = relabelled(good.rows(300, 1), lambda i, label: f" {label} " if i % 2 else label)
    assert good.look("cls", train=train).findings == []


def test_a_misspelt_label_is_found(good):
    checked = good.look("cls", train=relabelled(good.rows(300, 1), lambda i, label: "levle" if i == 2 else label))
    assert good.doubts(checked) == {"labels alike", "rare labels"}


def test_what_makes_labels_one():
    assert {bare(name) for name in ("very good", "Very-Good", "very_good", "ＶＥＲＹ good")} == {"verygood"}
    assert bare("01") == bare("1") == bare("1.0")
    assert len({bare("1"), bare("-1"), bare("+"), bare("-")}) == 4
    assert not list(alike({"class1": 100, "class2": 1, "好": 3, "坏": 4}))  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["dev", "test"])
def test_a_label_that_train_lacks_is_found(good, part):
    other = relabelled(good.rows(120, 2), lambda i, label: "neutral" if i == 6 else label)
    checked = good.look("cls", train=good.rows(240, 1), **{part: other})
    assert good.doubts(checked) == {"unknown labels"}
    assert good.one(checked, "unknown labels").where[0].endswith(f"{part}.csv:8")


def test_a_label_that_only_the_list_has_is_known(good, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("up\ndown\nlevel\nneutral\n", "utf-8")
    dev = relabelled(good.rows(120, 2), lambda i, label: "neutral" if i == 6 else label)
    checked = good.look("cls", settings={"labels": str(labels)}, train=good.rows(240, 1), dev=dev)
    assert good.doubts(checked) == set()


def test_a_label_that_dev_lacks_is_a_note(good):
    dev = relabelled(good.rows(120, 2), lambda i, label: "down" if label == "up" else label)
    checked = good.look("cls", train=good.rows(240, 1), dev=dev)
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"missing labels"}


def test_other_shares_of_labels_in_dev_are_found(good):
    train = relabelled(good.rows(240, 1), lambda i, label: "up" if i % 8 else "down")
    dev = relabelled(good.rows(120, 2), lambda i, label: "down" if i % 8 else "up")
    assert good.doubts(good.look("cls", train=train, dev=dev)) == {"label shift"}


def test_the_distance_of_shares():
    """(.5, .5) and (.9, .1): .4; by chance sqrt(2 / pi * p (1 - p) * 2 / 100) of each share, halved."""
    from collections import Counter

    distance, chance = shift(Counter(a=50, b=50), Counter(a=90, b=10))
    assert distance == pytest.approx(0.4)
    assert chance == pytest.approx((2 / 3.14159265 * 0.7 * 0.3 * 0.02) ** 0.5)


def test_pairs_of_the_same_text_are_found(good):
    draw = good.rows(240, 5)
    train = [[text, other[0], label] for (text, label), other in zip(good.rows(240, 1), draw, strict=True)]
    header = ("text", "pair", "label")
    assert good.look("cls", header=header, settings=PAIRS, train=train).findings == []
    for row in train[:5]:
        row[1] = row[0].upper()
    checked = good.look("cls", header=header, settings=PAIRS, train=train)
    assert good.doubts(checked) == {"identical halves"}
    train[9][1] = " "
    assert good.doubts(good.look("cls", header=header, settings=PAIRS, train=train)) == {
        "identical halves",
        "half pairs",
    }


@pytest.mark.parametrize("mark", ["up", "zzz"], ids=["its name", "another word"])
def test_a_word_that_tells_the_label_is_found(good, mark):
    train = [[f"{text} {mark}" if label == "up" else text, label] for text, label in good.rows(300, 1)]
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"tell-tale words"}
    assert f"'{mark}' stands in 100 % of the texts labelled 'up'" in good.one(checked, "tell-tale words").message.en


def test_a_chinese_label_in_the_text_is_found(good):
    """Its characters stand in other texts too; the name as a whole does not."""
    names = {"up": "体育", "down": "财经", "level": "音乐"}
    train = [
        [f"体会生育{i} {text} {names[label] if label == 'up' else ''}", names[label]]
        for i, (text, label) in enumerate(good.rows(300, 1))
    ]
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"tell-tale words"}
    assert "'体育'" in good.one(checked, "tell-tale words").message.zh


def test_a_column_of_ids_is_no_text(good):
    train = relabelled([[f"doc-{i:04}", ""] for i in range(100)], lambda i, label: "up" if i % 2 else "down")
    assert good.doubts(good.look("cls", train=train)) == {"texts like ids"}


def test_a_column_of_labels_is_no_text(good):
    train = relabelled(
        [[("red", "blue", "green")[i % 3], ""] for i in range(100)], lambda i, _: "up" if i % 2 else "down"
    )
    assert good.doubts(good.look("cls", train=train)) == {"texts like labels"}


def test_a_column_of_texts_is_no_label(good):
    train = [
        [("red sun", "blue moon at night")[i % 2] + f" number {i}", text]
        for i, (text, _) in enumerate(good.rows(60, 1))
    ]
    assert good.doubts(good.look("cls", train=train)) == {"labels like texts"}


def test_columns_that_are_swapped_are_found(good):
    """Both columns are wrong."""
    train = [[label, text] for text, label in good.rows(60, 1)]
    assert good.doubts(good.look("cls", train=train)) == {"texts like labels", "labels like texts"}


@pytest.mark.parametrize("decimals", [2, 0])
def test_numbers_that_are_read_as_labels_are_found(good, decimals):
    train = relabelled(good.rows(240, 1), lambda i, label: f"{i % 40 / (1 if decimals == 0 else 7):.{decimals}f}")
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"numbers as labels"}
    assert "--regression" in good.one(checked, "numbers as labels").fix.en


def test_a_few_whole_numbers_may_be_classes(good):
    train = relabelled(good.rows(240, 1), lambda i, label: str(i % 5))
    assert good.look("cls", train=train).findings == []


@pytest.mark.parametrize(
    ("name", "level"), [("NA", "doubtful"), ("nan", "doubtful"), ("null", "doubtful"), ("None", "note")]
)
def test_labels_that_say_that_there_is_none_are_found(good, name, level):
    train = relabelled(good.rows(240, 1), lambda i, label: name if label == "up" else label)
    checked = good.look("cls", train=train)
    assert good.one(checked, "labels like missing values").level == level
    assert len(checked.findings) == 1


def test_texts_that_say_that_there_is_none_are_found(good):
    rows = good.rows(240, 1)
    for i, text in enumerate(("nan", "NULL", "N/A", "none")):
        rows[i][0] = text
    assert good.doubts(good.look("cls", train=rows)) == {"texts like missing values"}


def test_a_list_of_labels_needs_multi_label(good, tmp_path):
    records = [{"text": text, "label": [label]} for text, label in good.rows(60, 1)]
    path = good.write_jsonl(tmp_path / "a.jsonl", records)
    checked = good.look("cls", train=path)
    assert good.doubts(checked) == {"unreadable"}
    assert good.one(checked, "unreadable").fix.en == "add --multi-label"
    checked = good.look("cls", settings={"multi_label": True}, train=path)
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"one label each", "little to learn from"}


def test_several_labels_in_a_cell_need_multi_label(good):
    train = relabelled(good.rows(300, 1), lambda i, label: "up|down" if i % 10 == 0 else label)
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"several labels in one"}
    assert "--multi-label" in good.one(checked, "several labels in one").fix.en


def test_texts_without_any_of_the_labels_are_counted(good):
    train = relabelled(
        good.rows(240, 1), lambda i, label: "" if i % 4 == 0 else f"{label}|side" if i % 4 == 1 else label
    )
    checked = good.look("cls", settings={"multi_label": True}, train=train)
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"texts without label"}
    most = relabelled(good.rows(240, 1), lambda i, label: label if i % 4 == 0 else "")
    assert good.doubts(good.look("cls", settings={"multi_label": True}, train=most)) == {"texts without label"}


def test_good_numbers_are_silent(good):
    checked = good.look("cls", settings={"regression": True}, train=numbered(good, 240, 1), dev=numbered(good, 120, 2))
    assert checked.findings == []
    assert checked.facts["files"]["train"]["target"]["least"] < 0.5


def test_numbers_that_are_all_one_are_found(good):
    train = relabelled(good.rows(60, 1), lambda i, label: "3.5")
    assert good.doubts(good.look("cls", settings={"regression": True}, train=train)) == {"constant numbers"}


def test_a_number_far_from_the_others_is_found(good):
    train = numbered(good, 240, 1)
    train[17][1] = "4300"
    checked = good.look("cls", settings={"regression": True}, train=train)
    assert good.doubts(checked) == {"outliers"}
    assert good.one(checked, "outliers").where[0].endswith("train.csv:19")


def test_a_length_that_tells_the_label_is_found(good):
    train = [[f"{text} {other[0]}" if label == "up" else text, label]
             for (text, label), other in zip(good.rows(300, 1), good.rows(300, 2), strict=True)]  # fmt: skip
    train = [row for row in train if row[1] != "level"]
    checked = good.look("cls", train=train)
    assert good.doubts(checked) == {"length tells the label"}
    assert checked.facts["accuracy_of_length"]["length"] > 0.85


# ---- the shared cases


def test_case_e01_strings_that_others_read_as_missing(good, case):
    folder, _ = case("E01")
    checked = good.look("cls", train=folder / "cls.csv")
    assert {"labels like missing values", "texts like missing values"} <= good.doubts(checked)
    assert "labels alike" in good.doubts(good.look("cls", train=folder / "cls_int.csv"))  # 01 and 1


def test_case_e02_a_label_that_train_lacks(good, case):
    folder, _ = case("E02")
    checked = good.look("cls", train=folder / "train.csv", dev=folder / "dev.csv")
    finding = good.one(checked, "unknown labels")
    assert "neutral" in finding.message.en
    assert finding.where == (f"{folder / 'dev.csv'}:3",)


def test_case_e05_rows_of_several_labels(good, case):
    folder, _ = case("E05")
    assert "add --multi-label" in good.one(good.look("cls", train=folder / "cls.jsonl"), "unreadable").fix.en


def test_case_e07_a_file_without_header_and_other_columns(good, case):
    folder, _ = case("E07")
    finding = good.one(good.look("cls", train=folder / "noheader.csv"), "unreadable")
    assert "--no-header" in finding.fix.en
    finding = good.one(good.look("cls", train=folder / "swapped.csv"), "unreadable")
    assert "--text-column" in finding.fix.en


def test_case_e10_texts_without_anything_to_see(good, case):
    folder, _ = case("E10")
    assert "3 of 4" in good.one(good.look("cls", train=folder / "dev.csv"), "empty texts").message.en
