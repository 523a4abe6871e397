"""A checkpoint whose vocabulary grows for a domain: what is added, where it goes, and with what it begins.

V is the number of embeddings before, n that of the added tokens, D the width.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from minibert.atomic import write_whole
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model, save_checkpoint
from minibert.checkpoint.pretrained import BertForPreTraining, Pretrained, find_class
from minibert.checkpoint.rows import add_rows, embeddings
from minibert.console import Console
from minibert.corpus.read import read_pieces
from minibert.errors import UserError
from minibert.model.heads import BertLanguageModel
from minibert.tokenization.additions import Additions, count_tokens, find_additions, spell
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.tokenization.vocabulary import CONTINUATION, count_words
from minibert.tokenization.words import WordSplitter

UNUSED = re.compile(r"\[unused\d+\]")  # Google's vocabularies keep rows for later under such names
DEFAULT_ADD = 2000
DEFAULT_MIN_COUNT = 3
FRESH_SEED = 0  # of what a checkpoint lacks and its class has
SAMPLE_LINES, SAMPLE_CHARACTERS, SAMPLE_TOKENS = 128, 1000, 64  # on which biases are fitted: seconds for BERT-base
MASKED_EACH = 6  # one token in six of them is masked, about as many as BERT's 15 %


@dataclass(frozen=True)
class Extended:
    """A model and a tokenizer that have grown.

    ids (n): of the added tokens, in the order in which they were found. parts (n): for each, the tokens that its
        embedding is the mean of, there before or among the added characters; none where nothing was known of it.
    """

    model: Pretrained
    tokenizer: BertTokenizer
    additions: Additions
    ids: list[int]
    parts: list[list[str]]


class Sample:
    """Lines of a stream, evenly over it however long it is: SAMPLE_LINES of them or up to twice as many."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.step, self.offered = 1, 0

    def offer(self, line: str) -> None:
        if self.offered % self.step == 0:
            self.lines.append(line[:SAMPLE_CHARACTERS])
            if len(self.lines) == 2 * SAMPLE_LINES:
                self.lines = self.lines[::2]
                self.step *= 2
        self.offered += 1


@dataclass(frozen=True)
class DomainText:
    """How often each word stands in a text, and some of its lines."""

    words: Counter[str]
    sample: Sample


def extend_checkpoint(
    checkpoint: Path, files: Sequence[Path], out: Path, *, add: int = DEFAULT_ADD, min_count: int = DEFAULT_MIN_COUNT,
    encoding: str = "utf-8", text_field: str = "text", console: Console | None = None,
) -> Extended:  # fmt: skip
    """Write `checkpoint` to `out` with up to `add` more tokens, those that shorten the text of these files most.

    Args: min_count: nothing is added that stands fewer times in the text.
    Raises: UserError for a folder that is no BERT with a tokenizer, for text without a word, and where nothing is to be
        added; nothing is written then.
    """
    console = console or Console()
    model, tokenizer = open_whole(checkpoint, console)
    text = read_domain(files, tokenizer, encoding=encoding, text_field=text_field, console=console)
    if not text.words:
        names = ", ".join(map(str, files[:3])) + (" ..." if len(files) > 3 else "")
        raise UserError("no text: there is no word left after cleaning", where=names, fix="give text of your domain")
    before = tokenizer.tokens, model.config.vocab_size
    extended = extend(model, tokenizer, text, add=add, min_count=min_count)
    if not extended.ids:
        raise UserError(
            f"its vocabulary fits the text as it is: no character that makes [UNK], no word or piece in several tokens "
            f"stands {min_count} times in there",
            where=str(checkpoint), fix="go on with it as it is; or lower --min-count, or give more text",
        )  # fmt: skip

    def fill(partial: Path) -> None:
        save_checkpoint(extended.model, extended.tokenizer, partial)

    write_whole(out, fill)
    show(extended, text.words, *before, add=add, out=out, console=console)
    return extended


def open_whole(checkpoint: Path, console: Console) -> tuple[Pretrained, BertTokenizer]:
    """A checkpoint with all its heads: of its config's class, or for pre-training where that one would lose weights."""
    config = load_config(checkpoint)
    tokenizer = BertTokenizer.from_pretrained(checkpoint)
    check_vocabulary(len(tokenizer), config, str(checkpoint))
    kind = find_class(config, checkpoint)
    model, report = load_model(kind, checkpoint, seed=FRESH_SEED)
    if report.ignored and kind is not BertForPreTraining:  # bert-base says BertForMaskedLM, and has both heads
        whole, all_of_it = load_model(BertForPreTraining, checkpoint, seed=FRESH_SEED)
        if not all_of_it.fresh and not all_of_it.ignored:
            model, report = whole, all_of_it
            console.say(f"{checkpoint} holds more than a {kind.__name__}: written as {type(model).__name__}")
    if report.ignored:
        console.warn(f"{checkpoint}: left out, for they have no place: {', '.join(report.ignored)}")
    if report.fresh:
        console.warn(f"{checkpoint}: not in there, so they start fresh: {', '.join(report.fresh)}")
    return model, tokenizer


