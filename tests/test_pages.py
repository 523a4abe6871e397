"""Every minibert command in a page, a recipe's head or a message parses: its options exist and take such values."""

import re
import shlex
from pathlib import Path

import click
import pytest

from minibert.cli import commands

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in ("README.md", "README.zh.md", "docs/results.md")] + sorted(
    ROOT.glob("recipes/*/*.toml")
)
COMMAND = re.compile(r"(?:^|[\s|(])(?:\.venv/bin/)?(minibert [a-z-]+ .*)$")


def commands_of(page: Path) -> list[str]:
    """The commands in code blocks (indented or fenced) and in recipes' heads, one a line, without what comes behind."""
    found, fenced = [], False
    for line in page.read_text("utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif (fenced or line.startswith(("    ", "# Command:"))) and (match := COMMAND.search(line)):
            found.append(re.split(r"\s+#\s|\s*[;|>]\s|\s2>", match[1])[0])
    return found


def test_commands_are_found():
    assert len(commands_of(ROOT / "README.md")) >= 6
    assert sum(map(len, map(commands_of, PAGES))) > 30


@pytest.mark.parametrize(
    "words", sorted({words for page in PAGES for words in commands_of(page)}), ids=lambda words: words[:70]
)
def test_command_parses(words):
    name, *rest = shlex.split(words)[1:]
    rest = ["1" if word.startswith("$") else word for word in rest if word not in ("$DATA", "$SETTINGS")]
    command = commands.commands[name]
    command.make_context(name, rest)


def test_an_unknown_option_is_seen():
    with pytest.raises(click.UsageError, match="No such option"):
        commands.commands["finetune"].make_context("finetune", ["--task", "cls", "--epoch-count", "3"])
