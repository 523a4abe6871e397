"""Entities: each planted fault is found by its kind, and nothing else is doubtful."""

import pytest

KNOWN = ["Rome", "Nile"]


def changed(sentences, change):
    """The sentences with the words that change(number of the sentence, word, tag) gives."""
    return [[change(i, word, tag) for word, tag in words] for i, words in enumerate(sentences)]


def write(path, sentences):
    path.write_text("\n".join("".join(f"{w}\t{t}\n" for w, t in words) for words in sentences), "utf-8")
    return path


def test_the_scheme_is_told(good):
    checked = good.look("ner", train=good.tagged(60, 1))
    assert checked.facts["files"]["train"]["scheme"] == "bio (IOB2)"
    assert checked.facts["balance"]["train"] == {"LOC": 20, "PER": 10, "ORG": 10}


@pytest.mark.parametrize(
    ("scheme", "name", "middle", "last"),
    [("bio", "B", "I", "I"), ("bioes", "B", "I", "E"), ("iob1", "I", "I", "I")],
    ids=["bio", "bioes", "iob1"],
)
def test_good_tags_of_each_scheme_are_silent(good, scheme, name, middle, last):
    one = {"bio": "B", "bioes": "S", "iob1": "I"}[scheme]
    train = changed(good.tagged(120, 1), lambda i, word, tag: (word, tag.replace("B-", f"{one}-")))
    for words in train[::4]:
        words[8:11] = [("New", f"{name}-LOC"), ("York", f"{middle}-LOC"), ("City", f"{last}-LOC")]
    assert good.look("ner", train=train).findings == []


def test_an_i_that_begins_an_entity_is_found(good):
    train = changed(good.tagged(120, 1), lambda i, w, t: (w, t.replace("B-", "I-") if i % 10 == 2 else t))
    checked = good.look("ner", train=train)
    assert good.doubts(checked) == {"tags out of order"}
    assert "tags out of order in bio" in good.one(checked, "tags out of order").where[0]


def test_a_type_that_changes_inside_an_entity_is_found(good):
    train = good.tagged(120, 1)
    for words in train[1::12]:
        words[8:10] = [("Monte", "B-LOC"), ("Rosa", "I-PER")]
    assert "tags out of order" in good.doubts(good.look("ner", train=train))


def test_an_entity_of_bioes_without_an_end_is_found(good):
    train = changed(good.tagged(120, 1), lambda i, w, t: (w, t.replace("B-", "S-") if i % 10 else t))
    assert good.doubts(good.look("ner", train=train)) == {"tags out of order"}


@pytest.mark.parametrize(
    ("tag", "said"), [("0", "'0', the tag of"), ("b-PER", "'b-PER', the tag of"), ("o", "'o', the tag of")],
    ids=["zero", "lower case", "lower o"],
)  # fmt: skip
def test_what_is_no_tag_is_found_and_the_rest_is_read(good, tag, said):
    train = good.tagged(120, 1)
    train[5][2] = (train[5][2][0], tag)
    train[9][2] = (train[9][2][0], tag)
    checked = good.look("ner", train=train)
    assert good.doubts(checked) == {"unreadable"}
    finding = good.one(checked, "unreadable")
    assert said in finding.message.en
    assert "2 records" in finding.message.en
    assert checked.facts["files"]["train"] | {"records": 118, "faults": 2} == checked.facts["files"]["train"]


def test_a_line_without_a_tag_is_found_and_the_rest_is_read(good, tmp_path):
    path = write(tmp_path / "a.conll", good.tagged(60, 1))
    lines = path.read_text("utf-8").split("\n")
    lines[30] = lines[30].split("\t")[0]
    path.write_text("\n".join(lines), "utf-8")
    checked = good.look("ner", train=path)
    assert good.one(checked, "unreadable").where == (f"{path}:31",)
    assert checked.facts["files"]["train"]["records"] == 60


def test_columns_that_are_swapped_are_found(good):
    train = [[(tag, word) for word, tag in words] for words in good.tagged(60, 1)]
    assert good.doubts(good.look("ner", train=train)) == {"columns swapped", "unreadable"}


@pytest.mark.parametrize("name", ["a.conll", "a.csv"])
def test_a_file_that_cannot_be_read_is_one_finding(good, tmp_path, name):
    path = tmp_path / name
    path.write_bytes("北\tB-LOC\n".encode("gb18030"))
    checked = good.look("ner", train=path)
    assert [finding.kind for finding in checked.findings] == ["unreadable"]


def test_sentences_without_blank_lines_are_found(good):
    train = [[word for words in good.tagged(60, 1) for word in words]]
    assert good.doubts(good.look("ner", train=train)) == {"no blank lines", "little to learn from"}


def test_a_blank_line_after_each_word_is_found(good):
    train = [[word] for words in good.tagged(60, 1) for word in words]
    assert "a word a sentence" in good.doubts(good.look("ner", train=train))


def test_a_very_long_sentence_is_a_note(good):
    train = [*good.tagged(150, 1), [word for words in good.tagged(60, 2) for word in words]]
    checked = good.look("ner", train=train)
    assert good.doubts(checked) == set()
    assert good.notes(checked) == {"long sentences"}


def test_nearly_no_entity_is_found(good):
    train = changed(good.tagged(600, 1), lambda i, w, t: (w, t) if i < 42 or t == "O" else ("and", "O"))
    assert good.doubts(good.look("ner", train=train)) == {"few entities"}


def test_no_entity_at_all_is_found(good):
    train = changed(good.tagged(60, 1), lambda i, word, tag: (word if tag == "O" else "and", "O"))
    checked = good.look("ner", train=train)
    assert "there is no entity in it" in good.one(checked, "unreadable").message.en


