#!/usr/bin/env python3
"""Tokens a second of a pre-training step, beside transformers' Trainer on the same machine, text and sizes, in one run.

    scripts/bench_pretrain.py CORPUS... [--rounds 5] [--steps 10] [--threads N] [--json FILE]

  minibert                 its own loop as `minibert pretrain` runs it: planned sentence pairs, masks, MLM and NSP,
                           AdamW, clipping; no dropout, as its small recipes have it
  minibert, dropout .1     the same with the Trainer's dropout, on attention weights too
  Trainer                  BertForMaskedLM, DataCollatorForLanguageModeling, everything else as it is by default, on
                           blocks of the same text, full to the last token

Real tokens are counted, padding is not. Rounds take turns; in each the first --skip steps are not counted, and a step
lasts from the end of the one before, loading included. minibert plans its examples once in a block of millions of
tokens: that is measured apart and added to its time by the token.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _bench_common import (
    SHARED_VOCABULARY,
    alternate,
    cores,
    machine,
    make_tokenizer,
    medians,
    parser,
    ratio,
    report,
    spread,
    table,
    versions,
)

OURS, OURS_DROPOUT, TRAINER = "minibert", "minibert, dropout .1", "Trainer"


class Minibert:
    """A pre-training run that can be stopped between two steps."""

    def __init__(
        self, args: Any, store: Any, tokenizer: Any, dropout: float, *, gradient_checkpointing: bool = False
    ) -> None:
        import numpy as np
        from accelerate import Accelerator

        from minibert.config import PretrainConfig
        from minibert.console import Console
        from minibert.corpus.batches import Cursor
        from minibert.training.data import PretrainingData
        from minibert.training.devices import resolve_precision
        from minibert.training.optim import StepSchedule, build_optimizers
        from minibert.training.setup import make_model, save_memory

        total = args.rounds * (args.skip + args.steps)
        config = PretrainConfig(
            layers=args.layers, hidden_size=args.hidden_size, heads=args.heads, max_length=args.length,
            max_positions=max(512, args.length), batch_size=args.batch_size, micro_batch_size=args.batch_size,
            dropout=dropout, attention_dropout=dropout, precision=args.precision, steps=total, compile=args.compile,
        )  # fmt: skip
        accelerator = Accelerator(mixed_precision=resolve_precision(config.precision))
        nothing = np.zeros(0, np.int64)  # is held out
        data = PretrainingData(store, tokenizer, config, np.arange(len(store)), nothing)
        began = time.perf_counter()
        stream = data.stream()
        stream.plan(0, stream.blocks(0)[0])
        planned = int(stream.document_tokens[stream.blocks(0)[0]].sum())
        self.planning = (time.perf_counter() - began) / planned  # seconds a token
        counts = store.token_counts(len(tokenizer), without=nothing)
        model = make_model(config, tokenizer, counts, None, Console(silent=True))
        if gradient_checkpointing:
            save_memory(model)
        if config.compile:
            model.compile(dynamic=False)
        optimizers = build_optimizers(
            model, name=config.optimizer, lr=config.lr, muon_lr=config.muon_lr, weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
        )  # fmt: skip
        model.train()
        self.parameters = sum(p.numel() for p in model.parameters())
        network = accelerator.prepare(model)
        place = {"step": 0, "phase": 0, "cursor": Cursor().state(), "elapsed": 0.0, "tokens": 0}
        self.training = data.steps(accelerator, network, optimizers, StepSchedule(total), place)
        self.args = args

    def round(self) -> dict[str, Any]:
        """Some steps, the last of them timed."""
        for _ in range(self.args.skip):
            next(self.training)
        began = time.perf_counter()
        steps = [next(self.training) for _ in range(self.args.steps)]
        seconds = time.perf_counter() - began
        tokens = sum(step.num_tokens for step in steps)
        seconds += self.planning * tokens
        return {
            "tokens_per_second": tokens / seconds, "seconds": seconds, "tokens": tokens,
            "mlm_loss": sum(float(step.losses[0]) for step in steps) / len(steps),
        }  # fmt: skip


class Trainer:
    """transformers' Trainer; each round is a call of train(), on a model that goes on from round to round."""

    def __init__(self, args: Any, store: Any, tokenizer_folder: Path, work: Path) -> None:
        import numpy as np
        from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

        from minibert.training.devices import resolve_precision

        self.args, self.work = args, work
        self.bf16 = resolve_precision(args.precision) == "bf16"
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
        inside = args.length - 2
        wanted = min(args.batch_size * (args.skip + args.steps) * args.rounds, int(store.facts["tokens"]) // inside)
        flat = np.asarray(store.ids(0, wanted * inside)).reshape(-1, inside)
        special = [1] + [0] * inside + [1]
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        self.blocks = [
            {"input_ids": [cls, *row, sep], "attention_mask": [1] * args.length, "special_tokens_mask": special}
            for row in flat.tolist()
        ]
        self.collator = DataCollatorForLanguageModeling(self.tokenizer, mlm_probability=0.15)
        self.model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(self.tokenizer), hidden_size=args.hidden_size, num_hidden_layers=args.layers,
                num_attention_heads=args.heads, intermediate_size=4 * args.hidden_size,
                max_position_embeddings=max(512, args.length),
            )
        )  # fmt: skip
        self.parameters = sum(p.numel() for p in self.model.parameters())

    def round(self) -> dict[str, Any]:
        """A call of train(); the clock starts at the end of the last step that is skipped."""
        import torch
        import transformers

        ends: list[float] = []

        class Clock(transformers.TrainerCallback):
            """Notes when each step ends."""

            def on_step_end(self, *_: Any, **__: Any) -> None:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                ends.append(time.perf_counter())

        settings = transformers.TrainingArguments(
            output_dir=str(self.work), per_device_train_batch_size=self.args.batch_size,
            max_steps=self.args.skip + self.args.steps, bf16=self.bf16, use_cpu=not torch.cuda.is_available(),
            torch_compile=self.args.compile, save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            self.model, settings, data_collator=self.collator, train_dataset=self.blocks, callbacks=[Clock()]
        )
        trainer.remove_callback(transformers.PrinterCallback)
        done = trainer.train()
        assert len(ends) == self.args.skip + self.args.steps, "train() made other steps than it was told"
        seconds = ends[-1] - ends[self.args.skip - 1]
        tokens = self.args.steps * self.args.batch_size * self.args.length
        return {
            "tokens_per_second": tokens / seconds, "seconds": seconds, "tokens": tokens, "mlm_loss": done.training_loss
        }  # fmt: skip


