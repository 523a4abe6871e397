"""What only questions can know of their data: answers and their places, ids, windows, and contexts in two parts."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from minibert.check.duplicates import folded, words
from minibert.check.findings import Checked, Section
from minibert.check.labelled import PART_NAMES, LabelFile, add, level, names_of
from minibert.errors import UserError
from minibert.metrics.squad import normalize
from minibert.tasks.base import Record
from minibert.tasks.qa import Qa
from minibert.tasks.squad_files import NO_ANSWER, QaExample
from minibert.view.page import Both, percent

if TYPE_CHECKING:
    from minibert.tokenization.tokenizer import BertTokenizer

MISPLACED = 0.005  # questions whose answers are not where they should be; measured: 0
LOOSE = 0.02  # answers with blanks or punctuation at an end; measured: .006
CUT = 0.02  # answers that begin or end inside a word; measured: 0
LONG = 0.02  # answers that are longer than any that is predicted; measured: .017 (XQuAD zh)
LOST = 0.01  # answers that are whole in no window
APART = 0.2  # questions with answers that have nothing in common
GIVEN_AWAY = 0.05  # questions that stand word for word in their context; measured: 0
TWICE = 0.05  # questions that stand there twice; measured: .019 (XQuAD zh, dev)
UNANSWERABLE = 0.9
OPEN = "([{（【《〈「『“‘<"


def contexts(file: LabelFile) -> list[tuple[str, str]]:
    """The different contexts of a file, each with the place of its first question."""
    first: dict[str, str] = {}
    for example, record in zip(file.examples, file.records, strict=True):
        first.setdefault(example.context, record.where)
    return list(first.items())


def texts(file: LabelFile) -> list[Record]:
    """The different contexts of a file, and its questions."""
    asked = [Record(e.question, where=r.where) for e, r in zip(file.examples, file.records, strict=True)]
    return [Record(text, where=where) for text, where in contexts(file)] + asked


def look(task: Qa, files: Sequence[LabelFile], tokenizer: BertTokenizer | None, checked: Checked) -> None:
    """Adds what there is to say to `checked`."""
    rows: list[list[Both | str]] = []
    for file in files:
        places = [record.where for record in file.records]
        without = [place for place, example in zip(places, file.examples, strict=True) if not example.texts]
        without += [item["where"] for item in file.reading.skipped if item["reason"] == NO_ANSWER]
        num_contexts = len({example.context for example in file.examples})
        checked.facts["files"][file.name] |= {"contexts": num_contexts, "unanswerable": len(without)}
        rows.append([file.title, f"{len(places):,}", f"{num_contexts:,}", f"{len(without):,}"])
        _check_places(file, checked)
        _check_blank(file, places, checked)
        _check_edges(file, places, checked)
        _check_ids(file, places, checked)
        _check_twice(file, places, checked)
        _check_answers_apart(file, places, checked)
        _check_given_away(file, places, checked)
        _check_unanswerable(task, file, without, checked)
        if tokenizer is not None and file.examples:
            _check_windows(task, file, tokenizer, checked)
    columns = [
        Both("part", "部分"),
        Both("questions", "问题"),
        Both("contexts", "上下文"),
        Both("without answer", "无答案"),
    ]
    checked.sections.append(Section(Both("Questions", "问题"), columns=columns, rows=rows))


def _check_places(file: LabelFile, checked: Checked) -> None:
    """Answers that do not stand where answer_start says, or nowhere."""
    skipped = [item for item in file.reading.skipped if item["reason"] != NO_ANSWER]
    said = [f"{item['where']}: {item['reason']}" for item in [*skipped, *file.reading.repaired]]
    n = len(file.examples) + len(file.reading.skipped)
    known = {item["where"] for item in [*skipped, *file.reading.repaired]}
    for example, record in zip(file.examples, file.records, strict=True):
        wrong = [
            answer
            for answer in example.written
            if answer.text.strip() and answer.start is not None
            if answer.start < 0 or not example.context.startswith(answer.text, answer.start)
        ]
        if wrong and example.texts and record.where not in known:
            said.append(f"{record.where}: {names_of([wrong[0].text])} is not at {wrong[0].start}")
    if not said:
        return
    zh, fate = PART_NAMES[file.name], ("they are learnt where they are found", "训练时会用找到的位置")
    if skipped:
        fate = (f"{len(skipped):,} of them cannot be learnt", f"其中 {len(skipped):,} 个无法学习")
    add(
        checked,
        "misplaced answers",
        level(len(said) / n, MISPLACED),
        f"{len(said):,} of {n:,} questions of {file.name} have answers that are not where they should be; {fate[0]}",
        f"{zh}的 {n:,} 个问题中有 {len(said):,} 个的答案不在 answer_start 处；{fate[1]}",
        (
            "answer_start counts characters of the context, which must stay as it was, blanks too",
            "answer_start 按上下文的字符数计；上下文必须保持原样，包括空白",
        ),
        said,
    )


def _check_blank(file: LabelFile, places: Sequence[str], checked: Checked) -> None:
    """Blank questions, contexts and answers."""
    zh = PART_NAMES[file.name]
    kinds = (
        ("blank questions", "问题为空", [not e.question.strip() for e in file.examples]),
        ("blank contexts", "上下文为空", [not e.context.strip() for e in file.examples]),
        ("blank answers", "答案为空", [any(not a.text.strip() for a in e.written) for e in file.examples]),
    )
    for kind, name, flags in kinds:
        if any(flags):
            add(
                checked,
                kind,
                "doubtful",
                f"{kind} in {file.name}: {sum(flags):,}",
                f"{zh}中{name}的有 {sum(flags):,} 条",
                (
                    'fill them in; a question without an answer has "answers": []',
                    '补全；没有答案的问题应写成 "answers": []',
                ),
                (place for place, flag in zip(places, flags, strict=True) if flag),
            )


def _check_edges(file: LabelFile, places: Sequence[str], checked: Checked) -> None:
    """Answers with blanks or punctuation at an end, and answers that end inside a word."""
    loose, cut, total = [], [], 0
    for example, place in zip(file.examples, places, strict=True):
        for text in dict.fromkeys(example.texts or ()):
            total += 1
            if _is_loose(text):
                loose.append(f"{place}: {names_of([text])}")
        if example.span is not None and _is_cut(example.context, *example.span):
            start, end = example.span
            around = example.context[max(0, start - 8) : end + 8]
            cut.append(f"{place}: {names_of([example.context[start:end]])} in {names_of([around])}")
    zh = PART_NAMES[file.name]
    checked.facts["files"][file.name] |= {"loose_answers": len(loose), "cut_answers": len(cut)}
    if loose:
        add(
            checked,
            "loose edges",
            level(len(loose) / total, LOOSE),
            f"{len(loose):,} of {total:,} answers of {file.name} have blanks or punctuation at an end",
            f"{zh}的 {total:,} 个答案中有 {len(loose):,} 个首尾带空白或标点",
            (
                "leave it outside of the answer, and move answer_start with it",
                "把它们留在答案之外，answer_start 随之移动",
            ),
            loose,
        )
    if cut:
        add(
            checked,
            "cut words",
            level(len(cut) / total, CUT),
            f"{len(cut):,} of {total:,} answers of {file.name} begin or end inside a word",
            f"{zh}的 {total:,} 个答案中有 {len(cut):,} 个从词的中间开始或结束",
            ("answers should hold whole words: a model answers with whole tokens", "答案应是完整的词：模型按词元作答"),
            cut,
        )


def _is_loose(text: str) -> bool:
    if text != text.strip():
        return True
    first, last = text[0], text[-1]
    if len(text) == 1 or not any(character.isalnum() for character in text):
        return False
    opened = any(mark in text[:-1] for mark in OPEN + "\"'")
    ends = unicodedata.category(last) in ("Po", "Pd", "Ps", "Pi") and last not in "%％'\"!?.…*&°" and not opened
    begins = (
        unicodedata.category(first) in ("Po", "Pd", "Pe", "Pf") and first not in "'\"@#&*.-–−" and first not in OPEN
    )
    return ends or begins


def _is_cut(context: str, start: int, end: int) -> bool:
    return (start > 0 and _joins(context[start - 1], context[start])) or (
        end < len(context) and _joins(context[end - 1], context[end])
    )


def _joins(a: str, b: str) -> bool:
    """Whether two neighbours belong to one word: letters of a script that writes blanks between words."""
    return all(c.isalpha() and unicodedata.name(c, "").split(" ")[0] in ("LATIN", "GREEK", "CYRILLIC") for c in (a, b))


def _check_ids(file: LabelFile, places: Sequence[str], checked: Checked) -> None:
    counts = Counter(str(example.id) for example in file.examples)
    twice = [place for e, place in zip(file.examples, places, strict=True) if counts[str(e.id)] > 1]
    if twice:
        add(
            checked,
            "duplicate ids",
            "doubtful",
            f"{len(twice):,} questions of {file.name} share their id with another",
            f"{PART_NAMES[file.name]}有 {len(twice):,} 个问题的 id 与其他问题相同",
            (
                "give each question an id of its own: predictions are told apart by it",
                "给每个问题唯一的 id：预测靠它区分",
            ),
            twice,
        )


def _check_twice(file: LabelFile, places: Sequence[str], checked: Checked) -> None:
    """The same question about the same context, with the same answers or others."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, example in enumerate(file.examples):
        groups[folded(example.question), folded(example.context)].append(i)
    twice = [group for group in groups.values() if len(group) > 1]
    golds = [[{normalize(t) for t in file.examples[i].texts or ("",)} for i in group] for group in twice]
    apart = [g for g, gold in zip(twice, golds, strict=True) if any(not a & b for a, b in combinations(gold, 2))]
    same = [group for group in twice if group not in apart]
    n, zh = len(places), PART_NAMES[file.name]
    kinds = (
        ("contradictions", apart, "with different answers", "而答案不同", ("decide on one answer", "确定一个答案")),
        ("copies", same, "with the same answer", "答案也相同", ("keep one of each", "每个只留一份")),
    )
    for kind, found, en, how, fix in kinds:
        if found:
            extra = sum(map(len, found)) - len(found)
            add(
                checked,
                kind,
                level(extra / n, TWICE),
                f"{len(found):,} questions of {file.name} are asked of the same context several times, {en}",
                f"{zh}有 {len(found):,} 个问题对同一上下文重复提出，{how}",
                fix,
                (" = ".join(places[i] for i in group[:3]) for group in found),
            )


