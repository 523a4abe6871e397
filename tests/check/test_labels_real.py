"""Clean real data raise no doubtful finding. The thresholds were measured on the whole of them; here is a part."""

import csv
import json
from pathlib import Path

import pytest

from minibert.check.labels import check_labels
from minibert.tasks import find_tasks
from minibert.tokenization.tokenizer import BertTokenizer

PARTS = ("train", "dev", "test")
MOST_LINES = 12_000  # of a file of tags
MOST_ROWS = 2500


def beginning(path: Path, target: Path) -> Path:
    """Some records of a file."""
    target = target / path.name
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file, target.open("w", encoding="utf-8", newline="") as out:
            header, *rows = csv.reader(file)
            csv.writer(out).writerows([header, *rows[:: -(-len(rows) // MOST_ROWS)]])  # they may be sorted by label
        return target
    lines = path.read_text("utf-8").split("\n")[:MOST_LINES]
    while lines[-1].strip():
        lines.pop()
    target.write_text("\n".join(lines) + "\n", "utf-8")
    return target


def articles(path: Path, target: Path) -> dict[str, Path]:
    """A file of questions, split as scripts/split_squad.py splits it: of eight articles one for test, one for dev."""
    data = json.loads(path.read_text("utf-8"))["data"]
    parts = {}
    for name, chosen in (("train", range(2, 8)), ("dev", [1]), ("test", [0])):
        parts[name] = target / f"{name}.json"
        found = [article for i, article in enumerate(data) if i % 8 in chosen]
        parts[name].write_text(json.dumps({"data": found}), "utf-8")
    return parts


@pytest.mark.parametrize(
    ("task", "place", "vocabulary"),
    [
        ("ner", "wnut17", "cased_en"), ("ner", "zh/people_daily", "zh"), ("cls", "en/bbc", "uncased_en"),
        ("cls", "zh/reviews", "zh"), ("qa", "en", "uncased_en"), ("qa", "zh", "zh"),
    ],
    ids=["wnut17", "people_daily", "bbc", "reviews", "xquad_en", "xquad_zh"],
)  # fmt: skip
def test_clean_real_data_are_not_doubtful(root, shared, tmp_path, task, place, vocabulary):
    if task == "qa":
        parts = articles(shared / "data" / "xquad" / f"xquad.{place}.json", tmp_path)
    else:
        folder = (shared if place == "wnut17" else root) / "data" / place
        if not folder.is_dir():
            pytest.skip(f"no data/{place}: scripts/real_data.py brings it")
        suffix = "conll" if task == "ner" else "csv"
        parts = {name: beginning(folder / f"{name}.{suffix}", tmp_path) for name in PARTS}
    tokenizer = BertTokenizer.from_pretrained(shared / "data" / "vocab" / f"{vocabulary}.txt")
    checked = check_labels(task, find_tasks()[task].Config(), tokenizer=tokenizer, **parts)
    assert [(f.kind, f.message.en) for f in checked.findings if f.level == "doubtful"] == []
