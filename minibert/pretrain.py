"""Pre-training, from text files to a folder that holds a BERT. Read `pretrain` from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn

from minibert.atomic import flush, remove, write_json
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint
from minibert.config import PretrainConfig
from minibert.console import Console, counting
from minibert.corpus.batches import Batch, Collator, Cursor, ExampleStream, load_steps
from minibert.corpus.cache import cache_folder
from minibert.corpus.pairs import split_documents
from minibert.corpus.read import fingerprint
from minibert.corpus.store import TokenStore, open_store
from minibert.corpus.summary import describe, show_data
from minibert.corpus.vocabulary import corpus_vocabulary
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.model.heads import BertForPreTraining
from minibert.model.init import initialise
from minibert.run_folder import save_settings
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training import pretraining, state
from minibert.training.devices import on_signal, resolve_precision, worker_count
from minibert.training.loop import Schedule, Step, train_steps
from minibert.training.optim import Optimizers, StepSchedule, TimeSchedule, build_optimizers
from minibert.training.record import Record

# held-out examples and masks are the same in every run, whatever its seed and mask rate: runs can be compared
EVAL_SEED, EVAL_MASK_RATE = 7, 0.15


def pretrain(
    files: Sequence[Path],
    out: Path,
    config: PretrainConfig,
    *,
    corpus: Sequence[str] = (),
    tokenizer_from: Path | None = None,
    start_from: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    cache: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train a BERT on the text of these files; the run folder `out` then holds it, and what there is to know of it.

    Args: corpus: how the user named the files, for settings.json. tokenizer_from: a vocab.txt or a folder with a
        tokenizer, instead of training one. start_from: a checkpoint to go on from, with its tokenizer. resume: continue
        the unfinished run in `out` exactly. dry_run: stop after the data summary. cache: where token stores and
        vocabularies are kept.
    Returns: the content of metrics.json (of data.json after a dry run).
    Raises: UserError for everything that a user can mend. SystemExit(128 + signal) after SIGTERM or Ctrl-C, saved.
    """
    accelerator = Accelerator(
        mixed_precision=resolve_precision(config.precision),
        log_with=None if config.tracker == "none" else config.tracker,
        project_dir=str(out),
        # the others wait while one reads the text
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(days=2))],
    )
    main = accelerator.is_main_process
    if console is None or not main:
        console = Console(silent=not main)
    if config.batch_size < accelerator.num_processes:
        raise UserError(f"batch_size ({config.batch_size}) is below the number of processes", where="--batch-size")

    resume_from = find_checkpoint(out, console) if resume else None

    # the data: one process reads the text, the others find what it left
    with accelerator.main_process_first():
        tokenizer, store = prepare_data(files, config, tokenizer_from, start_from, cache, console)
    train, held_out = split_documents(store.hashes, config.eval_share)
    data = PretrainingData(store, tokenizer, config)
    stream, collator = data.stream(train), data.collator()
    facts = describe(store, stream, collator, tokenizer, held_out)
    show_data(facts, console)
    if main and not dry_run:
        make_folder(out)
        places = {
            "corpus": [str(name) for name in corpus or files],
            "from": start_from and str(start_from),
            "tokenizer": tokenizer_from and str(tokenizer_from),
        }
        save_settings(out, "pretrain", config, places)
        write_json(out / "data.json", facts)
    if dry_run:
        return facts

    # the model
    token_counts = store.token_counts(train, len(tokenizer))
    model = make_model(config, tokenizer, token_counts, resume_from or start_from, console, quiet=bool(resume_from))
    if config.compile:
        model.compile(dynamic=False)
    optimizers = build_optimizers(
        model, name=config.optimizer, lr=config.lr, muon_lr=config.muon_lr, weight_decay=config.weight_decay,
        adam_beta2=config.adam_beta2,
    )  # fmt: skip
    model.train()  # one that was loaded is in evaluation mode
    prepared = accelerator.prepare(model, *optimizers)
    network, optimizers = prepared[0], list(prepared[1:])
    place: dict[str, Any] = {"step": 0, "phase": 0, "cursor": Cursor().state(), "elapsed": 0.0, "tokens": 0}
    if resume_from is not None:
        place = state.load_place(resume_from)
        state.load_state(resume_from, optimizers, accelerator.scaler)
    record = Record(
        out, accelerator, terms=pretraining.TERMS, lr=config.lr, log_every=config.log_every, resume_step=place["step"]
    )

    def measure() -> dict[str, float]:
        if not len(held_out):
            return {}
        batches = data.held_out_batches(held_out, accelerator)
        return pretraining.measure(accelerator, network, batches, unigram, tokenizer.mask_token_id)

    def save() -> None:
        accelerator.wait_for_everyone()
        if main:
            checkpoints = out / "checkpoints"
            checkpoints.mkdir(exist_ok=True)
            state.save_state(
                state.checkpoint_path(checkpoints, place["step"]),
                lambda folder: save_checkpoint(model, tokenizer, folder),
                optimizers, accelerator.scaler, place,
            )  # fmt: skip
            state.keep_newest(checkpoints, config.keep)
        accelerator.wait_for_everyone()

    # measured before the first step too: it shows that loaded weights came in, and what measuring costs
    unigram = pretraining.log_unigram(token_counts)
    began = time.monotonic()
    if resume_from is None:
        record.evaluation(0, measure())
        console.say(f"step 0: {pretraining.in_short(record.last_evaluation)}")
    measuring = time.monotonic() - began
    schedule = make_schedule(config, stream, accelerator, elapsed=place["elapsed"] + measuring, reserve=measuring)
    console.say(plan_in_words(config, model, accelerator, schedule))
    with on_signal() as stopped, console.progress("training", 1.0) as update:
        for step in data.steps(train, accelerator, network, optimizers, schedule, place):
            note = record.step(step, step.cursor.epoch, place["tokens"])
            update(schedule.share(step.step), note)
            if config.eval_every and step.step % config.eval_every == 0:
                record.evaluation(step.step, measure())
                console.say(f"step {step.step}: {pretraining.in_short(record.last_evaluation)}")
            signal = stopped(accelerator)
            if signal or (config.save_every and step.step % config.save_every == 0):
                save()
            if signal:
                console.say(f"stopped at step {step.step}, saved; go on with: minibert pretrain --out {out} --resume")
                raise SystemExit(128 + signal)

    # the end: measured, then saved; metrics.json comes last and marks a finished run
    metrics = {"steps": place["step"], "tokens": place["tokens"], **measure()}
    record.evaluation(place["step"], metrics)
    if main:
        save_final(out, model, tokenizer)
        write_json(out / "metrics.json", metrics)
        console.table(f"done: {out}", pretraining.in_rows(metrics))
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return metrics


