#!/usr/bin/env python3
"""Run every command against a disk that is full, or read-only, at each place that it writes.

    scripts/full_disk.py

The disk is a small tmpfs in a mount namespace of its own (`unshare -rm`; no root is needed where users may have one).
It has room for one file more each time, and then for so many bytes more, until the command succeeds, so that each thing
that is written fails once. A failure has to be exit code 2 and one message that names the disk and the reason; nothing
half written stays; a file that was there before is as it was; checkpoints are complete. When there is room again
`--resume` ends with the same bits as a run that nobody disturbed. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torture import FINETUNE, PRETRAIN, SMALL, Kind, Torture, ended, faults_at_end, faults_of_unfinished, start

from minibert.atomic import PARTIAL

DISK = "DISK"  # in arguments and variables: where the small disk is
PLENTY = "size=512m,nr_inodes=100k"
REASONS = ("No space left on device", "Read-only file system")
ENDS_IN_STEPS = 1.35  # of the room that is tried next


@dataclass
class Case:
    """A command. resumed: a run, which goes on when there is room. first: bytes of room that are tried first."""

    name: str
    arguments: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    resumed: bool = False
    given: str = ""  # file for standard input
    printed: bool = False  # standard output goes to the disk
    before: str = ""  # file that is there before, and is to be replaced
    named: set[str] = field(default_factory=set)  # what messages have named
    failures: int = 0
    faults: list[str] = field(default_factory=list)


def cases(work: Path) -> list[Case]:
    """Everything that writes."""
    corpus, model, classifier = (str(work / name) for name in ("corpus.txt", "model", "classifier"))
    train = [f"--{part}={work}/cls-{part}.csv" for part in ("train", "dev", "test")]
    steps = ["--steps", "6", "--save-every", "2", "--eval-every", "3"]
    pretrain = ["pretrain", corpus, *PRETRAIN, *steps, "--out"]
    finetune = ["finetune", "--task", "cls", "--model", model, *train, *FINETUNE, "--out"]
    small = [*PRETRAIN, "--steps", "1", "--eval-every", "0", "--out"]
    return [
        Case("pretrain --out", [*pretrain, f"{DISK}/run"], resumed=True),
        Case("without checkpoints", [*pretrain, f"{DISK}/run", "--save-every", "0"], resumed=True),
        Case("finetune --out", [*finetune, f"{DISK}/run"], resumed=True),
        Case("finetune --seeds 2", [*finetune, f"{DISK}/run", "--seeds", "2"], resumed=True),
        Case("tensorboard", [*pretrain, f"{DISK}/run", "--tracker", "tensorboard"], resumed=True),
        Case("cache", ["pretrain", corpus, *small, f"{work}/elsewhere"], {"MINIBERT_CACHE": DISK}),
        Case("stdin of pretrain", ["pretrain", "-", *small, f"{work}/elsewhere"], {"TMPDIR": DISK}, given="large.txt"),
        Case("stdin of predict", ["predict", "-", "--model", classifier, "--out", f"{work}/elsewhere"],
             {"TMPDIR": DISK}, given="large.txt"),
        Case("parquet.gz", ["vocab", f"{work}/text.parquet.gz", "--out", f"{work}/elsewhere"],
             {"TMPDIR": DISK, "MINIBERT_CACHE": f"{work}/elsewhere.cache"}),
        Case("vocab --out", ["vocab", corpus, "--vocab-size", "100", "--out", f"{DISK}/words"]),
        Case("vocab --extend", ["vocab", f"{work}/other.txt", "--extend", model, "--out", f"{DISK}/grown"]),
        Case("predict --out", ["predict", f"{work}/cls-train.csv", "--model", classifier, "--out", f"{DISK}/new.jsonl"],
             before="new.jsonl"),
        Case("predict > file", ["predict", f"{work}/cls-train.csv", "--model", classifier], printed=True,
             before="printed"),
        Case("evaluate --out", ["evaluate", f"{work}/cls-test.csv", "--model", classifier, "--out", f"{DISK}/new.json"],
             before="new.json"),
        *(Case(f"embed {ending}", ["embed", f"{work}/corpus.txt", "--model", model, "--out", f"{DISK}/new{ending}"])
          for ending in (".npy", ".jsonl", ".parquet")),
        *(Case(f"export {form}", ["export", "--model", classifier, "--format", form, "--out", f"{DISK}/new"])
          for form in ("hf", "torch", "onnx")),
        Case("convert --out", ["convert", model, "--out", f"{DISK}/new"]),
    ]  # fmt: skip


class Disk:
    """A small tmpfs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(exist_ok=True)

    def mount(self, options: str) -> None:
        """An empty one, in place of the one that was there."""
        self.unmount()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(self.place)], check=True)

    def change(self, options: str) -> None:
        """Another size, for the one that is there."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.place)], check=True)

    def unmount(self) -> None:
        """None at all."""
        if self.place.is_mount():
            subprocess.run(["umount", str(self.place)], check=True)


class FullDisk(Torture):
    """All cases, in one folder."""

    def __init__(self, work: Path) -> None:
        super().__init__(work, seed=0, preloaded=True)
        self.disk = Disk(work / "disk")
        make_more_data(work)
        base = [
            "finetune",
            "--task",
            "cls",
            "--model",
            str(work / "model"),
            f"--train={work}/cls-train.csv",
            *SMALL,
            "--max-length",
            "32",
        ]
        self.undisturbed(Kind("classifier", base), work / "classifier")

    def minibert(self, case: Case, *more: str) -> tuple[int, str]:
        """Run the command; returns its exit code and what it has said."""
        disk = str(self.disk.place)
        self.begin(self.work / "any")
        os.environ.update({name: value.replace(DISK, disk) for name, value in case.variables.items()})
        arguments = [argument.replace(DISK, disk) for argument in case.arguments]
        said = self.work / "said.txt"
        out = self.disk.place / "printed" if case.printed else None
        given = self.work / case.given if case.given else None
        pid = start([*arguments, *more], "", said, True, given=given, out=out)
        while (code := ended(pid)) is None:
            time.sleep(0.005)
        return code, said.read_text("utf-8", errors="replace")

    def full(self, case: Case, most: int) -> None:
        """The disk has room for one file, two, three ...; then for so many bytes, and more, until it is enough."""
        reference = self.work / f"undisturbed {case.name}".replace(" ", "-")
        if case.resumed:
            at = case.arguments.index(f"{DISK}/run")
            self.undisturbed(Kind(case.name, [*case.arguments[: at - 1], *case.arguments[at + 1 :]]), reference)
        for options in (few_files(1 + bool(case.before), most), few_bytes(most)):
            for option in options:
                if self.attempt(case, option, reference):
                    break

    def attempt(self, case: Case, options: str, reference: Path) -> bool:
        """One run of the command with so much room; returns whether it was enough."""
        self.disk.mount(PLENTY)
        before = self.disk.place / case.before
        if case.before:
            before.write_text("as it was")
        self.disk.change(options)
        remove_elsewhere(self.work)
        code, said = self.minibert(case)
        found = list(self.faults(case, code, said))
        if code and case.before and not case.printed and before.read_text() != "as it was":
            found.append(f"{case.before} is not as it was")
        if code and case.resumed:
            run = self.disk.place / "run"
            found += faults_of_unfinished(run, reference)
            self.disk.change(PLENTY)
            again, more = self.minibert(case, "--resume")
            found += [f"--resume ended with {again}: {more}"] if again else faults_at_end(run, reference)
        elif code:
            self.disk.change(PLENTY)
            remove_elsewhere(self.work)
            again, more = self.minibert(case)
            found += [f"with room it ended with {again}: {more}"] * bool(again)
        case.failures += bool(code)
        case.faults += [f"{options}: {fault}" for fault in found]
        return not code

    def faults(self, case: Case, code: int, said: str) -> Iterator[str]:
        """What is wrong with how the command has ended."""
        left = [path.name for path in self.disk.place.rglob(f"*{PARTIAL}*")]
        left += [path.name for path in self.disk.place.glob("minibert-*")]
        if left:
            yield f"left behind: {left}"
        if not code:
            return
        errors = re.findall(r"^minibert: error: (.*)", said, re.MULTILINE)
        where = "standard output" if case.printed else str(self.disk.place)
        if code != 2 or len(errors) != 1 or "Traceback" in said or "Exception" in said:
            yield f"ended with {code}:\n{said}"
        elif where not in errors[0] or not any(reason in errors[0] for reason in REASONS):
            yield f"names not both place and reason: {errors[0]}"
        else:
            place = errors[0].partition(": ")[0].replace(str(self.disk.place), "").split(PARTIAL)[0]
            case.named.add(re.sub(r"minibert-\w+|[0-9a-f]{24}", "*", place) or "/")

    def read_only(self, case: Case) -> None:
        """Nothing can be written at all: it is said before the first step."""
        self.disk.mount(PLENTY)
        self.disk.change("ro")
        remove_elsewhere(self.work)
        code, said = self.minibert(case)
        if code or "TMPDIR" not in case.variables:  # which has other places to go to
            found = [
                *self.faults(case, code, said),
                *["it succeeded"] * (not code),
                *["it trained"] * ("step 0" in said),
            ]
            case.faults += [f"read-only: {fault}" for fault in found]


def few_files(there: int, most: int) -> Iterator[str]:
    """Room for one file more each time than are there; the folder itself is one."""
    yield from (f"nr_inodes={number}" for number in range(there, most))


def few_bytes(most: int) -> Iterator[str]:
    """Room for a few pages, and for a third more each time."""
    pages = 1.0
    for _ in range(most):
        yield f"size={4 * int(pages)}k,nr_inodes=100k"
        pages = max(pages + 1, pages * ENDS_IN_STEPS)


def make_more_data(work: Path) -> None:
    """A text of other words, and one in a compressed parquet file, which is unpacked before it is read."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    (work / "other.txt").write_text("zebra quagga okapi\n\n" * 200, "utf-8")
    pq.write_table(pa.table({"text": [f"number {i} of a text {i * i}" for i in range(5000)]}), work / "text.parquet")
    (work / "text.parquet.gz").write_bytes(gzip.compress((work / "text.parquet").read_bytes()))


