#!/usr/bin/env python3
"""What a small budget of pre-training is worth: pre-train, fine-tune on a fixed panel, one table of test scores.

    scripts/quality --arms classic base --minutes 5 15 30 [--members ner-2000 bbc-500] [--json FILE] [--plot FILE.svg]
    scripts/quality --pairs cls pooling                       the controlled pairs of that name, with their own budget

Arms, pairs and the panel stand in scripts/_quality.toml. A budget is minutes of two cores, counted as processor time of
the training alone, so that it is the same whatever else the machine does (--jobs 2 trains two models on a core each,
twice as long); or --tokens. Fine-tuning: for each member of the panel dev chooses the rate with the first seed, then
all seeds train with it. Data: scripts/real_data.py en zh models; what is not there is left out by name.

Every run has a folder of its own in --work, named after all its settings: one that is there is not made again, one that
was stopped goes on. --plot draws score against minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from _bench_common import ROOT, machine, run_main, table, versions
from _quality_data import corpus_files, panel_files

from minibert.atomic import write_json
from minibert.config import PretrainConfig, load_recipe, resolve, tomllib
from minibert.console import Console
from minibert.corpus.read import fingerprint
from minibert.errors import UserError
from minibert.pretrain import pretrain
from minibert.tasks.cls_rows import ClsConfig

SCRIPTS = Path(__file__).resolve().parent
CORES = 2  # that a minute of the budget stands for
LANGUAGES = ("zh", "en")
BASELINES = ("majority", "naive Bayes")
RECIPE = {"en": "mini", "zh": "mini-zh"}  # of an arm that names none


def short_hash(value: Any) -> str:
    """Names a run by everything that decides it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    flags = []
    for name, value in settings.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            flags += [f"--{dashed}", str(value)]
    return flags


@dataclass(frozen=True)
class Budget:
    """How long to pre-train: minutes of two cores, or tokens."""

    minutes: float = 0.0
    tokens: float = 0.0

    def __str__(self) -> str:
        tokens = f"{self.tokens / 1e6:g} M tokens" if self.tokens else ""
        return f"{self.minutes:g} min" if self.minutes else tokens


@dataclass
class Work:
    """Where everything is, and how much runs at once."""

    data: Path
    place: Path
    jobs: int
    threads: int
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = threading.Semaphore(self.jobs)
        self.naming, self.planning = threading.Lock(), threading.Lock()
        self.named: dict[str, Path] = {}
        self.making: dict[str, threading.Lock] = defaultdict(threading.Lock)  # two arms may want the same run

    def folder(self, kind: str, name: str, key: Any) -> Path:
        """Of a run: the one with the same settings, whatever arm has made it, else one of this name."""
        number = short_hash(key)
        with self.naming:
            if number not in self.named:
                there = next((self.place / kind).glob(f"*-{number}/"), None)
                self.named[number] = there or self.place / kind / f"{name}-{number}"
            return self.named[number]

    def run(self, out: Path, command: Sequence[str | Path]) -> dict[str, Any] | None:
        """Run a command that ends with out/metrics.json, unless it is there. Returns its content; None if it failed."""
        with self.making[out.name.rpartition("-")[2]]:
            return self._run(out, command)

    def _run(self, out: Path, command: Sequence[str | Path]) -> dict[str, Any] | None:
        done = out / "metrics.json"
        if not done.is_file():
            out.parent.mkdir(parents=True, exist_ok=True)
            log = out.parent / f"{out.name}.log"
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": str(self.threads),
                "MINIBERT_CACHE": str(self.place / "cache"),
            }
            with self.slots, log.open("a", encoding="utf-8") as file:
                print(f"  {out.relative_to(self.place)}", file=sys.stderr, flush=True)
                code = subprocess.call(
                    [sys.executable, *map(str, command)], stdout=file, stderr=file, env=environment, cwd=SCRIPTS
                )
            if code or not done.is_file():
                self.failed.append(f"{out.relative_to(self.place)}: exit code {code}; see {log}")
                print(f"  failed: {self.failed[-1]}", file=sys.stderr, flush=True)
                return None
        found: dict[str, Any] = json.loads(done.read_text("utf-8"))
        return found


