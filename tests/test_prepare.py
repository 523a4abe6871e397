"""Training on a prepared store: the same run as on its text, resumed, and refused where something does not fit."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from minibert.cli import commands
from minibert.config import PretrainConfig
from minibert.console import Console
from minibert.errors import UserError
from minibert.pretrain import check_same_store, pretrain
from minibert.run_folder import load_settings

SMALL = {
    "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32, "batch_size": 8, "micro_batch_size": 8,
    "precision": "fp32", "workers": 1, "log_every": 1, "eval_every": 0, "save_every": 0, "eval_share": 0.1,
    "max_positions": 64,
}  # fmt: skip
SILENT = Console(silent=True)


def minibert(*words):
    commands.main(list(map(str, words)), standalone_mode=False)


def flags(**changes):
    found = []
    for name, value in {**SMALL, "steps": 2, **changes}.items():
        found += [f"--{name.replace('_', '-')}", value]
    return found


def train(files, out, **settings):
    changes = {"steps": 4, **settings.pop("config", {})}
    return pretrain(files, out, PretrainConfig(**{**SMALL, **changes}), console=SILENT, **settings)


@pytest.fixture
def place(tmp_path, text_of, monkeypatch):
    """A folder with text/ (Chinese too), a tokenizer for it (tok/), and their store of 3 shards (store/)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for number in range(5):
        (tmp_path / f"text/{number}.txt").write_text(text_of(8 + number, seed=number, chinese=number == 3), "utf-8")
    minibert("vocab", "text", "--out", "tok", "--vocab-size", 120, "--quiet")
    for shard in (2, 1, 3):
        words = ["--shard", f"{shard}/3", "--mask-unit", "word", "--quiet"]
        minibert("prepare", "text", "--tokenizer", "tok", "--out", "store", *words)
    return tmp_path


@pytest.mark.parametrize("unit", ["token", "word"])
def test_a_run_on_shards_is_the_run_on_the_text_to_the_last_bit(place, unit):
    changes = {"mask_unit": unit, "steps": 30}  # more than a pass
    files = sorted((place / "text").iterdir())
    whole = train(files, place / "whole", config=changes, tokenizer_from=place / "tok")
    assert train([place / "store"], place / "shards", config=changes) == whole
    for name in ("model.safetensors", "vocab.txt", "tokenizer_config.json", "data.json", "metrics.json"):
        assert (place / "shards" / name).read_bytes() == (place / "whole" / name).read_bytes(), name
    lines = map(json.loads, (place / "whole/log.jsonl").read_text().splitlines())
    assert max(line.get("epoch", 0) for line in lines) >= 1


def test_resume_goes_on_with_the_store_and_refuses_another(place, monkeypatch):
    from minibert.training import data as module

    class Stop(Exception):
        pass

    def stopped(*args, **kwargs):
        for step in original(*args, **kwargs):
            yield step
            if step.step == 5:
                raise Stop

    original = module.train_steps
    changes = {"steps": 8, "save_every": 2}
    minibert("pretrain", "store", "--out", "whole", "--quiet", *flags(**changes))
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(module, "train_steps", stopped)
        minibert("pretrain", "store", "--out", "run", "--quiet", *flags(**changes))
    assert load_settings(place / "run")["corpus"] == [str(place / "store")]
    minibert("prepare", "text", "--tokenizer", "tok", "--out", "other", "--quiet")
    with pytest.raises(UserError, match="corpus differs"):
        minibert("pretrain", "other", "--out", "run", "--resume")
    kept = (place / "store").rename(place / "kept")
    (place / "other").rename(place / "store")
    with pytest.raises(UserError, match="not the one that this run was started with"):
        minibert("pretrain", "--out", "run", "--resume", "--quiet")
    (place / "store").rename(place / "other")
    kept.rename(place / "store")
    minibert("pretrain", "--out", "run", "--resume", "--quiet")
    for name in ("metrics.json", "model.safetensors"):
        assert (place / "run" / name).read_bytes() == (place / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--encoding", "utf-8", "--vocab-size", 90], "no effect: encoding, vocab_size"),
        (["--tokenizer", "tok"], "no effect: tokenizer"),
        (["text"], "prepared store, which is a whole corpus"),
    ],
    ids=["reading", "tokenizer", "text"],
)
def test_what_was_decided_when_the_store_was_made_is_refused(place, words, said):
    with pytest.raises(UserError, match=said):
        minibert("pretrain", "store", *words, "--out", "run")
    assert not (place / "run").exists()


