"""Vectors: the encoder's states, whatever stands on it, in any batch; and files of them in three formats."""

import gzip
import io
import json
import sys
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minibert
from minibert.checkpoint.pretrained import HEADS
from minibert.cli import commands
from minibert.errors import UserError
from minibert.vectors import files
from minibert.vectors.records import Source
from minibert.vectors.writers import numbers

TEXT = "the red cat sings. 吃苹果发布会买了 new old dog moon"
TEXTS = ["the red cat sings.", "吃苹果", "", "new dog " * 9, "苹果发布会"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, checkpoint_for):
    """Initial values far from 0, so that layers, padding and positions matter."""
    return checkpoint_for(TEXT, tmp_path_factory.mktemp("model") / "post", num_hidden_layers=3, initializer_range=0.3)


@pytest.fixture(scope="module")
def pre(tmp_path_factory, checkpoint_for):
    return checkpoint_for(TEXT, tmp_path_factory.mktemp("model") / "pre", norm="pre", initializer_range=0.3)


def hidden(path, text):
    """All states of one text alone, (1 + L) x (T,D)."""
    model, tokenizer = minibert.load(path)
    with torch.no_grad():
        return [x[0].numpy() for x in model(**tokenizer([text]), output_hidden_states=True).hidden_states]


# ---- Python


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_layer_and_pooling_is_of_the_models_states(checkpoint, pre, norm):
    path = checkpoint if norm == "post" else pre
    pair = minibert.load(path) if norm == "pre" else path
    expected = [hidden(path, text) for text in TEXTS]
    layers = len(expected[0]) - 1
    for layer in range(-layers - 1, layers + 1):
        mean = minibert.embed(pair, TEXTS, layer=layer)
        first = minibert.embed(pair, TEXTS, layer, "cls")
        tokens = minibert.embed(pair, TEXTS, layer=layer, pooling="none")
        assert (mean.dtype, mean.shape, first.shape) == (np.float32, (5, 64), (5, 64))
        for i, states in enumerate(expected):
            # worst seen 2e-6: batches add up in another order
            np.testing.assert_allclose(mean[i], states[layer].mean(0), atol=2e-5)
            np.testing.assert_allclose(first[i], states[layer][0], atol=2e-5)
            np.testing.assert_allclose(tokens[i], states[layer][1:-1], atol=2e-5)


def test_a_han_characters_vector_has_its_index(checkpoint):
    whole = minibert.embed(checkpoint, "吃苹果", pooling="none", layer=0)
    assert whole.shape == (3, 64)
    swapped = minibert.embed(checkpoint, "吃果苹", pooling="none", layer=0)
    np.testing.assert_allclose(whole[0], swapped[0], atol=1e-6)
    assert np.abs(whole[1] - swapped[1]).max() > 0.1


