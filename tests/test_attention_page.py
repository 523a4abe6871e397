"""The attention page: its numbers are the model's, and everything on it is reached by pointer, finger and keys."""

import json
import re

import pytest
import torch
from click.testing import CliRunner

from minibert import attention
from minibert.attention import (
    EXAMPLE,
    Seen,
    all_views,
    attention_page,
    first_head,
    first_token,
    keys,
    measured,
    named_heads,
    rollout,
)  # fmt: skip
from minibert.checkpoint.folder import save_checkpoint
from minibert.checkpoint.pretrained import BertForSequenceClassification, BertModel
from minibert.cli import commands
from minibert.errors import UserError
from minibert.model.bert import BertConfig
from minibert.tokenization.shown import batch_of, shown_row
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

WORDS = "the animal didn ' t cross street because it was too tired wide . < >".split()
TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *WORDS, *"今天我要上学了。", "un", "##able"], lowercase=True)
HOSTILE = '今<script>document.title="in"</script><img src=x>\x1b[31m\u202e天 u\x1bnable'
L, N = 3, 4


def make(kind=BertModel, **changes):
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32, "num_hidden_layers": L, "num_attention_heads": N, "intermediate_size": 40,
        "max_position_embeddings": 64, "initializer_range": 0.5, "vocab_size": len(TOKENIZER) + 3,
    }  # fmt: skip
    return kind(BertConfig(**{**shape, **changes})).eval()


@pytest.fixture
def checkpoint(tmp_path):
    def save(kind=BertModel, **changes):
        save_checkpoint(make(kind, **changes), TOKENIZER, tmp_path / "model")
        return tmp_path / "model"

    return save


@pytest.fixture
def opened(checkpoint, tmp_path, browser_page):
    """Writes the page of some rows and opens it: what was seen, and the page."""

    def show(*rows, **how):
        seen = attention_page(checkpoint(), rows, tmp_path / "page.html")
        page = browser_page(tmp_path / "page.html", **how)
        page.wait_for_selector("html[data-ready]")
        return seen, page

    return show


def shares(page, row=0):
    """The weights' table: word -> share as it stands there."""
    lines = page.evaluate(
        "[...document.querySelectorAll('#weights tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    return [[line[0], *(cell for cell in line[1:])] for line in lines]


def as_percent(weights):
    """As the page writes them: thousandths, the sign on the line of its number."""
    return [f"{round(float(w) * 1000) / 10:.1f}\u00a0%" for w in weights]


def chosen_text(page):
    return page.locator(".row").first.locator("[aria-selected=true] .text").inner_text()


# ---- the numbers


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(BertModel, {}), (BertModel, {"norm": "pre"}), (BertForSequenceClassification, {"positions": "sinusoidal"})],
    ids=["post", "pre", "fine-tuned"],
)
def test_what_is_seen_are_the_models_weights(checkpoint, tmp_path, kind, changes):
    (seen,) = attention_page(checkpoint(kind, **changes), [("It was tired", "the street")], tmp_path / "page.html")
    assert [t.text for t in seen.row] == ["[CLS]", "It", "was", "tired", "[SEP]", "the", "street", "[SEP]"]
    assert [t.segment for t in seen.row] == [0, 0, 0, 0, 0, 1, 1, 1]
    model = make(kind, **changes)
    with torch.no_grad():
        expected = model(**batch_of(seen.row), output_attentions=True).attentions
    assert torch.equal(seen.weights, torch.stack(expected)[:, 0])
    batch = TOKENIZER(["It was tired"], ["the street"])
    assert all(torch.equal(batch[name], value) for name, value in batch_of(seen.row).items())


