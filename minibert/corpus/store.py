"""The token store: the whole corpus as memory-mapped arrays of token ids, built once in parallel.

A store is a folder: `tokens.arrow` (one row a document, readable with `datasets.Dataset.from_file`) and `store.json`.
Its name is a hash of the corpus's bytes, the tokenizer and every setting that decides a token, so that a second run
finds it. It is filled under another name and renamed: a store that is there is whole.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property, partial
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from minibert.atomic import clear_leftovers, write_whole
from minibert.corpus.orphans import end_with_parent
from minibert.corpus.pairs import Layout
from minibert.corpus.read import Skipped, read_pieces
from minibert.corpus.tokenize import TokenisedDocuments, tokenise, whole_documents
from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer

FORMAT = 4  # goes into the key: raise it when a change makes other tokens of the same text
CHUNK_CHARACTERS = 200_000  # text handed to a worker at a time
# what a damaged store raises; pyarrow's are the first two
NOT_WHOLE = (OSError, ValueError, KeyError, TypeError, RecursionError)
AHEAD = 16  # groups that this process does by itself while the workers start
ALONE_BELOW_BYTES = 8_000_000  # starting workers takes longer than reading this much text; words: a quarter of it


class TokenStore:
    """A corpus of token ids on disk, seen as flat arrays. Opening one costs no memory for the tokens.

    Args: folder: the store. shards: folders in it that hold the store's parts, in their order; none: it is whole.
    Attributes: name: stands for the content. facts: what was counted while it was built (documents, sentences, tokens,
        unknown_tokens ...), of all shards together.
    Raises: one of NOT_WHOLE for a folder that is not a whole store; see whole_store.
    """

    def __init__(self, folder: Path, shards: Sequence[str] = (), name: str = "") -> None:
        import pyarrow as pa  # maps the file as `datasets` does, whose import takes half a second more

        self.folder, self.shards, self.name = folder, tuple(shards), name or folder.name
        parts = [_open_part(folder / shard) for shard in shards] or [_open_part(folder)]
        self.facts = _all_together([facts for _, _, facts in parts])
        self._table = table = pa.concat_tables([table for table, _, _ in parts])
        self._ids = [values for _, ids, _ in parts for values in ids]
        folders = [folder / shard for shard in shards] or [folder]
        self._folders = [folder for folder, (_, ids, _) in zip(folders, parts, strict=True) for _ in ids]
        self._starts = (
            [_values(chunk) for chunk in table.column("starts_word").chunks]
            if "starts_word" in table.column_names
            else None
        )
        self._first = list(accumulate(map(len, self._ids), initial=0))

    def check(self) -> None:
        """Raises ValueError where documents and sentences do not stand as they must; reads no token."""
        self._table.validate(full=True)
        if not self._first[-1]:  # one of several shards may hold no text
            return
        sentences, documents = self.layout.sentence_start, self.layout.doc_first
        if sentences[-1] != self._first[-1] or (np.diff(sentences) < 1).any() or (np.diff(documents) < 1).any():
            raise ValueError(f"{self.folder} has sentences that are not those of its tokens")

    @cached_property
    def layout(self) -> Layout:
        """Where documents and sentences begin. A loader's worker never asks, and so never holds it."""
        column = self._table.column("sentence_lengths")
        lengths = [_values(chunk) for chunk in column.chunks]
        counts = [np.diff(np.asarray(chunk.offsets)) for chunk in column.chunks]
        return Layout(
            doc_first=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64),
            sentence_start=np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)]),
        )

    @cached_property
    def hashes(self) -> np.ndarray:
        """(documents,) uint64, of each document's tokens."""
        return np.asarray(self._table.column("hash").to_numpy(), dtype=np.uint64)

    def __getstate__(self) -> dict[str, Any]:  # a loader's worker opens the file itself instead of receiving a copy
        return {"folder": self.folder, "shards": self.shards, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self.facts["documents"])

    def ids(self, start: int, length: int) -> np.ndarray:
        """Token ids (length,) from position `start` of the corpus; a view where they lie in one piece on disk."""
        return self._slice(self._ids, start, length)

    def starts_word(self, start: int, length: int) -> np.ndarray:
        """(length,) bool: False where a token goes on with the word before it. Only in stores built with words."""
        assert self._starts is not None, "this store was built without words"
        return self._slice(self._starts, start, length)

    def _slice(self, parts: list[np.ndarray], start: int, length: int) -> np.ndarray:
        part = bisect_right(self._first, start) - 1
        begin = start - self._first[part]
        piece = parts[part][begin : begin + length]
        if len(piece) == length:
            return piece
        pieces = [piece]
        while (missing := length - sum(map(len, pieces))) > 0:
            part += 1
            pieces.append(parts[part][:missing])
        return np.concatenate(pieces)

    def document_span(self, document: int) -> tuple[int, int]:
        """The tokens of a document: (start, length)."""
        first, end = self.layout.doc_first[document : document + 2]
        start = int(self.layout.sentence_start[first])
        return start, int(self.layout.sentence_start[end]) - start

    def token_counts(self, vocab_size: int, *, without: np.ndarray) -> np.ndarray:
        """How often each token stands in all documents but those of `without`: (V,) int64."""
        counts = np.zeros(vocab_size, np.int64)
        for part, folder in zip(self._ids, self._folders, strict=True):
            found = np.bincount(part, minlength=vocab_size)
            if len(found) > vocab_size:
                raise UserError(
                    f"is damaged: it holds the token {len(found) - 1} of {vocab_size}", str(folder),
                    "delete this folder, and " + ("prepare this shard anew" if self.shards else "it is made anew"),
                )  # fmt: skip
            counts += found
        for document in without.tolist():
            counts -= np.bincount(self.ids(*self.document_span(document)), minlength=vocab_size)
        return counts


