#!/usr/bin/env python3
"""Broken files through every reader of minibert: each gives a result or a UserError, and loses nothing unseen.

    scripts/fuzz.py [--inputs 20000] [--seed 0] [--only READER] [--keep DIR]

A fault is: another exception, the end of the process, more than 60 seconds, more than 8 GB, a message that is too long
or would move the terminal's cursor, a record that is neither there nor counted as left out, code that a file brought
and that was run. The file of each fault is kept in DIR, and the table at the end counts what became of the others.
The same seed gives the same files.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import _fuzz_inputs as broken
import numpy as np
import torch

import minibert
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import load_model
from minibert.checkpoint.pretrained import BertForSequenceClassification
from minibert.config import FinetuneConfig, PretrainConfig, load_recipe, resolve
from minibert.corpus.read import find_files, fingerprint, read_documents
from minibert.corpus.store import open_store, whole_store
from minibert.corpus.vocabulary import corpus_vocabulary
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.predict import Predictor
from minibert.run_folder import load_metrics, resumed_settings
from minibert.tasks import find_tasks
from minibert.tasks.data import AnyTask
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minibert.training import record, state
from minibert.training.optim import build_optimizers
from minibert.vectors.records import Source
from minibert.vectors.writers import head

SECONDS, GIGABYTES, LONGEST_MESSAGE = 60, 8, 4000
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TEXT = (
    'The cat sat on the mat.\nIt was red, and "old".\n\n今天我要上学了。\n\nA third document, naïve café.\nIts end.\n'
)
WORDS = "the cat sat on mat it was red and old a third document its end good bad new york".split()
ROWS: list[dict[str, Any]] = [
    {"text": f"{word} cat 今天 {i}", "label": "good" if i % 2 else "bad", "id": i} for i, word in enumerate(WORDS)
]
CSV = "text,label,id\n" + "".join(f'"{row["text"]}, so",{row["label"]},{row["id"]}\n' for row in ROWS)
CONLL = (
    "-DOCSTART- O\n\n# a comment here\nEU B-ORG\nrejects O\nGerman B-MISC\ncall O\n\nPeter B-PER\nBlackburn I-PER\n"
    "\n北 B-LOC\n京 I-LOC\n"
)
TAGGED: list[dict[str, Any]] = [
    {"tokens": ["EU", "rejects", "it"], "tags": ["B-ORG", "O", "O"]},
    {"tokens": ["Peter", "Blackburn"], "tags": ["B-PER", "I-PER"]},
    {"tokens": ["北", "京"], "tags": ["B-LOC", "I-LOC"]},
]
ENTITIES: list[dict[str, Any]] = [
    {"text": "EU rejects Peter", "entities": [{"start": 0, "end": 2, "label": "ORG"}]},
    {"text": "我爱北京", "entities": [{"start": 2, "end": 4, "label": "LOC", "text": "北京"}]},
    {"text": "nothing here", "entities": []},
]
CONTEXT = "Anna lives in Rome and sells bread. Her brother Paul lives in Oslo."
SQUAD: dict[str, Any] = {
    "version": "v2.0",
    "data": [
        {"title": "A", "paragraphs": [
            {"context": CONTEXT, "qas": [
                {"id": "1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 14}]},
                {"id": "2", "question": "Who?", "is_impossible": False, "answers": [{"text": "Paul"}]},
                {"id": "3", "question": "Why?", "answers": [], "is_impossible": True},
            ]},
        ]},
        {"title": "B", "paragraphs": [
            {"context": "小明住在北京。", "qas": [
                {"id": "4", "question": "在哪里？", "answers": [{"text": "北京", "answer_start": 4}]},
            ]},
        ]},
    ],
}  # fmt: skip
QUESTIONS: list[dict[str, Any]] = [
    {"id": str(i), "question": "Where?", "context": CONTEXT, "answers": [{"text": "Rome", "answer_start": 14}]}
    for i in range(3)
]
TOML = '# a recipe\nsteps = 10\nlr = 1e-3\nlayers = 2\nhidden_size = 64\nnsp = true\nmask_unit = "word"\nwarmup = 0.1\n'


class Fault(Exception):
    """Something that must not be, though no exception shows it."""


class TooLong(BaseException):
    """The alarm rang; no handler of Exception is to catch it."""


@dataclass(frozen=True)
class Reader:
    """Something that reads files of one kind.

    Attributes: make: (draw) -> the file's name in the folder of good files, and its bytes. read: (folder, path, draw)
        reads it as a user's command would, and raises Fault for what is lost on the way.
    """

    name: str
    make: Callable[[random.Random], tuple[str, bytes]]
    read: Callable[[Path, Path, random.Random], None]


# ---- good files


@cache
def tokenizer() -> BertTokenizer:
    """Letters and a few words."""
    pieces = sorted(
        {c for c in TEXT.lower() + CONTEXT.lower() if c.isprintable() and not c.isspace()} | set("我爱北京")
    )
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *pieces,
        *(f"##{c}" for c in pieces if c.isascii()),
        *WORDS[:3],
    ]
    return BertTokenizer.from_tokens(list(dict.fromkeys(tokens)), lowercase=True)


def make_good(folder: Path) -> None:
    """A checkpoint for classification, in the folder `good`; a run with a training state, in `run`."""
    torch.manual_seed(0)
    names = {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    shape = BertConfig(
        vocab_size=len(tokenizer()), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, extra={**names, "minibert": {"task": "cls", "settings": {}}},
    )  # fmt: skip
    model = BertForSequenceClassification(shape)
    good = folder / "good"
    model.save_pretrained(good)
    tokenizer().save_pretrained(good)
    optimizers = build_optimizers(model, name="adamw", lr=1e-3, muon_lr=0.0, weight_decay=0.0, adam_beta2=0.99)
    place = {"step": 3, "cursor": {"epoch": 0, "batch": 3}, "tokens": 300, "best": {}, "store": "", "elapsed": 0.0}
    state.save_state(
        folder / "run/checkpoints/step-000003", lambda partial: shutil.copytree(good, partial, dirs_exist_ok=True),
        optimizers, None, place,
    )  # fmt: skip
    text = folder / "text.txt"
    text.write_text(TEXT * 3, "utf-8")
    store, _ = open_store([text], tokenizer(), folder / "stores", corpus="0")
    store.folder.rename(folder / "store")


@contextmanager
def replaced(source: Path, path: Path, name: str) -> Iterator[Path]:
    """A copy of a good folder in which one file is the broken one."""
    target = path.parent / "copy"
    shutil.copytree(source, target)
    (target / name).write_bytes(path.read_bytes())
    try:
        yield target
    finally:
        shutil.rmtree(target)


# ---- text


def read_text(folder: Path, path: Path, draw: random.Random) -> None:
    """A corpus, as pretrain and vocab read it: no character is lost."""
    encoding = draw.choice(("utf-8",) * 6 + broken.ENCODINGS)
    documents = list(read_documents(find_files([str(path)]), encoding=encoding))
    if path.suffix == ".txt":
        codec = encoding.removesuffix("-sig")
        text = path.read_bytes().decode(codec)
        same_characters(text.removeprefix("\ufeff"), documents)
    if draw.random() < 0.1:
        corpus = fingerprint([path])
        vocabulary, _ = corpus_vocabulary(
            [path], folder / "vocabularies", corpus=corpus, size=100, lowercase=True, strip_accents=None,
            encoding=encoding, text_field="text",
        )  # fmt: skip
        words = BertTokenizer.from_tokens(vocabulary.tokens, lowercase=True)
        store, _ = open_store([path], words, folder / "stores", corpus=corpus, encoding=encoding)
        facts = store.facts
        counted = facts["documents"] + facts["empty_documents"] + facts["records_without_text"]
        lines = num_records(path)
        if counted != (len(documents) + facts["records_without_text"] if lines is None else lines):
            raise Fault(f"{len(documents)} documents of {lines} records, {counted} in the store's count")
        shutil.rmtree(store.folder)


def same_characters(text: str, documents: list[list[str]]) -> None:
    """Raises Fault where a character that is no blank has gone or come."""
    before = Counter("".join(text.split()))
    after = Counter("".join("".join("".join(document).split()) for document in documents))
    if before != after:
        raise Fault(f"characters lost or made: {list(((before - after) + (after - before)).items())[:5]}")


def read_json_text(folder: Path, path: Path, draw: random.Random) -> None:
    """A corpus of records: each is a document, or counted."""
    read_text(folder, path, draw)


# ---- labelled files


def through(task: AnyTask, path: Path, count: int | None, *, gold: bool) -> None:
    """Read, settle, check, encode and make batches, as finetune, evaluate and predict do before they compute."""
    reading = task.read(path, gold=gold, train=gold)
    found = len(reading.examples) + len(reading.skipped)
    if count is not None and found != count:
        raise Fault(f"{count} records, but {len(reading.examples)} read and {len(reading.skipped)} skipped")
    if not all(set(item) >= {"where", "reason"} for item in (*reading.skipped, *reading.repaired)):
        raise Fault("a record is skipped without its place and reason")
    if gold:
        task = task.settled(reading.examples)
        task.check(reading.examples)
    features = task.encode(reading.examples, tokenizer(), gold=gold).features
    if {feature.example for feature in features} != set(range(len(reading.examples))):
        raise Fault("an example has no feature")
    if any(len(feature.ids) > task.config.max_length for feature in features):
        raise Fault("a row is longer than max_length")
    for first in range(0, min(len(features), 64), 16):
        batch = task.batch(features[first : first + 16], 0)
        if gold and not torch.isfinite(batch["counts"]).all():
            raise Fault("a count of targets is not finite")


def lines_of(path: Path) -> list[str] | None:
    """The lines of a plain UTF-8 file, as universal newlines have them; None where it is none."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def num_records(path: Path) -> int | None:
    """Records of a plain file of JSON lines: its lines that are not blank."""
    lines = lines_of(path)
    return None if lines is None or path.suffix != ".jsonl" else sum(bool(line.strip()) for line in lines)