def prepare_data(
    files: Sequence[Path], config: PretrainConfig, tokenizer_from: Path | None, start_from: Path | None,
    cache: Path | None, console: Console,
) -> tuple[BertTokenizer, TokenStore]:  # fmt: skip
    """The tokenizer (loaded, or trained on the text) and the token store, either from the cache where it is there."""
    folder = cache_folder(cache)
    corpus = fingerprint(files)
    size = sum(file.stat().st_size for file in files)
    source = start_from or tokenizer_from
    if source is not None:
        tokenizer = BertTokenizer.from_pretrained(source)
    else:
        with console.progress("vocabulary") as update:
            vocabulary, there = corpus_vocabulary(
                files, folder / "vocabularies", corpus=corpus, size=config.vocab_size, lowercase=config.lowercase,
                strip_accents=config.strip_accents, encoding=config.encoding, text_field=config.text_field,
                progress=lambda read: update(read, f"{read / 1e6:.1f} million characters"),
            )  # fmt: skip
        tokenizer = BertTokenizer.from_tokens(
            vocabulary.tokens, lowercase=config.lowercase, strip_accents=config.strip_accents
        )
        console.say(f"vocabulary: {len(tokenizer):,} entries" + (", trained before" if there else ""))
        if len(tokenizer) < config.vocab_size:
            console.say(f"  the text holds no more than that; {config.vocab_size:,} were asked for")
        if vocabulary.dropped_characters:
            console.warn(
                f"{vocabulary.dropped_characters:,} rare characters did not fit and are [UNK] "
                f"({vocabulary.unknown_rate:.2%} of the tokens); a larger --vocab-size holds them"
            )
    with console.progress("tokens") as update:
        began = time.monotonic()
        store, there = open_store(
            files, tokenizer, folder / "stores", corpus=corpus, encoding=config.encoding, text_field=config.text_field,
            language=config.language, words=config.mask_unit == "word", workers=worker_count(config.workers),
            progress=counting(update),
        )  # fmt: skip
    took = time.monotonic() - began
    console.say(
        f"token store: {store.folder} ({'made before' if there else f'{size / 1e6:.1f} MB read in {took:.1f} s'})"
    )
    return tokenizer, store


