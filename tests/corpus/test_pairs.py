import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.corpus.pairs import COLUMNS, Layout, plan_documents, split_documents, summary
from minibert.errors import UserError


def layout_of(documents: list[list[int]]) -> Layout:
    """Lay out documents given as the token counts of their sentences."""
    sentences = [length for document in documents for length in document]
    return Layout(
        doc_first=np.cumsum([0] + [len(document) for document in documents]),
        sentence_start=np.cumsum([0, *sentences]),
    )


def plan(layout: Layout, **settings: Any) -> np.ndarray:
    pool = np.arange(len(layout.doc_first) - 1)
    return plan_documents(
        layout, pool, pool, **{"seed": 1, "epoch": 0, "max_length": 12, "nsp": True, "short_share": 0.1} | settings
    )


def columns(rows: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(COLUMNS, rows.T, strict=True))


def token_range(layout: Layout, document: int) -> tuple[int, int]:
    first, last = layout.doc_first[document], layout.doc_first[document + 1]
    return int(layout.sentence_start[first]), int(layout.sentence_start[last])


def document_of(layout: Layout, token: int) -> int:
    return int(np.searchsorted(layout.sentence_start[layout.doc_first], token, side="right")) - 1


def chi_square(counts: np.ndarray) -> float:
    """Distance of counts from equal shares; mean = number of cells - 1, sigma = sqrt(2 * mean)."""
    return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())


layouts = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8).map(layout_of)


@settings(max_examples=150, deadline=None)
@given(layouts, st.integers(5, 60), st.integers(0, 2**63), st.floats(0, 1))
def test_pairs_lie_inside_their_documents_fit_and_bear_true_labels(
    layout: Layout, max_length: int, seed: int, short_share: float
) -> None:
    rows = plan(layout, max_length=max_length, seed=seed, short_share=short_share)
    assert set(rows[:, 0]) == set(range(len(layout.doc_first) - 1))
    last_end = -1
    for document, ordinal, a_start, a_length, b_start, b_length, is_random in rows.tolist():
        start, stop = token_range(layout, document)
        assert a_length >= 1
        assert b_length >= 1
        assert a_length + b_length + 3 <= max_length
        assert start <= a_start
        assert a_start + a_length <= stop
        last_end = start if ordinal == 0 else last_end
        assert a_start >= last_end  # nothing of the document's own text comes twice
        last_end = a_start + a_length
        partner = document_of(layout, b_start)
        assert b_start + b_length <= token_range(layout, partner)[1]
        assert is_random == (partner != document)
        if not is_random:
            assert b_start >= last_end
            if a_length + b_length + 3 < max_length:
                assert b_start == last_end  # nothing was dropped, so B goes on where A ends
            last_end = b_start + b_length


@settings(max_examples=150, deadline=None)
@given(layouts, st.integers(4, 60), st.integers(0, 2**63), st.floats(0, 1))
def test_windows_without_nsp_tile_each_document(layout: Layout, max_length: int, seed: int, short_share: float) -> None:
    rows = columns(plan(layout, max_length=max_length, seed=seed, short_share=short_share, nsp=False))
    ends = rows["a_start"] + rows["a_length"]
    assert (rows["a_length"] >= 1).all()
    assert (rows["a_length"] + 2 <= max_length).all()
    assert rows["a_start"][0] == 0
    assert ends[-1] == layout.sentence_start[-1]
    assert (rows["a_start"][1:] == ends[:-1]).all()
    assert [document_of(layout, start) for start in rows["a_start"]] == rows["document"].tolist()
    assert [document_of(layout, end - 1) for end in ends] == rows["document"].tolist()
    assert (rows["b_length"] == 0).all()
    assert (rows["is_random"] == -1).all()


def test_windows_keep_sentences_whole_and_cut_only_what_exceeds_the_room() -> None:
    rows = columns(plan(layout_of([[4, 5, 3, 25, 2, 6]]), nsp=False, short_share=0.0))  # room 10
    assert rows["a_length"].tolist() == [9, 3, 10, 10, 7, 6]  # 4+5 | 3 | the 25 in pieces, the last with the 2 | 6
    assert rows["ordinal"].tolist() == list(range(6))


def test_short_windows_leave_a_sentence_that_fits_the_room_whole() -> None:
    rows = columns(plan(layout_of([[10] * 50]), nsp=False, short_share=1.0))
    assert rows["a_length"].tolist() == [10] * 50


