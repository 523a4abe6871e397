#!/usr/bin/env python3
"""Tokens a second of a pre-training step, beside transformers' Trainer on the same machine, text and sizes, in one run.

    scripts/bench_pretrain.py CORPUS... [--rounds 5] [--steps 10] [--threads N] [--json FILE]

  minibert                 its own loop as `minibert pretrain` runs it: planned sentence pairs, masks, MLM and NSP,
                           AdamW, clipping; no dropout, as its small recipes have it
  minibert, dropout .1     the same with the Trainer's dropout, on attention weights too
  Trainer                  BertForMaskedLM, DataCollatorForLanguageModeling, everything else as it is by default, on
                           blocks of the same text, full to the last token; in minibert's precision
  Trainer, fp32            the same in the precision that it has by default
  BertForPreTraining       transformers' model in minibert's own loop: the same batches, labels for all tokens (-100
                           where none is masked), no dropout either. What differs is the model

Real tokens are counted, padding is not. Rounds take turns; in each the first --skip steps are not counted, and a step
lasts from the end of the one before, loading included. minibert plans its examples once in a block of millions of
tokens: that is measured apart and added by the token to the time of all that take its batches. How long it loads is
measured apart too; that is in the time already.
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
    give_freed_memory_back,
    machine,
    make_tokenizer,
    medians,
    parser,
    ratio,
    report,
    run_main,
    spread,
    table,
    versions,
)

OURS, OURS_DROPOUT = "minibert", "minibert, dropout .1"
TRAINER, TRAINER_FP32, MODEL = "Trainer", "Trainer, fp32", "BertForPreTraining"
PEERS = {"trainer": TRAINER, "trainer-fp32": TRAINER_FP32, "model": MODEL}  # as --peers has them
MASKED = 0.15  # share of the tokens that are predicted
THROUGH_HEAD = {OURS: MASKED, OURS_DROPOUT: MASKED, TRAINER: 1.0, TRAINER_FP32: 1.0, MODEL: 1.0}
LOADED = 50  # batches over which loading is measured
TRIES, TRY_SECONDS = 5, 0.2  # of a matrix product: at least so many, and so long


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
        self.loading = loading_seconds(data, args.batch_size)
        counts = store.token_counts(len(tokenizer), without=nothing)
        model = make_model(config, tokenizer, counts, None, Console(silent=True))
        if gradient_checkpointing:
            save_memory(model)
        if config.compile:
            model.compile(dynamic=False)
        optimizers = build_optimizers(
            model, name=config.optimizer, lr=config.lr, muon_lr=config.muon_lr, weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2, muon_decay=config.muon_decay,
        )  # fmt: skip
        model.train()
        self.parameters = sum(p.numel() for p in model.parameters())
        network = accelerator.prepare(model)
        place = {"step": 0, "phase": 0, "cursor": Cursor().state(), "elapsed": 0.0, "tokens": 0}
        self.training = data.steps(accelerator, network, optimizers, StepSchedule(total), place)
        self.args = args

    def round(self) -> dict[str, Any]:
        """Some steps, the last of them timed."""
        from minibert.training.devices import keep_freed_memory

        keep_freed_memory()  # as the command does; the Trainer's rounds take it back
        for _ in range(self.args.skip):
            next(self.training)
        wait_for_gpu()
        began = time.perf_counter()
        steps = [next(self.training) for _ in range(self.args.steps)]
        wait_for_gpu()
        seconds = time.perf_counter() - began
        tokens = sum(step.num_tokens for step in steps)
        seconds += self.planning * tokens
        return {
            "tokens_per_second": tokens / seconds, "seconds": seconds, "tokens": tokens,
            "loss": sum(float(step.losses.sum()) for step in steps) / len(steps),
        }  # fmt: skip


def wait_for_gpu() -> None:
    """Until what it was given is done; nothing on a CPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loading_seconds(data: Any, batch_size: int) -> float:
    """What a token costs from the token store to the batch, without planning; nothing computes meanwhile."""
    from minibert.corpus.batches import Cursor, load_steps

    steps = load_steps(data.stream(), data.collator(), Cursor(), micro_batch_size=batch_size)
    next(steps)  # waits for planning
    began = time.perf_counter()
    tokens = sum(batch["num_tokens"] for _ in range(LOADED) for batch in next(steps).micro_batches)
    return (time.perf_counter() - began) / tokens


