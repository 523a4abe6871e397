"""transformers' side of fine-tuning and prediction, as its own examples have it, for the scripts that compare with it.

A minibert task says what is learnt (examples, label names, settings); everything else here is transformers'.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

QA_STARTS = 20  # places looked at for where an answer begins and ends, as many as run_qa's n_best_size
AUTO_MODELS = {
    "cls": "AutoModelForSequenceClassification",
    "ner": "AutoModelForTokenClassification",
    "qa": "AutoModelForQuestionAnswering",
}


def quiet() -> None:
    """Keep transformers' bars and advice out of the tables."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning)


def peer_tokenizer(folder: Path) -> Any:
    """The checkpoint's tokenizer; truncation and padding that its tokenizer.json has baked in are switched off."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def peer_model(task: Any, folder: Path, *, scratch: bool = False) -> Any:
    """The checkpoint with the task's head in float32, with the task's labels and dropout; scratch: its shape alone."""
    import torch
    import transformers

    said: dict[str, Any] = {
        "hidden_dropout_prob": task.config.dropout, "attention_probs_dropout_prob": task.config.attention_dropout,
        "classifier_dropout": None,
    }  # fmt: skip
    if task.labels:
        said |= {"id2label": dict(enumerate(task.labels)), "label2id": task.label_ids}
    kind = getattr(transformers, AUTO_MODELS[task.name])
    if scratch:
        return kind.from_config(transformers.AutoConfig.from_pretrained(folder, **said), dtype=torch.float32)
    return kind.from_pretrained(folder, dtype=torch.float32, **said)


# ---- rows


def peer_rows(task: Any, examples: Sequence[Any], tokenizer: Any) -> list[dict[str, Any]]:
    """Labelled rows as run_glue, run_ner and run_qa make them, not padded yet."""
    if task.name == "cls":
        return cls_rows(task, examples, tokenizer)
    return ner_rows(task, examples, tokenizer) if task.name == "ner" else qa_rows(task, examples, tokenizer)


def cls_rows(task: Any, examples: Sequence[Any], tokenizer: Any) -> list[dict[str, Any]]:
    """A text, or two, and a label a row; longer ones are cut."""
    texts = [example.text for example in examples]
    pairs = None if examples[0].pair is None else [example.pair for example in examples]
    made = tokenizer(texts, pairs, truncation=True, max_length=task.config.max_length)
    labels = [task.label_ids[example.label] for example in examples]
    return rows_of(made, {"labels": labels})


def ner_rows(task: Any, examples: Sequence[Any], tokenizer: Any) -> list[dict[str, Any]]:
    """A sentence a row, longer ones are cut; a word's first piece bears its label, everything else -100."""
    made = tokenizer(
        [list(example.tokens) for example in examples], is_split_into_words=True, truncation=True,
        max_length=task.config.max_length,
    )  # fmt: skip
    labels = []
    for i, example in enumerate(examples):
        words = made.word_ids(i)
        labels.append(
            [
                task.label_ids[example.tags[word]] if word is not None and word != before else -100
                for word, before in zip(words, [None, *words], strict=False)
            ]
        )
    return rows_of(made, {"labels": labels})


