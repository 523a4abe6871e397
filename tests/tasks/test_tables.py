"""Tables to rows: what a record is, where it begins, and every way in which a file can be wrong."""

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.errors import UserError
from minibert.tasks.tables import TableReader, csv_records, near

TEXT, BOTH = {"--text-column": "text"}, {"--text-column": "text", "--label-column": "label"}
PLACES = {"text": "1", "label": "2"}


def written(folder, name, data):
    path = Path(folder) / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def rows(path, layout, wanted=None, **options):
    """(where without the folder, values) of each row"""
    reader = TableReader(BOTH if wanted is None else wanted, places=PLACES, **options)
    return [(where.removeprefix(f"{path.parent}/"), values) for where, values in reader.rows(path, layout)]


def refused(path, layout="csv", wanted=None, **options):
    with pytest.raises(UserError) as caught:
        rows(path, layout, wanted, **options)
    error = caught.value
    return error.where.removeprefix(f"{path.parent}/"), error.problem, error.fix


# CSV and TSV


CELL = st.text(st.sampled_from('ab,"\n\t \u3000\u2028\x85\ufeff中😀;'), max_size=8)


@settings(deadline=None)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_the_csv_module_writes_comes_back_with_the_line_where_it_begins(records, end):
    stream, expected, line = io.StringIO(), [], 1
    writer = csv.writer(stream, lineterminator=end, quoting=csv.QUOTE_ALL)
    for record in records:
        writer.writerow(record)
        expected.append((line, record))
        line += 1 + sum(cell.count("\n") for cell in record)
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, "c.csv", stream.getvalue())
        assert list(csv_records(path, "utf-8", ",")) == expected


@settings(deadline=None)
@given(st.text(st.sampled_from('ab,"\n'), max_size=14))
def test_any_text_is_read_as_the_strict_csv_module_reads_it_or_refused_as_there(text):
    try:
        theirs = list(csv.reader(io.StringIO(text, newline="\n"), strict=True))
    except csv.Error:
        theirs = None
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, "c.csv", text)
        try:
            ours = [cells for _, cells in csv_records(path, "utf-8", ",")]
        except UserError:
            ours = None
    assert ours == theirs


@settings(deadline=None)
@given(st.lists(st.lists(st.text(st.sampled_from('ab" ,中'), max_size=6), min_size=2, max_size=2), min_size=1))
def test_without_quoting_a_line_is_a_record(records):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, "c.tsv", "".join("\t".join(record) + "\n" for record in records))
        assert [cells for _, cells in csv_records(path, "utf-8", "\t", quoting=False)] == records


def test_columns_are_found_by_name_wherever_they_are(tmp_path):
    path = written(tmp_path, "c.csv", ' label ,n,"text"\r\npos,1,good film\r\nneg,2,"a ""b"",\r\nc"\r\nneg,3,x')
    expected = [("c.csv:2", ["good film", "pos"]), ("c.csv:3", ['a "b",\nc', "neg"]), ("c.csv:5", ["x", "neg"])]
    assert rows(path, "csv") == expected


def test_cells_stay_what_they_look_like(tmp_path):
    cells = ["NA", "None", "nan", "null", "01", "1", "1.0", "TRUE", "-", "", " "]
    path = written(tmp_path, "c.csv", "text,label\n" + "".join(f"x,{cell}\n" for cell in cells))
    assert [values[1] for _, values in rows(path, "csv")] == cells


@pytest.mark.parametrize(
    ("text", "place", "problem", "fix"),
    [
        ('a,b\n"open,pos\nx,neg\n', "c.csv:3", "never closed: '\"open,pos'", "--no-quoting"),
        ('a,b\n"x"y,pos\n', "c.csv:3", "behind a closing quote", "double a quote"),
        ('a,b\n"x" ,pos\n', "c.csv:3", "behind a closing quote", "double a quote"),
        ('a,b\n"q\nr\n"x",pos\n', "c.csv:3", "behind a closing quote", "double a quote"),
        ('a,b\nx, "pos"\n', "c.csv:3", "a blank before the quote: ' \"pos\"'", "remove it"),
        ("a,b\nx,y,z\n", "c.csv:3", "3 cells where the header has 2: 'x', 'y', 'z'", 'in quotes: "a, b"'),
        ("a,b\nx\n", "c.csv:3", "1 cells where the header has 2: 'x'", "in quotes"),
        ("a,b\n,\n \n", "c.csv:4", "1 cells", "in quotes"),
        ('a,b\n"x\ny",z\nx\n', "c.csv:5", "1 cells", "in quotes"),
    ],
)
def test_wrong_record_is_refused_at_the_line_where_it_begins(tmp_path, text, place, problem, fix):
    found = refused(written(tmp_path, "c.csv", "text,label\n" + text))
    assert found[0] == place
    assert problem in found[1]
    assert fix in found[2]


