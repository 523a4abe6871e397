"""Pre-training, from text files to a folder that holds a BERT. Read `pretrain` from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator

from minibert.atomic import write_json
from minibert.checkpoint.folder import save_checkpoint
from minibert.config import PretrainConfig
from minibert.console import Console, counting
from minibert.corpus.batches import Cursor
from minibert.corpus.cache import cache_folder
from minibert.corpus.cooccurrence import word_vectors
from minibert.corpus.pairs import split_documents
from minibert.corpus.prepared import is_store_folder, open_prepared
from minibert.corpus.read import doubts, fingerprint
from minibert.corpus.store import TokenStore, open_store, whole_store, worker_count
from minibert.corpus.summary import describe, show_data
from minibert.corpus.vocabulary import corpus_vocabulary
from minibert.errors import UserError
from minibert.report.page import describe_run
from minibert.run_folder import held, publish, resume_with, save_settings
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training import pretraining, state
from minibert.training.compiling import check_compiler, compile_model
from minibert.training.data import PretrainingData
from minibert.training.devices import SAME_OUT, Stop, check_same, make_accelerator, one_reads_first
from minibert.training.memory import check_memory, explaining_lack
from minibert.training.optim import build_optimizers
from minibert.training.record import Record
from minibert.training.setup import (
    as_trained,
    check_positions,
    make_model,
    make_schedule,
    plan_in_words,
    refuse_unknown,
    save_memory,
)
from minibert.training.sharding import check_settings, is_spread, prepare, whole, whole_states
from minibert.training.speed import machine
from minibert.training.watch import Watch


def pretrain(
    files: Sequence[Path] | Callable[[], Sequence[Path]],
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

    Args: files: or a function that finds them, called where they are needed; or the folder of a prepared store alone.
        corpus: how the user named them, for settings.json. tokenizer_from: a vocab.txt or a folder with a tokenizer,
        instead of training one. start_from: a checkpoint to go on from, with its tokenizer. resume: continue the
        unfinished run in `out` exactly. dry_run: stop after the data summary. cache: where token stores and
        vocabularies are kept.
    Returns: the content of metrics.json (of data.json after a dry run).
    Raises: UserError for everything that a user can mend. SystemExit(128 + signal) after SIGTERM or Ctrl-C, saved.
    """
    accelerator = make_accelerator(
        precision=config.precision, tracker=config.tracker, out=out, batch_size=config.batch_size
    )
    main = accelerator.is_main_process
    if console is None or not main:
        console = Console(silent=not main)
    with held(out, resume=resume) if main and not dry_run else nullcontext():
        return _pretrain(
            accelerator, files, out, config, corpus, tokenizer_from, start_from, resume, dry_run, cache, console
        )


