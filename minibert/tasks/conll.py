"""Lines <-> sentences of tagged words: a word a line, the first column the token, the last one its tag.

A line that holds a tab is cut at its tabs, so that a token may hold blanks; any other at its ASCII blanks. Ideographic
and no-break blanks are characters like others: Chinese files have them as tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minibert.corpus.json_lines import numbered_lines
from minibert.errors import UserError
from minibert.tasks.base import note, until_fault
from minibert.tasks.tags import is_tag

DOCUMENT_MARK = "-DOCSTART-"

_BLANKS = " \t\v\f"
_BLANK_RUN = re.compile(r"[ \v\f]+")
_SHAPE = "a line a word: token<TAB>tag"


@dataclass(slots=True)
class Sentence:
    """Words on successive lines of a file, from `line` (from 1) on. tags: None where no gold was asked for."""

    line: int
    tokens: list[str]
    tags: list[str] | None


def read_conll(
    path: Path, encoding: str, *, gold: bool, faults: list[UserError] | None = None
) -> tuple[list[Sentence], list[str]]:
    """The sentences of a file, and notes for the user.

    A line of blanks or tabs ends a sentence, so does a -DOCSTART- line, which is no word, and the end of the file. A
    comment is a line before a sentence that begins with "# ", has no tab and no tag at its end; comments are counted.
    Without gold one column is enough, and others are not looked at. faults: as in Task; such a line is passed over.
    Raises: UserError with the line for a missing tag, or another number of columns than before.
    """
    sentences: list[Sentence] = []
    rows = _Rows(str(path), gold)
    comments = blanks = 0
    inside = False
    for number, line in until_fault(numbered_lines(path, encoding), faults):
        if not line.strip(_BLANKS):
            inside = False
            continue
        columns = columns_of(line)
        if columns[0] == DOCUMENT_MARK:
            inside = False
            continue
        if not inside and _is_comment(line, columns):
            comments += 1
            continue
        try:
            rows.check(columns, number, "\t" in line)
        except UserError as error:
            note(error, faults)
            continue
        if not inside:
            sentences.append(Sentence(number, [], [] if gold else None))
            inside = True
        sentence = sentences[-1]
        sentence.tokens.append(columns[0])
        blanks += not columns[0].strip()
        if sentence.tags is not None:
            sentence.tags.append(columns[-1].strip(_BLANKS))
    said = {
        'comments (lines that begin with "# ") passed over': comments,
        "tokens that are empty or blank, each a word with a tag": blanks,
    }
    return sentences, [f"{what}: {count}" for what, count in said.items() if count]


def columns_of(line: str) -> list[str]:
    """The columns of a line that is not blank; empty ones at its end do not count."""
    if "\t" not in line:
        return _BLANK_RUN.split(line.strip(_BLANKS))
    columns = line.split("\t")
    while not columns[-1].strip(_BLANKS):
        columns.pop()
    return columns


def looks_tagged(lines: Iterable[str]) -> bool:
    """Whether lines of a file are words with tags, and not plain text: every one that is not blank ends in a tag."""
    found = [columns_of(line) for line in lines if line.strip(_BLANKS)]
    words = [columns for columns in found if columns[0] not in (DOCUMENT_MARK, "#")]
    return bool(words) and all(len(columns) > 1 and is_tag(columns[-1].strip(_BLANKS)) for columns in words)


def write_conll(sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
    """`token<TAB>tag` a line, an empty line between sentences; a sentence without words leaves nothing but that line.

    Raises: UserError for a token with a tab or a line end in it: the lines would not be the words any more.
    """
    written = []
    for tokens, tags in sentences:
        for token in tokens:
            if any(character in token for character in "\t\n\r"):
                raise UserError(f"token {token!r} cannot stand in a line of conll", "--format", "--format jsonl")
        written.append("".join(f"{token}\t{tag}\n" for token, tag in zip(tokens, tags, strict=True)))
    return "\n".join(written)


class _Rows:
    """Checks that all lines of a file have as many columns: a token with a blank in it would lose its end unseen."""

    def __init__(self, path: str, gold: bool) -> None:
        self.path, self.gold = path, gold
        self.seen: dict[bool, tuple[int, int]] = {}  # with tabs or without -> number of columns, first line

    def check(self, columns: Sequence[str], number: int, tabs: bool) -> None:
        """Raises UserError for a line that is not like those before it."""
        if self.gold and len(columns) == 1:
            raise UserError(f"one column, {columns[0]!r}: the tag is missing", f"{self.path}:{number}", _SHAPE)
        count, first = self.seen.setdefault(tabs, (len(columns), number))
        if len(columns) != count and (self.gold or not tabs):
            raise UserError(
                f"{_columns(len(columns))}, but line {first} has {_columns(count)}", f"{self.path}:{number}",
                "separate columns by tabs, then a token may hold blanks",
            )  # fmt: skip


def _is_comment(line: str, columns: Sequence[str]) -> bool:
    return line.startswith("# ") and "\t" not in line and len(columns) > 2 and not is_tag(columns[-1])


def _columns(count: int) -> str:
    return f"{count} column" + ("s" if count > 1 else "")
