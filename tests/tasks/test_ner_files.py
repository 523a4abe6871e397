"""Files of the ner task: formats, schemes, entities of texts, and every way in which they can be wrong."""

import gzip
import json

import pytest

from minibert.errors import UserError
from minibert.metrics.tagging import find_entities
from minibert.tasks.ner import Ner, NerConfig


def read(path, *, gold=True, train=False, labels=(), **settings):
    return Ner(NerConfig(**settings), labels).read(path, gold=gold, train=train)


def written(folder, name, content):
    path = folder / name
    if isinstance(content, list):
        content = "".join(json.dumps(record) + "\n" for record in content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(path, **options):
    with pytest.raises(UserError) as caught:
        read(path, **options)
    return caught.value


def pairs(reading):
    return [list(zip(e.tokens, e.tags, strict=True)) for e in reading.examples]


# formats

CONLL = "EU B-ORG\nrejects O\n"
TOKENS = [{"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}]
TEXT = [{"text": "EU rejects", "entities": [{"start": 0, "end": 2, "label": "ORG"}]}]


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("a.conll", CONLL, {}),
        ("a.bio", CONLL, {}),
        ("a.tsv", "EU\tB-ORG\nrejects\tO\n", {}),
        ("a.txt", CONLL, {}),
        ("a", CONLL, {}),
        ("a.csv", CONLL, {"input_format": "conll"}),
        ("a.conll.gz", gzip.compress(CONLL.encode(), mtime=0), {}),
        ("a.conll", CONLL.encode("utf-16"), {"encoding": "utf-16"}),
        ("a.jsonl", TOKENS, {}),
        ("a.json", TOKENS, {}),
        ("a.dat", TOKENS, {}),
        ("a.jsonl", TEXT, {}),
        ("a.txt", TEXT, {}),
    ],
)
def test_every_format_gives_the_same_words_and_tags(tmp_path, name, content, settings):
    path = written(tmp_path, name, content)
    assert pairs(read(path, **settings)) == [[("EU", "B-ORG"), ("rejects", "O")]]
    without = read(path, gold=False, **settings)
    assert [(e.tokens, e.tags) for e in without.examples] == [(["EU", "rejects"], None)]


def test_plain_text_is_a_record_a_line(tmp_path):
    path = written(tmp_path, "a.txt", "EU rejects.\n\n北京 hot\n\u200b")
    reading = read(path, gold=False)
    assert [e.tokens for e in reading.examples] == [["EU", "rejects", "."], [], ["北", "京", "hot"], []]
    assert reading.notes == ["read as txt: a line is a text (--input-format conll|jsonl|txt says otherwise)"]
    words = written(tmp_path, "b.txt", "EU\nrejects\n\n.\n")
    assert [e.tokens for e in read(words, gold=False, input_format="conll").examples] == [["EU", "rejects"], ["."]]
    assert [e.tokens for e in read(path, gold=False, input_format="txt").examples][1] == []


def test_plain_text_has_no_gold(tmp_path):
    path = written(tmp_path, "a.txt", "EU rejects\n")
    assert "no tags" in refused(path, input_format="txt").problem
    assert refused(path).where == f"{path}:1"  # as conll: rejects is no tag


def test_an_unknown_format_is_refused(tmp_path):
    assert refused(written(tmp_path, "a.conll", CONLL), input_format="csv").where == "--input-format"


def test_an_empty_file_is_refused(tmp_path):
    for name in ("a.conll", "a.jsonl", "a.txt"):
        path = written(tmp_path, name, " \n\n" if name != "a.txt" else "")
        for how in ({"gold": False}, {"train": True}):
            error = refused(path, **how)
            assert (error.problem, error.where) == ("holds no sentences", str(path))


def test_a_file_of_which_nothing_can_be_learnt_says_why(tmp_path):
    bad = {"text": "good EU", "entities": [{"start": 5, "end": 9, "label": "ORG"}]}
    path = written(tmp_path, "a.jsonl", [bad, bad])
    error = refused(path, train=True)
    assert error.problem.startswith("none of its 2 records can be learnt; of the first: the entity ORG from 5 to 9")
    assert error.where == f"{path}:1"
    assert error.fix
    assert len(read(path).examples) == 2  # and measured all the same


def test_a_key_that_stands_twice_is_refused(tmp_path):
    path = written(tmp_path, "a.jsonl", '{"tokens": ["EU"], "tags": ["B-ORG"], "tags": ["O"]}\n')
    assert "the key 'tags' stands twice" in refused(path).problem


# tags


def test_iob1_is_told_and_read_as_iob2(tmp_path):
    path = written(tmp_path, "a.conll", "John I-PER\nSmith I-PER\nin O\nRome I-LOC\nParis B-LOC\n")
    reading = read(path, train=True)
    assert reading.examples[0].tags == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    assert find_entities(reading.examples[0].tags) == [("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5)]
    assert any("scheme is iob1" in note for note in reading.notes)
    assert reading.repaired == []


@pytest.mark.parametrize("tags", ["B M E O S", "B I L O U", "B I E O S"])
def test_schemes_with_ends(tmp_path, tags):
    lines = "".join(f"w {letter if letter == 'O' else letter + '-X'}\n" for letter in tags.split())
    reading = read(written(tmp_path, "a.conll", lines))
    assert reading.examples[0].tags == ["B-X", "I-X", "I-X", "O", "B-X"]
    assert any("scheme is bioes" in note for note in reading.notes)
    assert read(tmp_path / "a.conll", scheme="bioes").notes == []


def test_tags_out_of_order_are_counted(tmp_path):
    path = written(tmp_path, "a.conll", "a B-X\n\nb O\nc I-X\n")
    reading = read(path, train=True)
    assert reading.examples[1].tags == ["O", "B-X"]
    assert reading.repaired == [{"where": f"{path}:3", "reason": "tags out of order in bio, read as conlleval does: 1"}]
    measured = read(path)
    assert measured.repaired == []
    assert "tags out of order in bio (such as I-X after O), read as conlleval does: 1" in measured.notes


@pytest.mark.parametrize("tag", ["X-PER", "B", "B-", "PER", "b-PER", "o", "B_PER", "_"])
def test_a_tag_of_no_scheme_is_refused(tmp_path, tag):
    path = written(tmp_path, "a.conll", f"EU B-ORG\n\nin O\nRome {tag}\n")
    error = refused(path)
    assert error.where == f"{path}:4"
    assert repr(tag) in error.problem
    assert "Rome" in error.problem
    assert "iob1" in error.fix


def test_a_tag_of_another_scheme_is_refused(tmp_path):
    path = written(tmp_path, "a.conll", "EU B-ORG\nRome S-LOC\n")
    for scheme in ("bio", "iob1"):
        error = refused(path, scheme=scheme)
        assert error.where == f"{path}:2"
        assert f"scheme {scheme}" in error.problem
        assert error.fix == "--scheme auto"
    assert read(path).examples[0].tags == ["B-ORG", "B-LOC"]


def test_labels_without_letters_are_read_for_a_model_that_has_them(tmp_path):
    path = written(tmp_path, "a.conll", "a PER\nb PER\nc O\nd LOC\n")
    assert read(path, labels=("O", "PER", "LOC")).examples[0].tags == ["B-PER", "I-PER", "O", "B-LOC"]
    assert refused(path, labels=("O", "B-PER", "B-LOC")).where == f"{path}:1"


def test_nothing_but_o_cannot_be_learnt(tmp_path):
    path = written(tmp_path, "a.conll", "a O\nb O\n")
    error = refused(path, train=True)
    assert error.where == str(path)
    assert "no entity" in error.problem
    assert len(read(path).examples) == 1


# JSONL

WORDS = {"tokens": ["EU"], "tags": ["B-ORG"]}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON array, not an object"),
        ('{"token": ["a"]}', "no field 'text' or 'tokens'; there are 'token'"),
        ('{"tokens": "EU", "tags": ["O"]}', "'tokens' is a JSON string, not an array"),
        ('{"tokens": ["a", 1], "tags": ["O", "O"]}', "tokens[1] is a JSON number"),
        ('{"tokens": ["a"]}', "no field 'tags'; there are 'tokens'"),
        ('{"tokens": ["a"], "ner_tags": [0]}', "no field 'tags'; there are 'tokens', 'ner_tags'"),
        ('{"tokens": ["a"], "tags": [0]}', "tags[0] is a JSON number"),
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "2 tokens but 1 tags"),
        ('{"tokens": ["\\ud83d"], "tags": ["O"]}', "half of a surrogate pair"),
        ('{"text": 5, "entities": []}', "'text' is a JSON number, not a string"),
        ('{"text": null, "entities": []}', "'text' is a JSON null"),
        ('{"text": "\\ud83d", "entities": []}', "half of a surrogate pair"),
        ('{"text": "a"}', "no field 'entities'; there are 'text'"),
        ('{"text": "a", "entities": {}}', "'entities' is a JSON object, not an array"),
        ('{"text": "a", "entities": [[0, 1, "X"]]}', "entities[0] is a JSON array, not an object"),
        ('{"text": "a", "entities": [{"start": "0", "end": 1, "label": "X"}]}', "entities[0] has the start '0'"),
        ('{"text": "a", "entities": [{"start": true, "end": 1, "label": "X"}]}', "entities[0] has the start True"),
        ('{"text": "a", "entities": [{"start": 0, "label": "X"}]}', "entities[0] has the end None"),
        ('{"text": "a", "entities": [{"start": 0, "end": 1}]}', "entities[0] has the label None"),
        ('{"text": "a", "entities": [{"start": 0, "end": 1, "label": ""}]}', "entities[0] has the label ''"),
        ('{"text": "a", "entities": [{"start": 0, "end": 1, "label": "a\\tb"}]}', "entities[0] has the label 'a\\tb'"),
        ('{"tokens": ["a"], "tags": ["Q-X"]}', "'Q-X', the tag of 'a', is no tag"),
    ],
)  # fmt: skip
def test_bad_records_are_named_with_their_line(tmp_path, line, said):
    path = written(tmp_path, "a.jsonl", json.dumps(WORDS) + "\n\n" + line + "\n")
    error = refused(path)
    assert error.where == f"{path}:3"
    assert said in error.problem
    assert error.fix


