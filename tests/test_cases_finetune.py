"""The shared catalogue of real-world failures, on its own files: fine-tuning, evaluation and prediction as a user
types them.

Right answers come from each case's expected.txt, or are worked out from its files here. What the parts make of these
files (tables, tags, windows, metrics) is tested beside them; here a file goes in at the command line, and a run,
scores or predictions come out. These tests run only where the folder of cases lies beside the checkout.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import minibert
from minibert.cli import commands
from minibert.errors import UserError
from minibert.predict import Predictor
from minibert.tasks import find_tasks
from minibert.training import state

MODEL = "model.safetensors"
TASKS = find_tasks()
SMALL = {"epochs": 1, "batch_size": 4, "max_length": 32, "precision": "fp32", "dropout": 0, "attention_dropout": 0}
BY_HEART = {"epochs": 60, "lr": 2e-3, "eval_every": 1000}  # one checkpoint, at the end
SEVERAL = """
import json, sys
from minibert.cli import commands, leave
for words in json.loads(sys.argv[1]):
    commands.main(words, standalone_mode=False)
leave(0)
"""  # commands in one process: the libraries are loaded once
OF_QA = {"stride": 8}  # its default is more than a row of 32 tokens has room for


@pytest.fixture
def model_for(checkpoint_for, tmp_path):
    """A small random BERT that knows the words of these files."""

    def make(*files, **changes):
        text = "\n".join(file.read_text("utf-8-sig") for file in files)
        return checkpoint_for(text, tmp_path / "model", **changes)

    return make


def main(*words):
    """The command line in this process."""
    commands.main([str(word) for word in words], standalone_mode=False)


def flags(settings):
    found = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        found += [flag] if value is True else [f"--no-{flag[2:]}"] if value is False else [flag, str(value)]
    return found


def learn(task, model, train, out, **settings):
    own = OF_QA if task == "qa" else {}
    words = flags({**SMALL, **own, **settings})
    main("finetune", "--task", task, "--model", model, "--train", train, "--out", out, *words)
    return out


def predict(run, source, **settings):
    out = run.parent / f"{run.name}-{source.name}.predictions"
    main("predict", source, "--model", run, "--out", out, *flags(settings))
    return [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]]


def predict_text(run, source, output_format):
    out = run.parent / f"{run.name}-{source.name}.{output_format}"
    main("predict", source, "--model", run, "--out", out, "--format", output_format)
    return out.read_text("utf-8")


def evaluate(run, source, **settings):
    out = run.parent / f"{run.name}-{source.name}.scores"
    main("evaluate", source, "--model", run, "--out", out, *flags(settings))
    return json.loads(out.read_text("utf-8"))


def refused(call, *args, **named):
    with pytest.raises(UserError) as caught:
        call(*args, **named)
    assert caught.value.where, caught.value
    return caught.value


def content(run, name):
    return json.loads((run / name).read_text("utf-8"))


def labels_of(run):
    names = content(run, "config.json")["id2label"]
    return [names[str(i)] for i in range(len(names))]


def log_of(run, key):
    lines = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    return [line[key] for line in lines if key in line]


def written(run):
    """All that a run has written in words."""
    return b"".join(path.read_bytes() for path in sorted(run.iterdir()) if path.name != MODEL)


def same_run(a, b):
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in (MODEL, "config.json", "vocab.txt"))


def yes(condition):
    """In the words of expected.txt."""
    return "yes" if condition else "no"


# ---- files as they come: marks, line ends, encodings, nothing in them


@pytest.mark.parametrize(
    ("task", "name", "fact"),
    [
        ("cls", "cls_bom.csv", "csv_rows"),
        ("cls", "cls_bom.jsonl", "jsonl_rows"),
        ("ner", "ner_bom.conll", "ner_sentences"),
        ("qa", "qa_bom.json", "qa_questions"),
    ],
)
def test_a01_a_byte_order_mark_changes_nothing(case, model_for, tmp_path, task, name, fact):
    folder, facts = case("A01")
    marked, plain = folder / name, tmp_path / name
    assert marked.read_bytes()[:3] == b"\xef\xbb\xbf"
    plain.write_bytes(marked.read_bytes()[3:])
    model = model_for(plain)
    a, b = (learn(task, model, file, tmp_path / out) for file, out in ((marked, "a"), (plain, "b")))
    assert same_run(a, b)
    assert predict(a, marked) == predict(b, plain)
    assert content(a, "data.json")["train"]["examples"] == len(predict(a, marked)) == int(facts[fact])
    assert b"\xef\xbb\xbf" not in written(a)
    assert rb"\ufeff" not in written(a)
    if task == "ner":
        assert predict(a, marked)[0]["tokens"][0] == facts["ner_first_token"]


def test_a01_utf16_is_refused_by_name_and_read_when_said(case, model_for, tmp_path):
    folder, _ = case("A01")
    wide, table = folder / "corpus_utf16le.txt", folder / "cls_bom.csv"
    run = learn("cls", model_for(table), table, tmp_path / "run")
    assert wide.name in str(refused(predict, run, wide))
    assert len(predict(run, wide, encoding="utf-16")) == len(wide.read_bytes().decode("utf-16").splitlines())


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize(("task", "name", "fact"), [("ner", "ner_crlf.conll", "ner"), ("cls", "cls_crlf.csv", "cls")])
def test_a02_line_ends_leave_no_trace(case, model_for, tmp_path, task, name, fact, end):
    folder, facts = case("A02")
    text = (folder / name).read_bytes().decode()
    assert "\r\n" in text
    files = {}
    for out, ending in (("given", end), ("newlines", "\n")):
        files[out] = tmp_path / out / name
        files[out].parent.mkdir()
        files[out].write_bytes(text.replace("\r\n", ending).encode())
    model = model_for(files["newlines"])
    runs = {out: learn(task, model, file, tmp_path / f"run-{out}") for out, file in files.items()}
    assert same_run(*runs.values())
    assert ",".join(labels_of(runs["given"])) == facts[f"{fact}_labels"]
    predicted = [predict(runs["given"], file) for file in files.values()]
    assert predicted[0] == predicted[1]
    assert len(predicted[0]) == int(facts.get(f"{fact}_sentences", 2))
    texts = written(runs["given"]) + json.dumps(predicted[0]).encode()
    assert texts.count(b"\r") + texts.count(rb"\r") == int(facts["carriage_returns_in_outputs"])


def labelled(texts, path, encoding="utf-8"):
    rows = [f"{text},{'ab'[i % 2]}" for i, text in enumerate(texts)]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding)
    return path


def test_a05_another_encoding_stops_with_its_place_or_is_read_when_named(case, model_for, tmp_path):
    folder, facts = case("A05")
    chinese, twin = folder / "corpus_gb18030.txt", folder / "corpus_utf8.txt"
    texts = twin.read_text("utf-8").split("\n")
    a, b = labelled(texts, tmp_path / "a.csv", "gb18030"), labelled(texts, tmp_path / "b.csv")
    model = model_for(twin)
    error = refused(learn, "cls", model, a, tmp_path / "a")
    assert error.where == f"{a}:2"
    assert "offset" in error.problem
    assert "--encoding" in (error.fix or "")
    assert not (tmp_path / "a").exists()
    runs = learn("cls", model, a, tmp_path / "a", encoding="gb18030"), learn("cls", model, b, tmp_path / "b")
    assert same_run(*runs)

    error = refused(predict, runs[0], chinese)
    assert error.where == f"{folder / facts['message_has']}:1"
    assert "offset 0 " in error.problem
    assert predict(runs[0], chinese, encoding="gb18030") == predict(runs[1], twin)


def test_a05_the_locale_decides_nothing(case, model_for, tmp_path):
    folder, _ = case("A05")
    twin = folder / "corpus_utf8.txt"
    table = labelled(twin.read_text("utf-8").split("\n"), tmp_path / "train.csv")
    model = model_for(twin)
    run = learn("cls", model, table, tmp_path / "run")
    words = [["predict", twin, "--model", run], ["evaluate", table, "--model", run]]
    words += [["finetune", "--task", "cls", "--model", model, "--train", table, "--out", tmp_path / "b", *flags(SMALL)]]
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-W", "always::EncodingWarning", "-c", SEVERAL,
         json.dumps([list(map(str, one)) for one in words])],
        capture_output=True, timeout=120,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode == 0, said
    lines = done.stdout.decode().split("\n")
    assert [json.loads(line) for line in lines[: lines.index("{")]] == predict(run, twin)
    assert same_run(run, tmp_path / "b")
    ours = str(Path(minibert.__file__).parent)
    assert not [line for line in said.split("\n") if "EncodingWarning" in line and line.startswith(ours)]


@pytest.mark.parametrize("task", sorted(TASKS))
@pytest.mark.parametrize("name", ["empty.txt", "blank.txt", "empty.csv"])
def test_a10_nothing_to_learn_is_one_message_that_names_the_file(case, model_for, tmp_path, task, name):
    folder, facts = case("A10")
    assert facts[f"{name}_exit"] == "nonzero"
    model = model_for(folder / "tiny.txt")
    suffix = {"cls": "csv", "ner": "conll", "qa": "json"}[task]
    train = tmp_path / f"{Path(name).stem}.{suffix}"
    shutil.copyfile(folder / name, train)
    if task == "ner" and name == "empty.csv":
        train.write_text("-DOCSTART- O\n\n", "utf-8")  # what a header is there
    began = time.monotonic()
    error = refused(learn, task, model, train, tmp_path / "run")
    assert time.monotonic() - began < 30
    assert (error.where or "").startswith(str(train))
    assert not (tmp_path / "run").exists()


def test_a10_a_table_without_rows_has_no_examples(case, model_for, tmp_path):
    folder, _ = case("A10")
    model = model_for(folder / "tiny.txt")
    assert "no examples" in str(refused(learn, "cls", model, folder / "empty.csv", tmp_path / "run"))


@pytest.mark.parametrize("task", sorted(TASKS))
def test_b01_written_special_tokens_are_text(case, tmp_path, checkpoint_for, task):
    folder, facts = case("B01")
    tokens = (folder / "vocab.txt").read_text("utf-8").split()
    model = checkpoint_for("x", tmp_path / "model", tokens=tokens)
    if task == "cls":
        train = folder / "cls.csv"
    elif task == "ner":
        train = tmp_path / "train.jsonl"
        words, tags = ["hello", "[SEP]", "x", "[MASK]"], ["B-X", "O", "O", "O"]
        train.write_text(json.dumps({"tokens": words, "tags": tags}), "utf-8")
    else:
        train = tmp_path / "train.jsonl"
        answers = [{"text": "[MASK] x", "answer_start": 6}]
        record = {"id": "1", "question": "hello [SEP] x", "context": "hello [MASK] x [CLS] [PAD]", "answers": answers}
        train.write_text(json.dumps(record), "utf-8")
    run = learn(task, model, train, tmp_path / "run")
    rows = content(run, "data.json")["train"]
    predictor = Predictor(run)
    tokenizer, own = predictor.tokenizer, predictor.task
    read = [row.ids.tolist() for row in own.encode(own.read(train, gold=True).examples, tokenizer, gold=True).features]
    assert sum(map(len, read)) == rows["tokens"]
    marks = {name: tokenizer.convert_tokens_to_ids([f"[{name}]"])[0] for name in ("SEP", "CLS", "MASK", "PAD")}
    for row in read:
        assert row.count(marks["SEP"]) == int(facts["sep_count_per_row"]) + (task == "qa")
        assert [row.count(marks["CLS"]), row[0]] == [1, marks["CLS"]]
        assert row.count(marks["MASK"]) == int(facts["mask_ids_in_inputs"])
        assert row.count(marks["PAD"]) == 0
    if task == "cls":
        shown = [" ".join(tokenizer.convert_ids_to_tokens(row)) for row in read]
        assert shown[:2] == [facts["row1_tokens"], facts["row2_tokens"]]
        assert [one["text"] for one in predict(run, train)] == ["hello [SEP] x", "hello [MASK] x", "[CLS] hello [PAD]"]


# ---- training: resuming, choosing


class EndsAt(Exception):
    """The machine fails here."""


@pytest.fixture
def train_until(monkeypatch: pytest.MonkeyPatch):
    """Fine-tune to the checkpoint of a step, and no further."""

    def train(step, *args, **settings):
        real = state.save_state

        def ends(folder, *rest):
            real(folder, *rest)
            if folder.name == f"step-{step:06d}":
                raise EndsAt

        with monkeypatch.context() as patch, pytest.raises(EndsAt):
            patch.setattr(state, "save_state", ends)
            learn(*args, **settings)

    return train


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch):
    """Measurements of the cls task with these results, one after the other, and then nothing any more."""

    def script(name, values):
        left = iter(values)
        rest = {"accuracy": 0.0, "f1": 0.0, "macro_f1": 0.0, "mcc": 0.0}
        monkeypatch.setattr(TASKS["cls"], "score", lambda *_: {**rest, name: next(left, 0.0)})

    return script


@pytest.mark.parametrize("step", [12, 14])
def test_d01_the_best_measurement_and_the_patience_go_on(case, model_for, tmp_path, train_until, scripted, step):
    folder, _ = case("D01")
    corpus = folder / "corpus.txt"
    train = labelled(corpus.read_text("utf-8").replace("\n\n", "\n").splitlines(), tmp_path / "train.csv")
    assert len(train.read_text("utf-8").splitlines()) == 1 + 64
    model = model_for(corpus)
    history = [0.1, 0.5, 0.4, 0.3, 0.2, 0.1]  # four steps each: two without a better one are over at step 16
    settings = {
        "batch_size": 16, "micro_batch_size": 8, "epochs": 6, "patience": 2, "save_every": 1, "dropout": 0.1,
        "log_every": 1, "dev": train,
    }  # fmt: skip
    scripted("accuracy", history)
    whole = learn("cls", model, train, tmp_path / "whole", **settings)
    assert [one["accuracy"] for one in log_of(whole, "eval")] == history[:4]
    scripted("accuracy", history)
    cut = tmp_path / "cut"
    train_until(step, "cls", model, train, cut, **settings)
    place = json.loads((cut / f"checkpoints/step-{step:06d}/training_state/place.json").read_text("utf-8"))
    assert place["best"] == {"value": 0.5, "step": 8, "waited": 1}
    scripted("accuracy", history[3:])
    main("finetune", "--out", cut, "--resume")
    metrics = content(cut, "metrics.json")
    assert metrics == content(whole, "metrics.json")
    assert (metrics["best_epoch"], metrics["steps"]) == (2, 16)
    assert same_run(cut, whole)
    for key in ("loss", "lr", "epoch", "eval"):
        assert log_of(cut, key) == log_of(whole, key)


@pytest.mark.parametrize("mode", ["trunc", "state", "debris"])
def test_d07_resume_goes_on_from_the_newest_whole_checkpoint(case, model_for, tmp_path, train_until, capsys, mode):
    folder, facts = case("D07")
    train = case("E02")[0] / "train.csv"
    model = model_for(train)
    settings = {"epochs": 8, "dev": train, "best": "loss", "keep": 9, "dropout": 0.1}
    whole = learn("cls", model, train, tmp_path / "whole", **settings)
    cut = tmp_path / "cut"
    train_until(6, "cls", model, train, cut, **settings)
    newest, older = (cut / f"checkpoints/step-{step:06d}" for step in (6, 5))
    subprocess.run(["sh", folder / "break.sh", newest, mode], check=True)
    capsys.readouterr()
    main("finetune", "--out", cut, "--resume")
    said = capsys.readouterr().err
    assert facts["resumed_from"] == "previous complete checkpoint"
    assert f"going on from {newest if mode == 'debris' else older}\n" in said
    assert (f"warning: {newest} is not complete" in said) == (mode != "debris")
    assert same_run(cut, whole)
    assert content(cut, "metrics.json") == content(whole, "metrics.json")


def test_d07_a_truncated_model_is_never_a_part_of_one(case, model_for, tmp_path):
    folder, _ = case("D07")
    train = case("E02")[0] / "train.csv"
    model = model_for(train)
    run = learn("cls", model, train, tmp_path / "run")
    for broken in (model, run):
        subprocess.run(["sh", folder / "break.sh", broken, "trunc"], check=True)
    for call in (
        lambda: learn("cls", model, train, tmp_path / "b"),
        lambda: predict(run, train),
        lambda: evaluate(run, train),
        lambda: minibert.pipeline(run),
    ):
        assert MODEL in str(refused(call))
    assert not (tmp_path / "b").exists()
    assert not list(tmp_path.glob("*.predictions"))


@pytest.mark.parametrize(
    ("metric", "history", "fact"),
    [
        ("loss", "loss", "best_epoch_loss"),
        ("f1", "f1", "best_epoch_f1"),
        ("loss", "loss_with_nan", "best_epoch_loss_with_nan"),
    ],
)
def test_d10_the_model_that_is_kept_is_that_of_the_best_epoch(
    case, model_for, tmp_path, scripted, monkeypatch, metric, history, fact
):
    folder, facts = case("D10")
    values = content(folder, "history.json")[history]
    train = case("E02")[0] / "train.csv"
    seen = {}
    real = state.save_state

    def notes(place, *rest):
        real(place, *rest)
        seen[place.name] = (place / MODEL).read_bytes()

    monkeypatch.setattr(state, "save_state", notes)
    scripted(metric, values)
    run = learn("cls", model_for(train), train, tmp_path / "run", dev=train, best=metric, epochs=len(values), lr=1e-2)
    best = content(run, "metrics.json")["best_epoch"]
    assert best == int(facts[fact])
    assert len(set(seen.values())) == len(values)
    assert (run / MODEL).read_bytes() == seen[f"step-{round(best):06d}"]  # a step an epoch


def test_d10_patience_counts_from_the_best_loss(case, model_for, tmp_path, scripted):
    folder, facts = case("D10")
    train = case("E02")[0] / "train.csv"
    scripted("loss", content(folder, "history.json")["loss"])
    run = learn(
        "cls", model_for(train), train, tmp_path / "run", dev=train, best="loss", epochs=4, patience=1
    )  # fmt: skip
    assert len(log_of(run, "eval")) == int(facts["stop_after_epoch_patience1_loss"])


@pytest.mark.slow
def test_d06_two_processes_answer_every_record_once(case, tmp_path, checkpoint_for, capsys):
    """Five rows, four, and one, in batches of two; words and answers too."""
    folder, facts = case("D06")
    given = folder / "dev.csv"
    lines = given.read_text("utf-8").splitlines(keepends=True)
    files = {"cls": [given]}
    for rows in (1, 4):
        files["cls"].append(tmp_path / f"{rows}.csv")
        files["cls"][-1].write_text("".join(lines[: rows + 1]), "utf-8")
    files["ner"] = [case("F04")[0] / "ner.conll"]
    files["qa"] = [case("G04")[0] / "mixed.json", case("G10")[0] / "gold.json"]
    words = []
    for task, sources in files.items():
        text = "\n".join(file.read_text("utf-8") for file in sources)
        run = learn(task, checkpoint_for(text, tmp_path / f"{task}-model"), sources[0], tmp_path / task)
        for file in sources:
            for command in ("predict", "evaluate"):
                words.append([command, file, "--model", run, "--batch-size", 2, "--out", f"{file.name}.{command}"])
    outs = {}
    for name in ("one", "two"):
        outs[name] = tmp_path / name
        outs[name].mkdir()
    script = tmp_path / "several.py"
    script.write_text(SEVERAL, "utf-8")
    given_words = json.dumps([list(map(str, one)) for one in words])
    for name, launch in (("one", []), ("two", ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"])):
        done = subprocess.run(
            [sys.executable, *launch, str(script), given_words], cwd=outs[name], capture_output=True, text=True,
            timeout=300, env={**os.environ, "ACCELERATE_USE_CPU": "true"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in outs["one"].iterdir())
    assert names == sorted(path.name for path in outs["two"].iterdir())
    assert len(names) == len(words)
    for name in names:
        one, two = ((outs[which] / name).read_text("utf-8") for which in ("one", "two"))
        if name.endswith(".predict"):
            assert one == two
        else:
            a, b = json.loads(one), json.loads(two)
            assert facts["metrics_equal_single_process"] == yes(a == pytest.approx(b, abs=1e-12))
    texts = [json.loads(line)["text"] for line in (outs["two"] / "dev.csv.predict").read_text("utf-8").splitlines()]
    assert len(texts) == int(facts["prediction_lines"])
    assert texts == [line.split(",")[0] for line in lines[1:]]


# ---- classification


@pytest.mark.parametrize(("name", "fact"), [("cls.csv", "labels"), ("cls_int.csv", "cls_int_labels")])
def test_e01_labels_that_look_like_nothing_are_labels(case, model_for, tmp_path, name, fact):
    folder, facts = case("E01")
    source = folder / name
    run = learn("cls", model_for(source), source, tmp_path / "run", **BY_HEART)
    assert ",".join(labels_of(run)) == facts[fact]
    rows = [line.split(",") for line in source.read_text("utf-8").splitlines()[1:]]
    found = predict(run, source)
    assert [(one["text"], one["label"]) for one in found] == [(text, label) for text, label in rows]
    assert evaluate(run, source)["accuracy"] == 1.0
    if name == "cls.csv":
        assert len(found) == content(run, "data.json")["train"]["examples"] == int(facts["rows"])
        assert found[2]["text"] == facts["row3_text"]


def test_e02_a_label_that_training_has_not_is_refused_before_the_first_step(case, model_for, tmp_path):
    folder, facts = case("E02")
    train, dev = folder / "train.csv", folder / "dev.csv"
    model = model_for(train)
    for part in ("dev", "test"):
        error = refused(learn, "cls", model, train, tmp_path / "run", **{part: dev})
        assert all(word in str(error) for word in facts["message_has"].split(", "))
        assert error.where == f"{dev}:3"
        assert error.fix
        assert not (tmp_path / "run").exists()
    assert facts["steps_run"] == "0"
    run = learn("cls", model, train, tmp_path / "run")
    assert refused(evaluate, run, dev).where == f"{dev}:3"
    assert len(predict(run, folder / "test_nolabel.csv")) == int(facts["nolabel_predictions"])
    assert refused(evaluate, run, folder / "test_nolabel.csv").where == f"{folder / 'test_nolabel.csv'}:1"
    assert len(predict(run, dev)) == 2  # its labels are not looked at


def test_e05_several_labels_or_none(case, model_for, tmp_path):
    folder, facts = case("E05")
    source = folder / "cls.jsonl"
    model = model_for(source)
    assert "--multi-label" in (refused(learn, "cls", model, source, tmp_path / "run").fix or "")
    run = learn("cls", model, source, tmp_path / "run", multi_label=True, **BY_HEART)
    assert ",".join(labels_of(run)) == facts["id2label"].split(" ")[0]
    assert content(run, "config.json")["problem_type"] == "multi_label_classification"
    predictor = Predictor(run)
    task = predictor.task
    encoded = task.encode(task.read(source, gold=True).examples, predictor.tokenizer, gold=True)
    assert [row.target.dtype.kind for row in encoded.features] == ["f"] * 4
    assert " / ".join(" ".join(f"{x:g}" for x in row.target) for row in encoded.features) == facts["targets"]
    assert [one["label"] for one in predict(run, source)] == [["a"], ["a", "b"], [], ["b"]]


def test_e07_a_first_row_of_data_is_not_eaten(case, model_for, tmp_path):
    folder, facts = case("E07")
    source = folder / "noheader.csv"
    model = model_for(source)
    error = refused(learn, "cls", model, source, tmp_path / "run")
    assert facts["noheader_exit"] == "nonzero"
    assert "'good film', 'pos'" in error.problem
    assert "--no-header" in (error.fix or "")
    assert "--text-column" in (error.fix or "")
    run = learn("cls", model, source, tmp_path / "run", header=False)
    rows = int(facts["noheader_rows_with_option"])
    assert content(run, "data.json")["train"]["examples"] == len(predict(run, source)) == rows
    assert evaluate(run, source)["accuracy"] >= 0


def test_e07_columns_go_by_their_names(case, model_for, tmp_path):
    folder, facts = case("E07")
    source = folder / "swapped.csv"
    model = model_for(source)
    error = refused(learn, "cls", model, source, tmp_path / "run")
    assert "'label', 'sentence'" in error.problem
    run = learn("cls", model, source, tmp_path / "run", text_column="sentence")
    assert ",".join(labels_of(run)) == facts["swapped_labels"]
    assert [one["text"] for one in predict(run, source)] == ["good film", "bad film"]


def test_e10_a_text_of_nothing_has_its_prediction(case, model_for, tmp_path, capsys):
    folder, facts = case("E10")
    source = folder / "dev.csv"
    run = learn("cls", model_for(source), source, tmp_path / "run")
    capsys.readouterr()
    found = predict(run, source)
    assert "dev.csv: 3 texts are empty" in capsys.readouterr().err
    assert [one["text"] for one in found] == ["", "   ", "\u200b", "ok"]
    assert len(found) == int(facts["predictions"])
    assert facts["rows_1_2_3_equal"] == yes(found[0]["scores"] == found[1]["scores"] == found[2]["scores"])
    values = torch.tensor([list(one["scores"].values()) for one in found])
    assert facts["finite"] == yes(bool(values.isfinite().all()))
    assert torch.allclose(values.sum(1), torch.ones(4), atol=1e-5)
    assert found[3]["scores"] != found[0]["scores"]


# ---- named entities


def test_f01_iob1_is_learnt_as_the_entities_it_means(case, model_for, tmp_path):
    folder, facts = case("F01")
    source = folder / "iob1.conll"
    run = learn("ner", model_for(source), source, tmp_path / "run", **BY_HEART)
    (found,) = predict(run, source)
    assert found["tags"] == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    shown = "; ".join(f"{e['label']} {e['start']} {e['end'] - 1}" for e in found["entities"])
    assert shown == facts["iob1_entities"]
    scores = evaluate(run, source)
    assert (scores["f1"], scores["support"]) == (1.0, 3)


def test_f01_scores_are_those_of_conlleval(case, model_for, tmp_path, monkeypatch):
    from seqeval.metrics import f1_score

    folder, facts = case("F01")
    gold, said = ([(folder / name).read_text("utf-8").split()] for name in ("gold.txt", "pred.txt"))
    source = tmp_path / "gold.conll"
    source.write_text("".join(f"word{i} {tag}\n" for i, tag in enumerate(gold[0])), "utf-8")
    run = learn("ner", model_for(source), source, tmp_path / "run")
    monkeypatch.setattr(TASKS["ner"], "decode", lambda *_: [{"tokens": [], "tags": tags} for tags in said])
    found = evaluate(run, source)
    assert found["f1"] == float(facts["f1_default"]) == f1_score(gold, said)


def test_f04_document_marks_are_no_sentences(case, model_for, tmp_path):
    folder, facts = case("F04")
    source = folder / "ner.conll"
    run = learn("ner", model_for(source), source, tmp_path / "run")
    assert content(run, "data.json")["train"]["examples"] == int(facts["sentences"])
    found = predict(run, source)
    assert [one["tokens"] for one in found] == [["EU", "rejects"], ["De", "tekst", ","]]
    assert sum(len(one["tags"]) for one in found) == int(facts["tokens"])
    sentences = predict_text(run, source, "conll").removesuffix("\n").split("\n\n")
    assert [[line.split("\t")[0] for line in one.split("\n")] for one in sentences] == [one["tokens"] for one in found]
    assert evaluate(run, source)["support"] == 1


def test_f05_a_long_sentence_is_answered_to_its_end(case, model_for, tmp_path):
    folder, facts = case("F05")
    source = folder / "ner.conll"
    model = model_for(source, max_position_embeddings=512)
    run = learn("ner", model, source, tmp_path / "run", max_length=64, dev=source)
    bare = tmp_path / "bare.conll"
    words = [line.split(" ")[0] for line in source.read_text("utf-8").splitlines()]
    bare.write_text("\n".join(words) + "\n", "utf-8")
    support = int(facts["support_PER"])
    assert content(run, "metrics.json")["dev"]["PER_support"] == support
    for length in (64, 512):
        assert evaluate(run, source, max_length=length)["PER_support"] == support
        (found,) = predict(run, source, max_length=length)
        assert found["tokens"] == words
        assert len(found["tags"]) == int(facts["prediction_tokens"])
        assert predict(run, bare, max_length=length) == [found]  # no gold has a say in the windows
    assert len(predict_text(run, source, "conll").splitlines()) == int(facts["prediction_tokens"])


def test_f07_blanks_and_a_missing_last_line_end_lose_nothing(case, model_for, tmp_path):
    folder, facts = case("F07")
    source, bad = folder / "ner.conll", folder / "bad.conll"
    model = model_for(source)
    error = refused(learn, "ner", model, bad, tmp_path / "run")
    assert error.where == f"{bad}:2"
    assert "'rejects'" in error.problem
    assert not (tmp_path / "run").exists()
    run = learn("ner", model, source, tmp_path / "run", **BY_HEART)
    assert ",".join(labels_of(run)) == facts["labels"]
    found = predict(run, source)
    assert len(found) == int(facts["sentences"])
    assert ",".join(str(len(one["tags"])) for one in found) == facts["tokens"]
    assert [one["tags"] for one in found] == [["B-ORG", "O", "O"], ["B-PER", "I-PER"]]
    for command in (evaluate, predict):
        assert refused(command, run, bad).where == f"{bad}:2"


def test_f10_tokens_come_back_as_they_were(case, model_for, tmp_path):
    folder, facts = case("F10")
    source = folder / "ner.conll"
    words = [line.split(" ")[0] for line in source.read_text("utf-8").splitlines()]
    run = learn("ner", model_for(source), source, tmp_path / "run")
    lines = [line.split("\t") for line in predict_text(run, source, "conll").splitlines()]
    assert len(lines) == int(facts["prediction_tokens"])
    assert facts["token_column_identical"] == yes([line[0] for line in lines] == words)
    assert {len(line) for line in lines} == {2}
    assert {line[1] for line in lines} <= {"O", "B-LOC", "I-LOC", "B-PER", "I-PER"}
    (found,) = predict(run, source)
    assert found["tokens"] == words


# ---- questions


def learnt_texts(run, source):
    """For each question that training uses the text between its labels, cut from the context."""
    predictor = Predictor(run)
    task = predictor.task
    examples = task.read(source, gold=True, train=True).examples
    found = []
    for row in task.encode(examples, predictor.tokenizer, gold=True).features:
        window, context = row.extra, examples[row.example].context
        first, last = (place - row.second + window.first for place in row.target)
        found.append(context[window.offsets[first, 0] : window.offsets[last, 1]])
    return found


def test_g01_a_wrong_answer_start_is_mended_or_left_out_and_counted(case, model_for, tmp_path, capsys):
    folder, facts = case("G01")
    source = folder / "train.json"
    run = learn("qa", model_for(source), source, tmp_path / "run", **BY_HEART)
    said = capsys.readouterr().err
    train = content(run, "data.json")["train"]
    used = int(facts["used"]) + int(facts["fixed"].split()[0])
    assert train["examples"] == used
    assert len(train["repaired"]) == int(facts["fixed"].split()[0])
    assert len(train["skipped"]) == int(facts["skipped"].split()[0])
    assert "'2'" in train["repaired"][0]["where"]
    assert "begins at 4, not at 5" in train["repaired"][0]["reason"]
    assert "'3'" in train["skipped"][0]["where"]
    assert "1 skipped" in said
    assert "1 repaired" in said
    assert learnt_texts(run, source) == ["Kyoto", "Pure Land"]
    assert [one["answer"] for one in predict(run, source)[:2]] == ["Kyoto", "Pure Land"]
    assert evaluate(run, source)["total"] == 3  # what cannot be learnt is measured all the same


def test_g03_an_answer_that_no_window_holds_is_told_and_not_learnt_as_none(case, tmp_path, checkpoint_for, capsys):
    folder, facts = case("G03")
    source = folder / "train.json"
    tokens = (folder / "vocab.txt").read_text("utf-8").split()
    model = checkpoint_for("x", tmp_path / "model", tokens=tokens)
    run = learn("qa", model, source, tmp_path / "run", max_length=20, stride=5, batch_size=8, log_every=1)
    said = capsys.readouterr().err
    train = content(run, "data.json")["train"]
    assert train["rows"] == 2 * int(facts["windows"])
    told = [note for note in train["notes"] if "whole in no window" in note]
    assert len(told) == 1
    assert "1 ('2')" in told[0]
    assert told[0] in said
    assert content(run, "config.json")["minibert"]["settings"]["unanswerable"] == "no"  # as in v1
    task = Predictor(run).task
    examples = task.read(source, gold=True, train=True).examples
    features = task.encode(examples, Predictor(run).tokenizer, gold=True).features
    batch = task.batch(features, 0)
    n = int(facts["windows"])
    assert batch["counts"].tolist() == [n]  # q2 counts for nothing
    for name in ("start", "end"):
        assert " ".join(map(str, batch[f"{name}_positions"][:n].tolist())) == facts[f"q1_{name}"]
    assert len(predict(run, source)) == 2


def test_g04_no_answer_in_all_its_spellings(case, model_for, tmp_path, capsys):
    folder, facts = case("G04")
    mixed, bare = folder / "mixed.json", folder / "predict.json"
    model = model_for(mixed)
    run = learn("qa", model, mixed, tmp_path / "run", **{**BY_HEART, "epochs": 100}, dev=mixed)
    count = int(facts["questions"])
    assert content(run, "data.json")["train"]["examples"] == count
    assert content(run, "data.json")["train"]["skipped"] == []
    found = predict(run, mixed)
    nothing = [f"q{one['id']}" for one in found if one["answer"] == ""]
    assert ",".join(nothing) == facts["no_answer"]
    assert found[0]["answer"] == "Rome"
    scores = evaluate(run, mixed)
    assert (scores["total"], scores["HasAns_total"], scores["NoAns_total"]) == (count, 1, 3)
    assert scores["exact"] == scores["NoAns_exact"] == 100
    assert len(predict(run, bare)) == int(facts["predict_lines"])
    assert "'answers'" in str(refused(evaluate, run, bare))

    capsys.readouterr()
    v1 = learn("qa", model, mixed, tmp_path / "v1", unanswerable="no")
    assert len(content(v1, "data.json")["train"]["skipped"]) == 3
    assert "3 skipped" in capsys.readouterr().err
    assert len(predict(v1, mixed)) == count
    assert all(one["answer"] for one in predict(v1, mixed))


def test_g07_blanks_of_a_context_are_kept(case, model_for, tmp_path):
    folder, facts = case("G07")
    source = folder / "train.json"
    (paragraph,) = content(folder, "train.json")["data"][0]["paragraphs"]
    context, question = paragraph["context"], paragraph["qas"][0]["question"]
    run = learn("qa", model_for(source), source, tmp_path / "run", **BY_HEART)
    train = content(run, "data.json")["train"]
    assert train["examples"] == int(facts["used"])
    assert len(train["skipped"]) == int(facts["skipped"])
    assert learnt_texts(run, source) == [facts["context_slice_5_10"]]
    (found,) = predict(run, source)
    assert (found["answer"], found["start"], found["end"]) == (facts["context_slice_5_10"], 5, 10)
    assert all(one["answer"] == context[one["start"] : one["end"]] for one in found["nbest"])
    assert evaluate(run, source)["exact"] == 100
    tokenizer = Predictor(run).tokenizer
    assert tokenizer.encode([question]) == tokenizer.encode([question.strip()])
    assert content(run, "data.json")["rows_decoded"][0].count("what is big") == 1


@pytest.mark.parametrize("version", ["v2", "v1"])
def test_g10_scores_are_those_of_squad(case, model_for, tmp_path, monkeypatch, version):
    folder, facts = case("G10")
    gold, said = content(folder, "gold.json"), content(folder, "pred.json")
    if version == "v1":
        (paragraph,) = gold["data"][0]["paragraphs"]
        paragraph["qas"] = [one for one in paragraph["qas"] if one["answers"]]
    source = tmp_path / "gold.json"
    source.write_text(json.dumps(gold), "utf-8")
    run = learn("qa", model_for(source), source, tmp_path / "run")
    monkeypatch.setattr(
        TASKS["qa"], "decode", lambda self, examples, *_: [{"answer": said.get(one.id, "")} for one in examples]
    )
    scores = evaluate(run, source)
    if version == "v2":
        expected = {name: float(value) for name, value in facts.items()}
    else:
        expected = {name: float(facts[f"HasAns_{name}"]) for name in ("exact", "f1")}
        assert "HasAns_exact" not in scores
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_g12_long_contexts_have_their_answers(case, model_for, tmp_path):
    folder, facts = case("G12")
    source = tmp_path / "long.json"
    with source.open("w", encoding="utf-8") as file, redirect_stdout(file):
        runpy.run_path(str(folder / "gen.py"))
    train = case("G04")[0] / "mixed.json"
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "max_position_embeddings": 384}
    run = learn("qa", model_for(train, source, **shape), train, tmp_path / "run", max_length=384, stride=128)
    found = predict(run, source)
    assert len(found) == int(facts["predictions"])
    contexts = {
        question["id"]: paragraph["context"]
        for paragraph in content(tmp_path, "long.json")["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    }
    assert [one["id"] for one in found] == list(contexts)
    for one in found:
        answers = [entry for entry in one["nbest"] if entry["start"] is not None]
        assert all(contexts[one["id"]][entry["start"] : entry["end"]] == entry["answer"] for entry in answers)
    assert any(entry["start"] > 100_000 for one in found[:3] for entry in one["nbest"] if entry["answer"])


# ---- checkpoints


def made(case, monkeypatch, out):
    """The checkpoint of 40 tokens and 32 positions that H01 makes with transformers."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["make.py", str(out), "hf"])
        runpy.run_path(str(case("H01")[0] / "make.py"))
    return out