def _check_answers_apart(file: LabelFile, places: Sequence[str], checked: Checked) -> None:
    """Answers to one question that have no word and no place in common."""
    several = [(e, p) for e, p in zip(file.examples, places, strict=True) if len(set(e.texts or ())) > 1]
    apart = [f"{place}: {names_of(dict.fromkeys(e.texts or ()))}" for e, place in several if _are_apart(e)]
    if apart:
        add(
            checked,
            "answers apart",
            level(len(apart) / len(several), APART),
            f"{len(apart):,} of {len(several):,} questions of {file.name} with several answers have some that share "
            "nothing with another",
            f"{PART_NAMES[file.name]}中有多个答案的 {len(several):,} 个问题里，{len(apart):,} 个的答案彼此毫无共同之处",
            (
                "answers of one question are ways to say the same; the first one is learnt",
                "同一问题的多个答案应是同一意思的不同说法；训练只学第一个",
            ),
            apart,
        )


def _are_apart(example: QaExample) -> bool:
    bags = [set(words(folded(text))) for text in dict.fromkeys(example.texts or ())]
    return any(a and b and not a & b for a, b in combinations(bags, 2))


def _check_given_away(file: LabelFile, places: Sequence[str], checked: Checked) -> None:
    """Questions that stand in their context, so that the model has only to find them."""
    found = [
        place for e, place in zip(file.examples, places, strict=True)
        if len(question := folded(e.question).removesuffix("?").strip()) > 3 and question in folded(e.context)
    ]  # fmt: skip
    if found:
        add(
            checked,
            "questions in their context",
            level(len(found) / len(places), GIVEN_AWAY),
            f"{len(found):,} questions of {file.name} stand word for word in their context",
            f"{PART_NAMES[file.name]}有 {len(found):,} 个问题原样出现在上下文里",
            (
                "is the question part of the text by mistake? new texts will not hold it",
                "问题是不是误放进了上下文？新的文本里不会有它",
            ),
            found,
        )