class SameBatches(Minibert):
    """transformers' BertForPreTraining on minibert's batches, in its loop, with its optimizer."""

    def __init__(self, args: Any, store: Any, tokenizer: Any, planning: float) -> None:
        import numpy as np
        import torch
        from transformers import BertConfig, BertForPreTraining

        from minibert.config import PretrainConfig
        from minibert.corpus.batches import Cursor, load_steps
        from minibert.training.data import PretrainingData
        from minibert.training.devices import make_accelerator
        from minibert.training.loop import train_steps
        from minibert.training.optim import StepSchedule, build_optimizers

        self.args, self.planning = args, planning
        total = args.rounds * (args.skip + args.steps)
        config = PretrainConfig(
            max_length=args.length, max_positions=max(512, args.length), batch_size=args.batch_size,
            micro_batch_size=args.batch_size, precision=args.precision, steps=total, compile=args.compile,
        )  # fmt: skip
        data = PretrainingData(store, tokenizer, config, np.arange(len(store)), np.zeros(0, np.int64))
        accelerator = make_accelerator(
            precision=config.precision, tracker="none", out=Path(), batch_size=args.batch_size
        )  # fmt: skip
        torch.manual_seed(0)
        model = BertForPreTraining(peer_config(args, len(tokenizer), BertConfig, dropout=0.0))
        if config.compile:
            model.compile(dynamic=False)
        model.train()
        self.parameters = sum(p.numel() for p in model.parameters())
        optimizers = build_optimizers(
            model, name="adamw", lr=config.lr, muon_lr=0.0, weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
        )  # fmt: skip
        self.training = train_steps(
            accelerator, accelerator.prepare(model), optimizers,
            load_steps(data.stream(), data.collator(), Cursor(), micro_batch_size=args.batch_size),
            StepSchedule(total), peer_losses, first_step=0, warmup=config.warmup, clip=config.clip, seed=config.seed,
        )  # fmt: skip


def peer_losses(model: Any, batch: dict[str, Any]) -> Any:
    """(2,): what transformers' own loss, the mean of each term, is as the sums that minibert's loop divides."""
    import torch

    labels = torch.full((batch["input_ids"].numel(),), -100, device=batch["input_ids"].device)
    labels[batch["masked_positions"]] = batch["labels"]  # what fills the positions up is [CLS] with -100
    loss = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], token_type_ids=batch["token_type_ids"],
        labels=labels.view(batch["input_ids"].shape), next_sentence_label=batch["next_sentence_label"],
    ).loss  # fmt: skip
    return torch.stack((loss * batch["counts"][0], torch.zeros_like(loss)))


def peer_config(args: Any, vocabulary: int, kind: Any, *, dropout: float = 0.1) -> Any:
    """transformers' configuration of the same model."""
    return kind(
        vocab_size=vocabulary, hidden_size=args.hidden_size, num_hidden_layers=args.layers,
        num_attention_heads=args.heads, intermediate_size=4 * args.hidden_size,
        max_position_embeddings=max(512, args.length), hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )  # fmt: skip


