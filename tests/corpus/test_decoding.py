"""Bytes to lines: line ends, encodings, compressions, and where an error is said to be."""

import bz2
import gzip
import lzma
import re
import tempfile
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from minibert.corpus import decoding
from minibert.corpus.decoding import check_encoding, line_blocks
from minibert.errors import UserError

COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
CHINESE = "汉字编码的测试，这一行是中文。"


def lines_of(path, encoding="utf-8"):
    return [line for block in line_blocks(path, encoding) for line in block]


def written(folder, data, name="corpus.txt"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture
def refused(tmp_path):
    """Writes the bytes, reads them, hands back the error."""

    def read(data, encoding="utf-8", name="corpus.txt"):
        with pytest.raises(UserError) as caught:
            lines_of(written(tmp_path, data, name), encoding)
        return caught.value

    return read


TRICKY = st.text(
    st.sampled_from("ab \t\n\r\u2028\x85\x0b\x0c\x1c\ufeff\u3000\u200b\0é不中𠀀😀") | st.characters(codec="utf-8")
)


@settings(deadline=None)  # a shared machine pauses
@given(
    text=TRICKY,
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030"]),
    compression=st.sampled_from(sorted(COMPRESS)),
    block_bytes=st.integers(1, 40),
)
def test_lines_are_those_of_the_simple_definition(text, encoding, compression, block_bytes):
    if encoding.startswith("utf-16"):
        text = text.replace("\0", "")  # a mark and a NUL are UTF-32's mark: refused
    eats_bom = encoding in ("utf-8-sig", "utf-16", "utf-32")  # writes and drops its own, so that a second one is text
    expected = re.split("\r\n|\r|\n", text if eats_bom else text.removeprefix("\ufeff"))
    if not expected[-1]:
        expected.pop()  # a line end ends a line, it does not begin one
    data = text.encode(encoding)
    block_bytes = max(block_bytes, 4)  # the first block shows the byte order mark
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(decoding, "BLOCK_BYTES", block_bytes):
        path = written(Path(folder), COMPRESS[compression](data), f"corpus.txt{compression}")
        with mock.patch.object(decoding, "_refuse_binary"):
            assert lines_of(path, encoding) == expected


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 4, 5])
def test_crlf_cut_by_a_block_is_one_line_end(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(decoding, "BLOCK_BYTES", block_bytes)
    assert lines_of(written(tmp_path, b"a\r\nb\r\rc\n\nd\r")) == ["a", "b", "", "c", "", "d"]


def test_nothing_but_newlines_ends_a_line(tmp_path):
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"
    assert lines_of(written(tmp_path, text.encode())) == [text]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "gb18030"])
def test_only_the_first_character_is_a_bom(tmp_path, encoding):
    bom = "" if encoding in ("utf-8-sig", "utf-16", "utf-32") else "\ufeff"  # those write it themselves
    path = written(tmp_path, f"{bom}\ufeff一\n\ufeff二".encode(encoding))
    assert lines_of(path, encoding) == ["\ufeff一", "\ufeff二"]


def test_bom_at_the_start_of_a_later_block_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_BYTES", 3)
    assert lines_of(written(tmp_path, "一\ufeff二".encode())) == ["一\ufeff二"]


