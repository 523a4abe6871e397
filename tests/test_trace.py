"""The tour: every number is the forward pass's own, for post-LN and pre-LN; told on a terminal and as a page."""

import math
import re
from dataclasses import replace
from io import StringIO

import pytest
import torch
from click.testing import CliRunner

from minibert.checkpoint.folder import load_model, save_checkpoint
from minibert.cli import commands
from minibert.errors import UserError
from minibert.model.bert import ACTIVATIONS, BertConfig, BertModel
from minibert.model.heads import BertForMaskedLM
from minibert.tokenization.shown import batch_of
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minibert.trace.forward import MOST_TOKENS, follow, only_run, open_and_follow
from minibert.trace.page import trace_page
from minibert.trace.steps import NO_BREAK, added, chosen, labels, num, superscript, times, with_gaps
from minibert.trace.terminal import in_lines, in_terminal, language_of, right
from minibert.trace.told import NEARLY_ALL, tell, typical_head

TEXT = "今天我要[MASK]学了。"
TOKENIZER = BertTokenizer.from_tokens([*SPECIAL_TOKENS, *"今天我要上学了。<>", "un", "##able"], lowercase=True)
HOSTILE = '今<script>document.title="in"</script><img src=x>\x1b[31m\u202e天 u\x1bnable'


def make(**changes):
    torch.manual_seed(0)
    shape = {
        "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40,
        "max_position_embeddings": 64, "initializer_range": 0.6, "vocab_size": len(TOKENIZER) + 3,
    }  # fmt: skip
    model = BertForMaskedLM(BertConfig(**{**shape, **changes})).eval()
    with torch.no_grad():  # so that no term is a neutral one
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name or ".ln." in name:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model


@pytest.fixture
def checkpoint(tmp_path):
    save_checkpoint(make(), TOKENIZER, tmp_path / "model")
    return tmp_path / "model"


def values_of(tour):
    """Symbol of each matrix, in order -> its numbers; a symbol may come twice."""
    return [(m.symbol, m.values) for chapter in tour.chapters for step in chapter.steps for m in step.matrices]


KINDS = [
    {}, {"norm": "pre"}, {"positions": "sinusoidal", "hidden_act": "relu"}, {"norm": "pre", "hidden_act": "gelu_new"},
]  # fmt: skip


@pytest.mark.parametrize("changes", KINDS, ids=["post", "pre", "post-relu", "pre-gelu_new"])
def test_the_numbers_are_the_models(changes):
    model = make(**changes)
    passed = follow(model, TOKENIZER, TEXT)
    batch = batch_of(passed.row)
    with torch.no_grad():
        out = model(**batch, output_attentions=True, output_hidden_states=True)
        assert torch.equal(passed.logits, out.logits[0])
        torch.testing.assert_close(passed.logits, model(**batch).logits[0], atol=2e-5, rtol=1e-5)
    for layer in range(3):
        heads = passed.heads(layer)
        assert torch.equal(heads.weights, out.attentions[layer][0])
        torch.testing.assert_close(heads.scores.softmax(-1), heads.weights, atol=1e-6, rtol=0)
        torch.testing.assert_close(heads.dots / 8**0.5, heads.scores, atol=1e-5, rtol=1e-5)
        mixed = (heads.weights @ heads.v).transpose(0, 1).flatten(1)
        torch.testing.assert_close(mixed, heads.context, atol=1e-5, rtol=1e-5)
        assert torch.equal(passed.into[f"bert.encoder.layer.{layer}"], out.hidden_states[layer][0])


