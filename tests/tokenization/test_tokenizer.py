from __future__ import annotations

import os
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.errors import UserError
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minibert.tokenization.vocabulary import train_vocabulary

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

PIECES = [
    "un",
    "##want",
    "##ed",
    "京",
    "北",
    "大",
    "学",
    "[",
    "]",
    "mask",
    "sep",
    "hello",
    "x",
    "##s",
    "[unused0]",
    "<S>",
]
ENGLISH = [
    "The Committee's 3rd report (1998) cost $1.13bn -- naïve résumés, re-read by O'Neill & co.",
    "E-mail: someone@example.org; see http://example.org/a_b?c=d%20e#f for [more] {details}...",
    "\tTabs\u00a0and\u2003odd\u200bblanks  ;\r soft\u00adhyphen; “quotes” — ‘single’ … ½ ² ﬁne Ⅷ ß İstanbul ΣΑΣ",
]
CHINESE = [
    "今天我要上学了。她说：“早晨好！”（１９９８年，二〇〇八年）",
    "使用BERT模型3.5版处理中文text，价格￥99.80元；𠀀豈ー々人々。",
]
OTHER = [
    "हिन्दी में नमस्ते",
    "がぎぐげご パピプペポ ｶﾞ",
    "한국어 텍스트",
    "ภาษาไทยนี้",
    "Việt Nam đẹp",
    "ꦏꦺꦴꦗꦮ꧀ᬩᬮᬶ᭄",
    "👩‍👩‍👧 e\u0301 ﷺ",
]


@pytest.fixture(scope="module")
def small() -> BertTokenizer:
    return BertTokenizer.from_tokens([*SPECIAL_TOKENS, *PIECES], lowercase=True)


def trained(*, lowercase: bool, strip_accents: bool | None = None) -> BertTokenizer:
    lines = [*ENGLISH, *CHINESE, *OTHER] * 3
    vocabulary = train_vocabulary(lambda: lines, size=900, lowercase=lowercase, strip_accents=strip_accents)
    return BertTokenizer.from_tokens(vocabulary.tokens, lowercase=lowercase, strip_accents=strip_accents)


def pieces(tokenizer: BertTokenizer, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer.encode([text])[0])


def test_literal_special_tokens_in_text_are_text(small: BertTokenizer) -> None:
    assert pieces(small, "hello [MASK][SEP] x") == ["hello", "[", "mask", "]", "[", "sep", "]", "x"]
    ids = small(["[CLS] [PAD] [SEP] hello [MASK]"])["input_ids"][0].tolist()
    assert (ids.count(small.cls_token_id), ids.count(small.sep_token_id)) == (1, 1)
    assert (ids[0], ids[-1]) == (small.cls_token_id, small.sep_token_id)
    assert small.pad_token_id not in ids
    assert small.mask_token_id not in ids
    assert not {"[unused0]", "<S>"} & set(pieces(small, "[unused0] <S>"))


def test_a_partly_unknown_word_is_one_unk_and_a_rare_han_character_only_itself(small: BertTokenizer) -> None:
    assert pieces(small, "unwantedX unwanted") == ["[UNK]", "un", "##want", "##ed"]
    assert pieces(small, "北京鿏大学") == ["北", "京", "[UNK]", "大", "学"]
    assert pieces(small, "x" + "s" * 99) == ["x", *["##s"] * 99]
    assert pieces(small, "x" + "s" * 100) == ["[UNK]"], "a word of more than 100 characters"


def test_zero_width_characters_join_what_they_stood_between(small: BertTokenizer) -> None:
    assert pieces(small, "un\u200bwan\u00adted\ufeff \u2060\u200d hel\u200dlo") == ["un", "##want", "##ed", "hello"]
    assert small.encode(["\u200b\u2060", "", " \n"]) == [[], [], []]


def test_blanks_between_chinese_words_change_no_token(small: BertTokenizer) -> None:
    assert small.encode(["北京 大学 x"]) == small.encode(["北京大学x"])


def test_sets_of_ids(small: BertTokenizer) -> None:
    assert [small.pad_token_id, small.unk_token_id, small.cls_token_id, small.sep_token_id, small.mask_token_id] == [
        *range(5)
    ]
    assert small.convert_ids_to_tokens(small.ordinary_ids.tolist()) == PIECES[:-2]
    assert small.ordinary_ids.dtype == np.int64
    assert [t for t, inside in zip(small.tokens, small.is_continuation, strict=True) if inside] == [
        *("##want", "##ed", "##s")
    ]
    assert len(small) == 21
    assert small.convert_tokens_to_ids(["hello", "absent"]) == [small.tokens.index("hello"), 1]


