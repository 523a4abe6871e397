#!/usr/bin/env python3
"""Whether memory stays flat: peak memory of minibert on little and on much text, each run in a process of its own.

    scripts/bench_memory.py CORPUS... [--sizes 5 200] [--workers 1 2] [--rounds 3] [--json FILE]

The text is the corpus again and again until it is long enough, each time with other numbers and with one word in eight
replaced by another of the corpus, so that no document stands there twice. Measured are `minibert vocab` and
`minibert pretrain --dry-run` (vocabulary, token store, summary; with --steps N also N steps) with nothing in the cache.

RSS counts pages of memory-mapped files (libraries, the token store) that the system takes back when it needs them;
"own" leaves them out. Both are looked at every 20 ms, so the exact peak of the largest process is in the JSON too.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from _bench_common import (
    alternate,
    apart,
    bytes_of,
    machine,
    medians,
    parser,
    ratio,
    report,
    run_main,
    table,
    versions,
    write_documents,
)

POLL_SECONDS = 0.02
DIGITS = re.compile(r"[0-9]")


def varied(documents: Sequence[Sequence[str]], megabytes: float) -> Iterator[list[str]]:
    """Documents, the first time round as they are, then changed, until they are so many MB."""
    rng = random.Random(0)
    pool = [word for document in documents[:2000] for line in document for word in _words(line)[:40]]
    size, turn = 0, 0
    while True:
        for document in documents:
            made = [_varied_line(line, pool, rng) for line in document] if turn else list(document)
            yield made
            size += bytes_of(made)
            if size >= megabytes * 1e6:
                return
        turn += 1


def _words(line: str) -> list[str]:
    return line.split(" ") if " " in line else list(line)


def _varied_line(line: str, pool: Sequence[str], rng: random.Random) -> str:
    words = _words(line)
    for i in range(rng.randrange(8), len(words), 8):
        words[i] = pool[int(rng.random() * len(pool))]
    return DIGITS.sub(lambda _: str(int(rng.random() * 10)), (" " if " " in line else "").join(words))


def peak_of(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a command and watch the memory of it and of all processes it starts.

    Returns: seconds; peaks in MB: main_rss, main_own, all_rss, all_own (the sum over the processes at one moment),
        largest_rss (one process, exact, from the system); processes: most at a time.
    """
    peaks = dict.fromkeys(("main_rss", "main_own", "all_rss", "all_own"), 0.0)
    most = 0
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
        watched = psutil.Process(process.pid)
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            now = [memory for one in _family(watched) if (memory := _memory(one)) is not None]
            if now:
                most = max(most, len(now))
                seen = {"main_rss": now[0][0], "main_own": now[0][1]}
                seen |= {"all_rss": sum(rss for rss, _ in now), "all_own": sum(own for _, own in now)}
                peaks = {name: max(peak, seen[name] / 1e6) for name, peak in peaks.items()}
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for: Popen must not try again
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{said.read().decode(errors='replace')}")
    exact = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    return {"seconds": seconds, **peaks, "largest_rss": exact, "processes": most}


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _memory(process: psutil.Process) -> tuple[int, int] | None:
    """(RSS, RSS without what is backed by files) in bytes; None once the process has ended."""
    try:
        memory = process.memory_info()
    except psutil.Error:
        return None
    return memory.rss, memory.rss - getattr(memory, "shared", 0)


def fresh_run(options: Sequence[str], text: Path, vocab_alone: bool, work: Path) -> dict[str, Any]:
    """One run of minibert on a text with an empty cache."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [sys.executable, "-m", "minibert", "vocab" if vocab_alone else "pretrain", str(text), *options]
        if vocab_alone or "--dry-run" not in options:
            command += ["--out", f"{folder}/out"]
        return peak_of(command, {**os.environ, "MINIBERT_CACHE": f"{folder}/cache"})


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--sizes", type=float, nargs="+", default=[5.0, 200.0], metavar="MB")
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options.add_argument("--vocab-size", type=int, default=8000)
    options.add_argument("--steps", type=int, default=0, help="train so many steps instead of --dry-run")
    args = options.parse_args()
    hardware = machine()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-memory-") as folder:
        measure_all(args, hardware, Path(folder))


def make_texts(corpus: Sequence[str], sizes: Sequence[float], work: Path) -> dict[float, Path]:
    """A text of each size. Runs in a process of its own: a child's peak counts what its parent held at the start."""
    from minibert.corpus.read import find_files, read_documents

    documents = list(read_documents(find_files(corpus)))
    texts = {}
    for size in sizes:
        texts[size] = work / f"{size:g}.txt"
        write_documents(texts[size], varied(documents, size))
    return texts


def measure_all(args: Any, hardware: dict[str, Any], work: Path) -> None:
    """Every run in turns, then the table."""
    texts = apart(make_texts, args.corpus, args.sizes, work)
    ending = ["--steps", str(args.steps)] if args.steps else ["--dry-run"]
    contestants: dict[str, Callable[[], dict[str, Any]]] = {}
    kinds: dict[str, list[tuple[float, str]]] = {}
    for kind, workers in (("vocab", 0), *((f"pretrain, {n} worker{'s' if n > 1 else ''}", n) for n in args.workers)):
        common = ["--vocab-size", str(args.vocab_size), "--quiet"]
        flags = [*common, "--workers", str(workers), *ending] if workers else common
        for size, text in texts.items():
            name = f"{kind}, {size:g} MB"
            kinds.setdefault(kind, []).append((size, name))
            contestants[name] = partial(fresh_run, flags, text, workers == 0, work)
    found = alternate(args.rounds, contestants, lambda result: f"{result['all_rss']:.0f} MB, {result['seconds']:.1f} s")

    print(f"minibert vocab and minibert pretrain {' '.join(ending)}, medians of {args.rounds} rounds, peaks in MB\n")
    columns = ("main_rss", "main_own", "all_rss", "all_own")
    rows = [
        [
            name, *(f"{medians(results, column):,.0f}" for column in columns),
            str(int(medians(results, "processes"))), f"{medians(results, 'seconds'):.1f}",
        ]
        for name, results in found.items()
    ]  # fmt: skip
    growth = {}
    for kind, sizes in kinds.items():
        (small, small_name), (large, large_name) = min(sizes), max(sizes)
        if small < large:
            growth[kind] = {column: ratio(found[large_name], found[small_name], column) for column in columns}
            rows.append(
                [
                    f"{kind}: {large:g} MB / {small:g} MB",
                    *(f"{growth[kind][column]['median']:.2f}x" for column in columns), "", "",
                ]
            )  # fmt: skip
    table(["", "main RSS", "main own", "all RSS", "all own", "processes", "seconds"], rows)
    report(
        args, hardware, versions("minibert", "torch", "datasets", "tokenizers"),
        {"bytes": {f"{mb:g}": text.stat().st_size for mb, text in texts.items()}, "rounds": found, "growth": growth},
    )  # fmt: skip


if __name__ == "__main__":
    run_main(main)
