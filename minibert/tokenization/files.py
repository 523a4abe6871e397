"""A tokenizer's files on disk -> vocabulary and settings; whatever is not a BERT tokenizer is named and refused."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minibert.atomic import read_json
from minibert.errors import UserError
from minibert.tokenization.vocabulary import CONTINUATION

OTHER_TOKENIZERS = {
    "spiece.model": "a SentencePiece tokenizer",
    "sentencepiece.bpe.model": "a SentencePiece tokenizer",
    "tokenizer.model": "a SentencePiece tokenizer",
    "merges.txt": "a byte-pair (BPE) tokenizer",
    "vocab.json": "a byte-pair (BPE) tokenizer",
}
SHORTEST = 3  # [CLS], a token, [SEP]
MOST_TOKENS = 10_000_000
MOST_BYTES = 1 << 30
CASED_SHARE = 0.01  # of pieces with a capital letter; Google's vocabularies: cased .29, uncased and Chinese below .0001


@dataclass(frozen=True)
class TokenizerFiles:
    """tokens in id order and what the files say of the settings (None: nothing)."""

    tokens: list[str]
    lowercase: bool
    strip_accents: bool | None
    chinese_chars: bool
    model_max_length: int | None


def read_tokenizer(path: Path) -> TokenizerFiles:
    """Read a folder (tokenizer.json, else vocab.txt, with tokenizer_config.json) or a vocabulary file.

    Where tokenizer_config.json and tokenizer.json differ the former holds, as in `transformers`. Truncation and
    padding in tokenizer.json are ignored. Without any word on case, a vocabulary with capital letters is a cased one.
    Raises: UserError for anything missing, malformed or not a BERT tokenizer.
    """
    if not path.exists():
        raise UserError(
            "no such file or folder", where=str(path), fix="give a folder with tokenizer.json or a vocab.txt"
        )
    try:
        return _read_tokenizer(path)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"its files are not what a BERT tokenizer's are ({reason})", where=str(path)) from error


def _read_tokenizer(path: Path) -> TokenizerFiles:
    settings: dict[str, Any] = {}
    if path.is_dir():
        config = path / "tokenizer_config.json"
        written = _read_json(config) if config.exists() else {}
        if (path / "tokenizer.json").exists():
            tokens, settings = _read_tokenizer_json(path / "tokenizer.json")
        elif (path / "vocab.txt").exists():
            tokens = read_vocabulary(path / "vocab.txt")
        else:
            raise _no_tokenizer(path)
        for name in ("do_lower_case", "tokenize_chinese_chars", "model_max_length"):
            if written.get(name) is not None:
                settings[name] = written[name]
        if "strip_accents" in written:  # null says something here: follow the case
            settings["strip_accents"] = written["strip_accents"]
    elif path.name == "tokenizer.json":
        tokens, settings = _read_tokenizer_json(path)
    else:
        tokens = read_vocabulary(path)
    for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        if not isinstance(settings.get(name), bool | None):
            raise UserError(f"{name} is {settings[name]!r}, not true or false", where=str(path))
    longest = settings.get("model_max_length")
    if longest is not None and (not isinstance(longest, int | float) or not longest >= SHORTEST):
        raise UserError(f"model_max_length is {longest!r}, not a number of {SHORTEST} or more", where=str(path))
    return TokenizerFiles(
        tokens=tokens,
        lowercase=settings.get("do_lower_case", not _looks_cased(tokens)),
        strip_accents=settings.get("strip_accents"),
        chinese_chars=settings.get("tokenize_chinese_chars", True),
        model_max_length=int(longest) if longest and longest < 1e9 else None,  # 1e30 is how "none" is written
    )


def read_vocabulary(path: Path) -> list[str]:
    """vocab.txt: one token a line, the line number is the id. UTF-8, a BOM and `\\r\\n` are accepted.

    Raises: UserError naming file:line for bytes that are not UTF-8, an empty line in the middle, a token given twice.
    """
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"has {path.stat().st_size:,} bytes: no vocabulary is so large", where=str(path))
    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if raw.count(b"\n") > MOST_TOKENS:
        raise UserError(f"has more than {MOST_TOKENS:,} lines: no vocabulary is so large", where=str(path))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].split(b"\n")
        raise UserError(
            f"not UTF-8: byte 0x{raw[error.start]:02x} at byte {len(before[-1]) + 1} of the line",
            where=f"{path}:{len(before)}",
            fix="save the vocabulary as UTF-8",
        ) from None
    tokens = [line.removesuffix("\r") for line in text.split("\n")]
    while tokens and not tokens[-1].strip(" \t\r"):
        tokens.pop()
    if not tokens:
        raise UserError("the vocabulary is empty", where=str(path))
    first: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if not token:
            raise UserError(
                "an empty line inside the vocabulary: the ids after it would be guesses",
                where=f"{path}:{number}",
                fix="delete the line if the model was trained without it",
            )
        if token in first:
            raise UserError(f"token {token!r} is already on line {first[token]}", where=f"{path}:{number}")
        first[token] = number
    return tokens


def _read_json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"a JSON {type(content).__name__} where an object is expected", where=str(path))
    return content


def _read_tokenizer_json(path: Path) -> tuple[list[str], dict[str, Any]]:
    content = _read_json(path)
    model = content.get("model") or {}
    # Early files do not name the type; only WordPiece has this key.
    kind = model.get("type") or ("WordPiece" if "max_input_chars_per_word" in model else "unnamed")
    if kind != "WordPiece":
        raise UserError(f"a {kind} tokenizer, not BERT's WordPiece", where=str(path))
    prefix = model.get("continuing_subword_prefix", CONTINUATION)
    if prefix != CONTINUATION:
        raise UserError(f"continuation pieces begin with {prefix!r}, BERT's with {CONTINUATION!r}", where=str(path))
    normalizer, splitter = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
    if normalizer.get("type") != "BertNormalizer" or splitter.get("type") != "BertPreTokenizer":
        raise UserError(
            f"WordPiece over {normalizer.get('type')} and {splitter.get('type')}, not BERT's BertNormalizer and "
            "BertPreTokenizer",
            where=str(path),
        )
    if not normalizer.get("clean_text", True):
        raise UserError("its normalizer has clean_text off; BERT's cleans", where=str(path))
    vocabulary = dict(model.get("vocab") or {})
    vocabulary.update({added["content"]: added["id"] for added in content.get("added_tokens") or []})
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if not tokens:
        raise UserError("the vocabulary is empty", where=str(path))
    ids = [vocabulary[token] for token in tokens]
    if ids != list(range(len(ids))):
        twice = [i for i, times in Counter(ids).items() if times > 1]
        problem = f"id {twice[0]} belongs to two tokens" if twice else f"ids are not 0..{len(ids) - 1} without gaps"
        raise UserError(problem, where=str(path))
    return tokens, {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }


def _looks_cased(tokens: list[str]) -> bool:
    pieces = [token for token in tokens if not (token[0] in "[<" and token[-1] in "]>")]
    return sum(piece != piece.lower() for piece in pieces) > CASED_SHARE * len(pieces)


def _no_tokenizer(folder: Path) -> UserError:
    for name, kind in OTHER_TOKENIZERS.items():
        if (folder / name).exists():
            return UserError(f"{kind} ({name}), not BERT's WordPiece", where=str(folder))
    return UserError(
        "no tokenizer here",
        where=str(folder),
        fix="it should hold tokenizer.json or vocab.txt; give the folder of a BERT",
    )
