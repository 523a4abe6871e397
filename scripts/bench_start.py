#!/usr/bin/env python3
"""Seconds from the start of `minibert pretrain` to the end of its first training step, with an empty cache and again.

    scripts/bench_start.py CORPUS... [--mb 5] [--recipe quick] [--rounds 3] [--json FILE]

The first --mb MB of the corpus are trained on. The run's log.jsonl is watched for step 1, and then the run is ended.
The parts of the time are told apart by what minibert says on the way. Beside it stands transformers' Trainer as run_mlm
has it: the same text, sizes and batch, its blocks kept by datasets; its vocabulary is there before, minibert makes one.

Below: what minibert's imports cost, and how long the short commands take: `minibert --help`, and the prediction of one
text beside transformers.pipeline in a fresh Python (a model of one layer, so that it is the programs alone).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _bench_common import (
    alternate,
    apart,
    documents_of,
    machine,
    make_tokenizer,
    medians,
    parser,
    ratio,
    report,
    run_main,
    table,
    versions,
    write_documents,
)

# what minibert says at the end of a part -> the part's name, in the order in which they come
MARKS = (
    ("vocabulary: ", "imports and vocabulary"),
    ("token store: ", "token store"),
    ("data", "planning and summary"),
    ("step 0: ", "model, optimizer, held-out text"),
)
FIRST_STEP = "first step"
GOAL = {"empty cache": 10.0, "second run": 5.0}
TRAINER = "Trainer"
HELP, PREDICT, PIPELINE = "minibert --help", "minibert predict, one text", "transformers.pipeline, one text"
COMMAND_GOAL = {HELP: 0.2, PREDICT: 3.0}
TEXT = "The match ended two to one."
# datasets comes in while the token store is opened, torch._dynamo with the first optimizer
IMPORTS = (
    "torch", "torch, accelerate", "minibert.pretrain", "minibert.pretrain, datasets",
    "minibert.pretrain, datasets, torch._dynamo",
)  # fmt: skip
POLL_SECONDS = 0.01
IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")


def start(text: Path, run: Path, cache: Path, options: Sequence[str], limit: float) -> dict[str, Any]:
    """Start a run and wait for its first step. Returns: seconds, parts (name -> seconds); loss is that of the step."""
    command = [sys.executable, "-m", "minibert", "pretrain", str(text), "--out", str(run), "--cache", str(cache)]
    heard: list[tuple[float, str]] = []
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, encoding="utf-8",
        start_new_session=True,
    )  # fmt: skip

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            heard.append((time.perf_counter() - began, line))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        while (loss := first_step(run / "log.jsonl")) is None:
            if process.poll() is not None or time.perf_counter() - began > limit:
                said = "".join(line for _, line in heard)
                sys.exit(f"no step after {time.perf_counter() - began:.0f} s: {' '.join(command)}\n{said}")
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it and its workers: the group was made for them
        process.wait()
    listener.join(timeout=5)
    return {"seconds": seconds, "loss": loss, "parts": parts(heard, seconds)}


def first_step(log: Path) -> float | None:
    """The loss of step 1, once it stands in the log."""
    try:
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return None
    for line in lines:
        if line.endswith("\n") and (found := json.loads(line)).get("step") == 1 and "loss" in found:
            return float(found["loss"])
    return None


def parts(heard: Sequence[tuple[float, str]], seconds: float) -> dict[str, float]:
    """How long each part took, as far as it was heard to end."""
    found = {}
    before = 0.0
    for sign, name in MARKS:
        moment = next((when for when, line in heard if line.startswith(sign)), None)
        if moment is not None and moment <= seconds:
            found[name] = moment - before
            before = moment
    return {**found, FIRST_STEP: seconds - before}


def import_seconds(modules: str) -> float:
    """How long a fresh Python needs for some imports, its own start included."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    return time.perf_counter() - began


