"""Exported models are the models: every head, any shape, names, labels; what does not fit is refused in time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner

import minibert
from minibert.checkpoint.folder import save_checkpoint
from minibert.cli import commands
from minibert.console import Console
from minibert.errors import UserError
from minibert.export import check, folder, onnx_file, program
from minibert.export.check import Sample, answers, check_equal, losses, random_rows, runner, text_rows
from minibert.export.folder import export_checkpoint
from minibert.export.graph import INPUTS, NamedOutputs, plain
from minibert.model.bert import BertConfig
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

ROOT = Path(__file__).resolve().parent.parent
TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *"abcdefghij", "##x", "."], lowercase=True)
LIMIT = 12
FIVE = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
LABELS = {"id2label": {"0": "yes", "1": "no", "2": "其他"}, "label2id": {"yes": 0, "no": 1, "其他": 2}}
OUTPUTS = {
    "BertModel": ["last_hidden_state", "pooler_output"],
    "BertForPreTraining": ["prediction_logits", "seq_relationship_logits"],
    "BertForMaskedLM": ["logits"],
    "BertForSequenceClassification": ["logits"],
    "BertForTokenClassification": ["logits"],
    "BertForQuestionAnswering": ["start_logits", "end_logits"],
}
QUIET = Console(quiet=True)


def make(path: Path, head: str = "BertForTokenClassification", **changes: Any) -> Path:
    """A small random checkpoint, its weights large enough for every part to matter."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(TOKENIZER) + 3, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": LIMIT, "initializer_range": 0.3, "extra": LABELS,
    }  # fmt: skip
    model = getattr(minibert, head)(BertConfig(**{**shape, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
    save_checkpoint(model, TOKENIZER, path)
    return path


def batch_of(rows: int, tokens: int, *, padded: int = 0, types: int = 2) -> dict[str, np.ndarray]:
    """Random ids; the first `padded` tokens' worth of each odd row's end is padding, as is the whole last row's."""
    draw = np.random.default_rng(rows * 100 + tokens)
    mask = np.ones((rows, tokens), dtype=np.int64)
    if padded:
        mask[1::2, -padded:] = 0
        mask[-1] = 0
    ids = draw.integers(0, len(TOKENIZER), (rows, tokens))
    return {
        "input_ids": ids * mask, "attention_mask": mask, "token_type_ids": draw.integers(0, types, (rows, tokens)),
    }  # fmt: skip


def everything(capfd: pytest.CaptureFixture[str]) -> str:
    out, err = capfd.readouterr()
    return out + err


def check_onnx(run: Path, path: Path, head: str) -> None:
    """The file has the names and axes that are promised, and the model's outputs for any number of rows and tokens."""
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(path, full_check=True)
    axes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert [value.name for value in model.graph.output] == OUTPUTS[head]
    for name in INPUTS:
        assert axes[name] == ["batch", "sequence"]
    assert all(axis[0] == "batch" for axis in axes.values())
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]  # no runtime's own operators
    assert {"LayerNormalization", "Gelu", "Softmax"} <= {node.op_type for node in model.graph.node}
    assert str(ROOT).encode() not in path.read_bytes()
    assert all(not node.metadata_props for node in model.graph.node)

    ours, theirs = runner(minibert.load(run)[0]), onnx_file.open_onnx(path)
    for rows, tokens, padded in [
        *((1, t, 0) for t in range(1, LIMIT + 1)),
        (2, 2, 0),
        (5, 7, 3),
        (2, 12, 11),
        (3, 1, 1),
    ]:
        batch = batch_of(rows, tokens, padded=padded)
        expected, found = ours(batch), theirs(batch)
        for name in OUTPUTS[head]:
            # 6e-6 is the largest that was seen, with outputs up to 10
            np.testing.assert_allclose(found[name], expected[name], atol=2e-5, rtol=0, err_msg=f"{name} {rows, tokens}")


# pre-training, classification and tagging are exported by the three tests that follow
@pytest.mark.parametrize(
    ("head", "norm", "positions"),
    [
        ("BertModel", "post", "learned"),
        ("BertForMaskedLM", "pre", "sinusoidal"),
        ("BertForQuestionAnswering", "post", "sinusoidal"),
    ],
)
def test_onnx_is_the_model_for_any_shape(head, norm, positions, tmp_path, capfd):
    run = make(tmp_path / "run", head, norm=norm, positions=positions)
    export_checkpoint(run, tmp_path / "out", console=QUIET)
    assert everything(capfd) == ""  # none of the exporter's own words
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    check_onnx(run, tmp_path / "out/model.onnx", head)
    if head == "BertModel":  # token 13 has no position; a wrong one would be worse than an error
        with pytest.raises(Exception, match="dimension"):
            onnx_file.open_onnx(tmp_path / "out/model.onnx")(batch_of(1, LIMIT + 1, types=1))


def test_plain_modules_compute_what_the_model_does_and_leave_it_alone(tmp_path):
    model, _ = minibert.load(make(tmp_path / "run", "BertForPreTraining"))
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    batch = batch_of(4, 9, padded=4)
    expected = runner(model)(batch)
    copy = plain(model)
    for name, found in runner(copy)(batch).items():
        np.testing.assert_allclose(found, expected[name], atol=1e-5)
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before
    assert copy.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight  # one matrix for all


def test_int8_is_close_smaller_and_says_what_it_costs(tmp_path, capfd):
    run = make(
        tmp_path / "run", "BertForPreTraining", num_hidden_layers=2, hidden_size=64, intermediate_size=256,
        initializer_range=0.05, norm="pre", vocab_size=8000,
    )  # fmt: skip
    export_checkpoint(run, tmp_path / "out", int8=True, console=Console())
    said = everything(capfd)
    assert re.search(r"prediction_logits +\S+ +\S+ +\d+\.\d% of 92 answers", said)  # tokens of the eight rows
    assert re.search(r"seq_relationship_logits +\S+ +\S+ +\d+\.\d% of 8 answers", said)
    assert re.search(r"rows x tokens +minibert +model.onnx +model_int8.onnx", said)
    assert "measure on your own" in said

    import onnx

    check_onnx(run, tmp_path / "out/model.onnx", "BertForPreTraining")
    int8 = onnx.load(tmp_path / "out/model_int8.onnx")
    kinds = [node.op_type for node in int8.graph.node]
    # two layers of four products; pooler, next sentence, transform, and the tied output matrix
    assert kinds.count("MatMulInteger") == 12
    assert kinds.count("Gemm") == 0
    assert kinds.count("MatMul") == 4  # scores and contexts, which have no weights
    sizes = [(tmp_path / "out" / name).stat().st_size for name in ("model.onnx", "model_int8.onnx")]
    assert sizes[1] < 0.5 * sizes[0]  # a quarter, and the matrix that was one is two
    batch = batch_of(4, 9, padded=3)
    ours = runner(minibert.load(run)[0])(batch)
    for name, found in onnx_file.open_onnx(tmp_path / "out/model_int8.onnx")(batch).items():
        assert np.abs(found - ours[name]).max() < 0.1 * ours[name].std()


def test_weights_of_two_gigabytes_lie_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "ONE_FILE", 1)
    run = make(tmp_path / "run", "BertForTokenClassification")
    export_checkpoint(run, tmp_path / "out", console=QUIET)
    assert (tmp_path / "out/model.onnx.data").stat().st_size > 4 * 16 * 16
    (tmp_path / "out").rename(tmp_path / "moved")
    check_onnx(run, tmp_path / "moved/model.onnx", "BertForTokenClassification")


@pytest.mark.parametrize(
    ("head", "norm", "positions"),
    [
        ("BertModel", "pre", "sinusoidal"),
        ("BertForPreTraining", "post", "learned"),
        ("BertForSequenceClassification", "pre", "learned"),
        ("BertForQuestionAnswering", "post", "sinusoidal"),
    ],
)
def test_torch_program_is_the_model_for_any_shape(head, norm, positions, tmp_path, capfd):
    run = make(tmp_path / "run", head, norm=norm, positions=positions)
    export_checkpoint(run, tmp_path / "out", format="torch", console=QUIET)
    assert everything(capfd) == ""
    ours, theirs = runner(minibert.load(run)[0]), program.open_program(tmp_path / "out/model.pt2")
    for rows, tokens, padded in ((1, 1, 0), (1, LIMIT, 0), (5, 7, 3), (3, 2, 1)):
        batch = batch_of(rows, tokens, padded=padded)
        expected, found = ours(batch), theirs(batch)
        assert list(found) == OUTPUTS[head]
        for name, values in found.items():
            np.testing.assert_allclose(values, expected[name], atol=1e-6, rtol=0)
    if head == "BertModel":
        with pytest.raises(Exception, match="12"):
            theirs(batch_of(1, LIMIT + 1))


def test_hf_is_the_five_files_that_transformers_opens(tmp_path):
    run = make(tmp_path / "run", "BertForSequenceClassification")
    for more in ("settings.json", "log.jsonl"):
        (run / more).write_text("{}")
    (run / "checkpoints").mkdir()
    export_checkpoint(run, tmp_path / "out", format="hf", console=QUIET)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FIVE
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert theirs.config.id2label == {0: "yes", 1: "no", 2: "其他"}
    batch = {name: torch.from_numpy(values) for name, values in batch_of(3, 9).items()}
    ours, _ = minibert.load(run)
    with torch.no_grad():
        torch.testing.assert_close(theirs(**batch).logits, ours(**batch).logits, atol=1e-5, rtol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("a bx.")["input_ids"] == TOKENIZER("a bx.")["input_ids"][0].tolist()


def test_labels_and_tokenizer_lie_beside_the_model(tmp_path):
    export_checkpoint(make(tmp_path / "run"), tmp_path / "out", format="torch", console=QUIET)
    config = json.loads((tmp_path / "out/config.json").read_text("utf-8"))
    assert config["id2label"] == LABELS["id2label"]
    assert config["architectures"] == ["BertForTokenClassification"]
    assert BertTokenizer.from_pretrained(tmp_path / "out").fingerprint == TOKENIZER.fingerprint


def test_encoder_of_a_pretrained_model_and_one_without_a_pooler(tmp_path, capfd):
    run = make(tmp_path / "run", "BertForMaskedLM")
    export_checkpoint(run, tmp_path / "out", format="torch", head="encoder", console=Console())
    assert "pooler_output is left out" in everything(capfd)
    assert list(program.open_program(tmp_path / "out/model.pt2")(batch_of(2, 3))) == ["last_hidden_state"]


def test_head_that_minibert_does_not_have_is_named(tmp_path, capfd):
    run = make(tmp_path / "run", "BertForSequenceClassification")
    config = json.loads((run / "config.json").read_text("utf-8"))
    (run / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMultipleChoice"]}))
    export_checkpoint(run, tmp_path / "out", format="hf", console=Console())
    assert "classifier.bias, classifier.weight: no part of BertModel, left out" in everything(capfd)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "gguf"}, r"--format: there is no format 'gguf'\n  fix: one of onnx, hf, torch"),
        ({"head": "tagger"}, r"--head: there is no head 'tagger'\n  fix: one of encoder, pretraining, mlm"),
        ({"format": "torch", "int8": True}, r"--int8: weights of 8 bits are for ONNX, not for 'torch'"),
        ({"format": "hf", "text": Path("x.txt")}, r"--text: nothing is computed with this format"),
        ({"format": "torch", "text": Path("absent.txt")}, r"absent.txt: cannot be read: No such file"),
        ({"head": "qa"}, r"run: a part of BertForQuestionAnswering is not in it: qa_outputs.weight, qa_outputs.bias"),
    ],
)
def test_what_does_not_fit_is_refused(options, message, tmp_path):
    run = make(tmp_path / "run")
    with pytest.raises(UserError, match=message.replace("run:", r"\S*run:")) as caught:
        export_checkpoint(run, tmp_path / "out", console=QUIET, **options)
    assert caught.value.fix
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("there", ["a file", "a folder with a file", "the model itself"])
def test_out_that_is_not_empty_is_refused(there, tmp_path):
    run = make(tmp_path / "run")
    out = run if there == "the model itself" else tmp_path / "out"
    if there == "a file":
        out.write_text("mine")
    elif there == "a folder with a file":
        out.mkdir()
        (out / "mine").write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="is there already and is not empty"):
        export_checkpoint(run, out, format="hf", console=QUIET)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_model_that_is_no_bert_is_refused(tmp_path):
    run = make(tmp_path / "run")
    config = json.loads((run / "config.json").read_text("utf-8"))
    (run / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}))
    with pytest.raises(UserError, match="model_type is 'roberta'"):
        export_checkpoint(run, tmp_path / "out", console=QUIET)
    with pytest.raises(UserError, match="absent: there is no such folder"):
        export_checkpoint(tmp_path / "absent", tmp_path / "out", console=QUIET)


