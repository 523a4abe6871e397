"""Documents of text -> arrays of token ids. Runs in worker processes: imports neither torch nor datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minibert.corpus.sentences import split_sentences
from minibert.corpus.words import HAN, word_starts
from minibert.tokenization.tokenizer import BertTokenizer


@dataclass(frozen=True, kw_only=True)
class TokenisedDocuments:
    """Some documents, in order. S sentences of one or more tokens, D documents of none or more sentences."""

    ids: np.ndarray  # (tokens,) int32
    starts_word: np.ndarray | None  # (tokens,) bool: False where the token goes on with a word
    sentence_lengths: np.ndarray  # (S,) int32, tokens
    document_sentences: np.ndarray  # (D,) int64, sentences
    goes_on: bool  # whether the last document goes on in the part that follows
    characters: int
    empty_lines: int  # lines without any token (invisible characters alone), left out

    def split(self) -> tuple[TokenisedDocuments, TokenisedDocuments]:
        """All documents but the last, and the last."""
        sentences = len(self.sentence_lengths) - int(self.document_sentences[-1])
        tokens = int(self.sentence_lengths[:sentences].sum())
        return self._slice(tokens, sentences, -1, first=True), self._slice(tokens, sentences, -1, first=False)

    def _slice(self, tokens: int, sentences: int, documents: int, *, first: bool) -> TokenisedDocuments:
        def part(values: np.ndarray, at: int) -> np.ndarray:
            return values[:at] if first else values[at:]

        return TokenisedDocuments(
            ids=part(self.ids, tokens),
            starts_word=None if self.starts_word is None else part(self.starts_word, tokens),
            sentence_lengths=part(self.sentence_lengths, sentences),
            document_sentences=part(self.document_sentences, documents),
            goes_on=self.goes_on and not first,
            characters=self.characters if first else 0,  # counted once, wherever the document will stand
            empty_lines=self.empty_lines if first else 0,
        )  # fmt: skip


def tokenise(
    documents: list[list[str]], tokenizer: BertTokenizer, *, goes_on: bool, language: str, words: bool
) -> TokenisedDocuments:
    """Sentences and token ids of documents (each a list of lines).

    Args: goes_on: the last document is not all there. language: as split_sentences takes it. words: find whole words
        too, for whole-word masking.
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

    ids, lengths = tokenizer.encode_flat(sentences)
    starts = _word_starts(sentences, ids, lengths, tokenizer) if words else None
    line_tokens = np.bincount(np.array(lines_of, np.int64), weights=lengths, minlength=line)
    full = lengths > 0
    sentence_document = np.searchsorted(np.array(document_lines), np.array(lines_of, np.int64)[full], side="right")
    return TokenisedDocuments(
        ids=ids,
        starts_word=starts,
        sentence_lengths=lengths[full].astype(np.int32),
        document_sentences=np.bincount(sentence_document, minlength=len(documents)),
        goes_on=goes_on,
        characters=sum(len(text) for document in documents for text in document),
        empty_lines=int((line_tokens == 0).sum()),
    )


def _word_starts(
    sentences: list[str], ids: np.ndarray, lengths: np.ndarray, tokenizer: BertTokenizer
) -> NDArray[np.bool_]:
    """(tokens,) True where a token begins a word. Only text with Han characters has more to a word than its pieces."""
    is_continuation = tokenizer.is_continuation[ids]
    starts: NDArray[np.bool_] = ~is_continuation
    for text, end, length in zip(sentences, np.cumsum(lengths).tolist(), lengths.tolist(), strict=True):
        if HAN.search(text):
            ((_, offsets),) = tokenizer.encode_with_offsets([text])
            starts[end - length : end] = word_starts(text, offsets, is_continuation[end - length : end])
    return starts


def whole_documents(parts: Iterator[TokenisedDocuments]) -> Iterator[TokenisedDocuments]:
    """The parts with each document whole: one that went on over several parts stands in the part where it ends."""
    held: list[TokenisedDocuments] = []  # of one document
    for part in parts:
        if held and part.goes_on and len(part.document_sentences) == 1:
            held.append(part)
            continue
        whole = _joined([*held, part]) if held else part
        held = []
        if whole.goes_on:
            whole, last = whole.split()
            held = [last]
        yield whole
    if held:
        yield _joined(held)


def _joined(parts: list[TokenisedDocuments]) -> TokenisedDocuments:
    """Parts of which all but the last hold a piece of one document, which the last one's first document ends."""
    counts = parts[-1].document_sentences.copy()
    counts[0] += sum(int(part.document_sentences[0]) for part in parts[:-1])
    starts = [part.starts_word for part in parts if part.starts_word is not None]
    return TokenisedDocuments(
        ids=np.concatenate([part.ids for part in parts]),
        starts_word=np.concatenate(starts) if starts else None,
        sentence_lengths=np.concatenate([part.sentence_lengths for part in parts]),
        document_sentences=counts,
        goes_on=parts[-1].goes_on,
        characters=sum(part.characters for part in parts),
        empty_lines=sum(part.empty_lines for part in parts),
    )
