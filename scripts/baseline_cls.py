#!/usr/bin/env python3
"""What a model has to beat, majority class and naive Bayes: baseline_cls.py TRAIN TEST [NAME=VALUE ...]

Files and settings are those of `minibert finetune --task cls` (text_column=sentence label_column=2 ...). Naive Bayes
counts words and pairs of neighbours; each Chinese character is a word. Smoothing is 1, nothing is tuned.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from minibert.config import kinds, resolve
from minibert.errors import UserError
from minibert.metrics.classification import score_classes
from minibert.tasks.cls import Cls
from minibert.tasks.cls_rows import ClsConfig, ClsExample
from minibert.tokenization.words import WordSplitter

BETWEEN = "|||"  # text and pair; words are never three signs


def settings_of(arguments: list[str]) -> dict[str, Any]:
    """NAME=VALUE on the command line as settings of their type."""
    types = kinds(ClsConfig)
    found: dict[str, Any] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        plain = name not in types or types[name][0] not in (bool, int, float)
        found[name] = value if plain else json.loads(value)
    return found


def joined(example: ClsExample) -> str:
    """The text, and the pair behind it."""
    return example.text if example.pair is None else f"{example.text} {BETWEEN} {example.pair}"


def guesses(train_file: Path, test_file: Path, config: ClsConfig) -> tuple[str, dict[str, dict[str, float]]]:
    """What both baselines score. Returns: the data in a line; the scores of each.

    Raises: UserError for files or settings that are none of the task's.
    """
    if config.multi_label or config.regression:
        raise UserError("the baselines are for one class a text", "command line", "leave it out")
    train, test = (Cls(config).read(name, gold=True).examples for name in (train_file, test_file))
    task = Cls(config).settled(train)
    task.check(train)
    task.check(test)
    gold, known = ([task.label_ids[str(example.label)] for example in part] for part in (test, train))
    splitter = WordSplitter(lowercase=True)
    words: dict[str, Any] = {"tokenizer": splitter.split, "lowercase": False, "token_pattern": None}
    counter = CountVectorizer(**words, ngram_range=(1, 2))
    bayes = MultinomialNB().fit(counter.fit_transform(map(joined, train)), known)
    majority = max(sorted(set(known)), key=known.count)
    found = {
        f"majority ({task.labels[majority]})": [majority] * len(gold),
        "naive Bayes, words and pairs": bayes.predict(counter.transform(map(joined, test))).tolist(),
    }
    size = f"{len(train)} rows to learn from, {len(test)} to measure on, {len(task.labels)} classes"
    return size, {name: score_classes(gold, guess, len(task.labels)) for name, guess in found.items()}


def main() -> None:
    """Read, count, print the table."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        config = resolve(ClsConfig, ("command line", settings_of(sys.argv[3:])))
        size, found = guesses(Path(sys.argv[1]), Path(sys.argv[2]), config)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{size}\n\n| baseline | accuracy | macro F1 |\n|---|---|---|")
    for name, scores in found.items():
        print(f"| {name} | {scores['accuracy']:.4f} | {scores['macro_f1']:.4f} |")


if __name__ == "__main__":
    main()
