"""Options made from settings classes: one declaration gives the field, the recipe key and the flag. How help looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import Field
from typing import Any, Literal, get_args, get_origin

import click

from minibert.config import default_of, kinds, known_fields, load_recipe, sections
from minibert.console import WIDEST, has_colour

DEFAULT_RECIPE = "quick"
HELP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
FIRST, LAST = "Main options", "More"


class Help(click.HelpFormatter):
    """Help with styled headings and names on a terminal, the same characters in a pipe."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, styled("Usage:", bold=True) + " " if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{styled(f'{heading}:', bold=True)}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(styled(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing)


class Context(click.Context):
    """A command's context, for its help."""

    formatter_class = Help


def styled(text: str, **style: Any) -> str:
    """For help, which goes to stdout."""
    return click.style(text, **style) if has_colour(sys.stdout) else text


class Option(click.Option):
    """An option that stands in a section of its command's help."""

    def __init__(self, *args: Any, section: str = FIRST, **how: Any) -> None:
        super().__init__(*args, **how)
        self.section = section


QUIET = click.option("--quiet", cls=Option, section=LAST, is_flag=True, help="Print warnings and errors alone.")
SHOW_CONFIG = click.option(
    "--show-config", cls=Option, section=LAST, is_flag=True,
    help="Print the settings that would be used, as JSON, and end.",
)  # fmt: skip
DRY_RUN = click.option(
    "--dry-run", cls=Option, section=LAST, is_flag=True,
    help="Read the data, print its summary, and end before the first step.",
)  # fmt: skip


class SectionedCommand(click.Command):
    """A command with many options: its help shows them by section, in the order in which the sections come first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found: dict[str, list[tuple[str, str]]] = {FIRST: [], LAST: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record is not None:
                section = LAST if param is self.get_help_option(ctx) else getattr(param, "section", FIRST)
                found.setdefault(section, []).append(record)
        found[LAST] = found.pop(LAST)
        for section, records in found.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


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
            section = FIRST if only else sections(config)[name]
            command = click.option(*flags, cls=Option, section=section, **how)(command)
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
    return [flag, *also, name], {"type": kind, "default": None, "help": whose + sentence(item.metadata["help"]) + shown}


def sentence(text: str) -> str:
    """A setting's help as a sentence; a value that is explained stays as it is typed (auto: ...)."""
    text = text if text.split(" ", 1)[0].endswith(":") else text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
