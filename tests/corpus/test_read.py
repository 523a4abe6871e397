"""Files to documents: what is found, what a document is, and every way in which a file can be wrong."""

import io
import json
import os
import random
import re
import tempfile
from itertools import islice
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.corpus import decoding
from minibert.corpus.read import Skipped, doubts, find_files, fingerprint, read_documents, read_pieces, spool_stdin
from minibert.errors import UserError


def written(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def documents(*paths, **options):
    return list(read_documents(paths, **options))


def refused(*paths, **options):
    with pytest.raises(UserError) as caught:
        documents(*paths, **options)
    return caught.value


def table(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


# what a document is


LINE = st.text(st.sampled_from("ab.\t \u3000\u2028\x85\u200b\ufeff。不𠀀"), max_size=6)


@settings(deadline=None)  # a shared machine pauses
@given(
    st.lists(LINE, max_size=12),
    st.sampled_from(["utf-8", "utf-16", "gb18030"]),
    st.sampled_from(["", ".zst"]),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_documents_are_those_of_the_simple_definition(lines, encoding, compression, block_bytes, rng: random.Random):
    text = "".join(line + rng.choice(["\n", "\r\n", "\r"]) for line in lines)
    shown = re.split("\r\n|\r|\n", text if encoding == "utf-16" else text.removeprefix("\ufeff"))
    expected, document = [], []
    for line in [*shown, ""]:
        if line.strip():
            document.append(line.strip())
        elif document:
            expected.append(document)
            document = []
    data = text.encode(encoding)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(decoding, "BLOCK_BYTES", block_bytes):
        data = zstandard.compress(data) if compression else data
        assert documents(written(Path(folder), f"c.txt{compression}", data), encoding=encoding) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_gives_the_same_documents(tmp_path, end):
    text = end.join(["一句。", "两句。", "", "another", "more"])
    assert documents(written(tmp_path, "c.txt", text)) == [["一句。", "两句。"], ["another", "more"]]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u3000", " \u3000\t\xa0"])
def test_line_of_blanks_ends_a_document(tmp_path, blank):
    assert documents(written(tmp_path, "c.txt", f"a\n{blank}\n{blank}\nb\n{blank}\n")) == [["a"], ["b"]]


def test_line_of_zero_width_characters_ends_nothing(tmp_path):
    path = written(tmp_path, "c.txt", "fi\u200brst\n\u200b\n\u2060\u200d\nsecond\n\nthird\n")
    assert documents(path) == [["fi\u200brst", "\u200b", "\u2060\u200d", "second"], ["third"]]


def test_end_of_file_ends_a_document(tmp_path):
    assert documents(written(tmp_path, "a.txt", "a"), written(tmp_path, "b.txt", "b")) == [["a"], ["b"]]


@pytest.mark.parametrize("text", ["", "\n", " \n\n\u3000\n\t\r\n", "\ufeff"])
def test_file_without_text_has_no_documents(tmp_path, text):
    assert documents(written(tmp_path, "c.txt", text)) == []


def test_bom_is_dropped_from_every_file(tmp_path):
    text, lines = "\ufeff今天\n\n明天\n", '\ufeff{"text": "今天"}\n{"text": "明天"}\n'
    twice = [["今天"], ["明天"]] * 2
    assert documents(written(tmp_path, "c.txt", text), written(tmp_path, "c.jsonl", lines)) == twice


def test_gb18030_gives_the_same_documents_as_utf8(tmp_path):
    text = "中文，\u3400字。\n第二行\n\n第二篇\n"  # U+3400 is not in GBK
    gb = written(tmp_path, "gb.txt", text.encode("gb18030"))
    assert documents(gb, encoding="gb18030") == documents(written(tmp_path, "utf8.txt", text))
    error = refused(gb)
    assert error.where == f"{gb}:1"
    assert "at offset 0" in error.problem
    assert "--encoding gb18030" in error.fix
    assert refused(gb, encoding="gbk").where == f"{gb}:1"


def test_utf16_jsonl(tmp_path):
    path = written(tmp_path, "c.jsonl", '{"text": "一"}\r\n'.encode("utf-16"))
    assert refused(path).fix == "--encoding utf-16"
    assert documents(path, encoding="utf-16") == [["一"]]


def test_encoding_is_checked_at_the_call():
    with pytest.raises(UserError, match="klingon"):
        read_documents([], encoding="klingon")


def test_documents_are_a_stream(tmp_path):
    path = written(tmp_path, "c.txt", b"one\n\n" * 100_000 + b"\xff")  # the error is beyond the first block
    assert list(islice(read_documents([path, tmp_path / "missing.txt"]), 3)) == [["one"]] * 3


# records


def test_record_is_a_document(tmp_path):
    texts = ["a\n\nb\r\nc\rd", "  ", "e\u2028f", "\n"]
    lines = "\n \n".join(json.dumps({"id": 1, "text": text}) for text in texts)
    expected = [["a", "b", "c", "d"], ["e\u2028f"]]
    assert documents(written(tmp_path, "c.jsonl", lines)) == expected
    assert documents(written(tmp_path, "c.jsonl.zst", zstandard.compress(lines.encode()))) == expected
    path = table(tmp_path / "c.parquet", n=[1, 2, 3, 4], text=texts)
    assert documents(path) == expected
    assert documents(written(tmp_path, "d.parquet.zst", zstandard.compress(path.read_bytes()))) == expected


def test_text_field_names_field_and_column(tmp_path):
    lines = written(tmp_path, "c.jsonl", '{"body": "a", "text": 1}')
    assert documents(lines, table(tmp_path / "c.parquet", body=["b"]), text_field="body") == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("line", "problem", "fix"),
    [
        ('{"text": "a"', "not JSON", "object a line"),
        ("[" * 100_000, "not JSON", "object a line"),
        ('{"text": ' + "9" * 5000 + "}", "not JSON", "object a line"),
        ('["a"]', "array, not an object", '{"text": "..."}'),
        ('"a"', "string, not an object", '{"text": "..."}'),
        ("17", "number, not an object", '{"text": "..."}'),
        ('{"texts": "a", "id": 1}', "no field 'text'; there are 'texts', 'id'", "--text-field texts"),
        ("{}", "there are none", "--text-field NAME"),
        ('{"text": null}', "'text' is null, not a string", "--text-field"),
        ('{"text": true}', "'text' is boolean, not a string", "--text-field"),
        ('{"text": {"a": 1}}', "'text' is object, not a string", "--text-field"),
        ('{"text": "half \\ud83d"}', "\\ud83d is half of a surrogate pair", "remove"),
    ],
)
def test_wrong_json_line_is_refused_by_file_and_line(tmp_path, line, problem, fix):
    path = written(tmp_path, "c.jsonl", '{"text": "good"}\n\n' + line + "\n")
    error = refused(path)
    assert error.where == f"{path}:3"
    assert problem in error.problem
    assert fix in error.fix


def test_json_line_number_counts_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_BYTES", 10)
    path = written(tmp_path, "c.jsonl", '{"text": "a"}\n' * 20 + "oops")
    assert refused(path).where == f"{path}:21"


def test_whole_surrogate_pair_is_read(tmp_path):
    assert documents(written(tmp_path, "c.jsonl", '{"text": "\\ud83d\\ude00 \\ud55c"}')) == [["😀 한"]]


def test_parquet_string_columns_of_every_kind(tmp_path):
    texts = ["a", "b", "a"]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        path = table(tmp_path / "c.parquet", text=pa.array(texts).cast(kind))
        assert documents(path) == [["a"], ["b"], ["a"]]


def test_parquet_without_usable_column_is_refused(tmp_path):
    path = table(tmp_path / "c.parquet", texts=["a"], n=[1])
    error = refused(path)
    assert (error.where, error.fix) == (str(path), "--text-field texts")
    assert "'texts', 'n'" in error.problem
    assert "a column of int64, not a string" in refused(path, text_field="n").problem


def test_parquet_null_is_refused_by_its_row(tmp_path):
    path = table(tmp_path / "c.parquet", text=["a"] * 1500 + [None])
    assert refused(path).where == f"{path}: row 1501"


def test_corrupt_parquet_is_refused(tmp_path):
    good = table(tmp_path / "c.parquet", text=[f"text {i}" for i in range(5000)]).read_bytes()
    damaged = good[:200] + b"\xff" * 400 + good[600:]
    for data in (b"", b"PAR1", good[: len(good) // 2], b"no parquet at all", damaged):
        path = written(tmp_path, "c.parquet", data)
        error = refused(path)
        assert error.where == str(path)
        assert "parquet" in error.problem


# finding


def test_folder_gives_known_files_sorted(tmp_path):
    names = ["b.txt", "a/z.jsonl.gz", "a/A.TXT", "a/b/c.parquet", "c.txt.zst", "d.txt.xz", "e.jsonl.bz2"]
    for name in [*names, "notes.md", ".hidden.txt", ".git/x.txt", "f.gz", "txt"]:
        written(tmp_path, name, "x")
    assert find_files([str(tmp_path)]) == sorted(tmp_path / name for name in names)


def test_file_is_found_once(tmp_path, monkeypatch):
    path = written(tmp_path, "a.txt", "x")
    (tmp_path / "link.txt").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    assert find_files(["a.txt", str(tmp_path), "./*.txt", "link.txt"]) == [Path("a.txt")]


def test_patterns_keep_their_order(tmp_path):
    for name in ("a.txt", "sub/b.txt", "c.log"):
        written(tmp_path, name, "x")
    assert [p.name for p in find_files([str(tmp_path / "c.log"), f"{tmp_path}/**/*.txt"])] == [
        "c.log",
        "a.txt",
        "b.txt",
    ]


def test_unknown_suffix_named_is_text(tmp_path):
    path = written(tmp_path, "corpus.log", "one\n\ntwo")
    assert documents(*find_files([str(path)])) == [["one"], ["two"]]


def test_name_with_glob_characters_is_a_file_first(tmp_path):
    path = written(tmp_path, "a[1].txt", "x")
    assert find_files([str(path)]) == [path]


def test_missing_file_is_refused_with_near_names(tmp_path):
    written(tmp_path, "corpus.txt", "x")
    with pytest.raises(UserError, match="no such file") as caught:
        find_files([str(tmp_path / "corpsu.txt")])
    assert str(tmp_path / "corpus.txt") in caught.value.fix
    with pytest.raises(UserError) as caught:
        find_files([str(tmp_path / "nowhere" / "corpus.txt")])
    assert f"no folder {tmp_path / 'nowhere'}" in caught.value.fix
    with pytest.raises(UserError) as caught:
        find_files([str(tmp_path / "*.jsonl")])
    assert "matches nothing" in caught.value.fix


def test_folder_without_text_is_refused(tmp_path):
    written(tmp_path, "picture.png", "x")
    with pytest.raises(UserError, match=r"no text, only \.png") as caught:
        find_files([str(tmp_path)])
    assert ".jsonl" in caught.value.fix


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UserError, match="neither a file nor a folder"):
        find_files([str(tmp_path / "pipe.txt")])


def test_unspooled_standard_input_is_a_bug():
    with pytest.raises(ValueError, match="spooled"):
        find_files(["-"])


@pytest.mark.parametrize("name", ["c.txt", "c.txt.gz", "c.txt.zst", "c.jsonl", "c.parquet"])
def test_unreadable_file_is_refused(tmp_path, name):
    path = tmp_path / name
    assert refused(path).where == str(path)  # gone since it was found
    path.mkdir()
    assert refused(path).where == str(path)
    with pytest.raises(UserError):
        fingerprint([path])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(tmp_path):
    path = written(tmp_path, "c.txt", "x")
    path.chmod(0)
    assert "Permission denied" in refused(path).problem


def test_permission_error_is_told(tmp_path):
    path = written(tmp_path, "c.txt", "x")
    with mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")):
        assert refused(path).problem == "cannot be read: Permission denied"
        with pytest.raises(UserError, match="Permission denied"):
            fingerprint([path])


# standard input and fingerprint


def test_spooled_standard_input_is_read_like_a_file(tmp_path):
    path = spool_stdin(io.BytesIO(b"one\r\n\r\ntwo"), tmp_path)
    assert path.parent == tmp_path
    assert documents(*find_files([str(path)])) == [["one"], ["two"]]


def test_fingerprint_is_of_the_bytes_alone(tmp_path):
    a, b = written(tmp_path, "a.txt", "one"), written(tmp_path, "b.txt", "two")
    before = fingerprint([a, b])
    assert re.fullmatch("[0-9a-f]{32}", before)
    assert fingerprint([a.rename(tmp_path / "c.txt"), b]) == before
    assert fingerprint([b, b]) != before
    assert fingerprint([b]) != before
    moved = [written(tmp_path, "d.txt", "on"), written(tmp_path, "e.txt", "etwo")]
    assert fingerprint(moved) != before  # the same bytes, cut elsewhere


def test_given_cases(shared):
    cases = shared / "cases"
    text = {
        name: documents(cases / name) for name in ("A01/corpus_bom.txt", "A02/corpus_crlf.txt", "A02/corpus_cr.txt")
    }
    assert text["A01/corpus_bom.txt"][0][0].startswith("今")
    assert [len(d) for d in text["A02/corpus_crlf.txt"]] == [len(d) for d in text["A02/corpus_cr.txt"]] == [2, 2]
    gb, utf8 = cases / "A05/corpus_gb18030.txt", cases / "A05/corpus_utf8.txt"
    assert documents(gb, encoding="gb18030") == documents(utf8)
    assert ":1" in refused(gb).where
    assert len(documents(cases / "A06/corpus.txt")) == 2
    assert documents(cases / "A10/empty.txt", cases / "A10/blank.txt") == []


def test_standard_input_that_finds_no_room_is_one_message(tmp_path):
    (tmp_path / "stdin.txt").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"cannot be written: No space left on device\n  fix: make room or .*TMPDIR"):
        spool_stdin(io.BytesIO(b"text"), tmp_path)


def test_compressed_parquet_that_finds_no_room_to_be_unpacked_is_one_message(tmp_path, monkeypatch):
    path = table(tmp_path / "c.parquet", text=["a"])
    packed = written(tmp_path, "d.parquet.zst", zstandard.compress(path.read_bytes()))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: Path("/dev/full").open("r+b"))  # noqa: SIM115
    with pytest.raises(UserError, match=r"cannot be written: No space left on device\n  fix: make room or .*TMPDIR"):
        documents(packed)


def test_records_without_text_are_counted_with_their_places(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"text": "one"}\n{"text": ""}\n{"text": " \\n\\u3000"}\n{"text": "two"}\n', "utf-8"
    )
    table(tmp_path / "b.parquet", text=["", "three", " "])
    skipped = Skipped()
    files = [tmp_path / "a.jsonl", tmp_path / "b.parquet"]
    documents = [lines for lines, _ in read_pieces(files, skipped=skipped)]
    assert documents == [["one"], ["two"], ["three"]]
    assert skipped.count == 4
    places = ["a.jsonl:2", "a.jsonl:3", "b.parquet: row 1", "b.parquet: row 3"]
    assert [Path(where).name for where in skipped.first] == places


