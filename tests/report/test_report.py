"""A run's page, its card, and several runs beside each other: from real runs, unfinished ones, and damaged folders."""

import json
import random
import re
import shutil

import pytest
from accelerate.state import AcceleratorState
from click.testing import CliRunner

from minibert.cli import commands
from minibert.config import PretrainConfig, resolve
from minibert.errors import UserError
from minibert.finetune.story import finetune
from minibert.pretrain import pretrain
from minibert.report.card import code
from minibert.report.compare import compared_metrics, distinct_names, write_comparison
from minibert.report.page import describe_run, pieces, without_short, write_report
from minibert.report.run import defaults, read_log, read_run
from minibert.report.words import lasting, value_of
from minibert.tasks import find_tasks
from minibert.view.page import render

SIZES = {
    "layers": 1, "hidden_size": 32, "heads": 2, "ffn_size": 64, "max_length": 32, "vocab_size": 200, "batch_size": 8,
    "micro_batch_size": 8, "log_every": 1, "eval_share": 0.3, "precision": "fp32", "workers": 1, "save_every": 4,
}  # fmt: skip
HOSTILE = '<img src=x onerror="document.title=1">'
ROWS = {"good": "a fine film", "bad": "a dull film"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text_of, checkpoint_for):
    """Four runs: two of pre-training, one with two seeds of classification, one of tagging."""
    folder = tmp_path_factory.mktemp("runs")
    corpus = folder / "corpus.txt"
    corpus.write_text(text_of(30), "utf-8")
    for name, steps in (("one", 6), ("two", 4)):
        config = resolve(PretrainConfig, ("", {**SIZES, "steps": steps}))
        pretrain([corpus], folder / name, config, corpus=[str(corpus)], cache=folder / "cache")
    tasks = find_tasks()
    model = checkpoint_for(f"a fine film dull tom lives in rome {HOSTILE} 好 坏 北 京 01234567", folder / "model")
    rows = [f"{text} {HOSTILE} {i},{label}" for i in range(8) for label, text in ROWS.items()]
    table = folder / "rows.csv"
    table.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    small = {"epochs": 2.0, "batch_size": 8, "log_every": 1, "lr": 1e-4, "max_length": 64}
    cls = tasks["cls"]
    finetune(cls, cls.Config(**small, seeds=2), model, folder / "cls", train=table, dev=table, test=table)
    tags = folder / "tags.conll"
    tags.write_text("tom B-PER\nlives O\nin O\nrome B-LOC\n\n北 B-LOC\n京 I-LOC\n好 O\n\n" * 4, "utf-8")
    ner = tasks["ner"]
    finetune(ner, ner.Config(**small), model, folder / "ner", train=tags, dev=tags)
    yield folder
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_run_writes_its_page_and_card(folder, browser_page):
    page = browser_page(folder / "one/report.html")
    text = page.locator("main").inner_text()
    run = read_run(folder / "one")
    assert "finished after 6 steps" in text
    assert page.locator("figure.curves").count() == 7
    shown = dict(re.findall(r"(.+)\n([\d.,]+ ?%?)\n", page.locator(".tiles").inner_text()))
    assert shown["steps"] == "6"
    assert shown["tokens seen"] == f"{run.metrics['tokens']:,}"
    assert shown["loss at [MASK]"] == f"{run.metrics['masked_loss']:.4f}"
    assert "of what matrix products reach here" in text
    assert f"always the commoner label: {run.metrics['nsp_majority_accuracy']:.1%}".replace("%", " %") in text
    assert (folder / "one/README.md").read_text("utf-8").count("\n## ") == 6


def test_a_card_names_no_place_of_this_machine(folder):
    for name in ("one", "cls", "ner"):
        card = (folder / name / "README.md").read_text("utf-8")
        assert str(folder) not in card
        assert f'("{name}")' in card
    assert "| train | `rows.csv` | 16 |" in (folder / "cls/README.md").read_text("utf-8")


