"""A run's folder: refused where it holds something, continued only as it was."""

import pytest

from minibert.config import PretrainConfig
from minibert.errors import UserError
from minibert.run_folder import check_new, held, resumed_settings, save_settings


def begun(tmp_path, **settings):
    save_settings(tmp_path, "pretrain", PretrainConfig(steps=5, **settings), {"corpus": ["a.txt"]})
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
        (tmp_path / "run/settings.json").write_text("{}")
        (tmp_path / "run/log.jsonl").write_text('{"step": 0, "eval": {}}')
        raise ValueError("x")
    assert not (tmp_path / "run").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"), held(tmp_path / "file/run", resume=False):
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
