"""Texts that stand in a file twice, in two files, or with two labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minibert.check.duplicates import exact_groups, near_groups
from minibert.check.findings import Checked, Section
from minibert.check.labelled import PART_NAMES, LabelFile, add, cut, level, names_of
from minibert.tasks.base import Record
from minibert.tasks.cls_rows import is_visible
from minibert.view.page import Both, percent

COPIES = 0.1  # share of a part's texts that are there before; measured: .043 in People's Daily's dev
LEAKED = 0.01  # share of dev or test that train has; measured: .0006 in the reviews' test
NEARLY_LEAKED = 0.1  # the same, but for a few words; measured: .066 in BBC's dev, which tells some news twice
CONFLICTS = 0.02  # share of a part's texts that stand there with another label too; measured: .008 (WNUT17's train)
ROWS = 20  # of a table
PLACED = 10  # texts of each pair of parts in the table of texts that stand in two


def check_copies(units: Sequence[Sequence[tuple[str, str]]], files: Sequence[LabelFile], checked: Checked) -> None:
    """Texts that stand twice in a part, and texts of dev and test that another part has. units: (text, where).

    Empty texts are no copies of each other; they are found as what they are.
    """
    units = [[item for item in unit if is_visible(item[0])] for unit in units]
    parts = [i for i, unit in enumerate(units) for _ in unit]
    flat = [item for unit in units for item in unit]
    texts = [text for text, _ in flat]
    twins = [set[int](), set[int]()]  # texts with an earlier copy in their own part: the same, nearly
    shared: list[dict[tuple[int, int], dict[int, int]]] = [{}, {}]  # (part, later part) -> text of it -> its twin
    for kind, groups in enumerate((exact_groups(texts), near_groups(texts))):
        for group in groups:
            first: dict[int, int] = {}
            for place in group:
                for part, twin in first.items():
                    if part != parts[place]:
                        shared[kind].setdefault((part, parts[place]), {})[place] = twin
                if first.setdefault(parts[place], place) != place:
                    twins[kind].add(place)
    twins[1] -= twins[0]
    for pair, found in shared[1].items():
        shared[1][pair] = {p: twin for p, twin in found.items() if p not in shared[0].get(pair, {})}
    for i, file in enumerate(files):
        for name, places in zip(("copies", "near copies"), twins, strict=True):
            own = sorted(place for place in places if parts[place] == i)
            checked.facts["files"][file.name][name.replace(" ", "_")] = len(own)
            if not own:
                continue
            share = len(own) / len(units[i])
            nearly = ("nearly ", "几乎") if name == "near copies" else ("", "")
            add(
                checked,
                name,
                level(share, COPIES),
                f"texts of {file.name} that are {nearly[0]}the same as an earlier one: {len(own):,} ({percent(share)})",
                f"{PART_NAMES[file.name]}中有 {len(own):,} 条文本（{percent(share)}）与前面的某条{nearly[1]}相同",
                (
                    "keep one of each: copies count several times in the loss and in the score",
                    "每条只留一份：重复的样本在损失和得分里会被计算多次",
                ),
                (flat[place][1] for place in own),
            )
    _check_leaks(shared, flat, units, files, checked)


def _check_leaks(
    shared: Sequence[Mapping[tuple[int, int], Mapping[int, int]]], flat: Sequence[tuple[str, str]],
    units: Sequence[Sequence[tuple[str, str]]], files: Sequence[LabelFile], checked: Checked,
) -> None:  # fmt: skip
    rows: list[list[Both | str]] = []
    examples: list[list[str]] = []
    leaks: dict[str, dict[str, int]] = {}
    for i, earlier in enumerate(files):
        for j, later in enumerate(files[i + 1 :], i + 1):
            found = [both.get((i, j), {}) for both in shared]
            counts = [len(places) for places in found]
            leaks[f"{earlier.name}-{later.name}"] = {"same": counts[0], "nearly": counts[1]}
            shares = [count / max(1, len(units[j])) for count in counts]
            rows.append(
                [earlier.title, later.title,
                 *(f"{count:,} ({percent(share)})" for count, share in zip(counts, shares, strict=True))]
            )  # fmt: skip
            limits = (LEAKED, NEARLY_LEAKED)
            for kind, places, share, limit in zip(("leakage", "near leakage"), found, shares, limits, strict=True):
                if not places:
                    continue
                examples += [
                    [cut(flat[place][0]), flat[twin][1], flat[place][1]]
                    for place, twin in sorted(places.items())[:PLACED]
                ]
                zh, zh_earlier = PART_NAMES[later.name], PART_NAMES[earlier.name]
                nearly = ("", "") if kind == "leakage" else (", but for a few words", "几乎原样")
                add(
                    checked,
                    kind,
                    level(share, limit),
                    f"texts of {later.name} that stand in {earlier.name} too{nearly[0]}: {len(places):,} "
                    f"({percent(share)}); "
                    "the score there is better than it would be on new text",
                    f"{zh}中有 {len(places):,} 条文本（{percent(share)}）{nearly[1]}也出现在{zh_earlier}里：得分会偏高",
                    (f"remove them from {earlier.name} or from {later.name}", f"从{zh_earlier}或{zh}中删去它们"),
                    (f"{flat[twin][1]} = {flat[place][1]}" for place, twin in sorted(places.items())),
                )
    if rows:
        checked.facts["leakage"] = leaks
        lead = Both(
            "Texts of the later part that the earlier one has too: the same, and nearly the same.",
            "后一部分的文本在前一部分里也有的：完全相同的和几乎相同的。",
        )
        columns: list[Both | str] = [
            Both("part", "部分"), Both("other part", "另一部分"), Both("the same", "相同"), Both("nearly", "几乎相同"),
        ]  # fmt: skip
        checked.sections.append(Section(Both("Leakage", "数据泄漏"), lead, columns=columns, rows=rows))
    if examples:
        checked.sections.append(
            Section(
                Both("Texts in two parts", "同时出现在两个部分的文本"),
                columns=[Both("text", "文本"), Both("first place", "位置一"), Both("second place", "位置二")],
                rows=examples[:ROWS],
            )
        )


def check_conflicts(files: Sequence[LabelFile], checked: Checked) -> None:
    """Texts that stand there with different labels."""
    records = [record for file in files for record in file.records]
    owners = [i for i, file in enumerate(files) for _ in file.records]
    groups = [g for g in exact_groups([r.text for r in records]) if len({records[i].gold for i in g}) > 1]
    groups = [group for group in groups if is_visible(records[group[0]].text)]
    checked.facts["conflicts"] = len(groups)
    if not groups:
        return
    places = [i for group in groups for i in group]
    worst = max(sum(owners[i] == part for i in places) / len(file.records) for part, file in enumerate(files))
    add(
        checked,
        "conflicts",
        level(worst, CONFLICTS),
        f"texts that stand there with different labels: {len(groups):,}, such as {_conflict(groups[0], records)}",
        f"有 {len(groups):,} 条文本带着不同的标签出现，例如 {_conflict(groups[0], records)}",
        (
            "decide on one label for each, or remove them: no model can be right on both",
            "为每条文本确定一个标签，或删除它们：模型不可能两个都答对",
        ),
        (" = ".join(records[i].where for i in group[:3]) for group in groups),
    )
    checked.sections.append(
        Section(
            Both("The same text with different labels", "同一文本、不同标签"),
            columns=[Both("text", "文本"), Both("labels", "标签"), Both("places", "位置")],
            rows=[
                [cut(records[group[0]].text), " / ".join(dict.fromkeys(cut(records[i].gold) for i in group)),
                 ", ".join(records[i].where for i in group[:3])]
                for group in groups[:ROWS]
            ],
        )
    )  # fmt: skip


def _conflict(group: Sequence[int], records: Sequence[Record]) -> str:
    return f"{names_of([records[group[0]].text])}: {names_of(dict.fromkeys(records[i].gold for i in group), 3)}"
