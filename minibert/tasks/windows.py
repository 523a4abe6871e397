"""Questions -> rows: a long context is cut into overlapping windows. Legend: N tokens of a context.

`stride` is the OVERLAP of windows, as in transformers; google-research/bert's doc_stride is the step between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from minibert.errors import UserError
from minibert.tasks.base import Encoded, Feature
from minibert.tasks.squad_files import QaExample

if TYPE_CHECKING:
    from minibert.tasks.qa import QaConfig
    from minibert.tokenization.tokenizer import BertTokenizer

NOWHERE = (-1, -1)  # target of a row that counts for nothing
NO_ANSWER = (0, 0)  # both on [CLS]


@dataclass(slots=True)
class Window:
    """Part of a context that one feature holds.

    Attributes: offsets (N,2) int32: start and end of each token in characters of the context; one array for all of the
        context's windows. first: the window's first token. length: its tokens.
    """

    offsets: NDArray[np.int32]
    first: int
    length: int


def encode_questions(
    examples: Sequence[QaExample], tokenizer: BertTokenizer, config: QaConfig, *, gold: bool, first: int
) -> Encoded:
    """Rows of [CLS] question [SEP] window [SEP], a Window in each feature's extra.

    With gold the targets are the places of the answer's first and last token in the row, NO_ANSWER where the window
    does not hold the whole answer or the question has none. A question whose answer is whole in no window, or has no
    known place, is NOWHERE in all its rows: half an answer and "no answer" would both be wrong. Each context is
    tokenised once.
    Raises: UserError, with the question, where windows have no room or would not move on.
    """
    contexts: dict[str, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
    features: list[Feature] = []
    tally = _Tally(config)
    questions = tokenizer.encode([example.question for example in examples])
    for i, (example, question) in enumerate(zip(examples, questions, strict=True)):
        if example.context not in contexts:
            tokens, places = tokenizer.encode_with_offsets([example.context])[0]
            contexts[example.context] = np.array(tokens, np.int32), with_marks(example.context, places)
        ids, offsets = contexts[example.context]
        kept = question[: config.max_question_length]
        head = np.array([tokenizer.cls_token_id, *kept, tokenizer.sep_token_id], np.int32)
        room = _room(
            config, len(kept), len(ids), f"question {example.question[:40] if example.id is None else example.id!r}"
        )
        windows = cut_windows(len(ids), room, min(config.stride, room - 1))
        targets = _targets(example, offsets, windows, len(head), tally) if gold else [None] * len(windows)
        tally.rooms.add(room)
        tally.counts["cut"] += len(kept) < len(question)
        if len(windows) > 1:
            tally.windowed[room - config.stride] += 1
        for (start, length), target in zip(windows, targets, strict=True):
            row = np.concatenate((head, ids[start : start + length], [tokenizer.sep_token_id]), dtype=np.int32)
            features.append(Feature(first + i, row, len(head), target, Window(offsets, start, length)))
    return Encoded(features, tally.notes() if examples else [], tally.skipped)


def _room(config: QaConfig, question: int, context: int, where: str) -> int:
    """Tokens of the context that fit beside a question; both lengths in tokens."""
    room = config.max_length - 3 - question
    if room < 1:
        raise UserError(
            f"max_length ({config.max_length}) leaves no room for a context beside a question of {question} tokens",
            where, "a larger --max-length or a smaller --max-question-length",
        )  # fmt: skip
    if context > room and config.stride >= room:
        raise UserError(
            f"stride ({config.stride}), the overlap of windows, is not below the room that max_length "
            f"({config.max_length}) leaves for the context ({room} tokens): windows would not move on",
            where, f"--stride {room // 3}, or a larger --max-length",
        )  # fmt: skip
    return room


def with_marks(context: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """Offsets (N,2), their ends moved behind the marks that an uncased tokenizer drops after a token: accents and vowel
    signs, which belong to the letter before them.
    """
    found = np.array(offsets, np.int32).reshape(-1, 2)
    if not context.isascii():
        limits = [start for start, _ in offsets[1:]] + [len(context)]
        for i, limit in enumerate(limits[: len(offsets)]):
            while found[i, 1] < limit and category(context[found[i, 1]]).startswith("M"):
                found[i, 1] += 1
    return found


def cut_windows(num_tokens: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """(first token, number of tokens) of each window; no tokens are one empty window. overlap < room.

    Source: the windows of transformers' `stride=overlap, return_overflowing_tokens=True`.
    """
    if not 0 <= overlap < room:
        raise ValueError(f"an overlap of {overlap} in windows of {room}")
    step = room - overlap
    count = 1 + max(0, -(-(num_tokens - room) // step))
    return [(first, min(room, num_tokens - first)) for first in range(0, count * step, step)]


def tokens_of(offsets: NDArray[np.int32], start: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that have characters of context[start:end]; None where no token has."""
    touching = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < end))
    return (int(touching[0]), int(touching[-1])) if len(touching) else None


