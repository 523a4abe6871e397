"""The peer of bench_start.py: transformers' run_mlm in short, from the start of Python to the end of its first step.

python _trainer_start.py TEXT TOKENIZER CACHE SETTINGS WORK        SETTINGS: minibert's settings.json, for the sizes
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Text to blocks (by datasets, which keeps them in CACHE), a model, one step."""
    text, folder, cache, settings_file, work = sys.argv[1:]
    import datasets
    import torch
    import transformers

    from minibert.training.devices import has_bf16

    settings = json.loads(Path(settings_file).read_text("utf-8"))["settings"]
    length = settings["max_length"]
    datasets.disable_progress_bars()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def encode(batch: dict[str, list[str]]) -> Any:
        return tokenizer(batch["text"], return_special_tokens_mask=True)

    def group(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        whole = {name: [value for row in rows for value in row] for name, rows in batch.items()}
        end = len(whole["input_ids"]) // length * length
        return {name: [values[i : i + length] for i in range(0, end, length)] for name, values in whole.items()}

    lines = datasets.load_dataset("text", data_files=text, split="train", cache_dir=cache)
    blocks = lines.map(encode, batched=True, remove_columns=["text"]).map(group, batched=True)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=len(tokenizer), hidden_size=settings["hidden_size"], num_hidden_layers=settings["layers"],
            num_attention_heads=settings["heads"], intermediate_size=4 * settings["hidden_size"],
        )
    )  # fmt: skip

    class First(transformers.TrainerCallback):
        """Ends the process with the first step."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            os._exit(0)

    arguments = transformers.TrainingArguments(
        output_dir=work, per_device_train_batch_size=settings["batch_size"], max_steps=1000, bf16=has_bf16(),
        use_cpu=not torch.cuda.is_available(), save_strategy="no", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    transformers.Trainer(model, arguments, data_collator=collate, train_dataset=blocks, callbacks=[First()]).train()
    sys.exit("train() ended without a step")


if __name__ == "__main__":
    main()