def test_line_longer_than_many_blocks(tmp_path):
    line = "长" * 1_000_000
    assert lines_of(written(tmp_path, f"a\n{line}\nb".encode())) == ["a", line, "b"]


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".xz", ".zst"])
class TestArchives:
    def test_members_follow_each_other(self, tmp_path, compression):
        data = COMPRESS[compression](b"one\ntw") + COMPRESS[compression](b"o\n")
        assert lines_of(written(tmp_path, data, f"corpus.txt{compression}")) == ["one", "two"]

    def test_truncated_is_refused(self, refused, compression):
        data = COMPRESS[compression]("".join(f"{i * i}\n" for i in range(30_000)).encode())
        for end in (len(data) - 3, len(data) // 2):
            error = refused(data[:end], name=f"corpus.txt{compression}")
            assert "truncated" in error.problem
            assert error.where.endswith(f"corpus.txt{compression}")

    def test_damaged_is_refused(self, refused, compression):
        data = COMPRESS[compression]("".join(f"{i * i}\n" for i in range(3000)).encode())
        for start in (12, len(data) // 2):  # in the first block's head, in its middle
            bad = bytes(data[:start] + b"\xff" * 40 + data[start + 40 :])
            assert compression in refused(bad, name=f"corpus.txt{compression}").problem

    def test_plain_text_under_its_name_is_refused(self, refused, compression):
        assert compression in refused(b"plain text, never compressed\n", name=f"corpus.txt{compression}").problem


def test_zst_skippable_frame_is_skipped(tmp_path):
    skippable = (0x184D2A50).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"note"
    data = skippable + zstandard.compress(b"one\n") + skippable + zstandard.compress(b"two\n")
    assert lines_of(written(tmp_path, data, "corpus.zst")) == ["one", "two"]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("before", "line", "encoding"),
    [
        (b"", 1, "utf-8"),
        (b"ok\nok\r\nok\rok", 4, "utf-8"),
        (b"ok\r", 2, "utf-8"),
        (b"ok\r\n\r\n", 3, "utf-8"),
        ("好\n好".encode(), 2, "utf-8"),
        ("aaaaaa好\n".encode(), 2, "utf-8"),  # cut inside the character by blocks of 7
        ("好\r\n好\n".encode("gb18030"), 3, "gb18030"),
    ],
)
def test_error_names_line_offset_and_byte(refused, monkeypatch, before, line, encoding, block_bytes):
    monkeypatch.setattr(decoding, "BLOCK_BYTES", block_bytes)
    error = refused(before + b"\xff after\n", encoding)
    assert error.where.endswith(f"corpus.txt:{line}")
    assert f"byte 0xff at offset {len(before)} is not {encoding}" in error.problem
    assert "--encoding" in error.fix


def test_error_offset_is_counted_over_blocks(refused, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_BYTES", 64)
    error = refused(gzip.compress(b"0123456789\n" * 100 + b"ab\xe4\xb8"), name="corpus.txt.gz")
    assert error.where.endswith("corpus.txt.gz:101")
    assert "byte 0xe4 at offset 1102" in error.problem
    assert "end of data" in error.problem


@pytest.mark.parametrize("before", ["", "a", "plain words first\n\n"])
@pytest.mark.parametrize("encoding", ["gb18030", "utf-16-le", "utf-16-be"])
def test_likely_encoding_of_chinese_is_named(refused, before, encoding):
    error = refused((before + CHINESE * 3).encode(encoding))
    assert error.fix == f"it looks like {encoding}: --encoding {encoding}"


def test_likely_encoding_of_traditional_chinese_and_of_french(refused):
    assert "--encoding big5" in refused("漢字編碼的測試，這一行是中文。".encode("big5")).fix
    assert "--encoding cp1252" in refused("Le café est fermé “à midi”, dit-il; où aller ?".encode("cp1252")).fix
    assert "--encoding utf-8" in refused(CHINESE.encode(), "ascii").fix


def test_damaged_byte_in_utf8_is_not_taken_for_another_encoding(refused):
    assert "mend this byte" in refused(CHINESE.encode() + b"\xff" + CHINESE.encode()).fix


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_foreign_bom_is_refused_with_the_fix(refused, encoding):
    name = encoding[:6]
    data = ("\ufeff" + CHINESE).encode(encoding)
    assert refused(data).fix == f"--encoding {name}"
    if name == "utf-32":
        assert refused(data, "utf-16").fix == "--encoding utf-32"


def test_utf16_without_bom_is_refused_with_the_fix(refused):
    assert refused(CHINESE.encode("utf-16-be"), "utf-16").fix == "it looks like utf-16-be: --encoding utf-16-be"
    assert refused("plain English words".encode("utf-16-le")).fix == "it looks like utf-16-le: --encoding utf-16-le"


def test_utf8_read_as_utf16_is_refused_with_the_fix(refused):
    assert refused((CHINESE * 2).encode(), "utf-16").fix == "it looks like utf-8: --encoding utf-8"


def test_binary_is_refused_and_named(refused):
    assert "not utf-8 text" in refused(b"\x01\0\0\0" * 50).problem
    assert "gzip data" in refused(gzip.compress(b"text")).fix
    assert "xz data" in refused(lzma.compress(b"text")).fix
    assert "zstd data" in refused(zstandard.compress(b"text" * 9)).fix


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".xz", ".zst"])
class TestWhatStandsBehindAnArchive:
    """Nothing of a file is left out unseen: what comes behind an archive is read, or named."""

    @settings(max_examples=25, deadline=None)
    @given(tail=st.binary(min_size=1, max_size=40), text=st.text("ab\n", max_size=40))
    def test_rubbish_is_refused(self, compression, tail, text):
        data = COMPRESS[compression](text.encode())
        with tempfile.TemporaryDirectory() as folder:
            path = written(Path(folder), data + tail, f"a.txt{compression}")
            if not tail.strip(b"\0") and compression != ".zst":
                assert lines_of(path) == lines_of(written(Path(folder), text.encode()))
            else:
                with pytest.raises(UserError, match="archive"):
                    lines_of(path)

    def test_a_member_that_is_cut_off_is_refused(self, tmp_path, refused, compression):
        pack = COMPRESS[compression]
        refused(pack(b"one\n") + pack(b"two\n")[:-4], name=f"a.txt{compression}")

    def test_members_with_zeros_between_them_are_all_read(self, tmp_path, monkeypatch, compression):
        pack = COMPRESS[compression]
        gap = b"" if compression == ".zst" else b"\0" * 8
        for block_bytes in (1, 7, 1 << 18):
            monkeypatch.setattr(decoding, "BLOCK_BYTES", block_bytes)
            path = written(tmp_path, pack(b"one\n") + gap + pack(b"two\n") + gap, f"a.txt{compression}")
            assert lines_of(path) == ["one", "two"]

    def test_an_empty_file_is_no_archive(self, refused, compression):
        refused(b"", name=f"a.txt{compression}")


