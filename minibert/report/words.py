"""What the numbers of a run are called, in both languages, and how they are written."""

from __future__ import annotations

from typing import Any

from minibert.training.best import is_lower_better
from minibert.view.page import Both

NAMES = {
    "loss": Both("loss", "损失"),
    "mlm_loss": Both("MLM loss", "MLM 损失"),
    "mlm_accuracy": Both("MLM accuracy, all targets", "MLM 准确率（全部目标）"),
    "perplexity": Both("perplexity", "困惑度"),
    "masked_loss": Both("loss at [MASK]", "[MASK] 处损失"),
    "masked_accuracy": Both("accuracy at [MASK]", "[MASK] 处准确率"),
    "masked_perplexity": Both("perplexity at [MASK]", "[MASK] 处困惑度"),
    "unigram_loss": Both("loss of word counts", "仅凭词频的损失"),
    "unigram_accuracy": Both("always the commonest token", "总猜最常见的词"),
    "nsp_loss": Both("next-sentence loss", "下一句损失"),
    "nsp_accuracy": Both("next-sentence accuracy", "下一句准确率"),
    "num_targets": Both("targets measured", "评测目标数"),
    "num_masked": Both("of them shown as [MASK]", "其中显示为 [MASK]"),
    "nsp_majority_accuracy": Both("always the commoner label", "总答更常见的标签"),
    "num_pairs": Both("pairs measured", "评测句对数"),
    "steps": Both("steps", "步数"),
    "tokens": Both("tokens seen", "训练词元数"),
    "accuracy": Both("accuracy", "准确率"),
    "f1": Both("F1", "F1"),
    "macro_f1": Both("macro F1", "宏平均 F1"),
    "micro_f1": Both("micro F1", "微平均 F1"),
    "mcc": Both("Matthews correlation", "马修斯相关系数"),
    "precision": Both("precision", "精确率"),
    "recall": Both("recall", "召回率"),
    "support": Both("entities in the gold", "标准答案中的实体数"),
    "pearson": Both("Pearson correlation", "皮尔逊相关系数"),
    "spearman": Both("Spearman correlation", "斯皮尔曼相关系数"),
    "mse": Both("mean squared error", "均方误差"),
    "exact": Both("exact match", "完全匹配"),
    "total": Both("questions", "问题数"),
    "lr": Both("learning rate", "学习率"),
    "grad_norm": Both("gradient norm, before clipping", "梯度范数（裁剪前）"),
    "tokens_per_second": Both("tokens per second", "每秒词元数"),
}
SAID = {  # titles and columns of tasks' tables
    "classes": Both("classes", "各类别"),
    "entities by type": Both("entities by type", "各实体类型"),
    "no confusions": Both("no confusions", "没有混淆"),
    "label": Both("label", "标签"),
    "type": Both("type", "类型"),
    "rows": Both("rows", "行数"),
    "support": Both("in the gold", "标准答案中"),
    "all": Both("all", "全部"),
    "gold": Both("gold", "标准答案"),
    "predicted": Both("predicted", "模型回答"),
}
COUNTS = ("steps", "tokens", "total", "support", "num_targets", "num_masked", "num_pairs")
TASKS = {
    "cls": Both("classification", "文本分类"),
    "ner": Both("tagging", "序列标注"),
    "qa": Both("question answering", "阅读理解问答"),
}


def name_of(metric: str) -> Both | str:
    """A metric's name for people; one that is not known here, such as PER_f1, as it is."""
    return NAMES.get(metric, metric)


def as_both(metric: str) -> Both:
    """A metric's name in both languages."""
    name = name_of(metric)
    return name if isinstance(name, Both) else Both(name, name)


def said(words: str) -> Both | str:
    """A title or column of a task's table in both languages, where it is known here."""
    return SAID.get(words, NAMES.get(words, words))


def value_of(metric: str, value: Any) -> str:
    """A metric's value for people; what is no number is a dash."""
    if not isinstance(value, int | float) or value != value:
        return "–"
    if metric in COUNTS or metric.endswith(("_total", "_support")):
        return f"{value:,.0f}"
    if metric.endswith("_accuracy"):
        return f"{100 * value:.1f} %"
    if metric.endswith("perplexity"):
        return f"{value:,.1f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


PARTS = {"train": Both("train", "训练集"), "dev": Both("dev", "验证集"), "test": Both("test", "测试集")}


def lasting(seconds: float) -> Both:
    """42 s, 3:05 min, 2:10 h."""
    if seconds < 60:
        return Both(f"{seconds:.0f} s", f"{seconds:.0f} 秒")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return Both(f"{minutes}:{rest:02d} min", f"{minutes} 分 {rest} 秒")
    return Both(f"{minutes // 60}:{minutes % 60:02d} h", f"{minutes // 60} 小时 {minutes % 60} 分")


def what_is(command: str, task: str) -> Both:
    """A run in two words."""
    if command == "pretrain":
        return Both("pre-training", "预训练")
    name = TASKS.get(task, Both(task, task))
    return Both(f"fine-tuning for {name.en}", f"微调：{name.zh}")


def better(metric: str, one: float, other: float) -> bool:
    """Whether one value of a metric is better than another."""
    return one < other if is_lower_better(metric) else one > other
