"""A vocabulary that grows: which tokens, where, with what values; the folder is whole and everybody's."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from minibert.checkpoint.folder import save_checkpoint
from minibert.checkpoint.pretrained import (
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    load,
)
from minibert.cli import commands
from minibert.config import PretrainConfig
from minibert.console import Console
from minibert.errors import UserError
from minibert.extend import Sample
from minibert.model.bert import BertConfig
from minibert.pretrain import pretrain
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

TOKENS = [*SPECIAL_TOKENS, "[unused0]", "a", "b", "##a", "[unused1]", "##b", "##c", ".", "中"]
# abc (9 times) saves 18 tokens, then ab (5 times) 5; 国 (4 times) is unknown, 〇 too, but too rare.
TEXT = "abc.\n" * 9 + "ab 中\n" * 5 + "国.\n" * 4 + "龘 ba ba\n"
WORDS = "bert.embeddings.word_embeddings.weight"
BIAS = "cls.predictions.bias"
SHAPE = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 32, "initializer_range": 0.5,
}  # fmt: skip


def checkpoint(folder: Path, kind=BertForPreTraining, *, padding: int = 0, tokens=TOKENS, **extra) -> Path:
    """A random BERT whose biases differ, with `padding` rows that no token has."""
    torch.manual_seed(0)
    model = kind(BertConfig(vocab_size=len(tokens) + padding, extra=extra, **SHAPE))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    save_checkpoint(model, BertTokenizer.from_tokens(tokens, lowercase=True), folder)
    return folder


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "domain.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def vocab(*arguments) -> None:
    commands.main(["vocab", *map(str, arguments)], standalone_mode=False)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def tokens(folder: Path) -> list[str]:
    return (folder / "vocab.txt").read_text("utf-8").split("\n")[:-1]


def test_unused_rows_are_filled_first_then_padded_ones_then_new_ones_and_no_other_id_moves(text, tmp_path):
    old = checkpoint(tmp_path / "old", padding=1)
    vocab(text, "--extend", old, "--out", tmp_path / "new", "--min-count", 2, "--quiet")
    found = tokens(tmp_path / "new")
    # 国 fills [unused0] and abc [unused1]; ab stands where a row was padded, ba in a new one
    assert found == [*SPECIAL_TOKENS, "国", "a", "b", "##a", "abc", "##b", "##c", ".", "中", "ab", "ba"]
    config = json.loads((tmp_path / "new/config.json").read_text("utf-8"))
    assert (len(TOKENS) + 1, config["vocab_size"]) == (15, 16)
    assert weights(tmp_path / "new")[WORDS].shape == (16, 8)
    assert weights(tmp_path / "new")[BIAS].shape == (16,)


def test_a_padded_matrix_keeps_its_size_where_the_additions_fit(text, tmp_path):
    old = checkpoint(tmp_path / "old", padding=50)
    vocab(text, "--extend", old, "--out", tmp_path / "new", "--add", 3, "--quiet")
    assert tokens(tmp_path / "new")[14:] == ["ab"]
    assert weights(tmp_path / "new")[WORDS].shape == (64, 8)


def test_embeddings_are_means_and_nothing_else_changes(text, tmp_path):
    old = weights(checkpoint(tmp_path / "old"))
    vocab(text, "--extend", tmp_path / "old", "--out", tmp_path / "new", "--quiet")
    new = weights(tmp_path / "new")
    before, after = old[WORDS], new[WORDS]
    kept = [0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13]
    assert torch.equal(after[kept], before[kept])
    assert torch.equal(after[9], before[[6, 10, 11]].mean(0))  # abc was a ##b ##c
    assert torch.equal(after[14], before[[6, 10]].mean(0))  # ab was a ##b
    assert torch.equal(after[5], before[[6, 7, 8, 10, 11, 12, 13]].mean(0))  # 国: the mean of all single characters
    assert torch.equal(new[BIAS][kept], old[BIAS][kept])
    assert new.keys() == old.keys()
    assert all(torch.equal(new[name], old[name]) for name in old if name not in (WORDS, BIAS))


def test_biases_give_each_added_token_its_share_of_the_text(text, tmp_path):
    """At [MASK]s of the text the odds of a token against all old ones are f / F in the mean, to a bias's 3 decimals."""
    vocab(text, "--extend", checkpoint(tmp_path / "old"), "--out", tmp_path / "new", "--quiet")
    model, tokenizer = load(tmp_path / "new", "pretraining")
    # counts, one added to each of 15 tokens: 13 full stops, abc 9, ab 5, 中 5, 国 4, twice b ##a, 龘 is [UNK]
    added, kept = [5, 9, 14], [0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13]
    assert 14 + 6 + 3 + 3 + 2 + 7 * 1 == 35  # of the old ones: . 中 b ##a [UNK], and seven that never occur
    expected = [n / 35 for n in (5, 10, 6)]
    odds = []
    for number, line in enumerate(TEXT.splitlines()):
        (ids,) = tokenizer.encode([line])
        for place in range(number % min(6, len(ids)), len(ids), 6):
            row = [2, *ids, 3]
            row[1 + place] = 4
            with torch.no_grad():
                scores = model(torch.tensor([row])).prediction_logits[0, 1 + place].double().exp()
            odds.append(scores[added] / scores[kept].sum())
    assert torch.stack(odds).mean(0).tolist() == pytest.approx(expected, rel=1e-3)