def test_absent_packages_are_named_before_the_model_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None if name != "onnx" else object())
    with pytest.raises(UserError, match="onnxscript, onnxruntime are not installed") as caught:
        export_checkpoint(tmp_path / "absent", tmp_path / "out", console=QUIET)
    assert caught.value.fix == f"{sys.executable} -m pip install onnx onnxscript onnxruntime"
    export_checkpoint(make(tmp_path / "run"), tmp_path / "out", format="hf", console=QUIET)  # which needs none of them


def test_result_that_is_not_the_model_is_not_written(tmp_path, monkeypatch):
    run = make(tmp_path / "run")

    def wrong(path):
        right = program.open_program(path)
        return lambda rows: {name: values + 2e-5 for name, values in right(rows).items()}

    monkeypatch.setattr(folder, "open_program", wrong)
    with pytest.raises(UserError, match=r"model.pt2: its outputs differ from the model's by up to 2.*more than 1e-05"):
        export_checkpoint(run, tmp_path / "out", format="torch", console=QUIET)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_rounding_is_no_difference_but_nan_and_twice_the_rounding_are(tmp_path):
    model, tokenizer = minibert.load(make(tmp_path / "run"))
    sample = random_rows(tokenizer, [9, 4], 2)
    exact = runner(minibert.load(tmp_path / "run")[0].double())(sample.rows)
    assert 0 < check_equal(model, lambda rows: exact, [sample], most=0.0, name="x") < 1e-5  # the truth is near enough
    for shift in (1e-4, float("nan")):
        with pytest.raises(UserError, match="differ from the model's"):
            check_equal(model, lambda rows, by=shift: {"logits": exact["logits"] + by}, [sample], most=1e-5, name="x")