def minibert(out: Path, variants: Mapping[str, Any], *command: str | Path) -> list[str | Path]:
    """A command of minibert with experiments switched on; one that was stopped goes on."""
    resume = ["--resume"] if (out / "settings.json").is_file() else []
    return [SCRIPTS / "_quality_run.py", json.dumps(dict(variants)), *command, "--out", out, "--quiet", *resume]


def said_of(config: PretrainConfig) -> dict[str, Any]:
    """The settings that are not the defaults: a setting that is new changes no run's name."""
    return {
        each.name: getattr(config, each.name) for each in fields(config) if getattr(config, each.name) != each.default
    }


# ---- pre-training


def encoder(
    work: Work, name: str, arm: Mapping[str, Any], language: str, corpus: Sequence[Path], budget: Budget, seed: int
) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint of an arm for a language, made if need be, and the metrics of its making; None without one."""
    kind = arm.get("kind", "minibert")
    if kind == "checkpoint":
        place = work.data / arm["place"].get(language, "-")
        return (place, {}) if place.is_dir() else None
    text = fingerprint(list(corpus))
    if kind == "trainer":
        made = encoder(work, "scratch", {"kind": "scratch"}, language, corpus, budget, seed)
        if made is None:
            return None
        key = {"kind": kind, "text": text, "minutes": budget.minutes, "tokens": budget.tokens, "seed": seed}
        out = work.folder("pretrain", f"{name}-{language}", key)
        length_of_it = [CORES * budget.minutes, budget.tokens]
        found = work.run(out, [SCRIPTS / "_quality_trainer.py", out, made[0], *length_of_it, seed, *corpus])
        return None if found is None else (out, found)
    settings = {**arm.get("set", {}), "seed": seed}
    named = arm.get("recipe", RECIPE)[language]
    recipe = load_recipe(named, "pretrain")
    if kind in ("scratch", "untrained"):  # of scratch, shape and vocabulary alone are used
        length: dict[str, Any] = {"steps": 1, "lr": 1e-12, "muon_lr": 1e-12}
    elif budget.minutes:
        length = {"minutes": CORES * budget.minutes}
    else:
        length = {"steps": steps_of(work, recipe, settings, corpus, budget.tokens)}
    whole = resolve(PretrainConfig, recipe, ("quality", {**settings, **length}))
    variants = arm.get("variants", {})
    key = {"kind": kind, "text": text, "settings": said_of(whole), "variants": variants}
    out = work.folder("pretrain", f"{name}-{language}", key)
    flags = as_flags({**settings, **length})
    found = work.run(out, minibert(out, variants, "pretrain", *corpus, "--recipe", named, *flags))
    return None if found is None else (out, found)


def steps_of(
    work: Work,
    recipe: tuple[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    corpus: Sequence[Path],
    tokens: float,
) -> int:
    """Optimizer steps that see about so many tokens, by the mean length of an example."""
    config = resolve(PretrainConfig, recipe, ("quality", {**settings, "steps": 1}))
    place = work.place / "dry" / short_hash([vars(config), fingerprint(list(corpus))])
    with work.planning:  # accelerate has one state for all threads
        if not place.is_file():
            silent = Console(silent=True)
            facts = pretrain(corpus, place, config, dry_run=True, cache=work.place / "cache", console=silent)
            write_json(place, facts["mean_example_length"])
    length: float = json.loads(place.read_text("utf-8"))
    return max(1, round(tokens / (length * config.batch_size)))


# ---- fine-tuning


def finetuned(
    work: Work, model: Path, arm: Mapping[str, Any], member: Mapping[str, Any], files: Mapping[str, Path], rate: float,
    seed: int,
) -> dict[str, Any] | None:  # fmt: skip
    """One fine-tuning: its metrics.json."""
    settings = {**member["settings"], "lr": rate, "seed": seed}
    if arm.get("kind") == "scratch":
        settings["scratch"] = True
    variants = arm.get("finetune_variants", {})
    digest = fingerprint(list(files.values()))
    key = {"model": str(model.name), "data": digest, "settings": settings, "variants": variants}
    out = work.folder("finetune", f"{member['name']}-{model.name}", key)
    command = ["finetune", "--task", member["task"], "--model", model]
    for part, path in files.items():
        command += [f"--{part}", path]
    found = work.run(out, minibert(out, variants, *command, *as_flags(settings)))
    for path in out.glob("model.safetensors"):
        path.unlink()  # the scores are what is wanted; weights of hundreds of runs fill a disk
    return found


def judge(
    work: Work, model: Path, arm: Mapping[str, Any], member: Mapping[str, Any], files: Mapping[str, Path],
    seeds: Sequence[int], *, grid: bool,
) -> dict[str, Any] | None:  # fmt: skip
    """An encoder on a member of the panel. Returns: the rate that dev chose, and each seed's test score."""
    metric, rates = member["metric"], member["rates"] if grid else [member["rate"]]
    with ThreadPoolExecutor(len(rates)) as pool:
        tried = list(pool.map(lambda rate: finetuned(work, model, arm, member, files, rate, seeds[0]), rates))
    by_rate = {rate: found for rate, found in zip(rates, tried, strict=True) if found is not None}
    if not by_rate:
        return None
    rate = max(by_rate, key=lambda each: by_rate[each]["dev"][metric])
    with ThreadPoolExecutor(max(1, len(seeds) - 1)) as pool:
        others = list(pool.map(lambda seed: finetuned(work, model, arm, member, files, rate, seed), seeds[1:]))
    found = [by_rate[rate], *(each for each in others if each is not None)]
    return {
        "rate": rate, "test": [each["test"][metric] for each in found], "dev": [each["dev"][metric] for each in found],
        "best_epoch": [each["best_epoch"] for each in found],
        "tried": {f"{each:g}": round(by_rate[each]["dev"][metric], 4) for each in by_rate},
    }  # fmt: skip


