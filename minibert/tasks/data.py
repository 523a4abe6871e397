"""Labelled files as a task's examples and features, and what there is to say of them before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minibert.console import Console
from minibert.corpus.read import doubts
from minibert.errors import UserError
from minibert.tasks.base import Feature, Reading, Task

if TYPE_CHECKING:
    from minibert.tokenization.tokenizer import BertTokenizer

AnyTask = Task[Any, Any]


@dataclass
class Part:
    """One labelled file: train, dev or test."""

    name: str
    path: Path
    reading: Reading[Any]
    features: list[Feature]


def read_parts(
    task: AnyTask, paths: Mapping[str, Path | None], tokenizer: BertTokenizer
) -> tuple[AnyTask, dict[str, Part]]:
    """The files read and encoded, and the task with what the training file decides."""
    readings = {
        name: task.read(path, gold=True, train=name == "train") for name, path in paths.items() if path is not None
    }
    for name, reading in readings.items():
        if not reading.examples:
            raise UserError(
                f"holds nothing to {'learn' if name == 'train' else 'measure'}", where=str(paths[name]),
                fix="give a file with labelled records",
            )  # fmt: skip
    task = task.settled(readings["train"].examples)
    parts = {}
    for name, reading in readings.items():
        path = paths[name]
        assert path is not None
        task.check(reading.examples)
        encoded = task.encode(reading.examples, tokenizer, gold=True)
        reading.notes += encoded.notes
        if name == "train":
            reading.skipped += [{**item, "where": f"{path.name}, {item['where']}"} for item in encoded.skipped]
        parts[name] = Part(name, path, reading, encoded.features)
    if not any(feature.target is not None for feature in parts["train"].features):
        raise UserError("nothing in there can be learnt from", where=str(paths["train"]))
    return task, parts


def check_choice(task: AnyTask, parts: Mapping[str, Part]) -> None:
    """Refuse, before training, what could not choose a model after it."""
    config = task.config
    names = (*task.metric_names, "loss")
    if config.best and config.best not in names:
        raise UserError(
            f"there is no metric {config.best!r}", where="--best", fix=f"one of {', '.join(dict.fromkeys(names))}"
        )
    if "dev" not in parts:
        for name, asked in (("--best", config.best), ("--patience", config.patience), ("--seeds", config.seeds > 1)):
            if asked:
                raise UserError("needs a dev set to choose with", where=name, fix="add --dev FILE, or leave it out")


def describe(task: AnyTask, parts: Mapping[str, Part], tokenizer: BertTokenizer) -> dict[str, Any]:
    """What data.json says."""
    found: dict[str, Any] = {"task": task.name, "labels": list(task.labels)}
    for name, part in parts.items():
        lengths = np.array([len(feature.ids) for feature in part.features])
        ids = np.concatenate([feature.ids for feature in part.features])
        found[name] = {
            "file": str(part.path), "examples": len(part.reading.examples), "rows": len(lengths),
            "tokens": int(lengths.sum()), "longest": int(lengths.max()), "mean_length": float(lengths.mean()),
            "unknown_rate": float((ids == tokenizer.unk_token_id).mean()), "notes": part.reading.notes,
            "skipped": part.reading.skipped, "repaired": part.reading.repaired,
        }  # fmt: skip
    found["rows_decoded"] = [tokenizer.decode(f.ids, skip_special_tokens=False) for f in parts["train"].features[:3]]
    return found


def show_data(task: AnyTask, parts: Mapping[str, Part], facts: Mapping[str, Any], console: Console) -> None:
    """The data in words, before training."""
    rows = []
    for name, part in parts.items():
        said = facts[name]
        more = "" if said["rows"] == said["examples"] else f" in {said['rows']:,} rows"
        rows.append(
            (name, (f"{said['examples']:,} examples{more}, {said['mean_length']:.0f} tokens a row, "
             f"longest {said['longest']}, {said['unknown_rate']:.2%} unknown: {part.path}"))
        )  # fmt: skip
    if task.labels:
        shown = ", ".join(task.labels[:12]) + (f" ... {len(task.labels)} in all" if len(task.labels) > 12 else "")
        rows.append(("labels", shown))
    if facts["rows_decoded"]:
        first = facts["rows_decoded"][0]
        rows.append(("a row", first[:160] + (" ..." if len(first) > 160 else "")))
    console.table("data", rows)
    for part in parts.values():
        if part.name != "train" and part.path.samefile(parts["train"].path):
            console.warn(f"{part.name} is the training file: what is measured there says nothing of other text")
        for doubt in doubts([part.path], task.config.encoding):
            console.warn(doubt)
        for note in part.reading.notes:
            console.say(f"  {part.path.name}: {note}")
        for what, records in (("skipped", part.reading.skipped), ("repaired", part.reading.repaired)):
            if records:
                console.warn(
                    f"{part.path.name}: {len(records):,} {what}; the first: {records[0]['where']}: "
                    f"{records[0]['reason']} (all of them: data.json)"
                )
        if facts[part.name]["unknown_rate"] > 0.05:
            console.warn(
                f"{part.path.name}: {facts[part.name]['unknown_rate']:.0%} of the tokens are unknown to this "
                "checkpoint's vocabulary; is it one for another language?"
            )