def test_answers_are_those_that_a_user_would_read():
    keep = np.array([[True, True, False]])
    tags = np.array([[[0.0, 1.0], [2.0, 1.0], [9.0, 0.0]]])
    assert answers("logits", tags, keep, multi_label=False).tolist() == [1, 0]
    assert answers("start_logits", np.array([[1.0, 2.0, 9.0]]), keep, multi_label=False).tolist() == [1]
    assert answers("logits", np.array([[-1.0, 2.0]]), keep, multi_label=True).tolist() == [[False, True]]
    assert answers("logits", np.array([[-1.0, 2.0]]), keep, multi_label=False).tolist() == [1]


def test_losses_count_tokens_and_leave_padding_out():
    sample = Sample({"attention_mask": np.array([[1, 1], [1, 0]])}, "two rows")
    before = np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    after = before + np.array([[[0.0, 0.0], [1.5, 0.0]], [[0.0, 0.0], [99.0, 0.0]]])
    (row,) = losses(lambda rows: {"logits": before}, lambda rows: {"logits": after}, sample, multi_label=False)
    assert row == ("logits", "1.5", "0.5", "33.3% of 3 answers")
    (row,) = losses(
        lambda rows: {"last_hidden_state": before}, lambda rows: {"last_hidden_state": after}, sample, multi_label=False
    )
    assert row[3] == "cosine 0.555 or more"  # (0, 1) against (1.5, 1): 1 / sqrt(3.25)
    number = np.array([[0.5], [1.5]])
    (row,) = losses(lambda rows: {"logits": number}, lambda rows: {"logits": number}, sample, multi_label=False)
    assert row == ("logits", "0", "0.5", "-")


