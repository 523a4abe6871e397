"""minibert convert: any BERT -> five files that minibert and transformers open, with the same outputs."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

import minibert
from minibert.checkpoint.pretrained import HEADS, Head
from minibert.cli.convert import convert as command
from minibert.console import Console
from minibert.convert import convert, differ
from minibert.errors import UserError
from minibert.predict import pipeline
from minibert.tokenization.tokenizer import SPECIAL_TOKENS

ROOT = Path(__file__).resolve().parent.parent
WRITER = runpy.run_path(str(ROOT / "tests" / "checkpoint" / "tensorflow_files.py"))
FIVE = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + i) for i in range(35))]
IDS = torch.arange(5, 15)[None]


class Lines(Console):
    """A console that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str = "") -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(f"warning: {text}")

    def __str__(self) -> str:
        return "\n".join(self.lines)


def peer(kind: str, **config: Any) -> nn.Module:
    """transformers' model of that name with every weight random."""
    torch.manual_seed(0)
    model = getattr(transformers, kind)(transformers.BertConfig(**SHAPE, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def write_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")


@pytest.fixture
def google(tmp_path: Path) -> Callable[..., Path]:
    """A folder as Google's: bert_config.json, vocab.txt, a TensorFlow checkpoint of a model of transformers."""

    def make(model: nn.Module, name: str = "bert_model.ckpt", drop: str = "-") -> Path:
        folder = tmp_path / "google"
        weights = {n: p.detach() for n, p in model.named_parameters() if not n.startswith(drop)}
        WRITER["write_checkpoint"](folder / name, WRITER["google_names"](weights), shards=2)
        (folder / "bert_config.json").write_text(json.dumps({**SHAPE, "directionality": "bidi"}), encoding="utf-8")
        write_vocabulary(folder)
        return folder

    return make


def assert_same(out: Path, theirs: nn.Module) -> None:
    """Both open it, and compute what the source's model does. Worst seen: 6e-7."""
    ours, tokenizer = minibert.load(out)
    assert len(tokenizer) == 40
    again, info = getattr(transformers, type(theirs).__name__).from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        reference = theirs(IDS)
        for other in (ours(IDS), again.eval()(IDS)):
            for name, value in reference.items():
                assert (getattr(other, name) - value).abs().max() < 2e-6, name


@pytest.mark.parametrize("form", ["", "bert_model.ckpt", "bert_model.ckpt.index"])
def test_googles_folder_becomes_ours(form: str, google: Callable[..., Path], tmp_path: Path) -> None:
    theirs = peer("BertForPreTraining")
    console = Lines()
    convert(google(theirs) / form, tmp_path / "out", console=console, verify=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FIVE
    assert_same(tmp_path / "out", theirs)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertForPreTraining"])
    assert config["directionality"] == "bidi"
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["model_max_length"] == 24
    told = str(console)
    assert "BertForPreTraining (as the weights are; see --head), 2 layers, 16 wide, 40 tokens" in told
    assert "mapped: 46 weights\n     46  TensorFlow's name" in told
    assert "     14  a kernel, transposed" in told
    assert "     12  gamma, beta -> weight, bias" in told
    assert "dropped: 93 (the training's own, no weight): " in told
    assert "verified: transformers' BertForPreTraining opens the copy, largest difference of outputs" in told
    assert "not compared with SOURCE: transformers does not read it as it lies there" in told
    assert "warning" not in told


@pytest.mark.parametrize(
    ("kind", "drop", "head", "config"),
    [
        ("BertForMaskedLM", "-", None, {}),
        ("BertModel", "-", None, {}),
        ("BertForSequenceClassification", "-", None, {"num_labels": 3}),
        ("BertForTokenClassification", "-", None, {"num_labels": 5}),
        ("BertForQuestionAnswering", "-", None, {}),
        ("BertForMaskedLM", "-", "mlm", {}),
        ("BertForTokenClassification", "-", "ner", {"num_labels": 2}),
    ],
)
def test_class_is_told_by_the_weights_or_by_head(
    kind: str, drop: str, head: Head | None, config: dict[str, Any], google: Callable[..., Path], tmp_path: Path
) -> None:
    theirs = peer(kind, **config)
    weights = theirs if kind != "BertModel" else nn.ModuleDict({"bert": theirs})
    convert(google(weights), tmp_path / "out", head=head, console=Console(quiet=True), verify=True)
    assert_same(tmp_path / "out", theirs)


def test_pytorch_files_are_compared_at_both_ends(tmp_path: Path) -> None:
    theirs = peer("BertForSequenceClassification", id2label={0: "neg", 1: "neu", 2: "pos"})
    theirs.half().save_pretrained(tmp_path / "in")  # type: ignore[operator]
    write_vocabulary(tmp_path / "in")
    console = Lines()
    convert(tmp_path / "in", tmp_path / "out", console=console, verify=True, verbose=True)
    told = str(console)
    assert "BertForSequenceClassification (the config's architecture)" in told
    assert "opens the copy, largest" in told
    assert "opens SOURCE, largest" in told
    assert "  bert.pooler.dense.bias -> bert.pooler.dense.bias" in told
    assert_same(tmp_path / "out", theirs.float())
    assert transformers.BertConfig.from_pretrained(tmp_path / "out").id2label == {0: "neg", 1: "neu", 2: "pos"}


@pytest.mark.parametrize("ending", ["bin", "pt", "safetensors"])
def test_one_file_with_the_rest_beside_it(ending: str, tmp_path: Path) -> None:
    theirs = peer("BertForPreTraining")
    weights = {f"model.{name}": parameter.detach() for name, parameter in theirs.named_parameters()}
    source = tmp_path / f"best.{ending}"
    if ending == "safetensors":
        save_file(weights, source)
    else:
        torch.save({"state_dict": weights, "epoch": 3}, source)
    (tmp_path / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    vocabulary = tmp_path / "words"
    vocabulary.mkdir()
    write_vocabulary(vocabulary)
    console = Lines()
    with pytest.raises(UserError, match="no tokenizer lies beside the weights") as caught:
        convert(source, tmp_path / "out", console=console)
    assert "--tokenizer DIR|vocab.txt" in str(caught.value)
    assert not (tmp_path / "out").exists()
    for number, place in enumerate((vocabulary, vocabulary / "vocab.txt")):
        convert(source, tmp_path / f"out{number}", tokenizer=place, console=console, verify=True)
        assert_same(tmp_path / f"out{number}", theirs)
    assert "     46  'model.' taken off" in str(console)


def test_source_that_transformers_reads_otherwise_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = peer("BertForPreTraining")
    theirs.save_pretrained(tmp_path / "in")  # type: ignore[operator]
    write_vocabulary(tmp_path / "in")
    path = tmp_path / "in" / "model.safetensors"
    save_file({f"mine.{name}": tensor for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})
    console = Lines()
    convert(tmp_path / "in", tmp_path / "out", console=console, verify=True)
    assert re.search(r"not compared with SOURCE: transformers misses \d+ weights there", str(console))
    real = transformers.BertForPreTraining.from_pretrained

    class OfItsOwnError(Exception):
        pass

    def refuse(folder: Path, **kwargs: Any) -> Any:
        if folder == tmp_path / "in":
            raise OfItsOwnError("not that\nat all")
        return real(folder, **kwargs)

    monkeypatch.setattr(transformers.BertForPreTraining, "from_pretrained", refuse)
    console = Lines()
    convert(tmp_path / "in", tmp_path / "out2", console=console, verify=True)
    assert "not compared with SOURCE: transformers does not open it (not that)" in str(console)
    (tmp_path / "in" / "config.json").rename(tmp_path / "in" / "bert_config.json")
    console = Lines()
    convert(tmp_path / "in", tmp_path / "out3", head="pretraining", console=console, verify=True)
    assert "not compared with SOURCE: transformers does not read it as it lies there" in str(console)


def test_what_has_no_place_is_named_and_what_is_missing_too(tmp_path: Path) -> None:
    theirs = peer("BertForPreTraining")
    theirs.save_pretrained(tmp_path / "in")  # type: ignore[operator]
    write_vocabulary(tmp_path / "in")
    console = Lines()
    convert(tmp_path / "in", tmp_path / "out", head="cls", console=console, verify=True)
    told = str(console)
    assert "dropped: 7 (BertForSequenceClassification has no such part): cls.predictions.bias, " in told
    assert "warning: not in there, so they start fresh, untrained: classifier.weight, classifier.bias" in told
    assert "not compared with SOURCE: it lacks what starts fresh" in told
    convert(tmp_path / "in", tmp_path / "again", head="cls", console=console)
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "again"))
    assert a == b  # the same draw
    raw = json.loads((tmp_path / "in" / "config.json").read_text(encoding="utf-8"))
    raw["architectures"] = ["BertForMaskedLM"]
    (tmp_path / "in" / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    console = Lines()
    convert(tmp_path / "in", tmp_path / "mlm", console=console)
    assert "dropped: 4 (BertForMaskedLM has no such part; see --head): bert.pooler.dense.bias" in str(console)


def test_stored_decoder_is_said_to_be_tied(tmp_path: Path) -> None:
    theirs = peer("BertForPreTraining")
    theirs.save_pretrained(tmp_path / "in")  # type: ignore[operator]
    write_vocabulary(tmp_path / "in")
    torch.save(theirs.state_dict(), tmp_path / "in" / "pytorch_model.bin")
    (tmp_path / "in" / "model.safetensors").unlink()
    console = Lines()
    convert(tmp_path / "in", tmp_path / "out", console=console, verify=True)
    tied = "dropped: 2 (the decoder is tied: it is the word embeddings and the one bias): "
    assert f"{tied}cls.predictions.decoder.weight, cls.predictions.decoder.bias" in str(console)
    assert_same(tmp_path / "out", theirs)


def test_run_of_a_task_still_predicts(tmp_path: Path, checkpoint_for: Callable[..., Path]) -> None:
    base = checkpoint_for("red blue cat dog sun moon", tmp_path / "base")
    (tmp_path / "t.csv").write_text("text,label\nred cat,a\nblue dog,b\n" * 4, encoding="utf-8")
    run = tmp_path / "run"
    arguments = ["finetune", "--task", "cls", "--model", base, "--train", tmp_path / "t.csv", "--out", run,
                 "--epochs", "1", "--max-length", "16", "--quiet"]  # fmt: skip
    subprocess.run([sys.executable, "-m", "minibert", *map(str, arguments)], check=True, cwd=ROOT)
    convert(run, tmp_path / "out", console=Console(quiet=True), verify=True)
    assert (tmp_path / "out" / "config.json").read_bytes() == (run / "config.json").read_bytes()
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert pipeline(tmp_path / "out")("red cat") == pipeline(run)("red cat")
    convert(run, tmp_path / "bare", head="encoder", console=Console(quiet=True))
    assert "minibert" not in json.loads((tmp_path / "bare" / "config.json").read_text(encoding="utf-8"))


def test_nothing_is_left_where_outputs_differ(
    google: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = google(peer("BertForMaskedLM"))
    real = transformers.BertForMaskedLM.from_pretrained

    def shifted(*args: Any, **kwargs: Any) -> Any:
        model, info = real(*args, **kwargs)
        with torch.no_grad():
            model.cls.predictions.bias += 1.5e-4
        return model, info

    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", shifted)
    with pytest.raises(
        UserError, match=r"logits: minibert and transformers on the copy differ by 0.00015, more than 0"
    ):
        convert(folder, tmp_path / "out", console=Console(quiet=True), verify=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["google"]

    monkeypatch.setattr(
        transformers.BertForMaskedLM, "from_pretrained", lambda *a, **k: (real(*a, **k)[0], {"missing_keys": {"x"}})
    )
    with pytest.raises(UserError, match=r"transformers finds other weights in the copy: {'missing_keys': {'x'}}"):
        convert(folder, tmp_path / "out", console=Console(quiet=True), verify=True)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", refuse)
    with pytest.raises(UserError, match="transformers cannot open the copy: no"):
        convert(folder, tmp_path / "out", console=Console(quiet=True), verify=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["google"]


def test_outputs_that_are_no_numbers_differ() -> None:
    config = minibert.BertConfig(**SHAPE)
    ours, theirs = minibert.BertModel(config), minibert.BertModel(config)
    with pytest.raises(UserError, match="last_hidden_state: minibert and transformers on the copy differ by"):
        differ(ours, theirs, "the copy")
    theirs.load_state_dict(ours.state_dict())
    assert differ(ours, theirs, "the copy") == "largest difference of outputs 0.0e+00"
    with torch.no_grad():
        theirs.pooler.dense.bias[0] = float("nan")  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"pooler_output: .* differ by nan"):
        differ(ours, theirs, "the copy")


def test_verify_without_transformers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match="--verify: transformers is not installed"):
        convert(tmp_path, tmp_path / "out", verify=True, console=Console(quiet=True))


def test_vocabulary_larger_than_the_embedding_is_refused(google: Callable[..., Path], tmp_path: Path) -> None:
    folder = google(peer("BertForMaskedLM"))
    (folder / "vocab.txt").write_text("\n".join([*TOKENS, "x", "y"]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="the tokenizer has 42 tokens but the model only 40 embeddings"):
        convert(folder, tmp_path / "out", console=Console(quiet=True))
    assert not (tmp_path / "out").exists()


def test_damaged_tokenizer_is_not_called_missing(google: Callable[..., Path], tmp_path: Path) -> None:
    folder = google(peer("BertForMaskedLM"))
    (folder / "vocab.txt").write_text("[PAD]\n\nx\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"vocab.txt:2: an empty line"):
        convert(folder, tmp_path / "out", console=Console(quiet=True))


def test_output_that_is_there_is_refused(google: Callable[..., Path], tmp_path: Path) -> None:
    folder = google(peer("BertForMaskedLM"))
    with pytest.raises(UserError, match="is there already and is not empty"):
        convert(folder, folder, console=Console(quiet=True))
    (tmp_path / "empty").mkdir()
    convert(folder, tmp_path / "empty", console=Console(quiet=True))
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == FIVE


def test_command_line(google: Callable[..., Path], tmp_path: Path) -> None:
    folder = google(peer("BertForMaskedLM"))

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "minibert", "convert", *map(str, arguments)]
        return subprocess.run(call, capture_output=True, text=True, cwd=ROOT)

    done = run(folder / "bert_model.ckpt", "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"done: {tmp_path / 'out'}" in done.stderr
    done = run(tmp_path / "nowhere", "--out", tmp_path / "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere: there is no such file or folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_quiet_says_nothing(google: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = google(peer("BertForMaskedLM"))
    arguments = [str(folder), "--out", str(tmp_path / "out"), "--quiet"]
    command.main(arguments, standalone_mode=False)
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FIVE


def test_heads_of_the_command_are_those_of_python() -> None:
    (option,) = [parameter for parameter in command.params if parameter.name == "head"]
    assert tuple(option.type.choices) == get_args(Head) == tuple(HEADS)  # type: ignore[attr-defined]


def test_a_class_that_is_not_known_and_a_thin_vocabulary_are_warned_of(tmp_path: Path, capfd: Any) -> None:
    source = tmp_path / "source"
    transformers.BertForMultipleChoice(transformers.BertConfig(**SHAPE)).save_pretrained(source)  # type: ignore[arg-type]
    (source / "vocab.txt").write_text("".join(f"{token}\n" for token in SPECIAL_TOKENS), encoding="utf-8")
    convert(source, tmp_path / "out", console=Console(quiet=True))
    said = " ".join(capfd.readouterr().err.split())
    assert "its architecture, BertForMultipleChoice, is none of minibert's" in said
    assert "the vocabulary has 5 tokens, the model 40 embeddings: is it whole?" in said
    assert json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))["architectures"] == ["BertModel"]