def qa_windows(task: Any, questions: Sequence[str], contexts: Sequence[str], tokenizer: Any) -> Any:
    """Overlapping windows of the contexts, each behind its question; only the contexts are cut."""
    return tokenizer(
        list(questions), list(contexts), truncation="only_second", max_length=task.config.max_length,
        stride=task.config.stride, return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip


def qa_rows(task: Any, examples: Sequence[Any], tokenizer: Any) -> list[dict[str, Any]]:
    """A window a row; where it does not hold the whole answer, both its places are [CLS]."""
    made = qa_windows(task, [e.question for e in examples], [e.context for e in examples], tokenizer)
    starts, ends = [], []
    for i, number in enumerate(made["overflow_to_sample_mapping"]):
        span, offsets = examples[number].span, made["offset_mapping"][i]
        inside = [t for t, sequence in enumerate(made.sequence_ids(i)) if sequence == 1]
        held = span is not None and offsets[inside[0]][0] <= span[0] and span[1] <= offsets[inside[-1]][1]
        touching = [t for t in inside if offsets[t][1] > span[0] and offsets[t][0] < span[1]] if held else []
        starts.append(touching[0] if touching else 0)
        ends.append(touching[-1] if touching else 0)
    return rows_of(made, {"start_positions": starts, "end_positions": ends})


def rows_of(made: Any, more: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """What the model takes, a dict a row."""
    columns = {name: made[name] for name in ("input_ids", "token_type_ids", "attention_mask") if name in made} | more
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def collator(task: Any, tokenizer: Any, *, to_max: bool) -> Any:
    """Rows to a batch: padded to max_length as run_glue and run_qa do, else to the batch's longest, in eights."""
    from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

    kind = DataCollatorForTokenClassification if task.name == "ner" else DataCollatorWithPadding
    if to_max:
        return kind(tokenizer, padding="max_length", max_length=task.config.max_length)
    return kind(tokenizer, pad_to_multiple_of=8)


# ---- training


def train(
    model: Any, rows: Sequence[dict[str, Any]], collate: Any, work: Path, *, precision: str,
    callbacks: Sequence[Any] = (), **settings: Any,
) -> None:  # fmt: skip
    """transformers' Trainer on rows: AdamW, linear schedule, clipping at 1, nothing saved. precision: fp32, bf16."""
    import torch
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(work), bf16=precision == "bf16", use_cpu=not torch.cuda.is_available(), save_strategy="no",
        eval_strategy="no", report_to=[], disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available(),
        **settings,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, data_collator=collate, train_dataset=list(rows), callbacks=list(callbacks)
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()


def step_ends(
    model: Any, rows: Sequence[dict[str, Any]], collate: Any, work: Path, *, precision: str, batch_size: int,
    **settings: Any,
) -> list[float]:  # fmt: skip
    """Train once through the rows in their order; returns by time.perf_counter() when each step ended."""
    import torch
    import transformers

    ends: list[float] = []

    class Clock(transformers.TrainerCallback):
        """Notes when each step ends."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    train(
        model, rows, collate, work, precision=precision, callbacks=[Clock()], num_train_epochs=1,
        per_device_train_batch_size=batch_size, train_sampling_strategy="sequential", **settings,
    )  # fmt: skip
    return ends


# ---- prediction


def predictor(task: Any, folder: Path) -> Callable[[list[Any], int], Any]:
    """What a user of transformers calls to predict, in float32: (inputs, batch size) -> predictions.

    Inputs: texts; for qa (question, context) pairs. cls and ner are transformers.pipeline. It has had none for question
    answering since version 5: there it is its task guide's way, a tokenizer and a model, with run_qa's windows and
    n best.
    """
    import torch
    import transformers

    tokenizer = peer_tokenizer(folder)
    tokenizer.model_max_length = task.config.max_length
    device = 0 if torch.cuda.is_available() else -1
    if task.name == "qa":
        return QaLoop(task, folder, tokenizer)
    if task.name == "ner":
        tag = transformers.pipeline(
            "token-classification", model=str(folder), tokenizer=tokenizer, aggregation_strategy="simple",
            dtype=torch.float32, device=device,
        )  # fmt: skip
        return lambda texts, batch_size: tag(texts, batch_size=batch_size)
    classify = transformers.pipeline(
        "text-classification", model=str(folder), tokenizer=tokenizer, dtype=torch.float32, device=device
    )
    return lambda texts, batch_size: classify(texts, batch_size=batch_size, truncation=True)


class QaLoop:
    """Answers without a pipeline: windows of the questions in batches as they come, the n best places in Python.

    Where windows overlap, each may answer with any of its tokens (minibert asks for each token the window in which it
    has most context), so that a few answers may differ.
    """

    def __init__(self, task: Any, folder: Path, tokenizer: Any) -> None:
        import torch

        self.task, self.tokenizer = task, tokenizer
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = peer_model(task, folder).to(self.device).eval()

    def __call__(self, pairs: list[Any], batch_size: int) -> list[str]:
        """The best answer to each (question, context); batch_size windows are computed at a time."""
        import torch

        made = qa_windows(self.task, [pair[0] for pair in pairs], [pair[1] for pair in pairs], self.tokenizer)
        rows = rows_of(made, {})
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(pairs)
        for first in range(0, len(rows), batch_size):
            batch = self.tokenizer.pad(rows[first : first + batch_size], return_tensors="pt").to(self.device)
            with torch.inference_mode():
                out = self.model(**batch)
            both = torch.stack((out.start_logits, out.end_logits), 1).float().cpu().numpy()  # (B,2,T)
            for i, (starts, ends) in enumerate(both, first):
                number = made["overflow_to_sample_mapping"][i]
                score, start, end = self.best_span(starts, ends, made["offset_mapping"][i], made.sequence_ids(i))
                best[number] = max(best[number], (score, pairs[number][1][start:end]))
        return [answer for _, answer in best]

    def best_span(
        self, starts: np.ndarray, ends: np.ndarray, offsets: Sequence[tuple[int, int]], sequences: Sequence[int | None]
    ) -> tuple[float, int, int]:
        """The best pair of places in a window: score, first and last character in the context."""
        found = (-np.inf, 0, 0)
        for start in np.argsort(-starts)[:QA_STARTS].tolist():
            for end in np.argsort(-ends)[:QA_STARTS].tolist():
                if max(start, end) >= len(sequences) or sequences[start] != 1 or sequences[end] != 1:
                    continue
                if start <= end < start + self.task.config.max_answer_length:
                    found = max(found, (float(starts[start] + ends[end]), offsets[start][0], offsets[end][1]))
        return found