def flops_per_token(args: Any, vocabulary: int, through_head: float) -> float:
    """Of a training step, forward and backward, by the usual count: what recomputing and padding cost is not in it.

    6 for each weight of the layers, 12 L D T for attention's two products, 6 for each weight of the MLM head on the
    share of the tokens that goes through it.
    """
    D, T = args.hidden_size, args.length
    layers = args.layers * 12 * D * D  # 4 D^2 in attention, 8 D^2 in the feed-forward part
    return 6 * layers + 12 * args.layers * D * T + 6 * through_head * (D * vocabulary + D * D)


def best_rate(args: Any) -> float:
    """FLOP a second of the layers' matrix products alone, in their shapes and precision: each one's best of five."""
    import torch

    from minibert.training.devices import resolve_precision

    D, rows = args.hidden_size, args.batch_size * args.length
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if resolve_precision(args.precision) == "bf16" else torch.float32
    flops = seconds = 0.0
    for inputs, outputs in ((D, 3 * D), (D, D), (D, 4 * D), (4 * D, D)):
        x = torch.randn(rows, inputs, dtype=dtype, device=device)
        weight = torch.randn(outputs, inputs, dtype=dtype, device=device)
        times = []
        for _ in range(6):  # the first prepares what the others use
            began = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        flops, seconds = flops + 2 * rows * inputs * outputs, seconds + min(times[1:])
    return flops / seconds


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=5)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--hidden-size", type=int, default=256)
    options.add_argument("--heads", type=int, default=4)
    options.add_argument("--vocab-size", type=int, default=30522, help="entries, where the vocabulary is trained")
    options.add_argument(
        "--vocab", type=Path, help="vocab.txt [default: ../shared/data/vocab/uncased_en.txt if it is of that size]"
    )
    options.add_argument("--length", type=int, default=128, help="tokens in an example")
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="bf16")
    options.add_argument("--steps", type=int, default=10, help="counted steps in a round")
    options.add_argument("--skip", type=int, default=3, help="steps before them")
    options.add_argument("--threads", type=int, default=cores(), help="torch's threads [default: one for each core]")
    options.add_argument("--compile", action="store_true", help="torch.compile for both; needs more --skip")
    args = options.parse_args()
    if args.skip < 1:
        options.error("--skip is 1 or more")
    hardware = machine()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="bench-pretrain-") as folder:
        measure_all(args, hardware, Path(folder))