def read_domain(
    files: Sequence[Path], tokenizer: BertTokenizer, *, encoding: str, text_field: str, console: Console
) -> DomainText:
    """The text of the files, its words being what this tokenizer takes for one; read once, as a stream."""
    splitter = WordSplitter(
        lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents, chinese_chars=tokenizer.chinese_chars
    )
    sample = Sample()

    def lines() -> Iterator[str]:
        for piece, _ in read_pieces(files, encoding=encoding, text_field=text_field):
            for line in piece:
                sample.offer(line)
                yield line

    with console.progress("words", unit="characters") as update:
        words = count_words(lines(), splitter, update)
    return DomainText(words, sample)


def extend(
    model: Pretrained, tokenizer: BertTokenizer, text: DomainText, *, add: int, min_count: int = DEFAULT_MIN_COUNT
) -> Extended:
    """The model, which is changed in place, and a new tokenizer, with what this text wants added.

    [unusedN] rows are filled first, in order of id; then rows of a padded embedding that no token has; then new rows.
    No other id changes, and no other weight.
    """
    additions = find_additions(text.words, tokenizer.tokens, most=add, least=min_count)
    tokens, ids = place(tokenizer.tokens, [*additions.characters, *additions.pieces])
    parts = parts_of(additions, frozenset(tokenizer.tokens))
    grown = BertTokenizer(
        tokens, lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents,
        chinese_chars=tokenizer.chinese_chars, model_max_length=tokenizer.model_max_length,
    )  # fmt: skip
    lacking = len(tokens) - model.config.vocab_size
    if lacking > 0:
        add_rows(model, lacking)
    fill_rows(model, grown, ids, parts, text)
    return Extended(model, grown, additions, ids, parts)


def place(tokens: Sequence[str], additions: Sequence[str]) -> tuple[list[str], list[int]]:
    """A vocabulary with additions, first in place of its [unusedN], then at its end -> (tokens, ids of additions)."""
    free = [i for i, token in enumerate(tokens) if UNUSED.fullmatch(token)][: len(additions)]
    grown = list(tokens)
    for i, token in zip(free, additions, strict=False):
        grown[i] = token
    grown += additions[len(free) :]
    return grown, [*free, *range(len(tokens), len(grown))]


def parts_of(additions: Additions, before: frozenset[str]) -> list[list[str]]:
    """The tokens whose mean each added one begins with.

    A piece: the tokens that it was spelled with, added characters among them. A character: c for "##c" and "##c" for
    c, where the vocabulary had the other one.
    """
    others = [
        piece.removeprefix(CONTINUATION) if piece.startswith(CONTINUATION) else CONTINUATION + piece
        for piece in additions.characters
    ]
    known = before.union(additions.characters)
    pieces = [spell(token, known) for token in additions.pieces]
    return [*([other] if other in before else [] for other in others), *(found or [] for found in pieces)]


def fill_rows(
    model: Pretrained, tokenizer: BertTokenizer, ids: list[int], parts: Sequence[Sequence[str]], text: DomainText
) -> None:
    """First values of the added tokens. tokenizer: with them.

    Embedding: the mean of those of its parts; a character of which nothing was known: that of all single characters.
    MLM bias: as fitted_bias has it. docs/results.md has what else was tried.
    """
    weight = embeddings(model).weight.data
    new = frozenset(ids)
    old = [i for i in range(len(tokenizer)) if i not in new]
    singles = [i for i in old if len(tokenizer.tokens[i].removeprefix(CONTINUATION)) == 1]
    typical = weight[singles or old].mean(0)
    for i, pieces in zip(ids, parts, strict=True):
        weight[i] = weight[tokenizer.convert_tokens_to_ids(pieces)].mean(0) if pieces else typical
    if isinstance(model, BertLanguageModel):
        model.cls.predictions.bias.data[ids] = 0.0
        model.cls.predictions.bias.data[ids] = fitted_bias(model, tokenizer, ids, old, text)


