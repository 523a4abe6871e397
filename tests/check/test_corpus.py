"""Planted faults of every kind are found, each as its own kind alone; clean text raises nothing."""

import base64
import gzip
import json
import re
from pathlib import Path
from random import Random

import pytest

from minibert.check.characters import is_mojibake, kind_of
from minibert.check.corpus import check_corpus
from minibert.console import Console
from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import SPECIAL_TOKENS

SUBJECTS = (
    "teacher farmer doctor writer painter sailor soldier merchant student neighbour captain gardener baker lawyer "
    "nurse driver singer builder hunter prince".split()
)
VERBS = (
    "found watched carried followed remembered painted counted opened repaired described bought borrowed cleaned moved "
    "forgot noticed measured studied wanted promised".split()
)
THINGS = (
    "garden window letter river bridge basket mountain ladder picture castle market village mirror boat wagon candle "
    "blanket kitchen orchard tunnel".split()
)
KINDS = (
    "old small quiet green broken heavy strange empty wooden narrow bright dusty famous hidden lonely pleasant rough "
    "silver warm yellow".split()
)
HAN = (
    "天地人山水火木金土日月年时分学生老师朋友家城市国道路河海江湖"
    "树花草鸟鱼马牛羊书画音乐文字语言工作生活思想感情历史经济社会科技"
)
GERMAN = (
    "Der alte Lehrer ging gestern mit seinen Schülern durch den Wald und erzählte ihnen von {} {}, die früher hier "
    "gelebt haben und heute nicht mehr zu finden sind."
)
WORDS = [*SUBJECTS, *VERBS, *THINGS, *KINDS, "the", "a", "near", "while", "and", "with", ".", ","]
WIDE = "ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TOKENIZER = BertTokenizer.from_tokens(
    list(
        dict.fromkeys(
            [
                *SPECIAL_TOKENS,
                *WORDS,
                *LETTERS,
                *("##" + one for one in LETTERS + WIDE),
                *HAN,
                *WIDE,
                *"，。：！<>/=\"&;:()+{}|_-#?'",
            ]
        )
    ),
    lowercase=True,
)


def sentence(rng):
    a, b, c, d = (rng.choice(KINDS) for _ in range(4))
    return (
        f"The {a} {rng.choice(SUBJECTS)} {rng.choice(VERBS)} a {b} {rng.choice(THINGS)} near the {c} "
        f"{rng.choice(THINGS)}, while the {rng.choice(SUBJECTS)} {rng.choice(VERBS)} the {d} {rng.choice(THINGS)}."
    )


def english(documents=160, seed=1):
    """Some 24,000 words: documents of 5 to 9 sentences, a sentence a line."""
    rng = Random(seed)
    return [[sentence(rng) for _ in range(rng.randrange(5, 10))] for _ in range(documents)]


def chinese(documents=300, seed=2):
    rng = Random(seed)

    def one():
        return "".join(rng.choice(HAN) for _ in range(rng.randrange(8, 15)))

    return [[f"{one()}，{one()}。" for _ in range(rng.randrange(4, 8))] for _ in range(documents)]


def as_text(documents):
    return "\n\n".join("\n".join(lines) for lines in documents) + "\n"


def look(path, **how):
    return check_corpus([path], **{"tokenizer": TOKENIZER, "console": Console(quiet=True), **how})


def kinds(checked, level="doubtful"):
    return {finding.kind for finding in checked.findings if finding.level == level}


