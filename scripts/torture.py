#!/usr/bin/env python3
"""Kill training runs with SIGKILL at random moments, go on with --resume, and compare with a run that nobody touched.

    scripts/torture.py --kills 200 --seed 0

Runs are tiny: pre-training (accumulation, two phases, epoch boundaries, held-out text, AdamW and Muon, a pool of
tokenising processes, loader processes) and each task (accumulation, epochs, patience, dev and test, two seeds). Some
kills come at any moment, some are aimed: as soon as something is half written, a checkpoint has just been written (old
ones are being deleted), the model is being published, the run has just ended.

After each kill: every checkpoint is complete by its manifest and equal to that of the undisturbed run at its step; no
other file is half written; no process survives. At the end: weights, log (without tokens_per_second), metrics, settings
and data.json are equal to the last bit, and nothing else lies in the run, the cache or the folder for temporary files.
Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minibert.atomic import PARTIAL
from minibert.training.state import fault_of

SMALL = [
    "--precision", "fp32", "--batch-size", "8", "--micro-batch-size", "4", "--log-every", "1", "--dropout", "0.1",
]  # fmt: skip
PRETRAIN = [
    *SMALL, "--layers", "2", "--hidden-size", "32", "--heads", "2", "--vocab-size", "100", "--max-length", "32",
    "--max-positions", "64", "--eval-share", "0.1", "--keep", "2", "--workers", "1",
]  # fmt: skip
FINETUNE = [*SMALL, "--max-length", "32", "--epochs", "3", "--patience", "2", "--save-every", "2", "--lr", "3e-3"]
WORDS = "red blue old new cat dog sun moon sings runs sees likes the a".split()
PER_ROUND = 6  # kills of one run
ORPHANS_MAY_TAKE = 20.0  # seconds to see that their parent is gone; a loader process looks every five
TIMES = ("elapsed", "reserve")  # in place.json: measured, and so never the same
MEASURED = ("machine.json", "report.html")  # they hold speeds


@dataclass
class Kind:
    """A kind of run. patch: of the minibert that it runs, see `patched`."""

    name: str
    arguments: list[str]
    patch: str = ""
    kills: int = 0
    saving: int = 0  # kills that left something half written behind
    resumes: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)


# ---- what the runs are given


def make_data(work: Path) -> None:
    """A corpus, a file for each task, and a checkpoint to fine-tune; small, and the same each time."""
    rng = random.Random(5)

    def sentence() -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 9)))

    documents = ["\n".join(f"{sentence()}." for _ in range(8)) for _ in range(40)]
    (work / "corpus.txt").write_text("\n\n".join(documents), "utf-8")
    (work / "large.txt").write_text("\n\n".join(documents * 40), "utf-8")  # several parts for a pool to share
    for name, size in (("train", 45), ("dev", 14), ("test", 13)):
        rows = [sentence() for _ in range(size)]
        cells = [f"{row},{'pos' if 'cat' in row else 'neg'}" for row in rows]
        (work / f"cls-{name}.csv").write_text("\n".join(["text,label", *cells]), "utf-8")
        tagged = [
            "\n".join(f"{word} {'B-X' if word in ('cat', 'dog') else 'O'}" for word in row.split()) for row in rows
        ]
        (work / f"ner-{name}.txt").write_text("\n\n".join(tagged) + "\n", "utf-8")
        with (work / f"qa-{name}.jsonl").open("w", encoding="utf-8") as file:
            for i, row in enumerate(rows):
                word = row.split()[i % 3]
                answers = {"text": [word], "answer_start": [row.index(word)]}
                item = {"id": str(i), "question": f"which {word}?", "context": row, "answers": answers}
                file.write(json.dumps(item) + "\n")


def kinds(work: Path) -> list[Kind]:
    """All kinds of runs."""
    corpus, large = str(work / "corpus.txt"), str(work / "large.txt")

    def task(name: str, ending: str, *more: str) -> list[str]:
        files = [
            item for part in ("train", "dev", "test") for item in (f"--{part}", str(work / f"{name}-{part}.{ending}"))
        ]
        return ["finetune", "--task", name, "--model", str(work / "model"), *files, *FINETUNE, *more]

    return [
        Kind("pretrain", ["pretrain", corpus, *PRETRAIN, "--steps", "80", "--save-every", "3", "--eval-every", "10",
                          "--long-length", "64", "--long-share", "0.3"]),
        Kind("pretrain-muon", ["pretrain", corpus, *PRETRAIN, "--steps", "60", "--save-every", "4", "--eval-every", "4",
                               "--optimizer", "muon", "--init", "neighbour"]),
        Kind("pretrain-pool", ["pretrain", large, *PRETRAIN, "--steps", "20", "--save-every", "2", "--eval-every", "0",
                               "--workers", "2"], "pool"),
        Kind("pretrain-loaders", ["pretrain", corpus, *PRETRAIN, "--steps", "60", "--save-every", "5",
                                  "--eval-every", "0"], "loaders"),
        Kind("cls", task("cls", "csv")),
        Kind("ner", task("ner", "txt")),
        Kind("qa", task("qa", "jsonl")),
        Kind("cls-seeds", task("cls", "csv", "--seeds", "2")),
    ]  # fmt: skip


# ---- a run as a process


def patched(names: str) -> None:
    """Change this process's minibert. pool: small text is tokenised by a pool too. loaders: batches are made by loader
    processes, which a run on a CPU has none of. keep: no checkpoint is deleted, so that all can be compared with."""
    import minibert.corpus.store
    import minibert.finetune.run
    import minibert.finetune.story
    import minibert.training.data
    import minibert.training.state

    if "pool" in names:
        minibert.corpus.store.ALONE_BELOW_BYTES = 0
    if "loaders" in names:
        load = minibert.training.data.load_steps
        minibert.training.data.load_steps = lambda *args, **settings: load(*args, **{**settings, "num_workers": 2})
    if "keep" in names:
        minibert.training.state.keep_newest = lambda *args, **settings: None
        for module in (minibert.finetune.run, minibert.finetune.story):
            remove = module.remove
            module.remove = lambda path, remove=remove: None if path.name == "checkpoints" else remove(path)


def start(
    arguments: list[str], patch: str, said: Path, preloaded: bool, *, given: Path | None = None, out: Path | None = None
) -> int:
    """A minibert in a process group of its own; returns its number.

    said: file for what it prints. given: its standard input. out: its standard output.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if out else file, 1)
        os.dup2(file, 2)
        os.dup2(os.open(given or os.devnull, os.O_RDONLY), 0)
        if not preloaded:
            this = [str(Path(__file__).resolve()), "--child", patch] if patch else ["-m", "minibert"]
            os.execv(sys.executable, [sys.executable, *this, *arguments])
        child(patch, arguments)
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except BaseException:  # noqa: BLE001 - printed, for this process ends below
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def child(patch: str, arguments: list[str]) -> None:
    """Be minibert."""
    from minibert.cli import main

    patched(patch)
    tempfile.tempdir = None  # the process that this one was forked from may have another
    sys.argv = ["minibert", *arguments]
    main()