def test_documents_of_one_token_make_pairs_and_windows() -> None:
    layout = layout_of([[1], [1]])
    assert plan(layout, max_length=5).tolist() == [[0, 0, 0, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1, 1]]
    assert plan(layout, max_length=4, nsp=False).tolist() == [[0, 0, 0, 1, 1, 0, -1], [1, 0, 1, 1, 2, 0, -1]]


def test_one_document_with_nsp_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match="at least 2 documents, the corpus has 1") as error:
        plan(layout_of([[3] * 12]))
    assert "--no-nsp" in str(error.value)
    assert len(plan(layout_of([[3] * 12]), nsp=False))


@pytest.mark.parametrize(("max_length", "nsp"), [(4, True), (3, False)])
def test_max_length_without_room_is_refused(max_length: int, nsp: bool) -> None:
    with pytest.raises(ValueError, match="no room"):
        plan(layout_of([[3], [3]]), max_length=max_length, nsp=nsp)


def test_random_b_of_two_documents_is_always_the_other_document() -> None:
    layout = layout_of([[3] * 6, [3] * 6])
    rows = np.concatenate([plan(layout, epoch=epoch, max_length=20) for epoch in range(200)])
    random_rows = rows[rows[:, 6] == 1]
    assert len(random_rows) > 100
    assert all(document_of(layout, row[4]) == 1 - row[0] for row in random_rows.tolist())


def test_random_b_is_drawn_from_the_pool_only() -> None:
    layout = layout_of([[2] * 4 for _ in range(9)])
    pool = np.array([1, 4, 7])
    rows = plan_documents(layout, pool, np.array([2, 0]), seed=0, epoch=0, max_length=9, nsp=True)
    assert rows[:, 0].tolist() == sorted(rows[:, 0].tolist(), reverse=True)
    assert set(rows[:, 0]) == {1, 7}
    partners = {
        document_of(layout, row[4])
        for epoch in range(40)
        for row in plan_documents(layout, pool, np.arange(3), seed=0, epoch=epoch, max_length=9, nsp=True).tolist()
    }
    assert partners == {1, 4, 7}


