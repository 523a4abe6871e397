#!/usr/bin/env python3
"""Every benchmark beside its peers on this machine, in one table, with all figures in one JSON file.

    scripts/bench [CORPUS...] [--only pretrain,predict,...] [--quick] [--json FILE] [--model CHECKPOINT]

  pretrain    tokens a second of a pre-training step, of a small BERT and of BERT-base    (bench_pretrain.py)
  finetune    examples a second of fine-tuning                                            (bench_finetune.py)
  predict     examples a second of prediction, raw text to answers                        (bench_finetune.py)
  data        MB of raw text a second into the token store                                (bench_data.py)
  vocab       MB of raw text a second into a vocabulary                                   (bench_vocab.py)
  start       seconds to the first step, to one prediction, to the help                   (bench_start.py)
  memory      peak memory of a step of BERT-base, and whether much text needs more        (bench_step_memory.py,
                                                                                           bench_memory.py)

Contestants take turns within a part; a ratio is the median of the rounds, lowest and highest beside it. Each part is a
script with more options of its own. Without CORPUS the text is what scripts/real_data.py en has brought, else text is
made up, the same every time. What a part lacks is named under the table; if one fails, the others go on and the exit
code is 1. Leave the machine alone meanwhile: the table says which parts found it busy.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import bench_pretrain as pre
import bench_start
import bench_step_memory as step_memory
from _bench_common import BUSY, ROOT, SHARED_VOCABULARY, cores, machine, medians, ratio, report, spread, table, versions

SCRIPTS = Path(__file__).resolve().parent
KINDS = ("pretrain", "finetune", "predict", "data", "vocab", "start", "memory")
PACKAGES = ("minibert", "torch", "transformers", "datasets", "tokenizers", "accelerate")
SHARED = SHARED_VOCABULARY.parent.parent
REAL_TEXT = ROOT / "data/en/bbc/raw.txt"
CHECKPOINT = ROOT / "data/models/minilm"
LABELLED = {  # what there may be, of every kind the best first
    "cls": (ROOT / "data/en/bbc/train.csv", ROOT / "data/zh/reviews/train.csv"),
    "ner": (SHARED / "wnut17/train.conll", ROOT / "data/zh/people_daily/train.conll"),
    "qa": (SHARED / "xquad/xquad.en.json",),
}
BASE = 12, 768  # layers, width
PRETRAIN_GOALS = {(4, 256): (4.0, 0.45), BASE: (2.0, 0.6)}  # times the Trainer, share of the machine
STEP_MEMORY_GOAL = 0.6  # of the Trainer's, for BASE
Found = dict[str, Any]  # a part's JSON
TAIL = 15  # lines of a failed part that are shown


@dataclass(frozen=True)
class Goal:
    """What the project wants of a row."""

    of: str  # ratio, ours, share
    limit: float
    most: bool = False  # the limit is the highest, not the lowest

    def text(self, unit: str) -> str:
        """For people."""
        sign = "<=" if self.most else ">="
        return f"{sign} {self.limit:g}x" if self.of == "ratio" else f"{sign} {self.limit:g} {unit}"

    def reached(self, row: Row) -> bool:
        """Whether the median is as wanted."""
        value = row.ratio["median"] if self.of == "ratio" and row.ratio else row.ours
        return value <= self.limit if self.most else value >= self.limit


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table. ratio: minibert over its peer, or of seconds the peer's over minibert's: how much faster."""

    part: str
    measure: str
    ours: float
    unit: str
    peer: str = ""
    theirs: float | None = None
    ratio: dict[str, float] | None = None
    goal: Goal | None = None
    share: float | None = None  # of the machine
    peer_share: float | None = None
    share_goal: float | None = None


@dataclass(frozen=True)
class Part:
    """A script, and how to read its JSON."""

    kind: str
    name: str
    script: Path
    options: Sequence[str]
    rows: Callable[[Found], list[Row]]
    missing: str = ""  # what it lacks, with what brings it


@dataclass
class Outcome:
    """What came of the parts."""

    rows: list[Row] = field(default_factory=list)
    parts: dict[str, Found] = field(default_factory=dict)  # name -> the part's JSON, and what went with it
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)


# ---- rows from the parts' JSON


