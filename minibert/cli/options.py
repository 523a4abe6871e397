"""Options made from settings classes: one declaration gives the field, the recipe key and the flag."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import Field
from typing import Any, Literal, get_args, get_origin

import click

from minibert.config import default_of, kinds, known_fields, load_recipe

DEFAULT_RECIPE = "quick"


def setting_options(
    config: type[Any], *, only: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One option for each field of a settings class, or for those of `only`; one that is not given is None.

    The help names what holds where nothing is said: the default recipe's value, or the field's own default; no recipe
    stands behind some fields alone.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        quick = {} if only else load_recipe(DEFAULT_RECIPE, "pretrain")[1]
        for name, item in reversed(known_fields(config).items()):
            if only and name not in only:
                continue
            default = f"{DEFAULT_RECIPE}: {quick[name]}" if name in quick else default_of(item)
            flags, how = setting_option(name, item, kinds(config)[name][0], default)
            command = click.option(*flags, **how)(command)
        return command

    return add


def setting_option(
    name: str, item: Field[Any], kind: Any, default: Any, *, whose: str = "", also: tuple[str, ...] = ()
) -> tuple[list[str], dict[str, Any]]:
    """The names and the arguments of one setting's click option. whose: what its help begins with. also: more flags."""
    flag = f"--{name.replace('_', '-')}"
    if get_origin(kind) is Literal:
        kind = click.Choice(get_args(kind))
    elif kind is bool:
        kind = None
        flag = item.metadata["flag"] or f"{flag}/--no-{flag[2:]}"
        default = flag.split("/")[not default] if isinstance(default, bool) else default
    label = "" if isinstance(default, str) and default.startswith(f"{DEFAULT_RECIPE}: ") else "default: "
    shown = f" [{label}{default}]" if default not in (None, "") else ""
    return [flag, *also, name], {"type": kind, "default": None, "help": whose + item.metadata["help"] + shown}
