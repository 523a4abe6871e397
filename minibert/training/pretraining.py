"""The pre-training objective: its loss, and its measurement on held-out text. V is the size of the vocabulary."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from minibert.corpus.batches import Batch
from minibert.model.cross_entropy import summed_cross_entropy
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.loop import on_device, sum_over_processes

TERMS = ("mlm_loss", "nsp_loss")


def forward(model: nn.Module, batch: Batch) -> Any:
    """The model's outputs for a batch, at its masked positions alone."""
    return model(
        batch["input_ids"],
        batch["attention_mask"],
        batch["token_type_ids"],
        masked_positions=batch["masked_positions"],
    )


def loss_sums(model: nn.Module, batch: Batch) -> Tensor:
    """(2,): the sum of the masked-token losses, the sum of the next-sentence losses; 0 where there is no target."""
    out = forward(model, batch)
    mlm = summed_cross_entropy(out.prediction_logits, batch["labels"])
    nsp = summed_cross_entropy(out.seq_relationship_logits, batch["next_sentence_label"])
    return torch.stack((mlm, nsp))


def log_unigram(token_counts: np.ndarray) -> Tensor:
    """Log of the training text's token frequencies (V,), with one added to each count."""
    smooth = token_counts.astype(np.float64) + 1.0
    return torch.from_numpy(np.log(smooth / smooth.sum()))


@torch.no_grad()
def measure(
    accelerator: Accelerator, model: nn.Module, batches: Iterable[Batch], unigram: Tensor, mask_id: int
) -> dict[str, float]:
    """Held-out losses and accuracies over all processes' batches.

    Args: unigram (V,): log_unigram of the training text, the baseline that looks at no context.
    Returns: mlm_loss (nats a target), mlm_accuracy, perplexity, over all targets; masked_* over those shown as [MASK]
        alone, with the unigram baseline's figures beside them: one target in ten is shown as it is, and copying it is
        no knowledge. nsp_accuracy, nsp_loss, num_pairs and nsp_majority_accuracy (who gives
        all pairs the commoner label) where there are pairs. num_targets, num_masked.
    """
    was_training = model.training
    model.eval()
    unigram = unigram.float().to(accelerator.device)
    commonest = unigram.argmax()
    names = (
        "targets", "loss", "right", "masked", "masked_loss", "masked_right", "unigram_loss", "unigram_right",
        "pairs", "follow", "pair_loss", "pair_right",
    )  # fmt: skip
    sums = torch.zeros(len(names), dtype=torch.float32, device=accelerator.device)
    for batch in batches:
        batch = on_device(batch, accelerator.device)
        with accelerator.autocast():
            out = forward(model, batch)
        labels = batch["labels"]
        kept = labels != -100  # a batch of static shape is filled up
        logits = out.prediction_logits.float()
        losses = F.cross_entropy(logits, labels, ignore_index=-100, reduction="none")  # 0 where nothing is kept
        right = logits.argmax(-1) == labels
        hidden = kept & (batch["input_ids"].reshape(-1)[batch["masked_positions"]] == mask_id)
        known = unigram[labels.clamp(min=0)]
        pairs = batch["next_sentence_label"]
        paired = out.seq_relationship_logits.float()
        sums += torch.stack(
            [
                kept.sum(), losses.sum(), right.sum(),
                hidden.sum(), (losses * hidden).sum(), (right & hidden).sum(),
                -(known * hidden).sum(), (hidden & (labels == commonest)).sum(),
                (pairs >= 0).sum(), (pairs == 0).sum(),
                F.cross_entropy(paired, pairs, ignore_index=-100, reduction="sum"),
                ((paired.argmax(-1) == pairs) & (pairs >= 0)).sum(),
            ]
        )  # fmt: skip
    model.train(was_training)
    total = dict(zip(names, sum_over_processes(accelerator, sums).tolist(), strict=True))
    targets, masked = max(total["targets"], 1), max(total["masked"], 1)
    found = {
        "mlm_loss": total["loss"] / targets,
        "mlm_accuracy": total["right"] / targets,
        "perplexity": math.exp(min(total["loss"] / targets, 700)),
        "masked_loss": total["masked_loss"] / masked,
        "masked_accuracy": total["masked_right"] / masked,
        "masked_perplexity": math.exp(min(total["masked_loss"] / masked, 700)),
        "unigram_loss": total["unigram_loss"] / masked,
        "unigram_accuracy": total["unigram_right"] / masked,
        "num_targets": total["targets"],
        "num_masked": total["masked"],
    }
    if total["pairs"]:
        found["nsp_loss"] = total["pair_loss"] / total["pairs"]
        found["nsp_accuracy"] = total["pair_right"] / total["pairs"]
        found["nsp_majority_accuracy"] = max(total["follow"], total["pairs"] - total["follow"]) / total["pairs"]
        found["num_pairs"] = total["pairs"]
    return found


