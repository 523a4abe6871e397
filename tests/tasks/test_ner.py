"""The ner task: targets, answers, scores."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.checkpoint.pretrained import BertForTokenClassification
from minibert.console import Console
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.predict import Predictor, evaluate_file, pipeline, predict_file
from minibert.tasks.ner import Ner, NerConfig
from minibert.tasks.ner_files import NerExample
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

WORDS = [*"abcdefgh", "eu", "peter", "北", "京", "2", "0", "年", "m", "u", "##x", ",", "."]
TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *WORDS], lowercase=True)
LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")


def task(labels=LABELS, **settings):
    return Ner(NerConfig(**settings), labels)


def example(text, tags=None, **more):
    return NerExample(text.split(), tags.split() if tags else None, **more)


def answers(of, tags):
    """Logits that say these labels with a probability of about 1."""
    return np.array([[9.0 if label == tag else 0.0 for label in of.labels] for tag in tags], np.float32)


def decoded(of, examples, tags):
    """Predictions of a model that gives each word the label said for it."""
    features = of.encode(examples, TOKENIZER, gold=False).features
    rows, at = [], 0
    flat = [tag for sentence in tags for tag in sentence.split()]
    for feature in features:
        rows.append(answers(of, flat[at : at + len(feature.extra)]).reshape(-1, len(of.labels)))
        at += len(feature.extra)
    assert at == len(flat)
    return of.decode(examples, features, rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A random model's folder, as another program would leave it: the labels are those asked for."""

    def make(labels, **changes):
        folder = tmp_path_factory.mktemp("model")
        torch.manual_seed(6)
        names = {} if labels is None else {"id2label": {str(i): label for i, label in enumerate(labels)}}
        shape = BertConfig(
            vocab_size=len(TOKENIZER), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=512, initializer_range=0.5,
            extra={**names, "architectures": ["BertForTokenClassification"]}, **changes,
        )  # fmt: skip
        BertForTokenClassification(shape).save_pretrained(folder)
        TOKENIZER.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        config.pop("minibert", None)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


# labels


def test_labels_are_those_of_training():
    of = task(())
    examples = [example("a b c", "B-ORG O O"), example("d e", "B-PER I-PER")]
    assert of.labels_of(examples) == ["B-ORG", "B-PER", "I-PER", "O"]
    settled = of.settled(examples)
    assert settled.types == ["ORG", "PER"]
    assert settled.facts()["id2label"] == {"0": "B-ORG", "1": "B-PER", "2": "I-PER", "3": "O"}
    assert settled.metric_names == ("f1", "precision", "recall", "ORG_f1", "PER_f1")


def test_an_unseen_type_is_refused_with_its_line():
    of = task()
    bad = NerExample(["a", "Acme"], ["O", "B-ORG"], path="dev.conll", line=7, line_step=1)
    with pytest.raises(UserError) as caught:
        of.check([example("a", "B-PER"), bad])
    assert caught.value.where == "dev.conll:8"
    assert "'ORG'" in caught.value.problem
    assert "'Acme'" in caught.value.problem
    assert "LOC, PER" in caught.value.problem
    with pytest.raises(UserError) as caught:
        of.check([NerExample(["a"], ["O"], "dev.jsonl", 3, missed=["ORG"])])
    assert caught.value.where == "dev.jsonl:3"


def test_an_unseen_tag_of_a_known_type_is_scored_but_not_learnt():
    of = task(("B-ORG", "O"))
    two = example("a b", "B-ORG I-ORG")
    of.check([two])
    (feature,) = of.encode([two], TOKENIZER, gold=True).features
    assert feature.target.tolist() == [-100, 0, -100, -100]
    assert of.score([two], decoded(of, [two], ["B-ORG O"]))["support"] == 1
    assert of.score([two], decoded(of, [two], ["B-ORG O"]))["f1"] == 0


# settings


