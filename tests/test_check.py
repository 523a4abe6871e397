"""minibert check as a person meets it: what is printed, exit codes, the page. What is found: tests/check."""

import gzip
import io
import json
import re
import sys
from random import Random

import pytest

from minibert.check.findings import Checked, Finding, Section
from minibert.cli import commands
from minibert.errors import UserError
from minibert.view.page import Both, write_page

WORDS = "old river house garden teacher letter window market winter island story music bread ship field".split()
LINES = (  # that the words of an element stand in
    "e => { const r = document.createRange(); r.selectNodeContents(e);"
    " return new Set([...r.getClientRects()].map(box => Math.round(box.top))).size }"
)
HOSTILE = '<script>document.title="broken in"</script><img src=x onerror=alert(1)>'


def run(*words, stdin=b"", monkeypatch=None):
    """The exit code."""
    if monkeypatch:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    return commands.main(["check", *map(str, words)], standalone_mode=False) or 0


def text(documents=170, seed=1):
    rng = Random(seed)
    lines = ("The " + " ".join(rng.choice(WORDS) for _ in range(16)) + "." for _ in range(8 * documents))
    return "\n\n".join("\n".join(next(lines) for _ in range(8)) for _ in range(documents)) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "good.txt").write_text(text(), "utf-8")
    (folder / "twice.txt").write_text(text() + "\n" + text(), "utf-8")
    return folder


def test_good_text(place, capsys):
    assert run(place / "good.txt") == 0
    said = capsys.readouterr()
    assert said.out.startswith("good: a corpus of text")
    assert "documents             170" in said.out
    assert said.out.endswith("--out FILE.html\n")


def test_doubtful_text_says_the_fix_and_the_page(place, tmp_path, capsys):
    assert run(place / "twice.txt", "--out", tmp_path / "page.html") == 3
    said = capsys.readouterr().out
    assert said.startswith("doubtful: a corpus of text, with 1 thing to mend")
    assert "doubtful: 50 % of the documents are copies of another (170)\n  fix: keep one of each" in said
    assert said.endswith(f"page: {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").is_file()