def read_facts(folder: Path) -> dict[str, Any]:
    """store.json of a store's folder. Raises: OSError, ValueError or TypeError where there is none."""
    facts: dict[str, Any] = dict(json.loads((folder / "store.json").read_text("utf-8")))
    return facts


def _all_together(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of all parts as those of one store: counts added, lists one behind the other."""
    together: dict[str, Any] = {}
    for key, value in facts[0].items():
        if isinstance(value, int):
            together[key] = sum(of_part[key] for of_part in facts)
        elif isinstance(value, list):
            together[key] = [item for of_part in facts for item in of_part[key]]
    return together


def _open_part(folder: Path) -> tuple[Any, list[np.ndarray], dict[str, Any]]:
    """One folder: its memory-mapped table, the token ids in that, its facts."""
    import pyarrow as pa

    facts = read_facts(folder)
    path = folder / "tokens.arrow"
    if path.stat().st_size != facts["bytes"]:
        raise ValueError(f"{path} has {path.stat().st_size} bytes instead of {facts['bytes']}")
    table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    ids = [_values(chunk) for chunk in table.column("ids").chunks]
    if sum(map(len, ids)) != facts["tokens"] or len(table) != facts["documents"]:
        raise ValueError(f"{path} does not hold what store.json says")
    return table, ids, facts


def _values(chunk: Any) -> np.ndarray:
    """The flat values of a list column's chunk as an array over the memory-mapped file."""
    offsets = chunk.offsets
    values = chunk.values.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py())
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    return array


def whole_store(folder: Path) -> TokenStore | None:
    """The store in this folder; None where there is none, or a damaged one."""
    try:
        store = TokenStore(folder)
        store.check()
    except NOT_WHOLE:
        return None
    return store


def libraries(*, words: bool) -> list[str]:
    """Versions of what decides where sentences and words begin."""
    return [version("sentencex"), version("rjieba") if words and find_spec("rjieba") else ""]


def store_key(corpus: str, tokenizer: BertTokenizer, **settings: object) -> str:
    """The name of the store of this corpus (its fingerprint) under this tokenizer and these settings."""
    versions = libraries(words=bool(settings.get("words")))
    whole = json.dumps([FORMAT, versions, corpus, tokenizer.fingerprint, settings], sort_keys=True)
    return blake2b(whole.encode(), digest_size=12).hexdigest()


