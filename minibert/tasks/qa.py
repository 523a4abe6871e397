"""Questions about a context: the answer is a piece of the context, or none.

Sources: google-research/bert run_squad.py and transformers' run_qa.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from minibert.config import FinetuneConfig, check_bounds, opt
from minibert.errors import UserError
from minibert.metrics import cmrc, squad
from minibert.tasks.base import (
    Batch,
    Encoded,
    Feature,
    Mistake,
    Prediction,
    Reading,
    Record,
    Scores,
    Table,
    Task,
    input_format,
)
from minibert.tasks.spans import Span, best_spans, null_score
from minibert.tasks.squad_files import QaExample, question_of, read_questions, text_of
from minibert.tasks.windows import NOWHERE, encode_questions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minibert.tokenization.tokenizer import BertTokenizer

CANDIDATES = 50  # spans looked through, times n_best, for n_best different texts
WRONG_SHOWN = 10
AROUND = 120  # characters of a context on either side of an answer
DEMO = (
    (
        "Anna lives in Rome and sells bread. Her brother Paul lives in Oslo and paints boats. They met in 1987.",
        (("Where does Anna live?", "Rome"), ("What does Anna sell?", "bread"), ("Who paints?", "Paul"),
         ("When did they meet?", "1987")),
    ),
    (
        "The river Arda is 290 kilometres long. It rises in the Rhodope mountains and ends near Edirne.",
        (("How long is it?", "290 kilometres"), ("Where does it rise?", "the Rhodope mountains"),
         ("Which city is at its end?", "Edirne")),
    ),
    (
        "小明住在北京，他每天早上喝茶。他的妹妹小红住在上海，她喜欢画马。他们的父亲是一位医生。",
        (("小明住在哪里？", "北京"), ("早上喝什么？", "茶"), ("谁住在上海？", "小红"),
         ("小红喜欢画的是什么动物？", "马"), ("父亲的工作是什么？", "医生")),
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class QaConfig(FinetuneConfig):
    """Settings of question answering."""

    max_length: int = opt(384, "tokens in a row: [CLS] question [SEP] context [SEP]")
    epochs: float = opt(2.0, "passes over the training file")
    batch_size: int = opt(12, "rows per optimizer step, over all processes")
    lr: float = opt(3e-5, "highest learning rate")
    stride: int = opt(128, "tokens that two neighbouring windows of a long context share (the overlap, not the step)")
    max_question_length: int = opt(64, "tokens of a question; the rest is cut off")
    max_answer_length: int = opt(30, "most tokens in a predicted answer")
    n_best: int = opt(20, "different answers listed for each question")
    unanswerable: Literal["auto", "yes", "no"] = opt(
        "auto", "whether a question may have no answer; auto: yes if one in the training file has none"
    )
    null_threshold: float = opt(
        0.0,
        "no answer is given where its score is above the best answer's by more than this; tuned on dev if there is one",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self, {"stride": 0, "max_question_length": 1, "max_answer_length": 1, "n_best": 1}, {"n_best": 10**5}
        )
        if not math.isfinite(self.null_threshold):
            raise UserError(
                f"null_threshold is {self.null_threshold}; it must be a finite number", where="null_threshold"
            )


class Qa(Task[QaExample, QaConfig]):
    """Extractive question answering, as SQuAD v1.1 and v2.0 and CMRC 2018 have it."""

    name = "qa"
    summary = "find the answer to a question in a text, or say that there is none (SQuAD, CMRC 2018)"
    Config = QaConfig
    formats = ("json", "jsonl")
    output_formats = ("jsonl", "squad")
    answer = "answer"
    metric_names = ("f1", "exact", "cmrc_f1", "cmrc_em")

    @property
    def allows_null(self) -> bool:
        """Whether "no answer" may be predicted."""
        return self.config.unanswerable == "yes"

    # ---- data

    def read(self, path: Path, *, gold: bool, train: bool = False) -> Reading[QaExample]:
        """The questions of a file. A context is kept to the last blank; a question without an id has its number."""
        layout = input_format(path, self.config, {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"})
        if self.config.input_format == "auto" and layout == "json":
            layout = ""  # JSON lines are often named .json
        return read_questions(
            path, self.config.encoding, layout, gold=gold, train=train,
            unanswerable=self.config.unanswerable != "no", faults=self.faults,
        )  # fmt: skip

    def record(self, example: QaExample) -> Record:
        where = f"question {str(example.id)!r}"
        return Record(f"{example.question}\n{example.context}", " | ".join(example.texts or ()), where)

    def from_python(self, *inputs: Any, **named: Any) -> list[QaExample]:
        """question=..., context=..., each a string or a list (one string goes with every item of the other's list), or
        dicts with these keys, "id" too if wanted.
        """
        if named:
            if inputs or set(named) != {"question", "context"}:
                raise UserError(
                    f"got {', '.join(named)}", "pipeline", 'give question="..." and context="...", or dicts'
                )
            entries: list[Any] = _paired(named["question"], named["context"])
        else:
            entries = [item for given in inputs for item in (given if isinstance(given, list | tuple) else [given])]
        examples = []
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, Mapping):
                problem = f"is {type(entry).__name__}, not a dict with 'question' and 'context'"
                raise UserError(problem, f"input {number}", 'give question="..." and context="..."')
            place = f"input {number}"
            examples.append(question_of(entry, text_of(entry, ("context",), place), place))
        return examples

    def settled(self, examples: Sequence[QaExample]) -> Qa:
        """Decide what is left to the training examples: whether a question may have no answer, and for Chinese that
        CMRC's F1 chooses the model (SQuAD's takes an answer for one word, and is blind to what is nearly right).
        """
        config = self.config
        if config.unanswerable == "auto":
            some = any(example.texts == () for example in examples)
            config = replace(config, unanswerable="yes" if some else "no")
        if not config.best and _is_chinese(_gold_of(examples).values()):
            config = replace(config, best="cmrc_f1")
        return Qa(config)

    def encode(self, examples: Sequence[QaExample], tokenizer: BertTokenizer, *, gold: bool, first: int = 0) -> Encoded:
        """Rows of [CLS] question [SEP] window [SEP]; see encode_questions."""
        return encode_questions(examples, tokenizer, self.config, gold=gold, first=first)

    # ---- network

    @classmethod
    def model_class(cls) -> type[nn.Module]:
        """A start and an end logit for each token."""
        from minibert.model.heads import BertForQuestionAnswering

        return BertForQuestionAnswering

    def losses(self, out: Any, batch: Batch) -> Tensor:
        """(1,): half of start's plus half of end's cross entropy over the row's tokens, padding left out."""
        from torch.nn.functional import cross_entropy

        keep = batch["attention_mask"]
        halves = []
        for logits, gold in ((out.start_logits, "start_positions"), (out.end_logits, "end_positions")):
            scores = logits.float() if keep is None else logits.float().masked_fill(keep == 0, -math.inf)  # (B,T)
            halves.append(cross_entropy(scores, batch[gold], ignore_index=NOWHERE[0], reduction="sum") / 2)
        return (halves[0] + halves[1])[None]

    def outputs(self, out: Any, features: Sequence[Feature]) -> list[np.ndarray]:
        """For each feature (2,1+n) float32: start and end logits of [CLS] and of its n context tokens."""
        both = np.stack(
            [logits.float().cpu().numpy() for logits in (out.start_logits, out.end_logits)], axis=1
        )  # (B,2,T)
        ends = [feature.second + feature.extra.length for feature in features]
        return [
            np.concatenate((row[:, :1], row[:, feature.second : end]), axis=1)
            for row, feature, end in zip(both, features, ends, strict=True)
        ]

    def targets(self, targets: Sequence[Any], T: int) -> Batch:
        """start_positions, end_positions (B,) int64, -1 in rows that count for nothing; counts (1,): the other rows."""
        import torch

        places = torch.tensor(targets, dtype=torch.int64)  # (B,2)
        counts = (places[:, :1] >= 0).sum(0).float()
        return {"start_positions": places[:, 0], "end_positions": places[:, 1], "counts": counts}

    def no_target(self) -> tuple[int, int]:
        """A row that counts for nothing."""
        return NOWHERE

    # ---- answers

    def decode(
        self, examples: Sequence[QaExample], features: Sequence[Feature], outputs: Sequence[Any]
    ) -> list[Prediction]:
        """The best answer to each question: {"id" if there is one, "answer", "score", "start", "end", "nbest"}.

        answer is context[start:end]; "" with start and end None where there is none. score: a probability over nbest,
        n_best different answers and, where questions may be unanswerable, none as another; then null_score is there
        too, the score of no answer less that of the best one, which null_threshold is compared with.
        """
        found = self._found(examples, features, outputs)
        return [self._prediction(example, *one) for example, one in zip(examples, found, strict=True)]

    def _found(
        self, examples: Sequence[QaExample], features: Sequence[Feature], outputs: Sequence[Any]
    ) -> Iterator[tuple[dict[str, Span], float]]:
        """For each example its n_best different answers, the best first, and the score of no answer."""
        rows: list[list[int]] = [[] for _ in examples]
        for i, feature in enumerate(features):
            rows[feature.example].append(i)
        n_best, longest = self.config.n_best, self.config.max_answer_length
        for example, own in zip(examples, rows, strict=True):
            logits = [outputs[i] for i in own]
            answers: dict[str, Span] = {}
            for span in best_spans([features[i].extra for i in own], logits, longest=longest, most=CANDIDATES * n_best):
                answer = example.context[span.start : span.end]
                if answer and answer not in answers:
                    answers[answer] = span
                    if len(answers) == n_best:
                        break
            yield answers, null_score(logits)

    def _prediction(self, example: QaExample, answers: Mapping[str, Span], null: float) -> Prediction:
        entries = [_entry(text, span.start, span.end) for text, span in answers.items()]
        scores = [span.score for span in answers.values()]
        nothing = _entry("", None, None)
        chosen = entries[0] if entries else nothing
        if self.allows_null:
            if entries and null - scores[0] > self.config.null_threshold:
                chosen = nothing
            entries.append(nothing)
            scores.append(null)
        shares = np.exp(np.array(scores) - max(scores)) if scores else np.zeros(0)
        for entry, share in zip(entries, shares.tolist(), strict=True):
            entry["score"] = round(share / float(shares.sum()), 6)
        prediction = {
            **({} if example.id is None else {"id": example.id}),
            **chosen,
            "nbest": sorted(entries, key=lambda entry: -entry["score"]),
        }
        if self.allows_null and answers:
            prediction["null_score"] = null - scores[0]
        return prediction

    def score(self, examples: Sequence[QaExample], predictions: Sequence[Prediction]) -> Scores:
        """SQuAD's exact and f1 in [0, 100], by v2.0 where a question has no answer; CMRC's too for Chinese answers."""
        gold = _gold_of(examples)
        predicted = {str(i): prediction["answer"] for i, prediction in enumerate(predictions)}
        scores = squad.score_answers(gold, predicted)
        if self.config.best.startswith("cmrc") or _is_chinese(gold.values()):
            scores |= cmrc.score_answers(gold, predicted)
        return scores

    def tuned(
        self, examples: Sequence[QaExample], features: Sequence[Feature], outputs: Sequence[Any]
    ) -> dict[str, Any]:
        """The null_threshold of the highest F1, where questions may be unanswerable and some are."""
        gold = _gold_of(examples)
        if not self.allows_null or all(gold.values()):
            return {}
        predicted, differences = {}, {}
        for name, (answers, null) in zip(gold, self._found(examples, features, outputs), strict=True):
            best = next(iter(answers), "")
            predicted[name] = best
            differences[name] = null - answers[best].score if best else 0.0  # "" is given at any threshold
        return {"null_threshold": squad.best_threshold(gold, predicted, differences)["best_f1_thresh"]}

    def one_sided(self, examples: Sequence[QaExample], predictions: Sequence[Prediction]) -> str | None:
        nothing = predictions and not any(prediction["answer"] for prediction in predictions)
        return "no question is answered" if nothing and any(example.texts for example in examples) else None

    def tables(self, examples: Sequence[QaExample], predictions: Sequence[Prediction]) -> list[Table]:
        """The first questions that are not answered as wanted."""
        rows = [
            (
                example.question,
                " | ".join(dict.fromkeys(example.texts or ("(none)",))),
                prediction["answer"] or "(none)",
            )
            for example, prediction in zip(examples, predictions, strict=True)
            if not squad.exact(prediction["answer"], example.texts or ())
        ]
        return [Table("Wrong answers", ("question", "gold", "predicted"), rows[:WRONG_SHOWN])] if rows else []

    def mistakes(self, examples: Sequence[QaExample], predictions: Sequence[Prediction]) -> list[Mistake]:
        """The surest first, each with the part of its context that holds both answers."""
        found = []
        for example, said in zip(examples, predictions, strict=True):
            texts = example.texts or ()
            if squad.exact(said["answer"], texts):
                continue
            places = [] if said["start"] is None else [(said["start"], said["end"], "answer", "")]
            if example.span is not None and texts:
                places.append((*example.span, "gold", ""))
            elif texts and texts[0] in example.context:
                start = example.context.index(texts[0])
                places.append((start, start + len(texts[0]), "gold", ""))
            text, marks = _excerpt(example.context, sorted(places))
            gold = " | ".join(dict.fromkeys(texts)) or "(none)"
            answer = said["answer"] or "(none)"
            where = "" if example.id is None else f"id {example.id}"
            found.append((-said["score"], Mistake(text, gold, answer, example.question, said["score"], marks, where)))
        return [mistake for _, mistake in sorted(found, key=lambda item: item[0])]

    def write(self, predictions: Sequence[Prediction], output_format: str) -> str:
        """JSON lines, or SQuAD's one object of id -> answer, "" for none."""
        if output_format != "squad":
            return super().write(predictions, output_format)
        answers: dict[str, str] = {}
        for prediction in predictions:
            name = str(prediction["id"])
            if name in answers:
                fix = "--format jsonl, or give each its own id"
                raise UserError(f"two questions have the id {name!r}", "--format squad", fix)
            answers[name] = prediction["answer"]
        return json.dumps(answers, ensure_ascii=False) + "\n"

    @classmethod
    def demo(cls, folder: Path) -> Path:
        """A dozen questions in English and Chinese, in SQuAD's layout."""
        path = folder / "questions.json"
        paragraphs: list[dict[str, Any]] = []
        for context, pairs in DEMO:
            questions = [
                {"id": f"{len(paragraphs) + 1}-{i}", "question": question,
                 "answers": [{"text": answer, "answer_start": context.index(answer)}]}
                for i, (question, answer) in enumerate(pairs, 1)
            ]  # fmt: skip
            paragraphs.append({"context": context, "qas": questions})
        content = {"version": "1.1", "data": [{"title": "demo", "paragraphs": paragraphs}]}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", newline="\n")
        return path


