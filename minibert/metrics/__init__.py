"""Scores of the fine-tuning tasks: functions in one file a task, and evaluate.Metric classes that need no network.

The functions cost nothing to import. The classes come with evaluate, which takes seconds, and are therefore loaded when
they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minibert.metrics.evaluation import Classification as Classification
    from minibert.metrics.evaluation import CmrcAnswers as CmrcAnswers
    from minibert.metrics.evaluation import Entities as Entities
    from minibert.metrics.evaluation import MultiLabelClassification as MultiLabelClassification
    from minibert.metrics.evaluation import Regression as Regression
    from minibert.metrics.evaluation import SquadAnswers as SquadAnswers

__all__ = ["Classification", "CmrcAnswers", "Entities", "MultiLabelClassification", "Regression", "SquadAnswers"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'minibert.metrics' has no attribute {name!r}")
    from minibert.metrics import evaluation

    return getattr(evaluation, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
