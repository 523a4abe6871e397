"""A corpus of raw text, read once as a stream and looked at from all sides. Samples and hashes are all that is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from minibert.check import shape as shapes
from minibert.check.characters import Characters
from minibert.check.duplicates import MOST_WORDS, NearSample, Repeats, alike, folded, runs, words
from minibert.check.findings import Checked, Finding, Section
from minibert.check.languages import Languages
from minibert.check.lines import Lines
from minibert.check.shape import Shape
from minibert.console import Console, counting
from minibert.corpus.decoding import COMPRESSIONS, byte_blocks, check_encoding, doubt, line_blocks
from minibert.corpus.read import Skipped, is_parquet, read_pieces
from minibert.corpus.sentences import split_sentences
from minibert.corpus.store import chunks
from minibert.corpus.tokenize import tokenise
from minibert.errors import UserError
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import SPECIAL_TOKENS, train_vocabulary
from minibert.view.page import Both, percent

SAMPLE = 1_000_000  # characters from the beginnings of the files that a vocabulary is trained on, where none is given
VOCABULARY = 8000
EXACT_SHARE, NEAR_SHARE = 0.05, 0.1  # of the documents, that are copies of another; BBC's news have 0.05 % and 2.7 %
NOTED_SHARE = 0.005
EMPTY_SHARE = 0.1  # of the records
SHOWN = 5  # groups of duplicates, files that cannot be read
TABLES = (".csv", ".tsv", ".json", ".html", ".xml")


def check_corpus(
    files: Sequence[Path],
    *,
    names: Sequence[str] = (),
    encoding: str = "utf-8",
    text_field: str = "text",
    tokenizer: BertTokenizer | None = None,
    max_length: int = 128,
    console: Console,
) -> Checked:
    """Read the files once and say what is in them.

    Args: names: how the user calls each file. tokenizer: None trains a small vocabulary on the beginning of the text,
        so that lengths are about those that `pretrain` would find; nothing is said of unknown words then.
    Raises: UserError for an encoding that Python does not know. A file that cannot be read is a finding.
    """
    check_encoding(encoding)
    names = names or [str(path) for path in files]
    found = Checked(Both("a corpus of text", "文本语料"), {})
    trained = tokenizer is None
    whole = False
    if tokenizer is None:
        tokenizer, whole = vocabulary_of(files, encoding, text_field)
    look = Look(tokenizer, trained=trained, whole=whole)
    with console.progress("checking") as update:
        told = counting(update)
        for path, name in zip(files, names, strict=True):
            look.file(path, name, encoding, text_field, told)
    look.tell(found, max_length)
    return found


def vocabulary_of(files: Sequence[Path], encoding: str, text_field: str) -> tuple[BertTokenizer, bool]:
    """A small vocabulary of the beginnings of the files, bare if they hold no word; whether all of them was read."""
    each = max(SAMPLE // max(1, len(files)), SAMPLE // 50)
    whole = True

    def lines() -> Iterator[str]:
        nonlocal whole
        total = 0
        for path in files:
            own = 0
            try:
                for piece, _ in read_pieces([path], encoding=encoding, text_field=text_field):
                    yield from piece
                    own += sum(map(len, piece))
                    if own >= each:
                        whole = False
                        break
            except UserError:  # said when the text is read
                pass
            total += own
            if total >= SAMPLE:
                whole = False
                return

    try:
        tokens = train_vocabulary(lines, size=VOCABULARY, lowercase=True).tokens
    except UserError:
        tokens = list(SPECIAL_TOKENS)
    return BertTokenizer.from_tokens(tokens, lowercase=True), whole


class Look:
    """What has been seen of a corpus so far."""

    def __init__(self, tokenizer: BertTokenizer, *, trained: bool, whole: bool = False) -> None:
        self.tokenizer = tokenizer
        self.characters, self.lines, self.shape = Characters(), Lines(), Shape(tokenizer, trained=trained, whole=whole)
        self.exact, self.near = Repeats(), NearSample()
        self.findings: list[Finding] = []
        self.unreadable: list[UserError] = []
        self.skipped = Skipped()
        self.files: list[str] = []
        self.number = 0  # documents begun, over all files
        self._digest, self._begins = blake2b(digest_size=8), ""
        self._words: list[str] = []
        self._begun = False
        self._numbers: list[int] = []  # in their file, of the lines that were read and not yet looked at
        self._sign = ":"  # before such a number

    def file(self, path: Path, name: str, encoding: str, text_field: str, told: Callable[[int], None]) -> None:
        """Read one file to its end, or as far as it can be read."""
        self.files.append(name)
        self._sign = " #" if is_parquet(path) else ":"
        skipped = Skipped()
        kind = next((one for one in map(str.lower, reversed(path.suffixes)) if one not in COMPRESSIONS), "")

        def readable() -> Iterator[tuple[list[str], bool]]:
            try:
                if not is_parquet(path):
                    self._look_at_beginning(path, name, encoding)
                lines = full_lines(path, encoding)
                record = passed = 0
                for piece, ends in read_pieces([path], encoding=encoding, text_field=text_field, skipped=skipped):
                    if kind in (".jsonl", ".parquet"):
                        before, record = record, record + 1 + skipped.count - passed
                        passed = skipped.count
                        number = record if is_parquet(path) else [*islice(lines, record - before)][-1]
                        self._numbers += [number] * len(piece)
                    else:
                        self._numbers += islice(lines, len(piece))
                    yield piece, ends
            except UserError as error:
                where = error.where.replace(str(path), name) if error.where else name
                self.unreadable.append(UserError(error.problem, where, error.fix))

        for documents, goes_on in chunks(readable()):
            self._add(documents, goes_on)
            told(sum(len(line) for lines in documents for line in lines))
        self.skipped.count += skipped.count
        self.skipped.first += [where.replace(str(path), name) for where in skipped.first]

    def _look_at_beginning(self, path: Path, name: str, encoding: str) -> None:
        """What its first block tells of a file as a whole."""
        head = next(byte_blocks(path), b"")
        if encoding.lower().replace("_", "-") in ("utf-8", "utf8") and head.startswith(b"\xef\xbb\xbf"):
            self._note(
                "byte order mark", f"{name} begins with a byte order mark, which minibert drops",
                f"{name} 以字节顺序标记开头，minibert 会丢弃它",
            )  # fmt: skip
        if b"\0" not in head and head.count(b"\r"):
            windows = head.count(b"\r\n")
            alone, plain = head.count(b"\r") - windows, head.count(b"\n") - windows
            kinds = [what for what, count in (("\\r\\n", windows), ("\\r", alone), ("\\n", plain)) if count]
            self._note(
                "line ends", f"{name}: lines end with {' and '.join(kinds)}; minibert takes all of them as one",
                f"{name}：行尾是 {' 和 '.join(kinds)}；minibert 会统一处理",
            )  # fmt: skip
        if path.suffix.lower() in TABLES:
            self.findings.append(
                Finding(
                    "table read as text", "doubtful",
                    Both(
                        f"{name} is read line by line as plain text, {path.suffix} or not",
                        f"{name} 会被当作纯文本逐行读取，不管它是不是 {path.suffix}",
                    ),
                    Both(
                        "take the text out of it: .txt, .jsonl or .parquet; is it labelled data? Then give --task",
                        "请把正文导出为 .txt、.jsonl 或 .parquet；如果是标注数据，请加 --task",
                    ),
                )
            )  # fmt: skip
        odd = doubt("\n".join(next(line_blocks(path, encoding), [])))
        if odd and "U+FFFD" not in odd and "HTML" not in odd:
            self.findings.append(
                Finding(
                    "wrong encoding", "doubtful", Both(f"{name}: {odd}", f"{name}：原文编码被读错后又写出：{odd}"),
                    Both("decode the source in its own encoding", "用原来的编码重新解码原始数据"),
                )
            )  # fmt: skip

    def _note(self, kind: str, en: str, zh: str) -> None:
        if sum(finding.kind == kind for finding in self.findings) < SHOWN:
            self.findings.append(Finding(kind, "note", Both(en, zh)))

    def _add(self, documents: list[list[str]], goes_on: bool) -> None:
        """Documents as lists of lines; the first goes on with the one before if that did not end."""
        lines = [line for document in documents for line in document]
        numbers, self._numbers = self._numbers[: len(lines)], self._numbers[len(lines) :]

        def place_of(index: int) -> str:
            return f"{self.files[-1]}{self._sign}{numbers[index]}"

        self.characters.add(lines, place_of)
        self.lines.add(documents, place_of)
        part = tokenise(documents, self.tokenizer, goes_on=goes_on, language="auto", words=False)
        if not self.shape.trained and (part.ids == self.tokenizer.unk_token_id).any():
            self.shape.ask([one for lines in documents for line in lines for one in split_sentences(line)])
        self.shape.add(part)
        first = 0
        for index, lines in enumerate(documents):
            self._copy(lines, place_of(first) if lines else "")
            first += len(lines)
            if index < len(documents) - 1 or not goes_on:
                self._end_document()

    def _copy(self, lines: list[str], where: str) -> None:
        """Some lines of the present document, to be compared with others."""
        if not self._begun:
            self._begun = True
            self.number += 1
            self._digest, self._words = blake2b(digest_size=8), []
            self._begins = f"{where}: {lines[0][:60] if lines else ''}"
        for line in lines:
            text = folded(line)
            self._digest.update(text.encode("utf-8", "surrogatepass") + b" ")
            room = MOST_WORDS - len(self._words)
            if room > 0:
                self._words += islice(words(text), room)

    def _end_document(self) -> None:
        self._begun = False
        if self._words:  # what has no word has no text to be doubled
            self.exact.add(int.from_bytes(self._digest.digest(), "big"), self.number)
            self.near.add(runs(self._words), self._begins)

    def tell(self, found: Checked, max_length: int) -> None:
        """Facts, sections and findings."""
        shape = self.shape
        languages = Languages(self.lines.sample)
        if self.unreadable:
            found.findings += unreadable(self.unreadable)
        if not shape.tokens:
            if not self.unreadable:
                found.findings.append(
                    Finding(
                        "no text", "doubtful", Both("there is no text in it", "没有任何文本"),
                        Both("look at the files that are named", "检查给出的文件"),
                    )
                )  # fmt: skip
            found.facts |= {"files": len(self.files), "documents": 0, "sentences": 0, "tokens": 0}
            return
        measured = shapes.examples(shape, max_length)
        copies = Copies(self.exact, self.near)
        unknown = None if shape.trained else shape.unknown / shape.tokens
        odd = self.characters.findings()
        if any(
            (finding.kind, finding.level) == ("wrong encoding", "doubtful") for finding in odd
        ):  # of all files together
            self.findings = [finding for finding in self.findings if finding.kind != "wrong encoding"]
        found.findings += [
            *shapes.findings(shape, measured, max_length), *copies.findings(), *self.lines.findings(),
            *languages.findings(), *odd, *self.findings, *self._empty(),
        ]  # fmt: skip
        found.facts |= {
            "files": len(self.files), "documents": shape.documents, "sentences": shape.sentences,
            "characters": shape.characters, "tokens": shape.tokens, "vocabulary": len(self.tokenizer),
            "vocabulary_trained_here": shape.trained,
            "unknown_rate": unknown,
            "one_sentence_documents": shape.one_sentence, "max_length": max_length, **measured,
            "sentence_tokens_median": shapes.quantile(shape.sentence_sizes, 0.5),
            "sentence_tokens_95": shapes.quantile(shape.sentence_sizes, 0.95),
            "long_sentence_share": shape.long_share(max_length),
            "exact_duplicate_share": self.exact.extra_share, "near_duplicate_share": copies.near_share,
            "repeated_line_share": self.lines.repeated_share(), "languages": languages.shares,
            "scripts": {str(name): count for name, count in self.characters.scripts()},
            "records_without_text": self.skipped.count, "lines_without_a_token": shape.empty_lines,
            "unreadable_files": len(self.unreadable),
        }  # fmt: skip
        is_next = measured["is_next_share"]
        found.sections += [
            Section(
                Both("How much", "规模"), shapes.good_for(shape.tokens),
                tiles=[
                    (Both("documents", "文档"), f"{shape.documents:,}"),
                    (Both("sentences", "句子"), f"{shape.sentences:,}"),
                    (Both("characters", "字符"), f"{shape.characters:,}"),
                    (Both("tokens", "词元"), f"{shape.tokens:,}"),
                    (Both("unknown tokens", "未知词元"), percent(unknown))
                    if unknown is not None
                    else (
                        Both("unknown tokens", "未知词元"), "—",
                        Both("counted with --model or --tokenizer", "加上 --model 或 --tokenizer 才能统计"),
                    ),
                    (Both("copies of documents", "重复文档"), percent(self.exact.extra_share)),
                    (Both("nearly copies", "近似重复"), percent(copies.near_share)),
                    (Both("true sentence pairs", "真实句对"), "—" if is_next is None else percent(is_next)),
                    (
                        Both(f"padding at {max_length}", f"填充（长度 {max_length}）"),
                        percent(measured["padding_share"]),
                    ),
                    (Both("tokens of an example", "样本平均词元"), f"{measured['mean_example_length']:.0f}"),
                ],
            ),
            *shapes.lengths_section(shape),
            self.characters.section(),
        ]  # fmt: skip
        found.sections += [
            part for part in (languages.section(), copies.section(), self.lines.section()) if part is not None
        ]

    def _empty(self) -> list[Finding]:
        """Records and documents that hold nothing."""
        count, all_ = self.skipped.count, self.skipped.count + self.shape.documents
        if not count:
            return []
        return [
            Finding(
                "records without text", "doubtful" if count > EMPTY_SHARE * all_ else "note",
                Both(
                    f"{count:,} of {all_:,} records hold no text and are left out",
                    f"{all_:,} 条样本中有 {count:,} 条没有文本，会被略过",
                ),
                Both("is --text-field the right one?", "--text-field 对吗？"), self.skipped.first[:3],
            )
        ]  # fmt: skip


def full_lines(path: Path, encoding: str) -> Iterator[int]:
    """The numbers of a file's lines that are not blank: those that are read, or hold a record."""
    lines = (line for block in line_blocks(path, encoding) for line in block)
    return (number for number, line in enumerate(lines, 1) if line.strip())


