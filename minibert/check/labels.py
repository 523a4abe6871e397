"""Labelled data, looked at before a model is fine-tuned on it. Read `check_labels` from top to bottom.

What holds for every task is here; what only one task can know is in cls.py, ner.py and qa.py. The thresholds are
measured: XQuAD (English and Chinese, split by article), WNUT17, BBC topics, Chinese reviews and People's Daily entities
lie below each of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minibert.check import cls, ner, qa
from minibert.check.characters import Characters, Oddity
from minibert.check.copies import check_conflicts, check_copies
from minibert.check.findings import Checked, Section
from minibert.check.labelled import PART_NAMES, LabelFile, add, level, read_file
from minibert.check.misread import WAYS
from minibert.config import FinetuneConfig
from minibert.corpus.decoding import check_encoding
from minibert.corpus.read import doubts
from minibert.errors import UserError
from minibert.tasks import find_tasks
from minibert.tasks.base import Record, Task, width_of
from minibert.tasks.cls import Cls
from minibert.tasks.cls_rows import is_visible
from minibert.tasks.ner import Ner
from minibert.tasks.qa import Qa
from minibert.training.rows import RowStream
from minibert.view.page import Both, percent, short

if TYPE_CHECKING:
    from minibert.tokenization.tokenizer import BertTokenizer

ODD = 0.005  # odd characters and tags, for each record; measured: .0017 (private use in the reviews)
EMPTY = 0.001  # share of texts without anything to see; measured: 0
FEW_LEARNT, FEWEST_LEARNT = 100, 10  # records, and entities, of train: a note, doubtful
FEWEST_MEASURED = 100  # records of dev or test: a score near .5 has a standard error of .05
OTHER_SCRIPT = 0.2  # distance of the shares of scripts from those of train; measured: .04 (XQuAD zh)
POSITIONS = 512  # tokens that most models take at most
UNKNOWN = 0.05  # share of [UNK]; measured: .010 (People's Daily)
PADDING = 0.25  # share of padding in the batches of training; measured: .11 (WNUT17)
WHOLE = 1 << 20  # tokens: no row is cut
LETTERS = 500  # of a text that are looked at for its script


def check_labels(
    name: str, config: FinetuneConfig, *, train: Path, dev: Path | None = None, test: Path | None = None,
    tokenizer: BertTokenizer | None = None,
) -> Checked:  # fmt: skip
    """All that is doubtful in labelled files of the task `name`, as `finetune` would read them with these settings.

    tokenizer: lengths are counted in its tokens; without one in characters, and nothing is said of --max-length.
    Raises: UserError for a mistake of the command line. What is wrong in the files are findings.
    """
    check_encoding(config.encoding)
    task = find_tasks()[name](config)
    paths = {"train": train, "dev": dev, "test": test}
    files = [read_file(task, part, path) for part, path in paths.items() if path is not None]
    checked = Checked(Both(f"labelled data for {name}", f"{name} 任务的标注数据"), {"task": name, "files": {}})
    check_reading(files, config, checked)
    with_text = [file for file in files if file.examples]
    if isinstance(task, Cls) and cls.wrong_columns(with_text, task, checked):
        return checked
    check_texts(with_text, checked)
    for file in with_text:
        check_characters(file, qa.texts(file) if isinstance(task, Qa) else file.records, config.encoding, checked)
    check_lengths(task, with_text, tokenizer, checked)
    check_sizes(task, with_text, checked)
    if isinstance(task, Qa):
        check_copies([qa.contexts(file) for file in with_text], with_text, checked)
    else:
        check_copies([[(r.text, r.where) for r in file.records] for file in with_text], with_text, checked)
        check_conflicts(with_text, checked)
    if isinstance(task, Cls):
        cls.look(task, with_text, checked)
    elif isinstance(task, Ner):
        ner.look(task, files, checked)
    elif isinstance(task, Qa):
        qa.look(task, files, tokenizer, checked)
    check_settled(task, files, checked)
    return checked


# ---- reading


def check_reading(files: Sequence[LabelFile], config: FinetuneConfig, checked: Checked) -> None:
    """What the files hold, and what stops training: the reader's own words, a finding for each kind of mistake."""
    tiles = []
    for file in files:
        checked.facts["files"][file.name] = {
            "file": str(file.path), "records": len(file.examples), "faults": len(file.faults),
            "skipped": len(file.reading.skipped), "repaired": len(file.reading.repaired), "notes": file.reading.notes,
        }  # fmt: skip
        tiles.append((file.title, f"{len(file.examples):,}"))
        for problem, group in _kinds(file.faults).items():
            zh = PART_NAMES[file.name]
            times = f"{len(group):,} records of {file.name} stop training: " if len(group) > 1 else ""
            times_zh = f"{zh}中有 {len(group):,} 条样本会使训练中止：" if len(group) > 1 else f"{zh}会使训练中止："
            add(
                checked,
                "unreadable",
                "doubtful",
                f"{times}{problem}",
                f"{times_zh}{problem}",
                (group[0].fix, group[0].fix) if group[0].fix else None,
                (error.where or "" for error in group),
            )
        if not file.examples and not file.faults:
            first = f"; of the first: {file.reading.skipped[0]['reason']}" if file.reading.skipped else ""
            add(
                checked,
                "unreadable",
                "doubtful",
                f"none of the records of {file.name} can be learnt{first}",
                f"{PART_NAMES[file.name]}没有一条样本可以学习{first}",
                where=[item["where"] for item in file.reading.skipped] or [str(file.path)],
            )
    checked.sections.append(Section(Both("Records", "样本数"), tiles=tiles))


