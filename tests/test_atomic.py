"""Files and folders that are complete or absent."""

import errno
import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

from minibert import atomic
from minibert.atomic import beside, clear_leftovers, machine, remove, temporary_folder, write_text, write_whole, written
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


def gone():
    """The number of a process that has ended."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_only_what_dead_processes_of_this_machine_have_left_is_deleted(tmp_path):
    names = {
        "dead": f"x.partial-{machine()}-{gone()}", "old": f"x.partial-{machine()}-{gone()}-old",
        "alive": f"x.partial-{machine()}-1", "elsewhere": f"x.partial-12345678-{gone()}", "foreign": "x.partial-1",
    }  # fmt: skip
    for name in names.values():
        (tmp_path / name).mkdir()
    clear_leftovers(tmp_path, "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        names[k] for k in ("alive", "elsewhere", "foreign")
    )
    clear_leftovers(tmp_path, "x", anybodys=True)
    assert not list(tmp_path.iterdir())


def test_two_machines_and_two_containers_have_names_of_their_own(tmp_path, monkeypatch):
    names = {beside(tmp_path / "x").name}
    monkeypatch.setattr(atomic.platform, "node", lambda: "another")
    names.add(beside(tmp_path / "x").name)
    monkeypatch.setattr(Path, "readlink", lambda self: Path("pid:[1]"))
    names.add(beside(tmp_path / "x").name)
    assert len(names) == 3


def test_what_a_dead_process_of_the_same_number_has_left_is_in_nobodys_way(tmp_path):
    """In a container the first process has the same number each time."""
    (beside(tmp_path / "x") / "inside").mkdir(parents=True)
    write_whole(tmp_path / "x", lambda partial: partial.mkdir())
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_folder_that_is_being_deleted_is_not_there_any_more(tmp_path, monkeypatch):
    (tmp_path / "folder/inside").mkdir(parents=True)

    def killed(path):
        assert not (tmp_path / "folder").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(tmp_path / "folder")
    remove(tmp_path / "folder")  # another has been quicker
    (tmp_path / "folder").mkdir()
    remove(tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def put_often(target, number):
    def fill(partial):
        partial.mkdir()
        for name in "abc":
            (partial / name).write_text(str(number))

    for _ in range(60):
        write_whole(target, fill)


def test_folders_that_several_write_at_once_are_never_mixed(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=put_often, args=(tmp_path / "x", number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert len({(tmp_path / "x" / name).read_text() for name in "abc"}) == 1


def test_a_folder_that_another_has_put_there_meanwhile_can_stay(tmp_path):
    def fill(partial, what):
        partial.mkdir()
        (partial / "a").write_text(what)

    opened = []
    write_whole(tmp_path / "x", lambda partial: fill(partial, "broken"))
    write_whole(
        tmp_path / "x", lambda partial: fill(partial, "old"), keep=lambda there: (there / "a").stat().st_size > 99
    )
    assert (tmp_path / "x" / "a").read_text() == "old"
    write_whole(
        tmp_path / "x", lambda partial: fill(partial, "late"), keep=lambda there: bool(opened.append(there)) or True
    )
    assert opened == [tmp_path / "x"]
    assert (tmp_path / "x" / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_error_that_no_full_disk_has_made_stays_what_it_is(tmp_path):
    def broken(partial):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        write_whole(tmp_path / "x", broken)
    assert not list(tmp_path.iterdir())


def test_a_library_that_wraps_what_the_system_says_is_looked_through(tmp_path):
    def full(partial):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 64 vs 0")

    with pytest.raises(UserError, match="x: cannot be written: No space left on device"):
        write_whole(tmp_path / "x", full)


def test_temporary_folder_goes_and_takes_what_was_left_along(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"minibert-abc.partial-{machine()}-{gone()}").mkdir()
    with temporary_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_no_place_for_temporary_files_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(UserError, match=r"absent: cannot be written: .*\n  fix: .*TMPDIR"), temporary_folder():
        pass

    def nowhere():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(UserError, match="temporary files: cannot be written: No usable"), temporary_folder():
        pass


def test_written_names_the_place_and_the_way_out(tmp_path):
    full = Path("/dev/full")
    with (
        pytest.raises(UserError, match=r"log: cannot be written: No space.*\n  fix: make room or look elsewhere"),
        written("log", elsewhere="look elsewhere"),
        full.open("w") as file,
    ):
        file.write("x")