def compared(
    rounds: Mapping[str, Sequence[Mapping[str, Any]]], ours: str, peer: str, key: str, *, faster: bool = False
) -> dict[str, Any]:
    """What a row says of two contestants. faster: the figures are times, and the ratio is how much shorter ours are."""
    mine, other = rounds[ours], rounds[peer]
    return {
        "ours": medians(mine, key), "peer": peer, "theirs": medians(other, key),
        "ratio": ratio(other, mine, key) if faster else ratio(mine, other, key),
    }  # fmt: skip


def pretrain_rows(found: Found) -> list[Row]:
    """Both sizes: the Trainer in both precisions, transformers' model in minibert's loop; what loading takes."""
    settings, rounds, shares = found["settings"], found["rounds"], found["shares"]
    size = settings["layers"], settings["hidden_size"]
    least, share = PRETRAIN_GOALS.get(size, (None, None))
    name = "pre-training, {} layers of {}".format(*size)
    rows = []
    for peer in (name for name in rounds if name not in (pre.OURS, pre.OURS_DROPOUT)):
        for ours in (pre.OURS, pre.OURS_DROPOUT) if peer == pre.TRAINER else (pre.OURS,):
            main = (ours, peer) == (pre.OURS, pre.TRAINER)
            rows.append(
                Row(
                    part="pretrain", measure=name + ours.removeprefix(pre.OURS), unit="tokens/s",
                    **compared(rounds, ours, peer, "tokens_per_second"), share=shares[ours], peer_share=shares[peer],
                    goal=Goal("ratio", least) if main and least else None, share_goal=share if main else None,
                )
            )  # fmt: skip
    loading = Row(
        part="pretrain", measure=f"{name}: loading, of a step's time", ours=100 * found["loading_share"], unit="%",
        goal=Goal("ours", 3.0, most=True),
    )  # fmt: skip
    return [*rows, loading]


def contest_rows(found: Found, kind: str) -> list[Row]:
    """Fine-tuning (kind training) or prediction, on each data set, against each peer of the same precision."""
    rows = []
    for data, both in found["data"].items():
        for peer, ratios in both[kind]["ratios"].items():
            for ours in ratios:
                goal = Goal("ratio", 3.0 if ", batch 1," in peer else 1.5) if kind == "prediction" else None
                rows.append(
                    Row(
                        part="predict" if kind == "prediction" else "finetune",
                        measure=f"{'prediction' if kind == 'prediction' else 'fine-tuning'}, {data}"
                        + ours.removeprefix("minibert"),
                        unit="examples/s", **compared(both[kind]["rounds"], ours, peer, "examples_per_second"),
                        goal=goal,
                    )
                )  # fmt: skip
    return rows


def text_rows(found: Found, kind: str, measure: str, goal: Goal | None = None) -> list[Row]:
    """MB of text a second, or seconds where a script says no speed: minibert's first contestant against the others.

    Names may begin with a group ("8,000: minibert"), within which contestants are compared.
    """
    rows = []
    groups: dict[str, dict[str, Any]] = {}
    for name, results in found["rounds"].items():
        group, _, contestant = name.rpartition(": ")
        groups.setdefault(group, {})[contestant] = results
    for group, rounds in groups.items():
        ours = next(name for name in rounds if name.startswith("minibert"))
        speed = "mb_per_second" in rounds[ours][0]
        key, unit = ("mb_per_second", "MB/s") if speed else ("seconds", "s")
        what = measure + (f", {group}" if group else "") + ours.removeprefix("minibert")
        rows.append(Row(part=kind, measure=what, ours=medians(rounds[ours], key), unit=unit, goal=goal))
        for peer in (name for name in rounds if not name.startswith("minibert")):
            rows.append(Row(part=kind, measure=what, unit=unit, **compared(rounds, ours, peer, key, faster=not speed)))
    return rows


def start_rows(found: Found) -> list[Row]:
    """Pre-training's start, cold and again, and the short commands."""
    rows = []
    for what, rounds, peers, goals in (
        (
            "start: first step of pre-training, ", found["rounds"],
            {name: f"{bench_start.TRAINER}, {name}" for name in bench_start.GOAL}, bench_start.GOAL,
        ),
        ("start: ", found["commands"], {bench_start.PREDICT: bench_start.PIPELINE}, bench_start.COMMAND_GOAL),
    ):  # fmt: skip
        for name, limit in goals.items():
            figures: dict[str, Any] = {"ours": medians(rounds[name], "seconds")}
            if peers.get(name) in rounds:
                figures = compared(rounds, name, peers[name], "seconds", faster=True)
            goal = Goal("ours", limit, most=True)
            rows.append(Row(part="start", measure=what + name, unit="s", **figures, goal=goal))
    return rows