class Trainer:
    """transformers' Trainer; each round is a call of train(), on a model that goes on from round to round."""

    def __init__(self, args: Any, store: Any, tokenizer_folder: Path, work: Path, precision: str) -> None:
        import numpy as np
        from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

        from minibert.training.devices import resolve_precision

        self.args, self.work = args, work
        self.bf16 = resolve_precision(precision) == "bf16"
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
        self.model = BertForMaskedLM(peer_config(args, len(self.tokenizer), BertConfig))
        self.parameters = sum(p.numel() for p in self.model.parameters())

    def round(self) -> dict[str, Any]:
        """A call of train(); the clock starts at the end of the last step that is skipped."""
        give_freed_memory_back()
        import torch
        import transformers
        from accelerate.state import AcceleratorState

        ends: list[float] = []

        class Clock(transformers.TrainerCallback):
            """Notes when each step ends."""

            def on_step_end(self, *_: Any, **__: Any) -> None:
                wait_for_gpu()
                ends.append(time.perf_counter())

        settings = transformers.TrainingArguments(
            output_dir=str(self.work), per_device_train_batch_size=self.args.batch_size,
            max_steps=self.args.skip + self.args.steps, bf16=self.bf16, use_cpu=not torch.cuda.is_available(),
            torch_compile=self.args.compile, save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        AcceleratorState._reset_state()  # a contestant with another precision has left its own
        trainer = transformers.Trainer(
            self.model, settings, data_collator=self.collator, train_dataset=self.blocks, callbacks=[Clock()]
        )
        trainer.remove_callback(transformers.PrinterCallback)
        assert trainer.accelerator.mixed_precision == ("bf16" if self.bf16 else "no")
        done = trainer.train()
        assert len(ends) == self.args.skip + self.args.steps, "train() made other steps than it was told"
        seconds = ends[-1] - ends[self.args.skip - 1]
        tokens = self.args.steps * self.args.batch_size * self.args.length
        return {
            "tokens_per_second": tokens / seconds, "seconds": seconds, "tokens": tokens, "loss": done.training_loss
        }  # fmt: skip


def flops_per_token(args: Any, vocabulary: int, through_head: float) -> float:
    """Of a training step, forward and backward, by the usual count: what recomputing and padding cost is not in it.

    6 N + 12 L D T + 6 f (D V + D^2): 6 for each weight of the layers (N = 12 L D^2: 4 D^2 in attention, 8 D^2 in the
    feed-forward part), attention's two products, 6 for each weight of the MLM head on the share f of the tokens that
    goes through it.
    """
    D, T = args.hidden_size, args.length
    blocks = args.layers * 12 * D * D
    return 6 * blocks + 12 * args.layers * D * T + 6 * through_head * (D * vocabulary + D * D)


class Products:
    """The matrix products of a training step, alone: those of the layers and of the MLM head's masked positions.

    Each forward and for both gradients, in the step's shapes and precision. Attention's small ones are left out.
    """

    def __init__(self, args: Any, vocabulary: int, precision: str) -> None:
        import torch

        D, rows = args.hidden_size, args.batch_size * args.length
        masked = round(MASKED * rows)
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.shapes = [  # (how often, rows, inputs, outputs)
            *((args.layers, rows, i, o) for i, o in ((D, 3 * D), (D, D), (D, 4 * D), (4 * D, D))),
            (1, masked, D, D), (1, masked, D, vocabulary),
        ]  # fmt: skip
        self.best: dict[tuple[int, ...], float] = {}

    def measure(self) -> None:
        """Each product several times; the best time of all calls is kept."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        for number, rows, inputs, outputs in self.shapes:
            x = torch.randn(rows, inputs, dtype=self.dtype, device=device)
            weight = torch.randn(outputs, inputs, dtype=self.dtype, device=device)
            gradient = torch.randn(rows, outputs, dtype=self.dtype, device=device)
            products: tuple[Callable[[], Any], ...] = (
                lambda x=x, weight=weight: torch.nn.functional.linear(x, weight),
                lambda gradient=gradient, weight=weight: gradient @ weight,
                lambda gradient=gradient, x=x: gradient.t() @ x,
            )
            for kind, product in enumerate(products):
                product()  # prepares what the others use
                key = (number, rows, inputs, outputs, kind)
                self.best[key] = min(self.best.get(key, float("inf")), best_seconds(product))

    def rate(self) -> float:
        """FLOP a second of all of them together."""
        flops = sum(2 * number * rows * inputs * outputs for number, rows, inputs, outputs, _ in self.best)
        return flops / sum(key[0] * seconds for key, seconds in self.best.items())


def best_seconds(product: Callable[[], Any]) -> float:
    """The shortest of several calls."""
    times: list[float] = []
    while len(times) < TRIES or sum(times) < TRY_SECONDS:
        began = time.perf_counter()
        product()
        wait_for_gpu()
        times.append(time.perf_counter() - began)
    return min(times)


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
    options.add_argument(
        "--peers", default=",".join(PEERS), metavar="NAME,...", help=f"of {', '.join(PEERS)} [default: all]"
    )
    args = options.parse_args()
    if args.skip < 1:
        options.error("--skip is 1 or more")
    args.peers = args.peers.split(",")
    if unknown := [name for name in args.peers if name not in PEERS]:
        options.error(f"unknown peer: {', '.join(unknown)}; known: {', '.join(PEERS)}")
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
    from minibert.training.devices import resolve_precision

    torch.set_num_threads(args.threads)
    files = find_files(args.corpus)
    source = vocabulary_file(args)
    tokenizer = make_tokenizer(files, args.vocab_size, source)
    (work / "tokenizer").mkdir()
    tokenizer.save_pretrained(work / "tokenizer")
    store, _ = open_store(files, tokenizer, work, corpus=fingerprint(files), workers=args.threads)
    plain, dropped = (Minibert(args, store, tokenizer, dropout) for dropout in (0.0, 0.1))
    runs: dict[str, Any] = {OURS: plain}
    for peer in args.peers:
        if peer == "model":
            runs[MODEL] = SameBatches(args, store, tokenizer, plain.planning)
        else:
            default = peer == "trainer-fp32"
            runs[PEERS[peer]] = Trainer(
                args, store, work / "tokenizer", work, "fp32" if default else args.precision
            )  # fmt: skip
    runs[OURS_DROPOUT] = dropped
    precision = "bf16" if resolve_precision(args.precision) == "bf16" else "fp32"
    precisions = {name: "fp32" if name == TRAINER_FP32 else precision for name in runs}
    products = {precision: Products(args, len(tokenizer), precision) for precision in set(precisions.values())}
    for one in products.values():
        one.measure()
    found = alternate(
        args.rounds, {name: run.round for name, run in runs.items()},
        lambda result: f"{result['tokens_per_second']:,.0f} tokens/s",
    )  # fmt: skip
    for one in products.values():
        one.measure()
    rates = {precision: one.rate() for precision, one in products.items()}
    ours = (OURS, OURS_DROPOUT)
    ratios = {
        name: {mine: ratio(found[mine], found[name], "tokens_per_second") for mine in ours}
        for name in found if name not in ours
    }  # fmt: skip
    flops = {name: flops_per_token(args, len(tokenizer), THROUGH_HEAD[name]) for name in found}
    speeds = {name: medians(results, "tokens_per_second") for name, results in found.items()}
    shares = {name: flops[name] * speeds[name] / rates[precisions[name]] for name in found}
    loading = plain.loading * speeds[OURS]

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{args.threads} threads"
    print(
        f"{args.layers} layers, {args.hidden_size} wide, vocabulary {len(tokenizer):,} "
        f"({source.name if source else 'trained on the text'}), length {args.length}, batch {args.batch_size}, "
        f"{args.precision}, {device}\n{store.facts['tokens']:,} tokens of text, medians of {args.rounds} rounds of "
        f"{args.steps} steps\n"
    )
    table(
        ["", "tokens/s", "ms a step", "tokens a step", "parameters", *(f"{mine} against it" for mine in ours),
         "of the machine"],
        [
            [
                name, f"{speeds[name]:,.0f}", f"{1000 * medians(results, 'seconds') / args.steps:,.1f}",
                f"{medians(results, 'tokens') / args.steps:,.0f}", f"{runs[name].parameters / 1e6:.1f} M",
                *(spread(ratios[name][mine]) if name in ratios else "" for mine in ours), f"{shares[name]:.0%}",
            ]
            for name, results in found.items()
        ],
    )  # fmt: skip
    print(
        "\nof the machine: FLOPs of the model, over the rate of the step's matrix products alone: "
        + ", ".join(f"{rate / 1e12:.2f} TFLOP/s in {precision}" for precision, rate in rates.items())
        + ".\ntransformers' models have more of them: they take every token through the MLM head, masked or not"
    )
    print(
        f"\nadded for planning the examples: {1e6 * plain.planning:.3f} s a million tokens, "
        f"{plain.planning * speeds[OURS]:.2%} of minibert's time; loading, in that time already: {loading:.2%}"
    )
    report(
        args, hardware, versions("minibert", "transformers", "torch", "accelerate"),
        {
            "vocabulary": len(tokenizer), "vocabulary_from": source and source.name,
            "parameters": {name: run.parameters for name, run in runs.items()},
            "planning_seconds_per_token": plain.planning, "loading_seconds_per_token": plain.loading,
            "loading_share": loading, "rounds": found, "ratios": ratios, "flops_per_token": flops, "shares": shares,
            "flops_per_second": rates,
        },
    )  # fmt: skip


if __name__ == "__main__":
    run_main(main)
