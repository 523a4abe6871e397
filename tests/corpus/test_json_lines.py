"""JSON objects, one a line."""

import json

import pytest

from minibert.corpus.json_lines import (
    depth,
    has_escaped_surrogate,
    numbered_lines,
    parse_object,
    refuse_half_pairs,
    shorten,
)
from minibert.errors import UserError


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"f:3: not JSON: .*\n  fix: mend it"),
        ("[1]", r"f:3: a JSON array, not an object: '\[1\]'"),
        ("NaN", "f:3: a JSON number, not an object"),
        ("null", "f:3: a JSON null, not an object"),
        ("[" * 100_000, "f:3: not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "f:3: not JSON"),
    ],
)
def test_what_is_no_object_is_refused_with_its_place(line, message):
    with pytest.raises(UserError, match=message):
        parse_object(line, "f:3", "mend it")


def test_a_key_that_stands_twice_is_an_error_where_it_is_asked_for():
    assert parse_object('{"a": 1, "a": 2}', "f:1", "") == {"a": 2}
    with pytest.raises(UserError, match="the key 'a' stands twice"):
        parse_object('{"a": 1, "a": 2}', "f:1", "", unique_keys=True)


@pytest.mark.parametrize(
    ("text", "deep"), [("3", 0), ('{"a": 1}', 1), ('{"a": [1]}', 2), ('[[], [[1]], {"a": {}}]', 3)]
)
def test_depth_counts_what_stands_in_each_other(text, deep):
    assert depth(json.loads(text)) == deep


def test_deep_objects_are_refused_before_anything_goes_down_into_them():
    parse_object('{"a": ' + "[" * 90 + "]" * 90 + "}", "f:1", "")
    with pytest.raises(UserError, match=r"f:1: not JSON that can be read: it is nested too deep"):
        parse_object('{"a": ' + "[" * 300 + "]" * 300 + "}", "f:1", "")


def test_many_keys_of_which_the_last_stands_twice_are_looked_through_quickly():
    line = "{" + ", ".join(f'"k{i}": 0' for i in range(200_000)) + ', "k199999": 1}'
    with pytest.raises(UserError, match="the key 'k199999' stands twice"):
        parse_object(line, "f:1", "", unique_keys=True)


@pytest.mark.parametrize("value", ["\ud83d", ["ok", "\udc00"], {"\ud800": 1}])
def test_half_a_pair_is_refused_wherever_it_stands(value):
    with pytest.raises(UserError, match=r"f:2: \\ud[0-9a-f]{3} is half of a surrogate pair"):
        refuse_half_pairs(value, "f:2")


def test_whole_pairs_pass():
    line = '{"text": "\\ud83d\\ude00"}'
    assert has_escaped_surrogate(line)
    refuse_half_pairs(parse_object(line, "f:1", ""), "f:1")


def test_lines_are_numbered_over_blocks(tmp_path):
    path = tmp_path / "many.txt"
    path.write_bytes(b"x" * 9 + b"\r\n\r" + b"\n".join(b"%d" % i for i in range(100_000)))
    lines = list(numbered_lines(path, "utf-8"))
    assert lines[:3] == [(1, "x" * 9), (2, ""), (3, "0")]
    assert lines[-1] == (100_002, "99999")


def test_long_values_are_cut_in_messages():
    assert shorten("a" * 59) == repr("a" * 59)[:60] + "..."
    assert shorten("abc") == "'abc'"
