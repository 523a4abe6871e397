"""Files of questions -> examples: SQuAD's JSON and its relatives (CMRC 2018, DRCD), and JSON lines.

The text contract: a context is kept as it is, to the last blank, for answers are counted in its characters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from minibert.corpus.decoding import line_blocks
from minibert.corpus.json_lines import numbered_lines, unique
from minibert.errors import UserError
from minibert.tasks.base import Reading, note, until_fault

SHOWN = 60  # characters of a text in a message
LONGEST_FILE = 1 << 30  # characters of a JSON file; SQuAD has 3 * 10**7
LAYOUT = '{"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "1", "question": "...", "answers": [...]}]}]}]}'
FLAT = '{"id": "1", "question": "...", "context": "...", "answers": [{"text": "...", "answer_start": 0}]}'
ANOTHER = "; another of its answers is learnt"
NO_ANSWER = "it has no answer, and unanswerable is 'no'"
ANSWER = '{"text": "...", "answer_start": 0}'
# The second names are those of CMRC 2018 as it was first published.
CONTEXT, QUESTION, ID = ("context", "context_text"), ("question", "query_text"), ("id", "query_id")


@dataclass(slots=True)
class QaExample:
    """A question about a context.

    Attributes: id: as the file has it, None for a question from Python without one. texts: the gold answers, () where
        there is none to be found in the context; None without gold. span: (start, end) in characters of the answer that
        is learnt; None where its place is not known. written: all answers of the file, blank ones and misplaced ones
        too; only where faults are collected.
    """

    id: str | int | None
    question: str
    context: str
    texts: tuple[str, ...] | None = None
    span: tuple[int, int] | None = None
    written: tuple[Answer, ...] = ()


class Answer(NamedTuple):
    """A gold answer, and the character where the file says that it begins."""

    text: str
    start: int | None


class Record(NamedTuple):
    """A question as the file has it. place: for messages. is_flat: it has its context beside it, as in JSON lines."""

    place: str
    entry: Mapping[str, Any]
    context: str
    is_flat: bool


def read_questions(
    path: Path, encoding: str, layout: str, *, gold: bool, train: bool, unanswerable: bool,
    faults: list[UserError] | None = None,
) -> Reading[QaExample]:  # fmt: skip
    """The questions of a file; gold and train as in Task.read.

    Args: layout: "jsonl", "json", or "" to look into the file. unanswerable: whether questions without an answer may be
        learnt; if not, training leaves them out. faults: as in Task; a question whose id another has is no fault there.
    Raises: UserError for what is no such file, with line and column or article, paragraph and question.
    """
    reading: Reading[QaExample] = Reading([])
    counts: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for number, record in enumerate(_records(path, encoding, layout, faults), 1):
        try:
            example = _question(record, number)
            answers = answers_of(record.entry, record.place, counts) if gold else []
        except UserError as error:
            note(error, faults)
            continue
        name = str(example.id)
        if name in numbers:
            counts["questions with an id that an earlier one has"] += 1
            if not (train or record.is_flat or faults is not None):
                raise UserError(
                    f"the id {name!r} is that of two questions, number {numbers[name]} and {number} of the file",
                    record.place, "give each question an id of its own",
                )  # fmt: skip
        numbers.setdefault(name, number)
        counts["blank questions"] += not example.question.strip()
        counts["questions with a blank context, where nothing can be found"] += not example.context.strip()
        if gold:
            if faults is not None:
                example.written = tuple(_written(record.entry.get("answers") or [], record.place))
            example.texts = tuple(answer.text for answer in answers)
            example.span, trouble = locate(example.context, answers)
            if not answers and not unanswerable:
                counts["questions without an answer, which this model will not say"] += not train
                trouble = NO_ANSWER
            if train and trouble:
                where = {"where": f"{path.name}, question {name!r}", "reason": trouble}
                is_learnt = example.span is not None
                (reading.repaired if is_learnt else reading.skipped).append(where)
                if not is_learnt:
                    continue
        reading.examples.append(example)
    if not numbers and not faults:
        raise UserError("holds no questions", str(path), LAYOUT)
    if not reading.examples and reading.skipped and faults is None:
        why = reading.skipped[0]["reason"]
        fix = "answer_start counts the characters of the context before the answer"
        raise UserError(
            f"none of its questions can be learnt ({len(reading.skipped)} in all); of the first: {why}", str(path),
            "--unanswerable yes, to learn that there is none" if why == NO_ANSWER else fix,
        )  # fmt: skip
    reading.notes = [f"{what}: {count}" for what, count in counts.items() if count]
    return reading


def _question(record: Record, number: int) -> QaExample:
    """A file's question without its answers; one of JSON lines without an id has its number."""
    example = question_of(record.entry, record.context, record.place)
    if example.id is None:
        if not record.is_flat:
            raise UserError("the question has no 'id'", record.place, LAYOUT)
        example.id = number
    return example


