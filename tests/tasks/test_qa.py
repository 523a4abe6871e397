"""Question answering from file to score: answers by hand, by heart and as transformers learns them."""

import dataclasses
import json
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.heads import BertForQuestionAnswering
from minibert.tasks import find_tasks
from minibert.tasks.qa import Qa, QaConfig
from minibert.tasks.squad_files import QaExample
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

LETTERS = sorted({*"abcdefghijklmnopqrstuvwxyz0123456789.,?"})
TOKENIZER = BertTokenizer.from_tokens(
    [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *(chr(i) for i in range(0x4E00, 0x9FA6))],
    lowercase=True,
)
UNANSWERABLE = {"unanswerable": "yes"}


def qa(**changes):
    return Qa(QaConfig(**changes))


def asked(context, *texts, id="1", question="q"):
    span = (context.index(texts[0]), context.index(texts[0]) + len(texts[0])) if texts else None
    return QaExample(id, question, context, texts, span)


def logits_of(feature, **places):
    """Logits of 0, but where places say otherwise: start=(token, logit), end=..., null=logit."""
    found = np.zeros((2, 1 + feature.extra.length), np.float32)
    for side, name in enumerate(("start", "end")):
        if name in places:
            token, logit = places[name]
            found[side, 1 + token] = logit
    found[:, 0] = places.get("null", 0) / 2
    return found


def perfect(features):
    """What a model that knows the targets gives."""
    found = []
    for feature in features:
        logits = np.full((2, 1 + feature.extra.length), -9, np.float32)
        for side, place in enumerate(feature.target):
            logits[side, 1 + place - feature.second if place else 0] = 9
        found.append(logits)
    return found


def predicted(task, example, **places):
    features = task.encode([example], TOKENIZER, gold=False).features
    (prediction,) = task.decode([example], features, [logits_of(feature, **places) for feature in features])
    return prediction


# answers


def test_a_prediction_by_hand():
    prediction = predicted(qa(n_best=4), asked("a b b"), start=(1, 2), end=(2, 1))
    scores = np.exp(np.array([3.0, 2.0, 1.0, 0.0]))  # the second "b" alone has 1: it is no other answer
    assert [entry["answer"] for entry in prediction["nbest"]] == ["b b", "b", "a b b", "a"]
    np.testing.assert_allclose([entry["score"] for entry in prediction["nbest"]], scores / scores.sum(), atol=1e-6)
    assert {key: prediction[key] for key in ("id", "answer", "start", "end")} == {
        "id": "1", "answer": "b b", "start": 2, "end": 5,
    }  # fmt: skip
    assert "null_score" not in prediction
    json.dumps(prediction, allow_nan=False)
    assert "id" not in predicted(qa(), QaExample(None, "q", "a"))


def test_no_answer_where_its_score_is_above_by_more_than_the_threshold():
    example = asked("a b c")
    for threshold, answer in [(0.9, ""), (1.0, "b")]:
        prediction = predicted(qa(**UNANSWERABLE, null_threshold=threshold), example, start=(1, 5), end=(1, 5), null=11)
        assert (prediction["answer"], prediction["null_score"]) == (answer, 1.0)
        assert prediction["nbest"][0]["answer"] == ""
        assert prediction["score"] == next(e["score"] for e in prediction["nbest"] if e["answer"] == answer)
        assert (prediction["start"], prediction["end"]) == ((2, 3) if answer else (None, None))
    for unanswerable in ("auto", "no"):
        prediction = predicted(qa(unanswerable=unanswerable), example, start=(1, 5), end=(1, 5), null=11)
        assert prediction["answer"] == "b"
        assert all(entry["answer"] for entry in prediction["nbest"])


@pytest.mark.parametrize("unanswerable", ["yes", "no"])
def test_a_context_without_tokens_has_no_answer(unanswerable):
    for context in ("", " \n"):
        prediction = predicted(qa(unanswerable=unanswerable), asked(context))
        assert (prediction["answer"], prediction["start"], prediction["end"]) == ("", None, None)
        json.dumps(prediction, allow_nan=False)