def read_rows(folder: Path, path: Path, draw: random.Random) -> None:
    """Texts with labels, and without."""
    kind: Any = find_tasks()["cls"]
    choices: list[dict[str, Any]] = [{}] * 6 + [
        {"multi_label": True}, {"regression": True, "label_column": "id"}, {"id_column": "id"}, {"header": False},
        {"quoting": False}, {"pair_column": "label", "label_column": "id"}, {"encoding": "gb18030"},
        {"class_weights": "balanced"}, {"delimiter": ";"}, {"input_format": "csv"}, {"input_format": "txt"},
    ]  # fmt: skip
    settings = draw.choice(choices)
    gold = draw.random() < 0.7
    count = None if "input_format" in settings else num_records(path)
    if path.suffix in (".csv", ".tsv"):
        lines = lines_of(path)
        plain = lines is not None and not any('"' in line for line in lines) and not settings
        count = max(0, sum(bool(line) for line in lines) - 1) if plain and lines is not None else None
    elif path.suffix == ".txt" and not gold:
        lines = lines_of(path)
        count = None if lines is None or settings else len(lines) - (not lines[-1])
    through(kind(kind.Config(**{"max_length": 32, **settings})), path, count, gold=gold)


def read_label_names(folder: Path, path: Path, draw: random.Random) -> None:
    """--labels FILE."""
    kind: Any = find_tasks()["cls"]
    rows = path.with_name("rows.csv")
    rows.write_text(CSV, "utf-8")
    through(kind(kind.Config(max_length=32, labels=str(path))), rows, len(ROWS), gold=True)


