"""The pages keep their word, and the site is whole.

In docs/ and the READMEs:

- fenced bash runs, line by line and block after block, in one folder for each page, with small inputs under the names
  that the page uses and with trainings made short; a fenced console block has commands and what they say;
- fenced text with the title "You should see" is compared with what the commands above it said, but for numbers;
- what cannot run here bears the title "Not run by the tests: why"; it is counted, and its minibert commands parse;
- Python runs. A comment behind an expression that is a literal is checked: a value, a tensor's shape, a dict's keys
  where its values are dots. Any other comment is prose.

Pages of measurements have commands of minutes and hours, indented: those parse.
"""

import ast
import gc
import importlib.util
import json
import re
import shlex
import subprocess
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from click.testing import CliRunner

import minibert
from minibert.checkpoint.config import load_config
from minibert.cli import commands
from minibert.errors import UserError
from minibert.tasks import find_tasks

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "README.zh.md", *DOCS, *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("recipes/*/*.toml"))]
PARSED = ["README.md", "README.zh.md"]  # their bash parses; the guides, which go into more, are run
COMMAND = re.compile(r"(?:^|[\s|(])(?:\.venv/bin/)?(minibert [a-z-]+ .*)$")
NOT_RUN = ("Not run by the tests: ", "测试不运行：")
SEEN = ("You should see", "你应该看到")
NUM_NOT_RUN = 10
CHECKED = {
    "README.md": 4,
    "README.zh.md": 5,
    "docs/python.md": 38,
    "docs/checkpoints.md": 0,
    "docs/inside.md": 16,
    "docs/zh/inside.md": 16,
    "docs/check.md": 1,
    "docs/looking-inside.md": 0,
}  # values, at least


@dataclass
class Block:
    """A fenced block of a page; line: the number of the line before its code."""

    kind: str
    title: str
    code: str
    line: int

    @property
    def is_run(self) -> bool:
        return not self.title.startswith(NOT_RUN)


