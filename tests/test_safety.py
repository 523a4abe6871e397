"""What a file from a stranger may not do: run code, leave its folder, fill the memory, command the terminal, call home.

Files of weights have their own tests in tests/checkpoint/test_weights.py; broken files of every kind are made by
scripts/fuzz.py, see tests/scripts/test_fuzz.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import minibert
from minibert.atomic import MOST_JSON, read_json
from minibert.checkpoint.config import load_config
from minibert.config import load_recipe
from minibert.console import Console, print_text
from minibert.errors import UserError, printable
from minibert.model.bert import BertConfig
from minibert.predict import Predictor, task_of
from minibert.run_folder import load_metrics, load_settings
from minibert.tokenization.files import read_vocabulary
from minibert.training import state
from minibert.training.optim import build_optimizers

ESCAPES = "\x1b]0;title\x07\x1b[31mred\x1b[0m\r\x9b2J\u202etxt"
DEEP = {"lists": "[" * 200_000, "objects": '{"a":' * 200_000}


class Opens:
    """What a pickle does that makes a file when it is opened."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


@pytest.fixture
def model(checkpoint_for, tmp_path):
    return checkpoint_for("the cat sat on the mat", tmp_path / "model")


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


# ---- code and places


def test_a_checkpoint_brings_no_code_and_no_other_files(model, tmp_path):
    marker = tmp_path / "opened"
    (model / "modeling.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n", "utf-8")
    (tmp_path / "vocab.txt").write_text("[PAD]\n", "utf-8")
    code = {"auto_map": {"AutoModel": "modeling.Model", "AutoTokenizer": ["modeling.Model", None]}}
    change(
        model, **code, custom_code=True, trust_remote_code=True, _name_or_path="../elsewhere", vocab_file="../vocab.txt"
    )
    settings = json.loads((model / "tokenizer_config.json").read_text("utf-8"))
    settings |= {
        **code,
        "vocab_file": "../vocab.txt",
        "tokenizer_file": "/etc/passwd",
        "tokenizer_class": "modeling.Model",
    }
    (model / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    network, words = minibert.load(model, head="encoder")
    assert len(words) == network.config.vocab_size > 1
    assert not marker.exists()
    assert "modeling" not in sys.modules


def test_settings_in_a_config_name_no_file_that_is_read(model, tmp_path):
    other = tmp_path / "labels.txt"
    other.write_text("secret\nother\n", "utf-8")
    change(
        model, architectures=["BertForSequenceClassification"], id2label={"0": "a", "1": "b"},
        minibert={"task": "cls", "settings": {"labels": str(other)}},
    )  # fmt: skip
    assert task_of(model, load_config(model), {}).labels == ("a", "b")


@pytest.mark.parametrize("ours", [{}, {"task": ["cls"]}, {"task": "cls"}, {"task": "cls", "settings": [1]}], ids=str)
def test_what_a_config_says_of_its_task_is_looked_at(model, ours):
    change(model, minibert=ours)
    with pytest.raises(UserError):
        Predictor(model)


def test_two_labels_of_one_name_are_refused(model):
    change(model, architectures=["BertForSequenceClassification"], id2label={"0": "a", "1": "a"})
    with pytest.raises(UserError, match="the label 'a' twice"):
        Predictor(model)


def test_an_optimizer_state_with_code_is_not_opened(tmp_path):
    marker = tmp_path / "opened"
    network = torch.nn.Linear(2, 2)
    optimizers = build_optimizers(network, name="adamw", lr=1.0, muon_lr=0.0, weight_decay=0.0, adam_beta2=0.9)
    place = {"step": 1, "tokens": 1, "cursor": {}}
    state.save_state(tmp_path / "step-1", lambda folder: None, optimizers, None, place)
    for content in (Opens(marker), {"optimizers": [Opens(marker)], "scaler": None}, {"optimizers": [3]}, [], {}):
        torch.save(content, tmp_path / "step-1/training_state/optimizer.pt")
        with pytest.raises(UserError, match=r"optimizer\.pt"):
            state.load_state(tmp_path / "step-1", optimizers, None)
    assert not marker.exists()


@pytest.mark.parametrize(
    "place",
    [
        [], {}, {"step": -1}, {"step": "1"}, {"step": 1, "store": "../elsewhere"}, {"step": 1, "store": "/etc"},
        {"step": 1, "elapsed": float("nan")}, {"step": 1, "cursor": 3},
    ],
    ids=str,
)  # fmt: skip
def test_the_place_of_a_run_is_looked_at(tmp_path, place):
    (tmp_path / "training_state").mkdir()
    (tmp_path / "training_state/place.json").write_text(json.dumps(place), "utf-8")
    with pytest.raises(UserError, match=r"place.json: is not the place"):
        state.load_place(tmp_path)


def test_a_manifest_that_names_no_state_is_broken(tmp_path):
    (tmp_path / "training_state").mkdir()
    (tmp_path / "training_state/manifest.json").write_text("{}", "utf-8")
    assert state.fault_of(tmp_path) == "training_state/manifest.json is missing or broken"


# ---- sizes


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"]
)
def test_json_that_is_nested_deep_is_a_message(model, name, kind):
    (model / name).write_text(DEEP[kind], "utf-8")
    if name.endswith("index.json"):
        (model / "model.safetensors").unlink()
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        minibert.load(model, head="encoder")