def test_answers_are_not_longer_than_allowed():
    prediction = predicted(qa(max_answer_length=2), asked("a b c d"), start=(0, 5), end=(3, 5))
    assert max(len(entry["answer"].split()) for entry in prediction["nbest"]) == 2


def test_a_span_of_a_later_window_is_cut_from_the_context():
    words = " ".join(f"{letter}{letter}" for letter in "abcdefghij")
    task = qa(max_length=12, stride=4)
    example = asked(words, "hh ii")
    features = task.encode([example], TOKENIZER, gold=True).features
    assert len(features) > 3
    assert task.decode([example], features, perfect(features))[0]["answer"] == "hh ii"


CHARACTERS = st.text(st.sampled_from("ab.é北İ\u0301 \u3000\u200b\r\n𠀀👨\u200d"), max_size=30)


@settings(deadline=None)
@given(CHARACTERS, st.integers(0, 99), st.booleans())
def test_every_answer_is_a_slice(context, seed, unanswerable):
    task = qa(max_length=12, stride=3, unanswerable="yes" if unanswerable else "no", n_best=5)
    example = QaExample(3, "a", context)
    features = task.encode([example], TOKENIZER, gold=False).features
    random = np.random.default_rng(seed)
    outputs = [random.normal(size=(2, 1 + feature.extra.length)).astype(np.float32) for feature in features]
    (prediction,) = task.decode([example], features, outputs)
    for entry in [prediction, *prediction["nbest"]]:
        if entry["answer"]:
            assert entry["answer"] == entry["answer"].strip() == context[entry["start"] : entry["end"]]
        else:
            assert (entry["start"], entry["end"]) == (None, None)
    answers = [entry["answer"] for entry in prediction["nbest"]]
    assert len(answers) == len(set(answers)) <= 5 + unanswerable
    assert sum(entry["score"] for entry in prediction["nbest"]) == pytest.approx(1 if answers else 0, abs=1e-5)


# scores


def test_scores_are_those_of_the_official_scripts():
    golds = ("Paris", None, None, "the cat sat", "x y")
    examples = [asked("Paris. the cat sat. x y", *([gold] if gold else [])) for gold in golds]
    predictions = [{"answer": answer} for answer in ("paris.", "", "x", "cat", "z")]
    scores = qa().score(examples, predictions)
    assert scores == pytest.approx(
        {"exact": 40, "f1": 53.333333, "total": 5, "HasAns_exact": 33.333333, "HasAns_f1": 55.555556, "HasAns_total": 3,
         "NoAns_exact": 50, "NoAns_f1": 50, "NoAns_total": 2}
    )  # fmt: skip


def test_chinese_answers_are_scored_as_cmrc_does():
    example, answer = asked("他住在北京市。", "北京市"), [{"answer": "北京"}]
    scores = qa().score([example], answer)
    assert (scores["exact"], scores["cmrc_em"]) == (0, 0)
    assert scores["cmrc_f1"] == pytest.approx(80)
    english = asked("He lives in Rome.", "Rome")
    assert set(qa().score([english], answer)) == {"exact", "f1", "total"}
    assert "cmrc_f1" in qa(best="cmrc_f1").score([english], answer)
    assert qa().metric_names[0] == "f1"