def step_memory_rows(found: Found) -> list[Row]:
    """Peak of a step, as it is and with gradient checkpointing."""
    settings, rounds = found["settings"], found["rounds"]
    size = settings["layers"], settings["hidden_size"]
    name = "peak memory of a step, {} layers of {}".format(*size)
    return [
        Row(
            part="memory", measure=name + ours.removeprefix(step_memory.OURS), unit="MB",
            **compared(rounds, ours, step_memory.TRAINER, "peak"),
            goal=Goal("ratio", STEP_MEMORY_GOAL, most=True) if ours == step_memory.OURS and size == BASE else None,
        )
        for ours in (step_memory.OURS, step_memory.OURS_LESS)
    ]  # fmt: skip


def text_memory_rows(found: Found) -> list[Row]:
    """Much text beside little text, all processes of a run together."""
    rows = []
    little, *_, much = sorted(found["settings"]["sizes"], key=float)
    for kind in found["growth"]:
        large, small = (f"{kind}, {float(size):g} MB" for size in (much, little))
        figures = compared(found["rounds"], large, small, "all_rss")
        figures["peer"] = f"itself, {float(little):g} MB"
        rows.append(Row(part="memory", measure=f"peak memory of minibert {large} of text", unit="MB", **figures))
    return rows


# ---- the parts


def all_parts(args: argparse.Namespace, corpus: Sequence[str], labelled: Mapping[str, Sequence[Path]]) -> list[Part]:
    """Every part, at full or at small sizes."""
    lacks = "" if find_spec("transformers") else "transformers is not installed; scripts/setup dev brings it"
    model = args.model or CHECKPOINT
    no_model = "" if (model / "config.json").is_file() else (
        f"no checkpoint in {model}; scripts/real_data.py models brings one, or give --model"
    )  # fmt: skip
    quick = args.quick

    def part(
        kind: str, name: str, script: str, options: str, rows: Callable[[Found], list[Row]], missing: str = ""
    ) -> Part:
        path = SCRIPTS / script
        if not path.is_file():
            missing = f"there is no {path.name}"
        text = [] if script == "bench_finetune.py" else [*corpus]
        return Part(kind, name, path, [*text, *options.split()], rows, missing)

    contest = "--rounds 1 --examples 200 --predictions 32" if quick else "--predictions 100"
    linux = "" if sys.platform == "linux" else "peaks are read from Linux's /proc"
    parts = [
        part(
            "pretrain", "pretrain, small", "bench_pretrain.py",
            "--rounds 1 --steps 2 --skip 1" if quick else "--steps 6 --skip 2", pretrain_rows, lacks,
        ),
        part(
            "pretrain", "pretrain, base", "bench_pretrain.py",
            f"--layers {3 if quick else 12} --hidden-size 768 --heads 12 --batch-size 8 --peers trainer "
            + ("--rounds 1 --steps 1 --skip 1" if quick else "--rounds 3 --steps 3 --skip 1"),
            pretrain_rows, lacks,
        ),
        part(
            "finetune", "finetune", "bench_finetune.py",
            f"--only training {contest} " + ("--steps 2 --skip 1" if quick else "--steps 4"),
            partial(contest_rows, kind="training"), lacks or no_model,
        ),
        part(
            "predict", "predict", "bench_finetune.py", f"--only prediction {contest} --steps 1 --skip 1",
            partial(contest_rows, kind="prediction"), lacks or no_model,
        ),
        part(
            "data", "data", "bench_data.py", "--rounds 1 --google-mb .3" if quick else "",
            partial(text_rows, kind="data", measure="text into the token store", goal=Goal("ours", 10.0)), lacks,
        ),
        part(
            "vocab", "vocab", "bench_vocab.py", "--rounds 1" if quick else "",
            partial(text_rows, kind="vocab", measure="text into a vocabulary"),
        ),
        part("start", "start", "bench_start.py", "--rounds 1 --mb 1" if quick else "", start_rows),
        part(
            "memory", "memory, a step", "bench_step_memory.py", "--rounds 1 --steps 1 --layers 3" if quick else "",
            step_memory_rows, lacks or linux,
        ),
        part(
            "memory", "memory, much text", "bench_memory.py",
            "--rounds 1 --sizes 2 20 --workers 1" if quick else "", text_memory_rows,
        ),
    ]  # fmt: skip
    most = {"cls": 1 if quick else 2}  # two of texts: short ones and long ones
    files = [word for kind, paths in labelled.items() for word in (f"--{kind}", *map(str, paths[: most.get(kind, 1)]))]
    return [
        replace(one, options=[*one.options, "--model", str(model), *files])
        if one.script.name == "bench_finetune.py" else one
        for one in parts if one.kind in args.only
    ]  # fmt: skip