def _kinds(faults: Sequence[UserError]) -> dict[str, list[UserError]]:
    """Mistakes by what they say, but for values and numbers; under the words of the first of each kind."""
    groups: dict[str, list[UserError]] = {}
    for error in faults:
        shape = re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "", error.problem).split(":")[0]
        groups.setdefault(shape, []).append(error)
    return {group[0].problem: group for group in groups.values()}


def check_settled(task: Task[Any, Any], files: Sequence[LabelFile], checked: Checked) -> None:
    """What would stop training though every record can be read, unless a finding says it already."""
    train = files[0]
    if not train.examples or any(finding.level == "doubtful" for finding in checked.findings):
        return
    try:
        settled = task.settled(train.examples)
        for file in files:
            settled.check(file.examples)
    except UserError as error:
        add_refusal(checked, error, train.path)


def add_refusal(checked: Checked, error: UserError, path: Path) -> None:
    """What would stop training, in its own words. path: of the file in question, where the error names no place."""
    fix = (error.fix, error.fix) if error.fix else None
    where = [error.where or str(path)]
    add(checked, "unreadable", "doubtful", error.problem, f"会使训练中止：{error.problem}", fix, where)


# ---- texts


def check_texts(files: Sequence[LabelFile], checked: Checked) -> None:
    """Texts without anything to see, and scripts that train has not."""
    scripts = {}
    for file in files:
        empty = [record.where for record in file.records if not is_visible(record.text)]
        if empty:
            add(
                checked,
                "empty texts",
                level(len(empty) / len(file.records), EMPTY),
                f"{len(empty):,} of {len(file.records):,} texts of {file.name} are empty, blank or invisible",
                f"{PART_NAMES[file.name]}的 {len(file.records):,} 条文本中有 {len(empty):,} 条为空、"
                "只有空白或不可见字符",
                ("fill them in, or remove these records", "补全文本，或删除这些样本"),
                empty,
            )
        scripts[file.name] = found = script_shares([record.text for record in file.records])
        shown = {script: round(share, 4) for script, share in found.items() if share >= 0.001}
        checked.facts["files"][file.name] |= {"empty_texts": len(empty), "scripts": shown}
    if "train" not in scripts:
        return
    for part, found in scripts.items():
        train = scripts["train"]
        apart = sum(abs(found.get(s, 0) - train.get(s, 0)) for s in {*found, *train}) / 2
        if train and found and apart >= OTHER_SCRIPT:
            said = [", ".join(f"{s} {percent(share)}" for s, share in both.items()) for both in (train, found)]
            add(
                checked,
                "other scripts",
                "doubtful",
                f"{part} is written in other scripts than train: {said[1]}; train: {said[0]}",
                f"{PART_NAMES[part]}与训练集的文字种类不同：{said[1]}；训练集：{said[0]}",
                (
                    "measure on text like that of training, or train on such text too",
                    "用与训练集同类的文本做评测，或在训练集中加入这类文本",
                ),
            )