def _pretrain(  # noqa: C901 - one story, told in order
    accelerator: Accelerator, files: Sequence[Path] | Callable[[], Sequence[Path]], out: Path, config: PretrainConfig,
    corpus: Sequence[str], tokenizer_from: Path | None, start_from: Path | None, resume: bool, dry_run: bool,
    cache: Path | None, console: Console,
) -> dict[str, Any]:  # fmt: skip
    """pretrain, with the run folder held."""
    main = accelerator.is_main_process
    check_settings(precision=accelerator.mixed_precision, compiled=config.compile)
    check_same(accelerator, (resume, config), "the settings, or what is in --out, are", SAME_OUT)
    if config.compile:
        check_compiler(accelerator.device)
    resume_from = find_checkpoint(out, console) if resume else None
    check_same(accelerator, resume_from and resume_from.name, "the newest checkpoint is", SAME_OUT)
    source = resume_from or start_from
    check_positions(config, source)
    place: dict[str, Any] = {
        "step": 0, "phase": 0, "cursor": Cursor().state(), "elapsed": 0.0, "reserve": 0.0, "tokens": 0, "store": "",
        "record": None, "measured": None, "share": 0.0,
    }  # fmt: skip
    if resume_from is not None:
        place = state.load_place(resume_from)

    # the data: one process reads the text, the others find what it left
    with one_reads_first(accelerator):
        tokenizer, store = prepare_data(
            files,
            config,
            accelerator,
            source or tokenizer_from,
            cache,
            console,
            saved_store=place["store"],
            where=corpus[0] if corpus else "",
        )
    check_same_store(accelerator, store)
    place["store"] = store.name
    unknown_rate = store.facts["unknown_tokens"] / store.facts["tokens"]
    if source or tokenizer_from or store.shards:  # a vocabulary that was trained on this text has said what it lost
        refuse_unknown(unknown_rate, ", ".join(corpus) or "CORPUS")
    train, held_out = split_documents(store.hashes, config.eval_share)
    data = PretrainingData(store, tokenizer, config, train, held_out)
    if main or dry_run:
        facts = describe(store, data.stream(), data.collator(), tokenizer, held_out)
        show_data(facts, console)
    if dry_run:
        return facts

    # the model
    token_counts = store.token_counts(len(tokenizer), without=held_out)
    vectors = None
    if source is None and config.word_init == "cooccurrence":
        with one_reads_first(accelerator):
            vectors = first_vectors(store, train, config, len(tokenizer), cache, console)
    model = make_model(
        config, tokenizer, token_counts, source, console, word_vectors=vectors, quiet=resume_from is not None
    )
    if main:
        if not resume:
            named = list(corpus) or [str(file.absolute()) for file in (files() if callable(files) else files)]
            places = {"corpus": named, "from": start_from, "tokenizer": tokenizer_from}
            save_settings(out, "pretrain", as_trained(config, model.config, tokenizer, source), places)
        write_json(out / "data.json", facts)
    if config.gradient_checkpointing:
        save_memory(model)
    model.train()  # one that was loaded is in evaluation mode
    network = prepare(accelerator, model)
    optimizers = build_optimizers(
        network, name=config.optimizer, lr=config.lr, muon_lr=config.muon_lr, weight_decay=config.weight_decay,
        adam_beta2=config.adam_beta2, muon_decay=config.muon_decay,
    )  # fmt: skip
    if not is_spread(network):
        check_memory(
            model, accelerator, optimizers, pretraining.loss_sums, data.longest_batches(accelerator.num_processes),
            console, can_save=not config.gradient_checkpointing,
        )  # fmt: skip
    if config.compile:
        (max_length, rows, _), *_ = data.phases()
        rows = min(rows, config.batch_size // accelerator.num_processes)
        console.say(
            compile_model(
                model, network, data.collator(max_length)[next(data.stream().batches(Cursor()))[0][:rows]],
                pretraining.loss_sums, accelerator, cache=cache_folder(cache) / "compiled",
                passes=ceil(config.batch_size / (config.micro_batch_size * accelerator.num_processes)),
            )
        )  # fmt: skip
    if resume_from is not None:
        state.load_state(resume_from, optimizers, accelerator.scaler)
    computed = machine(accelerator, model.config, length=data.config.max_length, through_head=config.mask_rate)
    if main:
        write_json(out / "machine.json", computed)
    record = Record(
        out, accelerator, terms=pretraining.TERMS, lr=config.lr, log_every=config.log_every, tracker=config.tracker,
        before=place["record"], warn=console.warn, measured=("mlm_loss", "held-out"),
        watch=Watch(pretraining.TERMS, uniform=log(len(tokenizer)), state=(place["record"] or {}).get("watch")),
    )  # fmt: skip
    unigram = pretraining.log_unigram(token_counts)
    saved = [place["step"] if resume_from else -1]

    def measure() -> dict[str, float]:
        """On held-out text; nothing where there is none, or where a signal came meanwhile."""
        if not len(held_out):
            return {}
        batches = (batch for batch in data.held_out_batches(accelerator) if not stop.signal)
        with whole(accelerator, network, model) as measured:
            found = pretraining.measure(accelerator, measured, batches, unigram, tokenizer.mask_token_id)
            said = pretraining.answers(accelerator, measured, data.shown_batch(), tokenizer) if main else []
        if stop.agreed():
            return {}
        if main:
            write_json(out / "answers.json", {"step": place["step"], "texts": said})
        return found

    def save() -> None:
        if saved[0] == place["step"]:
            return
        record.check()
        place["record"] = record.state()
        accelerator.wait_for_everyone()
        states = whole_states(optimizers, kept=main)
        with whole(accelerator, network, model) as trained:
            if main:
                checkpoints = out / "checkpoints"
                state.save_state(
                    state.checkpoint_path(checkpoints, place["step"]),
                    lambda folder: save_checkpoint(trained, tokenizer, folder),
                    states, accelerator.scaler, place,
                )  # fmt: skip
                state.keep_newest(checkpoints, config.keep, place["step"])
        accelerator.wait_for_everyone()
        saved[0] = place["step"]

    def end_if_told() -> None:
        if signal := stop.agreed():
            save()
            console.warn(f"stopped at step {place['step']}, which is saved; {resume_with('pretrain', out)}")
            raise SystemExit(128 + signal)

    def evaluate_if_due() -> None:
        """At every so many steps. A signal meanwhile leaves it to the run that goes on."""
        number = place["step"]
        if not config.eval_every or number % config.eval_every or place["share"] >= 1:
            return
        found = measure()
        end_if_told()
        place["measured"] = number
        record.evaluation(number, found)
        record.note_findings(record.watch.measured(number, place["share"], found))
        console.say(f"step {number}: {pretraining.in_short(record.last_evaluation)}")

    with Stop(accelerator, console.warn_from_signal) as stop, record.noting_failure(), explaining_lack():
        # measured before the first step too: it shows that loaded weights came in, and what measuring costs
        if place["measured"] is None:
            began = time.monotonic()
            found = measure()
            end_if_told()
            place["measured"] = 0
            record.note_findings(record.watch.data(unknown_rate), quiet=True)  # show_data has said it
            record.evaluation(0, found)
            console.say(f"step 0: {pretraining.in_short(record.last_evaluation)}")
            place["elapsed"] = place["reserve"] = time.monotonic() - began
        schedule = make_schedule(config, data, accelerator, elapsed=place["elapsed"], reserve=place["reserve"])
        console.say(plan_in_words(config, model, accelerator, schedule))
        end_if_told()
        if place["measured"] != place["step"]:
            evaluate_if_due()  # a signal came while the part that is gone on with measured
        with console.progress("training", 1.0) as update:
            for step in data.steps(accelerator, network, optimizers, schedule, place, stop.agreed):
                place["share"] = step.share
                update(step.share, record.step(step, step.cursor.epoch, place["tokens"]))
                with record.pause():
                    evaluate_if_due()
                    if config.save_every and step.step % config.save_every == 0:
                        save()
            # the end: measured, which is the last that the bar says, then saved
            told = stop.agreed()
            if not told:
                record.check()
                metrics = {"steps": place["step"], "tokens": place["tokens"], **measure()}
                told = stop.agreed()
            if not told:
                record.evaluation(place["step"], metrics)
        if told:  # below the bar
            end_if_told()
        # metrics.json comes last and marks a finished run
        record.note_findings(record.watch.measured(place["step"], 1.0, metrics))
        record.note_findings(record.watch.ended(place["step"]))
        with whole(accelerator, network, model) as trained:
            if main:
                publish(out, lambda folder: save_checkpoint(trained, tokenizer, folder))
        if main:
            describe_run(out, metrics, console)
            write_json(out / "metrics.json", metrics)
            console.results(
                f"done: {out}, {metrics['steps']:,} steps, {metrics['tokens']:,} tokens",
                pretraining.COLUMNS, pretraining.in_rows(metrics), pretraining.what_next(out, tokenizer),
            )  # fmt: skip
        accelerator.wait_for_everyone()
        accelerator.end_training()
    return metrics


def find_checkpoint(out: Path, console: Console) -> Path | None:
    """The newest complete checkpoint of a run; broken ones are named and passed over."""
    newest, broken = state.newest_complete(out / "checkpoints")
    for path, fault in broken:
        console.warn(f"{path} is not complete ({fault}); passed over")
    console.say(f"going on from {newest}" if newest else "no complete checkpoint yet: starting at step 0")
    return newest


def first_vectors(
    store: TokenStore, documents: np.ndarray, config: PretrainConfig, size: int, cache: Path | None, console: Console
) -> np.ndarray:
    """The words' first vectors from the text to train on, made or from the cache."""
    began = time.monotonic()
    folder = cache_folder(cache) / "words"
    vectors, there = word_vectors(store, documents, folder, size=size, width=config.hidden_size)
    took = "made before" if there else f"{time.monotonic() - began:.1f} s"
    console.say(f"word vectors: begin by which words stand near each other ({took})")
    return vectors


def prepare_data(
    files: Sequence[Path] | Callable[[], Sequence[Path]], config: PretrainConfig, accelerator: Accelerator,
    source: Path | None, cache: Path | None, console: Console, *, saved_store: str, where: str = "",
) -> tuple[BertTokenizer, TokenStore]:  # fmt: skip
    """The tokenizer (loaded, or trained on the text) and the token store, either from the cache where it is there.

    saved_store: the name of the store that a resumed run has trained on; another text is refused. where: how the user
    named a prepared store.
    """
    folder = cache_folder(cache)
    if saved_store and source is not None and (store := whole_store(folder / "stores" / saved_store)) is not None:
        return BertTokenizer.from_pretrained(source), store
    files = files() if callable(files) else files
    if is_store_folder(files[0]):
        return prepared_data(files[0], config, source, console, saved_store=saved_store, where=where or str(files[0]))
    size = sum(file.stat().st_size for file in files)
    corpus: str = fingerprint(files)
    for doubt in doubts(files, config.encoding):
        console.warn(doubt)
    if source is not None:
        own = {} if source.is_dir() else {"lowercase": config.lowercase, "strip_accents": config.strip_accents}
        tokenizer = BertTokenizer.from_pretrained(source, **own)
    else:
        lowercase = config.lowercase is not False
        with console.progress("vocabulary", unit="characters") as update:
            vocabulary, there = corpus_vocabulary(
                files, folder / "vocabularies", corpus=corpus, size=config.vocab_size, lowercase=lowercase,
                strip_accents=config.strip_accents, encoding=config.encoding, text_field=config.text_field,
                progress=update,
            )  # fmt: skip
        tokenizer = BertTokenizer.from_tokens(
            vocabulary.tokens, lowercase=lowercase, strip_accents=config.strip_accents
        )
        console.say(f"vocabulary: {len(tokenizer):,} entries" + (", trained before" if there else ""))
        if len(tokenizer) < config.vocab_size:
            console.say(f"  the text holds no more than that; {config.vocab_size:,} were asked for")
        if vocabulary.dropped_characters:
            console.warn(
                f"{vocabulary.dropped_characters:,} rare characters did not fit and are [UNK] "
                f"({vocabulary.unknown_rate:.2%} of the tokens); a larger --vocab-size holds them"
            )
    began = time.monotonic()
    with console.progress("tokens", unit="characters") as update:
        store, there = open_store(
            files, tokenizer, folder / "stores", corpus=corpus, encoding=config.encoding, text_field=config.text_field,
            language=config.language, words=config.mask_unit == "word", workers=worker_count(config.workers),
            progress=counting(update),
        )  # fmt: skip
    took = time.monotonic() - began
    how = "made before" if there else f"{size / 1e6:.1f} MB read in {took:.1f} s"
    console.say(f"token store: {store.folder} ({how})")
    check_saved_store(store, saved_store)
    return tokenizer, store


def prepared_data(
    folder: Path, config: PretrainConfig, source: Path | None, console: Console, *, saved_store: str, where: str
) -> tuple[BertTokenizer, TokenStore]:
    """As prepare_data, of a store that `minibert prepare` has made: no text is read."""
    tokenizer, store, made_of = open_prepared(folder, where)
    if source is not None:
        own = BertTokenizer.from_pretrained(source)
        if own.fingerprint != tokenizer.fingerprint:
            raise UserError(
                f"its tokens were made with another tokenizer than that of {source}", where=where,
                fix=f"prepare the text with --tokenizer {source}",
            )  # fmt: skip
        tokenizer = own
    if config.mask_unit == "word" and not made_of["words"]:
        raise UserError(
            "it does not say where words begin, which --mask-unit word needs", where=where,
            fix="prepare the text with --mask-unit word, or train with --mask-unit token",
        )  # fmt: skip
    console.say(f"token store: {where} (prepared before, shards: {len(store.shards):,})")
    check_saved_store(store, saved_store)
    return tokenizer, store


def check_saved_store(store: TokenStore, saved_store: str) -> None:
    """Refuse to go on with a run on other text than it has begun with."""
    if saved_store and store.name != saved_store:
        raise UserError(
            "the text is not the one that this run was started with", where="CORPUS",
            fix="bring the old text back, or start anew with another --out",
        )  # fmt: skip


def check_same_store(accelerator: Accelerator, store: TokenStore) -> None:
    """Each machine opens the store for itself: refuse to train where they have found different text."""
    check_same(
        accelerator, store.name, "CORPUS: different text was found, it is", "let all machines read the same files"
    )
