"""Experiments that quality.py can switch on in a run: what docs/research.md has tried and minibert does not have.

Each function takes its value from scripts/_quality.toml and changes minibert in this process alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from minibert.model.heads import BertForPreTraining, BertForSequenceClassification, SequenceClassifierOutput


def mean_pooling(_: bool) -> None:
    """Classification from the mean of all tokens' vectors in place of that of [CLS], through the same pooler."""

    def forward(
        self: Any, input_ids: Tensor, attention_mask: Any = None, token_type_ids: Any = None, *, labels: Any = None,
        output_attentions: bool = False, output_hidden_states: bool = False,
    ) -> SequenceClassifierOutput:  # fmt: skip
        states, _, _ = self.rows(input_ids, attention_mask, token_type_ids, None, False, False)
        kept = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mean = (states.view(*input_ids.shape, -1) * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        logits = self.classifier(self.dropout(self.bert.pooler(mean)))
        return SequenceClassifierOutput(None if labels is None else self.loss(logits.float(), labels), logits)

    BertForSequenceClassification.forward = forward  # type: ignore[method-assign]


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
    """Fine-tuning in which each parameter has a rate of its own: rate(name, parameter, depth, layers) x lr. Embeddings
    have depth 0, the first layer 1, heads layers + 1."""
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
            groups.append(
                {"params": [parameter], "weight_decay": decay, "peak_lr": lr * rate(called, parameter, depth, layers)}
            )
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


def keep_pooled() -> None:
    """The pre-training model gives the pooled vectors out too, as `pooled` (B,D)."""
    plain = BertForPreTraining.forward

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        kept: list[Tensor] = []
        handle = self.bert.pooler.register_forward_hook(lambda module, inputs, pooled: kept.append(pooled))
        out = plain(self, *args, **named)
        handle.remove()
        out.pooled = kept[0]
        return out

    BertForPreTraining.forward = forward  # type: ignore[method-assign]


def words_from_cls(weight: float, *, whole: bool = False) -> None:
    """The pooled vector of [CLS] predicts the text's hidden words, wherever they stand, through the tied embeddings."""
    from minibert.corpus.batches import Batch
    from minibert.model.cross_entropy import summed_cross_entropy
    from minibert.training import pretraining

    keep_pooled()

    def loss_sums(model: Any, batch: Batch) -> Tensor:
        out = pretraining.forward(model, batch)
        mlm = summed_cross_entropy(out.prediction_logits, batch["labels"])
        nsp = summed_cross_entropy(out.seq_relationship_logits, batch["next_sentence_label"])
        told = model.cls.predictions.decoder(out.pooled.float()).log_softmax(-1)  # (B,V)
        ids, labels, places = batch["input_ids"], batch["labels"], batch["masked_positions"]
        hidden = labels >= 0
        rows, gold = (places // ids.shape[1])[hidden], labels[hidden]
        words = -told[rows, gold].sum()
        if whole:
            full = ids.flatten().index_put((places[hidden],), gold).view_as(ids)
            shown = (full > 4) if batch["attention_mask"] is None else (full > 4) & (batch["attention_mask"] > 0)
            words = -(told.gather(1, full) * shown).sum() / shown.sum() * hidden.sum()
        return torch.stack((mlm + weight * words, nsp))

    pretraining.loss_sums = loss_sums


def all_words_from_cls(weight: float) -> None:
    """As words_from_cls, of all of the text's words."""
    words_from_cls(weight, whole=True)


def sentence_order(_: bool) -> None:
    """Pairs are neighbours always, the other way round half of the time (ALBERT), in place of next sentences."""

    def cut(ends: list[int], start: int, stop: int, random: Any) -> int:
        inside = min(ends[int(random() * len(ends))], stop - 1) if ends else start + int(random() * (stop - start))
        return max(start + 1, inside)

    plan_neighbours(cut, swapped=0.5)


def plan_neighbours(cut: Any, *, swapped: float) -> None:
    """All pairs are what a chunk of neighbouring sentences is cut into: cut(sentence ends inside, start, stop, random)
    says where. swapped: share of them that stand the other way round, which is_random then says."""
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
            middle = cut(list(starts[sentence + 1 : chunk_end]), start, stop, random)
            sentence = chunk_end
            if start < middle < stop:
                parts = [(start, middle - start), (middle, stop - middle)]
                turned = random() < swapped
                rows.extend((document, ordinal, *parts[turned], *parts[not turned], int(turned)))
                ordinal += 1

    pairs._plan_pairs = plan


def next_of_batch(temperature: float) -> None:
    """In place of pairs: A and B are texts of their own, each with its [CLS], and the pooled vector of A has to find
    its B among those of the batch (and B its A). Both are masked as ever."""
    import numpy as np
    import torch.nn.functional as F

    from minibert.corpus.batches import A_LENGTH, A_START, B_LENGTH, B_START, IS_RANDOM, ORDINAL, Batch, Collator
    from minibert.model.cross_entropy import summed_cross_entropy
    from minibert.training import pretraining

    plan_neighbours(near_the_middle, swapped=0.0)
    keep_pooled()
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
    pretraining.loss_sums = loss_sums


def near_the_middle(ends: list[int], start: int, stop: int, random: Any) -> int:
    """The end of a sentence that is nearest the middle, or the middle where none is near."""
    middle = (start + stop) // 2
    best = min(ends, default=middle, key=lambda place: abs(place - middle))
    return best if abs(best - middle) <= (stop - start) // 6 else middle


class Share:
    """How much of the training is done, for what changes in its course."""

    done = 0.0


def follow_progress() -> None:
    """Keep Share.done up to date: the loop asks for its rate before it takes a batch."""
    from minibert.training import loop

    plain = loop.rate_at

    def rate_at(progress: Any, warmup: float) -> float:
        Share.done = progress.before
        return plain(progress, warmup)

    loop.rate_at = rate_at


def mask_schedule(ends: list[float]) -> None:
    """A mask rate that goes from the first to the second in the course of training."""
    from minibert.corpus.batches import Collator
    from minibert.training.data import EVAL_SEED

    follow_progress()
    plain = Collator.__getitem__

    def collate(self: Any, rows: Any) -> Any:
        if self.seed != EVAL_SEED:
            self.mask_rate = ends[0] + (ends[1] - ends[0]) * Share.done
        return plain(self, rows)

    Collator.__getitem__ = collate  # type: ignore[method-assign]


def phases(parts: list[list[float]]) -> None:
    """Training in parts of [tokens in an example, examples in a step, share of the training to end at].

    Two parts must differ in length; for one length with several batches take 126, 127, 128.
    """
    from minibert.corpus.batches import ExampleStream
    from minibert.training.data import EVAL_SEED, PretrainingData

    batch = {int(length): int(rows) for length, rows, _ in parts}
    PretrainingData.phases = lambda self: [  # type: ignore[method-assign]
        (int(length), int(rows), until) for length, rows, until in parts
    ]
    plain = PretrainingData._stream

    def stream(self: Any, pool: Any, max_length: int, seed: int) -> ExampleStream:
        made = plain(self, pool, max_length, seed)
        if seed != EVAL_SEED:
            made.batch_size = batch.get(max_length, made.batch_size)
        return made

    PretrainingData._stream = stream  # type: ignore[method-assign]


def muon_until(share: float) -> None:
    """Muon hands its matrices over to AdamW after this share of the training, at AdamW's rate."""
    import minibert.pretrain
    from minibert.training.optim import Muon

    follow_progress()
    build, plain, lr = minibert.pretrain.build_optimizers, Muon.step, [0.0]

    def step(self: Any, closure: Any = None) -> Any:
        if Share.done < share:
            return plain(self, closure)
        if not hasattr(self, "heir"):
            self.state.clear()
            matrices = [p for group in self.param_groups for p in group["params"]]
            self.heir = torch.optim.AdamW(
                matrices, lr=lr[0], betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, fused=True
            )
        for group in self.heir.param_groups:
            group["lr"] = lr[0] * self.param_groups[0]["lr"] / self.param_groups[0]["peak_lr"]
        self.heir.step()
        return None

    def remember(model: nn.Module, **settings: Any) -> Any:
        lr[0] = settings["lr"]
        return build(model, **settings)

    Muon.step = step  # type: ignore[method-assign]
    minibert.pretrain.build_optimizers = remember


def average_last(share: float) -> None:
    """The model that is kept is the mean of the weights over this last share of the training."""
    from contextlib import contextmanager

    import minibert.pretrain

    follow_progress()
    build = minibert.pretrain.build_optimizers
    sums: list[Tensor] = []
    parameters: list[Tensor] = []
    count = [0]

    def with_average(model: nn.Module, **settings: Any) -> Any:
        optimizers = build(model, **settings)
        parameters.extend(model.parameters())
        plain = optimizers[-1].step

        @torch.no_grad()
        def step(closure: Any = None) -> Any:
            done = plain(closure)
            if Share.done >= 1 - share:
                if not sums:
                    sums.extend(torch.zeros_like(p) for p in parameters)
                torch._foreach_add_(sums, parameters)
                count[0] += 1
            return done

        optimizers[-1].step = step
        return optimizers

    @contextmanager
    def whole(accelerator: Any, network: Any, model: nn.Module) -> Any:
        if not count[0]:
            yield model
            return
        with torch.no_grad():
            kept = [p.clone() for p in parameters]
            for p, total in zip(parameters, sums, strict=True):
                p.copy_(total / count[0])
            yield model
            for p, own in zip(parameters, kept, strict=True):
                p.copy_(own)

    minibert.pretrain.build_optimizers = with_average
    minibert.pretrain.whole = whole


def token_dropping(share: float) -> None:
    """In training, all layers but the first and the last compute this share of a row's tokens, drawn at random."""
    from minibert.model.bert import BertEncoder

    plain = BertEncoder.forward

    def forward(
        self: Any, x: Tensor, batch: int, length: int, visible: Any, rows: Any, output_attentions: bool
    ) -> Any:  # fmt: skip
        kept = max(1, int(share * length))
        if not self.training or kept == length or not torch.is_grad_enabled():
            return plain(self, x, batch, length, visible, rows, output_attentions)
        order = torch.rand(batch, length)
        order[:, 0] = -1.0  # [CLS] always stays
        if visible is not None:
            order = order + (~visible[:, 0, 0]).float()  # padding goes first
        chosen = order.argsort(1)[:, :kept].sort(1).values
        flat = (chosen + torch.arange(batch)[:, None] * length).flatten()
        seen = None if visible is None else visible[:, 0, 0].gather(1, chosen)[:, None, None, :]
        first, *middle, last = self.layer
        x, _ = first(x, batch, length, visible, None, False)
        inner = x.index_select(0, flat)
        for layer in middle:
            inner, _ = layer(inner, batch, kept, seen, None, False)
        x = x.index_copy(0, flat, inner.to(x.dtype))
        x, weights = last(x, batch, length, visible, rows, False)
        return [self.ln(x)], [weights]

    BertEncoder.forward = forward  # type: ignore[method-assign]


def neighbour_layers(number: int) -> None:
    """So many first layers with neighbour heads, whatever the norm."""
    from minibert.model import init

    plain = init.start_at_neighbours

    def start(model: Any, bert: Any, generator: Any, head_share: float, token_counts: Any) -> None:
        put, layers = init.set_neighbour_head, list(bert.encoder.layer)
        init.set_neighbour_head = lambda *_: None
        plain(model, bert, generator, head_share, token_counts)
        init.set_neighbour_head = put
        for layer in layers[:number]:
            for head in range(round(head_share * bert.config.num_attention_heads)):
                offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
                put(layer.attention.self, bert.config, head, offset, generator)

    init.start_at_neighbours = start


def neighbour_offsets(offsets: list[int]) -> None:
    """The places that neighbour heads look at, in place of -1 +1 -2 +2 ..."""
    from minibert.model import init

    plain = init.set_neighbour_head

    def put(attention: Any, config: Any, head: int, offset: int, generator: Any) -> None:
        plain(attention, config, head, offsets[head % len(offsets)], generator)

    init.set_neighbour_head = put