def test_labels_are_not_looked_at_where_predictions_are_wanted(tmp_path):
    path = written(
        tmp_path,
        "a.jsonl",
        [{"tokens": ["a", "b"], "tags": [1]}, {"tokens": []}, {"text": "x y", "entities": 7}, {"text": ""}],
    )
    reading = read(path, gold=False)
    assert [e.tokens for e in reading.examples] == [["a", "b"], [], ["x", "y"], []]
    assert reading.skipped == reading.repaired == []


def test_records_without_words_stay_but_in_training(tmp_path):
    path = written(tmp_path, "a.jsonl", [WORDS, {"tokens": [], "tags": []}, {"text": " ", "entities": []}])
    assert [e.tokens for e in read(path).examples] == [["EU"], [], []]
    reading = read(path, train=True)
    assert [e.tokens for e in reading.examples] == [["EU"]]
    assert [s["where"] for s in reading.skipped] == [f"{path}:2", f"{path}:3"]


def entity(start, end, label="PER", **more):
    return {"start": start, "end": end, "label": label, **more}


def test_entities_of_a_text(tmp_path):
    text = "王明在 New-York 住。"
    record = {"text": text, "entities": [entity(0, 2, text="王明"), entity(4, 12, "LOC")]}
    (example,) = read(written(tmp_path, "a.jsonl", [record])).examples
    assert example.tokens == ["王", "明", "在", "New", "-", "York", "住", "。"]
    assert example.tags == ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "I-LOC", "O", "O"]
    assert [text[a:b] for a, b in example.spans] == example.tokens
    assert example.missed == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (entity(3, 3), "from 3 to 3 is empty"),
        (entity(4, 2), "lies outside"),
        (entity(-4, 4), "lies outside"),
        (entity(0, 99), "lies outside the text's 10 characters"),
        (entity(0, 2, text="rejects"), "should read 'rejects', but there stands 'EU'"),
    ],
)
def test_entities_in_impossible_places(tmp_path, bad, said):
    path = written(tmp_path, "a.jsonl", [TEXT[0], {"text": "EU rejects", "entities": [entity(3, 10, "X"), bad]}])
    training = read(path, train=True)
    assert len(training.examples) == 1
    assert [s["where"] for s in training.skipped] == [f"{path}:2"]
    assert said in training.skipped[0]["reason"]
    measured = read(path)
    assert measured.skipped == []
    assert measured.examples[1].tags == ["O", "B-X"]
    assert measured.examples[1].missed == ["PER"]  # it stays part of the gold
    assert measured.notes[-1].endswith("gold that is not found: 1")


