"""Runs over two and four processes: the same as one; one writes; a process that dies ends the others; FSDP2."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from minibert.cli import commands
from minibert.errors import UserError
from minibert.training import state

TRAIN = [
    "--layers", 2, "--hidden-size", 32, "--heads", 2, "--vocab-size", 100, "--max-length", 32, "--max-positions", 64,
    "--batch-size", 12, "--micro-batch-size", 2, "--steps", 8, "--optimizer", "adamw", "--lr", 3e-4,
    "--precision", "fp32", "--dropout", 0, "--attention-dropout", 0, "--eval-share", 0.1, "--eval-examples", 3,
    "--eval-every", 5, "--save-every", 4, "--log-every", 1, "--workers", 1, "--quiet",
]  # fmt: skip
TUNE = [
    "--max-length", 32, "--batch-size", 4, "--precision", "fp32", "--dropout", 0, "--attention-dropout", 0,
    "--epochs", 2, "--log-every", 1, "--quiet",
]  # fmt: skip
ROWS = "text,label\na red cat,cat\nthe old dog,dog\nnew red cat,cat\na dog runs,dog\nthe cat,cat\n"
TAGS = "Tom\tB-PER\nruns\tO\n\nthe\tO\nred\tO\ncat\tO\n\nin\tO\nRome\tB-LOC\n"
QUESTIONS = "\n".join(
    json.dumps({"id": name, "question": question, "context": "Tom runs in Rome.", "answers": answers})
    for name, question, answers in (
        ("q1", "Who runs?", {"text": ["Tom"], "answer_start": [0]}),
        ("q2", "Where?", {"text": ["Rome"], "answer_start": [12]}),
        ("q3", "Who runs in Rome?", {"text": ["Tom"], "answer_start": [0]}),
    )
)
# the gradient's norm shows what rounding does to weights that have hardly any; a perplexity is the exp of a loss
COARSER = {"grad_norm": 100, "perplexity": 10, "masked_perplexity": 10}
FILES = {"cls": ("rows.csv", ROWS), "ner": ("tags.conll", TAGS), "qa": ("questions.jsonl", QUESTIONS)}

# Makes the processes of a run by itself, for what they import takes longer than what they do. jobs: each process runs
# these commands one after the other; those behind the first note what they write under the folder of the test. dies:
# (process, function, call) at which one of them kills itself. sleeps: (process, function, seconds) of its first call.
DRIVER = """
import importlib, json, os, signal, socket, sys, time
from datetime import timedelta
import minibert.finetune.story, minibert.predict, minibert.pretrain, minibert.vectors.files
from accelerate import Accelerator
from minibert.cli import commands, leave, main
from minibert.training import devices

root, file, processes = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = json.load(open(file))
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")

def at_call(place, call, seconds):
    module, name = place.rsplit(".", 1)
    module, calls = importlib.import_module(module), []
    original = getattr(module, name)
    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL) if not seconds else time.sleep(seconds)
        return original(*args, **kwargs)
    setattr(module, name, dies)

def work(rank, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes), MASTER_PORT=port,
                      LOCAL_WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1",
                      TORCHELASTIC_ERROR_FILE=f"{file}-{port}/{rank}/error.json")
    if "dies" in settings:
        which, place, call = settings["dies"]
        if rank == which:
            at_call(place, call, 0)
        for which, place, seconds in settings.get("sleeps", ()):
            if rank == which:
                at_call(place, 1, seconds)
            devices.SILENCE, devices.PULSE = timedelta(seconds=6), 0.5
        sys.argv = ["minibert", *settings["jobs"][0]]
        main()
    written, noting = [], bool(rank)
    def note(event, args):
        if noting and (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or event in CHANGES):
            if str(args[0]).startswith(root):
                written.append((event, str(args[0])))
    sys.addaudithook(note)
    Accelerator.end_training = lambda self: None  # it would take down what the next command needs
    for job in settings["jobs"]:
        commands.main(job, standalone_mode=False)
    noting = False
    with open(f"{file}-{rank}", "w") as out:
        json.dump(written, out)
    leave(0)

with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
os.makedirs(f"{file}-{port}")
children = []
for rank in range(processes):
    children.append(os.fork())
    if not children[-1]:
        work(rank, port)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def drive(processes, folder, **settings):
    """Each process's exit code, what they have said, and the file that their own begin with."""
    (folder / "driver.py").write_text(DRIVER)
    file = folder / f"jobs-{len(list(folder.iterdir()))}"
    environment = {"ACCELERATE_USE_CPU": "true", "MINIBERT_CACHE": f"{file}-cache", **settings.pop("environment", {})}
    file.write_text(json.dumps(settings, default=str))
    done = subprocess.run(
        [sys.executable, folder / "driver.py", folder, file, str(processes)], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()], done.stderr, file