def _targets(
    example: QaExample, offsets: NDArray[np.int32], windows: Sequence[tuple[int, int]], before: int, tally: _Tally
) -> list[tuple[int, int]]:
    """For each window where the answer begins and ends in its row. before: tokens of the row before the context."""
    if not example.texts:
        return [NO_ANSWER] * len(windows)
    place = tokens_of(offsets, *example.span) if example.span else None
    if example.span is None or place is None:
        tally.counts["unplaced"] += 1
        tally.skip(example, "its answer has no place in the context, so that it is not in the loss")
        return [NOWHERE] * len(windows)
    start, end = place
    targets = [
        (before + start - first, before + end - first) if first <= start and end < first + length else NO_ANSWER
        for first, length in windows
    ]
    if set(targets) == {NO_ANSWER}:
        tally.in_no_window.append(example.id)
        tally.skip(example, "its answer is whole in no window, so that it is not in the loss")
        return [NOWHERE] * len(windows)
    begin, stop = int(offsets[start, 0]), int(offsets[end, 1])
    answer = example.context[slice(*example.span)].strip()
    tally.counts["inside"] += len(example.context[begin:stop]) > len(answer)
    tally.counts["long"] += end - start >= tally.config.max_answer_length
    return targets


@dataclass
class _Tally:
    """What encode has to say about the questions that it has seen."""

    config: QaConfig
    counts: Counter[str] = field(default_factory=Counter)
    rooms: set[int] = field(default_factory=set)
    windowed: Counter[int] = field(default_factory=Counter)  # questions with several windows, by the step between them
    in_no_window: list[str | int | None] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def skip(self, example: QaExample, reason: str) -> None:
        self.skipped.append({"where": f"question {str(example.id)!r}", "reason": reason})

    def notes(self) -> list[str]:
        config, counts = self.config, self.counts
        least, room = min(self.rooms), max(self.rooms)
        if self.windowed:
            steps = " to ".join(str(step) for step in sorted({min(self.windowed), max(self.windowed)}))
            windows = f"windows of up to {max(self.windowed) + config.stride} tokens, overlap {config.stride}"
            found = [f"{windows}: a step of {steps}; questions with more than one: {self.windowed.total()}"]
        else:
            longer = f"; a longer one would need a --stride below {least}" if config.stride >= least else ""
            found = [f"every context fits into one window of up to {room} tokens{longer}"]
        said = {
            "cut": f"questions of more than {config.max_question_length} tokens, cut there",
            "unplaced": "answers without a place in the context, whose questions are not in the loss",
            "inside": "answers that begin or end inside a token, all of which is learnt",
            "long": f"answers of more than {config.max_answer_length} tokens, the most that is predicted",
        }
        found += [f"{what}: {counts[name]}" for name, what in said.items() if counts[name]]
        if self.in_no_window:
            shown = ", ".join(map(repr, self.in_no_window[:5])) + (", ..." if len(self.in_no_window) > 5 else "")
            found.append(
                "answers that are whole in no window, whose questions are not in the loss: "
                f"{len(self.in_no_window)} ({shown}); a larger --stride or --max-length would help"
            )
        return found