@pytest.mark.parametrize("changes", KINDS, ids=["post", "pre", "post-relu", "pre-gelu_new"])
def test_the_steps_that_are_told_lead_from_one_to_the_next(changes):
    """The sums, norms and products that the tour names, from the shown numbers alone, give the next shown numbers."""
    model = make(**changes)
    passed = follow(model, TOKENIZER, TEXT)
    told = values_of(tell(passed, TEXT, layer=2, head=3))
    pre = changes.get("norm") == "pre"
    layer = model.bert.encoder.layer[1]
    same = lambda x, y: torch.testing.assert_close(x, y, atol=1e-4, rtol=1e-4)  # noqa: E731
    ids = torch.tensor([token.id for token in passed.row])
    table = model.bert.embeddings
    with torch.no_grad():
        numbers = iter(told)
        take = lambda symbol: next(v for s, v in numbers if s == symbol)  # noqa: E731
        parts, x = take("E"), take("X")
        same(parts[:3].sum(0), parts[3])
        same(table.word_embeddings(ids) + table.position_embeddings.weight[: len(ids)]
             + table.token_type_embeddings.weight[0], x)  # fmt: skip
        if not pre:
            same(table.LayerNorm(x), take("LayerNorm(X)"))
        x = passed.into["bert.encoder.layer.1"]
        inner = take("LayerNorm(X)") if pre else x
        if pre:
            same(layer.attention.ln(x), inner)
        own, head = layer.attention.self, slice(16, 24)
        q, k, v = take("Q"), take("K"), take("V")
        for part, shown in ((own.query, q), (own.key, k), (own.value, v)):
            same(part(inner)[:, head], shown)
        dots, scores, weights, z = take("S"), take("S / √H"), take("A"), take("Z")
        same(q @ k.T, dots)
        same(dots / 8**0.5, scores)
        same(scores.softmax(-1), weights)
        same(weights.sum(-1), torch.ones(len(ids)))
        same(weights @ v, z)
        side, joined, total = take("[Z₁ … Z_N]"), take("O"), take("X + O")
        same(side[:, head], z)
        same(layer.attention.output.dense(side), joined)
        same(x + joined, total)
        y = total if pre else take("LayerNorm(X + O)")
        if not pre:
            same(layer.attention.output.LayerNorm(total), y)
        inner = take("LayerNorm(X)") if pre else y
        wide, bent = take("X·W₁ + b₁"), take("ReLU" if "relu" in changes.values() else "GELU")
        narrow, total = take("F"), take("X + F")
        same(layer.intermediate.dense(inner), wide)
        same(ACTIVATIONS[model.config.hidden_act](wide), bent)
        same(layer.output.dense(bent), narrow)
        same(y + narrow, total)
        last = total if pre else take("LayerNorm(X + F)")
        if not pre:
            same(layer.output.LayerNorm(total), last)
        same(last, passed.into["bert.encoder.layer.2"])
        final = take("LayerNorm(X)") if pre else passed.out["bert.encoder.layer.2"]
        t = take("t")
        same(model.cls.predictions.transform(final), t)
        same(t @ table.word_embeddings.weight.T + model.cls.predictions.bias, passed.logits)


@pytest.mark.parametrize("changes", KINDS[:2], ids=["post", "pre"])
def test_the_worked_sums_are_right(changes):
    tour = tell(follow(make(**changes), TOKENIZER, TEXT), TEXT, layer=2, head=3)
    steps = [step for chapter in tour.chapters for step in chapter.steps]
    assert [step.title.en for step in steps if not any(c.isdigit() for line in step.worked for c in line.en)] == []
    checked = 0
    for line in (line for step in steps for line in step.worked):
        if "=" in line.en:
            assert line.en.split(": ")[-1] == line.zh.split("：")[-1]
        if "=" in line.en and "…" not in line.en:
            *_, sum_of, result = line.en.replace("−", "-").replace("·", "*").split(": ")[-1].split(" = ")
            assert eval(sum_of, {"exp": math.exp}) == pytest.approx(float(result), abs=0.02, rel=2e-3), line.en
            checked += 1
    # embeddings, query, scaling, projection, two residuals, cosine, the head's own layer, logit, probability
    assert checked == 10


def test_the_worked_weight_is_of_the_shown_scores():
    tour = tell(follow(make(), TOKENIZER, TEXT), TEXT, layer=2, head=3)
    (line,) = next(step for step in tour.chapters[2].steps if step.title.en.startswith("Softmax")).worked
    scores = dict(values_of(tour))["S / √H"][tour.followed]
    first, second = scores.topk(2).values
    assert f"exp({num(first)}) / (exp({num(first)}) + exp({num(second)}) + …) = " in line.en
    assert line.en.endswith(num(scores.softmax(-1).max()))