def test_the_page_shows_the_models_weights(opened):
    """Every token of every head: read off the page's own table, by keys alone."""
    (seen,), page = opened(("the animal was tired",))
    T = len(seen.row)
    cells = page.locator(".heads td")
    assert cells.count() == L * (N + 1) + 2
    views = all_views(seen.weights)
    wrong = page.evaluate(
        """(expected) => { const found = []; const cells = [...document.querySelectorAll('.heads td')];
        const tokens = [...document.querySelectorAll('.token')];
        cells.forEach((cell, view) => { cell.click(); tokens.forEach((token, i) => { token.click();
        const shown = [...document.querySelectorAll('#weights tbody td')].map(c => parseFloat(c.textContent));
        shown.forEach((w, j) => {
          if (Math.abs(w / 100 - expected[view][i][j]) > 0.000501) found.push([view, i, j, w]); });
        }); }); return found; }""",
        views.tolist(),
    )
    assert wrong == []
    assert views.shape == (L * (N + 1) + 2, T, T)


def test_means_and_rollout():
    torch.manual_seed(0)
    weights = torch.rand(L, N, 5, 5).softmax(-1)
    views = all_views(weights)
    torch.testing.assert_close(views[N + 1], weights[1, 0])
    torch.testing.assert_close(views[2 * (N + 1) + N], weights[2].mean(0))
    torch.testing.assert_close(views[-2], weights.mean((0, 1)))
    half = [(weights[i].mean(0) + torch.eye(5)) / 2 for i in range(L)]
    torch.testing.assert_close(views[-1], half[2] @ half[1] @ half[0])
    torch.testing.assert_close(rollout(weights).sum(-1), torch.ones(5))


def test_measures_by_hand():
    row = shown_row(TOKENIZER, ["the was"], limit=4, types=1)
    eye = torch.eye(4)
    heads = [eye, eye.roll(-1, 1).index_fill(0, torch.tensor([0]), 0.25), torch.full((4, 4), 0.25)]
    measures = measured(Seen(row, torch.stack(heads)[None]))
    assert measures["entropy"][0].tolist() == pytest.approx([0, 0.5, 2])
    assert measures["self"][0].tolist() == pytest.approx([1, 0.25 / 4, 0.25])
    assert measures["previous"][0].tolist() == pytest.approx([0, 1, 0.25])
    assert measures["next"][0].tolist() == pytest.approx([0, 0.25 / 3, 0.25])
    assert measures["cls"][0].tolist() == pytest.approx([0.25, 1.25 / 4, 0.25])
    assert measures["sep"][0].tolist() == pytest.approx([0.25, 0.25 / 4, 0.25])
    named = named_heads(measures)
    assert {place: [found[:2] for found in there] for place, there in named.items()} == {
        "previous": [(1, 2)], "self": [(1, 1)], "next": [], "cls": [], "sep": [],
    }  # fmt: skip
    assert first_head(measures) == (1, 1)
    assert first_token(row) == 1


def test_a_token_has_a_counterpart_where_it_is_said_as_often_before():
    rows = [shown_row(TOKENIZER, [text], limit=64, types=2) for text in ("the animal the street", "the street the")]
    first, second = map(keys, rows)
    assert [second.index(key) if key in second else None for key in first] == [0, 1, None, 3, 2, 4]


# ---- the page at work


def test_pointing_at_a_token_shows_where_it_looks(opened):
    (seen,), page = opened(("the animal was tired",))
    page.locator(".token").nth(2).click()
    before = page.locator("#said").inner_text()
    page.locator(".token").nth(4).hover()
    assert page.locator(".token").nth(4).get_attribute("class").split()[-1] == "hovered"
    layer, head = first_head(measured(seen))
    weights = seen.weights[layer - 1, head - 1, 4]
    best = int(weights.argmax())
    assert (
        f"tired looks at {seen.row[best].text}\u00a0{as_percent([weights[best]])[0]}"
        in page.locator("#said").inner_text()
    )
    shades = page.evaluate("[...document.querySelectorAll('.token')].map(t => +t.style.getPropertyValue('--w'))")
    assert shades == pytest.approx((weights / weights.max()).tolist(), abs=0.02)
    page.mouse.move(0, 0)
    assert page.locator("#said").inner_text() == before
    assert chosen_text(page) == "animal"


