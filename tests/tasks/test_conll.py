"""Lines to sentences of tagged words and back."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.errors import UserError
from minibert.tasks.conll import looks_tagged, read_conll, write_conll


def read(folder, text, *, gold=True, encoding="utf-8", name="a.conll"):
    path = folder / name
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    sentences, notes = read_conll(path, encoding, gold=gold)
    return [(s.line, s.tokens, s.tags) for s in sentences], notes


def refused(folder, text, **options):
    with pytest.raises(UserError) as caught:
        read(folder, text, **options)
    return caught.value


TWO = [(1, ["EU", "rejects"], ["B-ORG", "O"]), (4, ["Peter"], ["B-PER"])]


@pytest.mark.parametrize(
    "text",
    [
        "EU B-ORG\nrejects O\n\nPeter B-PER\n",
        "EU B-ORG\nrejects O\n\nPeter B-PER",  # no end of line
        "EU B-ORG  \nrejects O \n \t \nPeter B-PER\n\n\n",  # blanks at ends, a line of blanks
        "EU\tB-ORG\nrejects\tO\t\n\t\nPeter\tB-PER\n",  # a lone tab
        "EU\tB-ORG\nrejects O\n\t\t\nPeter   B-PER\n",  # mixed
        "EU\tB-ORG\r\nrejects\tO\r\n\r\nPeter\tB-PER\r\n",
        "EU\tB-ORG\rrejects\tO\r\rPeter\tB-PER\r",
        "EU\tB-ORG \nrejects\t O\n\nPeter\tB-PER\n",
        "\ufeffEU B-ORG\nrejects O\n\nPeter B-PER\n",
        "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n",
        "EU B-ORG\nrejects O\n-DOCSTART- O\nPeter B-PER\n",  # the mark ends a sentence too
    ],
)
def test_layouts_that_say_the_same(tmp_path, text):
    assert read(tmp_path, text) == (TWO, [])


def test_document_marks_are_no_words(tmp_path):
    text = (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n"
        "-DOCSTART- -DOCSTART- O O\nDe Art B O\ntekst N I O\n, Punc O O\n"
    )
    found, _ = read(tmp_path, text)
    assert [tokens for _, tokens, _ in found] == [["EU", "rejects"], ["De", "tekst", ","]]
    assert [line for line, _, _ in found] == [3, 7]


def test_other_encodings_and_compressed_files(tmp_path):
    assert read(tmp_path, "北 B-LOC\n京 I-LOC\n", encoding="gb18030")[0] == [(1, ["北", "京"], ["B-LOC", "I-LOC"])]
    assert read(tmp_path, gzip.compress(b"EU B-ORG\n"), name="a.conll.gz")[0] == [(1, ["EU"], ["B-ORG"])]
    assert refused(tmp_path, "北 B-LOC\n".encode("gb18030")).where == f"{tmp_path / 'a.conll'}:1"


def test_blanks_that_are_words(tmp_path):
    found, notes = read(tmp_path, "a b\tO\n\u3000\tO\n \tO\n\tO\n\xa0 O\n\u3000 B-X\n")
    assert found[0][1:] == (["a b", "\u3000", " ", "", "\xa0", "\u3000"], ["O", "O", "O", "O", "O", "B-X"])
    assert notes == ["tokens that are empty or blank, each a word with a tag: 5"]
    assert read(tmp_path, "x\x85y\u2028z O\n")[0] == [(1, ["x\x85y\u2028z"], ["O"])]


def test_hash_signs_are_words_and_comments_are_not(tmp_path):
    text = "# id 7 domain=en\n# text = # yes\n# O\n#yes O\nno O\n# O\n\n# O\n"
    found, notes = read(tmp_path, text)
    assert [tokens for _, tokens, _ in found] == [["#", "#yes", "no", "#"], ["#"]]
    assert notes == ['comments (lines that begin with "# ") passed over: 2']
    assert read(tmp_path, text, gold=False) == ([(3, ["#", "#yes", "no", "#"], None), (8, ["#"], None)], notes)
    assert read(tmp_path, "# NN B-NP O\nyes NN B-NP O\n")[0] == [(1, ["#", "yes"], ["O", "O"])]
    assert read(tmp_path, "EU a b\n# c d\n", gold=False)[0] == [(1, ["EU", "#"], None)]  # inside a sentence: a word
    assert read(tmp_path, "#\tO\n# x y\tO\n")[0] == [(1, ["#", "# x y"], ["O", "O"])]


def test_without_gold_one_column_is_enough_and_tags_are_not_looked_at(tmp_path):
    assert read(tmp_path, "EU\nrejects\n\nPeter", gold=False)[0] == [(1, ["EU", "rejects"], None), (4, ["Peter"], None)]
    assert read(tmp_path, "EU X-9\nrejects ?\n", gold=False)[0] == [(1, ["EU", "rejects"], None)]
    assert read(tmp_path, "New York\tO\nrejects\n", gold=False)[0] == [(1, ["New York", "rejects"], None)]


def test_a_missing_tag_is_named_with_its_line(tmp_path):
    error = refused(tmp_path, "EU B-ORG\nrejects\n")
    assert error.where == f"{tmp_path / 'a.conll'}:2"
    assert "one column, 'rejects'" in error.problem
    assert refused(tmp_path, "EU\tB-ORG\n\nrejects\t\n").where.endswith(":3")


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("EU B-ORG\nNew York B-LOC\n", True),  # York would be lost
        ("EU\tB-ORG\nNew\tYork\tB-LOC\n", True),
        ("EU\nNew York\n", False),
        ("EU O\nYork\n", False),
    ],
)
def test_another_number_of_columns_is_refused(tmp_path, text, gold):
    error = refused(tmp_path, text, gold=gold)
    assert error.where.endswith(":2")
    assert "column" in error.problem
    assert "line 1" in error.problem


def test_plain_text_is_told_from_tagged_words():
    assert looks_tagged(["EU B-ORG", "rejects O", "", "# id 7"])
    assert looks_tagged(["-DOCSTART- -X- O", "EU\tE-ORG"])
    assert not looks_tagged(["EU rejects German call", "Peter"])
    assert not looks_tagged(["vitamin O", "and more"])
    assert not looks_tagged([])


def test_writing():
    assert write_conll([(["EU", "x y"], ["B-ORG", "O"]), (["Peter"], ["B-PER"])]) == (
        "EU\tB-ORG\nx y\tO\n\nPeter\tB-PER\n"
    )
    assert write_conll([(["a"], ["O"]), ([], []), (["b"], ["O"])]) == "a\tO\n\n\nb\tO\n"
    assert write_conll([]) == ""


@pytest.mark.parametrize("token", ["a\tb", "a\nb", "\r"])
def test_a_token_that_would_break_its_line_is_refused(token):
    with pytest.raises(UserError) as caught:
        write_conll([([token], ["O"])])
    assert repr(token) in caught.value.problem
    assert caught.value.where == "--format"


TOKEN = st.text(st.sampled_from("ab#-. \u3000\xa0\u200b\u2028北é"), max_size=4)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(TOKEN, st.sampled_from(["O", "B-a b", "I-X"])), min_size=1, max_size=6), max_size=5),
    st.booleans(),
)
def test_what_is_written_is_read_again(sentences, gold):
    pairs = [([token for token, _ in s], [tag for _, tag in s]) for s in sentences]
    with tempfile.TemporaryDirectory() as folder:
        found, _ = read(Path(folder), write_conll(pairs), gold=gold)
    assert [(tokens, tags) for _, tokens, tags in found] == [(a, b if gold else None) for a, b in pairs]
