"""The token store: what is in it, that it is found again, whole or absent, and the same for any number of workers."""

import json
import os
import pickle
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from minibert import atomic
from minibert.atomic import machine
from minibert.corpus import store as module
from minibert.corpus.read import fingerprint
from minibert.corpus.store import open_store, whole_store
from minibert.corpus.tokenize import tokenise
from minibert.errors import UserError
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
TOKENIZER = BertTokenizer.from_tokens(
    [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), ".", "一", "二", "三"], lowercase=True
)


def build(path, folder, **settings):
    return open_store([path], TOKENIZER, folder, corpus=fingerprint([path]), **settings)


def words(store, document):
    return TOKENIZER.convert_ids_to_tokens(store.ids(*store.document_span(document)).tolist())


@pytest.fixture
def two_documents(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("ab cd. De\nef.\n\ng.\n", encoding="utf-8")
    return path


def test_store_holds_documents_sentences_and_tokens(two_documents, tmp_path):
    store, there = build(two_documents, tmp_path / "stores")
    assert not there
    assert len(store) == 2
    assert words(store, 0) == ["a", "##b", "c", "##d", ".", "d", "##e", "e", "##f", "."]
    assert words(store, 1) == ["g", "."]
    assert store.layout.doc_first.tolist() == [0, 3, 4]
    assert store.layout.sentence_start.tolist() == [0, 5, 7, 10, 12]
    assert store.facts["documents"] == 2
    assert store.facts["sentences"] == 4
    assert store.facts["tokens"] == 12
    assert store.facts["one_sentence_documents"] == 1


def test_store_is_a_dataset_that_datasets_opens(two_documents, tmp_path):
    from datasets import Dataset

    store, _ = build(two_documents, tmp_path / "stores")
    rows = Dataset.from_file(str(store.folder / "tokens.arrow"))
    assert len(rows) == 2
    assert rows[1]["sentence_lengths"] == [2]


def test_second_run_finds_the_store_and_reads_nothing(two_documents, tmp_path, monkeypatch):
    first, _ = build(two_documents, tmp_path / "stores")
    monkeypatch.setattr(module, "read_pieces", lambda *args, **kwargs: pytest.fail("the text was read again"))
    again, there = build(two_documents, tmp_path / "stores")
    assert there
    assert again.folder == first.folder


@pytest.mark.parametrize("damage", ["truncate", "delete", "facts", "brace", "swap"])
def test_damaged_store_is_built_again(two_documents, tmp_path, damage):
    store, _ = build(two_documents, tmp_path / "stores")
    arrow, facts = store.folder / "tokens.arrow", store.folder / "store.json"
    whole = arrow.read_bytes()
    if damage == "truncate":
        arrow.write_bytes(whole[:-100])
    elif damage == "delete":
        arrow.unlink()
    elif damage == "swap":
        arrow.write_bytes(bytes(len(whole)))
    else:
        facts.write_text("{}" if damage == "facts" else "{")
    again, there = build(two_documents, tmp_path / "stores")
    assert not there
    assert words(again, 1) == ["g", "."]
    assert arrow.read_bytes() == whole


def test_a_store_that_another_run_makes_meanwhile_is_not_taken_away(two_documents, tmp_path, monkeypatch):
    made = []

    def another(characters):
        """The other run is done while this one still reads."""
        if not made:
            made.append(0)
            with monkeypatch.context() as patch:  # each process has a place of its own beside the target
                patch.setattr(atomic, "beside", lambda target: target.with_name("another"))
                first, _ = build(two_documents, tmp_path / "stores")
            made[0] = (first.folder / "store.json").stat().st_ino

    store, there = build(two_documents, tmp_path / "stores", progress=another)
    assert not there
    assert made == [(store.folder / "store.json").stat().st_ino]
    assert [path.name for path in (tmp_path / "stores").iterdir()] == [store.folder.name]


def test_other_text_tokenizer_or_settings_make_another_store(two_documents, tmp_path):
    def key(corpus="x", tokenizer=TOKENIZER, **settings):
        return module.store_key(corpus, tokenizer, **{"language": "auto", "words": False, **settings})

    cased = BertTokenizer.from_tokens(TOKENIZER.tokens, lowercase=False)
    keys = {key(), key(corpus="y"), key(tokenizer=cased), key(language="zh"), key(words=True)}
    assert len(keys) == 5
    assert key() == key()


def test_failed_build_leaves_nothing(two_documents, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        yield ["ab c."], True
        raise UserError("a bad byte")

    monkeypatch.setattr(module, "read_pieces", broken)
    with pytest.raises(UserError, match="a bad byte"):
        build(two_documents, tmp_path / "stores")
    assert list((tmp_path / "stores").iterdir()) == []


def test_killed_build_is_not_taken_for_a_store(two_documents, tmp_path):
    store, _ = build(two_documents, tmp_path / "stores")
    gone = subprocess.Popen(["true"])
    gone.wait()
    half = store.folder.rename(store.folder.with_name(f"{store.folder.name}.partial-{machine()}-{gone.pid}"))
    (half / "store.json").unlink()
    of_another_text = half.with_name(f"other.partial-{machine()}-{gone.pid}")
    of_another_text.mkdir()
    again, there = build(two_documents, tmp_path / "stores")
    assert not there
    assert not half.exists()  # what a killed process has left is cleared away
    assert not of_another_text.exists()
    assert words(again, 1) == ["g", "."]


def big_text(text_of):
    return text_of(400, seed=3) + "\n" + text_of(200, seed=4, chinese=True)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_same_bytes_for_any_number_of_workers(tmp_path, text_of, monkeypatch, workers):
    monkeypatch.setattr(module, "ALONE_BELOW_BYTES", 0)
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 10_000)
    path = tmp_path / "text.txt"
    path.write_text(big_text(text_of), encoding="utf-8")
    alone, _ = build(path, tmp_path / "alone", workers=1)
    store, _ = build(path, tmp_path / "stores", workers=workers)
    assert (store.folder / "tokens.arrow").read_bytes() == (alone.folder / "tokens.arrow").read_bytes()
    assert store.facts == alone.facts


def test_groups_come_in_order_however_late_the_workers_are(monkeypatch, text_of):
    under_way, most = set(), 0

    class Late(Future):
        def result(self, timeout=None):
            if not self.done():
                under_way.discard(self)
                self.set_result(tokenise(self.documents, TOKENIZER, goes_on=False, language="auto", words=False))
            return super().result(timeout)

    class Pool(ThreadPoolExecutor):
        def submit(self, _, documents, goes_on):
            nonlocal most
            future = Late()
            future.documents = documents
            under_way.add(future)
            most = max(most, len(under_way))
            return future

    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda workers, **_: Pool(workers))
    groups = [([[line]], False) for line in text_of(100).split("\n") if line]
    alone = module._tokenised(iter(groups), TOKENIZER, language="auto", words=False, workers=1)
    taken = []

    def read():
        for group in groups:
            taken.append(group)
            yield group

    together = module._tokenised(read(), TOKENIZER, language="auto", words=False, workers=3)
    for given_out, (part, expected) in enumerate(zip(together, alone, strict=True)):
        assert part.ids.tolist() == expected.ids.tolist()
        assert len(taken) - given_out <= 3 * 2 + module.AHEAD + 2, "memory is bounded"
    assert 2 <= most <= 6


