"""minibert recipes, minibert tasks."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from minibert.config import list_recipes, load_recipe
from minibert.errors import UserError

STAGES = ("pretrain", "finetune")


@click.command()
@click.argument("name", required=False)
def recipes(name: str | None) -> None:
    """List the recipes; with a NAME show that one: purpose, result and time to expect, settings."""
    found = {stage: list_recipes(stage) for stage in STAGES}
    if name is not None:
        stage = next((stage for stage in STAGES if name in found[stage]), None)
        if stage is None:
            names = [recipe for stage in STAGES for recipe in found[stage]]
            near = difflib.get_close_matches(name, names, n=1)
            fix = f"did you mean {near[0]!r}?" if near else "`minibert recipes` lists them"
            raise UserError(f"there is no recipe {name!r}", where="NAME", fix=fix)
        place, _ = load_recipe(name, stage)
        click.echo(Path(place).read_text("utf-8").rstrip())
        return
    width = max(len(known) for stage in STAGES for known in found[stage])
    for stage in STAGES:
        click.echo(f"minibert {stage}:")
        for known, purpose in found[stage].items():
            click.echo(f"  {known:<{width}}  {purpose}")


@click.command()
def tasks() -> None:
    """List the tasks of `minibert finetune`."""
    from minibert.tasks import find_tasks

    found = find_tasks()
    for name, kind in found.items():
        click.echo(f"{name:<{max(map(len, found))}}  {kind.summary} (reads {', '.join(kind.formats)})")
