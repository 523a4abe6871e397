"""A forward pass with everything that was computed on the way.

Letters in shape comments: T tokens, D hidden, N heads, H head size, F the wide part of the feed-forward, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minibert.checkpoint.pretrained import load_masked_lm
from minibert.errors import UserError
from minibert.model.bert import BertConfig, BertSelfAttention
from minibert.model.heads import BertForMaskedLM
from minibert.run_folder import is_finished, load_settings
from minibert.tokenization.shown import ShownToken, batch_of, shown_row
from minibert.tokenization.tokenizer import BertTokenizer

MOST_TOKENS = 48  # of a tour: it shows tables of tokens by tokens


@dataclass(frozen=True)
class HeadsOfLayer:
    """What a layer's self-attention computes of its input x (T,D): q, k, v (N,T,H); dots, scores before and after the
    scaling by sqrt(H), and weights, all (N,T,T); context (T,D), the heads side by side."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    dots: Tensor
    scores: Tensor
    weights: Tensor
    context: Tensor


@dataclass(frozen=True)
class Pass:
    """A row that has gone through a model. into, out: what went into a module and came out, by its name, no batch."""

    model: BertForMaskedLM
    tokenizer: BertTokenizer
    row: list[ShownToken]
    into: dict[str, Tensor]
    out: dict[str, Tensor]
    weights: tuple[Tensor, ...]  # a layer's, (N,T,T) each

    @property
    def config(self) -> BertConfig:
        return self.model.config

    @property
    def logits(self) -> Tensor:
        """(T,V)."""
        return self.out["cls.predictions"]

    def heads(self, layer: int) -> HeadsOfLayer:
        """Of a layer, from 0. Queries, keys, values and scores are computed from what the layer was given, with its own
        weights and in its own way; weights and context are those that it gave."""
        name = f"bert.encoder.layer.{layer}.attention.self"
        part = self.model.get_submodule(name)
        assert isinstance(part, BertSelfAttention)
        x = self.into[name]
        with torch.inference_mode():
            qkv = F.linear(x, *part.joined())  # (T,3D)
            q, k, v = qkv.view(len(x), 3, part.num_heads, -1).permute(1, 2, 0, 3)  # (N,T,H) each
            dots = q @ k.transpose(1, 2)
            scores = q / math.sqrt(q.shape[-1]) @ k.transpose(1, 2)
        return HeadsOfLayer(x, q, k, v, dots, scores, self.weights[layer], self.out[name])


def follow(model: BertForMaskedLM, tokenizer: BertTokenizer, text: str) -> Pass:
    """One forward pass over [CLS] text [SEP], recorded. Raises: UserError for a text that does not fit."""
    row = shown_row(
        tokenizer, [text], limit=min(MOST_TOKENS, model.config.max_position_embeddings), types=1
    )  # fmt: skip
    into: dict[str, Tensor] = {}
    out: dict[str, Tensor] = {}

    def record(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Any, ...], gave: Any) -> None:
            gave = gave[0] if isinstance(gave, tuple) else gave
            if isinstance(gave, Tensor):
                into[name], out[name] = flat(given[0]), flat(gave)

        return hook

    hooks = [part.register_forward_hook(record(name)) for name, part in model.named_modules() if name]
    try:
        with torch.inference_mode():
            found = model(**batch_of(row), output_attentions=True)
    finally:
        for hook in hooks:
            hook.remove()
    if not found.logits.isfinite().all():
        raise UserError("the model gives numbers that are not finite", fix="take a checkpoint from before it diverged")
    return Pass(model, tokenizer, row, into, out, tuple(weights[0] for weights in found.attentions))


def flat(x: Tensor) -> Tensor:
    """Without the batch of one row, where it is there."""
    return x[0] if x.dim() == 3 else x


def open_and_follow(path: Path, text: str) -> Pass:
    """follow, with the model of a folder. Raises: UserError for what is no BERT with a head for masked tokens."""
    return follow(*load_masked_lm(path), text)


def only_run(folder: Path) -> Path:
    """The one finished pre-training run in a folder of runs: what is meant where no model is named.

    Raises: UserError where there is none, with how to make one, and where there are several, with their names.
    """
    found = []
    for run in sorted(folder.iterdir()) if folder.is_dir() else []:
        if is_finished(run) and (run / "settings.json").is_file() and load_settings(run).get("command") == "pretrain":
            found.append(run)
    if not found:
        raise UserError(
            f"no model was named, and there is no finished pre-training run in {folder}/", where="--model",
            fix="minibert pretrain YOUR_TEXT --minutes 3 --out runs/mine makes one (Chinese: --recipe quick-zh);"
            " from a checkout scripts/demo or scripts/demo zh brings the text too",
        )  # fmt: skip
    if len(found) > 1:
        raise UserError(
            f"no model was named, and there are {len(found)} in {folder}/: {names(found)}", where="--model",
            fix=f"name one: --model {found[0]}",
        )  # fmt: skip
    return found[0]


def names(runs: Sequence[Path]) -> str:
    """The first few."""
    return ", ".join(run.name for run in runs[:6]) + (", ..." if len(runs) > 6 else "")
