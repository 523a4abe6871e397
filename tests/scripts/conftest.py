"""How tests get at what lies in scripts/, which is no package."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """A script as a module, by its name; it finds its neighbours as it does when it is started."""

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(SCRIPTS))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(SCRIPTS))

    return load