def read_words(folder: Path, path: Path, draw: random.Random) -> None:
    """Words with tags, and texts."""
    kind: Any = find_tasks()["ner"]
    choices: list[dict[str, Any]] = [{}] * 5 + [{"scheme": "bio"}, {"scheme": "bioes"}, {"input_format": "txt"}]
    settings = draw.choice(choices)
    gold = draw.random() < 0.7
    count = None if "input_format" in settings else num_records(path)
    through(kind(kind.Config(**{"max_length": 32, **settings})), path, count, gold=gold)


def read_squad(folder: Path, path: Path, draw: random.Random) -> None:
    """Questions with answers, and without."""
    kind: Any = find_tasks()["qa"]
    choices: list[dict[str, Any]] = [{}] * 5 + [{"unanswerable": "no"}, {"unanswerable": "yes"}]
    settings = {"max_length": 48, "stride": 8, **draw.choice(choices)}
    count = num_records(path)
    if path.suffix == ".json":
        count = num_questions(path)
    through(kind(kind.Config(**settings)), path, count, gold=draw.random() < 0.7)


def num_questions(path: Path) -> int | None:
    """Questions of a SQuAD file, where its form is the usual one."""
    try:
        articles = json.loads(path.read_bytes().decode("utf-8-sig"))["data"]
        return sum(len(part["qas"]) for article in articles for part in article["paragraphs"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def read_records(folder: Path, path: Path, draw: random.Random) -> None:
    """embed's records, with all their fields."""
    source = Source(
        path, all_fields=draw.random() < 0.7, header=draw.random() < 0.9, quoting=draw.random() < 0.9,
        encoding=draw.choice(("utf-8",) * 5 + broken.ENCODINGS),
    )  # fmt: skip
    records = list(source)
    for item in records:
        json.loads(head(item) + "}")
    plain = source.encoding == "utf-8" and path.suffix in (".jsonl", ".txt")
    lines = lines_of(path) if plain else None
    if lines is not None and len(records) != (
        num_records(path) if path.suffix == ".jsonl" else len(lines) - (not lines[-1])
    ):
        raise Fault(f"{len(records)} records of {len(lines)} lines")


# ---- checkpoints


def use_checkpoint(folder: Path) -> None:
    """Whatever opens must also answer."""
    model, words = minibert.load(folder, head="cls")
    with torch.inference_mode():
        logits: Any = model(**words(["the cat", ""], max_length=min(16, model.config.max_position_embeddings))).logits
    if not torch.isfinite(logits).all():
        raise Fault("it answers with what is no number")
    predictor = Predictor(folder)
    answers = predictor.predict(predictor.task.from_python(*PYTHON_INPUTS[predictor.task.name]))
    json.dumps(answers, allow_nan=False)


PYTHON_INPUTS: dict[str, tuple[Any, ...]] = {
    "cls": (["the cat", "", "今天 " * 50],),
    "ner": (["the cat", "", "今天 " * 50],),
    "qa": ([{"question": "where?", "context": CONTEXT}],),
}


def read_checkpoint(name: str) -> Callable[[Path, Path, random.Random], None]:
    """A checkpoint in which one file is broken."""

    def read(folder: Path, path: Path, draw: random.Random) -> None:
        with replaced(folder / "good", path, name) as target:
            if name in ("vocab.txt", "tokenizer_config.json"):
                (target / "tokenizer.json").unlink()
            if name.startswith("pytorch_model") or name.endswith("index.json"):
                (target / "model.safetensors").rename(target / "model-00001-of-00001.safetensors")
            use_checkpoint(target)

    return read


def read_tensorflow(folder: Path, path: Path, draw: random.Random) -> None:
    """TensorFlow's index, or its data file."""
    with replaced(folder / "tf", path, path.name) as target:
        shutil.copy(folder / "good/config.json", target)
        load_model(BertForSequenceClassification, target)


def pickle_bytes(draw: random.Random) -> bytes:
    """A PyTorch file: good and damaged, or with something else than tensors in it."""
    import io
    import pickle

    good = torch.load(GOOD["pickle"], weights_only=True)
    first = next(iter(good))
    odd: list[Any] = [
        None, 3, [], {}, "x", good[first], [good], {"a": 1}, {**good, first: None}, {**good, 3: torch.zeros(2)},
        {**good, first: torch.zeros(3)}, {**good, first: good[first].to_sparse()}, {**good, first: good[first].int()},
        {**good, first: good[first] * float("nan")}, {"state_dict": good}, {"a": good, "b": good},
        {"model": {"x": good}},
        {**good, first: good[first].half()}, {**good, first: good[first].to(torch.complex64)},
        {**good, first: torch.empty(1).expand(10**9)}, {**good, first: torch.zeros(1, device="meta")},
    ]  # fmt: skip
    kind = draw.random()
    content: Any = good if kind < 0.4 else broken.Opens(GOOD["marker"]) if kind < 0.6 else draw.choice(odd)
    if kind > 0.5 and kind < 0.6:
        content = {**good, "x": content}
    stream = io.BytesIO()
    if draw.random() < 0.15:
        pickle.dump(content, stream, protocol=draw.choice((0, 2, 4, 5)))
    else:
        torch.save(content, stream, _use_new_zipfile_serialization=draw.random() < 0.7)
    data = stream.getvalue()
    return broken.damaged(data, draw, 1) if kind < 0.4 or draw.random() < 0.2 else data


GOOD: dict[str, str] = {}  # places of good files, set where a child process starts


# ---- settings, runs, caches


def read_recipe(folder: Path, path: Path, draw: random.Random) -> None:
    """--recipe FILE, of both stages."""
    stage = draw.choice(("pretrain", "finetune"))
    where, settings = load_recipe(str(path), stage)
    settings.pop("task", None)
    config: Any = PretrainConfig if stage == "pretrain" else FinetuneConfig
    resolve(config, (where, settings))


def read_settings(folder: Path, path: Path, draw: random.Random) -> None:
    """settings.json of a run that is to go on, and as a recipe."""
    run = path.parent / "begun"
    run.mkdir(exist_ok=True)
    (run / "settings.json").write_bytes(path.read_bytes())
    if draw.random() < 0.5:
        resumed_settings(PretrainConfig, run, {})
    else:
        read_recipe(folder, run / "settings.json", draw)


def read_run(name: str) -> Callable[[Path, Path, random.Random], None]:
    """A checkpoint that a run is to go on from; where it says that it is whole, all of it must be usable."""

    def read(folder: Path, path: Path, draw: random.Random) -> None:
        step = "checkpoints/step-000003"
        with replaced(folder / "run", path, f"{step}/training_state/{name}") as run:
            if name != "manifest.json" and draw.random() < 0.7:  # as one who means it would make it
                mend_manifest(run / step)
            newest, _ = state.newest_complete(run / "checkpoints")
            if newest is None:
                raise UserError("no whole checkpoint")
            state.load_place(newest)
            model = BertForSequenceClassification(load_config(newest))
            optimizers = build_optimizers(model, name="adamw", lr=1e-3, muon_lr=0.0, weight_decay=0.0, adam_beta2=0.99)
            state.load_state(newest, optimizers, None)

    return read


def mend_manifest(folder: Path) -> None:
    """A manifest that speaks of the files as they are."""
    sizes = {str(path.relative_to(folder)): [path.stat().st_size, state._digest(path)] for path in state._files(folder)}
    (folder / "training_state/manifest.json").write_text(json.dumps(sizes), "utf-8")


def read_log(folder: Path, path: Path, draw: random.Random) -> None:
    """log.jsonl of a run that goes on: its first lines are kept, each of them whole."""
    kept = record._first_lines(path, 5)
    if len(kept) > 5 or not all(line.endswith("\n") for line in kept):
        raise Fault("a later line was kept, or a part of one")


def read_metrics(folder: Path, path: Path, draw: random.Random) -> None:
    """metrics.json of a finished seed."""
    load_metrics(path.parent)


def read_store(name: str) -> Callable[[Path, Path, random.Random], None]:
    """A token store in the cache: used where it is whole, else none."""

    def read(folder: Path, path: Path, draw: random.Random) -> None:
        with replaced(folder / "store", path, name) as target:
            store = whole_store(target)
            if store is None:
                raise UserError("no whole store")
            layout = store.layout
            if len(layout.doc_first) != len(store) + 1 or len(store.hashes) != len(store):
                raise Fault("the layout is of another number of documents")
            if layout.sentence_start[-1] != store.facts["tokens"]:
                raise Fault("sentences of more or fewer tokens than there are")
            store.token_counts(len(tokenizer()), without=np.zeros(0, np.int64))
            for document in range(len(store)):
                store.ids(*store.document_span(document))

    return read


def read_known_vocabulary(folder: Path, path: Path, draw: random.Random) -> None:
    """A vocabulary in the cache: used where it is whole, else trained anew."""
    text = folder / "text.txt"
    settings: dict[str, Any] = {
        "corpus": "0", "size": 60, "lowercase": True, "strip_accents": None, "encoding": "utf-8", "text_field": "text",
    }  # fmt: skip
    cache_folder = path.parent / "vocabularies"
    corpus_vocabulary([text], cache_folder, **settings)
    (target,) = cache_folder.iterdir()
    target.write_bytes(path.read_bytes())
    vocabulary, _ = corpus_vocabulary([text], cache_folder, **settings)
    BertTokenizer.from_tokens(vocabulary.tokens, lowercase=True)
    shutil.rmtree(cache_folder)


# ---- the table of readers


def file(name: str, text: str, *, archives: bool = True) -> Callable[[random.Random], tuple[str, bytes]]:
    """A text, damaged."""

    def make(draw: random.Random) -> tuple[str, bytes]:
        plain = text.encode()
        data = plain if archives and draw.random() < 0.15 else broken.damaged(plain, draw)
        return broken.packed(name, data, draw) if archives else (name, data)

    return make


def records(name: str, values: list[Any]) -> Callable[[random.Random], tuple[str, bytes]]:
    """JSON lines, damaged."""
    return lambda draw: broken.packed(name, broken.broken_lines(values, draw), draw)


def json_file(name: str, value: Any, *, archives: bool = False) -> Callable[[random.Random], tuple[str, bytes]]:
    """A JSON file, damaged."""

    def make(draw: random.Random) -> tuple[str, bytes]:
        content = json.loads(Path(GOOD[value]).read_bytes()) if isinstance(value, str) else value
        data = broken.broken_json(content, draw)
        return broken.packed(name, data, draw) if archives else (name, data)

    return make


def good_bytes(name: str, key: str) -> Callable[[random.Random], tuple[str, bytes]]:
    """A good file, damaged in its bytes."""
    return lambda draw: (name, broken.damaged(Path(GOOD[key]).read_bytes(), draw))


def pickle_file(name: str) -> Callable[[random.Random], tuple[str, bytes]]:
    """A PyTorch file, damaged, or with something else in it."""
    return lambda draw: (name, pickle_bytes(draw))


def columns(name: str, values: list[dict[str, Any]]) -> Callable[[random.Random], tuple[str, bytes]]:
    """A parquet file, damaged."""
    return lambda draw: broken.packed(name, broken.parquet({k: [v[k] for v in values] for k in values[0]}, draw), draw)


TF_FILES = ("bert.ckpt.index", "bert.ckpt.data-00000-of-00001")
LOG: list[Any] = [{"step": i, "loss": 1.0} for i in range(1, 9)]
VOCABULARY = {"tokens": [*SPECIAL_TOKENS, "a"], "dropped_characters": 0, "unknown_rate": 0.0, "characters": 1}
SETTINGS = {"steps": 3, "lr": 0.1, "nsp": True, "mask_unit": "token"}
READERS = (
    Reader("text .txt", file("a.txt", TEXT), read_text),
    Reader("text .jsonl", records("a.jsonl", ROWS), read_json_text),
    Reader("text .parquet", columns("a.parquet", ROWS), read_json_text),
    Reader("cls .csv", file("a.csv", CSV), read_rows),
    Reader("cls .csv, no quotes", file("a.csv", CSV.replace('"', "").replace(", so", "")), read_rows),
    Reader("cls .tsv", file("a.tsv", CSV.replace(",", "\t")), read_rows),
    Reader("cls .jsonl", records("a.jsonl", ROWS), read_rows),
    Reader("cls .parquet", columns("a.parquet", ROWS), read_rows),
    Reader("cls .txt", file("a.txt", TEXT), read_rows),
    Reader("cls no name", file("stdin", CSV), read_rows),
    Reader("cls --labels", file("labels.txt", "good\nbad\nneither\n"), read_label_names),
    Reader("ner .conll", file("a.conll", CONLL), read_words),
    Reader("ner .txt", file("a.txt", CONLL), read_words),
    Reader("ner tags .jsonl", records("a.jsonl", TAGGED), read_words),
    Reader("ner entities .jsonl", records("a.jsonl", ENTITIES), read_words),
    Reader("qa .json", json_file("a.json", SQUAD, archives=True), read_squad),
    Reader("qa .jsonl", records("a.jsonl", QUESTIONS), read_squad),
    Reader("embed .csv", file("a.csv", CSV), read_records),
    Reader("embed .jsonl", records("a.jsonl", ROWS), read_records),
    Reader("embed .parquet", columns("a.parquet", ROWS), read_records),
    Reader("embed .txt", file("a.txt", TEXT), read_records),
    Reader("config.json", json_file("config.json", "config"), read_checkpoint("config.json")),
    Reader("tokenizer.json", json_file("tokenizer.json", "tokenizer"), read_checkpoint("tokenizer.json")),
    Reader(
        "tokenizer_config.json", json_file("tokenizer_config.json", "tokenizer_config"),
        read_checkpoint("tokenizer_config.json"),
    ),
    Reader("vocab.txt", good_bytes("vocab.txt", "vocab"), read_checkpoint("vocab.txt")),
    Reader("added_tokens.json", json_file("added_tokens.json", {"a": 5, "b": 6}), read_checkpoint("added_tokens.json")),
    Reader(
        "special_tokens_map.json", json_file("special_tokens_map.json", {"unk_token": "[UNK]", "a": [{"b": 1}]}),
        read_checkpoint("special_tokens_map.json"),
    ),
    Reader(
        "safetensors",
        lambda draw: ("model.safetensors", broken.safetensors(Path(GOOD["weights"]).read_bytes(), draw)),
        read_checkpoint("model.safetensors"),
    ),
    Reader("pytorch_model.bin", pickle_file("pytorch_model.bin"), read_checkpoint("pytorch_model.bin")),
    Reader(
        "shard index",
        json_file("model.safetensors.index.json", "index"), read_checkpoint("model.safetensors.index.json"),
    ),
    Reader("TensorFlow", lambda draw: good_bytes(name := draw.choice(TF_FILES), name)(draw), read_tensorflow),
    Reader("recipe .toml", file("r.toml", TOML, archives=False), read_recipe),
    Reader("recipe .json", json_file("r.json", {"settings": SETTINGS}), read_recipe),
    Reader("settings.json", json_file("settings.json", {"settings": SETTINGS}), read_settings),
    Reader("place.json", json_file("place.json", "place"), read_run("place.json")),
    Reader("manifest.json", json_file("manifest.json", "manifest"), read_run("manifest.json")),
    Reader("optimizer.pt", good_bytes("optimizer.pt", "optimizer"), read_run("optimizer.pt")),
    Reader("optimizer.pt, other content", pickle_file("optimizer.pt"), read_run("optimizer.pt")),
    Reader("log.jsonl", lambda draw: ("log.jsonl", broken.broken_lines(LOG, draw)), read_log),
    Reader("metrics.json", json_file("metrics.json", {"dev": {"f1": 0.5}, "steps": 3}), read_metrics),
    Reader("store.json", json_file("store.json", "store"), read_store("store.json")),
    Reader("tokens.arrow", good_bytes("tokens.arrow", "arrow"), read_store("tokens.arrow")),
    Reader("vocabulary in the cache", json_file("v.json", VOCABULARY), read_known_vocabulary),
)  # fmt: skip


def prepare(folder: Path) -> None:
    """The good files, and where they are."""
    make_good(folder)
    good, training = folder / "good", folder / "run/checkpoints/step-000003/training_state"
    weights = {name: tensor.clone() for name, tensor in safetensors_of(good).items()}
    torch.save(weights, folder / "good.bin")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "model-00001-of-00001.safetensors")}
    (folder / "index.json").write_text(json.dumps(index), "utf-8")
    write_tensorflow(folder / "tf", weights)
    GOOD.update({
        "pickle": str(folder / "good.bin"), "marker": str(folder / "opened"), "index": str(folder / "index.json"),
        "config": str(good / "config.json"), "tokenizer": str(good / "tokenizer.json"),
        "tokenizer_config": str(good / "tokenizer_config.json"), "vocab": str(good / "vocab.txt"),
        "weights": str(good / "model.safetensors"), "place": str(training / "place.json"),
        "manifest": str(training / "manifest.json"), "optimizer": str(training / "optimizer.pt"),
        "store": str(folder / "store/store.json"), "arrow": str(folder / "store/tokens.arrow"),
        **{name: str(folder / "tf" / name) for name in TF_FILES},
    })  # fmt: skip


def safetensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def write_tensorflow(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """The same weights as Google's programs store them."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/checkpoint"))
    from tensorflow_files import google_names, write_checkpoint

    write_checkpoint(folder / "bert.ckpt", google_names(weights))


# ---- running


def attempt(reader: Reader, folder: Path, seed: int, number: int, keep: Path | None = None) -> tuple[str, str]:
    """One broken file through a reader: ("result" | "refused" | "fault", what was said)."""
    draw = random.Random(f"{seed}/{reader.name}/{number}")
    place = Path(tempfile.mkdtemp(dir=folder))
    name, data = reader.make(draw)
    path = place / name
    path.write_bytes(data)
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        outcome = told(reader, folder, path, draw)
    except TooLong:
        outcome = "fault", f"more than {SECONDS} s"
    finally:
        signal.alarm(0)
    if Path(GOOD["marker"]).exists():
        Path(GOOD["marker"]).unlink()
        outcome = "fault", "code that the file brought was run"
    if outcome[0] == "fault" and keep is not None:
        target = keep / f"{re.sub('[^a-z0-9.]+', '-', reader.name.lower())}-{seed}-{number}"
        target.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)
        (target / "fault.txt").write_text(outcome[1], "utf-8", errors="backslashreplace")
    shutil.rmtree(place)
    return outcome


def ring(number: int, frame: object) -> None:
    """What the alarm does."""
    raise TooLong


def told(reader: Reader, folder: Path, path: Path, draw: random.Random) -> tuple[str, str]:
    """What became of a file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder, path, draw)
    except UserError as error:
        message = str(error)
        if len(message) > LONGEST_MESSAGE:
            return "fault", f"a message of {len(message)} characters: {message[:200]}"
        if CONTROLS.search(message):
            return "fault", f"a message with control characters: {message!r}"
        return "refused", kind_of(error)
    except Exception:  # noqa: BLE001 - that is what is looked for
        return "fault", traceback.format_exc()
    return "result", ""


