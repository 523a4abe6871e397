"""A store of shards that `minibert prepare` has made, perhaps on several machines: named, compared, opened as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from minibert.corpus.read import SHARD
from minibert.corpus.store import FORMAT, NOT_WHOLE, TokenStore, libraries, read_facts
from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer

OWN = ("shard", "text")  # what each shard of a store has for itself; the rest is the same in all
IN_WORDS = {
    "format": "by another version of minibert", "tokenizer": "with another tokenizer",
    "corpus": "of another list of files", "encoding": "with another --encoding",
    "text_field": "with another --text-field", "language": "with another --language",
    "words": "with another --mask-unit", "libraries": "with other versions of sentencex or rjieba",
}  # fmt: skip


def shard_name(shard: int, of: int) -> str:
    """The folder of a shard in its store."""
    return f"shard-{shard:05d}-of-{of:05d}"


def is_store(names: Iterable[str]) -> bool:
    """Whether a place with files of these names is a prepared store, or what there is of one."""
    return any(SHARD.fullmatch(name.split("/")[0]) for name in names)


def is_store_folder(folder: Path) -> bool:
    """Whether this folder is one."""
    return folder.is_dir() and is_store(path.name for path in folder.iterdir())


def check_complete(names: Iterable[str], where: str) -> list[str]:
    """The names of a store's shards in their order. Raises: UserError for missing shards and for two stores in one."""
    found = {name: (int(match[1]), int(match[2])) for name in names if (match := SHARD.fullmatch(name))}
    counts = sorted({of for _, of in found.values()})
    if len(counts) > 1:
        raise UserError(
            f"shards of {' and of '.join(map(str, counts))} are mixed there", where, "keep those that belong together"
        )
    (of,) = counts
    if missing := [shard for shard in range(1, of + 1) if shard_name(shard, of) not in found]:
        which = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
        raise UserError(
            f"shard{'s' * (len(missing) > 1)} {which} of {of} {'are' if len(missing) > 1 else 'is'} missing",
            where, again(missing[0], of, where),
        )  # fmt: skip
    return [shard_name(shard, of) for shard in range(1, of + 1)]


def check_sent(files: Iterable[str], where: str) -> None:
    """check_complete of a store at another place, where files came one by one, store.json of each shard as the last."""
    files = set(files)
    shards = check_complete({name.split("/")[0] for name in files}, where)
    for number, shard in enumerate(shards, 1):
        if not {f"{shard}/store.json", f"{shard}/tokens.arrow"} <= files:
            raise UserError(
                f"shard {number} of {len(shards)} is not complete", where, again(number, len(shards), where)
            )


def again(shard: int, of: int, where: str) -> str:
    """The command that makes a shard."""
    return f"minibert prepare CORPUS... --tokenizer TOKENIZER --out {where}" + (f" --shard {shard}/{of}" * (of > 1))


def made_of(
    tokenizer: BertTokenizer, *, shard: int, of: int, corpus: str, text: str, encoding: str, text_field: str,
    language: str, words: bool,
) -> dict[str, Any]:  # fmt: skip
    """What store.json says of a shard: all that decides its tokens. text: the fingerprint of the shard's own files."""
    return {
        "shard": shard, "of": of, "format": FORMAT, "libraries": libraries(words=words), "corpus": corpus,
        "tokenizer": tokenizer.fingerprint, "encoding": encoding, "text_field": text_field, "language": language,
        "words": words, "text": text,
    }  # fmt: skip


def check_belongs(mine: Mapping[str, Any], other: Mapping[str, Any], where: str) -> None:
    """Refuse two shards of one store that were made of different things."""
    for name, how in IN_WORDS.items():
        if mine.get(name) != other.get(name):
            raise UserError(
                f"shard {other['shard']} of {other['of']} was prepared {how} than shard {mine['shard']}", where,
                "give all shards the same corpus, tokenizer and options, and prepare anew those that had others",
            )  # fmt: skip


def open_prepared(folder: Path, where: str = "") -> tuple[BertTokenizer, TokenStore, dict[str, Any]]:
    """The tokenizer and the tokens of a prepared store, and what is noted of all its shards.

    Args: where: the place that the folder is a copy of, for messages.
    Raises: UserError for shards that are missing, damaged, or do not belong together.
    """
    where = where or str(folder)
    shards = check_complete((path.name for path in folder.iterdir()), where)
    notes: list[dict[str, Any]] = []
    for number, name in enumerate(shards, 1):
        with _damage_named(where, name, number, len(shards)):
            notes.append(dict(read_facts(folder / name)["shard"]))
        if notes[-1].get("format") != FORMAT:
            raise UserError("was prepared by another version of minibert", f"{where}/{name}", "prepare it anew")
        check_belongs(notes[0], notes[-1], where)
    tokenizer = BertTokenizer.from_pretrained(folder / shards[0])
    if tokenizer.fingerprint != notes[0]["tokenizer"]:
        raise UserError(
            "its tokenizer is not the one that its tokens were made with", f"{where}/{shards[0]}",
            f"delete it, then {again(1, len(shards), where)}",
        )  # fmt: skip
    digest = blake2b(json.dumps(notes, sort_keys=True).encode(), digest_size=12).hexdigest()
    try:
        store = TokenStore(folder, shards, f"prepared-{digest}")
        store.check()
    except NOT_WHOLE:
        for number, name in enumerate(shards, 1):
            with _damage_named(where, name, number, len(shards)):
                TokenStore(folder, [name]).check()
        raise
    if not store.facts["tokens"]:
        raise UserError("no text: the files that it was made of hold no character of a token", where)
    return tokenizer, store, {key: value for key, value in notes[0].items() if key not in OWN}


@contextmanager
def _damage_named(where: str, name: str, shard: int, of: int) -> Iterator[None]:
    try:
        yield
    except NOT_WHOLE as error:
        raise UserError(
            f"shard {shard} of {of} is damaged: {type(error).__name__}: {error}", f"{where}/{name}",
            f"delete it, then {again(shard, of, where)}",
        ) from error  # fmt: skip