def test_the_overlap_has_to_leave_room():
    assert NerConfig(max_length=64).overlap == 16
    assert NerConfig(max_length=8).overlap == 2
    assert NerConfig(max_length=64, stride=61).overlap == 61
    with pytest.raises(UserError) as caught:
        NerConfig(max_length=64, stride=62)
    assert caught.value.where == "stride"
    assert "62" in caught.value.problem
    with pytest.raises(UserError):
        NerConfig(stride=-1)


# targets and losses


def test_loss_is_over_first_pieces_alone():
    of = task()
    examples = [example("ax b", "B-PER O"), example("c", "O")]
    features = of.encode(examples, TOKENIZER, gold=True, first=5).features
    assert [f.example for f in features] == [5, 6]
    batch = of.batch(features, TOKENIZER.pad_token_id)
    assert batch["labels"][0, :5].tolist() == [-100, 1, -100, 4, -100]
    assert batch["counts"].tolist() == [3.0]

    class Out:
        logits = torch.randn(*batch["labels"].shape, 5, generator=torch.Generator().manual_seed(0))

    by_hand = -Out.logits.log_softmax(-1)
    expected = by_hand[0, 1, 1] + by_hand[0, 3, 4] + by_hand[1, 1, 4]
    assert of.losses(Out, batch).tolist() == pytest.approx([float(expected)], rel=1e-6)
    assert [rows.tolist() for rows in of.outputs(Out, features)] == [
        Out.logits[0, [1, 3]].tolist(), Out.logits[1, [1]].tolist(),
    ]  # fmt: skip


def test_gold_in_a_foreign_models_labels():
    of = task(("O", "B-PER", "M-PER", "E-PER", "S-PER"))
    features = of.encode([example("a b c d", "B-PER I-PER I-PER B-PER")], TOKENIZER, gold=True).features
    assert features[0].target[1:5].tolist() == [1, 2, 3, 4]


# predictions


def test_predictions_of_words():
    of = task()
    examples = [example("EU Peter x"), NerExample([]), example("北 京 2 Ü")]
    first, empty, last = decoded(of, examples, ["O B-PER I-PER", "", "B-LOC I-LOC I-LOC O"])
    assert first["tokens"] == ["EU", "Peter", "x"]
    assert first["tags"] == ["O", "B-PER", "I-PER"]
    (entity,) = first["entities"]
    probability = np.exp(9) / (np.exp(9) + 4)
    assert entity == {"label": "PER", "start": 1, "end": 3, "text": "Peter x", "score": pytest.approx(probability)}
    assert list(first) == ["tokens", "tags", "entities"]
    assert empty == {"tokens": [], "tags": [], "entities": []}
    assert last["tokens"] == ["北", "京", "2", "Ü"]
    assert last["entities"][0]["text"] == "北京 2"


def test_predictions_of_texts_are_pieces_of_them():
    of = task()
    text = " Peter\u200bX,  北 京."
    (one,) = of.from_python(text)
    assert one.tokens == ["Peter\u200bX", ",", "北", "京", "."]
    (found,) = decoded(of, [one], ["B-PER O B-LOC I-LOC O"])
    assert list(found) == ["text", "tokens", "tags", "entities"]
    assert found["text"] == text
    assert [(e["label"], e["start"], e["end"], e["text"]) for e in found["entities"]] == [
        ("PER", 1, 8, "Peter\u200bX"), ("LOC", 11, 14, "北 京"),
    ]  # fmt: skip
    assert all(text[e["start"] : e["end"]] == e["text"] for e in found["entities"])


