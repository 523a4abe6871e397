"""Batches: the layout of an example, masks, the order of an epoch, and going on from a cursor."""

from itertools import islice

import numpy as np
import pytest
import torch

from minibert.corpus import batches as module
from minibert.corpus.batches import Collator, Cursor, ExampleStream, load_steps
from minibert.corpus.read import fingerprint
from minibert.corpus.store import open_store
from minibert.model.attention import RealTokens
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import train_vocabulary


@pytest.fixture
def made(tmp_path, text_of):
    text = text_of(60, sentences=12)
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    tokens = train_vocabulary(lambda: text.split("\n"), size=60, lowercase=True).tokens
    tokenizer = BertTokenizer.from_tokens(tokens, lowercase=True)
    store, _ = open_store([path], tokenizer, tmp_path / "stores", corpus=fingerprint([path]), words=True)
    return store, tokenizer


def stream_of(store, *, batch_size=8, seed=0, nsp=True, max_length=48):
    return ExampleStream(
        store, np.arange(len(store)), seed=seed, batch_size=batch_size, max_length=max_length, nsp=nsp, short_share=0.1
    )


def collator_of(store, tokenizer, **changes):
    settings = {"seed": 0, "mask_rate": 0.15, "words": False, "max_length": 48, **changes}
    return Collator(store, tokenizer, **settings)


def steps_of(made, cursor=None, **settings):
    store, tokenizer = made
    return load_steps(
        stream_of(store), collator_of(store, tokenizer), cursor or Cursor(), micro_batch_size=8, **settings
    )


def targets(batch):
    """(positions, labels) without what a batch is filled up with."""
    real = batch["labels"] != -100
    assert real.sum() == batch["counts"][0]
    return batch["masked_positions"][real], batch["labels"][real]


def content(step):
    return [{k: v.tolist() if torch.is_tensor(v) else v for k, v in b.items()} for b in step.micro_batches]


def test_example_is_laid_out_as_bert_wants_it(made):
    store, tokenizer = made
    rows, _ = next(stream_of(store).batches(Cursor()))
    batch = collator_of(store, tokenizer, mask_rate=0.15)[rows]
    ids = batch["input_ids"].clone()
    flat = ids.view(-1)
    positions, labels = targets(batch)
    flat[positions] = labels  # the original tokens back in their places
    for row, line, types in zip(rows.tolist(), ids.tolist(), batch["token_type_ids"].tolist(), strict=True):
        _, _, _, a_start, a, b_start, b, _ = row
        expected = [
            tokenizer.cls_token_id, *store.ids(a_start, a).tolist(), tokenizer.sep_token_id,
            *store.ids(b_start, b).tolist(), tokenizer.sep_token_id,
        ]  # fmt: skip
        assert line[: len(expected)] == expected
        assert set(line[len(expected) :]) <= {tokenizer.pad_token_id}
        assert types == [0] * (a + 2) + [1] * (b + 1) + [0] * (len(line) - a - b - 3)


def test_attention_mask_covers_the_padding_and_is_absent_without_any(made):
    store, tokenizer = made
    rows = stream_of(store).plan(0, np.arange(len(store)))
    batch = collator_of(store, tokenizer)[rows[:16]]
    lengths = rows[:16, 4] + rows[:16, 6] + 3
    assert batch["attention_mask"].sum(1).tolist() == lengths.tolist()
    assert batch["num_tokens"] == lengths.sum()
    alone = collator_of(store, tokenizer, max_length=int(lengths[0]))[rows[:1]]
    assert alone["attention_mask"] is None


def test_no_label_stands_on_special_tokens_or_padding_and_rates_are_right(made):
    store, tokenizer = made
    collator = collator_of(store, tokenizer, max_length=48)
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id}
    chosen = tokens = masked = kept = 0
    for rows, _ in islice(
        stream_of(store, batch_size=64).batches(Cursor()), 60
    ):  # 3,840 examples, about 23,000 targets
        batch = collator[rows]
        positions, labels = targets(batch)
        assert not special & set(labels.tolist())
        shown = batch["input_ids"].view(-1)[positions]
        chosen += len(labels)
        tokens += batch["num_tokens"]
        masked += int((shown == tokenizer.mask_token_id).sum())
        kept += int((shown == labels).sum())
    assert chosen / tokens == pytest.approx(0.15, abs=0.005)
    assert masked / chosen == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / chosen) ** 0.5)
    # unchanged, or drawn at random and by chance itself
    assert kept / chosen == pytest.approx(0.1 + 0.1 / len(tokenizer.ordinary_ids), abs=4 * (0.1 * 0.9 / chosen) ** 0.5)


