#!/usr/bin/env python3
"""Build docs/ and the reference, which is written from the code here, into a folder of pages.

    scripts/docs.py FOLDER

Nothing is fetched, and the pages fetch nothing: open FOLDER/index.html. A link without a target ends it with code 1.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import minibert
from minibert.cli import commands

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"(?:^|(?<=[.!?] ))(Args|Attributes|Returns|Raises|Warns|Source|Differs):? ", re.MULTILINE)


# ---- commands


def command_page() -> str:
    """Every command with its options, as `--help` has them."""
    parts = [
        "# Commands\n\nWritten from the program: what `minibert COMMAND --help` says on the terminal.\n",
        *(section_of(name, command) for name, command in sorted(commands.commands.items())),
    ]
    return "\n".join(parts)


def section_of(name: str, command: click.Command) -> str:
    """One command: what it does, how it is called (with its arguments), its options as a table."""
    ctx = click.Context(command, info_name=f"minibert {name}", max_content_width=100)
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    records = [record for param in options if (record := param.get_help_record(ctx))]
    rows = [f"| `{flags}` | {cell(text)} |" for flags, text in records]
    head = (
        f"## minibert {name} {{ #{name} }}\n\n```text\n{usage}\n```\n\n{prose(inspect.cleandoc(command.help or ''))}\n"
    )
    return "\n".join([head, "| option | |", "|---|---|", *rows, ""])


# ---- Python


def python_page() -> str:
    """Every public name with its signature and docstring, and the methods of classes that are minibert's own."""
    names = [name for name in minibert.__all__ if not name.startswith("__")]
    intro = (
        "# Python reference\n\nWritten from the docstrings. [minibert in Python](../python.md) shows each name at work "
        "and says what the letters of shapes mean.\n"
    )
    parts = [intro]
    shown: dict[str, str] = {}  # docstring of a method -> where it stands
    for name in sorted(names, key=place_of):
        found = getattr(minibert, name)
        parts.append(f"## {name}\n\n{described(name, found)}")
        for method, function in methods_of(found) if inspect.isclass(found) else ():
            where = shown.setdefault(inspect.getdoc(function) or "", name)
            if where == name:
                title = f"{escaped(f'{name}.{method}')} {{ #{name}.{method.strip('_')} }}"
                parts.append(f"### {title}\n\n{described(method, function)}")
            else:
                parts.append(f"`{method}`: as [{where}.{method}](#{where}.{method}).\n")
    return "\n".join(parts)


def place_of(name: str) -> tuple[bool, bool, str]:
    """Functions first, then classes, models with a head last."""
    return inspect.isclass(getattr(minibert, name)), name.startswith("BertFor"), name


def described(name: str, found: Any) -> str:
    """Signature and docstring."""
    if isinstance(found, property):
        return f"A property.\n\n{prose(inspect.getdoc(found) or '')}\n"
    return f"```python\n{signature_of(name, found)}\n```\n\n{prose(docstring_of(found), parameters_of(found))}\n"


def parameters_of(found: Callable[..., Any]) -> list[inspect.Parameter]:
    """Without self."""
    return [p for p in inspect.signature(found).parameters.values() if p.name != "self"]


def signature_of(name: str, found: Callable[..., Any]) -> str:
    """As it is called; one parameter a line where it is long."""
    parts, keyword_only = [], False
    for p in parameters_of(found):
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            parts, keyword_only = [*parts, "*"], True
        default = "" if p.default is p.empty else f" = {p.default!r}".replace("<factory>", "{}")
        parts.append(f"{'**' if p.kind is p.VAR_KEYWORD else ''}{p.name}: {type_of(p.annotation)}{default}")
    returned = inspect.signature(found).return_annotation
    after = "" if returned in (None, "None", inspect.Signature.empty) else f" -> {type_of(returned)}"
    line = f"{name}({', '.join(parts)}){after}"
    return line if len(line) <= 90 else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){after}"])