def test_a_character_begins_as_its_other_form_where_that_is_known(tmp_path):
    text = tmp_path / "t.txt"
    text.write_text("ac ca\n" * 5, encoding="utf-8")
    old = weights(checkpoint(tmp_path / "old", BertModel, tokens=[*SPECIAL_TOKENS, "a", "##a", "##c", "ac"]))
    vocab(text, "--extend", tmp_path / "old", "--out", tmp_path / "new", "--add", 1, "--quiet")
    assert tokens(tmp_path / "new")[-1] == "c"
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(weights(tmp_path / "new")[name][9], old[name][7])


@pytest.mark.parametrize("kind", [BertModel, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification])
def test_transformers_opens_it_as_the_class_that_it_was_with_the_same_ids(kind, text, tmp_path):
    labels = {"id2label": {"0": "x", "1": "y", "2": "z"}, "minibert": {"task": "cls"}}
    extra = labels if kind is BertForSequenceClassification else {}
    old = checkpoint(tmp_path / "old", kind, **extra)
    vocab(text, "--extend", old, "--out", tmp_path / "new", "--quiet")
    theirs, info = getattr(transformers, kind.__name__).from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(info.values()), info
    ours, tokenizer = load(tmp_path / "new")
    assert type(ours) is kind
    rows = ["abc ab. 国", "龘 ba 中 abcab"]
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "new")(rows)["input_ids"] == [
        [2, *ids, 3] for ids in tokenizer.encode(rows)
    ]
    assert tokenizer.encode(["abc ab. 国"]) == [[9, 14, 12, 5]]
    batch = tokenizer(rows)
    with torch.no_grad():
        a, b = ours(**batch), theirs.eval()(**batch)
    for name in {"last_hidden_state", "logits", "prediction_logits"} & vars(a).keys():
        assert torch.allclose(getattr(a, name), getattr(b, name), atol=1e-5)
    if extra:
        config = json.loads((tmp_path / "new/config.json").read_text("utf-8"))
        assert {name: config[name] for name in labels} == labels
        assert torch.equal(weights(tmp_path / "new")["classifier.weight"], weights(old)["classifier.weight"])


def test_weights_that_the_named_class_has_no_place_for_are_kept(text, tmp_path, capfd):
    """bert-base says BertForMaskedLM and holds both heads."""
    old = checkpoint(tmp_path / "old")
    path = old / "config.json"
    path.write_text(path.read_text("utf-8").replace("BertForPreTraining", "BertForMaskedLM"), encoding="utf-8")
    vocab(text, "--extend", old, "--out", tmp_path / "new")
    assert "holds more than a BertForMaskedLM: written as BertForPreTraining" in capfd.readouterr().err
    assert weights(tmp_path / "new").keys() == weights(old).keys()


def test_what_the_class_has_and_the_checkpoint_lacks_is_named_and_always_the_same(text, tmp_path, capfd):
    old = checkpoint(tmp_path / "old", BertModel)
    path = old / "config.json"
    path.write_text(path.read_text("utf-8").replace("BertModel", "BertForPreTraining"), encoding="utf-8")
    for out in ("one", "two"):
        vocab(text, "--extend", old, "--out", tmp_path / out, "--quiet")
    assert "not in there, so they start fresh: cls.predictions" in capfd.readouterr().err
    assert (tmp_path / "one/model.safetensors").read_bytes() == (tmp_path / "two/model.safetensors").read_bytes()


