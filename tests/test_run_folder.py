"""A run's folder: refused where it holds something, continued only as it was."""

import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from minibert import run_folder
from minibert.config import PretrainConfig
from minibert.errors import UserError
from minibert.run_folder import check_new, clear_up, held, lock, resumed_settings, save_settings


def begun(tmp_path, **settings):
    save_settings(tmp_path, "pretrain", PretrainConfig(**{"steps": 5, **settings}), {"corpus": ["a.txt"]})
    return tmp_path


def test_new_and_empty_folders_may_be_used(tmp_path):
    check_new(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    check_new(tmp_path / "empty")


def test_finished_run_is_refused(tmp_path):
    begun(tmp_path)
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(UserError, match="finished run"):
        check_new(tmp_path)


def test_unfinished_run_is_refused_with_the_way_on(tmp_path):
    with pytest.raises(UserError, match="--resume"):
        check_new(begun(tmp_path))


def test_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.doc").write_text("")
    with pytest.raises(UserError, match="other files"):
        check_new(tmp_path)


def test_file_in_the_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        check_new(tmp_path / "file")


def test_folder_in_use_is_refused_and_a_dead_owner_holds_nobody_up(tmp_path):
    first, second = (held(tmp_path / "run", resume=resume) for resume in (False, True))
    with first, pytest.raises(UserError, match="in use by another run"), second:
        pass
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.lock").write_text("")  # left by a process that was killed
    with held(tmp_path / "run", resume=False):
        (tmp_path / "run/settings.json").write_text("{}")
        (tmp_path / "run/log.jsonl").write_text('{"step": 1, "loss": 2}')
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["log.jsonl", "settings.json"]


def test_run_that_fails_before_its_first_step_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="x"), held(tmp_path / "run", resume=False):
        for name in ("settings.json", "data.json", "machine.json", "answers.json"):
            (tmp_path / "run" / name).write_text("{}")
        (tmp_path / "run/log.jsonl").write_text('{"step": 0, "eval": {}}')
        (tmp_path / "run/tensorboard").mkdir()
        raise ValueError("x")
    assert not (tmp_path / "run").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"), held(tmp_path / "file/run", resume=False):
        pass


def test_resumed_run_has_its_settings_and_may_change_what_changes_no_result(tmp_path):
    begun(tmp_path, lr=0.5, keep=2)
    config, saved = resumed_settings(PretrainConfig, tmp_path, {"keep": 9, "lr": 0.5})
    assert (config.lr, config.keep, config.steps) == (0.5, 9, 5)
    assert saved["corpus"] == ["a.txt"]


def test_resumed_run_may_not_become_another(tmp_path):
    begun(tmp_path, lr=0.5)
    with pytest.raises(UserError, match=r"lr \(0\.5 -> 0\.1\)"):
        resumed_settings(PretrainConfig, tmp_path, {"lr": 0.1})


def test_what_a_run_was_started_with_may_be_said_again(tmp_path):
    """One script starts a run and goes on with it."""
    recipe = {"minutes": 3.0, "lr": 0.5, "batch_size": 32}
    begun(tmp_path, lr=0.5, steps=60, batch_size=32)
    settings, _ = resumed_settings(PretrainConfig, tmp_path, {"steps": 60}, recipe)
    assert (settings.steps, settings.minutes, settings.lr) == (60, None, 0.5)
    with pytest.raises(UserError, match=r"this differs: batch_size \(32 -> 64\)"):
        resumed_settings(PretrainConfig, tmp_path, {"steps": 60}, {**recipe, "batch_size": 64})
    with pytest.raises(UserError, match=r"minutes \(None -> 3\.0\)"):
        resumed_settings(PretrainConfig, tmp_path, {}, recipe)


@pytest.mark.parametrize("content", ["{", "[]", '{"settings": 1}'])
def test_broken_settings_are_user_errors(tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UserError, match=r"settings\.json"):
        resumed_settings(PretrainConfig, tmp_path, {})


@pytest.mark.parametrize("names", [("settings.json", "log.jsonl"), ("log.jsonl", "data.json", "seeds/0/precious")])
def test_a_start_that_is_refused_deletes_nothing(tmp_path, names):
    """An unfinished run without a checkpoint, or somebody else's files of the same names."""
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError), held(tmp_path, resume=False):
        pass
    assert all((tmp_path / name).is_file() for name in names)


