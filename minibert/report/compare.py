"""A page that lays several runs beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minibert.errors import UserError
from minibert.report.page import data_rows, shown, state_of, words_of
from minibert.report.run import Run, number, numbers, read_run
from minibert.report.words import PARTS, as_both, better, lasting, value_of, what_is
from minibert.view.figures import Figure, Line, curves
from minibert.view.page import Both, write_page

NOT_JUDGED = ("steps", "tokens", "total", "support")  # no run is better for these


def write_comparison(folders: Sequence[Path], target: Path) -> None:
    """One page with several runs beside each other.

    Raises: UserError where one is no run, or they are of several tasks.
    """
    runs = [read_run(folder) for folder in folders]
    kinds = {(run.command, run.task) for run in runs}
    if len(kinds) > 1:
        said = "; ".join(f"{run.folder} is {what_is(run.command, run.task).en}" for run in runs)
        raise UserError(f"runs of several kinds cannot be compared: {said}", fix="name runs of one task")
    write_page(target, "compare.html", **of_runs(runs))


def of_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """What the template of a comparison shows."""
    names = distinct_names(runs)
    for run in runs:
        words_of(run)  # names a file that is damaged
    return {
        "what": what_is(runs[0].command, runs[0].task),
        "runs": list(zip(names, runs, [state_of(run) for run in runs], strict=True)),
        "metrics": list(compared_metrics(runs)),
        "figures": list(compared_figures(names, runs)),
        "settings": list(differing(runs)),
        "data": list(compared_data(runs)),
        "doubts": list(comparison_doubts(runs)),
    }


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """The folders' names, with as much of the path as tells them apart."""
    parts = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(own[-depth:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    return [str(run.folder) for run in runs]


def scores_of(run: Run) -> dict[str, float]:
    """A run's result by name, of fine-tuning "dev accuracy"; of an unfinished run its newest measurement."""
    if run.command == "pretrain":
        return numbers(run.metrics) or (numbers(run.log.measured[-1][1]) if run.log.measured else {})
    found: dict[str, float] = {}
    for part in ("dev", "test"):
        scores = (run.metrics.get("mean") or run.metrics).get(part)
        if isinstance(scores, dict):
            found |= {f"{part} {name}": value for name, value in numbers(scores).items()}
    if not found and run.log.measured:
        found = {f"dev {name}": value for name, value in numbers(run.log.measured[-1][1]).items()}
    return found


def compared_metrics(runs: Sequence[Run]) -> Iterator[tuple[Both, list[tuple[Both | str, bool]]]]:
    """(name, for each run its value and whether it is the best)."""
    scores = [scores_of(run) for run in runs]
    for full in dict.fromkeys(name for own in scores for name in own):
        part, _, metric = full.rpartition(" ")
        values = [own.get(full) for own in scores]
        there = [value for value in values if value is not None]
        judged = not metric.startswith(("num_", "unigram_", "nsp_majority_")) and metric not in NOT_JUDGED
        judged = judged and not metric.endswith(("_total", "_support")) and len(set(there)) > 1
        best = there[0]
        for one in there:
            best = one if better(metric, one, best) else best
        name = as_both(metric)
        label = Both(f"{part} {name.en}".strip(), f"{PARTS[part].zh if part else ''}{name.zh}")
        cells: list[tuple[Both | str, bool]] = []
        for run, value in zip(runs, values, strict=True):
            spread = number(((run.metrics.get("deviation") or {}).get(part) or {}).get(metric))
            said = value_of(metric, value) + (f" ± {value_of(metric, spread)}" if spread else "")
            cells.append((said, judged and value == best))
        yield label, cells
    times = [lasting(run.seconds) if run.seconds else "–" for run in runs]
    yield Both("training time", "训练时间"), [(said, False) for said in times]
    speeds = [f"{run.tokens_per_second:,.0f}" if run.tokens_per_second else "–" for run in runs]
    yield as_both("tokens_per_second"), [(said, False) for said in speeds]


def compared_figures(names: Sequence[str], runs: Sequence[Run]) -> Iterator[Figure]:
    """Each measure's curves, one for each run."""
    pretraining = runs[0].command == "pretrain"
    wanted: list[tuple[str, bool, Both]] = [
        (
            ("mlm_loss", False, Both("masked-token loss in training", "训练中的掩码词元损失"))
            if pretraining
            else ("loss", False, Both("loss in training", "训练损失"))
        )
    ]
    if pretraining:
        wanted += [
            ("masked_loss", True, Both("loss at [MASK], held-out text", "[MASK] 处损失（留出文本）")),
            ("masked_accuracy", True, Both("accuracy at [MASK], held-out text", "[MASK] 处准确率（留出文本）")),
            ("nsp_accuracy", True, Both("next-sentence accuracy, held-out text", "下一句准确率（留出文本）")),
        ]
    else:
        measured = dict.fromkeys(name for run in runs for _, found in run.log.measured for name in found)
        for name in [name for name in measured if name not in ("total", "support")][:4]:
            own = as_both(name)
            wanted.append((name, True, Both(f"{own.en} on dev", f"验证集{own.zh}")))
    wanted += [("lr", False, as_both("lr")), ("tokens_per_second", False, as_both("tokens_per_second"))]
    for column, is_measured, title in wanted:
        lines = []
        for name, run in zip(names, runs, strict=True):
            x, y = run.log.evaluation(column) if is_measured else run.log.column(column)
            if x:
                lines.append(Line(name, x, y, dots=is_measured))
        if lines:
            yield curves(title, lines)


def differing(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    """Settings and places that are not the same in all runs."""
    for of in ("places", "settings"):
        for name in dict.fromkeys(name for run in runs for name in getattr(run, of)):
            values = [getattr(run, of).get(name) for run in runs]
            if any(value != values[0] for value in values) and name not in ("data", "minibert"):
                yield name, [shown(value) for value in values]


def compared_data(runs: Sequence[Run]) -> Iterator[tuple[Both | str, list[str]]]:
    """The rows of data_rows beside each other."""
    found = [dict(data_rows(run)) for run in runs]
    for name in dict.fromkeys(name for own in found for name in own):
        yield name, [own.get(name, "–") for own in found]


def comparison_doubts(runs: Sequence[Run]) -> Iterator[Both]:
    """Why the numbers may not be comparable."""
    if runs[0].command == "pretrain":
        if len({run.data.get("vocabulary") for run in runs}) > 1:
            yield Both(
                "The vocabularies differ in size: a loss or accuracy for a token says something else in each run.",
                "各次运行的词表大小不同：每个词元的损失和准确率不能直接比较。",
            )
        if len({(run.data.get("documents"), run.data.get("held_out_documents")) for run in runs}) > 1:
            yield Both(
                "The corpora or the held-out documents differ: the runs were measured on other text.",
                "语料或留出文档不同：各次运行是在不同文本上评测的。",
            )
    else:
        for part in ("dev", "test"):
            sizes = {(run.data.get(part) or {}).get("examples") for run in runs}
            if len(sizes) > 1:
                yield Both(f"{part} has another number of records in each run.", f"各次运行的 {part} 记录数不同。")
    if not all(run.finished for run in runs):
        yield Both("Not all runs are finished.", "并非所有运行都已完成。")
