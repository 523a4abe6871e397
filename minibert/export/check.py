"""Is what was exported the model? And how fast is it? On rows of random tokens, or of a text.

Letters in shape comments: B batch, T tokens, D hidden, C labels or vocabulary.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from minibert.errors import UserError
from minibert.export.graph import INPUTS, NamedOutputs
from minibert.tokenization.tokenizer import BertTokenizer

Arrays = Mapping[str, NDArray[Any]]
Run = Callable[[Arrays], Mapping[str, NDArray[Any]]]  # inputs by name -> outputs by name
STATES = ("last_hidden_state", "pooler_output")  # vectors, from which nothing is chosen
SPANS = ("start_logits", "end_logits")  # (B,T), of which the place is the answer
LENGTHS = (64, 8, 17, 33, 48, 56, 60, 64)  # tokens of the rows to measure on
LONGEST_LINE, MOST_LINES = 128, 32
FEWEST_ROUNDS, MOST_ROUNDS, SECONDS = 3, 50, 1.0  # of measuring: after so many seconds no more than the fewest


@dataclass(frozen=True)
class Sample:
    """Rows to compare and to measure on, and what they are in words."""

    rows: Arrays
    name: str

    @property
    def keep(self) -> NDArray[np.bool_]:
        """(B,T): True where there is a token."""
        return self.rows["attention_mask"].astype(bool)

    @property
    def shape(self) -> str:
        return " x ".join(map(str, self.keep.shape))

    def first(self) -> Sample:
        """The first row alone, without padding."""
        length = int(self.keep[0].sum())
        return Sample({name: values[:1, :length] for name, values in self.rows.items()}, self.name)


def random_rows(tokenizer: BertTokenizer, lengths: Sequence[int], types: int) -> Sample:
    """A row of random words for each length; its second half is of the last of `types` token types."""
    draw = np.random.default_rng(0)
    shape = (len(lengths), max(lengths))
    words = tokenizer.ordinary_ids if len(tokenizer.ordinary_ids) else np.array([tokenizer.unk_token_id])
    ids = draw.choice(words, shape)
    ids[:, 0] = tokenizer.cls_token_id
    place, end = np.arange(shape[1]), np.array(lengths)[:, None]
    keep = place < end
    rows = {
        "input_ids": np.where(keep, ids, tokenizer.pad_token_id).astype(np.int64),
        "attention_mask": keep.astype(np.int64),
        "token_type_ids": np.where(keep & (2 * place >= end), types - 1, 0).astype(np.int64),
    }
    return Sample(rows, f"{shape[0]} rows of random tokens")


def text_rows(tokenizer: BertTokenizer, path: Path, most_tokens: int) -> Sample:
    """The first lines of a text that are not empty, a row each, cut where they are long.

    Raises: UserError where there is no such file, it is not UTF-8, or there is nothing in it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", str(path), "name a file of text") from error
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8: byte {error.start}", str(path), "recode it first") from error
    ends = text.replace("\r\n", "\n").replace("\r", "\n")  # and nothing else ends a line
    lines = [line for line in ends.split("\n") if line.strip()][:MOST_LINES]
    if not lines:
        raise UserError("there is no line of text in it", str(path), "give a line for each row")
    batch = tokenizer(lines, max_length=min(LONGEST_LINE, most_tokens))
    return Sample({name: batch[name].numpy() for name in INPUTS}, f"{len(lines)} lines of {path.name}")


def runner(model: nn.Module) -> Run:
    """The model itself, called as an exported one is."""
    named = NamedOutputs(model).eval()

    def run(rows: Arrays) -> Mapping[str, NDArray[Any]]:
        with torch.inference_mode():
            out = named(*(torch.from_numpy(rows[name]) for name in INPUTS))
        return {name: value.numpy() for name, value in out.items()}

    return run