def open_store(
    files: Sequence[Path],
    tokenizer: BertTokenizer,
    folder: Path,
    *,
    corpus: str,
    encoding: str = "utf-8",
    text_field: str = "text",
    language: str = "auto",
    words: bool = False,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> tuple[TokenStore, bool]:
    """The token store of these files, built under `folder` unless it is there.

    Args: corpus: the files' fingerprint. words: find whole words too. workers: processes that tokenise.
        progress: called with the number of characters of each part that is done.
    Returns: (store, whether it was there already).
    Raises: UserError if the files hold no text or cannot be read; then nothing is left behind.
    """
    key = store_key(corpus, tokenizer, encoding=encoding, text_field=text_field, language=language, words=words)
    target = folder / key
    if (store := whole_store(target)) is not None:
        return store, True
    clear_leftovers(folder, "*")  # of other texts too
    try:
        build_store(
            target, files, tokenizer, encoding=encoding, text_field=text_field, language=language, words=words,
            workers=workers, progress=progress, keep=lambda there: whole_store(there) is not None,
        )  # fmt: skip
    except UserError as error:
        if error.where == str(target.absolute()):
            raise UserError(error.problem, where=error.where, fix="--cache DIR names another place") from error
        raise
    return TokenStore(target), False


def build_store(
    target: Path, files: Sequence[Path], tokenizer: BertTokenizer, *, encoding: str, text_field: str, language: str,
    words: bool, workers: int, progress: Callable[[int], None] | None = None, shard: Mapping[str, Any] | None = None,
    keep: Callable[[Path], bool] = lambda _: False,
) -> None:  # fmt: skip
    """Tokenise files into a store, whole or not at all.

    Args: as open_store. keep: see write_whole. shard: what store.json says of the store's place among others. One of
        several may hold no text, and has the tokenizer in it.
    """
    total = sum(file.stat().st_size for file in files)
    skipped = Skipped()
    groups = chunks(read_pieces(files, encoding=encoding, text_field=text_field, skipped=skipped))
    alone = total < ALONE_BELOW_BYTES // (4 if words else 1)
    parts = _tokenised(groups, tokenizer, language=language, words=words, workers=1 if alone else workers)

    def fill(partial: Path) -> None:
        partial.mkdir()
        facts = _write(partial, parts, tokenizer, words=words, skipped=skipped, progress=progress)
        if not facts["tokens"] and (shard is None or shard["of"] == 1):
            names = ", ".join(map(str, files[:3])) + (" ..." if len(files) > 3 else "")
            raise UserError("no text: the files hold no character that a token could be made of", where=names)
        if shard is not None:
            tokenizer.save_pretrained(partial)
            facts["shard"] = dict(shard)
        (partial / "store.json").write_text(json.dumps(facts, indent=1), "utf-8")

    write_whole(target, fill, keep=keep)


def worker_count(workers: int) -> int:
    """--workers, or one process a core."""
    if workers:
        return workers
    # a job is often given fewer cores than the machine has
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Group = tuple[list[list[str]], bool]  # documents, and whether the last of them goes on in the next group


def chunks(pieces: Iterator[tuple[list[str], bool]]) -> Iterator[Group]:
    """Documents in groups of about CHUNK_CHARACTERS; one that is longer goes over several groups."""
    documents: list[list[str]] = []
    size = 0
    ended = True
    for lines, ends in pieces:
        if ended:
            documents.append([])
        documents[-1] += lines
        ended = ends
        size += sum(map(len, lines))
        if size >= CHUNK_CHARACTERS:
            yield documents, not ended
            documents, size = ([], 0) if ended else ([[]], 0)
    if documents:
        yield documents, False


class _Worker:
    """What a worker process has from its start: the tokenizer is sent once, and keeps the words that it has seen."""

    work: Callable[..., TokenisedDocuments]

    @classmethod
    def start(cls, work: Callable[..., TokenisedDocuments]) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the pool is the parallelism
        end_with_parent()
        cls.work = work

    @classmethod
    def tokenise(cls, documents: list[list[str]], goes_on: bool) -> TokenisedDocuments:
        return cls.work(documents, goes_on=goes_on)


def _tokenised(
    groups: Iterator[Group], tokenizer: BertTokenizer, *, language: str, words: bool, workers: int
) -> Iterator[TokenisedDocuments]:
    """The groups tokenised, in their order; a bounded number of them is under way at any time.

    This process is one of the workers: it tokenises a group itself where the others have enough to do.
    """
    work = partial(tokenise, tokenizer=tokenizer, language=language, words=words)
    if workers <= 1:
        for documents, goes_on in groups:
            yield work(documents, goes_on=goes_on)
        return
    others = workers - 1
    with ProcessPoolExecutor(
        others, mp_context=get_context("spawn"), initializer=_Worker.start, initargs=(work,)
    ) as pool:
        waiting: deque[Future[TokenisedDocuments]] = deque()
        try:
            for documents, goes_on in groups:
                while waiting and (waiting[0].done() or len(waiting) > 3 * others + AHEAD):
                    yield waiting.popleft().result()
                if sum(not future.done() for future in waiting) < 3 * others:
                    waiting.append(pool.submit(_Worker.tokenise, documents, goes_on))
                else:
                    waiting.append(Future())
                    waiting[-1].set_result(work(documents, goes_on=goes_on))
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                "a process that tokenises was ended by the system, which happens where memory runs out",
                where="--workers", fix="--workers 1 needs the least",
            ) from error  # fmt: skip
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _write(
    folder: Path,
    parts: Iterator[TokenisedDocuments],
    tokenizer: BertTokenizer,
    *,
    words: bool,
    skipped: Skipped,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Write tokens.arrow; returns what was counted."""
    import pyarrow as pa
    from datasets import Features, List, Value
    from datasets.arrow_writer import ArrowWriter

    id_type = "uint16" if len(tokenizer) <= 1 << 16 else "int32"
    columns = {"ids": List(Value(id_type)), "sentence_lengths": List(Value("int32")), "hash": Value("uint64")}
    if words:
        columns["starts_word"] = List(Value("uint8"))
    features = Features(columns)
    facts: dict[str, Any] = dict.fromkeys(
        ("documents", "sentences", "tokens", "unknown_tokens", "characters", "empty_documents", "empty_lines"), 0
    )
    facts["one_sentence_documents"] = 0
    with ArrowWriter(features=features, path=str(folder / "tokens.arrow")) as writer:
        for part in whole_documents(parts):
            counts = part.document_sentences[part.document_sentences > 0]
            facts["characters"] += part.characters
            facts["empty_documents"] += len(part.document_sentences) - len(counts)
            facts["empty_lines"] += part.empty_lines
            if progress:
                progress(part.characters)
            if not len(counts):
                continue
            by_sentence = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
            by_token = np.concatenate([[0], np.cumsum(part.sentence_lengths)[by_sentence[1:] - 1]]).astype(np.int32)
            ids = part.ids.astype(id_type)
            arrays = {
                "ids": pa.ListArray.from_arrays(by_token, ids),
                "sentence_lengths": pa.ListArray.from_arrays(by_sentence, part.sentence_lengths),
                "hash": pa.array(_hashes(ids, by_token)),
            }
            if part.starts_word is not None:
                arrays["starts_word"] = pa.ListArray.from_arrays(by_token, part.starts_word.astype(np.uint8))
            writer.write_table(pa.table(arrays, schema=features.arrow_schema))
            facts["documents"] += len(counts)
            facts["sentences"] += len(part.sentence_lengths)
            facts["tokens"] += len(ids)
            facts["unknown_tokens"] += int((ids == tokenizer.unk_token_id).sum())
            facts["one_sentence_documents"] += int((counts == 1).sum())
        if not facts["tokens"]:  # a writer that has seen nothing makes no file
            writer.write_table(features.arrow_schema.empty_table())
        writer.finalize()
    facts |= {"records_without_text": skipped.count, "first_without_text": skipped.first}
    facts["bytes"] = (folder / "tokens.arrow").stat().st_size
    return facts


def _hashes(ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A hash of each document's tokens: (documents,) uint64."""
    spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    digests = (blake2b(ids[begin:end].tobytes(), digest_size=8).digest() for begin, end in spans)
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
