"""Text classification's records: from rows of a table, or Python's own values, to texts with their labels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minibert.config import FinetuneConfig, opt
from minibert.corpus.json_lines import in_words, numbered_lines, shorten
from minibert.errors import UserError
from minibert.tasks.base import Reading, input_format, note
from minibert.tasks.tables import FORMATS, TableReader

PLACES = {"text": "1", "label": "2"}  # where the default columns are in a file without header
ALL_DIFFER = 8  # rows; of so many and more, labels that are all different are taken for another column
MANY = 30  # rows; of so many and more, classes in more than half of them are taken for another column
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WRITTEN_LIST = re.compile(r"\[\s*(['\"].*)?\]", re.DOTALL)  # how Python writes a list of labels into a cell

Label = str | tuple[str, ...] | float


@dataclass(slots=True)
class ClsExample:
    """A record.

    Attributes: pair: the second text, None where there is none. label: a name, several of them, or a number; None
        without gold. id: as in the file, None without id_column. where: "dev.csv:3".
    """

    text: str
    pair: str | None = None
    label: Label | None = None
    id: Any = None
    where: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its labels."""
        return self.label if isinstance(self.label, tuple) else (self.label,) if isinstance(self.label, str) else ()


@dataclass(frozen=True, kw_only=True)
class ClsConfig(FinetuneConfig):
    """Settings of text classification."""

    text_column: str = opt("text", "column or field that holds the text; its number where the file has no header")
    pair_column: str = opt("", "column of a second text, for questions about two texts")
    label_column: str = opt("label", "column of the label; its number where the file has no header")
    id_column: str = opt("", "column whose value each prediction repeats as id")
    header: bool = opt(True, "whether the first line of CSV and TSV names the columns; else they are called 1, 2, ...")
    delimiter: str = opt("", "character between the cells of CSV and TSV (default: , or tab, by the file's name)")
    quoting: bool = opt(True, 'whether "..." in CSV and TSV encloses a cell; else quotes are text like any other')
    multi_label: bool = opt(False, "a text may have any number of labels, none too")
    label_delimiter: str = opt("|", "between the labels of a text, where they are not a JSON list")
    regression: bool = opt(False, "the label is a number")
    class_weights: Literal["none", "balanced"] = opt(
        "none", "balanced: rare classes weigh more in the loss, each class as much as any other in all"
    )
    labels: str = opt("", "file with a label a line: these and no others, in this order")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multi_label and self.regression:
            raise UserError("multi_label and regression exclude each other", "regression", "leave one of them out")
        if self.class_weights != "none" and (self.multi_label or self.regression):
            kind = "multi_label" if self.multi_label else "regression"
            raise UserError(f"class_weights is {self.class_weights!r} with {kind}", "class_weights", "leave it out")
        if self.labels and self.regression:
            raise UserError(f"labels is {self.labels!r}, but regression has no labels", "labels", "leave it out")
        if self.delimiter != "\\t" and (len(self.delimiter) > 1 or self.delimiter in ('"', "\n", "\r")):
            fix = r"one character, no quote and no line break; \t is a tab"
            raise UserError(f"delimiter is {self.delimiter!r}", "delimiter", fix)
        columns = ("text_column", "pair_column", "label_column", "id_column")
        used = Counter(name for name in (getattr(self, column) for column in columns[:3]) if name)
        if used and used.most_common(1)[0][1] > 1:
            twice = used.most_common(1)[0][0]
            those = [f"--{column.replace('_', '-')}" for column in columns if getattr(self, column) == twice]
            raise UserError(f"{' and '.join(those)} are the same column {twice!r}", those[0], "name two columns")
        for name in ("text_column", "label_column", "label_delimiter"):
            if not getattr(self, name):
                raise UserError(f"{name} is empty", name, "leave it out for the default")


# ---- files


