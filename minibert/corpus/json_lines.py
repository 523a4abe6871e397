"""JSON lines, strictly: one object a line, and the place of what is wrong."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibert.corpus.decoding import line_blocks
from minibert.errors import UserError

_SHOWN = 60  # characters of a value in a message
_DEEPEST = 100  # arrays and objects in each other: what looks at a value goes down so far


def numbered_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file, counted from 1, as `line_blocks` decodes them."""
    number = 0
    for block in line_blocks(path, encoding):
        for line in block:
            number += 1
            yield number, line


def parse_object(line: str, where: str, fix: str, *, unique_keys: bool = False) -> dict[str, Any]:
    """The JSON object that a line is.

    Args: fix: what to do about a line that is none. unique_keys: a key that stands twice is an error.
    Raises: UserError with the place.
    """
    try:
        record = json.loads(line, object_pairs_hook=unique if unique_keys else None)
        if line.count("[") + line.count("{") > _DEEPEST and depth(record) > _DEEPEST:
            raise RecursionError
    except RecursionError as error:
        raise UserError("not JSON that can be read: it is nested too deep", where, fix) from error
    except ValueError as error:  # also an integer of more than 4,300 digits
        raise UserError(f"not JSON: {error}", where, fix) from error
    if not isinstance(record, dict):
        raise UserError(f"a JSON {type_name(record)}, not an object: {shorten(line)}", where, fix)
    return record


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, as json.loads calls it. Raises: ValueError for a key that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {shorten(twice)} stands twice in an object")
    return found


def depth(value: Any) -> int:
    """How many arrays and objects stand in each other; 0 for a value that is neither."""
    level, deep = [value], -1
    while level:
        deep += 1
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [item for items in inner for item in items]
    return deep


def has_escaped_surrogate(line: str) -> bool:
    """Only an escape can bring half a surrogate pair past the decoder; most lines have none and need no look."""
    return "\\ud" in line or "\\uD" in line


def refuse_half_pairs(value: Any, where: str) -> None:
    """Raises UserError where a string, or a string in a JSON value, holds half of a surrogate pair."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start]).strip("'")
        raise UserError(f"{half} is half of a surrogate pair, no character", where, "remove the escape") from error


def type_name(value: object) -> str:
    """A value's type in JSON's words."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null", int: "number"}
    return names.get(type(value), "number" if isinstance(value, float) else type(value).__name__)


def shorten(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def in_words(value: object) -> str:
    """What a value is, for "the text is ...": "a number: 1", "missing (null)"."""
    if value is None:
        return "missing (null)"
    if isinstance(value, float) and not math.isfinite(value):
        return f"no finite number: {value}"
    name = type_name(value)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}: {shorten(value)}"
