"""Files and folders that are complete or absent."""

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