# ---- what comes of it


def in_words(scores: Sequence[float]) -> str:
    """Mean and deviation, in percent."""
    deviation = f" ± {100 * statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{100 * statistics.mean(scores):.1f}{deviation}"


def draw(rows: Sequence[Mapping[str, Any]], members: Sequence[str], path: Path) -> None:
    """Score against minutes, a picture for each member of the panel."""
    from matplotlib.figure import Figure

    columns = min(3, len(members))
    lines = -(-len(members) // columns)
    figure = Figure(figsize=(4 * columns, 3 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    for axis in axes[len(members) :]:
        axis.set_visible(False)
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    for axis, member in zip(axes, members, strict=False):
        axis.set_title(member, fontsize=10)
        axis.set_xlabel("minutes of two cores")
        for number, arm in enumerate(arms):
            points = [
                (row["minutes"], row["scores"][member]["test"])
                for row in rows
                if row["arm"] == arm and member in row["scores"]
            ]
            timed = sorted(point for point in points if point[0])
            if timed:
                x = [minutes for minutes, _ in timed]
                y = [100 * statistics.mean(test) for _, test in timed]
                error = [100 * statistics.stdev(test) if len(test) > 1 else 0.0 for _, test in timed]
                axis.errorbar(x, y, yerr=error, marker="o", markersize=4, capsize=2, color=f"C{number}", label=arm)
            elif points:
                axis.axhline(
                    100 * statistics.mean(points[0][1]), linestyle="--", linewidth=1, color=f"C{number}", label=arm
                )
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(6, max(1, len(handles))), fontsize=9
    )
    figure.savefig(path, metadata={"Date": None})


def baselines(member: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, float]:
    """What a model has to beat without any network."""
    from baseline_cls import guesses

    if member["task"] != "cls":
        return {}
    _, found = guesses(files["train"], files["test"], resolve(ClsConfig))
    return {name: scores[member["metric"]] for name, scores in zip(BASELINES, found.values(), strict=True)}


def main() -> None:
    """Parse, run what is missing, print the table."""
    declared = tomllib.loads((SCRIPTS / "_quality.toml").read_text("utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", default=[], metavar="NAME", choices=list(declared["arms"]))
    parser.add_argument("--pairs", nargs="+", default=[], metavar="NAME", choices=list(declared.get("pairs", {})))
    parser.add_argument("--minutes", nargs="+", type=float, default=[5.0], help="of two cores [default: 5]")
    parser.add_argument("--tokens", nargs="+", type=float, default=[], help="to see, instead of minutes")
    parser.add_argument(
        "--members", nargs="+", default=list(declared["panel"]), choices=list(declared["panel"]), metavar="NAME"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of fine-tuning [default: 3]")
    parser.add_argument("--pretrain-seed", type=int, default=0)
    parser.add_argument(
        "--one-rate", action="store_true", help="each member's middle rate for all, instead of dev's choice"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time [default: 1]")
    parser.add_argument("--threads", type=int, default=0, help="of each run [default: two, shared out among the jobs]")
    parser.add_argument("--data", type=Path, default=ROOT / "data", metavar="DIR", help="[default: data/]")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "runs" / "quality", metavar="DIR", help="[default: runs/quality]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, with the machine and the settings")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="score against minutes")
    args = parser.parse_args()
    work = Work(args.data.resolve(), args.work.resolve(), args.jobs, args.threads or max(1, CORES // args.jobs))
    panel = {}
    for name in args.members:
        member = {"name": name, **declared["panel"][name]}
        member.setdefault("rate", member["rates"][len(member["rates"]) // 2])
        files = panel_files(work.data, work.place, member)
        if files is None:
            print(f"{name}: left out, {work.data / member['source']} is not there", file=sys.stderr)
        else:
            panel[name] = (member, files)
    corpora = {language: corpus_files(work.data, work.place, declared["text"][language]) for language in LANGUAGES}

    wanted: list[tuple[str, Budget]] = []
    budgets = [Budget(tokens=n) for n in args.tokens] or [Budget(minutes=n) for n in args.minutes]
    for name in args.arms:
        timed = declared["arms"][name].get("kind", "minibert") in ("minibert", "trainer")
        wanted += [(name, budget) for budget in (budgets if timed else [Budget()])]
    for pair in args.pairs:
        wanted += [
            (name, Budget(minutes=declared["pairs"][pair]["minutes"])) for name in declared["pairs"][pair]["arms"]
        ]

    def row_of(entry: tuple[str, Budget]) -> dict[str, Any]:
        name, budget = entry
        arm = declared["arms"][name]
        row: dict[str, Any] = {"arm": name, "budget": str(budget), "minutes": budget.minutes, "tokens": budget.tokens}
        row |= {"pretraining": {}, "scores": {}}

        def one_language(language: str) -> None:
            mine = {key: value for key, value in panel.items() if value[0]["language"] == language}
            text = [*corpora[language]]
            if "text" in arm:
                text = corpus_files(work.data, work.place, arm["text"][language])
            if not mine or not text:
                return
            made = encoder(work, name, arm, language, text, budget, args.pretrain_seed)
            if made is None:
                return
            model, row["pretraining"][language] = made[0], made[1]
            with ThreadPoolExecutor(len(mine)) as pool:
                judged = pool.map(
                    lambda value: judge(work, model, arm, *value, range(args.seeds), grid=not args.one_rate),
                    mine.values(),
                )
                row["scores"] |= {key: found for key, found in zip(mine, judged, strict=True) if found is not None}

        with ThreadPoolExecutor(len(LANGUAGES)) as pool:
            list(pool.map(one_language, LANGUAGES))
        return row

    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        rows = list(pool.map(row_of, dict.fromkeys(wanted)))
    for name, (member, files) in panel.items():
        for label, score in baselines(member, files).items():
            row = next((each for each in rows if each["arm"] == label), None)
            if row is None:
                row = {"arm": label, "budget": "", "minutes": 0.0, "tokens": 0.0, "pretraining": {}, "scores": {}}
                rows.append(row)
            row["scores"][name] = {"test": [score]}
    cells = [
        [row["arm"], row["budget"], *(in_words(row["scores"][m]["test"]) if m in row["scores"] else "" for m in panel)]
        for row in rows
    ]
    table(["", "budget", *panel], cells)
    if args.json:
        found = {
            "machine": machine(), "versions": versions("minibert", "torch", "transformers"), "threads": work.threads,
            "jobs": work.jobs, "settings": declared, "rows": rows, "failed": work.failed,
        }  # fmt: skip
        args.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if args.plot:
        draw(rows, list(panel), args.plot)
    if work.failed:
        raise UserError(f"{len(work.failed)} runs failed", fix="look at " + "; ".join(work.failed))


if __name__ == "__main__":
    run_main(main)
