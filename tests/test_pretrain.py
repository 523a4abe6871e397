"""The main job, end to end on small text: learning, exactness of accumulation, processes, resuming and clocks."""

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from minibert.config import PretrainConfig
from minibert.console import Console
from minibert.errors import UserError
from minibert.pretrain import pretrain
from minibert.run_folder import load_settings
from minibert.training import state

SMALL = {
    "layers": 2, "hidden_size": 32, "heads": 2, "vocab_size": 100, "max_length": 32, "batch_size": 16, "steps": 10,
    "micro_batch_size": 16, "log_every": 1, "precision": "fp32", "eval_every": 0, "save_every": 0, "dropout": 0.1,
    "eval_share": 0.1, "max_positions": 64, "workers": 1,
}  # fmt: skip


def config(**changes):
    settings = {**SMALL, **changes}
    if "minutes" in changes or "epochs" in changes:
        del settings["steps"]
    return PretrainConfig(**settings)


def train(corpus, out, **changes):
    return pretrain([corpus], out, config(**changes), console=Console(silent=True))


def weights(run):
    return load_file(run / "model.safetensors")


def log(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def losses(run):
    keys = ("step", "epoch", "loss", "mlm_loss", "nsp_loss", "lr", "grad_norm", "tokens")
    return [[line[key] for key in keys] for line in log(run) if "loss" in line]


def command(*args):
    return [sys.executable, "-m", "minibert", "pretrain", *map(str, args)]


def flags(**changes):
    found = []
    for name, value in {**SMALL, **changes}.items():
        found += [f"--{name.replace('_', '-')}", str(value)]
    return found


def test_run_folder_is_complete_and_opens_in_transformers(corpus, tmp_path):
    from transformers import AutoModelForPreTraining, AutoTokenizer

    metrics = train(corpus, tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "settings.json",
        "log.jsonl", "metrics.json", "data.json", "answers.json", "machine.json", "report.html", "README.md",
    }  # fmt: skip
    assert json.loads((tmp_path / "run/metrics.json").read_text()) == metrics
    wanted = "mlm_loss mlm_accuracy perplexity nsp_accuracy masked_loss masked_accuracy unigram_loss unigram_accuracy"
    assert set(wanted.split()) <= set(metrics)
    assert 0.5 <= metrics["nsp_majority_accuracy"] < 1
    model, info = AutoModelForPreTraining.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    out = model(**tokenizer(["red cat sings.", "old dog"], padding=True, return_tensors="pt"))
    assert torch.isfinite(out.prediction_logits).all()
    assert model.config.vocab_size == len((tmp_path / "run/vocab.txt").read_text("utf-8").split("\n")) - 1


def test_log_has_the_named_fields_and_a_first_loss_near_chance(corpus, tmp_path):
    train(corpus, tmp_path / "run")
    first = next(line for line in log(tmp_path / "run") if "loss" in line)
    assert set(first) == {
        "step", "epoch", "loss", "mlm_loss", "nsp_loss", "lr", "grad_norm", "tokens", "tokens_per_second",
    }  # fmt: skip
    entries = len((tmp_path / "run/vocab.txt").read_text("utf-8").splitlines())
    assert first["mlm_loss"] == pytest.approx(torch.tensor(float(entries)).log().item(), abs=0.15)
    assert first["nsp_loss"] == pytest.approx(0.693, abs=0.03)
    assert first["loss"] == pytest.approx(first["mlm_loss"] + first["nsp_loss"])


def test_training_learns(text_of, tmp_path):
    path = tmp_path / "text.txt"  # each word decides the next: a masked one can be told from its neighbours
    cycle = "red blue old new cat dog sun moon".split()
    lines = [" ".join(cycle[(start + i) % 8] for i in range(10)) for start in range(8)]
    path.write_text("\n\n".join("\n".join(lines) for _ in range(30)), encoding="utf-8")
    metrics = train(
        path, tmp_path / "run", steps=150, optimizer="muon", init="neighbour", dropout=0.0, lr=3e-3, eval_share=0.0
    )
    assert "mlm_loss" not in metrics  # nothing is held out
    last = [line["mlm_loss"] for line in log(tmp_path / "run") if "loss" in line][-1]
    assert last < 1.0  # ln 8 = 2.08 is what word frequencies alone give


@pytest.mark.parametrize("micro", [8, 4, 1])
def test_accumulated_batches_are_the_whole_batch(corpus, tmp_path, micro):
    train(corpus, tmp_path / "whole", dropout=0.0, steps=4)
    train(corpus, tmp_path / "parts", dropout=0.0, steps=4, micro_batch_size=micro)
    for a, b in zip(losses(tmp_path / "whole"), losses(tmp_path / "parts"), strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    # AdamW's first steps move every weight by about the rate whatever the gradient's size, so weights whose gradient
    # is rounding noise differ most: 1e-6 is a thousandth of the 1e-3 that a step moves
    assert max((whole[k] - parts[k]).abs().max() for k in whole) < 2e-6


class Stop(Exception):
    """A run that ends in the middle, as after kill -9."""


def stopped_after(monkeypatch, step):
    from minibert.training import data as module

    def noted(*args, **kwargs):
        for done in original(*args, **kwargs):
            yield done
            if done.step == step:
                raise Stop

    original = module.train_steps
    monkeypatch.setattr(module, "train_steps", noted)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("at", [5, 8])
def test_resumed_run_is_the_same_run_bit_for_bit(corpus, tmp_path, monkeypatch, at, optimizer):
    changes = {"steps": 12, "micro_batch_size": 8, "save_every": 1, "eval_every": 4, "optimizer": optimizer}
    whole = train(corpus, tmp_path / "whole", **changes)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stopped_after(patch, at)
        train(corpus, tmp_path / "parts", **changes)
    assert not (tmp_path / "parts/metrics.json").exists()
    torch.manual_seed(999)  # the global generator is nobody's business
    settings = config(**changes)
    parts = pretrain([corpus], tmp_path / "parts", settings, resume=True, console=Console(silent=True))
    assert parts == whole
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert {line[1] for line in losses(tmp_path / "whole")} >= {0, 1}  # an epoch did end in between


def test_resume_passes_over_a_broken_checkpoint_and_names_it(corpus, tmp_path, monkeypatch, capsys):
    changes = {"steps": 6, "save_every": 2}
    train(corpus, tmp_path / "whole", **changes)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stopped_after(patch, 5)
        train(corpus, tmp_path / "run", **changes)
    newest = tmp_path / "run/checkpoints/step-000004/model.safetensors"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    pretrain([corpus], tmp_path / "run", config(**changes), resume=True, console=Console())
    said = capsys.readouterr().err
    assert "step-000004" in said
    assert "step-000002" in said
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_saves_ends_and_can_be_resumed(corpus, tmp_path, number, code):
    out = tmp_path / "run"
    process = subprocess.Popen(
        command(corpus, "--out", out, *flags(steps=100_000)), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (out / "log.jsonl").is_file() and '"loss"' in (out / "log.jsonl").read_text():
            break
        time.sleep(0.1)
    process.send_signal(number)
    sent = time.monotonic()
    _, said = process.communicate(timeout=40)
    assert time.monotonic() - sent < 30
    assert process.returncode == code, said
    assert "--resume" in said
    assert "Traceback" not in said
    (saved,) = (out / "checkpoints").glob("step-*")
    step = int(re.fullmatch(r"step-(\d+)", saved.name)[1])
    assert log(out)[-1]["step"] == step


class Clock:
    """A clock that only training (a tenth of a second a micro-batch) and measuring (half a second) move."""

    def __init__(self, monkeypatch):
        from minibert import pretrain as module
        from minibert.training import optim

        self.now = 1000.0
        monkeypatch.setattr(module, "check_memory", lambda *args, **kwargs: None)  # it looks at batches too
        for place in (module, optim):
            monkeypatch.setattr(place, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module.pretraining, "loss_sums", self.taking(0.1, module.pretraining.loss_sums))
        monkeypatch.setattr(module.pretraining, "measure", self.taking(0.5, module.pretraining.measure))

    def taking(self, seconds, function):
        def slow(*args, **kwargs):
            found = function(*args, **kwargs)
            self.now += seconds
            return found

        return slow


def test_minutes_end_in_time_with_the_schedule_complete(corpus, tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    train(corpus, tmp_path / "run", minutes=0.2, eval_every=50, save_every=40)
    lines = [line for line in log(tmp_path / "run") if "loss" in line]
    # 12 s: three measurements of .5 s (begin, step 50, step 100) and one to come leave 10 s of steps
    assert clock.now - 1000 == pytest.approx(12, abs=0.051)
    assert len(lines) == 100
    assert lines[-1]["lr"] < 0.06 * max(line["lr"] for line in lines)


def test_minutes_are_kept_over_a_resume(corpus, tmp_path, monkeypatch):
    changes = {"minutes": 0.15, "save_every": 1}
    with monkeypatch.context() as patch, pytest.raises(Stop):
        Clock(patch)
        stopped_after(patch, 60)
        train(corpus, tmp_path / "run", **changes)
    (newest, _) = state.newest_complete(tmp_path / "run/checkpoints")
    done = state.load_place(newest)["elapsed"]
    assert done == pytest.approx(0.5 + 6.0, abs=0.11)
    with monkeypatch.context() as patch:
        clock = Clock(patch)
        pretrain([corpus], tmp_path / "run", config(**changes), resume=True, console=Console(silent=True))
    assert clock.now - 1000 == pytest.approx(9 - done, abs=0.051)  # what was left of 9 seconds
    lines = [line for line in log(tmp_path / "run") if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["lr"] < 0.02 * max(line["lr"] for line in lines)


def test_minutes_that_leave_no_time_to_train_are_refused(corpus, tmp_path, monkeypatch):
    Clock(monkeypatch)
    with pytest.raises(UserError, match=r"0\.0166 minutes leave no time to train"):
        train(corpus, tmp_path / "run", minutes=0.0166)  # .996 s, and measuring twice takes one
    assert not (tmp_path / "run/model.safetensors").exists()
    train(corpus, tmp_path / "other", minutes=0.018)
    assert len(losses(tmp_path / "other")) == 1


def test_epochs_count_passes_over_the_examples(corpus, tmp_path, monkeypatch):
    from minibert.training.data import PretrainingData

    monkeypatch.setattr(PretrainingData, "count", lambda self: 45)
    train(corpus, tmp_path / "run", epochs=2)
    assert losses(tmp_path / "run")[-1][0] == 6  # ceil(2 * 45 / 16)


def test_resume_goes_on_with_the_old_text_or_refuses_another(corpus, tmp_path, monkeypatch):
    changes = {"steps": 6, "save_every": 2}
    whole = train(corpus, tmp_path / "whole", **changes)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stopped_after(patch, 3)
        train(corpus, tmp_path / "run", **changes)
    text = corpus.read_text("utf-8")
    corpus.write_text("quite another text.\n" + text, encoding="utf-8")
    monkeypatch.setenv("MINIBERT_CACHE", str(tmp_path / "lost"))  # the store is not there any more
    with pytest.raises(UserError, match="not the one that this run was started with"):
        pretrain([corpus], tmp_path / "run", config(**changes), resume=True, console=Console(silent=True))
    corpus.write_text(text, encoding="utf-8")
    again = pretrain([corpus], tmp_path / "run", config(**changes), resume=True, console=Console(silent=True))
    assert again == whole


def test_resume_needs_no_text_while_the_store_is_there(corpus, tmp_path, monkeypatch):
    changes = {"steps": 6, "save_every": 2}
    whole = train(corpus, tmp_path / "whole", **changes)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stopped_after(patch, 3)
        train(corpus, tmp_path / "run", **changes)
    corpus.unlink()
    again = pretrain([corpus], tmp_path / "run", config(**changes), resume=True, console=Console(silent=True))
    assert again == whole


def test_signal_while_measuring_loses_nothing(corpus, tmp_path, monkeypatch):
    from minibert import pretrain as module

    whole = train(corpus, tmp_path / "whole", steps=4)
    original = module.pretraining.measure

    def told(*args):
        found = original(*args)
        if len(losses(tmp_path / "run")) == 4:  # the last measurement, after the last step
            signal.raise_signal(signal.SIGTERM)
        return found

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(module.pretraining, "measure", told)
        train(corpus, tmp_path / "run", steps=4)
    assert ended.value.code == 143
    assert not (tmp_path / "run/metrics.json").exists()
    assert pretrain([corpus], tmp_path / "run", config(steps=4), resume=True, console=Console(silent=True)) == whole


@pytest.mark.parametrize("which", [1, 2, 3])  # before the first step, in mid-training, at the end
def test_a_measurement_that_a_signal_cuts_off_is_made_by_the_run_that_goes_on(corpus, tmp_path, monkeypatch, which):
    from minibert import pretrain as module

    changes = {"steps": 6, "eval_every": 3, "save_every": 0}
    whole = train(corpus, tmp_path / "whole", **changes)
    original, calls = module.pretraining.measure, itertools.count(1)

    def told(*args):
        if next(calls) == which:
            signal.raise_signal(signal.SIGTERM)
        return original(*args)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(module.pretraining, "measure", told)
        train(corpus, tmp_path / "run", **changes)
    again = pretrain([corpus], tmp_path / "run", config(**changes), resume=True, console=Console(silent=True))
    assert again == whole
    logs = [
        [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in log(tmp_path / name)]
        for name in ("whole", "run")
    ]
    assert logs[0] == logs[1]
    assert sum("eval" in line for line in logs[0]) == 3


def test_second_phase_takes_the_last_share_with_longer_examples(corpus, tmp_path):
    changes = {"steps": 10, "long_length": 64, "long_share": 0.3}
    train(corpus, tmp_path / "run", **changes)
    tokens = [0] + [line["tokens"] for line in log(tmp_path / "run") if "loss" in line]
    per_step = [b - a for a, b in itertools.pairwise(tokens)]
    assert len(per_step) == 10
    assert max(per_step[:7]) <= 16 * 32
    assert min(per_step[7:]) > 16 * 32


def test_resume_in_the_second_phase_is_exact(corpus, tmp_path, monkeypatch):
    changes = {"steps": 10, "long_length": 64, "long_share": 0.5, "save_every": 1}
    whole = train(corpus, tmp_path / "whole", **changes)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stopped_after(patch, 7)
        train(corpus, tmp_path / "parts", **changes)
    parts = pretrain([corpus], tmp_path / "parts", config(**changes), resume=True, console=Console(silent=True))
    assert parts == whole


def test_from_goes_on_with_weights_and_tokenizer(corpus, tmp_path, capsys):
    first = train(corpus, tmp_path / "first", steps=60, lr=3e-3)
    again = pretrain(
        [corpus], tmp_path / "again", config(steps=1, lr=1e-9), start_from=tmp_path / "first", console=Console()
    )
    begins = log(tmp_path / "again")[0]["eval"]
    assert begins["mlm_loss"] == pytest.approx(first["mlm_loss"], abs=1e-4)
    assert again["mlm_loss"] == pytest.approx(first["mlm_loss"], abs=1e-3)
    assert (tmp_path / "again/vocab.txt").read_bytes() == (tmp_path / "first/vocab.txt").read_bytes()
    assert "start fresh" not in capsys.readouterr().err


def test_words_begin_by_cooccurrence_and_only_in_a_new_model(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MINIBERT_CACHE", str(tmp_path / "cache"))
    still = {"word_init": "cooccurrence", "steps": 1, "lr": 1e-12}
    pretrain([corpus], tmp_path / "a", config(**still), console=Console())
    assert "word vectors: begin by which words stand near each other (" in capsys.readouterr().err
    pretrain([corpus], tmp_path / "b", config(**still), console=Console())
    assert "near each other (made before)" in capsys.readouterr().err
    words = weights(tmp_path / "a")["bert.embeddings.word_embeddings.weight"]
    assert torch.equal(words, weights(tmp_path / "b")["bert.embeddings.word_embeddings.weight"])
    lengths = words.norm(dim=1)
    seen = (lengths - 0.02 * 32**0.5).abs() < 1e-4  # of one length; drawn ones are not
    pretrain([corpus], tmp_path / "random", config(**{**still, "word_init": "random"}), console=Console(silent=True))
    drawn = weights(tmp_path / "random")["bert.embeddings.word_embeddings.weight"]
    assert seen.sum() > 10
    torch.testing.assert_close(words[~seen], drawn[~seen])  # letters that the text never has alone
    assert load_settings(tmp_path / "a")["settings"]["word_init"] == "cooccurrence"
    pretrain([corpus], tmp_path / "c", config(**still), start_from=tmp_path / "a", console=Console())
    assert "word vectors" not in capsys.readouterr().err
    torch.testing.assert_close(words, weights(tmp_path / "c")["bert.embeddings.word_embeddings.weight"])
    assert load_settings(tmp_path / "c")["settings"]["word_init"] == "random"


def test_from_an_encoder_names_the_heads_that_start_fresh(corpus, tmp_path, capsys):
    from transformers import BertModel

    train(corpus, tmp_path / "first", steps=2)
    encoder = BertModel.from_pretrained(tmp_path / "first")
    encoder.config.hidden_dropout_prob = encoder.config.attention_probs_dropout_prob = 0.25
    encoder.save_pretrained(tmp_path / "encoder")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "encoder" / name).write_bytes((tmp_path / "first" / name).read_bytes())
    pretrain([corpus], tmp_path / "run", config(steps=1), start_from=tmp_path / "encoder", console=Console())
    said = capsys.readouterr().err
    assert "on attention; the checkpoint has 0.25, 0.25 on attention" in said
    assert "start fresh" in said
    assert "cls.predictions.transform.dense.weight" in said


def test_examples_longer_than_the_checkpoints_positions_are_refused(corpus, tmp_path):
    train(corpus, tmp_path / "first", steps=1)
    with pytest.raises(UserError, match=r"128 tokens.*64 positions"):
        pretrain(
            [corpus], tmp_path / "run", config(max_length=128, max_positions=512), start_from=tmp_path / "first",
            console=Console(silent=True),
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_settings_of_a_run_from_a_checkpoint_are_that_models(corpus, tmp_path):
    train(corpus, tmp_path / "first", steps=1)
    pretrain(
        [corpus], tmp_path / "run", config(steps=1, layers=7, hidden_size=64), start_from=tmp_path / "first",
        console=Console(silent=True),
    )  # fmt: skip
    saved = load_settings(tmp_path / "run")["settings"]
    assert (saved["layers"], saved["hidden_size"]) == (2, 32)


def test_a_tokenizer_of_another_script_is_refused(corpus, tmp_path):
    chinese = tmp_path / "zh.txt"
    chinese.write_text("今天我要上学了。明天不去。\n" * 30, "utf-8")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\nblue\n。\n", "utf-8")
    with pytest.raises(UserError, match=r"8[0-9]% of the tokens are .UNK.: the vocabulary does not know this text"):
        pretrain(
            [chinese], tmp_path / "run", config(nsp=False), tokenizer_from=vocabulary, console=Console(silent=True)
        )
    assert not (tmp_path / "run").exists()


def test_one_document_needs_no_nsp(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("\n".join(f"sentence number {i} of one text." for i in range(12)), encoding="utf-8")
    with pytest.raises(UserError, match="--no-nsp"):
        train(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(path, tmp_path / "run", nsp=False, steps=2)
    assert all(line[4] == 0 for line in losses(tmp_path / "run"))


def test_documents_of_one_sentence_are_trained_with_a_warning(tmp_path, capsys):
    path = tmp_path / "single.txt"
    path.write_text("\n\n".join(f"text {i} stands alone." for i in range(8)), encoding="utf-8")
    pretrain([path], tmp_path / "run", config(steps=2), console=Console())
    said = capsys.readouterr().err
    assert "IsNext share is 0%" in said
    assert "8 of 8 documents have one sentence" in said


def test_six_characters_are_a_corpus(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text("今天我要上学", encoding="utf-8")
    train(path, tmp_path / "run", nsp=False, steps=2)
    assert all(torch.isfinite(torch.tensor(line[2])) for line in losses(tmp_path / "run"))


@pytest.mark.parametrize("text", ["", " \n \n\u3000\n\t\n", "\u200b\n\u2060\n"])
def test_text_without_a_token_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "nothing.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="no text") as caught:
        train(path, tmp_path / "run")
    assert "nothing.txt" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_lines_of_a_few_characters_never_make_a_loss_that_is_not_finite(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("我\n好\n!\n\n你\n走吧\n?\n", encoding="utf-8")
    train(path, tmp_path / "run", batch_size=1, micro_batch_size=1, max_length=8, steps=60)
    assert len(losses(tmp_path / "run")) == 60
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())
    assert all(0 < line[3] < 50 for line in losses(tmp_path / "run"))


def test_loss_that_is_not_finite_stops_before_the_update(corpus, tmp_path, monkeypatch):
    from minibert.training import pretraining

    original = pretraining.loss_sums
    calls = [0]

    def poisoned(model, batch):
        calls[0] += 1
        return original(model, batch) * (float("nan") if calls[0] == 2 + 5 else 1.0)  # two tell what memory is needed

    monkeypatch.setattr(pretraining, "loss_sums", poisoned)
    with pytest.raises(UserError, match="step 5 is not finite") as caught:
        train(corpus, tmp_path / "run", save_every=1)
    assert "batch" in str(caught.value)
    saved = load_file(tmp_path / "run/checkpoints/step-000004/model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in saved.values())
    assert not (tmp_path / "run/checkpoints/step-000005").exists()
    assert log(tmp_path / "run")[-1]["error"].startswith("step 5 is not finite")


def test_data_json_and_summary_say_what_is_trained_on(corpus, tmp_path, capsys):
    pretrain([corpus], tmp_path / "run", config(steps=1), console=Console())
    facts = json.loads((tmp_path / "run/data.json").read_text("utf-8"))
    assert facts["documents"] == 40
    assert facts["sentences"] == 320
    assert facts["unknown_rate"] == 0
    assert 0.4 < facts["is_next_share"] < 0.6
    assert 0 <= facts["padding_share"] < 0.2
    assert len(facts["examples"]) == 3
    assert "[MASK]" in "".join(example["input"] for example in facts["examples"])
    said = capsys.readouterr().err
    assert "40, 4 of them held out" in said
    assert len(re.findall(r"    to predict: .*  \(next sentence: (?:IsNext|random)\)", said)) == 3


def test_the_bar_ends_on_the_last_measurement(corpus, tmp_path, ending):
    metrics = pretrain([corpus], tmp_path / "run", config(steps=2), console=ending)
    loss = f"{metrics['mlm_loss']:.4g}"
    assert ending.standing.parts[2:] == (f"held-out {loss} (step 2)", f"best {loss}")


def test_dry_run_writes_nothing(corpus, tmp_path):
    pretrain([corpus], tmp_path / "run", config(), dry_run=True, console=Console(silent=True))
    assert not (tmp_path / "run").exists()


def test_settings_are_taken_again_as_a_recipe(corpus, tmp_path):
    train(corpus, tmp_path / "run", steps=1)
    assert load_settings(tmp_path / "run")["settings"]["hidden_size"] == 32
    done = subprocess.run(
        command("--show-config", "--recipe", tmp_path / "run/settings.json"), capture_output=True, text=True
    )
    assert json.loads(done.stdout)["settings"] == json.loads((tmp_path / "run/settings.json").read_text())["settings"]


def test_compiled_run_sees_static_batches_and_learns_the_same(corpus, tmp_path, monkeypatch):
    train(corpus, tmp_path / "usual", steps=3, dropout=0.0)
    shapes = set()
    original = torch.nn.Module.compile

    def recorded(self, **settings):  # the graph is captured as for the real thing, and run without a compiler
        original(
            self, **{**settings, "backend": lambda graph, inputs: shapes.add(str([i.shape for i in inputs])) or graph}
        )

    monkeypatch.setattr(torch.nn.Module, "compile", recorded)
    train(corpus, tmp_path / "compiled", steps=3, dropout=0.0, compile=True)
    assert shapes  # it was compiled
    for a, b in zip(losses(tmp_path / "usual"), losses(tmp_path / "compiled"), strict=True):
        assert a == pytest.approx(b, rel=1e-4)


def test_one_process_may_train_with_one_precision_and_then_another(corpus, tmp_path):
    for precision in ("fp32", "bf16", "fp32"):
        train(corpus, tmp_path / f"{precision}-{len(list(tmp_path.iterdir()))}", steps=2, precision=precision)


def test_tensorboard_gets_the_numbers(corpus, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(corpus, tmp_path / "run", steps=3, tracker="tensorboard")
    (folder,) = {path.parent for path in Path(tmp_path / "run").rglob("events.out.tfevents*")}
    events = EventAccumulator(str(folder)).Reload()
    assert [round(e.value, 4) for e in events.Scalars("loss")] == [
        round(line[2], 4) for line in losses(tmp_path / "run")
    ]


def test_pre_norm_run_opens_in_transformers(corpus, tmp_path):
    from transformers import MegatronBertForPreTraining

    train(corpus, tmp_path / "run", steps=1, norm="pre", positions="sinusoidal", activation="relu")
    _, info = MegatronBertForPreTraining.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_gradient_checkpointing_changes_nothing_but_memory(corpus, tmp_path, monkeypatch):
    from minibert.model.bert import BertEncoder

    seen = []
    forward = BertEncoder.forward
    monkeypatch.setattr(
        BertEncoder, "forward", lambda self, *args: seen.append(self.gradient_checkpointing) or forward(self, *args)
    )
    for less in (False, True):
        train(corpus, tmp_path / str(less), steps=2, dropout=0.1, gradient_checkpointing=less)
    assert {False, True} == set(seen)
    assert losses(tmp_path / "False") == losses(tmp_path / "True")
