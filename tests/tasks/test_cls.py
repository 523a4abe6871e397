"""Text classification: records, labels, rows of tokens, losses, answers and scores."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from minibert.config import resolve
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.tasks.base import Feature, Mistake
from minibert.tasks.cls import Cls
from minibert.tasks.cls_rows import ClsConfig, ClsExample, is_visible, label_names
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

WORDS = "hello x [ ] sep mask cls pad good bad film a b c d e f 一 二 三".split()


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer.from_tokens([*SPECIAL_TOKENS, *WORDS], lowercase=True)


def written(folder, name, data):
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def task(labels=(), **settings):
    return Cls(ClsConfig(**settings), labels)


def labels_in(path, **settings):
    return [example.label for example in task(**settings).read(path, gold=True).examples]


def refused(call, *arguments, **named):
    with pytest.raises(UserError) as caught:
        call(*arguments, **named)
    return caught.value


# reading


def test_row_becomes_an_example(tmp_path):
    path = written(tmp_path, "c.csv", "n,text,label,other\n7, good ,  pos\u3000,x\n8,bad,neg,y\n")
    reading = task(pair_column="other", id_column="n").read(path, gold=True)
    assert reading.examples == [
        ClsExample(" good ", "x", "pos", "7", f"{path}:2"),
        ClsExample("bad", "y", "neg", "8", f"{path}:3"),
    ]
    assert task().read(path, gold=False).examples[0] == ClsExample(" good ", where=f"{path}:2")


def test_prediction_reads_no_labels(tmp_path):
    for name, data in (
        ("a.csv", "text\ngood\nbad\n"), ("b.csv", 'text,label\ngood,\nbad,"[]"\n'), ("c.txt", "good\nbad"),
        ("d.jsonl", '{"text": "good", "label": null}\n{"text": "bad"}\n'), ("e.tsv", "label\ttext\n\tgood\n\tbad\n"),
    ):  # fmt: skip
        examples = task().read(written(tmp_path, name, data), gold=False).examples
        assert [(e.text, e.label) for e in examples] == [("good", None), ("bad", None)]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ('"NA"', "NA"), ('" B-ORG "', "B-ORG"), ("1", "1"), ('"01"', "01"), ("1.0", "1.0"), ("true", "true"),
        ("false", "false"), ('"null"', "null"), ("-3", "-3"),
    ],
)  # fmt: skip
def test_json_labels_as_text(tmp_path, value, label):
    path = written(tmp_path, "c.jsonl", f'{{"text": "a", "label": {value}}}')
    assert labels_in(path) == [label]


def test_parquet_labels_are_those_of_json(tmp_path):
    for values, expected in (([0, 10], ["0", "10"]), ([True, False], ["true", "false"]), (["01", "NA"], ["01", "NA"])):
        pq.write_table(pa.table({"text": ["a", "b"], "label": values}), tmp_path / "c.parquet")
        assert labels_in(tmp_path / "c.parquet") == expected
    pq.write_table(pa.table({"text": ["a", "b"], "label": [["x", "y"], []]}), tmp_path / "c.parquet")
    assert labels_in(tmp_path / "c.parquet", multi_label=True) == [("x", "y"), ()]
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.5, 2.0]}), tmp_path / "c.parquet")
    assert labels_in(tmp_path / "c.parquet", regression=True) == [1.5, 2.0]
    pq.write_table(pa.table({"text": ["a", None], "label": [1, 2]}), tmp_path / "c.parquet")
    error = refused(labels_in, tmp_path / "c.parquet")
    assert (error.where, error.problem) == (f"{tmp_path}/c.parquet: row 2", "the text is missing (null)")


@pytest.mark.parametrize(
    ("line", "settings", "problem", "fix"),
    [
        ('"text": "a", "label": null', {}, "the label is missing (null)", "text or a number"),
        ('"text": "a", "label": {"x": 1}', {}, "the label is an object: {", "text or a number"),
        ('"text": "a", "label": NaN', {}, "the label is no finite number: nan", "text or a number"),
        ('"text": "a", "label": ""', {}, "the label is empty", "minibert predict"),
        ('"text": "a", "label": " "', {}, "the label is empty", "minibert predict"),
        ('"text": "a", "label": ["x"]', {}, "the label is a list: ['x']", "--multi-label"),
        ('"text": "a", "label": "[\'x\', \'y\']"', {}, "a list written as text", "--multi-label"),
        ('"text": "a", "label": "[]"', {}, "a list written as text", "--multi-label"),
        ('"text": "a", "label": "x\\ny"', {}, "holds a line break", "quotes"),
        ('"text": 1, "label": "x"', {}, "the text is a number: 1", "--text-column"),
        ('"text": null, "label": "x"', {}, "the text is missing (null)", "--text-column"),
        ('"text": "a", "b": [], "label": "x"', {"pair_column": "b"}, "the text is an array: []", "--pair-column"),
        ('"text": "a", "n": null, "label": "x"', {"id_column": "n"}, "the id is missing (null)", "--id-column"),
        ('"text": "a", "n": true, "label": "x"', {"id_column": "n"}, "the id is a boolean: True", "--id-column"),
        ('"text": "a", "label": 1', {"multi_label": True}, "the label is a number: 1", "a|b"),
        ('"text": "a", "label": "x|y|x"', {"multi_label": True}, "stands twice in 'x|y|x'", "once"),
        ('"text": "a", "label": "x||y"', {"multi_label": True}, "the label is empty", "every row"),
        ('"text": "a", "label": ["x", null]', {"multi_label": True}, "the label is missing (null)", "text or a number"),
        ('"text": "a", "label": "3,8"', {"regression": True}, "'3,8' is no number", "3.8"),
        ('"text": "a", "label": "1_0"', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": "３"', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": "nan"', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": Infinity', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": 1e999', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": true', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": null', {"regression": True}, "no number", "3.8"),
        ('"text": "a", "label": ""', {"regression": True}, "no number", "3.8"),
    ],
)
def test_wrong_record_is_refused_with_place_value_and_fix(tmp_path, line, settings, problem, fix):
    good = '"text": "a", "b": "c", "n": 1, "label": ' + ("1" if "regression" in settings else '"x"')
    path = written(tmp_path, "c.jsonl", f"{{{good}}}\n{{{line}}}\n")
    error = refused(task(**settings).read, path, gold=True)
    assert error.where == f"{path}:2"
    assert problem in error.problem
    assert fix in error.fix


def test_empty_label_cell_is_refused_by_its_line(tmp_path):
    path = written(tmp_path, "c.csv", 'text,label\n"a\nb",pos\nc,\n')
    assert (refused(labels_in, path).where, refused(labels_in, path).problem) == (f"{path}:4", "the label is empty")
    assert labels_in(path, multi_label=True) == [("pos",), ()]


def test_numbers_of_regression(tmp_path):
    path = written(tmp_path, "c.csv", "text,label\na,3.8\nb, -1e-3 \nc,.5\nd,2\ne,+4.\n")
    assert labels_in(path, regression=True) == [3.8, -0.001, 0.5, 2.0, 4.0]


def test_labels_of_a_cell_are_split_and_those_of_a_list_are_not(tmp_path):
    path = written(tmp_path, "c.jsonl", '{"text": "a", "label": "x| y"}\n{"text": "b", "label": ["x|y"]}\n')
    assert labels_in(path, multi_label=True) == [("x", "y"), ("x|y",)]
    assert labels_in(path, multi_label=True, label_delimiter=";") == [("x| y",), ("x|y",)]


def test_empty_texts_and_texts_without_labels_are_counted(tmp_path):
    path = written(tmp_path, "c.csv", 'text,label\n"",a\n"  \u3000",a\n\u200b\ufeff,\nok,\n')
    reading = task(multi_label=True).read(path, gold=True)
    assert len(reading.examples) == 4
    assert reading.notes == ["3 texts are empty", "2 texts have no label"]
    assert task().read(written(tmp_path, "c.txt", "a\n\nb"), gold=False).notes == ["1 text is empty"]


def test_file_without_rows_is_refused(tmp_path):
    for name, data in (("a.csv", "text,label\n"), ("b.jsonl", "\n \n"), ("c.txt", ""), ("d", "")):
        path = written(tmp_path, name, data)
        error = refused(task().read, path, gold=name < "c")
        assert (error.where, error.problem) == (str(path), "holds no examples: there are no rows")
    assert "--label-column" in refused(task().read, written(tmp_path, "e.txt", "a\n"), gold=True).problem


def test_format_comes_from_the_setting_the_name_or_the_text(tmp_path):
    path = written(tmp_path, "stdin", "text,label\na,b\n")
    reading = task().read(path, gold=True)
    assert reading.examples[0].label == "b"
    assert reading.notes == [
        "read as csv: its first line names the columns (--input-format csv|tsv|jsonl|parquet|txt says otherwise)"
    ]
    assert len(task(input_format="txt").read(path, gold=False).examples) == 2
    assert len(task(input_format="csv").read(written(tmp_path, "x.txt", "text,label\na,b\n"), gold=True).examples) == 1
    assert refused(task(input_format="xml").read, path, gold=True).where == "--input-format"
    tabs = written(tmp_path, "x.dat", "text\tlabel\na\tb\n")
    assert task(input_format="csv", delimiter="\\t").read(tabs, gold=True).examples[0].label == "b"


# settings


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"multi_label": True, "regression": True}, "regression"),
        ({"multi_label": True, "class_weights": "balanced"}, "class_weights"),
        ({"regression": True, "class_weights": "balanced"}, "class_weights"),
        ({"regression": True, "labels": "l.txt"}, "labels"),
        ({"delimiter": "||"}, "delimiter"),
        ({"delimiter": '"'}, "delimiter"),
        ({"text_column": ""}, "text_column"),
        ({"label_column": ""}, "label_column"),
        ({"label_delimiter": ""}, "label_delimiter"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, where):
    assert refused(ClsConfig, **settings).where == where


def test_defaults_are_those_of_bert():
    config = ClsConfig()
    assert (config.max_length, config.batch_size, config.lr, config.epochs) == (128, 32, 5e-5, 3.0)
    assert resolve(ClsConfig, ("recipe", {"class_weights": "balanced"})).class_weights == "balanced"


# labels


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["null", "nan", "NA", "None", "NA"], ["NA", "None", "nan", "null"]),
        (["10", "2", "-1", "0"], ["-1", "0", "2", "10"]),
        (["1", "01", "2"], ["01", "1", "2"]),
        (["10", "2", "x"], ["10", "2", "x"]),
        (["２", "10"], ["10", "２"]),
    ],
)
def test_labels_are_sorted(found, expected):
    examples = [ClsExample("t", label=label, where="c.csv:2") for label in found]
    assert task().labels_of(examples) == expected


def test_labels_that_cannot_be_learnt_are_refused():
    def examples(*labels):
        return [ClsExample("t", label=label, where="c.csv:2") for label in labels]

    error = refused(task().labels_of, examples("pos", "pos"))
    assert (error.where, error.problem) == ("c.csv", "all 2 rows have the label 'pos'")
    assert task(multi_label=True).labels_of(examples(("a",), ())) == ["a"]
    assert refused(task(multi_label=True).labels_of, examples((), ())).problem == "no row has a label"
    error = refused(task().labels_of, examples(*(f"text {i}" for i in range(29)), "text 1"))
    assert "29 classes in 30 rows" in error.problem
    assert "--label-column" in error.fix
    assert len(task().labels_of(examples(*[str(i) for i in range(101)] * 2))) == 101
    assert len(task().labels_of(examples(*map(str, range(7))))) == 7  # a tiny set may be so


@pytest.mark.parametrize("columns", [{"text_column": "label"}, {"label_column": "text"}, {"pair_column": "text"}])
def test_one_column_is_not_two_things(columns):
    with pytest.raises(UserError, match=r"--\w+-column and --\w+-column are the same column"):
        ClsConfig(**columns)


def test_labels_file_fixes_names_and_order(tmp_path):
    listed = written(tmp_path, "l.txt", "\ufeffpos\r\n neg \r\nneutral\r\n\r\n")
    config = ClsConfig(labels=str(listed))
    examples = [ClsExample("t", label="neg", where="c.csv:2")]
    assert label_names(examples, config) == ["pos", "neg", "neutral"]
    settled = Cls(config).settled([*examples, ClsExample("t", label="bad", where="c.csv:3")])
    assert refused(settled.check, [ClsExample("t", label="bad", where="c.csv:3")]).where == "c.csv:3"
    for data, line, problem in (
        ("pos\nneg\npos\n", ":3", "stands in line 1 too"), ("pos\n\nneg\n", ":2", "empty"), ("pos\n", "", "lists 1"),
    ):  # fmt: skip
        error = refused(label_names, examples, ClsConfig(labels=str(written(tmp_path, "l.txt", data))))
        assert error.where == f"{listed}{line}"
        assert problem in error.problem


def test_label_that_training_has_not_is_refused():
    examples = [ClsExample("t", label=label, where=f"dev.csv:{i}") for i, label in enumerate(["pos", "Neg", "x"], 2)]
    error = refused(task(["neg", "pos"]).check, examples)
    assert error.where == "dev.csv:3"
    assert error.problem == "the label 'Neg' is not among those of training: neg, pos (2 such labels in all)"
    assert "did you mean 'neg'?" in error.fix
    several = [ClsExample("t", label=("a", "z"), where="dev.csv:2")]
    assert "'z'" in refused(task(["a", "b"], multi_label=True).check, several).problem
    many = task([f"l{i}" for i in range(30)])
    assert refused(many.check, several).problem.endswith("l19 ... 30 in all (2 such labels in all)")
    task(["LABEL_0"], regression=True).check([ClsExample("t", label=1.0)])


# rows of tokens


def test_a_text_and_a_pair_become_rows(tokenizer):
    examples = [ClsExample("a b"), ClsExample("a b", "c"), ClsExample("", ""), ClsExample("\u200b")]
    features = task().encode(examples, tokenizer, gold=False, first=5).features
    tokens = [" ".join(tokenizer.convert_ids_to_tokens(f.ids)) for f in features]
    assert tokens == ["[CLS] a b [SEP]", "[CLS] a b [SEP] c [SEP]", "[CLS] [SEP] [SEP]", "[CLS] [SEP]"]
    assert [f.second for f in features] == [4, 4, 2, 2]
    assert [f.example for f in features] == [5, 6, 7, 8]
    assert all(f.target is None for f in features)


WORD = st.lists(st.sampled_from("abcdef"), max_size=12).map(" ".join)


@given(st.lists(st.tuples(WORD, st.none() | WORD), min_size=1, max_size=4), st.integers(8, 20))
def test_rows_are_those_of_the_tokenizers_own_call(tokenizer, records, max_length):
    examples = [ClsExample(*record) for record in records]
    encoded = task(max_length=max_length).encode(examples, tokenizer, gold=False)
    for (text, pair), feature in zip(records, encoded.features, strict=True):
        theirs = tokenizer(text, pair, max_length=max_length)
        assert feature.ids.tolist() == theirs["input_ids"][0].tolist()
        types = (np.arange(len(feature.ids)) >= feature.second).astype(int).tolist()
        assert types == theirs["token_type_ids"][0].tolist()
    cut = sum(len(tokenizer(*r)["input_ids"][0]) > max_length for r in records)
    expected = [f"{cut} of {len(records)} rows were cut at {max_length} tokens (--max-length)"] if cut else []
    assert encoded.notes == expected


# losses: against torch's own means, with rows that fill up


def batch_of(kind, examples, tokenizer, fillers=0):
    features = kind.encode(examples, tokenizer, gold=True).features
    features += [Feature(0, features[0].ids, 3, kind.no_target())] * fillers
    return kind.batch(features, tokenizer.pad_token_id)


class Out:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize("fillers", [0, 2])
@pytest.mark.parametrize("balanced", [False, True])
def test_loss_of_classes_is_torchs_weighted_mean(tokenizer, fillers, balanced):
    gold = ["b", "a", "b", "c", "b", "b"]
    examples = [ClsExample("a", label=label, where="c.csv:2") for label in gold]
    kind = task(class_weights="balanced" if balanced else "none").settled(examples)
    logits = torch.randn(6 + fillers, 3, generator=torch.Generator().manual_seed(0)) * 3
    batch = batch_of(kind, examples, tokenizer, fillers)
    mean = kind.losses(Out(logits), batch) / batch["counts"]
    weights = torch.tensor([6 / 3, 6 / 12, 6 / 3]) if balanced else None  # n / (C n_c)
    expected = F.cross_entropy(logits[:6], torch.tensor([1, 0, 1, 2, 1, 1]), weight=weights)
    assert mean.shape == (1,)
    assert mean.dtype == torch.float32
    assert torch.allclose(mean[0], expected, atol=1e-6)


@pytest.mark.parametrize("fillers", [0, 2])
def test_loss_of_several_labels_and_of_numbers_is_torchs_mean(tokenizer, fillers):
    draw = torch.Generator().manual_seed(0)
    examples = [ClsExample("a", label=label) for label in (("a",), ("a", "b"), (), ("b",))]
    kind = task(multi_label=True).settled(examples)
    batch = batch_of(kind, examples, tokenizer, fillers)
    assert batch["labels"][:4].tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]
    assert batch["labels"].dtype == torch.float32
    logits = torch.randn(4 + fillers, 2, generator=draw)
    expected = F.binary_cross_entropy_with_logits(logits[:4], batch["labels"][:4])
    assert torch.allclose(kind.losses(Out(logits), batch) / batch["counts"], expected, atol=1e-6)

    numbers = [ClsExample("a", label=number) for number in (1.5, -2.0, 0.0)]
    kind = task(regression=True).settled(numbers)
    batch = batch_of(kind, numbers, tokenizer, fillers)
    logits = torch.randn(3 + fillers, 1, generator=draw)
    expected = F.mse_loss(logits[:3, 0], torch.tensor([1.5, -2.0, 0.0]))
    assert torch.allclose(kind.losses(Out(logits), batch) / batch["counts"], expected, atol=1e-6)


def test_class_weights_need_every_class(tmp_path):
    listed = written(tmp_path, "l.txt", "a\nb\nc\n")
    examples = [ClsExample("t", label=label, where="c.csv:2") for label in "aab"]
    assert Cls(ClsConfig()).settled(examples).weights is None
    weighted = Cls(ClsConfig(class_weights="balanced")).settled(examples)
    assert weighted.weights.tolist() == pytest.approx([0.75, 1.5])
    error = refused(Cls(ClsConfig(class_weights="balanced", labels=str(listed))).settled, examples)
    assert (error.where, "'c'" in error.problem) == ("--class-weights", True)


def test_a_small_bert_takes_the_batch(tokenizer):
    examples = [ClsExample("a b", "c", label="x"), ClsExample("good film 一", "d", label="y")]
    kind = task(["x", "y"])
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = kind.model_class()(BertConfig(vocab_size=len(tokenizer), extra=kind.facts(), **shape)).eval()
    batch = batch_of(kind, examples, tokenizer)
    out = kind.forward(model, batch)
    features = kind.encode(examples, tokenizer, gold=False).features
    with torch.no_grad():
        outputs = kind.outputs(kind.forward(model, batch), features)
    assert [o.shape for o in outputs] == [(2,), (2,)]
    assert torch.isfinite(kind.losses(out, batch)).all()
    predictions = kind.decode(examples, features, outputs)
    assert [p["scores"].keys() for p in predictions] == [{"x", "y"}] * 2


# what config.json says


def test_facts_and_settings_of_a_config():
    facts = task(["neg", "pos"]).facts()
    assert facts["id2label"] == {"0": "neg", "1": "pos"}
    assert facts["label2id"] == {"neg": 0, "pos": 1}
    assert facts["problem_type"] == "single_label_classification"
    for settings in ({"multi_label": True}, {"regression": True}):
        kind = task(**settings).settled([ClsExample("t", label=("a",))])
        assert Cls.settings_of(kind.facts()) == settings
    assert task(regression=True).settled([]).facts()["id2label"] == {"0": "LABEL_0"}
    assert Cls.settings_of(facts) == Cls.settings_of({}) == {}
    assert Cls.settings_of({"id2label": {"0": "LABEL_0"}}) == {"regression": True}
    assert Cls.settings_of({"id2label": {"0": "a"}, "problem_type": "multi_label_classification"}) == {
        "multi_label": True
    }


def test_a_model_remembers_what_answers_depend_on():
    config = ClsConfig(text_column="t", header=False, labels="l.txt", class_weights="balanced", max_length=64, lr=1e-4)
    kind = Cls(config, ["a", "b"])
    assert kind.own_settings() == {"text_column": "t", "header": False, "max_length": 64}


# answers


def test_prediction_of_classes():
    kind = task(["neg", "pos"])
    examples = [ClsExample("NA"), ClsExample("b", "c", id=7)]
    logits = [np.float32([0, math.log(3)]), np.float32([1000, -1000])]
    assert kind.decode(examples, [], logits) == [
        {"text": "NA", "label": "pos", "score": 0.75, "scores": {"neg": 0.25, "pos": 0.75}},
        {"id": 7, "text": "b", "pair": "c", "label": "neg", "score": 1.0, "scores": {"neg": 1.0, "pos": 0.0}},
    ]
    assert list(kind.decode(examples[1:], [], logits[1:])[0])[:3] == ["id", "text", "pair"]
    assert kind.decode([], [], []) == []


def test_prediction_of_several_labels_and_of_numbers():
    kind = task(["a", "b"], multi_label=True)
    logits = [np.float32([math.log(3), 0]), np.float32([-2000, -0.1]), np.float32([0.1, 2000])]
    found = kind.decode([ClsExample("t")] * 3, [], logits)
    assert found[0] == {"text": "t", "label": ["a"], "score": [0.75], "scores": {"a": 0.75, "b": 0.5}}
    assert [p["label"] for p in found] == [["a"], [], ["a", "b"]]
    number = task(["LABEL_0"], regression=True).decode([ClsExample("t")], [], [np.float32([0.1])])
    assert number == [{"text": "t", "label": 0.1, "score": 0.1}]


def test_output_that_is_no_number_is_refused():
    examples = [ClsExample("a", where="x.csv:2"), ClsExample("b", where="x.csv:3")]
    error = refused(task(["a", "b"]).decode, examples, [], [np.float32([0, 1]), np.float32([0, math.nan])])
    assert (error.where, "nan" in error.problem) == ("x.csv:3", True)


def test_scores_by_hand():
    kind = task(["a", "b"])
    examples = [ClsExample("t", label=label) for label in "aabb"]
    predictions = [{"label": label} for label in "abbb"]
    scores = kind.score(examples, predictions)
    assert set(scores) == set(kind.metric_names)
    assert scores["accuracy"] == 0.75
    assert scores["f1"] == pytest.approx(0.8)  # of b: precision 2/3, recall 1
    assert scores["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    kind = task(["a", "b"], multi_label=True)
    examples = [ClsExample("t", label=label) for label in (("a",), ("a", "b"), (), ("b",))]
    scores = kind.score(examples, [{"label": label} for label in (["a"], ["a"], [], ["a"])])
    assert set(scores) == set(kind.metric_names)
    assert scores["micro_f1"] == pytest.approx(4 / 7)  # 2 right of 3 predicted, of 4 in gold
    assert scores["accuracy"] == 0.5


def test_scores_of_numbers_are_numbers():
    kind = task(["LABEL_0"], regression=True)
    examples = [ClsExample("t", label=float(i)) for i in range(4)]
    assert kind.score(examples, [{"score": 2.0 * i} for i in range(4)]) == pytest.approx(
        {"pearson": 1, "spearman": 1, "mse": (0 + 1 + 4 + 9) / 4}
    )
    constant = kind.score(examples, [{"score": 1.0}] * 4)
    assert constant == {"pearson": 0.0, "spearman": 0.0, "mse": 1.5}


def test_tables_show_classes_and_confusions():
    kind = task(["a", "b"])
    examples = [ClsExample("t", label=label) for label in "aabb"]
    classes, square = kind.tables(examples, [{"label": label} for label in "abbb"])
    assert classes.rows == [["a", "1.0000", "0.5000", "0.6667", "2"], ["b", "0.6667", "1.0000", "0.8000", "2"]]
    assert (square.columns, square.rows) == (["", "a", "b"], [["a", "1", "1"], ["b", "0", "2"]])
    assert task(["LABEL_0"], regression=True).tables([ClsExample("t", label=1.0)], [{"score": 1.0}]) == []
    several = task(["a", "b"], multi_label=True)
    (table,) = several.tables([ClsExample("t", label=("a",))], [{"label": ["a", "b"]}])
    assert [row[-1] for row in table.rows] == ["1", "0"]


def test_tables_of_many_classes_are_cut_and_say_so():
    labels = [f"l{i:02}" for i in range(40)]
    kind = task(labels)
    gold = [label for i, label in enumerate(labels) for _ in range(i + 1)]
    examples = [ClsExample("t", label=label) for label in gold]
    classes, confusions = kind.tables(examples, [{"label": "l00"}] * len(gold))
    assert classes.title == "the 30 most frequent of 40 classes"
    assert [row[0] for row in classes.rows] == labels[:9:-1]
    assert confusions.title == "the 30 most frequent of 39 confusions"
    assert confusions.rows[0] == ["l39", "l00", "40"]
    assert kind.tables(examples, [{"label": label} for label in gold])[1].title == "no confusions"


# from Python


def test_inputs_of_a_pipeline():
    def pairs(*inputs, **named):
        return [(e.text, e.pair) for e in task().from_python(*inputs, **named)]

    assert pairs("a") == [("a", None)]
    assert pairs(["a", "b"]) == pairs(np.array(["a", "b"])) == pairs(text=["a", "b"]) == [("a", None), ("b", None)]
    assert pairs("a", "b") == pairs(text="a", text_pair="b") == pairs("a", text_pair="b") == [("a", "b")]
    assert pairs(["a", "c"], ["b", "d"]) == pairs([("a", "b"), ("c", "d")]) == [("a", "b"), ("c", "d")]
    assert pairs({"text": "a", "text_pair": "b"}) == pairs([{"text": "a", "text_pair": "b"}]) == [("a", "b")]
    assert pairs({"text": "a"}) == [("a", None)]
    assert pairs([]) == []


@pytest.mark.parametrize(
    ("inputs", "named", "problem"),
    [
        ((), {}, "got 0 inputs"),
        (("a", "b", "c"), {}, "got 3 inputs"),
        (("a",), {"txt": "b"}, "txt by name"),
        ((), {"text_pair": "b"}, "text_pair by name"),
        (("a",), {"text": "b"}, "got text twice"),
        ((["a", "b"], ["c"]), {}, "2 texts but 1 pairs"),
        ((["a", None],), {}, "None is NoneType, not a text"),
        ((3,), {}, "3 is int, not a text"),
        (("a", 3), {}, "3 is int, not a text"),
        (("a", None), {}, "there is no second text"),
        (([("a", "b", "c")],), {}, "tuple, not a text"),
        ((("a", "b"),), {}, "a tuple is one pair"),
        (({"txt": "a"},), {}, "dict, not a text"),
    ],
)
def test_wrong_inputs_of_a_pipeline_are_refused(inputs, named, problem):
    assert problem in refused(task().from_python, *inputs, **named).problem


def test_a_model_of_pairs_refuses_single_texts():
    error = refused(task(pair_column="b").from_python, [("a", "b"), "c"])
    assert (error.where, "takes pairs" in error.problem) == ("input 2", True)


def test_invisible_texts():
    assert [is_visible(text) for text in ("", " \u3000\t", "\u200b\u2060\ufeff\0", "a", "。", "\u200b一", "😀")] == [
        False, False, False, True, True, True, True,
    ]  # fmt: skip


# demonstration and given cases


def test_demonstration_has_three_classes(tmp_path):
    examples = task().read(Cls.demo(tmp_path), gold=True).examples
    assert len(examples) == 14
    assert examples[-1].text == 'she said "bring a map", and left'
    assert task().labels_of(examples) == ["bad", "good", "neither"]


def test_given_cases(shared, tokenizer):
    cases = shared / "cases"
    for name, expected in (
        ("A01/cls_bom.csv", ["neg", "pos"]), ("A01/cls_bom.jsonl", ["neg", "pos"]), ("H10/long.csv", ["a", "b"]),
        ("A02/cls_crlf.csv", ["neg", "pos"]), ("E01/cls.csv", ["NA", "None", "nan", "null"]),
        ("E01/cls_int.csv", ["01", "1"]),
    ):  # fmt: skip
        assert task().labels_of(task().read(cases / name, gold=True).examples) == expected
    assert refused(task().read, cases / "A10/empty.csv", gold=True).problem == "holds no examples: there are no rows"

    trained = task().settled(task().read(cases / "E02/train.csv", gold=True).examples)
    error = refused(trained.check, trained.read(cases / "E02/dev.csv", gold=True).examples)
    assert error.where == str(cases / "E02/dev.csv") + ":3"
    assert "'neutral'" in error.problem
    assert len(trained.read(cases / "E02/test_nolabel.csv", gold=False).examples) == 2

    several = task(multi_label=True)
    assert several.labels_of(several.read(cases / "E05/cls.jsonl", gold=True).examples) == ["a", "b"]
    assert "--multi-label" in refused(task().read, cases / "E05/cls.jsonl", gold=True).fix

    swapped = task(text_column="sentence").read(cases / "E07/swapped.csv", gold=True).examples
    assert [(e.text, e.label) for e in swapped] == [("good film", "pos"), ("bad film", "neg")]
    assert len(task(header=False).read(cases / "E07/noheader.csv", gold=True).examples) == 3

    reading = task().read(cases / "E10/dev.csv", gold=False)
    assert reading.notes == ["3 texts are empty"]
    rows = [f.ids.tolist() for f in task().encode(reading.examples, tokenizer, gold=False).features]
    assert rows[0] == rows[1] == rows[2] == [tokenizer.cls_token_id, tokenizer.sep_token_id]

    own = BertTokenizer.from_pretrained(cases / "B01/vocab.txt")
    features = task().encode(task().read(cases / "B01/cls.csv", gold=True).examples, own, gold=False).features
    assert " ".join(own.convert_ids_to_tokens(features[0].ids)) == "[CLS] hello [ sep ] x [SEP]"
    for feature in features:
        assert [(feature.ids == i).sum() for i in (own.cls_token_id, own.sep_token_id, own.mask_token_id)] == [1, 1, 0]

    long = task(max_length=64).encode(task().read(cases / "H10/long.csv", gold=False).examples, tokenizer, gold=False)
    assert max(len(f.ids) for f in long.features) == 64
    assert long.notes == [f"1 of {len(long.features)} rows were cut at 64 tokens (--max-length)"]


@pytest.mark.parametrize(
    ("gold", "given", "said"),
    [
        (("a", "b"), ("b", "b"), "every text is labelled 'b'"),
        (("a", "b"), ("b", "a"), None),
        (("b", "b"), ("b", "b"), None),
    ],
)
def test_one_label_for_everything_is_noticed(gold, given, said):
    examples = [ClsExample("t", label=name) for name in gold]
    assert task(["a", "b"]).one_sided(examples, [{"label": name} for name in given]) == said


def test_labels_that_are_all_different_are_taken_for_another_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"a text,{i}.5\n" for i in range(8)), "utf-8")
    task = Cls(ClsConfig())
    with pytest.raises(UserError, match="8 classes in 8 rows"):
        task.settled(task.read(path, gold=True, train=True).examples)


def test_mistakes_the_surest_first():
    examples = [ClsExample("a", label="x"), ClsExample("b", label="y"), ClsExample("c", "d", label="x")]
    said = [{"label": "y", "score": 0.6}, {"label": "y", "score": 0.9}, {"label": "y", "score": 0.8}]
    found = task("xy").mistakes(examples, said)
    assert [(m.text, m.pair, m.gold, m.answer, m.score) for m in found] == [
        ("c", "d", "x", "y", 0.8), ("a", "", "x", "y", 0.6),
    ]  # fmt: skip


def test_mistakes_of_numbers_the_farthest_first():
    examples = [ClsExample("a", label=1.0), ClsExample("b", label=2.0)]
    found = task(regression=True).mistakes(examples, [{"label": 1.5, "score": 1.5}, {"label": 0.0, "score": 0.0}])
    assert [(m.text, m.gold, m.answer, m.score) for m in found] == [("b", "2", "0", None), ("a", "1", "1.5", None)]


def test_mistakes_among_several_labels_by_the_surest_wrong_one():
    scores = [{"x": 0.9, "y": 0.2}, {"x": 0.6, "y": 0.97}, {"x": 0.1, "y": 0.1}]
    said = [{"label": [n for n, p in s.items() if p > 0.5], "score": [], "scores": s} for s in scores]
    examples = [ClsExample("a", label=("x",)), ClsExample("b", label=("x",)), ClsExample("c", label=("y",))]
    found = task("xy", multi_label=True).mistakes(examples, said)
    assert [(m.text, m.gold, m.answer, m.score) for m in found] == [
        ("b", "x", "x, y", 0.97), ("c", "y", "(none)", 0.9),
    ]  # fmt: skip


def test_a_long_mistake_keeps_the_marks_that_are_left():
    long = Mistake("a" * 100, "g", "a", marks=[(0, 5, "gold", ""), (95, 99, "answer", "")])
    short = long.shortened(10)
    assert (short.text, short.marks) == ("a" * 10 + " …", [(0, 5, "gold", "")])
    assert long.shortened(100).text == long.text