def run_part(part: Part, work: Path) -> Found:
    """Run a script. Returns: its JSON, with the seconds it took, its command and what it printed, or with `error`."""
    target = work / f"{part.name}.json"
    command = [sys.executable, str(part.script), *part.options, "--json", str(target), "--work", str(work)]
    began = time.perf_counter()
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
        errors="replace",
    )  # fmt: skip
    about = {
        "command": [part.script.name, *part.options], "seconds": time.perf_counter() - began, "output": done.stdout
    }  # fmt: skip
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-TAIL:])
        return {**about, "error": f"{part.script.name} ended with {done.returncode}:\n{tail}"}
    try:
        return {**json.loads(target.read_text("utf-8")), **about}
    except (OSError, ValueError) as error:
        return {**about, "error": f"{part.script.name} wrote no JSON: {error}"}


def busy() -> bool:
    """Whether others compute on this machine just now."""
    try:
        import psutil
    except ImportError:
        return hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY * cores()
    return float(psutil.cpu_percent(interval=1.0)) / 100 > BUSY


def run_all(parts: Sequence[Part], work: Path) -> Outcome:
    """All parts one after the other; Ctrl-C ends with what there is."""
    outcome = Outcome()
    for number, part in enumerate(parts, 1):
        if part.missing:
            outcome.missing[part.name] = part.missing
            continue
        if busy():
            outcome.busy.append(part.name)
        print(f"bench: {number} of {len(parts)}, {part.name} ...", file=sys.stderr, flush=True)
        try:
            found = run_part(part, work)
        except KeyboardInterrupt:
            outcome.failed[part.name] = "interrupted"
            break
        outcome.parts[part.name] = found
        if "error" in found:
            outcome.failed[part.name] = found["error"]
            continue
        print(f"bench: {part.name} took {found['seconds']:.0f} s", file=sys.stderr, flush=True)
        try:
            outcome.rows += part.rows(found)
        except (LookupError, TypeError, ValueError, ArithmeticError, StopIteration) as error:
            outcome.failed[part.name] = f"its JSON is not as expected: {error!r}"
    return outcome


# ---- the table


def figure(value: float | None, unit: str) -> str:
    """A figure with its unit, in about three digits."""
    if value is None:
        return ""
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"


def cells(row: Row) -> list[str]:
    """A line of the table."""
    share = "" if row.share is None else f"{row.share:.0%}"
    if row.share_goal is not None:
        share += f" (goal {row.share_goal:.0%})"
    if row.peer_share is not None:
        share += f", peer {row.peer_share:.0%}"
    return [
        row.measure, figure(row.ours, row.unit), f"{row.peer}: {figure(row.theirs, row.unit)}" if row.peer else "",
        spread(row.ratio) if row.ratio else "", row.goal.text(row.unit) if row.goal else "",
        "" if row.goal is None else "yes" if row.goal.reached(row) else "no", share,
    ]  # fmt: skip


def show(outcome: Outcome) -> int:
    """Print the table and what is not in it. Returns: the exit code."""
    table(
        ["measure", "minibert", "peer", "ratio (lowest - highest)", "goal", "reached", "of the machine"],
        map(cells, outcome.rows),
    )
    print("\nratio: minibert over its peer; of seconds the peer's over minibert's")
    for name, why in outcome.missing.items():
        print(f"not measured: {name}: {why}")
    for name, why in outcome.failed.items():
        print(f"failed: {name}: {why}")
    if outcome.busy:
        print(f"warning: others were computing when these began, do not quote them: {'; '.join(outcome.busy)}")
    return 1 if outcome.failed else 0


# ---- text