@pytest.fixture
def text_file(tmp_path):
    def make(content, name="text.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path

    return make


@pytest.mark.parametrize("documents", [english(), chinese()], ids=["english", "chinese"])
def test_clean_text_raises_nothing(documents, text_file):
    checked = look(text_file(as_text(documents)))
    assert checked.findings == []
    assert checked.facts["documents"] == len(documents)
    assert checked.facts["sentences"] == sum(map(len, documents))
    assert checked.facts["characters"] == sum(len(line) for lines in documents for line in lines)
    assert checked.facts["tokens"] == sum(len(ids) for lines in documents for ids in TOKENIZER.encode(lines))


# ---- faults. Each takes clean documents and gives the text with the fault in it.


def with_insertions(piece, count):
    def plant(documents):
        rng = Random(7)
        for _ in range(count):
            lines = rng.choice(documents)
            at = rng.randrange(len(lines))
            place = lines[at].index(" ", rng.randrange(40))
            lines[at] = lines[at][:place] + piece + lines[at][place:]
        return as_text(documents)

    return plant


def copies(documents):
    return as_text(documents + documents[:12])


def near_copies(documents):
    changed = [[line.replace(lines[0].split()[1], "grumpy") for line in lines] for lines in documents[:25]]
    return as_text(documents + changed)


def boilerplate(documents):
    return as_text([["Copyright of the Example News Company, all rights reserved.", *lines] for lines in documents])


def german(documents):
    rng = Random(8)
    new = [[GERMAN.format(*rng.sample(["Bären", "Wölfen", "Füchsen", "Hirschen", "Eulen"], 2))] for _ in range(2)]
    own = "Zug Baum Haus Stein Wagen Fluss Turm Brunnen Garten Himmel".split()
    for _ in range(20):
        new.append([f"Wir haben {rng.choice(own)} und {rng.choice(own)} gesehen, aber niemand wusste, was {word} war."
                    for word in rng.sample(own, 5)])  # fmt: skip
    return as_text(documents + new)


def lost_blank_lines(documents):
    return "\n".join(line for lines in documents for line in lines)


def too_many_blank_lines(documents):
    return "\n\n".join(line for lines in documents for line in lines)


def wrapped_at(width):
    def plant(documents):
        pieces = []
        for lines in documents:
            rows, row = [], ""
            for word in " ".join(lines).split():
                if len(row) + len(word) >= width:
                    rows.append(row)
                    row = ""
                row = f"{row} {word}".strip()
            pieces.append([*rows, row])
        return as_text(pieces)

    return plant


def wrapped_chinese(_):
    return as_text([["".join(lines)[at : at + 20] for at in range(0, len("".join(lines)), 20)] for lines in chinese()])


def without_punctuation(documents):
    return as_text([[" ".join(lines).replace(".", "").replace(",", "").lower() + " "] * 1 + ["The end."]
                    for lines in documents])  # fmt: skip


def table(documents):
    rng = Random(9)
    rows = [[" ".join(f"{rng.random() * 1000:.2f}" for _ in range(12)) for _ in range(6)] for _ in range(80)]
    return as_text(documents + rows)


def code(documents):
    rng = Random(10)
    rows = [[f"{rng.choice(THINGS)} = {rng.choice(VERBS)}({rng.choice(KINDS)}, {rng.randrange(99)});" for _ in range(9)]
            for _ in range(120)]  # fmt: skip
    return as_text(documents + rows)


def base64_lines(documents):
    rng = Random(11)
    rows = [base64.b64encode(rng.randbytes(57)).decode() for _ in range(12)]
    return as_text([*documents, *[[row, documents[0][0]] for row in rows]])


def full_width(documents):
    rng = Random(12)
    for lines in documents:
        if rng.random() < 0.3:
            lines[:] = [
                "".join(chr(ord(c) + 0xFEE0) if c.isalpha() and n < 40 else c for n, c in enumerate(line))
                for line in lines
            ]
    return as_text(documents)


PLANTED = {
    "little text": lambda documents: as_text(documents[:30]),
    "exact duplicates": copies,
    "near duplicates": near_copies,
    "repeated lines": boilerplate,
    "another language": german,
    "sentence pairs": too_many_blank_lines,
    "wrapped lines": wrapped_at(60),
    "long sentences": without_punctuation,
    "numbers": table,
    "code": code,
    "unbroken text": base64_lines,
    "full width": full_width,
    "markup": with_insertions('<span class="x">y</span> &nbsp; <br/>', 60),
    "lost characters": with_insertions("�", 12),
    "wrong encoding": with_insertions(" cafÃ©", 12),
    "control characters": with_insertions("\x02", 12),
    "private use": with_insertions("\ue012", 12),
    "mixed scripts": with_insertions(" pаper", 12),  # the second letter is Cyrillic
    "invisible characters": with_insertions("\u200b", 300),
    "unknown words": with_insertions(" ☃ ☄ ☃", 200),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_fault_is_found_as_itself(kind, text_file):
    checked = look(text_file(PLANTED[kind](english())))
    assert kinds(checked) == {kind}
    (finding,) = (finding for finding in checked.findings if finding.level == "doubtful")
    assert finding.message.en != finding.message.zh
    assert finding.fix is not None


def test_copies_and_near_copies_are_told_apart_and_named(text_file):
    documents = english()
    near = [[line.replace(lines[0].split()[1], "grumpy") for line in lines] for lines in documents[20:44]]
    path = text_file(as_text(documents + documents[:15] + near))
    checked = look(path)
    exact, nearly = sorted((f for f in checked.findings if "duplicates" in f.kind), key=lambda f: f.kind)
    assert (exact.kind, nearly.kind) == ("exact duplicates", "near duplicates")
    lines = Path(path).read_text("utf-8").split("\n")
    for finding, first, second in ((exact, documents[0], documents[0]), (nearly, documents[20], near[0])):
        places = re.findall(r"text\.txt:(\d+): ", finding.where[0])
        assert [lines[int(place) - 1] for place in places] == [first[0], second[0]]
        assert int(places[1]) > len(documents)


def test_faults_of_whole_files_are_found(text_file):
    assert kinds(look(text_file(lost_blank_lines(english())))) == {"sentence pairs"}  # one document
    assert kinds(look(text_file(wrapped_chinese(None)))) == {"wrapped lines"}
    assert kinds(look(text_file(as_text(english()), "text.csv"))) == {"table read as text"}


def test_padding_of_short_documents(text_file):
    rng = Random(13)
    words = [*SUBJECTS, *VERBS, *THINGS, *KINDS]
    pairs = [[f"{rng.choice(words).title()} {rng.choice(words)}." for _ in range(2)] for _ in range(3600)]
    checked = look(text_file(as_text(pairs)))
    assert kinds(checked) == {"padding"}
    # three tokens each and three special ones, 9, or 12 with two sentences of another document; filled up to 16
    assert 1 - 12 / 16 < checked.facts["padding_share"] < 1 - 9 / 16


def test_gb18030_that_was_read_as_latin_1(text_file):
    wrong = as_text(chinese()).encode("gb18030").decode("latin-1")
    assert "wrong encoding" in kinds(look(text_file(wrong)))


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        ("byte order mark", lambda text: "\ufeff" + text),
        ("line ends", lambda text: text.replace("\n", "\r\n")),
        ("byte order marks", lambda text: text.replace("\n\n", "\n\n\ufeff", 9)),
        ("lost characters", lambda text: text.replace("garden", "g\ufffdrden", 1)),
        ("exact duplicates", lambda text: text + "\n" + "\n\n".join(text.split("\n\n")[:2])),
    ],
    ids=["byte order mark", "line ends", "marks inside", "one lost", "few copies"],
)
def test_what_does_no_harm_is_a_note(kind, plant, text_file):
    checked = look(text_file(plant(as_text(english()))))
    assert kinds(checked) == set()
    assert kinds(checked, "note") == {kind}