def test_keys_go_through_tokens_and_heads(opened):
    (seen,), page = opened(("the animal was tired",))
    page.locator(".token[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert chosen_text(page) == "[CLS]"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert chosen_text(page) == "animal"
    page.keyboard.press("End")
    assert chosen_text(page) == "[SEP]"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"

    page.locator(".heads td[tabindex='0']").focus()
    for key in ["ArrowUp"] * 9 + ["Home", "ArrowRight", "ArrowDown"]:
        page.keyboard.press(key)
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "layer 2, head 2"
    assert [line[1] for line in shares(page)] == as_percent(seen.weights[1, 1, -1])
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 2, mean"
    assert [line[1] for line in shares(page)] == as_percent(seen.weights[1].mean(0)[-1])
    for key in ["ArrowDown"] * 5:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "rollout"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 3, head 1"
    assert page.locator("[role=gridcell][tabindex='0']").count() == 1
    assert page.locator("[role=option][tabindex='0']").count() == 1


def test_lines_of_a_long_text_are_left_by_up_and_down(opened):
    _, page = opened(
        ("the animal didn ' t cross the street because it was too tired . " * 3,),
        viewport={"width": 500, "height": 800},
    )
    page.locator(".token").nth(1).click()
    page.keyboard.press("ArrowDown")
    places = page.evaluate(
        "[...document.querySelectorAll('.token')].map(t => [t.offsetTop, t.getAttribute('aria-selected')])"
    )
    tops = sorted({top for top, _ in places})
    assert [top for top, selected in places if selected == "true"] == [tops[1]]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.offsetTop") == tops[0]


def test_who_looks_at_it(opened):
    (seen,), page = opened(("the animal was tired",))
    page.get_by_role("button", name="who looks at it").click()
    page.locator(".token").nth(3).click()
    layer, head = first_head(measured(seen))
    assert [line[1] for line in shares(page)] == as_percent(seen.weights[layer - 1, head - 1, :, 3])
    assert "was is looked at by" in page.locator("#said").inner_text()


def test_tapping_on_a_phone(opened):
    (seen,), page = opened(("the animal was tired",), has_touch=True, viewport={"width": 390, "height": 800})
    page.locator(".token").nth(3).tap()
    assert chosen_text(page) == "was"
    page.locator(".heads td").nth(1).tap()
    assert [line[1] for line in shares(page)] == as_percent(seen.weights[0, 1, 3])
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_numbers_in_the_grid(opened):
    (seen,), page = opened(("the animal was tired",))
    measures = measured(seen)
    cell = page.locator(".heads td").nth(N + 1 + 2)  # layer 2, head 3
    assert cell.locator("canvas").count() == 1
    page.get_by_role("button", name="entropy").click()
    assert cell.inner_text() == f"{measures['entropy'][1, 2]:.1f}"
    page.get_by_role("button", name="to the token before").click()
    assert cell.inner_text() == f"{100 * measures['previous'][1, 2]:.0f}"
    page.locator(".token").nth(2).click()
    page.locator("#target").select_option("4")
    assert cell.inner_text() == f"{100 * round(float(seen.weights[1, 2, 2, 4]), 3):.0f}"
    assert page.locator("[data-mode=pair]").get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="maps").click()
    values = page.evaluate(
        """(view) => { const c = document.querySelectorAll('.heads canvas')[view];
        return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 3); }""",
        N + 1 + 2,
    )
    expected = (seen.weights[1, 2].flatten().sqrt() * 255).tolist()
    assert values == pytest.approx(expected, abs=6)