def kind_of(error: UserError) -> str:
    """A message without what is particular to one file."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\([^)]*\)", "_", error.problem)
    return " ".join(re.sub(r"0x[0-9a-f]+|\d[\d,.]*", "N", text).split())[:70]


def child(name: str, seed: int, first: int, last: int, keep: Path) -> None:
    """Files first ... last - 1 of a reader; a line of JSON for each on standard output."""
    limit = GIGABYTES << 30
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(1)
    (reader,) = (reader for reader in READERS if reader.name == name)
    with tempfile.TemporaryDirectory(prefix="minibert-fuzz-") as folder:
        prepare(Path(folder))
        for number in range(first, last):
            print(json.dumps([number]), flush=True)  # who ends the process is known
            print(json.dumps([number, *attempt(reader, Path(folder), seed, number, keep)]), flush=True)


def run(name: str, seed: int, inputs: int, keep: Path) -> tuple[Counter[str], list[str]]:
    """All files of a reader, in another process, which a file may end: (what became of them, faults)."""
    found: Counter[str] = Counter()
    faults: list[str] = []
    first = 0
    while first < inputs:
        command = [sys.executable, __file__, "--child", name, str(seed), str(first), str(inputs), str(keep)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        begun = first
        for line in ended.stdout.splitlines():
            number, *outcome = json.loads(line)
            begun = number
            if outcome:
                first = number + 1
                found[outcome[0] if outcome[0] != "refused" else f"refused: {outcome[1]}"] += 1
                if outcome[0] == "fault":
                    faults.append(f"{name} #{number}: {outcome[1].strip().splitlines()[-1][:300]}")
        if first < inputs:
            if ended.returncode > 0 and not ended.stdout:
                raise RuntimeError(ended.stderr)
            found["fault"] += 1
            faults.append(f"{name} #{begun}: the process ended with {ended.returncode}: {ended.stderr[-200:]}")
            first = begun + 1
    return found, faults


def main() -> int:
    """Run all readers, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=20_000, help="files in all, the same number for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help=f"one of: {', '.join(reader.name for reader in READERS)}")
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"), help="where the files of faults are kept")
    parser.add_argument("--kinds", action="store_true", help="list the kinds of messages too")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, seed, first, last, keep = options.child
        child(name, int(seed), int(first), int(last), Path(keep))
        return 0
    names = [reader.name for reader in READERS if options.only in (None, reader.name)]
    if not names:
        parser.error(f"no reader {options.only!r}")
    each = -(-options.inputs // len(names))
    total: Counter[str] = Counter()
    all_faults: list[str] = []
    print("| reader | inputs | results | refused | kinds of messages | faults |\n|---|---|---|---|---|---|")
    for name in names:
        found, faults = run(name, options.seed, each, options.keep)
        kinds = {kind: count for kind, count in found.items() if kind.startswith("refused")}
        row = {"inputs": each, "results": found["result"], "refused": sum(kinds.values()), "faults": found["fault"]}
        total.update(row)
        print(f"| {name} | {each} | {row['results']} | {row['refused']} | {len(kinds)} | {row['faults']} |", flush=True)
        if options.kinds:
            for kind, count in sorted(kinds.items(), key=lambda item: -item[1]):
                print(f"    {count:5} {kind}", file=sys.stderr)
        all_faults += faults
    print(f"| all | {total['inputs']} | {total['results']} | {total['refused']} | | {total['faults']} |")
    for fault in all_faults:
        print(fault, file=sys.stderr)
    return 1 if all_faults else 0


if __name__ == "__main__":
    sys.exit(main())
