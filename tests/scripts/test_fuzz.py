"""The short form of scripts/fuzz.py: a few broken files of every kind, always the same ones."""

import random
from pathlib import Path

import pytest

SEED = 7
EACH = 10


@pytest.fixture(scope="module")
def fuzz(load_script):
    return load_script("fuzz")


@pytest.fixture(scope="module")
def good(fuzz, tmp_path_factory):
    """The good files that are broken."""
    folder = tmp_path_factory.mktemp("good")
    fuzz.prepare(folder)
    return folder


def test_broken_files_give_a_result_or_a_message(fuzz, good):
    found = {
        f"{reader.name} #{number}": fuzz.attempt(reader, good, SEED, number)
        for reader in fuzz.READERS
        for number in range(EACH)
    }
    assert {name: said for name, (kind, said) in found.items() if kind == "fault"} == {}
    assert {kind for kind, _ in found.values()} == {"result", "refused"}


def read(what):
    """A reader that does `what`."""

    def call(folder, path, draw):
        what(path)

    return call


def loop(path):
    while True:
        pass


def say(text):
    def call(path):
        from minibert.errors import UserError

        raise UserError(text)

    return call


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        (lambda path: 1 / 0, "ZeroDivisionError"), (loop, "more than 1 s"), (say("no"), ""),
        (lambda path: Path(path.parent.parent / "opened").touch(), "code that the file brought was run"),
    ],
    ids=["an exception", "a hang", "a message", "code"],
)  # fmt: skip
def test_what_must_not_be_is_a_fault(fuzz, good, monkeypatch, what, outcome):
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    kind, said = fuzz.attempt(fuzz.Reader("r", lambda draw: ("a", b"x"), read(what)), good, SEED, 0)
    assert kind == ("fault" if outcome else "refused")
    assert outcome in said


def test_a_lost_character_and_a_lost_record_are_faults(fuzz, tmp_path):
    fuzz.same_characters("a b\n c", [["ab"], ["c"]])
    with pytest.raises(fuzz.Fault):
        fuzz.same_characters("a b\n c", [["a"], ["c"]])


def test_the_same_seed_gives_the_same_files(fuzz, good):
    for reader in fuzz.READERS:
        if "parquet" not in reader.name and ".gz" not in reader.name:
            first, second = (reader.make(random.Random(f"3/{reader.name}")) for _ in range(2))
            assert first[0] == second[0]
