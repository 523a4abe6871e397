"""What only classification can know of its data: columns, labels, tell-tale words, lengths that give the label away."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from minibert.check.balance import check_balance, occurrences
from minibert.check.duplicates import folded, words
from minibert.check.findings import Checked, Section
from minibert.check.labelled import PART_NAMES, LabelFile, add, level, names_of
from minibert.corpus.json_lines import numbered_lines
from minibert.tasks.cls import Cls
from minibert.tasks.cls_rows import ALL_DIFFER, MANY, NUMBER, ClsConfig, ClsExample, is_visible
from minibert.view.page import Both, percent, short

LIKE_IDS = 0.9  # of the texts are one word with a digit in it
LIKE_LABELS = 0.1  # different texts in all of them; measured: 1.0 everywhere
SHORT = 20  # characters of what might be a label
MOST_NUMBERS = 10  # different numbers that may be classes
MISSING = 0.01  # share of texts that say that there is none; measured: 0
TELLS = (0.9, 0.02)  # share of a label's texts with a word, and of the others; measured: no word of BBC or the reviews
TELLING_ROWS = 20  # of a label, before a word can be said to tell it
LOOKED_AT = 400  # words of a text
GAIN = 0.25  # accuracy of the length alone above the majority's; measured: .14 (BBC), .07 (reviews)
GAIN_ROWS = 200  # before a length can be said to tell anything
TWICE = 0.01  # share of pairs of which both halves are the same
FAR = 10  # times the usual distance from the median: an outlier

# "none" alone may well be a class.
NO_VALUE = {"na", "n/a", "#n/a", "nan", "null", "nil", "<na>", "#value!", "#ref!", "undefined"}


def wrong_columns(files: Sequence[LabelFile], task: Cls, checked: Checked) -> bool:
    """Whether the column of texts or of labels is another one; then there is no more to look at."""
    before = len(checked.findings)
    options = ("choose the columns with --text-column and --label-column", "用 --text-column 和 --label-column 指定列")
    for file in files[:1]:
        texts = [example.text.strip() for example in file.examples]
        shown = names_of(dict.fromkeys(texts), 3)
        n, where = len(texts), [record.where for record in file.records]
        ids = sum(len(text.split()) == 1 and any(c.isdigit() for c in text) for text in texts)
        if n >= ALL_DIFFER and ids >= LIKE_IDS * n and len(set(texts)) >= LIKE_IDS * n:
            add(
                checked,
                "texts like ids",
                "doubtful",
                f"the texts of {file.name} look like numbers or ids: {shown}",
                f"{PART_NAMES[file.name]}的文本看起来是编号：{shown}",
                options,
                where,
            )
        elif n >= MANY and len(set(texts)) <= LIKE_LABELS * n and median(map(len, texts)) <= SHORT:
            add(
                checked,
                "texts like labels",
                "doubtful",
                f"train has {n:,} rows but {len(set(texts))} different texts, such as {shown}: "
                "is it a column of labels?",
                f"训练集有 {n:,} 行，却只有 {len(set(texts))} 种文本，例如 {shown}：这是标签列吗？",
                options,
                where,
            )
        if not (task.config.regression or task.config.multi_label or task.config.labels):
            names = Counter(name for example in file.examples for name in example.names)
            _check_names(names, n, where, options, checked)
    return len(checked.findings) > before


def _check_names(names: Counter[str], n: int, where: Sequence[str], options: tuple[str, str], checked: Checked) -> None:
    shown = names_of(names, 3)
    if all(map(NUMBER.fullmatch, names)) and (
        len(names) > MOST_NUMBERS or any(float(name) != int(float(name)) for name in names)
    ):
        add(
            checked,
            "numbers as labels",
            "doubtful",
            f"the labels are {len(names)} different numbers, such as {shown}: each would be a class of its own",
            f"标签是 {len(names)} 个不同的数，例如 {shown}：每个数都会成为一个单独的类别",
            ("--regression learns numbers as numbers", "用 --regression 把它们当作数值来学"),
            where,
        )
    elif (n >= MANY and len(names) > n / 2) or len(names) == n >= ALL_DIFFER:
        add(
            checked,
            "labels like texts",
            "doubtful",
            f"there are {len(names):,} different labels in {n:,} rows, such as {shown}",
            f"{n:,} 行里有 {len(names):,} 个不同的标签，例如 {shown}",
            options,
            where,
        )


def look(task: Cls, files: Sequence[LabelFile], checked: Checked) -> None:
    """Adds what there is to say to `checked`."""
    _check_pairs(task, files, checked)
    _check_missing(files, checked)
    if task.config.regression:
        _check_numbers(files, checked)
        return
    named = {
        file.name: occurrences([e.names for e in file.examples], [e.where for e in file.examples]) for file in files
    }
    check_balance(named, Both("label", "标签"), checked, learnt=_listed(task.config))
    train = files[0].examples if files and files[0].name == "train" else []
    if not train:
        return
    if task.config.multi_label:
        _check_sets(train, checked)
        return
    names = Counter(name for example in train for name in example.names)
    if len(names) == 1:
        add(
            checked,
            "one label",
            "doubtful",
            f"all {len(train):,} rows of train have the label {names_of(names)}: there is nothing to tell apart",
            f"训练集的 {len(train):,} 行全是标签 {names_of(names)}：没有可区分的东西",
            (
                "add texts of other classes, or choose another --label-column",
                "加入其他类别的文本，或换一个 --label-column",
            ),
        )
    _check_joined(names, train, task.config.label_delimiter, checked)
    if len(names) > 1:
        _check_words(names, train, checked)
        _check_length(names, train, checked)


def _listed(config: ClsConfig) -> list[str]:
    return [line.strip() for _, line in numbered_lines(Path(config.labels), config.encoding)] if config.labels else []


def _check_pairs(task: Cls, files: Sequence[LabelFile], checked: Checked) -> None:
    for file in files if task.config.pair_column else ():
        n = len(file.examples)
        same = [e.where for e in file.examples if folded(e.text) == folded(e.pair or "") != ""]
        empty = [e.where for e in file.examples if is_visible(e.text) != is_visible(e.pair or "")]
        if same:
            add(
                checked,
                "identical halves",
                level(len(same) / n, TWICE),
                f"both texts of {len(same):,} of {n:,} pairs of {file.name} are the same",
                f"{PART_NAMES[file.name]}的 {n:,} 对文本中有 {len(same):,} 对两段完全相同",
                ("look at --text-column and --pair-column", "检查 --text-column 和 --pair-column"),
                same,
            )
        if empty:
            add(
                checked,
                "half pairs",
                "doubtful",
                f"one text of {len(empty):,} of {n:,} pairs of {file.name} is empty",
                f"{PART_NAMES[file.name]}的 {n:,} 对文本中有 {len(empty):,} 对缺了一段",
                ("fill it in, or remove the pair", "补全，或删除这些文本对"),
                empty,
            )


def _check_missing(files: Sequence[LabelFile], checked: Checked) -> None:
    """Texts and labels that are what programs write where there is nothing."""
    for file in files:
        zh = PART_NAMES[file.name]
        found = [(e.text, e.where) for e in file.examples if folded(e.text) in {*NO_VALUE, "none"}]
        if found:
            shown = names_of(dict.fromkeys(text for text, _ in found))
            add(
                checked,
                "texts like missing values",
                level(len(found) / len(file.examples), MISSING),
                f"{len(found):,} texts of {file.name} are {shown}: a word, or a text that was lost?",
                f"{zh}有 {len(found):,} 条文本是 {shown}：是真的文本，还是丢失的值？",
                (
                    "see where the file comes from: many programs write an empty cell so",
                    "查一查文件来源：许多程序把空单元格写成这样",
                ),
                (where for _, where in found),
            )
        labels = [(name, e.where) for e in file.examples for name in e.names if folded(name) in {*NO_VALUE, "none"}]
        if labels:
            kinds = dict.fromkeys(name for name, _ in labels)
            add(
                checked,
                "labels like missing values",
                "doubtful" if {folded(k) for k in kinds} & NO_VALUE else "note",
                f"{len(labels):,} rows of {file.name} are labelled {names_of(kinds)}: a class, or no label at all?",
                f"{zh}有 {len(labels):,} 行的标签是 {names_of(kinds)}：是一个类别，还是没有标注？",
                (
                    "if nobody labelled these rows, remove them; they are learnt as a class of that name",
                    "如果这些行没有标注，请删去；否则会被当作一个同名类别来学",
                ),
                (where for _, where in labels),
            )


def _check_numbers(files: Sequence[LabelFile], checked: Checked) -> None:
    """Regression: numbers that are all one, or far from all others."""
    rows: list[list[Both | str]] = []
    for file in files:
        values = np.array([example.label for example in file.examples], np.float64)
        middle = float(np.median(values))
        usual = float(np.median(np.abs(values - middle))) or float(np.abs(values - middle).mean())
        numbers = {"mean": values.mean(), "deviation": values.std(), "least": values.min(), "most": values.max()}
        checked.facts["files"][file.name]["target"] = {key: float(value) for key, value in numbers.items()}
        rows.append([file.title, *(short(float(f"{value:.6g}")) for value in numbers.values())])
        zh = PART_NAMES[file.name]
        if len(set(values.tolist())) == 1:
            add(
                checked,
                "constant numbers",
                "doubtful",
                f"all numbers of {file.name} are {values[0]:g}: there is nothing to learn, and no correlation",
                f"{zh}的数值全是 {values[0]:g}：没有可学的，相关系数也无定义",
                ("choose another --label-column", "换一个 --label-column"),
            )
            continue
        far = np.flatnonzero(np.abs(values - middle) > FAR * usual).tolist()
        if far:
            shown = ", ".join(f"{values[i]:g}" for i in far[:5])
            add(
                checked,
                "outliers",
                "doubtful",
                f"{len(far):,} numbers of {file.name} lie far from the others: {shown}; the median is {middle:g}",
                f"{zh}有 {len(far):,} 个数值远离其他数值：{shown}；中位数是 {middle:g}",
                ("correct them: squared error learns little else", "改正它们：平方误差会被它们主导"),
                (file.records[i].where for i in far),
            )
    columns = [
        Both("part", "部分"),
        Both("mean", "平均"),
        Both("deviation", "标准差"),
        Both("least", "最小"),
        Both("most", "最大"),
    ]
    checked.sections.append(Section(Both("Numbers to learn", "目标数值"), columns=columns, rows=rows))


def _check_sets(train: Sequence[ClsExample], checked: Checked) -> None:
    sizes = [len(example.names) for example in train]
    checked.facts["labels_per_text"] = sum(sizes) / len(sizes)
    if set(sizes) == {1}:
        add(
            checked,
            "one label each",
            "note",
            "every text has one label: without --multi-label they are told apart better",
            "每条文本都只有一个标签：去掉 --multi-label 效果会更好",
        )
    bare = [example.where for example in train if not example.names]
    if bare:
        add(
            checked,
            "texts without label",
            level(len(bare) / len(train), 0.5),
            f"{len(bare):,} of {len(train):,} texts have no label: none of the labels holds for them",
            f"{len(train):,} 条文本中有 {len(bare):,} 条没有标签：即所有标签都不适用",
            ("see that it is meant", "确认这是有意的"),
            bare,
        )


def _check_joined(names: Counter[str], train: Sequence[ClsExample], delimiter: str, checked: Checked) -> None:
    """Labels that are several, written into one."""
    for mark in dict.fromkeys((delimiter, ",", ";", "|", "、", "，")):
        joined = [name for name in names if mark in name and all(part.strip() in names for part in name.split(mark))]
        if joined:
            chosen = set(joined)
            add(
                checked,
                "several labels in one",
                "doubtful",
                f"{names_of(joined)} are labels of their own, though their parts are labels too",
                f"{names_of(joined)} 被当作单独的标签，但其中各部分本身就是标签",
                (f"--multi-label --label-delimiter '{mark}'", f"--multi-label --label-delimiter '{mark}'"),
                (example.where for example in train if chosen & set(example.names)),
            )
            return


def _check_words(names: Counter[str], train: Sequence[ClsExample], checked: Checked) -> None:
    """Words, the label's own name among them, that stand in nearly all texts of a label and in nearly no other."""
    having: dict[str, Counter[str]] = {name: Counter() for name in names}
    every: Counter[str] = Counter()
    own = {name: folded(name) for name in names}
    for example in train:
        text = folded(f"{example.text} {example.pair or ''}")
        found = set(_some(text))
        found |= {f"\0{name}" for name, as_text in own.items() if len(as_text) > 1 and as_text in text}
        every.update(found)
        having[example.names[0]].update(found)
    for name, count in names.items():
        others = len(train) - count
        if count < TELLING_ROWS or others < TELLING_ROWS:
            continue
        told = [
            word for word, times in having[name].most_common()
            if times >= TELLS[0] * count and every[word] - times <= TELLS[1] * others
        ]  # fmt: skip
        if not told:
            continue
        word = next((word for word in told if word == f"\0{name}"), told[0]).lstrip("\0")
        where = [e.where for e in train if e.names[0] == name and folded(word) in folded(f"{e.text} {e.pair or ''}")]
        share, rest = having[name][told[0]] / count, (every[told[0]] - having[name][told[0]]) / others
        add(
            checked,
            "tell-tale words",
            "doubtful",
            f"{names_of([word])} stands in {percent(share)} of the texts labelled {names_of([name])} and in "
            f"{percent(rest)} of the others: a model need not read on",
            f"标签为 {names_of([name])} 的文本有 {percent(share)} 含 {names_of([word])}，其余文本只有 "
            f"{percent(rest)}：模型看这个词就够了",
            (
                "is the label written into the text? take it out, if new texts will not have it",
                "标签是不是写进了文本？如果新文本里不会有它，请去掉",
            ),
            where,
        )