def test_random_b_partner_and_place_are_uniform() -> None:
    layout = layout_of([[4]] + [[4] * 5 for _ in range(6)])
    pool, first = np.arange(7), np.array([0])
    starts = [
        plan_documents(layout, pool, first, seed=3, epoch=epoch, max_length=8, nsp=True)[0, 4] for epoch in range(6000)
    ]
    # room 5, so that from B's sentence of 4 tokens at most its first two are dropped: n = 6,000 over 30 sentences
    counts = np.bincount((np.array(starts) - 4) // 4, minlength=30)
    assert chi_square(counts) < 29 + 5 * 58**0.5


def test_random_b_stops_at_the_target_or_its_documents_end() -> None:
    layout = layout_of([[3], [2] * 40, [2, 2]])
    for epoch in range(100):
        row = plan(layout, max_length=15, epoch=epoch, short_share=0.0)[
            0
        ]  # room 12: B takes 9 tokens or one sentence more
        partner_end = token_range(layout, document_of(layout, row[4]))[1]
        assert row[3] + row[5] == 12 or row[4] + row[5] == partner_end


def test_unused_sentences_go_back_and_nothing_is_skipped() -> None:
    # sentences of one token reach the target exactly: nothing is ever dropped, so A and IsNext B must tile the document
    layout = layout_of([[1] * 3000, [1] * 2000])
    for document in (0, 1):
        rows = plan(layout, max_length=23)
        rows = rows[rows[:, 0] == document]
        spans = [(row[2], row[3]) for row in rows] + [(row[4], row[5]) for row in rows if row[6] == 0]
        covered = np.concatenate([np.arange(start, start + length) for start, length in spans])
        assert np.array_equal(np.sort(covered), np.arange(*token_range(layout, document)))
        assert rows[:, 1].tolist() == list(range(len(rows)))


def test_is_next_share_is_half_where_chunks_have_two_sentences() -> None:
    rows = plan(layout_of([[1] * 100_000, [1] * 100_000]), max_length=23)
    share = summary(rows)["is_next_share"]
    n = len(rows)
    assert n > 10_000
    assert isinstance(share, float)
    assert abs(share - 0.5) < 5 * 0.5 / n**0.5


def test_a_end_is_uniform() -> None:
    rows = columns(plan(layout_of([[1] * 60_000, [1] * 60_000]), max_length=12, short_share=0.0))
    full = rows["a_length"] + rows["b_length"] == 9  # all but the documents' last chunks
    counts = np.bincount(rows["a_length"][full], minlength=9)
    assert counts[0] == 0
    assert len(counts) == 9
    assert full.sum() > 15_000
    assert chi_square(counts[1:]) < 7 + 5 * 14**0.5


def test_short_share_draws_uniform_targets() -> None:
    rows = columns(plan(layout_of([[1] * 400_000]), max_length=22, nsp=False, short_share=0.3))  # room 20
    lengths = rows["a_length"][:-1]
    n = len(lengths)
    assert n > 20_000
    p = 0.3 * 18 / 19  # a short draw of 2 .. 20 is shorter than the room in 18 of 19 cases
    assert abs((lengths < 20).mean() - p) < 5 * (p * (1 - p) / n) ** 0.5
    assert chi_square(np.bincount(lengths, minlength=20)[2:20]) < 17 + 5 * 34**0.5
    assert lengths.min() == 2


def test_targets_are_drawn_for_each_chunk() -> None:
    rows = columns(plan(layout_of([[1] * 400, [1] * 400]), max_length=53, short_share=0.5))
    lengths = rows["a_length"] + rows["b_length"]
    assert len(set(lengths[rows["document"] == 0].tolist())) > 3


def test_truncation_drops_front_and_back_alike() -> None:
    # one sentence of 51 tokens in room 10: 46 tokens leave each side, the front B(46, .5): mean 23, variance 11.5
    layout = layout_of([[51]] * 4000)
    rows = columns(plan(layout, max_length=13, short_share=0.0))
    assert (rows["a_length"] == 5).all()
    assert (rows["b_length"] == 5).all()
    for side in ("a_start", "b_start"):
        front = rows[side] % 51
        assert abs(front.mean() - 23) < 5 * (11.5 / 4000) ** 0.5
        assert abs(front.var() - 11.5) < 5 * 11.5 * (2 / 4000) ** 0.5
    both = np.corrcoef(rows["a_start"] % 51, rows["b_start"] % 51)[0, 1]
    assert abs(both) < 5 / 4000**0.5


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 29), st.integers(1, 60))
def test_truncation_shortens_the_longer_side_and_b_at_a_tie(a_length: int, b_length: int) -> None:
    layout = layout_of([[a_length, b_length], [1]])
    for epoch in range(100):
        row = plan(layout, max_length=33, short_share=0.0, epoch=epoch)[0]
        if row[6] == 0:
            break
    else:
        pytest.fail("no IsNext pair in 100 epochs")
    expected = [a_length, b_length]
    while sum(expected) > 30:
        expected[0 if expected[0] > expected[1] else 1] -= 1
    assert [row[3], row[5]] == expected


@pytest.mark.parametrize("nsp", [True, False])
def test_plan_of_a_document_does_not_depend_on_the_call(nsp: bool) -> None:
    draw = np.random.default_rng(5)
    layout = layout_of([draw.integers(1, 30, draw.integers(1, 30)).tolist() for _ in range(60)])
    pool = np.arange(60)

    def call(positions: np.ndarray) -> np.ndarray:
        return plan_documents(layout, pool, positions, seed=9, epoch=4, max_length=40, nsp=nsp)

    whole = call(pool)
    random.seed(1)
    np.random.seed(1)
    before = random.getstate()
    parts = [call(np.array([position])) for position in draw.permutation(60)]
    assert random.getstate() == before
    together = np.concatenate(parts)
    order = np.lexsort((together[:, 1], together[:, 0]))
    assert np.array_equal(together[order], whole)
    assert np.array_equal(np.concatenate([call(pool[:17]), call(pool[17:])]), whole)
    assert call(pool[:0]).shape == (0, 7)


def test_seed_and_epoch_change_the_plan() -> None:
    layout = layout_of([[5] * 40, [5] * 40])
    first = plan(layout, seed=1, epoch=0)
    assert np.array_equal(first, plan(layout, seed=1, epoch=0))
    for other in ({"seed": 2, "epoch": 0}, {"seed": 1, "epoch": 1}, {"seed": 0, "epoch": 1}, {"seed": -1, "epoch": 0}):
        assert not np.array_equal(first, plan(layout, **other))