@pytest.mark.parametrize(
    ("data", "said", "encoding"),
    [
        (b"%PDF-1.4\nplain characters\n", "a PDF", "utf-8"),
        (b"{\\rtf1 plain characters}\n", "an RTF document", "utf-8"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull", "utf-8"),
        (bytes(range(256)) * 4, "control characters", "latin-1"),
        (b"\x1b[31m\x07" * 50, "control characters", "utf-8"),
        (b"good text\n" * 40_000 + b"\0" * 300_000, ":40001: 124288 of 262144", "utf-8"),
    ],
    ids=["pdf", "rtf", "lfs", "random bytes", "escapes", "a hole at the end"],
)
def test_what_is_no_text_is_named(refused, data, said, encoding):
    assert said in str(refused(data, encoding=encoding))


def test_a_line_that_fills_the_memory_is_refused_with_its_place(tmp_path):
    path = written(tmp_path, gzip.compress(b"one\n" + b"a" * 10_000_000), "a.txt.gz")
    tracemalloc.start()
    with pytest.raises(UserError, match=r"a.txt.gz:2: a line of more than 1,000,000 characters"):
        list(line_blocks(path, longest=1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
    assert lines_of(path)[1] == "a" * 10_000_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("naïve café\n".encode().decode("cp1252") * 5, "it is utf-8 that was read as cp1252"),
        ("今天我要上学了\n".encode("gb18030").decode("latin-1") * 5, "it is gb18030 that was read as latin-1"),
        ("lost \ufffd\ufffd text\n" * 5, "are U+FFFD"),
        ("<!DOCTYPE html>\n<p>text", "HTML"),
    ],
    ids=["utf-8", "gb18030", "lost", "html"],
)
def test_text_that_was_spoilt_before_is_doubted(text, said):
    assert said in (decoding.doubt(text) or "")


@pytest.mark.parametrize(
    "text",
    ["", "plain\n" * 9, "naïve café, Ärger, façade\n" * 9, "今天我要上学了\n" * 9, "Ã and Â are letters\n" * 2,
     "é\n" * 9,
     "Ελληνικά\n" * 9, "Русский\n" * 9, "“quoted” – dash…\n" * 9],
    ids=range(9),
)  # fmt: skip
def test_good_text_is_not_doubted(text):
    assert decoding.doubt(text) is None


def test_a_few_nulls_are_text(tmp_path):
    text = "a\0b" + "\0" * 7 + "word " * 100
    assert lines_of(written(tmp_path, text.encode())) == [text]


@pytest.mark.parametrize("name", ["klingon", "hex", "rot13", "undefined", "", "a\0b"])
def test_unknown_encoding_is_refused_with_examples(name):
    with pytest.raises(UserError, match="unknown encoding") as caught:
        check_encoding(name)
    assert "gb18030" in caught.value.fix


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(num_lines, name):
        path = written(tmp_path, "一行文字 and some words\n".encode() * num_lines, name)
        tracemalloc.start()
        try:
            for _ in line_blocks(path):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(50_000, "small.txt"), peak(400_000, "large.txt")
    assert large < 1.2 * small  # measured: within 1 %