def test_quiet_says_what_is_doubtful_alone(place, capsys):
    assert run(place / "good.txt", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert run(place / "twice.txt", "--quiet") == 3
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.count("\n") == 7  # verdict, nothing, finding, fix, three places


def test_json_is_all_that_is_on_standard_output(place, capsys):
    assert run(place / "twice.txt", "--json") == 3
    said = capsys.readouterr()
    assert said.err == ""
    found = json.loads(said.out)
    assert found["verdict"] == "doubtful"
    assert found["facts"]["documents"] == 340
    (finding,) = found["findings"]
    assert set(finding) == {"kind", "level", "message", "fix", "where"}
    assert (finding["kind"], finding["level"]) == ("exact duplicates", "doubtful")


def test_folders_compressed_files_and_standard_input(place, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text().encode()))
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": text(5, seed=2)}), "utf-8")
    assert run(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["facts"]["files"] == 2
    assert run("-", "--json", stdin=text().encode() + b"\n\xff", monkeypatch=monkeypatch) == 3
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["message"].startswith("standard input:")
    assert "stdin.txt" not in json.dumps(finding)


def test_text_at_another_place_is_called_by_its_url(capsys):
    import fsspec

    fsspec.filesystem("memory").pipe("/check/a.txt", text().encode() + b"\n\xff")
    assert run("memory://check/*.txt", "--json") == 3
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["message"].startswith("memory:///check/a.txt:1531:")


def test_a_tokenizer_and_a_checkpoint_bring_the_vocabulary(place, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] the old .".split()), "utf-8")
    assert run(place / "good.txt", "--tokenizer", tmp_path / "vocab.txt", "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in found["findings"]] == ["unknown words"]
    assert found["facts"]["unknown_rate"] > 0.5
    with pytest.raises(UserError, match="name one of them"):
        run(place / "good.txt", "--tokenizer", tmp_path / "vocab.txt", "--model", tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing-there.txt"], "no such file"),
        (["{good}", "--encoding", "utf-99"], "unknown encoding"),
        (["{good}", "--dev", "{good}"], "without --task"),
        (["{good}", "--label-column", "x"], "without --task"),
        (["{good}", "--out", "{good}"], "end its name in .html"),
        (["{good}", "--out", "{folder}/a.html"], "is a folder"),
        (["{good}", "--task", "song"], "there is no task"),
        (["{good}", "--task", "ner", "--label-column", "x"], "label_column|label-column"),
        (["{good}", "{good}", "--task", "cls"], "several files"),
        (["{folder}", "--task", "cls"], "is a folder"),
        (["-", "--task", "cls"], "write them to a file"),
        (["{good}", "--task", "cls", "--dev", "s3://b/x.csv"], "--dev s3://b/x.csv: .* of this machine"),
        (["/dev/zero", "--task", "cls"], "/dev/zero: is a device or a pipe"),
        (["{good}", "--format", "conll"], "--format: says nothing without --task"),
        (["{good}", "--max-length", "100000000"], "longer than any model's inputs"),
        (["{good}", "--task", "cls", "--max-length", "100000000"], "longer than any model's inputs"),
        (["nothing-there.csv", "--task", "cls"], "no such file"),
        (["{good}", "--task", "cls", "--dev", "nothing-there.csv"], "no such file"),
        (["{good}", "--task", "cls", "--text-field", "x"], "is for raw text"),
        (["{store}"], "prepared store"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_of_the_command_is_refused(words, said, place, tmp_path):
    (tmp_path / "a.html").mkdir()
    shard = tmp_path / "store" / "shard-00001-of-00001"
    shard.mkdir(parents=True)
    (shard / "store.json").write_text("{}", "utf-8")
    names = {"good": place / "good.txt", "folder": tmp_path, "store": tmp_path / "store"}
    with pytest.raises(UserError, match=said):
        run(*(word.format(**names) for word in words))


@pytest.mark.parametrize("task", [[], ["--task", "cls"]], ids=["text", "labelled"])
def test_rows_that_are_longer_than_the_model_are_refused(place, tmp_path, checkpoint_for, task):
    """In finetune's words, before anything is read."""
    model = checkpoint_for("old river", tmp_path / "model", max_position_embeddings=32)
    words = [place / "good.txt", "--model", model, *task, "--max-length"]
    with pytest.raises(UserError, match="--max-length: rows of 33 tokens are longer than the model's 32 positions"):
        run(*words, 33)
    assert run(*words, 32) == 3


def test_options_are_those_of_reading():
    command = commands.commands["check"]
    names = {option.name for option in command.get_params(command.make_context("check", ["x"]))}
    assert {"label_column", "scheme", "stride", "encoding", "max_length", "input_format"} <= names
    assert not {"lr", "epochs", "batch_size", "seed", "dropout"} & names


def test_labelled_data(tmp_path, capsys):
    rng = Random(3)
    rows = [(" ".join(rng.choice(WORDS) for _ in range(12)), rng.choice(["yes", "no"])) for _ in range(300)]
    for name, part in (("train", rows[:250]), ("dev", rows[240:])):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(f"{a},{b}\n" for a, b in part), "utf-8")
    code = run(tmp_path / "train.csv", "--task", "cls", "--dev", tmp_path / "dev.csv", "--json")
    found = json.loads(capsys.readouterr().out)
    assert code == 3
    assert found["verdict"] == "doubtful"
    assert any("dev" in finding["message"] for finding in found["findings"])


def test_what_a_model_would_add_is_said(place, tmp_path, capsys):
    rows = "text,label\n" + "".join(
        f"{line},{'ab'[n % 2]}\n" for n, line in enumerate(text().replace(",", "").split("\n\n"))
    )
    (tmp_path / "train.csv").write_text(rows.replace(".\n", ". "), "utf-8")
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "the", *WORDS]), "utf-8"
    )
    hint = "lengths are in characters; --model CHECKPOINT says what is cut at --max-length\n"
    run(tmp_path / "train.csv", "--task", "cls")
    assert capsys.readouterr().out.count(hint) == 1
    for words in (["--tokenizer", tmp_path / "vocab.txt"], ["--quiet"]):
        run(tmp_path / "train.csv", "--task", "cls", *words)
        assert "lengths are in" not in capsys.readouterr().out
    run(place / "good.txt")
    assert re.search(r"unknown tokens +—  counted with --model or --tokenizer\n", capsys.readouterr().out)
    run(place / "good.txt", "--tokenizer", tmp_path / "vocab.txt")
    assert "unknown tokens        0 %\n" in capsys.readouterr().out


