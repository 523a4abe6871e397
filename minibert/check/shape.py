"""Documents, sentences and tokens: how many, how long, and what a BERT can be trained on them."""

from __future__ import annotations

from array import array
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from minibert.check.findings import Finding, Section
from minibert.config import PretrainConfig, load_recipe, resolve
from minibert.corpus.pairs import SMALLEST_SPLIT, Layout
from minibert.corpus.tokenize import TokenisedDocuments
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.view.page import Both, percent

LEARNABLE = (0.2, 0.8)  # share of true pairs; measured: .49 (BBC), .34 (reviews, of which half have one sentence)
PLANNED = 500_000  # sentences from the beginning whose lengths are kept: examples are planned of them
LITTLE, SMALL, MIDDLING = 20_000, 1_000_000, 50_000_000  # tokens
PADDING_SHARE = 0.25
LONG_SHARE = 0.25  # of the tokens, in sentences that are longer than an example
UNKNOWN_SHARE = 0.01
UNKNOWN_SHOWN = 12
UNKNOWN_ASKED = 2000  # sentences that are asked again where their unknown tokens stand


class Shape:
    """Counts tokenised text as it comes. trained: the vocabulary was made of this text; whole: of all of it."""

    def __init__(self, tokenizer: BertTokenizer, *, trained: bool, whole: bool = False) -> None:
        self.tokenizer, self.trained, self.whole = tokenizer, trained, whole
        self.documents = self.sentences = self.tokens = self.unknown = self.characters = self.empty_lines = 0
        self.one_sentence = self.empty_documents = self.asked = 0
        self.document_sizes: Counter[int] = Counter()  # sentences of a document, by the bits of their number
        self.sentence_sizes: Counter[int] = Counter()  # tokens of a sentence, by their number
        self.unknown_words: Counter[str] = Counter()
        self._open = 0  # sentences of the document that goes on
        self._lengths, self._document_lengths = array("i"), array("i")  # of the beginning

    def add(self, part: TokenisedDocuments) -> None:
        """Some more documents; the last may go on in the next part."""
        lengths = part.sentence_lengths
        self.characters += part.characters
        self.empty_lines += part.empty_lines
        self.tokens += len(part.ids)
        self.unknown += int((part.ids == self.tokenizer.unk_token_id).sum())
        sizes, counts = np.unique(lengths, return_counts=True)
        self.sentence_sizes.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
        self.sentences += len(lengths)
        keep = len(self._lengths) < PLANNED
        if keep:
            self._lengths.extend(lengths.tolist())
        counts_of = part.document_sentences.tolist()
        for index, count in enumerate(counts_of):
            self._open += count
            if index < len(counts_of) - 1 or not part.goes_on:
                self._end(keep)

    def _end(self, keep: bool) -> None:
        if self._open:
            self.documents += 1
            self.one_sentence += self._open == 1
            self.document_sizes[self._open.bit_length()] += 1
            if keep:
                self._document_lengths.append(self._open)
        else:
            self.empty_documents += 1
        self._open = 0

    def ask(self, sentences: list[str]) -> None:
        """Which words of some sentences are unknown to the tokenizer."""
        if self.trained or self.asked >= UNKNOWN_ASKED:
            return
        for text in sentences:
            ((ids, offsets),) = self.tokenizer.encode_with_offsets([text])
            if self.tokenizer.unk_token_id in ids:
                self.asked += 1
                found = (
                    text[a:b] for id_, (a, b) in zip(ids, offsets, strict=True) if id_ == self.tokenizer.unk_token_id
                )
                self.unknown_words.update(word[:40] for word in found)

    def layout(self) -> Layout:
        """The documents and sentences of the beginning, as examples are planned of them."""
        lengths = np.frombuffer(self._lengths, np.intc).astype(np.int64)
        documents = np.frombuffer(self._document_lengths, np.intc).astype(np.int64)
        first = np.concatenate([[0], np.cumsum(documents)])
        return Layout(first, np.concatenate([[0], np.cumsum(lengths[: first[-1]])]))

    def long_share(self, max_length: int) -> float:
        """The share of tokens that stand in sentences which no example of max_length holds."""
        long = sum(size * count for size, count in self.sentence_sizes.items() if size > max_length - 2)
        return long / (self.tokens or 1)