def test_the_threshold_is_tuned_on_questions_without_answers():
    task = qa(**UNANSWERABLE)
    examples = [asked("a b", "b"), asked("a b"), asked("a b", "b")]
    features = task.encode(examples, TOKENIZER, gold=True).features
    # null less best: -1, 4, 3
    outputs = [
        logits_of(feature, start=(1, 5), end=(1, 5), null=null)
        for feature, null in zip(features, (9, 14, 13), strict=True)
    ]
    assert task.score(examples, task.decode(examples, features, outputs))["exact"] == pytest.approx(200 / 3)
    settings = task.tuned(examples, features, outputs)
    assert settings == {"null_threshold": 3.0}
    better = task.with_settings(settings)
    assert better.score(examples, better.decode(examples, features, outputs))["exact"] == 100
    assert better.own_settings() == {"unanswerable": "yes", "null_threshold": 3.0}
    assert task.tuned(examples[:1], features[:1], outputs[:1]) == {}
    assert qa(unanswerable="no").tuned(examples, features, outputs) == {}
    empty = [asked(""), asked("")]
    features = task.encode(empty, TOKENIZER, gold=True).features
    assert np.isfinite(task.tuned(empty, features, [logits_of(f) for f in features])["null_threshold"])


def test_the_training_file_decides_whether_questions_may_be_unanswerable():
    some, none = [asked("a", "a"), asked("a")], [asked("a", "a")]
    assert qa().settled(some).own_settings()["unanswerable"] == "yes"
    assert qa().settled(none).own_settings()["unanswerable"] == "no"
    assert qa(unanswerable="no").settled(some).config.unanswerable == "no"
    assert qa().settled(none).allows_null is False


def test_wrong_answers_are_shown():
    examples = [asked("k b", "b", "b", "k b"), asked("k"), asked("k", "k"), asked("k", "k")]
    (table,) = qa().tables(examples, [{"answer": "c"}, {"answer": "k"}, {"answer": "K"}, {"answer": ""}])
    assert list(table.rows) == [("q", "b | k b", "c"), ("q", "(none)", "k"), ("q", "k", "(none)")]
    assert qa().tables(examples[2:3], [{"answer": "K"}]) == []


# writing, python, settings


def test_predictions_as_jsonl_and_as_squad():
    predictions = [{"id": "一", "answer": "北京"}, {"id": 2, "answer": ""}]
    assert qa().write(predictions, "squad") == '{"一": "北京", "2": ""}\n'
    assert qa().write(predictions, "jsonl") == '{"id": "一", "answer": "北京"}\n{"id": 2, "answer": ""}\n'
    with pytest.raises(UserError, match=r"^--format squad: two questions have the id '2'"):
        qa().write([*predictions, {"id": "2", "answer": ""}], "squad")


def test_inputs_from_python():
    def given(*inputs, **named):
        return [(e.id, e.question, e.context, e.texts) for e in qa().from_python(*inputs, **named)]

    assert given(question="q", context="c") == [(None, "q", "c", None)]
    assert given(question=["q", "r"], context="c") == [(None, "q", "c", None), (None, "r", "c", None)]
    assert given(question=["q", "r"], context=["c", "d"]) == [(None, "q", "c", None), (None, "r", "d", None)]
    assert given({"question": "q", "context": "c", "id": "x"}) == [("x", "q", "c", None)]
    assert given([{"question": "q", "context": "c"}]) == [(None, "q", "c", None)]
    assert given([]) == given(question=[], context="c") == []


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        (["text"], {}, "input 1: is str, not a dict"),
        ([{"question": "q"}], {}, "input 1: no 'context'"),
        ([{"question": 3, "context": "c"}], {}, "input 1: 'question' is 3, not a string"),
        ([], {"question": "q"}, "pipeline: got question"),
        ([], {"question": ["q"], "context": ["c", "d"]}, "1 questions but 2 contexts"),
        ([], {"question": 3, "context": "c"}, "pipeline: question is 3"),
    ],
)
def test_wrong_inputs_from_python(inputs, named, message):
    with pytest.raises(UserError) as caught:
        qa().from_python(*inputs, **named)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("stride", -1), ("max_question_length", 0), ("max_answer_length", 0), ("n_best", 0), ("n_best", 10**6),
     ("null_threshold", float("nan"))],
)  # fmt: skip
def test_settings_out_of_bounds(name, value):
    with pytest.raises(UserError, match=name):
        qa(**{name: value})


