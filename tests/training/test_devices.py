"""What the machine is told."""

import ctypes
import signal
from types import SimpleNamespace

import pytest
from accelerate import Accelerator

from minibert.console import Console
from minibert.training import devices
from minibert.training.devices import Stop, keep_freed_memory, lost_process


@pytest.fixture
def options(monkeypatch):
    """The options that the C library would be given."""
    given = {}
    library = SimpleNamespace(mallopt=lambda name, value: given.update({name: value}) or 1)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(devices.sys, "platform", "linux")
    for name in [name for name in devices.os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)
    return given


def test_freed_memory_is_kept_with_glibc(options):
    assert keep_freed_memory()
    assert options == {devices.MMAP_THRESHOLD: 2**30, devices.TRIM_THRESHOLD: 2**31 - 1}  # both fit into an int
    assert (devices.MMAP_THRESHOLD, devices.TRIM_THRESHOLD) == (-3, -1)


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_what_the_user_has_said_stays(options, monkeypatch, name):
    monkeypatch.setenv(name, "2")
    assert not keep_freed_memory()
    assert not options


def test_other_libraries_and_systems_are_left_alone(monkeypatch, options):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not keep_freed_memory()
    monkeypatch.setattr(devices.sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("not asked"))
    assert not keep_freed_memory()


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return Accelerator(cpu=True)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_waits_and_says_so_and_a_second_one_ends_at_once(alone, capfd, name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with Stop(alone, Console().warn_from_signal) as stop:
        assert stop.agreed() == 0
        signal.raise_signal(number)
        assert stop.agreed() == number
        assert capfd.readouterr().err == f"\n{name}: saving, then ending; once more ends at once\n"
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(number)
        assert caught.value.code == 128 + number
    assert signal.getsignal(number) == before


def test_what_a_launcher_passes_on_is_no_second_signal(alone, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    now = [100.0]
    monkeypatch.setattr(devices, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Stop(alone, Console().warn_from_signal) as stop:
        signal.raise_signal(signal.SIGINT)
        now[0] += 2.9
        signal.raise_signal(signal.SIGTERM)
        assert stop.agreed() == signal.SIGINT
        now[0] += 0.2
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)


def test_the_end_of_the_terminal_is_not_heard_under_nohup(alone):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop(alone, Console().warn_from_signal) as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.agreed() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "said",
    [
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234",
        "[.../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "NCCL error in: ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error",
    ],
)
def test_the_loss_of_another_process_is_a_message(monkeypatch, said):
    monkeypatch.setenv("RANK", "1")
    assert lost_process(RuntimeError(said)) is None  # alone
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert str(lost_process(RuntimeError(said))).startswith("process 1: another process of this run has ended")
    assert lost_process(RuntimeError("shape mismatch")) is None  # a fault of its own stays one
