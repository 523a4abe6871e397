#!/usr/bin/env python3
"""Split a file in SQuAD's format by article: no article stands in two parts.

    scripts/split_squad.py xquad.en.json --out data/en/xquad      writes train.json, dev.json, test.json

Articles are numbered; of every eight the first is for test, the second for dev, the others for training. A translation
with the same order of articles (XQuAD) is split alike.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def part_of(number: int) -> str:
    """The part that an article belongs to."""
    return {0: "test", 1: "dev"}.get(number % 8, "train")


def main() -> None:
    """Read, split, write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    content = json.loads(args.file.read_text("utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)
    for part in ("train", "dev", "test"):
        articles = [article for i, article in enumerate(content["data"]) if part_of(i) == part]
        questions = sum(len(paragraph["qas"]) for article in articles for paragraph in article["paragraphs"])
        text = json.dumps({"version": content.get("version", ""), "data": articles}, ensure_ascii=False)
        (args.out / f"{part}.json").write_text(text + "\n", "utf-8")
        print(f"{part}: {len(articles)} articles, {questions} questions")


if __name__ == "__main__":
    main()
