"""The vocabulary of a corpus: trained once, kept in the cache, or written to a folder alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from minibert.atomic import read_json, write_json, write_whole
from minibert.console import Console
from minibert.corpus.cache import cache_folder
from minibert.corpus.read import doubts, fingerprint, read_pieces
from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import Vocabulary, train_vocabulary


def corpus_vocabulary(
    files: Sequence[Path],
    folder: Path,
    *,
    corpus: str,
    size: int,
    lowercase: bool,
    strip_accents: bool | None,
    encoding: str,
    text_field: str,
    progress: Callable[[int], None] | None = None,
) -> tuple[Vocabulary, bool]:
    """The vocabulary of these files, from `folder` where the same one has been trained before.

    Args: corpus: the files' fingerprint. progress: called with the characters read so far.
    Returns: (vocabulary, whether it was there already).  Raises: UserError as the reader's and the trainer's.
    """
    settings = [1, version("tokenizers"), corpus, size, lowercase, strip_accents, encoding, text_field]
    key = blake2b(json.dumps(settings).encode(), digest_size=12).hexdigest()
    target = folder / f"{key}.vocab.json"
    try:
        found = Vocabulary(**read_json(target))
        BertTokenizer.from_tokens(found.tokens, lowercase=lowercase)
    except (UserError, ValueError, TypeError, AttributeError):
        pass  # not there, or broken: train it
    else:
        return found, True

    def lines() -> Iterator[str]:
        for piece, _ in read_pieces(files, encoding=encoding, text_field=text_field):
            yield from piece

    try:
        vocabulary = train_vocabulary(
            lines, size=size, lowercase=lowercase, strip_accents=strip_accents, progress=progress
        )
    except UserError as error:  # the trainer sees lines, not files
        names = ", ".join(map(str, files[:3])) + (" ..." if len(files) > 3 else "")
        raise UserError(error.problem, where=error.where or names, fix=error.fix) from error
    try:
        write_json(target, asdict(vocabulary))
    except UserError as error:
        raise UserError(error.problem, where=error.where, fix="--cache DIR names another place") from error
    return vocabulary, False


def make_vocabulary(
    files: Sequence[Path],
    out: Path,
    *,
    size: int,
    lowercase: bool,
    strip_accents: bool | None,
    encoding: str,
    text_field: str,
    console: Console,
) -> BertTokenizer:
    """Train a vocabulary and write the tokenizer's files to `out`, whole or not at all."""
    for doubt in doubts(files, encoding):
        console.warn(doubt)
    with console.progress("vocabulary", unit="characters") as update:
        vocabulary, _ = corpus_vocabulary(
            files, cache_folder() / "vocabularies", corpus=fingerprint(files), size=size, lowercase=lowercase,
            strip_accents=strip_accents, encoding=encoding, text_field=text_field, progress=update,
        )  # fmt: skip
    tokenizer = BertTokenizer.from_tokens(vocabulary.tokens, lowercase=lowercase, strip_accents=strip_accents)
    write_whole(out, tokenizer.save_pretrained)
    console.table(
        f"vocabulary: {out}",
        [
            ("entries", f"{len(tokenizer):,} of {size:,} asked for"),
            ("characters", f"{vocabulary.characters:,}, {vocabulary.dropped_characters:,} of them left out"),
            ("unknown", f"{vocabulary.unknown_rate:.3%} of the text's tokens"),
        ],
    )
    return tokenizer