def remove_elsewhere(work: Path) -> None:
    """Forget what a command has made outside of the disk."""
    subprocess.run(["rm", "-rf", str(work / "elsewhere"), str(work / "elsewhere.cache")], check=True)


def main() -> None:
    """Parse, fill disks, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", help="comma-separated beginnings of names (default: all)")
    parser.add_argument("--most", type=int, default=60, help="attempts of each kind for a case (default: 60)")
    options = parser.parse_args()
    import minibert.finetune.story
    import minibert.predict
    import minibert.pretrain
    import minibert.vectors.embed  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="full-disk-") as folder:
        work = Path(folder).resolve()
        every = cases(work)
        wanted = tuple(options.cases.split(",")) if options.cases else ("",)
        chosen = [case for case in every if case.name.startswith(wanted)]
        torture = FullDisk(work)
        print(f"{'case':22} {'failures':>8}  result; what the messages named")
        for case in chosen:
            try:
                torture.full(case, options.most)
                if not case.printed:  # the shell says it
                    torture.read_only(case)
            finally:
                torture.disk.unmount()
            result = f"{len(case.faults)} faults" if case.faults else "as it should be"
            print(f"{case.name:22} {case.failures:8}  {result}; {' '.join(sorted(case.named))}", flush=True)
            for fault in case.faults:
                print(f"    {fault}", flush=True)
    sys.exit(any(case.faults for case in chosen))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if os.environ.get("IN_OWN_NAMESPACE") != "yes":
        os.environ["IN_OWN_NAMESPACE"] = "yes"
        os.execvp("unshare", ["unshare", "--map-root-user", "--mount", sys.executable, *sys.argv])
    main()
