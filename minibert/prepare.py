"""From text to a store of token ids that training reads on any machine; in shards where one machine is too small."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from minibert.atomic import remove
from minibert.console import Console, counting
from minibert.corpus.decoding import check_encoding
from minibert.corpus.prepared import check_belongs, made_of, shard_name
from minibert.corpus.read import SHARD, fingerprint
from minibert.corpus.sources import Source, corpus_digest, on_this_machine, share_of, size_of
from minibert.corpus.store import NOT_WHOLE, TokenStore, build_store, read_facts, worker_count
from minibert.errors import UserError
from minibert.remote import RemoteFile, find, is_remote, read_bytes, sent
from minibert.tokenization.tokenizer import BertTokenizer

OF_THIS_PROGRAM = "memory://"  # ends with it


def prepare(
    sources: Sequence[Source], out: str, tokenizer: BertTokenizer, *, shard: int, of: int, encoding: str,
    text_field: str, language: str, words: bool, workers: int, cache: Path, console: Console,
) -> None:  # fmt: skip
    """Write one shard of a corpus's store, whole or not at all: its share of the files, tokenised.

    Each machine is given the same corpus, tokenizer and options, and its own number; none waits for another.
    Args: out: the store, a folder or a place that fsspec knows. shard, of: which of how many, from 1. words: find whole
        words too. cache: where files of other places are kept, and a shard until it has been sent.
    Raises: UserError for fewer files than shards, text that cannot be read, and a store of something else in `out`.
    """
    mine = sources[share_of([size_of(source) for source in sources], shard, of)]
    files = on_this_machine(mine, cache, console)
    notes = made_of(
        tokenizer, shard=shard, of=of, corpus=corpus_digest(sources), text=fingerprint(files),
        encoding=check_encoding(encoding), text_field=text_field, language=language, words=words,
    )  # fmt: skip
    name = shard_name(shard, of)
    if is_made(out, name, notes):
        console.say(f"{out}/{name}: made before")
        return
    if out.startswith(OF_THIS_PROGRAM):
        raise UserError("ends with this program, and the store with it", f"--out {out}", "name a folder or s3://...")
    remote = is_remote(out)
    key = blake2b(json.dumps(notes, sort_keys=True).encode(), digest_size=12).hexdigest()
    target = (cache / "prepared" / key if remote else Path(out)) / name
    began = time.monotonic()
    if not (remote and is_whole(target)):  # a shard that could not be sent is there already
        with console.progress("tokens", unit="characters") as update:
            build_store(
                target, files, tokenizer, encoding=encoding, text_field=text_field, language=language, words=words,
                workers=worker_count(workers), progress=counting(update), shard=notes,
            )  # fmt: skip
    facts = read_facts(target)
    if remote:
        sent(target, f"{out.rstrip('/')}/{name}", last="store.json")
        remove(target.parent)
    console.table(
        f"shard {shard} of {of}: {out}/{name}",
        [
            ("files", f"{len(files):,} of {len(sources):,}"),
            ("documents", f"{facts['documents']:,}"),
            ("tokens", f"{facts['tokens']:,}, {facts['unknown_tokens'] / max(1, facts['tokens']):.2%} unknown"),
            ("seconds", f"{time.monotonic() - began:.1f}"),
        ],
    )


def is_whole(folder: Path) -> bool:
    """Whether this folder holds a store, or a shard, that can be opened."""
    try:
        TokenStore(folder)
    except NOT_WHOLE:
        return False
    return True


def is_made(out: str, name: str, notes: dict[str, Any]) -> bool:
    """Whether the shard of this name is in the store already, made of the same.

    Raises: UserError if something else is there: files that are no shards, shards of another corpus, another count.
    """
    names, noted = _in_remote_store(out) if is_remote(out) else _in_store(Path(out))
    others = sorted(other for other in names if not other.startswith((".", "shard-")))
    if others:
        raise UserError(f"holds other files, such as {others[0]}", f"--out {out}", "choose another --out")
    for other in sorted(names):
        if (match := SHARD.fullmatch(other)) and int(match[2]) != notes["of"]:
            raise UserError(
                f"holds shards of {int(match[2])}, not of {notes['of']}", f"--out {out}", "choose another --out"
            )
    shards = [other for other in sorted(names) if SHARD.fullmatch(other) and other != name]
    for other in shards[:1]:  # one is enough: each has been compared so
        if (found := noted(other)) is not None:
            check_belongs(found, notes, f"--out {out}")
    before = noted(name) if name in names else None
    if before is not None and before != notes:
        raise UserError(
            "this shard is there, made of other text or with other settings", f"--out {out}",
            f"choose another --out, or delete {name}",
        )  # fmt: skip
    return before is not None


def _in_store(folder: Path) -> Any:
    """The names in a folder, and a function that gives the notes of a whole shard (None: it is damaged)."""
    if folder.exists() and not folder.is_dir():
        raise UserError("is a file; a store is a folder", f"--out {folder}", "choose another --out")

    def noted(name: str) -> dict[str, Any] | None:
        try:
            return dict(read_facts(folder / name)["shard"]) if is_whole(folder / name) else None
        except NOT_WHOLE:
            return None

    return {path.name for path in folder.iterdir()} if folder.exists() else set(), noted


def _in_remote_store(url: str) -> Any:
    """_in_store of another place. A shard is whole there if it has its store.json, and as many bytes as that says."""
    files: dict[str, RemoteFile] = {}
    for inside in find(url, missing_ok=True).values():
        files |= inside
    if "" in files:
        raise UserError("is a file; a store is a folder", f"--out {url}", "choose another --out")

    def noted(name: str) -> dict[str, Any] | None:
        about, tokens = files.get(f"{name}/store.json"), files.get(f"{name}/tokens.arrow")
        try:
            facts = json.loads(read_bytes(about)) if about and tokens else {}
            return dict(facts["shard"]) if tokens and facts["bytes"] == tokens.size else None
        except NOT_WHOLE:
            return None

    return {file.split("/")[0] for file in files}, noted