def test_own_defaults_and_place():
    config = QaConfig()
    assert (config.max_length, config.batch_size, config.lr, config.epochs) == (384, 12, 3e-5, 2.0)
    assert (config.stride, config.max_question_length, config.max_answer_length, config.n_best) == (128, 64, 30, 20)
    assert find_tasks()["qa"] is Qa
    assert all(f.metadata["help"] for f in dataclasses.fields(QaConfig))


# the network


def tiny_model(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=len(TOKENIZER), max_position_embeddings=128, **sizes, **dropout, **changes)
    return BertForQuestionAnswering(config)


def test_the_loss_is_the_usual_one_and_padding_counts_for_nothing():
    task = qa(max_length=32, stride=4)
    examples = [asked("ab cd ef gh", "cd ef"), asked("ab", "ab"), asked("ab cd"), QaExample("4", "q", "ab", ("x",))]
    features = task.encode(examples, TOKENIZER, gold=True).features
    model = tiny_model().eval()
    assert task.model_class() is type(model)

    def loss(rows):
        batch = task.batch(rows, TOKENIZER.pad_token_id)
        return task.losses(task.forward(model, batch), batch), batch["counts"]

    with torch.inference_mode():
        total, counts = loss(features)
        assert total.shape == counts.shape == (1,)
        assert (counts.item(), counts.dtype) == (3, torch.float32)
        alone = []
        for feature in features[:3]:
            out = model(
                torch.from_numpy(feature.ids[None]).long(),
                token_type_ids=(torch.arange(len(feature.ids)) >= feature.second).long()[None],
                start_positions=torch.tensor(feature.target[:1]),
                end_positions=torch.tensor(feature.target[1:]),
            )
            alone.append(out.loss)
        torch.testing.assert_close(total, torch.stack(alone).sum()[None], atol=1e-5, rtol=0)
        nothing, counts = loss([dataclasses.replace(features[0], target=task.no_target())])
        assert (nothing.item(), counts.item()) == (0, 0)


def test_outputs_are_those_of_the_context_without_padding():
    task = qa(max_length=32)
    features = task.encode([asked("ab cd ef gh", "cd ef"), asked("ab", "ab")], TOKENIZER, gold=False).features
    batch = task.batch(features, TOKENIZER.pad_token_id)
    out = type("Out", (), {})()
    T = batch["input_ids"].shape[1]
    out.start_logits = torch.arange(2 * T).view(2, T).float()
    out.end_logits = -out.start_logits
    first, second = task.outputs(out, features)
    assert second[0].tolist() == [T, T + 3, T + 4]  # [CLS], then behind [CLS] q [SEP]: a ##b
    assert (second[1] == -second[0]).all()
    assert first.shape == (2, 9)
    assert first.dtype == np.float32


# by heart


def test_the_demo_can_be_answered_perfectly(tmp_path):
    task = qa()
    reading = task.read(task.demo(tmp_path), gold=True, train=True)
    assert (len(reading.examples), reading.skipped, reading.repaired, reading.notes) == (12, [], [], [])
    features = task.encode(reading.examples, TOKENIZER, gold=True).features
    predictions = task.decode(reading.examples, features, perfect(features))
    scores = task.score(reading.examples, predictions)
    assert (scores["exact"], scores["f1"], scores["total"]) == (100, 100, 12)


