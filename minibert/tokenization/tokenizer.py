"""Text <-> ids. Shapes: B texts, T tokens, V vocabulary."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, processors

from minibert.errors import UserError
from minibert.tokenization.bulk import BulkEncoder
from minibert.tokenization.files import read_tokenizer
from minibert.tokenization.vocabulary import CONTINUATION, LONGEST_WORD, SPECIAL_TOKENS
from minibert.tokenization.words import WordSplitter, without_surrogates

if TYPE_CHECKING:
    import torch

__all__ = ["SPECIAL_TOKENS", "BertTokenizer"]

# Text never gives these: its brackets are words of their own. [unused7], other people's <S>.
RESERVED = re.compile(r"\[.+\]|<.+>", re.DOTALL)
CHARACTERS_AT_A_TIME = 1 << 17  # encoded in one go
DEFAULT_MAX_LENGTH = 512


class BertTokenizer:
    """BERT's WordPiece. Text is only ever text: a literal "[MASK]" in it gives the pieces of "[", "mask", "]".

    Attributes:
        tokens: the vocabulary in id order. ordinary_ids (n,) int64: what a random replacement may be, no special and no
            reserved token. is_continuation (V,) bool: True for "##x".
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: int.
        model_max_length: longest sequence the model takes, in tokens; written to tokenizer_config.json.
        fingerprint: hex digest of everything that decides ids.
    Picklable, and free of threads, so that forked workers may use it.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        *,
        lowercase: bool,
        strip_accents: bool | None = None,
        chinese_chars: bool = True,
        model_max_length: int = DEFAULT_MAX_LENGTH,
        where: str | None = None,
    ) -> None:
        self.tokens = list(tokens)
        self._ids = _index(self.tokens, where)
        self.lowercase, self.strip_accents, self.chinese_chars = lowercase, strip_accents, chinese_chars
        self.model_max_length = model_max_length
        self.pad_token_id, self.unk_token_id, self.cls_token_id, self.sep_token_id, self.mask_token_id = (
            self._ids[token] for token in SPECIAL_TOKENS
        )
        ordinary = [i for i, token in enumerate(self.tokens) if not RESERVED.fullmatch(token)]
        self.ordinary_ids: NDArray[np.int64] = np.array(ordinary, dtype=np.int64)
        self.is_continuation: NDArray[np.bool_] = np.array(
            [token.startswith(CONTINUATION) and token != CONTINUATION for token in self.tokens], dtype=np.bool_
        )
        self._splitter = WordSplitter(lowercase=lowercase, strip_accents=strip_accents, chinese_chars=chinese_chars)
        self._backend = Tokenizer(models.WordPiece(self._ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
        self._backend.normalizer = self._splitter.normalizer
        self._backend.pre_tokenizer = self._splitter.pre_tokenizer
        self._encode = BulkEncoder(self._splitter, self._piece_ids)
        accents = lowercase if strip_accents is None else strip_accents
        facts = json.dumps([self.tokens, lowercase, accents, chinese_chars])
        self.fingerprint = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *, lowercase: bool | None = None, strip_accents: bool | None = None
    ) -> BertTokenizer:
        """Open a folder (tokenizer.json or vocab.txt, tokenizer_config.json) or a vocab.txt.

        Args: lowercase, strip_accents: override what the files say. A bare vocab.txt says nothing: lower-case, unless
            it holds capital letters.
        Raises: UserError naming the file (and line) of what is missing, malformed or not a BERT tokenizer.
        """
        files = read_tokenizer(Path(path))
        return cls(
            files.tokens,
            lowercase=files.lowercase if lowercase is None else lowercase,
            strip_accents=files.strip_accents if strip_accents is None else strip_accents,
            chinese_chars=files.chinese_chars,
            model_max_length=files.model_max_length or DEFAULT_MAX_LENGTH,
            where=str(path),
        )

    @classmethod
    def from_tokens(cls, tokens: Sequence[str], *, lowercase: bool, strip_accents: bool | None = None) -> BertTokenizer:
        """A tokenizer over tokens in id order. Raises: UserError for missing special, empty or repeated tokens."""
        return cls(tokens, lowercase=lowercase, strip_accents=strip_accents)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write vocab.txt, tokenizer.json and tokenizer_config.json into folder, always the same bytes.

        `transformers.AutoTokenizer` opens the result with the same ids, except that it reads a literal "[MASK]" in text
        as the special token (its split_special_tokens=True does not).
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vocab.txt").write_bytes("".join(f"{token}\n" for token in self.tokens).encode())
        complete = Tokenizer.from_str(self._backend.to_str())
        complete.add_special_tokens(list(SPECIAL_TOKENS))
        complete.decoder = decoders.WordPiece(prefix=CONTINUATION)
        complete.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", self.cls_token_id), ("[SEP]", self.sep_token_id)],
        )
        (folder / "tokenizer.json").write_bytes(complete.to_str(pretty=True).encode())
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.chinese_chars,
            "model_max_length": self.model_max_length,
            **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
        }
        (folder / "tokenizer_config.json").write_bytes((json.dumps(config, indent=2) + "\n").encode())

    def __len__(self) -> int:
        return len(self.tokens)

    def __reduce__(self) -> tuple[Callable[..., BertTokenizer], tuple[Any, ...]]:
        settings = (self.lowercase, self.strip_accents, self.chinese_chars, self.model_max_length)
        return _rebuild, (self.tokens, *settings)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, without [CLS] and [SEP]. A text without words gives an empty list."""
        rows: list[list[int]] = []
        for part in _portions(texts):
            ids, lengths = self.encode_flat(part)
            flat, ends = ids.tolist(), np.cumsum(lengths).tolist()
            rows += [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
        return rows

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """As encode, as arrays: (ids (T,) of all texts in a row, lengths (B,) in tokens)."""
        return self._encode(texts)

    def _piece_ids(self, word: str) -> list[int]:
        return [piece.id for piece in self._backend.model.tokenize(word)]

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """As encode, with each token's (start, end) in characters of its text. About a fifth of encode's speed."""
        # One text at a time: `tokenizers` uses threads for batches, which a forked worker must not.
        encodings = [self._backend.encode(without_surrogates(text), add_special_tokens=False) for text in texts]
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def __call__(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        padding: bool | str = True,
        return_offsets_mapping: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Texts (or pairs) -> a batch for the model: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

        Args: texts, text_pairs: B strings each; one string is a batch of one.
            max_length: most tokens a row, special tokens included. A single text is cut at its end, a pair at the ends
                of the longer side first, as `transformers` does it.
            padding: True pads to the longest row, "max_length" to max_length, False not at all: rows must be equally
                long.
        Returns: input_ids, token_type_ids (0 through the first [SEP], 1 after), attention_mask, each (B,T) int64; on
            request offset_mapping (B,T,2), characters in the row's own text, (0, 0) for special tokens and padding.
        """
        import torch

        firsts = [texts] if isinstance(texts, str) else list(texts)
        sides = [firsts]
        if text_pairs is not None:
            sides.append([text_pairs] if isinstance(text_pairs, str) else list(text_pairs))
            if len(sides[1]) != len(firsts):
                raise ValueError(f"{len(firsts)} texts but {len(sides[1])} text_pairs")
        room = None if max_length is None else max_length - 1 - len(sides)
        if room is not None and room < len(sides):
            raise ValueError(f"max_length {max_length} leaves no room for text")
        encoded = [self._with_offsets(side, return_offsets_mapping) for side in sides]
        rows = [self._assemble(row, room) for row in zip(*encoded, strict=True)]
        longest = max((len(ids) for ids, _, _ in rows), default=0)
        if padding == "max_length":
            if max_length is None:
                raise ValueError('padding="max_length" needs max_length')
            longest = max_length
        elif not padding and any(len(ids) != longest for ids, _, _ in rows):
            raise ValueError("padding=False with rows of different lengths makes no tensor")
        shape = (len(rows), longest)
        batch = {
            "input_ids": torch.full(shape, self.pad_token_id),
            "token_type_ids": torch.zeros(shape, dtype=torch.int64),
            "attention_mask": torch.zeros(shape, dtype=torch.int64),
        }
        if return_offsets_mapping:
            batch["offset_mapping"] = torch.zeros((*shape, 2), dtype=torch.int64)
        for i, (ids, types, offsets) in enumerate(rows):
            batch["input_ids"][i, : len(ids)] = torch.tensor(ids)
            batch["token_type_ids"][i, : len(ids)] = torch.tensor(types)
            batch["attention_mask"][i, : len(ids)] = 1
            if return_offsets_mapping:
                batch["offset_mapping"][i, : len(ids)] = torch.tensor(offsets)
        return batch

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Readable text of ids: pieces joined, words separated by blanks. The original's blanks and case are lost."""
        tokens = (self.tokens[i] for i in ids)
        kept = [token for token in tokens if not (skip_special_tokens and token in SPECIAL_TOKENS)]
        return " ".join(kept).replace(f" {CONTINUATION}", "")

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Tokens of ids."""
        return [self.tokens[i] for i in ids]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens; that of [UNK] for what is not in the vocabulary."""
        return [self._ids.get(token, self.unk_token_id) for token in tokens]

    def _with_offsets(self, texts: list[str], offsets: bool) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return self.encode_with_offsets(texts) if offsets else [(ids, []) for ids in self.encode(texts)]

    def _assemble(
        self, sides: tuple[tuple[list[int], list[tuple[int, int]]], ...], room: int | None
    ) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """Truncates and joins the one or two sides of a row -> ids, token types, offsets."""
        lengths = fit_lengths([len(ids) for ids, _ in sides], room)
        ids, types, spans = [self.cls_token_id], [0], [(0, 0)]
        for segment, ((side, offsets), length) in enumerate(zip(sides, lengths, strict=True)):
            ids += [*side[:length], self.sep_token_id]
            types += [segment] * (length + 1)
            spans += [*offsets[:length], (0, 0)]
        return ids, types, spans