def check_characters(file: LabelFile, records: Sequence[Record], encoding: str, checked: Checked) -> None:
    """What is no text, as it is looked for in raw text: HTML, text that was decoded wrongly, invisible characters.

    Doubtful from the same shares on, but not for what a few records alone have.
    """
    characters = Characters()
    characters.add([record.text for record in records], lambda number: records[number].where)
    found = []
    for finding in characters.findings():
        kinds = (finding.kind, *WAYS) if finding.kind == "wrong encoding" else (finding.kind,)
        count = sum(characters.of_kind(kind) or characters.odd.get(kind, Oddity()).count for kind in kinds)
        is_rare = count < ODD * len(records) and finding.kind != "full width"  # that is a share of the texts already
        message = Both(f"{file.name}: {finding.message.en}", f"{PART_NAMES[file.name]}：{finding.message.zh}")
        found.append(replace(finding, level="note" if is_rare else finding.level, message=message))
    checked.findings += found
    if file.faults or any(finding.level == "doubtful" for finding in found):
        return
    for odd in doubts([file.path], encoding):  # what a whole text shows: GB18030 that was read as latin-1
        add(
            checked,
            "wrong encoding",
            "doubtful",
            odd,
            f"编码可疑：{odd}",
            (
                "mend the file before training: fetch it anew, or write it again from its source",
                "训练前先修好文件：重新下载，或从源头重新导出",
            ),
            [str(file.path)],
        )


def script_shares(texts: Sequence[str]) -> dict[str, float]:
    """Shares of the scripts of letters, the largest first: {"latin": .97, "cjk": .03}."""
    counts = Counter("".join(text[:LETTERS] for text in texts))
    found: Counter[str] = Counter()
    for character, count in counts.items():
        if character.isalpha():
            found[_script(character)] += count
    return {script: count / found.total() for script, count in found.most_common() if count >= 0.01 * found.total()}


@cache
def _script(character: str) -> str:
    name = unicodedata.name(character, "other")
    return "latin" if name.startswith("FULLWIDTH LATIN") else name.split()[0].split("-")[0].lower()


def check_lengths(
    task: Task[Any, Any], files: Sequence[LabelFile], tokenizer: BertTokenizer | None, checked: Checked
) -> None:
    """Lengths, in tokens where there is a tokenizer: what is cut, what is padded, what is unknown."""
    unit = Both("characters", "字符") if tokenizer is None else Both("tokens", "词元")
    if tokenizer is None:
        checked.hint = Both(
            "lengths are in characters; --model CHECKPOINT says what is cut at --max-length",
            "长度按字符计；加上 --model CHECKPOINT 才知道哪些样本会被 --max-length 截断",
        )
    rows: list[list[Both | str]] = []
    for file in files:
        facts = checked.facts["files"][file.name]
        lengths = np.array([len(record.text) for record in file.records])
        if tokenizer is not None:
            try:
                lengths = _check_tokens(task, file, tokenizer, checked)
            except UserError as error:
                add_refusal(checked, error, file.path)
        spread = {f"p{q}": int(np.percentile(lengths, q)) for q in (50, 90, 99)}
        facts["lengths"] = {"unit": unit.en, "mean": float(lengths.mean()), **spread, "longest": int(lengths.max())}
        rows.append(
            [
                file.title,
                short(round(float(lengths.mean()), 1)),
                *map(short, spread.values()),
                short(int(lengths.max())),
            ]
        )
    columns: list[Both | str] = [
        Both("part", "部分"),
        Both("mean", "平均"),
        Both("median", "中位数"),
        "90 %",
        "99 %",
        Both("longest", "最长"),
    ]
    lead = Both(
        "90 %: nine of ten records are no longer than this. Rows of two texts count both.",
        "90 %：十条样本中有九条不超过它。两段文本的样本按总长计。",
    )
    if checked.hint is not None:
        hint = checked.hint
        lead = Both(f"{lead.en} {hint.en[0].upper()}{hint.en[1:]}.", f"{lead.zh}{hint.zh}。")
    checked.sections.append(
        Section(Both(f"Lengths in {unit.en}", f"长度（{unit.zh}）"), lead, columns=columns, rows=rows)
    )


