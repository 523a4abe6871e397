"""Predict, evaluate and pipeline: files, standard input, other people's checkpoints, and what is refused."""

import json
import math
import subprocess
import sys

import pytest
import torch

import minibert
from minibert.console import Console
from minibert.errors import UserError
from minibert.finetune.story import finetune
from minibert.predict import Predictor, evaluate_file, predict_file, share_that_differs
from minibert.tasks import find_tasks
from minibert.tokenization.tokenizer import BertTokenizer

TASKS = find_tasks()
ROWS = "text,label\na red cat,cat\nthe old dog,dog\nnew red cat,cat\na dog,dog\n"
TAGS = "Tom\tB-PER\nruns\tO\n\nthe\tO\nred\tO\ncat\tO\n\nin\tO\nRome\tB-LOC\n"
QUESTIONS = json.dumps(
    {"data": [{"paragraphs": [{"context": "Tom runs in Rome.", "qas": [
        {"id": "q1", "question": "Who runs?", "answers": [{"text": "Tom", "answer_start": 0}]},
        {"id": "q2", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 12}]},
    ]}]}]}
)  # fmt: skip
FILES = {"cls": ("rows.csv", ROWS), "ner": ("tags.conll", TAGS), "qa": ("questions.json", QUESTIONS)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, checkpoint_for):
    """A run of each task after a step or two, and its training file."""
    found = {}
    for name, (file, text) in FILES.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / file).write_text(text, "utf-8")
        model = checkpoint_for(ROWS + TAGS + "Tom runs in Rome. Who runs? Where?", folder / "model")
        config = TASKS[name].Config(
            max_length=32, epochs=1.0, precision="fp32", **({"stride": 4} if name == "qa" else {})
        )
        finetune(TASKS[name], config, model, folder / "run", train=folder / file, console=Console(silent=True))
        found[name] = (folder / "run", folder / file)
    return found


def command(*words, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "minibert", *map(str, words)], input=stdin, capture_output=True, text=True
    )


def test_lines_of_standard_input_are_texts(runs):
    done = command("predict", "--model", runs["cls"][0], "-", stdin="a red cat\n\nthe old dog\n")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["text"] for line in lines] == ["a red cat", "", "the old dog"]
    assert set(lines[0]["scores"]) == {"cat", "dog"}


def test_evaluate_prints_scores_as_json_alone(runs):
    run, file = runs["cls"]
    done = command("evaluate", "--model", run, file)
    assert done.returncode == 0, done.stderr
    assert {"accuracy", "f1", "macro_f1", "mcc", "loss"} <= set(json.loads(done.stdout))
    assert "confusions" in done.stderr


def test_scores_go_to_a_file(runs, tmp_path):
    run, file = runs["ner"]
    done = command("evaluate", "--model", run, file, "--out", tmp_path / "scores.json", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "scores.json").read_text())["support"] == 2


