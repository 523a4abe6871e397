"""A fourth task, as somebody else would add it: does a text have more than three words? One file, no other changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minibert.config import FinetuneConfig, opt
from minibert.tasks.base import Encoded, Feature, Reading, Task


@dataclass(frozen=True, kw_only=True)
class LongConfig(FinetuneConfig):
    more_than: int = opt(3, "words above which a text is long")


class Long(Task[str, LongConfig]):
    name = "long"
    summary = "tell long texts from short ones"
    Config = LongConfig
    formats = ("txt",)

    def read(self, path, *, gold, train=False):
        return Reading(path.read_text("utf-8").splitlines())

    def from_python(self, *inputs, **named):
        return [inputs[0]] if isinstance(inputs[0], str) else list(inputs[0])

    def labels_of(self, examples):
        return ["short", "long"]

    def encode(self, examples, tokenizer, *, gold, first=0):
        features = []
        for i, ids in enumerate(tokenizer.encode(list(examples))):
            row = [tokenizer.cls_token_id, *ids[: self.config.max_length - 2], tokenizer.sep_token_id]
            target = int(len(examples[i].split()) > self.config.more_than) if gold else None
            features.append(Feature(first + i, np.array(row), len(row), target))
        return Encoded(features)

    @classmethod
    def model_class(cls):
        from minibert.model.heads import BertForSequenceClassification

        return BertForSequenceClassification

    def losses(self, out, batch):
        import torch.nn.functional as F

        return F.cross_entropy(out.logits.float(), batch["labels"], ignore_index=-100, reduction="sum")[None]

    def outputs(self, out, features):
        return list(out.logits.float().cpu().numpy())

    def targets(self, targets, T):
        import torch

        labels = torch.tensor(targets)
        return {"labels": labels, "counts": (labels >= 0).sum()[None].float()}

    def no_target(self):
        return -100

    def decode(self, examples: Sequence[str], features: Sequence[Feature], outputs: Sequence[Any]):
        return [
            {"text": text, "label": self.labels[int(scores.argmax())]}
            for text, scores in zip(examples, outputs, strict=True)
        ]

    @property
    def metric_names(self):
        return ("accuracy",)

    def score(self, examples, predictions):
        right = [
            (p["label"] == "long") == (len(text.split()) > self.config.more_than)
            for text, p in zip(examples, predictions, strict=True)
        ]
        return {"accuracy": sum(right) / len(right)}

    @classmethod
    def demo(cls, folder: Path) -> Path:
        texts = ["one", "one two", "one two three", "one two three four", "a b c d e f", "a b c d e", "b", "a b"]
        (folder / "demo.txt").write_text("\n".join(texts) + "\n", "utf-8")
        return folder / "demo.txt"
