"""JSON objects, one a line."""

import pytest

from minibert.corpus.json_lines import has_escaped_surrogate, numbered_lines, parse_object, refuse_half_pairs, shorten
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
