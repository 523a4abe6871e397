"""minibert's ids are Google's and transformers', but for the differences that docs/tokenization.md names."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minibert.tokenization.words import WordSplitter, without_surrogates

HERE = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("google_rules", HERE / "google_rules.py")
assert _spec is not None
assert _spec.loader is not None
google_rules = importlib.util.module_from_spec(_spec)
sys.modules["google_rules"] = google_rules  # dataclasses look their module up
_spec.loader.exec_module(google_rules)

PAGE = HERE.parents[1] / "docs" / "tokenization.md"
SETTINGS = [(True, None), (False, None), (True, False), (False, True)]
CASES = [(name, lowercase) for name in ("uncased_en", "cased_en", "zh") for lowercase in (True, False)]


def words(text: str, *, lowercase: bool = True) -> str:
    return " ".join(google_rules.words_of(text, lowercase=lowercase))


# --- the reference itself, worked out by hand ---


def test_reference_cleans_splits_and_lower_cases() -> None:
    assert words("Crème-BRÛLÉE's\t$5\u00a0a\u2028b") == "creme - brulee ' s $ 5 a b"
    assert words("Crème-BRÛLÉE's", lowercase=False) == "Crème - BRÛLÉE ' s"
    assert words("a\u200bb\x00c\ufffdd\x85e\x1cf") == "abcdef", "zero width, NUL, replacement, C1 and C0 controls"
    assert words("ΟΔΟΣ ΣΑΣ") == "οδος σας"


def test_reference_isolates_han_and_punctuation_and_nothing_else() -> None:
    assert words("买3本BERT书，￥9。") == "买 3 本 bert 书 ， ￥9 。", "￥ is a currency sign, not punctuation"
    assert words("かな々〇\U0002b820\U0002ceb0豈") == "かな々〇 \U0002b820 \U0002ceb0 豈", (
        "々, 〇 and Extension F are not"
    )
    ascii_punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert words(ascii_punctuation) == " ".join(ascii_punctuation)


def test_reference_takes_the_longest_piece_and_one_unk_for_a_word() -> None:
    ids = {token: i for i, token in enumerate(["[UNK]", "un", "want", "##want", "##wanted", "##ed", "a", "##a"])}
    assert google_rules.ids_of("unwanted", ids) == [1, 4]
    assert google_rules.ids_of("wanted", ids) == [2, 5]
    assert google_rules.ids_of("unwantedx", ids) == [0]
    assert len(google_rules.ids_of("a" * 200, ids)) == 200
    assert google_rules.ids_of("a" * 201, ids) == google_rules.ids_of("a" * 101, ids, longest_word=100) == [0]


# --- every character ---


def interesting_characters(step: int) -> list[int]:
    """Every step-th character; inside large blocks of one kind every 61st, and the blocks' ends."""
    blocks = [*google_rules.HAN_BLOCKS, range(0xAC00, 0xD7A4), range(0xD800, 0xE000), range(0xE000, 0xF900)]
    blocks += [range(0x17000, 0x187F8), range(0x2CEB0, 0x2EBE1), range(0x30000, 0x3134B), range(0xF0000, 0x110000)]
    alike = frozenset(code for block in blocks for code in block)
    ends = {code for block in blocks for end in (block.start, block.stop) for code in (end - 1, end)} - {0x110000}
    return [
        code
        for code in range(sys.maxunicode + 1)
        if code % 61 == 0
        or code in ends
        or (code % step == 0 and code not in alike and unicodedata.category(chr(code)) != "Cn")
    ]