def find_checkpoint(out: Path, console: Console) -> Path | None:
    """The newest complete checkpoint of a run; broken ones are named and passed over."""
    newest, broken = state.newest_complete(out / "checkpoints")
    for path, fault in broken:
        console.warn(f"{path} is not complete ({fault}); passed over")
    console.say(f"going on from {newest}" if newest else "no complete checkpoint yet: starting at step 0")
    return newest


def make_folder(out: Path) -> None:
    """Make the run folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot be made: {error.strerror}", where=str(out), fix="choose another --out") from error


class PretrainingData:
    """A token store seen as this run's batches."""

    def __init__(self, store: TokenStore, tokenizer: BertTokenizer, config: PretrainConfig) -> None:
        self.store, self.tokenizer, self.config = store, tokenizer, config

    def stream(self, pool: np.ndarray, max_length: int = 0, seed: int | None = None) -> ExampleStream:
        config = self.config
        return ExampleStream(
            self.store, pool, seed=config.seed if seed is None else seed, batch_size=config.batch_size,
            max_length=max_length or config.max_length, nsp=config.nsp, short_share=config.short_share,
        )  # fmt: skip

    def collator(self, max_length: int = 0, seed: int | None = None, mask_rate: float = 0.0) -> Collator:
        config = self.config
        return Collator(
            self.store, self.tokenizer, seed=config.seed if seed is None else seed,
            mask_rate=mask_rate or config.mask_rate, words=config.mask_unit == "word",
            max_length=max_length or config.max_length, static=config.compile,
        )  # fmt: skip

    def held_out_batches(self, held_out: np.ndarray, accelerator: Accelerator) -> Iterator[Batch]:
        """This process's share of the held-out examples: always the same ones with the same masks."""
        rows = self.stream(held_out, seed=EVAL_SEED).plan(0, np.arange(len(held_out)))[: self.config.eval_examples]
        collator = self.collator(seed=EVAL_SEED, mask_rate=EVAL_MASK_RATE)
        rows = rows[np.argsort(rows[:, 4] + rows[:, 6], kind="stable")]  # by length: less padding
        for batch in np.array_split(rows, max(1, math.ceil(len(rows) / self.config.micro_batch_size))):
            share = np.array_split(batch, accelerator.num_processes)[accelerator.process_index]
            if len(share):
                yield collator[share]

    def steps(
        self, pool: np.ndarray, accelerator: Accelerator, network: nn.Module, optimizers: Optimizers,
        schedule: Schedule, place: dict[str, Any],
    ) -> Iterator[Step]:  # fmt: skip
        """The optimizer steps of all phases from `place` on, which is kept up to date for checkpoints."""
        config = self.config
        phases = [(config.max_length, config.micro_batch_size, 1.0)]
        if config.long_length:
            fits = max(1, config.micro_batch_size * config.max_length // config.long_length)
            fits = next(n for n in range(fits, 0, -1) if config.batch_size % n == 0)
            phases = [
                (config.max_length, config.micro_batch_size, 1 - config.long_share),
                (config.long_length, fits, 1.0),
            ]
        for phase in range(place["phase"], len(phases)):
            max_length, micro_batch_size, until = phases[phase]
            if phase != place["phase"]:
                cursor = Cursor(epoch=place["cursor"]["epoch"] + 1)
            else:
                cursor = Cursor.from_state(place["cursor"])
            batches = load_steps(
                self.stream(pool, max_length), self.collator(max_length), cursor, micro_batch_size=micro_batch_size,
                rank=accelerator.process_index, processes=accelerator.num_processes,
                # on a CPU the workers would take the cores that compute
                num_workers=0 if accelerator.device.type == "cpu" else worker_count(config.workers),
                pin_memory=accelerator.device.type == "cuda",
            )  # fmt: skip
            for step in train_steps(
                accelerator, network, optimizers, batches, schedule, pretraining.loss_sums, first_step=place["step"],
                warmup=schedule.warmup_share(config.warmup), clip=config.clip, seed=config.seed, until=until,
            ):  # fmt: skip
                place.update(
                    step=step.step, phase=phase, cursor=step.cursor.state(), elapsed=schedule.elapsed(),
                    tokens=place["tokens"] + step.num_tokens,
                )  # fmt: skip
                yield step


def make_model(
    config: PretrainConfig, tokenizer: BertTokenizer, token_counts: np.ndarray, source: Path | None, console: Console,
    *, quiet: bool = False,
) -> BertForPreTraining:  # fmt: skip
    """A new model, or one from a checkpoint; what the checkpoint lacks starts fresh and is named."""
    if source is not None:
        shape = load_config(source)
        if max(config.max_length, config.long_length) > shape.max_position_embeddings:
            raise UserError(
                f"examples of {max(config.max_length, config.long_length)} tokens are longer than the model's "
                f"{shape.max_position_embeddings} positions", where=str(source),
                fix=f"take --max-length {shape.max_position_embeddings} or less",
            )  # fmt: skip
        shape = replace(
            shape, hidden_dropout_prob=config.dropout, attention_probs_dropout_prob=config.attention_dropout
        )
        model, report = load_model(BertForPreTraining, source, config=shape, seed=config.seed)
        check_vocabulary(len(tokenizer), shape, str(source))
        if not quiet:
            console.say(f"weights: {source}")
            if report.fresh:
                console.say(f"  not in there, so they start fresh: {', '.join(report.fresh)}")
        return model
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=config.hidden_size, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, intermediate_size=config.ffn_size or 4 * config.hidden_size,
        hidden_act=config.activation, hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.attention_dropout, max_position_embeddings=config.max_positions,
        pad_token_id=tokenizer.pad_token_id, norm=config.norm, positions=config.positions,
    )  # fmt: skip
    model = BertForPreTraining(shape)
    initialise(
        model, scheme=config.init, seed=config.seed, head_share=config.neighbour_share, token_counts=token_counts
    )
    return model


