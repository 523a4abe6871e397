"""One HTML file a page: style, script and data are inside, nothing is loaded from anywhere, users' text is escaped.

A page speaks two languages: what is said stands there twice, and a button, or what the browser prefers, chooses. It is
light or dark as the browser is, and prints.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from minibert.atomic import write_whole, written
from minibert.errors import UserError, printable

HERE = Path(__file__).parent
GENERATOR = '<meta name="generator" content="minibert '  # stands at the top of every page


class Both(NamedTuple):
    """What is said, in English and in Chinese. In a template both are written, and one of them is shown."""

    en: str
    zh: str

    def __str__(self) -> str:
        return self.en

    def __html__(self) -> str:
        spans = Markup('<span lang="en">{}</span><span lang="zh">{}</span>')
        return spans.format(printable(self.en), printable(self.zh))


def render(template: str, *, scripts: Sequence[str] = (), **values: Any) -> str:
    """A page as text. template: a file of templates/ that extends base.html; scripts: further files beside page.css.

    Whatever a template shows is escaped, control characters too. Markup is what minibert has made itself, such as a
    figure; text that came from a file is never made Markup.
    """
    code = "\n".join((HERE / name).read_text("utf-8") for name in ("page.js", *scripts))
    digest = base64.b64encode(sha256(code.encode()).digest()).decode()
    own = {
        "css": Markup((HERE / "page.css").read_text("utf-8")),
        "script": Markup(code),
        "script_hash": digest,
        "version": version("minibert"),
    }
    return environment().get_template(template).render(**own, **values)


def write_page(target: Path, template: str, *, scripts: Sequence[str] = (), **values: Any) -> None:
    """render, to a file that is there whole or not at all. Raises: UserError, as check_place and write_whole."""
    check_place(target)
    text = render(template, scripts=scripts, **values)

    def fill(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8", errors="replace")

    write_whole(target, fill)


def check_place(out: Path) -> None:
    """Before anything is computed: a page is a file of its own, and takes no other file's place.

    Raises: UserError for a name that is not one of a page, a folder, and a file that minibert has not made as a page.
    """
    where = str(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError("a page is written there", where=where, fix="end its name in .html")
    if out.is_dir():
        raise UserError("is a folder; a page is one file", where=where, fix="name a file in it")
    if out.is_file() and out.stat().st_size:
        with written(where), out.open("rb") as file:
            if GENERATOR.encode() not in file.read(4096):
                raise UserError(
                    "would overwrite a file that is no page of minibert", where=where, fix="choose another name"
                )


@cache
def environment() -> Environment:
    """The templates, and what they may use: t("English", "中文"), and filters for numbers."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    found.globals["t"] = Both
    found.filters.update(whole=lambda n: f"{n:,.0f}", percent=percent, short=short)
    return found


def percent(share: float) -> str:
    """.1234 -> 12.3 %, with as many digits as say something."""
    shown = 100 * share
    digits = 0 if shown in (0, 100) or (10 <= shown < 99.5 and shown == round(shown)) else 1
    if 0 < abs(shown) < 0.1:
        digits = 2
    return f"{shown:.{digits}f} %"


def short(number: float) -> str:
    """A number in four digits at most, large ones with separators: 0.8125, 12.35, 10,805."""
    return f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.4g}"