def _portions(texts: list[str]) -> Iterator[list[str]]:
    """The texts in order, some CHARACTERS_AT_A_TIME of them in a list."""
    first = size = 0
    for i, text in enumerate(texts, 1):
        size += len(text) + 1
        if size >= CHARACTERS_AT_A_TIME or i == len(texts):
            yield texts[first:i]
            first, size = i, 0


def fit_lengths(lengths: list[int], room: int | None) -> list[int]:
    """How many tokens of each side stay when together they may have `room`; the longer side gives first."""
    if room is None or sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    half = room // 2
    if first > second:  # an odd token goes to the longer side, to the second of two equals
        return [room - min(second, half), min(second, half)]
    return [min(first, half), room - min(first, half)]


def _index(tokens: list[str], where: str | None) -> dict[str, int]:
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not token or "\n" in token or token.endswith("\r"):
            raise UserError(f"token {i} is {token!r}: a token is one line of text, not empty", where=where)
        if token in ids:
            raise UserError(f"token {token!r} has two ids, {ids[token]} and {i}", where=where)
        ids[token] = i
    missing = [token for token in SPECIAL_TOKENS if token not in ids]
    if missing:
        raise UserError(
            f"the vocabulary has no {', '.join(missing)}",
            where=where,
            fix="BERT needs all of " + " ".join(SPECIAL_TOKENS),
        )
    return ids


def _rebuild(
    tokens: list[str], lowercase: bool, strip_accents: bool | None, chinese_chars: bool, model_max_length: int
) -> BertTokenizer:
    return BertTokenizer(
        tokens,
        lowercase=lowercase,
        strip_accents=strip_accents,
        chinese_chars=chinese_chars,
        model_max_length=model_max_length,
    )
