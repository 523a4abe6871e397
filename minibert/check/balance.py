"""Names that records are labelled with, classes or entity types: how often each, in which parts, and which are one."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from math import pi, sqrt

from minibert.check.findings import Checked, Section
from minibert.check.labelled import PART_NAMES, Named, add, names_of
from minibert.view.page import Both, percent

MAJORITY = 0.9  # of the largest name; measured: BBC .24, reviews .52, People's Daily .55, WNUT17 .34
FEWEST = 5  # records of a name in train; measured: the rarest has 140 (WNUT17)
FEW = 20  # records: no harm, but little to learn from
SHIFT = 0.35  # distance of shares beyond chance; measured: .28 (WNUT17, whose dev is of another kind)
SAME = 0.8  # likeness of a name with a misspelt one
ROWS = 30  # of the table

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LOOSE = re.compile(r"[\s_\-./:'\"`]+")
_LOOK = str.maketrans("аеорсухіѕјԁһԛԝαοερνικτ", "aeopcyxisjdhqwaoepvikt")  # Cyrillic and Greek letters, as Latin ones


def check_balance(named: Mapping[str, Named], noun: Both, checked: Checked, *, learnt: Sequence[str] = ()) -> None:
    """Adds what there is to say of names and their numbers to `checked`.

    Args: named: part -> the name and the place of each labelled thing. noun: what a name is, "label". learnt: names
        that a model has beside those of train (--labels).
    """
    counts = {part: Counter(name for name, _ in found) for part, found in named.items()}
    total = sum(counts.values(), Counter[str]())
    if not total:
        return
    order = [name for name, _ in total.most_common()]
    checked.facts["balance"] = {part: dict(found.most_common()) for part, found in counts.items()}
    checked.sections.append(_section(order, counts, noun))
    for first, second in alike(total):
        seen = [next((w for found in named.values() for n, w in found if n == name), "") for name in (first, second)]
        add(
            checked,
            f"{noun.en}s alike",
            "doubtful",
            f"{names_of([first, second])} are two {noun.en}s, for {total[first]:,} and {total[second]:,} times; they "
            "look like one",
            f"{names_of([first, second])} 被当作两个{noun.zh}（分别出现 {total[first]:,} 次和 "
            f"{total[second]:,} 次），看起来其实是同一个",
            ("write both in the same way", "统一写法"),
            seen,
        )
    if train := counts.get("train"):
        _check_train(train, named["train"], noun, checked)
        known = {*train, *learnt}
        for part in counts.keys() - {"train"}:
            _compare(train, counts[part], named[part], part, known, noun, checked)


def _check_train(train: Counter[str], named: Named, noun: Both, checked: Checked) -> None:
    (largest, most), number = train.most_common(1)[0], train.total()
    if len(train) > 1 and most >= MAJORITY * number:
        share = percent(most / number)
        add(
            checked,
            "imbalance",
            "doubtful",
            f"{share} of train is {names_of([largest])}: a model that always says so is right that often",
            f"训练集中 {share} 都是 {names_of([largest])}：永远只答它的模型也有这么高的正确率",
            (
                "gather more of the others; look at macro F1 rather than accuracy; cls: --class-weights balanced",
                "补充其他类别的数据；看宏平均 F1 而不是准确率；cls 任务可用 --class-weights balanced",
            ),
        )
    few = [name for name, count in train.items() if count < FEW]
    fewest = [name for name in few if train[name] < FEWEST]
    if few and len(train) > 1:
        shown = ", ".join(f"{names_of([name])} {train[name]}" for name in sorted(few, key=train.__getitem__)[:5])
        add(
            checked,
            f"rare {noun.en}s",
            "doubtful" if fewest else "note",
            f"{len(few)} {noun.en}s stand in train fewer than {FEW} times: {shown}",
            f"有 {len(few)} 个{noun.zh}在训练集中出现不足 {FEW} 次：{shown}",
            ("label more of them, or join them with another", "多标注一些，或并入相近的一类"),
            (where for name, where in named if name in set(fewest or few)),
        )


def _compare(
    train: Counter[str], other: Counter[str], named: Named, part: str, known: set[str], noun: Both, checked: Checked
) -> None:
    """A part beside train."""
    zh = PART_NAMES[part]
    if unknown := sorted(set(other) - known):
        add(
            checked,
            f"unknown {noun.en}s",
            "doubtful",
            f"{part} has {noun.en}s that train lacks: {names_of(unknown)}; no model can learn them",
            f"{zh}中有训练集没有的{noun.zh}：{names_of(unknown)}；模型无从学到",
            ("correct them, or label such records in train too", "改正它们，或在训练集中也标注这类样本"),
            (where for name, where in named if name not in known),
        )
    if missing := sorted(set(train) - set(other)):
        add(
            checked,
            f"missing {noun.en}s",
            "note",
            f"{part} has none of {names_of(missing)}: what it measures says nothing of them",
            f"{zh}中没有 {names_of(missing)}：它测不出这些{noun.zh}的好坏",
        )
    distance, chance = shift(train, other)
    if distance - 2 * chance >= SHIFT and not unknown:
        apart = sorted(train, key=lambda name: -abs(train[name] / train.total() - other[name] / other.total()))[:3]
        shown = "; ".join(
            f"'{name}' {percent(train[name] / train.total())} - {percent(other[name] / other.total())}"
            for name in apart
        )
        add(
            checked,
            f"{noun.en} shift",
            "doubtful",
            f"{part} is made of other shares of {noun.en}s than train: {shown}",
            f"{zh}的{noun.zh}比例与训练集不同：{shown}",
            (
                "shuffle all records, then split them; or see that the difference is meant",
                "先打乱全部样本再切分；或确认这种差别是有意的",
            ),
        )


def shift(a: Counter[str], b: Counter[str]) -> tuple[float, float]:
    """Half of the sum of differences of shares, from 0 to 1, and what chance alone would make of it."""
    n, m = a.total(), b.total()
    if not n or not m:
        return 0.0, 0.0
    distance = sum(abs(a[name] / n - b[name] / m) for name in {*a, *b}) / 2
    shares = [(a[name] + b[name]) / (n + m) for name in {*a, *b}]
    chance = sum(sqrt(2 / pi * p * (1 - p) * (1 / n + 1 / m)) for p in shares) / 2  # mean of |normal|
    return distance, chance


def alike(counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that are one: but for case, blanks, width, invisible or look-alike letters; or a rare one that is
    another misspelt.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(counts):
        groups.setdefault(bare(name), []).append(name)
    for group in groups.values():
        yield from ((group[0], other) for other in group[1:])
    rare = [name for name in sorted(counts) if counts[name] <= 2 and len(name) >= 5]
    for name, other in combinations(sorted(counts), 2) if rare else ():
        few, many = sorted((name, other), key=lambda one: (counts[one], one))
        if few in rare and counts[many] >= 50 * counts[few] and bare(few) != bare(many) and _is_misspelt(few, many):
            yield many, few


def bare(name: str) -> str:
    """A name without all that makes no difference to a person."""
    name = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf").strip()
    if _NUMBER.fullmatch(name):
        return repr(float(name))
    return _LOOSE.sub("", name.casefold().translate(_LOOK)) or name


def _is_misspelt(few: str, many: str) -> bool:
    digits = [[c for c in name if c.isdigit()] for name in (few, many)]
    return digits[0] == digits[1] and SequenceMatcher(None, few.casefold(), many.casefold()).ratio() >= SAME


def _section(order: Sequence[str], counts: Mapping[str, Counter[str]], noun: Both) -> Section:
    parts = list(counts)
    first = counts[parts[0]]
    bars = [(name, first[name] / max(first.total(), 1), f"{first[name]:,}") for name in order[:ROWS]]
    rows = [[name, *(f"{counts[part][name]:,}" for part in parts)] for name in order[:ROWS]]
    more_en = f" The {ROWS} most frequent of {len(order)} are shown." if len(order) > ROWS else ""
    more_zh = f"共 {len(order)} 个，只列出最多的 {ROWS} 个。" if len(order) > ROWS else ""
    return Section(
        Both(f"{noun.en.capitalize()}s and their numbers", f"{noun.zh}及其数量"),
        Both(f"A bar is the share in {parts[0]}.{more_en}", f"条形表示在{PART_NAMES[parts[0]]}中的占比。{more_zh}"),
        bars=bars, columns=[noun, *(Both(part, PART_NAMES[part]) for part in parts)], rows=rows,
    )  # fmt: skip


def occurrences(names: Iterable[Sequence[str]], places: Iterable[str]) -> Named:
    """Each name of each record with the record's place."""
    return [(name, place) for group, place in zip(names, places, strict=True) for name in group]