def test_a_quote_inside_a_cell_without_quotes_is_text(tmp_path):
    path = written(tmp_path, "c.tsv", 'text\tlabel\na 5" disk\tpos\n "Hi" he said\tneg\n')
    assert [values[0] for _, values in rows(path, "tsv")] == ['a 5" disk', ' "Hi" he said']


def test_tsv_whose_quotes_are_text_never_joins_rows(tmp_path):
    """As GLUE's: a cell may begin with a quote that ends in another row, with a whole number of cells between."""
    path = written(tmp_path, "c.tsv", 'text\tlabel\n"I came\tpos\n"\tneg\n')
    place, problem, fix = refused(path, "tsv")
    assert (place, "over tabs and lines" in problem, "--no-quoting" in fix) == ("c.tsv:2", True, True)
    assert [values for _, values in rows(path, "tsv", quoting=False)] == [['"I came', "pos"], ['"', "neg"]]
    quoted = written(tmp_path, "d.tsv", 'text\tlabel\n"a\tb"\tpos\n"a\nb"\tneg\n')
    assert [values[0] for _, values in rows(quoted, "tsv")] == ["a\tb", "a\nb"]


def test_missing_column_is_refused_with_those_there_are(tmp_path):
    place, problem, fix = refused(written(tmp_path, "c.csv", "good film,pos\nbad film,neg\n"))
    assert place == "c.csv:1"
    assert problem == "no column 'text'; there are 'good film', 'pos'"
    assert "--text-column NAME" in fix
    assert "--no-header" in fix
    assert refused(written(tmp_path, "c.csv", "Text,LABEL\na,b"))[2].startswith("--text-column Text")
    assert refused(written(tmp_path, "c.csv", "text,labels\na,b"))[2].startswith("--label-column labels")
    assert rows(written(tmp_path, "c.csv", "text,labels\na,b"), "csv", TEXT) == [("c.csv:2", ["a"])]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_delimiter_is_recognised_and_read(tmp_path, mark):
    path = written(tmp_path, "c.csv", f"text{mark}label\na, b{mark}pos\n")
    assert refused(path)[2] == f"--delimiter {mark!r}"
    assert rows(path, "csv", delimiter=mark) == [("c.csv:2", ["a, b", "pos"])]


def test_two_columns_of_one_name_are_refused_if_one_is_wanted(tmp_path):
    path = written(tmp_path, "c.csv", "text,label,label,,\na,b,c,,\n")
    assert refused(path)[1] == "2 columns are called 'label'"
    assert rows(path, "csv", TEXT) == [("c.csv:2", ["a"])]


def test_long_cells_and_nul_are_read(tmp_path):
    long = "x" * 300_000  # csv's own limit is 131,072
    path = written(tmp_path, "c.csv", f'text,label\n"{long}",a\nb\0c,d\n')
    assert [values for _, values in rows(path, "csv")] == [[long, "a"], ["b\0c", "d"]]


def test_empty_lines_are_passed_over_and_counted(tmp_path):
    path = written(tmp_path, "c.csv", "\ntext,label\n\na,b\n\nc,d\n\n\n")
    reader = TableReader(BOTH)
    assert [values[0] for _, values in reader.rows(path, "csv")] == ["a", "c"]
    assert reader.notes == ["4 empty lines were passed over"]


def test_empty_line_in_a_single_column_is_a_doubt(tmp_path):
    assert refused(written(tmp_path, "c.csv", "text\na\n\nb\n"), wanted=TEXT)[:2] == ("c.csv:3", "an empty line")
    assert len(rows(written(tmp_path, "c.csv", 'text\na\n""\nb\n\n'), "csv", TEXT)) == 3


def test_empty_file_is_refused_and_a_header_alone_has_no_rows(tmp_path):
    assert refused(written(tmp_path, "c.csv", ""))[:2] == ("c.csv", "the file is empty")
    assert rows(written(tmp_path, "c.csv", "text,label\n"), "csv") == []


# without a header


def test_without_header_columns_have_numbers(tmp_path):
    path = written(tmp_path, "c.csv", "good film,pos\nbad film,neg\n")
    reader = TableReader(BOTH, header=False, places=PLACES)
    assert [values for _, values in reader.rows(path, "csv")] == [["good film", "pos"], ["bad film", "neg"]]
    assert reader.notes == ["no header: --text-column 1, --label-column 2"]
    swapped = {"--text-column": "2", "--label-column": "1"}
    assert rows(path, "csv", swapped, header=False)[0] == ("c.csv:1", ["pos", "good film"])