def _check_tokens(
    task: Task[Any, Any], file: LabelFile, tokenizer: BertTokenizer, checked: Checked
) -> np.ndarray[Any, Any]:
    """The lengths of all records, whole, in tokens."""
    zh, limit = PART_NAMES[file.name], task.config.max_length
    features = task.encode(file.examples, tokenizer, gold=False).features
    whole = task.with_settings({"max_length": WHOLE}).encode(file.examples, tokenizer, gold=False).features
    lengths = np.array([len(feature.ids) for feature in whole])
    long = [record.where for record, length in zip(file.records, lengths, strict=True) if length > limit]
    ids = np.concatenate([feature.ids for feature in features])
    unknown = float((ids == tokenizer.unk_token_id).mean())
    padding = padding_share([len(feature.ids) for feature in features], task.config)
    checked.facts["files"][file.name] |= {
        "rows": len(features), "too_long": len(long), "unknown_rate": unknown, "padding_share": padding,
    }  # fmt: skip
    if long:
        need = min(int(np.percentile(lengths, 95)), POSITIONS)
        held = percent(float((lengths <= need).mean()))
        fate = ("windows", "切成若干窗口") if len(features) > len(file.examples) else ("cut at their end", "截去末尾")
        add(
            checked,
            "long records",
            "note",
            f"{len(long):,} of {len(file.examples):,} records of {file.name} have more than {limit} tokens and are "
            f"{'cut into windows' if fate[0] == 'windows' else fate[0]}",
            f"{zh}的 {len(file.examples):,} 条样本中有 {len(long):,} 条超过 {limit} 个词元，会被{fate[1]}",
            (
                f"--max-length {need} holds {held} of them, if the model has so many positions; that takes more time",
                f"--max-length {need} 可容纳 {held} 的样本（模型的位置数须够用）；行越长越慢",
            ),
            long,
        )
    if unknown > UNKNOWN:
        add(
            checked,
            "unknown tokens",
            "doubtful",
            f"{percent(unknown)} of the tokens of {file.name} are unknown to this vocabulary",
            f"{zh}中 {percent(unknown)} 的词元不在词表里",
            (
                "take a checkpoint whose vocabulary is of the text's language and script",
                "换用词表与文本语言、文字相符的模型",
            ),
        )
    if file.name == "train" and padding > PADDING:
        add(
            checked,
            "padding",
            "note",
            f"{percent(padding)} of what the model reads in training would be padding",
            f"训练时模型读入的内容有 {percent(padding)} 是填充",
            (
                "rows of like length are put together already; a smaller --micro-batch-size pads less",
                "长度相近的行已放在一起；减小 --micro-batch-size 可减少填充",
            ),
        )
    return lengths


def padding_share(lengths: Sequence[int], config: FinetuneConfig) -> float:
    """The share of padding in the first pass of fine-tuning over rows of these lengths, on one process."""
    micro = config.micro_batch_size or config.batch_size
    stream = RowStream(lengths, seed=config.seed, batch_size=config.batch_size)
    places = 0
    for batch in stream.epoch(0):
        for first in range(0, len(batch), micro):
            longest = max(lengths[row] for row in batch[first : first + micro].tolist())
            places += width_of(longest, config.max_length) * len(batch[first : first + micro])
    return 1 - sum(lengths) / places


def check_sizes(task: Task[Any, Any], files: Sequence[LabelFile], checked: Checked) -> None:
    """Whether train is enough to learn from, and whether dev and test can tell models apart."""
    for file in files:
        n = len(file.records)
        if file.name == "train":
            _check_learnt(n, ner.count_entities(file) if isinstance(task, Ner) else None, checked)
            continue
        error = 100 * sqrt(0.8 * 0.2 / n)
        checked.facts["files"][file.name]["standard_error_at_80"] = error / 100
        if n < FEWEST_MEASURED:
            add(
                checked,
                "few to measure",
                "doubtful",
                f"{file.name} has {n:,} records: a score of 80 % there has a standard error of {error:.1f} points, and "
                f"two models less than {2.8 * error:.0f} points apart cannot be told from each other",
                f"{PART_NAMES[file.name]}只有 {n:,} 条样本：80 % 的得分其标准误为 {error:.1f} 个百分点，相差不到 "
                f"{2.8 * error:.0f} 个百分点的两个模型分不出高下",
                (
                    f"measure on {FEWEST_MEASURED} records at least; 1,000 bring the error to 1.3 points",
                    f"至少用 {FEWEST_MEASURED} 条样本评测；1,000 条可把标准误降到 1.3 个百分点",
                ),
            )


def _check_learnt(records: int, entities: int | None, checked: Checked) -> None:
    """How much there is in train. entities: None for a task that has none."""
    least = records if entities is None else min(records, entities)
    if least >= FEW_LEARNT:
        return
    en, zh = f"{records:,} record{'s' * (records != 1)}", f"{records:,} 条样本"
    if entities is not None:
        en, zh = f"{en} with {entities:,} entit{'y' if entities == 1 else 'ies'}", f"{zh}、{entities:,} 个实体"
    add(
        checked,
        "little to learn from",
        "doubtful" if least < FEWEST_LEARNT else "note",
        f"train has {en}: too little to learn more than that by heart",
        f"训练集只有 {zh}：模型只会把它们背下来",
        ("label more: some hundreds are the least to begin with", "多标注一些：至少要有几百条"),
    )
