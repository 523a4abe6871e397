"""What every test gets: no network, one thread, and the folder of shared cases where there is one."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# No test depends on how fast a machine is.
hypothesis.settings.register_profile("minibert", deadline=None)
hypothesis.settings.load_profile("minibert")

# Before anything imports torch or a Hugging Face library; processes that tests start inherit it.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}.items():
    os.environ[_name] = _value

ROOT = Path(__file__).resolve().parent.parent


def is_local(address: Any) -> bool:
    """True for Unix sockets and for addresses of this machine."""
    if not isinstance(address, tuple):
        return True
    host = address[0]
    if isinstance(host, bytes):
        host = host.decode()
    if host in ("", "localhost", socket.gethostname()):
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    return ip.is_loopback or ip.is_unspecified


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any connection that leaves this machine fails the test, with the address."""

    def guarded(connect: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
        def call(self: socket.socket, address: Any) -> Any:
            if not is_local(address):
                pytest.fail(f"a test tried to reach {address}")
            return connect(self, address)

        return call

    monkeypatch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of cases beside the checkout; tests that need it are skipped where it is not."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder ../shared beside the checkout")
    return folder


def make_text(num_documents: int, *, sentences: int = 8, seed: int = 0, chinese: bool = False) -> str:
    """Documents of short sentences with some regularity to learn: blank lines between them."""
    draw = random.Random(seed)
    words = (
        "春夏秋冬山水花鸟风雨日月星云天地" if chinese else "red blue old new cat dog sun moon runs sleeps sings".split()
    )
    documents = []
    for _ in range(num_documents):
        lines = []
        for _ in range(sentences):
            chosen = [draw.choice(words) for _ in range(draw.randint(3, 9))]
            lines.append("".join(chosen) + "。" if chinese else " ".join(chosen) + ".")
        documents.append("\n".join(lines))
    return "\n\n".join(documents) + "\n"


@pytest.fixture
def case(shared: Path) -> Callable[[str], tuple[Path, dict[str, str]]]:
    """A shared case by its id: (its folder, what its expected.txt says by key)."""

    def find(name: str) -> tuple[Path, dict[str, str]]:
        folder = shared / "cases" / name
        lines = (folder / "expected.txt").read_text("utf-8").split("\n")
        return folder, dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith("#"))

    return find


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text file of 40 documents of 8 sentences."""
    path = tmp_path / "corpus.txt"
    path.write_text(make_text(40), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def text_of() -> Callable[..., str]:
    return make_text


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared data of tests never lands in the user's cache."""
    monkeypatch.setenv("MINIBERT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def checkpoint_for() -> Callable[..., Path]:
    """A small random BERT in a folder, with a vocabulary that covers a text, or consists of `tokens`."""

    def make(text: str, folder: Path, tokens: list[str] | None = None, **changes: Any) -> Path:
        import torch

        from minibert.checkpoint.pretrained import BertModel
        from minibert.model.bert import BertConfig
        from minibert.tokenization.tokenizer import BertTokenizer
        from minibert.tokenization.vocabulary import train_vocabulary

        if tokens is None:
            tokens = train_vocabulary(lambda: iter(text.splitlines()), size=400, lowercase=True).tokens
        tokenizer = BertTokenizer.from_tokens(tokens, lowercase=True)
        shape = {
            "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
            "max_position_embeddings": 64,
        }  # fmt: skip
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(tokenizer), **{**shape, **changes})).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium of this machine; tests that need it are skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=program, args=[*flags, "--disable-sync", "--no-first-run"])
        yield browser
        browser.close()


@pytest.fixture
def browser_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an HTML file: browser_page(path, color_scheme="dark", locale="zh-CN", viewport={"width": 390, ...}).

    The test fails where a page asks for anything but itself, or its script fails.
    """
    contexts, faults = [], []

    def show(path: Path, **how: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1100, "height": 800}, **how})
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: faults.append(request.url) if request.url != path.as_uri() else None)
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def ending() -> Any:
    """A silent console; its `standing` is what a training's bar says when it is left."""
    from minibert.console import Console, Standing, Update

    class Ending(Console):
        standing: Standing | None = None

        @contextmanager
        def progress(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Update]:
            said: list[Standing] = []
            yield lambda done, standing=None: said.extend([standing] if standing else [])
            if said:
                self.standing = replace(said[-1])

    return Ending(silent=True)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Any]]:
    """Runs code on a pseudo-terminal: terminal(code, *args, columns=80, NO_COLOR="1"), a Terminal of terminal.py."""
    spec = importlib.util.spec_from_file_location("terminal", Path(__file__).with_name("terminal.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    started: list[Any] = []

    def start(*args: Any, **how: Any) -> Any:
        started.append(module.Terminal(*args, **how))
        return started[-1]

    yield start
    for each in started:
        each.clear_up()
