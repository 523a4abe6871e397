from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibert.errors import UserError
from minibert.tokenization.files import read_vocabulary
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

TOKENS = [*SPECIAL_TOKENS, "cafe", "##s", "é", "CAFE", "北", "\u2028"]


def write_vocabulary(folder: Path, tokens: list[str]) -> Path:
    path = folder / "vocab.txt"
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    BertTokenizer.from_tokens(TOKENS, lowercase=True, strip_accents=False).save_pretrained(tmp_path)
    return tmp_path


def edit(path: Path, *keys: str, value: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(content), encoding="utf-8")


def test_saving_writes_the_same_bytes_and_loading_gives_the_tokenizer_back(saved: Path, tmp_path: Path) -> None:
    names = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in saved.iterdir()) == names
    again = BertTokenizer.from_pretrained(saved)
    assert again.tokens == TOKENS
    again.save_pretrained(tmp_path / "again")
    assert all((saved / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in names)


def test_truncation_and_padding_in_tokenizer_json_are_switched_off(saved: Path) -> None:
    limit = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    edit(saved / "tokenizer.json", "truncation", value=limit)
    edit(saved / "tokenizer.json", "padding", value={**fill, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"})
    tokenizer = BertTokenizer.from_pretrained(saved)
    assert [len(ids) for ids in tokenizer.encode(["cafe " * 20, "cafe"])] == [20, 1]
    assert [len(ids) for ids, _ in tokenizer.encode_with_offsets(["cafe " * 20, "cafe"])] == [20, 1]


def test_settings_come_from_the_config_then_tokenizer_json_and_can_be_overridden(saved: Path) -> None:
    edit(saved / "tokenizer_config.json", "do_lower_case", value=False)
    assert BertTokenizer.from_pretrained(saved).lowercase is False
    assert BertTokenizer.from_pretrained(saved, lowercase=True).lowercase is True
    edit(saved / "tokenizer_config.json", "strip_accents", value=None)
    assert BertTokenizer.from_pretrained(saved).strip_accents is None
    (saved / "tokenizer_config.json").unlink()
    tokenizer = BertTokenizer.from_pretrained(saved)
    assert (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.model_max_length) == (True, False, 512)
    assert BertTokenizer.from_pretrained(saved, strip_accents=True).strip_accents is True


def test_a_folder_with_vocab_txt_alone_follows_its_config(saved: Path) -> None:
    (saved / "tokenizer.json").unlink()
    settings = {"do_lower_case": False, "tokenize_chinese_chars": False, "model_max_length": int(1e30)}
    (saved / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    tokenizer = BertTokenizer.from_pretrained(saved)
    assert (tokenizer.lowercase, tokenizer.chinese_chars, tokenizer.model_max_length) == (False, False, 512)
    assert tokenizer.encode(["北北 CAFE cafe"])[0] == [1, 8, 5]


def test_a_bare_vocabulary_is_lower_case_unless_it_has_capitals(tmp_path: Path) -> None:
    lower = write_vocabulary(tmp_path, [*SPECIAL_TOKENS, "<S>", "[UNUSED]", "a"])
    assert BertTokenizer.from_pretrained(lower).lowercase is True
    assert BertTokenizer.from_pretrained(lower, lowercase=False).lowercase is False
    cased = write_vocabulary(tmp_path, [*SPECIAL_TOKENS, "a", "A"])
    assert BertTokenizer.from_pretrained(cased).lowercase is False
    assert BertTokenizer.from_pretrained(tmp_path).lowercase is False
    assert BertTokenizer.from_pretrained(cased, lowercase=True).lowercase is True


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n", "\r\n", "\n \n\t\n"])
def test_vocabulary_may_have_crlf_a_bom_and_blank_lines_at_the_end(tmp_path: Path, end: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(("\ufeff" + "\r\n".join(TOKENS) + end).encode())
    assert read_vocabulary(path) == TOKENS


@pytest.mark.parametrize(
    ("content", "where", "problem"),
    [
        (b"", "vocab.txt", "the vocabulary is empty"),
        (b"\n\r\n", "vocab.txt", "the vocabulary is empty"),
        (b"a\nb\n\nc\n", "vocab.txt:3", "an empty line inside"),
        (b"a\nb\r\na\n", "vocab.txt:3", "'a' is already on line 1"),
        (b"a\nb\xff\n", "vocab.txt:2", "not UTF-8: byte 0xff at byte 2"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", "vocab.txt", "has no [MASK]"),
    ],
)
def test_a_bad_vocabulary_is_refused_with_its_line(tmp_path: Path, content: bytes, where: str, problem: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(UserError) as caught:
        BertTokenizer.from_pretrained(tmp_path / "vocab.txt")
    assert str(caught.value.where).endswith(where)
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (["model"], {"type": "BPE", "vocab": {}, "merges": []}, "a BPE tokenizer"),
        (["model"], {"type": "Unigram", "vocab": []}, "a Unigram tokenizer"),
        (["model", "continuing_subword_prefix"], "@@", "begin with '@@'"),
        (["model", "vocab", "cafe"], 77, "without gaps"),
        (["model", "vocab", "cafe"], 6, "id 6 belongs to two tokens"),
        (["normalizer"], {"type": "Lowercase"}, "WordPiece over Lowercase and BertPreTokenizer"),
        (["pre_tokenizer"], None, "WordPiece over BertNormalizer and None"),
        (["normalizer", "clean_text"], False, "clean_text off"),
    ],
)
def test_a_tokenizer_json_that_is_not_berts_is_named(saved: Path, keys: list[str], value: Any, problem: str) -> None:
    edit(saved / "tokenizer.json", *keys, value=value)
    with pytest.raises(UserError, match=r"tokenizer\.json") as caught:
        BertTokenizer.from_pretrained(saved)
    assert problem in caught.value.problem


def test_an_added_token_keeps_its_id(saved: Path) -> None:
    content = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"].append({**content["added_tokens"][0], "id": len(TOKENS), "content": "[E1]"})
    del content["model"]["type"]  # early files do not name it
    (saved / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert BertTokenizer.from_pretrained(saved).tokens == [*TOKENS, "[E1]"]


def test_a_tokenizer_json_without_vocabulary_is_refused(saved: Path) -> None:
    edit(saved / "tokenizer.json", "model", "vocab", value={})
    edit(saved / "tokenizer.json", "added_tokens", value=[])
    with pytest.raises(UserError, match="the vocabulary is empty"):
        BertTokenizer.from_pretrained(saved)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{\n\n]", "tokenizer_config.json:3: not JSON"), (b"[]", "a JSON list"), (b'{"a":"\xff"}', "not UTF-8")],
)
def test_a_broken_json_file_is_named(saved: Path, content: bytes, problem: str) -> None:
    (saved / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(UserError, match=problem):
        BertTokenizer.from_pretrained(saved)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("spiece.model", "SentencePiece"), ("merges.txt", "byte-pair"), ("config.json", "no tokenizer here")],
)
def test_a_folder_without_a_bert_tokenizer_says_what_it_holds(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(UserError, match=problem):
        BertTokenizer.from_pretrained(tmp_path)


def test_a_path_that_is_not_there_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        BertTokenizer.from_pretrained(tmp_path / "nothing")