@pytest.mark.parametrize(
    ("character", "kind"),
    [("\ue000", "private use"), ("\U000f0000", "private use"), ("\ufffe", "private use"), ("\U0001faea", None),
     ("\u200d", None), ("\t", None), ("\x00", "control characters"), ("\x85", "control characters"), ("é", None),
     ("\u2066", "invisible characters"), ("\u3000", None)],
    ids=ascii,
)  # fmt: skip
def test_kinds_of_characters(character, kind):
    assert kind_of(character) == kind


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("Ã©", True), ("â€™", True), ("ä¸\xad", True), ("à\xa0", False), ("É”", True), ("Â\x81", False)],
    ids=ascii,
)
def test_mojibake(text, wrong):
    assert is_mojibake(text) is wrong


def test_few_documents_and_a_sorted_corpus_are_notes(text_file):
    assert kinds(look(text_file(as_text(english(2000)[:19]))), "note") == {"few documents"}
    checked = look(text_file(as_text(english() + chinese())))
    assert kinds(checked) == set()
    assert kinds(checked, "note") == {"another language", "sorted"}


def test_full_width_digits_as_a_custom_are_a_note_and_punctuation_is_spared(text_file):
    of_1998 = [[line + "１９９８年，共３０人。" for line in lines] for lines in chinese()]
    plain = [[line + "2007年，共15人。" for line in lines] for lines in chinese()]
    for documents in (of_1998, of_1998 + plain):
        checked = look(text_file(as_text(documents)))
        assert "full width" not in kinds(checked)
        (finding,) = (finding for finding in checked.findings if finding.kind == "full width")
        assert "none of the lines mix both widths" in finding.message.en
    code = re.search(r"text\.translate\(.*?\)\}\)|text\.translate\(\{.*?\}\)", finding.fix.en)[0]
    text = "Ａ１ｚ，：！？（）～……“”。"
    assert eval(code, {"text": text}) == "A1z，：！？（）～……“”。"


