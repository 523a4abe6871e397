"""Which of the measurements is the best, and when to stop waiting for a better one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

LOWER_IS_BETTER = ("loss", "error", "mse", "perplexity")


def is_lower_better(metric: str) -> bool:
    """True for losses and errors, by the last word of the name; scores are better the higher they are."""
    return metric.lower().replace("-", "_").split("_")[-1] in LOWER_IS_BETTER


@dataclass
class Best:
    """The best measurement so far. Of equal ones the earliest counts; NaN never does.

    Attributes: metric: its name. value, step: of the best, None before there is one. waited: measurements since then.
    """

    metric: str
    value: float | None = None
    step: int | None = None
    waited: int = 0

    def better(self, value: float, step: int) -> bool:
        """Note a measurement; True if it is the best so far."""
        sign = -1 if is_lower_better(self.metric) else 1
        won = not math.isnan(value) and (self.value is None or sign * value > sign * self.value)
        if won:
            self.value, self.step, self.waited = value, step, 0
        else:
            self.waited += 1
        return won

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return {"value": self.value, "step": self.step, "waited": self.waited}
