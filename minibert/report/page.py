"""report.html of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from minibert.console import Console
from minibert.errors import UserError
from minibert.report.card import write_card
from minibert.report.loading import how_to_load
from minibert.report.run import Log, Run, number, numbers, read_from, read_run
from minibert.report.words import NAMES, PARTS, as_both, lasting, name_of, said, value_of, what_is
from minibert.run_folder import resume_with
from minibert.view.figures import Figure, Line, curves
from minibert.view.page import Both, percent, write_page

TRAIN, HELD_OUT, DEV = Both("training", "训练"), Both("held-out text", "留出文本"), PARTS["dev"]
NOT_SCORES = ("loss", "total", "support")  # of dev: what has no place among the scores' curves
FEW = 40  # points of a curve: each of them is shown
LONG = 300  # characters of a table's cell, or of a setting


def describe_run(folder: Path, metrics: dict[str, Any], console: Console) -> None:
    """A run's page and card at its very end: metrics.json, with these metrics, is the one file that is still to come.

    A run is whole without them: what goes wrong here is said and no more.
    """
    for what, write in (("report.html", write_run_page), ("README.md", write_card)):
        try:
            write(replace(read_run(folder), metrics=metrics, finished=True))
        except UserError as error:
            console.warn(f"{what} was not written: {error}")
        except Exception as error:  # noqa: BLE001 - after hours of training no page may make a run fail
            console.warn(f"{what} was not written ({error!r}); `minibert report {folder}` shows why")


def write_report(folder: Path) -> Path:
    """RUN/report.html and RUN/README.md, of a run that is finished or not. Returns: the page.

    Raises: UserError where the folder is no run's, or cannot be written to.
    """
    run = read_run(folder)
    write_run_page(run)
    write_card(run)
    return folder / "report.html"


def write_run_page(run: Run) -> None:
    """RUN/report.html."""
    of = of_run(run)
    with read_from(run.folder / "answers.json"):  # what is nested deepest: the template walks through it
        write_page(run.folder / "report.html", "report.html", **of)


def of_run(run: Run) -> dict[str, Any]:
    """What the template of a run's page shows. Raises: UserError, naming the file, for one that is damaged."""
    return {**words_of(run), "figures": list(figures(run))}


def words_of(run: Run) -> dict[str, Any]:
    """of_run without the drawings, which ask the log for numbers alone and so take any."""
    of: dict[str, Any] = {"run": run, "what": what_is(run.command, run.task), "state": state_of(run)}
    with read_from(run.folder / "config.json"):
        of |= {"lead": lead(run), "load": how_to_load(run, str(run.folder))}
    with read_from(run.folder / "metrics.json"):
        of |= {"tiles": tiles(run), "metrics": list(metric_rows(run)), "seeds": seed_table(run)}
    with read_from(run.folder / "answers.json"):
        of["parts_of_run"] = list(parts_of(run))
        of["texts"], of["answered_at"] = run.answers.get("texts") or [], run.answers.get("step")
    with read_from(run.folder / "data.json"):
        of |= {"data": list(data_rows(run)), "data_notes": list(data_notes(run))}
        of["rows_decoded"] = run.data.get("rows_decoded") or [e["input"] for e in run.data.get("examples") or []]
    with read_from(run.folder / "settings.json"):
        of["changed"] = [(name, shown(value), shown(usual)) for name, value, usual in run.changed_settings()]
        of["settings"] = [(name, shown(value)) for name, value in run.settings.items()]
        of["places"] = [(name, shown(value)) for name, value in run.places.items() if value and name != "data"]
    with read_from(run.folder / "machine.json"):
        of["machine"] = list(machine_rows(run))
    return of