def check_equal(model: nn.Module, theirs: Run, batches: Sequence[Sample], *, most: float, name: str) -> float:
    """The largest difference of any output from the model's, padding included.

    Raises: UserError where it is more than `most`, or not a number. For a token whose numbers float32 does not hold so
        well, twice as much as the model itself differs from its own result in float64 is allowed.
    """
    ours = runner(model)
    worst = 0.0
    for batch in batches:
        expected = ours(batch.rows)
        difference = furthest(expected, theirs(batch.rows))
        if not difference <= most:
            rounding = furthest(expected, runner(copy.deepcopy(model).double())(batch.rows))
            if not difference <= 2 * rounding:
                raise UserError(
                    f"its outputs differ from the model's by up to {difference:.2g}, more than {most:.0e}", where=name,
                    fix="nothing was written; try other versions of torch and onnxruntime, or --format hf",
                )  # fmt: skip
        worst = max(worst, difference)
    return worst


def furthest(expected: Arrays, found: Arrays) -> float:
    """The largest difference of two models' outputs; NaN where one is."""
    assert list(found) == list(expected)
    return float(np.max([np.abs(found[key] - expected[key]).max() for key in expected]))


def extremes(tokenizer: BertTokenizer, most_tokens: int, types: int) -> list[Sample]:
    """One token; the longest row; a row that is padding alone beside others."""
    alone = random_rows(tokenizer, [1], types)
    longest = random_rows(tokenizer, [most_tokens], types)
    empty = random_rows(tokenizer, [0, min(7, most_tokens), 1], types)
    return [alone, longest, empty]


def losses(ours: Run, theirs: Run, sample: Sample, *, multi_label: bool) -> list[tuple[str, str, str, str]]:
    """What 8 bits cost over the sample's tokens, a line for each output.

    Returns: its name; the largest difference; the standard deviation of the output, to compare that with; the share of
        answers that changed, or for vectors the smallest cosine between ours and theirs.
    """
    expected, found, keep = ours(sample.rows), theirs(sample.rows), sample.keep
    table = []
    for name, before in expected.items():
        after = found[name]
        if name in STATES:
            rows = keep if before.ndim == 3 else slice(None)
            changes = f"cosine {cosines(before, after)[rows].min():.3f} or more"
        elif before.shape[-1] == 1 and name not in SPANS:
            changes = "-"  # a number, no answer
        else:
            first, second = (answers(name, values, keep, multi_label=multi_label) for values in (before, after))
            changes = f"{np.mean(first != second):.1%} of {first.size:,} answers"
        if before.ndim == 3 or name in SPANS:
            before, after = before[keep], after[keep]
        table.append((name, f"{np.abs(after - before).max():.3g}", f"{before.std():.3g}", changes))
    return table


def cosines(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Both (..., D) -> (...)."""
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.asarray((first * second).sum(-1) / np.maximum(lengths, 1e-12))


def answers(name: str, logits: NDArray[Any], keep: NDArray[np.bool_], *, multi_label: bool) -> NDArray[Any]:
    """What an output says: the class of the largest logit, for each label yes or no, or the place of the span's end.

    logits (B,T,C), (B,C), or (B,T) of a span; keep (B,T).
    """
    if name in SPANS:
        return np.asarray(np.where(keep, logits, -np.inf).argmax(-1))
    if logits.ndim == 3:
        return np.asarray(logits[keep].argmax(-1))
    return np.asarray(logits > 0 if multi_label else logits.argmax(-1))


def speeds(runs: Mapping[str, Run], sample: Sample) -> list[list[str]]:
    """Milliseconds of each run for the first row alone and for the whole batch: medians, all taking turns."""
    table = []
    for batch in (sample.first(), sample):
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run(batch.rows)  # the first call is slower
        started = time.perf_counter()
        for done in range(MOST_ROUNDS):
            if done >= FEWEST_ROUNDS and time.perf_counter() - started > SECONDS:
                break
            for name, run in runs.items():
                before = time.perf_counter()
                run(batch.rows)
                seconds[name].append(time.perf_counter() - before)
        table.append([f"{batch.shape} tokens", *(f"{1000 * np.median(took):.1f} ms" for took in seconds.values())])
    return table