def examples(shape: Shape, max_length: int) -> dict[str, Any]:
    """What `pretrain` would make of the text: shares of its first batches, measured as its own summary does.

    Returns: is_next_share (None without pairs), mean_example_length, padding_share.
    """
    from minibert.corpus.batches import Collator, ExampleStream
    from minibert.corpus.summary import measure

    config = resolve(PretrainConfig, load_recipe("quick", "pretrain"), ("check", {"max_length": max_length}))
    store = cast(Any, SimpleNamespace(layout=shape.layout()))  # a store is its layout to a plan
    nsp = shape.documents > 1
    stream = ExampleStream(
        store, np.arange(len(store.layout.doc_first) - 1), seed=config.seed, batch_size=config.batch_size,
        max_length=max_length, nsp=nsp, short_share=config.short_share,
    )  # fmt: skip
    collator = Collator(
        store, shape.tokenizer, seed=config.seed, mask_rate=config.mask_rate, words=False, max_length=max_length
    )
    return measure(stream, collator)[1]


def lengths_section(shape: Shape) -> list[Section]:
    """How long documents and sentences are."""
    documents = sorted(shape.document_sizes.items())
    whole = Section(
        Both("Documents in sentences", "文档长度（句）"),
        Both(
            f"{percent(shape.one_sentence / max(1, shape.documents))} have one sentence; to the next-sentence task "
            "documents of two and more are worth most.",
            f"{percent(shape.one_sentence / max(1, shape.documents))} 的文档只有一句；对下一句预测来说，"
            "两句以上的文档才最有用。",
        ),
        bars=[
            (between(1 << (bits - 1), (1 << bits) - 1), count / shape.documents, f"{count:,}")
            for bits, count in documents
        ],
    )  # fmt: skip
    by_bits: Counter[int] = Counter()
    for size, count in shape.sentence_sizes.items():
        by_bits[size.bit_length()] += count
    source = Both("this text", "这份文本") if shape.whole else Both("the beginning of the text", "文本开头部分")
    under = (
        Both(
            f"Tokens of a vocabulary of {len(shape.tokenizer):,}, trained for this check on {source.en}.",
            f"词元来自一份 {len(shape.tokenizer):,} 项的词表，它由{source.zh}临时训练而成。",
        )
        if shape.trained
        else Both(
            f"Tokens under the given vocabulary of {len(shape.tokenizer):,}.",
            f"按给定的 {len(shape.tokenizer):,} 项词表切分。",
        )
    )
    return [
        whole,
        Section(
            Both("Sentences in tokens", "句子长度（词元）"), under,
            bars=[
                (between(1 << (bits - 1), (1 << bits) - 1), count / shape.sentences, f"{count:,}")
                for bits, count in sorted(by_bits.items())
            ],
        ),
    ]  # fmt: skip


def between(low: int, high: int) -> str:
    """A row of a histogram."""
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def good_for(tokens: int) -> Both:
    """What a text of this size is good for."""
    if tokens < LITTLE:
        return Both(
            "A text of this size is for trying commands out, not for training.", "这个规模只够试一试命令，不够训练。"
        )
    if tokens < SMALL:
        return Both(
            "A text of this size shows that everything works, and adapts a checkpoint a little (pretrain --from); a "
            "model "
            "trained from nothing will know the commonest words.",
            "这个规模够验证流程，或对已有模型做少量继续训练（pretrain --from）；从零训练只能学会最常见的词。",
        )
    if tokens < MIDDLING:
        return Both(
            "A text of this size is enough for a small model of a few layers (recipe quick), or to adapt a "
            "checkpoint to "
            "its domain (pretrain --from).",
            "这个规模够训练一个几层的小模型（quick 配方），或把已有模型适配到这个领域（pretrain --from）。",
        )
    return Both(
        "A text of this size is enough for a model from nothing; BERT's own had 3,300 million words.",
        "这个规模够从零训练一个模型；BERT 原文用了 33 亿词。",
    )


def findings(shape: Shape, measured: dict[str, Any], max_length: int) -> list[Finding]:
    """What stands in the way of training on it."""
    found = []
    if shape.tokens < LITTLE:
        found.append(
            Finding(
                "little text", "doubtful",
                Both(f"{shape.tokens:,} tokens are too few to learn from", f"只有 {shape.tokens:,} 个词元，学不到什么"),
                Both(
                    f"give {LITTLE:,} tokens at the very least, some millions for a model of use; with little text of "
                    "your own, go on with a checkpoint: minibert pretrain --from",
                    f"至少需要 {LITTLE:,} 个词元，要有用则需几百万；自有文本少时，请在已有模型上继续训练：minibert "
                    "pretrain --from",
                ),
            )
        )  # fmt: skip
    found += _pairs(shape, measured["is_next_share"])
    if measured["padding_share"] > PADDING_SHARE:
        mean = measured["mean_example_length"]
        found.append(
            Finding(
                "padding", "doubtful",
                Both(
                    f"{percent(measured['padding_share'])} of what is computed would be padding: an example has "
                    f"{mean:.0f} "
                    f"tokens on average, of {max_length}",
                    f"{percent(measured['padding_share'])} 的计算会花在填充上：每个样本平均 {mean:.0f} 个词元，上限 "
                    f"{max_length}",
                ),
                Both("take a smaller --max-length, or join short documents", "减小 --max-length，或合并短文档"),
            )
        )  # fmt: skip
    share = shape.long_share(max_length)
    if share > LONG_SHARE:
        found.append(
            Finding(
                "long sentences", "doubtful",
                Both(
                    f"{percent(share)} of the tokens stand in sentences of more than {max_length - 2} tokens: they "
                    "are cut",
                    f"{percent(share)} 的词元在超过 {max_length - 2} 个词元的句子里：这些句子会被切断",
                ),
                Both(
                    "has the text lost its punctuation? Put a sentence on a line, or take a larger --max-length",
                    "文本是否丢了标点？请一行一句，或增大 --max-length",
                ),
            )
        )  # fmt: skip
    if not shape.trained:
        found += _unknown(shape)
    return found