def test_the_masked_tokens_of_the_page_are_those_of_the_model(folder, browser_page):
    said = json.loads((folder / "one/answers.json").read_text("utf-8"))
    assert said["step"] == 6
    assert 1 <= len(said["texts"]) <= 8
    page = browser_page(folder / "one/report.html", locale="zh-CN")
    first = said["texts"][0]
    article = page.locator("article.answers").first
    article.locator("summary").click()
    row = article.locator("tbody tr").first
    assert row.locator("th").inner_text() == first["masks"][0]["gold"]
    shown = [one.split()[0] for one in row.locator(".answer").all_inner_texts()]
    assert shown == [answer["token"] for answer in first["masks"][0]["answers"]]
    assert len(shown) == 5


def test_answers_are_what_the_loaded_model_says(folder):
    """answers.json against the saved model: the same input, computed anew."""
    import torch

    import minibert

    model, tokenizer = minibert.load(folder / "one")
    said = json.loads((folder / "one/answers.json").read_text("utf-8"))
    for text in said["texts"]:
        ids = torch.tensor([tokenizer.convert_tokens_to_ids(text["tokens"])])
        types = torch.zeros_like(ids)
        ends = [i for i, token in enumerate(text["tokens"]) if token == "[SEP]"]
        types[0, ends[0] + 1 :] = 1
        with torch.no_grad():
            out = model(ids, None, types)
        for mask in text["masks"]:
            best = out.prediction_logits[0, mask["place"]].softmax(-1).topk(5)
            assert [a["score"] for a in mask["answers"]] == pytest.approx(best.values.tolist(), abs=1e-4)
        follows = float(out.seq_relationship_logits[0].softmax(-1)[0])
        assert text["next_sentence"]["score"] == pytest.approx(follows, abs=1e-4)


def test_a_classifier_with_seeds(folder, browser_page):
    page = browser_page(folder / "cls/report.html")
    assert page.title() == "cls – minibert"
    assert page.locator("img").count() == 0
    cells = [int(cell) for cell in page.locator(".confusion").first.locator("td").all_inner_texts()]
    assert sum(cells) == 16
    wrong = sum(cells[i] for i in (1, 2))
    said = json.loads((folder / "cls/answers.json").read_text("utf-8"))
    assert (said["dev"]["wrong"], said["dev"]["records"], len(said["dev"]["mistakes"])) == (wrong, 16, wrong)
    scores = [mistake["score"] for mistake in said["dev"]["mistakes"]]
    assert scores == sorted(scores, reverse=True)
    if wrong:
        assert HOSTILE in page.locator(".mistakes li").first.inner_text()
    assert "★" in page.locator("main").inner_text()
    assert (folder / "cls/seeds/0/answers.json").is_file()


def test_a_tagger_shows_whose_entity_is_whose(folder, browser_page):
    page = browser_page(folder / "ner/report.html", color_scheme="dark")
    said = json.loads((folder / "ner/answers.json").read_text("utf-8"))["dev"]
    first = said["mistakes"][0]
    marks = page.locator(".mistakes li").first.locator("mark")
    assert marks.count() == len({(start, end) for start, end, *_ in first["marks"]})
    assert "entities by type" in page.locator("main").inner_text()


def test_a_run_that_is_not_finished_and_one_that_ended_by_an_error(folder, tmp_path, browser_page):
    run = tmp_path / "half way"
    shutil.copytree(folder / "one", run)
    for name in ("metrics.json", "report.html", "README.md"):
        (run / name).unlink()
    done = CliRunner().invoke(commands, ["report", str(run)])
    assert (done.exit_code, done.output.strip()) == (0, str(run / "report.html"))
    text = browser_page(run / "report.html").locator("main").inner_text()
    assert "not finished: the log ends at step 6. resume with: `minibert pretrain --out" in text
    assert "'half way' --resume" in text.replace(str(tmp_path) + "/", "").replace("'" + "half", "'half")
    assert "not finished" in (run / "README.md").read_text("utf-8")
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"step": 6, "error": f"the disk <b>{HOSTILE}"}) + '\n{"step": 7, "lo')
    write_report(run)
    text = browser_page(run / "report.html").locator("main").inner_text()
    assert f"ended by an error at step 6: the disk <b>{HOSTILE}" in text
    assert "1 lines of log.jsonl could not be read" in text