def test_weights_without_a_place_are_named(text, tmp_path, capfd):
    old = checkpoint(tmp_path / "old")
    path = old / "config.json"
    path.write_text(path.read_text("utf-8").replace("BertForPreTraining", "BertForTokenClassification"), "utf-8")
    vocab(text, "--extend", old, "--out", tmp_path / "new", "--quiet")
    assert type(load(tmp_path / "new")[0]) is BertForPreTraining
    both = weights(old)
    both["qa_outputs.weight"] = torch.zeros(2, 8)
    save_file(both, old / "model.safetensors", metadata={"format": "pt"})
    vocab(text, "--extend", old, "--out", tmp_path / "newer", "--quiet")
    assert "left out, for they have no place: " in capfd.readouterr().err


def test_the_same_bytes_each_time(text, tmp_path):
    old = checkpoint(tmp_path / "old", padding=1)
    for out in ("one", "two"):
        vocab(text, "--extend", old, "--out", tmp_path / out, "--quiet")
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_it_says_what_was_added_where_and_what_it_is_worth(text, tmp_path, capfd):
    vocab(text, "--extend", checkpoint(tmp_path / "old", padding=1), "--out", tmp_path / "new", "--min-count", 2)
    said = " ".join(capfd.readouterr().err.split())
    # 44 words, 14 of abc and ab, 2 of ba: 9 x 3 + 5 x 2 + 2 x 2 + 28 tokens, 5 of them [UNK]; then 44, one of them
    assert "added 4 of 2,000: 1 characters, 3 words, 0 beginnings and continuations of words" in said
    assert "2 [unused], 1 padded rows; 1 new rows (vocab_size 15 -> 16)" in said
    assert f"tokens per word {64 / 39:.3f} -> 1.000" in said
    assert f"characters per token {64 / 64:.3f} -> {64 / 39:.3f}" in said
    assert f"unknown {5 / 64:.3%} -> {1 / 39:.3%}" in said
    for line in ("国 <- [UNK]", "abc <- a ##b ##c", "ab <- a ##b", "ba <- b ##a"):
        assert line in said
    assert "4 is all that stands in the text often enough" in said
    assert "Han characters are words by themselves" in said


def test_text_is_read_as_the_checkpoint_reads_it(tmp_path):
    text = tmp_path / "t.txt"
    text.write_text("AB ab\n" * 5, encoding="utf-8")
    tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, "A", "##B", "a", "##b"], lowercase=False)
    save_checkpoint(BertModel(BertConfig(vocab_size=9, **SHAPE)), tokenizer, tmp_path / "old")
    vocab(text, "--extend", tmp_path / "old", "--out", tmp_path / "new", "--quiet")
    assert tokens(tmp_path / "new")[9:] == ["AB", "ab"]
    assert load(tmp_path / "new")[1].encode(["AB ab"]) == [[9, 10]]