def read_rows(
    path: Path, config: ClsConfig, *, gold: bool, faults: list[UserError] | None = None
) -> Reading[ClsExample]:
    """The rows of a file, every one. Labels are stripped of the blanks round them, texts are left as they are.

    A file whose name says no format is looked into, see TableReader.guess. Plain text, a text a line, has no gold.
    faults: as in Task.
    """
    wanted = {
        "--text-column": config.text_column, "--pair-column": config.pair_column, "--id-column": config.id_column,
        "--label-column": config.label_column if gold else "",
    }  # fmt: skip
    wanted = {option: name for option, name in wanted.items() if name}
    delimiter = "\t" if config.delimiter == "\\t" else config.delimiter
    reader = TableReader(wanted, config.encoding, delimiter, config.header, PLACES, config.quoting, faults=faults)
    layout = input_format(path, config, FORMATS) or reader.guess(path, gold=gold)
    examples = []
    for where, values in reader.rows(path, layout):
        try:
            examples.append(_example(dict(zip(wanted, values, strict=True)), where, config, gold=gold))
        except UserError as error:
            note(error, faults)
    if not examples and not faults:
        raise UserError(
            "holds no examples: there are no rows", str(path), "a row is a text" + (" and its label" if gold else "")
        )
    notes = [*reader.notes]
    texts = [text for example in examples for text in (example.text, example.pair) if text is not None]
    if empty := sum(not is_visible(text) for text in texts):
        notes.append(f"{empty} {'text is' if empty == 1 else 'texts are'} empty")
    if bare := sum(example.label == () for example in examples):
        notes.append(f"{bare} {'text has' if bare == 1 else 'texts have'} no label")
    return Reading(examples, notes=notes)


def _example(found: Mapping[str, Any], where: str, config: ClsConfig, *, gold: bool) -> ClsExample:
    """A row's values, by the options that name their columns, as an example."""
    example = ClsExample(_text(found["--text-column"], "--text-column", where), where=where)
    if config.pair_column:
        example.pair = _text(found["--pair-column"], "--pair-column", where)
    if config.id_column:
        example.id = _id(found["--id-column"], where)
    if gold:
        example.label = _label(found["--label-column"], where, config)
    return example


def is_visible(text: str) -> bool:
    """Whether anything of it is more than a blank or an invisible sign (U+200B): what BERT can see."""
    return any(character.isprintable() and not character.isspace() for character in text)


def _text(value: Any, option: str, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"the text is {in_words(value)}", where, f"{option} names a column of texts")
    return value


def _id(value: Any, where: str) -> Any:
    if isinstance(value, bool) or not (
        isinstance(value, str) or (isinstance(value, int | float) and _is_finite(value))
    ):
        fix = "--id-column names a column of strings or numbers"
        raise UserError(f"the id is {in_words(value)}", where, fix)
    return value


def _label(value: Any, where: str, config: ClsConfig) -> Label:
    if config.regression:
        return _number(value, where)
    if config.multi_label:
        if isinstance(value, str):
            parts: list[Any] = value.split(config.label_delimiter) if value.strip() else []
        elif isinstance(value, list):
            parts = value
        else:
            fix = f'with --multi-label: a list ["a", "b"], or a{config.label_delimiter}b'
            raise UserError(f"the label is {in_words(value)}", where, fix)
        labels = tuple(_name(part, where) for part in parts)
        if len(set(labels)) < len(labels):
            raise UserError(f"a label stands twice in {shorten(value)}", where, "name each once")
        return labels
    if isinstance(value, list):
        raise UserError(f"the label is a list: {shorten(value)}", where, "add --multi-label")
    return _name(value, where)


def _number(value: Any, where: str) -> float:
    number = value.strip() if isinstance(value, str) else value
    if isinstance(number, str) and NUMBER.fullmatch(number):
        number = float(number)
    if not isinstance(number, int | float) or isinstance(number, bool) or not _is_finite(number):
        raise UserError(f"the label {shorten(value)} is no number", where, "with --regression: a number such as 3.8")
    return float(number)


def _name(value: Any, where: str) -> str:
    """A label's name: text, or what a number, true and false look like in JSON."""
    if isinstance(value, str):
        name = value.strip()
    elif isinstance(value, bool):
        name = "true" if value else "false"
    elif isinstance(value, int | float) and _is_finite(value):
        name = str(value)
    else:
        raise UserError(f"the label is {in_words(value)}", where, "a label is text or a number")
    if not name:
        raise UserError("the label is empty", where, "every row needs one here; `minibert predict` needs none")
    if any(character in name for character in "\n\r\t\0"):
        raise UserError(f"the label {shorten(name)} holds a line break, a tab or NUL", where, "look at the quotes")
    if WRITTEN_LIST.fullmatch(name):
        fix = "add --multi-label and write a|b, or a JSON list"
        raise UserError(f"the label is a list written as text: {shorten(name)}", where, fix)
    return name


