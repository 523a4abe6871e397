"""minibert pretrain."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from minibert.atomic import temporary_folder
from minibert.cli.options import (
    DEFAULT_RECIPE,
    DRY_RUN,
    LAST,
    QUIET,
    SHOW_CONFIG,
    Option,
    SectionedCommand,
    setting_options,
)
from minibert.cli.sources import corpus_files, full_name, on_disk
from minibert.config import PretrainConfig, load_recipe, resolve
from minibert.errors import UserError

# these describe a new model or vocabulary: a checkpoint that training goes on from has its own
OF_A_NEW_MODEL = (
    "layers", "hidden_size", "heads", "ffn_size", "positions", "max_positions", "norm", "activation", "init",
    "neighbour_share",
)  # fmt: skip
OF_A_NEW_VOCABULARY = ("vocab_size", "lowercase", "strip_accents")
OF_READING_TEXT = ("encoding", "text_field", "language", *OF_A_NEW_VOCABULARY)


@click.command(cls=SectionedCommand)
@click.argument("corpus", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder to make; it holds the model in the end.")
@click.option(
    "--recipe",
    help="Preset: a name of `minibert recipes`, a TOML file or settings.json [default: quick; with --from: continue].",
)
@click.option("--from", "start_from", type=click.Path(), help="Checkpoint to go on from, with its tokenizer.")
@click.option("--tokenizer", type=click.Path(), help="vocab.txt or tokenizer folder, instead of training one.")
@click.option("--resume", is_flag=True, help="Go on with the unfinished run in --out, exactly as if it had not ended.")
@click.option(
    "--cache",
    cls=Option,
    section=LAST,
    type=click.Path(path_type=Path),
    help="Folder for prepared data [default: $MINIBERT_CACHE or ~/.cache/minibert].",
)
@SHOW_CONFIG
@DRY_RUN
@QUIET
@setting_options(PretrainConfig)
def pretrain(
    corpus: tuple[str, ...], out: Path | None, recipe: str | None, start_from: str | None, tokenizer: str | None,
    resume: bool, cache: Path | None, show_config: bool, dry_run: bool, quiet: bool, **settings: Any,
) -> None:  # fmt: skip
    """Train a BERT on raw text: files, folders and globs of .txt, .jsonl and .parquet, or - for standard input.

    In text files a blank line ends a document. Unknown words, lengths, masks: everything has a default; a recipe sets
    what fits a purpose, and the options below win over the recipe. CORPUS may be a store of `minibert prepare`; it, a
    tokenizer and a checkpoint may lie at any place that fsspec knows (s3://bucket/text/*.txt.gz).
    """
    from minibert import run_folder
    from minibert.console import Console

    flags = {name: value for name, value in settings.items() if value is not None}
    corpus = tuple(map(full_name, corpus))  # --resume may be elsewhere
    places: dict[str, Path | None] = {"from": None, "tokenizer": None}
    console = Console(quiet=quiet)

    def find_places() -> None:
        for name, given in (("from", start_from), ("tokenizer", tokenizer)):
            places[name] = on_disk(given, cache, console) if given else None

    going_on = resume and out is not None and run_folder.is_begun(out)
    if going_on:
        assert out is not None
        if run_folder.is_finished(out):
            click.echo(f"{out} holds a finished run: there is nothing to resume", err=True)
            run_folder.clear_up(out)
            return
        again = load_recipe(recipe, "pretrain")[1] if recipe is not None else {}
        config, saved = run_folder.resumed_settings(PretrainConfig, out, flags, again)
        find_places()
        run_folder.check_same_places(out, saved, {"corpus": list(corpus) or None, **places})
        corpus = tuple(saved["corpus"])
        places = {name: Path(saved[name]) if saved[name] else None for name in places}
    else:
        preset = recipe or ("continue" if start_from else DEFAULT_RECIPE)
        config = resolve(PretrainConfig, load_recipe(preset, "pretrain"), ("command line", flags))
    if show_config:
        click.echo(json.dumps({"settings": asdict(config)}, indent=1))
        return
    if not corpus:
        raise UserError("no text was named", fix="minibert pretrain FILE_OR_FOLDER... --out RUN")
    if out is None:
        if not dry_run:
            raise UserError("no place for the result was named", where="--out", fix="add --out RUN")
        out = Path("dry-run")  # nothing is written there
    if not going_on and not dry_run:
        run_folder.check_new(out)
        if resume:
            click.echo(f"nothing to resume in {out}: a new run begins", err=True)
    if not going_on:
        find_places()
        if not dry_run:
            refuse_lost_flags(flags, places["from"], places["tokenizer"])

    with temporary_folder() as spool:

        def files() -> list[Path]:
            return corpus_files(corpus, spool, console, cache=cache, store=True)

        # what can be found wrong without torch is found before torch is loaded; a resumed run may need no text
        found = files if going_on else files()
        if not callable(found):
            refuse_beside_store(found, flags, tokenizer)
        from minibert.pretrain import pretrain as train

        train(
            found, out, config, corpus=corpus, tokenizer_from=places["tokenizer"], start_from=places["from"],
            resume=going_on, dry_run=dry_run, cache=cache, console=console,
        )  # fmt: skip


def refuse_lost_flags(flags: dict[str, Any], start_from: Path | None, tokenizer: Path | None) -> None:
    """Flags that a checkpoint or tokenizer decides otherwise are a misunderstanding: say so."""
    if start_from is not None:
        lost = ["tokenizer"] if tokenizer is not None else []
        lost += [name for name in (*OF_A_NEW_MODEL, *OF_A_NEW_VOCABULARY) if name in flags]
        whose = "--from goes on with the checkpoint's own model and tokenizer"
    elif tokenizer is not None:
        decided = OF_A_NEW_VOCABULARY if tokenizer.is_dir() else ("vocab_size",)
        lost, whose = [name for name in decided if name in flags], "--tokenizer brings its own"
    else:
        return
    if lost:
        raise UserError(f"{whose}; these have no effect: {', '.join(lost)}", fix="leave them out")


def refuse_beside_store(files: list[Path], flags: dict[str, Any], tokenizer: str | None) -> None:
    """What decides the tokens of text was decided when a store was prepared."""
    from minibert.corpus.prepared import is_store_folder

    lost = [name for name in OF_READING_TEXT if name in flags] + ["tokenizer"] * (tokenizer is not None)
    if lost and is_store_folder(files[0]):
        raise UserError(
            f"a prepared store has its tokens already; these have no effect: {', '.join(lost)}", where=str(files[0]),
            fix="leave them out; `minibert prepare` takes them",
        )  # fmt: skip
