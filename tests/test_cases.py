"""The shared catalogue of real-world failures, on its own files: what concerns text, vocabulary and pre-training.

Right answers come from each case's expected.txt, or are worked out from its files here. The same behaviours are tested
elsewhere with small inputs of our own; these tests run only where the folder of cases lies beside the checkout.
Fine-tuning's cases, and the sides of A01, A02, A05, A10, B01, D01 and D07 that are its own, are in
test_cases_finetune.py. Left to other tests: D03's two processes (test_processes.py), D07's crash in the middle of
saving (training/test_state.py).
"""

import csv
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import nn

import minibert
from minibert.config import PretrainConfig
from minibert.corpus.batches import Collator, Cursor, ExampleStream, StepBatches, load_steps
from minibert.corpus.pairs import plan_documents
from minibert.corpus.read import fingerprint, read_documents
from minibert.corpus.sentences import split_sentences
from minibert.corpus.store import open_store
from minibert.errors import UserError
from minibert.pretrain import pretrain
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minibert.tokenization.vocabulary import train_vocabulary
from minibert.training.loop import train_steps
from minibert.training.optim import StepSchedule
from minibert.training.pretraining import loss_sums
from minibert.training.state import newest_complete

SMALL = {
    "layers": 1, "hidden_size": 16, "heads": 2, "vocab_size": 100, "max_length": 32, "max_positions": 128, "steps": 1,
    "batch_size": 4, "micro_batch_size": 4, "precision": "fp32", "log_every": 1, "eval_every": 0, "save_every": 0,
    "workers": 1,
}  # fmt: skip
MODEL = "model.safetensors"


def documents(*files, **settings):
    return list(read_documents(files, **settings))


def sentences(*files, **settings):
    """The sentences of each document."""
    return [list(chain.from_iterable(map(split_sentences, lines))) for lines in documents(*files, **settings)]


def sizes(found):
    """As expected.txt writes them: 2,2."""
    return ",".join(str(len(document)) for document in found)


def learn(file, size=2000, lowercase=True, **settings):
    return train_vocabulary(
        lambda: chain.from_iterable(read_documents([file], **settings)), size=size, lowercase=lowercase
    )


def tokenizer_of(file, **settings):
    return BertTokenizer.from_tokens(learn(file, **settings).tokens, lowercase=settings.get("lowercase", True))


def store_of(file, tokenizer, folder, **settings):
    store, _ = open_store([file], tokenizer, folder, corpus=fingerprint([file]), **settings)
    return store


def stream_of(store, *, max_length, batch_size=4, nsp=True):
    return ExampleStream(
        store, np.arange(len(store)), seed=0, batch_size=batch_size, max_length=max_length, nsp=nsp, short_share=0.1
    )


def collator_of(store, tokenizer, *, max_length):
    return Collator(store, tokenizer, seed=0, mask_rate=0.15, words=False, max_length=max_length)


def originals(store, tokenizer, row):
    """The ids of one planned example before anything is hidden, put together anew."""
    _, _, _, a_start, a, b_start, b, _ = row
    cls, sep = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    ids = cls + store.ids(a_start, a).tolist() + sep
    return ids + store.ids(b_start, b).tolist() + sep if b else ids


def targets(batch):
    """(positions in the flattened batch, original ids), without what a batch is filled up with."""
    real = batch["labels"] != -100
    return batch["masked_positions"][real].tolist(), batch["labels"][real].tolist()


def train(file, out, *, resume=False, dry_run=False, **changes):
    settings = PretrainConfig(**{**SMALL, **changes})
    # as the command line names it: a run that is resumed there finds its text again
    return pretrain([file], out, settings, corpus=[str(file)], resume=resume, dry_run=dry_run)


def log(run):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if "loss" in line]


def vocabulary_of(run):
    return (run / "vocab.txt").read_text("utf-8").removesuffix("\n").split("\n")


def command(*args):
    return [sys.executable, *map(str, args)]


