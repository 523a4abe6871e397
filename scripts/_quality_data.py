"""The files of quality.py, from what scripts/real_data.py brings: the labelled sets of the panel and the text to read.

No text of a dev or test set is in the text to read. Small training sets are drawn by a fixed seed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from real_data import SPLITS, split_of, write_documents
from split_squad import part_of

from minibert.atomic import write_whole

DRAW = 0  # the seed by which rows are drawn


def make(out: Path, write: Callable[[Path], None]) -> None:
    """Fill a folder, unless it is there."""

    def fill(folder: Path) -> None:
        folder.mkdir()
        write(folder)

    if not out.is_dir():
        write_whole(out, fill)


def rows_of(source: Path, sizes: dict[str, int]) -> Callable[[Path], None]:
    """Writes so many rows of each part of a labelled CSV; all where no number is given."""

    def write(out: Path) -> None:
        for part in SPLITS:
            with (source / f"{part}.csv").open(encoding="utf-8", newline="") as file:
                head, *rows = csv.reader(file)
            Random(DRAW).shuffle(rows)
            with (out / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([head, *rows[: sizes.get(part)]])

    return write


def sentences_of(source: Path, sizes: dict[str, int]) -> Callable[[Path], None]:
    """Writes so many sentences of each part of a tagged file."""

    def write(out: Path) -> None:
        for part in SPLITS:
            sentences = (source / f"{part}.conll").read_text("utf-8").strip().split("\n\n")
            Random(DRAW).shuffle(sentences)
            (out / f"{part}.conll").write_text("\n\n".join(sentences[: sizes.get(part)]) + "\n", "utf-8")

    return write


def articles_of(source: Path) -> Callable[[Path], None]:
    """Writes the parts of a file of questions; an article's are all in one."""

    def write(out: Path) -> None:
        articles = json.loads(source.read_text("utf-8"))["data"]
        for part in SPLITS:
            chosen = [article for i, article in enumerate(articles) if part_of(i) == part]
            (out / f"{part}.json").write_text(json.dumps({"version": "", "data": chosen}, ensure_ascii=False), "utf-8")

    return write


def documents(path: Path) -> list[list[str]]:
    """The documents of a text file, each its lines."""
    return [document.split("\n") for document in path.read_text("utf-8").strip().split("\n\n")]


def panel_files(data: Path, work: Path, member: dict[str, Any]) -> dict[str, Path] | None:
    """train, dev and test of a member of the panel; None where what it is made of is not there.

    Args: data: what scripts/real_data.py has filled. member: its source (below data), kind and sizes.
    """
    source, out = data / member["source"], work / "panel" / member["name"]
    if not source.exists():
        return None
    sizes = {part: member[part] for part in SPLITS if part in member}
    if member["task"] == "ner":
        make(out, sentences_of(source, sizes))
    elif member["task"] == "qa":
        make(out, articles_of(source))
    else:
        make(out, rows_of(source, sizes))
    ending = {"cls": "csv", "ner": "conll", "qa": "json"}[member["task"]]
    return {part: out / f"{part}.{ending}" for part in SPLITS}


def corpus_files(data: Path, work: Path, sources: list[str]) -> list[Path]:
    """The text to read, without that of dev and test sets; sources that are not there are passed over."""
    found = []
    for source in sources:
        if (data / source).is_file():
            out = work / "text" / source.replace("/", "-")
            if not out.is_file():
                write_whole(out, lambda target, text=data / source: write_documents(target, training_text(text)))
            found.append(out)
    return found


def training_text(path: Path) -> list[list[str]]:
    """A text without the documents and paragraphs that labelled dev and test sets are made of."""
    made = []
    for document in documents(path):
        if path.parent.name == "bbc":  # an article is a row
            kept = document if split_of(" ".join(document)) == "train" else []
        elif path.parent.name == "people_daily":  # a paragraph is a row
            kept = [line for line in document if split_of(line) == "train"]
        else:
            kept = document
        if kept:
            made.append(kept)
    return made
