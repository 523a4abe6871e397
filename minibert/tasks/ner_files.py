"""Files of the ner task as examples: CoNLL, JSONL of tagged words or of texts with entities, and plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minibert.corpus.decoding import line_blocks
from minibert.corpus.json_lines import numbered_lines, parse_object, refuse_half_pairs, shorten, type_name
from minibert.errors import UserError
from minibert.tasks.base import Reading, note, until_fault
from minibert.tasks.conll import looks_tagged, read_conll
from minibert.tasks.tags import LETTERS, SCHEMES, Scheme, bare_types, is_tag, standard, tell_scheme
from minibert.tasks.word_spans import Entity, Span, WordFinder, fit_entities

FORMATS = {
    ".conll": "conll", ".conllu": "conll", ".bio": "conll", ".iob": "conll", ".iob2": "conll", ".bioes": "conll",
    ".ner": "conll", ".tsv": "conll", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "txt",
}  # fmt: skip

_SHAPES = '{"tokens": [...], "tags": [...]} or {"text": ..., "entities": [{"start": 0, "end": 5, "label": "PER"}]}'
_LOOKED_AT = 100  # lines that tell words with tags from plain text


@dataclass(slots=True)
class NerExample:
    """A sentence.

    Attributes: tokens: its words. tags: their gold in IOB2; None without. path, line: where it begins, "" and 0 for
        input from Python. line_step: lines from a word to the next one. text: what the words were cut from, spans their
        places in it. missed: types of gold entities that no tags of these words can say; they are part of the gold, and
        never found.
    """

    tokens: list[str]
    tags: list[str] | None = None
    path: str = ""
    line: int = 0
    line_step: int = 0
    text: str | None = None
    spans: Sequence[Span] = ()
    missed: list[str] = field(default_factory=list)

    def where(self, word: int = 0) -> str:
        """file:line of a word."""
        return f"{self.path}:{self.line + word * self.line_step}"


@dataclass(frozen=True)
class NerReader:
    """How the files are read.

    Attributes: layout: conll, jsonl, txt, or "" to look into the file. labels: those of a model, so that a file in
        labels without letters (PER) can be measured with it. train: mend or leave out what cannot be learnt as it is.
        faults: as in Task.
    """

    layout: str
    encoding: str
    scheme: Scheme | None
    labels: Sequence[str]
    gold: bool
    train: bool
    faults: list[UserError] | None = None

    def read(self, path: Path) -> Reading[NerExample]:
        """The examples of a file. Raises: UserError with file:line."""
        reading: Reading[NerExample] = Reading([])
        layout = self._layout(path, reading.notes)
        if layout == "conll":
            sentences, notes = read_conll(path, self.encoding, gold=self.gold, faults=self.faults)
            reading.notes += notes
            reading.examples = [NerExample(s.tokens, s.tags, str(path), s.line, 1) for s in sentences]
        elif layout == "jsonl":
            self._read_records(path, reading)
        else:
            finder = WordFinder()
            for number, line in numbered_lines(path, self.encoding):
                reading.examples.append(example_of_text(line, finder, str(path), number))
        if self.gold:
            self._standardise(reading)
        if not reading.examples and not self.faults:
            raise self._nothing(path, reading)
        if self.train and reading.examples and not any(set(e.tags or ()) - {"O"} for e in reading.examples):
            error = UserError("there is no entity in it: every tag is O", str(path), "nothing could be learnt")
            note(error, self.faults)
        return reading

    def _layout(self, path: Path, notes: list[str]) -> str:
        """conll, jsonl or txt; told from the file's first lines where neither the user nor the name says it."""
        if self.layout:
            if self.layout == "txt" and self.gold:
                raise UserError("plain text has no tags", str(path), "--input-format conll, or jsonl")
            return self.layout
        head = next(line_blocks(path, self.encoding), [])
        head = [line for line in head if line.strip()][:_LOOKED_AT]
        if head and head[0].lstrip().startswith("{"):
            layout, why = "jsonl", "its first line begins with {"
        elif self.gold or looks_tagged(head):
            layout, why = "conll", "labels are wanted" if self.gold else "its lines end in tags"
        else:
            layout, why = "txt", "a line is a text"
        if head:
            notes.append(f"read as {layout}: {why} (--input-format conll|jsonl|txt says otherwise)")
        return layout

    # ---- JSONL

    def _read_records(self, path: Path, reading: Reading[NerExample]) -> None:
        finder = WordFinder()
        for number, line in until_fault(numbered_lines(path, self.encoding), self.faults):
            if line.strip():
                try:
                    self._read_record(line, path, number, finder, reading)
                except UserError as error:
                    note(error, self.faults)
        if missed := sum(len(example.missed) for example in reading.examples):
            reading.notes.append(
                "entities that tags of whole words cannot say (bad place, inside a word, overlapping), which count as "
                f"gold that is not found: {missed}"
            )

    def _read_record(
        self, line: str, path: Path, number: int, finder: WordFinder, reading: Reading[NerExample]
    ) -> None:
        where = f"{path}:{number}"
        record = parse_object(line, where, f"one JSON object a line: {_SHAPES}", unique_keys=True)
        example = example_of_record(record, where, finder, path=str(path), line=number)
        reason = ""
        if self.gold and example.text is None:
            example.tags = _tags(record, example.tokens, where)
        elif self.gold:
            reason = self._add_entities(example, record, where, reading)
        if reason:
            reading.skipped.append({"where": where, "reason": reason})
        else:
            reading.examples.append(example)

    def _add_entities(
        self, example: NerExample, record: Mapping[str, Any], where: str, reading: Reading[NerExample]
    ) -> str:
        """Gives an example of text its gold. Returns: why training has to leave it out, "" where it has not."""
        entities: list[Entity] = []
        assert example.text is not None
        for entity, fault in _entities(record, example.text, where):
            if not fault:
                entities.append(entity)
            elif self.train:
                return fault
            else:
                example.missed.append(entity.label)
        fitted = fit_entities(example.spans, entities, move=self.train)
        example.tags = fitted.tags
        if not self.train:
            example.missed += [entity.label for entity, _ in fitted.left_out]
            return ""
        for entity in fitted.moved:
            reason = f"{_shown(entity, example.text)} begins or ends inside a word: the whole word is tagged"
            reading.repaired.append({"where": where, "reason": reason})
        for entity, why in fitted.left_out:
            reason = f"{_shown(entity, example.text)} {why}: it is left out"
            reading.repaired.append({"where": where, "reason": reason})
        return ""

    # ---- tags

    def _standardise(self, reading: Reading[NerExample]) -> None:
        """The tags of examples that came with tags, checked and as IOB2."""
        tagged, wrong_ones = [], set()
        bare = bare_types(self.labels)
        letters = LETTERS[self.scheme or "bioes"]
        for example in [example for example in reading.examples if example.text is None]:
            assert example.tags is not None
            wrong = {t for t in set(example.tags) - bare if not (is_tag(t) and t[0] in letters + "O")}
            if wrong:
                note(self._no_tag(next(tag for tag in example.tags if tag in wrong), example), self.faults)
                wrong_ones.add(id(example))
                continue
            if bare:
                example.tags = [f"I-{tag}" if tag in bare else tag for tag in example.tags]
            tagged.append(example)
        reading.examples = [example for example in reading.examples if id(example) not in wrong_ones]
        scheme = self.scheme or tell_scheme(example.tags or () for example in tagged)
        if tagged and self.scheme is None:
            words = {"bio": "bio (IOB2)", "iob1": "iob1", "bioes": "bioes"}[scheme]
            reading.notes.append(f"the tags' scheme is {words}, as they show (--scheme says otherwise)")
        odd = 0
        for example in tagged:
            example.tags, count = standard(example.tags or (), scheme)
            odd += count
            if count and self.train:
                reason = f"tags out of order in {scheme}, read as conlleval does: {count}"
                reading.repaired.append({"where": example.where(), "reason": reason})
        if odd:
            reading.notes.append(f"tags out of order in {scheme} (such as I-X after O), read as conlleval does: {odd}")
        if self.train and scheme == "iob1":
            reading.notes.append("iob1 is learnt, and predicted, as IOB2: every entity begins with B-")
        self._leave_out_empty(reading)

    def _leave_out_empty(self, reading: Reading[NerExample]) -> None:
        if self.train:
            empty = [example for example in reading.examples if not example.tokens]
            reading.skipped += [{"where": example.where(), "reason": "there are no words in it"} for example in empty]
            reading.examples = [example for example in reading.examples if example.tokens]

    def _nothing(self, path: Path, reading: Reading[NerExample]) -> UserError:
        if not reading.skipped:
            return UserError("holds no sentences", str(path), f"a word a line, or JSON lines: {_SHAPES}")
        first = reading.skipped[0]
        return UserError(
            f"none of its {len(reading.skipped)} records can be learnt; of the first: {first['reason']}",
            first["where"], "places of entities count characters of the text; the end is behind the last one",
        )  # fmt: skip

    def _no_tag(self, tag: str, example: NerExample) -> UserError:
        word = (example.tags or []).index(tag)
        problem = f"{tag!r}, the tag of {shorten(example.tokens[word])}, is no tag"
        if is_tag(tag):
            return UserError(f"{problem} of the scheme {self.scheme}", example.where(word), "--scheme auto")
        return UserError(problem, example.where(word), f"tags are {SCHEMES}")


def example_of_text(text: str, finder: WordFinder, path: str = "", line: int = 0) -> NerExample:
    """A text as an example without gold."""
    spans = finder.spans(text)
    return NerExample([text[a:b] for a, b in spans], path=path, line=line, text=text, spans=spans)


def example_of_record(
    record: Mapping[str, Any], where: str, finder: WordFinder, *, path: str = "", line: int = 0
) -> NerExample:
    """{"tokens"} or {"text"} as an example without gold; with both, as predictions of texts have them, the text."""
    key = next((key for key in ("text", "tokens") if key in record), None)
    if key is None:
        there = ", ".join(shorten(name) for name in list(record)[:20]) or "none"
        raise UserError(f"no field 'text' or 'tokens'; there are {there}", where, _SHAPES)
    value = record[key]
    if key == "text":
        if not isinstance(value, str):
            raise UserError(f"'text' is a JSON {type_name(value)}, not a string: {shorten(value)}", where, _SHAPES)
        refuse_half_pairs(value, where)
        return example_of_text(value, finder, path, line)
    return NerExample(_strings(value, "tokens", where), path=path, line=line)


def _tags(record: Mapping[str, Any], tokens: Sequence[str], where: str) -> list[str]:
    if "tags" not in record:
        there = ", ".join(shorten(name) for name in record)
        raise UserError(f"no field 'tags'; there are {there}", where, _SHAPES)
    tags = _strings(record["tags"], "tags", where)
    if len(tags) != len(tokens):
        raise UserError(f"{len(tokens)} tokens but {len(tags)} tags", where, "a tag for each token")
    return tags