def blocks_of(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, also those inside lists."""
    text = (ROOT / page).read_text("utf-8")
    for match in re.finditer(r'^( *)```(\w*)(?: title="(.*?)")?\n(.*?)^\1```$', text, re.DOTALL | re.MULTILINE):
        indent, kind, title, code = match.groups()
        code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        yield Block(kind, title or "", code, text[: match.start(4)].count("\n"))


# ---- commands parse


def commands_of(page: str) -> list[str]:
    """The commands in code blocks (indented or fenced) and in recipes' heads, one a line, without what comes behind."""
    found, fenced = [], False
    for line in (ROOT / page).read_text("utf-8").replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif (fenced or line.startswith(("    ", "# Command:"))) and (match := COMMAND.search(line)):
            found.append(re.split(r"\s+#\s|\s*[;|>]\s|\s2>", match[1])[0])
    return found


def test_commands_are_found():
    assert len(commands_of("README.md")) >= 6
    assert sum(map(len, map(commands_of, PAGES))) > 100


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


def test_scripts_that_pages_name_are_there_and_have_the_options():
    named = 0
    for page in DOCS:
        for script, options in re.findall(
            r"(?<![\w/])(scripts/\w[\w.]*)((?: +\S+)*)", (ROOT / page).read_text("utf-8")
        ):
            script = script.rstrip(".")
            if (ROOT / script).is_dir():
                continue
            assert (ROOT / script).is_file(), f"{page}: {script}"
            beside = (ROOT / script).with_suffix(".py")
            source = (ROOT / script).read_text("utf-8") + (beside.read_text("utf-8") if beside.is_file() else "")
            for option in re.findall(r"(?<!\S)(--[a-z-]+)", options.split("`")[0].split("#")[0]):
                named += 1
                wanted = {option, option.removeprefix("--").replace("-", "_")}
                assert any(word in source for word in wanted) or "finetune" in source, f"{page}: {script} {option}"
    assert named > 20


# ---- what a page needs

ENGLISH = (
    "Paris is the capital of France. It rains. Rovers win the cup, shares fell sharply. Tom runs in Rome. Who won?"
)
CHINESE = "今天我要上学了。下雨了吃苹果发布会他是校长院长路程很长谁？北京市房间干净，服务热情。隔音太差了。ok"
LABELS = {"cls": ["business", "sport"], "ner": ["B-PER", "I-PER", "O"], "qa": []}
RUNS = {  # name -> what it was trained for (None: nothing yet); made where a page does not make it itself
    "runs/mine": None, "runs/zh": None, "runs/topics": "cls", "runs/reviews": "cls", "runs/people": "ner",
    "runs/qa": "qa", "CHECKPOINT": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory, checkpoint_for, text_of):
    """A small random model under every name that the pages use; in wide/ as wide and deep as mini-zh, which pages of
    Python give shapes of."""
    folder = tmp_path_factory.mktemp("models")
    text = "\n".join([ENGLISH, CHINESE, text_of(9), text_of(9, chinese=True)])
    sizes = {"narrow": (32, 1, 2), "wide": (256, 4, 4)}
    for place, (width, layers, heads) in sizes.items():
        for name, task in RUNS.items():
            run = checkpoint_for(
                text, folder / place / name, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                intermediate_size=4 * width, max_position_embeddings=128,
            )  # fmt: skip
            kind, extra = minibert.BertForPreTraining, {}
            if task:
                kind = getattr(minibert, find_tasks()[task].model_class().__name__)
                names = dict(enumerate(LABELS[task]))
                extra = {"minibert": {"task": task, "settings": {"max_length": 64}}}
                if names:
                    extra |= {
                        "id2label": {str(i): n for i, n in names.items()},
                        "label2id": {n: i for i, n in names.items()},
                    }
            kind(replace(load_config(run), extra=extra)).save_pretrained(run)
    return folder


def write_inputs(folder: Path, text: str, chinese: bool) -> None:
    """Small files under the names that all pages use for text and labels."""
    sentences = [line for line in text.splitlines() if line]
    for name in ("my_texts/a.txt", "我的语料/a.txt", "corpus/a.txt"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text + ("乡村 😀" if chinese else "zymurgy zymurgy zymurgy"), "utf-8")
    (folder / "notes.txt").write_text("今天下雨了。\n" * 9, "gb18030")
    (folder / "notes.jsonl").write_text('{"text": "今天下雨了"}\n', "utf-8")
    (folder / "one.txt").write_text("\n".join(sentences), "utf-8")
    labels = ("neg", "pos") if chinese else ("business", "sport")
    for name, rows in {"train": 60, "dev": 16, "test": 16, "new": 4}.items():
        lines = [f"{sentence.replace(',', '')},{labels[i % 2]}" for i, sentence in enumerate(sentences[:rows])]
        if name == "new":
            lines = [line.rpartition(",")[0] for line in lines]
        head = "text" if name == "new" else "text,label"
        (folder / f"{name}.csv").write_text("\n".join([head, *lines, ""]), "utf-8")
        tagged = "\n\n".join(
            "\n".join(f"{word}\t{('B-PER', 'I-PER', 'O')[min(i, 2)]}" for i, word in enumerate(words_of(s, chinese)))
            for s in sentences[:rows]
        )
        (folder / f"{name}.conll").write_text(tagged + "\n", "utf-8")
        asked = [
            {"id": f"{name}-{i}", "question": s[:8], "answers": [{"text": s[:3], "answer_start": 0}]}
            for i, s in enumerate(sentences[:rows])
        ]
        data = [
            {"title": "t", "paragraphs": [{"context": s, "qas": [q]} for s, q in zip(sentences, asked, strict=False)]}
        ]
        (folder / f"{name}.json").write_text(json.dumps({"version": "1.1", "data": data}), "utf-8")
    (folder / "sentences.txt").write_text("\n\n".join("\n".join(words_of(s, chinese)) for s in sentences[:4]), "utf-8")
    (folder / "broken.csv").write_text(f"text,label\n{sentences[0].replace(',', '')},weather\n", "utf-8")
    (folder / "titles.csv").write_text("title,topic\nRovers win,sport\nShares fell,business\n", "utf-8")


def words_of(sentence: str, chinese: bool) -> list[str]:
    """Chinese by character."""
    return list(sentence) if chinese else sentence.rstrip(".").split()


@pytest.fixture
def place(request, models, tmp_path, text_of, monkeypatch):
    """A folder in which a page's commands are given; test functions set its page as a parameter."""
    page = request.getfixturevalue("page")
    chinese = "zh" in page or page == "docs/guides/chinese.md"
    write_inputs(tmp_path, text_of(40, chinese=chinese) + (CHINESE if chinese else ENGLISH), chinese)
    made = set(re.findall(r"--out (\S+)", (ROOT / page).read_text("utf-8"))) if page not in PARSED else set()
    for name in RUNS.keys() - made:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(models / ("wide" if page in CHECKED else "narrow") / name)
    monkeypatch.setenv("MINIBERT_CACHE", str(tmp_path / "cache"))  # so that what is said of it is always the same
    monkeypatch.chdir(tmp_path)
    gc.freeze()  # each command collects garbage in the end, and all the libraries' objects are none
    yield tmp_path
    gc.unfreeze()


# ---- pages run

SIZES = "--layers 1 --hidden-size 32 --heads 2 --vocab-size 400".split()
SHORT = {
    "pretrain": "--steps 2 --max-length 32 --batch-size 8 --micro-batch-size 8 --eval-examples 8 --workers 1".split(),
    "finetune": "--epochs 1 --batch-size 16 --max-length 48".split(),
    "check": "--max-length 48".split(),
}
LENGTHS = {"--steps", "--minutes", "--epochs", "--micro-batch-size", "--eval-every", "--save-every"}


def shortened(args: list[str]) -> list[str]:
    """The same command on a tiny model for a few steps: what it says of sizes and lengths is left out."""
    if args[0] not in SHORT or {"--resume", "--show-config"} & set(args):
        return args
    extra = list(SHORT[args[0]])
    if args[0] == "pretrain" and "--from" not in args:
        extra += SIZES if "store/" not in args else SIZES[:-2]  # the vocabulary of a store is there
    if "qa" in args:
        extra += ["--stride", "8", "--max-question-length", "16"]
    if "--precision" not in args and args[0] != "check":
        extra += ["--precision", "fp32"]
    gone = LENGTHS | {word for word in extra if word.startswith("--")}
    kept = [word for before, word in zip(["", *args], args, strict=False) if not {before, word} & gone]
    if "--seeds" in kept:
        kept[kept.index("--seeds") + 1] = "2"
    return [*kept, *extra]


def minibert_says(args: list[str], given: bytes) -> tuple[int, bytes, str]:
    """What a command gives in this process: exit code, standard output, all that is said."""
    done = CliRunner().invoke(commands, shortened(args), input=given, prog_name="minibert")
    code, said = done.exit_code, done.output
    if isinstance(done.exception, UserError):
        code, said = 2, f"{said}minibert: error: {done.exception}\n"
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return code, done.stdout_bytes, said


def run_line(line: str) -> tuple[int, str]:
    """A line of shell: commands joined by pipes, the last perhaps into a file. Returns exit code and what is said."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|>;&")
    words.whitespace_split = True
    parts: list[list[str]] = [[]]
    into: list[str] = []
    for word in words:
        if word == "|":
            parts.append([])
        elif word == ">":
            parts.append(into)
        else:
            parts[-1].append(word)
    code, output, said = 0, b"", ""
    for part in parts:
        if part is into:
            Path(into[0]).write_bytes(output)
            break
        name, *args = part
        if Path(name).name == "minibert":
            code, output, heard = minibert_says(args, output)
            said += heard
        else:
            done = subprocess.run(part, input=output, capture_output=True, timeout=120)
            code, output = done.returncode, done.stdout
            said += done.stdout.decode() + done.stderr.decode()
    return code, said


def lines_of(code: str) -> list[str]:
    """Lines of shell without comments; those that a backslash joins are one."""
    lines = [line.strip() for line in code.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def check_seen(expected: str, said: str, where: str) -> None:
    """Every expected line is said, in the same order. A number is any number; "..." any lines or any rest of one."""
    heard = [plain(line) for line in said.splitlines()]
    for line in filter(None, map(plain, expected.splitlines())):
        if line == "...":
            continue
        begins = line.endswith(" ...")
        wanted = line.removesuffix(" ...")
        while heard and not (heard[0].startswith(wanted) if begins else heard[0] == wanted):
            heard.pop(0)
        assert heard, f"{where}: {line!r} is not in what is said:\n{said}"
        heard.pop(0)


def plain(line: str) -> str:
    """A line without its numbers, its place on the disk and its blanks."""
    line = line.replace(f"{Path.cwd()}/", "")
    return " ".join(re.sub(r"-?\d[\d.,e+-]*", "N", line).split())


def run_page(page: str) -> int:
    """Everything in a page, from its top to its end; returns how many values of Python were checked."""
    names: dict = {}
    said, checked = "", 0
    for block in blocks_of(page):
        where = f"{page}:{block.line}"
        if block.kind == "python":
            checked += run_block(block.code, block.line, page, names)
        elif page in PARSED or not block.is_run:
            continue
        elif block.kind in ("bash", "sh"):
            said = ""
            for line in lines_of(block.code):
                code, heard = run_line(line)
                doubts = code == 3 and line.startswith("minibert check")  # of so little data
                assert code == 0 or doubts, f"{where}: {line}\n{heard}"
                said += heard
        elif block.kind == "console":
            for given, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.code, re.MULTILINE):
                code, heard = run_line(given)
                assert code == (2 if "minibert: error:" in expected else 0), f"{where}: {given}\n{heard}"
                check_seen(expected, heard, where)
        elif block.kind == "text" and block.title in SEEN:
            check_seen(block.code, said, where)
    return checked


RUN = [page for page in PAGES if any(b.kind in ("bash", "sh", "console", "python") for b in blocks_of(page))]


@pytest.mark.parametrize("page", RUN)
def test_page_runs(page, place):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # new heads start fresh, which the pages say
        assert run_page(page) >= CHECKED.get(page, 0)


def test_what_is_not_run_is_counted():
    found = [f"{page}:{block.line}" for page in DOCS for block in blocks_of(page) if not block.is_run]
    assert len(found) == NUM_NOT_RUN, found


def test_pages_of_measurements_say_that_they_are_parsed_only():
    for page in DOCS:
        text = (ROOT / page).read_text("utf-8")
        if re.search(r"^    (scripts/|minibert |accelerate )", text, re.MULTILINE):
            assert "tests parse them" in text, page


@pytest.mark.parametrize(
    ("expected", "said", "right"),
    [
        ("loss 1.5\n...\ndone: a", "loss 2\nx\ndone: a\n", True), ("done: a", "done: b", False),
        ("b\na", "a\nb", False), ("example: ...", "example: red", True),
    ],
)  # fmt: skip
def test_another_output_is_seen(expected, said, right):
    if right:
        check_seen(expected, said, "page:1")
    else:
        with pytest.raises(AssertionError, match=r"page:1: .* is not in what is said"):
            check_seen(expected, said, "page:1")


# ---- Python


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
    page = (ROOT / "docs/robustness-tests.md").read_text("utf-8")
    sources = {path.stem: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    names = set(re.findall(r"\btest_[a-z0-9_]*[a-z0-9]\b", page))
    assert len(names) > 60
    assert [
        name for name in sorted(names) if name not in sources and not any(f"def {name}" in s for s in sources.values())
    ] == []
    for path in re.findall(r"\b(?:tests|scripts|minibert|docs)/[\w/]+\.\w+", page):
        assert (ROOT / path).is_file(), path


# ---- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("zensical", reason="the docs are built by zensical, which is not installed")
    out = tmp_path_factory.mktemp("site") / "pages"
    spec = importlib.util.spec_from_file_location("scripts_docs", ROOT / "scripts/docs.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.build(out)
    return out


class Page(HTMLParser):
    """What a page loads, what it links to, and the places in it that a link may name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.loads.append(found["href"])
        self.loads += [found[key] for key in ("src", "srcset", "data", "poster") if found.get(key)]
        if tag == "use":
            self.loads.append(found.get("href") or "")

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_is_built(pages):
    assert {Path(page).relative_to("docs").with_suffix(".html").as_posix() for page in DOCS} <= pages.keys()
    assert "reference/commands.html" in pages


def test_no_page_loads_anything_from_the_network(site, pages):
    for name, page in pages.items():
        for url in page.loads:
            parts = urlsplit(url)
            assert (parts.scheme, parts.netloc) in (("", ""), ("data", "")), f"{name}: {url}"
            assert parts.scheme or not parts.path or (site / name).parent.joinpath(unquote(parts.path)).is_file(), url
        source = (site / name).read_text("utf-8")
        assert "default-src 'self' file: data: blob: 'unsafe-inline'" in source, name
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text("utf-8")) == [], sheet.name