def test_whether_all_of_the_text_made_the_vocabulary_is_said(text_file, monkeypatch):
    path = text_file(as_text(english()))
    said = str([part.lead for part in look(path, tokenizer=None).sections])
    assert "trained for this check on this text" in said
    monkeypatch.setattr("minibert.check.corpus.SAMPLE", 10_000)
    said = str([part.lead for part in look(path, tokenizer=None).sections])
    assert "trained for this check on the beginning of the text" in said


@pytest.mark.parametrize("groups", [1, 12])
def test_groups_are_counted_where_not_all_are_shown(groups, text_file):
    documents = english()
    checked = look(text_file(as_text(documents + documents[:groups])))
    (part,) = (part for part in checked.sections if part.title.en.startswith("Documents that are nearly"))
    assert (part.lead and part.lead.en) == (None if groups == 1 else "The 10 largest of 12 groups.")
    assert len(part.rows) == min(groups, 10)


# ---- places


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".jsonl"])
def test_places_are_lines_that_can_be_jumped_to_each_once(ending, text_file):
    rows = [" A line of text without anything odd.", "", "\u3000", "<b>one</b> <b>&nbsp;</b> \x02\x02", "More.", ""]
    rows += ["<i>two</i>\x02", "", "<u>three</u><u>four</u>"]
    if ending == ".jsonl":
        rows = [row and json.dumps({"text": row + "\nsecond <p> line"}) for row in rows]
        rows.insert(1, json.dumps({"text": " "}))
    content = "\n".join(rows).encode()
    path = text_file(gzip.compress(content) if ending.endswith("gz") else content, f"a{ending}")
    found = {finding.kind: finding.where for finding in look(path).findings}
    shift = ending == ".jsonl"
    want = ([1, 4, 5] if shift else [4, 7, 9], [5, 8] if shift else [4, 7])
    for kind, numbers in zip(("markup", "control characters"), want, strict=True):
        assert [re.match(r".*a\.[a-z.]+:(\d+): ", place)[1] for place in found[kind]] == list(map(str, numbers))


def test_rows_of_parquet_are_numbered(tmp_path):
    table = pytest.importorskip("pyarrow").table({"text": ["One.", " ", "Two <b>."]})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    (where,) = (f.where[0] for f in look(tmp_path / "a.parquet").findings if f.kind == "markup")
    assert "a.parquet #3: " in where


# ---- what cannot be read


def test_what_cannot_be_read_is_a_finding_and_the_rest_is_read(tmp_path, text_file):
    good = text_file(as_text(english()))
    half = text_file(gzip.compress(as_text(english(seed=3)).encode())[:-200], "half.txt.gz")
    wrong = text_file(as_text(chinese()).encode("gb18030"), "wrong.txt")
    rows = [json.dumps({"text": "\n".join(lines)}) for lines in english(seed=4)]
    bad = text_file("\n".join([*rows[:3], "{broken", *rows[3:]]), "bad.jsonl")
    field = text_file("\n".join(row.replace("text", "body", 1) for row in rows), "field.jsonl")
    files = [half, wrong, bad, field, good]
    checked = check_corpus(files, names=list("abcde"), tokenizer=TOKENIZER, console=Console(quiet=True))
    said = [finding for finding in checked.findings if finding.level == "doubtful"]
    assert [finding.kind for finding in said] == ["unreadable"] * 4
    assert "truncated" in said[0].message.en
    assert said[1].message.en.startswith("b:1")
    assert "gb18030" in said[1].fix.en
    assert said[2].where == ["c:4"]
    assert "--text-field NAME" in said[3].fix.en
    assert all(str(tmp_path) not in finding.message.en for finding in said)
    assert checked.facts["unreadable_files"] == 4
    assert checked.facts["documents"] >= len(english()) + 3


def test_of_a_file_that_cannot_be_read_at_all_nothing_more_is_said(text_file):
    checked = look(text_file(b"\xff\xff"))
    assert [finding.kind for finding in checked.findings] == ["unreadable"]
    assert checked.facts["tokens"] == 0


def test_more_broken_files_than_are_shown(text_file):
    files = [text_file(b"\xff\xff", f"{n}.txt") for n in range(9)]
    checked = check_corpus([*files, text_file(as_text(english()))], tokenizer=TOKENIZER, console=Console(quiet=True))
    assert "4 more files" in [f for f in checked.findings if f.kind == "unreadable"][-1].message.en


@pytest.mark.parametrize("content", ["", "\n \n\u3000\n", "\u200b\n"], ids=["empty", "blank", "invisible"])
@pytest.mark.parametrize("tokenizer", [TOKENIZER, None], ids=["given", "none"])
def test_no_text(content, tokenizer, text_file):
    checked = look(text_file(content), tokenizer=tokenizer)
    assert kinds(checked) == {"no text"}
    assert checked.facts["tokens"] == 0


