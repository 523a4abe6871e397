"""What only entities can know of their data: tags in order, edges of entities, names that are tagged in two ways."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from minibert.check.balance import check_balance, occurrences
from minibert.check.findings import Checked, Section
from minibert.check.labelled import PART_NAMES, LabelFile, add, level, names_of
from minibert.corpus.json_lines import numbered_lines
from minibert.errors import UserError
from minibert.metrics.tagging import find_entities
from minibert.tasks.base import input_format
from minibert.tasks.conll import DOCUMENT_MARK, read_conll
from minibert.tasks.ner import Ner
from minibert.tasks.ner_files import FORMATS, NerExample
from minibert.tasks.tags import is_tag
from minibert.tasks.word_spans import joined
from minibert.view.page import Both, percent

OUT_OF_ORDER = 0.005  # sentences with such tags; measured: 0
EDGES = 0.03  # entities that begin or end in punctuation; measured: .013 (WNUT17's test)
TIMES = 5  # that a name is seen before two ways of tagging it count
TWO_WAYS = 0.25  # mentions of such names that are not tagged as most are; measured: .031
WITHOUT = 0.95  # sentences without an entity; measured: .64 (WNUT17)
LONG = 400  # words of a typical sentence: no blank lines
SWAPPED = 0.5  # of the first column that looks like tags
ROWS = 20

Mention = tuple[str, int, int]  # type, first word, the word after the last


def look(task: Ner, files: Sequence[LabelFile], checked: Checked) -> None:
    """Adds what there is to say to `checked`."""
    for file in files:
        _check_columns(task, file, checked)
    files = [file for file in files if file.examples]
    entities = {file.name: [find_entities(e.tags or ()) for e in file.examples] for file in files}
    named = {
        file.name: occurrences(
            [[label for label, _, _ in found] for found in entities[file.name]], [r.where for r in file.records]
        )
        for file in files
    }
    check_balance(named, Both("entity type", "实体类型"), checked)
    for file in files:
        _check_order(file, checked)
        _check_sentences(file, entities[file.name], checked)
        _check_edges(file, entities[file.name], checked)
    if files:
        _check_two_ways(files, entities, checked)


def count_entities(file: LabelFile) -> int:
    """How many entities a file has."""
    return sum(len(find_entities(example.tags or ())) for example in file.examples)


def _check_columns(task: Ner, file: LabelFile, checked: Checked) -> None:
    """Words and tags in the wrong order; marks of documents."""
    try:
        if input_format(file.path, task.config, FORMATS) == "jsonl":
            return
        sentences = file.examples
        if file.faults:  # the reader has left out what has no tag
            sentences = read_conll(file.path, task.config.encoding, gold=True, faults=[])[0]
        lines = numbered_lines(file.path, task.config.encoding)
        marks = [number for number, line in lines if line.startswith(DOCUMENT_MARK)]
    except UserError:
        return  # the reader has said it
    tokens = [token for sentence in sentences for token in sentence.tokens]
    shown = names_of(dict.fromkeys(tokens), 3)
    if tokens and sum(map(is_tag, tokens)) > SWAPPED * len(tokens):
        add(
            checked,
            "columns swapped",
            "doubtful",
            f"the first column of {file.name} holds tags: {shown}; columns are swapped, or the words are missing",
            f"{PART_NAMES[file.name]}的第一列是标签：{shown}；两列颠倒了，或缺少词",
            ("a word a line: the word comes first, its tag last", "每行一个词：第一列是词，最后一列是标签"),
            [f"{file.path}:1"],
        )
    if marks:
        checked.facts["files"][file.name]["document_marks"] = len(marks)
        add(
            checked,
            "document marks",
            "note",
            f"{len(marks):,} lines of {file.name} are {DOCUMENT_MARK}: they are no words, and are passed over",
            f"{PART_NAMES[file.name]}有 {len(marks):,} 行是 {DOCUMENT_MARK}：它们不是词，会被跳过",
            where=(f"{file.path}:{number}" for number in marks),
        )


def _check_order(file: LabelFile, checked: Checked) -> None:
    """Tags that do not follow their scheme, and entities that words cannot say: what the reader mends or leaves out."""
    scheme = next((note for note in file.reading.notes if note.startswith("the tags' scheme is ")), "")
    if scheme:
        checked.facts["files"][file.name]["scheme"] = scheme.removeprefix("the tags' scheme is ").split(",")[0]
    n, zh = len(file.examples), PART_NAMES[file.name]
    said = [f"{item['where']}: {item['reason']}" for item in file.reading.repaired]
    order = [one for one in said if "tags out of order" in one]
    places = [one for one in said if one not in set(order)]
    if order:
        add(
            checked,
            "tags out of order",
            level(len(order) / n, OUT_OF_ORDER),
            f"{len(order):,} of {n:,} sentences of {file.name} have tags that do not follow their scheme, such as I-X "
            "after O; they are read as conlleval reads them",
            f"{zh}的 {n:,} 个句子中有 {len(order):,} 个标签序列不合规范，"
            "例如 O 之后直接是 I-X；按 conlleval 的规则读取",
            ("correct the tags, or name the scheme with --scheme", "改正标签，或用 --scheme 指定标注方案"),
            order,
        )
    skipped = [f"{item['where']}: {item['reason']}" for item in file.reading.skipped]
    if places or skipped:
        add(
            checked,
            "entities out of place",
            "doubtful",
            f"{len(places) + len(skipped):,} records of {file.name} have entities that whole words cannot say, "
            "or no words: they are mended or left out",
            f"{zh}有 {len(places) + len(skipped):,} 条样本的实体位置不落在完整的词上或越界：会被移动或跳过",
            (
                "start and end count characters of the text; the end is behind the last one",
                "start 和 end 按文本字符计，end 指最后一个字符之后",
            ),
            [*skipped, *places],
        )


def _check_sentences(file: LabelFile, entities: Sequence[Sequence[Mention]], checked: Checked) -> None:
    """Sentences: how many have no entity, are too long to be one, or are a word."""
    lengths = [len(example.tokens) for example in file.examples]
    n, zh = len(lengths), PART_NAMES[file.name]
    without = sum(not found for found in entities) / n
    checked.facts["files"][file.name] |= {
        "words": sum(lengths), "entities": sum(map(len, entities)), "without_entity": without,
    }  # fmt: skip
    if without >= WITHOUT:
        add(
            checked,
            "few entities",
            "doubtful",
            f"{percent(without)} of the sentences of {file.name} have no entity",
            f"{zh}中 {percent(without)} 的句子没有实体",
            ("are all entities tagged? leave some such sentences out", "实体都标全了吗？可去掉一部分这样的句子"),
        )
    places = sorted(range(n), key=lambda i: -lengths[i])
    if median(lengths) > LONG:
        add(
            checked,
            "no blank lines",
            "doubtful",
            f"{file.name} has {n:,} sentences of {median(lengths):,.0f} words: are the blank lines between them lost?",
            f"{zh}只有 {n:,} 个句子，每句约 {median(lengths):,.0f} 个词：句子之间的空行丢了吗？",
            ("put an empty line behind each sentence", "在每个句子后加一个空行"),
            [file.records[places[0]].where],
        )
    elif n >= 10 and median(lengths) == 1:
        add(
            checked,
            "a word a sentence",
            "doubtful",
            f"half of the {n:,} sentences of {file.name} are one word: there is no context to learn from",
            f"{zh}的 {n:,} 个句子有一半只有一个词：没有上下文可学",
            ("an empty line stands behind a sentence, not behind each word", "空行应放在句子之后，而不是每个词之后"),
            (record.where for record, length in zip(file.records, lengths, strict=True) if length == 1),
        )
    elif lengths[places[0]] > LONG:
        add(
            checked,
            "long sentences",
            "note",
            f"the longest sentence of {file.name} has {lengths[places[0]]:,} words: it is read in windows",
            f"{zh}最长的句子有 {lengths[places[0]]:,} 个词：会分窗口读取",
            where=[file.records[i].where for i in places if lengths[i] > LONG],
        )


def _check_edges(file: LabelFile, entities: Sequence[Sequence[Mention]], checked: Checked) -> None:
    """Entities that begin or end in punctuation or blanks; brackets and quotes that are closed inside are none."""
    found, total = [], 0
    for example, mentions in zip(file.examples, entities, strict=True):
        for _, first, stop in mentions:
            total += 1
            if _is_loose(example.tokens[first:stop]):
                found.append((joined(example.tokens[first:stop]), example.where(first)))
    checked.facts["files"][file.name]["loose_edges"] = len(found)
    if found:
        add(
            checked,
            "loose edges",
            level(len(found) / total, EDGES),
            f"{len(found):,} of {total:,} entities of {file.name} begin or end in punctuation or blanks: "
            f"{names_of(dict.fromkeys(text for text, _ in found))}",
            f"{PART_NAMES[file.name]}的 {total:,} 个实体中有 {len(found):,} 个以标点或空白开头或结尾："
            f"{names_of(dict.fromkeys(text for text, _ in found))}",
            ("leave it outside of the entity", "把标点和空白留在实体之外"),
            (where for _, where in found),
        )


def _is_loose(tokens: Sequence[str]) -> bool:
    first, last = tokens[0].strip(), tokens[-1].strip()
    if not first or not last:
        return True
    kinds = [{unicodedata.category(c) for c in token} for token in (first, last)]
    begins = kinds[0] <= {"Po", "Pd", "Pe", "Pf"} and first[0] not in "@#&*¿¡'"
    ends = (kinds[1] <= {"Pd", "Ps", "Pi", "Po"} and last[0] not in "!?*'.%&") or last in ("?", ". .")
    return begins or ends


def _check_two_ways(files: Sequence[LabelFile], entities: dict[str, list[list[Mention]]], checked: Checked) -> None:
    """Names that are tagged as one type here, as another or not at all there."""
    ways: dict[tuple[str, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    sentences: list[tuple[NerExample, list[Mention]]] = [
        pair for file in files for pair in zip(file.examples, entities[file.name], strict=True)
    ]
    for example, mentions in sentences:
        for label, first, stop in mentions:
            ways[tuple(example.tokens[first:stop])][label].append(example.where(first))
    by_first: dict[str, set[int]] = defaultdict(set)
    for name in ways:
        if len("".join(name)) > 1:
            by_first[name[0]].add(len(name))
    for example, _ in sentences:
        tags = example.tags or ()
        for i, token in enumerate(example.tokens):
            for length in by_first.get(token, ()):
                name = tuple(example.tokens[i : i + length])
                if name in ways and all(tag == "O" for tag in tags[i : i + length]):
                    ways[name]["O"].append(example.where(i))
    seen = minor = 0
    rows = []
    for name, found in ways.items():
        counts = Counter({label: len(places) for label, places in found.items()})
        if len("".join(name)) < 2 or counts.total() < TIMES:
            continue
        few = counts.total() - counts.most_common(1)[0][1]
        seen, minor = seen + counts.total(), minor + few
        if few:
            places = found[counts.most_common()[-1][0]]
            rows.append((few, joined(name), ", ".join(f"{k} {v}" for k, v in counts.most_common()), places[0]))
    rows.sort(key=lambda row: (-row[0], row[1]))
    checked.facts["tagged_in_two_ways"] = {"mentions": seen, "not_as_most": minor}
    if not rows:
        return
    add(
        checked,
        "tagged in two ways",
        level(minor / seen, TWO_WAYS),
        f"{len(rows):,} names are not tagged alike everywhere (O: not tagged), such as '{rows[0][1]}': {rows[0][2]}; "
        f"{percent(minor / seen)} of the mentions of frequent names differ from most",
        f"有 {len(rows):,} 个名字标注不一致（O 表示未标），例如“{rows[0][1]}”：{rows[0][2]}；常见名字的出现中有 "
        f"{percent(minor / seen)} 与多数标法不同",
        ("look at the table, and decide on one way where the meaning is the same", "对照下表，凡含义相同的统一标法"),
        (row[3] for row in rows),
    )
    checked.sections.append(
        Section(
            Both("Names tagged in several ways", "标注不一致的名字"),
            Both("O: not tagged. A name may well mean several things; the first rows differ most.",
                 "O 表示未标注。一个名字可能确有多种含义；差别最大的排在前面。"),
            columns=[Both("name", "名字"), Both("tagged as", "标法"), Both("first place", "首个位置")],
            rows=[list(row[1:]) for row in rows[:ROWS]],
        )
    )  # fmt: skip