@pytest.mark.parametrize(("lowercase", "strip_accents"), SETTINGS)
def test_characters_that_differ_from_google_are_the_listed_ones(lowercase: bool, strip_accents: bool | None) -> None:
    """Red where a library's Unicode tables change. The whole of Unicode: scripts/check_tokenizers.py."""
    splitter = WordSplitter(lowercase=lowercase, strip_accents=strip_accents)
    strips = lowercase if strip_accents is None else strip_accents
    known = google_rules.known_differences(lowercase=lowercase, strip_accents=strips)

    def by_google(text: str) -> list[str]:
        return google_rules.words_of(text, lowercase=lowercase, strip_accents=strip_accents)  # type: ignore[no-any-return]

    codes = set(interesting_characters(1 if strip_accents is None else 9))
    codes |= {code for code in google_rules.DIFFERING if code < 0x20000 and not 0xD800 <= code <= 0xF8FF}
    found = set(google_rules.differing(sorted(codes), splitter.split, by_google))
    assert {hex(code) for code in found ^ (known.keys() & codes)} == set()


def test_no_listed_character_but_sigma_is_in_googles_vocabularies(shared: Path) -> None:
    entries = "".join((shared / "data" / "vocab" / f"{name}.txt").read_text("utf-8") for name, _ in CASES)
    assert {c for c in entries if ord(c) in google_rules.DIFFERING} == {google_rules.SIGMA}
    assert "ς" in entries


# --- any text ---

TINY = [
    *SPECIAL_TOKENS,
    *"aéeinσ中文字ー한がh😀[],.，。'",
    "##a",
    "##é",
    "##e",
    "##n",
    "##σ",
    "##が",
    "##ー",
    "mask",
    "un",
]
KINDS = (
    st.characters()
    | st.sampled_from("aeinAEINÉéẞİσΑΩ中文字𠀀豈ー々〇が한글ﬁ[MASK]#'，。、「」")
    | st.sampled_from(" \t\n\r\x0b\x0c\x1c\x85\u00a0\u1680\u2003\u2028\u2029\u3000\u180e")
    | st.sampled_from("\x00\x7f\u00ad\u061c\u200b\u200d\u200e\u2060\ufeff\ufffd\ufe0f\U000e0041")
    | st.sampled_from(
        "\u0301\u0307\u0345\u05b4\u064e\u094d\u0e34\u3099\u302e\u302f\u1b44\U0001d165\U0001d16d\U0001d15e"
    )
    | st.sampled_from("😀👩🏽\U0001f1e9\U0002a6df\U0002ceb0\U00030000\uffff\U0010ffff")
)


@cache
def tiny(lowercase: bool, strip_accents: bool | None) -> BertTokenizer:
    return BertTokenizer.from_tokens(TINY, lowercase=lowercase, strip_accents=strip_accents)


@given(st.text(KINDS, max_size=40), st.sampled_from(SETTINGS))
@settings(max_examples=600, deadline=None)
def test_any_text_without_listed_characters_has_googles_ids(text: str, how: tuple[bool, bool | None]) -> None:
    text = google_rules.without_differences(text)
    tokenizer = tiny(*how)
    ids = {token: i for i, token in enumerate(TINY)}
    expected = google_rules.encode(text, ids, lowercase=how[0], strip_accents=how[1], longest_word=100)
    assert tokenizer.encode([text]) == [expected]
    assert tokenizer.encode_with_offsets([text])[0][0] == expected


# --- real text ---


@pytest.fixture(scope="module")
def lines(shared: Path) -> list[str]:
    """Contexts and questions in English and Chinese and sentences of tweets."""
    found = []
    for language in ("en", "zh"):
        content = json.loads((shared / "data" / "xquad" / f"xquad.{language}.json").read_text("utf-8"))
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                found += [paragraph["context"], *(question["question"] for question in paragraph["qas"])]
    for part in ("train", "dev", "test"):
        sentences = (shared / "data" / "wnut17" / f"{part}.conll").read_text("utf-8").replace("\n\t\n", "\n\n")
        found += [
            " ".join(line.split("\t")[0] for line in sentence.splitlines()) for sentence in sentences.split("\n\n")
        ]
    assert len(found) > 8000
    return random.Random(0).sample(found, 900)