def test_entities_that_do_not_fit_words_are_mended_in_training_and_missed_in_measuring(tmp_path):
    entities = [entity(0, 2), entity(3, 8, "LOC"), entity(3, 10, "X")]
    path = written(tmp_path, "a.jsonl", [{"text": "EU rejects", "entities": entities}])
    training = read(path, train=True)
    assert training.examples[0].tags == ["B-PER", "B-X"]
    assert training.examples[0].missed == []
    assert [r["reason"] for r in training.repaired] == [
        "the entity LOC 'rejec' from 3 to 8 overlaps another one: it is left out"
    ]
    assert read(path).examples[0].missed == ["LOC"]
    path = written(tmp_path, "b.jsonl", [{"text": "EU rejects", "entities": [entity(3, 8)]}])
    training = read(path, train=True)
    assert training.examples[0].tags == ["O", "B-PER"]
    assert "begins or ends inside a word" in training.repaired[0]["reason"]
    measured = read(path).examples[0]
    assert (measured.tags, measured.missed) == (["O", "O"], ["PER"])


def test_scheme_is_told_from_tags_alone(tmp_path):
    """Texts with entities, whose tags are ours, do not decide the scheme of those that came with tags."""
    path = written(tmp_path, "a.jsonl", [{"tokens": ["a", "b"], "tags": ["I-X", "B-X"]}, *TEXT])
    reading = read(path)
    assert [e.tags for e in reading.examples] == [["B-X", "B-X"], ["B-ORG", "O"]]
    assert any("iob1" in note for note in reading.notes)
    assert read(written(tmp_path, "b.jsonl", TEXT)).notes == []


