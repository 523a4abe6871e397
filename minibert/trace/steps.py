"""What a tour consists of, and how its numbers are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from minibert.tokenization.shown import ShownToken
from minibert.trace.forward import Pass
from minibert.view.page import Both, percent

NO_BREAK = "\u00a0"


@dataclass(frozen=True)
class Matrix:
    """Numbers to look at. tokens: rows are the row's tokens, else row_names. columns: () numbers them. wanted: all
    columns, those first that are to be shown where not all can be. shares: 0 to 1, each row with its sum."""

    symbol: str
    what: Both
    values: Tensor  # (R,C)
    row_names: Sequence[Both] = ()
    columns: Sequence[str] = ()
    wanted: Sequence[int] = ()
    shares: bool = False

    @property
    def tokens(self) -> bool:
        return not self.row_names


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers. by_token: a row is a token. marked: the row that is looked at, if there is one."""

    columns: Sequence[Both]
    rows: Sequence[Sequence[str | Both]]
    numbers_from: int  # columns from here on stand at the right
    by_token: bool = False
    marked: int | None = None


@dataclass(frozen=True)
class Step:
    """One thing that is computed. worked: the same with numbers, for the followed token."""

    title: Both
    formula: str
    shape: str
    words: Both
    matrices: Sequence[Matrix] = ()
    table: Table | None = None
    worked: Sequence[Both] = ()


@dataclass(frozen=True)
class Chapter:
    """Steps that belong together."""

    title: Both
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Tour:
    """A sentence's way through a model. followed: the token that examples are worked for; layer, head: from 1; why:
    how the head was chosen, if nobody named it."""

    text: str
    followed: int
    layer: int
    head: int
    why: Both
    passed: Pass
    chapters: list[Chapter]


def num(x: Tensor | float) -> str:
    """A number as the tour writes it: three decimals, fewer where it is large, a real minus."""
    value = float(x)
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    shown = f"{value:.{digits}f}"
    return shown.replace("-", "−") if float(shown) else shown.replace("-", "")


def added(*terms: Tensor | float) -> str:
    """0.100 − 0.200 + 0.300."""
    shown = [num(term) for term in terms]
    return shown[0] + "".join(f" − {term[1:]}" if term.startswith("−") else f" + {term}" for term in shown[1:])


def times(x: Tensor | float, y: Tensor | float) -> str:
    """0.5·(−0.2)."""
    return "·".join(f"({num(factor)})" if float(factor) < 0 else num(factor) for factor in (x, y))


def share(x: Tensor | float) -> str:
    """A share, whose sign stays on the line of its number."""
    return percent(float(x)).replace(" ", NO_BREAK)


def superscript(number: int) -> str:
    """12 -> ¹²."""
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number))


def subscript(number: int) -> str:
    """12 -> ₁₂."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def labels(row: Sequence[ShownToken]) -> list[str]:
    """The tokens' texts, with their places where a text comes more than once: the₁, cat, the₃."""
    times_there = Counter(token.text for token in row)
    return [token.text + (subscript(i) if times_there[token.text] > 1 else "") for i, token in enumerate(row)]


def chosen(count: int, most: int, keep: int | None = None) -> list[int | None]:
    """Which of `count` rows or columns are shown where there is room for `most`; None stands for those left out.

    The first, the last, and `keep` are among them.
    """
    if count <= most:
        return list(range(count))
    shown = {*range(most - 1), count - 1}
    if keep is not None and keep not in shown:
        shown = {*range(most - 2), keep, count - 1}
    return with_gaps(shown, count)


def with_gaps(shown: Collection[int], count: int) -> list[int | None]:
    """In order, with None wherever some of `count` are left out."""
    found: list[int | None] = []
    after = 0
    for i in sorted(shown):
        found += [i] if i == after else [None, i]
        after = i + 1
    return found if after == count else [*found, None]
