"""The project's own files: what the README names is there, versions are pinned, the wheel is whole."""

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("scripts/[!_.]*"), ROOT / ".ci" / "run"])
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


def our_files() -> list[Path]:
    """All files that git has or would take; without git, all that are not hidden and not made."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True
    )
    if listed.returncode == 0:
        paths = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        made = {"data", "runs", "dist", "build"}
        parts = {path: path.relative_to(ROOT).parts for path in ROOT.rglob("*")}
        paths = [path for path, p in parts.items() if p[0] not in made and not any(x.startswith(".") for x in p[:-1])]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def requirements(*extras: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [r for r in map(Requirement, wanted) if canonicalize_name(r.name) != "minibert"]


def pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_and_say_what_runs_them(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env ")


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "CONTRIBUTING.md"])
def test_scripts_that_a_page_names_are_there(page):
    named = set(re.findall(r"\b(?:scripts|\.ci)/[\w.]+\w", (ROOT / page).read_text(encoding="utf-8")))
    assert {"scripts/test"} <= named
    assert [name for name in sorted(named) if not os.access(ROOT / name, os.X_OK)] == []


def test_makefile_only_calls_scripts():
    recipes = [line.strip() for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t")]
    assert recipes
    for line in recipes:
        name = line.removeprefix("@").split()[0]
        assert os.access(ROOT / name, os.X_OK), line


@pytest.mark.parametrize("python", PYTHONS)
def test_constraints_pin_every_dependency_for_every_python(python):
    environment = {"python_version": python}
    applying = [pin for pin in pins() if pin.marker is None or pin.marker.evaluate(environment)]
    names = [canonicalize_name(pin.name) for pin in applying]
    assert len(names) == len(set(names))
    pinned = {canonicalize_name(pin.name): next(iter(pin.specifier)) for pin in applying}
    assert {spec.operator for spec in pinned.values()} == {"=="}
    for requirement in requirements("zh", "track", "s3", "docs", "dev"):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)].version), requirement


def test_version_stands_in_one_place():
    number = PYPROJECT["project"]["version"]
    assert version("minibert") == number
    pattern = re.compile(rf"(?:version|VERSION|__version__)\W{{1,5}}{re.escape(number)}\b")
    sources = [path for path in our_files() if path.suffix in (".py", ".toml")]
    holders = [path for path in sources if pattern.search(path.read_text(encoding="utf-8"))]
    assert holders == [ROOT / "pyproject.toml"]


def test_wheel_holds_the_type_marker_and_the_recipes(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = {f"minibert/recipes/{path.relative_to(ROOT / 'recipes')}" for path in (ROOT / "recipes").rglob("*.toml")}
    assert recipes
    assert recipes | {"minibert/py.typed", "minibert/__init__.py", "minibert/cli/__init__.py"} <= names
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"minibert"}


def test_no_file_names_a_place_of_one_machine_or_a_registry_host():
    # put together here, so that this file does not hold them itself
    hosts = [
        "pypi" + ".org",
        "python" + "hosted.org",
        "npm" + "js.org",
        "deb.debian" + ".org",
        "download.pyt" + "orch.",
    ]
    places = ["/tmp" + "/w/", "/work" + "/main", "/work" + "/shared", "/work" + "/.library", "/root" + "/."]
    found = []
    for path in our_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and the like
        found += [f"{path.relative_to(ROOT)}: {word}" for word in hosts + places if word in text]
    assert found == []


def test_no_file_is_large():
    assert [str(path) for path in our_files() if path.stat().st_size > 500_000] == []


def test_shell_scripts_pass_shellcheck():
    scripts = [name for name in SCRIPTS if not name.endswith(".py")]
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), *scripts], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout
