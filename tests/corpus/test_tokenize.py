"""Documents to arrays: words are found as sentence by sentence."""

import numpy as np
import pytest

from minibert.corpus import words
from minibert.corpus.tokenize import tokenise
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
TOKENIZER = BertTokenizer.from_tokens(
    [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), ".", "一", "二", "三", "。"], lowercase=True
)
DOCUMENTS = [["Ab cd.", "一二 Ab三。"], ["\u200b", "Éab x", "三 一\u0301二"], ["?"]]


@pytest.fixture
def pairs_of_characters(monkeypatch):
    """Instead of the segmenter: two characters are a word."""
    monkeypatch.setattr(words, "_segment", lambda text: [text[i : i + 2] for i in range(0, len(text), 2)])


def test_words_are_those_of_each_sentence_alone(pairs_of_characters):
    found = tokenise(DOCUMENTS, TOKENIZER, goes_on=False, language="auto", words=True)
    ids, starts = [], []
    for line in (line for document in DOCUMENTS for line in document):
        ((line_ids, offsets),) = TOKENIZER.encode_with_offsets([line])
        ids += line_ids
        starts += words.word_starts(line, offsets, TOKENIZER.is_continuation[line_ids])
    assert found.ids.tolist() == ids
    assert found.starts_word.tolist() == starts
    assert found.starts_word.dtype == bool
    assert not found.starts_word[6], "the second Han character of a word"
    assert found.sentence_lengths.tolist() == [5, 6, 4, 3, 1]
    assert found.sentence_lengths.dtype == np.int32


def test_ids_are_the_same_without_words(pairs_of_characters):
    with_words = tokenise(DOCUMENTS, TOKENIZER, goes_on=False, language="auto", words=True)
    without = tokenise(DOCUMENTS, TOKENIZER, goes_on=False, language="auto", words=False)
    assert without.starts_word is None
    assert without.ids.tolist() == with_words.ids.tolist()
    assert without.document_sentences.tolist() == [2, 2, 1]
    assert without.empty_lines == 1