def test_texts_beside_each_other_show_the_same_token_and_the_difference(opened):
    seen, page = opened(*((text,) for text in EXAMPLE))
    it, animal = 10, 2
    assert [one.row[it].text for one in seen] == ["it", "it"]
    layer, head = first_head(measured(seen[0]))
    both = [one.weights[layer - 1, head - 1, it] for one in seen]
    lines = shares(page)
    for j, line in enumerate(lines):
        first, second = as_percent([both[0][j], both[1][j]])
        if seen[0].row[j].id == seen[1].row[j].id:
            gap = round(float(second[:-2]) - float(first[:-2]), 1)
            assert line[1:3] == [first, second]
            assert float(line[3].replace("−", "-")) == pytest.approx(gap, abs=0.051)
        else:
            assert line == ["tired", first, "–", ""]
    assert page.locator("#weights thead th").last.inner_text().split() == ["difference", "(percentage", "points)"]
    assert page.locator("[aria-selected=true] .text").all_inner_texts().count("it") == 2
    page.locator("#target").select_option(str(animal))
    cell = page.locator(".heads td").nth(3)
    shown = [f"{100 * round(float(one.weights[0, 3, it, animal]), 3):.0f}" for one in seen]
    assert cell.inner_text().split() == shown
    page.locator(".row").nth(1).locator(".token").nth(it + 3).click()  # "wide" is in the second text alone
    assert page.locator("#said").inner_text().count("looks at") == 1
    assert page.locator(".row").nth(0).locator("[aria-selected=true]").count() == 0
    assert page.locator(".row").nth(0).locator("[tabindex='0']").count() == 1


def test_chinese_pieces_and_unknown_characters(opened):
    (seen,), page = opened(("今天龘unable",), locale="zh-CN")
    layer, head = first_head(measured(seen))
    assert page.locator(".token .text").all_inner_texts() == ["[CLS]", "今", "天", "龘", "un", "able", "[SEP]"]
    assert page.locator(".token.unknown .text").all_inner_texts() == ["龘"]
    assert page.locator(".token.joined .text").all_inner_texts() == ["able"]
    assert page.locator(".token.unknown").get_attribute("title").startswith("[UNK]")
    assert "“今”看向：“" in page.locator("#said").inner_text()
    assert page.locator("#weights caption").inner_text() == f"“今”看向（第 {layer} 层第 {head} 头）"
    assert page.get_by_role("button", name="看 [CLS]", exact=True).is_visible()
    page.get_by_role("button", name="谁在看它").click()
    assert page.locator("#weights caption").inner_text() == f"看向“今”的（第 {layer} 层第 {head} 头）"
    page.get_by_role("button", name="它看哪里").click()
    assert page.get_by_text("波浪线").is_visible()
    assert page.get_by_text("注意力权重不是对模型回答的解释。").is_visible()
    page.get_by_role("button", name="English").click()
    assert "今 looks at" in page.locator("#said").inner_text()
    assert page.get_by_text("Attention weights are no explanation").is_visible()
    assert "layer 1, head 1" in page.locator(".heads td").first.get_attribute("aria-label")


def test_tokens_that_come_twice_have_their_places(opened):
    _, page = opened(("the animal , the street",))
    assert [line[0] for line in shares(page)] == ["[CLS]", "the₁", "animal", ",", "the₄", "street", "[SEP]"]
    page.locator(".token").nth(4).click()
    assert "the₄ looks at" in page.locator("#said").inner_text()
    assert page.locator("#weights caption").inner_text().startswith("the₄ looks at (layer 3, head ")
    assert page.locator("#target option").all_inner_texts()[4].split() == ["4", "the₄"]
    assert page.locator(".token .text").all_inner_texts()[4] == "the"  # what was written
    assert page.locator(".heads thead").inner_text().split() == ["head", "layer", *map(str, range(1, N + 1)), "mean"]


def test_a_list_that_scrolls_says_so(opened):
    _, page = opened(("the animal was tired . " * 2,))
    assert not page.locator("#more").is_visible()
    _, page = opened(("the animal was tired . " * 6,))
    assert page.locator("#more").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("#more").is_visible()