def test_mean_is_that_of_the_reference_library(checkpoint):
    """As sentence-transformers pools: the sum of the states where the mask is 1, by the mask's sum."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), AutoModel.from_pretrained(checkpoint).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    mean = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
    found = minibert.embed(checkpoint, TEXTS, normalize=True)
    np.testing.assert_allclose(found, mean.numpy(), atol=5e-6)


@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_vectors_do_not_depend_on_the_order_nor_the_batch(checkpoint, pooling):
    pair = minibert.load(checkpoint)
    texts = [text for text in TEXTS if text] * 3
    order = np.random.default_rng(0).permutation(len(texts))
    plain = minibert.embed(pair, texts, pooling=pooling)
    mixed = minibert.embed(pair, (texts[i] for i in order), pooling=pooling, batch_size=2)
    for place, i in enumerate(order):
        np.testing.assert_allclose(mixed[place], plain[i], atol=2e-5)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_any_head_gives_its_encoders_vectors_without_a_warning(checkpoint, tmp_path, head):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the head starts fresh
        model, tokenizer = minibert.load(checkpoint, head=head)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    expected = minibert.embed(checkpoint, TEXTS[:2])
    np.testing.assert_array_equal(minibert.embed(tmp_path, TEXTS[:2]), expected)
    model.train()
    np.testing.assert_array_equal(minibert.embed((model, tokenizer), TEXTS[:2]), expected)
    assert model.training


def test_one_text_gives_its_vector_and_no_text_none(checkpoint):
    pair = minibert.load(checkpoint)
    several = minibert.embed(pair, ["吃苹果"])
    np.testing.assert_array_equal(minibert.embed(pair, "吃苹果"), several[0])
    assert minibert.embed(pair, "吃苹果", pooling="none").shape == (3, 64)
    assert minibert.embed(pair, "", pooling="none").shape == (0, 64)
    assert minibert.embed(pair, []).shape == (0, 64)
    assert minibert.embed(pair, [], pooling="none") == []


def test_normalized_vectors_are_one_long(checkpoint):
    vectors = minibert.embed(checkpoint, TEXTS, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_long_texts_are_cut_and_counted_once(checkpoint):
    pair = minibert.load(checkpoint)
    texts = ["果" * 80, "吃", "果" * 100]
    with pytest.warns(UserWarning, match=r"^2 of 3 texts were longer than 64 tokens and cut at their end$") as said:
        tokens = minibert.embed(pair, texts, pooling="none")
    assert len(said) == 1
    assert said[0].filename == __file__
    assert [len(x) for x in tokens] == [62, 1, 62]
    with pytest.warns(UserWarning, match=r"1 of 1 texts were longer than 3 tokens"):
        cut = minibert.embed(pair, ["吃苹果"], max_length=3)
    np.testing.assert_array_equal(cut, minibert.embed(pair, ["吃"]))
    assert len(minibert.embed(pair, "果" * 62, pooling="none")) == 62  # fits to the last position: nothing is said


def test_a_tokenizers_shorter_limit_counts(checkpoint):
    model, tokenizer = minibert.load(checkpoint)
    tokenizer.model_max_length = 5
    with pytest.warns(UserWarning, match="longer than 5 tokens"):
        minibert.embed((model, tokenizer), ["吃苹果了"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 4}, "layer: there is no layer 4: the model has 3\n  fix: 0 (the embeddings) to 3 (the last), or -1"),
        ({"layer": -5}, "there is no layer -5: the model has 3"),
        ({"pooling": "max"}, "pooling: there is no pooling 'max'\n  fix: one of mean, cls, none"),
        ({"max_length": 65}, "max_length: max_length is 65: the model has 64 positions"),
        ({"max_length": 2}, "max_length is 2"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"texts": 3}, "texts: texts is of type int"),
        ({"texts": {"a": 1}}, "texts is of type dict"),
        ({"texts": b"abc"}, "texts is of type bytes"),
        ({"texts": ["a", None]}, "text 2: None is NoneType, not a text"),
        ({"path_or_model": 5}, "int is neither a path nor (model, tokenizer)"),
        ({"path_or_model": (torch.nn.Linear(1, 1), None)}, "(Linear, NoneType) is no model and tokenizer of minibert"),
        ({"path_or_model": "nowhere"}, "nowhere"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(checkpoint, options, message):
    with pytest.raises(UserError) as caught:
        minibert.embed(**{"path_or_model": checkpoint, "texts": ["a"], **options})
    assert message in str(caught.value)
    assert caught.value.fix


def test_vectors_that_are_no_numbers_are_refused(checkpoint):
    model, tokenizer = minibert.load(checkpoint)
    model.encoder.layer[-1].output.dense.bias.data[0] = float("nan")
    with pytest.raises(UserError, match="vectors that are not finite"):
        minibert.embed((model, tokenizer), ["a"])


# ---- files


def run(*words, stdin=b"", monkeypatch=None):
    if monkeypatch:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    commands.main(["embed", *map(str, words)], standalone_mode=False)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_an_array_holds_a_row_for_each_line(checkpoint, tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes("\ufeff吃苹果\r\n\r\nthe red cat sings.".encode())
    run("--model", checkpoint, tmp_path / "a.txt", "--out", tmp_path / "a.npy", "--layer", "1", "--normalize")
    found = np.load(tmp_path / "a.npy")
    expected = minibert.embed(checkpoint, ["吃苹果", "", "the red cat sings."], layer=1, normalize=True)
    assert (found.dtype, found.shape) == (np.float32, (3, 64))
    np.testing.assert_array_equal(found, expected)
    said = capsys.readouterr()
    assert (said.out, "3 texts" in said.err) == ("", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "a.txt"]


def test_blocks_change_nothing(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 2)
    monkeypatch.setattr(files, "BLOCK_OF_TOKENS", 2)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), "utf-8")
    expected = minibert.embed(checkpoint, TEXTS)
    tokens = minibert.embed(checkpoint, TEXTS, pooling="none")
    for name in ("a.npy", "a.jsonl", "a.parquet"):
        run("--model", checkpoint, tmp_path / "a.txt", "--out", tmp_path / name, "--quiet")
    from_json = [line["vector"] for line in lines_of((tmp_path / "a.jsonl").read_text("utf-8"))]
    from_table = pq.read_table(tmp_path / "a.parquet")["vector"].to_pylist()
    for found in (np.load(tmp_path / "a.npy"), np.array(from_json), np.array(from_table)):
        np.testing.assert_allclose(found, expected, atol=2e-5)
    run("--model", checkpoint, tmp_path / "a.txt", "--out", tmp_path / "t.parquet", "--pooling", "none", "--quiet")
    for row, vectors in zip(pq.read_table(tmp_path / "t.parquet").to_pylist(), tokens, strict=True):
        assert len(row["tokens"]) == len(row["offsets"]) == len(row["vectors"]) == len(vectors)
        np.testing.assert_allclose(np.array(row["vectors"]).reshape(-1, 64), vectors, atol=2e-5)


def test_json_carries_other_fields_and_repeats_float32_exactly(checkpoint, tmp_path, capsysbinary):
    records = [{"id": 7, "text": "吃苹果", "tags": ["a", None]}, {"text": "a\u2028cat"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    run("--model", checkpoint, tmp_path / "a.jsonl", "--quiet")
    out, err = capsysbinary.readouterr()
    found = lines_of(out.decode())
    assert [{k: v for k, v in record.items() if k != "vector"} for record in found] == records
    assert list(found[0]) == ["id", "text", "tags", "vector"]
    expected = minibert.embed(checkpoint, ["吃苹果", "a\u2028cat"])
    np.testing.assert_array_equal(np.array([record["vector"] for record in found], np.float32), expected)
    assert err == b""


def test_tokens_stand_where_their_offsets_say(checkpoint, capsysbinary, monkeypatch):
    text = "The RED 吃苹果"
    run("--model", checkpoint, "-", "--pooling", "none", stdin=text.encode(), monkeypatch=monkeypatch)
    (found,) = lines_of(capsysbinary.readouterr().out.decode())
    pieces = [text[start:end].lower() for start, end in found["offsets"]]
    assert pieces == [token.removeprefix("##") for token in found["tokens"]]
    assert found["tokens"][-3:] == ["吃", "苹", "果"]
    np.testing.assert_array_equal(
        np.array(found["vectors"], np.float32), minibert.embed(checkpoint, text, pooling="none")
    )


def test_tables_bring_their_columns(checkpoint, tmp_path):
    rows = [{"n": "1", "body": 'a "red" cat', "x": ""}, {"n": "2", "body": "吃,苹果", "x": "z"}]
    with gzip.open(tmp_path / "a.csv.gz", "wt", encoding="gb18030") as file:
        file.write('n,body,x\n1,"a ""red"" cat",\n2,"吃,苹果",z\n')
    words = ["--text-field", "body", "--encoding", "gb18030", "--quiet"]
    run("--model", checkpoint, tmp_path / "a.csv.gz", "--out", tmp_path / "a.parquet", *words)
    run("--model", checkpoint, tmp_path / "a.parquet", "--out", tmp_path / "b.npy", "--text-field", "body", "--quiet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.drop_columns("vector").to_pylist() == rows
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 64)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), np.array(table["vector"].to_pylist(), np.float32))


def test_a_table_without_header_has_numbered_columns(tmp_path):
    (tmp_path / "a.tsv").write_text("1\ta cat\n2\ta dog\n", "utf-8")
    found = [record.fields for record in Source(tmp_path / "a.tsv", text_field="2", header=False)]
    assert found == [{"1": "1", "2": "a cat"}, {"1": "2", "2": "a dog"}]
    assert [record.fields for record in Source(tmp_path / "a.tsv", text_field="2", header=False, all_fields=False)] == [
        {"2": "a cat"}, {"2": "a dog"},
    ]  # fmt: skip


def test_columns_of_several_blocks_find_one_type(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b", "n": 1}\n{"text": "c", "n": 2.5}\n')
    run("--model", checkpoint, tmp_path / "a.jsonl", "--out", tmp_path / "a.parquet", "--quiet")
    assert pq.read_table(tmp_path / "a.parquet")["n"].to_pylist() == [None, 1.0, 2.5]


def test_a_number_that_a_common_type_cannot_hold_is_refused(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1)
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "n": {2**60 + 1}}}\n{{"text": "b", "n": 0.5}}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:1 or behind it: the field 'n' makes no column"):
        run("--model", checkpoint, tmp_path / "a.jsonl", "--out", tmp_path / "a.parquet", "--quiet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_numbers_give_the_same_float32_again(values):
    vector = np.array(values, np.float32)
    assert np.array_equal(np.array(json.loads(numbers(vector)), np.float32), vector)


def test_dates_of_parquet_become_text_in_json(checkpoint, tmp_path, capsysbinary):
    cents = pa.array([Decimal("1.5")], pa.decimal128(5, 2))
    table = pa.table({"text": ["a"], "day": pa.array([0], pa.date32()), "cents": cents})
    pq.write_table(table, tmp_path / "a.parquet")
    run("--model", checkpoint, tmp_path / "a.parquet", "--quiet")
    (found,) = lines_of(capsysbinary.readouterr().out.decode())
    assert (found["day"], found["cents"]) == ("1970-01-01", "1.50")


def test_cut_texts_are_said(checkpoint, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("吃苹果\n吃\n", "utf-8")
    run("--model", checkpoint, tmp_path / "a.txt", "--out", tmp_path / "a.npy", "--max-length", "4")
    assert "1 of 2 texts were longer than 4 tokens and cut at their end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "words", "message"),
    [
        ("a.txt", "a", ["--out", "o.npy", "--pooling", "none"], "--format npy: an array has rows of one length"),
        ("a.txt", "a", ["--out", "o.vec"], "--out o.vec: its name says no format\n  fix: end it in .npy .jsonl"),
        ("a.txt", "a", ["--format", "npy"], "--format: standard output takes JSONL, not npy\n  fix: add --out FILE"),
        ("a.txt", "a", ["--out", "there.npy"], "--out there.npy: is there already"),
        ("a.txt", "a", ["--out", "."], "--out .: is a folder"),
        ("a.txt", "a", ["--out", "o.npy", "--layer", "9"], "layer: there is no layer 9"),
        ("a.txt", "", ["--out", "o.npy"], "a.txt: holds no texts"),
        ("a.txt", b"\xff\xfe\xfa", ["--out", "o.npy"], "a.txt"),
        ("a.txt", "a", ["--out", "o.npy", "--encoding", "klingon"], "unknown encoding 'klingon'"),
        ("a.jsonl", '{"text": "a"}\n{"body": 1}', ["--out", "o.npy"], "a.jsonl:2: no field 'text'; there are 'body'"),
        ("a.jsonl", '{"text": 1}', ["--out", "o.npy"], "a.jsonl:1: the text is a number: 1"),
        ("a.jsonl", '{"text": "\\ud800"}', ["--out", "o.npy"], "a.jsonl:1: \\ud800 is half of a surrogate pair"),
        ("a.jsonl", '{"text": "a", "vector": 1}', ["--out", "o.jsonl"], "a.jsonl:1: there is a field 'vector' already"),
        ("a.jsonl", '{"text": "a", "x": NaN}', ["--out", "o.jsonl"], "a.jsonl:1: a field makes no JSON"),
        ("a.jsonl", '{"text": "a", "x": 1}\n{"text": "a", "x": "1"}', ["--out", "o.parquet"], "field 'x' makes no"),
        ("a.jsonl", '{"text": "a", "x": {}}', ["--out", "o.parquet"], "parquet has no empty object"),
        ("a.jsonl", '{"text": "a", "y": 99999999999999999999}', ["--out", "o.parquet"], "field 'y' makes no"),
        ("a.csv", "text", ["--out", "o.jsonl", "--delimiter", "::"], "--delimiter: delimiter is '::'\n  fix: one"),
        ("a.csv", "text,text\na,b", ["--out", "o.jsonl"], "a.csv:1: 2 columns are called 'text'"),
        ("a.csv", "body,n\na,b", ["--out", "o.jsonl"], "a.csv:1: no column 'text'; there are 'body', 'n'"),
        ("a.parquet", "no", ["--out", "o.jsonl"], "a.parquet: cannot be read as parquet"),
        ("a.txt", "a", ["--out", "a.txt", "--format", "npy"], "would overwrite the input"),
    ],
)  # fmt: skip
def test_a_users_mistakes_leave_nothing_behind(checkpoint, tmp_path, monkeypatch, name, content, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.npy").write_bytes(b"precious")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        run("--model", checkpoint, name, *words)
    assert message in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "there.npy"])
    assert (tmp_path / "there.npy").read_bytes() == b"precious"


def test_bytes_of_parquet_are_no_json(checkpoint, tmp_path):
    pq.write_table(pa.table({"text": ["a"], "raw": [b"x"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: row 1: a field makes no JSON: bytes"):
        run("--model", checkpoint, tmp_path / "a.parquet")


def test_an_input_that_changes_meanwhile_is_no_output(checkpoint, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a\nb\n")
    check = files.Writer.check

    def check_and_add(self, records):
        check(self, records)
        (tmp_path / "a.txt").write_text("a\nb\nc\n")

    monkeypatch.setattr(files.Writer, "check", check_and_add)
    with pytest.raises(UserError, match="changed while it was read: 2 records, then 3"):
        run("--model", checkpoint, tmp_path / "a.txt", "--out", tmp_path / "o.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_dash_is_standard_output(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("red\n", "utf-8")
    run("--model", checkpoint, "a.txt", "--out", "-", "--quiet")
    assert lines_of(capsys.readouterr().out)[0]["text"] == "red"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_of_words_is_no_file_of_texts(checkpoint, tmp_path):
    (tmp_path / "a.conll").write_text("red B-X\n\ncat O\n", "utf-8")
    with pytest.raises(UserError, match=r"a.conll: a .conll file has a word a line\n  fix: .*--input-format txt"):
        run("--model", checkpoint, tmp_path / "a.conll", "--out", tmp_path / "a.npy")
    run("--model", checkpoint, tmp_path / "a.conll", "--out", tmp_path / "a.npy", "--input-format", "txt")
    assert len(np.load(tmp_path / "a.npy")) == 3
