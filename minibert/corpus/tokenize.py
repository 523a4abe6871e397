"""Documents of text -> arrays of token ids. Runs in worker processes: imports neither torch nor datasets."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

import numpy as np

from minibert.corpus.sentences import split_sentences
from minibert.tokenization.tokenizer import BertTokenizer


@dataclass(frozen=True, kw_only=True)
class TokenisedDocuments:
    """Some documents, in order. S sentences, D documents that have a token; every sentence has one or more."""

    ids: np.ndarray  # (tokens,) int32
    starts_word: np.ndarray | None  # (tokens,) bool: False where the token goes on with a word
    sentence_lengths: np.ndarray  # (S,) int32, tokens
    document_sentences: np.ndarray  # (D,) int32, sentences
    hashes: np.ndarray  # (D,) uint64, of a document's tokens
    characters: int
    empty_documents: int  # documents without any token, left out
    empty_lines: int  # lines without any token (invisible characters alone), left out


def tokenise(documents: list[list[str]], tokenizer: BertTokenizer, *, language: str, words: bool) -> TokenisedDocuments:
    """Sentences and token ids of documents (each a list of lines).

    Args: language: as split_sentences takes it. words: find whole words too, for whole-word masking.
    """
    sentences: list[str] = []
    lines_of: list[int] = []  # the line number of each sentence, over all documents
    document_lines: list[int] = []
    line = 0
    for document in documents:
        for text in document:
            found = split_sentences(text, language)
            sentences += found
            lines_of += [line] * len(found)
            line += 1
        document_lines.append(line)

    starts: list[list[bool]] | None = None
    if words:
        from minibert.corpus.words import word_starts

        encoded = tokenizer.encode_with_offsets(sentences)
        all_ids = [ids for ids, _ in encoded]
        starts = [
            word_starts(text, offsets, tokenizer.is_continuation[ids])
            for text, (ids, offsets) in zip(sentences, encoded, strict=True)
        ]
    else:
        all_ids = tokenizer.encode(sentences)

    lengths = np.fromiter(map(len, all_ids), np.int32, len(all_ids))
    flat = np.fromiter(chain.from_iterable(all_ids), np.int32, int(lengths.sum()))
    line_tokens = np.bincount(np.array(lines_of, np.int64), weights=lengths, minlength=line)
    full = lengths > 0
    # sentences that each document has, those without a token not counted
    sentence_document = np.searchsorted(np.array(document_lines), np.array(lines_of, np.int64)[full], side="right")
    counts = np.bincount(sentence_document, minlength=len(documents)).astype(np.int32)
    lengths = lengths[full]
    kept = counts[counts > 0]
    ends = np.cumsum(lengths)[np.cumsum(kept) - 1] if len(kept) else np.zeros(0, np.int64)
    hashes = np.zeros(len(kept), np.uint64)
    begin = 0
    for d, end in enumerate(ends.tolist()):
        hashes[d] = int.from_bytes(blake2b(flat[begin:end].tobytes(), digest_size=8).digest(), "little")
        begin = end
    return TokenisedDocuments(
        ids=flat,
        starts_word=None if starts is None else np.fromiter(chain.from_iterable(starts), bool, len(flat)),
        sentence_lengths=lengths,
        document_sentences=kept,
        hashes=hashes,
        characters=sum(len(text) for document in documents for text in document),
        empty_documents=int((counts == 0).sum()),
        empty_lines=int((line_tokens == 0).sum()),
    )
