"""What holds for every task: its demonstration is learnt by heart, a prediction a record, the same after loading."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from minibert.config import FinetuneConfig
from minibert.console import Console
from minibert.finetune.story import finetune
from minibert.predict import Predictor, evaluate_file, pipeline, predict_file
from minibert.tasks import find_tasks

TASKS = find_tasks()
# A little random model learns by heart with a high rate and many passes.
BY_HEART = {
    "epochs": 100.0, "lr": 1e-3, "batch_size": 4, "dropout": 0.0, "attention_dropout": 0.0, "precision": "fp32",
    "patience": 50, "max_length": 64,
}  # fmt: skip


@pytest.fixture(scope="module", params=sorted(TASKS))
def learnt(request, tmp_path_factory, checkpoint_for):
    """(task class, its demonstration file, a run that has learnt it)"""
    kind = TASKS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    demo = kind.demo(folder)
    model = checkpoint_for(demo.read_text("utf-8"), folder / "model")
    config = kind.Config(**{**BY_HEART, **({"stride": 8} if "stride" in kind.Config.__dataclass_fields__ else {})})
    metrics = finetune(
        kind, config, model, folder / "run", train=demo, dev=demo, test=demo, console=Console(silent=True)
    )
    return kind, demo, folder / "run", metrics


def test_the_tasks_are_found_by_being_there():
    assert set(TASKS) == {"cls", "ner", "qa"}


def test_demonstration_is_learnt_to_the_top(learnt):
    kind, _, _, metrics = learnt
    best = kind(kind.Config()).metric_names[0]
    assert metrics["dev"][best] in (1.0, 100.0)
    assert metrics["test"] == metrics["dev"]


def test_evaluate_of_the_saved_model_gives_the_same_scores(learnt):
    _, demo, run, metrics = learnt
    scores = evaluate_file(Predictor(run), demo, batch_size=4, console=Console(silent=True))
    assert scores == pytest.approx(metrics["dev"], abs=1e-6, nan_ok=True)


def test_one_prediction_for_each_record_in_order_and_the_same_in_any_batch(learnt, tmp_path):
    _, demo, run, _ = learnt
    predictor = Predictor(run)
    examples = predictor.task.read(demo, gold=False).examples
    predictions = predictor.predict(examples)
    assert len(predictions) == len(examples) > 5
    alone = [predictor.predict([example], batch_size=1)[0] for example in examples]
    assert rounded(alone) == rounded(predictions)
    backwards = predictor.predict(examples[::-1], batch_size=3)[::-1]
    assert rounded(backwards) == rounded(predictions)
    predict_file(
        predictor, demo, tmp_path / "p.jsonl", output_format="jsonl", batch_size=5, console=Console(quiet=True)
    )
    lines = (tmp_path / "p.jsonl").read_text("utf-8").splitlines()
    assert rounded(json.loads(line) for line in lines) == rounded(predictions)


def rounded(predictions):
    """Scores agree to four digits: float32 sums in another order."""

    def plain(value):
        if isinstance(value, float):
            return round(value, 4) + 0.0
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    return [plain(prediction) for prediction in predictions]


def test_no_record_gives_no_prediction(learnt):
    _, _, run, _ = learnt
    assert Predictor(run).predict([]) == []


def test_every_output_format_writes(learnt, tmp_path):
    kind, demo, run, _ = learnt
    predictor = Predictor(run)
    for name in kind.output_formats:
        predict_file(predictor, demo, tmp_path / name, output_format=name, batch_size=8, console=Console(silent=True))
        assert (tmp_path / name).stat().st_size > 0


def test_a_filler_counts_for_nothing(learnt):
    """A row that fills a batch up changes neither losses nor counts."""
    _, demo, run, _ = learnt
    predictor = Predictor(run)
    task = predictor.task
    features = task.encode(task.read(demo, gold=True).examples, predictor.tokenizer, gold=True).features[:3]
    filler = replace(features[0], ids=features[0].ids[[0, -1]], second=2, target=task.no_target())
    found = []
    for rows in (features, [*features, filler, filler]):
        batch = task.batch(rows, predictor.tokenizer.pad_token_id)
        with torch.no_grad():
            found.append((task.losses(task.forward(predictor.model, batch), batch), batch["counts"]))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-4)
    assert torch.equal(found[0][1], found[1][1])


def test_losses_are_sums_over_features(learnt):
    """What accumulation rests on: the sums and counts of parts add up to those of the whole."""
    _, demo, run, _ = learnt
    predictor = Predictor(run)
    task = predictor.task
    features = task.encode(task.read(demo, gold=True).examples, predictor.tokenizer, gold=True).features[:4]
    whole, parts = [], []
    for groups, into in (([features], whole), ([[feature] for feature in features], parts)):
        for group in groups:
            batch = task.batch(group, predictor.tokenizer.pad_token_id)
            with torch.no_grad():
                into.append(torch.stack((task.losses(task.forward(predictor.model, batch), batch), batch["counts"])))
    assert torch.allclose(torch.stack(parts).sum(0), whole[0], rtol=1e-4, atol=1e-4)


def test_saved_folder_opens_in_transformers_with_equal_logits(learnt):
    import transformers

    _, _, run, _ = learnt
    predictor = Predictor(run)
    name = json.loads((run / "config.json").read_text("utf-8"))["architectures"][0]
    theirs, info = getattr(transformers, name).from_pretrained(run, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = predictor.tokenizer(["a b c", "今天 天气"])
    with torch.no_grad():
        ours, other = predictor.model(**batch), theirs.eval()(**batch)
    for key in ("logits", "start_logits", "end_logits"):
        if hasattr(other, key):
            assert (getattr(ours, key) - getattr(other, key)).abs().max() < 1e-5


def test_pipeline_gives_one_for_one_and_a_list_for_a_list(learnt):
    kind, _, run, _ = learnt
    call = pipeline(run, batch_size=2)
    if kind.name == "qa":
        one = call(question="who?", context="It was the red cat.")
        many = call([{"question": "who?", "context": "It was the red cat."}] * 3)
    else:
        one, many = call("a red cat"), call(["a red cat"] * 3)
    assert isinstance(one, dict)
    assert rounded(many) == rounded([one] * 3)


def test_command_line_options_have_help_and_defaults_that_build():
    for kind in TASKS.values():
        assert isinstance(kind.Config(), FinetuneConfig)
        for name, item in kind.Config.__dataclass_fields__.items():
            assert item.metadata["help"], name


def test_a_fourth_task_is_one_file(tmp_path, root):
    """A copy of the package with one more file in tasks/ learns, measures and predicts it from the command line."""
    shutil.copytree(root / "minibert", tmp_path / "minibert", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "recipes", tmp_path / "recipes")
    shutil.copy(Path(__file__).parent / "toy.py", tmp_path / "minibert" / "tasks" / "long.py")
    texts = ["one", "one two", "one two three", "one two three four", "a b c d e f", "a b c d e", "b", "a b"]
    (tmp_path / "demo.txt").write_text("\n".join(texts) + "\n", "utf-8")
    script = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import torch, minibert
assert minibert.__file__.startswith({str(tmp_path)!r})
from minibert.cli import main
from minibert.checkpoint.pretrained import BertModel
from minibert.model.bert import BertConfig
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
tokenizer = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *"one two three four a b c d e f".split()], lowercase=True)
torch.manual_seed(0)
shape = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained("model")
tokenizer.save_pretrained("model")
for line in (
    "finetune --task long --model model --train demo.txt --dev demo.txt --out run --more-than 4 --max-length 16"
    " --epochs 30 --lr 3e-3 --batch-size 4 --dropout 0 --quiet",
    "evaluate --model run demo.txt --quiet --out scores.json",
    "predict --model run demo.txt --quiet --out predictions.jsonl",
    "tasks",
):
    sys.argv = ["minibert", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, (line, end.code)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "long" in done.stdout
    assert json.loads((tmp_path / "scores.json").read_text())["accuracy"] == 1.0
    found = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [p["label"] for p in found] == ["long" if len(text.split()) > 4 else "short" for text in texts]
