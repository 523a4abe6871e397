"""The shared catalogue of real-world failures, on its own files: what concerns checkpoints in Python and pre-training.

Fine-tuning's sides of H06, H08, H10 and H12 are in test_cases_finetune.py; the same behaviours are tested with small
inputs of our own in tests/checkpoint/.
"""

import json
import runpy
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

import minibert
from minibert.checkpoint.folder import load_model
from minibert.config import PretrainConfig
from minibert.errors import UserError
from minibert.pretrain import pretrain

MODEL = "model.safetensors"


@pytest.fixture
def made(case, monkeypatch, tmp_path):
    """What a case's make.py writes with transformers: (the folder, ids and logits that transformers computed)."""

    def make(name, variant):
        out = tmp_path / f"{name}-{variant}"
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["make.py", str(out), variant])
            runpy.run_path(str(case(name)[0] / "make.py"))
        return out, torch.load(out / "ref.pt", weights_only=True)

    return make


def assert_logits(model, reference):
    with torch.no_grad():
        out = model(reference["ids"])
    for mine, theirs in ((out.prediction_logits, "mlm"), (out.seq_relationship_logits, "nsp")):
        assert (mine - reference[theirs]).abs().max() <= 1e-6


def trained(text, source, out, **changes):
    settings = {"steps": 1, "batch_size": 4, "micro_batch_size": 4, "max_length": 16, "max_positions": 32, "workers": 1,
                "precision": "fp32", "eval_every": 0, "save_every": 0, "nsp": True, **changes}  # fmt: skip
    return pretrain([text], out, PretrainConfig(**settings), corpus=[str(text)], start_from=source)


@pytest.fixture
def han(tmp_path):
    """Text of the 35 characters that the cases' vocabularies hold."""
    path = tmp_path / "han.txt"
    lines = ["".join(chr(0x4E00 + (3 * n + i) % 35) for i in range(9)) + "。" for n in range(24)]
    path.write_text("\n\n".join("\n".join(lines[n : n + 3]) for n in range(0, 24, 3)) + "\n", "utf-8")
    return path


def test_h01_old_names_of_norms_are_read(case, made):
    _, facts = case("H01")
    folder, reference = made("H01", "gamma")
    stored = load_file(folder / MODEL)
    assert sum(name.endswith(("LayerNorm.gamma", "LayerNorm.beta")) for name in stored) == 8
    model, report = load_model(minibert.BertForPreTraining, folder)
    assert (len(report.fresh), len(report.ignored)) == (int(facts["missing"]), int(facts["unexpected"]))
    assert facts["max_abs_logit_diff"] == "1e-6"
    assert_logits(model, reference)


@pytest.mark.parametrize("variant", ["hf", "full", "onlydecbias"])
def test_h04_a_tied_decoder_in_all_its_forms(case, made, tmp_path, variant):
    import transformers

    _, facts = case("H04")
    assert variant in facts["logits_equal"]
    folder, reference = made("H04", variant)
    model, tokenizer = minibert.load(folder)
    assert_logits(model, reference)

    def assert_tied(model):
        head, words = model.cls.predictions, model.bert.embeddings.word_embeddings
        assert head.decoder.weight.data_ptr() == words.weight.data_ptr()
        assert head.decoder.bias is head.bias

    assert_tied(model)
    ids = reference["ids"]
    model.train()(ids, labels=ids, next_sentence_label=torch.tensor([0])).loss.backward()
    torch.optim.AdamW(model.parameters(), lr=0.01).step()
    model.eval().save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    assert len(load_file(tmp_path / "again" / MODEL)) == int(facts["hf_tensor_count"])
    assert_tied(minibert.load(tmp_path / "again")[0])
    theirs, info = transformers.BertForPreTraining.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert len(info["missing_keys"]) == int(facts["hf_missing_keys_for_minibert_file"])
    assert not any(info.values())
    with torch.no_grad():
        mine, other = model(ids), theirs.eval()(ids)
    assert (mine.prediction_logits - other.prediction_logits).abs().max() <= 1e-6


def test_h06_more_tokens_than_embeddings_are_refused_everywhere(case, made, han, tmp_path):
    folder, facts = case("H06")
    model, _ = made("H01", "hf")
    shutil.copyfile(folder / "vocab48.txt", model / "vocab.txt")
    from minibert.fill_mask import fill_masks

    attempts = (
        lambda: minibert.load(model),
        lambda: minibert.load(model, "cls"),
        lambda: minibert.embed(model, ["一"]),
        lambda: fill_masks(model, ["[MASK]"]),
        lambda: trained(han, model, tmp_path / "run"),
    )
    for attempt in attempts:
        with pytest.raises(UserError) as caught:
            attempt()
        assert all(number in str(caught.value) for number in facts["message_has"].split(", "))
    assert facts["steps_run"] == "0"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.json", "bert_config.json"])
def test_h08_a_config_of_googles_is_kept_and_completed(case, made, tmp_path, name):
    from transformers import AutoModel, AutoTokenizer

    folder, facts = case("H08")
    source, reference = made("H01", "hf")
    (source / "config.json").unlink()
    shutil.copyfile(folder / name, source / name)
    model = minibert.BertForPreTraining.from_pretrained(source)
    _, tokenizer = minibert.load(source, "pretraining")
    assert facts["loads"] == "yes"
    assert_logits(model, reference)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    given = json.loads((folder / name).read_text("utf-8"))
    saved = json.loads((tmp_path / "saved" / "config.json").read_text("utf-8"))
    assert (saved["model_type"], saved["layer_norm_eps"]) == (facts["saved_model_type"], float(facts["layer_norm_eps"]))
    assert all(saved[key] == given[key] for key in facts["kept_keys"].split(","))
    assert AutoModel.from_pretrained(tmp_path / "saved").config.pad_token_id == 0
    assert len(AutoTokenizer.from_pretrained(tmp_path / "saved")) == 40


def test_h08_without_a_named_class_the_weights_say_it(case, made):
    source, reference = made("H01", "hf")
    (source / "config.json").unlink()
    shutil.copyfile(case("H08")[0] / "bert_config.json", source / "bert_config.json")
    model, _ = minibert.load(source)
    assert type(model) is minibert.BertForPreTraining
    assert_logits(model, reference)


def test_h10_longer_examples_than_positions_are_refused_before_a_step(case, made, han, tmp_path):
    assert case("H10")[1]["exit"] == "nonzero or clamped"
    model, _ = made("H01", "hf")
    with pytest.raises(UserError) as caught:
        trained(han, model, tmp_path / "run", max_length=40)
    assert all(number in str(caught.value) for number in ("40", "32"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"33 tokens are more than max_position_embeddings \(32\)"):
        minibert.load(model)[0](torch.full((1, 33), 5))


def test_h12_a_pre_trained_folder_is_one_of_transformers(case, made, han, tmp_path, monkeypatch, capsys):
    folder, _ = case("H12")
    run = tmp_path / "run"
    trained(han, made("H01", "hf")[0], run)
    monkeypatch.setattr(sys, "argv", ["check.py", str(run), "pretrain"])
    capsys.readouterr()
    runpy.run_path(str(folder / "check.py"))
    assert capsys.readouterr().out.startswith("OK BertForPreTraining")
    names = {path.name for path in run.iterdir()}
    assert {"config.json", MODEL, "tokenizer_config.json", "vocab.txt", "tokenizer.json"} <= names