def together(processes, folder, jobs, **environment):
    """The commands on so many processes. Returns: what others than the first have written."""
    codes, said, file = drive(processes, folder, jobs=jobs, environment=environment)
    assert codes == [0] * processes, said
    return [tuple(one) for rank in range(1, processes) for one in json.loads(Path(f"{file}-{rank}").read_text())]


def run(*job):
    commands.main([str(word) for word in job], standalone_mode=False)


def lines(folder):
    """log.jsonl without what the clock says."""
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in found]


def same(found, wanted, tolerance=1e-5):
    """Whether two logs, scores or predictions are the same; numbers but for rounding."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name in wanted:
            same(found[name], wanted[name], tolerance * COARSER.get(name, 1))
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other, tolerance)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=tolerance, abs=1e-6)
    else:
        assert found == wanted


def unfinished(run, folder, step):
    """The run as it was when it had saved a step and died."""
    shutil.copytree(run, folder)
    for path in folder.iterdir():
        if path.name not in ("settings.json", "data.json", "log.jsonl", "checkpoints"):
            path.unlink()
    for path in (folder / "checkpoints").iterdir():
        if path != state.checkpoint_path(folder / "checkpoints", step):
            shutil.rmtree(path)
    return folder


def pretraining(folder, name):
    return ["pretrain", folder / "corpus.txt", "--out", folder / name, *TRAIN]


def resuming(folder, name):
    return ["pretrain", "--out", folder / name, "--resume", "--quiet"]


def tuning(folder, task, name):
    file = folder / FILES[task][0]
    return [
        "finetune", "--task", task, "--model", folder / "model", "--train", file, "--dev", file, "--test", file,
        "--out", folder / name, *TUNE, *(["--stride", 4] if task == "qa" else []),
    ]  # fmt: skip


def all_jobs(folder, name):
    """Every command that computes on several devices. Fewer records than processes: the files of ner and qa, lone."""
    jobs = [pretraining(folder, f"{name}-pretrain")]
    for task, (file, _) in FILES.items():
        model = folder / f"one-{task}"
        jobs += [
            tuning(folder, task, f"{name}-{task}"),
            ["predict", "--model", model, folder / file, "--out", folder / f"{name}-{task}.jsonl", "--batch-size", 2,
             "--quiet"],
        ]  # fmt: skip
    return [
        *jobs,
        ["predict", "--model", folder / "one-cls", folder / "lone.txt", "--out", folder / f"{name}-lone.jsonl"],
        ["evaluate", "--model", folder / "one-qa", folder / FILES["qa"][0], "--out", folder / f"{name}-scores.json"],
        ["embed", "--model", folder / "model", folder / FILES["cls"][0], "--out", folder / f"{name}-vectors.jsonl"],
    ]


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    monkeypatch.setenv("MINIBERT_CACHE", str(folder / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text_of, checkpoint_for):
    """Files to read, a model, and what one process makes of them."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "corpus.txt").write_text(text_of(40), "utf-8")
    (folder / "lone.txt").write_text("the red dog\n", "utf-8")
    for file, text in FILES.values():
        (folder / file).write_text(text, "utf-8")
    checkpoint_for(ROWS + TAGS + "Tom runs in Rome. Who runs? Where?", folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIBERT_CACHE", str(folder / "cache"))
        for job in all_jobs(folder, "one"):
            run(*job)
    return folder


@pytest.fixture(scope="module")
def two(folder):
    """Two processes, and two that go on with what one has begun. Gives what the second has written."""
    unfinished(folder / "one-pretrain", folder / "one-to-two", 4)
    return together(2, folder, [*all_jobs(folder, "two"), resuming(folder, "one-to-two")])


@pytest.fixture(scope="module")
def four(folder, two):
    """Four processes, and four that go on with what two have begun."""
    unfinished(folder / "two-pretrain", folder / "two-to-four", 4)
    return together(4, folder, [*all_jobs(folder, "four"), resuming(folder, "two-to-four")])


def scores(folder):
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("many", ["two", "four"])
def test_many_processes_are_one(folder, many, request):
    request.getfixturevalue(many)
    for job in ("pretrain", *FILES):
        same(lines(folder / f"{many}-{job}"), lines(folder / f"one-{job}"))
        same(scores(folder / f"{many}-{job}"), scores(folder / f"one-{job}"))
    assert scores(folder / f"{many}-pretrain")["num_targets"] > 0  # of three held-out examples
    for name in ("cls.jsonl", "ner.jsonl", "qa.jsonl", "lone.jsonl", "vectors.jsonl"):
        found, wanted = ((folder / f"{who}-{name}").read_text("utf-8") for who in (many, "one"))
        assert found == wanted
    same(*(json.loads((folder / f"{who}-scores.json").read_text()) for who in (many, "one")), 1e-9)
    assert len((folder / f"{many}-lone.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("many", ["two", "four"])
def test_one_process_writes(folder, many, request):
    assert request.getfixturevalue(many) == []
    names = {path.name for path in (folder / f"{many}-pretrain").iterdir()}
    assert names == {path.name for path in (folder / "one-pretrain").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("many", ["two", "four"])
def test_another_number_of_processes_goes_on_with_the_same_data(folder, many, request):
    request.getfixturevalue(many)
    name = {"two": "one-to-two", "four": "two-to-four"}[many]
    same(lines(folder / name), lines(folder / "one-pretrain"))
    same(scores(folder / name), scores(folder / "one-pretrain"))
    unfinished(folder / f"{many}-pretrain", folder / f"{many}-to-one", 4)
    run(*resuming(folder, f"{many}-to-one"))
    same(lines(folder / f"{many}-to-one"), lines(folder / "one-pretrain"))


# ---- FSDP2

MUON = ("--optimizer", "muon", "--muon-lr", 0.003, "--gradient-checkpointing")


@pytest.fixture(scope="module")
def spread(folder):
    """Two processes over which the states of the training are spread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIBERT_CACHE", str(folder / "cache"))
        run(*pretraining(folder, "one-muon"), *MUON)
        run(*tuning(folder, "cls", "one-frozen"), "--freeze", "1")
    unfinished(folder / "one-pretrain", folder / "one-to-spread", 4)
    unfinished(folder / "one-muon", folder / "muon-to-spread", 4)
    jobs = [
        pretraining(folder, "spread-pretrain"), [*pretraining(folder, "spread-muon"), *MUON],
        tuning(folder, "cls", "spread-cls"), [*tuning(folder, "cls", "spread-frozen"), "--freeze", "1"],
        resuming(folder, "one-to-spread"), resuming(folder, "muon-to-spread"),
    ]  # fmt: skip
    return together(2, folder, jobs, ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")


@pytest.mark.slow
def test_spread_states_train_the_same(folder, spread):
    assert spread == []  # the second process has written nothing
    for name in ("spread-pretrain", "one-to-spread"):
        same(lines(folder / name), lines(folder / "one-pretrain"))
        same(scores(folder / name), scores(folder / "one-pretrain"))
    for name in ("spread-muon", "muon-to-spread"):  # whose update is computed in bfloat16
        same(lines(folder / name), lines(folder / "one-muon"), 1e-4)
    for job in ("cls", "frozen"):
        same(lines(folder / f"spread-{job}"), lines(folder / f"one-{job}"))
        same(scores(folder / f"spread-{job}"), scores(folder / f"one-{job}"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tolerance"), [("pretrain", 1e-5), ("muon", 1e-4)])
def test_checkpoints_of_spread_states_are_whole(folder, spread, name, tolerance):
    checkpoint = Path("checkpoints/step-000004")
    wanted, found = (folder / f"{who}-{name}" / checkpoint for who in ("one", "spread"))
    ours, theirs = (load_file(path / "model.safetensors") for path in (found, wanted))
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}
    saved = [torch.load(path / "training_state/optimizer.pt", weights_only=True) for path in (found, wanted)]
    for one, other in zip(*(one["optimizers"] for one in saved), strict=True):
        assert one["param_groups"] == other["param_groups"]
        assert one["state"].keys() == other["state"].keys()
        for number, values in one["state"].items():
            for kind, value in values.items():
                assert type(value) is torch.Tensor
                assert torch.allclose(value, other["state"][number][kind], rtol=1e-2, atol=1e-4)
    unfinished(folder / f"spread-{name}", folder / f"spread-{name}-to-one", 4)
    run(*resuming(folder, f"spread-{name}-to-one"))
    same(lines(folder / f"spread-{name}-to-one"), lines(folder / f"one-{name}"), tolerance)


# ---- a process that dies

READS, SAVES = "minibert.pretrain.open_store", "minibert.pretrain.save_checkpoint"


@pytest.mark.parametrize(("which", "place"), [(0, READS), (1, "minibert.pretrain.make_model"), (0, SAVES)])
def test_a_process_that_dies_ends_the_others_and_the_run_goes_on(folder, tmp_path, which, place):
    job = ["pretrain", folder / "corpus.txt", "--out", tmp_path / "run", *TRAIN]
    codes, said, _ = drive(2, tmp_path, jobs=[job], dies=(which, place, 1))  # and nobody but themselves ends them
    assert codes == ([-9, 2] if which == 0 else [2, -9])
    assert said.startswith(f"minibert: error: process {1 - which}: another process of this run has ended or does not")
    assert said.count("\n") == 2
    assert not list(tmp_path.glob("run/checkpoints/step-??????"))
    run(*job, "--resume")
    same(lines(tmp_path / "run"), lines(folder / "one-pretrain"))


@pytest.mark.slow
def test_reading_may_take_long_and_silence_may_not(folder, tmp_path):
    """Others are waited for 6 seconds here. The first process reads for 9, the second then says nothing for 12."""
    job = ["pretrain", folder / "corpus.txt", "--out", tmp_path / "run", *TRAIN]
    sleeps = [(0, READS, 9), (1, "minibert.pretrain.make_model", 12)]
    codes, said, _ = drive(2, tmp_path, jobs=[job], dies=(-1, READS, 1), sleeps=sleeps)
    assert codes == [2, 2]
    assert said.startswith("minibert: error: process 0: another process of this run has ended or does not answer")
    assert list(tmp_path.glob("jobs-*-cache/stores/*/store.json"))  # it was read to the end


def test_a_process_that_dies_in_evaluation_is_one_message(folder, tmp_path):
    job = ["evaluate", "--model", folder / "one-cls", folder / "rows.csv"]
    codes, said, _ = drive(4, tmp_path, jobs=[job], dies=(1, "minibert.predict.infer", 1))
    assert codes == [2, -9, 2, 2]
    assert said.count("another process of this run has ended") == said.count("minibert: error") == 1


def test_what_only_one_process_finds_wrong_is_the_one_message(folder, tmp_path):
    """The text is read by the first process alone."""
    (tmp_path / "empty.txt").write_text("\n", "utf-8")
    job = ["pretrain", tmp_path / "empty.txt", "--out", tmp_path / "run", *TRAIN]
    codes, said, _ = drive(2, tmp_path, jobs=[job], dies=(-1, READS, 1))
    assert codes == [2, 2]
    assert said.count("minibert: error") == 1
    assert "no text" in said


@pytest.mark.parametrize(("name", "job"), [("corpus", "pretrain"), ("input", "predict")])
def test_standard_input_is_not_shared(name, job, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="standard input can be read by one process only"):
        run(job, "-", *(["--out", tmp_path / "run"] if job == "pretrain" else ["--model", tmp_path]))


# ---- under a launcher

AT = """
import importlib, os, signal, sys, time
import minibert.training.pretraining as module
how, call, original, calls = sys.argv[1], int(sys.argv[2]), module.loss_sums, []
def loss_sums(model, batch):
    calls.extend([1] * (type(model).__name__ == "DistributedDataParallel"))  # others are no steps
    if len(calls) == call and os.environ["RANK"] == "1":
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(3)  # until the launcher has passed it on
    return original(model, batch)
module.loss_sums = loss_sums
open(sys.argv[3], "a").write(f"{os.getpid()} ")
sys.argv[1:] = sys.argv[4:]
from minibert.cli import main
main()
"""
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
                   "--mixed_precision", "no", "--dynamo_backend", "no"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "how", "call", "saved"), [("accelerate", "die", 17, 4), ("torchrun", "tell", 10, 3)]
)
def test_under_a_launcher(folder, tmp_path, launcher, how, call, saved):
    """A process dies in step 6; SIGTERM comes to the launcher in step 4. Three micro-batches are a step."""
    (tmp_path / "at.py").write_text(AT)
    words = [*LAUNCHERS[launcher], tmp_path / "at.py", how, call, tmp_path / "pids", "pretrain", folder / "corpus.txt",
             "--out", tmp_path / "run", *TRAIN]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], capture_output=True, text=True, timeout=90,
        env={**os.environ, "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip
    time.sleep(0.1)
    assert [pid for pid in (tmp_path / "pids").read_text().split() if Path(f"/proc/{pid}").exists()] == []
    assert done.returncode == 1  # the launcher's, whatever it was
    assert "[rank" not in done.stderr  # so begin the tracebacks of processes
    if how == "die":
        assert done.stderr.count("minibert: error") == 1
        assert "error: process 0: another process of this run has ended" in done.stderr
    else:
        assert done.stderr.count("SIGTERM: saving, then ending") == 1
        assert done.stderr.count("resume with: `accelerate launch -m minibert pretrain --out") == 1
        assert "minibert: error" not in done.stderr
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == [f"step-{saved:06d}"]
    run(*resuming(tmp_path, "run"))
    same(lines(tmp_path / "run"), lines(folder / "one-pretrain"))
