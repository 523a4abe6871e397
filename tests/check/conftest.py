"""Labelled files that are good, for tests to spoil."""

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minibert.check.labels import check_labels
from minibert.tasks import find_tasks
from minibert.tokenization.tokenizer import BertTokenizer

VOWELS, CONSONANTS = "aeiou", "bdfgklmnprst"
NAMES = ["Anna", "Paul", "Rome", "Oslo", "Acme", "Nile"]
TYPES = {"Anna": "PER", "Paul": "PER", "Rome": "LOC", "Oslo": "LOC", "Acme": "ORG", "Nile": "LOC"}

Rows = list[list[str]]


def sentence(draw: random.Random, words: int = 12) -> list[str]:
    """Words that nobody has read."""
    return [
        "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.randint(1, 3))) for _ in range(words)
    ]


def rows(number: int, seed: int) -> Rows:
    """[text, label] of three classes that have nothing to do with the text."""
    draw = random.Random(seed)
    return [[" ".join(sentence(draw, draw.randint(8, 16))), ("up", "down", "level")[i % 3]] for i in range(number)]


def tagged(number: int, seed: int) -> list[list[tuple[str, str]]]:
    """Sentences of words with IOB2 tags; two of three have an entity."""
    draw = random.Random(seed)
    found = []
    for i in range(number):
        words = [(word, "O") for word in sentence(draw)]
        if i % 3:
            name = NAMES[i % len(NAMES)]
            words[4:5] = [(name, f"B-{TYPES[name]}")]
        found.append(words)
    return found


def questions(number: int, seed: int) -> list[dict[str, Any]]:
    """Flat questions, four about each context, answered by words of it."""
    draw = random.Random(seed)
    found = []
    for i in range(number):
        if i % 4 == 0:
            context = sentence(draw, 40)
        first = 3 + 7 * (i % 4)
        answer = " ".join(context[first : first + 2])
        start = len(" ".join(context[:first])) + 1
        question = " ".join(sentence(draw, 6)) + "?"
        answers = [{"text": answer, "answer_start": start}]
        found.append({"id": f"{seed}-{i}", "question": question, "context": " ".join(context), "answers": answers})
    return found


@pytest.fixture
def good(tmp_path: Path) -> SimpleNamespace:
    """Good data of the three tasks, writers of files, and look(task, parts, ...) -> what check_labels finds."""

    def write_csv(path: Path, found: Sequence[Sequence[str]], header: Sequence[str] = ("text", "label")) -> Path:
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *found])
        return path

    def write_conll(path: Path, sentences: Sequence[Sequence[tuple[str, str]]]) -> Path:
        text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in words) for words in sentences)
        path.write_text(text, "utf-8")
        return path

    def write_jsonl(path: Path, records: Sequence[dict[str, Any]]) -> Path:
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
        return path

    writers: dict[str, tuple[str, Callable[..., Path]]] = {
        "cls": ("csv", write_csv), "ner": ("conll", write_conll), "qa": ("jsonl", write_jsonl),
    }  # fmt: skip

    def look(task: str, tokenizer: Any = None, header: Sequence[str] = (), settings: Any = None, **parts: Any) -> Any:
        suffix, write = writers[task]
        more = {"header": header} if header else {}
        paths = {
            name: part if isinstance(part, Path) else write(tmp_path / f"{name}.{suffix}", part, **more)
            for name, part in parts.items()
        }
        config = find_tasks()[task].Config(**(settings or {}))
        return check_labels(task, config, tokenizer=tokenizer, **paths)

    return SimpleNamespace(
        folder=tmp_path, rows=rows, tagged=tagged, questions=questions, look=look, write_csv=write_csv,
        write_jsonl=write_jsonl,
        doubts=lambda checked: {finding.kind for finding in checked.findings if finding.level == "doubtful"},
        notes=lambda checked: {finding.kind for finding in checked.findings if finding.level == "note"},
        one=lambda checked, kind: next(finding for finding in checked.findings if finding.kind == kind),
    )  # fmt: skip


@pytest.fixture
def letters() -> BertTokenizer:
    """One that knows the letters and digits, so that a word has as many tokens as it has letters."""
    known = "abcdefghijklmnopqrstuvwxyz0123456789"
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return BertTokenizer([*specials, *known, *(f"##{letter}" for letter in known), "?"], lowercase=True)
