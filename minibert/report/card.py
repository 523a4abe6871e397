"""README.md of a run, its card: what it learnt from, with what result, what it is not good for, how to load it.

A card is made to be given away: of files and folders it has the names, not where they lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minibert.atomic import write_text
from minibert.errors import printable
from minibert.report.loading import how_to_load
from minibert.report.run import Run, number, numbers, read_from
from minibert.report.words import NAMES, TASKS, value_of, what_is
from minibert.run_folder import MAY_CHANGE

MOST_LABELS = 40  # that are named
PLAIN = re.compile(r"[\w][\w .-]*")  # a name that markdown leaves alone


def write_card(run: Run) -> None:
    """RUN/README.md. Raises: UserError, naming the file, for one that is damaged."""
    write_text(run.folder / "README.md", "\n".join(lines(run)) + "\n")


def lines(run: Run) -> list[str]:
    """The card, line by line: in English, then its gist in Chinese."""
    found: list[str] = []
    for file, part in (
        ("config.json", opening), ("metrics.json", results), ("data.json", data), ("settings.json", settings),
        ("config.json", loading), ("data.json", limits), ("metrics.json", in_chinese),
    ):  # fmt: skip
        with read_from(run.folder / file):
            found += part(run)
    return found


def opening(run: Run) -> Iterator[str]:
    """What it is."""
    yield from head(run)
    yield f"# {run.name if PLAIN.fullmatch(run.name) else code(run.name)}"
    yield ""
    what = what_is(run.command, run.task)
    yield f"{shape_in_words(run)}: {what.en} with minibert {run.machine.get('minibert', '')}".rstrip() + "."
    if not run.finished:
        yield f"\n**This run is not finished**: its log ends at step {run.step:,}."
    yield ""


def settings(run: Run) -> Iterator[str]:
    """Those that decide the result and are not the defaults."""
    yield "## Settings\n"
    changed = [item for item in run.changed_settings() if item[0] not in MAY_CHANGE]
    if changed:
        yield "Those that decide the result and are not the defaults; `--recipe settings.json` takes them all again.\n"
        yield from table(("setting", "here", "default"), [(code(n), code(v), code(d)) for n, v, d in changed])
    else:
        yield "All as they are where nothing is said (`settings.json`)."
    yield ""


def head(run: Run) -> Iterator[str]:
    """What model hubs read."""
    tag = {"cls": "text-classification", "ner": "token-classification", "qa": "question-answering"}
    yield "---"
    yield "library_name: transformers"
    yield f"pipeline_tag: {tag.get(run.task, 'fill-mask')}"
    yield "tags:\n- bert\n- minibert"
    yield "---\n"


def shape_in_words(run: Run) -> str:
    """The model's size."""
    config = run.config
    if not config:
        return "A BERT"
    return (
        f"A BERT of {config['num_hidden_layers']} layers, {config['hidden_size']} wide, "
        f"{config['num_attention_heads']} heads, {config['vocab_size']:,} tokens"
    )


def results(run: Run) -> Iterator[str]:
    """The scores as a table, each with what it was measured on."""
    yield "## Results\n"
    if run.command == "pretrain":
        found = numbers(run.metrics)
        if "mlm_loss" not in found:
            yield "Nothing was measured on held-out text.\n"
            return
        shown = f"{found['num_masked']:,.0f}"
        yield f"On {found['num_targets']:,.0f} masked tokens of held-out text, {shown} of them shown as [MASK]:\n"
        rows = [(named(name), value_of(name, value)) for name, value in found.items() if not name.startswith("num")]
        yield from table(("", "value"), rows)
        yield ""
        return
    there = [part for part in ("dev", "test") if isinstance(run.metrics.get(part), dict)]
    if not there:
        yield "Nothing was measured: the run had neither a dev nor a test file.\n"
        return
    names = list(numbers(run.metrics[there[0]]))
    yield from table(("", *there), [(named(n), *(value_of(n, run.metrics[p].get(n)) for p in there)) for n in names])
    seeds = run.metrics.get("seeds") or []
    if len(seeds) > 1:
        best = names[1] if len(names) > 1 else names[0]
        part = there[-1]
        mean, spread = run.metrics["mean"][part][best], run.metrics["deviation"][part][best]
        yield (
            f"\nOf {len(seeds)} seeds the best on dev is kept. Over all of them {named(best)} on {part} is "
            f"{value_of(best, mean)} ± {value_of(best, spread)}."
        )
    if run.metrics.get("best_metric"):
        yield f"\nKept: step {run.metrics['best_step']:,} of {run.metrics['steps']:,}, the best on dev."
    yield ""


def data(run: Run) -> Iterator[str]:
    """What it learnt from."""
    yield "## Data\n"
    found = run.data
    if run.command == "pretrain":
        named = run.places.get("corpus") or []
        if named:
            yield f"Text: {', '.join(code(Path(name).name) for name in named[:5])}{' …' if len(named) > 5 else ''}\n"
        rows = [
            (words, f"{found[key]:,}")
            for key, words in (("documents", "documents"), ("sentences", "sentences"), ("tokens", "tokens in the text"))
            if number(found.get(key)) is not None
        ]
        seen = number(run.metrics.get("tokens"))
        if seen:
            rows.append(("tokens seen in training", f"{seen:,.0f}"))
        if number(found.get("unknown_rate")) is not None:
            rows.append(("unknown tokens", f"{found['unknown_rate']:.2%}"))
        yield from table(("", ""), rows)
        yield ""
        return
    files = []
    for part in ("train", "dev", "test"):
        if isinstance(said := found.get(part), dict):
            sizes = (f"{said['examples']:,}", f"{said['mean_length']:.0f}")
            files.append((part, code(Path(said["file"]).name), *sizes))
    yield from table(("part", "file", "records", "tokens a row"), files)
    labels = found.get("labels") or []
    if labels:
        more = f" … {len(labels)} in all" if len(labels) > MOST_LABELS else ""
        yield f"\nLabels: {', '.join(code(label) for label in labels[:MOST_LABELS])}{more}"
    if run.places.get("model"):
        yield f"\nStarted from: {code(Path(run.places['model']).name)}"
    yield ""


