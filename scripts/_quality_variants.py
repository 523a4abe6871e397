"""Experiments that quality.py can switch on in a run: what docs/research.md has tried and minibert does not have.

Each function takes its value from scripts/quality.toml and changes minibert in this process alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from minibert.model.heads import BertForSequenceClassification, SequenceClassifierOutput


def mean_pooling(share: float) -> None:
    """Classification from the mean of all tokens' vectors (share 1) in place of that of [CLS]; between: a mixture."""

    def forward(
        self: Any, input_ids: Tensor, attention_mask: Any = None, token_type_ids: Any = None, *, labels: Any = None,
        output_attentions: bool = False, output_hidden_states: bool = False,
    ) -> SequenceClassifierOutput:  # fmt: skip
        states, _, _ = self.rows(input_ids, attention_mask, token_type_ids, None, False, False)
        states = states.view(*input_ids.shape, -1)
        kept = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mean = (states * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        mixed = share * mean + (1 - share) * states[:, 0]
        logits = self.classifier(self.dropout(self.bert.pooler(mixed)))
        return SequenceClassifierOutput(None if labels is None else self.loss(logits.float(), labels), logits)

    BertForSequenceClassification.forward = forward  # type: ignore[method-assign]


def fresh_pooler(_: bool) -> None:
    """Fine-tuning begins with a new pooler."""
    from minibert.finetune import run

    run.HEADS = ("classifier.", "qa_outputs.", "bert.pooler.")


def plain_pooler(_: bool) -> None:
    """Fine-tuning for classification without the pooler's dense layer and tanh."""
    from minibert.model.bert import BertPooler

    BertPooler.forward = lambda self, first: first  # type: ignore[method-assign]


def layer_rates(decay: float) -> None:
    """Fine-tuning rates that fall from the head to the embeddings by this factor a layer (ELECTRA: 0.8)."""
    grouped(lambda name, parameter, depth, layers: decay ** (layers + 1 - depth))


def matrix_rates(factor: float) -> None:
    """Fine-tuning rates of the layers' matrices in proportion to their size: x rms / 0.02, at most `factor`."""

    def rate(name: str, parameter: Tensor, depth: int, layers: int) -> float:
        if parameter.ndim < 2 or ".layer." not in name:
            return 1.0
        return min(factor, max(1.0, float(parameter.detach().pow(2).mean().sqrt()) / 0.02))

    grouped(rate)


def embedding_rate(factor: float) -> None:
    """Another fine-tuning rate for the word embeddings."""
    grouped(lambda name, parameter, depth, layers: factor if "word_embeddings" in name else 1.0)


def grouped(rate: Any) -> None:
    """Fine-tuning in which each parameter has a rate of its own: rate(name, parameter, depth, layers) x lr. The depth of
    embeddings is 0, that of the first layer 1, that of heads layers + 1."""
    from minibert.finetune import seed

    def build(model: nn.Module, *, name: str, lr: float, muon_lr: float, weight_decay: float, adam_beta2: float) -> Any:
        layers = sum(1 for part, _ in model.named_modules() if part.rpartition(".")[0].endswith("encoder.layer"))
        groups = []
        for called, parameter in model.named_parameters():
            depth = layers + 1
            if ".embeddings." in f".{called}":
                depth = 0
            elif ".layer." in called:
                depth = 1 + int(called.partition(".layer.")[2].partition(".")[0])
            decay = weight_decay if parameter.ndim > 1 else 0.0
            groups.append({"params": [parameter], "weight_decay": decay, "peak_lr": lr * rate(called, parameter, depth, layers)})
        return [torch.optim.AdamW(groups, lr=lr, betas=(0.9, adam_beta2), eps=1e-6, fused=True)]

    seed.build_optimizers = build


def finetune_muon(lr: float) -> None:
    """Fine-tuning with Muon for the layers' matrices."""
    from minibert.finetune import seed
    from minibert.training.optim import build_optimizers

    def build(model: nn.Module, **settings: Any) -> Any:
        return build_optimizers(model, **{**settings, "name": "muon", "muon_lr": lr})

    seed.build_optimizers = build


# ---- pre-training


def words_from_cls(weight: float, *, whole: bool = False) -> None:
    """The pooled vector of [CLS] predicts the text's hidden words, wherever they stand, through the tied embeddings."""
    from minibert.corpus.batches import Batch
    from minibert.model.cross_entropy import summed_cross_entropy
    from minibert.model.heads import BertForPreTraining
    from minibert.training import pretraining

    plain = BertForPreTraining.forward

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        kept: list[Tensor] = []
        handle = self.bert.pooler.register_forward_hook(lambda module, inputs, pooled: kept.append(pooled))
        out = plain(self, *args, **named)
        handle.remove()
        if self.training:
            out.words = self.cls.predictions.decoder(kept[0]).float().log_softmax(-1)  # (B,V)
        return out

    def loss_sums(model: nn.Module, batch: Batch) -> Tensor:
        out = pretraining.forward(model, batch)
        mlm = summed_cross_entropy(out.prediction_logits, batch["labels"])
        nsp = summed_cross_entropy(out.seq_relationship_logits, batch["next_sentence_label"])
        if not hasattr(out, "words"):
            return torch.stack((mlm, nsp))
        ids, labels, places = batch["input_ids"], batch["labels"], batch["masked_positions"]
        hidden = labels >= 0
        rows, gold = (places // ids.shape[1])[hidden], labels[hidden]
        words = -out.words[rows, gold].sum()
        if whole:
            full = ids.flatten().index_put((places[hidden],), gold).view_as(ids)
            shown = (full > 4) if batch["attention_mask"] is None else (full > 4) & (batch["attention_mask"] > 0)
            words = -(out.words.gather(1, full) * shown).sum() / shown.sum() * hidden.sum()
        return torch.stack((mlm + weight * words, nsp))

    BertForPreTraining.forward = forward  # type: ignore[method-assign]
    pretraining.loss_sums = loss_sums


def all_words_from_cls(weight: float) -> None:
    """As words_from_cls, of all of the text's words."""
    words_from_cls(weight, whole=True)


def sentence_order(_: bool) -> None:
    """Pairs are neighbours always, the other way round half of the time (ALBERT), in place of next sentences."""
    from bisect import bisect_left

    from minibert.corpus import pairs

    def plan(
        rows: Any, doc_first: Any, starts: Any, ids: Any, place: int, room: int, short_share: float, rng: Any
    ) -> None:  # fmt: skip
        random, document = rng.random, ids[place]
        sentence, end, ordinal = doc_first[document], doc_first[document + 1], 0
        while sentence < end:
            target = 2 + int(random() * (room - 1)) if random() < short_share else room
            chunk_end = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
            start, stop = starts[sentence], min(starts[chunk_end], starts[sentence] + room)
            if chunk_end - sentence > 1:
                middle = min(starts[sentence + 1 + int(random() * (chunk_end - sentence - 1))], stop - 1)
            else:
                middle = start + max(1, int(random() * (stop - start)))
            sentence = chunk_end
            if stop - middle < 1:
                continue
            first, second, swapped = (start, middle - start), (middle, stop - middle), random() < 0.5
            a, b = (second, first) if swapped else (first, second)
            rows.extend((document, ordinal, *a, *b, int(swapped)))
            ordinal += 1

    pairs._plan_pairs = plan


def next_of_batch(temperature: float) -> None:
    """In place of pairs: A and B are texts of their own, each with its [CLS], and the pooled vector of A has to find its
    B among those of the batch (and B its A). Both are masked as ever."""
    import numpy as np
    import torch.nn.functional as F

    from minibert.corpus import pairs
    from minibert.corpus.batches import A_LENGTH, A_START, B_LENGTH, B_START, IS_RANDOM, ORDINAL, Batch, Collator
    from minibert.model.cross_entropy import summed_cross_entropy
    from minibert.model.heads import BertForPreTraining
    from minibert.training import pretraining

    pairs._plan_pairs = halves
    plain = Collator.__getitem__

    def collate(self: Any, rows: Any) -> Any:
        first, second = rows.copy(), rows.copy()
        second[:, A_START], second[:, A_LENGTH] = rows[:, B_START], rows[:, B_LENGTH]
        for number, part in enumerate((first, second)):
            part[:, ORDINAL] = 2 * rows[:, ORDINAL] + number
            part[:, B_LENGTH], part[:, IS_RANDOM] = 0, -1
        batch = plain(self, np.concatenate([first, second]))
        batch["counts"][1] = len(rows)
        return batch

    forward = BertForPreTraining.forward

    def with_pooled(self: Any, *args: Any, **named: Any) -> Any:
        kept: list[Tensor] = []
        handle = self.bert.pooler.register_forward_hook(lambda module, inputs, pooled: kept.append(pooled))
        out = forward(self, *args, **named)
        handle.remove()
        out.pooled = kept[0]
        return out

    def loss_sums(model: nn.Module, batch: Batch) -> Tensor:
        out = pretraining.forward(model, batch)
        mlm = summed_cross_entropy(out.prediction_logits, batch["labels"])
        if len(out.pooled) % 2:  # the trial that measures memory
            return torch.stack((mlm, 0 * mlm))
        a, b = F.normalize(out.pooled.float(), dim=-1).chunk(2)
        near = a @ b.T / temperature
        own = torch.arange(len(a), device=near.device)
        both = F.cross_entropy(near, own, reduction="sum") + F.cross_entropy(near.T, own, reduction="sum")
        return torch.stack((mlm, both / 2))

    Collator.__getitem__ = collate  # type: ignore[method-assign]
    BertForPreTraining.forward = with_pooled  # type: ignore[method-assign]
    pretraining.loss_sums = loss_sums


def halves(
    rows: Any, doc_first: Any, starts: Any, ids: Any, place: int, room: int, short_share: float, rng: Any
) -> None:  # fmt: skip
    """Pairs of neighbours of about the same length: cut at the sentence's end nearest the middle, or in the middle."""
    from bisect import bisect_left

    random, document = rng.random, ids[place]
    sentence, end, ordinal = doc_first[document], doc_first[document + 1], 0
    while sentence < end:
        target = 2 + int(random() * (room - 1)) if random() < short_share else room
        chunk_end = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
        start, stop = starts[sentence], min(starts[chunk_end], starts[sentence] + room)
        middle = (start + stop) // 2
        near = bisect_left(starts, middle, sentence, chunk_end + 1)
        best = min((starts[s] for s in (near - 1, near) if sentence < s < chunk_end), default=middle, key=lambda s: abs(s - middle))
        if abs(best - middle) <= (stop - start) // 6:
            middle = best
        sentence = chunk_end
        if middle > start and stop > middle:
            rows.extend((document, ordinal, start, middle - start, middle, stop - middle, 0))
            ordinal += 1