def test_a_store_without_words_does_for_tokens_alone(place):
    minibert("prepare", "text", "--tokenizer", "tok", "--out", "tokens", "--quiet")
    with pytest.raises(UserError, match="where words begin") as caught:
        minibert("pretrain", "tokens", "--out", "run", "--quiet", *flags(mask_unit="word"))
    assert "prepare the text with --mask-unit word" in str(caught.value)
    assert not (place / "run").exists()
    facts = train([place / "tokens"], place / "run", dry_run=True)
    assert facts == train([place / "store"], place / "run", dry_run=True)
    assert not (place / "run").exists()


def test_from_goes_on_where_the_tokenizer_is_the_same(place):
    train([place / "store"], place / "first", config={"steps": 1})
    minibert("pretrain", "store", "--from", "first", "--out", "second", "--quiet", *flags_of_training())
    minibert("vocab", "text", "--out", "cased", "--vocab-size", 120, "--cased", "--quiet")
    minibert("prepare", "text", "--tokenizer", "cased", "--out", "cased store", "--quiet")
    with pytest.raises(UserError, match="another tokenizer than that of") as caught:
        minibert("pretrain", "cased store", "--from", "first", "--out", "third", "--quiet", *flags_of_training())
    assert f"--tokenizer {place / 'first'}" in str(caught.value)
    assert not (place / "third").exists()


def flags_of_training():
    return ["--steps", 1, "--max-length", 32, "--batch-size", 8, "--micro-batch-size", 8, "--precision", "fp32"]


def test_missing_shard_is_told_before_torch_is_loaded(place):
    (place / "store/shard-00002-of-00003").rename(place / "elsewhere")
    code = (
        "import sys; sys.argv[1:] = ['pretrain', 'store', '--out', 'run']; from minibert.cli import main\n"
        "try: main()\nfinally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=place, timeout=60)
    assert (done.returncode, done.stdout) == (2, "False\n"), done.stderr
    assert done.stderr.count("minibert: error: ") == 1
    assert "shard 2 of 3 is missing" in done.stderr
    assert "--shard 2/3" in done.stderr


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/3", "１/３"])
def test_shard_that_is_none_says_how_to_write_it(place, shard):
    with pytest.raises(UserError, match="--shard: is") as caught:
        minibert("prepare", "text", "--tokenizer", "tok", "--out", "out", f"--shard={shard}")
    assert "1/4, 2/4" in str(caught.value)


def test_a_store_is_no_text_for_other_commands(place):
    for words in (["vocab", "store", "--out", "v"], ["prepare", "store", "--tokenizer", "tok", "--out", "p"]):
        with pytest.raises(UserError, match="is a prepared store; text is needed"):
            minibert(*words)


def test_case_of_a_bare_vocabulary_is_chosen_and_of_a_folder_is_not(place):
    words = ["prepare", "text", "--out", "cased", "--cased", "--quiet", "--tokenizer"]
    with pytest.raises(UserError, match="--tokenizer brings its own"):
        minibert(*words, "tok")
    minibert(*words, "tok/vocab.txt")
    config = json.loads((place / "cased/shard-00001-of-00001/tokenizer_config.json").read_text())
    assert config["do_lower_case"] is False


def test_file_urls_are_places_of_this_machine(place):
    words = [f"file://{place}/text", "--tokenizer", f"file://{place}/tok", "--out", f"file://{place}/again", "--quiet"]
    minibert("prepare", *words, "--shard", "1/3", "--mask-unit", "word")
    facts = (place / "again/shard-00001-of-00003/store.json").read_bytes()
    assert facts == (place / "store/shard-00001-of-00003/store.json").read_bytes()


def test_processes_that_found_different_text_do_not_train(monkeypatch):
    from minibert.training import devices as module

    accelerator, store = SimpleNamespace(num_processes=2), SimpleNamespace(name="a")
    monkeypatch.setattr(module, "gather_object", lambda names: [*names, names[0]])
    check_same_store(accelerator, store)
    monkeypatch.setattr(module, "gather_object", lambda names: [*names, "b"])
    with pytest.raises(UserError, match="different text"):
        check_same_store(accelerator, store)
