"""minibert finetune."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from minibert.cli.options import DRY_RUN, QUIET, SHOW_CONFIG
from minibert.cli.task_options import TaskCommand
from minibert.config import load_recipe, resolve
from minibert.errors import UserError

FILES = ("model", "train", "dev", "test")


@click.command(cls=TaskCommand)
@click.option("--task", help="What to learn: a name of `minibert tasks`.")
@click.option("--model", type=click.Path(path_type=Path), help="A minibert run or a Hugging Face folder to start from.")
@click.option("--train", type=click.Path(path_type=Path), help="Labelled file to learn from.")
@click.option("--dev", type=click.Path(path_type=Path), help="Labelled file that chooses the epoch that is kept.")
@click.option("--test", type=click.Path(path_type=Path), help="Labelled file that is measured once, at the end.")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder to make; it holds the model in the end.")
@click.option("--recipe", help="Preset: a name of `minibert recipes`, a TOML file or settings.json; options win.")
@click.option("--resume", is_flag=True, help="Go on with the unfinished run in --out, exactly as if it had not ended.")
@SHOW_CONFIG
@DRY_RUN
@QUIET
def finetune(
    task: str | None, model: Path | None, train: Path | None, dev: Path | None, test: Path | None, out: Path | None,
    recipe: str | None, resume: bool, show_config: bool, dry_run: bool, quiet: bool, **settings: Any,
) -> None:  # fmt: skip
    """Learn a task from a labelled file: classify texts, tag words, answer questions.

    Defaults are those of BERT's paper; the recipes fit small models.
    """
    from minibert import run_folder
    from minibert.tasks import find_tasks
    from minibert.tasks.base import refuse_foreign

    flags = {name: value for name, value in settings.items() if value is not None}
    places = {"model": model, "train": train, "dev": dev, "test": test}
    places = {name: path and path.absolute() for name, path in places.items()}
    tasks = find_tasks()
    saved: dict[str, Any] = {}
    going_on = resume and out is not None and run_folder.is_begun(out)
    if going_on:
        assert out is not None
        if run_folder.is_finished(out):
            click.echo(f"{out} holds a finished run: there is nothing to resume", err=True)
            run_folder.clear_up(out, "checkpoints")
            return
        saved = run_folder.load_settings(out)
        if saved.get("command") != "finetune":
            raise UserError("holds a run of another command", where=str(out), fix=f"minibert {saved.get('command')}")
        run_folder.check_same_places(out, saved, {"task": task, **places})
        task = str(saved["task"])
        places = {name: Path(saved[name]) if saved[name] else None for name in FILES}
    task, layers = from_recipe(recipe, task)
    if task is None:
        raise UserError("no task was named", where="--task", fix=f"one of {', '.join(tasks)}")
    if task not in tasks:
        raise UserError(f"there is no task {task!r}", where="--task", fix=f"one of {', '.join(tasks)}")
    kind = tasks[task]
    refuse_foreign(kind, flags)
    if going_on:
        assert out is not None
        again = {name: value for _, layer in layers for name, value in layer.items()}
        config, _ = run_folder.resumed_settings(kind.Config, out, flags, again)
    else:
        config = resolve(kind.Config, *layers, ("command line", flags))
    if show_config:
        click.echo(json.dumps({"settings": asdict(config)}, indent=1))
        return
    check_places(task, places)
    if out is None:
        if not dry_run:
            raise UserError("no place for the result was named", where="--out", fix="add --out RUN")
        out = Path("dry-run")  # nothing is written there
    if not going_on and not dry_run:
        run_folder.check_new(out)
        if resume:
            click.echo(f"nothing to resume in {out}: a new run begins", err=True)
    from minibert.console import Console
    from minibert.finetune.story import finetune as train_task

    assert places["model"] is not None
    assert places["train"] is not None
    train_task(
        kind, config, places["model"], out, train=places["train"], dev=places["dev"], test=places["test"],
        resume=going_on, dry_run=dry_run, console=Console(quiet=quiet),
    )  # fmt: skip


def from_recipe(recipe: str | None, task: str | None) -> tuple[str | None, list[tuple[str, dict[str, Any]]]]:
    """The task, which a recipe names too, and the recipe's settings as a layer."""
    if recipe is None:
        return task, []
    place, values = load_recipe(recipe, "finetune")
    its = values.pop("task", None)
    if its is not None and task not in (None, its):
        raise UserError(f"is for the task {its}, not {task}", where=f"--recipe {recipe}", fix="take one for the task")
    return task or its, [(place, values)]


def check_places(task: str, places: dict[str, Path | None]) -> None:
    """Refuse what is missing before torch is loaded."""
    for name in ("model", "train"):
        if places[name] is None:
            raise UserError(
                f"no {name} was named", where=f"--{name}",
                fix=f"minibert finetune --task {task} --model CHECKPOINT --train FILE --out RUN",
            )  # fmt: skip
    for name, path in places.items():
        if path is not None and not path.exists():
            raise UserError("there is no such file or folder", where=f"--{name} {path}", fix="look at the path")
        if name != "model" and path is not None and path.is_dir():
            raise UserError("is a folder; a file is needed", where=f"--{name} {path}", fix="name one file")