def make_classifier(folder: Path) -> None:
    """A random classifier of one layer that both sides open."""
    from minibert import BertForSequenceClassification
    from minibert.model.bert import BertConfig
    from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

    characters = sorted(set(TEXT.lower()) - {" "})
    tokenizer = BertTokenizer.from_tokens(
        [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters)], lowercase=True
    )  # fmt: skip
    names = ["news", "sport"]
    extra = {
        "minibert": {"task": "cls", "settings": {}}, "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }  # fmt: skip
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=256,
        extra=extra,
    )  # fmt: skip
    BertForSequenceClassification(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def command_seconds(command: Sequence[str]) -> dict[str, float]:
    """How long a command takes that reads one text from standard input."""
    began = time.perf_counter()
    done = subprocess.run(command, check=False, input=TEXT + "\n", text=True, capture_output=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return {"seconds": seconds}


def start_trainer(text: Path, run: Path, cache: Path, tokenizer: Path) -> dict[str, Any]:
    """Start transformers' Trainer on the text with the sizes of a run of minibert, until its first step."""
    script = Path(__file__).with_name("_trainer_start.py")
    command = [sys.executable, str(script), *map(str, (text, tokenizer, cache, run / "settings.json", run / "trainer"))]
    return {**command_seconds(command), "parts": {}}


def save_tokenizer(text: Path, size: int, folder: Path) -> None:
    """The Trainer's tokenizer."""
    make_tokenizer([text], size, None).save_pretrained(folder)


def measure_commands(rounds: int, work: Path) -> dict[str, list[dict[str, float]]]:
    """The short commands in turns."""
    model = str(work / "classifier")
    apart(make_classifier, Path(model))
    peer = f"import transformers\nprint(transformers.pipeline('text-classification', model={model!r})({TEXT!r}))"
    commands = {
        HELP: [sys.executable, "-m", "minibert", "--help"],
        PREDICT: [sys.executable, "-m", "minibert", "predict", "--model", model, "--quiet", "-"],
    }
    if find_spec("transformers"):
        commands[PIPELINE] = [sys.executable, "-c", peer]
    return alternate(
        rounds, {name: partial(command_seconds, command) for name, command in commands.items()},
        lambda result: f"{result['seconds']:.2f} s",
    )  # fmt: skip


def import_shares(modules: str) -> list[tuple[str, float]]:
    """Seconds that each package's own modules take while these are imported; -X importtime itself costs some."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {modules}"], check=True, capture_output=True, text=True
    )
    packages: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        if found := IMPORT_LINE.match(line):
            packages[found[2].partition(".")[0]] += int(found[1])
    return [(name, microseconds / 1e6) for name, microseconds in packages.most_common()]


def cut(corpus: Sequence[str], megabytes: float, target: Path) -> int:
    """Write the first part of a corpus. Returns: its bytes."""
    from minibert.corpus.read import find_files

    return write_documents(target, documents_of(find_files(corpus), megabytes))


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--mb", type=float, default=5.0, help="MB of it to train on")
    options.add_argument("--recipe", default="quick")
    options.add_argument("--limit", type=float, default=300.0, help="seconds after which to give up")
    options.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, such as batch-size=8")
    args = options.parse_args()
    hardware = machine()
    flags = ["--recipe", args.recipe]
    for setting in args.set:
        name, _, value = setting.partition("=")
        flags += [f"--{name}", value]
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-start-") as folder:
        measure_all(args, hardware, flags, Path(folder))


def measure_all(args: Any, hardware: dict[str, Any], flags: list[str], work: Path) -> None:
    """First and second starts in turns, then the tables."""
    size = apart(cut, args.corpus, args.mb, work / "text.txt")
    number = 0

    def once(cache: Path) -> dict[str, Any]:
        nonlocal number
        number += 1
        return start(work / "text.txt", work / f"run-{number}", cache, flags, args.limit)

    def once_trainer(cache: Path) -> dict[str, Any]:
        run, tokenizer = work / f"run-{number}", work / "tokenizer"
        if not tokenizer.exists():
            size = json.loads((run / "settings.json").read_text("utf-8"))["settings"]["vocab_size"]
            apart(save_tokenizer, work / "text.txt", size, tokenizer)
        return start_trainer(work / "text.txt", run, cache, tokenizer)

    # a cache for each round; the second run of a round needs the first one's, so the order is always this one
    contestants: dict[str, Callable[[Path], dict[str, Any]]] = dict.fromkeys(GOAL, once)
    if find_spec("transformers"):
        contestants |= {f"{TRAINER}, {name}": once_trainer for name in GOAL}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for turn in range(args.rounds):
        cache = work / f"cache-{turn}"
        one_round = {name: partial(run, cache) for name, run in contestants.items()}
        for name, results in alternate(1, one_round, lambda result: f"{result['seconds']:.2f} s").items():
            found[name] += results
    for results in found.values():
        for result in results:
            result |= {f"part: {name}": seconds for name, seconds in result["parts"].items()}

    names = [name for _, name in MARKS] + [FIRST_STEP]
    rows = [["seconds to the first step", *(f"{medians(results, 'seconds'):.2f}" for results in found.values())]]
    rows.append(["  to be under", *(f"{GOAL[name]:.0f}" if name in GOAL else "" for name in found)])
    for name in names:
        key = f"part: {name}"
        if all(key in result for ours in GOAL for result in found[ours]):
            figures = (f"{medians(results, key):.2f}" if key in results[0] else "" for results in found.values())
            rows.append([f"  {name}", *figures])
    imports = {what: [import_seconds(what) for _ in range(args.rounds)] for what in IMPORTS}
    shares = import_shares(IMPORTS[-1])
    commands = measure_commands(args.rounds, work)

    first, second = (found[name] for name in GOAL)
    print(
        f"{size / 1e6:.1f} MB of text, recipe {' '.join(flags[1:])}, medians of {args.rounds} rounds; the second run "
        f"takes {ratio(second, first, 'seconds')['median']:.2f} of the first\n"
    )
    table(["", *found], rows)
    print("\nimports in a fresh Python (datasets: to open the store; torch._dynamo: torch's optimizers ask for it)\n")
    imported = [[what, f"{sorted(seconds)[len(seconds) // 2]:.2f}"] for what, seconds in imports.items()]
    table(["import", "seconds"], imported)
    print(
        "\nof the last one, each package's own modules: " + ", ".join(f"{n} {s:.2f} s" for n, s in shares[:10]) + "\n"
    )
    short = [
        [name, f"{medians(results, 'seconds'):.2f}", f"{COMMAND_GOAL[name]:g}" if name in COMMAND_GOAL else ""]
        for name, results in commands.items()
    ]
    table(["command", "seconds", "to be under"], short)
    report(
        args, hardware, versions("minibert", "torch", "accelerate", "datasets", "tokenizers", "transformers"),
        {"bytes": size, "rounds": found, "commands": commands, "imports": imports, "import_shares": dict(shares[:30])},
    )  # fmt: skip


if __name__ == "__main__":
    run_main(main)