def test_without_a_head_the_one_of_median_entropy_is_shown():
    """1 of 4, 2 of 4 ...: entropies 0, 2, 1 and 1.58 bits."""
    rows = [[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0]]
    assert typical_head(torch.tensor(rows)) == (4, pytest.approx(math.log2(3)))
    assert typical_head(torch.tensor(rows[:3])) == (3, pytest.approx(1))
    assert typical_head(torch.tensor(rows[:1])) == (1, 0)
    passed = follow(make(), TOKENIZER, TEXT)
    for layer in (1, 3):
        tour = tell(passed, TEXT, layer=layer)
        head, bits = typical_head(passed.weights[layer - 1][:, 5])
        assert tour.head == head
        shown = in_terminal(tour, language="en", width=100, colour=False).replace("\n", " ")
        assert f"median entropy for “[MASK]”, {bits:.2f} bits" in shown
    shown = in_terminal(tell(passed, TEXT, head=head), language="en", width=100, colour=False)
    assert f"head {head} (--layer" in shown


@pytest.mark.parametrize(("place", "neighbour"), [(4, True), (6, True), (0, False)], ids=["before", "after", "far"])
def test_a_head_that_looks_at_one_place_is_explained(place, neighbour):
    passed = follow(make(), TOKENIZER, TEXT)
    for weight in (NEARLY_ALL - 0.01, NEARLY_ALL + 0.01):
        weights = torch.full((3, 10, 10), (1 - weight) / 9)
        weights[..., place] = weight
        tour = replace(passed, weights=(weights, *passed.weights[1:]))
        said = " ".join(line.en for step in tell(tour, TEXT, head=1).chapters[2].steps for line in step.worked)
        assert ("nearly all its weight to one token" in said) is (weight > NEARLY_ALL)
        assert ("looks at a neighbour" in said) is (weight > NEARLY_ALL and neighbour)


def test_the_answer_is_the_models_five_best(checkpoint):
    passed = open_and_follow(checkpoint, TEXT)
    table = tell(passed, TEXT).chapters[-1].steps[-1].table
    model, _ = load_model(BertForMaskedLM, checkpoint)
    with torch.no_grad():
        shares = model(**batch_of(passed.row)).logits[0, 5].softmax(-1)[: len(TOKENIZER)]
    best = shares.topk(5)
    assert [row[1] for row in table.rows] == [TOKENIZER.tokens[i] for i in best.indices]
    assert [row[3] for row in table.rows] == [f"{100 * value:.1f}{NO_BREAK}%" for value in best.values.tolist()]
    assert {row[0] for row in table.rows} == {"5"}


def test_without_a_mask_each_token_has_its_own_prediction(checkpoint):
    tour = tell(open_and_follow(checkpoint, "今天"), "今天")
    step = tour.chapters[-1].steps[-1]
    assert [row[1] for row in step.table.rows] == ["[CLS]", "今", "天", "[SEP]"]
    assert "no [MASK]" in step.words.en
    assert "没有 [MASK]" in step.words.zh
    assert tour.followed == 1


def test_unknown_characters_are_shown_as_they_were_written(checkpoint):
    passed = open_and_follow(checkpoint, "今龘unable")
    assert [token.text for token in passed.row] == ["[CLS]", "今", "龘", "un", "able", "[SEP]"]
    assert [token.unknown for token in passed.row] == [False, False, True, False, False, False]
    assert [token.joined for token in passed.row][4]
    assert "1 of 4 tokens" in tell(passed, "今龘unable").chapters[0].steps[0].worked[0].en


# ---- on a terminal


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_line_is_wider_than_80(checkpoint, language):
    from rich.cells import cell_len

    text = "今天我要上学了。" * 5 + "[MASK]"
    shown = in_terminal(tell(open_and_follow(checkpoint, text), text), language=language, width=80, colour=False)
    assert "\x1b" not in shown
    assert max(map(cell_len, shown.split("\n"))) <= 80
    assert not re.search(r" $", shown, re.MULTILINE)
    assert re.search("^> ", re.sub("^ +", "", shown, flags=re.MULTILINE), re.MULTILINE)
    assert ("Softmax: rows of weights" in shown) is (language == "en")
    assert ("对 value 加权求和" in shown) is (language == "zh")