def test_score_of_an_entity_is_the_mean_of_its_words():
    of = task(("B-X", "I-X", "O"))
    one = [example("a b")]
    features = of.encode(one, TOKENIZER, gold=False).features
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0001]], np.float32))
    logits -= np.float32(300)  # no overflow, whatever their size
    ((entity,),) = [p["entities"] for p in of.decode(one, features, [logits])]
    assert entity["score"] == pytest.approx((0.5 + 0.9 / 1.0001) / 2, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "said", "tags"),
    [
        (("O", "B-X", "I-X"), "I-X I-X O I-X B-X", ["B-X", "I-X", "O", "B-X", "B-X"]),
        (("O", "X", "Y"), "X X Y O X", ["B-X", "I-X", "B-Y", "O", "B-X"]),
        (("O", "B-X", "M-X", "E-X", "S-X"), "S-X B-X M-X E-X S-X", ["B-X", "B-X", "I-X", "I-X", "B-X"]),
        (("X", "[CLS]", "O", "B-Y"), "X [CLS] O B-Y B-Y", ["O", "O", "O", "B-Y", "B-Y"]),
        (("LABEL_0", "LABEL_1"), "LABEL_0 LABEL_1 LABEL_1 LABEL_0 LABEL_0",
         ["B-LABEL_0", "B-LABEL_1", "I-LABEL_1", "B-LABEL_0", "I-LABEL_0"]),
    ],
)  # fmt: skip
def test_predictions_are_iob2_whatever_the_models_labels(labels, said, tags):
    (found,) = decoded(task(labels), [example("a b c d e")], [said])
    assert found["tags"] == tags


def test_inputs_from_python():
    of = task()
    assert [e.tokens for e in of.from_python("EU a.")] == [["EU", "a", "."]]
    assert [e.tokens for e in of.from_python(["EU a.", "北京"])] == [["EU", "a", "."], ["北", "京"]]
    assert [e.tokens for e in of.from_python([["EU a", "."], (), ["b"]])] == [["EU a", "."], [], ["b"]]
    assert [e.tokens for e in of.from_python({"tokens": ["a b"]})] == [["a b"]]
    assert [e.text for e in of.from_python([{"text": "a b"}])] == ["a b"]
    assert of.from_python([]) == []


@pytest.mark.parametrize(
    ("inputs", "named", "said"),
    [
        (([5],), {}, "5 is no text"),
        ((["a", ["b", 5]],), {}, "['b', 5] is no text"),
        (("a", "b"), {}, "2 inputs"),
        (("a",), {"context": "b"}, "named context"),
        ((), {}, "0 inputs"),
    ],
)
def test_inputs_that_are_none(inputs, named, said):
    with pytest.raises(UserError) as caught:
        task().from_python(*inputs, **named)
    assert said in caught.value.problem


# scores


def test_scores_are_those_of_seqeval():
    from seqeval.metrics import classification_report, f1_score

    of = task()
    gold = ["B-PER I-PER O B-LOC", "O B-PER O B-PER"]
    said = ["I-PER I-PER O B-LOC", "O B-LOC O O"]
    examples = [example("a b c d", tags) for tags in gold]
    predictions = decoded(of, examples, said)
    scores = of.score(examples, predictions)
    lists = [[tags.split() for tags in side] for side in (gold, said)]
    assert scores["f1"] == f1_score(*lists)
    assert (scores["precision"], scores["recall"], scores["support"]) == (2 / 3, 0.5, 4)
    for name, values in classification_report(*lists, output_dict=True, zero_division=0).items():
        if name in ("LOC", "PER"):
            found = [scores[f"{name}_{key}"] for key in ("precision", "recall", "f1", "support")]
            assert found == [values[key] for key in ("precision", "recall", "f1-score", "support")]
    table = of.tables(examples, predictions)[0]
    assert [row[0] for row in table.rows] == ["LOC", "PER", "all"]
    assert table.rows[2][1:] == ("0.6667", "0.5000", f"{scores['f1']:.4f}", "4")


def test_iob1_at_an_entitys_begin_scores_as_conlleval_has_it():
    gold = example("a b c d", "B-PER I-PER O B-LOC")
    of = task()
    assert of.score([gold], decoded(of, [gold], ["I-PER I-PER O B-LOC"]))["f1"] == 1.0