def question_of(entry: Mapping[str, Any], context: str, place: str) -> QaExample:
    """A question without its answers; its id is None where the entry has none."""
    key = _first(entry, ID)
    value = entry.get(key)
    if isinstance(value, str):
        check_text(value, key, place)
    elif value is not None and type(value) is not int:
        raise UserError(f"{key!r} is {_shown(value)}, no string or whole number", place, 'give it an "id": "..."')
    return QaExample(value, text_of(entry, QUESTION, place), context)


def answers_of(entry: Mapping[str, Any], place: str, counts: Counter[str]) -> list[Answer]:
    """The gold answers of a question, none where it is unanswerable. counts: takes what is odd but usable.

    Answers come as a list of {"text", "answer_start"}, as {"text": [...], "answer_start": [...]} or as a list of texts.
    """
    impossible = entry.get("is_impossible")
    if impossible is not None and not isinstance(impossible, bool):
        raise UserError(f"'is_impossible' is {_shown(impossible)}", place, "true or false")
    raw = entry.get("answers")
    if raw is None:
        if impossible or "plausible_answers" in entry:
            return []
        raise UserError(
            f"no 'answers'; there are {', '.join(map(repr, entry))}", place,
            f'"answers": [{ANSWER}], or "answers": [] where there is none',
        )  # fmt: skip
    written = _written(raw, place)
    answers = [answer for answer in written if answer.text.strip()]
    counts["questions with a blank answer, which does not count"] += len(answers) < len(written) and not impossible
    if impossible and answers:
        counts["questions marked is_impossible that have answers, taken for unanswerable"] += 1
        return []
    possible = impossible is False
    counts["questions marked as possible that have no answer, taken for unanswerable"] += possible and not answers
    return answers


def _written(raw: Any, place: str) -> list[Answer]:
    return [_answer(item, place) for item in _items(raw, place)]


def _items(raw: Any, place: str) -> list[Any]:
    """Answers as a list of objects or texts."""
    if isinstance(raw, list):
        return raw
    texts, starts = (raw.get("text"), raw.get("answer_start")) if isinstance(raw, dict) else (None, None)
    if not isinstance(texts, list):
        raise UserError(f"'answers' is {_shown(raw)}", place, f'"answers": [{ANSWER}]')
    if starts is None:
        return texts
    if not isinstance(starts, list) or len(starts) != len(texts):
        raise UserError(f"'answers' has {len(texts)} of 'text' but 'answer_start' is {_shown(starts)}", place, FLAT)
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _answer(item: Any, place: str) -> Answer:
    if isinstance(item, str):
        check_text(item, "answers", place)
        return Answer(item, None)
    if not isinstance(item, dict):
        raise UserError(f"an answer is {_shown(item)}", place, ANSWER)
    start = item.get("answer_start")
    if start is not None and type(start) is not int:
        raise UserError(f"'answer_start' is {_shown(start)}, no whole number", place, ANSWER)
    return Answer(text_of(item, ("text",), place), start)


def locate(context: str, answers: Sequence[Answer]) -> tuple[tuple[int, int] | None, str]:
    """Where the answer to be learnt stands: the first that is where it should be, else the first that occurs once.

    Returns: (start, end) in characters or None, and what was not as it should be, "" if nothing was. A text that occurs
        several times is not guessed at.
    """
    for i, (text, start) in enumerate(answers):
        if start is not None and start >= 0 and context.startswith(text, start):
            return (start, start + len(text)), _misplaced(context, answers[0]) + ANOTHER if i else ""
    for i, (text, start) in enumerate(answers):
        found = context.find(text)
        if found >= 0 and context.find(text, found + 1) < 0:
            trouble = "" if start is None else f"its answer {_shown(text)} begins at {found}, not at {start}"
            return (found, found + len(text)), _misplaced(context, answers[0]) + ANOTHER if i else trouble
    return None, _misplaced(context, answers[0]) if answers else ""


def _misplaced(context: str, answer: Answer) -> str:
    text, start = answer
    found = context.count(text)
    times = f"occurs {found} times in the context" if found else "is not in the context"
    return f"its answer {_shown(text)} {times}" + ("" if start is None else f", and not at {start}")


def _records(path: Path, encoding: str, layout: str, faults: list[UserError] | None) -> Iterator[Record]:
    if layout == "jsonl":
        yield from _lines(path, encoding, faults)
        return
    text = _whole_text(path, encoding)
    if not layout and _is_jsonl(text):
        yield from _lines(path, encoding, faults)
        return
    content = parse(text, str(path))
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        content = content["data"]
    if not isinstance(content, list):
        keys = (
            f"an object with {', '.join(map(repr, content)) or 'nothing'}"
            if isinstance(content, dict)
            else _shown(content)
        )
        raise UserError(f"is no file of questions: {keys}", str(path), LAYOUT)
    for i, entry in enumerate(content, 1):
        try:
            yield from _article(entry, str(path), i)
        except UserError as error:
            note(error, faults)


