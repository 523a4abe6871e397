"""First word vectors: counts by hand, words of like company together, kept and made anew."""

from types import SimpleNamespace

import numpy as np
import pytest

from minibert.corpus import cooccurrence
from minibert.corpus.cooccurrence import decomposed, neighbours, word_vectors


def store_of(*documents, name="store"):
    """What a token store is asked for, of documents that are lists of ids."""
    spans = np.cumsum([0, *map(len, documents)])
    flat = np.concatenate([np.array(document, np.int32) for document in documents])
    return SimpleNamespace(
        name=name,
        document_span=lambda d: (int(spans[d]), len(documents[d])),
        ids=lambda start, n: flat[start : start + n],
    )


def test_counts_by_hand(monkeypatch):
    monkeypatch.setattr(cooccurrence, "WINDOW", 2)
    found = neighbours(store_of([0, 1, 2, 3], [3, 3], [1]), np.array([0, 1, 2]), 5).toarray()
    assert found.tolist() == [
        [0, 1, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 1, 0, 1, 0],
        [0, 1, 1, 2, 0],  # 3 beside 3, seen from both
        [0, 0, 0, 0, 0],
    ]


def test_other_documents_do_not_count_and_long_text_is_cut(monkeypatch):
    monkeypatch.setattr(cooccurrence, "WINDOW", 1)
    store = store_of([0, 1], [2, 3], [2, 3])
    assert neighbours(store, np.array([1, 2]), 4).sum() == 4
    monkeypatch.setattr(cooccurrence, "MOST_TOKENS", 3)
    assert neighbours(store, np.array([1, 2]), 4).sum() == 2


def sets_of_company(groups=4, words=6, documents=200):
    """Documents that each use the words of one group, and words that all use."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(documents):
        own = rng.integers(words, size=30) + words * (i % groups)
        shared = rng.integers(groups * words, groups * words + 3, size=30)
        made.append(np.where(rng.random(30) < 0.6, own, shared).tolist())
    return made, groups * words + 5  # two words more that stand nowhere


def test_words_of_like_company_begin_near_each_other():
    documents, size = sets_of_company()
    vectors = decomposed(neighbours(store_of(*documents), np.arange(len(documents)), size), 8)
    assert vectors.shape == (size, 8)
    assert vectors.dtype == np.float32
    assert not vectors[-2:].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[:-2], axis=1), 1, rtol=1e-5)
    near = vectors[:24] @ vectors[:24].T
    same = np.kron(np.eye(4, dtype=bool), np.ones((6, 6), bool)) & ~np.eye(24, dtype=bool)
    apart = np.kron(~np.eye(4, dtype=bool), np.ones((6, 6), bool))
    assert near[same].min() > near[apart].max() + 0.3


@pytest.mark.parametrize("documents", [[[0]], [[0, 0]], [[0, 1]], [[2, 2, 2, 2], [1]]])
def test_next_to_no_text_gives_finite_vectors(documents):
    vectors = decomposed(neighbours(store_of(*documents), np.arange(len(documents)), 4), 6)
    assert vectors.shape == (4, 6)
    assert np.isfinite(vectors).all()


def test_kept_found_again_and_made_anew_where_broken(tmp_path, monkeypatch):
    documents, size = sets_of_company(documents=40)
    store, pool = store_of(*documents), np.arange(40)
    first, there = word_vectors(store, pool, tmp_path, size=size, width=8)
    assert not there
    again, there = word_vectors(store, pool, tmp_path, size=size, width=8)
    assert there
    assert again.tobytes() == first.tobytes()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    mended, there = word_vectors(store, pool, tmp_path, size=size, width=8)
    assert not there
    assert mended.tobytes() == first.tobytes()
    for other in ((store_of(*documents, name="other"), pool), (store, pool[:30])):
        assert not word_vectors(*other, tmp_path, size=size, width=8)[1]
    assert not word_vectors(store, pool, tmp_path, size=size, width=4)[1]