def type_of(annotation: Any) -> str:
    """An annotation without the modules."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:minibert|torch|typing)(?:\.\w+)*\.(\w+)", r"\1", text)


def docstring_of(found: Any) -> str:
    """A class that only adds opening and saving says so; the class below it says what it is."""
    text = inspect.getdoc(found) or ""
    if inspect.isclass(found) and "that opens and saves itself" in text:
        return inspect.getdoc(found.__mro__[2]) or text
    return text


def methods_of(found: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that minibert documents; of a model those that transformers has too."""
    model = hasattr(found, "named_parameters")
    for name, value in inspect.getmembers(found):
        own = str(getattr(getattr(value, "fget", value), "__module__", "")).startswith("minibert")
        wanted = name in ("forward", "from_pretrained", "save_pretrained") if model else name[0] != "_"
        if own and (wanted or (name == "__call__" and not model)):
            yield name, value


# ---- text


def prose(text: str, parameters: Sequence[inspect.Parameter] = ()) -> str:
    """A docstring or help as Markdown: its sections begin with a bold word, each parameter is a point of a list."""
    names = "|".join(p.name for p in parameters)
    point = re.compile(rf"(?:^|(?<=[.;] )|(?<=\*\* ))((?:{names})(?:, (?:{names}))*)((?: \([^)]*\))?(?: \w+)?): ")
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        joined = " ".join(line.strip() for line in block.splitlines())
        for part in filter(None, SECTION.sub(r"\n\n**\1** ", joined).split("\n\n")):
            points = escaped(point.sub(r"\n- `\1`\2: ", part) if names else part)
            paragraphs.append(points.replace("\n- ", "\n\n- ", 1))
    return "\n\n".join(paragraphs)


def cell(text: str) -> str:
    """Text in a table."""
    return escaped(" ".join(text.split())).replace("|", "\\|")


def escaped(text: str) -> str:
    """Text whose brackets, stars and lesser-than signs mean nothing, but in code between backticks."""
    parts = re.split(r"(`[^`]+`|^\*\*\w+\*\*)", text)
    return "".join(part if i % 2 else re.sub(r"([\[\]<*_{}#])", r"\\\1", part) for i, part in enumerate(parts))


def joined(page: str) -> str:
    """A page in which no line ends between two Han characters: a browser would show a blank there. Code stays."""
    parts = re.split(r"(^ *```.*?^ *```$)", page, flags=re.DOTALL | re.MULTILINE)
    han = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef“”…"
    return "".join(part if i % 2 else re.sub(rf"(?<=[{han}])\n *(?=[{han}])", "", part) for i, part in enumerate(parts))


# ---- the site


def build(out: Path) -> None:
    """Put docs/ and the reference together, build, and put the pages in place of those in `out`."""
    with tempfile.TemporaryDirectory(prefix="minibert-docs-") as folder:
        work = Path(folder)
        shutil.copytree(ROOT / "docs", work / "docs")
        shutil.copy(ROOT / "mkdocs.yml", work)
        for page in (work / "docs").rglob("*.md"):
            page.write_text(joined(page.read_text("utf-8")), encoding="utf-8")
        reference = work / "docs/reference"
        reference.mkdir(exist_ok=True)
        (reference / "commands.md").write_text(command_page(), encoding="utf-8")
        (reference / "python.md").write_text(python_page(), encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=work, check=False)
        if done.returncode:
            sys.exit(1)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "site", out)


def main() -> None:
    """Parse, build, say where it lies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the pages go; what is there is replaced")
    out = parser.parse_args().out
    if out.exists() and not (out / "sitemap.xml").exists() and any(out.iterdir()):
        sys.exit(f"docs: error: {out} holds something else\n  fix: name a new folder")
    build(out)
    print(f"open {out / 'index.html'} in a browser")


if __name__ == "__main__":
    main()