def _strings(value: Any, key: str, where: str) -> list[str]:
    if not isinstance(value, list):
        raise UserError(f"{key!r} is a JSON {type_name(value)}, not an array: {shorten(value)}", where, _SHAPES)
    for i, item in enumerate(value):
        if not isinstance(item, str):
            raise UserError(f"{key}[{i}] is a JSON {type_name(item)}, not a string: {shorten(item)}", where, _SHAPES)
        refuse_half_pairs(item, where)
    return value


def _entities(record: Mapping[str, Any], text: str, where: str) -> Iterator[tuple[Entity, str]]:
    """The gold entities, each with what is wrong with its place; "" where nothing is."""
    if "entities" not in record:
        there = ", ".join(shorten(name) for name in record)
        raise UserError(f"no field 'entities'; there are {there}", where, _SHAPES)
    found = record["entities"]
    if not isinstance(found, list):
        raise UserError(f"'entities' is a JSON {type_name(found)}, not an array: {shorten(found)}", where, _SHAPES)
    for i, item in enumerate(found):
        if not isinstance(item, dict):
            raise UserError(f"entities[{i}] is a JSON {type_name(item)}, not an object", where, _SHAPES)
        start, end, label = (item.get(key) for key in ("start", "end", "label"))
        for key, value in (("start", start), ("end", end)):
            if type(value) is not int:
                raise UserError(f"entities[{i}] has the {key} {shorten(value)}, not a whole number", where, _SHAPES)
        if not isinstance(label, str) or not is_tag(f"B-{label}"):
            raise UserError(f"entities[{i}] has the label {shorten(label)}, which is no name", where, _SHAPES)
        entity = Entity(label, start, end)  # type: ignore[arg-type]
        yield entity, _fault(entity, text, item.get("text"))


def _fault(entity: Entity, text: str, said: Any) -> str:
    place = f"the entity {entity.label} from {entity.start} to {entity.end}"
    if not 0 <= entity.start <= entity.end <= len(text):
        return f"{place} lies outside the text's {len(text)} characters"
    if entity.start == entity.end:
        return f"{place} is empty"
    if isinstance(said, str) and said.strip() != text[entity.start : entity.end].strip():
        return (
            f"{place} should read {shorten(said)}, but there stands {shorten(text[entity.start : entity.end])}: are "
            "its places counted in bytes or UTF-16 units instead of characters?"
        )
    return ""


def _shown(entity: Entity, text: str) -> str:
    return f"the entity {entity.label} {shorten(text[entity.start : entity.end])} from {entity.start} to {entity.end}"
