"""What a look at data gives: facts for programs, sections for people, findings, and a verdict over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from minibert.view.page import Both

Level = Literal["doubtful", "note"]  # doubtful: likely to harm training, exit code 3; note: good to know


@dataclass(frozen=True)
class Finding:
    """Something about the data that a person should know.

    Attributes: kind: a short name that stays ("near duplicates"). message: what was found, with its numbers. fix: what
        to do about it. where: the first places ("train.csv:12"), in the user's own words.
    """

    kind: str
    level: Level
    message: Both
    fix: Both | None = None
    where: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    """A part of the page: a title, words, tiles (name, value, perhaps what explains it), bars (name, share from 0 to 1,
    what stands beside it) and a table.

    lead: one sentence that says how to read it.
    """

    title: Both
    lead: Both | None = None
    tiles: Sequence[tuple[Both | str, str] | tuple[Both | str, str, Both]] = ()
    bars: Sequence[tuple[Both | str, float, str]] = ()
    columns: Sequence[Both | str] = ()
    rows: Sequence[Sequence[Both | str]] = ()


@dataclass
class Checked:
    """All that was found. facts: plain values for --json, names in snake_case."""

    what: Both  # "a corpus", "labelled data for cls"
    facts: dict[str, Any]
    sections: list[Section] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    hint: Both | None = None  # what it could say with another option

    @property
    def doubtful(self) -> bool:
        """Whether training on it as it is would be a risk: exit code 3."""
        return any(finding.level == "doubtful" for finding in self.findings)
