"""transformers' Trainer as a user of its examples has it, pre-training for a time of computing. The peer of quality.py.

    _quality_trainer.py OUT SHAPE CORE_MINUTES TOKENS SEED CORPUS...      TOKENS count where they are not 0

SHAPE is a checkpoint whose sizes and tokenizer are taken, never its weights. The rest is transformers' own: masked
words alone (15 %) on blocks of 128 tokens without regard for documents, TrainingArguments' defaults (AdamW 5e-5, linear
to 0, batches of 8, float32, dropout .1). OUT is a checkpoint with a metrics.json like a minibert run's. A run that was
stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import transformers
from _trainer_peers import quiet
from accelerate import Accelerator
from transformers.trainer_utils import get_last_checkpoint

from minibert.atomic import write_json
from minibert.checkpoint.folder import load_model
from minibert.config import PretrainConfig, resolve
from minibert.corpus.cache import cache_folder
from minibert.corpus.pairs import split_documents
from minibert.corpus.read import fingerprint
from minibert.corpus.store import open_store
from minibert.model.heads import BertForPreTraining
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.data import PretrainingData
from minibert.training.pretraining import log_unigram, measure

BATCH, LENGTH = 8, 128  # the first is TrainingArguments' default
TRIED = 20  # steps that say how long one takes


class Timed(transformers.TrainerCallback):
    """Takes the processor time of each step, and adds it up for a run that goes on."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.before = json.loads(place.read_text("utf-8")) if place.is_file() else 0.0
        self.began = time.process_time()

    def on_save(self, *_: Any, **__: Any) -> None:
        write_json(self.place, self.before + time.process_time() - self.began)


def train(
    out: Path, shape: Path, rows: datasets.Dataset, steps: int, seed: int, *, save: bool
) -> tuple[transformers.Trainer, float]:
    """So many steps from random weights. Returns: the trainer, and the seconds of processor time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(shape)
    settings = transformers.TrainingArguments(
        output_dir=str(out / "trainer"), max_steps=steps, seed=seed, use_cpu=True, report_to=[], disable_tqdm=True,
        logging_steps=500, save_strategy="steps" if save else "no", save_steps=1000, save_total_limit=1,
    )  # fmt: skip
    transformers.set_seed(seed)
    model = transformers.BertForMaskedLM(transformers.AutoConfig.from_pretrained(shape))
    timed = Timed(out / "seconds.json")
    trainer = transformers.Trainer(
        model, settings, train_dataset=rows, callbacks=[timed],
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer),
    )  # fmt: skip
    last = get_last_checkpoint(settings.output_dir) if Path(settings.output_dir).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    return trainer, timed.before + time.process_time() - timed.began


def main() -> None:
    """Read, try how long a step takes, train, measure, write."""
    quiet()
    out, shape = Path(sys.argv[1]), Path(sys.argv[2])
    minutes, tokens, seed = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    files = [Path(name) for name in sys.argv[6:]]
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = BertTokenizer.from_pretrained(shape)
    store, _ = open_store(files, tokenizer, cache_folder(None) / "stores", corpus=fingerprint(files))
    config = resolve(PretrainConfig, ("quality", {"steps": 1}))
    pool, held_out = split_documents(store.hashes, config.eval_share)
    flat = np.concatenate([store.ids(*store.document_span(int(document))) for document in pool])
    blocks = flat[: len(flat) // (LENGTH - 2) * (LENGTH - 2)].reshape(-1, LENGTH - 2).tolist()
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = datasets.Dataset.from_dict({"input_ids": [[cls, *block, sep] for block in blocks]})

    planned = out / "steps.json"
    if tokens:
        write_json(planned, max(1, round(tokens / (BATCH * LENGTH))))
    elif not planned.is_file():
        train(out / "trial", shape, rows, TRIED, seed, save=False)  # warms up
        _, seconds = train(out / "trial", shape, rows, TRIED, seed, save=False)
        write_json(planned, max(1, round(60 * minutes * TRIED / seconds)))
    steps = json.loads(planned.read_text("utf-8"))
    trainer, seconds = train(out, shape, rows, steps, seed, save=True)
    trainer.model.save_pretrained(out)
    tokenizer.save_pretrained(out)

    model, _ = load_model(BertForPreTraining, out)
    counts = store.token_counts(len(tokenizer), without=held_out)
    data = PretrainingData(store, tokenizer, config, pool, held_out)
    accelerator = Accelerator(cpu=True)
    found = measure(
        accelerator, model, data.held_out_batches(accelerator), log_unigram(counts), tokenizer.mask_token_id
    )
    found = {name: value for name, value in found.items() if not name.startswith("nsp")}  # it has no such head
    assert trainer.args.per_device_train_batch_size == BATCH
    write_json(out / "metrics.json", {"steps": steps, "tokens": steps * BATCH * LENGTH, "seconds": seconds, **found})


if __name__ == "__main__":
    main()