def test_many_texts_are_encoded_as_one(small: BertTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibert.tokenization.tokenizer.CHARACTERS_AT_A_TIME", 40)
    texts = ["hello unwanted", "", "京北x"] * 1000
    ids, lengths = small.encode_flat(texts)
    assert lengths.tolist() == [4, 0, 3] * 1000
    assert small.encode(texts) == [small.encode([text])[0] for text in texts]
    assert ids.tolist() == [id_ for row in small.encode(texts) for id_ in row]


def test_decode_joins_pieces(small: BertTokenizer) -> None:
    ids = small(["unwanted hello"])["input_ids"][0].tolist()
    assert small.decode(ids) == "unwanted hello"
    assert small.decode(ids, skip_special_tokens=False) == "[CLS] unwanted hello [SEP]"


def test_offsets_count_characters_of_the_original_text(small: BertTokenizer) -> None:
    text = "  Unwanted\u200b X，北\ud83d京"
    ((ids, offsets),) = small.encode_with_offsets([text])
    assert [text[a:b] for a, b in offsets] == ["Un", "want", "ed", "X", "，", "北", "京"]
    assert ids == small.encode([text])[0]


ANY_TEXT = st.text(st.characters() | st.sampled_from("aé中文が한\u0301\u200b\u302e\U0001d165\u1b44[]# \n"), max_size=60)


@given(ANY_TEXT)
@settings(max_examples=400, deadline=None)
def test_any_text_gives_the_same_ids_both_ways_and_offsets_inside_it(text: str) -> None:
    tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *"aé中文が[]#", "##a", "##é", "##が"], lowercase=True)
    ((ids, offsets),) = tokenizer.encode_with_offsets([text])
    assert ids == tokenizer.encode([text])[0]
    assert all(0 <= start < end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)


def test_batch_of_pairs(small: BertTokenizer) -> None:
    batch = small(["hello x", "x"], ["北京", "大学 unwanted"], return_offsets_mapping=True)
    assert [small.convert_ids_to_tokens(row) for row in batch["input_ids"].tolist()] == [
        ["[CLS]", "hello", "x", "[SEP]", "北", "京", "[SEP]", "[PAD]", "[PAD]"],
        ["[CLS]", "x", "[SEP]", "大", "学", "un", "##want", "##ed", "[SEP]"],
    ]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1]]
    assert batch["attention_mask"].tolist() == [[1] * 7 + [0] * 2, [1] * 9]
    assert batch["offset_mapping"][0].tolist() == [[0, 0], [0, 5], [6, 7], [0, 0], [0, 1], [1, 2], *[[0, 0]] * 3]


def test_batch_shapes(small: BertTokenizer) -> None:
    assert small("hello")["input_ids"].tolist() == small(["hello"])["input_ids"].tolist()
    assert small(["hello"], max_length=7, padding="max_length")["input_ids"].shape == (1, 7)
    assert small(["x", "hello"], padding=False)["input_ids"].shape == (2, 3)
    assert small([])["input_ids"].shape == (0, 0)
    assert small([""])["input_ids"].tolist() == [[small.cls_token_id, small.sep_token_id]]
    for arguments, message in [
        ({"padding": False}, "different lengths"),
        ({"padding": "max_length"}, "needs max_length"),
        ({"text_pairs": ["x"]}, "2 texts but 1"),
        ({"max_length": 2}, "no room"),
    ]:
        with pytest.raises(ValueError, match=message):
            small(["x x", "hello"], **arguments)


def test_truncation_takes_from_the_longer_side_first(small: BertTokenizer) -> None:
    def lengths(first: int, second: int, max_length: int) -> tuple[int, int]:
        types = small(["x " * first], ["x " * second], max_length=max_length)["token_type_ids"][0].tolist()
        return types.count(0) - 2, types.count(1) - 1

    assert lengths(9, 2, 10) == (5, 2)
    assert lengths(2, 9, 10) == (2, 5)
    assert lengths(9, 5, 10) == (4, 3)
    assert lengths(5, 9, 10) == (3, 4)
    assert lengths(9, 9, 10) == (3, 4)
    assert lengths(3, 4, 10) == (3, 4)
    assert small(["x " * 9], max_length=6)["input_ids"].shape == (1, 6)


def test_fingerprint_follows_what_decides_ids(small: BertTokenizer) -> None:
    def of(*extra: str, **how: bool | None) -> str:
        return BertTokenizer.from_tokens([*small.tokens, *extra], **{"lowercase": True, **how}).fingerprint  # type: ignore[arg-type]

    assert of() == small.fingerprint == of(strip_accents=True), "strip_accents follows lowercase unless given"
    assert len({of(), of("y"), of(lowercase=False), of(strip_accents=False)}) == 4


