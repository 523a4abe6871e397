#!/usr/bin/env python3
"""Fine-tune a checkpoint with transformers' Trainer, and score it with minibert's own metrics.

    scripts/compare_trainer.py --task cls|ner|qa --model CHECKPOINT --train FILE --dev FILE [--test FILE] [--seeds 3]

The same files, learning rate, epochs, batch, linear schedule with 10 % warm-up, weight decay, dropout, precision and
choice of the best epoch on dev as `minibert finetune` has; transformers' tokenizer, model, head, rows, random order and
Trainer. Its logits go through the task's own reading, decoding and scores, in float32.

Prints a JSON object a line: one for each seed, then mean and deviation over them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from _trainer_peers import collator, peer_model, peer_rows, peer_tokenizer, quiet, train


def measure(model: Any, task: Any, part: Any, tokenizer: Any, *, tune: bool) -> tuple[dict[str, float], Any]:
    """Scores of a model of transformers on dev or test, and the task with what was tuned on it."""
    from minibert.training.inference import infer

    outputs, loss = infer(
        model, task, part.features, pad_id=tokenizer.pad_token_id, batch_size=task.config.batch_size
    )  # fmt: skip
    examples = part.reading.examples
    if tune:
        task = task.with_settings(task.tuned(examples, part.features, outputs))
    predictions = task.decode(examples, part.features, outputs)
    return {"loss": loss, **task.score(examples, predictions)}, task


def one_seed(args: argparse.Namespace, seed: int, task: Any, parts: Any, rows: Any, tokenizer: Any) -> dict[str, Any]:
    """Train with one seed; the best epoch's scores."""
    import torch
    import transformers

    from minibert.training.best import Best
    from minibert.training.devices import has_bf16

    transformers.set_seed(seed)
    model = peer_model(task, args.model, scratch=args.scratch)
    # another one measures: the Trainer has its own compute in half precision
    judge = peer_model(task, args.model, scratch=True).to("cuda" if torch.cuda.is_available() else "cpu")
    best = Best(task.config.best or task.metric_names[0])
    kept: dict[str, Any] = {}

    class Measure(transformers.TrainerCallback):
        """Dev at the end of each epoch; the best model is kept."""

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            judge.load_state_dict(model.state_dict())
            scores, tuned = measure(judge, task, parts["dev"], tokenizer, tune=True)
            if best.better(scores[best.metric], state.global_step):
                kept.update(
                    task=tuned, epoch=round(state.epoch, 2),
                    weights={name: value.detach().clone() for name, value in model.state_dict().items()},
                )  # fmt: skip
            print(f"seed {seed}, epoch {state.epoch:g}: {best.metric} {scores[best.metric]:.4f}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="compare-trainer-") as work:
        train(
            model, rows, collator(task, tokenizer, to_max=False), Path(work),
            precision="bf16" if has_bf16() else "fp32", callbacks=[Measure()], seed=seed,
            num_train_epochs=task.config.epochs, per_device_train_batch_size=task.config.batch_size,
            learning_rate=task.config.lr, lr_scheduler_type="linear", warmup_steps=task.config.warmup,
            weight_decay=task.config.weight_decay, max_grad_norm=task.config.clip,
        )  # fmt: skip
    if not kept:
        sys.exit(f"compare_trainer: seed {seed}: {best.metric} was no number in any epoch")
    judge.load_state_dict(kept["weights"])
    result: dict[str, Any] = {"seed": seed, "best_epoch": kept["epoch"]}
    for name in ("dev", "test"):
        if name in parts:
            result[name], _ = measure(judge, kept["task"], parts[name], tokenizer, tune=False)
    return result


def main() -> None:
    """Train with every seed and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--task", required=True, choices=["cls", "ner", "qa"])
    for name in ("model", "train", "dev"):
        options.add_argument(f"--{name}", required=True, type=Path)
    options.add_argument("--test", type=Path)
    options.add_argument("--seeds", type=int, default=3, help="trainings, with seeds from 0 on [default: 3]")
    for name, number in (("epochs", float), ("lr", float), ("batch-size", int), ("max-length", int)):
        options.add_argument(f"--{name}", type=number, help="[default: that of minibert finetune]")
    options.add_argument("--scratch", action="store_true", help="random weights in the checkpoint's shape")
    args = options.parse_args()
    if args.seeds < 1:
        options.error("--seeds is 1 or more")

    from minibert.errors import UserError
    from minibert.tasks import find_tasks
    from minibert.tasks.data import read_parts
    from minibert.tokenization.tokenizer import BertTokenizer

    quiet()
    kind = find_tasks()[args.task]
    names = ("epochs", "lr", "batch_size", "max_length")
    config = kind.Config(**{name: getattr(args, name) for name in names if getattr(args, name) is not None})
    try:
        ours = BertTokenizer.from_pretrained(args.model)
        paths = {name: getattr(args, name) for name in ("train", "dev", "test")}
        task, parts = read_parts(kind(config), paths, ours)
    except UserError as error:
        sys.exit(f"compare_trainer: {error}")
    tokenizer = peer_tokenizer(args.model)
    rows = peer_rows(task, parts["train"].reading.examples, tokenizer)
    own = {tuple(feature.ids.tolist()) for feature in parts["train"].features}
    others = sum(tuple(row["input_ids"]) not in own for row in rows)
    print(
        f"{len(rows):,} rows; minibert has {len(own):,} different ones, {others:,} are not among them", file=sys.stderr
    )
    results = []
    for seed in range(args.seeds):
        results.append(one_seed(args, seed, task, parts, rows, tokenizer))
        print(json.dumps(results[-1]), flush=True)
    if len(results) > 1:
        spread = {
            word: {
                name: {key: over([result[name][key] for result in results]) for key in results[0][name]}
                for name in ("dev", "test")
                if name in parts
            }
            for word, over in (("mean", statistics.fmean), ("deviation", statistics.stdev))
        }
        print(json.dumps(spread))


if __name__ == "__main__":
    main()
