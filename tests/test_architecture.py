"""The levels of docs/ARCHITECTURE.md, held: a module imports only from levels below its own, or from its own room."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "minibert"

LEVELS = {
    "errors": 0,
    "atomic": 1,
    "config": 1,
    "console": 1,
    "metrics": 1,
    "model": 2,
    "tokenization": 2,
    "remote": 2,
    "view": 2,
    "checkpoint": 3,
    "corpus": 3,
    "run_folder": 3,
    "tasks": 4,
    "training": 4,
    "report": 5,
    "prepare": 6,
    "pretrain": 6,
    "finetune": 6,
    "predict": 6,
    "fill_mask": 6,
    "vectors": 6,
    "extend": 6,
    "convert": 6,
    "export": 6,
    "check": 6,
    "attention": 6,
    "trace": 6,
    "__init__": 7,
    "cli": 8,
    "__main__": 9,
}
# Not even late, inside a function: minibert stands without them. `convert --verify` compares with the peer where it is.
FORBIDDEN = {"transformers"}
MAY_COMPARE = {"convert.py"}
# At import time: `minibert --help` answers at once.
QUICK_ROOMS = {"errors", "config", "console", "cli", "__init__", "__main__"}
SLOW = {"torch", "numpy", "datasets", "accelerate", "evaluate", "tokenizers", "pyarrow", "safetensors", "transformers"}


def room_of(dotted: str, package: Path) -> str:
    """minibert.corpus.read -> corpus; minibert and names that minibert/__init__.py offers -> __init__."""
    part = dotted.split(".")[1] if "." in dotted else "__init__"
    there = (package / part).is_dir() or (package / f"{part}.py").is_file()
    return part if there else "__init__"


def imported_names(tree: ast.AST, module: str, *, is_package: bool) -> set[str]:
    """Absolute dotted names of all that a module imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            # `from minibert import corpus` names a room, `from minibert.corpus import read` a module in one
            names |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            names |= {str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return names


def violations(package: Path) -> list[str]:
    """Each import that goes up or sideways, as `file: imports room (level) from room (level)`."""
    found = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        room = relative.parts[0].removesuffix(".py")
        if room not in LEVELS:
            found.append(f"{relative}: room {room} has no level; give it one here and in docs/ARCHITECTURE.md")
            continue
        module = ".".join(("minibert", *relative.with_suffix("").parts)).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name in sorted(imported_names(tree, module, is_package=path.name == "__init__.py")):
            if name.split(".")[0] in FORBIDDEN and str(relative) not in MAY_COMPARE:
                found.append(f"{relative}: imports {name}")
            if name.split(".")[0] != "minibert":
                continue
            other = room_of(name, package)
            if other != room and LEVELS.get(other, 99) >= LEVELS[room]:
                found.append(f"{relative}: {room} (level {LEVELS[room]}) imports {name} (level {LEVELS.get(other)})")
    return found


def test_modules_import_only_from_lower_levels():
    assert len(list(PACKAGE.rglob("*.py"))) > 10
    assert violations(PACKAGE) == []


def test_the_levels_stand_in_the_architecture_page():
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("|") and line[2:3].isdigit()]
    on_page = {room.strip(" `"): int(level) for level, rooms in rows for room in rooms.split("(")[0].split(",")}
    there = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    there -= {"__pycache__", "py.typed"}
    assert {room: on_page.get(room) for room in there} == {room: LEVELS.get(room) for room in there}


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("corpus", "from minibert.training.loop import steps", True),
        ("corpus", "import minibert.cli", True),
        ("corpus", "from minibert import load", True),
        ("corpus", "from minibert import training", True),
        ("corpus", "from ..training import loop", True),
        ("corpus", "from . import training_like_name", False),
        ("corpus", "def late():\n    from minibert.checkpoint import folder", True),
        ("corpus", "import importlib\nimportlib.import_module('minibert.cli')", True),
        ("corpus", "def late():\n    import transformers", True),
        ("corpus", "from minibert.corpus.read import x\nfrom minibert.model import bert\nimport torch", False),
        ("attic", "import os", True),
    ],
)
def test_a_wrong_import_is_found(tmp_path, room, source, wrong):
    package = tmp_path / "minibert"
    for name in {"corpus", "training", "checkpoint", "model", room}:
        (package / name).mkdir(parents=True)
    for name in ("__init__", "cli", "errors"):
        (package / f"{name}.py").write_text("")
    (package / room / "read.py").write_text(source)
    assert bool(violations(package)) is wrong


@pytest.mark.parametrize("module", ["minibert.errors", "minibert.config", "minibert.cli", "minibert"])
def test_import_leaves_slow_libraries_alone(module):
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & {SLOW!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


def test_quick_rooms_import_slow_libraries_only_late():
    """The same by reading, so that a condition that is false here does not hide an import."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in QUICK_ROOMS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        top = [node for node in tree.body if not isinstance(node, skipped) and not is_type_checking(node)]
        names = imported_names(ast.Module(body=top, type_ignores=[]), "minibert.x", is_package=False)
        found += [f"{path.name}: {name}" for name in names if name.split(".")[0] in SLOW]
    assert found == []


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