def make_schedule(
    config: PretrainConfig, stream: ExampleStream, accelerator: Accelerator, *, elapsed: float, reserve: float
) -> StepSchedule | TimeSchedule:
    """How long training lasts: so many steps, or so long by the clock."""
    if config.minutes is not None:
        from accelerate.utils import broadcast_object_list

        def agree(value: float) -> float:
            shared: float = broadcast_object_list([value])[0] if accelerator.num_processes > 1 else value
            return shared

        return TimeSchedule(60 * config.minutes, reserve=reserve, elapsed=elapsed, agree=agree)
    steps = config.steps or math.ceil((config.epochs or 0) * stream.count() / config.batch_size)
    return StepSchedule(max(1, steps))


def plan_in_words(
    config: PretrainConfig, model: BertForPreTraining, accelerator: Accelerator, schedule: StepSchedule | TimeSchedule
) -> str:
    """What is about to be trained, in two lines."""
    shape = model.config
    parameters = sum(p.numel() for p in model.parameters())
    length = f"{schedule.steps:,} steps" if isinstance(schedule, StepSchedule) else f"{config.minutes:g} minutes"
    processes = accelerator.num_processes
    rounds = math.ceil(config.batch_size / (config.micro_batch_size * processes))
    at_once = min(config.micro_batch_size, math.ceil(config.batch_size / processes))
    precision = "fp32" if accelerator.mixed_precision == "no" else accelerator.mixed_precision
    return (
        f"model: {shape.num_hidden_layers} layers, {shape.hidden_size} wide, {parameters / 1e6:.1f} M parameters\n"
        f"training: {length} of {config.batch_size} sequences ({rounds} x {at_once} on each of {processes} "
        f"process{'es' if processes > 1 else ''}), {precision} on {accelerator.device}"
    )


def save_final(out: Path, model: BertForPreTraining, tokenizer: BertTokenizer) -> None:
    """The model at the top of the run folder; each file is whole or absent."""
    finished = out / ".model.partial"
    remove(finished)
    finished.mkdir()
    save_checkpoint(model, tokenizer, finished)
    for path in finished.iterdir():
        flush(path)
        path.replace(out / path.name)
    finished.rmdir()
