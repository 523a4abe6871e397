"""How a run's model is opened and tried, in words to copy."""

from __future__ import annotations

import json
import shlex

from minibert.report.run import Run
from minibert.view.page import Both


def how_to_load(run: Run, where: str) -> list[tuple[Both, str]]:
    """Code that opens the model, and commands that try it. where: the folder, as it is to be named in them."""
    name = shlex.quote(where)
    place = json.dumps(where, ensure_ascii=False)
    kind = (run.config.get("architectures") or [""])[0]
    if run.command == "pretrain":
        commands = (
            f'minibert fill-mask --model {name} "… [MASK] …"\n'
            f"minibert finetune --task cls --model {name} --train train.csv --dev dev.csv --out runs/mine"
        )
        code = f"import minibert\n\nmodel, tokenizer = minibert.load({place})"
        auto = "AutoModelForPreTraining"
    else:
        commands = f"minibert predict --model {name} new.txt\nminibert evaluate --model {name} test.csv"
        ask = 'answer(question="…", context="…")' if run.task == "qa" else 'answer("…")'
        code = f"import minibert\n\nanswer = minibert.pipeline({place})\n{ask}"
        auto = {
            "BertForTokenClassification": "AutoModelForTokenClassification",
            "BertForQuestionAnswering": "AutoModelForQuestionAnswering",
        }.get(kind.replace("MegatronBert", "Bert"), "AutoModelForSequenceClassification")
    theirs = (
        f"from transformers import {auto}, AutoTokenizer\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({place})\nmodel = {auto}.from_pretrained({place})"
    )
    return [
        (Both("On the command line", "命令行"), commands),
        (Both("In Python", "在 Python 中"), code),
        (Both("In transformers", "在 transformers 中"), theirs),
    ]