@torch.inference_mode()
def fitted_bias(
    model: BertLanguageModel, tokenizer: BertTokenizer, ids: list[int], old: list[int], text: DomainText
) -> Tensor:
    """The biases (n,) with which the model gives each added token its share of the text, where its own are 0 now.

    b = log(f / F) - log mean over positions of exp(h e - log sum over old tokens of exp(their logits)): f the token's
    frequency, F that of the old tokens together, h the head's output at [MASK]s of the text, e the token's embedding.
    Where the old biases are log frequencies (minibert's recipes) and where they are near 0 (Google's) alike.
    """
    rows = [row for row in tokenizer.encode(text.sample.lines) if row] or [[tokenizer.mask_token_id]]
    longest = min(SAMPLE_TOKENS, model.config.max_position_embeddings - 2)
    total, positions = torch.full((len(ids),), -torch.inf, dtype=torch.float64), 0
    for number, row in enumerate(rows):
        masked = range(1 + number % min(MASKED_EACH, len(row)), 1 + min(len(row), longest), MASKED_EACH)
        inputs = torch.tensor([[tokenizer.cls_token_id, *row[:longest], tokenizer.sep_token_id]])
        inputs[0, list(masked)] = tokenizer.mask_token_id
        states, *_ = model.states(inputs, None, None, torch.tensor(masked), False, False)
        logits = model.cls.predictions(states).double()  # (P,V)
        odds = (logits[:, ids] - logits[:, old].logsumexp(-1, keepdim=True)).logsumexp(0)
        total, positions = torch.logaddexp(total, odds), positions + len(masked)
    frequency = token_frequency(text.words, tokenizer)
    bias = frequency[ids] - frequency[old].logsumexp(0) - (total - math.log(positions))
    return bias.round(decimals=3).float()  # so that the last bits, which hang on the number of threads, do not show


def token_frequency(words: Counter[str], tokenizer: BertTokenizer) -> Tensor:
    """Log of each token's share of the text (tokens,), with one added to each count."""
    counts = torch.ones(len(tokenizer), dtype=torch.float64)
    for count, ids in zip(words.values(), tokenizer.encode(list(words)), strict=True):
        for i in ids:
            counts[i] += count
    return (counts / counts.sum()).log()


def show(
    extended: Extended, words: Counter[str], tokens: Sequence[str], rows: int, *, add: int, out: Path, console: Console
) -> None:
    """What was added, where, and what it is worth on this text. tokens, rows: the vocabulary and embeddings before."""
    additions, ids = extended.additions, extended.ids
    unused, padded = sum(i < len(tokens) for i in ids), sum(len(tokens) <= i < rows for i in ids)
    grown = extended.model.config.vocab_size
    whole = sum(words[piece] > 0 for piece in additions.pieces)
    before, after = count_tokens(words, tokens), count_tokens(words, extended.tokenizer.tokens)
    characters = sum(count * len(word) for word, count in words.items())
    total = words.total()

    def both(form: str, old: float, new: float) -> str:
        return f"{old:{form}} -> {new:{form}}"

    rest = len(additions.pieces) - whole
    what = f"{len(additions.characters):,} characters, {whole:,} words, {rest:,} beginnings and continuations of words"
    where = f"{unused:,} [unused], {padded:,} padded rows; {grown - rows:,} new rows (vocab_size {rows:,} -> {grown:,})"
    console.table(
        f"extended: {out}",
        [
            ("added", f"{len(ids):,} of {add:,}: {what}"),
            ("in place of", where),
            ("tokens per word", both(".3f", before[0] / total, after[0] / total)),
            ("characters per token", both(".3f", characters / before[0], characters / after[0])),
            ("unknown", both(".3%", before[1] / before[0], after[1] / after[0]) + " of the tokens are [UNK]"),
        ],
    )
    for token, parts in examples(extended):
        console.say(f"    {token} <- {' '.join(parts) or '[UNK]'}")
    if len(ids) < add:
        console.say(f"  {len(ids):,} is all that stands in the text often enough (--min-count)")
        if extended.tokenizer.chinese_chars and any("\u4e00" <= word[0] <= "\u9fff" for word in words):
            console.say(
                "  Han characters are words by themselves, nothing is joined to them: a Chinese text adds characters "
                "and words in letters and digits"
            )


def examples(extended: Extended) -> list[tuple[str, list[str]]]:
    """Ten of the added tokens, and what they were: up to three characters, then the pieces that save most."""
    found = list(zip([*extended.additions.characters, *extended.additions.pieces], extended.parts, strict=True))
    characters = min(len(extended.additions.characters), max(3, 10 - len(extended.additions.pieces)))
    rest = found[len(extended.additions.characters) :]
    return [*found[:characters], *rest[: 10 - characters]]