def _check_unanswerable(task: Qa, file: LabelFile, without: Sequence[str], checked: Checked) -> None:
    if not without:
        return
    n = len(file.examples) + len(file.reading.skipped)
    share = len(without) / n
    left_out = task.config.unanswerable == "no"
    fix = (
        "see that it is meant; --unanswerable no leaves them out of training",
        "确认这是有意的；--unanswerable no 会在训练中跳过它们",
    )
    if left_out:
        fix = (
            "--unanswerable no leaves them out of training; leave it out itself to learn that there is no answer",
            "--unanswerable no 会在训练中跳过它们；去掉这个选项，模型才能学会“没有答案”",
        )
    add(
        checked,
        "unanswerable questions",
        "doubtful" if left_out or share >= UNANSWERABLE else "note",
        f"{len(without):,} of {n:,} questions of {file.name} ({percent(share)}) have no answer",
        f"{PART_NAMES[file.name]}的 {n:,} 个问题中有 {len(without):,} 个（{percent(share)}）没有答案",
        fix,
        without,
    )


def _check_windows(task: Qa, file: LabelFile, tokenizer: BertTokenizer, checked: Checked) -> None:
    """Answers that are longer than any that is predicted, or whole in no window."""
    config, zh = task.config, PART_NAMES[file.name]
    try:
        lost = [item["where"] for item in task.encode(file.examples, tokenizer, gold=True).skipped]
    except UserError:
        return  # it is said with the lengths
    texts = [(text, r.where) for e, r in zip(file.examples, file.records, strict=True) for text in e.texts or ()]
    lengths = [len(ids) for ids in tokenizer.encode([text for text, _ in texts])]
    long = [where for (_, where), length in zip(texts, lengths, strict=True) if length > config.max_answer_length]
    checked.facts["files"][file.name] |= {"long_answers": len(long), "lost_answers": len(lost)}
    if long:
        longest = max(lengths)
        add(
            checked,
            "long answers",
            level(len(long) / len(texts), LONG),
            f"{len(long):,} of {len(texts):,} answers of {file.name} have more than {config.max_answer_length} tokens, "
            f"the most that is predicted; the longest has {longest}",
            f"{zh}的 {len(texts):,} 个答案中有 {len(long):,} 个超过 {config.max_answer_length} 个词元（预测的上限）；"
            f"最长的有 {longest} 个",
            (f"--max-answer-length {longest}", f"--max-answer-length {longest}"),
            long,
        )
    if lost:
        add(
            checked,
            "answers in no window",
            level(len(lost) / len(file.examples), LOST),
            f"{len(lost):,} answers of {file.name} are whole in no window of {config.max_length} tokens with an "
            f"overlap of {config.stride}: they are not learnt",
            f"{zh}有 {len(lost):,} 个答案不能完整落入任何窗口"
            f"（{config.max_length} 个词元，重叠 {config.stride}）：不会被学习",
            ("a larger --stride or --max-length", "增大 --stride 或 --max-length"),
            (f"{file.path.name}, {where}" for where in lost),
        )