@pytest.mark.parametrize("task", sorted(TASKS))
def test_h06_more_tokens_than_embeddings_are_refused_at_once(case, monkeypatch, tmp_path, task):
    folder, facts = case("H06")
    model = made(case, monkeypatch, tmp_path / "model")
    shutil.copyfile(folder / "vocab48.txt", model / "vocab.txt")
    train = TASKS[task].demo(tmp_path)
    error = refused(learn, task, model, train, tmp_path / "run")
    assert all(number in str(error) for number in facts["message_has"].split(", "))
    assert facts["steps_run"] == "0"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.json", "bert_config.json"])
def test_h08_a_config_of_googles_is_learnt_from(case, monkeypatch, tmp_path, name):
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    folder, facts = case("H08")
    model = made(case, monkeypatch, tmp_path / "model")
    (model / "config.json").unlink()
    shutil.copyfile(folder / name, model / name)
    run = learn("cls", model, case("H10")[0] / "long.csv", tmp_path / "run")
    saved = content(run, "config.json")
    assert saved["model_type"] == facts["saved_model_type"]
    assert saved["layer_norm_eps"] == float(facts["layer_norm_eps"])
    assert saved["architectures"] == ["BertForSequenceClassification"]
    given = content(folder, name)
    for key in facts["kept_keys"].split(","):
        assert saved[key] == given[key]
    _, info = AutoModelForSequenceClassification.from_pretrained(run, output_loading_info=True)
    assert not any(info.values())
    assert AutoConfig.from_pretrained(run).pad_token_id == 0
    assert len(AutoTokenizer.from_pretrained(run)) == given["vocab_size"]