@pytest.mark.parametrize("text", [*DEEP.values(), '{"settings": ' + "9" * 10**5 + "}", "\xff"], ids="abcd")
@pytest.mark.parametrize(
    "read", [load_settings, load_metrics, lambda folder: load_recipe(f"{folder}/settings.json", "pretrain")]
)
def test_a_runs_own_files_are_looked_at(tmp_path, read, text):
    for name in ("settings.json", "metrics.json"):
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"(settings|metrics)\.json"):
        read(tmp_path)


def test_toml_that_is_nested_deep_or_holds_a_huge_number_is_a_message(tmp_path):
    for text in ("a = " + "[" * 100_000, "steps = " + "9" * 10**5):
        (tmp_path / "r.toml").write_text(text, "utf-8")
        with pytest.raises(UserError, match=r"r.toml: is not a settings file"):
            load_recipe(str(tmp_path / "r.toml"), "pretrain")


@pytest.mark.parametrize(
    ("name", "size"), [("num_hidden_layers", 10**6), ("hidden_size", 10**12), ("vocab_size", 10**30)], ids=str
)
def test_sizes_that_no_bert_has_are_refused_before_anything_is_made(model, name, size):
    change(model, **{name: size})
    with pytest.raises(UserError, match=f"{name} is {size}"):
        load_config(model)


def test_a_file_of_a_hundred_gigabytes_is_not_read_into_memory(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(MOST_JSON + 1)  # takes no room on the disk
    with pytest.raises(UserError, match="more than such a file ever holds"):
        read_json(path)
    with pytest.raises(UserError, match="no vocabulary is so large"):
        read_vocabulary(path)


def test_a_vocabulary_of_too_many_lines_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("minibert.tokenization.files.MOST_TOKENS", 10)
    (tmp_path / "vocab.txt").write_text("\n".join(map(str, range(20))), "utf-8")
    with pytest.raises(UserError, match="more than 10 lines"):
        read_vocabulary(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": "false"}, {"do_lower_case": 1}, {"strip_accents": "no"}, {"tokenize_chinese_chars": []},
        {"model_max_length": -5}, {"model_max_length": 2}, {"model_max_length": "512"},
        {"model_max_length": float("nan")},
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_a_tokenizer_have_their_types(model, settings):
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **settings}), "utf-8")
    with pytest.raises(UserError, match=next(iter(settings))):
        minibert.load(model, head="encoder")


# ---- the terminal


def test_messages_escape_control_characters_and_are_short():
    message = str(UserError(f"the label {ESCAPES}", f"a{ESCAPES}.csv:3", "x" * 10**6))
    assert not any(ord(c) < 32 and c != "\n" for c in message)
    assert all(escape in message for escape in ("\\x1b[31mred", "\\x9b2J", "\\u202etxt"))
    assert len(message) < 2000
    assert printable("tab\tline\n字 é") == "tab\tline\n字 é"