def test_dark_light_and_print(opened):
    _, page = opened(("the animal was tired",), color_scheme="dark")
    colour = """() => { const c = window.read = document.querySelector('.heads canvas');
        return [...c.getContext('2d').getImageData(0, 0, 4, 4).data].slice(0, 3); }"""
    dark = page.evaluate(colour)
    page.locator("[data-turn-theme]").click()
    page.wait_for_function("document.querySelector('.heads canvas') !== window.read")
    assert sum(page.evaluate(colour)) < sum(dark)
    said = page.locator("#said").inner_text()
    page.emulate_media(media="print")
    assert not page.locator("#modes").is_visible()
    assert page.locator("#said").inner_text() == said  # what was chosen is printed
    assert page.locator(".measures tbody tr").first.is_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('.list')).overflowY") == "visible"


def test_hostile_text_is_shown_and_does_nothing(opened):
    _, page = opened((HOSTILE,))
    shown = page.locator(".token .text").all_inner_texts()
    assert "script" in "".join(shown)
    assert page.locator("img").count() == 0
    assert page.title() == "Attention · model"
    assert "\x1b" not in "".join(shown)
    assert "u\\x1bn" in shown


# ---- mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no text was given"), (["a", "b", "c"], "3 texts were given"), ([""], "no word"), (["it", " "], "no word"),
        (["it " * 63], "65 tokens .* the model takes 64"), (["--example", "it"], "its own texts"),
        (["it", "--beside", ""], "no word"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(checkpoint, tmp_path, arguments, said):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(commands, ["attention", "--model", str(checkpoint()), "--out", str(out), *arguments])
    assert isinstance(done.exception, UserError)
    assert re.search(said, str(done.exception))
    assert not out.exists()


def test_a_pair_needs_two_token_types(checkpoint, tmp_path):
    with pytest.raises(UserError, match="one token type"):
        attention_page(checkpoint(type_vocab_size=1), [("it", "was")], tmp_path / "page.html")
    attention_page(checkpoint(type_vocab_size=1), [("it",)], tmp_path / "page.html")


def test_too_many_weights_are_refused_with_what_fits(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "MOST_WEIGHTS", L * N * 9 * 9)
    model = checkpoint()
    with pytest.raises(
        UserError, match=r"3 layers x 4 heads of 10 tokens are 1,200 weights; a page holds 972\n.*to 9 tok"
    ):
        attention_page(model, [("it was too wide it was too wide",)], tmp_path / "page.html")
    attention_page(model, [("it was too wide it was too",)], tmp_path / "page.html")
    with pytest.raises(UserError, match=r"of 9 and 3 tokens.*\n.*to 6 tokens"):
        attention_page(model, [("it was too wide it was too",), ("it",)], tmp_path / "page.html")


def test_weights_that_are_not_finite_are_refused(checkpoint, tmp_path, monkeypatch):
    model = checkpoint()
    monkeypatch.setattr(attention, "load_model", lambda *_: (spoilt(make()), None))
    with pytest.raises(UserError, match="not finite"):
        attention_page(model, [("it",)], tmp_path / "page.html")


def spoilt(model):
    with torch.no_grad():
        model.encoder.layer[1].attention.self.query.bias.fill_(float("nan"))
    return model


def test_a_file_of_the_model_is_not_overwritten(checkpoint):
    model = checkpoint()
    done = CliRunner().invoke(
        commands, ["attention", "it", "--model", str(model), "--out", str(model / "config.json")]
    )  # fmt: skip
    assert "would overwrite" in str(done.exception)


def test_a_place_that_cannot_be_written_is_refused(checkpoint, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        attention_page(checkpoint(), [("it",)], tmp_path / "file" / "page.html")


def test_the_example_needs_no_text(checkpoint, tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(commands, ["attention", "--model", str(checkpoint()), "--out", str(out), "--example"])
    assert done.exit_code == 0, done.exception
    assert out.read_text("utf-8").count('class="tokens"') == 2


def test_the_data_is_small(checkpoint, tmp_path):
    """Random weights of a few thousandths each; those of trained models are smaller still (docs/looking-inside.md)."""
    (seen,) = attention_page(checkpoint(), [("it was too wide . " * 12,)], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    data = json.loads(re.search(r'id="attention">(.*?)</script>', text, re.DOTALL)[1])["data"][0]
    assert len(data) < all_views(seen.weights).numel() * 1.7
