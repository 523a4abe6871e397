"""Pages keep their word: every minibert command in them parses; every block of Python runs and gives what it says.

A comment behind an expression that is a literal is checked: a value, a tensor's shape, a dict's keys where its values
are dots. Any other comment is prose.
"""

import ast
import re
import shlex
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import click
import pytest

import minibert
from minibert.checkpoint.config import load_config
from minibert.cli import commands
from minibert.tasks import find_tasks

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "README.zh.md",
        "docs/python.md",
        "docs/check.md",
        "docs/checkpoints.md",
        "docs/export.md",
        "docs/results.md",
        "docs/performance.md",
        "docs/distributed.md",
        "docs/looking-inside.md",
    )
] + sorted(ROOT.glob("recipes/*/*.toml"))
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


# ---- Python

PYTHON = {
    "README.md": 4,
    "README.zh.md": 5,
    "docs/python.md": 38,
    "docs/check.md": 1,
    "docs/checkpoints.md": 0,
}  # page -> values that are checked, at least
ENGLISH = (
    "Paris is the capital of France. It rains. Rovers win the cup, shares fell sharply. Tom runs in Rome. Who won?"
)
CHINESE = "今天我要上学了。下雨了吃苹果发布会他是校长院长路程很长谁？北京市房间干净，服务热情。隔音太差了。ok"
LABELS = {"cls": ["business", "sport"], "ner": ["B-PER", "I-PER", "O"], "qa": []}
RUNS = {  # name -> what it was trained for (None: nothing yet)
    "runs/mine": None, "runs/zh": None, "runs/topics": "cls", "runs/reviews": "cls", "runs/people": "ner",
    "runs/qa": "qa",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, checkpoint_for):
    """A folder with a small random model under every name that the pages use, as wide and deep as mini-zh."""
    folder = tmp_path_factory.mktemp("pages")
    for name, task in RUNS.items():
        run = checkpoint_for(
            f"{ENGLISH}\n{CHINESE}\n", folder / name, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        )  # fmt: skip
        kind, extra = minibert.BertForPreTraining, {}
        if task:
            names = LABELS[task]
            kind = getattr(minibert, find_tasks()[task].model_class().__name__)
            extra = {"minibert": {"task": task, "settings": {}}}
            if names:
                extra |= {
                    "id2label": {str(i): n for i, n in enumerate(names)},
                    "label2id": {n: i for i, n in enumerate(names)},
                }
        kind(replace(load_config(run), extra=extra)).save_pretrained(run)
    return folder


def blocks_of(page: Path) -> Iterator[tuple[int, str]]:
    """The blocks of Python in a page, each with the number of the line before it."""
    text = page.read_text("utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start(1)].count("\n"), match[1]


def comments_of(code: str) -> dict[int, str]:
    """Line number -> the comment in it."""
    found = tokenize.generate_tokens(StringIO(code).readline)
    return {token.start[0]: token.string[1:].strip() for token in found if token.type == tokenize.COMMENT}


def run_block(code: str, before: int, page: str, names: dict) -> int:
    """Run a block; returns how many of its values were checked."""
    comments, checked = comments_of(code), 0
    tree = ast.parse("\n" * before + code, page)
    for node in tree.body:
        if not isinstance(node, ast.Expr):
            exec(compile(ast.Module([node], []), page, "exec"), names)
            continue
        value = eval(compile(ast.Expression(node.value), page, "eval"), names)
        comment = re.split(r": |：|；", comments.get(node.end_lineno - before, ""))[0]
        if comment.startswith("{"):
            comment = comments[node.end_lineno - before]  # its colons are its own
        try:
            expected = ast.literal_eval(comment)
        except (ValueError, SyntaxError):
            continue
        checked += 1
        assert as_said(value, expected), f"{page}:{node.lineno}: {comment} is said, {value!r} is seen"
    return checked


def as_said(value, expected) -> bool:
    if isinstance(expected, tuple) and hasattr(value, "shape"):
        return tuple(value.shape) == expected
    if isinstance(expected, dict) and ... in expected.values():
        return value.keys() == expected.keys()
    return bool(value == expected)


@pytest.mark.parametrize("page", PYTHON)
def test_python_runs_and_gives_what_is_said(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # new heads start fresh, which the pages say
        checked = sum(run_block(code, before, page, names) for before, code in blocks_of(ROOT / page))
    assert checked >= PYTHON[page]


def test_every_public_name_has_its_section_and_a_block():
    text = (ROOT / "docs/python.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    assert sections.keys() == set(minibert.__all__) - {"__version__"}
    assert all("```python" in section for section in sections.values())


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("1 + 1  # 2", True), ("1 + 1  # 3", False), ("torch.zeros(2, 3)  # (2, 3): rows, columns", True),
        ("torch.zeros(2, 3)  # (3, 2)", False), ("dict(a=1)  # {'a': ...}", True), ("dict(b=1)  # {'a': ...}", False),
    ],
)  # fmt: skip
def test_a_wrong_comment_is_seen(code, right):
    import torch

    if right:
        assert run_block(code, 3, "page", {"torch": torch}) == 1
    else:
        with pytest.raises(AssertionError, match=r"page:4: .* is said"):
            run_block(code, 3, "page", {"torch": torch})


def test_the_tests_that_robustness_names_are_there():
    page = (ROOT / "docs/robustness.md").read_text("utf-8")
    sources = {path.stem: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    names = set(re.findall(r"\btest_[a-z0-9_]*[a-z0-9]\b", page))
    assert len(names) > 60
    assert [
        name for name in sorted(names) if name not in sources and not any(f"def {name}" in s for s in sources.values())
    ] == []
    for path in re.findall(r"\b(?:tests|scripts|minibert|docs)/[\w/]+\.\w+", page):
        assert (ROOT / path).is_file(), path