def test_a_followed_token_is_always_among_the_shown(checkpoint):
    text = "今天我要上学了。" * 3 + "[MASK]" + "今天" * 5
    shown = in_terminal(tell(open_and_follow(checkpoint, text), text), language="en", width=80, colour=False)
    block = shown.split("A (")[1]
    assert re.search(r"> \[MASK\] .* 1\.000$", block, re.MULTILINE)
    assert "[MASK]" in block.splitlines()[1]  # as a column


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_columns_are_those_with_the_largest_weights(checkpoint, width):
    text = "今天我要上学了。" * 3 + "[MASK]" + "今天" * 5
    passed = open_and_follow(checkpoint, text)
    tour = tell(passed, text, layer=2, head=3)
    shown = in_terminal(tour, language="en", width=width, colour=False)
    blocks = [re.split(rf"^   {re.escape(name)} \(", shown, flags=re.MULTILINE)[1] for name in ("S", "S / √H", "A")]
    weights = passed.weights[1][2, tour.followed]
    names = labels(passed.row)
    heads = [block.splitlines()[1].replace("Σ of …", "").replace("Σ", "").split() for block in blocks]
    assert heads[0] == heads[1] == heads[2]
    columns = [name for name in heads[0] if name != "…"]
    best = [i for i in weights.argsort(descending=True).tolist() if i != tour.followed][: len(columns) - 1]
    assert columns == [names[i] for i in sorted([*best, tour.followed])]
    assert len(columns) >= 2 + (width - 60) // 20
    line = next(line for line in blocks[2].splitlines() if line.startswith("   > "))
    *cells, rest, whole = re.findall(r"\d\.\d+", line)
    assert sum(map(float, cells)) + float(rest) == pytest.approx(1, abs=0.005)
    assert whole == "1.000"


def test_a_short_text_has_all_its_columns(checkpoint):
    shown = in_terminal(tell(open_and_follow(checkpoint, "今天我"), "今天我"), language="en", width=80, colour=False)
    assert shown.split("A (5, 5)")[1].splitlines()[1].split() == ["[CLS]", "今", "天", "我", "[SEP]", "Σ"]


def test_the_chinese_tour_is_chinese(checkpoint):
    text = "今天，今天[MASK]"
    tour = tell(open_and_follow(checkpoint, text), text)
    shown = in_terminal(tour, language="zh", width=80, colour=False)
    assert [line.split()[0] for line in shown.split("相加的各行")[1].splitlines()[2:6]] == ["词", "位置", "类型", "和"]
    assert not re.search("[”%] ?[,]|”, ", shown)
    said = [line.zh for chapter in tour.chapters for step in chapter.steps for line in step.worked]
    assert any("、" in line for line in said)
    assert all(f"{NO_BREAK}%" in line for line in said if "%" in line)
    assert NO_BREAK not in shown


def test_tokens_that_come_twice_have_their_places(checkpoint):
    row = open_and_follow(checkpoint, "今天今").row
    assert labels(row) == ["[CLS]", "今₁", "天", "今₃", "[SEP]"]


def test_piped_it_is_plain_and_says_which_run_it_took(checkpoint, tmp_path, monkeypatch):
    run = tmp_path / "runs" / "mine"
    run.parent.mkdir()
    checkpoint.rename(run)
    (run / "metrics.json").write_text("{}")
    (run / "settings.json").write_text('{"command": "pretrain", "settings": {}}')
    monkeypatch.chdir(tmp_path)
    done = CliRunner(env={"LC_ALL": "zh_CN.UTF-8"}).invoke(commands, ["trace", "今天[MASK]"])
    assert done.exit_code == 0, done.exception
    assert "从文本到数字" in done.stdout
    assert "\x1b" not in done.stdout
    assert "runs/mine, the only run" in done.stderr


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_on_a_terminal_there_is_colour_unless_it_is_unwanted(checkpoint, monkeypatch, no_colour):
    shown = Terminal()
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", shown)
    commands.main(["trace", HOSTILE, "--model", str(checkpoint), "--language", "en"], standalone_mode=False)
    text = shown.getvalue()
    assert ("\x1b[1m" in text) is (not no_colour)
    assert "\\x1b[31m\\u202e" in text  # the user's own is no command to the terminal
    assert "\u202e" not in text
    assert "\x1b[31m" not in text
    assert "\x1bn" not in text  # from a place inside a word
    assert "\\x1bn" in text