def test_whole_words_are_hidden_or_shown_as_one(made):
    store, tokenizer = made
    collator = collator_of(store, tokenizer, words=True, mask_rate=0.3)
    seen = 0
    for rows, _ in islice(stream_of(store).batches(Cursor()), 40):
        batch = collator[rows]
        T = batch["input_ids"].shape[1]
        hidden = torch.zeros(len(rows) * T, dtype=torch.bool)
        hidden[targets(batch)[0]] = True
        for row, flags in zip(rows.tolist(), hidden.view(-1, T).tolist(), strict=True):
            _, _, _, a_start, a, b_start, b, _ = row
            for start, length, offset in ((a_start, a, 1), (b_start, b, a + 2)):
                starts = store.starts_word(start, length).astype(bool).tolist()
                for i in range(1, length):
                    if not starts[i]:
                        assert flags[offset + i] == flags[offset + i - 1]
                        seen += flags[offset + i]
    assert seen > 20


def test_every_document_is_used_in_every_pass_and_batches_are_full(made):
    store, _ = made
    stream = stream_of(store)
    n = stream.count(0)
    rows = np.concatenate([b for b, _ in islice(stream.batches(Cursor()), 2 * n // 8)])
    for epoch in (0, 1):
        assert set(rows[rows[:, 0] == epoch][:, 1].tolist()) >= set(range(len(store))) - set(rows[-8:, 1].tolist())
    assert len(rows[rows[:, 0] == 0]) == n  # none is lost between passes, none comes twice
    assert len({tuple(r) for r in rows[:, :3].tolist()}) == len(rows)


def test_passes_differ_in_order_pairs_and_masks(made):
    store, tokenizer = made
    stream = stream_of(store)
    first, second = (stream.plan(epoch, np.arange(len(store))) for epoch in (0, 1))
    assert first[:, 1:].tolist() != second[:, 1:].tolist()
    same = first[:4].copy()
    same[:, 0] = 1
    collator = collator_of(store, tokenizer)
    a, b = collator[first[:4]], collator[same]
    assert targets(a)[0].tolist() != targets(b)[0].tolist()


def test_an_example_has_the_same_masks_in_any_batch(made):
    store, tokenizer = made
    rows = stream_of(store).plan(0, np.arange(len(store)))[:12]
    collator = collator_of(store, tokenizer)
    alone = [collator[row[None]] for row in rows]
    together = collator[rows]
    T = together["input_ids"].shape[1]
    for i, one in enumerate(alone):
        positions, _ = targets(together)
        assert (positions[positions // T == i] % T).tolist() == targets(one)[0].tolist()
        length = one["num_tokens"]
        assert together["input_ids"][i, :length].tolist() == one["input_ids"][0, :length].tolist()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_same_batches_for_any_number_of_workers(made, workers):
    expected = [content(step) for step in islice(steps_of(made), 8)]
    steps = steps_of(made, num_workers=workers)
    found = [content(step) for step in islice(steps, 8)]
    assert found == expected


def examples(step):
    """The examples of a step as (tokens with masks, targets), in order, without padding."""
    found = []
    for batch in step.micro_batches:
        T = batch["input_ids"].shape[1]
        positions, labels = targets(batch)
        for i, line in enumerate(batch["input_ids"].tolist()):
            here = positions // T == i
            tokens = line[: next((t for t in range(T, 0, -1) if line[t - 1] != 0), 0)]
            found.append((tokens, (positions[here] % T).tolist(), labels[here].tolist()))
    return found


@pytest.mark.parametrize(("processes", "micro"), [(2, 4), (2, 2), (4, 2), (4, 1), (8, 1), (1, 2)])
def test_processes_and_micro_batches_share_out_the_same_examples(made, processes, micro):
    store, tokenizer = made
    whole = [examples(step) for step in islice(steps_of(made), 3)]
    parts = [
        list(
            islice(
                load_steps(
                    stream_of(store), collator_of(store, tokenizer), Cursor(), micro_batch_size=micro, rank=rank,
                    processes=processes,
                ), 3,
            )
        )
        for rank in range(processes)
    ]  # fmt: skip
    for i, expected in enumerate(whole):
        found = [examples(part[i]) for part in parts]
        assert {len(f) for f in found} == {8 // processes}
        real = sum(batch["num_tokens"] for part in parts for batch in part[i].micro_batches)
        assert {part[i].num_tokens for part in parts} == {real}
        assert sorted(e for f in found for e in f) == sorted(expected)


@pytest.mark.parametrize("done", [1, 5, 40, 75])
def test_going_on_from_a_cursor_gives_what_would_have_come(made, done, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_TOKENS", 1_500)  # several blocks in a pass
    through = list(islice(steps_of(made), done + 3))
    saved = Cursor.from_state(through[done - 1].cursor.state())  # as a checkpoint keeps it: plain values
    after = list(islice(steps_of(made, saved), 3))
    assert [content(s) for s in after] == [content(s) for s in through[done:]]
    assert through[-1].cursor.epoch >= (1 if done == 75 else 0)


def test_blocks_change_nothing_but_the_order(made, monkeypatch):
    store, _ = made
    stream = stream_of(store)
    whole = {tuple(r) for p in stream.blocks(0) for r in stream.plan(0, p).tolist()}
    monkeypatch.setattr(module, "BLOCK_TOKENS", 1_000)
    assert len(stream.blocks(0)) > 3
    assert {tuple(r) for p in stream.blocks(0) for r in stream.plan(0, p).tolist()} == whole


def test_static_batches_have_one_shape_and_the_same_targets(made):
    store, tokenizer = made
    static, usual = collator_of(store, tokenizer, static=True), collator_of(store, tokenizer)
    shapes = set()
    for rows, _ in islice(stream_of(store).batches(Cursor()), 20):
        a, b = static[rows], usual[rows]
        shapes.add((tuple(a["input_ids"].shape), len(a["labels"])))
        assert targets(a)[1].tolist() == targets(b)[1].tolist()
        assert len(b["labels"]) % 32 == 0
        assert a["counts"].tolist() == b["counts"].tolist()
    assert shapes == {((8, 48), 8 * 8)}  # ceil(.15 * 48) = 8 an example


def test_batches_of_like_length_hold_little_padding(made):
    store, _ = made
    lengths = [r[:, 4] + r[:, 6] + 3 for r, _ in islice(stream_of(store).batches(Cursor()), 40)]
    padding = 1 - sum(x.sum() for x in lengths) / sum(len(x) * x.max() for x in lengths)
    assert padding < 0.08


def test_without_pairs_there_is_one_segment_and_no_label(made):
    store, tokenizer = made
    rows, _ = next(stream_of(store, nsp=False).batches(Cursor()))
    batch = collator_of(store, tokenizer)[rows]
    assert (batch["token_type_ids"] == 0).all()
    assert (batch["next_sentence_label"] == -100).all()
    assert batch["counts"][1] == 0
    assert (batch["input_ids"] == tokenizer.sep_token_id).sum(1).tolist() == [1] * 8


def test_a_corpus_smaller_than_a_batch_comes_round_again(made):
    store, _ = made
    stream = ExampleStream(store, np.array([0, 1]), seed=0, batch_size=64, max_length=48, nsp=True, short_share=0.1)
    rows, cursor = next(stream.batches(Cursor()))
    assert len(rows) == 64
    assert cursor.epoch > 1
    assert set(rows[:, 0].tolist()) == set(range(cursor.epoch + 1))


def test_unpadded_batches_have_the_same_tokens_and_say_which_are_real(made):
    plain, real = (islice(steps_of(made, unpadded=flag), 12) for flag in (False, True))
    padded = 0
    for a, b in zip(plain, real, strict=True):
        (a,), (b,) = a.micro_batches, b.micro_batches
        assert torch.equal(a["input_ids"], b["input_ids"])
        if a["attention_mask"] is None:
            assert b["attention_mask"] is None
            continue
        padded += 1
        assert isinstance(b["attention_mask"], RealTokens)
        assert torch.equal(b["attention_mask"].mask(*a["input_ids"].shape), a["attention_mask"].bool())
    assert padded
