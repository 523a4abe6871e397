"""Files at other places, from a real S3 server and a real web server on this machine: found, fetched once, sent."""

import errno
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from minibert.cli import commands
from minibert.console import Console
from minibert.errors import UserError
from minibert.remote import fetched, fetched_folder, fetched_top, find, is_remote

SILENT = Console(silent=True)
SMALL = (
    "--steps 3 --layers 1 --hidden-size 16 --heads 2 --max-length 32 --batch-size 8 --micro-batch-size 8 "
    "--precision fp32 --workers 1 --quiet"
).split()


@pytest.fixture(scope="module")
def s3_server():
    """moto's server in a process of its own; yields its address. s3:// is this server in all tests here."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            break
    else:
        pytest.fail("moto's server did not start")
    reader = threading.Thread(target=process.stderr.read, daemon=True)  # so that its log never fills the pipe
    reader.start()
    with pytest.MonkeyPatch.context() as patch, talking_to(match[0], patch) as filesystem:
        patch.setattr(type(filesystem), "retries", 2)
        yield match[0]
    process.terminate()
    process.wait(10)
    reader.join(10)
    process.stderr.close()


@pytest.fixture
def s3(s3_server):
    """The s3:// file system with an empty bucket named texts."""
    filesystem = fsspec.filesystem("s3")
    filesystem.invalidate_cache()
    if filesystem.exists("texts"):
        filesystem.rm("texts", recursive=True)
    filesystem.mkdir("texts")
    return filesystem


