"""A store in shards is the one store, number for number; shards that are missing, damaged or foreign are named."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from minibert.console import Console
from minibert.corpus import store as store_module
from minibert.corpus.pairs import split_documents
from minibert.corpus.prepared import open_prepared, shard_name
from minibert.corpus.read import fingerprint
from minibert.corpus.sources import find_sources
from minibert.corpus.store import open_store
from minibert.errors import UserError
from minibert.prepare import prepare
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
TOKENS = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), "."]
TOKENIZER = BertTokenizer.from_tokens(TOKENS, lowercase=True)


@pytest.fixture
def text(tmp_path, text_of, monkeypatch):
    """A folder of files: some long, one without any text, one whose last document has no blank line behind it."""
    monkeypatch.setattr(store_module, "CHUNK_CHARACTERS", 700)
    folder = tmp_path / "text"
    folder.mkdir()
    for number, documents in enumerate([9, 3, 25, 0, 6, 14]):
        (folder / f"{number}.txt").write_text(text_of(documents, seed=number) if documents else "\u200b\n")
    return folder


def prepared(text, out, of, shards=None, tokenizer=TOKENIZER, **changes):
    settings = {
        "encoding": "utf-8", "text_field": "text", "language": "auto", "words": False, "workers": 1,
        "cache": out.parent / "cache", "console": Console(silent=True), **changes,
    }  # fmt: skip
    for shard in shards or range(of, 0, -1):  # in any order
        prepare(find_sources([str(text)]), str(out), tokenizer, shard=shard, of=of, **settings)
    return out


@pytest.mark.parametrize("of", [1, 2, 4, 6])
@pytest.mark.parametrize("words", [False, True])
def test_shards_are_the_one_store_number_for_number(text, tmp_path, of, words):
    files = sorted(text.iterdir())
    whole, _ = open_store(files, TOKENIZER, tmp_path / "stores", corpus=fingerprint(files), words=words)
    tokenizer, store, made_of = open_prepared(prepared(text, tmp_path / "store", of, words=words))
    assert tokenizer.fingerprint == TOKENIZER.fingerprint
    assert made_of["words"] is words
    assert len(store.shards) == of
    sums = {key: value for key, value in store.facts.items() if key != "bytes"}
    assert sums == {key: value for key, value in whole.facts.items() if key != "bytes"}
    assert (store.hashes == whole.hashes).all()
    assert (store.layout.doc_first == whole.layout.doc_first).all()
    assert (store.layout.sentence_start == whole.layout.sentence_start).all()
    assert (split_documents(store.hashes, 0.2)[1] == split_documents(whole.hashes, 0.2)[1]).all()
    tokens = whole.facts["tokens"]
    draw = np.random.default_rng(0)
    sent = pickle.loads(pickle.dumps(store))  # as a loader's worker has it
    for start in [0, *draw.integers(0, tokens - 1, 60).tolist()]:
        length = int(draw.integers(1, tokens - start + 1))
        assert (sent.ids(start, length) == whole.ids(start, length)).all()
        if words:
            assert (sent.starts_word(start, length) == whole.starts_word(start, length)).all()
    counts = (found.token_counts(len(TOKENIZER), without=np.array([0, 3, 50])) for found in (store, whole))
    assert (next(counts) == next(counts)).all()


def test_missing_shards_are_named_with_the_command(text, tmp_path):
    out = prepared(text, tmp_path / "store", 4, shards=[4, 2])
    with pytest.raises(UserError, match="shards 1, 3 of 4 are missing") as caught:
        open_prepared(out)
    assert "minibert prepare" in str(caught.value)
    assert "--shard 1/4" in str(caught.value)
    prepared(text, out, 4, shards=[1, 3])
    open_prepared(out)


@pytest.mark.parametrize("damage", ["cut", "lost", "no facts", "no json", "zeros"])
def test_a_damaged_shard_is_named_and_prepared_anew(text, tmp_path, damage):
    out = prepared(text, tmp_path / "store", 3)
    shard = out / shard_name(2, 3)
    tokens, facts = shard / "tokens.arrow", shard / "store.json"
    before = tokens.read_bytes()
    if damage == "cut":
        tokens.write_bytes(before[:-8])
    elif damage == "lost":
        tokens.unlink()
    elif damage == "zeros":
        tokens.write_bytes(bytes(len(before)))
    else:
        facts.write_text("{}" if damage == "no facts" else "{")
    with pytest.raises(UserError, match="shard 2 of 3 is damaged") as caught:
        open_prepared(out)
    assert str(shard) in str(caught.value)
    assert "--shard 2/3" in str(caught.value)
    prepared(text, out, 3, shards=[2])
    assert tokens.read_bytes() == before
    open_prepared(out)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"language": "en"}, "another --language"),
        ({"words": True}, "another --mask-unit"),
        ({"tokenizer": BertTokenizer.from_tokens(TOKENS, lowercase=False)}, "another tokenizer"),
        ({"encoding": "latin-1"}, "another --encoding"),
        ({"text_field": "body"}, "another --text-field"),
    ],
    ids=["language", "words", "tokenizer", "encoding", "field"],
)
def test_shards_made_with_other_settings_are_never_mixed(text, tmp_path, changes, said):
    out = prepared(text, tmp_path / "store", 2, shards=[1])
    with pytest.raises(UserError, match=said):
        prepared(text, out, 2, shards=[2], **changes)
    assert [path.name for path in out.iterdir()] == [shard_name(1, 2)]
    other = prepared(text, tmp_path / "other", 2, shards=[2], **changes)
    shutil.copytree(other / shard_name(2, 2), out / shard_name(2, 2))  # brought together by hand
    with pytest.raises(UserError, match=said) as caught:
        open_prepared(out)
    assert "shard 2 of 2" in str(caught.value)


def test_shards_of_other_corpora_or_counts_are_never_mixed(text, tmp_path):
    out = prepared(text, tmp_path / "store", 2, shards=[1])
    (text / "9.txt").write_text("one more.")
    with pytest.raises(UserError, match="another list of files"):
        prepared(text, out, 2, shards=[2])
    with pytest.raises(UserError, match="holds shards of 2, not of 3"):
        prepared(text, out, 3, shards=[2])
    shutil.copytree(out / shard_name(1, 2), out / shard_name(1, 3))
    with pytest.raises(UserError, match="shards of 2 and of 3 are mixed"):
        open_prepared(out)


def test_same_shard_again_is_found_and_other_text_under_its_name_refused(text, tmp_path, monkeypatch):
    out = prepared(text, tmp_path / "store", 2)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "read_pieces", lambda *args, **kwargs: pytest.fail("the text was tokenised again"))
        prepared(text, out, 2, shards=[2])
    last = text / "5.txt"
    last.write_text(last.read_text().replace("dog", "cat"))  # as many bytes
    with pytest.raises(UserError, match="made of other text"):
        prepared(text, out, 2, shards=[2])
    open_prepared(out)


def test_a_shard_that_fails_leaves_nothing(text, tmp_path):
    (text / "3.txt").write_bytes(b"good.\n\xff\n")
    with pytest.raises(UserError, match=r"3\.txt:2"):
        prepared(text, tmp_path / "store", 2, shards=[2])
    assert not list((tmp_path / "store").rglob("*"))


def test_no_text_in_any_shard_is_refused_but_in_one_is_not(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("\u200b\n")
    with pytest.raises(UserError, match="no text"):
        open_prepared(prepared(folder, tmp_path / "store", 2))
    with pytest.raises(UserError, match="no text"):
        prepared(folder, tmp_path / "one", 1)


@pytest.mark.parametrize("what", ["format", "tokenizer"])
def test_what_another_version_made_or_hands_have_changed_is_refused(text, tmp_path, what):
    out = prepared(text, tmp_path / "store", 2)
    if what == "format":
        for facts in out.glob("*/store.json"):
            content = json.loads(facts.read_text())
            content["shard"]["format"] = 1
            facts.write_text(json.dumps(content))
    else:
        BertTokenizer.from_tokens(TOKENS, lowercase=False).save_pretrained(out / shard_name(1, 2))
    with pytest.raises(UserError, match={"format": "another version", "tokenizer": "its tokenizer is not"}[what]):
        open_prepared(out)


def test_out_that_is_no_store_is_left_alone(text, tmp_path):
    with pytest.raises(UserError, match="holds other files"):
        prepared(text, text, 1)
    with pytest.raises(UserError, match="is a file"):
        prepared(text, text / "0.txt", 1)
    with pytest.raises(UserError, match="cannot be written"):
        prepared(text, tmp_path / "text/0.txt/store", 1)


def test_a_token_that_is_in_no_vocabulary_names_its_shard(text, tmp_path):
    prepared(text, tmp_path / "store", 3)
    _, store, _ = open_prepared(tmp_path / "store")
    largest = max(int(part.max()) for part in store._ids)
    holding = {folder.name for part, folder in zip(store._ids, store._folders, strict=True) if part.max() == largest}
    with pytest.raises(UserError, match=f"it holds the token {largest} of {largest}") as caught:
        store.token_counts(largest, without=np.array([], np.int64))
    assert Path(caught.value.where).name in holding
    assert "prepare this shard anew" in caught.value.fix
