"""The command line: parse, call, print, exit code. torch is imported by a command that computes, not before."""

from __future__ import annotations

import atexit
import errno
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import click

from minibert import __version__
from minibert.cli.attention import attention
from minibert.cli.check import check
from minibert.cli.convert import convert
from minibert.cli.embed import embed
from minibert.cli.export import export
from minibert.cli.fill_mask import fill_mask
from minibert.cli.finetune import finetune
from minibert.cli.lists import recipes, tasks
from minibert.cli.options import HELP_SETTINGS, Context
from minibert.cli.predict import evaluate, predict
from minibert.cli.prepare import prepare
from minibert.cli.pretrain import pretrain
from minibert.cli.report import report
from minibert.cli.trace import trace
from minibert.cli.vocab import vocab
from minibert.console import has_colour
from minibert.errors import UserError, printable

FIX = "\n  fix: "  # as a UserError writes it
OF_A_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
OF_THE_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def main() -> None:
    """The program. Exit code 0: done; 2: a user's mistake, one message; 1: a bug, with its traceback."""
    stand_in_for_closed_streams()
    for name in ("SIGTERM", "SIGHUP"):  # so that half-written files are cleared
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, told_to_end)
    try:
        code = commands.main(standalone_mode=False)
        leave(code if isinstance(code, int) else 0)
    except UserError as error:
        say_error(str(error))
        leave(2)
    except OSError as error:
        if error.errno in OF_A_FULL_DISK:
            say_error(f"{error.filename or 'what was being written'}: {error.strerror}\n  fix: make room")
        elif error.errno in OF_THE_PLACE and error.filename is not None:
            say_error(f"{error.filename}: {error.strerror}\n  fix: choose another path, or change its permissions")
        else:
            raise
        leave(2)
    except click.UsageError as error:
        hint = f"\n  fix: {error.ctx.command_path} --help" if error.ctx else ""
        say_error(error.format_message() + hint)
        sys.exit(2)
    except click.ClickException as error:
        say_error(error.format_message())
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        if os.environ.get("RANK", "0") == "0":
            click.echo("minibert: interrupted", err=True)
        leave(130)
    except RuntimeError as error:
        if "torch" not in sys.modules:
            raise
        from minibert.training.devices import lost_process

        lost = lost_process(error)
        if lost is None:
            raise
        say_error(str(lost))
        leave(2)
    except SystemExit as ended:
        if isinstance(ended, Ended) and os.environ.get("RANK", "0") == "0":
            with suppress(OSError):  # of a terminal that is gone
                click.echo(f"minibert: ended by {ended.by}", err=True)
        if isinstance(ended.code, str):
            raise
        leave(ended.code or 0)


class Ended(SystemExit):
    """The end that a signal has asked for; said when all else that is on the terminal is whole."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.by = signal.Signals(number).name


def stand_in_for_closed_streams() -> None:
    """Nobody has to be listening (2>&-): what is closed is nowhere, and no file that is opened takes its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def told_to_end(number: int, frame: object) -> None:
    """What SIGTERM and the end of the terminal do outside of training."""
    raise Ended(number)


def leave(code: int) -> None:
    """Exit. One of several processes leaves without tearing torch down: threads of its group are still there, and one
    time in twenty the process ended with SIGABRT after all was done (torch 2.13, gloo)."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):  # the launcher sends one where another process has ended before
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def say_error(text: str) -> None:
    """One message on stderr; of several processes on a machine the first that has something to say says it."""
    word, (problem, fix, mend) = "error:", printable(text).partition(FIX)
    if has_colour(sys.stderr):
        word, mend = click.style(word, fg="red", bold=True), click.style(mend, fg="green")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or is_first_to_speak():
        with suppress(OSError):  # standard error may go to the full disk that is spoken of
            click.echo(f"minibert: {word} {problem}{fix}{mend}", err=True)


def is_first_to_speak() -> bool:
    """Whether no other process of this run on this machine has said why it ends, as far as that can be known."""
    report = Path(os.environ.get("TORCHELASTIC_ERROR_FILE", ""))  # in a folder that the launcher makes for each process
    if report.name == "error.json":
        with suppress(OSError):
            (report.parents[1] / "minibert-has-said-why").touch(exist_ok=False)
            return True
        if report.parents[1].is_dir():
            return False
    return os.environ.get("RANK", "0") == "0"


class Commands(click.Group):
    """The commands, in the sections in which a newcomer looks for them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, found in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(str(command.name), in_short(command)) for command in found])


def in_short(command: click.Command) -> str:
    """The first words of a command's help, up to the end of what stands by itself."""
    return re.split(r"[:;]|\.$", command.get_short_help_str(1000))[0]


@click.group(cls=Commands, context_settings=HELP_SETTINGS, invoke_without_command=True)
@click.version_option(__version__, prog_name="minibert")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """From raw text to a BERT, and from a BERT to an answer. `minibert COMMAND --help` says more."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


SECTIONS = {
    "Train": (pretrain, finetune),
    "Use a model": (fill_mask, predict, evaluate, embed),
    "Look inside": (report, attention, trace),
    "Before training": (check, vocab, prepare),
    "Other formats": (convert, export),
    "Lists": (recipes, tasks),
}
commands.context_class = Context
for command in (command for found in SECTIONS.values() for command in found):
    command.context_class = Context
    commands.add_command(command)