def ended(pid: int) -> int | None:
    """The exit code of a process that has ended; None of one that is running."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def members(group: int) -> list[int]:
    """The processes of a session that are alive."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == group and state not in "ZX":
            found.append(int(place.name))
    return found


# ---- moments to kill at


def names_in(folder: Path) -> list[Path]:
    """What lies in a folder, which may vanish while it is looked at."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def places(out: Path) -> list[Path]:
    """The folders of a run in which something is written."""
    tops = [out, *names_in(out / "seeds")]
    return [*tops, *(top / "checkpoints" for top in tops)]


def half_written(out: Path) -> list[Path]:
    """What is being written, or was when a kill came."""
    return [path for place in places(out) for path in names_in(place) if PARTIAL in path.name or path.name == ".model"]


def steps_of(out: Path) -> set[Path]:
    """The checkpoints of a run."""
    found = [path for place in places(out) if place.name == "checkpoints" for path in names_in(place)]
    return {path for path in found if PARTIAL not in path.name}


AIMS: dict[str, Callable[[Path, set[Path]], bool]] = {
    "saving": lambda out, before: bool(half_written(out)),
    "saved": lambda out, before: bool(steps_of(out) - before),
    "training": lambda out, before: bool(steps_of(out) - before),
    "reading": lambda out, before: any(PARTIAL in path.name for path in names_in(out.parent / "cache/stores")),
    "publishing": lambda out, before: any(path.name.startswith(".model") for path in half_written(out)),
    "ending": lambda out, before: (out / "metrics.json").exists(),
}
SPREAD = {"saving": 0.02, "saved": 0.005, "reading": 0.5, "publishing": 0.02, "ending": 0.01}  # seconds after it


def plan(kind: Kind, rng: random.Random, aimed: bool) -> list[str]:
    """When a run is killed, one moment after the other; what comes at the end of a run stands at the end."""
    if aimed:
        return ["saving", "publishing", "ending"]
    names = ["any", "training", "saving", "saved"] + ["reading"] * 2 * ("pool" in kind.patch)
    weights = [2, 4, 6, 2] + [3] * 2 * ("pool" in kind.patch)
    early = rng.choices(names, weights, k=PER_ROUND - 2)
    return early + rng.choices(["saving", "publishing", "ending"], [2, 4, 2], k=2)


def kill_at(moment: str, pid: int, out: Path, length: float, rng: random.Random) -> int | None:
    """Wait for the moment and kill; returns the exit code where the run has ended before. length: seconds of a run."""
    began, before = time.monotonic(), steps_of(out)
    deadline = began + (rng.uniform(0, length) if moment == "any" else 600)
    aim = AIMS.get(moment)
    while time.monotonic() < deadline:
        if (code := ended(pid)) is not None:
            return code
        if aim is not None and aim(out, before):
            deadline = time.monotonic() + rng.uniform(0, SPREAD.get(moment, length / 3))
            aim = None
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


# ---- what must hold


def survivors(group: int) -> Iterator[str]:
    """Says so where processes of a killed run are still there after a while, and ends them."""
    deadline = time.monotonic() + ORPHANS_MAY_TAKE
    while (left := members(group)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        yield f"{len(left)} processes survive"
        os.killpg(group, signal.SIGKILL)


def faults_of_unfinished(out: Path, reference: Path) -> Iterator[str]:
    """What is wrong with the folder of a run that has not come to its end."""
    from safetensors import safe_open

    for step in steps_of(out):
        yield from faults_of_checkpoint(step, reference / step.relative_to(out))
    whole = [path for path in out.rglob("*") if not any(PARTIAL in part for part in path.relative_to(out).parts)]
    for path in whole:
        try:
            if path.suffix == ".json":
                json.loads(path.read_text("utf-8"))
            elif path.suffix == ".safetensors":
                with safe_open(path, "pt") as file:
                    file.keys()
            elif path.name == "log.jsonl":  # the line that was being written may be cut off
                for line in path.read_text("utf-8").splitlines(keepends=True):
                    assert not line.endswith("\n") or json.loads(line)
        except Exception as error:  # noqa: BLE001 - whatever it is, the file is not whole
            yield f"{path.relative_to(out)}: {error}"


def faults_of_checkpoint(ours: Path, theirs: Path) -> Iterator[str]:
    """What is missing in a checkpoint, or differs from the undisturbed run's of the same step."""
    import torch

    name = f"{ours.parent.parent.name}/{ours.name}"
    if fault := fault_of(ours):
        yield f"{name}: {fault}"
        return
    for path in ours.iterdir():
        if path.is_file() and path.read_bytes() != (theirs / path.name).read_bytes():
            yield f"{name}/{path.name} differs"
    places = [json.loads((folder / "training_state/place.json").read_text()) for folder in (ours, theirs)]
    for key in places[0].keys() | places[1].keys():
        if key not in TIMES and places[0].get(key) != places[1].get(key):
            yield f"{name}: place.json: {key} is {places[0].get(key)} instead of {places[1].get(key)}"
    a, b = (torch.load(folder / "training_state/optimizer.pt", weights_only=True) for folder in (ours, theirs))
    if not equal(a, b):
        yield f"{name}: the optimizers' state differs"


