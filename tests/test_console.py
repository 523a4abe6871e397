"""What is printed, and that nobody has to be there to read it."""

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from minibert import console
from minibert.console import Standing, clock, print_text, short, sparkline, wrapped

COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
TRAINING = """
from minibert.console import Console, Standing
console = Console()
def standing(step, loss):
    curve = tuple(9 - i / 10 for i in range(step))
    parts = (f"step {step}", f"mlm loss {loss:.3f} falling", "held-out 5.21", "best 5.104")
    return Standing(parts, "lr 1.00e-03", "12,345 tokens/s", curve)
"""
SHOWN = (
    TRAINING
    + """
with console.progress("training", 1.0) as update:
    update(0.25, standing(25, 5.5))
    wait()
    update(0.5, standing(50, 5.123))
    wait()
    update(1.0, standing(100, 5.0))
console.say("after it")
"""
)


def halfway(shell):
    """The screen in the middle of SHOWN."""
    shell.until(lambda lines: lines[-1].startswith("step 25"))
    shell.go()
    return shell.until(lambda lines: "left" in lines[0] and lines[-1].startswith("step 50"))


# ---- on a terminal


@pytest.mark.parametrize(("columns", "parts"), [(60, 4), (80, 4), (200, 4), (40, 2)])
def test_in_the_middle_a_person_sees_how_far_how_long_and_how_it_stands(terminal, columns, parts):
    first, second = halfway(terminal(SHOWN, columns=columns))
    assert re.match(r"training (━+─+)? *50%  \d+:\d\d left", first)
    assert ("  12,345 tokens/s" in first) == (columns >= 60)
    assert second.startswith("  ".join(("step 50", "mlm loss 5.123 falling", "held-out 5.21", "best 5.104")[:parts]))
    assert max(len(first), len(second)) < min(columns, 101)
    assert ("█" in second) == (columns != 60)  # what the words leave room for
    if columns >= 60:
        bar = re.findall("[━─]", first)
        assert abs(bar.count("━") - bar.count("─")) <= 1


def test_at_the_end_the_bar_is_whole_and_what_follows_stands_below(terminal):
    shell = terminal(SHOWN)
    halfway(shell)
    shell.go()
    first, second, third = shell.end()
    assert re.fullmatch(r"training ━+ 100%  in \d:\d\d  12,345 tokens/s", first)
    assert second.startswith("step 100  mlm loss 5.000 falling")
    assert third == "after it"
    assert not shell.screen.cursor.hidden


def test_what_is_said_while_a_bar_is_there_stands_above_it(terminal):
    code = (
        TRAINING
        + """
import warnings
from minibert.console import print_text
with console.progress("training", 1.0) as update:
    update(0.25, standing(25, 5.5))
    wait()
    console.say("said")
    console.warn("warned")
    warnings.warn("of a library", stacklevel=1)
    print("an error", file=sys.stderr)
    print_text("a result\\n")
    console.warn_from_signal("a signal")
    update(0.5, standing(50, 5.123))
    wait()
"""
    )
    shell = terminal(code)
    halfway_lines = shell.until(lambda lines: lines[-1].startswith("step 25"))
    assert len(halfway_lines) == 2
    shell.go()
    lines = shell.until(lambda lines: lines[-1] == "a signal")
    assert lines[:2] == ["said", "warning: warned"]
    assert "UserWarning: of a library" in lines[2]
    assert lines[-5:-3] == ["an error", "a result"]
    assert [lines[-3][:8], lines[-2][:7]] == ["training", "step 50"]
    shell.go()
    assert shell.end() == [*lines[:-3], *shell.lines()[-3:]]


