"""`minibert finetune` as a whole: choosing, resuming, seeds, freezing, and what is refused before the first step."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from minibert.checkpoint.pretrained import BertModel
from minibert.config import FinetuneConfig
from minibert.console import Console
from minibert.errors import UserError
from minibert.finetune.seed import few_steps_in_words
from minibert.finetune.story import finetune
from minibert.model.bert import BertConfig
from minibert.tasks import find_tasks
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minibert.training import state

GOOD, BAD, OTHER = "good fine great nice".split(), "bad poor awful sad".split(), "film food day talk one".split()
Cls = find_tasks()["cls"]
SMALL = {
    "max_length": 16, "batch_size": 8, "lr": 1e-3, "epochs": 2.0, "precision": "fp32", "log_every": 1,
    "dropout": 0.1, "attention_dropout": 0.1,
}  # fmt: skip


def make_file(path, n, seed, labels=("neg", "pos")):
    draw = random.Random(seed)
    rows = ["text,label"]
    for i in range(n):
        words = draw.choices(OTHER, k=draw.randint(1, 6))
        words.insert(draw.randint(0, len(words)), draw.choice((BAD, GOOD)[i % 2]))
        rows.append(f"{' '.join(words)},{labels[i % 2]}")
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *GOOD, *BAD, *OTHER], lowercase=True)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **shape)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {
        name: make_file(folder / f"{name}.csv", n, seed)
        for name, n, seed in (("train", 45, 0), ("dev", 20, 1), ("test", 21, 2))
    }


def run(model, files, out, **changes):
    resume = changes.pop("resume", False)
    console = changes.pop("console", Console(silent=True))
    return finetune(Cls, Cls.Config(**{**SMALL, **changes}), model, out, **files, resume=resume, console=console)


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_leaves_the_model_the_scores_and_what_was_read(model, files, tmp_path):
    metrics = run(model, files, tmp_path / "run", epochs=6.0, lr=1e-2)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "settings.json",
        "log.jsonl", "metrics.json", "data.json", "answers.json", "machine.json", "report.html", "README.md",
    }  # fmt: skip
    assert json.loads((tmp_path / "run/metrics.json").read_text()) == metrics
    assert {"accuracy", "f1", "macro_f1", "mcc", "loss"} <= set(metrics["dev"])
    assert metrics["dev"]["accuracy"] > 0.9
    lines = log_of(tmp_path / "run")
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 37))  # 45 rows in batches of 8: 6 steps, 6 epochs
    assert set(steps[0]) >= {"step", "epoch", "loss", "lr", "grad_norm", "tokens", "tokens_per_second"}
    assert [line["step"] for line in lines if "eval" in line] == [6, 12, 18, 24, 30, 36]
    assert steps[-1]["epoch"] == 5
    data = json.loads((tmp_path / "run/data.json").read_text())
    assert data["labels"] == ["neg", "pos"]
    assert data["train"]["examples"] == 45
    tokens = {split: data[split]["tokens"] for split in ("train", "dev", "test")}
    assert steps[-1]["tokens"] == 6 * tokens["train"]


def test_the_kept_model_is_that_of_the_best_epoch(model, files, tmp_path):
    metrics = run(model, files, tmp_path / "run", epochs=5.0, lr=3e-3, best="loss")
    losses = [line["eval"]["loss"] for line in log_of(tmp_path / "run") if "eval" in line]
    best = min(range(5), key=losses.__getitem__)
    assert metrics["best_epoch"] == best + 1
    assert metrics["dev"]["loss"] == pytest.approx(losses[best], abs=1e-6)


def test_patience_ends_the_training(model, files, tmp_path):
    metrics = run(model, files, tmp_path / "run", epochs=30.0, patience=2, best="accuracy", lr=3e-3)
    values = [line["eval"]["accuracy"] for line in log_of(tmp_path / "run") if "eval" in line]
    assert len(values) == metrics["best_epoch"] + 2 < 30


def test_without_dev_the_last_model_is_kept(model, files, tmp_path):
    metrics = run(model, {"train": files["train"]}, tmp_path / "run")
    assert "dev" not in metrics
    assert metrics["best_step"] == metrics["steps"] == 12


def test_seeds_give_mean_deviation_and_the_best(model, files, tmp_path):
    metrics = run(model, files, tmp_path / "run", seeds=3, epochs=3.0)
    assert [one["seed"] for one in metrics["seeds"]] == [0, 1, 2]
    accuracies = [one["test"]["accuracy"] for one in metrics["seeds"]]
    assert metrics["mean"]["test"]["accuracy"] == pytest.approx(sum(accuracies) / 3)
    best = max(metrics["seeds"], key=lambda one: one["dev"]["accuracy"])
    assert metrics["seed"] == best["seed"]
    assert metrics["test"] == best["test"]
    assert (tmp_path / "run/model.safetensors").is_file()
    assert not (tmp_path / "run/seeds/0/model.safetensors").exists()
    assert (tmp_path / "run/seeds/2/log.jsonl").is_file()
    alone = run(model, files, tmp_path / "alone", seed=best["seed"], epochs=3.0)
    assert alone["test"] == best["test"]
    ours, other = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "alone"))
    assert all(torch.equal(ours[key], other[key]) for key in other)


def test_accumulation_gives_the_same_losses(model, files, tmp_path):
    curves = []
    for micro in (0, 4, 2):
        run(model, files, tmp_path / str(micro), micro_batch_size=micro, dropout=0.0, attention_dropout=0.0)
        curves.append([line["loss"] for line in log_of(tmp_path / str(micro)) if "loss" in line])
    assert curves[1] == pytest.approx(curves[0], abs=1e-5)
    assert curves[2] == pytest.approx(curves[0], abs=1e-5)


class EndsAt(Exception):
    pass


@pytest.mark.parametrize(("ends_at", "settings"), [
    (6, {}),  # at the end of an epoch
    (8, {"save_every": 1}),  # in mid-epoch
    (9, {"save_every": 1, "micro_batch_size": 4}),
    (12, {"patience": 1}),
])  # fmt: skip
def test_resume_is_the_same_run_bit_for_bit(model, files, tmp_path, monkeypatch, ends_at, settings):
    settings = {"epochs": 4.0, **settings}
    whole = run(model, files, tmp_path / "whole", **settings)
    real = state.save_state

    def dies(folder, *rest):
        real(folder, *rest)
        if folder.name == f"step-{ends_at:06d}":
            raise EndsAt

    monkeypatch.setattr(state, "save_state", dies)
    with pytest.raises(EndsAt):
        run(model, files, tmp_path / "cut", **settings)
    monkeypatch.undo()
    cut = run(model, files, tmp_path / "cut", **settings, resume=True)
    assert cut == whole
    ours, other = (load_file(tmp_path / name / "model.safetensors") for name in ("cut", "whole"))
    assert all(torch.equal(ours[key], other[key]) for key in other)
    lines = [
        [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in log_of(tmp_path / name)]
        for name in ("cut", "whole")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("which", [1, 2, 3])  # the dev measurements of epochs 1, 2 and 3
def test_a_measurement_that_a_signal_cuts_off_is_made_by_the_run_that_goes_on(
    model, files, tmp_path, monkeypatch, which
):
    whole = run(model, files, tmp_path / "whole", epochs=3.0)
    from minibert.finetune import run as module

    original, calls = module.infer, iter(range(1, 100))

    def told(*args, **settings):
        if next(calls) == which:
            signal.raise_signal(signal.SIGTERM)
        return original(*args, **settings)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(module, "infer", told)
        run(model, files, tmp_path / "cut", epochs=3.0)
    assert run(model, files, tmp_path / "cut", epochs=3.0, resume=True) == whole
    lines = [
        [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in log_of(tmp_path / name)]
        for name in ("cut", "whole")
    ]
    assert lines[0] == lines[1]


def test_a_batch_larger_than_the_file_is_the_file(model, files, tmp_path):
    metrics = run(model, {"train": files["train"]}, tmp_path / "run", batch_size=10**8, epochs=1.0)
    assert metrics["steps"] == 1


def test_records_without_a_token_train_nothing(model, tmp_path):
    blank = tmp_path / "blank.csv"
    blank.write_text("text,label\n" + '" ",pos\n\u200b,neg\n' * 3, "utf-8")
    with pytest.raises(UserError, match="no record holds a token of text"):
        run(model, {"train": blank}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resume_among_seeds(model, files, tmp_path, monkeypatch):
    whole = run(model, files, tmp_path / "whole", seeds=3)
    real = state.save_state
    calls = []

    def dies(folder, *rest):
        real(folder, *rest)
        calls.append(folder)
        if len(calls) == 3:  # the first measurement of the second seed
            raise EndsAt

    monkeypatch.setattr(state, "save_state", dies)
    with pytest.raises(EndsAt):
        run(model, files, tmp_path / "cut", seeds=3)
    monkeypatch.undo()
    assert run(model, files, tmp_path / "cut", seeds=3, resume=True) == whole


def test_resume_with_other_files_is_refused(model, files, tmp_path, monkeypatch):
    mine = {name: tmp_path / path.name for name, path in files.items()}
    for name, path in files.items():
        mine[name].write_bytes(path.read_bytes())
    real = state.save_state

    def dies(folder, *rest):
        real(folder, *rest)
        raise EndsAt

    monkeypatch.setattr(state, "save_state", dies)
    with pytest.raises(EndsAt):
        run(model, mine, tmp_path / "run")
    monkeypatch.undo()
    make_file(mine["train"], 45, 9)
    with pytest.raises(UserError, match="the labelled files are not those that this run was started with"):
        run(model, mine, tmp_path / "run", resume=True)
    mine["train"].write_bytes(files["train"].read_bytes())
    assert run(model, mine, tmp_path / "run", resume=True)["dev"]


def test_class_weights_count_in_every_loss(model, files, tmp_path):
    metrics = run(model, files, tmp_path / "run", class_weights="balanced", best="loss")
    losses = [line["eval"]["loss"] for line in log_of(tmp_path / "run") if "eval" in line]
    assert metrics["dev"]["loss"] == pytest.approx(min(losses), abs=1e-6)


def test_the_best_checkpoint_outlives_the_newer_ones(model, files, tmp_path, monkeypatch):
    """The best of dev is early and far behind what --keep would hold."""
    monkeypatch.setattr(
        Cls, "score", lambda self, examples, predictions: {"accuracy": 1.0 if next(count) == 1 else 0.5}
    )
    count = iter(range(1000))
    metrics = run(model, files, tmp_path / "run", epochs=6.0, best="accuracy")
    assert metrics["best_epoch"] == 2
    other = run(model, files, tmp_path / "other", epochs=6.0, best="accuracy")  # no longer the second one: all equal
    assert other["best_epoch"] == 1
    ours, last = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "other"))
    assert any(not torch.equal(ours[key], last[key]) for key in last)


def test_a_best_checkpoint_that_is_lost_is_said_and_another_is_kept(model, files, tmp_path, monkeypatch, capsys):
    """The newest checkpoint was the best and is damaged; the one before names a best that is deleted since."""
    scores = iter([0.6, 0.5, 0.9, 0.7, 0.8, 0.8, 0.8])  # epochs 1 to 3, then 3 and 4 of the resumed run, dev, test
    monkeypatch.setattr(Cls, "score", lambda self, examples, predictions: {"accuracy": next(scores)})
    real = state.keep_newest

    def dies(checkpoints, keep, step, **also):
        real(checkpoints, keep, step, **also)
        if step == 18:
            raise EndsAt

    with monkeypatch.context() as patch, pytest.raises(EndsAt):
        patch.setattr(state, "keep_newest", dies)
        run(model, files, tmp_path / "run", epochs=4.0, best="accuracy", keep=2)
    kept = sorted((tmp_path / "run/checkpoints").iterdir())
    assert len(kept) == 2
    (kept[1] / "model.safetensors").write_bytes(b"damaged")
    metrics = run(model, files, tmp_path / "run", epochs=4.0, best="accuracy", keep=2, resume=True, console=Console())
    said = capsys.readouterr().err
    assert "is not complete" in said
    assert "the best so far, is lost (training_state/manifest.json is missing or broken)" in said
    assert metrics["best_epoch"] == 4


@pytest.mark.parametrize(("what", "frozen"), [
    ("embeddings", ["bert.embeddings."]),
    ("1", ["bert.embeddings.", "bert.encoder.layer.0."]),
    ("2", ["bert.embeddings.", "bert.encoder.layer."]),
])  # fmt: skip
def test_what_is_frozen_stays(model, files, tmp_path, what, frozen):
    run(model, files, tmp_path / "run", freeze=what)
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "run/model.safetensors")
    for name, weight in after.items():
        same = name.removeprefix("bert.") in before and torch.equal(weight, before[name.removeprefix("bert.")])
        # key biases have no gradient: softmax does not see them
        assert same == name.startswith(tuple(frozen)) or name.endswith("key.bias"), name


def test_a_head_for_other_labels_starts_fresh_and_is_named(model, files, tmp_path, capsys):
    run(model, {"train": files["train"], "dev": files["dev"]}, tmp_path / "first", epochs=6.0, lr=1e-2)
    capsys.readouterr()
    same = run(tmp_path / "first", files, tmp_path / "same", console=Console(), epochs=1.0, lr=1e-9)
    said = capsys.readouterr().err
    assert "start fresh" not in said
    assert same["dev"]["accuracy"] > 0.7  # it goes on from the head that was learnt
    others = {
        name: make_file(tmp_path / f"{name}.csv", 20, 0, labels=("down", "up")) for name in ("train", "dev")
    }  # fmt: skip
    run(tmp_path / "first", others, tmp_path / "second", console=Console())
    said = capsys.readouterr().err
    assert "start fresh: classifier.weight, classifier.bias" in said


def test_scratch_takes_nothing_but_the_shape(model, files, tmp_path):
    run(model, files, tmp_path / "run", scratch=True, seed=1, lr=1e-12)
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "run/model.safetensors")
    words = "embeddings.word_embeddings.weight"
    assert after[f"bert.{words}"].shape == before[words].shape
    assert (after[f"bert.{words}"] - before[words]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("changes", "parts", "message"),
    [
        ({"best": "acuracy"}, ("train", "dev"), r"--best: there is no metric 'acuracy'\n  fix: one of accuracy, "),
        ({"best": "loss"}, ("train",), "--best: needs a dev set"),
        ({"patience": 1}, ("train",), "--patience: needs a dev set"),
        ({"seeds": 2}, ("train",), "--seeds: needs a dev set"),
        ({"max_length": 33}, ("train", "dev"), "--max-length: rows of 33 tokens are longer than the model's 32"),
        ({"freeze": "3"}, ("train", "dev"), "--freeze 3: the model has 2 layers"),
    ],
)
def test_refused_before_the_first_step(model, files, tmp_path, changes, parts, message):
    with pytest.raises(UserError, match=message):
        run(model, {name: files[name] for name in parts}, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_an_unseen_label_is_refused_with_its_place(model, files, tmp_path):
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\ngood,pos\nfine,neutral\n", "utf-8")
    with pytest.raises(UserError, match=r"dev.csv:3: .*neutral"):
        run(model, {**files, "dev": dev}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_before_its_first_checkpoint_may_begin_anew(model, files, tmp_path):
    with pytest.raises(UserError, match="is not finite"):
        run(model, files, tmp_path / "run", lr=1e30)
    assert run(model, files, tmp_path / "run")["dev"]


def test_a_model_of_another_script_is_refused(model, files, tmp_path):
    chinese = tmp_path / "zh.csv"
    chinese.write_text("text,label\n" + "今天我要上学了,pos\n明天不去,neg\n" * 10, "utf-8")
    with pytest.raises(UserError, match=r"of the tokens are .UNK.: the vocabulary does not know this text"):
        run(model, {"train": chinese}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_data_as_dev_is_warned_of(model, files, tmp_path, capsys):
    run(model, {"train": files["train"], "dev": files["train"]}, tmp_path / "run", console=Console(quiet=True))
    assert "dev is the training file" in capsys.readouterr().err


def test_nan_weights_are_refused(model, files, tmp_path):
    broken = BertModel.from_pretrained(model)
    with torch.no_grad():
        broken.embeddings.LayerNorm.weight[3] = float("nan")
    broken.save_pretrained(tmp_path / "broken")
    BertTokenizer.from_pretrained(model).save_pretrained(tmp_path / "broken")
    with pytest.raises(UserError, match="1 weights are not finite"):
        run(tmp_path / "broken", files, tmp_path / "run")


def test_a_model_that_cannot_be_opened_leaves_nothing_where_there_are_seeds(model, files, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(UserError, match="cut off"):
        run(broken, files, tmp_path / "run", seeds=2)
    assert not (tmp_path / "run").exists()


def test_dry_run_reads_and_writes_nothing(model, files, tmp_path):
    facts = finetune(
        Cls, Cls.Config(**SMALL), model, tmp_path / "run", **files, dry_run=True, console=Console(silent=True)
    )
    assert facts["train"]["examples"] == 45
    assert not (tmp_path / "run").exists()


def command(*words):
    return [sys.executable, "-m", "minibert", *map(str, words)]


def test_sigterm_saves_and_resume_ends_the_same(model, files, tmp_path):
    flags = ["--max-length", 16, "--batch-size", 8, "--lr", 1e-3, "--precision", "fp32", "--epochs", 40, "--recipe"]
    recipe = tmp_path / "empty.toml"
    recipe.write_text("epochs = 3\n")
    words = ["finetune", "--task", "cls", "--model", model, "--train", files["train"], "--dev", files["dev"]]
    whole = subprocess.run(command(*words, "--out", tmp_path / "whole", *flags, recipe), capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    with subprocess.Popen(
        command(*words, "--out", tmp_path / "cut", *flags, recipe), stderr=subprocess.PIPE, text=True
    ) as process:
        log = tmp_path / "cut/log.jsonl"
        end = time.monotonic() + 60
        while not (log.is_file() and '"step": 10,' in log.read_text()) and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait(30) == 143, said
    assert f"minibert finetune --out {tmp_path / 'cut'} --resume" in said
    again = command(*words[:3], "--out", tmp_path / "cut", "--resume")  # what it was started with may be said again
    done = subprocess.run(again, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    metrics = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("whole", "cut")]
    assert metrics[0] == metrics[1]


def test_the_bar_ends_on_the_last_measurement(model, files, tmp_path, ending):
    run(model, files, tmp_path / "run", epochs=2.0, console=ending)
    last = [line for line in log_of(tmp_path / "run") if "eval" in line][-1]
    assert ending.standing.parts[2] == f"dev accuracy {last['eval']['accuracy']:.4g} (step {last['step']})"


def test_few_steps_are_warned_of_before_them(model, files, tmp_path, capsys):
    run(model, {"train": files["train"]}, tmp_path / "run", console=Console(), epochs=0.2)
    said = capsys.readouterr().err
    assert said.index("few steps: a model may learn next to nothing") < said.index("step 1")


@pytest.mark.parametrize(
    ("lr", "batch_size", "said"),
    [
        (2e-5, 32, "more --epochs, a smaller --batch-size or a higher --lr (1e-4; 3e-4 for small models)"),
        (1e-4, 8, "more --epochs or a higher --lr (3e-4 for small models)"),
        (3e-4, 8, "more --epochs"),
    ],
    ids=["the defaults", "half done", "all done but one"],
)
def test_of_few_steps_is_advised_what_is_not_done_yet(lr, batch_size, said):
    config = FinetuneConfig(lr=lr, batch_size=batch_size)
    assert few_steps_in_words(config).endswith(f"What mends it: {said}")


def test_gradient_checkpointing_changes_nothing_but_memory(model, files, tmp_path):
    train = {"train": files["train"], "dev": files["dev"]}
    scores = [
        run(model, train, tmp_path / str(less), epochs=1.0, gradient_checkpointing=less)["dev"]
        for less in (False, True)
    ]
    assert scores[0] == scores[1]


def test_rows_of_two_texts_need_two_types_of_tokens(checkpoint_for, tmp_path):
    model = checkpoint_for("red cat blue dog", tmp_path / "model", type_vocab_size=1)
    (tmp_path / "a.csv").write_text("text,pair,label\nred,cat,a\nblue,dog,b\n", "utf-8")
    kind = find_tasks()["cls"]
    config = kind.Config(pair_column="pair", max_length=16, epochs=1)
    with pytest.raises(UserError, match="has one token type; rows of two texts need two"):
        finetune(kind, config, model, tmp_path / "run", train=tmp_path / "a.csv", console=Console(silent=True))
    assert not (tmp_path / "run").exists()