# ---- the page


@pytest.fixture
def page(tmp_path):
    """A page with everything that one can have, in the hand of somebody hostile."""
    checked = Checked(
        Both("a corpus of text", "文本语料"), {},
        [
            Section(
                Both("How much", "规模"), Both("A lead.", "说明。"), tiles=[(Both("documents", "文档"), "1,000")],
                bars=[(HOSTILE, 0.5, "50 %"), ("long " * 30, 1.0, "100 %")],
            ),
            Section(Both("Table", "表"), columns=[Both("one", "一"), "two"], rows=[[HOSTILE, HOSTILE], ["a", "b"]]),
            Section(
                Both("Places", "位置"), columns=[Both("part", "部分"), Both("other part", "另一部分"), "first place"],
                rows=[[Both("train", "训练集"), "早餐一般。" * 16, "data/en/train.csv:2"] * 2],
            ),
            Section(Both("Numbers", "数"), columns=["name", "number"], rows=[["a", "1,000"], ["b", "10 %"]]),
        ],
        [
            Finding("a", "note", Both("a note", "一条提示")),
            Finding("b", "doubtful", Both(HOSTILE, "存疑"), Both("mend it", "改正"), ["x" * 300, HOSTILE]),
        ],
    )  # fmt: skip
    parts = [(part, number == 3) for number, part in enumerate(checked.sections)]
    write_page(tmp_path / "page.html", "check.html", checked=checked, sections=parts)
    return tmp_path / "page.html"


def test_page_in_two_languages_and_on_a_telephone(page, browser_page):
    shown = browser_page(page)
    assert shown.title() == "a corpus of text · minibert check"
    assert shown.locator("h1").inner_text() == "▲ Doubtful: look at this before training"
    assert HOSTILE in shown.locator(".findings li").first.inner_text()
    assert shown.locator("img").count() == 0
    assert shown.locator("table.numbers").count() == 1
    shown.get_by_role("button", name="中文").click()
    assert shown.locator("h1").inner_text() == "▲ 存疑：训练前请先处理"
    narrow = browser_page(page, viewport={"width": 390, "height": 800}, locale="zh-CN", color_scheme="dark")
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390
    for words in ("训练集", "data/en/train.csv:2"):  # in one line, with what stands round it
        cell = narrow.locator("table").locator("visible=true").get_by_text(words, exact=True).first
        assert cell.evaluate(LINES) == 1
    assert narrow.locator(".kind").inner_text() == "数据检查：文本语料"


def test_page_of_good_data(place, tmp_path, browser_page):
    assert run(place / "good.txt", "--out", tmp_path / "page.html", "--quiet") == 0
    shown = browser_page(tmp_path / "page.html")
    assert shown.locator("h1").inner_text() == "✓ Good: nothing here would harm training"
    assert shown.locator(".verdict.doubtful").count() == 0
    assert "170" in shown.locator(".tiles").first.inner_text()


@pytest.mark.parametrize("name", ["dev.html", "corpus.html", "notes.txt"])
def test_a_page_takes_no_file_of_the_users_place(place, tmp_path, name):
    """Whatever it is to the command: a dev file, a text that a pattern finds, or nothing."""
    mine = tmp_path / name
    mine.write_text("text,label\nmine,a\n", "utf-8")
    words = {
        "dev.html": [mine, "--task", "cls", "--dev", mine, "--format", "csv"],
        "corpus.html": [tmp_path / "*.html"],
    }
    with pytest.raises(UserError, match="page"):
        run(*words.get(name, [place / "twice.txt"]), "--out", mine)
    assert mine.read_text("utf-8") == "text,label\nmine,a\n"