def test_h08_another_kind_of_model_is_named(case, monkeypatch, tmp_path):
    model = made(case, monkeypatch, tmp_path / "model")
    config = content(model, "config.json")
    (model / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}), "utf-8")
    error = refused(learn, "cls", model, case("H10")[0] / "long.csv", tmp_path / "run")
    assert "roberta" in error.problem
    assert not (tmp_path / "run").exists()


def test_h10_rows_longer_than_the_model_are_refused_at_once(case, model_for, monkeypatch, tmp_path):
    folder, facts = case("H10")
    source = folder / "long.csv"
    large = model_for(source, max_position_embeddings=512)
    small = made(case, monkeypatch, tmp_path / "small")
    for model, asked, numbers in ((large, 600, facts["message_has"].split(", ")), (small, 40, ["40", "32"])):
        error = refused(learn, "cls", model, source, tmp_path / "run", max_length=asked)
        assert all(number in str(error) for number in numbers)
        assert error.where == "--max-length"
        assert not (tmp_path / "run").exists()
    run = learn("cls", small, source, tmp_path / "run", dev=source)
    data = content(run, "data.json")["train"]
    assert data["longest"] == 32
    assert any("cut at 32 tokens" in note for note in data["notes"])
    assert "32" in str(refused(predict, run, source, max_length=40))
    assert len(predict(run, source)) == 3


@pytest.mark.parametrize("task", sorted(TASKS))
def test_h12_a_run_is_a_folder_of_transformers(case, model_for, monkeypatch, tmp_path, capsys, task):
    folder, _ = case("H12")
    train = TASKS[task].demo(tmp_path)
    run = learn(task, model_for(train), train, tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["check.py", str(run), task])
    runpy.run_path(str(folder / "check.py"))
    assert capsys.readouterr().out.startswith("OK BertFor")
    names = {path.name for path in run.iterdir()}
    assert {"config.json", MODEL, "tokenizer_config.json", "vocab.txt", "tokenizer.json"} <= names
    saved = content(run, "config.json")
    weights = load_file(run / MODEL)
    assert saved["model_type"] == "bert"
    assert len(weights["bert.embeddings.word_embeddings.weight"]) == saved["vocab_size"]
    assert saved["architectures"] == [TASKS[task].model_class().__name__]