def _excerpt(context: str, places: Sequence[tuple[int, int, str, str]]) -> tuple[str, list[tuple[int, int, str, str]]]:
    """What stands round some places of a context, and the places in it; what is left out between them is dots."""
    pieces: list[tuple[int, int]] = []
    for start, end, _, _ in places or [(0, 0, "", "")]:
        first, last = max(0, start - AROUND), min(len(context), end + AROUND)
        if pieces and first <= pieces[-1][1]:
            pieces[-1] = (pieces[-1][0], max(last, pieces[-1][1]))
        else:
            pieces.append((first, last))
    text, marks = "", []
    for first, last in pieces:
        text += "… " if first and not text else ""
        moved = len(text) - first
        marks += [
            (start + moved, end + moved, whose, label) for start, end, whose, label in places if first <= start < last
        ]
        text += context[first:last] + (" … " if last < len(context) else "")
    return text, marks


def _entry(answer: str, start: int | None, end: int | None) -> dict[str, Any]:
    return {"answer": answer, "score": 0.0, "start": start, "end": end}


def _paired(question: Any, context: Any) -> list[dict[str, Any]]:
    """Questions and contexts as records; a single string goes with each of the other list."""
    if isinstance(question, str) and isinstance(context, str):
        return [{"question": question, "context": context}]
    for name, side in (("question", question), ("context", context)):
        if not isinstance(side, Iterable):
            raise UserError(f"{name} is {side!r}", "pipeline", "a string or a list of strings")
    questions = [question] * len(list(context)) if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise UserError(f"{len(questions)} questions but {len(contexts)} contexts", "pipeline", "give as many of both")
    return [{"question": one, "context": other} for one, other in zip(questions, contexts, strict=True)]


def _gold_of(examples: Sequence[QaExample]) -> dict[str, Sequence[str]]:
    """The gold answers by the number of the example: ids need not be unique."""
    return {str(i): example.texts or () for i, example in enumerate(examples)}


def _is_chinese(golds: Iterable[Sequence[str]]) -> bool:
    """Whether most letters and digits of the answers are Han characters."""
    letters = [character for texts in golds for text in texts for character in text if character.isalnum()]
    return 2 * sum("\u4e00" <= character <= "\u9fff" for character in letters) > len(letters)