def test_plan_is_the_same_on_every_machine() -> None:
    rows = plan(layout_of([[3, 9, 4, 2], [6, 1, 7], [20]]), seed=7, epoch=2, max_length=16)
    assert rows.tolist() == [
        [0, 0, 0, 3, 6, 10, 0],
        [0, 1, 16, 2, 35, 11, 1],
        [1, 0, 18, 7, 26, 6, 0],
        [2, 0, 40, 7, 25, 6, 1],
    ]


def test_summary_of_single_sentence_documents_reports_no_is_next() -> None:
    rows = plan(layout_of([[8]] * 8), max_length=64)
    assert summary(rows) == {"examples": 8, "tokens": 8 * 19, "mean_length": 19.0, "is_next_share": 0.0}


def test_summary_without_pairs_and_of_nothing() -> None:
    rows = plan(layout_of([[8], [4, 2]]), max_length=64, nsp=False)
    assert summary(rows) == {"examples": 2, "tokens": 18, "mean_length": 9.0, "is_next_share": None}
    assert summary(rows[:0]) == {"examples": 0, "tokens": 0, "mean_length": 0.0, "is_next_share": None}


def test_split_holds_out_the_smallest_hashes() -> None:
    hashes = np.random.default_rng(0).permutation(100).astype(np.uint64)
    train, held = split_documents(hashes, 0.07)
    assert held.tolist() == sorted(np.argsort(hashes)[:7].tolist())
    assert train.tolist() == sorted(set(range(100)) - set(held.tolist()))


@pytest.mark.parametrize(
    ("documents", "share", "expected"), [(100, 0.0, 0), (19, 0.5, 0), (20, 0.01, 2), (20, 0.5, 10), (20, 0.99, 18)]
)
def test_split_sizes(documents: int, share: float, expected: int) -> None:
    train, held = split_documents(np.arange(documents, dtype=np.uint64), share)
    assert len(held) == expected
    assert len(train) == documents - expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=0, max_size=90), st.floats(0, 0.99))
def test_split_never_puts_one_text_on_both_sides(texts: list[int], share: float) -> None:
    hashes = np.array(texts, dtype=np.uint64) * np.uint64(2**59 - 55)
    train, held = split_documents(hashes, share)
    assert sorted(train.tolist() + held.tolist()) == list(range(len(texts)))
    assert not set(hashes[train].tolist()) & set(hashes[held].tolist())
    assert len(held) != 1
    assert len(train) >= 2 or len(texts) < 2


def test_split_holds_out_a_whole_group_where_every_text_comes_three_times() -> None:
    _, held = split_documents(np.repeat(np.arange(20, dtype=np.uint64), 3), 0.02)
    assert held.tolist() == [0, 1, 2]


def test_split_passes_over_a_text_that_fills_the_corpus() -> None:
    hashes = np.array([0] * 90 + list(range(1, 11)), dtype=np.uint64)
    assert split_documents(hashes, 0.05)[1].tolist() == [90, 91, 92, 93, 94]
    assert split_documents(np.zeros(50, dtype=np.uint64), 0.1)[1].tolist() == []


def test_split_refuses_a_share_of_everything() -> None:
    with pytest.raises(ValueError, match="1"):
        split_documents(np.arange(50, dtype=np.uint64), 1.0)


def test_long_sentences_follow_each_other_half_of_the_time() -> None:
    # each chunk holds one sentence of 40 tokens in a room of 29: true pairs are made by cutting inside it
    layout = layout_of([[40] * 5] * 400)
    rows = plan(layout, max_length=32)
    is_random = rows[:, 6]
    n = len(rows)  # about 2,000 pairs: sigma .011
    assert abs((is_random == 0).mean() - 0.5) < 4 * 0.5 / n**0.5
    ordinal = rows[is_random == 0]
    starts = layout.sentence_start
    a_sentence = np.searchsorted(starts, ordinal[:, 2], side="right")
    b_sentence = np.searchsorted(starts, ordinal[:, 4] + ordinal[:, 5] - 1, side="right")
    assert (a_sentence == b_sentence).all()  # B is the rest of the same sentence
    assert (ordinal[:, 2] + ordinal[:, 3] <= ordinal[:, 4]).all()  # and comes after A


def test_documents_of_one_sentence_have_random_pairs_only() -> None:
    rows = plan(layout_of([[40]] * 50), max_length=32)
    assert (rows[:, 6] == 1).all()
