"""minibert pretrain."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from minibert.atomic import temporary_folder
from minibert.cli.options import DEFAULT_RECIPE, setting_options
from minibert.cli.sources import corpus_files
from minibert.config import PretrainConfig, load_recipe, resolve
from minibert.errors import UserError

# these describe a new model or vocabulary: a checkpoint that training goes on from has its own
OF_A_NEW_MODEL = (
    "layers", "hidden_size", "heads", "ffn_size", "positions", "max_positions", "norm", "activation", "init",
    "neighbour_share",
)  # fmt: skip
OF_A_NEW_VOCABULARY = ("vocab_size", "lowercase", "strip_accents")


@click.command()
@click.argument("corpus", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder to make; it holds the model in the end.")
@click.option(
    "--recipe",
    help="Preset: a name of `minibert recipes`, a TOML file or settings.json [default: quick; with --from: continue].",
)
@click.option(
    "--from", "start_from", type=click.Path(path_type=Path), help="Checkpoint to go on from, with its tokenizer."
)
@click.option(
    "--tokenizer", type=click.Path(path_type=Path), help="vocab.txt or tokenizer folder, instead of training one."
)
@click.option("--resume", is_flag=True, help="Go on with the unfinished run in --out, exactly as if it had not ended.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder for prepared data [default: $MINIBERT_CACHE or ~/.cache/minibert].",
)
@click.option("--show-config", is_flag=True, help="Print the settings that would be used, as JSON, and end.")
@click.option("--dry-run", is_flag=True, help="Read the data, print its summary, and end before the first step.")
@click.option("--quiet", is_flag=True, help="Print warnings and errors alone.")
@setting_options(PretrainConfig)
def pretrain(
    corpus: tuple[str, ...], out: Path | None, recipe: str | None, start_from: Path | None, tokenizer: Path | None,
    resume: bool, cache: Path | None, show_config: bool, dry_run: bool, quiet: bool, **settings: Any,
) -> None:  # fmt: skip
    """Train a BERT on raw text: files, folders and globs of .txt, .jsonl and .parquet, or - for standard input.

    In text files a blank line ends a document. Unknown words, lengths, masks: everything has a default; a recipe sets
    what fits a purpose, and the options below win over the recipe.
    """
    from minibert import run_folder

    flags = {name: value for name, value in settings.items() if value is not None}
    corpus = tuple(name if name == "-" else str(Path(name).absolute()) for name in corpus)  # --resume may be elsewhere
    going_on = resume and out is not None and run_folder.is_begun(out)
    if going_on:
        assert out is not None
        if run_folder.is_finished(out):
            click.echo(f"{out} holds a finished run: there is nothing to resume", err=True)
            run_folder.clear_up(out)
            return
        if recipe is not None:
            raise UserError("--resume continues the run as it was set", where="--recipe", fix="leave it out")
        config, saved = run_folder.resumed_settings(PretrainConfig, out, flags)
        named = {"corpus": list(corpus) or None, "from": start_from, "tokenizer": tokenizer}
        run_folder.check_same_places(out, saved, named)
        corpus = tuple(saved["corpus"])
        start_from, tokenizer = (Path(saved[name]) if saved[name] else None for name in ("from", "tokenizer"))
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
        refuse_lost_flags(flags, start_from, tokenizer)

    with temporary_folder() as spool:

        def files() -> list[Path]:
            return corpus_files(corpus, spool)

        # what can be found wrong without torch is found before torch is loaded; a resumed run may need no text
        found = files if going_on else files()
        from minibert.console import Console
        from minibert.pretrain import pretrain as train

        train(
            found, out, config, corpus=corpus, tokenizer_from=tokenizer and tokenizer.absolute(),
            start_from=start_from and start_from.absolute(), resume=going_on, dry_run=dry_run, cache=cache,
            console=Console(quiet=quiet),
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