def state_of(run: Run) -> tuple[str, Both]:
    """good, doubtful or bad; and in words."""
    if run.finished:
        return "good", Both(f"finished after {run.step:,} steps", f"已完成，共 {run.step:,} 步")
    go_on = resume_with(run.command, run.folder)
    if run.log.error is not None:
        problem = str(run.log.error["error"])
        return "bad", Both(
            f"ended by an error at step {run.log.error['step']:,}: {problem}",
            f"第 {run.log.error['step']:,} 步出错终止：{problem}",
        )
    return "doubtful", Both(
        f"not finished: the log ends at step {run.step:,}. {go_on}",
        f"尚未完成：日志到第 {run.step:,} 步。继续训练：{go_on.partition(': ')[2]}",
    )


def lead(run: Run) -> Both:
    """The model's size, and what was kept of a fine-tuning."""
    en, zh = [], []
    if run.config:
        layers, width, tokens = (run.config[n] for n in ("num_hidden_layers", "hidden_size", "vocab_size"))
        en.append(f"{layers} layers, {width} wide, {tokens:,} tokens")
        zh.append(f"{layers} 层，维度 {width}，词表 {tokens:,}")
    if run.parameters:
        en.append(f"{run.parameters / 1e6:,.1f} M parameters")
        zh.append(f"{run.parameters / 1e6:,.1f} M 参数")
    if run.metrics.get("best_metric"):
        step, epoch, seed = (run.metrics[name] for name in ("best_step", "best_epoch", "seed"))
        en.append(f"kept: step {step:,} (epoch {epoch:g})" + (f", seed {seed}" if len(run.seeds) > 1 else ""))
        zh.append(f"保留：第 {step:,} 步（第 {epoch:g} 轮）" + (f"，种子 {seed}" if len(run.seeds) > 1 else ""))
    return Both(" · ".join(en), " · ".join(zh))


def tiles(run: Run) -> list[tuple[Both | str, Any, Any]]:
    """The key numbers at the top."""
    found: list[tuple[Both | str, Any, Any]] = []
    if run.command == "pretrain":
        newest = numbers(run.metrics) or (numbers(run.log.measured[-1][1]) if run.log.measured else {})
        if "masked_accuracy" in newest:
            blind, counts = (value_of(name, newest.get(name)) for name in ("unigram_accuracy", "unigram_loss"))
            beside = Both(f"the commonest token everywhere: {blind}", f"总猜最常见的词：{blind}")
            found.append((name_of("masked_accuracy"), value_of("masked_accuracy", newest["masked_accuracy"]), beside))
            beside = Both(f"word counts alone: {counts}", f"仅凭词频：{counts}")
            found.append((name_of("masked_loss"), value_of("masked_loss", newest["masked_loss"]), beside))
        if "nsp_accuracy" in newest:
            blind = value_of("nsp_accuracy", newest.get("nsp_majority_accuracy", 0.5))
            beside = Both(f"always the commoner label: {blind}", f"总答更常见的标签：{blind}")
            found.append((name_of("nsp_accuracy"), value_of("nsp_accuracy", newest["nsp_accuracy"]), beside))
    else:
        part = "test" if "test" in run.metrics else "dev"
        scores = numbers(run.metrics.get(part) or {}) or (numbers(run.log.measured[-1][1]) if run.log.measured else {})
        spread = numbers((run.metrics.get("deviation") or {}).get(part) or {})
        mean = numbers((run.metrics.get("mean") or {}).get(part) or {})
        for metric in [name for name in scores if name not in NOT_SCORES][:3]:
            where = Both(f"on {part}", PARTS[part].zh)
            if metric in mean:
                of_all = f"{value_of(metric, mean[metric])} ± {value_of(metric, spread.get(metric, 0))}"
                where = Both(f"on {part}; seeds: {of_all}", f"{where.zh}；各种子：{of_all}")
            found.append((name_of(metric), value_of(metric, scores[metric]), where))
    found.append((name_of("steps"), f"{run.step:,}", ""))
    tokens = number(run.metrics.get("tokens")) or next(iter(reversed(run.log.column("tokens")[1])), None)
    if tokens:
        found.append((name_of("tokens"), f"{tokens:,.0f}", ""))
    if run.seconds:
        found.append((Both("training time", "训练时间"), lasting(run.seconds), Both("without measuring", "不含评测")))
    if run.tokens_per_second:
        used = percent(run.share_of_machine) if run.share_of_machine else ""
        beside = Both(f"{used} of what matrix products reach here", f"达到本机矩阵乘法速度的 {used}")
        found.append((name_of("tokens_per_second"), f"{run.tokens_per_second:,.0f}", beside if used else ""))
    return found