def test_every_type_of_the_model_has_scores():
    of = task()
    one = example("a", "O")
    scores = of.score([one], decoded(of, [one], ["O"]))
    assert {f"{name}_{key}" for name in ("LOC", "PER") for key in ("precision", "recall", "f1", "support")} < set(
        scores
    )
    assert scores["f1"] == scores["PER_f1"] == scores["PER_support"] == 0


def test_gold_that_words_cannot_say_is_not_forgotten():
    of = task()
    one = NerExample(["a", "b"], ["B-PER", "O"], missed=["LOC", "PER"])
    scores = of.score([one], decoded(of, [one], ["B-PER O"]))
    assert (scores["support"], scores["recall"], scores["precision"]) == (3, 1 / 3, 1.0)
    assert scores["LOC_support"] == 1


# writing


def test_writing_conll_and_jsonl():
    of = task()
    predictions = decoded(of, [example("北 Peter"), NerExample([]), example("c")], ["B-LOC O", "", "O"])
    assert of.write(predictions, "conll") == "北\tB-LOC\nPeter\tO\n\n\nc\tO\n"
    lines = of.write(predictions, "jsonl").splitlines()
    assert [json.loads(line)["tokens"] for line in lines] == [["北", "Peter"], [], ["c"]]
    assert "北" in lines[0]


# with a model


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["a", "ax", "axxx", "\u200b", "zz"]), max_size=300), st.integers(16, 64))
def test_one_tag_for_each_word_of_any_length(words, max_length):
    of = task(max_length=max_length)
    examples = [NerExample(words), NerExample(["a"])]
    features = of.encode(examples, TOKENIZER, gold=False).features
    assert all(len(f.ids) <= max_length for f in features)
    # a model that says PER for the word with the first piece "a" and O for all else
    chosen = TOKENIZER.convert_tokens_to_ids(["a"])[0]
    rows = [answers(of, ["B-PER" if i == chosen else "O" for i in f.ids[f.extra]]).reshape(-1, 5) for f in features]
    long, short = of.decode(examples, features, rows)
    assert long["tags"] == ["B-PER" if word.startswith("a") else "O" for word in words]
    assert long["tokens"] == words
    assert short["tags"] == ["B-PER"]


def test_logits_and_tags_are_those_of_transformers(saved):
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    folder = saved(LABELS)
    words = ["EU", "ax", "Peter", "zz", "北", ".", "b"] * 3
    tokenizer, theirs = AutoTokenizer.from_pretrained(folder), AutoModelForTokenClassification.from_pretrained(folder)
    batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        logits = theirs.eval()(**batch).logits[0]
    places = [batch.word_ids().index(w) for w in range(len(words))]
    names = [theirs.config.id2label[i] for i in logits[places].argmax(-1).tolist()]
    predictor = Predictor(folder)
    (found,) = predictor.predict([NerExample(words)])
    (expected,) = decoded(task(), [NerExample(words)], [" ".join(names)])
    assert found["tags"] == expected["tags"]
    assert len(set(found["tags"])) > 2


def test_windows_change_nothing_where_a_sentence_fits(saved):
    folder = saved(LABELS)
    sentences = [NerExample("a bx c d peter eu".split() * k) for k in range(1, 9)]  # 7 pieces each time
    whole = Predictor(folder, {"max_length": 512}).predict(sentences)
    cut = Predictor(folder, {"max_length": 23, "stride": 8}).predict(sentences)
    assert [p["tags"] for p in whole[:3]] == [p["tags"] for p in cut[:3]]
    for a, b in zip(whole[:3], cut[:3], strict=True):
        assert [e["score"] for e in a["entities"]] == pytest.approx([e["score"] for e in b["entities"]], abs=1e-5)
    assert whole[3:] != cut[3:]  # longer ones have another context
    assert [len(p["tags"]) for p in cut] == [6 * k for k in range(1, 9)]


