"""Raw text -> BERT's words, at the speed of `str.translate`.

What a character becomes under BERT's cleaning, and whether it ends a word, depends on the character alone. So each
distinct character is asked once of `tokenizers`' own BertNormalizer and BertPreTokenizer, and a text is one table
look-up per character and one split. The words are those of `tokenizers` by construction, whatever its Unicode version.
"""

import re

from tokenizers import normalizers, pre_tokenizers

# Stands for a character whose normal form depends on its neighbours (canonical reordering). U+0000 itself is dropped.
REORDERED = "\x00"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class WordSplitter:
    """Cleans, normalises and splits text as BERT does before WordPiece.

    Args: lowercase, strip_accents, chinese_chars: BertNormalizer's settings. strip_accents None follows lowercase.
    Source: google-research/bert BasicTokenizer as ported in `tokenizers`. The port misses U+2B820..U+2B91F among Han
        (both miss Extensions F and later) and has older Unicode tables: docs/tokenization.md lists every character that
        differs. They are kept as in `transformers`, so that a saved folder gives everybody the same ids.
    """

    def __init__(self, *, lowercase: bool, strip_accents: bool | None = None, chinese_chars: bool = True) -> None:
        self.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=chinese_chars, strip_accents=strip_accents, lowercase=lowercase
        )
        self.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        decomposes = lowercase if strip_accents is None else strip_accents
        self._table = _CharacterTable(self.normalizer, self.pre_tokenizer, decomposes)

    def becomes(self, code: int) -> str:
        """What a character becomes: its normal form, blanks round a word of its own; REORDERED if neighbours decide."""
        return self._table[code]

    def split(self, text: str) -> list[str]:
        """Words of text in order; punctuation and Han characters are words of their own. Never raises."""
        flat = text.translate(self._table)
        if REORDERED not in flat:
            return flat.split()
        normal = self.normalizer.normalize_str(without_surrogates(text))
        return [word for word, _ in self.pre_tokenizer.pre_tokenize_str(normal)]


class _CharacterTable(dict[int, str]):
    """Code point -> what it becomes, blanks round it where it stands alone. Filled as characters are met."""

    def __init__(
        self,
        normalizer: normalizers.BertNormalizer,
        pre_tokenizer: pre_tokenizers.BertPreTokenizer,
        decomposes: bool,
    ) -> None:
        super().__init__()
        self._normalizer, self._pre_tokenizer, self._decomposes = normalizer, pre_tokenizer, decomposes

    def __missing__(self, code: int) -> str:
        self[code] = result = self._ask(chr(code))
        return result

    def _ask(self, character: str) -> str:
        if LONE_SURROGATE.match(character):
            return ""  # half a character: `tokenizers` cannot even be asked; dropped as private use is
        normal = self._normalizer.normalize_str
        if self._decomposes:
            # Two marks of combining classes 224 and 9, old enough for any table: whatever is reordered at all and stays
            # moves past one of them.
            after, before = "\u302e" + character, character + "\u1b44"
            if any(normal(pair) != normal(pair[0]) + normal(pair[1]) for pair in (after, before)):
                return REORDERED
        pieces = self._pre_tokenizer.pre_tokenize_str(normal(f"a{character}a"))
        return " ".join(piece for piece, _ in pieces)[1:-1]


def without_surrogates(text: str) -> str:
    """text with lone surrogates as U+FFFD: same length, so that offsets hold; BERT drops U+FFFD."""
    return LONE_SURROGATE.sub("\ufffd", text)