@contextmanager
def talking_to(address, monkeypatch):
    """s3:// means this address, for this process and those that it starts."""
    settings = {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    kind = fsspec.get_filesystem_class("s3")
    kind.clear_instance_cache()
    yield fsspec.filesystem("s3")
    kind.clear_instance_cache()


@contextmanager
def web(files, *, cut=0, hold=None):
    """A web server with these files: yields (its address, the paths it was asked for). cut: it sends so many bytes of a
    file and closes. hold: an event that it waits for in the middle."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            if (content := files.get(self.path)) is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hash(content)}"')
            self.end_headers()

        def do_GET(self):
            asked.append(self.path)
            self.do_HEAD()
            content = files.get(self.path, b"")
            first = cut or len(content) // 2
            self.wfile.write(content[:first])
            if hold:
                self.wfile.flush()
                hold.wait(60)
            self.wfile.write(b"" if cut else content[first:])

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        fsspec.get_filesystem_class("http").clear_instance_cache()


def in_cache(cache):
    """All files in the cache but the lock."""
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.name != ".lock")


def texts_of(place):
    return [file for inside in find(place).values() for _, file in sorted(inside.items())]


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [("s3://b/x", True), ("zip://a.txt::s3://b/x.zip", True), ("memory://x", True), ("file:///x", False),
     ("a.txt", False), ("/s3:/x", False), ("-", False), ("C:x", False), ("a::b", False)],
)  # fmt: skip
def test_urls_are_told_from_paths(name, elsewhere):
    assert is_remote(name) is elsewhere


def test_s3_files_are_fetched_once_until_they_change(s3, tmp_path, monkeypatch):
    s3.pipe_file("texts/en/a.txt", b"one")
    s3.pipe_file("texts/en/b.txt.gz", b"two2")
    first = fetched(texts_of("s3://texts/en"), tmp_path, SILENT)
    assert [(path.name, path.read_bytes()) for path in first] == [("a.txt", b"one"), ("b.txt.gz", b"two2")]
    with monkeypatch.context() as patch:
        patch.setattr(type(s3), "get", lambda *args, **kwargs: pytest.fail("fetched again"))
        assert fetched(texts_of("s3://texts/en"), tmp_path, SILENT) == first
        assert fetched(texts_of("s3://texts/*/*.txt"), tmp_path, SILENT) == first[:1]
        assert fetched(texts_of("s3://texts/en/a.txt"), tmp_path, SILENT) == first[:1]  # its own answer, the same mark
    type(s3)(skip_instance_cache=True).pipe_file("texts/en/a.txt", b"eno")  # as long, and by somebody else
    second = fetched(texts_of("s3://texts/en"), tmp_path, SILENT)
    assert second[0].read_bytes() == b"eno"
    assert second[0] != first[0]
    assert second[1] == first[1]


def test_more_files_than_one_batch_and_one_larger_than_a_block_come_whole(s3, tmp_path):
    contents = {f"texts/many/{number:02}.txt": os.urandom(100 + number) for number in range(20)}
    contents["texts/many/large.txt"] = os.urandom(6_000_000)
    for name, content in contents.items():
        s3.pipe_file(name, content)
    files = fetched(texts_of("s3://texts/many"), tmp_path, SILENT)
    assert [path.read_bytes() for path in files] == [contents[f"texts/many/{path.name}"] for path in files]
    assert len(in_cache(tmp_path)) == 21


@pytest.mark.parametrize(
    ("place", "said"),
    [("s3://nowhere/x", "bucket"), ("s3://texts/nothing", "no such file"), ("s3://texts/*.txt", "nothing")],
)
def test_missing_buckets_and_files_are_named(s3, place, said):
    with pytest.raises(UserError, match=said) as caught:
        find(place)
    assert place in str(caught.value)


def test_no_credentials_and_no_connection_are_one_message(s3, s3_server, monkeypatch):
    s3.pipe_file("texts/a.txt", b"one")
    with talking_to(s3_server, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(UserError, match="may not be read") as caught:
            find("s3://texts/a.txt")
        assert "AWS_PROFILE" in str(caught.value)
        with monkeypatch.context() as patch:
            s3.pipe_file("texts/a.txt", b"one", ACL="public-read")
            patch.setitem(fsspec.config.conf, "s3", {"anon": True})  # what FSSPEC_S3_ANON=true says
            assert find("s3://texts/a.txt")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with talking_to(f"http://127.0.0.1:{unused.getsockname()[1]}", monkeypatch):
            done = subprocess.run(
                [sys.executable, "-m", "minibert", "vocab", "s3://texts/a.txt", "--out", "vocabulary"],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("error: s3://texts/a.txt: cannot be read: ") == 1
    assert "Traceback" not in done.stderr


def test_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # whether it is there or not
    with pytest.raises(UserError, match="gs:// needs the package gcsfs") as caught:
        find("gs://bucket/x")
    assert "pip install gcsfs" in str(caught.value)
    with pytest.raises(UserError, match="no kind of place"):
        find("s4://bucket/x")


def test_connection_that_breaks_leaves_nothing_half(tmp_path):
    files = {"/a.txt": b"0123456789" * 1000}
    with web(files, cut=4000) as (address, _), pytest.raises(UserError, match=r"cannot be read|bytes came") as caught:
        fetched(texts_of(f"{address}/a.txt"), tmp_path, SILENT)
    assert f"{address}/a.txt" in str(caught.value)
    assert in_cache(tmp_path) == []
    with web(files) as (address, _):
        (path,) = fetched(texts_of(f"{address}/a.txt"), tmp_path, SILENT)
    assert path.read_bytes() == files["/a.txt"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_while_fetching_ends_at_once_and_leaves_nothing_half(tmp_path, number, code):
    hold = threading.Event()
    with web({"/a.txt": bytes(1_000_000)}, cut=500_000, hold=hold) as (address, asked):
        process = subprocess.Popen(
            [sys.executable, "-m", "minibert", "vocab", f"{address}/a.txt", "--out", str(tmp_path / "vocabulary")],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "MINIBERT_CACHE": str(tmp_path / "cache")},
        )  # fmt: skip
        while not asked and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=30)
        finally:
            hold.set()
            process.kill()
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert in_cache(tmp_path / "cache") == []


def test_s3_connection_that_breaks_is_taken_up_again_or_told(s3, s3_server, tmp_path, monkeypatch):
    content = os.urandom(300_000)
    s3.pipe_file("texts/a.txt", content)
    port = int(s3_server.rpartition(":")[2])
    with cutting(port, after=200_000, times=1) as address, talking_to(address, monkeypatch):
        (path,) = fetched(texts_of("s3://texts/a.txt"), tmp_path / "again", SILENT)
        assert path.read_bytes() == content
    with cutting(port, after=50_000, times=1000) as address, talking_to(address, monkeypatch):
        files = texts_of("s3://texts/a.txt")
        with pytest.raises(UserError, match="cannot be read") as caught:
            fetched(files, tmp_path / "never", SILENT)
    assert "s3://texts/a.txt" in str(caught.value)
    assert in_cache(tmp_path / "never") == []


@contextmanager
def cutting(port, *, after, times):
    """A way to the server on `port` that closes a connection after so many bytes, so many times: an address."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = [times]

    def serve(client):
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            threading.Thread(target=forward, args=(client, server), daemon=True).start()
            sent = 0
            while block := read(server):
                if left[0] and sent + len(block) > after:
                    left[0] -= 1
                    client.sendall(block[: max(0, after - sent)])
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(block)
                sent += len(block)

    def forward(source, target):
        try:
            while block := read(source):
                target.sendall(block)
        except OSError:
            pass

    def read(source):
        try:
            return source.recv(1 << 14)
        except OSError:
            return b""

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_file_that_changes_on_its_way_is_refused(s3, tmp_path, monkeypatch):
    s3.pipe_file("texts/a.txt", b"one")
    files = texts_of("s3://texts/a.txt")
    s3.pipe_file("texts/a.txt", b"two")
    s3.invalidate_cache()
    with pytest.raises(UserError, match="changed while it was fetched"):
        fetched(files, tmp_path, SILENT)
    assert in_cache(tmp_path) == []


def test_a_place_that_gives_less_than_it_has_told_is_refused(tmp_path, monkeypatch):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/short/a.txt", b"0123456789")

    def short(self, names, copies, **kwargs):
        Path(copies[0]).write_bytes(b"01234")

    monkeypatch.setattr(type(memory), "get", short)
    with pytest.raises(UserError, match="5 bytes came of 10"):
        fetched(texts_of("memory://short"), tmp_path, SILENT)
    assert in_cache(tmp_path) == []


def test_full_disk_is_told_as_that(tmp_path, monkeypatch):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/full/a.txt", b"one")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(memory), "get", full)
    with pytest.raises(UserError, match="cannot be written: No space left") as caught:
        fetched(texts_of("memory://full"), tmp_path, SILENT)
    assert "--cache" in str(caught.value)
    assert in_cache(tmp_path) == []


@pytest.mark.parametrize("name", ["../../escape.txt", "/etc/escape.txt"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    (file,) = texts_of_memory(b"x")
    with pytest.raises(UserError, match="leads out of the folder"):
        fetched_folder("memory://store", {name: file}, tmp_path, SILENT)
    assert in_cache(tmp_path) == []


def texts_of_memory(content):
    fsspec.filesystem("memory").pipe_file("/one/a.txt", content)
    return texts_of("memory://one")


def test_processes_of_one_machine_fetch_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from minibert.console import Console; from minibert import remote\n"
        "files = [f for place in remote.find(sys.argv[1]).values() for f in place.values()]\n"
        "print('found', flush=True)\n"
        "print(remote.fetched(files, Path(sys.argv[2]), Console())[0].stat().st_size)"
    )
    hold = threading.Event()
    with web({"/a.txt": bytes(3_000_000)}, hold=hold) as (address, asked):
        together = [
            subprocess.Popen(
                [sys.executable, "-c", code, f"{address}/a.txt", str(tmp_path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        assert [process.stdout.readline() for process in together] == ["found\n"] * 2
        time.sleep(0.3)  # both want the file now
        hold.set()
        ended = [process.communicate(timeout=60) for process in together]
    assert [out for out, _ in ended] == ["3000000\n"] * 2, ended
    assert asked == ["/a.txt"]
    assert sum("fetching 1 file, 3.0 MB" in said for _, said in ended) == 1


def test_a_tokenizer_and_a_checkpoint_come_without_what_lies_deeper(tmp_path):
    memory = fsspec.filesystem("memory")
    for name in ("vocab.txt", "config.json", "checkpoints/step-1/model.safetensors"):
        memory.pipe_file(f"/run/{name}", name.encode())
    folder = fetched_top("memory://run", tmp_path, SILENT)
    assert folder.name == "run"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "vocab.txt"]
    assert fetched_top("memory://run/vocab.txt", tmp_path, SILENT).read_text() == "vocab.txt"


def minibert(*words):
    commands.main(list(map(str, words)), standalone_mode=False)


@pytest.mark.slow
def test_from_text_on_s3_over_shards_on_s3_to_the_same_weights(s3, tmp_path, text_of):
    for number in range(5):
        for place in (tmp_path / "text", "s3"):
            content = text_of(8 + number, seed=number).encode()
            if place == "s3":
                s3.pipe_file(f"texts/en/{number}.txt", content)
            else:
                place.mkdir(exist_ok=True)
                (place / f"{number}.txt").write_bytes(content)
    minibert("vocab", "s3://texts/en/*.txt", "--out", tmp_path / "tok", "--vocab-size", 100, "--quiet")
    s3.put(f"{tmp_path}/tok/", "texts/tok/", recursive=True)
    for shard in (3, 1, 2):
        cache = tmp_path / f"machine{shard}"
        words = ["s3://texts/en", "--tokenizer", "s3://texts/tok", "--out", "s3://texts/store", "--cache", cache]
        minibert("prepare", *words, "--shard", f"{shard}/3", "--quiet")
        assert len([name for name in in_cache(cache) if name[0].isdigit()]) < 5  # its own share alone
        assert not (cache / "prepared").exists() or in_cache(cache / "prepared") == []
    there = tmp_path / "there"
    minibert("pretrain", "s3://texts/store", "--out", there, "--cache", tmp_path / "trainer", *SMALL)
    minibert("pretrain", tmp_path / "text", "--tokenizer", tmp_path / "tok", "--out", tmp_path / "here", *SMALL)
    assert (there / "model.safetensors").read_bytes() == (tmp_path / "here/model.safetensors").read_bytes()
    s3.rm("texts/store/shard-00002-of-00003/store.json")  # as if its sending had been broken off
    with pytest.raises(UserError, match=r"shard 2 of 3 is not complete"):
        minibert("pretrain", "s3://texts/store", "--out", tmp_path / "other", *SMALL)
    with pytest.raises(UserError, match="made of other text"):
        minibert(
            "prepare",
            "s3://texts/en",
            "--tokenizer",
            tmp_path / "tok",
            "--out",
            "s3://texts/store",
            "--shard",
            "1/3",
            "--text-field",
            "x",
        )


def test_a_shard_that_could_not_be_sent_is_kept_and_sent_later(tmp_path, text_of, monkeypatch):
    from minibert import prepare as module

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/words/a.txt", text_of(5).encode())
    monkeypatch.setenv("MINIBERT_CACHE", str(tmp_path / "cache"))
    minibert("vocab", "memory://words", "--out", tmp_path / "tok", "--vocab-size", 100, "--quiet")
    words = ("prepare", "memory://words", "--tokenizer", tmp_path / "tok", "--out", "memory://stored", "--quiet")
    with pytest.raises(UserError, match="ends with this program, and the store with it"):
        minibert(*words)
    monkeypatch.setattr(module, "OF_THIS_PROGRAM", "nothing://")  # here it stands for a place that stays

    def broken(self, source, target, **kwargs):
        if Path(source).name == "tokens.arrow":
            raise ConnectionError("broken pipe")
        put_file(self, source, target, **kwargs)

    put_file = type(memory).put_file
    with monkeypatch.context() as patch, pytest.raises(UserError, match="cannot be written: broken pipe"):
        patch.setattr(type(memory), "put_file", broken)
        minibert(*words)
    assert not memory.exists("/stored/shard-00001-of-00001/store.json")  # what is not whole has none
    monkeypatch.setattr(module, "build_store", lambda *args, **kwargs: pytest.fail("tokenised again"))
    minibert(*words)
    assert memory.exists("/stored/shard-00001-of-00001/store.json")
    assert in_cache(tmp_path / "cache/prepared") == []
    monkeypatch.setattr(module, "sent", lambda *args, **kwargs: pytest.fail("sent again"))
    minibert(*words)