def test_slices_across_record_batches_are_the_whole_array(tmp_path, text_of, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 500)
    path = tmp_path / "text.txt"
    path.write_text(text_of(50), encoding="utf-8")
    store, _ = build(path, tmp_path / "stores")
    assert len(store._ids) > 3  # several chunks
    n = store.facts["tokens"]
    whole = store.ids(0, n)
    draw = np.random.default_rng(0)
    for start in draw.integers(0, n - 1, 200).tolist():
        length = int(draw.integers(1, min(400, n - start) + 1))
        assert (store.ids(start, length) == whole[start : start + length]).all()
    assert whole.base is None or len(store.ids(3, 4)) == 4


def test_token_counts_are_those_of_the_documents(tmp_path, text_of):
    path = tmp_path / "text.txt"
    path.write_text(text_of(30), encoding="utf-8")
    store, _ = build(path, tmp_path / "stores")
    held_out = np.array([0, 1, 2, 7, 9, 10, 29])
    by_hand = np.concatenate([store.ids(*store.document_span(d)) for d in range(30) if d not in held_out])
    expected = np.bincount(by_hand, minlength=len(TOKENIZER))
    assert (store.token_counts(len(TOKENIZER), without=held_out) == expected).all()


@pytest.mark.parametrize("size", [1, 7, 40, 1_000_000])
@pytest.mark.parametrize("words", [False, True])
def test_documents_longer_than_a_group_are_whole(tmp_path, text_of, monkeypatch, size, words):
    text = text_of(3, sentences=40) + "\n\u200b\n\n" + text_of(1, sentences=25) + "\nlast line"
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    whole, _ = build(path, tmp_path / "whole", words=words)
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", size)
    monkeypatch.setattr("minibert.corpus.decoding.BLOCK_BYTES", 64)
    cut, _ = build(path, tmp_path / "cut", words=words)
    assert {**cut.facts, "bytes": 0} == {**whole.facts, "bytes": 0}
    assert cut.facts["empty_documents"] == 1
    assert cut.layout.doc_first.tolist() == whole.layout.doc_first.tolist()
    assert cut.layout.sentence_start.tolist() == whole.layout.sentence_start.tolist()
    assert cut.hashes.tolist() == whole.hashes.tolist()
    assert cut.ids(0, cut.facts["tokens"]).tolist() == whole.ids(0, whole.facts["tokens"]).tolist()