def test_without_header_nothing_is_guessed_among_three_columns(tmp_path):
    path = written(tmp_path, "c.csv", "1,good film,pos\n2,bad film,neg\n")
    place, problem, fix = refused(path, header=False)
    assert place == "c.csv:1"
    assert problem == "no column 'text': without a header columns are called 1 to 3: '1', 'good film', 'pos'"
    assert fix == "--text-column N"
    assert "no column '4'" in refused(path, wanted={"--text-column": "4"}, header=False)[1]
    assert "no column '0'" in refused(path, wanted={"--text-column": "0"}, header=False)[1]
    assert "2 cells where the first line has 3" in refused(
        written(tmp_path, "d.csv", "a,b,c\nd,e\n"), wanted={"--text-column": "2"}, header=False
    )[1]  # fmt: skip


def test_header_is_no_data(tmp_path):
    place, problem, fix = refused(written(tmp_path, "c.csv", "text,label\na,b\n"), header=False)
    assert (place, problem, fix) == ("c.csv:1", "the first line is a header: 'text', 'label'", "leave --no-header out")


# JSONL, text, parquet


def test_json_lines(tmp_path):
    lines = ['{"text": "a\\nb", "label": 1}', "", '{"label": ["x"], "text": "\\ud83d\\ude00"}']
    expected = [("c.jsonl:1", ["a\nb", 1]), ("c.jsonl:3", ["😀", ["x"]])]
    for data in ("\n".join(lines), "\ufeff" + "\r\n".join(lines)):
        assert rows(written(tmp_path, "c.jsonl", data), "jsonl") == expected


@pytest.mark.parametrize(
    ("line", "problem", "fix"),
    [
        ('{"text": "a"', "not JSON", "one JSON object a line"),
        ("[" * 100_000, "not JSON", "one JSON object"),
        ('{"text": "a", "label": "b", "text": "c"}', "the key 'text' stands twice", "one JSON object"),
        ('["a"]', "a JSON array, not an object: '[\"a\"]'", '{"text": "..."}'),
        ('{"texts": "a", "label": 1}', "no field 'text'; there are 'texts', 'label'", "--text-column texts"),
        ('{"text": "a", "Label": 1}', "no field 'label'", "--label-column Label"),
        ("{}", "there are none", "--text-column NAME"),
        ('{"text": "half \\ud83d", "label": 1}', "\\ud83d is half of a surrogate pair", "remove"),
        ('{"text": "a", "label": ["\\uD83D"]}', "\\ud83d is half of a surrogate pair", "remove"),
    ],
)
def test_wrong_json_line_is_refused(tmp_path, line, problem, fix):
    found = refused(written(tmp_path, "c.jsonl", '{"text": "good", "label": "b"}\n\n' + line + "\n"), "jsonl")
    assert found[0] == "c.jsonl:3"
    assert problem in found[1]
    assert fix in found[2]


def test_each_line_of_plain_text_is_a_row(tmp_path):
    path = written(tmp_path, "c.txt", 'a, "b"\r\n\r\n \u2028x\n\n')
    found = rows(path, "txt", TEXT)
    assert found == [("c.txt:1", ['a, "b"']), ("c.txt:2", [""]), ("c.txt:3", [" \u2028x"]), ("c.txt:4", [""])]
    for option in ("--label-column", "--pair-column", "--id-column"):
        place, problem, fix = refused(path, "txt", {**TEXT, option: "x"})
        assert (place, option in problem, ".csv" in fix) == ("c.txt", True, True)


def test_parquet(tmp_path):
    columns = {"label": [1, 2], "x": [None, None], "text": pa.array(["NA", "b"]).dictionary_encode()}
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table(columns), path)
    expected = [("row 1", ["NA", 1]), ("row 2", ["b", 2])]
    assert [(w.split(": ")[1], v) for w, v in rows(path, "parquet")] == expected
    packed = written(tmp_path, "d.parquet.gz", gzip.compress(path.read_bytes()))
    assert [(w.split(": ")[1], v) for w, v in rows(packed, "parquet")] == expected
    place, problem, fix = refused(path, "parquet", {"--text-column": "Text"})
    assert (place, fix) == ("c.parquet", "--text-column text")
    assert "'label', 'x', 'text'" in problem
    for data in (b"", b"PAR1", path.read_bytes()[:200], b"text,label\n"):
        place, problem, _ = refused(written(tmp_path, "e.parquet", data), "parquet")
        assert (place, "cannot be read as parquet" in problem) == ("e.parquet", True)