def test_start_that_was_killed_while_it_wrote_its_settings_is_none(tmp_path):
    """Nothing to resume is there, and nothing that would keep a new start out."""
    (tmp_path / "settings.json.partial-elsewhere-1").write_text("{")
    (tmp_path / ".lock").write_text("")
    check_new(tmp_path)
    with held(tmp_path, resume=False):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "thesis.partial-elsewhere-1").write_text("precious")
    with pytest.raises(UserError, match="other files"), held(tmp_path, resume=False):
        pass
    assert (tmp_path / "thesis.partial-elsewhere-1").exists()


def test_resumed_run_clears_what_a_killed_one_has_left_on_whatever_machine(tmp_path):
    begun(tmp_path)
    for name in ("checkpoints/step-000002", "seeds/1/checkpoints/step-000004", ".model", "log.jsonl", "seeds/0/.model"):
        (tmp_path / f"{name}.partial-elsewhere-1").mkdir(parents=True)
    with held(tmp_path, resume=True):
        assert not list(tmp_path.rglob("*.partial-*"))


def test_checkpoints_of_a_fine_tuning_that_was_killed_at_its_end_are_cleared_up(tmp_path):
    (begun(tmp_path) / "checkpoints/step-000001").mkdir(parents=True)
    (tmp_path / "metrics.json").write_text("{}")
    with held(tmp_path, resume=True):
        clear_up(tmp_path, "checkpoints")
        assert (tmp_path / "checkpoints").exists()  # its owner is still at it
    clear_up(tmp_path, "checkpoints")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.json", "settings.json"]


def test_published_model_without_metrics_is_a_run_to_go_on_with(tmp_path):
    with pytest.raises(ValueError, match="x"), held(tmp_path, resume=False):
        save_settings(tmp_path, "pretrain", PretrainConfig(steps=5), {})
        (tmp_path / "model.safetensors").write_text("weights")
        raise ValueError("x")
    assert (tmp_path / "settings.json").exists()


def test_lock_that_its_owner_has_deleted_meanwhile_keeps_nobody_out(tmp_path, monkeypatch):
    """A has the lock; B opens its file; A deletes it and goes; C makes a new one. B must not think that it is alone."""
    flock, others = run_folder.fcntl.flock, []

    def late(handle, how):
        if not others:
            (tmp_path / ".lock").unlink()
            third = lock(tmp_path)
            others.append(third)
            assert third.__enter__()
        flock(handle, how)

    monkeypatch.setattr(run_folder.fcntl, "flock", late)
    with pytest.raises(UserError, match="in use by another run"), lock(tmp_path):
        pass
    others[0].__exit__(None, None, None)
    with lock(tmp_path) as alone:
        assert alone


def test_folder_that_vanishes_while_it_is_locked_is_made_again(tmp_path, monkeypatch):
    made, times = type(tmp_path).mkdir, []

    def vanishing(self, **options):
        made(self, **options)
        if len(times) < 3:
            times.append(1)
            self.rmdir()

    monkeypatch.setattr(type(tmp_path), "mkdir", vanishing)
    with held(tmp_path / "run", resume=False):
        assert (tmp_path / "run/.lock").exists()
    assert len(times) == 3


def test_file_system_without_locks_keeps_nobody_out_and_nothing_of_others_is_deleted(tmp_path, monkeypatch):
    def none(handle, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(run_folder.fcntl, "flock", none)
    left = begun(tmp_path) / "settings.json.partial-elsewhere-1"
    left.write_text("{")
    with held(tmp_path, resume=True):
        assert left.exists()


def take_turns(out, seconds, taken):
    """Lock the folder and leave it as often as there is time for; two owners at once would see each other's mark."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with held(out, resume=False):
                mark = out / "data.json"
                with mark.open("x"):
                    taken.value += 1
                mark.unlink()
        except UserError:
            continue
        except BaseException:
            taken.value = -(10**9)
            raise


def test_two_at_once_are_never_both_owners(tmp_path):
    context = multiprocessing.get_context("fork")
    counts = [context.Value("i", 0) for _ in range(3)]
    workers = [context.Process(target=take_turns, args=(tmp_path / "run", 1.0, count)) for count in counts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(count.value for count in counts) > 10
    assert not (tmp_path / "run").exists()


OWNER = """
import sys, time
from pathlib import Path
from minibert.run_folder import held
with held(Path(sys.argv[1]), resume=False):
    print("held", flush=True)
    time.sleep(600)
"""


def test_owner_that_was_killed_holds_nobody_up(tmp_path):
    command = [sys.executable, "-c", OWNER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="in use by another run"), held(tmp_path / "run", resume=False):
            pass
        owner.kill()
    with held(tmp_path / "run", resume=False):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_named(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(UserError, match="closed/run: cannot be written: Permission denied"):
        held(tmp_path / "closed/run", resume=False).__enter__()
