"""The tasks: one module each, found by being here."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from minibert.tasks.base import Task


def find_tasks() -> dict[str, type[Task[Any, Any]]]:
    """The tasks by name: every class of a module of this folder that has a `name` of its own."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        content = vars(import_module(f"{__name__}.{module.name}"))
        for kind in content.values():
            if isinstance(kind, type) and issubclass(kind, Task) and "name" in vars(kind):
                found[kind.name] = kind
    return found