def _whole_text(path: Path, encoding: str) -> str:
    """The text of a file. Raises: UserError for one that is too long to be taken apart in memory."""
    lines: list[str] = []
    size = 0
    for block in line_blocks(path, encoding, longest=LONGEST_FILE):
        lines += block
        size += sum(map(len, block)) + len(block)
        if size > LONGEST_FILE:
            raise UserError(f"has more than {LONGEST_FILE:,} characters", str(path), f"write JSON lines: {FLAT}")
    return "\n".join(lines)


def _is_jsonl(text: str) -> bool:
    """Whether the first line alone is a question with its context."""
    try:
        first = json.loads(text.lstrip().split("\n", 1)[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and _first(first, QUESTION) in first


def _lines(path: Path, encoding: str, faults: list[UserError] | None) -> Iterator[Record]:
    for number, line in until_fault(numbered_lines(path, encoding), faults):
        if line.strip():
            place = f"{path}:{number}"
            try:
                record = _flat(parse(line, place, line_number=False), place)
            except UserError as error:
                note(error, faults)
            else:
                yield record


def parse(text: str, place: str, *, line_number: bool = True) -> Any:
    """JSON. Raises: UserError with place, line (unless place has it) and column."""
    if not text.strip():
        raise UserError("is empty: there are no questions", place, LAYOUT)
    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = f"{place}:{error.lineno}:{error.colno}" if line_number else f"{place}:{error.colno}"
        raise UserError(f"not JSON: {error.msg}", where, "mend it, or write the file with a JSON library") from error
    except RecursionError as error:
        raise UserError("JSON that is nested too deep", place, LAYOUT) from error
    except ValueError as error:  # a whole number of more than 4,300 digits
        raise UserError(f"not JSON that can be read: {error}", place, LAYOUT) from error


def _flat(entry: Any, place: str) -> Record:
    if not isinstance(entry, dict):
        raise UserError(f"is {_shown(entry)}, not an object", place, FLAT)
    return Record(place, entry, text_of(entry, CONTEXT, place), True)


def _article(entry: Any, path: str, number: int) -> Iterator[Record]:
    """The questions of an entry of "data": an article with paragraphs, a paragraph with questions, or a question."""
    place = f"{path}: article {number}"
    if isinstance(entry, dict) and _first(entry, QUESTION) in entry:
        yield _flat(entry, f"{path}: question {number}")
        return
    if isinstance(entry, dict) and "qas" in entry:
        yield from _paragraph(entry, place)
        return
    for i, paragraph in enumerate(_list(entry, "paragraphs", place), 1):
        yield from _paragraph(paragraph, f"{place}, paragraph {i}")


def _paragraph(paragraph: Any, place: str) -> Iterator[Record]:
    questions = _list(paragraph, "qas", place)
    context = text_of(paragraph, CONTEXT, place)
    for i, entry in enumerate(questions, 1):
        if not isinstance(entry, dict):
            raise UserError(f"question {i} is {_shown(entry)}, not an object", place, LAYOUT)
        name = entry.get(_first(entry, ID))
        yield Record(f"{place}, question {i if name is None else _shown(name)}", entry, context, False)


def _list(holder: Any, key: str, place: str) -> list[Any]:
    if not isinstance(holder, dict):
        raise UserError(f"is {_shown(holder)}, not an object", place, LAYOUT)
    if key not in holder:
        raise UserError(f"no {key!r}; there are {', '.join(map(repr, holder)) or 'none'}", place, LAYOUT)
    if not isinstance(holder[key], list):
        raise UserError(f"{key!r} is {_shown(holder[key])}, not a list", place, LAYOUT)
    return list(holder[key])


def text_of(holder: Mapping[str, Any], keys: Sequence[str], place: str) -> str:
    """The string under the first of the keys that is there. Raises: UserError if there is none."""
    key = _first(holder, keys)
    if key not in holder:
        raise UserError(f"no {key!r}; there are {', '.join(map(repr, holder)) or 'none'}", place, FLAT)
    value = holder[key]
    if not isinstance(value, str):
        raise UserError(f"{key!r} is {_shown(value)}, not a string", place, FLAT)
    return check_text(value, key, place)


def check_text(text: str, key: str, place: str) -> str:
    """The text itself. Raises: UserError for half of a surrogate pair, which only an escape can bring into JSON."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start]).strip("'")
        problem = f"{key!r} holds {half}: half of a surrogate pair, no character"
        raise UserError(problem, place, "remove the escape") from error
    return text


def _first(holder: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The first of the keys that the holder has; the first of all where it has none."""
    return next((key for key in keys if key in holder), keys[0])


def _shown(value: Any) -> str:
    """A value for a message: what it is, and short ones as they are."""
    if isinstance(value, dict | list):
        return f"a JSON {'object' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value) if isinstance(value, str) else json.dumps(value)  # repr escapes half surrogates
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