def test_records_without_text(text_file):
    rows = [json.dumps({"text": "\n".join(lines)}) for lines in english()]
    some = look(text_file("\n".join([*rows, '{"text": " "}']), "a.jsonl"))
    assert kinds(some, "note") == {"records without text"}
    assert kinds(some) == set()
    many = look(text_file("\n".join(rows + ['{"text": ""}'] * 40), "b.jsonl"))
    assert kinds(many) == {"records without text"}
    assert many.facts["records_without_text"] == 40


def test_an_unknown_encoding_is_a_mistake_of_the_command(text_file):
    with pytest.raises(UserError, match="unknown encoding"):
        look(text_file("a"), encoding="utf-99")


# ---- numbers


def test_layout_is_that_of_the_store_that_training_reads(text_file, tmp_path):
    from minibert.check.corpus import Look
    from minibert.corpus.store import TokenStore, build_store

    path = text_file(as_text(english()) + "\u200b\n\n" + as_text(chinese()) + "x " * 300_000)
    seen = Look(TOKENIZER, trained=False)
    seen.file(path, "text", "utf-8", "text", lambda _: None)
    build_store(tmp_path / "store", [path], TOKENIZER, encoding="utf-8", text_field="text", language="auto",
                words=False, workers=1)  # fmt: skip
    store = TokenStore(tmp_path / "store")
    layout = seen.shape.layout()
    assert layout.doc_first.tolist() == store.layout.doc_first.tolist()
    assert layout.sentence_start.tolist() == store.layout.sentence_start.tolist()
    names = ("documents", "sentences", "tokens", "characters", "one_sentence_documents", "unknown_tokens")
    mine = (seen.shape.documents, seen.shape.sentences, seen.shape.tokens, seen.shape.characters,
            seen.shape.one_sentence, seen.shape.unknown)  # fmt: skip
    assert mine == tuple(store.facts[name] for name in names)


def test_without_a_tokenizer_one_is_trained_and_nothing_is_unknown(text_file):
    checked = look(text_file(as_text(english())), tokenizer=None)
    assert checked.findings == []
    assert checked.facts["vocabulary_trained_here"] is True
    assert checked.facts["unknown_rate"] is None


def test_the_commonest_unknown_words_are_named(text_file):
    checked = look(text_file(as_text(english()) + "\n" + "a garden ☃☃ near ☄ .\n" * 30))
    (finding,) = (finding for finding in checked.findings if finding.kind == "unknown words")
    assert finding.message.en.endswith("the commonest: ☃☃ ☄")


def test_the_same_text_gives_the_same_findings(text_file):
    path = text_file(copies(english()))
    assert look(path) == look(path)


def test_memory_of_lines_is_bounded(monkeypatch):
    from minibert.check import lines

    monkeypatch.setattr(lines, "FOLLOWED", 1000)
    seen = lines.Lines()
    for part in range(50):
        seen.add([["a line that comes again", *(f"a line of its own {part} {n}" for n in range(100))]], lambda _: "x")
        assert len(seen.counts) <= 1101
    assert seen.repeated() == [("a line that comes again", 50)]
    assert seen.forgotten


def test_lines_without_any_sentence_end_are_not_wrapped(text_file):
    """Queries, titles, and Chinese without signs: each line is one of its own."""
    queries = [[f"how do i mend a {a} with {b}" for a in ("pipe", "door", "shoe") for b in ("glue", "tape")]] * 40
    signs = [["".join(Random(i * 9 + j).sample("春夏秋冬山水花鸟风雨", 8)) for j in range(6)] for i in range(40)]
    for documents in (queries, signs):
        assert "wrapped lines" not in kinds(look(text_file(as_text(documents))))


# ---- real text


@pytest.mark.parametrize(
    "name", ["en/bbc/raw.txt", "en/brown.txt", "en/gcide.txt", "zh/people_daily/raw.txt", "zh/reviews/raw.txt"]
)
def test_clean_real_text_raises_nothing_doubtful(name, root, text_file):
    path = root / "data" / name
    if not path.is_file():
        pytest.skip(f"no data/{name}: scripts/real_data.py brings it")
    with path.open(encoding="utf-8") as stream:
        text = stream.read(400_000)
    assert kinds(look(text_file(text[: text.rindex("\n")]), tokenizer=None)) == set()