def test_what_the_console_shows_is_escaped(capsys):
    console = Console()
    console.say(ESCAPES)
    console.warn(ESCAPES)
    console.table(ESCAPES, [(ESCAPES, ESCAPES)])
    console.grid(ESCAPES, [ESCAPES], [[ESCAPES]])
    console.say(":smile:")
    shown = capsys.readouterr().err
    assert not set("\x1b\x07\x9b\u202e") & set(shown)
    assert shown.count("\\x1b[31mred") == 8
    assert ":smile:" in shown


def test_results_are_escaped_on_a_terminal_only(monkeypatch, capfdbinary):
    print_text(f"{ESCAPES}\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_text(f"{ESCAPES}\n")
    exact, shown, _ = capfdbinary.readouterr().out.decode().split("\n")
    assert exact == ESCAPES
    assert shown == printable(ESCAPES)


# ---- the network

GUARD = """
import socket
def refuse(what):
    def call(*args, **kwargs):
        raise SystemExit(f"REACHED OUT: {what} {args[-1] if args else ''}")
    return call
connect = socket.socket.connect
def guarded(self, address):
    if self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"):
        return connect(self, address)
    refuse("connect")(address)
socket.socket.connect = guarded
socket.socket.connect_ex = guarded
socket.socket.sendto = refuse("sendto")
looked_up = socket.getaddrinfo
def lookup(host, *args, **kwargs):
    if host in (None, "", "localhost", "127.0.0.1", "::1", socket.gethostname()):
        return looked_up(host, *args, **kwargs)
    refuse("getaddrinfo")(host)
socket.getaddrinfo = lookup
socket.gethostbyname = refuse("gethostbyname")
socket.create_connection = refuse("create_connection")
"""
COMMANDS = """
from minibert.cli import commands
def run(*words):
    assert commands.main([str(word) for word in words], standalone_mode=False) in (0, None), words
small = ("--layers 1 --hidden-size 16 --heads 2 --vocab-size 80 --max-length 32 --batch-size 4 --micro-batch-size 4 "
         "--precision fp32 --steps 2 --quiet").split()
run("pretrain", "corpus.txt", "--out", "base", *small)
run("finetune", "--task", "cls", "--model", "base", "--train", "rows.csv", "--dev", "rows.csv", "--out", "run",
    "--max-length", 16, "--epochs", 1, "--quiet")
run("predict", "--model", "run", "rows.csv", "--out", "p.jsonl")
run("evaluate", "--model", "run", "rows.csv")
run("fill-mask", "--model", "base", "the [MASK]")
run("embed", "--model", "base", "corpus.txt", "--out", "v.npy")
run("convert", "base", "--out", "copy")
from minibert.metrics.evaluation import Classification
print("all done")
"""


def test_no_command_reaches_out_to_the_network(corpus, tmp_path):
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/sitecustomize.py").write_text(GUARD, "utf-8")  # in every process that is started, too
    (tmp_path / "rows.csv").write_text("text,label\nred cat,a\nblue dog,b\nold sun,a\nnew moon,b\n", "utf-8")
    loose = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    here = str(Path(minibert.__file__).parent.parent)
    loose |= {"PYTHONPATH": os.pathsep.join([str(tmp_path / "guard"), here]), "HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], cwd=tmp_path, env=loose, capture_output=True, text=True, timeout=300
    )
    assert "REACHED OUT" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all done\n")
    assert json.loads((tmp_path / "p.jsonl").read_text("utf-8").splitlines()[0])["label"] in ("a", "b")


def test_the_guard_of_the_network_bites(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(GUARD, "utf-8")
    for code in ("socket.create_connection(('192.0.2.1', 80))", "socket.getaddrinfo('huggingface.co', 443)",
                 "socket.socket().connect(('192.0.2.1', 80))"):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", f"import socket; {code}"], env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "REACHED OUT" in done.stderr


def test_a_config_is_a_bert_of_a_size_that_can_be():
    with pytest.raises(UserError, match="no BERT has so many"):
        BertConfig(num_hidden_layers=10**6)