@pytest.mark.parametrize(("name", "lowercase"), CASES)
def test_real_text_has_googles_ids(shared: Path, lines: list[str], name: str, lowercase: bool) -> None:
    tokenizer = BertTokenizer.from_pretrained(shared / "data" / "vocab" / f"{name}.txt", lowercase=lowercase)
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    differing = [
        line
        for line, found in zip(lines, tokenizer.encode(lines), strict=True)
        if found != google_rules.encode(line, ids, lowercase=lowercase)
    ]
    assert differing == []


@pytest.mark.parametrize(
    ("name", "lowercase", "strip_accents"),
    [*((*case, None) for case in CASES), ("zh", True, False), ("zh", False, True)],
)
def test_real_text_has_the_ids_of_transformers_in_singles_and_pairs(
    shared: Path, tmp_path: Path, lines: list[str], name: str, lowercase: bool, strip_accents: bool | None
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = BertTokenizer.from_pretrained(
        shared / "data" / "vocab" / f"{name}.txt", lowercase=lowercase, strip_accents=strip_accents
    )
    tokenizer.save_pretrained(tmp_path)
    peer = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode(lines) == peer(lines, add_special_tokens=False)["input_ids"]
    some = lines[:150]
    for texts, limit in (((some,), 24), ((some, some[::-1]), 48), ((some, some[::-1]), 49)):
        how: dict[str, Any] = {"max_length": limit, "padding": "max_length", "return_offsets_mapping": True}
        ours, theirs = tokenizer(*texts, **how), peer(*texts, truncation=True, return_tensors="pt", **how)
        for key in ("input_ids", "token_type_ids", "attention_mask", "offset_mapping"):
            assert ours[key].tolist() == theirs[key].tolist(), key


# --- each difference, pinned ---

# text; words by Google; words here, in `tokenizers` and in transformers; by transformers' slow tokenizer (uncased)
PINNED = {
    "final sigma": ("ΟΔΟΣ", "οδος", "οδοσ", "οδος"),
    "Extension E": ("a\U0002b820b", "a \U0002b820 b", "a\U0002b820b", "a \U0002b820 b"),
    "private use": ("a\ue000b", "a\ue000b", "ab", "ab"),
    "surrogate": ("a\ud800b", "a\ud800b", "ab", "ab"),
    "newer punctuation": ("a\u2e43b", "a \u2e43 b", "a\u2e43b", "a \u2e43 b"),
    "former punctuation": ("a\u166db", "a\u166db", "a \u166d b", "a\u166db"),
    "newer mark": ("a\u08d4b", "ab", "a\u08d4b", "ab"),
    "former mark": ("a\u1734b", "a\u1734b", "ab", "a\u1734b"),
    "newer decomposition": ("\U00011938", "\U00011935\U00011930", "\U00011938", "\U00011935\U00011930"),
    "newer format": ("a\u08e2b", "ab", "a\u08e2b", "ab"),
    "newer capital": ("\u1c89", "\u1c89", "\u1c8a", "\u1c89"),
}


def test_every_listed_difference_is_pinned_and_in_the_page() -> None:
    names = [difference.name for difference in google_rules.DIFFERENCES]
    assert list(PINNED) == names
    page = PAGE.read_text("utf-8")
    rows = {name: next((row for row in page.splitlines() if row.startswith(f"| {name} |")), "") for name in names}
    assert [name for name, row in rows.items() if not row] == []
    for difference in google_rules.DIFFERENCES:
        if difference.name.startswith("newer"):
            assert f"| {len(difference.codes)} since Unicode" in rows[difference.name], difference.name


@pytest.mark.parametrize("name", PINNED)
def test_a_listed_difference_is_as_the_page_tells_it(tmp_path: Path, name: str) -> None:
    text, google, ours, slow = PINNED[name]
    if name == "former mark" and unicodedata.category("\u1734") == "Mn":
        google = slow = "ab"  # before Unicode 14
    if name == "newer capital" and "\u1c89".lower() != "\u1c89":
        google = slow = ours  # from Unicode 16 on Python knows it too
    if unicodedata.category(text[0]) == "Cn":
        slow = ""  # it drops what is unassigned
    assert words(text) == google
    assert " ".join(WordSplitter(lowercase=True).split(text)) == ours
    transformers = pytest.importorskip("transformers")
    BertTokenizer.from_tokens([*SPECIAL_TOKENS, "a"], lowercase=True).save_pretrained(tmp_path)
    backend = transformers.BertTokenizer.from_pretrained(tmp_path).backend_tokenizer
    normal = backend.normalizer.normalize_str(without_surrogates(text))
    assert [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)] == ours.split()
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    assert legacy.BasicTokenizer(do_lower_case=True).tokenize(text) == slow.split()