def loading(run: Run) -> Iterator[str]:
    """Code."""
    yield "## How to load it\n"
    for title, text in how_to_load(run, run.name):
        kind = "bash" if text.startswith("minibert") else "python"
        yield f"{title.en}:\n\n```{kind}\n{text}\n```\n"


def limits(run: Run) -> Iterator[str]:
    """What the model is not good for."""
    yield "## Limits\n"
    yield from (f"- {limit}" for limit in known_limits(run))
    yield ""


def known_limits(run: Run) -> Iterator[str]:
    """From what is known of the run."""
    chosen, length = run.settings, run.settings.get("max_length")
    if run.command == "pretrain":
        seen = number(run.metrics.get("tokens")) or 0
        if seen and seen < 1e9:
            yield (
                f"It has seen {seen / 1e6:,.1f} million tokens; the published BERT saw more than 100,000 million. It "
                "knows which words stand together better than what a text says."
            )
        yield "It is an encoder: it fills gaps and gives vectors, and is meant to be fine-tuned. It writes no text."
        if length:
            longest = max(length, chosen.get("long_length") or 0)
            yield f"It was trained on rows of up to {longest} tokens; longer input works worse."
        found = numbers(run.metrics)
        if "masked_loss" in found and found["masked_loss"] > found.get("unigram_loss", 0) - 0.05:
            yield "Its guesses are no better than word counts: it was trained too short to be of use."
    else:
        parts = run.data
        for part in ("test", "dev"):
            records = (parts.get(part) or {}).get("examples")
            if records:
                yield (
                    f"Its scores come from {records:,} records of {part}: a share of .9 there is known to about "
                    f"± {1.96 * (0.09 / records) ** 0.5:.3f} (95 %), on text of the same kind."
                )
                break
        if "test" not in parts and "dev" in parts:
            yield "There was no test file: dev chose the model that was kept, so its score is a little too good."
        if run.task == "cls" and not chosen.get("regression"):
            yield "Every text gets one of the labels above, also one that belongs to none of them."
        if run.task == "cls" and length:
            yield f"A text is read up to {length} tokens; what comes behind is not seen."
    yield "What is wrong or unfair in its text, it has learnt too. Look at its answers before they decide anything."


def in_chinese(run: Run) -> Iterator[str]:
    """The gist."""
    yield "## 中文概要\n"
    what = (
        "预训练" if run.command == "pretrain" else f"在{TASKS[run.task].zh}任务上微调" if run.task in TASKS else "微调"
    )
    config = run.config
    shape = ""
    if config:
        shape = f"{config['num_hidden_layers']} 层、隐藏维度 {config['hidden_size']}、词表 {config['vocab_size']:,} 的 "
    yield f"{shape}BERT，由 minibert {what}得到。{'' if run.finished else '**训练尚未完成。**'}\n"
    if run.command == "pretrain":
        found = numbers(run.metrics)
        names = ("masked_accuracy", "unigram_accuracy", "masked_loss", "unigram_loss", "nsp_accuracy")
        rows = [(name_zh(name), value_of(name, found[name])) for name in names if name in found]
        yield from table(("留出文本上的结果", ""), rows)
        yield "\n模型是编码器：可以填空、给出向量、用于微调，不能写文章。训练文本里的错误和偏见，它也一并学到了。"
    else:
        there = [part for part in ("dev", "test") if isinstance(run.metrics.get(part), dict)]
        if there:
            shown = [n for n in numbers(run.metrics[there[0]]) if n != "loss"][:6]
            yield from table(
                ("", *there), [(name_zh(n), *(value_of(n, run.metrics[p].get(n)) for p in there)) for n in shown]
            )
        yield "\n得分只对同类文本有效。用它做决定之前，请先看看 `report.html` 里答错的例子。"


def named(metric: str) -> str:
    """A metric's name; one that holds a label's name, as in PER_f1, is the user's own word."""
    name = NAMES.get(metric)
    return code(metric) if name is None else name.en


def name_zh(metric: str) -> str:
    """A metric's name in Chinese, where it has one."""
    name = NAMES.get(metric)
    return code(metric) if name is None else name.zh


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of markdown; a bar in a cell would end it."""
    for row in (columns, ["---"] * len(columns), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def code(value: Any) -> str:
    """A value of the user's, as it is: in a code span that it cannot end, on one line."""
    text = printable(str(value)).replace("\n", "\\n").replace("\t", "\\t")
    if not text.strip():
        return f"`{text or ' '}`"
    fence = "`" * (1 + max((len(run) for run in text.replace("`", " ` ").split() if set(run) == {"`"}), default=0))
    while fence in text:
        fence += "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
