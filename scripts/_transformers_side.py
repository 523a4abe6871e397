"""The side of scripts/check_transformers.py that knows transformers, any version of it, and not minibert.

python _transformers_side.py open FOLDER        open what minibert wrote, print one JSON line a model
python _transformers_side.py write FOLDER       write models of its own for minibert to open
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers

HEADS = (
    "BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForSequenceClassification",
    "BertForTokenClassification", "BertForQuestionAnswering",
)  # fmt: skip
SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 24,
}  # fmt: skip
LOGITS = (
    "last_hidden_state", "pooler_output", "prediction_logits", "seq_relationship_logits", "logits", "start_logits",
    "end_logits",
)  # fmt: skip
POSITIONS = {"bert.embeddings.position_ids", "embeddings.position_ids"}
VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
READS_SAFETENSORS = VERSION >= (4, 27)
EAGER = {"attn_implementation": "eager"} if VERSION >= (4, 36) else {}  # the fused kernels give no attentions


def batch() -> dict[str, torch.Tensor]:
    """Two rows, one of them padded, two segments."""
    generator = torch.Generator().manual_seed(7)
    return {
        "input_ids": torch.randint(5, 64, (2, 20), generator=generator),
        "attention_mask": torch.tensor([[1] * 20, [1] * 13 + [0] * 7]),
        "token_type_ids": torch.tensor([[0] * 9 + [1] * 11, [0] * 5 + [1] * 8 + [0] * 7]),
    }


def randomise(model: torch.nn.Module) -> torch.nn.Module:
    """Every parameter random: a swapped norm or a lost bias then shows."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def outputs(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Logits, every hidden state, every attention, of real tokens only."""
    given = batch()
    with torch.no_grad():
        out = model(**given, output_hidden_states=True, output_attentions=True)
    found = {name: value for name in LOGITS if (value := getattr(out, name, None)) is not None}
    found.update({f"hidden.{i}": state for i, state in enumerate(out.hidden_states)})
    found.update({f"attention.{i}": weights for i, weights in enumerate(out.attentions)})
    return {name: value.contiguous() for name, value in found.items()}


def difference(mine: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> dict[str, float]:
    """The largest absolute difference of each kind of output: logits, hidden states, attentions."""
    assert mine.keys() == other.keys(), sorted(mine.keys() ^ other.keys())
    worst = {"logits": 0.0, "hidden": 0.0, "attention": 0.0}
    for name, value in mine.items():
        kind = name.split(".")[0]
        gap = float((value - other[name]).abs().max()) / max(1.0, float(other[name].abs().max()))
        worst[kind if kind in worst else "logits"] = max(worst.get(kind, worst["logits"]), gap)
    return worst


def write_pickle(folder: Path) -> None:
    """The same tensors in the file that versions before 4.27 read, the tied decoder written out as they do it."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    if "cls.predictions.bias" in weights:
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"]
    torch.save(weights, folder / "pytorch_model.bin")


def open_all(folder: Path) -> None:
    """Each model that minibert wrote: the keys that did not fit, and how far the outputs are apart."""
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        name = path.name
        config = json.loads((path / "config.json").read_text("utf-8"))
        if not READS_SAFETENSORS:  # older than safetensors: the same tensors in a file that they read
            write_pickle(path)
        model, info = getattr(transformers, name).from_pretrained(str(path), output_loading_info=True, **EAGER)
        # position_ids is a buffer of 0, 1, 2, ..., no weight; some versions name it for some classes
        keys = {kind: left for kind, names in info.items() if (left := sorted(set(map(str, names)) - POSITIONS))}
        expected = torch.load(path / "expected.pt", weights_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path))
        ids = tokenizer("Ab今天, ba!")["input_ids"]
        assert type(transformers.AutoConfig.from_pretrained(str(path))).model_type == config["model_type"]
        same_ids = ids == json.loads((path / "ids.json").read_text("utf-8"))
        line = {"name": name, "keys": keys, "same_ids": same_ids, **difference(outputs(model.eval()), expected)}
        print(json.dumps(line), flush=True)


def write_all(folder: Path) -> None:
    """A random model of each class, as this version saves it, and what it computes."""
    for prefix in ("", "Megatron"):
        config = getattr(transformers, f"{prefix}BertConfig")(**SHAPE)
        for key, value in EAGER.items():
            setattr(config, f"_{key}", value)
        for head in HEADS:
            name = prefix + head
            config.num_labels = 2 if head == "BertForQuestionAnswering" else 3  # there: outputs of that head too
            model = randomise(getattr(transformers, name)(config))
            model.save_pretrained(str(folder / name))
            torch.save(outputs(model), folder / name / "expected.pt")


def main() -> None:
    """One of the two."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    if VERSION >= (5, 0):
        transformers.utils.logging.disable_progress_bar()
    {"open": open_all, "write": write_all}[what](folder)


if __name__ == "__main__":
    main()