def test_rows_of_a_text_and_random_rows(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b c\n\n" + "d " * 40 + "\n", "utf-8")
    sample = text_rows(TOKENIZER, path, LIMIT)
    assert (sample.shape, sample.name, sample.keep.sum(1).tolist()) == ("2 x 12", "2 lines of text.txt", [5, 12])
    assert sample.first().rows["input_ids"].tolist() == TOKENIZER("a b c")["input_ids"].tolist()
    path.write_text("\n \n")
    with pytest.raises(UserError, match="no line of text"):
        text_rows(TOKENIZER, path, LIMIT)
    path.write_bytes(b"a\xff")
    with pytest.raises(UserError, match="is not UTF-8: byte 1"):
        text_rows(TOKENIZER, path, LIMIT)
    sample = random_rows(TOKENIZER, [0, 4], 2)
    assert sample.rows["attention_mask"].tolist() == [[0, 0, 0, 0], [1, 1, 1, 1]]
    assert sample.rows["token_type_ids"].tolist() == [[0, 0, 0, 0], [0, 0, 1, 1]]
    assert set(sample.rows["input_ids"][1, 1:]) <= set(TOKENIZER.ordinary_ids.tolist())
    assert check.extremes(TOKENIZER, LIMIT, 1)[1].shape == "1 x 12"


def test_command_is_quiet_and_answers_with_its_exit_code(tmp_path):
    run = make(tmp_path / "run")
    arguments = ["export", "--model", str(run), "--out", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-W", "always", "-m", "minibert", *arguments, "--int8"], capture_output=True,
        text=True, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out/model_int8.onnx").is_file()
    done = subprocess.run(
        [sys.executable, "-m", "minibert", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert (done.returncode, done.stderr.count("minibert: error: ")) == (2, 1)
    assert "Traceback" not in done.stderr
    shown = CliRunner().invoke(commands, ["export", "--help"]).output
    assert all(option in shown for option in ("--model", "--out", "--format", "--head", "--int8", "--text", "--quiet"))


def test_snippet_and_page_run_as_they_stand(tmp_path, monkeypatch, capfd):
    extra = {**LABELS, "minibert": {"task": "cls", "settings": {"max_length": 10}}}
    run = make(
        tmp_path / "runs/topics", "BertForSequenceClassification", max_position_embeddings=128, norm="pre", extra=extra
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    export_checkpoint(Path("runs/topics"), Path("exported"), console=Console())
    said = everything(capfd)
    assert "max_length=10)" in said  # as long as the task's rows were, not as the model takes
    check_onnx(run, Path("exported/model.onnx"), "BertForSequenceClassification")
    names: dict[str, Any] = {}
    exec(said[said.index("import minibert") :], names)
    assert names["outputs"][0].shape == (1, 3)

    page = (ROOT / "docs/export.md").read_text("utf-8")
    onnx_block, torch_block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(onnx_block, names)
    with torch.inference_mode():
        model, tokenizer = minibert.load(run)
        best = model(**tokenizer(names["texts"], max_length=10)).logits.argmax(-1)
    assert names["answers"] == [LABELS["id2label"][str(i)] for i in best.tolist()]
    export_checkpoint(Path("runs/topics"), Path("exported-torch"), format="torch", console=QUIET)
    exec(torch_block, names)
    np.testing.assert_allclose(names["logits"].numpy(), names["outputs"][0], atol=1e-5)


def test_several_outputs_keep_their_order(tmp_path):
    model, _ = minibert.load(make(tmp_path / "run", "BertForQuestionAnswering"))
    model = type(model)(replace(model.config, hidden_dropout_prob=0.5))
    model.train()
    assert list(NamedOutputs(model)(*(torch.ones(2, 3, dtype=torch.int64) for _ in INPUTS))) == [
        "start_logits", "end_logits",
    ]  # fmt: skip
