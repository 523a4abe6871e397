"""minibert check."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minibert.atomic import temporary_folder
from minibert.cli.sources import corpus_sources, is_elsewhere, on_disk
from minibert.cli.task_options import OF_INPUT, TaskCommand
from minibert.config import FinetuneConfig, known_fields, resolve
from minibert.errors import UserError

if TYPE_CHECKING:
    from minibert.check.findings import Checked, Finding, Section
    from minibert.console import Console
    from minibert.model.bert import BertConfig
    from minibert.tokenization.tokenizer import BertTokenizer

DOUBTFUL = 3  # exit code
OF_TEXT = ("encoding", "max_length")  # of the tasks' options, those that raw text has too
MAX_LENGTH = 128
LONGEST = 1 << 16  # tokens of a row
NUMBER = re.compile(r"[-+]?[\d,.]*( ?%)?|—")


class CheckCommand(TaskCommand):
    """With the settings that say how a task reads its files; nothing is trained."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, then those of reading."""
        training = set(known_fields(FinetuneConfig)) - {*OF_INPUT}
        return [option for option in super().get_params(ctx) if option.name not in training]


@click.command(cls=CheckCommand)
@click.argument("corpus", nargs=-1, required=True, metavar="CORPUS|FILE...")
@click.option("--task", help="Check labelled data for a task of `minibert tasks`; FILE is what it would learn from.")
@click.option("--dev", help="With --task: the file that would choose the epoch.")
@click.option("--test", help="With --task: the file that would be measured at the end.")
@click.option(
    "--tokenizer", help="vocab.txt or tokenizer folder that would be used [default: a small one, made for the check]."
)
@click.option("--model", help="Checkpoint that would be trained further: its tokenizer is used.")
@click.option("--text-field", help="Field that holds the text in .jsonl and .parquet, without --task [default: text].")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder for files of other places [default: $MINIBERT_CACHE or ~/.cache/minibert].",
)
@click.option("--json", "as_json", is_flag=True, help="Print verdict, facts and findings as one JSON object.")
@click.option("--out", type=click.Path(path_type=Path), help="FILE.html: write a page with everything that was found.")
@click.option("--quiet", is_flag=True, help="Print what is doubtful alone.")
def check(
    corpus: tuple[str, ...], task: str | None, dev: str | None, test: str | None, tokenizer: str | None,
    model: str | None, text_field: str | None, cache: Path | None, as_json: bool, out: Path | None, quiet: bool,
    **settings: Any,
) -> int:  # fmt: skip
    """Look at data before hours of training: what is doubtful, and how to mend it.

    CORPUS is raw text, as in `pretrain`; with --task, FILE is labelled. Exit code 0: good, 3: doubtful, 2: the command
    cannot be carried out.
    """
    from minibert.console import Console
    from minibert.view.page import check_place

    flags = {name: value for name, value in settings.items() if value is not None}
    if out is not None:
        check_place(out)
    console = Console(quiet=quiet or as_json)
    its, most = tokenizer_of(tokenizer, model, cache, console)
    if task is not None:
        found = labelled(task, corpus, flags, {"dev": dev, "test": test, "text_field": text_field}, its, most)
    else:
        lost = ["--format" if n == "input_format" else f"--{n.replace('_', '-')}" for n in flags if n not in OF_TEXT]
        lost += [flag for flag, value in (("--dev", dev), ("--test", test)) if value is not None]
        if lost:
            says = "says" if len(lost) == 1 else "say"
            raise UserError(f"{says} nothing without --task", where=" and ".join(lost), fix="add --task cls, ner or qa")
        refuse_length(flags.get("max_length", MAX_LENGTH), most)
        found = raw_text(corpus, flags, text_field, its, cache, console)
    if out is not None:
        from minibert.view.page import write_page

        write_page(out, "check.html", checked=found, sections=[(part, is_numbers(part)) for part in found.sections])
    say(found, out, as_json=as_json, quiet=quiet)
    return DOUBTFUL if found.doubtful else 0


def tokenizer_of(
    tokenizer: str | None, model: str | None, cache: Path | None, console: Console
) -> tuple[BertTokenizer | None, BertConfig | None]:
    """The tokenizer that is meant, if one is, and the shape of the model, if that is known."""
    if tokenizer is not None and model is not None:
        raise UserError("bring a tokenizer each", where="--tokenizer and --model", fix="name one of them")
    given = tokenizer or model
    if given is None:
        return None, None
    from minibert.tokenization.tokenizer import BertTokenizer

    folder = on_disk(given, cache, console)
    found = BertTokenizer.from_pretrained(folder)
    if model is None:
        return found, None
    from minibert.checkpoint.config import load_config
    from minibert.checkpoint.folder import check_vocabulary

    shape = load_config(folder)
    check_vocabulary(len(found), shape, model)
    return found, shape


def refuse_length(max_length: int, shape: BertConfig | None) -> None:
    """What training would refuse: rows that are longer than the model's inputs, or than any model's."""
    if shape is not None:
        from minibert.checkpoint.folder import check_length

        check_length(max_length, shape)
    elif max_length > LONGEST:
        raise UserError(
            f"rows of {max_length} tokens are longer than any model's inputs", where="--max-length",
            fix=f"take {LONGEST} or less; BERT's models have 512 positions",
        )  # fmt: skip


