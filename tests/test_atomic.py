"""Files and folders that are complete or absent."""

import errno
import os

import pytest

from minibert.atomic import write_text, write_whole
from minibert.errors import UserError


def test_a_file_takes_the_place_of_a_file_and_a_folder_that_of_a_folder(tmp_path):
    for text in ("a", "b"):
        write_text(tmp_path / "x" / "file", text)
        write_whole(tmp_path / "folder", lambda partial, text=text: write_text(partial / "inside", text))
    assert (tmp_path / "x" / "file").read_text() == (tmp_path / "folder" / "inside").read_text() == "b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "x"]


def test_a_file_never_takes_the_place_of_a_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").write_text("weeks of work")
    with pytest.raises(UserError, match="run: is a folder; a file is to be written there"):
        write_text(tmp_path / "run", "predictions")
    assert (tmp_path / "run" / "model").read_text() == "weeks of work"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_link_stays_one_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    (tmp_path / "link").symlink_to("real/file")
    (tmp_path / "folder").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"
    write_whole(tmp_path / "folder", lambda partial: write_text(partial / "inside", "all"))
    assert (tmp_path / "folder").is_symlink()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["inside"]


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"pipe: is a device or a pipe, no file\n  fix: .*redirect"):
        write_text(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_the_fix_is_room_only_where_room_may_be_the_matter(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="fix: choose another place; what was written before is whole"):
        write_text(tmp_path / "file" / "below", "text")

    def full(partial):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="No space left on device\n  fix: make room or choose"):
        write_whole(tmp_path / "new", full)
