"""The command line: parse, call, print, exit code. torch is imported by a command that computes, not before."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import Field, asdict
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args, get_origin

import click

from minibert import __version__
from minibert.config import PretrainConfig, default_of, kinds, known_fields, list_recipes, load_recipe, resolve
from minibert.errors import UserError

# these describe a new model or vocabulary: a checkpoint that training goes on from has its own
OF_A_NEW_MODEL = (
    "layers", "hidden_size", "heads", "ffn_size", "positions", "max_positions", "norm", "activation", "init",
    "neighbour_share",
)  # fmt: skip
DEFAULT_RECIPE = "quick"
OF_A_NEW_VOCABULARY = ("vocab_size", "lowercase", "strip_accents")


def main() -> None:
    """The program. Exit code 0: done; 2: a user's mistake, one message; 1: a bug, with its traceback."""
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
    )  # so that half-written files are cleared
    try:
        code = commands.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except UserError as error:
        say_error(str(error))
        sys.exit(2)
    except click.UsageError as error:
        hint = f"\n  fix: {error.ctx.command_path} --help" if error.ctx else ""
        say_error(error.format_message() + hint)
        sys.exit(2)
    except click.ClickException as error:
        say_error(error.format_message())
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("minibert: interrupted", err=True)
        sys.exit(130)


def say_error(text: str) -> None:
    """One message on stderr, of the first process where there are several."""
    if os.environ.get("RANK", "0") != "0":
        return
    click.echo(f"minibert: error: {text}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="minibert")
def commands() -> None:
    """From raw text to a BERT, and from a BERT to an answer."""


def setting_options(config: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One option for each field of a settings class; one that is not given is None.

    The help names what holds where nothing is said: the default recipe's value, or the field's own default.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        _, quick = load_recipe(DEFAULT_RECIPE, "pretrain")
        for name, item in reversed(known_fields(config).items()):
            default = f"{DEFAULT_RECIPE}: {quick[name]}" if name in quick else default_of(item)
            command = setting_option(name, item, kinds(config)[name][0], default)(command)
        return command

    return add


def setting_option(
    name: str, item: Field[Any], kind: Any, default: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The click option of one setting."""
    flag = f"--{name.replace('_', '-')}"
    if get_origin(kind) is Literal:
        kind = click.Choice(get_args(kind))
    elif kind is bool:
        kind = None
        flag = item.metadata["flag"] or f"{flag}/--no-{flag[2:]}"
        default = flag.split("/")[not default] if isinstance(default, bool) else default
    label = "" if isinstance(default, str) and default.startswith(f"{DEFAULT_RECIPE}: ") else "default: "
    shown = f" [{label}{default}]" if default not in (None, "") else ""
    return click.option(flag, name, type=kind, default=None, help=item.metadata["help"] + shown)


@commands.command()
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

    with tempfile.TemporaryDirectory(prefix="minibert-") as spool:

        def files() -> list[Path]:
            return corpus_files(corpus, Path(spool))

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


def corpus_files(corpus: tuple[str, ...], spool: Path) -> list[Path]:
    """The files that are meant; standard input becomes a file, for it is read more than once."""
    from minibert.corpus.read import STDIN, find_files, spool_stdin

    if STDIN in corpus:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError(
                "standard input can be read by one process only", where="CORPUS", fix="write the text to a file first"
            )
        if len(corpus) > 1:
            raise UserError("standard input (-) and files together", where="CORPUS", fix="name one or the other")
        return [spool_stdin(stdin(), spool)]
    files = find_files(corpus)
    for file in files:
        if file.suffix.lower() in (".csv", ".tsv", ".json", ".html", ".xml"):
            click.echo(f"warning: {file}: read as plain text, line by line, {file.suffix} or not", err=True)
    return files


def stdin() -> BinaryIO:
    """Standard input as bytes."""
    if sys.stdin is None:
        raise UserError("is closed", where="standard input", fix="pipe the text in, or name files")
    return sys.stdin.buffer


@commands.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for vocab.txt and the tokenizer's files."
)
@click.option(
    "--vocab-size",
    type=int,
    default=8000,
    show_default=True,
    help="Entries; never more, fewer if the text holds no more.",
)
@click.option(
    "--uncased/--cased", "lowercase", default=True, help="Lower-case the text, or keep the case [default: --uncased]."
)
@click.option(
    "--strip-accents/--keep-accents", default=None, help="Drop accents and other marks [default: as --uncased]."
)
@click.option("--encoding", default="utf-8", show_default=True, help="Encoding of text files.")
@click.option(
    "--text-field", default="text", show_default=True, help="Field that holds the text in .jsonl and .parquet."
)
@click.option("--quiet", is_flag=True, help="Print warnings and errors alone.")
def vocab(
    corpus: tuple[str, ...], out: Path, vocab_size: int, lowercase: bool, strip_accents: bool | None, encoding: str,
    text_field: str, quiet: bool,
) -> None:  # fmt: skip
    """Train a WordPiece vocabulary alone; `pretrain --tokenizer` and transformers take the folder."""
    from minibert.console import Console
    from minibert.corpus.vocabulary import make_vocabulary

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("is there already and is not empty", where=str(out), fix="choose another --out")
    with tempfile.TemporaryDirectory(prefix="minibert-") as spool:
        make_vocabulary(
            corpus_files(corpus, Path(spool)), out, size=vocab_size, lowercase=lowercase, strip_accents=strip_accents,
            encoding=encoding, text_field=text_field, console=Console(quiet=quiet),
        )  # fmt: skip


@commands.command("fill-mask")
@click.option("--model", type=click.Path(path_type=Path), required=True, help="Run folder or any BERT checkpoint.")
@click.option("--top-k", type=click.IntRange(min=1), default=5, show_default=True, help="Answers for each [MASK].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a text, for programs.")
@click.argument("texts", nargs=-1)
def fill_mask(model: Path, top_k: int, as_json: bool, texts: tuple[str, ...]) -> None:
    """Let a model guess what stands at each [MASK] of the TEXTS (or of the lines of standard input, with -)."""
    if not texts:
        raise UserError("no text was given", where="TEXTS", fix="minibert fill-mask --model RUN 'The [MASK] is blue.'")
    lines = stdin_lines() if texts == ("-",) else list(texts)
    from minibert.fill_mask import fill_masks, in_lines

    for text, answers in zip(lines, fill_masks(model, lines, top_k=top_k), strict=True):
        if as_json:
            click.echo(json.dumps({"text": text, "masks": answers}, ensure_ascii=False))
        else:
            click.echo(in_lines(text, answers))


def stdin_lines() -> list[str]:
    """The lines of standard input."""
    try:
        text = stdin().read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8: byte {error.start}", where="standard input", fix="recode it first") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


@commands.command()
@click.argument("name", required=False)
def recipes(name: str | None) -> None:
    """List the recipes; with a NAME show that one: purpose, result and time to expect, settings."""
    if name is not None:
        place, _ = load_recipe(name, "pretrain")
        click.echo(Path(place).read_text("utf-8").rstrip())
        return
    found = list_recipes("pretrain")
    for known, purpose in found.items():
        click.echo(f"{known:<{max(map(len, found))}}  {purpose}")