def flags(**changes):
    settings = {name: value for name, value in {**SMALL, **changes}.items() if value is not None}
    return [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", value)]


def say(done):
    """The exit code in the words of expected.txt."""
    return "0" if done.returncode == 0 else "nonzero"


def run(*args, **environment):
    return subprocess.run(
        command(*args), capture_output=True, encoding="utf-8", timeout=120, env={**os.environ, **environment}
    )


def one_message(done):
    """A user's mistake: exit code 2, one message, no traceback. Returns the message."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (message,) = re.findall("minibert: error: (.*)", done.stderr)
    return message


def test_a01_byte_order_mark_is_no_text(case, tmp_path):
    folder, facts = case("A01")
    marked, plain = folder / "corpus_bom.txt", tmp_path / "plain.txt"
    plain.write_bytes(marked.read_bytes()[3:])
    found = sentences(marked)
    assert found == sentences(plain)
    assert len(found) == int(facts["corpus_docs"])
    assert sizes(found) == facts["corpus_sentences"]
    assert found[0][0].startswith("\u4eca")
    tokens = learn(marked).tokens
    assert tokens == learn(plain).tokens
    assert facts["vocab_contains_U+FEFF"] == ("yes" if "\ufeff" in "".join(tokens) else "no")
    records = documents(folder / "cls_bom.jsonl")
    assert len(records) == int(facts["jsonl_rows"])
    assert records == [["ok film"], ["bad film"]]


def test_a01_utf16_is_refused_by_name_and_read_when_said(case, tmp_path):
    folder, facts = case("A01")
    wide = folder / "corpus_utf16le.txt"
    done = run("-m", "minibert", "vocab", wide, "--out", tmp_path / "v")
    assert say(done) == facts["utf16_exit"]
    assert wide.name in one_message(done)
    assert not (tmp_path / "v").exists()
    assert documents(wide, encoding="utf-16") == documents(folder / "corpus_bom.txt")[:1]


@pytest.mark.parametrize("name", ["corpus_crlf.txt", "corpus_cr.txt"])
def test_a02_every_kind_of_line_end_is_one_and_leaves_no_trace(case, tmp_path, name):
    folder, facts = case("A02")
    found = sentences(folder / name)
    assert len(found) == int(facts["docs"])
    assert sizes(found) == facts["sentences"]
    newlines = tmp_path / "newlines.txt"
    newlines.write_bytes((folder / name).read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    assert found == sentences(newlines)
    train(folder / name, tmp_path / "run")
    assert vocabulary_of(tmp_path / "run") == learn(newlines, size=SMALL["vocab_size"]).tokens
    texts = [path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != MODEL]
    assert len(texts) > 5
    assert sum(text.count(b"\r") + text.count(b"\\r") for text in texts) == int(facts["carriage_returns_in_outputs"])


def test_a05_other_encoding_stops_with_its_place_or_is_read_when_named(case, tmp_path):
    folder, facts = case("A05")
    chinese, twin = folder / "corpus_gb18030.txt", folder / "corpus_utf8.txt"
    done = run("-m", "minibert", "vocab", chinese, "--out", tmp_path / "v")
    assert say(done) == facts["default_exit"]
    message = one_message(done)
    assert facts["message_has"] in message
    assert f"{chinese.name}:1: " in message
    assert "offset 0 " in message
    assert "--encoding" in done.stderr
    with pytest.raises(UserError, match=facts["message_has"]):
        train(chinese, tmp_path / "run")
    assert not (tmp_path / "run").exists()

    found = sentences(chinese, encoding="gb18030")
    assert found == sentences(twin)
    assert len(found) == int(facts["with_encoding_docs"])
    assert sizes(found) == facts["with_encoding_sentences"]
    tokens = learn(chinese, encoding="gb18030").tokens
    assert facts["vocab_equal_to_utf8_twin"] == ("yes" if tokens == learn(twin).tokens else "no")
    tokenizer = BertTokenizer.from_tokens(tokens, lowercase=True)
    a = store_of(chinese, tokenizer, tmp_path / "a", encoding="gb18030")
    b = store_of(twin, tokenizer, tmp_path / "b")
    plans = [stream_of(store, max_length=16).plan(0, np.arange(2)).tolist() for store in (a, b)]
    assert plans[0] == plans[1]
    assert a.ids(0, a.facts["tokens"]).tolist() == b.ids(0, b.facts["tokens"]).tolist()


def test_a05_the_locale_decides_nothing(case, tmp_path):
    folder, _ = case("A05")
    done = run(
        "-X", "warn_default_encoding", "-W", "always::EncodingWarning", "-m", "minibert",
        "pretrain", folder / "corpus_utf8.txt", "--out", tmp_path / "run", *flags(),
        LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert vocabulary_of(tmp_path / "run") == learn(folder / "corpus_utf8.txt", size=SMALL["vocab_size"]).tokens
    warned = [line for line in done.stderr.split("\n") if "EncodingWarning" in line]
    ours = str(Path(minibert.__file__).parent)
    assert not [line for line in warned if line.startswith(ours)]  # other packages do not hold to it


def test_a06_invisible_characters_part_no_word_and_no_document(case, tmp_path):
    from transformers import AutoTokenizer

    folder, facts = case("A06")
    corpus = folder / "corpus.txt"
    train(corpus, tmp_path / "run")
    tokens = vocabulary_of(tmp_path / "run")
    forbidden = [chr(int(name.removeprefix("U+"), 16)) for name in facts["forbidden_in_vocab"].split()]
    assert len(forbidden) == 5
    assert not [token for token in tokens if any(character in token for character in forbidden)]
    ours, theirs = BertTokenizer.from_pretrained(tmp_path / "run"), AutoTokenizer.from_pretrained(tmp_path / "run")
    lines = corpus.read_bytes().decode().split("\n")
    assert ours.decode(ours.encode(lines)[0]) == facts["tokens_line1"].split(" (")[0]
    for text, ids in zip(lines, ours.encode(lines), strict=True):
        assert ours.convert_ids_to_tokens(ids) == theirs.tokenize(text)
    store = store_of(corpus, ours, tmp_path / "stores")
    assert len(store) == int(facts["docs"])
    assert ",".join(map(str, np.diff(store.layout.doc_first))) == facts["sentences"]


@pytest.mark.parametrize("name", ["empty.txt", "blank.txt"])
def test_a10_no_text_is_one_message_that_names_the_file(case, tmp_path, name):
    folder, facts = case("A10")
    began = time.monotonic()
    done = run("-m", "minibert", "pretrain", folder / name, "--out", tmp_path / "run", *flags())
    assert time.monotonic() - began < 30
    assert say(done) == facts[f"{name}_exit"]
    message = one_message(done)
    assert name in message
    assert "no text" in message
    assert not list(tmp_path.rglob(MODEL))


def test_a10_six_characters_are_trained_on(case, tmp_path):
    folder, facts = case("A10")
    out = tmp_path / "run"
    large = flags(steps=None, epochs=1, max_length=128, batch_size=32, micro_batch_size=32)  # the corpus is smaller
    done = run("-m", "minibert", "pretrain", folder / "tiny.txt", "--out", out, "--no-nsp", *large)
    assert say(done) == facts["tiny.txt_exit"], done.stderr
    losses = [line["loss"] for line in log(out)]
    assert len(losses) >= int(facts["tiny_steps_min"])
    assert np.isfinite(losses).all()
    assert 0 < losses[0] < 10


def test_a11_marks_are_dropped_or_kept_as_set_and_the_setting_is_stored(case, tmp_path):
    from transformers import AutoTokenizer

    folder, facts = case("A11")
    table = [row.split("\t") for row in (folder / "table.tsv").read_bytes().decode().removesuffix("\n").split("\n")]
    assert len(table) == int(facts["rows"])
    texts = [row[0] for row in table]
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(texts), encoding="utf-8")
    for column, strip_accents in ((1, None), (2, False)):
        out = tmp_path / f"run{column}"
        train(corpus, out, nsp=False, strip_accents=strip_accents, vocab_size=300)
        stored = json.loads((out / "tokenizer_config.json").read_text("utf-8"))
        names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
        assert [stored[name] for name in names] == [True, strip_accents, True]
        ours, theirs = BertTokenizer.from_pretrained(out), AutoTokenizer.from_pretrained(out)
        ids = ours.encode(texts)
        # every character is in the vocabulary, so that pieces put together are the text as it was normalised
        assert [ours.decode(row) for row in ids] == [row[column] for row in table]
        same = [ours.convert_ids_to_tokens(row) for row in ids] == [theirs.tokenize(text) for text in texts]
        assert facts["hf_equals_minibert_after_reload"] == ("yes" if same else "no")


def test_a13_blanks_between_chinese_words_change_nothing(case):
    folder, facts = case("A13")
    files = [folder / "spaced.txt", folder / "plain.txt"]
    spaced, plain = (tokenizer_of(file) for file in files)
    assert facts["vocab_sets_equal"] == ("yes" if set(spaced.tokens) == set(plain.tokens) else "no")
    for tokenizer in (spaced, plain):
        pieces = [token for token in tokenizer.tokens if token.startswith("##")]
        chinese = [piece for piece in pieces if unicodedata.name(piece[2], "").startswith("CJK")]
        assert len(chinese) == int(facts["han_continuation_pieces"])
        lines = [list(chain.from_iterable(documents(file))) for file in files]
        assert lines[0] != lines[1]
        ids = [tokenizer.encode(each) for each in lines]
        assert ids[0] == ids[1]
        assert " ".join(tokenizer.convert_ids_to_tokens(ids[0][0])) == facts["tokens_line1"]


def test_b01_names_of_special_tokens_in_text_are_text(case, tmp_path):
    folder, facts = case("B01")
    with (folder / "cls.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    tokenizer = BertTokenizer.from_pretrained(folder / "vocab.txt")
    rows = [tokenizer([text]) for text in texts]
    written = [" ".join(tokenizer.convert_ids_to_tokens(row["input_ids"][0].tolist())) for row in rows]
    assert written[:2] == [facts["row1_tokens"], facts["row2_tokens"]]
    for row in rows:
        ids = row["input_ids"][0].tolist()
        assert ids.count(tokenizer.sep_token_id) == int(facts["sep_count_per_row"])
        assert ids.count(tokenizer.cls_token_id) == 1
        assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        assert ids.count(tokenizer.mask_token_id) == int(facts["mask_ids_in_inputs"])
        assert tokenizer.pad_token_id not in ids
        assert row["attention_mask"].sum() == len(ids)

    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n\n".join(texts), encoding="utf-8")
    store = store_of(corpus, tokenizer, tmp_path / "stores")
    special = {tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id}
    assert not special & set(store.ids(0, store.facts["tokens"]).tolist())
    stream, collator = stream_of(store, max_length=16), collator_of(store, tokenizer, max_length=16)
    labels = [targets(collator[stream.plan(epoch, np.arange(3))])[1] for epoch in range(50)]
    assert set(chain.from_iterable(labels)) >= set(tokenizer.convert_tokens_to_ids(["[", "]", "sep", "mask", "cls"]))
    assert not special & set(chain.from_iterable(labels))


def test_b02_vocabulary_holds_every_character_or_says_what_it_lost(case, tmp_path, capsys):
    folder, facts = case("B02")
    corpus = folder / "corpus.txt"
    count = Counter("".join(chain.from_iterable(documents(corpus))))
    assert len(count) == int(facts["distinct_chars"])
    roomy = learn(corpus, size=3000)
    assert len(count.keys() - set(roomy.tokens)) == int(facts["vocab3000_missing_chars"])
    assert (roomy.dropped_characters, roomy.unknown_rate) == (0, 0.0)
    store = store_of(corpus, BertTokenizer.from_tokens(roomy.tokens, lowercase=True), tmp_path / "stores")
    assert store.facts["unknown_tokens"] == 0
    assert store.facts["tokens"] == count.total()

    train(corpus, tmp_path / "run", vocab_size=200)
    tokens = vocabulary_of(tmp_path / "run")
    assert len(tokens) == int(facts["vocab200_lines"].split()[0])
    assert json.loads((tmp_path / "run/config.json").read_text("utf-8"))["vocab_size"] == len(tokens)
    kept = set(tokens) - set(SPECIAL_TOKENS)
    lost = count.keys() - kept
    assert kept < count.keys()
    assert min(count[character] for character in kept) >= max(count[character] for character in lost)
    said = capsys.readouterr().err
    assert f"{len(lost):,} rare characters" in said
    assert f"{sum(count[character] for character in lost) / count.total():.2%}" in said


def test_b05_half_known_word_is_one_unknown_and_a_rare_character_only_itself(case):
    folder, facts = case("B05")
    tokenizer = BertTokenizer.from_pretrained(folder / "vocab.txt")
    texts = (folder / "text.txt").read_text("utf-8").splitlines()
    written = [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in tokenizer.encode(texts)]
    assert written == [facts["line1"], facts["line2"]]


def test_b08_vocabulary_has_the_same_bytes_in_every_run(case, tmp_path):
    folder, facts = case("B08")
    hashes = set()
    for i in range(1, 5):
        done = run(
            "-m", "minibert", "vocab", folder / "corpus.txt", "--out", tmp_path / f"v{i}", "--vocab-size", 60,
            PYTHONHASHSEED=str(i), MINIBERT_CACHE=str(tmp_path / f"cache{i}"),  # one that is found is not trained
            TOKENIZERS_PARALLELISM="true" if i > 2 else "false", RAYON_NUM_THREADS=str(1 + i // 3),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        hashes.add(hashlib.sha256((tmp_path / f"v{i}/vocab.txt").read_bytes()).hexdigest())
    assert len(hashes) == int(facts["distinct_hashes"])
    assert {"low", "wide", "newer"} <= set(vocabulary_of(tmp_path / "v1"))  # merges were learnt


def test_c01_only_text_is_hidden_at_the_rates_of_the_paper(case, tmp_path):
    folder, facts = case("C01")
    corpus = folder / "corpus.txt"
    tokenizer = tokenizer_of(corpus)
    store = store_of(corpus, tokenizer, tmp_path / "stores")
    stream, collator = stream_of(store, max_length=128), collator_of(store, tokenizer, max_length=128)
    special = {tokenizer.convert_tokens_to_ids([token])[0] for token in SPECIAL_TOKENS}
    seen = maskable = chosen = masked = unchanged = outside = padding = epoch = 0
    while seen < 10_000:
        rows = stream.plan(epoch, np.arange(len(store)))  # lengths as they come: much padding
        batch = collator[rows]
        ids = batch["input_ids"].tolist()
        T = len(ids[0])
        positions, labels = targets(batch)
        hidden = [{} for _ in ids]
        for position, label in zip(positions, labels, strict=True):
            hidden[position // T][position % T] = label
        for row, line, answers in zip(rows.tolist(), ids, hidden, strict=True):
            original = originals(store, tokenizer, row)
            outside += sum(at >= len(original) or original[at] in special for at in answers)
            assert all(original[at] == label for at, label in answers.items())
            assert line[len(original) :] == [tokenizer.pad_token_id] * (T - len(original))
            assert all(line[i] == original[i] for i in range(len(original)) if i not in answers)
            assert not (special - {tokenizer.mask_token_id}) & {line[i] for i in answers}
            maskable += len(original) - 3
            masked += sum(line[i] == tokenizer.mask_token_id for i in answers)
            unchanged += sum(line[i] == original[i] for i in answers)
            chosen += len(answers)
            padding += T - len(original)
        seen, epoch = seen + len(rows), epoch + 1
    assert padding > maskable / 10
    assert outside == int(facts["labels_on_special_or_pad"])
    # n targets about 160,000: sigma of the shares is below .001
    rate, slack = map(float, facts["mask_rate"].split(" +- "))
    assert chosen / maskable == pytest.approx(rate, abs=slack)
    slack = float(facts["split_80_10_10"].removeprefix("+-"))
    shares = [masked / chosen, unchanged / chosen, (chosen - masked - unchanged) / chosen]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=slack)


@pytest.mark.parametrize("nsp", [True, False])
def test_c02_examples_of_a_few_characters_have_a_target_and_a_finite_loss(case, tmp_path, nsp):
    folder, facts = case("C02")
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes((folder / "corpus.txt").read_bytes() + "!\n\u2603\n".encode())  # such lines too
    tokenizer = tokenizer_of(folder / "corpus.txt")  # it does not know these two
    store = store_of(corpus, tokenizer, tmp_path / "stores")
    assert store.facts["unknown_tokens"] == 2
    stream, collator = stream_of(store, max_length=8, nsp=nsp), collator_of(store, tokenizer, max_length=8)
    rows = np.concatenate([stream.plan(epoch, np.arange(2)) for epoch in range(100)])
    assert min(len(originals(store, tokenizer, row)) for row in rows) == (5 if nsp else 3)  # one token a segment
    assert min(len(targets(collator[row[None]])[0]) for row in rows) >= int(facts["min_labels_per_maskable_sequence"])

    out = tmp_path / "run"
    train(corpus, out, steps=200, batch_size=1, micro_batch_size=1, max_length=8, nsp=nsp)
    losses = [[line["loss"], line["mlm_loss"], line["nsp_loss"], line["grad_norm"]] for line in log(out)]
    assert len(losses) == 200
    assert sum(not np.isfinite(step).all() for step in np.array(losses, float)) == int(facts["nan_steps"])
    assert all(torch.isfinite(tensor).all() for tensor in load_file(out / MODEL).values())
    # a mean over targets begins near chance; over all tokens it would be a third of that or less
    assert losses[0][1] == pytest.approx(np.log(len(vocabulary_of(out))), abs=0.3)

    model, _ = minibert.load(out)
    nothing = collator[rows[:1]]
    nothing["labels"] = torch.full_like(nothing["labels"], -100)
    nothing["next_sentence_label"] = torch.full_like(nothing["next_sentence_label"], -100)
    sums = loss_sums(model, nothing)
    assert sums.tolist() == [0, 0]
    sums.sum().backward()
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def places(found, within):
    """Where a run of ids lies within another."""
    n = len(found)
    return [i for i in range(len(within) - n + 1) if within[i : i + n] == found]


@pytest.mark.parametrize("max_length", [12, 32])
def test_c05_random_second_part_is_from_another_document(case, tmp_path, max_length):
    folder, facts = case("C05")
    corpus = folder / "two_docs.txt"
    tokenizer = tokenizer_of(corpus)
    store = store_of(corpus, tokenizer, tmp_path / "stores")
    texts = corpus.read_text("utf-8").split("\n\n")
    whole = [list(chain.from_iterable(tokenizer.encode(text.split("\n")))) for text in texts]
    labels, same_document, true_next = [], 0, 0
    for epoch in range(5):
        plan = plan_documents(
            store.layout, np.arange(2), np.arange(2), seed=0, epoch=epoch, max_length=max_length, nsp=True
        )
        for row in plan.tolist():
            document, _, a_start, a_length, b_start, b_length, is_random = row
            a, b = store.ids(a_start, a_length).tolist(), store.ids(b_start, b_length).tolist()
            assert places(a, whole[document])
            of_a, of_b = ({d for d, ids in enumerate(whole) if places(part, ids)} for part in (a, b))
            assert (len(of_a), len(of_b)) == (1, 1)  # the two texts have no word in common
            labels.append(is_random)
            if is_random:
                same_document += of_a == of_b
                ends = [i + len(a) for i in places(a, whole[document])]
                true_next += bool(set(ends) & set(places(b, whole[document])))
            else:
                assert of_a == of_b == {document}
    assert set(labels) == {0, 1}
    assert same_document == int(facts["notnext_same_document"])
    assert true_next == int(facts["notnext_but_true_next"])


def test_c05_one_document_ends_soon_and_says_why(case, tmp_path):
    folder, facts = case("C05")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"at least 2 documents.* 1\b") as caught:
        train(folder / "one_doc.txt", tmp_path / "run")
    assert time.monotonic() - began < float(facts["one_doc_max_seconds"])
    assert "--no-nsp" in str(caught.value)
    assert not list(tmp_path.rglob(MODEL))
    train(folder / "one_doc.txt", tmp_path / "run", nsp=False)
    assert log(tmp_path / "run")[0]["nsp_loss"] == 0


def test_c07_runs_of_blank_lines_are_one_end_of_a_document(case, tmp_path):
    folder, facts = case("C07")
    found = documents(folder / "blanks.txt")
    assert len(found) == int(facts["blanks_docs"])
    assert found == [["a one", "a two"], ["b one", "b two"]]
    train(folder / "blanks.txt", tmp_path / "run")
    assert len(log(tmp_path / "run")) == 1


def test_c07_pairs_that_cannot_follow_each_other_are_warned_of(case, tmp_path):
    folder, facts = case("C07")
    found = train(folder / "single_sentence_docs.txt", tmp_path / "run", dry_run=True)
    warned = [text for text in found["warnings"] if "IsNext" in text and re.search(r"\b8 of 8 documents\b", text)]
    assert facts["single_sentence_warning_or_exit"] == ("yes" if warned else "no")
    assert not found["is_next_share"]


def test_c07_half_of_the_pairs_of_usual_text_follow_each_other(case, corpus, tmp_path):
    _, facts = case("C07")
    tokenizer = tokenizer_of(corpus)
    stream = stream_of(store_of(corpus, tokenizer, tmp_path / "stores"), max_length=48)
    labels = np.concatenate([stream.plan(epoch, np.arange(40))[:, -1] for epoch in range(40)])
    assert len(labels) > 2000  # sigma of the share is .011 at most
    share, slack = map(float, facts["isnext_share_normal"].split(" +- "))
    assert (labels == 0).mean() == pytest.approx(share, abs=slack)


def stop_at(step, finished, out):
    """A copy of a run as kill -9 would have left it behind a step's checkpoint."""
    shutil.copytree(finished, out)
    for name in ("metrics.json", "config.json", MODEL, "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (out / name).unlink()
    for path in (out / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    lines = (out / "log.jsonl").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["step"] <= step + 1]  # a step that was logged and not saved
    (out / "log.jsonl").write_text("".join(kept) + '{"step": 1', encoding="utf-8")


def test_d01_resumed_run_is_the_same_run(case, tmp_path):
    folder, facts = case("D01")
    settings = {"steps": 20, "micro_batch_size": 2, "dropout": 0.1, "save_every": 1, "keep": 20, "max_length": 32}
    whole = train(folder / "corpus.txt", tmp_path / "whole", **settings)
    steps = log(tmp_path / "whole")
    epochs = [line["epoch"] for line in steps]
    new_epoch = epochs.index(1)  # as many steps are done in the first pass
    assert 1 < new_epoch < 19
    assert epochs[9] == epochs[10]  # 10 is in mid-epoch
    keys = ("step", "epoch", "loss", "mlm_loss", "nsp_loss", "lr", "grad_norm", "tokens")
    weights = load_file(tmp_path / "whole" / MODEL)
    for at in (10, new_epoch, new_epoch + 1):
        out = tmp_path / f"stopped-{at}"
        stop_at(at, tmp_path / "whole", out)
        assert newest_complete(out / "checkpoints")[0].name == f"step-{at:06d}"
        random.seed(at)  # no global generator has a say
        np.random.seed(at)
        torch.manual_seed(at)
        assert train(folder / "corpus.txt", out, resume=True, **settings) == whole
        resumed = log(out)
        same = [[line[key] for key in keys] for line in resumed] == [[line[key] for key in keys] for line in steps]
        assert facts["loss_and_lr_steps_11_20_identical"] == ("yes" if same else "no")
        found = load_file(out / MODEL)
        assert found.keys() == weights.keys()
        assert max((found[k] - weights[k]).abs().max() for k in weights) == float(facts["max_abs_weight_diff"])


class Factor(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.w * x


def update(model, micro_batches, sums):
    """One step of plain descent with rate 1: the step, and the gradient as the weights show it."""
    before = torch.cat([p.detach().flatten().double() for p in model.parameters()])
    optimizer = torch.optim.SGD([{"params": list(model.parameters()), "peak_lr": 1.0}], lr=1.0)
    (step,) = train_steps(
        Accelerator(cpu=True), model, [optimizer], repeat(StepBatches(micro_batches, Cursor(), 8)), StepSchedule(1),
        sums, first_step=0, warmup=0.0, clip=0.0, seed=0,
    )  # fmt: skip
    return step, before - torch.cat([p.detach().flatten().double() for p in model.parameters()])


def test_d03_loss_is_one_mean_over_all_micro_batches(case):
    folder, facts = case("D03")
    given = json.loads((folder / "microcase.json").read_text("utf-8"))
    micro_batches = [
        {"sum": torch.tensor([total, 0.0]), "counts": torch.tensor([float(count), 0.0]), "num_tokens": 4}
        for total, count in zip(given["loss_sums"], given["label_counts"], strict=True)
    ]
    step, gradient = update(Factor(), micro_batches, lambda model, batch: model(batch["sum"]))
    assert step.losses[0] == float(facts["micro_loss"]) == given["right"]
    assert gradient.item() == pytest.approx(given["right"])


def test_d03_accumulated_gradient_is_that_of_the_whole_batch(case, tmp_path):
    folder, facts = case("D03")
    corpus = folder / "corpus.txt"
    settings = {"dropout": 0.0, "vocab_size": 400, "max_length": 64}
    train(corpus, tmp_path / "whole", **settings)
    train(corpus, tmp_path / "parts", micro_batch_size=1, **settings)
    (a,), (b,) = log(tmp_path / "whole"), log(tmp_path / "parts")
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
    whole, parts = load_file(tmp_path / "whole" / MODEL), load_file(tmp_path / "parts" / MODEL)
    assert max((whole[k] - parts[k]).abs().max() for k in whole) < 1e-6

    gradients = []
    for micro_batch_size in (4, 1):
        model, tokenizer = minibert.load(tmp_path / "whole")
        store = store_of(corpus, tokenizer, tmp_path / "stores")
        steps = load_steps(
            stream_of(store, max_length=64), collator_of(store, tokenizer, max_length=64), Cursor(),
            micro_batch_size=micro_batch_size,
        )  # fmt: skip
        (batches,) = islice(steps, 1)
        counts = [int(batch["counts"][0]) for batch in batches.micro_batches]
        gradients.append(update(model.train(), batches.micro_batches, loss_sums)[1])
    assert len(set(counts)) > 1  # a mean of means would differ
    difference = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
    assert difference < float(facts["grad_rel_diff_max"])


def test_d07_resume_goes_on_from_the_newest_whole_checkpoint(case, tmp_path):
    folder, facts = case("D07")
    corpus = case("D01")[0] / "corpus.txt"
    train(corpus, tmp_path / "whole", steps=7, save_every=2, keep=2)
    runs = {}
    for mode in ("trunc", "state", "debris"):
        out = tmp_path / mode
        stop_at(6, tmp_path / "whole", out)
        newest = out / "checkpoints/step-000006"
        subprocess.run(["sh", folder / "break.sh", newest, mode], check=True)
        runs[mode] = subprocess.Popen(
            command("-m", "minibert", "pretrain", "--out", out, "--resume"), stderr=subprocess.PIPE, encoding="utf-8"
        )
        if mode == "trunc":  # never a part of the weights, for no other purpose either
            with pytest.raises(UserError, match=MODEL):
                minibert.load(newest)
    said = {mode: process.communicate(timeout=120)[1] for mode, process in runs.items()}
    assert facts["resumed_from"] == "previous complete checkpoint"
    for mode, process in runs.items():
        assert process.returncode == int(facts["exit"]), said[mode]
        newest, older = (str(tmp_path / mode / f"checkpoints/step-{step:06d}") for step in (6, 4))
        if mode == "debris":  # the newest is whole
            assert f"going on from {newest}\n" in said[mode]
        else:
            assert f"warning: {newest} is not complete" in said[mode]
            assert f"going on from {older}\n" in said[mode]
        assert (tmp_path / mode / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    assert MODEL in said["trunc"]


def test_every_case_has_a_test(shared, root):
    """Of its name, such as test_a01_..., and it asks for that case."""
    source = "".join(path.read_text("utf-8") for path in sorted((root / "tests").glob("test_cases*.py")))
    cases = [case["id"] for case in json.loads((shared / "cases/index.json").read_text("utf-8"))]
    assert len(cases) == 42
    missing = [name for name in cases if f"def test_{name.lower()}_" not in source or f'case("{name}")' not in source]
    assert missing == []
