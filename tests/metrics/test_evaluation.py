"""The evaluate.Metric classes: the functions' values, inputs as people have them, nothing written."""

import subprocess
import sys

import evaluate
import numpy as np
import pytest
import torch

import minibert.metrics
from minibert.metrics import (
    Classification,
    CmrcAnswers,
    Entities,
    MultiLabelClassification,
    Regression,
    SquadAnswers,
)
from minibert.metrics.classification import score_classes, score_labels, score_numbers

ALL = [Classification, MultiLabelClassification, Regression, Entities, SquadAnswers, CmrcAnswers]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """evaluate's own place for files; no test may write to it."""
    place = tmp_path / "evaluate"
    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", str(place))
    yield place
    assert not place.exists()


@pytest.mark.parametrize("cls", [Classification, Regression])
def test_nothing_is_written(cls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    metric = cls()
    metric.add_batch(predictions=[1, 0], references=[1, 1])
    assert not list(tmp_path.iterdir())
    metric.compute()
    assert not list(tmp_path.iterdir())


def test_functions_come_without_evaluate_and_torch():
    code = (
        "import sys, minibert.metrics; from minibert.metrics import tagging, squad, cmrc, classification;"
        "print([name for name in ('evaluate', 'datasets', 'torch', 'sklearn', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_room_offers_its_classes_and_no_others():
    assert {cls.__name__ for cls in ALL} == set(minibert.metrics.__all__)
    assert set(minibert.metrics.__all__) <= set(dir(minibert.metrics))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = minibert.metrics.Nothing


@pytest.mark.parametrize("cls", ALL)
def test_each_is_a_metric_with_its_help(cls):
    metric = cls()
    assert isinstance(metric, evaluate.Metric)
    assert metric.description
    assert "predictions" in metric.compute.__doc__


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_classes_as_numbers(kind):
    scores = Classification().compute(predictions=kind([1, 0, 2]), references=kind([1, 1, 2]))
    assert scores == score_classes([1, 1, 2], [1, 0, 2], 3)


def test_classes_as_names():
    metric = Classification()
    scores = metric.compute(predictions=["b", "b", "a"], references=["b", "a", "a"])
    assert scores == score_classes([1, 0, 0], [1, 1, 0], 2)
    scores = metric.compute(predictions=["b", "b", "a"], references=["b", "a", "a"], labels=["b", "a"])
    assert scores == score_classes([0, 1, 1], [0, 0, 1], 2)
    with pytest.raises(ValueError, match="'c' is not one of the labels 'a', 'b'"):
        metric.compute(predictions=["c"], references=["a"], labels=["a", "b"])


def test_two_numbered_classes_of_which_one_occurs():
    assert Classification().compute(predictions=[0, 0], references=[0, 0])["f1"] == 0.0


def test_batches_add_up_and_are_forgotten():
    metric = Classification()
    metric.add_batch(predictions=[1, 0], references=[1, 1])
    metric.add_batch(predictions=[], references=[])
    metric.add(prediction=0, reference=0)
    assert len(metric) == 3
    assert metric.compute(predictions=[1], references=[0]) == score_classes([1, 1, 0, 0], [1, 0, 0, 1], 2)
    assert metric.compute(predictions=[1], references=[1])["accuracy"] == 1.0
    with pytest.raises(ValueError, match="nothing to score"):
        metric.compute()


@pytest.mark.parametrize("cls", ALL)
def test_empty_lists_are_no_crash(cls):
    scores = cls().compute(predictions=[], references=[])
    assert all(not score or score != score for score in scores.values())  # 0, nothing or NaN


def test_labels_of_a_text():
    metric = MultiLabelClassification()
    expected = score_labels([[1, 1], [0, 0]], [[1, 0], [0, 1]])
    assert metric.compute(predictions=[["a"], ["b"]], references=[["a", "b"], []]) == expected
    assert metric.compute(predictions=np.eye(2, dtype=int), references=torch.tensor([[1, 1], [0, 0]])) == expected
    assert metric.compute(predictions=[["a"]], references=[["a"]], labels=["a", "b"])["macro_f1"] == 0.5
    with pytest.raises(ValueError, match="differ in length"):
        metric.compute(predictions=[[1, 0]], references=[[1]])


def test_numbers():
    scores = Regression().compute(predictions=np.array([1, 2.5, 2]), references=[1, 2, 3])
    assert scores == score_numbers([1, 2, 3], [1, 2.5, 2])


def test_entities():
    gold, predicted = [["B-PER", "I-PER", "O", "B-LOC"], []], [["I-PER", "I-PER", "O", "B-LOC"], []]
    scores = Entities().compute(predictions=predicted, references=gold)
    assert (scores["f1"], scores["support"]) == (1.0, 2)
    assert scores["per_type"]["PER"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}
    assert Entities().compute(predictions=predicted, references=gold, strict=True)["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "answers",
    [{"text": ["cat", "the cat"], "answer_start": [3, 0]}, [{"text": "cat", "answer_start": 3}], ["dog", "cat"]],
)
def test_answers_in_any_order_and_form(answers):
    predictions = [{"id": "1", "prediction_text": "A cat"}, {"id": "2", "prediction_text": ""}]
    references = [{"id": "2", "answers": {"text": [], "answer_start": []}}, {"id": "1", "answers": answers}]
    scores = SquadAnswers().compute(predictions=predictions, references=references)
    assert (scores["exact"], scores["total"], scores["NoAns_total"]) == (100.0, 2, 1)


def test_chinese_answers():
    scores = CmrcAnswers().compute(
        predictions=[{"id": "1", "prediction_text": "北京。"}], references=[{"id": "1", "answers": ["北京市", "北京"]}]
    )
    assert scores == {"cmrc_f1": 100.0, "cmrc_em": 100.0}


REFERENCE = {"id": "1", "answers": ["x"]}


@pytest.mark.parametrize(
    ("cls", "predictions", "references", "message"),
    [
        (Classification, [1, 2], [1], "2 predictions but 1 references"),
        (Classification, [1.5], [1], "a prediction is 1.5, not a class"),
        (Classification, ["a"], [1], "don't match the expected format"),
        (Classification, [1], None, "predictions and references are both needed"),
        (MultiLabelClassification, ["a"], [["a"]], "a prediction is 'a', not a list of names"),
        (Regression, ["1"], [1], "a prediction is '1', not a number"),
        (Entities, [[1]], [["O"]], "not a list of tags"),
        (Entities, [["O"]], [["O", "O"]], "sentence 1 has 2 gold tags but 1"),
        (SquadAnswers, [{"id": 1, "prediction_text": "x"}], [REFERENCE], "it needs a text as 'id'"),
        (SquadAnswers, ["x"], [REFERENCE], "it needs a text as 'id' and 'prediction_text'"),
        (SquadAnswers, [{"id": "1", "prediction_text": None}], [REFERENCE], "is not a text"),
        (SquadAnswers, [{"id": "1", "prediction_text": "", "no_answer_probability": 0.0}], [REFERENCE], "alone"),
        (SquadAnswers, [{"id": "1", "prediction_text": ""}], [{"id": "1"}], "and 'answers'"),
        (SquadAnswers, [{"id": "1", "prediction_text": ""}], [{"id": "1", "answers": "x"}], "not a list of answers"),
        (CmrcAnswers, [{"id": "1", "prediction_text": ""}] * 2, [REFERENCE] * 2, "1 of 2 references repeat an id"),
    ],
)
def test_inputs_of_another_form_are_refused(cls, predictions, references, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cls().compute(predictions=predictions, references=references)


def test_with_a_cache_dir_files_are_there_and_only_there(tmp_path):
    metric = Classification(cache_dir=tmp_path / "mine")
    metric.add_batch(predictions=[1], references=[1])
    assert list((tmp_path / "mine").rglob("*.arrow"))
    assert metric.compute()["accuracy"] == 1.0
    assert not list((tmp_path / "mine").rglob("*.arrow"))


def test_several_processes_need_a_shared_folder():
    with pytest.raises(ValueError, match="need a cache_dir"):
        Classification(num_process=2, process_id=0)
