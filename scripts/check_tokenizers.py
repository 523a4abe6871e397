#!/usr/bin/env python3
"""Is the tokeniser Google's, and transformers'? Ids compared on real text, words on every character of Unicode.

    scripts/check_tokenizers.py DATA [--lines 20000] [--vocab ../shared/data/vocab] [--no-characters]

DATA is what scripts/real_data.py brings. Lines are taken evenly from its English and its Chinese files; those of xquad
and wnut17 beside the vocabularies are added, all of them. Each vocabulary is opened cased and uncased, accents kept
and stripped, and compared with

  google         plain Python by Google's rules (tests/tokenization/google_rules.py), words of up to 200 characters
  transformers   its tokenizer opened from the folder that minibert saves: single texts, and pairs with truncation,
                 padding and offsets; characters also by its slow tokenizer

Exit code 1 for a difference from transformers, or one from Google that docs/tokenization.md does not name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tokenization"))

import google_rules  # noqa: E402

from minibert.tokenization.tokenizer import BertTokenizer  # noqa: E402
from minibert.tokenization.words import WordSplitter, without_surrogates  # noqa: E402

ENGLISH = ("en/bbc/raw.txt", "en/brown.txt", "en/gcide.txt")
CHINESE = ("zh/people_daily/raw.txt", "zh/reviews/train.csv")
SETTINGS = (
    ("uncased", True, None), ("uncased, accents kept", True, False), ("cased", False, None),
    ("cased, accents stripped", False, True),
)  # fmt: skip
SHOWN = 3  # differences printed in full
PAIR = {"max_length": 96, "padding": True}


class Setting(NamedTuple):
    """A vocabulary opened one way."""

    name: str
    lowercase: bool
    strip_accents: bool | None

    @property
    def strips(self) -> bool:
        """Whether accents go."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


