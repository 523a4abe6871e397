"""The one kind of error that is the user's to mend, what a terminal may be shown, and the mend for what is missing."""

import re
import shlex
import sys

LONGEST_PART = 1000  # characters of a message's part; a user's value in it may be a book
LONGEST_PLACE = 5000  # a path may have 4,096
# All but line end and tab; also what turns the direction of writing, and halves of surrogate pairs.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(Exception):
    """A user's mistake: shown as one message without a traceback, exit code 2.

    In the message control characters of the user's own text are escaped, and what is very long is cut.

    Args:
        problem: what is wrong, with the value.
        where: `file:line`, a file, or a setting's name.
        fix: what to do about it.
    """

    def __init__(self, problem: str, where: str | None = None, fix: str | None = None) -> None:
        self.problem, self.where, self.fix = problem, where, fix
        super().__init__(problem, where, fix)  # all three, so that the error survives a trip between processes

    def __str__(self) -> str:
        place = f"{shortened(self.where, LONGEST_PLACE)}: " if self.where else ""
        mend = f"\n  fix: {shortened(self.fix, LONGEST_PART)}" if self.fix else ""
        return printable(f"{place}{shortened(self.problem, LONGEST_PART)}{mend}")


def printable(text: str) -> str:
    """Text that may be shown on a terminal: what would move its cursor or change its colours is escaped."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def shortened(text: str, longest: int) -> str:
    """Text of so many characters at most; where it is longer its middle is left out."""
    return text if len(text) <= longest else f"{text[: longest // 2]} ... {text[-longest // 2 :]}"


def installing(*packages: str) -> str:
    """The command that puts packages where this program runs: another pip would put them elsewhere."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])