def test_compressed_and_other_encodings(tmp_path):
    text = "text,label\n今天,好\n"
    packed = written(tmp_path, "c.csv.zst", zstandard.compress(text.encode()))
    assert rows(packed, "csv") == [("c.csv.zst:2", ["今天", "好"])]
    for encoding in ("gb18030", "utf-16", "utf-8-sig", "big5"):
        path = written(tmp_path, "c.csv", text.encode(encoding))
        assert rows(path, "csv", encoding=encoding) == [("c.csv:2", ["今天", "好"])]
    place, problem, fix = refused(written(tmp_path, "c.csv", text.encode("gb18030")))
    assert (place, "not utf-8" in problem, "--encoding gb18030" in fix) == ("c.csv:2", True, True)
    place, _, fix = refused(written(tmp_path, "c.csv", text.encode("utf-16")))
    assert (place, fix) == ("c.csv", "--encoding utf-16")


# a name that says nothing


@pytest.mark.parametrize(
    ("data", "gold", "layout"),
    [
        ('\n{"text": "a"}\n', True, "jsonl"),
        ('\ufeff{"text": "a"}\n', False, "jsonl"),
        ("text,label\na,b\n", True, "csv"),
        ("text,label\na,b\n", False, "csv"),
        ("n\ttext, or so\ttext\n1\ta,b\tc\n", False, "tsv"),
        ('"text"\t"label"\na\tb\n', True, "tsv"),
        ("a text, with a comma\nmore\n", False, "txt"),
        ("", False, "txt"),
    ],
)
def test_format_is_told_from_the_first_line_and_said(tmp_path, data, gold, layout):
    reader = TableReader(TEXT)
    assert reader.guess(written(tmp_path, "stdin", data), gold=gold) == layout
    assert reader.notes[0].startswith(f"read as {layout}: ")
    assert "--input-format" in reader.notes[0]


@pytest.mark.parametrize(
    ("data", "gold", "problem"),
    [("good film,pos\n", True, "no column 'text'"), ("text\na\n", False, "a text, or the name of a column?")],
)
def test_doubtful_format_is_refused(tmp_path, data, gold, problem):
    with pytest.raises(UserError, match="text") as caught:
        TableReader(TEXT).guess(written(tmp_path, "stdin", data), gold=gold)
    assert problem in caught.value.problem
    assert caught.value.fix == "--input-format csv|tsv|jsonl|parquet|txt"


def test_near_names_whatever_the_case():
    assert near("text", ["LABEL", "TEXT", "Text"]) == "TEXT"
    assert near("label", ["labels", "x"]) == "labels"
    assert near("label", ["x"]) == ""


def test_given_cases(shared):
    cases = shared / "cases"
    assert [v for _, v in rows(cases / "A01/cls_bom.csv", "csv")] == [["ok film", "pos"], ["bad film", "neg"]]
    assert [v for _, v in rows(cases / "A01/cls_bom.jsonl", "jsonl")] == [["ok film", "pos"], ["bad film", "neg"]]
    assert [v for _, v in rows(cases / "A02/cls_crlf.csv", "csv")] == [["good one", "pos"], ["bad one", "neg"]]
    assert [v[1] for _, v in rows(cases / "E01/cls.csv", "csv")] == ["NA", "None", "null", "nan"]
    assert [v[0] for _, v in rows(cases / "E10/dev.csv", "csv")] == ["", "   ", "\u200b", "ok"]
    assert "'good film', 'pos'" in refused(cases / "E07/noheader.csv")[1]
    assert len(rows(cases / "E07/noheader.csv", "csv", header=False)) == 3
    sentence = {"--text-column": "sentence", "--label-column": "label"}
    swapped = rows(cases / "E07/swapped.csv", "csv", sentence)
    assert [values for _, values in swapped] == [["good film", "pos"], ["bad film", "neg"]]
    assert json.dumps([v[1] for _, v in rows(cases / "E05/cls.jsonl", "jsonl")]) == '[["a"], ["a", "b"], [], ["b"]]'


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("minibert.tasks.tables.LONGEST_CELL", 100)
    (tmp_path / "a.csv").write_text('text,label\nfine,a\n"begun,b\n' + "line,c\n" * 1000, "utf-8")
    with pytest.raises(UserError, match=r"a.csv:3: a quote that is not closed in \d+ characters: '\"begun,b'"):
        list(csv_records(tmp_path / "a.csv", "utf-8", ","))


def test_names_of_a_megabyte_are_not_compared():
    assert near("a" * 10**6, ["b" * 10**6, "a" * 10**6]) == ""