@pytest.mark.parametrize("missing", ["data.json", "answers.json", "machine.json", "log.jsonl", "config.json"])
def test_a_page_does_without_any_of_its_files(folder, tmp_path, missing):
    for name in ("one", "cls"):
        run = tmp_path / name
        shutil.copytree(folder / name, run)
        (run / missing).unlink()
        write_report(run)
        assert "</html>" in (run / "report.html").read_text("utf-8")


def test_only_the_settings(folder, tmp_path):
    """As it is before the first step."""
    (tmp_path / "run").mkdir()
    shutil.copy(folder / "one/settings.json", tmp_path / "run")
    write_report(tmp_path / "run")
    assert "No step has been logged yet." in (tmp_path / "run/report.html").read_text("utf-8")


def test_settings_that_differ_are_named_with_the_default(folder):
    changed = {name: (value, usual) for name, value, usual in read_run(folder / "one").changed_settings()}
    quick = defaults("pretrain", "")
    assert changed["layers"] == (1, quick["layers"])
    assert "seed" not in changed
    changed = {name: value for name, value, _ in read_run(folder / "ner").changed_settings()}
    assert changed == {"batch_size": 8, "epochs": 2.0, "lr": 1e-4, "log_every": 1, "max_length": 64}


def test_runs_beside_each_other(folder, tmp_path, browser_page):
    target = tmp_path / "all.html"
    done = CliRunner().invoke(commands, ["report", str(folder / "one"), str(folder / "two"), "--out", str(target)])
    assert (done.exit_code, done.output.strip()) == (0, str(target))
    page = browser_page(target)
    rows = dict(row.split("\t", 1) for row in page.locator("table").first.inner_text().splitlines() if "\t" in row)
    assert rows["steps"].split("\t") == ["6", "4"]
    assert page.locator("table").nth(1).inner_text().splitlines()[1].split("\t") == ["steps", "6", "4"]
    assert page.locator("figure.curves .key").all_inner_texts()[:2] == ["one", "two"]


def test_the_best_of_a_row_is_marked_and_only_where_there_is_a_better(folder):
    runs = [read_run(folder / "one"), read_run(folder / "two")]
    runs[0].metrics |= {"masked_loss": 3.0, "masked_accuracy": 0.3, "nsp_accuracy": 0.5}
    runs[1].metrics |= {"masked_loss": 4.0, "masked_accuracy": 0.2, "nsp_accuracy": 0.5}
    marked = {str(name): [best for _, best in cells] for name, cells in compared_metrics(runs)}
    assert marked["loss at [MASK]"] == marked["accuracy at [MASK]"] == [True, False]
    assert marked["next-sentence accuracy"] == marked["steps"] == marked["tokens seen"] == [False, False]


def test_runs_of_several_kinds_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="several kinds"):
        write_comparison([folder / "one", folder / "cls"], tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_names_of_runs_are_told_apart(folder, tmp_path):
    for place in ("a/run", "b/run"):
        shutil.copytree(folder / "one", tmp_path / place)
    assert distinct_names([read_run(tmp_path / "a/run"), read_run(tmp_path / "b/run")]) == ["a/run", "b/run"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "no run was named"), (["nowhere"], "there is no such folder"), (["."], "is not the folder of a run"),
        (["model"], "is a model without the record of a run"), (["one", "--out", "x.html"], "for the page of several"),
    ],
    ids=["nothing", "missing", "another", "model", "out"],
)  # fmt: skip
def test_mistakes(folder, monkeypatch, arguments, problem):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(commands, ["report", *arguments])
    assert isinstance(done.exception, UserError)
    assert problem in str(done.exception)