def _is_finite(value: float) -> bool:
    return abs(value) < 10**300 if isinstance(value, int) else math.isfinite(value)


# ---- label names


def label_names(examples: Sequence[ClsExample], config: ClsConfig) -> list[str]:
    """The label names of training examples, sorted: as text, or as numbers where all are whole ones ("2" before "10";
    "01" is text). With the setting labels: those of the file, in its order.

    Raises: UserError for fewer than two classes (with multi_label: for none), and for what looks like no classes.
    """
    if config.labels:
        return _listed(Path(config.labels), config)
    names = sorted({name for example in examples for name in example.names})
    if all(name.isascii() and name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        names.sort(key=int)
    file = re.sub(r":( row )?\d+$", "", examples[0].where)
    if len(names) < 2 - config.multi_label:
        what = f"all {len(examples)} rows have the label {shorten(names[0])}" if names else "no row has a label"
        raise UserError(what, file, "give texts of other classes too, or another --label-column")
    many = len(examples) >= MANY and len(names) > len(examples) / 2
    if (many or len(names) == len(examples) >= ALL_DIFFER) and not config.multi_label:
        fix = "--label-column names another column; if these are classes, list them with --labels FILE"
        shown = ", ".join(map(shorten, names[:3]))
        raise UserError(f"{len(names)} classes in {len(examples)} rows, such as {shown}", file, fix)
    return names


def _listed(path: Path, config: ClsConfig) -> list[str]:
    """The labels of a file; empty lines at its end count for nothing."""
    lines = [(number, line.strip()) for number, line in numbered_lines(path, config.encoding)]
    while lines and not lines[-1][1]:
        lines.pop()
    first: dict[str, int] = {}
    for number, line in lines:
        name = _name(line, f"{path}:{number}")
        if name in first:
            raise UserError(f"the label {name!r} stands in line {first[name]} too", f"{path}:{number}", "remove one")
        first[name] = number
    least = 2 - config.multi_label
    if len(first) < least:
        raise UserError(f"lists {len(first)} labels", str(path), f"a label a line, {least} at least")
    return list(first)


# ---- Python's values


def from_values(inputs: Sequence[Any], named: Mapping[str, Any], config: ClsConfig) -> list[ClsExample]:
    """Texts, or texts and their pairs, as examples without gold; see Cls.from_python."""
    how = "pipeline(text), pipeline(text, pair), each a string or a list, or pipeline([(text, pair), ...])"
    arguments = dict(zip(("text", "text_pair"), inputs, strict=False))
    if len(inputs) > 2 or "text" not in {**arguments, **named} or set(named) - {"text", "text_pair"}:
        raise UserError(f"got {len(inputs)} inputs and {', '.join(named) or 'none'} by name", "pipeline", how)
    if twice := set(arguments) & set(named):
        raise UserError(f"got {twice.pop()} twice", "pipeline", how)
    arguments |= named
    sides = [_several(arguments[name], how) for name in ("text", "text_pair") if name in arguments]
    if len({len(side) for side in sides}) > 1:
        raise UserError(f"got {len(sides[0])} texts but {len(sides[1])} pairs", "pipeline", how)
    records = zip(*sides, strict=True) if len(sides) == 2 else map(_both, sides[0])
    examples = []
    for number, (text, pair) in enumerate(records, 1):
        place = f"input {number}"
        if pair is None and (config.pair_column or len(sides) == 2):
            raise UserError("there is no second text, and this model takes pairs", place, how)
        for side in (text, "" if pair is None else pair):
            if not isinstance(side, str):
                raise UserError(f"{shorten(side)} is {type(side).__name__}, not a text", place, how)
        examples.append(ClsExample(text, pair, where=place))
    return examples


def _several(side: Any, how: str) -> list[Any]:
    """One input or several, as a list."""
    if isinstance(side, tuple):
        raise UserError("a tuple is one pair, and stands in a list", "pipeline", how)
    return [side] if isinstance(side, str | Mapping) or not isinstance(side, Iterable) else list(side)


def _both(item: Any) -> tuple[Any, Any]:
    """The text and the pair of one input."""
    if isinstance(item, Mapping) and "text" in item and set(item) <= {"text", "text_pair"}:
        return item["text"], item.get("text_pair")
    return (item[0], item[1]) if isinstance(item, tuple) and len(item) == 2 else (item, None)