def test_duplicate_documents_have_equal_hashes_and_others_not(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("ab c.\n\nd e.\n\nab c.\n", encoding="utf-8")
    store, _ = build(path, tmp_path / "stores")
    assert store.hashes[0] == store.hashes[2] != store.hashes[1]


def test_invisible_lines_and_documents_are_left_out_and_counted():
    found = tokenise(
        [["han\u200bd made so\u00adft", "\u200b", "\u2060\u200d", "next line"], ["\u200b"], ["a."]],
        TOKENIZER, goes_on=False, language="auto", words=False,
    )  # fmt: skip
    assert found.document_sentences.tolist() == [2, 0, 1]
    assert found.empty_lines == 3
    tokens = "".join(TOKENIZER.convert_ids_to_tokens(found.ids[: found.sentence_lengths[0]].tolist()))
    assert tokens.replace("##", "") == "handmadesoft"


def test_whole_words_are_marked_in_english_and_chinese(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abc d\n一二三\n", encoding="utf-8")
    store, _ = build(path, tmp_path / "stores", words=True)
    starts = store.starts_word(0, store.facts["tokens"]).astype(bool).tolist()
    assert starts[:4] == [True, False, False, True]
    assert starts[4]  # 一 begins a word, whatever the segmenter makes of the rest


def test_text_without_tokens_names_the_file(tmp_path):
    path = tmp_path / "void.txt"
    path.write_text("\u200b\n", encoding="utf-8")
    with pytest.raises(UserError, match="no text") as caught:
        build(path, tmp_path / "stores")
    assert "void.txt" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_cache_that_cannot_be_written_says_so(two_documents, tmp_path):
    (tmp_path / "stores").mkdir(mode=0o500)
    with pytest.raises(UserError, match="cannot be written"):
        build(two_documents, tmp_path / "stores")


def test_cache_that_is_a_file_says_so(two_documents, tmp_path):
    (tmp_path / "stores").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        build(two_documents, tmp_path / "stores")


def test_store_travels_to_a_worker_by_its_name(two_documents, tmp_path):
    store, _ = build(two_documents, tmp_path / "stores")
    sent = pickle.dumps(store)
    assert len(sent) < 1000
    assert words(pickle.loads(sent), 1) == ["g", "."]


def test_facts_are_plain_json(two_documents, tmp_path):
    store, _ = build(two_documents, tmp_path / "stores")
    assert json.loads((store.folder / "store.json").read_text())["characters"] == 14


def test_a_token_that_is_not_in_the_vocabulary_is_named(two_documents, tmp_path):
    store, _ = build(two_documents, tmp_path / "stores")
    largest = max(int(part.max()) for part in store._ids)
    with pytest.raises(UserError, match=f"is damaged: it holds the token {largest} of {largest}"):
        store.token_counts(largest, without=np.zeros(0, np.int64))


def test_a_store_whose_sentences_are_not_those_of_its_tokens_is_built_again(two_documents, tmp_path):
    store, _ = build(two_documents, tmp_path / "stores")
    arrow = store.folder / "tokens.arrow"
    data = arrow.read_bytes()
    lengths = np.concatenate(store._table.column("sentence_lengths").to_pylist()).astype("<i4")
    assert data.count(lengths.tobytes()) == 1
    arrow.write_bytes(data.replace(lengths.tobytes(), (lengths + 1).astype("<i4").tobytes()))
    assert whole_store(store.folder) is None
    again, there = build(two_documents, tmp_path / "stores")
    assert not there
    assert arrow.read_bytes() == data
    assert again.facts["records_without_text"] == 0
