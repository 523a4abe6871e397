"""JSON lines, strictly: one object a line, and the place of what is wrong."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibert.corpus.decoding import line_blocks
from minibert.errors import UserError

_SHOWN = 60  # characters of a value in a message


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
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of more than 4,300 digits
        raise UserError(f"not JSON: {error}", where, fix) from error
    if not isinstance(record, dict):
        raise UserError(f"a JSON {type_name(record)}, not an object: {shorten(line)}", where, fix)
    return record


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, as json.loads calls it. Raises: ValueError for a key that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in an object")
    return found


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