def lines_of(data: Path, files: Iterable[str], wanted: int) -> list[str]:
    """Lines that hold text, evenly from each file, `wanted` together or all there are."""
    found: list[str] = []
    files = list(files)
    for i, name in enumerate(files):
        lines = [line for line in (data / name).read_text("utf-8").split("\n") if line.strip()]
        share = min(len(lines), -(-(wanted - len(found)) // (len(files) - i)))
        found += [lines[n * len(lines) // share] for n in range(share)]
    return found


def shared_lines(folder: Path) -> list[str]:
    """Contexts and questions of XQuAD, sentences of WNUT 17; none where the files are not."""
    found: list[str] = []
    for path in sorted(folder.glob("xquad/*.json")):
        for article in json.loads(path.read_text("utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                found += [paragraph["context"], *(question["question"] for question in paragraph["qas"])]
    for path in sorted(folder.glob("wnut17/*.conll")):
        for sentence in re.split(r"\n\s*\n", path.read_text("utf-8")):
            found.append(" ".join(line.split("\t")[0] for line in sentence.split("\n")))
    return found


def cause_of(line: str, expected: list[int], ours: list[int], by_google: Callable[..., list[int]]) -> str:
    """Why ids differ: names of known differences, if they alone account for it."""
    if by_google(line, longest_word=100) == ours:
        return "a word of 101 to 200 characters"
    names = {d.name for d in google_rules.DIFFERENCES if any(ord(c) in d.codes for c in line)}
    return " + ".join(sorted(names)) or f"UNEXPLAINED, {len(expected)} ids by Google, {len(ours)} here"


def compare_lines(
    lines: list[str], words: list[list[str]], vocabulary: Path, how: Setting, peers: Callable[[Path], Any]
) -> tuple[list[str], list[str], int]:
    """A row of the table, what to show below it, and how many differences nobody expects."""
    tokenizer = BertTokenizer.from_pretrained(vocabulary, lowercase=how.lowercase, strip_accents=how.strip_accents)
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    pieces: dict[str, list[int]] = {}
    ours = tokenizer.encode(lines)
    notes, causes = [], Counter[str]()
    by_google = partial(google_rules.encode, ids=ids, lowercase=how.lowercase, strip_accents=how.strip_accents)
    for line, found, line_words in zip(lines, ours, words, strict=True):
        for word in line_words:
            if word not in pieces:
                pieces[word] = google_rules.ids_of(word, ids)
        expected = [piece for word in line_words for piece in pieces[word]]
        if expected != found:
            cause = cause_of(line, expected, found, by_google)
            causes[cause] += 1
            if sum(causes.values()) <= SHOWN:
                notes.append(f"  {cause}: {line[:100]!r}")
    plain = [google_rules.without_differences(line) for line in lines]
    unexplained = sum(
        by_google(line, longest_word=100) != found
        for line, found, before in zip(plain, tokenizer.encode(plain), lines, strict=True)
        if line != before
    ) + sum(number for cause, number in causes.items() if cause.startswith("UNEXPLAINED"))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        singles, pairs = against_transformers(tokenizer, peers(Path(folder)), lines, ours)
    row = [
        vocabulary.stem, how.name, f"{len(lines):,}", f"{sum(map(len, ours)):,}", str(sum(causes.values())),
        ", ".join(f"{number} {cause}" for cause, number in causes.items()) or "-", str(singles), str(pairs),
    ]  # fmt: skip
    return row, notes, unexplained + singles + pairs


def against_transformers(
    tokenizer: BertTokenizer, peer: Any, lines: list[str], ours: list[list[int]]
) -> tuple[int, int]:
    """Single texts whose ids differ, and pairs of which ids, types, masks or offsets differ."""
    singles = sum(a != b for a, b in zip(ours, peer(lines, add_special_tokens=False)["input_ids"], strict=True))
    pairs = 0
    for start in range(0, len(lines) - 1, 64):
        first = lines[start : start + 64]
        second = first[::-1]
        mine = tokenizer(first, second, return_offsets_mapping=True, **PAIR)
        theirs = peer(first, second, truncation=True, return_offsets_mapping=True, return_tensors="pt", **PAIR)
        if any(mine[name].shape != theirs[name].shape for name in mine):
            pairs += len(first)
        else:
            pairs += sum(any((mine[n][i] != theirs[n][i]).any() for n in mine) for i in range(len(first)))
    return singles, pairs


def compare_characters(how: Setting, peers: Callable[[Path], Any]) -> int:
    """Print where every character of Unicode is treated alike and where not; the number that nobody expects."""
    options = {"lowercase": how.lowercase, "strip_accents": how.strip_accents}
    splitter = WordSplitter(**options)  # type: ignore[arg-type]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    with tempfile.TemporaryDirectory() as folder:
        BertTokenizer.from_tokens(tokens, **options).save_pretrained(folder)  # type: ignore[arg-type]
        backend = peers(Path(folder)).backend_tokenizer

    def by_transformers(text: str) -> list[str]:
        normal = backend.normalizer.normalize_str(without_surrogates(text))
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]

    everything = range(sys.maxunicode + 1)
    known = google_rules.known_differences(lowercase=how.lowercase, strip_accents=how.strips)
    by_google = partial(google_rules.words_of, **options)
    from_google = set(google_rules.differing(everything, splitter.split, by_google))
    from_transformers = list(google_rules.differing(everything, splitter.split, by_transformers))
    unexpected = sorted(from_google ^ known.keys())
    counts = Counter(known[code] for code in from_google & known.keys())
    print(f"{how.name}: {', '.join(f'{number:,} {name}' for name, number in sorted(counts.items()))}")
    print(f"  from transformers {len(from_transformers)}, from Google against the list {len(unexpected)}")
    for code in [*from_transformers, *unexpected][:20]:
        print(f"  U+{code:04X} {unicodedata.category(chr(code))} {unicodedata.name(chr(code), 'unnamed')}")
    print(f"  transformers' slow tokenizer differs from Google's rules in {slow_differences(how, by_google)}")
    return len(unexpected) + len(from_transformers)


def slow_differences(how: Setting, by_google: Callable[[str], list[str]]) -> str:
    """Counts by category of the characters that BertTokenizerLegacy treats otherwise than Google."""
    from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

    slow = BasicTokenizer(do_lower_case=how.lowercase, strip_accents=how.strip_accents)
    found = Counter(
        unicodedata.category(chr(code))
        for code in google_rules.differing(range(sys.maxunicode + 1), slow.tokenize, by_google)
    )
    return ", ".join(f"{number:,} {category}" for category, number in sorted(found.items())) or "nothing"


def main() -> int:
    """Compare and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="the folder that scripts/real_data.py wrote")
    options.add_argument("--lines", type=int, default=20_000, help="half of them English [default: 20000]")
    options.add_argument(
        "--vocab", type=Path, default=ROOT.parent / "shared" / "data" / "vocab", help="vocab.txt files"
    )
    options.add_argument("--no-characters", action="store_true", help="leave out the pass over Unicode (minutes)")
    args = options.parse_args()
    missing = [name for name in (*ENGLISH, *CHINESE) if not (args.data / name).is_file()]
    if missing:
        options.error(f"{args.data} has no {', '.join(missing)}; scripts/real_data.py {args.data} brings them")
    if not any(args.vocab.glob("*.txt")):
        options.error(f"{args.vocab} has no vocab.txt files: --vocab names a folder that has")
    from transformers import BertTokenizer as Peer

    lines = [*lines_of(args.data, ENGLISH, args.lines // 2), *lines_of(args.data, CHINESE, args.lines // 2)]
    lines += shared_lines(args.vocab.parent)
    print(", ".join(f"{name} {version(name)}" for name in ("tokenizers", "transformers")), end=", ")
    print(f"Python's Unicode {unicodedata.unidata_version}\n")
    header = ["vocabulary", "opened", "lines", "tokens", "lines unlike Google's", "because", "single", "pairs"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    bad = 0
    for how in map(Setting._make, SETTINGS):
        words = [google_rules.words_of(s, lowercase=how.lowercase, strip_accents=how.strip_accents) for s in lines]
        for vocabulary in sorted(args.vocab.glob("*.txt")):
            row, notes, unexpected = compare_lines(lines, words, vocabulary, how, Peer.from_pretrained)
            print("| " + " | ".join(row) + " |", *notes, sep="\n", flush=True)
            bad += unexpected
    if not args.no_characters:
        print("\nEvery character, by itself, between letters and at a word's end:\n")
        bad += sum(compare_characters(how, Peer.from_pretrained) for how in map(Setting._make, SETTINGS))
    print(f"\n{bad} unexpected differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