def test_the_words_for_numbers():
    assert [num(x) for x in (0.12345, -0.5, -0.0001, 12.345, -123.45, 12345.6)] == [
        "0.123", "−0.500", "0.000", "12.35", "−123.5", "12346",
    ]  # fmt: skip
    assert added(1, -2.5, 0.25) == "1.000 − 2.500 + 0.250"
    assert times(-1, 2) == "(−1.000)·2.000"
    assert superscript(12) == "¹²"
    assert chosen(3, 5) == [0, 1, 2]
    assert chosen(10, 4) == [0, 1, 2, None, 9]
    assert chosen(10, 4, 6) == [0, 1, None, 6, None, 9]
    assert with_gaps([4, 1], 6) == [None, 1, None, 4, None]
    assert with_gaps([1, 0], 2) == [0, 1]
    assert right("今天我要上学", 8) == " 今天我…"
    assert right("streets₁₂", 8) == " stre…₁₂"
    assert [language_of({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}), language_of({"LANG": "C"}), language_of({})] == [
        "zh", "en", "en",
    ]  # fmt: skip


def test_chinese_lines_break_between_characters_and_not_before_punctuation():
    assert in_lines("词元变成 256 维向量，相加。", 10, "zh") == ["词元变成", "256 维向", "量，相加。"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_number_and_its_sign_stay_on_a_line(language):
    assert in_lines(f"share 12.9{NO_BREAK}% then", 10, language) == ["share", f"12.9{NO_BREAK}%", "then"]


# ---- mistakes


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", [], "no word"), ("  \n", [], "no word"), ("今" * 60, [], f"62 tokens .*{MOST_TOKENS}"),
        ("今天", ["--layer", "4"], "no layer 4"), ("今天", ["--head", "0"], "no head 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(checkpoint, text, options, said):
    done = CliRunner().invoke(commands, ["trace", text, "--model", str(checkpoint), *options])
    assert isinstance(done.exception, UserError)
    assert re.search(said, str(done.exception))


def test_a_model_without_the_head_is_refused(tmp_path, checkpoint):
    model, _ = load_model(BertModel, checkpoint)
    save_checkpoint(model, TOKENIZER, tmp_path / "encoder")
    with pytest.raises(UserError, match="no head for masked tokens"):
        open_and_follow(tmp_path / "encoder", "今")


def test_a_model_that_diverged_is_refused():
    model = make()
    with torch.no_grad():
        model.cls.predictions.bias.fill_(float("inf"))
    with pytest.raises(UserError, match="not finite"):
        follow(model, TOKENIZER, "今")


def test_without_a_model_there_must_be_one_run(tmp_path):
    with pytest.raises(UserError, match=r"no finished pre-training run[\s\S]*--minutes 3[\s\S]*scripts/demo zh"):
        only_run(tmp_path / "runs")
    for name, command in (("a", "pretrain"), ("b", "finetune"), ("c", "pretrain"), ("unfinished", "pretrain")):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "settings.json").write_text(f'{{"command": "{command}", "settings": {{}}}}')
        if name != "unfinished":
            (run / "metrics.json").write_text("{}")
    with pytest.raises(UserError, match=r"there are 2 in .*: a, c"):
        only_run(tmp_path / "runs")
    (tmp_path / "runs" / "c" / "metrics.json").unlink()
    assert only_run(tmp_path / "runs").name == "a"


def test_a_place_that_cannot_be_written_is_refused(checkpoint, tmp_path):
    (tmp_path / "file").write_text("")
    arguments = ["trace", "今", "--model", str(checkpoint), "--out"]
    done = CliRunner().invoke(commands, [*arguments, str(tmp_path / "file" / "page.html")])
    assert isinstance(done.exception, UserError)
    done = CliRunner().invoke(commands, [*arguments, str(checkpoint / "config.json")])
    assert "would overwrite" in str(done.exception)


# ---- the page


@pytest.fixture
def opened(checkpoint, tmp_path, browser_page):
    def show(text=TEXT, **how):
        tour = tell(open_and_follow(checkpoint, text), text, layer=2, head=3)
        trace_page(tour, checkpoint, tmp_path / "page.html")
        return tour, browser_page(tmp_path / "page.html", **how)

    return show


def test_the_pages_numbers_are_the_tours(opened):
    tour, page = opened(locale="zh-CN")
    shown = page.evaluate(
        """[...document.querySelectorAll('.matrix')].map(m => [m.querySelector('code').textContent,
        [...m.querySelectorAll('tbody tr')].map(r => [...r.querySelectorAll('td[style]')].map(c => +c.title))])"""
    )
    expected = values_of(tour)
    assert [symbol for symbol, _ in shown] == [symbol for symbol, _ in expected]
    for (_, rows), (symbol, values) in zip(shown, expected, strict=True):
        whole = symbol in ("S", "S / √H", "A")
        kept = range(values.shape[1]) if whole or values.shape[1] <= 10 else [*range(9), values.shape[1] - 1]
        torch.testing.assert_close(torch.tensor(rows), values[:, list(kept)], atol=1e-5, rtol=1e-5)
    assert page.locator("h1").inner_text() == TEXT
    assert page.get_by_role("heading", name="除以头维度的平方根").is_visible()
    assert not page.get_by_role("heading", name="Scale by the root of the head size").is_visible()


def test_the_picture_has_a_pixel_for_each_number(opened):
    tour, page = opened()
    pixels = page.evaluate(
        """async () => { const image = document.querySelector('.picture'); await image.decode();
        const c = document.createElement('canvas'); [c.width, c.height] = [image.naturalWidth, image.naturalHeight];
        const g = c.getContext('2d'); g.drawImage(image, 0, 0);
        return [c.height, c.width, [...g.getImageData(0, 0, c.width, c.height).data]]; }"""
    )
    values = dict(values_of(tour))["E"]
    assert pixels[:2] == list(values.shape)
    data = torch.tensor(pixels[2]).view(*values.shape, 4)
    strong = data[..., 3] > 60  # where the colour is not lost in rounding
    assert torch.equal((data[..., 0] > data[..., 2])[strong], (values < 0)[strong])


def test_a_token_is_followed_with_keys_and_by_tapping(opened):
    _, page = opened(has_touch=True, viewport={"width": 390, "height": 800})
    followed = "[...document.querySelectorAll('tr.followed')].map(r => r.dataset.token)"
    assert set(page.evaluate(followed)) == {"5"}
    page.locator(".token").nth(2).tap()
    assert set(page.evaluate(followed)) == {"2"}
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert set(page.evaluate(followed)) == {"4"}
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert set(page.evaluate(followed)) == {"9"}
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_on_a_phone_all_tokens_are_in_sight(opened):
    _, page = opened("今天我要上学了。" * 3 + "[MASK]", viewport={"width": 390, "height": 800})
    boxes = [token.bounding_box() for token in page.locator(".follow .token").all()]
    assert len(boxes) == 27
    assert max(box["x"] + box["width"] for box in boxes) <= 390
    assert page.evaluate("(b => b.scrollHeight <= b.clientHeight + 1)(document.querySelector('.follow .tokens'))")
    assert page.get_by_text("Follow a token").is_visible()


def test_dark_and_print(opened):
    _, page = opened(color_scheme="dark")
    page.locator("summary").first.click()
    page.emulate_media(media="print")
    assert page.locator(".cells").first.is_visible()  # what was closed is printed
    assert not page.locator(".path").is_visible()


def test_hostile_text_is_shown_and_does_nothing(opened):
    _, page = opened(HOSTILE)
    assert page.locator("h1").inner_text() == HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert page.locator("img:not(.picture)").count() == 0
    assert page.title().startswith("今<script>")


def test_a_long_text_is_still_a_page(opened):
    _, page = opened("今天我要上学了。" * 5 + "[MASK]", viewport={"width": 900, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 900
    page.set_viewport_size({"width": 680, "height": 900})  # A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