@pytest.mark.parametrize(("entities", "found"), [(1, "doubtful"), (9, "doubtful"), (60, "note"), (100, "")])
def test_few_entities_to_learn_from_are_found(good, entities, found):
    """Of one type: no balance of types says it."""
    train = [[(word, "O") for word, _ in words] for words in good.tagged(200, 1)]
    for words in train[:entities]:
        words[4] = ("Rome", "B-LOC")
    checked = good.look("ner", train=train)
    assert ("little to learn from" in good.doubts(checked)) == (found == "doubtful")
    assert ("little to learn from" in good.notes(checked)) == (found == "note")


@pytest.mark.parametrize("name", ["a.conll", "a.txt"])
def test_tags_without_their_words_are_found(good, tmp_path, name):
    path = tmp_path / name
    path.write_text("".join(f"{first} O O B-PER\n\n" for first in ["B-LOC", "O", "I-PER", "B-PER"] * 40), "utf-8")
    finding = good.one(good.look("ner", train=path), "columns swapped")
    assert finding.level == "doubtful"
    assert "or the words are missing" in finding.message.en


def test_a_type_that_train_lacks_is_found(good):
    dev = changed(good.tagged(120, 2), lambda i, w, t: (w, "B-DATE" if t != "O" and i == 4 else t))
    checked = good.look("ner", train=good.tagged(240, 1), dev=dev)
    assert good.doubts(checked) == {"unknown entity types"}
    assert "'DATE'" in good.one(checked, "unknown entity types").message.en


def test_types_that_look_alike_are_found(good):
    train = changed(good.tagged(240, 1), lambda i, w, t: (w, t.replace("LOC", "Loc") if w == "Nile" else t))
    assert good.doubts(good.look("ner", train=train)) == {"entity types alike"}


@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_entities_with_punctuation_at_an_end_are_found(good, before):
    train = good.tagged(120, 1)
    for words in train[1::12]:
        loose = [(",", "B-LOC"), ("Rome", "I-LOC")] if before else [("Rome", "B-LOC"), (",", "I-LOC")]
        words[4:5] = loose
    assert good.doubts(good.look("ner", train=train)) == {"loose edges"}


def test_marks_that_belong_to_a_name_are_none(good):
    train = good.tagged(120, 1)
    for words in train[1::12]:
        words[4:5] = [("(", "B-ORG"), ("Acme", "I-ORG"), (")", "I-ORG")]
        words[9:10] = [("Inc", "B-ORG"), (".", "I-ORG")]
    assert good.doubts(good.look("ner", train=train)) == set()


def test_names_that_are_tagged_in_two_ways_are_found(good):
    def change(i, word, tag):
        return (word, ("O" if i % 2 else "B-ORG") if word in KNOWN and i % 4 < 2 else tag)

    checked = good.look("ner", train=changed(good.tagged(240, 1), change))
    assert good.doubts(checked) == {"tagged in two ways"}
    section = next(one for one in checked.sections if "several ways" in one.title.en)
    assert {row[0] for row in section.rows} == set(KNOWN)


def test_entities_of_text_that_are_out_of_place_are_found(good, tmp_path):
    draw = good.rows(60, 1)
    records = [{"text": f"{text} Rome", "entities": [{"start": len(text) + 1, "end": len(text) + 5, "label": "LOC"}]}
               for text, _ in draw]  # fmt: skip
    records[3]["entities"][0]["end"] += 9
    records[5]["entities"][0]["start"] += 1
    checked = good.look("ner", train=good.write_jsonl(tmp_path / "a.jsonl", records))
    assert good.doubts(checked) == {"entities out of place"}
    outside, inside = good.one(checked, "entities out of place").where
    assert "a.jsonl:4: " in outside
    assert "lies outside" in outside
    assert "a.jsonl:6: " in inside
    assert "begins or ends inside a word" in inside


# ---- the shared cases


def test_case_f01_iob1(good, case):
    folder, _ = case("F01")
    checked = good.look("ner", train=folder / "iob1.conll")
    assert checked.facts["files"]["train"]["scheme"] == "iob1"
    assert "tags out of order" not in good.doubts(checked)
    assert good.one(good.look("ner", train=folder / "gold.txt"), "columns swapped").level == "doubtful"
    checked = good.look("ner", settings={"scheme": "bio"}, train=folder / "iob1.conll")
    assert "tags out of order" in good.doubts(checked)


def test_case_f04_marks_of_documents(good, case):
    folder, _ = case("F04")
    checked = good.look("ner", train=folder / "ner.conll")
    assert good.one(checked, "document marks").where == (f"{folder / 'ner.conll'}:1", f"{folder / 'ner.conll'}:6")
    assert checked.facts["files"]["train"]["words"] == 5


def test_case_f05_a_sentence_that_is_longer_than_a_row(good, case, letters):
    folder, _ = case("F05")
    checked = good.look("ner", letters, settings={"max_length": 64}, train=folder / "ner.conll")
    assert "cut into windows" in good.one(checked, "long records").message.en


def test_case_f07_a_line_of_one_column(good, case):
    folder, _ = case("F07")
    assert good.one(good.look("ner", train=folder / "bad.conll"), "unreadable").where[0].endswith("bad.conll:2")
    checked = good.look("ner", train=folder / "ner.conll")
    assert "unreadable" not in good.doubts(checked)


def test_case_f10_characters_as_words(good, case):
    folder, _ = case("F10")
    checked = good.look("ner", train=folder / "ner.conll")
    assert checked.facts["files"]["train"] | {"words": 9, "entities": 2} == checked.facts["files"]["train"]
    assert "unreadable" not in good.doubts(checked)