def test_the_list_of_records_without_text_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("minibert.corpus.read.LISTED", 3)
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n' * 10, "utf-8")
    skipped = Skipped()
    assert not list(read_pieces([tmp_path / "a.jsonl"], skipped=skipped))
    assert (skipped.count, len(skipped.first)) == (10, 3)


def test_a_text_that_stands_twice_in_a_record_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one", "text": "two"}\n', "utf-8")
    with pytest.raises(UserError, match=r"a.jsonl:1: not JSON: the key 'text' stands twice"):
        list(read_documents([tmp_path / "a.jsonl"]))


def test_two_columns_of_one_name_are_refused(tmp_path):
    column = pa.array(["a"])
    pq.write_table(pa.Table.from_arrays([column, column], ["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="several columns are called 'text'"):
        list(read_documents([tmp_path / "a.parquet"]))


def test_doubts_about_files_name_them(tmp_path):
    (tmp_path / "good.txt").write_text("naïve café\n" * 9, "utf-8")
    (tmp_path / "bad.txt").write_text("naïve café\n".encode().decode("cp1252") * 9, "utf-8")
    table(tmp_path / "c.parquet", text=["a"])
    (found,) = doubts(sorted(tmp_path.iterdir()), "utf-8")
    assert found.startswith(f"{tmp_path / 'bad.txt'}: it is utf-8 that was read as cp1252")
