"""Lines to sentences: nothing lost, nothing cut inside, quotes with their sentence."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencex import segment

from minibert.corpus import sentences
from minibert.corpus.sentences import split_sentences


def solid(*texts):
    return "".join("".join(text.split()) for text in texts)


MIXED = st.sampled_from(
    [
        *"aA3 .!?,'\"()[]。！？…，；：“”‘’「」『』（）》．中文のア한é।؟😀\u200b\u3000\xa0",
        "Mr. ",
        "U.S. ",
        "e.g. ",
        "3.14",
    ]
)


@settings(deadline=None)  # a shared machine pauses
@given(st.lists(MIXED, max_size=40).map("".join), st.sampled_from(["auto", "en", "zh", "ja", "hi"]))
def test_nothing_but_blanks_is_lost(line, language):
    found = split_sentences(line, language)
    assert solid(*found) == solid(line)
    assert all(sentence and sentence == sentence.strip() for sentence in found)


@settings(deadline=None)  # a shared machine pauses
@given(
    st.lists(
        st.sampled_from(["He left. ", "“好。”", "Mr. Li came! ", "他走了？", "“一。二。” ", '"Yes." ']),
        min_size=200,
        max_size=400,
    )
)
def test_nothing_is_lost_from_a_long_line(parts):
    line = "".join(parts)
    assert solid(*split_sentences(line)) == solid(line)


@pytest.mark.parametrize(
    "line",
    [
        "No end at all",
        "Mr. Smith met Dr. Jones of the U.S. Army.",
        "Pi is 3.14 or so, e.g. in a circle.",
        "See example.com for v1.2.3.",
        "He said that it (the house, i.e. the old one) was sold.",
        "今天天气很好",
        "今天天气很好。",
        "今天天气很好！？",
        "增长了３．７％，达到1.5亿元。",
        "他在U.S. Army工作。",
        "这是Mr. Wang的书。",
        "他想……算了。",
        "第一；第二；第三。",
        "“好。”，他答道。",
        "他问：「走吗？」",
        "Done! 😀",
        "好。（……）",
        "…",
        "!?",
    ],
)
def test_one_sentence_stays_whole(line):
    assert split_sentences(line) == [line]


@pytest.mark.parametrize("line", ["", " ", "\u3000\t"])
def test_blank_line_has_no_sentence(line):
    assert split_sentences(line) == []


@pytest.mark.parametrize(
    "expected",
    [
        ["他来了。", "她走了！", "真的吗？", "好"],
        ["他说：“你好。”", "我走了。"],
        ["他说：「你好。」", "我走了。"],
        ["他说：『你好！』", "我走了。"],
        ["【完了。】", "我走了。"],
        ["完了。)", "我走了。"],
        ["真的吗？！", "是的！！！", "好。"],
        ["“他想……算了……。”", "他走了。"],
        ["「はい。」", "いいえ。"],
        ["한국어 문장이다.", "또 하나."],
    ],
)
def test_closing_quotes_stay_with_their_sentence(expected):
    joint = " " if "한" in expected[0] else ""
    assert split_sentences(joint.join(expected)) == expected


@settings(deadline=None)  # a shared machine pauses
@given(
    st.lists(
        st.sampled_from(["他说：「", "「他说『", "好。", "好！", "真的吗？", "」", "』」", "’”", "）", "】", "》"]),
        max_size=12,
    )
)
def test_no_sentence_begins_with_a_closing_mark(parts):
    line = "他" + "".join(parts)
    assert not [sentence for sentence in split_sentences(line) if sentence[0] in "」』’”）】》"]


@pytest.mark.parametrize(
    "expected",
    [
        ["He left.", "She stayed!", "Why?", "Nobody knows"],
        ["He agreed.", '"If so, go."', '"Yes."'],
        ['"We will see what comes."', "He went on."],
        ["He paid 3.14 dollars.", "Mr. Li paid nothing, e.g. on Monday.", "Fine."],
    ],
)
def test_english(expected):
    assert split_sentences(" ".join(expected)) == expected


def test_opening_quote_goes_to_the_sentence_that_it_opens():
    line = 'A 12" pipe was laid. "It leaks. We must go," he said.'  # the inch mark upsets the library
    assert split_sentences(line) == ['A 12" pipe was laid.', '"It leaks.', 'We must go," he said.']


def test_mixed_scripts():
    line = "I like it. 他说好。Then we left. Mr. Wang用了3.5小时。OK吗？好的！"
    assert split_sentences(line) == [
        "I like it.",
        "他说好。",
        "Then we left.",
        "Mr. Wang用了3.5小时。",
        "OK吗？",
        "好的！",
    ]


def test_other_scripts_have_their_own_ends():
    assert split_sentences("वह गया। वह आई।") == ["वह गया।", "वह आई।"]
    assert split_sentences("Das ist z.B. gut. Schön!", "de") == ["Das ist z.B. gut.", "Schön!"]


@pytest.mark.parametrize(
    "line", ["One sentence only, with commas.", "一句话，只有逗号。", "（新华社记者摄）", "Heading"]
)
def test_library_is_not_asked_without_an_inner_end(line, monkeypatch):
    monkeypatch.setattr(sentences, "segment", None)
    assert split_sentences(line) == [line]


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("plain", "en"),
        ("café", "en"),
        ("中 text", "zh"),
        ("かな漢字", "ja"),
        ("约翰・史密斯", "zh"),
        ("𠀀", "zh"),
        ("한국", "en"),
    ],
)
def test_language_is_that_of_the_script(line, language):
    assert sentences._language_of(line) == language


@settings(deadline=None)  # a shared machine pauses
@given(
    st.lists(
        st.sampled_from(["他走了。", "“好！”", "真的很好吗？", "Mr. Wang来了。", "３．５％。"]),
        min_size=30,
        max_size=120,
    )
)
def test_windows_change_nothing(parts):
    line = "".join(parts)
    whole = [piece.strip() for piece in sentences._mended(segment("zh", line), "zh")]
    window = sentences._WINDOW
    try:
        sentences._WINDOW = 50
        assert split_sentences(line) == whole
    finally:
        sentences._WINDOW = window


@pytest.mark.parametrize("shift", range(12))
def test_window_that_ends_beside_a_mark_is_cut_again(monkeypatch, shift):
    monkeypatch.setattr(sentences, "_WINDOW", 50)
    line = "字" * shift + "“好。”，他说。走了。" * 20
    assert split_sentences(line)[1:] == ["走了。", "“好。”，他说。"] * 19 + ["走了。"]


def test_long_line_takes_linear_time():
    start = time.process_time()
    assert len(split_sentences("你好吗？" * 50_000)) == 50_000
    assert split_sentences("没有句号，" * 200_000 + "。") == ["没有句号，" * 200_000 + "。"]
    assert len(split_sentences("！" * 200_000 + "好")) == 2
    assert time.process_time() - start < 10  # measured .3 s; the library alone takes 8 s for a fifth of the first line


def mended_without_shortcuts(pieces, language):
    """What _mended does, every expression tried on every piece."""
    mended = pieces[:1]
    for piece in pieces[1:]:
        left = mended.pop()
        if closers := sentences._CLOSERS.match(piece):
            left, piece = left + closers[0], piece[closers.end() :]
        elif openers := sentences._OPENERS.search(left):
            left, piece = left[: openers.start()], openers[0] + piece
        inside = not sentences._WORD.search(piece) or sentences._GOES_ON.match(piece)
        if inside or sentences._cut_in_number_or_abbreviation(left, piece, language):
            mended.append(left + piece)
        else:
            mended += [left, piece]
    return mended


@settings(deadline=None)  # a shared machine pauses
@given(
    st.lists(st.lists(MIXED | st.sampled_from(["\n", "“\n", " (", "３．", "7"]), min_size=1, max_size=6).map("".join)),
    st.sampled_from(["en", "zh", "ja"]),
)
def test_shortcuts_change_nothing(pieces, language):
    assert sentences._mended(pieces, language) == mended_without_shortcuts(pieces, language)


@pytest.mark.parametrize("blank", ["\xa0", "\u3000", " \u2003", "\u3000 "], ids=ascii)
@pytest.mark.parametrize("language", ["auto", "en", "zh"])
def test_wide_blanks_before_a_full_stop_do_not_end_the_program(blank, language):
    for text in (f"J{blank}.", f"Then J{blank}. Smith came. He went.", f"他是 J{blank}.王先生。他走了。"):
        assert "".join(split_sentences(text, language)).replace(" ", "") == text.replace(" ", "")
    assert split_sentences(f"Then he{blank}. She went.", "en") == [f"Then he{blank}.", "She went."]