def test_links_and_anchors_hold(site, pages):
    checked = 0
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (site / name).parent.joinpath(unquote(parts.path)).resolve() if parts.path else site / name
            assert path.is_file(), f"{name}: {link}"
            target = path.relative_to(site.resolve()).as_posix() if parts.path else name
            if parts.fragment and target in pages:
                checked += 1
                assert unquote(parts.fragment) in pages[target].anchors, f"{name}: {link}"
    assert checked > 100


def test_both_languages_link_to_each_other():
    for page in sorted((ROOT / "docs/zh").rglob("*.md")):
        other = re.search(r"^\[English\]\((\S+)\)$", page.read_text("utf-8"), re.MULTILINE)
        assert other, page
        there = (page.parent / other[1]).resolve()
        back = re.search(r"^\[中文\]\((\S+)\)$", there.read_text("utf-8"), re.MULTILINE)
        assert back, there
        assert (there.parent / back[1]).resolve() == page


def test_the_reference_has_every_command_and_public_name(site, pages):
    text = pages["reference/commands.html"].text
    for name, command in commands.commands.items():
        assert f"minibert {name}" in text
        for param in command.get_params(click.Context(command)):
            assert all(flag in text for flag in param.opts if isinstance(param, click.Option)), (name, param.name)
    assert re.findall(r"<td>\s*</td>", (site / "reference/commands.html").read_text("utf-8")) == []
    text = pages["reference/python.html"].text
    assert [name for name in minibert.__all__ if name not in text and not name.startswith("__")] == []


def test_the_site_speaks_the_language_of_the_page(site, pages):
    for name in pages:
        chinese = name.startswith("zh/")
        source = (site / name).read_text("utf-8")
        assert f'<html lang="{"zh" if chinese else "en"}"' in source, name
        assert ('aria-label="查找"' in source, 'aria-label="Search"' in source) == (chinese, not chinese), name


def test_no_blank_stands_where_a_line_of_chinese_ends(site):
    source = "".join(path.read_text("utf-8") for path in site.glob("zh/*.html"))
    assert "句子" in source
    assert re.findall(r"[\u4e00-\u9fff，。]\n[\u4e00-\u9fff]", source) == []


def test_search_finds_english_and_chinese_without_a_network(site, chromium):
    context = chromium.new_context(viewport={"width": 1100, "height": 800})
    page = context.new_page()
    asked, faults = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((site / "index.html").as_uri())
    for words, place in {"checkpoint": "checkpoints.html", "领域": "zh/"}.items():
        page.keyboard.press("Control+k")
        page.wait_for_selector("input[aria-label='Search']")
        page.keyboard.type(words)
        page.locator(f"a[href*='{place}'] mark", has_text=words).first.wait_for()
        page.reload()
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert faults == []