def _pairs(shape: Shape, is_next: float | None) -> list[Finding]:
    """Whether next-sentence prediction has what it needs, and whether text can be held out."""
    from minibert.corpus.summary import IS_NEXT_RANGE

    documents, alone = shape.documents, shape.one_sentence
    if documents < 2:
        return [
            Finding(
                "sentence pairs", "doubtful",
                Both(
                    f"the corpus is one document of {shape.sentences:,} sentences: next-sentence prediction needs "
                    "two or "
                    "more, and nothing can be held out to measure on",
                    f"语料只有一个文档（{shape.sentences:,} 句）：下一句预测至少需要两个文档，也无法留出评估文本",
                ),
                Both(
                    "put a blank line between documents; --no-nsp trains without pairs",
                    "在文档之间加空行；或用 --no-nsp 不训练句对",
                ),
            )
        ]  # fmt: skip
    found = []
    if is_next is not None and not IS_NEXT_RANGE[0] <= is_next <= IS_NEXT_RANGE[1]:
        low, high = LEARNABLE
        found.append(
            Finding(
                "sentence pairs", "note" if low <= is_next <= high else "doubtful",
                Both(
                    f"{percent(is_next)} of the sentence pairs would be true ones, far from half: {alone:,} of "
                    f"{documents:,} documents have one sentence, and only a random one can follow it",
                    f"只有 {percent(is_next)} 的句对是真实相邻的，远离一半：{documents:,} 个文档中有 {alone:,} "
                    "个只有一句，"
                    "只能配随机句子",
                ),
                Both(
                    "a blank line ends a document: are there too many of them? --no-nsp trains without pairs",
                    "空行表示文档结束：是不是空行太多？或用 --no-nsp 不训练句对",
                ),
            )
        )  # fmt: skip
    if documents < SMALLEST_SPLIT:
        found.append(
            Finding(
                "few documents", "note",
                Both(
                    f"{documents} documents: nothing is held out of fewer than {SMALLEST_SPLIT}, so nothing is "
                    "measured on "
                    "unseen text",
                    f"只有 {documents} 个文档：少于 {SMALLEST_SPLIT} 个时不留出评估文本，无法衡量模型在新文本上的表现",
                ),
                Both("put a blank line between documents", "在文档之间加空行"),
            )
        )  # fmt: skip
    return found


def _unknown(shape: Shape) -> list[Finding]:
    found = []
    share = shape.unknown / (shape.tokens or 1)
    words = [word for word, _ in shape.unknown_words.most_common(UNKNOWN_SHOWN)]
    if shape.unknown:
        found.append(
            Finding(
                "unknown words", "doubtful" if share > UNKNOWN_SHARE else "note",
                Both(
                    f"{percent(share)} of the tokens are [UNK], unknown to this vocabulary; the commonest: "
                    + " ".join(words),
                    f"{percent(share)} 的词元是 [UNK]，不在词表里；最常见的：" + " ".join(words),
                ),
                Both(
                    "take another --tokenizer, train one (minibert vocab), or let a checkpoint learn them: minibert "
                    "vocab "
                    "--extend",
                    "换一个 --tokenizer，或训练一个（minibert vocab），或给已有模型扩充词表：minibert vocab --extend",
                ) if share > UNKNOWN_SHARE else None,
            )
        )  # fmt: skip
    return found


def quantile(sizes: Counter[int], share: float) -> int:
    """The smallest size that this share of all does not exceed."""
    ordered: NDArray[np.int64] = np.array(sorted(sizes), np.int64)
    if not len(ordered):
        return 0
    passed = np.cumsum([sizes[size] for size in ordered.tolist()])
    return int(ordered[int(np.searchsorted(passed, share * passed[-1]))])
