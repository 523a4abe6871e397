"""What a corpus's names stand for: files here and elsewhere in one order, shared out to shards, or a prepared store."""

import os
from itertools import chain
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.console import Console
from minibert.corpus.sources import RemoteStore, corpus_digest, find_sources, on_this_machine, share_of, size_of
from minibert.errors import UserError

NAMES = ("b.txt", "a.txt", "sub/c.jsonl.gz", "sub/a.txt", "sub.txt", "notes.pdf", ".hidden.txt", ".git/x.txt", "B.TXT")


@pytest.fixture
def memory():
    """fsspec's file system in memory, empty."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    yield filesystem
    filesystem.store.clear()


def laid_out(folder, memory):
    for number, name in enumerate(NAMES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x" * number)
        memory.pipe_file(f"/text/{name}", b"x" * number)
    return folder


def below(source, root):
    return str(source.relative_to(root)) if isinstance(source, Path) else source.url.removeprefix("memory:///text/")


def test_another_place_gives_the_same_files_in_the_same_order_and_the_same_digest(tmp_path, memory):
    here = find_sources([str(laid_out(tmp_path / "text", memory))])
    there = find_sources(["memory://text"])
    assert [below(file, tmp_path / "text") for file in here] == [
        "B.TXT", "a.txt", "b.txt", "sub/a.txt", "sub/c.jsonl.gz", "sub.txt",
    ]  # fmt: skip
    assert [below(file, tmp_path / "text") for file in here] == [below(file, "") for file in there]
    assert list(map(size_of, here)) == list(map(size_of, there))
    assert corpus_digest(here) == corpus_digest(there)
    assert corpus_digest(here) != corpus_digest(here[1:])


def test_patterns_files_and_places_go_together_each_once(tmp_path, memory):
    folder = laid_out(tmp_path / "text", memory)
    found = find_sources(["memory://text/*.txt", str(folder / "b.txt"), "memory://text/b.txt", f"{folder}/sub/*.txt"])
    assert [file.name for file in found] == ["a.txt", "b.txt", "sub.txt", "b.txt", "a.txt"]
    assert [isinstance(file, Path) for file in found] == [False, False, False, True, True]
    assert [file.name for file in find_sources(["memory://text/notes.pdf"])] == ["notes.pdf"]  # named: read as text


def test_copies_stand_where_their_files_stood(tmp_path, memory):
    folder = laid_out(tmp_path / "text", memory)
    sources = find_sources([str(folder / "b.txt"), "memory://text/sub/*", str(folder / "a.txt")])
    files = on_this_machine(sources, tmp_path / "cache", Console(silent=True))
    assert [file.name for file in files] == ["b.txt", "a.txt", "c.jsonl.gz", "a.txt"]
    assert [file.stat().st_size for file in files] == [0, 3, 2, 1]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("memory://nowhere", "no such file"), ("memory://text/*.csv", "nothing"), ("memory://pictures", "no text")],
)
def test_a_place_without_text_is_named(tmp_path, memory, pattern, said):
    laid_out(tmp_path / "text", memory)
    memory.pipe_file("/pictures/a.png", b"x")
    with pytest.raises(UserError, match=said) as caught:
        find_sources([pattern])
    assert pattern in str(caught.value)


def test_a_prepared_store_is_a_corpus_alone_and_no_text(tmp_path, memory):
    for shard in (1, 2):
        name = f"shard-{shard:05d}-of-00002"
        (tmp_path / "mine/store" / name).mkdir(parents=True)
        (tmp_path / "mine/store" / name / "vocab.txt").write_text("[PAD]\n")
        for file in ("store.json", "tokens.arrow"):
            memory.pipe_file(f"/store/{name}/{file}", b"{}")
    (tmp_path / "mine/a.txt").write_text("text")
    assert find_sources([str(tmp_path / "mine/store")]) == tmp_path / "mine/store"
    assert isinstance(find_sources(["memory://store"]), RemoteStore)
    assert find_sources([str(tmp_path / "mine")]) == [tmp_path / "mine/a.txt"]  # its vocab.txt is not read
    for names in (["mine/store", "mine/a.txt"], ["mine/a.txt", "mine/store"]):
        with pytest.raises(UserError, match="prepared store"):
            find_sources([str(tmp_path / name) for name in names])
    memory.rm("/store/shard-00002-of-00002/store.json")
    with pytest.raises(UserError, match="shard 2 of 2 is not complete"):
        find_sources(["memory://store"])
    memory.rm("/store/shard-00001-of-00002", recursive=True)
    with pytest.raises(UserError, match="shard 1 of 2 is missing") as caught:
        find_sources(["memory://store"])
    assert "--shard 1/2" in str(caught.value)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.data())
def test_shares_are_all_files_in_order_none_empty(sizes, data):
    of = data.draw(st.integers(1, len(sizes)))
    shares = [range(len(sizes))[share_of(sizes, shard, of)] for shard in range(1, of + 1)]
    assert list(chain(*shares)) == list(range(len(sizes)))
    assert all(len(share) > 0 for share in shares)


def test_shares_are_balanced_by_bytes():
    sizes = [(7 * i) % 13 + 1 for i in range(400)]
    totals = [sum(sizes[share_of(sizes, shard, 8)]) for shard in range(1, 9)]
    assert max(totals) - min(totals) <= 2 * max(sizes)
    assert sum(totals) == sum(sizes)
    assert share_of([10, 4, 8], 1, 2) == slice(0, 1)  # 10 is nearer to the half of 22 than 14


def test_fewer_files_than_shards_say_what_to_do():
    with pytest.raises(UserError, match="2 files cannot be shared out to 3 shards") as caught:
        share_of([5, 5], 1, 3)
    assert "take 2 shards" in str(caught.value)
    assert "split" in str(caught.value)


def test_names_below_the_shared_folder_count_and_the_folder_does_not(tmp_path):
    for place in ("one", "two"):
        for name in ("x/a.txt", "y/a.txt"):
            (tmp_path / place / name).parent.mkdir(parents=True)
            (tmp_path / place / name).write_text("text")
    one, two = ([tmp_path / place / name for name in ("x/a.txt", "y/a.txt")] for place in ("one", "two"))
    assert corpus_digest(one) == corpus_digest(two)
    assert corpus_digest(one) != corpus_digest(one[::-1])
    os.truncate(two[1], 3)
    assert corpus_digest(one) != corpus_digest(two)