def test_a_trained_model_begins_better_than_with_random_rows_and_trains_on(tmp_path, text_of):
    """Held-out domain text at [MASK]: new rows of N(0, initializer_range) with bias 0 are far worse."""
    general, domain = tmp_path / "general.txt", tmp_path / "domain.txt"

    def text(documents: int, seed: int) -> str:
        return text_of(documents, seed=seed).replace("dog", "doglet").replace("sun", "sunmoon")

    general.write_text(text_of(60), encoding="utf-8")
    domain.write_text(text(60, seed=5), encoding="utf-8")
    config = PretrainConfig(
        steps=30, vocab_size=60, layers=1, hidden_size=32, heads=2, batch_size=16, micro_batch_size=16, max_length=32,
        max_positions=32, lr=5e-3, optimizer="adamw", eval_examples=8,
    )  # fmt: skip
    quiet = Console(silent=True)
    pretrain([general], tmp_path / "run", config, console=quiet)
    vocab(domain, "--extend", tmp_path / "run", "--out", tmp_path / "new", "--quiet")
    model, tokenizer = load(tmp_path / "new", "pretraining")
    old = len(tokens(tmp_path / "run"))
    assert {"doglet", "sunmoon"} <= set(tokenizer.tokens[old:])

    batch = tokenizer([line for line in text(10, seed=9).splitlines() if line])
    labels = batch["input_ids"].clone()
    hidden = (torch.arange(labels.numel()).view_as(labels) % 5 == 0) & (labels > 4)
    batch["input_ids"][hidden] = tokenizer.mask_token_id

    def loss() -> float:
        with torch.no_grad():
            return F.cross_entropy(model(**batch).prediction_logits[hidden], labels[hidden]).item()

    ours = loss()
    weight, bias = model.bert.embeddings.word_embeddings.weight.data, model.cls.predictions.bias.data
    weight[old:] = torch.randn(weight[old:].shape, generator=torch.Generator().manual_seed(1)) * 0.02
    bias[old:] = 0
    assert ours < loss() - 0.2  # measured: 3.02 and 3.38

    after = pretrain([domain], tmp_path / "on", PretrainConfig(**{**vars(config), "steps": 2}), console=quiet,
                     start_from=tmp_path / "new")  # fmt: skip
    assert after["steps"] == 2
    assert tokens(tmp_path / "on") == tokens(tmp_path / "new")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--add", "0"], r"--add: is 0"),
        (["--add", "-5"], r"--add: is -5"),
        (["--min-count", "0"], r"--min-count: is 0"),
        (["--vocab-size", "8000"], r"--vocab-size: --extend goes on with the checkpoint's own vocabulary"),
        (["--cased"], r"--uncased/--cased: --extend goes on"),
        (["--uncased", "--keep-accents"], r"--uncased/--cased and --strip-accents/--keep-accents: --extend goes on"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(arguments, message, text, tmp_path):
    with pytest.raises(UserError) as error:
        vocab(text, "--extend", checkpoint(tmp_path / "old"), "--out", tmp_path / "new", *arguments)
    assert message in str(error.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("flag", ["--add", "--min-count"])
def test_options_of_extending_want_a_checkpoint(flag, text, tmp_path):
    with pytest.raises(UserError, match=f"{flag}: belongs to --extend, which is not there"):
        vocab(text, flag, 100, "--out", tmp_path / "new")


def test_a_folder_without_a_tokenizer_is_refused(text, tmp_path):
    old = checkpoint(tmp_path / "old")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (old / name).unlink()
    with pytest.raises(UserError, match=r"old: no tokenizer here"):
        vocab(text, "--extend", old, "--out", tmp_path / "new")


def test_a_file_in_place_of_a_folder_is_refused(text, tmp_path):
    old = checkpoint(tmp_path / "old")
    with pytest.raises(UserError, match=r"model\.safetensors: is a file; a checkpoint is a folder"):
        vocab(text, "--extend", old / "model.safetensors", "--out", tmp_path / "new")
    with pytest.raises(UserError, match="is there already"):
        vocab(text, "--extend", old, "--out", text)


def test_an_out_that_is_there_is_refused_and_left_as_it_is(text, tmp_path):
    old = checkpoint(tmp_path / "old")
    before = (old / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match=r"old: is there already and is not empty"):
        vocab(text, "--extend", old, "--out", old)
    assert (old / "model.safetensors").read_bytes() == before


def test_a_vocabulary_larger_than_the_embedding_is_refused(text, tmp_path):
    old = checkpoint(tmp_path / "old")
    BertTokenizer.from_tokens([*TOKENS, "x", "y"], lowercase=True).save_pretrained(old)
    with pytest.raises(UserError, match="the tokenizer has 16 tokens but the model only 14 embeddings"):
        vocab(text, "--extend", old, "--out", tmp_path / "new")


@pytest.mark.parametrize("content", ["", "\n \n", "\u200b\n"])
def test_text_without_a_word_is_refused(content, tmp_path):
    (tmp_path / "t.txt").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"t\.txt: no text"):
        vocab(tmp_path / "t.txt", "--extend", checkpoint(tmp_path / "old"), "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_where_nothing_is_to_be_added_nothing_is_written(tmp_path):
    (tmp_path / "t.txt").write_text("a b 中. ab\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"old: its vocabulary fits the text as it is: .* stands 3 times in there"):
        vocab(tmp_path / "t.txt", "--extend", checkpoint(tmp_path / "old"), "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_weights_that_are_not_finite_are_refused(text, tmp_path):
    old = checkpoint(tmp_path / "old")
    spoilt = weights(old)
    spoilt[WORDS] = spoilt[WORDS] * torch.nan
    save_file(spoilt, old / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"old/model.safetensors: 1 weights are not finite"):
        vocab(text, "--extend", old, "--out", tmp_path / "new")


def test_a_sample_of_lines_is_spread_over_the_text_and_stays_small():
    sample = Sample()
    for i in range(10_000):
        sample.offer(str(i))
    assert sample.lines == [str(i) for i in range(0, 10_000, 64)]
    few = Sample()
    for line in ("a", "b" * 2000):
        few.offer(line)
    assert few.lines == ["a", "b" * 1000]