@pytest.mark.parametrize("end", ["raise KeyError('a bug')", "sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_bar_that_is_cut_off_is_left_whole(terminal, end):
    code = (
        TRAINING
        + f"""
with console.progress("training", 1.0) as update:
    update(0.25, standing(25, 5.5))
    wait()
    {end}
"""
    )
    shell = terminal(code)
    shell.until(lambda lines: lines[-1].startswith("step 25"))
    shell.go()
    lines = shell.end()
    assert [line[:8] for line in lines if "training" in line[:8]] == ["training"]
    assert lines[1].startswith("step 25  mlm loss 5.500 falling")
    assert len(lines) == 2 or lines[-1] == "KeyError: 'a bug'"
    assert not shell.screen.cursor.hidden


def test_a_window_of_another_width_is_filled_and_no_more(terminal):
    shell = terminal(SHOWN, columns=100, COLUMNS="100", LINES="40")  # exported, as some shells do
    halfway(shell)
    shell.resize(60)
    shell.until(lambda lines: "tokens/s" in lines[-2] and len(lines[-2]) < 60)
    assert shell.lines()[-1] == "step 50  mlm loss 5.123 falling  held-out 5.21  best 5.104"
    shell.go()
    assert shell.end()[-1] == "after it"


def test_no_color_takes_the_colours_and_leaves_the_bar(terminal):
    environments = ({}, {"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"NO_COLOR": "1", "FORCE_COLOR": ""})
    shells = [terminal(SHOWN, **environment) for environment in environments]
    for shell in shells:
        assert halfway(shell)[0].startswith("training ━")
    assert [bool(COLOURS.search(shell.raw)) for shell in shells] == [True, False, True, False]


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(terminal):
    shell = terminal(SHOWN, TERM="dumb")
    shell.go()
    shell.go()
    first, *_, last = shell.end()
    assert first.startswith("training  25%  step 25  mlm loss 5.500 falling")
    assert last == "after it"
    assert b"\x1b" not in shell.raw


def test_a_terminal_without_unicode_gets_letters(terminal):
    shell = terminal(SHOWN, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    first, second = halfway(shell)
    assert re.match(r"training #+-+ *50%", first)
    assert second.isascii()


def test_a_bar_without_an_end_counts_and_says_how_fast(terminal):
    code = """
from minibert.console import Console, counting
with Console().progress("tokens", unit="characters") as update:
    add = counting(update)
    add(2_000_000)
    wait()
    add(1_000_000)
    wait()
"""
    shell = terminal(code)
    shell.until(lambda lines: re.fullmatch(r"tokens  in 0:\d\d  2.0 million characters", lines[0]))
    shell.go()
    shell.until(
        lambda lines: re.fullmatch(r"tokens  in 0:\d\d  3.0 million characters, [\d,.]+( million)?/s", lines[0])
    )


def test_prose_is_broken_between_words_and_commands_are_not(terminal):
    code = (
        TRAINING
        + """
console.warn("the text is long, " * 4 + "resume with: `minibert pretrain --out runs/one --resume`")
console.table("data", [("documents", "many words of a value " * 4)])
console.results("done", ["", "dev"], [["accuracy", "0.5"]], [("try it", "minibert predict --model " + "x" * 50)])
"""
    )
    lines = terminal(code, columns=60).end()
    assert lines[:4] == [
        "warning: the text is long, the text is long, the text is",
        "  long, the text is long, resume with:",
        "  `minibert pretrain --out runs/one --resume`",
        "data",
    ]
    assert lines[5] == "             many words of a value many words of a value"
    assert lines[-6:] == [
        "          dev", "accuracy  0.5", "next", "  try it", "    minibert predict --model " + "x" * 31, "x" * 19,
    ]  # fmt: skip


def test_prose_on_a_wide_terminal_stays_readable(terminal):
    lines = terminal(TRAINING + "console.say('some words ' * 40)", columns=200).end()
    assert 90 < max(map(len, lines)) <= 100


# ---- in a pipe


def piped(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"LC_ALL": "C.UTF-8", **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "\x1b" not in done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1", "TERM": "xterm"}])
def test_lines_in_a_pipe_are_few_and_say_nothing_twice(environment):
    code = (
        TRAINING
        + """
with console.progress("training", 1.0) as update:
    for step in range(1, 1001):
        update(step / 1000, standing(step // 70 * 70, 5.0))
console.warn("warned")
"""
    )
    *lines, last = piped(code, **environment)
    assert last == "warning: warned"
    assert len(lines) == len(set(re.findall(r"step \d+", "\n".join(lines)))) == 15
    assert lines[0].startswith(
        "training   5%  step 0  mlm loss 5.000 falling  held-out 5.21  best 5.104  lr 1.00e-03  12,3"
    )
    assert lines[-1].startswith("training  98%  step 980")


def test_numbers_in_a_pipe_count_to_the_end():
    code = "from minibert.console import *\nwith Console().progress('predicting', 50, 'records') as update:\n"
    lines = piped(code + "    for i in range(51): update(i)")
    assert lines[0].startswith("predicting   6%  3 of 50 records")
    assert re.fullmatch(r"predicting 100%  50 of 50 records, .*/s  in 0:00", lines[-1])
    assert len(lines) == 20


def test_quiet_leaves_warnings_alone():
    code = (
        TRAINING.replace("Console()", "Console(quiet=True)")
        + """
with console.progress("training", 1.0) as update:
    update(1.0, standing(1, 5.0))
console.say("said")
console.results("done", ["", "dev"], [["accuracy", "0.5"]], [("try it", "minibert predict")])
console.warn("warned")
"""
    )
    assert piped(code) == ["warning: warned"]


# ---- the words


def test_clock():
    assert [clock(s) for s in (0, 59.9, 61, 3600, 48 * 3600 + 3599)] == ["0:00", "0:59", "1:01", "1:00:00", "2 d 0 h"]


def test_short():
    assert [short(n) for n in (0, 7.25, 7, 12345.6, 12_345_678)] == ["0", "7.2", "7", "12,346", "12.3 million"]


def test_sparkline_keeps_the_ends():
    assert sparkline([9, 5, 1], 5) == "█▄▁"
    assert sparkline([2, 2], 5) == "▁▁"
    long = sparkline([*range(1000)], 24)
    assert (len(long), long[0], long[-1]) == (24, "▁", "█")


def test_words_wrap_by_their_width():
    assert wrapped("汉字 汉字 汉字", 10) == "汉字 汉字\n  汉字"
    assert wrapped("", 10) == ""
    assert wrapped("/a/path/that/is/long and more", 10) == "/a/path/that/is/long\n  and more"


def test_time_left_is_that_of_the_pace_since_this_part_began(monkeypatch):
    """A run that goes on at 50 % has not done these in no time."""
    now = [100.0]
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
    way = console._Way("training", 1.0, "")
    assert way.time() == ""
    for now[0], share in ((110.0, 0.5), (120.0, 0.625), (130.0, 0.75)):
        way(share)
    assert way.time() == "0:20 left"
    now[0] = 145.0  # measuring meanwhile
    assert way.time() == "0:05 left"
    now[0] = 999.0
    assert way.time() == "0:00 left"
    way(1.0, Standing(("step 1",)))
    assert way.time() == "in 14:59"


# ---- nobody there

RUN = """
import os, sys
from minibert.console import Console, Standing
console = Console()
read, write = os.pipe()
if sys.argv[1] == "pipe":
    os.close(read)
    os.dup2(write, 2)
else:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
console.say("said")
console.warn("warned")
console.table("table", [("a", "b")])
with console.progress("training", 1.0) as update:
    update(0.5, Standing(("half",)))
print("went on")
"""


@pytest.mark.parametrize("end", ["pipe", "full"])
def test_a_reader_that_has_gone_ends_nothing(end):
    """A closed terminal, `2>&1 | head`, a log on a full disk: the run goes on, and its exit code is its own."""
    done = subprocess.run([sys.executable, "-c", RUN, end], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == "went on\n"
    assert done.returncode == 0


def test_results_are_whole_where_less_is_written_than_was_given(monkeypatch):
    """As PYTHONUNBUFFERED has it."""

    class Short(io.BytesIO):
        def write(self, data):
            return super().write(bytes(data[:3]))

    stream = SimpleNamespace(buffer=Short(), flush=lambda: None, isatty=lambda: False)
    monkeypatch.setattr(sys, "stdout", stream)
    print_text("ten letters\n")
    assert stream.buffer.getvalue() == b"ten letters\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_into_a_full_disk_are_one_message(unbuffered):
    code = "from minibert.cli import commands, main; import minibert.console as c; "
    code += "commands.main = lambda **how: c.print_text('x' * 5000); main()"
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            env={"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "minibert: error: standard output: cannot be written: No space left on device\n"
        "  fix: make room, or name a file: --out\n"
    )


def test_a_window_that_is_closed_ends_nothing(terminal, tmp_path):
    code = (
        "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        + TRAINING
        + """
import time
with console.progress("training", 1.0) as update:
    update(0.25, standing(25, 5.5))
    wait()
    time.sleep(0.6)  # the bar is drawn meanwhile
    console.say("said")
    print("an error", file=sys.stderr)
console.results("done", ["", "dev"], [["accuracy", "0.5"]], [("try it", "minibert predict")])
open(sys.argv[1], "w").close()
"""
    )
    shell = terminal(code, tmp_path / "went on")
    shell.until(lambda lines: lines[-1].startswith("step 25"))
    shell.close()
    shell.go()
    assert shell.process.wait(60) == 0
    assert (tmp_path / "went on").exists()