def made_up_words(rng: random.Random, count: int) -> list[str]:
    """Different words of one to four syllables."""
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = (
            rng.choice(("", *"bcdfghklmnprstvw", "st", "tr", "sh")) + rng.choice("aeiou") + rng.choice(("", *"nrstl"))
            for _ in range(rng.randint(1, 4))
        )
        found["".join(syllables)] = None
    return list(found)


def made_up_documents(megabytes: float) -> Iterator[list[str]]:
    """Documents of made-up words, frequent and rare as words are (Zipf), the same every time."""
    rng = random.Random(0)
    words = made_up_words(rng, 20_000)
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))
    size = 0
    while size < megabytes * 1e6:
        document = []
        for _ in range(rng.randint(3, 12)):
            sentences = (
                " ".join(rng.choices(words, cum_weights=weights, k=rng.randint(5, 25))).capitalize() + "."
                for _ in range(rng.randint(1, 6))
            )
            document.append(" ".join(sentences))
            size += len(document[-1]) + 1
        size += 1
        yield document


def find_text(args: argparse.Namespace, work: Path) -> tuple[list[str], str]:
    """The corpus, and what to say of it."""
    if args.corpus:
        return args.corpus, ", ".join(args.corpus)
    if REAL_TEXT.is_file():
        return [str(REAL_TEXT)], str(REAL_TEXT.relative_to(ROOT))
    path = work / "made-up.txt"
    megabytes = 1.0 if args.quick else 5.0
    path.write_text("".join("\n".join(document) + "\n\n" for document in made_up_documents(megabytes)), "utf-8")
    return [str(path)], f"{megabytes:g} MB of made-up words, for scripts/real_data.py en has not brought any text"


def find_labelled(work: Path) -> dict[str, list[Path]]:
    """Labelled files by kind: what is there, else made-up texts of two classes."""
    found = {kind: [path for path in paths if path.is_file()] for kind, paths in LABELLED.items()}
    found = {kind: paths for kind, paths in found.items() if paths}
    if not found:
        rng = random.Random(1)
        path = work / "made-up.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            for number, document in enumerate(made_up_documents(0.5)):
                words = " ".join(document).split()[: rng.randint(10, 150)]
                writer.writerow((" ".join(words), ("even", "odd")[number % 2]))
        found = {"cls": [path]}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("corpus", nargs="*", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--only", default=",".join(KINDS), metavar="PART,...", help="[default: all]")
    options.add_argument("--quick", action="store_true", help="small sizes, one round; figures not to be quoted")
    options.add_argument("--json", type=Path, metavar="FILE", help="[default: runs/bench-TIME.json]")
    options.add_argument("--model", type=Path, metavar="CHECKPOINT", help=f"[default: {CHECKPOINT.relative_to(ROOT)}]")
    options.add_argument("--work", type=Path, metavar="DIR", help="where temporary files go [default: the system's]")
    args = options.parse_args(arguments)
    args.only = args.only.split(",")
    if unknown := [kind for kind in args.only if kind not in KINDS]:
        options.error(f"unknown part: {', '.join(unknown)}; known: {', '.join(KINDS)}")
    if gone := [path for path in args.corpus if not Path(path).exists()]:
        options.error(f"no such file: {', '.join(gone)}")
    if args.model and not args.model.is_dir():
        options.error(f"no such folder: {args.model}")
    args.json = args.json or ROOT / "runs" / time.strftime("bench-%Y%m%d-%H%M%S.json")
    if args.json.is_dir():
        options.error(f"--json {args.json} is a folder")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    hardware = machine()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-") as folder:
        work = Path(folder)
        corpus, text = find_text(args, work)
        print(f"bench: text: {text}", file=sys.stderr, flush=True)
        outcome = run_all(all_parts(args, corpus, find_labelled(work)), work)
    print(f"text: {text}{'; small sizes (--quick)' if args.quick else ''}\n")
    status = show(outcome)
    rows = [
        asdict(row) | {"reached": None if row.goal is None else row.goal.reached(row)} for row in outcome.rows
    ]  # fmt: skip
    found = {
        "text": text, "rows": rows, "parts": outcome.parts, "missing": outcome.missing, "failed": outcome.failed,
        "busy": outcome.busy,
    }  # fmt: skip
    report(args, hardware, versions(*PACKAGES), found)
    print(f"every figure: {args.json}")
    return status


if __name__ == "__main__":
    sys.exit(main())
