"""A page is one file, in two languages, light and dark, and nothing that a user wrote runs in it."""

import math
import re

import pytest
from jinja2 import UndefinedError

from minibert.view.figures import Line, curves, thinned, tick
from minibert.view.page import Both, environment, percent, render, short, write_page

HOSTILE = '<script>document.title="broken in"</script><img src=x onerror=alert(1)>"\'&</span>\x1b[31m\u202e'


@pytest.fixture
def template(monkeypatch):
    """Makes templates that hold what a test says."""
    from jinja2 import DictLoader

    loader = environment().loader
    own = {}
    for name in ("base.html", "parts.html"):
        own[name] = loader.get_source(environment(), name)[0]
    monkeypatch.setattr(environment(), "loader", DictLoader(own))
    environment().cache.clear()

    def make(content):
        own["test.html"] = (
            '{% extends "base.html" %}{% import "parts.html" as parts %}{% block content %}'
            + content
            + "{% endblock %}"
        )
        return "test.html"

    yield make
    environment().cache.clear()


def figure():
    loss = Line(Both("training", "训练"), [1, 2, 3, 4], [4.0, math.nan, 2.0, 1.0])
    return curves(Both("Loss", "损失"), [loss, Line("dev", [2, 4], [3.0, 1.5], dots=True)])


def test_what_a_user_wrote_is_shown_and_does_nothing(template, tmp_path, browser_page):
    name = template(
        '<h1>{{ text }}</h1>{{ t(text, text) }}<p title="{{ text }}" id="p">x</p>{{ parts.bars([(text, 0.5, text)]) }}'
        '{{ parts.table([text], [[text, text]]) }}<script type="application/json" id="d">{{ [text] | tojson }}</script>'
    )
    write_page(tmp_path / "page.html", name, text=HOSTILE)
    page = browser_page(tmp_path / "page.html")
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert page.title() == "minibert"
    assert page.locator("h1").text_content() == shown
    assert page.locator("#p").get_attribute("title") == shown
    assert page.evaluate("JSON.parse(document.getElementById('d').textContent)[0]") == HOSTILE
    assert page.locator("img").count() == 0


def test_a_script_that_is_not_the_pages_own_does_not_run(template, tmp_path, browser_page):
    """Should escaping ever be forgotten, the page's policy still lets nothing run."""
    name = template("<p id=p>{{ text | safe }}</p>")
    write_page(tmp_path / "page.html", name, text='<script>document.title="broken in"</script>')
    page = browser_page(tmp_path / "page.html")
    assert page.title() == "minibert"
    with pytest.raises(AssertionError, match="Content Security Policy"):
        raise AssertionError(faults_of(browser_page))


def faults_of(browser_page):
    """What the fixture would complain of; it is taken, so that it does not."""
    faults = next(cell.cell_contents for cell in browser_page.__closure__ if isinstance(cell.cell_contents, list)
                  and any(isinstance(one, str) for one in cell.cell_contents))  # fmt: skip
    said = " ".join(faults)
    faults.clear()
    return said


@pytest.mark.parametrize(("locale", "shown"), [("en-GB", "Loss"), ("zh-CN", "损失"), ("fr-FR", "Loss")])
def test_the_browser_says_the_language_and_a_button_changes_it(template, tmp_path, browser_page, locale, shown):
    name = template('<h1>{{ t("Loss", "损失") }}</h1>')
    write_page(tmp_path / "page.html", name)
    page = browser_page(tmp_path / "page.html", locale=locale)
    assert page.locator("h1").inner_text() == shown
    page.get_by_role("button", name="中文").click()
    assert page.locator("h1").inner_text() == "损失"
    page.get_by_role("button", name="English").click()
    assert page.locator("h1").inner_text() == "Loss"


def test_light_dark_and_print(template, tmp_path, browser_page):
    write_page(tmp_path / "page.html", template("<h1>x</h1>"))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser_page(tmp_path / "page.html", color_scheme="light").evaluate(ground)
    page = browser_page(tmp_path / "page.html", color_scheme="dark")
    dark = page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < sum(map(int, re.findall(r"\d+", light)))
    page.locator("[data-turn-theme]").click()
    assert page.evaluate(ground) == light
    page.locator("[data-turn-theme]").click()
    assert page.evaluate(ground) == dark
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert not page.locator(".switches").is_visible()


def test_a_figure_is_read_with_the_pointer_and_with_keys(template, tmp_path, browser_page):
    write_page(tmp_path / "page.html", template("{{ parts.figure(f) }}"), f=figure())
    page = browser_page(tmp_path / "page.html")
    box = page.locator("figure svg").bounding_box()
    x = box["x"] + box["width"] * (0.105 + (0.985 - 0.105) / 3)  # the second of four steps
    page.mouse.move(x, box["y"] + 50)
    assert page.locator("output").inner_text().split() == ["2:", "3"]  # the first line has a gap there
    page.locator("figure").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("output").inner_text().split() == ["4:", "1", "1.5"]
    page = browser_page(tmp_path / "page.html")
    page.locator("figure").focus()
    page.keyboard.press("ArrowRight")  # nothing was looked at before: the first point
    assert page.locator("output").inner_text().split() == ["1:", "4"]


def test_a_figure_is_read_with_a_tap(template, tmp_path, browser_page):
    write_page(tmp_path / "page.html", template("{{ parts.figure(f) }}"), f=figure())
    page = browser_page(tmp_path / "page.html", has_touch=True, viewport={"width": 390, "height": 800})
    box = page.locator("figure svg").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.98, box["y"] + 50)
    assert page.locator("output").inner_text().split() == ["4:", "1", "1.5"]


def test_a_name_that_a_template_misses_is_a_fault(template):
    with pytest.raises(UndefinedError):
        render(template("{{ missing }}"))


def test_a_figure_has_the_styles_colours_and_no_names_twice():
    svg = figure().svg
    assert "#" not in re.sub(r'(url\(#|href="#)', "", svg)
    assert {"var(--line-1)", "var(--line-2)", "var(--soft)", "var(--rule)"} <= set(re.findall(r"var\(--[\w-]+\)", svg))
    assert figure().svg == svg  # the same bytes each time
    assert figure().data["lines"] == [[4.0, None, 2.0, 1.0], [None, 3.0, None, 1.5]]


def test_a_long_line_is_thinned_to_means():
    line = thinned(Line("x", list(range(1, 1001)), [float(i) for i in range(1, 1001)]))
    assert (len(line.x), line.x[0], line.x[-1], line.y[0], line.y[-1]) == (334, 3, 1000, 2.0, 1000.0)
    assert thinned(Line("x", list(range(900)), [None] * 900)).y == [None] * 300


def test_numbers():
    assert [tick(v) for v in (0, 0.5, 12000, 3e6, 1e-4, 2.5e-5, -2)] == [
        "0",
        "0.5",
        "12k",
        "3M",
        "1e-4",
        "2.5e-5",
        "-2",
    ]
    assert [percent(v) for v in (0, 1, 0.5, 0.1234, 0.99999, 0.0004, 0.25, 0.999)] == [
        "0 %", "100 %", "50 %", "12.3 %", "100.0 %", "0.04 %", "25 %", "99.9 %",
    ]  # fmt: skip
    assert [short(v) for v in (0.81254, 10805.2, 3, 12.345678)] == ["0.8125", "10,805", "3", "12.35"]