@torch.no_grad()
def answers(
    accelerator: Accelerator, model: nn.Module, batch: Batch, tokenizer: BertTokenizer, *, top_k: int = 5
) -> list[dict[str, Any]]:
    """What the model puts in the place of each target of a batch, for people to look at.

    Returns: for each row {"tokens": what it was shown, "masks": [{"place", "gold", "answers": [{"token", "score"}]}],
        "next_sentence": {"gold", "score"} or None}; gold is IsNext or random, its score the probability of IsNext.
    """
    was_training = model.training
    model.eval()
    batch = on_device(batch, accelerator.device)
    with accelerator.autocast():
        out = forward(model, batch)
    model.train(was_training)
    best = out.prediction_logits.float().softmax(-1).topk(top_k)
    follows = out.seq_relationship_logits.float().softmax(-1)[:, 0].tolist()
    B, T = batch["input_ids"].shape
    shown = batch["input_ids"].tolist()
    lengths = [T] * B if batch["attention_mask"] is None else batch["attention_mask"].sum(-1).tolist()
    pairs = batch["next_sentence_label"].tolist()
    rows: list[dict[str, Any]] = [
        {
            "tokens": tokenizer.convert_ids_to_tokens(ids[:length]),
            "masks": [],
            "next_sentence": None if pair < 0 else {"gold": ("IsNext", "random")[pair], "score": round(score, 4)},
        }
        for ids, length, pair, score in zip(shown, lengths, pairs, follows, strict=True)
    ]
    for place, label, ids, scores in zip(
        batch["masked_positions"].tolist(), batch["labels"].tolist(), best.indices.tolist(), best.values.tolist(),
        strict=True,
    ):  # fmt: skip
        if label < 0:  # a batch of static shape is filled up
            continue
        said = [
            {"token": token, "score": round(score, 4)}
            for token, score in zip(tokenizer.convert_ids_to_tokens(ids), scores, strict=True)
        ]
        gold = tokenizer.convert_ids_to_tokens([label])[0]
        rows[place // T]["masks"].append({"place": place % T, "gold": gold, "answers": said})
    return rows


def in_short(found: dict[str, float]) -> str:
    """A measurement in one line."""
    if not found:
        return "nothing is held out, so nothing is measured"
    line = (
        f"held-out loss {found['mlm_loss']:.3f}, [MASK] accuracy {found['masked_accuracy']:.1%} "
        f"(unigram {found['unigram_accuracy']:.1%})"
    )
    return line + (f", next sentence {found['nsp_accuracy']:.1%}" if "nsp_accuracy" in found else "")


COLUMNS = ("on held-out text", "this model", "without context")


def in_rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """A measurement as a table for people, beside who knows word counts and the commoner label alone."""
    if "mlm_loss" not in found:
        return [("nothing was held out", "", "")]
    rows = [
        ("[MASK] accuracy", f"{found['masked_accuracy']:.1%}", f"{found['unigram_accuracy']:.1%}"),
        ("[MASK] perplexity", f"{found['masked_perplexity']:,.1f}", f"{math.exp(found['unigram_loss']):,.1f}"),
        ("MLM accuracy, all targets", f"{found['mlm_accuracy']:.1%}", ""),
        ("MLM loss, all targets", f"{found['mlm_loss']:.3f}", ""),
    ]
    if "nsp_accuracy" in found:
        rows.append(("next sentence", f"{found['nsp_accuracy']:.1%}", f"{found['nsp_majority_accuracy']:.1%}"))
    return rows


def what_next(out: Path, tokenizer: BertTokenizer) -> list[tuple[str, str]]:
    """Commands that try the model of a run."""
    han = sum("\u4e00" <= token[-1] <= "\u9fff" for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    text = "今天天气很[MASK]。" if han > len(tokenizer) / 4 else "The [MASK] is blue."
    run = shlex.quote(str(out))
    return [
        ("try it", f"minibert fill-mask --model {run} {shlex.quote(text)}"),
        *([("look at the run", str(page))] if (page := out / "report.html").is_file() else []),
        ("teach it a task", f"minibert finetune --task cls --model {run} --train FILE --out RUN"),
    ]
