"""What the machine is told."""

import ctypes
from types import SimpleNamespace

import pytest

from minibert.training import devices
from minibert.training.devices import keep_freed_memory


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