def _some(text: str) -> Iterator[str]:
    for _, word in zip(range(LOOKED_AT), words(text), strict=False):
        yield word


def _check_length(names: Counter[str], train: Sequence[ClsExample], checked: Checked) -> None:
    """Whether the length of a text alone tells its label: learnt on every other row, measured on the rest."""
    n = len(train)
    if n < GAIN_ROWS:
        return
    lengths = np.array([len(example.text) + len(example.pair or "") for example in train])
    numbers = {name: i for i, name in enumerate(names)}
    gold = np.array([numbers[example.names[0]] for example in train])
    order = np.random.default_rng(0).permutation(n)
    learnt, measured = order[::2], order[1::2]
    edges = np.unique(np.quantile(lengths[learnt], np.linspace(0, 1, 1 + min(20, int(math.sqrt(n) / 2)))))[1:-1]
    bins = np.searchsorted(edges, lengths, "right")
    table = np.zeros((len(edges) + 1, len(names)))
    np.add.at(table, (bins[learnt], gold[learnt]), 1)
    right = float((table.argmax(1)[bins[measured]] == gold[measured]).mean())
    majority = float((gold[measured] == np.bincount(gold[learnt]).argmax()).mean())
    checked.facts["accuracy_of_length"] = {"length": right, "majority": majority}
    if right - majority >= GAIN:
        add(
            checked,
            "length tells the label",
            "doubtful",
            f"the length of a text alone tells {percent(right)} of the labels (the most frequent one: "
            f"{percent(majority)}): a model may learn that instead",
            f"只看文本长度就能答对 {percent(right)} 的标签"
            f"（永远答最多的一类：{percent(majority)}）：模型可能只学到长度",
            (
                "take texts of like lengths for all labels, or see that it is meant",
                "让各类文本的长度相近，或确认这是有意的",
            ),
        )
