"""The one kind of error that is the user's to mend, and the mend for what is not installed."""

import shlex
import sys


class UserError(Exception):
    """A user's mistake: shown as one message without a traceback, exit code 2.

    Args:
        problem: what is wrong, with the value.
        where: `file:line`, a file, or a setting's name.
        fix: what to do about it.
    """

    def __init__(self, problem: str, where: str | None = None, fix: str | None = None) -> None:
        self.problem, self.where, self.fix = problem, where, fix
        super().__init__(problem, where, fix)  # all three, so that the error survives a trip between processes

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        mend = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{place}{self.problem}{mend}"


def installing(*packages: str) -> str:
    """The command that puts packages where this program runs: another pip would put them elsewhere."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])