def test_mistakes_on_standard_input_are_called_by_its_name(runs):
    done = command("evaluate", "--model", runs["ner"][0], "-", stdin="Tom\tB-PER\nruns\n")
    assert done.returncode == 2
    assert done.stderr.startswith("minibert: error: standard input:2: ")
    assert "/tmp" not in done.stderr


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("cls", ["--format", "conll"], "--format: the task cls does not write 'conll'\n  fix: one of jsonl"),
        ("cls", ["--stride", "3"], "--stride: the task cls has no setting stride"),
        ("cls", ["--max-length", "65"], "--max-length: rows of 65 tokens are longer than the model's 64 positions"),
        ("ner", ["--stride", "40"], "stride (40), the overlap of windows, is not below the 30 tokens"),
    ],
)
def test_options_that_do_not_fit_are_refused(runs, task, words, message):
    run, file = runs[task]
    done = command("predict", "--model", run, file, *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("source", ["nowhere.csv", "."])
def test_no_file_is_a_message(runs, source, tmp_path):
    done = command("predict", "--model", runs["cls"][0], source)
    assert done.returncode == 2
    assert done.stderr.startswith(f"minibert: error: {source}: ")


def test_nothing_is_left_where_predicting_fails(runs, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}\n', "utf-8")
    done = command("predict", "--model", runs["cls"][0], tmp_path / "bad.jsonl", "--out", tmp_path / "out.jsonl")
    assert done.returncode == 2
    assert "bad.jsonl:2" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_out_is_never_a_folder_nor_the_input(runs, tmp_path, verb):
    run, file = runs["cls"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/precious").touch()
    done = command(verb, "--model", run, file, "--out", tmp_path / "folder")
    assert done.returncode == 2
    assert "is a directory" in done.stderr
    assert (tmp_path / "folder/precious").exists()
    mine = tmp_path / "rows.csv"
    mine.write_bytes(file.read_bytes())
    done = command(verb, "--model", run, mine, "--out", mine)
    assert done.returncode == 2
    assert "would overwrite the input" in done.stderr
    assert mine.read_bytes() == file.read_bytes()


def test_out_is_no_file_of_the_model(runs):
    run, file = runs["cls"]
    before = (run / "config.json").read_bytes()
    done = command("predict", "--model", run, file, "--out", run / "config.json")
    assert done.returncode == 2
    assert "would overwrite a file of the model" in done.stderr
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize("setting", ["regression", "multi_label"])
def test_what_a_model_is_stays(runs, setting):
    with pytest.raises(UserError, match=f"--{setting.replace('_', '-')}: is decided when a model is trained"):
        minibert.pipeline(runs["cls"][0], **{setting: True})


def test_files_of_another_task_are_refused_by_their_names(runs):
    for task, other in (("ner", "cls"), ("cls", "ner")):
        done = command("predict", "--model", runs[task][0], runs[other][1])
        assert done.returncode == 2
        assert "are not of this task" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_fault(runs, tmp_path):
    (tmp_path / "many.txt").write_text("a red cat\n" * 9000, "utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "minibert", "predict", "--model", runs["cls"][0], tmp_path / "many.txt", "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


def test_pipes_are_read(runs):
    done = command("predict", "--model", runs["cls"][0], "/dev/stdin", stdin="a red cat\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == "a red cat"


def test_a_file_is_no_checkpoint(runs):
    done = command("predict", "--model", runs["cls"][0] / "model.safetensors", "-")
    assert done.returncode == 2
    assert "model.safetensors: is a file; a checkpoint is a folder" in done.stderr


def test_a_pre_trained_model_is_no_model_for_a_task(corpus, tmp_path):
    from minibert.config import PretrainConfig
    from minibert.pretrain import pretrain

    config = PretrainConfig(
        steps=1, layers=1, hidden_size=16, heads=2, vocab_size=60, max_length=32, batch_size=4, micro_batch_size=4,
        precision="fp32",
    )  # fmt: skip
    pretrain([corpus], tmp_path / "run", config, console=Console(silent=True))
    with pytest.raises(UserError, match="no model for a task: its architecture is BertForPreTraining") as caught:
        Predictor(tmp_path / "run")
    assert "minibert finetune --task" in str(caught.value)


def test_an_encoder_that_claims_a_head_is_refused(runs, tmp_path, checkpoint_for):
    folder = checkpoint_for("a b", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForTokenClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"has no head for the task ner \(not in there: classifier.weight"):
        Predictor(folder)


def test_an_unknown_task_is_named(runs, tmp_path):
    import shutil

    shutil.copytree(runs["cls"][0], tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())
    config["minibert"]["task"] = "rhyme"
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="was trained for the task 'rhyme', which is not here"):
        Predictor(tmp_path / "run")


def test_models_of_transformers_predict_with_their_labels(tmp_path, checkpoint_for):
    """A folder that transformers has saved: no word of minibert in it. The scores are transformers' own."""
    import transformers

    source = checkpoint_for("a red cat the old dog", tmp_path / "m")
    torch.manual_seed(1)
    theirs = transformers.BertForSequenceClassification.from_pretrained(
        source, id2label={0: "bad", 1: "good", 2: "odd"}, label2id={"bad": 0, "good": 1, "odd": 2}
    ).eval()
    with torch.no_grad():
        theirs.classifier.weight.normal_()
    theirs.save_pretrained(tmp_path / "theirs")
    BertTokenizer.from_pretrained(source).save_pretrained(tmp_path / "theirs")
    classify = minibert.pipeline(tmp_path / "theirs")
    answer = classify("a red cat")
    with torch.no_grad():
        batch = BertTokenizer.from_pretrained(source)(["a red cat"])
        scores = theirs(**batch).logits.softmax(-1)[0].tolist()
    assert list(answer["scores"]) == ["bad", "good", "odd"]
    assert list(answer["scores"].values()) == pytest.approx(scores, abs=1e-5)


def test_multi_label_and_regression_of_transformers_are_told_from_the_config(tmp_path, checkpoint_for):
    import transformers

    source = checkpoint_for("a red cat the old dog", tmp_path / "m")
    for problem, labels, expected in (
        ("multi_label_classification", {0: "a", 1: "b"}, list),
        ("regression", {0: "LABEL_0"}, float),
    ):
        folder = tmp_path / problem
        transformers.BertForSequenceClassification.from_pretrained(
            source, id2label=labels, problem_type=problem
        ).save_pretrained(folder)
        BertTokenizer.from_pretrained(source).save_pretrained(folder)
        assert isinstance(minibert.pipeline(folder)("a red cat")["label"], expected)


def test_pipelines_answer_in_the_users_own_words(runs):
    tag = minibert.pipeline(runs["ner"][0])
    assert tag("Tom runs")["tokens"] == ["Tom", "runs"]
    assert [found["tokens"] for found in tag(["Tom", ["Tom", "runs"]])] == [["Tom"], ["Tom", "runs"]]
    context = "Tom runs in Rome."
    answer = minibert.pipeline(runs["qa"][0])(question="Who runs?", context=context)
    assert answer["answer"] == context[answer["start"] : answer["end"]]


def test_pipeline_takes_settings_of_its_task_only(runs):
    assert minibert.pipeline(runs["qa"][0], max_answer_length=3).predictor.task.config.max_answer_length == 3
    with pytest.raises(UserError, match="the task cls has no setting max_answer_length"):
        minibert.pipeline(runs["cls"][0], max_answer_length=3)


@pytest.mark.parametrize(
    ("settings", "said"), [({"precision": "zz"}, "no precision 'zz'"), ({"batch_size": 0}, "batch_size is 0")]
)
def test_a_pipeline_is_not_made_with_what_it_cannot_do(runs, settings, said):
    with pytest.raises(UserError, match=said):
        minibert.pipeline(runs["cls"][0], **settings)


def test_an_empty_list_gives_an_empty_list(runs):
    assert minibert.pipeline(runs["cls"][0])([]) == []


def test_predictions_of_many_records_come_in_chunks(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("minibert.predict.CHUNK", 3)
    texts = [f"a {'red ' * (i % 5)}cat" for i in range(10)]
    (tmp_path / "many.txt").write_text("\n".join(texts) + "\n", "utf-8")
    predict_file(
        Predictor(runs["cls"][0]), tmp_path / "many.txt", tmp_path / "out", output_format="jsonl", batch_size=2,
        console=Console(silent=True),
    )  # fmt: skip
    assert [json.loads(line)["text"] for line in (tmp_path / "out").read_text().splitlines()] == texts


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_lower_precision_answers_nearly_the_same(runs, precision):
    texts = ["a red cat", "the old dog"]
    exact, half = (minibert.pipeline(runs["cls"][0], precision=name)(texts) for name in ("fp32", precision))
    for one, other in zip(exact, half, strict=True):
        assert one["scores"] != other["scores"]
        assert one["scores"] == pytest.approx(other["scores"], abs=0.02)


def test_evaluate_says_what_a_precision_loses(runs, tmp_path):
    run, file = runs["ner"]
    plain, lower = tmp_path / "plain.json", tmp_path / "int8.json"
    assert command("evaluate", "--model", run, file, "--out", plain).returncode == 0
    done = command("evaluate", "--model", run, file, "--precision", "int8", "--out", lower)
    assert done.returncode == 0, done.stderr
    assert "int8 beside float32: " in done.stderr
    scores = json.loads(lower.read_text())
    exact = json.loads(plain.read_text())
    assert scores["fp32"] == pytest.approx(exact, abs=1e-6)
    assert set(scores) == {*exact, "fp32", "differs"}
    assert scores["loss"] != exact["loss"]


def test_the_loss_of_quality_counted_by_hand(runs, monkeypatch):
    """Of four rows float32 has three right; bfloat16 another three, so that two answers differ."""
    run, file = runs["cls"]
    labels = {"no": ("cat", "dog", "cat", "cat"), "bf16": ("cat", "cat", "cat", "dog")}
    losses = {"no": 1.5, "bf16": 2.0}

    def answers(self, *_):
        return [{"label": label, "scores": {}} for label in labels[self.precision]], losses[self.precision]

    monkeypatch.setattr(Predictor, "answers", answers)
    scores = evaluate_file(Predictor(run, precision="bf16"), file, batch_size=4, console=Console(silent=True))
    assert (scores["accuracy"], scores["loss"]) == (0.75, 2.0)
    assert (scores["fp32"]["accuracy"], scores["fp32"]["loss"]) == (0.75, 1.5)
    assert scores["differs"] == 0.5
    assert "fp32" not in evaluate_file(Predictor(run), file, batch_size=4, console=Console(silent=True))


def test_numbers_do_not_count_as_other_answers(runs):
    task = Predictor(runs["cls"][0]).task
    assert math.isnan(share_that_differs(task, [{"label": 1.5}], [{"label": 1.5001}]))
    assert share_that_differs(task, [{"label": ["a"]}, {"label": []}], [{"label": ["a"]}, {"label": ["b"]}]) == 0.5


def test_int8_is_refused_where_torch_has_none(runs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        with pytest.raises(UserError, match="--precision: int8 is for CPUs, and this would run on cuda"):
            minibert.pipeline(runs["cls"][0], precision="int8")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(UserError, match="--precision: int8 needs a torch with oneDNN"):
        minibert.pipeline(runs["cls"][0], precision="int8")


def test_load_gives_the_class_of_the_task(runs):
    for name, kind in (("cls", "SequenceClassification"), ("ner", "TokenClassification"), ("qa", "QuestionAnswering")):
        model, tokenizer = minibert.load(runs[name][0])
        assert type(model).__name__ == f"BertFor{kind}"
        assert len(tokenizer) == model.config.vocab_size


@pytest.mark.parametrize("task", FILES)
def test_answers_are_the_same_where_padding_is_left_out(task, runs, monkeypatch):
    """As on a GPU in half precision; here rows are padded inside attention alone."""
    from minibert.model.attention import RealTokens

    run, file = runs[task]
    predictor = Predictor(run)
    examples = predictor.task.read(file, gold=False).examples
    assert not predictor.unpadded  # there is no kernel for it on a CPU
    want = predictor.predict(examples)
    made = []
    original = RealTokens.of
    monkeypatch.setattr(RealTokens, "of", lambda mask: made.append(mask) or original(mask))
    predictor.unpadded = True
    got = predictor.predict(examples)
    assert made
    for a, b in zip(got, want, strict=True):
        assert a[predictor.task.answer] == b[predictor.task.answer]
        if task == "cls":
            assert a["scores"] == pytest.approx(b["scores"], abs=1e-5)
