"""What a person who watches a run would notice: each kind of trouble is said once, with its likely cause."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

BEFORE, RECENT = 50, 10  # steps: what the last ten are compared with
JUMP, JUMP_SHARE = 0.3, 1.5  # a loss has jumped: by so many nats, to so many times what it was
GROWTH = 20.0  # a gradient has exploded: so many times what it was
HALF = 0.5  # of the training: from there on a head should have learnt something
LEARNT = 0.05  # nats below the unigram baseline that are more than luck
CHANCE_LOSS = 0.685  # of next sentences; ln 2 = .693 is chance


class Finding(NamedTuple):
    """Something that is odd about a run."""

    step: int
    kind: str
    text: str


class Watch:
    """Looks at every step and every measurement in their order. What it finds depends on nothing else, so that a run
    that was ended and resumed finds the same.

    Args: terms: names of the loss terms. uniform: the MLM loss of who guesses any token, ln V; None outside of
        pre-training. state: of a run that goes on.
    """

    def __init__(
        self, terms: Sequence[str], *, uniform: float | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        self.terms, self.uniform = terms, uniform
        state = state or {}
        self.losses: list[list[float]] = [list(values) for values in state.get("losses", [])]  # the newest steps' terms
        self.norms: list[float] = list(state.get("norms", []))
        self.first: list[float] = list(state.get("first", []))  # losses of the first steps
        self.said: list[str] = list(state.get("said", []))

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return {"losses": self.losses, "norms": self.norms, "first": self.first, "said": self.said}

    def step(self, step: int, share: float, losses: Sequence[float], norm: float) -> list[Finding]:
        """Look at a step. share: of the training that is done. losses: a value for each term."""
        self.losses = [*self.losses, list(losses)][-BEFORE - RECENT :]
        self.norms = [*self.norms, norm][-BEFORE - RECENT :]
        if len(self.first) < RECENT:
            self.first.append(sum(losses))
        if len(self.losses) < BEFORE + RECENT:
            return []
        return self._once(step, [*self._jump(), *self._growth(), *self._worse_than_chance(), *self._no_pairs(share)])

    def measured(self, step: int, share: float, found: Mapping[str, float]) -> list[Finding]:
        """Look at a measurement of pre-training on held-out text."""
        said: list[tuple[str, str]] = []
        if step < BEFORE + RECENT:  # too short a run to have learnt anything
            return []
        if share >= HALF and "unigram_loss" in found and found["masked_loss"] > found["unigram_loss"] - LEARNT:
            text = (
                f"after {share:.0%} of the training masked tokens are guessed no better than by word counts alone "
                f"(loss {found['masked_loss']:.2f}, counts {found['unigram_loss']:.2f}): the model looks at no context "
                "yet. Longer training, --optimizer muon with --init neighbour, or another --lr"
            )
            said.append(("mlm-plateau", text))
        pairs = found.get("num_pairs", 0)
        blind = found.get("nsp_majority_accuracy", 0.5)
        if share >= HALF and pairs and found["nsp_accuracy"] < blind + 2 * math.sqrt(0.25 / pairs):
            said.append(("nsp-chance", _no_better(share, found["nsp_accuracy"], blind)))
        return self._once(step, said)

    def ended(self, step: int) -> list[Finding]:
        """Look back at the end."""
        last = [sum(losses) for losses in self.losses[-RECENT:]]
        if self._has_risen():
            text = (
                f"the training loss has risen ({self.first[0]:.3g} in the first step, {last[-1]:.3g} in the last): a "
                "learning rate that is far too high (--lr), or a warm-up that is too short (--warmup)"
            )
            return self._once(step, [("not-learning", text)])
        if step < 2 * RECENT or not self.first or statistics.fmean(last) < 0.98 * statistics.fmean(self.first):
            return []
        text = (
            f"the training loss has not fallen ({statistics.fmean(self.first):.3f} in the first {RECENT} steps, "
            f"{statistics.fmean(last):.3f} in the last): a learning rate that is too high or too low (--lr), too few "
            "steps, or labels that the text does not tell"
        )
        return self._once(step, [("not-learning", text)])

    def answered(self, step: int, where: str, one_sided: str | None) -> list[Finding]:
        """Look at the answers of the model that is kept. one_sided: in words, that they are all the same."""
        if one_sided is None:
            return []
        text = (
            f"{where}: {one_sided}: nothing but the commonest answer was learnt. More --epochs, a higher --lr (1e-4; "
            "3e-4 for small models), a smaller --batch-size, --class-weights balanced where classes are rare"
        )
        if self._has_risen():
            text = f"{where}: {one_sided}, after a loss that has risen: a lower --lr, a longer --warmup"
        return self._once(step, [("one-answer", text)])

    def data(self, unknown_rate: float) -> list[Finding]:
        """Look at the share of [UNK] among the tokens to train on."""
        if unknown_rate <= 0.05:
            return []
        text = (
            f"{unknown_rate:.1%} of the tokens are [UNK], unknown to the vocabulary: a model or --tokenizer of another "
            "language or script, or a vocabulary that is too small"
        )
        return self._once(0, [("unknown-tokens", text)])

    def _once(self, step: int, said: Sequence[tuple[str, str]]) -> list[Finding]:
        new = [Finding(step, kind, text) for kind, text in said if kind not in self.said]
        self.said += [finding.kind for finding in new]
        return new

    def _has_risen(self) -> bool:
        """Whether the last steps' loss is far above the first step's, in a run of any length."""
        return len(self.losses) > 1 and statistics.median(map(sum, self.losses[-3:])) > 2 * self.first[0] + 1

    def _jump(self) -> list[tuple[str, str]]:
        sums = [sum(losses) for losses in self.losses]
        before, recent = statistics.median(sums[:BEFORE]), statistics.median(sums[BEFORE:])
        # above all of the fifty but one: hard batches, which are few, do not count as a jump, nor hide one
        if recent <= max(before + JUMP, before * JUMP_SHARE, sorted(sums[:BEFORE])[-2]):
            return []
        text = (
            f"the loss has jumped from {before:.2f} to {recent:.2f}: a learning rate that is too high (a lower --lr, a "
            "longer --warmup), or data unlike what came before"
        )
        return [("loss-jump", text)]

    def _growth(self) -> list[tuple[str, str]]:
        before, recent = statistics.median(self.norms[:BEFORE]), statistics.median(self.norms[BEFORE:])
        if recent <= GROWTH * before:
            return []
        text = (
            f"the gradient's norm has grown from {before:.2g} to {recent:.2g}: training may be about to go wrong. A "
            "lower --lr or a longer --warmup; --clip holds it for a while"
        )
        return [("gradient-growth", text)]

    def _worse_than_chance(self) -> list[tuple[str, str]]:
        if self.uniform is None:
            return []
        recent = statistics.fmean(losses[0] for losses in self.losses[BEFORE:])
        if recent <= self.uniform + JUMP:
            return []
        text = (
            f"the loss of masked tokens ({recent:.2f}) is above that of guessing any token ({self.uniform:.2f}): the "
            "head has exploded. A lower --lr or a longer --warmup"
        )
        return [("mlm-exploded", text)]

    def _no_pairs(self, share: float) -> list[tuple[str, str]]:
        if share < HALF or "nsp_loss" not in self.terms:
            return []
        place = self.terms.index("nsp_loss")
        recent = [losses[place] for losses in self.losses]
        if statistics.fmean(recent) <= CHANCE_LOSS or min(recent) <= 0:  # 0: there are no pairs
            return []
        return [("nsp-chance", _no_better(share))]


def _no_better(share: float, accuracy: float | None = None, blind: float = 0.5) -> str:
    value = "" if accuracy is None else f" ({accuracy:.0%} right; {blind:.0%} without reading)"
    return (
        f"after {share:.0%} of the training next sentences are told no better than by a guess{value}: lines that are "
        "no sentences or are shuffled, documents that are alike, or too little training. --no-nsp leaves them out"
    )