def test_a_pickled_tokenizer_is_the_same(small: BertTokenizer) -> None:
    small.encode(["hello"])
    copy = pickle.loads(pickle.dumps(small))
    assert copy.fingerprint == small.fingerprint
    assert copy.encode(["Hello 北京"]) == small.encode(["Hello 北京"])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["[PAD]", "[UNK]", "[CLS]", "a"], r"no \[SEP\], \[MASK\]"),
        ([*SPECIAL_TOKENS, "a", "a"], "'a' has two ids, 5 and 6"),
        ([*SPECIAL_TOKENS, ""], "token 5 is ''"),
        ([*SPECIAL_TOKENS, "a\nb"], "token 5 is"),
    ],
)
def test_malformed_vocabularies_are_the_users_error(tokens: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BertTokenizer.from_tokens(tokens, lowercase=True)


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (True, False), (False, None), (False, True)])
def test_transformers_opens_the_saved_folder_with_the_same_ids(
    tmp_path: Path, lowercase: bool, strip_accents: bool | None
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = trained(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(peer).__name__.startswith("BertTokenizer")
    assert (len(peer), peer.model_max_length) == (len(tokenizer), 128)
    texts = [*ENGLISH, *CHINESE, *OTHER]
    singles = peer(texts, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode(texts) == singles
    assert not any(tokenizer.unk_token_id in row for row in singles)
    for arguments in [{}, {"max_length": 16}, {"max_length": 19}]:
        ours = tokenizer(texts, texts[::-1], **arguments)  # type: ignore[arg-type]
        theirs = peer(texts, texts[::-1], padding=True, truncation=bool(arguments), return_tensors="pt", **arguments)
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            assert ours[name].tolist() == theirs[name].tolist()
    theirs = peer(texts, padding=True, truncation=True, max_length=24, return_offsets_mapping=True, return_tensors="pt")
    ours = tokenizer(texts, max_length=24, return_offsets_mapping=True)
    assert all(ours[name].tolist() == theirs[name].tolist() for name in ("input_ids", "offset_mapping"))
    again = BertTokenizer.from_pretrained(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert (again.model_max_length, again.strip_accents) == (128, strip_accents)


ACCENTS = [
    ("Crème BRÛLÉE", "creme brulee", "crème brûlée"),
    ("कु", "क", "कु"),
    ("ガギ", "カキ", "ガギ"),
    ("ที่", "ท", "ที่"),
    ("한글", "한글", "한글"),
    ("ИЙ", "ии", "ий"),
]


@pytest.mark.parametrize("strip_accents", [None, False])
@pytest.mark.parametrize(("text", "stripped", "kept"), ACCENTS)
def test_accents_in_every_script_follow_the_setting_that_is_saved(
    tmp_path: Path, text: str, stripped: str, kept: str, strip_accents: bool | None
) -> None:
    transformers = pytest.importorskip("transformers")
    vocabulary = train_vocabulary(lambda: [text] * 2, size=100, lowercase=True, strip_accents=strip_accents)
    tokenizer = BertTokenizer.from_tokens(vocabulary.tokens, lowercase=True, strip_accents=strip_accents)
    # Stripping decomposes: Hangul syllables stay in their jamo.
    expected = kept if strip_accents is False else unicodedata.normalize("NFD", stripped)
    assert pieces(tokenizer, text) == expected.split()
    tokenizer.save_pretrained(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).tokenize(text) == expected.split()
    assert pieces(BertTokenizer.from_pretrained(tmp_path), text) == expected.split()


@pytest.mark.parametrize("name", ["uncased_en", "cased_en", "zh"])
def test_googles_vocabularies_give_the_ids_of_transformers_on_real_text(
    shared: Path, tmp_path: Path, name: str
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = BertTokenizer.from_pretrained(shared / "data" / "vocab" / f"{name}.txt")
    assert tokenizer.lowercase is (name != "cased_en")
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "vocab.txt").read_bytes() == (shared / "data" / "vocab" / f"{name}.txt").read_bytes()
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts: list[str] = []
    for language in ("en", "zh"):
        text = (shared / "data" / "xquad" / f"xquad.{language}.json").read_text(encoding="utf-8")
        texts += [text[i : i + 1000] for i in range(0, 300_000, 1000)]
    assert len(texts) >= 300
    assert tokenizer.encode(texts) == peer(texts, add_special_tokens=False)["input_ids"]