def test_a_word_of_101_to_200_characters_is_unknown_here_and_in_transformers_alone(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokens = [*SPECIAL_TOKENS, "a", "##a"]
    tokenizer = BertTokenizer.from_tokens(tokens, lowercase=True)
    tokenizer.save_pretrained(tmp_path)
    peer = transformers.BertTokenizer.from_pretrained(tmp_path)
    for length, ours in ((100, 100), (101, 1), (200, 1), (201, 1)):
        (found,) = tokenizer.encode(["a" * length])
        assert len(found) == ours
        assert peer("a" * length, add_special_tokens=False)["input_ids"] == found
    ids = {token: i for i, token in enumerate(tokens)}
    assert [len(google_rules.encode("a" * n, ids, lowercase=True)) for n in (200, 201)] == [200, 1]


def test_transformers_slow_tokenizer_composes_what_is_written_apart_google_does_not() -> None:
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    assert legacy.BasicTokenizer(do_lower_case=False).tokenize("e\u0301") == ["é"]
    assert google_rules.words_of("e\u0301", lowercase=False) == ["e\u0301"]
    assert WordSplitter(lowercase=False).split("e\u0301") == ["e\u0301"]
    assert legacy.BasicTokenizer(do_lower_case=True).tokenize("a\u0378b") == ["ab"], "unassigned: dropped there alone"
    assert words("a\u0378b") == WordSplitter(lowercase=True).split("a\u0378b")[0] == "a\u0378b"


def test_a_literal_mask_is_text_here_and_a_special_token_to_transformers(tmp_path: Path) -> None:
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, "[", "]", "mask", "a"], lowercase=True)
    tokenizer.save_pretrained(tmp_path)
    peer = transformers.BertTokenizer.from_pretrained(tmp_path)
    (ours,) = tokenizer.encode(["a [MASK]"])
    assert tokenizer.convert_ids_to_tokens(ours) == ["a", "[", "mask", "]"]
    alone = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert peer("a [MASK]", add_special_tokens=False)["input_ids"] == [8, tokenizer.mask_token_id]
    assert alone.encode("a [MASK]", add_special_tokens=False).ids == [8, tokenizer.mask_token_id]
    assert peer("a [MASK]", add_special_tokens=False, split_special_tokens=True)["input_ids"] == ours


def test_transformers_builds_its_splitting_anew_whatever_tokenizer_json_says(tmp_path: Path) -> None:
    """Why Extension E is not mended by a step in tokenizer.json: `tokenizers` would obey, transformers would not.

    Red when transformers begins to obey: then the step gives everybody Google's words.
    """
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    tokens = [*SPECIAL_TOKENS, "a", "b", "##b", "\U0002b820", "##\U0002b820"]
    BertTokenizer.from_tokens(tokens, lowercase=True).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    pattern = {"Regex": "[\U0002b820-\U0002b91f]"}
    step = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, content["pre_tokenizer"]]}
    path.write_text(json.dumps(content), "utf-8")
    text = "a\U0002b820b"
    apart, joined = ["a", "\U0002b820", "b"], ["a", "##\U0002b820", "##b"]
    assert tokenizers.Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).tokens == apart
    assert transformers.BertTokenizer.from_pretrained(tmp_path).tokenize(text) == joined
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).tokenize(text) == joined