def vocabulary_file(args: Any) -> Path | None:
    """--vocab, else the well-known one where it lies beside the checkout and has the size that was asked for."""
    if args.vocab is not None or not SHARED_VOCABULARY.is_file():
        return args.vocab
    return SHARED_VOCABULARY if SHARED_VOCABULARY.read_bytes().count(b"\n") == args.vocab_size else None


def measure_all(args: Any, hardware: dict[str, Any], work: Path) -> None:
    """Every contestant in turns, then the table."""
    import torch

    from minibert.corpus.read import find_files, fingerprint
    from minibert.corpus.store import open_store

    torch.set_num_threads(args.threads)
    files = find_files(args.corpus)
    source = vocabulary_file(args)
    tokenizer = make_tokenizer(files, args.vocab_size, source)
    (work / "tokenizer").mkdir()
    tokenizer.save_pretrained(work / "tokenizer")
    store, _ = open_store(files, tokenizer, work, corpus=fingerprint(files), workers=args.threads)
    plain, dropped = (Minibert(args, store, tokenizer, dropout) for dropout in (0.0, 0.1))
    peer = Trainer(args, store, work / "tokenizer", work)
    contestants: dict[str, Callable[[], dict[str, Any]]] = {
        OURS: plain.round, TRAINER: peer.round, OURS_DROPOUT: dropped.round
    }  # fmt: skip
    rate = best_rate(args)
    found = alternate(args.rounds, contestants, lambda result: f"{result['tokens_per_second']:,.0f} tokens/s")
    ratios = {name: ratio(found[name], found[TRAINER], "tokens_per_second") for name in (OURS, OURS_DROPOUT)}
    parameters = {OURS: plain.parameters, OURS_DROPOUT: dropped.parameters, TRAINER: peer.parameters}

    masked = {OURS: 0.15, OURS_DROPOUT: 0.15, TRAINER: 1.0}  # share of the tokens that goes through the MLM head
    shares = {
        name: flops_per_token(args, len(tokenizer), masked[name]) * medians(found[name], "tokens_per_second") / rate
        for name in found
    }

    device = "GPU" if torch.cuda.is_available() else f"{args.threads} threads"
    print(
        f"{args.layers} layers, {args.hidden_size} wide, vocabulary {len(tokenizer):,} "
        f"({source.name if source else 'trained on the text'}), length {args.length}, batch {args.batch_size}, "
        f"{args.precision}, {device}\n{store.facts['tokens']:,} tokens of text, medians of {args.rounds} rounds of "
        f"{args.steps} steps\n"
    )
    table(
        ["", "tokens/s", "ms a step", "tokens a step", "parameters", "against the Trainer", "of the machine"],
        [
            [
                name, f"{medians(results, 'tokens_per_second'):,.0f}",
                f"{1000 * medians(results, 'seconds') / args.steps:,.1f}",
                f"{medians(results, 'tokens') / args.steps:,.0f}", f"{parameters[name] / 1e6:.1f} M",
                spread(ratios[name]) if name in ratios else "", f"{shares[name]:.0%}",
            ]
            for name, results in found.items()
        ],
    )  # fmt: skip
    print(
        f"\nof the machine: FLOPs that the step needs, over {rate / 1e12:.2f} TFLOP/s of its layers' products alone.\n"
        "The Trainer needs more: it takes every token through the MLM head, masked or not"
    )
    print(
        f"\nadded to minibert's time for planning its examples: {1e6 * plain.planning:.3f} s a million tokens, "
        f"{plain.planning * medians(found[OURS], 'tokens_per_second'):.2%} of its time"
    )
    report(
        args, hardware, versions("minibert", "transformers", "torch", "accelerate"),
        {
            "vocabulary": len(tokenizer), "vocabulary_from": source and source.name, "parameters": parameters,
            "planning_seconds_per_token": plain.planning, "rounds": found, "ratios": ratios, "shares": shares,
            "best_flops_per_second": rate,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