def equal(a: Any, b: Any) -> bool:
    """Whether nested values with tensors are the same to the last bit."""
    import torch

    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def faults_at_end(out: Path, reference: Path) -> Iterator[str]:
    """How a finished run differs from the undisturbed one."""
    ours, theirs = ({path.relative_to(run) for path in run.rglob("*")} for run in (out, reference))
    ours, theirs = ({path for path in found if "checkpoints" not in path.parts[:-1]} for found in (ours, theirs))
    if "finetune" in (reference / "settings.json").read_text("utf-8"):  # its checkpoints are deleted
        theirs = {path for path in theirs if path.name != "checkpoints"}
    # a tracker's files have the time in their names
    ours, theirs = ({path for path in found if "tensorboard" not in path.parts} for found in (ours, theirs))
    if ours != theirs:
        yield f"only here: {sorted(map(str, ours - theirs))}, only undisturbed: {sorted(map(str, theirs - ours))}"
    for path in sorted(ours & theirs):
        if path.name == "log.jsonl":
            if log_lines(out / path) != log_lines(reference / path):
                yield f"{path} differs"
        elif path.name in MEASURED or not (out / path).is_file():
            continue
        elif path.name == "README.md":
            cards = [(run / path).read_text("utf-8") for run in (out, reference)]
            for name in (out.name, reference.name):
                cards = [card.replace(shlex.quote(name), "RUN").replace(name, "RUN") for card in cards]
            if cards[0] != cards[1]:
                yield f"{path} differs"
        elif (out / path).read_bytes() != (reference / path).read_bytes():
            yield f"{path} differs"
    for step in steps_of(out):
        yield from faults_of_checkpoint(step, reference / step.relative_to(out))
    for place in ("cache/stores", "cache/vocabularies", "tmp"):
        names = [path.name for path in (out.parent / place).glob(f"*{PARTIAL}*")]
        if len(names) > (place == "tmp"):  # where the next command that needs it clears up
            yield f"left in {place}: {names}"