def figures(run: Run) -> Iterator[Figure]:
    """The curves that there are points for."""
    yield from (loss_figures(run.log) if run.command == "pretrain" else score_figures(run))
    for name in ("lr", "grad_norm", "tokens_per_second"):
        x, y = run.log.column(name)
        note = None
        if name == "tokens_per_second":
            x, y = without_short(x, y)
            device = str(run.machine.get("device", ""))
            note = Both(device, device)
        if len(x) > 1:
            yield curves(as_both(name), [Line(as_both(name), x, y, dots=len(x) <= FEW)], note=note, from_zero=True)


def without_short(x: Sequence[float], y: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    """Without the points that stand for few steps, such as the first and the last: a speed over them says little."""
    steps = [one - before for before, one in pairwise([0, *x])]
    usual = sorted(steps)[len(steps) // 2] if steps else 0
    kept = [i for i, number_of in enumerate(steps) if number_of >= usual / 2]
    return [x[i] for i in kept], [y[i] for i in kept]


def loss_figures(log: Log) -> Iterator[Figure]:
    """Of pre-training: losses and accuracies, in training and on held-out text, with what no context would give."""
    lines = lines_of(log, (("mlm_loss", TRAIN, False),), (("mlm_loss", HELD_OUT, False), ("unigram_loss", None, True)))
    if lines:
        yield curves(Both("masked-token loss (nats)", "掩码词元损失（nat）"), lines)
    lines = lines_of(log, (), (("masked_accuracy", None, False), ("unigram_accuracy", None, True)))
    if lines:
        yield curves(Both("accuracy at [MASK], held-out text", "[MASK] 处准确率（留出文本）"), lines, from_zero=True)
    lines = lines_of(log, (("nsp_loss", TRAIN, False),), (("nsp_loss", HELD_OUT, False),))
    if any(value for line in lines for value in line.y):
        yield curves(Both("next-sentence loss (chance: 0.693)", "下一句损失（随机：0.693）"), lines)
    lines = lines_of(log, (), (("nsp_accuracy", None, False),))
    if lines:
        blind = log.evaluation("nsp_majority_accuracy")
        lines.append(Line(name_of("nsp_majority_accuracy"), *blind, dashed=True) if blind[0] else chance(lines[0].x))
        yield curves(Both("next-sentence accuracy, held-out text", "下一句准确率（留出文本）"), lines)


def chance(x: Sequence[float]) -> Line:
    """A coin, over these steps."""
    return Line(Both("chance", "随机"), x, [0.5] * len(x), dashed=True)


def lines_of(
    log: Log, steps: Sequence[tuple[str, Both | None, bool]], measured: Sequence[tuple[str, Both | None, bool]]
) -> list[Line]:
    """Lines of (column, name, dashed) of the steps and of the measurements; those without points are left out."""
    found = [
        Line(name or name_of(column), *log.column(column), dots=len(log.steps) <= FEW, dashed=dashed)
        for column, name, dashed in steps
    ]
    found += [
        Line(name or name_of(column), *log.evaluation(column), dots=not dashed, dashed=dashed)
        for column, name, dashed in measured
    ]
    return [line for line in found if len(line.x)]


def score_figures(run: Run) -> Iterator[Figure]:
    """Of fine-tuning: the losses, the scores on dev, and with several seeds the score that chooses, seed by seed."""
    lines = lines_of(run.log, (("loss", TRAIN, False),), (("loss", DEV, False),))
    if lines:
        yield curves(Both("loss", "损失"), lines, from_zero=True)
    names = dict.fromkeys(name for _, found in run.log.measured for name in found)
    scores = [name for name in names if name not in NOT_SCORES and not name.endswith(("_total", "_support"))][:6]
    if scores:
        lines = lines_of(run.log, (), [(name, None, False) for name in scores])
        yield curves(Both("scores on dev", "验证集得分"), lines)
    if len(run.seeds) > 1 and scores:
        chosen = str(run.metrics.get("best_metric") or scores[0])
        lines = [
            Line(Both(f"seed {seed}", f"种子 {seed}"), *log.evaluation(chosen), dots=True)
            for seed, log in run.seeds.items()
            if log.evaluation(chosen)[0]
        ]
        name = as_both(chosen)
        if lines:
            yield curves(Both(f"{name.en} on dev, each seed", f"各种子在验证集上的{name.zh}"), lines[:8])


def parts_of(run: Run) -> Iterator[dict[str, Any]]:
    """Of fine-tuning: for dev and test the tables, and the records that were answered otherwise."""
    for name in ("dev", "test"):
        found = run.answers.get(name)
        if not isinstance(found, dict):
            continue
        tables = [table for table in found.get("tables") or [] if table["title"] != "Wrong answers"]
        for table in tables:
            cells = [int(cell) for row in table["rows"] for cell in row[1:]] if table.get("counts") else []
            table["most"] = max(cells, default=0)
            if not table.get("counts"):
                table["title"], table["columns"] = said(table["title"]), [said(column) for column in table["columns"]]
        mistakes = [{**one, "pieces": list(pieces(one["text"], one["marks"]))} for one in found.get("mistakes") or []]
        yield {
            "name": name,
            "zh": PARTS[name].zh,
            "tables": tables,
            "mistakes": mistakes,
            **{k: found.get(k) for k in ("records", "wrong")},
        }


def pieces(text: str, marks: Sequence[Sequence[Any]]) -> Iterator[tuple[str, str, str]]:
    """A text cut at its marks: (piece, whose, label); whose is "" outside of them. Where marks overlap, each place has
    the words of all of them."""
    cuts = sorted({0, len(text), *(min(place, len(text)) for start, end, *_ in marks for place in (start, end))})
    for start, end in pairwise(cuts):
        over = [(whose, label) for first, last, whose, label in marks if first <= start and end <= last]
        kinds = {whose for whose, _ in over}
        whose = "both" if "both" in kinds or len(kinds) == 2 else next(iter(kinds), "")
        same = len({label for _, label in over}) <= 1
        if whose == "both" and not same:
            whose = "differs"
        label = " / ".join(dict.fromkeys(label for _, label in over if label))
        yield text[start:end], whose, label


def data_rows(run: Run) -> Iterator[tuple[Both | str, str]]:
    """data.json in a few lines."""
    data = run.data
    if run.command == "pretrain":
        for key, en, zh in (
            ("documents", "documents", "文档"), ("held_out_documents", "of them held out", "其中留出"),
            ("sentences", "sentences", "句子"), ("tokens", "tokens", "词元"), ("characters", "characters", "字符"),
            ("vocabulary", "vocabulary", "词表大小"),
        ):  # fmt: skip
            if number(data.get(key)) is not None:
                yield Both(en, zh), f"{data[key]:,}"
        for key, en, zh in (
            ("unknown_rate", "unknown tokens", "未知词元占比"),
            ("is_next_share", "pairs that follow each other", "真实相邻句对占比"),
            ("padding_share", "padding", "填充占比"),
        ):  # fmt: skip
            if number(data.get(key)) is not None:
                yield Both(en, zh), percent(data[key])
        return
    if data.get("labels"):
        yield Both("labels", "标签"), shown(", ".join(data["labels"]))
    for name in ("train", "dev", "test"):
        part = data.get(name)
        if isinstance(part, dict):
            yield Both(f"{name}: records", f"{PARTS[name].zh}：样本"), f"{part['examples']:,}"
            yield Both(f"{name}: tokens a row, mean", f"{PARTS[name].zh}：每行词元，平均"), f"{part['mean_length']:.1f}"
            yield Both(f"{name}: tokens a row, longest", f"{PARTS[name].zh}：每行词元，最长"), f"{part['longest']:,}"
            yield Both(f"{name}: unknown tokens", f"{PARTS[name].zh}：未知词元"), percent(part["unknown_rate"])


def data_notes(run: Run) -> Iterator[str]:
    """What was odd about the data."""
    yield from run.data.get("warnings") or []
    for name in ("train", "dev", "test"):
        part = run.data.get(name)
        if isinstance(part, dict):
            for note in part.get("notes") or []:
                yield f"{name}: {note}"
            for what in ("skipped", "repaired"):
                if part.get(what):
                    first = part[what][0]
                    yield f"{name}: {len(part[what]):,} {what}; {first['where']}: {first['reason']}"


def metric_rows(run: Run) -> Iterator[list[Any]]:
    """metrics.json as a table: name, and of fine-tuning dev and test."""
    if run.command == "pretrain":
        for name, value in numbers(run.metrics).items():
            yield [name_of(name), value_of(name, value)]
        return
    there = [part for part in ("dev", "test") if isinstance(run.metrics.get(part), dict)]
    if there:
        for name in run.metrics[there[0]]:
            if run.task == "ner" and name not in NAMES:
                continue  # of a type: its table has it
            yield [name_of(name), *(value_of(name, run.metrics[part].get(name)) for part in there)]


def seed_table(run: Run) -> dict[str, Any] | None:
    """The seeds side by side; None where there is one."""
    seeds = run.metrics.get("seeds")
    if not isinstance(seeds, list) or len(seeds) < 2:
        return None
    kept = run.metrics.get("seed")
    head: list[Any] = ["", *(f"{one['seed']}{' ★' if one['seed'] == kept else ''}" for one in seeds)]
    rows = []
    for part in ("dev", "test"):
        for name in numbers(seeds[0].get(part) or {}):
            if name in NOT_SCORES or (run.task == "ner" and name not in NAMES):
                continue
            mean, spread = (run.metrics[word][part][name] for word in ("mean", "deviation"))
            values = [value_of(name, (one.get(part) or {}).get(name)) for one in seeds]
            label = Both(f"{part} {as_both(name).en}", f"{PARTS[part].zh}{as_both(name).zh}")
            rows.append([label, *values, value_of(name, mean), value_of(name, spread)])
    return {"columns": [*head, Both("mean", "均值"), Both("deviation", "标准差")], "rows": rows}


def machine_rows(run: Run) -> Iterator[tuple[Both | str, str]]:
    """machine.json in words."""
    for key, en, zh in (
        ("device", "device", "设备"), ("processes", "processes", "进程数"),
        ("threads", "threads of each", "每进程线程数"),
        ("precision", "precision", "精度"), ("minibert", "minibert", "minibert"), ("torch", "PyTorch", "PyTorch"),
        ("python", "Python", "Python"),
    ):  # fmt: skip
        if key in run.machine:
            yield Both(en, zh), str(run.machine[key])
    rate, per_token = number(run.machine.get("flops_per_second")), number(run.machine.get("flops_per_token"))
    if rate and per_token:
        yield Both("matrix products reach", "矩阵乘法可达"), f"{rate / 1e9:,.0f} GFLOP/s"
        yield Both("training computes, each token", "训练每个词元的计算量"), f"{per_token / 1e6:,.1f} MFLOP"


def shown(value: Any) -> str:
    """A setting's value for people."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    else:
        text = json.dumps(value)
    return text if len(text) <= LONG else f"{text[:LONG]} …"