def raw_text(
    corpus: tuple[str, ...], flags: dict[str, Any], text_field: str | None, tokenizer: BertTokenizer | None,
    cache: Path | None, console: Console,
) -> Checked:  # fmt: skip
    """A corpus of text, as `pretrain` takes it."""
    with temporary_folder() as spool:
        sources = corpus_sources(corpus, spool, warn=False)
        if not isinstance(sources, list):
            raise UserError("is a prepared store; text is needed", where=corpus[0], fix="name files of text")
        from minibert.check.corpus import check_corpus
        from minibert.corpus.cache import cache_folder
        from minibert.corpus.sources import on_this_machine

        if corpus == ("-",):
            names = ["standard input"]
        else:
            names = [str(source) if isinstance(source, Path) else source.url for source in sources]
        return check_corpus(
            on_this_machine(sources, cache_folder(cache), console), names=names,
            encoding=flags.get("encoding", "utf-8"), text_field=text_field or "text", tokenizer=tokenizer,
            max_length=flags.get("max_length", MAX_LENGTH), console=console,
        )  # fmt: skip


def labelled(
    task: str, corpus: tuple[str, ...], flags: dict[str, Any], places: dict[str, Any], tokenizer: BertTokenizer | None,
    shape: BertConfig | None,
) -> Checked:  # fmt: skip
    """Labelled files, as `finetune` takes them."""
    from minibert.tasks import find_tasks
    from minibert.tasks.base import refuse_foreign

    tasks = find_tasks()
    if task not in tasks:
        raise UserError(f"there is no task {task!r}", where="--task", fix=f"one of {', '.join(tasks)}")
    if places.pop("text_field") is not None:
        raise UserError("is for raw text", where="--text-field", fix="leave it out; cls has --text-column")
    refuse_foreign(tasks[task], flags)
    if len(corpus) > 1:
        raise UserError(
            "several files were named; one is learnt from", where=" and ".join(corpus[:3]),
            fix="name the others with --dev and --test",
        )  # fmt: skip
    named = {"": corpus[0], **{f"--{name} ": file for name, file in places.items() if file is not None}}
    for flag, file in named.items():
        refuse_file(file, flag + file)
    from minibert.check.labels import check_labels

    config = resolve(tasks[task].Config, ("command line", flags))
    refuse_length(config.max_length, shape)
    paths = {name: Path(file) for name, file in places.items() if file is not None}
    return check_labels(task, config, train=Path(corpus[0]), **paths, tokenizer=tokenizer)


def refuse_file(name: str, where: str) -> None:
    """Whatever is no file with labelled records: they are read several times, and must lie on this machine."""
    path = Path(name)
    if name == "-" or is_elsewhere(name):
        fix = "write them to a file" if name == "-" else "fetch it first, and name the file"
        raise UserError("labelled data are read from files of this machine", where=where, fix=fix)
    if not path.exists():
        raise UserError("there is no such file", where=where, fix="look at the path")
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "is a device or a pipe"
        raise UserError(f"{problem}; a file is needed", where=where, fix="name a file with labelled records")


def say(found: Checked, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """The verdict first, then what is doubtful, what is good to know, and the numbers."""
    from minibert.console import print_text

    if as_json:
        print_text(json.dumps(as_values(found), ensure_ascii=False, indent=1) + "\n")
        return
    doubtful = [finding for finding in found.findings if finding.level == "doubtful"]
    notes = [finding for finding in found.findings if finding.level == "note"]
    lines = [verdict(found)] if doubtful or not quiet else []
    for finding in doubtful if quiet else [*doubtful, *notes]:
        lines += ["", *in_lines(finding)]
    if not quiet:
        numbers = [(str(name), value, *map(str, more)) for part in found.sections for name, value, *more in part.tiles]
        width = max((len(name) for name, *_ in numbers), default=0)
        lines += ["", *(f"  {name:<{width}}  {'  '.join(values)}" for name, *values in numbers), ""]
        if found.hint is not None:
            lines.append(found.hint.en)
        lines.append(f"page: {out}" if out else "more, as a page to look at: --out FILE.html")
    if lines:
        print_text("\n".join(lines) + "\n")


def verdict(found: Checked) -> str:
    """One sentence."""
    count = sum(finding.level == "doubtful" for finding in found.findings)
    if not count:
        return f"good: {found.what.en}, and nothing in it that would harm training"
    return f"doubtful: {found.what.en}, with {count} thing{'s' * (count > 1)} to mend or to understand before training"


def in_lines(finding: Finding) -> list[str]:
    """A finding for the terminal."""
    lines = [f"{finding.level}: {finding.message.en}"]
    if finding.fix is not None:
        lines.append(f"  fix: {finding.fix.en}")
    return lines + [f"  at: {place}" for place in finding.where[:3]]


def as_values(found: Checked) -> dict[str, Any]:
    """What --json prints."""
    findings = [
        {
            "kind": finding.kind, "level": finding.level, "message": finding.message.en,
            "fix": finding.fix and finding.fix.en, "where": list(finding.where),
        }
        for finding in found.findings
    ]  # fmt: skip
    return {"verdict": "doubtful" if found.doubtful else "good", "facts": found.facts, "findings": findings}


def is_numbers(part: Section) -> bool:
    """Whether all cells but a row's first are numbers, and stand at the right."""
    return all(NUMBER.fullmatch(str(cell)) for row in part.rows for cell in row[1:])
