"""What people import from minibert itself."""

import inspect
import subprocess
import sys

import pytest
import torch

import minibert
from minibert.errors import UserError


@pytest.fixture
def run(corpus, tmp_path):
    from minibert.config import PretrainConfig
    from minibert.console import Console
    from minibert.pretrain import pretrain

    config = PretrainConfig(
        steps=1, layers=1, hidden_size=16, heads=2, vocab_size=60, max_length=32, batch_size=4, micro_batch_size=4,
        precision="fp32",
    )  # fmt: skip
    pretrain([corpus], tmp_path / "run", config, console=Console(silent=True))
    return tmp_path / "run"


def test_every_public_name_is_there():
    for name in minibert.__all__:
        assert getattr(minibert, name) is not None
    assert set(minibert.__all__) <= set(dir(minibert))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        minibert.nonsense  # noqa: B018


def test_load_gives_the_class_it_was_saved_as_and_the_tokenizer(run):
    model, tokenizer = minibert.load(run)
    assert type(model) is minibert.BertForPreTraining
    batch = tokenizer(["the red cat.", "a dog"])
    out = model(**batch)
    assert out.prediction_logits.shape == (*batch["input_ids"].shape, len(tokenizer))
    assert out.seq_relationship_logits.shape == (2, 2)


def test_what_is_saved_opens_again(run, tmp_path):
    model, tokenizer = minibert.load(run)
    model.save_pretrained(tmp_path / "copy")
    tokenizer.save_pretrained(tmp_path / "copy")
    again, _ = minibert.load(tmp_path / "copy")
    batch = tokenizer(["the red cat."])
    with torch.no_grad():
        assert torch.equal(model(**batch).prediction_logits, again(**batch).prediction_logits)


def test_a_part_opens_as_its_class(run):
    model = minibert.BertModel.from_pretrained(run)
    assert model(torch.tensor([[2, 5, 3]])).last_hidden_state.shape == (1, 3, 16)


def test_vocabulary_larger_than_the_embedding_is_refused_with_both_numbers(run):
    with (run / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("extra1\nextra2\n")
    (run / "tokenizer.json").unlink()
    lines = len((run / "vocab.txt").read_text("utf-8").splitlines())
    with pytest.raises(UserError, match=f"(?s){lines}.*{lines - 2}|{lines - 2}.*{lines}"):
        minibert.load(run)


def public_callables():
    """The public functions, and the public methods of the public classes, that minibert wrote."""
    for name in minibert.__all__:
        thing = getattr(minibert, name)
        if not inspect.isclass(thing):
            if callable(thing):
                yield name, thing
            continue
        for attribute in dir(thing):
            member = inspect.getattr_static(thing, attribute)
            member = getattr(member, "__func__", member)  # of a class method
            public = not attribute.startswith("_") or attribute in ("__init__", "__call__")
            if public and inspect.isfunction(member) and member.__module__.startswith("minibert"):
                yield f"{name}.{attribute}", member


def test_every_public_callable_has_full_annotations():
    found = dict(public_callables())
    assert {"load", "embed", "pipeline", "BertModel.forward", "BertModel.from_pretrained"} <= found.keys()
    bare = []
    for name, function in found.items():
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
        bare += [f"{name}({p.name})" for p in own if p.annotation is p.empty]
        bare += [name] if signature.return_annotation is signature.empty else []
    assert bare == []


def test_types_are_shipped(root):
    assert (root / "minibert/py.typed").is_file()


def test_every_public_name_says_what_it_is():
    for name in minibert.__all__:
        thing = getattr(minibert, name)
        if callable(thing):
            assert thing.__doc__, name


def test_loading_and_embedding_need_no_transformers_no_compiler_and_warn_of_nothing(run):
    """torch's compiler is a second of importing; drawing values on the meta device would bring it."""
    code = f"""
import sys, minibert
pair = minibert.load({str(run)!r})
assert minibert.embed(pair, "a cat").shape == minibert.embed({str(run)!r}, "a cat").shape == (16,)
assert callable(minibert.embed)
print({{"transformers", "torch._dynamo"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
