"""The command line as a person meets it: exit codes, messages, files."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = (
    "--steps 2 --layers 1 --hidden-size 16 --heads 2 --vocab-size 80 --max-length 32 --batch-size 4 "
    "--micro-batch-size 4 --precision fp32"
).split()


def run(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "minibert", *map(str, args)], capture_output=True, text=True, timeout=120, **options
    )


@pytest.fixture
def here(monkeypatch, capfd):
    """run in this process, which has torch already: the same program from main on, without a new process's seconds."""
    from accelerate.state import AcceleratorState

    from minibert import cli

    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGHUP)}

    def call(*args, cwd=None):
        monkeypatch.setattr(sys, "argv", ["minibert", *map(str, args)])
        if cwd is not None:
            monkeypatch.chdir(cwd)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capfd.readouterr()
        AcceleratorState._reset_state(reset_partial_state=True)
        return subprocess.CompletedProcess(args, ended.value.code, said.out, said.err)

    yield call
    for name, handler in before.items():
        signal.signal(name, handler)


def refused(done, *said):
    """Exit code 2 and one message without a traceback."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("minibert: error: ") == 1
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr


def test_version_and_help():
    assert run("--version").stdout.startswith("minibert")
    for command in ("pretrain", "finetune", "predict", "evaluate", "vocab", "check", "fill-mask", "tasks", "recipes"):
        assert "Usage" in run(command, "--help").stdout


def test_recipes_are_listed_and_shown():
    assert "mini-zh" in run("recipes").stdout
    assert "# Expected:" in run("recipes", "mini-zh").stdout
    assert "# Expected:" in run("recipes", "ner-zh").stdout
    refused(run("recipes", "miny"), "miny", "mini")


def test_tasks_are_listed():
    shown = run("tasks").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["cls", "ner", "qa"]
    assert "csv" in shown


def test_every_option_of_finetune_has_a_sentence():
    shown = run("finetune", "--help").stdout
    for name in (
        "--task --model --train --dev --test --out --recipe --resume --show-config --dry-run --quiet --text-column "
        "--pair-column --label-column --id-column --no-header --delimiter --multi-label --regression --class-weights "
        "--labels --scheme --format --stride --max-answer-length --n-best --null-threshold --max-length --batch-size "
        "--micro-batch-size --epochs --lr --warmup --patience --best --seed --seeds --freeze --encoding --precision"
    ).split():
        assert name in shown, name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "tagging"], ["--task: there is no task 'tagging'", "cls, ner, qa"]),
        ([], ["--task: no task was named", "cls, ner, qa"]),
        (["--task", "cls", "--stride", "3"], ["--stride: the task cls has no setting stride"]),
        (["--task", "cls"], ["--model: no model was named"]),
        (["--task", "cls", "--model", "nowhere", "--train", "x.csv"], ["there is no such file or folder", "nowhere"]),
        (["--task", "cls", "--model", "."], ["--train: no train was named"]),
        (["--task", "cls", "--model", ".", "--train", "."], ["is a folder; a file is needed"]),
        (["--task", "cls", "--epochs", "0"], ["epochs is 0.0"]),
        (["--task", "cls", "--recipe", "clz"], ["there is no recipe 'clz'", "did you mean 'cls"]),
        (["--task", "cls", "--batch-size", "6", "--micro-batch-size", "4"], ["batch_size (6) is not a multiple"]),
        (["--task", "cls", "--freeze", "all"], ["freeze is 'all'"]),
    ],
)
def test_finetune_refuses_in_one_message(words, said, tmp_path):
    refused(run("finetune", *words, "--out", "run", cwd=tmp_path), *said)
    assert not (tmp_path / "run").exists()


def test_settings_of_a_task_are_shown(tmp_path):
    shown = json.loads(run("finetune", "--task", "qa", "--recipe", "qa-zh", "--lr", "0.1", "--show-config").stdout)
    assert (shown["settings"]["lr"], shown["settings"]["epochs"], shown["settings"]["stride"]) == (0.1, 4.0, 128)


def test_every_option_of_pretrain_has_a_sentence():
    shown = run("pretrain", "--help").stdout
    for name in (
        "--out --recipe --from --tokenizer --steps --epochs --minutes --batch-size --micro-batch-size --max-length "
        "--lr --warmup --weight-decay --dropout --mask-rate --mask-unit --nsp/--no-nsp --layers --hidden-size --heads "
        "--ffn-size --positions --norm --activation --optimizer --init --precision --eval-share --eval-every "
        "--save-every --keep --log-every --seed --workers --compile/--no-compile --show-config --dry-run --resume "
        "--uncased/--cased --strip-accents/--keep-accents --vocab-size --encoding --text-field --tracker --quiet"
    ).split():
        assert name.split("/")[0] in shown, name


def test_pretrain_then_fill_mask(corpus, tmp_path):
    done = run("pretrain", corpus, "--out", tmp_path / "run", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert re.search(r"^\[MASK\] accuracy +\d+\.\d% +\d+\.\d%$", done.stderr, re.MULTILINE)
    (command,) = re.findall(r"^  try it +minibert (.*)$", done.stderr, re.MULTILINE)
    tried = run(*shlex.split(command))
    assert (tried.returncode, tried.stdout.count("%")) == (0, 5), tried.stderr
    answers = run("fill-mask", "--model", tmp_path / "run", "--top-k", 3, "the [MASK] runs and [MASK] sings")
    assert answers.returncode == 0, answers.stderr
    lines = answers.stdout.splitlines()
    assert lines[0] == "the [MASK] runs and [MASK] sings"
    assert len(lines) == 3
    assert all(line.count("%") == 3 for line in lines[1:])
    read = run("fill-mask", "--model", tmp_path / "run", "--json", "-", input="a [MASK]\nb [MASK] c [MASK]\n")
    objects = [json.loads(line) for line in read.stdout.splitlines()]
    assert [len(item["masks"]) for item in objects] == [1, 2]
    # a second run into the same folder is refused, and the first stays as it is
    before = (tmp_path / "run/metrics.json").read_bytes()
    refused(run("pretrain", corpus, "--out", tmp_path / "run", *SMALL), "finished run", "--out")
    assert (tmp_path / "run/metrics.json").read_bytes() == before
    resumed = run("pretrain", corpus, "--out", tmp_path / "run", "--resume")
    assert resumed.returncode == 0
    assert "nothing to resume" in resumed.stderr


def test_standard_input_is_a_corpus(corpus, tmp_path):
    done = run("pretrain", "-", "--out", tmp_path / "run", *SMALL, input=corpus.read_text("utf-8"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run/data.json").read_text())["documents"] == 40


def test_vocab_alone_serves_a_later_run(corpus, tmp_path, here):
    done = here("vocab", corpus, "--out", tmp_path / "v", "--vocab-size", 60)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "v/vocab.txt").read_text("utf-8").splitlines()
    assert len(lines) <= 60
    small = [flag for flag in SMALL if flag not in ("--vocab-size", "80")]
    done = here("pretrain", corpus, "--out", tmp_path / "run", "--tokenizer", tmp_path / "v", *small)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/vocab.txt").read_bytes() == (tmp_path / "v/vocab.txt").read_bytes()
    refused(here("vocab", corpus, "--out", tmp_path / "v"), "not empty")


def test_show_config_is_json_that_a_recipe_can_be(tmp_path):
    done = run("pretrain", "--show-config", "--layers", 7)
    settings = json.loads(done.stdout)["settings"]
    assert settings["layers"] == 7
    (tmp_path / "s.json").write_text(done.stdout)
    again = run("pretrain", "--show-config", "--recipe", tmp_path / "s.json")
    assert json.loads(again.stdout)["settings"] == settings


def test_dry_run_needs_no_out_and_writes_nothing(corpus, tmp_path, here):
    done = here("pretrain", corpus, "--dry-run", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "documents" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.txt"]


def test_quiet_says_nothing(corpus, tmp_path):
    done = run("pretrain", corpus, "--out", tmp_path / "run", "--quiet", *SMALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_resume_is_the_run_that_was_begun(corpus, tmp_path, here):
    out = tmp_path / "run"
    done = here("pretrain", corpus, "--out", out, *SMALL)
    (out / "metrics.json").unlink()  # as if it had been killed before the end
    refused(here("pretrain", "--out", out, "--resume", "--lr", "0.5"), "lr", "0.5")
    refused(here("pretrain", tmp_path, "--out", out, "--resume"), "corpus differs")
    refused(here("pretrain", corpus, "--out", out), "--resume")
    done = here("pretrain", "--out", out, "--resume", cwd="/")
    assert done.returncode == 0, done.stderr
    assert (out / "metrics.json").is_file()
    new = here("pretrain", corpus, "--out", tmp_path / "new", "--resume", *SMALL)
    assert "nothing to resume" in new.stderr
    assert new.returncode == 0


def test_bare_vocabulary_is_cased_or_not_as_the_flag_says(corpus, tmp_path, here):
    letters = "abcdefghijklmnopqrstuvwxyz"
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *"RB."]
    (tmp_path / "v.txt").write_text("\n".join(entries) + "\n")
    small = [flag for flag in SMALL if flag not in ("--vocab-size", "80")]
    for flag, lower in (("--cased", False), ("--uncased", True)):
        out = tmp_path / flag
        done = here("pretrain", corpus, "--out", out, "--tokenizer", tmp_path / "v.txt", flag, *small)
        assert done.returncode == 0, done.stderr
        assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is lower


def test_from_a_checkpoint_is_gentle_by_default(tmp_path):
    shown = run("pretrain", "--show-config", "--from", "somewhere").stdout
    assert json.loads(shown)["settings"]["lr"] == 5e-5
    assert json.loads(shown)["settings"]["optimizer"] == "adamw"


def test_missing_things_are_named(here):
    refused(here("pretrain"), "no text was named")
    refused(here("pretrain", "x.txt"), "--out")
    refused(here("pretrain", "absent.txt", "--out", "r", *SMALL), "absent.txt")
    refused(here("fill-mask", "--model", "nowhere", "a [MASK]"), "nowhere")
    refused(here("pretrain", "--recipe", "quik", "x", "--out", "r"), "quik", "quick")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--layer", "3"], "--layer"),
        (["--layers", "three"], "three"),
        (["--norm", "between"], "between"),
        (["--batch-size", "10", "--micro-batch-size", "4"], "micro_batch_size (4)"),
        (["--steps", "5", "--minutes", "1"], "steps and minutes"),
        (["--encoding", "klingon"], "klingon"),
        (["--from", "a", "--layers", "3"], "layers"),
        (["--tokenizer", "absent/vocab.txt"], "absent"),
    ],
)
def test_wrong_options_are_one_message_before_anything_is_written(corpus, tmp_path, args, said):
    done = run("pretrain", corpus, "--out", tmp_path / "run", *args)
    refused(done, said)
    assert not (tmp_path / "run").exists()


def test_text_that_cannot_be_decoded_names_file_place_and_option(tmp_path, here):
    path = tmp_path / "gb.txt"
    path.write_bytes("中文文本。\n第二句。\n".encode("gb18030"))
    done = here("pretrain", path, "--out", tmp_path / "run", *SMALL)
    refused(done, "gb.txt", "1", "--encoding")
    assert not (tmp_path / "run").exists()
    done = here("pretrain", path, "--out", tmp_path / "run", "--encoding", "gb18030", "--no-nsp", *SMALL)
    assert done.returncode == 0, done.stderr


def test_locale_of_the_machine_does_not_matter(tmp_path):
    path = tmp_path / "zh.txt"
    path.write_text("中文文本。\n第二句。\n\n另一篇。\n还有一句。\n", encoding="utf-8")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("pretrain", path, "--out", tmp_path / "run", *SMALL, env=environment)
    assert done.returncode == 0, done.stderr
    assert "中" in (tmp_path / "run/vocab.txt").read_text("utf-8").splitlines()


def test_no_file_is_opened_in_the_locales_encoding(tmp_path, corpus):
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "default::EncodingWarning", "-m", "minibert"]
    done = subprocess.run(
        [*command, "pretrain", str(corpus), "--out", str(tmp_path / "run"), *SMALL], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    own = str(Path(__file__).resolve().parent.parent / "minibert")
    assert [line for line in done.stderr.splitlines() if "EncodingWarning" in line and own in line] == []


def test_without_a_terminal_progress_is_plain_lines(corpus, tmp_path):
    done = run("pretrain", corpus, "--out", tmp_path / "run", *SMALL, "--steps", "20")
    lines = [line for line in done.stderr.splitlines() if line.startswith("training ")]
    assert 2 <= len(lines) <= 12
    assert "\x1b" not in done.stderr


def test_unwritable_out_is_a_users_matter(corpus, tmp_path, here):
    (tmp_path / "file").write_text("")
    done = here("pretrain", corpus, "--out", tmp_path / "file" / "run", *SMALL)
    refused(done, "run")


def test_a_closed_terminal_ends_the_program_cleanly():
    code = (
        "import os, signal, minibert.cli as cli\n"
        "cli.commands.main = lambda **how: os.kill(os.getpid(), signal.SIGHUP)\n"
    )
    nohup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    for before, status, said in (("", 129, "minibert: ended by SIGHUP\n"), (nohup, 0, "")):
        done = subprocess.run([sys.executable, "-c", before + code + "cli.main()"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.parametrize(
    ("number", "ends"), [(errno.EACCES, SystemExit), (errno.ENAMETOOLONG, SystemExit), (errno.ENOENT, OSError)]
)
def test_a_path_that_the_system_refuses_is_a_users_matter(number, ends, monkeypatch, capsys):
    from minibert import cli

    def refuse(**how):
        raise OSError(number, os.strerror(number), "/some/where")

    monkeypatch.setattr(cli.commands, "main", refuse)
    with pytest.raises(ends) as caught:
        cli.main()
    if ends is SystemExit:
        assert caught.value.code == 2
        assert capsys.readouterr().err.startswith(f"minibert: error: /some/where: {os.strerror(number)}\n  fix: ")


def test_standard_input_of_predict_that_finds_no_room_is_one_message(monkeypatch, tmp_path):
    import shutil

    from minibert.cli import sources
    from minibert.errors import UserError

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(UserError, match="cannot be written: No space"), sources.labelled_file(tmp_path / "pipe", None):
        pass
    os.close(writer)


def test_full_disk_without_a_name_is_a_users_matter(monkeypatch, capsys):
    from minibert import cli

    def full(**how):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli.commands, "main", full)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "No space left on device\n  fix: make room" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_resuming_a_finished_run_clears_up_what_a_kill_at_its_end_has_left(tmp_path, command):
    for name in ("settings.json", "metrics.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "checkpoints/step-000002").mkdir(parents=True)
    (tmp_path / ".lock").write_text("")
    done = run(command, "--out", tmp_path, "--resume")
    assert done.returncode == 0
    assert "nothing to resume" in done.stderr
    left = {path.name for path in tmp_path.iterdir()} - {"settings.json", "metrics.json"}
    assert left == ({"checkpoints"} if command == "pretrain" else set())  # a fine-tuning's are of no use any more


# ---- on a terminal

PROGRAM = "import runpy\nrunpy.run_module('minibert', run_name='__main__', alter_sys=True)\n"
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    "words",
    [["pretrain"], ["pretrain", "--layers", "three"], ["nonsense"], ["recipes", "\x1b[31mred"], ["\x1b[31mred"]],
    ids=["ours", "a value", "a command", "control characters", "control characters in a command"],
)
def test_errors_have_one_look_and_in_a_pipe_the_same_characters(words, terminal):
    plain = run(*words)
    refused(plain, "\n  fix: ")
    assert "\x1b" not in plain.stderr
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        shell = terminal(PROGRAM, *words, columns=200, **environment)
        shell.end()
        shown = shell.raw.decode().replace("\r\n", "\n")
        assert shell.code == 2
        assert SGR.sub("", shown) == plain.stderr
        assert bool(SGR.search(shown)) == coloured
        if coloured:
            assert shown.startswith("minibert: \x1b[31m\x1b[1merror:\x1b[0m ")
            assert "\n  fix: \x1b[32m" in shown


SECTIONS = {
    "pretrain": ["Main options", "Data", "Model", "Training", "Measuring and saving", "Machine", "More"],
    "finetune": [
        "Main options", "Data", "Training", "Measuring and saving", "Machine", "Task cls alone", "Task ner alone",
        "Tasks ner and qa alone", "Task qa alone", "More",
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", SECTIONS)
def test_help_has_sections_is_plain_in_a_pipe_and_never_wide(command, terminal):
    wide = run(command, "--help", env={**os.environ, "COLUMNS": "300"}).stdout
    assert re.findall(r"^(\S.*):$", wide, re.MULTILINE) == SECTIONS[command]
    assert 90 < max(map(len, wide.splitlines())) <= 100
    assert "\x1b" not in wide
    main, more = wide.split("Main options:\n")[1].split("\n\n")[0], wide.split("More:\n")[1]
    assert "--out PATH" in main
    assert [line.split()[0] for line in more.splitlines() if line[2:3] == "-"][-3:] == ["--dry-run", "--quiet", "-h,"]
    shell = terminal(PROGRAM, command, "--help", columns=102)
    lines = shell.end()
    assert "\n".join(lines) == wide.strip("\n")
    assert b"\x1b[1mMain options:\x1b[0m" in shell.raw


def test_every_setting_stands_in_its_section_once():
    from minibert.config import FinetuneConfig, PretrainConfig, sections

    assert set(sections(PretrainConfig).values()) == set(SECTIONS["pretrain"][1:-1])
    assert set(sections(FinetuneConfig).values()) == set(SECTIONS["finetune"][1:5])
    shown = run("pretrain", "--help").stdout
    for name in sections(PretrainConfig):
        flag = {"lowercase": "--uncased"}.get(name, f"--{name.replace('_', '-')}")
        assert len(re.findall(rf"^  {flag}(?![\w-])", shown, re.MULTILINE)) == 1, name


def test_the_program_alone_shows_every_command():
    from minibert.cli import commands

    done = run()
    assert done.returncode == 0
    assert done.stdout == run("--help").stdout
    assert done.stderr == ""
    listed = re.findall(r"^  ([a-z][a-z-]*)  ", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(commands.commands)


def test_ctrl_c_in_the_middle_of_training_leaves_a_whole_screen_and_says_how_to_go_on(corpus, tmp_path, terminal):
    words = ["pretrain", corpus, "--out", tmp_path / "run", *SMALL, "--steps", "1000000", "--eval-every", "0"]
    shell = terminal(PROGRAM, *words, columns=60)
    shell.until(lambda lines: re.search(r"left .*\n.*(falling|level|rising)", "\n".join(lines[-2:])))
    *_, bar, standing = shell.lines()
    assert re.match(r"training ─+   0%  .* left  [\d,]+ tokens/s$", bar)
    assert re.match(r"step \d+  mlm loss \d\.\d{3} \(20-step mean\) [a-z]+", standing)
    assert "held-out" not in standing  # nothing is measured after the first step
    shell.press(b"\x03")
    lines = shell.end()
    assert shell.code == 130
    assert [line[:9] for line in lines if line.startswith("training ")] == ["training "]
    assert lines.count("SIGINT: saving, then ending; once more ends at once") == 1
    assert "which is saved; resume with:" in "".join(lines[-4:])
    assert shlex.quote(str(tmp_path / "run")) in "".join(lines[-4:])
    assert max(map(len, lines)) <= 60
    assert not shell.screen.cursor.hidden


def test_ctrl_c_before_the_training_is_one_line(terminal):
    code = """
import minibert.cli as cli
from minibert.console import Console
def command(**how):
    with Console().progress("tokens", unit="characters") as update:
        update(1)
        wait()
cli.commands.main = command
cli.main()
"""
    for keys, number, code_of in ((b"\x03", 130, "minibert: interrupted"), (None, 143, "minibert: ended by SIGTERM")):
        shell = terminal(code)
        shell.until(lambda lines: lines[0].startswith("tokens  in 0:00  1 characters"))
        if keys is None:
            shell.process.terminate()
        else:
            shell.press(keys)
        first, second = shell.end()
        assert first.startswith("tokens  in 0:")
        assert (second, shell.code) == (code_of, number)


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_nobody_has_to_listen(corpus, tmp_path, closed):
    """A closed stream ends nothing, and no file of the program takes its place."""
    command = shlex.join([sys.executable, "-m", "minibert", "vocab", str(corpus), "--out", str(tmp_path / "v")])
    done = subprocess.run(["bash", "-c", f"{command} {closed}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "v/vocab.txt").read_text("utf-8").startswith("[PAD]\n")
