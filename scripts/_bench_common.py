"""What the benchmarks share: fair rounds, medians, tables, and the facts about the machine that a figure needs."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
SHARED_VOCABULARY = ROOT.parent / "shared" / "data" / "vocab" / "uncased_en.txt"
BUSY = 0.3  # processes waiting for a core, as a share of the cores, above which figures are not to be trusted


def parser(text: str | None, *, rounds: int = 3) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes. text: the script's docstring."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds, help=f"rounds to take the median of [default: {rounds}]")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write every single figure there")
    made.add_argument("--work", type=Path, metavar="DIR", help="where temporary files go [default: the system's place]")
    return made


def run_main(main: Callable[[], None]) -> None:
    """Call a script's main function; what minibert refuses is one message and exit code 2."""
    from minibert.errors import UserError

    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def give_freed_memory_back() -> None:
    """glibc as it is by itself once large arrays have been freed: minibert's training has told it to keep memory, and a
    peer in the same process must not profit."""
    from minibert.training.devices import MMAP_THRESHOLD, TRIM_THRESHOLD

    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(MMAP_THRESHOLD, 32 << 20)
        set_option(TRIM_THRESHOLD, 64 << 20)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """The hardware, and how busy it is already."""
    name = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return {
        "cpu": name or platform.machine(),
        "cores": cores(),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def versions(*packages: str) -> dict[str, str]:
    """Python's and the packages' versions."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def apart(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a process of its own, so that no measurement finds the caches of another."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def alternate(
    rounds: int, contestants: Mapping[str, Callable[[], dict[str, Any]]], figure: Callable[[dict[str, Any]], str]
) -> dict[str, list[dict[str, Any]]]:
    """Every contestant once a round, every other round backwards: what warms up or slows down a machine hits them all.

    Args: figure: what to say of a result on stderr while waiting.
    Returns: for each contestant its results, round by round.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in list(contestants) if number % 2 == 0 else reversed(list(contestants)):
            result = contestants[name]()
            found[name].append(result)
            print(f"round {number + 1} of {rounds}  {name}: {figure(result)}", file=sys.stderr, flush=True)
    return found


def medians(results: Sequence[Mapping[str, Any]], key: str) -> float:
    """The median of one figure over the rounds."""
    return float(statistics.median(result[key] for result in results))


def ratio(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    """Ours over theirs, round by round: median, lowest, highest."""
    each = [mine[key] / other[key] for mine, other in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(each), "lowest": min(each), "highest": max(each)}


def spread(found: Mapping[str, float], digits: int = 2) -> str:
    """A ratio for people."""
    return f"{found['median']:.{digits}f}x ({found['lowest']:.{digits}f} - {found['highest']:.{digits}f})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns: the first to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        first, *others = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join([first, *others]).rstrip())


def report(args: argparse.Namespace, hardware: Mapping[str, Any], software: Mapping[str, str], found: Any) -> None:
    """The lines under a table that say what was measured where, and the JSON file."""
    print(f"\nmachine: {hardware['cores']} cores, {hardware['cpu']}; load at the start {hardware['load']}")
    print("versions: " + ", ".join(f"{name} {number}" for name, number in software.items()))
    if (hardware["load"] or 0) > BUSY * hardware["cores"]:
        print("warning: the machine was busy with something else; these figures are not to be quoted")
    if args.json:
        settings = {k: [*map(str, v)] if isinstance(v, list) else v for k, v in vars(args).items()}
        whole = {"settings": settings, "machine": dict(hardware), "versions": dict(software), **found}
        args.json.write_text(json.dumps(whole, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def documents_of(files: Sequence[Path], megabytes: float) -> Iterator[list[str]]:
    """The first documents of a corpus, until they are so many MB of UTF-8; all of them if the corpus is smaller."""
    from minibert.corpus.read import read_documents

    size = 0
    for document in read_documents(files):
        yield document
        size += bytes_of(document)
        if size >= megabytes * 1e6:
            return


def bytes_of(document: Sequence[str]) -> int:
    """UTF-8 bytes of a document with its line ends and the blank line behind it."""
    return sum(len(line.encode()) + 1 for line in document) + 1


def write_documents(path: Path, documents: Iterable[Sequence[str]]) -> int:
    """Write documents as text files have them, a blank line behind each. Returns: bytes."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for document in documents:
            file.write("\n".join(document) + "\n\n")
    return path.stat().st_size


def make_tokenizer(files: Sequence[Path], size: int, given: Path | None) -> Any:
    """A minibert tokenizer of a vocabulary file, else trained on the text. It has `size` entries or more.

    Where the text holds fewer, unused ones fill up: the size of the vocabulary decides what a step costs.
    """
    from minibert.corpus.read import read_documents
    from minibert.tokenization.tokenizer import BertTokenizer
    from minibert.tokenization.vocabulary import train_vocabulary

    if given is not None:
        return BertTokenizer.from_pretrained(given, lowercase=True)
    vocabulary = train_vocabulary(
        lambda: (line for document in read_documents(files) for line in document), size=size, lowercase=True
    )
    tokens = [*vocabulary.tokens, *(f"[unused{i}]" for i in range(size - len(vocabulary.tokens)))]
    return BertTokenizer.from_tokens(tokens, lowercase=True)
