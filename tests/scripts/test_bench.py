"""scripts/bench.py: its table, and what becomes of parts that fail or lack something. Nothing is measured here."""

import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def bench(load_script):
    return load_script("bench")


def rounds(**figures):
    """Contestants as the parts' JSON has them: name -> a result a round."""
    return {name: [{"tokens_per_second": value} for value in values] for name, values in figures.items()}


PRETRAIN = {
    "settings": {"layers": 4, "hidden_size": 256},
    "rounds": rounds(
        **{"minibert": [800, 900, 1000], "Trainer": [200, 200, 200], "Trainer, fp32": [100, 90, 80]},
        **{"BertForPreTraining": [400, 450, 500], "minibert, dropout .1": [600, 650, 700]},
    ),
    "shares": {
        "minibert": 0.51, "minibert, dropout .1": 0.49, "Trainer": 0.3, "Trainer, fp32": 0.9, "BertForPreTraining": 0.4
    },
    "loading_share": 0.004,
}  # fmt: skip


def lines_of(printed: str) -> list[list[str]]:
    """A table's cells."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in printed.splitlines()]


def fake_part(bench, folder: Path, name: str, code: str, rows=None, **more):
    """A part whose script does as `code` says; FILE is where its JSON goes."""
    script = folder / f"{name}.py"
    script.write_text(f"import sys, json\nFILE = sys.argv[sys.argv.index('--json') + 1]\n{code}\n", "utf-8")
    return bench.Part("data", name, script, ["corpus.txt"], rows or bench.pretrain_rows, **more)


def writes(found) -> str:
    return f"print('as it goes')\nopen(FILE, 'w', encoding='utf-8').write({json.dumps(found)!r})"


def test_the_table_has_ratios_goals_and_shares(bench, capsys):
    assert bench.show(bench.Outcome(rows=bench.pretrain_rows(PRETRAIN))) == 0
    head, _, *lines = lines_of(capsys.readouterr().out)
    assert head == ["measure", "minibert", "peer", "ratio (lowest - highest)", "goal", "reached", "of the machine"]
    name = "pre-training, 4 layers of 256"
    assert lines[:5] == [
        [name, "900 tokens/s", "Trainer: 200 tokens/s", "4.50x (4.00 - 5.00)", ">= 4x", "yes",
         "51% (goal 45%), peer 30%"],
        [f"{name}, dropout .1", "650 tokens/s", "Trainer: 200 tokens/s", "3.25x (3.00 - 3.50)", "49%, peer 30%"],
        [name, "900 tokens/s", "Trainer, fp32: 90 tokens/s", "10.00x (8.00 - 12.50)", "51%, peer 90%"],
        [name, "900 tokens/s", "BertForPreTraining: 450 tokens/s", "2.00x (2.00 - 2.00)", "51%, peer 40%"],
        [f"{name}: loading, of a step's time", "0.4 %", "<= 3 %", "yes"],
    ]  # fmt: skip


def test_goals_are_those_of_a_size(bench):
    base = {**PRETRAIN, "settings": {"layers": 12, "hidden_size": 768}}
    row = bench.pretrain_rows(base)[0]
    assert (row.goal.limit, row.share_goal) == (2.0, 0.6)
    row = bench.pretrain_rows({**PRETRAIN, "settings": {"layers": 3, "hidden_size": 768}})[0]
    assert (row.goal, row.share_goal) == (None, None)


@pytest.mark.parametrize(
    ("goal", "ours", "median", "reached"),
    [
        (("ratio", 4.0, False), 0, 4.0, True), (("ratio", 4.0, False), 9, 3.99, False),
        (("ratio", 0.6, True), 9, 0.6, True), (("ratio", 0.6, True), 0, 0.61, False),
        (("ours", 10.0, False), 10.0, 0, True), (("ours", 10.0, False), 9.9, 99, False),
        (("ours", 5.0, True), 5.0, 9, True), (("ours", 5.0, True), 5.1, 0, False),
    ],
)  # fmt: skip
def test_a_goal_is_reached(bench, goal, ours, median, reached):
    spread = {"median": median, "lowest": 0.0, "highest": 99.0}
    row = bench.Row(part="data", measure="x", ours=ours, unit="s", ratio=spread, goal=bench.Goal(*goal))
    assert row.goal.reached(row) is reached


def test_times_are_turned_round_and_memory_is_not(bench):
    def seconds(*values):
        return [{"seconds": value} for value in values]

    start = {
        "rounds": {
            "empty cache": seconds(6.0), "second run": seconds(5.5), "Trainer, empty cache": seconds(9.0),
            "Trainer, second run": seconds(11.0),
        },
        "commands": {
            "minibert --help": seconds(0.1), "minibert predict, one text": seconds(2.0),
            "transformers.pipeline, one text": seconds(5.0),
        },
    }  # fmt: skip
    found = [bench.cells(row) for row in bench.start_rows(start)]
    assert [(cells[1], cells[3], cells[5]) for cells in found] == [
        ("6 s", "1.50x (1.50 - 1.50)", "yes"), ("5.5 s", "2.00x (2.00 - 2.00)", "no"),
        ("0.1 s", "", "yes"), ("2 s", "2.50x (2.50 - 2.50)", "yes"),
    ]  # fmt: skip
    del start["commands"]["transformers.pipeline, one text"]
    assert bench.cells(bench.start_rows(start)[-1])[2:4] == ["", ""]
    peaks = {"minibert": 1740.0, "minibert --gradient-checkpointing": 1500.0, "Trainer": 3000.0}
    memory = {
        "settings": {"layers": 12, "hidden_size": 768}, "rounds": {name: [{"peak": mb}] for name, mb in peaks.items()}
    }  # fmt: skip
    plain, less = (bench.cells(row) for row in bench.step_memory_rows(memory))
    assert plain[1:6] == ["1,740 MB", "Trainer: 3,000 MB", "0.58x (0.58 - 0.58)", "<= 0.6x", "yes"]
    assert less[3] == "0.50x (0.50 - 0.50)"


def test_text_and_much_text(bench):
    def speed(value):
        return [{"mb_per_second": value}]

    data = {"rounds": {"minibert, 2 workers": speed(8.0), "minibert, 1 worker": speed(5.0), "google": speed(0.5)}}
    rows = bench.text_rows(data, "data", "text", bench.Goal("ours", 10.0))
    assert [bench.cells(row)[:6] for row in rows] == [
        ["text, 2 workers", "8 MB/s", "", "", ">= 10 MB/s", "no"],
        ["text, 2 workers", "8 MB/s", "google: 0.5 MB/s", "16.00x (16.00 - 16.00)", "", ""],
    ]
    alone = {"rounds": {"minibert": [{"seconds": 2.0}], "tokenizers": [{"seconds": 3.0}]}}
    assert bench.cells(bench.text_rows(alone, "vocab", "text")[1])[1:4] == [
        "2 s", "tokenizers: 3 s", "1.50x (1.50 - 1.50)"
    ]  # fmt: skip
    grouped = {"rounds": {f"{size}: {name}": each for size in ("1", "2") for name, each in alone["rounds"].items()}}
    assert [bench.cells(row)[0] for row in bench.text_rows(grouped, "vocab", "text")] == [
        "text, 1", "text, 1", "text, 2", "text, 2"
    ]  # fmt: skip
    memory = {
        "settings": {"sizes": ["200.0", "5.0"]}, "growth": {"vocab": {}},
        "rounds": {"vocab, 5 MB": [{"all_rss": 80.0}], "vocab, 200 MB": [{"all_rss": 100.0}]},
    }  # fmt: skip
    assert bench.cells(bench.text_memory_rows(memory)[0])[1:4] == [
        "100 MB", "itself, 5 MB: 80 MB", "1.25x (1.25 - 1.25)"
    ]  # fmt: skip


def test_contests_have_a_row_for_each_data_set_and_peer(bench):
    def speed(value):
        return [{"examples_per_second": value}]

    contest = {
        "rounds": {
            "minibert, fp32": speed(30.0), "minibert, bf16": speed(60.0), "pipeline, batch 1, fp32": speed(10.0),
            "pipeline, batch 16, fp32": speed(15.0),
        },
        "ratios": {
            name: {"minibert, fp32": {}, "minibert, bf16": {}}
            for name in ("pipeline, batch 1, fp32", "pipeline, batch 16, fp32")
        },
    }  # fmt: skip
    rows = bench.contest_rows({"data": {"cls: a": {"prediction": contest}}}, "prediction")
    assert [(row.measure, row.ratio["median"], row.goal.limit) for row in rows] == [
        ("prediction, cls: a, fp32", 3.0, 3.0), ("prediction, cls: a, bf16", 6.0, 3.0),
        ("prediction, cls: a, fp32", 2.0, 1.5), ("prediction, cls: a, bf16", 4.0, 1.5),
    ]  # fmt: skip


def test_a_failing_part_leaves_the_others_rows_and_exit_code_1(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "busy", lambda: False)
    parts = [
        fake_part(bench, tmp_path, "broken", "print('no room left')\nsys.exit(3)"),
        fake_part(bench, tmp_path, "silent", ""),
        fake_part(bench, tmp_path, "odd", writes({"settings": {}})),
        fake_part(bench, tmp_path, "good", writes(PRETRAIN)),
    ]
    outcome = bench.run_all(parts, tmp_path)
    assert bench.show(outcome) == 1
    printed = capsys.readouterr().out
    assert "failed: broken: broken.py ended with 3:\nno room left\n" in printed
    assert "failed: silent: silent.py wrote no JSON" in printed
    assert "failed: odd: its JSON is not as expected: KeyError('rounds')" in printed
    assert "4.50x (4.00 - 5.00)" in printed
    assert "failed: good" not in printed
    assert outcome.parts["good"]["command"] == ["good.py", "corpus.txt"]
    assert outcome.parts["good"]["output"] == "as it goes\n"


def test_what_a_part_lacks_is_named_and_is_no_failure(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "busy", lambda: True)
    parts = [
        fake_part(bench, tmp_path, "poor", "sys.exit(3)", missing="no checkpoint; scripts/x brings one"),
        fake_part(bench, tmp_path, "good", writes(PRETRAIN)),
    ]
    assert bench.show(bench.run_all(parts, tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "not measured: poor: no checkpoint; scripts/x brings one\n" in printed
    assert "warning: others were computing when these began, do not quote them: good\n" in printed


def test_parts_say_what_brings_what_they_lack(bench, tmp_path, monkeypatch):
    def lacking():
        args = bench.argparse.Namespace(only=list(bench.KINDS), quick=True, model=tmp_path)
        return {part.name: part.missing for part in bench.all_parts(args, ["text.txt"], {}) if part.missing}

    monkeypatch.setattr(bench, "find_spec", lambda name: name)
    monkeypatch.setattr(bench.sys, "platform", "linux")
    missing = lacking()
    assert {"finetune", "predict"} <= missing.keys() <= {"finetune", "predict", "vocab"}
    assert "scripts/real_data.py models" in missing["finetune"]
    (tmp_path / "config.json").write_text("{}", "utf-8")
    assert not lacking().keys() - {"vocab"}
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    missing = lacking()
    assert {"pretrain, small", "data", "predict", "memory, a step"} <= missing.keys()
    assert all("scripts/setup dev" in why for name, why in missing.items() if name != "vocab")
    assert "start" not in missing


def test_every_part_is_started_with_options_that_its_script_has(bench, tmp_path):
    for quick in (False, True):
        args = bench.argparse.Namespace(only=list(bench.KINDS), quick=quick, model=tmp_path)
        for part in bench.all_parts(args, ["text.txt"], {"cls": [Path("a.csv")]}):
            if part.script.is_file():
                source = part.script.read_text("utf-8") + (SCRIPTS / "_bench_common.py").read_text("utf-8")
                assert [word for word in part.options if word.startswith("--") and f'"{word}"' not in source] in (
                    [], ["--cls"]
                )  # fmt: skip
                assert (part.options[0] == "text.txt") == (part.script.name != "bench_finetune.py")


def test_made_up_text_is_the_same_every_time_and_is_said(bench, tmp_path, monkeypatch, capsys):
    documents = list(bench.made_up_documents(0.02))
    assert documents == list(bench.made_up_documents(0.02))
    assert 20_000 <= sum(len(line) + 1 for document in documents for line in document) < 40_000
    assert all(line.endswith(".") and line[0].isupper() for document in documents for line in document)
    monkeypatch.setattr(bench, "REAL_TEXT", tmp_path / "raw.txt")
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    args = bench.argparse.Namespace(corpus=[], quick=True)
    (path,), said = bench.find_text(args, tmp_path)
    assert "made-up words" in said
    assert Path(path).read_text("utf-8").startswith("\n".join(documents[0]) + "\n\n")
    (tmp_path / "raw.txt").touch()
    assert bench.find_text(args, tmp_path) == ([str(tmp_path / "raw.txt")], "raw.txt")
    monkeypatch.setattr(bench, "LABELLED", {"ner": (tmp_path / "none.conll",)})
    lines = bench.find_labelled(tmp_path)["cls"][0].read_text("utf-8").splitlines()
    assert lines[0] == "text,label"
    assert {line.rsplit(",")[-1] for line in lines[1:]} == {"even", "odd"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "start,speed"], "unknown part: speed; known: pretrain,"),
        (["no-such-text.txt"], "no such file: no-such-text.txt"),
        (["--model", "no-such-folder"], "no such folder: no-such-folder"),
    ],
)
def test_mistakes_are_told_before_anything_runs(bench, capsys, arguments, said):
    with pytest.raises(SystemExit) as error:
        bench.main(arguments)
    assert error.value.code == 2
    assert said in capsys.readouterr().err


def test_all_is_in_one_file(bench, tmp_path, monkeypatch, capsys):
    part = fake_part(bench, tmp_path, "good", writes(PRETRAIN))
    monkeypatch.setattr(bench, "all_parts", lambda *_: [part])
    monkeypatch.setattr(bench, "busy", lambda: False)
    (tmp_path / "text.txt").write_text("Text.\n", "utf-8")
    target = tmp_path / "deep" / "bench.json"
    assert bench.main([str(tmp_path / "text.txt"), "--json", str(target)]) == 0
    found = json.loads(target.read_text("utf-8"))
    assert {"settings", "machine", "versions", "rows", "parts", "missing", "failed", "busy", "text"} <= found.keys()
    assert found["rows"][0]["reached"] is True
    assert found["rows"][0]["ratio"]["median"] == 4.5
    assert found["parts"]["good"]["rounds"] == PRETRAIN["rounds"]
    assert f"every figure: {target}" in capsys.readouterr().out
