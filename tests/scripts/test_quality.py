"""scripts/quality: what is declared fits together, runs are named by what decides them, and every experiment runs."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from minibert.config import PretrainConfig, load_recipe, resolve, tomllib

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
DECLARED = tomllib.loads((SCRIPTS / "_quality.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def quality(load_script):
    return load_script("quality")


@pytest.fixture
def work(quality, tmp_path):
    return quality.Work(tmp_path / "data", tmp_path / "work", 2, 1)


def test_all_that_is_declared_exists(quality, load_script):
    variants = load_script("_quality_variants")
    for name, arm in DECLARED["arms"].items():
        assert arm.keys() <= {"kind", "place", "recipe", "set", "variants", "finetune_variants", "text"}, name
        for recipe in arm.get("recipe", quality.RECIPE).values():
            resolve(PretrainConfig, load_recipe(recipe, "pretrain"), (name, arm.get("set", {})))
        for variant in [*arm.get("variants", {}), *arm.get("finetune_variants", {})]:
            assert callable(getattr(variants, variant)), f"{name}: {variant}"
    for name, pair in DECLARED["pairs"].items():
        assert set(pair["arms"]) <= DECLARED["arms"].keys(), name
        assert len(pair["arms"]) > 1, name


def test_flags_are_those_of_the_command_line(quality):
    said = {"nsp": False, "muon_decay": 0.5, "norm": "pre", "scratch": True}
    assert quality.as_flags(said) == ["--no-nsp", "--muon-decay", "0.5", "--norm", "pre", "--scratch"]


def test_a_run_is_named_by_its_settings_alone(quality, work):
    first = work.folder("pretrain", "one-zh", {"a": 1})
    assert first.name.startswith("one-zh-")
    assert work.folder("pretrain", "other-zh", {"a": 1}) == first
    assert work.folder("pretrain", "one-zh", {"a": 2}) != first
    first.mkdir(parents=True)
    again = quality.Work(work.data, work.place, 1, 1)  # another day
    assert again.folder("pretrain", "third-zh", {"a": 1}) == first


def test_a_setting_at_its_default_is_no_part_of_the_name(quality):
    config = resolve(PretrainConfig, ("test", {"steps": 5, "mask_rate": 0.3, "layers": 4}))
    assert quality.said_of(config) == {"steps": 5, "mask_rate": 0.3}


def test_what_is_there_is_not_made_again_and_what_fails_is_said(quality, work):
    out = work.place / "pretrain" / "a-0"
    made = (
        f"from pathlib import Path; p = Path({str(out)!r}); p.mkdir(); (p / 'metrics.json').write_text('{{\"x\": 1}}')"
    )
    assert work.run(out, ["-c", made]) == {"x": 1}
    assert work.run(out, ["-c", "raise SystemExit(3)"]) == {"x": 1}
    assert work.run(work.place / "pretrain" / "b-0", ["-c", "raise SystemExit(3)"]) is None
    assert ["exit code 3" in fault for fault in work.failed] == [True]


def test_steps_see_about_as_many_tokens_as_asked_for_in_several_threads(quality, text, work):
    small = {"steps": 1, "vocab_size": 60, "max_length": 32, "batch_size": 4, "micro_batch_size": 4}
    found = []

    def ask(tokens):
        found.append((tokens, quality.steps_of(work, ("test", small), {}, [text], tokens)))

    threads = [threading.Thread(target=ask, args=(tokens,)) for tokens in (2000, 4000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (length,) = (json.loads(place.read_text("utf-8")) for place in (work.place / "dry").iterdir())
    assert 8 < length <= 32
    assert sorted(found) == [(n, round(n / (length * 4))) for n in (2000, 4000)]


def test_two_arms_with_one_encoder_make_it_once(work):
    out = work.place / "pretrain" / "a-0"
    made = f"import os; os.mkdir({str(out)!r}); open({str(out / 'metrics.json')!r}, 'w').write('1')"  # fails if there
    threads = [threading.Thread(target=work.run, args=(out, ["-c", made])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work.failed == []


def test_dev_chooses_the_rate_and_all_seeds_have_it(quality, work, monkeypatch):
    dev = {1e-4: 0.6, 3e-4: 0.9, 1e-3: 0.7}
    asked = []

    def finetuned(work, model, arm, member, files, rate, seed):
        asked.append((rate, seed))
        return {"dev": {"f1": dev[rate]}, "test": {"f1": dev[rate] - 0.1 * seed}, "best_epoch": 2}

    monkeypatch.setattr(quality, "finetuned", finetuned)
    member = {"metric": "f1", "rates": [1e-4, 3e-4, 1e-3], "rate": 1e-3}
    found = quality.judge(work, Path("m"), {}, member, {}, range(3), grid=True)
    assert found["rate"] == 3e-4
    assert found["test"] == pytest.approx([0.9, 0.8, 0.7])
    assert sorted(asked) == [(1e-4, 0), (3e-4, 0), (3e-4, 1), (3e-4, 2), (1e-3, 0)]
    assert quality.judge(work, Path("m"), {}, member, {}, [0], grid=False)["rate"] == 1e-3


def test_a_picture_of_every_member(quality, tmp_path):
    rows = [
        {"arm": "a", "minutes": m, "scores": {"ner": {"test": [0.1 * m, 0.2]}, "cls": {"test": [0.5]}}} for m in (1, 2)
    ]
    rows.append({"arm": "line", "minutes": 0.0, "scores": {"ner": {"test": [0.3]}}})
    quality.draw(rows, ["ner", "cls"], tmp_path / "a.svg")
    quality.draw(rows, ["ner", "cls"], tmp_path / "b.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.count('id="axes_') == 2


def test_text_to_read_holds_nothing_of_dev_and_test(load_script, tmp_path):
    data = load_script("_quality_data")
    articles = [[f"Headline {i}", f"Body of article {i}."] for i in range(50)]
    lines = [[f"第{i}行。", f"第{i}行的后面。"] for i in range(50)]
    for folder, documents in (("bbc", articles), ("people_daily", lines)):
        (tmp_path / folder).mkdir()
        data.write_documents(tmp_path / folder / "raw.txt", documents)
    found = data.training_text(tmp_path / "bbc" / "raw.txt")
    assert found == [article for article in articles if data.split_of(" ".join(article)) == "train"]
    assert 0 < len(found) < 50
    kept = [line for document in data.training_text(tmp_path / "people_daily" / "raw.txt") for line in document]
    assert kept == [line for document in lines for line in document if data.split_of(line) == "train"]


def test_small_sets_are_drawn_the_same_each_time(load_script, tmp_path):
    data = load_script("_quality_data")
    source = tmp_path / "data" / "set"
    source.mkdir(parents=True)
    for part in ("train", "dev", "test"):
        (source / f"{part}.csv").write_text("text,label\n" + "".join(f"{part} {i},x\n" for i in range(30)), "utf-8")
    member = {"name": "m", "source": "set", "task": "cls", "train": 5, "dev": 3}
    first = data.panel_files(tmp_path / "data", tmp_path / "one", member)
    second = data.panel_files(tmp_path / "data", tmp_path / "two", member)
    assert [path.read_text("utf-8").count("\n") for path in first.values()] == [6, 4, 31]
    assert [path.read_bytes() for path in first.values()] == [path.read_bytes() for path in second.values()]
    assert data.panel_files(tmp_path / "data", tmp_path / "one", {**member, "source": "none"}) is None


# ---- experiments

PRETRAINING = {name: value for arm in DECLARED["arms"].values() for name, value in arm.get("variants", {}).items()}
FINETUNING = {
    name: value for arm in DECLARED["arms"].values() for name, value in arm.get("finetune_variants", {}).items()
}
SMALL = {
    "phases": [[16, 8, 0.5], [32, 4, 1.0]],
    "neighbour_offsets": [-2],
    "average_last": 0.5,
}  # for the little text of the test


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    place = tmp_path_factory.mktemp("quality") / "raw.txt"
    words = "one two three four five six seven eight nine ten".split()
    lines = (" ".join(words[(i * 7 + k * k) % 10] for k in range(5 + i % 7)) + " ." for i in range(400))
    place.write_text("\n".join(line + ("\n" if i % 4 == 3 else "") for i, line in enumerate(lines)) + "\n", "utf-8")
    return place


FORKS = """
import json, os, runpy, sys
import torch, minibert.cli, minibert.finetune.story, minibert.pretrain, minibert.tasks.cls
import datasets, matplotlib.figure, scipy.sparse, sklearn.utils.extmath, torch._dynamo, torch.distributed.tensor
torch.set_num_threads(1)
sys.path.insert(0, os.path.dirname(sys.argv[1]))
for arguments in json.loads(sys.argv[2]):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sys.argv = [sys.argv[1], *arguments]
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit(f"failed: {arguments[0]}")
"""


def run_forked(commands, cache):
    """_quality_run.py with each of these arguments, forked from a process that has loaded torch: quick."""
    command = [sys.executable, "-c", FORKS, SCRIPTS / "_quality_run.py", json.dumps(commands, default=str)]
    environment = {**os.environ, "MINIBERT_CACHE": str(cache)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="its runs are forked")
def test_every_experiment_runs_and_is_a_change(text, tmp_path):
    size = (
        "--recipe mini --steps 4 --layers 3 --hidden-size 32 --heads 2 --vocab-size 60 --max-length 32 --batch-size 4"
    )
    size += (
        " --micro-batch-size 4 --log-every 1 --eval-every 0 --save-every 0 --eval-examples 4 --quiet --precision fp32"
    )
    variants = {"plain": {}, **{name: {name: SMALL.get(name, value)} for name, value in PRETRAINING.items()}}
    commands = [
        [json.dumps(variant), "pretrain", text, "--out", tmp_path / name, *size.split()]
        for name, variant in variants.items()
    ]
    done = run_forked(commands, tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in variants}
    assert [name for name in PRETRAINING if weights[name] == weights["plain"]] == []

    rows = "text,label\n" + "".join(f"{'one two' if i % 2 else 'three four'} five,{'ab'[i % 2]}\n" for i in range(16))
    (tmp_path / "rows.csv").write_text(rows, "utf-8")
    variants = {"tuned": {}, **{name: {name: value} for name, value in FINETUNING.items()}}
    task = [
        "finetune",
        "--task",
        "cls",
        "--model",
        tmp_path / "plain",
        "--train",
        tmp_path / "rows.csv",
        "--epochs",
        "1",
    ]
    task += ["--batch-size", "4", "--max-length", "16", "--quiet", "--precision", "fp32", "--lr", "1e-3"]
    commands = [[json.dumps(variant), *task, "--out", tmp_path / name] for name, variant in variants.items()]
    done = run_forked(commands, tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in variants}
    assert [name for name in FINETUNING if weights[name] == weights["tuned"]] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="its runs are forked")
def test_minutes_are_minutes_of_computing(text, tmp_path):
    size = ["--recipe", "mini", "--minutes", "0.03", "--layers", "1", "--hidden-size", "16", "--heads", "2"]
    size += ["--vocab-size", "60", "--max-length", "16", "--eval-every", "0", "--save-every", "0", "--quiet"]
    done = run_forked([["{}", "pretrain", text, "--out", tmp_path / "run", *size]], tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))["steps"] > 5