def test_a_sentence_longer_than_the_model(saved, tmp_path):
    lines = [f"tok{i} {'B-PER' if i in (5, 150, 290) else 'O'}\n" for i in range(300)]
    path = tmp_path / "long.conll"
    path.write_text("".join(lines))
    folder = saved(LABELS)
    for length in (64, 512):
        predictor = Predictor(folder, {"max_length": length})
        quiet = Console(silent=True)
        scores = evaluate_file(predictor, path, batch_size=4, console=quiet)
        assert scores["PER_support"] == 3
        assert scores["loss"] > 0
        predict_file(predictor, path, tmp_path / "p", output_format="conll", batch_size=4, console=quiet)
        written = (tmp_path / "p").read_text().splitlines()
        assert [line.split("\t")[0] for line in written] == [f"tok{i}" for i in range(300)]


def test_the_token_column_stays_as_it_was(saved, tmp_path):
    path = tmp_path / "zh.conll"
    path.write_text("2 O\n0 O\n2 O\n0 O\n年 O\n北 B-LOC\n京 I-LOC\nM B-PER\nü I-PER\n", "utf-8")
    quiet = Console(silent=True)
    predict_file(Predictor(saved(LABELS)), path, tmp_path / "p", output_format="conll", batch_size=4, console=quiet)
    lines = (tmp_path / "p").read_text("utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["2", "0", "2", "0", "年", "北", "京", "M", "ü"]


@pytest.mark.parametrize("labels", [None, ["O", "PER"], ["O", "B-PER", "I-PER"], ["B-PER", "E-PER", "S-PER", "O"]])
def test_models_from_elsewhere_predict_and_are_measured(saved, tmp_path, labels):
    folder = saved(labels)
    call = pipeline(folder)
    assert len(call("EU a b")["tags"]) == 3
    assert [p["tokens"] for p in call([["EU a"], ["b", "c"]])] == [["EU a"], ["b", "c"]]
    path = tmp_path / "a.conll"
    types = ["LABEL_1", "LABEL_1"] if labels is None else ["B-PER", "O"]
    path.write_text(f"a {types[0]}\nb {types[1]}\n")
    scores = evaluate_file(Predictor(folder), path, batch_size=2, console=Console(silent=True))
    assert scores["support"] == 1
    assert np.isfinite(scores["loss"])


@pytest.mark.parametrize(
    ("gold", "given", "said"), [("O B-PER", "O O", True), ("O B-PER", "B-PER O", False), ("O O", "O O", False)]
)
def test_finding_no_entity_at_all_is_noticed(gold, given, said):
    examples, predictions = [example("a b", gold)], [{"tokens": ["a", "b"], "tags": given.split()}]
    assert (task().one_sided(examples, predictions) is not None) == said


def test_mistakes_say_whose_entity_is_where():
    of = task()
    sentences = [example("Tom runs in Rome", "B-PER O O B-LOC"), example("It rains", "O O"), example("Tom", "B-PER")]
    said = [{"tags": ["B-PER", "O", "B-LOC", "I-LOC"]}, {"tags": ["O", "O"]}, {"tags": ["O"]}]
    found = of.mistakes(sentences, said)
    assert [m.text for m in found] == ["Tom runs in Rome", "Tom"]  # two wrong entities before one
    assert found[0].marks == [(0, 3, "both", "PER"), (9, 16, "answer", "LOC"), (12, 16, "gold", "LOC")]
    assert (found[0].gold, found[0].answer) == ("PER Tom, LOC Rome", "PER Tom, LOC in Rome")
    assert (found[1].gold, found[1].answer) == ("PER Tom", "(none)")


def test_mistakes_count_gold_that_no_tag_can_say():
    (found,) = task().mistakes([example("Tom", "O", missed=["PER"])], [{"tags": ["O"]}])
    assert found.gold == "(none) (and 1 that no tag can say)"


def test_mistakes_in_chinese_stand_where_the_words_do():
    words = NerExample(list("北京人"), ["B-LOC", "I-LOC", "O"])
    (found,) = task().mistakes([words], [{"tags": ["O", "O", "O"]}])
    assert (found.text, found.marks) == ("北京人", [(0, 2, "gold", "LOC")])
