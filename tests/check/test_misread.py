"""Chinese that was read in the encoding of the other Chinese is known; text that is as it should be is left alone."""

from itertools import pairwise

import pytest

from minibert.check.characters import Characters
from minibert.check.misread import WAYS, mended, misread

TRADITIONAL = (
    "總之房間衛生太差，服務態度惡劣，我們在這個酒店住了兩天，完全沒有得到應有的服務。早上吃早餐的時候，發現牛奶是壞的，"
    "跟服務員說了之後也沒有人理會。"
)
SIMPLIFIED = (
    "总之房间卫生太差，服务态度恶劣，我们在这个酒店住了两天，完全没有得到应有的服务。早上吃早餐的时候，发现牛奶是坏的，"
    "跟服务员说了之后也没有人理会。"
)
JAPANESE = (
    "私は学生です。東京に住んでいます。昨日、友達と一緒に映画を見ました。β遮断薬は心臓の病気の治療に使われる薬である。"
)
BIG5_AS_GBK = TRADITIONAL.encode("cp950").decode("gb18030")
GBK_AS_BIG5 = SIMPLIFIED.encode("gb18030").decode("cp950", "ignore")


@pytest.mark.parametrize(
    ("way", "wrong", "right"),
    [("Big5 as GBK", BIG5_AS_GBK, TRADITIONAL), ("GBK as Big5", GBK_AS_BIG5, SIMPLIFIED)],
    ids=["big5", "gbk"],
)
def test_the_way_is_told_and_the_text_comes_back(way, wrong, right):
    text = f"补充点评 2007年10月25日 ： {wrong}"
    found = list(misread(text))
    assert {one for one, *_ in found} == {way}
    start, stop = found[0][1], found[-1][2]
    assert text[start:stop] in wrong
    assert stop - start > 0.8 * len(wrong)
    assert mended(text[start : start + 12], way)[:4] in right
    assert all(first[2] <= second[1] for first, second in pairwise(found))


@pytest.mark.parametrize(
    "text",
    [TRADITIONAL, SIMPLIFIED, JAPANESE, SIMPLIFIED.replace("，", "\ue5e5"), TRADITIONAL.replace("，", "\ue5e5"),
     JAPANESE.replace("、", "\ue5e5"), "\ue5e5 \ue5e6\ue5e7", "扂岆", "The \ue5e5 of \ue5e6 und für Ärger.", "琌" * 3],
    ids=range(10),
)  # fmt: skip
def test_text_as_it_should_be_is_left_alone(text):
    assert list(misread(text)) == []
    assert not any(mended(text, way) for way in WAYS)


def test_one_document_is_a_note_and_its_characters_are_no_private_use():
    seen = Characters()
    seen.add([SIMPLIFIED] * 2000 + [BIG5_AS_GBK], lambda number: f"a.txt:{number + 1}")
    (finding,) = seen.findings()
    assert (finding.kind, finding.level) == ("wrong encoding", "note")
    assert "Big5 that was read as GBK" in finding.message.en
    assert finding.where[0].startswith("a.txt:2001: ")
    assert "總之房間衛生太差" in finding.where[0]
    seen.add([BIG5_AS_GBK + "\n" + SIMPLIFIED + "\ue5e5"] * 30, lambda _: "b.txt:1")
    assert {finding.kind: finding.level for finding in seen.findings()} == {
        "wrong encoding": "doubtful", "private use": "doubtful",
    }  # fmt: skip
    assert seen.of_kind("private use") == 30