class Copies:
    """Documents that stand there twice, or nearly."""

    def __init__(self, exact: Repeats, near: NearSample) -> None:
        self.exact = exact
        groups = sorted(alike(near.sets), key=len, reverse=True)
        self.groups = [[near.places[index] for index in group] for group in groups]
        self.same = [len({near.sets[index].tobytes() for index in group}) < len(group) for group in groups]
        extra = sum(len(group) - 1 for group in groups)
        self.near_share = extra / len(near.sets) if near.sets else 0.0

    def pairs(self, *, same: bool) -> list[str]:
        """Where the first two of the largest groups stand."""
        groups = [group for group, is_same in zip(self.groups, self.same, strict=True) if is_same == same]
        return [f"{group[0]} = {group[1]}" for group in groups[:3]]

    def section(self) -> Section | None:
        """The largest groups: where two of each stand."""
        if not self.groups:
            return None
        number, shown = len(self.groups), 2 * SHOWN
        return Section(
            Both("Documents that are nearly the same", "近似重复的文档"),
            Both(f"The {shown} largest of {number:,} groups.", f"共 {number:,} 组，以下是最大的 {shown} 组。")
            if number > shown
            else None,
            columns=(Both("one", "其一"), Both("another", "其二"), Both("in the group", "组内篇数")),
            rows=[(group[0], group[1], str(len(group))) for group in self.groups[:shown]],
        )  # fmt: skip

    def findings(self) -> list[Finding]:
        """Exact copies, and near ones beyond those."""
        found = []
        exact = self.exact.extra_share
        near = self.near_share - exact
        if exact >= NOTED_SHARE:
            again = sum(self.exact.counts.values()) - len(self.exact.counts)
            found.append(
                Finding(
                    "exact duplicates", "doubtful" if exact >= EXACT_SHARE else "note",
                    Both(
                        f"{percent(exact)} of the documents are copies of another ({again:,}"
                        + (f" in a sample of {percent(self.exact.share)})" if self.exact.share < 1 else ")"),
                        f"{percent(exact)} 的文档与另一篇完全相同（{again:,} 篇）",
                    ),
                    Both(
                        "keep one of each: the model would learn them by heart",
                        "每篇只留一份：否则模型会把它们背下来",
                    ),
                    self.pairs(same=True),
                )
            )  # fmt: skip
        if near >= NOTED_SHARE:
            found.append(
                Finding(
                    "near duplicates", "doubtful" if near >= NEAR_SHARE else "note",
                    Both(
                        f"{percent(near)} of the documents are nearly the same as another, copies left out: four "
                        f"fifths of all runs of three words are in both (first {MOST_WORDS:,} words compared)",
                        f"另有 {percent(near)} 的文档与别的文档近乎相同：五分之四的三词片段两篇都有"
                        f"（比较前 {MOST_WORDS:,} 个词）",
                    ),
                    Both("keep one of each group", "每组只留一篇"),
                    self.pairs(same=False),
                )
            )  # fmt: skip
        return found


def unreadable(errors: Sequence[UserError]) -> list[Finding]:
    """A finding for each of the first files that could not be read to their ends, with the reader's own words."""
    found = []
    for error in errors[:SHOWN]:
        fix = Both(error.fix, error.fix) if error.fix else None
        message = Both(
            f"{error.where}: {error.problem}; what stands behind that place was not looked at",
            f"{error.where}：{error.problem}；此处之后的内容没有检查",
        )
        found.append(Finding("unreadable", "doubtful", message, fix, [error.where or ""]))
    if len(errors) > SHOWN:
        more = len(errors) - SHOWN
        message = Both(f"{more:,} more files cannot be read", f"另有 {more:,} 个文件无法读取")
        found.append(
            Finding("unreadable", "doubtful", message, None, [error.where or "" for error in errors[SHOWN:][:3]])
        )
    return found
