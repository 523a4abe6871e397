"""What comes out of a run: answers to look at, which seed is kept, and the scores as people read them."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minibert.atomic import remove
from minibert.run_folder import publish
from minibert.tasks.base import Prediction, Table
from minibert.tasks.data import AnyTask
from minibert.training.best import Best

MISTAKES_KEPT, LONGEST_SHOWN = 30, 600  # of a part, in answers.json; characters of a text there


def answers(
    task: AnyTask, examples: Sequence[Any], predictions: Sequence[Prediction], tables: Sequence[Table]
) -> dict[str, Any]:
    """What answers.json says of a part: the task's tables, and the records that are answered otherwise than wanted."""
    wrong = task.mistakes(examples, predictions)
    return {
        "tables": [asdict(table) for table in tables],
        "records": len(examples),
        "wrong": len(wrong),
        "mistakes": [asdict(mistake.shortened(LONGEST_SHOWN)) for mistake in wrong[:MISTAKES_KEPT]],
    }


def choose(task: AnyTask, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """metrics.json: the scores of the seed that is kept, and of all of them with mean and deviation."""
    best = Best(task.config.best or task.metric_names[0])
    kept = results[0]
    for result in results:
        if "dev" in result and best.better(result["dev"][best.metric], result["seed"]):
            kept = result
    metrics = {"task": task.name, **kept, "seeds": list(results)}
    if len(results) > 1:
        for word, over in (("mean", statistics.fmean), ("deviation", statistics.stdev)):
            metrics[word] = {
                name: {key: over([r[name][key] for r in results]) for key in results[0][name]}
                for name in ("dev", "test")
                if name in results[0]
            }
    return metrics


def keep_best_seed(out: Path, seed: int) -> None:
    """The model and the log of one seed to the top of the run; the others' models go, their logs and scores stay."""
    publish(out, lambda target: copy_model(out / "seeds" / str(seed), target, without=("metrics.json",)))
    for folder in (out / "seeds").iterdir():
        for path in folder.iterdir():
            if path.name not in ("log.jsonl", "metrics.json", "answers.json"):
                remove(path)


def copy_model(source: Path, target: Path, without: Sequence[str] = ()) -> None:
    """The files of a checkpoint, without the folder that training goes on from."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file() and path.name not in without:
            shutil.copyfile(path, target / path.name)


def which_is_kept(metrics: Mapping[str, Any]) -> str:
    """The model that is kept, in words: "epoch 2 of 3 (step 14), seed 1"; "" where there was no choice."""
    chosen = []
    if metrics["best_metric"]:
        epochs = metrics["best_epoch"] * metrics["steps"] / max(metrics["best_step"], 1)
        chosen.append(f"epoch {metrics['best_epoch']:g} of {epochs:.3g} (step {metrics['best_step']:,})")
    if len(metrics["seeds"]) > 1:
        chosen.append(f"seed {metrics['seed']}")
    return ", ".join(chosen)


def in_rows(metrics: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The scores as a table for people: its columns and its rows."""
    parts = [name for name in ("dev", "test") if name in metrics]
    if not parts:
        return [""], [["nothing was measured: add --dev FILE or --test FILE"]]
    rows = []
    for key in dict.fromkeys(key for name in parts for key in metrics[name]):
        row = [key]
        for name in parts:
            value = metrics[name].get(key)
            row.append("" if value is None else f"{value:.4g}")
            if "mean" in metrics:
                mean, deviation = metrics["mean"][name].get(key), metrics["deviation"][name].get(key)
                row.append("" if mean is None else f"{mean:.4g} +- {deviation:.2g}")
        rows.append(row)
    spread = [f"mean of {len(metrics['seeds'])} seeds"] if "mean" in metrics else []
    return ["", *(column for name in parts for column in (name, *spread))], rows