# real data


@pytest.mark.parametrize(
    ("name", "sentences", "entities"), [("train", 3394, 1975), ("dev", 1009, 836), ("test", 1287, 1079)]
)
def test_wnut17_has_its_published_size(shared, name, sentences, entities):
    reading = read(shared / "data" / "wnut17" / f"{name}.conll", train=name == "train")
    assert len(reading.examples) == sentences
    assert sum(len(find_entities(e.tags)) for e in reading.examples) == entities
    assert reading.skipped == reading.repaired == []


@pytest.mark.parametrize(
    ("case", "sentences", "labels"),
    [
        ("A01/ner_bom", [2, 1], None),
        ("A02/ner_crlf", [3, 2], ["B-PER", "I-PER", "O"]),
        ("F01/iob1", [5], None),
        ("F04/ner", [2, 3], None),
        ("F05/ner", [300], ["B-PER", "O"]),
        ("F07/ner", [3, 2], ["B-ORG", "B-PER", "I-PER", "O"]),
        ("F10/ner", [9], None),
    ],
)
def test_shared_cases(shared, case, sentences, labels):
    examples = read(shared / "cases" / f"{case}.conll", train=True).examples
    assert [len(e.tokens) for e in examples] == sentences
    assert labels is None or Ner(NerConfig()).labels_of(examples) == labels
    assert not any(character in token for e in examples for token in e.tokens for character in "\ufeff\r")


def test_shared_case_of_a_missing_tag(shared):
    path = shared / "cases" / "F07" / "bad.conll"
    assert refused(path).where == f"{path}:2"