def test_a_report_that_fails_does_not_fail_the_run(folder, tmp_path, monkeypatch):
    said = []

    class Console:
        warn = staticmethod(said.append)

    def fails(run):
        raise RuntimeError("a bug")

    describe_run(tmp_path / "none", {}, Console())
    run = tmp_path / "run"
    shutil.copytree(folder / "one", run)
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    describe_run(run, {}, Console())
    monkeypatch.setattr("minibert.report.page.write_card", fails)
    describe_run(folder / "one", read_run(folder / "one").metrics, Console())
    names = ["report.html", "README.md", "report.html", "README.md"]
    assert [text.split(" was not written")[0] for text in said] == names
    assert "a bug" in said[-1]


def everywhere(value, path=()):
    """The places of a JSON value, deepest first."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from everywhere(value[key], (*path, key))
    yield path


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("name", ["one", "cls", "ner"])
def test_one_wrong_value_in_a_file_is_named_or_left_out(folder, tmp_path, name, monkeypatch):
    """Every kind of place in a run's files, each with something that does not belong there."""
    from minibert.report import page

    monkeypatch.setattr(page, "curves", lambda title, lines, **how: None)  # drawing has its own tests
    monkeypatch.setattr(page, "write_page", lambda place, template, **of: render(template, **{**of, "figures": []}))
    draw, refused = random.Random(name), []
    run = tmp_path / "run"
    shutil.copytree(folder / name, run)
    for file in ("settings.json", "data.json", "machine.json", "answers.json", "metrics.json", "config.json"):
        whole = json.loads((run / file).read_text("utf-8"))
        kinds = {
            tuple("0" if isinstance(key, int) else key for key in path): path for path in everywhere(whole) if path
        }
        for path in draw.sample(sorted(kinds.values(), key=str), min(12, len(kinds))):
            wrong = draw.choice([None, [], {}, "x", -1, 1e308, [None], {"a": 1}, [[1]], HOSTILE])
            (run / file).write_text(json.dumps(changed(whole, path, wrong)), "utf-8")
            try:
                write_report(run)
            except UserError as error:
                refused.append(str(error.where))
        (run / file).write_text(json.dumps(whole), "utf-8")
    assert len(refused) > 5
    assert all(".json" in where for where in refused)


def test_numbers_that_are_too_large_are_none(tmp_path):
    lines = [{"step": 1, "grad_norm": 10**400}, {"step": 10**30, "loss": 1.0}, {"step": -1}, {"step": True}]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    log = read_log(tmp_path / "log.jsonl")
    assert (log.column("grad_norm"), log.broken) == (([1], [None]), 3)


def test_a_users_word_in_a_card_is_no_markup(folder, tmp_path):
    run = tmp_path / '<b id="x">[y](z)'
    shutil.copytree(folder / "ner", run)
    metrics = json.loads((run / "metrics.json").read_text("utf-8"))
    metrics["dev"]["<img src=x>|[a](b)_f1"] = 0.5
    (run / "metrics.json").write_text(json.dumps(metrics), "utf-8")
    write_report(run)
    card = (run / "README.md").read_text("utf-8")
    assert '# `<b id="x">[y](z)`' in card
    assert "| `<img src=x>\\|[a](b)_f1` | 0.5000 |" in card


