"""A labelled file as the checks see it: all records that can be read, and the mistakes of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from minibert.check.findings import Checked, Finding, Level
from minibert.errors import UserError
from minibert.tasks.base import Reading, Record, Task
from minibert.view.page import Both

PLACES = 5  # shown of a finding
SHOWN = 80  # characters of a text
PART_NAMES = {"train": "训练集", "dev": "验证集", "test": "测试集"}

Named = list[tuple[str, str]]  # a name (a label, a type) and where it stands, once for each time that it is given


@dataclass
class LabelFile:
    """One of train, dev and test.

    Attributes: reading: as training has it, with what it skips and mends. records: of the examples, in order. faults:
        of the records that stop training; of a file that cannot be read at all, the one that says so.
    """

    name: str
    path: Path
    reading: Reading[Any]
    records: list[Record]
    faults: list[UserError]

    @property
    def examples(self) -> list[Any]:
        """What could be read, in order."""
        return self.reading.examples

    @property
    def title(self) -> Both:
        """The part's name in both languages."""
        return Both(self.name, PART_NAMES[self.name])


def read_file(task: Task[Any, Any], name: str, path: Path) -> LabelFile:
    """A file, as training would read it, but for its mistakes, which are collected.

    Raises: UserError for a mistake of the command line, such as a file that is not there.
    """
    if not path.is_file():
        raise UserError(
            "is no file", str(path), f"--{name} FILE" if name != "train" else "name a file of labelled text"
        )
    task.faults = []
    try:
        reading: Reading[Any] = task.read(path, gold=True, train=True)
    except UserError as error:
        if (error.where or "").startswith("--"):
            raise
        return LabelFile(name, path, Reading([]), [], [*task.faults, error])
    records = []
    for number, example in enumerate(reading.examples, 1):
        record = task.record(example)
        place = record.where or f"record {number}"
        if not place.startswith(str(path)):
            place = f"{path.name}, {place}"
        records.append(record._replace(where=place))
    return LabelFile(name, path, reading, records, task.faults)


def add(
    checked: Checked, kind: str, level: Level, en: str, zh: str, fix: tuple[str, str] | None = None,
    where: Iterable[str] = (),
) -> None:  # fmt: skip
    """A finding, with its first places, each once."""
    checked.findings.append(
        Finding(kind, level, Both(en, zh), Both(*fix) if fix else None, tuple(islice(dict.fromkeys(where), PLACES)))
    )


def level(share: float, limit: float) -> Level:
    """Doubtful from a share on."""
    return "doubtful" if share >= limit else "note"


def cut(text: str) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def names_of(names: Iterable[object], most: int = 5) -> str:
    """Some names, in quotes; how many there are where they are more."""
    found = [f"'{cut(str(name))}'" for name in names]
    return ", ".join(found[:most]) + (f" ... ({len(found)})" if len(found) > most else "")