def test_the_demo_is_learnt_by_heart(tmp_path):
    task = qa(max_length=128, stride=16)
    examples = task.read(task.demo(tmp_path), gold=True, train=True).examples
    features = task.encode(examples, TOKENIZER, gold=True).features
    model = tiny_model(initializer_range=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batch = task.batch(features, TOKENIZER.pad_token_id)
    for _ in range(120):
        loss = (task.losses(task.forward(model, batch), batch) / batch["counts"]).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.inference_mode():
        outputs = task.outputs(task.forward(model, batch), features)
    predictions = task.decode(examples, features, outputs)
    assert task.score(examples, predictions)["exact"] == 100


def test_long_contexts_are_answered_quickly():
    """3 questions about 20,000 words and 300 about 80: what stands in the shared case, without the network."""
    random = np.random.default_rng(1)

    def words(count):
        return " ".join(f"word{i}" for i in random.integers(0, 500, count))

    book = words(20_000)
    examples = [QaExample(i, words(8), book) for i in range(3)]
    examples += [QaExample(3 + i, words(8), words(80)) for i in range(300)]
    task = qa(**UNANSWERABLE)
    began = time.perf_counter()
    features = task.encode(examples, TOKENIZER, gold=False).features
    outputs = [random.normal(size=(2, 1 + feature.extra.length)).astype(np.float32) for feature in features]
    encoded = time.perf_counter()
    predictions = task.decode(examples, features, outputs)
    assert len(predictions) == 303
    assert encoded - began < 20  # measured: 1 s
    assert time.perf_counter() - encoded < 10  # measured: 0.5 s


def test_answers_from_the_shared_data_are_found_again(shared):
    for language, vocabulary in (("en", "cased_en"), ("zh", "zh")):
        tokenizer = BertTokenizer.from_pretrained(shared / "data" / "vocab" / f"{vocabulary}.txt")
        task = qa(max_length=160, stride=64, max_answer_length=100)
        path = shared / "data" / "xquad" / f"xquad.{language}.json"
        examples = task.read(path, gold=True, train=True).examples[::10]
        features = task.encode(examples, tokenizer, gold=True).features
        predictions = task.decode(examples, features, perfect(features))
        assert task.score(examples, predictions)["exact"] > 99  # few answers end inside a token


@pytest.mark.parametrize(("answers", "said"), [(("", ""), True), (("", "cd"), False)])
def test_answering_nothing_is_noticed(answers, said):
    examples = [asked("ab cd", "ab"), asked("ab cd", id="2")]
    assert (qa().one_sided(examples, [{"answer": answer} for answer in answers]) is not None) == said
    assert qa().one_sided(examples[1:], [{"answer": ""}]) is None  # the gold has no answers either


def test_mistakes_with_what_stands_round_both_answers():
    context = "a" * 300 + " Tom " + "b" * 400 + " Rome " + "c" * 300
    tom, rome = context.index("Tom"), context.index("Rome")
    wrong = QaExample("1", "Who?", context, ("Tom",), (tom, tom + 3))
    right = QaExample("2", "Where?", context, ("Rome",), (rome, rome + 4))
    none = QaExample("3", "Why?", context, ())
    said = [
        {"answer": "Rome", "start": rome, "end": rome + 4, "score": 0.5},
        {"answer": "Rome", "start": rome, "end": rome + 4, "score": 0.9},
        {"answer": "Tom", "start": tom, "end": tom + 3, "score": 0.7},
    ]
    found = Qa(QaConfig()).mistakes([wrong, right, none], said)
    assert [(m.pair, m.gold, m.answer, m.score) for m in found] == [
        ("Why?", "(none)", "Tom", 0.7), ("Who?", "Tom", "Rome", 0.5),
    ]  # fmt: skip
    text, marks = found[1].text, found[1].marks
    assert [(text[start:end], whose) for start, end, whose, _ in marks] == [("Tom", "gold"), ("Rome", "answer")]
    assert len(text) < 550
    assert text.startswith("… a")
    assert text.endswith("c … ")


def test_a_mistake_without_any_place_shows_the_beginning():
    (found,) = Qa(QaConfig()).mistakes(
        [QaExample("1", "Who?", "It rains. " * 100, ("Tom",))],
        [{"answer": "", "start": None, "end": None, "score": 0.4}],
    )
    assert (found.answer, list(found.marks)) == ("(none)", [])
    assert found.text.startswith("It rains.")