def log_lines(path: Path) -> list[dict[str, Any]]:
    """A log without the speed."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines]


# ---- the torture


class Torture:
    """All kinds of runs, in one folder. preloaded: runs are forked from this process, which has loaded torch before."""

    def __init__(self, work: Path, seed: int, *, preloaded: bool, aimed: bool = False) -> None:
        self.work, self.rng, self.preloaded, self.aimed = work, random.Random(seed), preloaded, aimed
        self.length: dict[str, float] = {}
        make_data(work)
        self.begin(work / "model")
        base = ["pretrain", str(work / "corpus.txt"), *PRETRAIN, "--steps", "2", "--eval-every", "0"]
        self.undisturbed(Kind("model", base), work / "model")

    def begin(self, out: Path) -> None:
        """Make room for a run: its cache and its temporary files are its own."""
        os.environ.update(MINIBERT_CACHE=str(out.parent / "cache"), TMPDIR=str(out.parent / "tmp"))
        (out.parent / "tmp").mkdir(parents=True, exist_ok=True)

    def undisturbed(self, kind: Kind, out: Path) -> float:
        """A run to the end, with all its checkpoints; returns the seconds that it took."""
        self.begin(out)
        began, said = time.monotonic(), out.parent / "undisturbed.txt"
        arguments = [*kind.arguments, "--out", str(out)]
        pid = start(arguments, f"{kind.patch} keep", said, self.preloaded)
        while (code := ended(pid)) is None:
            time.sleep(0.02)
        if code:
            sys.exit(f"{kind.name}: the undisturbed run ended with {code}:\n{said.read_text('utf-8')}")
        return time.monotonic() - began

    def round(self, kind: Kind, most: int) -> None:
        """One run, killed up to `most` times, to its end."""
        place = self.work / kind.name
        reference = place / "undisturbed"
        if not reference.exists():
            self.length[kind.name] = self.undisturbed(kind, reference)
        run = place / f"run-{kind.runs}"
        out, said = run / "out", run / "said.txt"
        kind.runs += 1
        self.begin(out)
        moments = plan(kind, self.rng, self.aimed)[:most]
        code: int | None = None
        while code is None:
            resume = ["--resume"] if out.exists() else []
            kind.resumes += bool(resume)
            pid = start([*kind.arguments, "--out", str(out), *resume], kind.patch, said, self.preloaded)
            moment = moments.pop(0) if moments else ""
            if not moment:
                while (code := ended(pid)) is None:
                    time.sleep(0.02)
            elif (code := kill_at(moment, pid, out, self.length[kind.name], self.rng)) is None:
                kind.kills += 1
                kind.saving += bool(half_written(out))
                found = [*survivors(pid), *faults_of_unfinished(out, reference)]
                kind.faults += [f"run {kind.runs}, killed while {moment}: {fault}" for fault in found]
        if code:
            kind.faults.append(f"run {kind.runs} ended with {code}: {said.read_text('utf-8')}")
        else:
            kind.faults += [f"run {kind.runs}, at the end: {fault}" for fault in faults_at_end(out, reference)]
        if not kind.faults:
            shutil.rmtree(run)


def main() -> None:
    """Parse, torture, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="in all, shared out over the kinds (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument("--kinds", help="comma-separated names (default: all)")
    parser.add_argument(
        "--preloaded", action="store_true", help="fork runs from a process that has loaded torch: quick"
    )
    parser.add_argument("--aimed", action="store_true", help="no kill at any moment: three at the worst ones")
    parser.add_argument("--work", type=Path, help="folder to work in, which is kept (default: a temporary one)")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.preloaded:
        import minibert.finetune.story
        import minibert.pretrain  # noqa: F401
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        work = (options.work or Path(folder)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        chosen = [kind for kind in kinds(work) if not options.kinds or kind.name in options.kinds.split(",")]
        torture = Torture(work, options.seed, preloaded=options.preloaded, aimed=options.aimed)
        left = options.kills
        while left > 0:
            kind = min(chosen, key=lambda kind: kind.kills)
            before, known = kind.kills, len(kind.faults)
            torture.round(kind, min(left, PER_ROUND))
            left -= kind.kills - before
            print("\n  ".join([f"{kind.name}: {kind.kills} kills", *kind.faults[known:]]), flush=True)
        show(chosen)
    sys.exit(any(kind.faults for kind in chosen))


def show(chosen: list[Kind]) -> None:
    """The table."""
    print(f"\n{'kind':18} {'runs':>5} {'kills':>6} {'while writing':>14} {'resumes':>8}  result")
    for kind in chosen:
        result = f"{len(kind.faults)} faults" if kind.faults else "equal to the last bit"
        print(f"{kind.name:18} {kind.runs:5} {kind.kills:6} {kind.saving:14} {kind.resumes:8}  {result}")
    total = Counter[str]()
    for kind in chosen:
        total.update(runs=kind.runs, kills=kind.kills, saving=kind.saving, resumes=kind.resumes)
    print(f"{'all':18} {total['runs']:5} {total['kills']:6} {total['saving']:14} {total['resumes']:8}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    else:
        main()