def test_a_page_takes_no_other_files_place(folder, tmp_path):
    for place in (folder / "one/settings.json", folder / "model/model.safetensors", tmp_path / "notes.html", tmp_path):
        if place == tmp_path / "notes.html":
            place.write_text("mine")
        before = place.read_bytes() if place.is_file() else None
        done = CliRunner().invoke(commands, ["report", str(folder / "one"), str(folder / "two"), "--out", str(place)])
        assert isinstance(done.exception, UserError)
        assert before is None or place.read_bytes() == before
    again = tmp_path / "page.html"
    for _ in range(2):  # a page of its own is written anew
        assert CliRunner().invoke(commands, ["report", *[str(folder / "one")] * 2, "--out", str(again)]).exit_code == 0


def test_a_log_is_read_line_by_line(tmp_path):
    lines = [
        {"step": 0, "eval": {"loss": 2.0}}, {"step": 1, "loss": None, "lr": 0.1, "tokens": 10},
        {"step": 1, "warning": "x", "message": "y"}, {"step": 2, "error": "z"},
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, lines)) + '\n[1]\n{"step": "x"}\n' + "[" * 100_000 + "\n"
    (tmp_path / "log.jsonl").write_text(text)
    log = read_log(tmp_path / "log.jsonl")
    assert (log.column("loss"), log.column("lr")) == (([1], [None]), ([1], [0.1]))
    assert (log.evaluation("loss"), len(log.warnings), log.error["error"], log.broken) == (([0], [2.0]), 1, "z", 3)


def test_time_speed_and_share_of_the_machine_by_hand(tmp_path):
    lines = [
        {"step": i, "tokens": t, "tokens_per_second": s} for i, t, s in ((1, 100, 10.0), (2, 300, 20.0), (3, 330, 30.0))
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "settings.json").write_text('{"command": "pretrain", "settings": {}}')
    (tmp_path / "machine.json").write_text('{"flops_per_token": 3, "flops_per_second": 120.0}')
    run = read_run(tmp_path)
    assert run.seconds == 100 / 10 + 200 / 20 + 30 / 30
    assert run.tokens_per_second == 330 / 21
    assert run.share_of_machine == 330 / 21 * 3 / 120
    assert (run.step, run.finished) == (3, False)
    run.machine["flops_per_second"] = 10.0  # measured while others computed
    assert run.share_of_machine is None


def test_marks_cut_a_text_into_pieces():
    marks = [
        (0, 3, "gold", "PER"),
        (0, 3, "answer", "LOC"),
        (5, 7, "both", "LOC"),
        (8, 12, "gold", "A"),
        (10, 14, "answer", "A"),
    ]
    assert list(pieces("tom  in 0123456", marks)) == [
        ("tom", "differs", "PER / LOC"), ("  ", "", ""), ("in", "both", "LOC"), (" ", "", ""), ("01", "gold", "A"),
        ("23", "both", "A"), ("45", "answer", "A"), ("6", "", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "span"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("```x", "```` ```x ````"), ("a\nb", "`a\\nb`"), ("", "` `")],
)
def test_a_users_word_cannot_leave_its_code_span(value, span):
    assert code(value) == span


def test_a_measure_has_its_digits():
    said = [
        ("masked_accuracy", 0.75),
        ("accuracy", 0.9),
        ("exact", 66.0),
        ("loss", 1.5),
        ("perplexity", 209.0),
        ("tokens", 12345),
    ]
    assert [value_of(*one) for one in said] == ["75.0 %", "0.9000", "66.00", "1.5000", "209.0", "12,345"]
    assert (value_of("loss", None), value_of("loss", float("nan"))) == ("–", "–")


def test_a_speed_over_few_steps_is_no_point():
    assert without_short([1, 10, 20, 30, 31], [1.0, 2.0, 3.0, 4.0, 5.0]) == ([10, 20, 30], [2.0, 3.0, 4.0])
    assert without_short([], []) == ([], [])


def test_times():
    assert [lasting(s).en for s in (12.4, 65, 3600, 7800)] == ["12 s", "1:05 min", "1:00 h", "2:10 h"]
    assert [lasting(s).zh for s in (12.4, 65, 7800)] == ["12 秒", "1 分 5 秒", "2 小时 10 分"]
