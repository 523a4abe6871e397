"""Options of the commands that know tasks: the settings of all tasks together, one option for each name."""

from __future__ import annotations

from typing import Any

import click

from minibert.cli.options import Option, SectionedCommand, setting_option
from minibert.config import FinetuneConfig, default_of, kinds, known_fields, sections

OF_INPUT = ("input_format", "encoding", "max_length")  # settings that prediction has too


class TaskCommand(SectionedCommand):
    """A command whose options come from the tasks. They are looked up when they are needed: tasks import numpy.

    Class attributes: training: all settings; otherwise those that reading, windows and answers depend on. format_flags:
        how the format of input files is called.
    """

    training = True
    format_flags: tuple[str, ...] = ("--format",)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, then the tasks'."""
        own = super().get_params(ctx)
        return [*own[:-1], *task_options(self.training, self.format_flags), own[-1]]  # --help comes last


class EvaluateCommand(TaskCommand):
    """Without the settings of training."""

    training = False


class PredictCommand(EvaluateCommand):
    """--format is that of the predictions."""

    format_flags = ()


def task_options(training: bool, format_flags: tuple[str, ...]) -> list[click.Parameter]:
    """One option a setting; where not all tasks have it, its help begins with those that do."""
    from minibert.tasks import find_tasks

    found = find_tasks()
    configs = {name: kind.Config for name, kind in found.items()}
    shared = sections(FinetuneConfig)
    owners: dict[str, list[str]] = {}
    for task, config in configs.items():
        for name in known_fields(config):
            if training or name in OF_INPUT or (name not in shared and name not in found[task].trained):
                owners.setdefault(name, []).append(task)
    options: list[click.Parameter] = []
    for name, tasks in owners.items():
        config = configs[tasks[0]]
        values = {task: default_of(known_fields(configs[task])[name]) for task in tasks}
        default: Any = values[tasks[0]]
        if len(set(map(repr, values.values()))) > 1:
            default = ", ".join(f"{task} {value}" for task, value in values.items() if value is not None)
        flags, how = setting_option(
            name, known_fields(config)[name], kinds(config)[name][0], default,
            whose="" if name in shared else f"({', '.join(tasks)}) ",
            also=format_flags if name == "input_format" else (),
        )  # fmt: skip
        its = f"Task{'s' * (len(tasks) > 1)} {' and '.join(tasks)} alone"
        options.append(Option(flags, section=shared.get(name, its), **how))
    return options
