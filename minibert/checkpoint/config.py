"""config.json <-> BertConfig."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from minibert.atomic import read_json
from minibert.errors import UserError
from minibert.model.bert import BertConfig

CONFIG_NAMES = ("config.json", "bert_config.json")  # the second is Google's
NORM_OF_MODEL_TYPE = {None: "post", "bert": "post", "megatron-bert": "pre"}  # Google's files name no type
OURS = ("norm", "positions", "extra")
COUNTS = ("num_labels", "_num_labels")  # of old files; today id2label says how many labels there are
MOST_LABELS = 1_000_000


def load_config(folder: Path | str) -> BertConfig:
    """Read config.json or bert_config.json. Missing keys take BERT's defaults, unknown ones are kept in `extra`.

    Raises: UserError where there is no such file, where it is no JSON object, is of another kind of model, or asks for
        what this model does not do. A key that old files have instead of id2label, num_labels, becomes id2label.
    """
    folder = Path(folder)
    if not folder.is_dir():
        if folder.is_file() or folder.with_name(f"{folder.name}.index").is_file():
            fix = f"name the folder that it lies in, or make a checkpoint of it: minibert convert {folder} --out DIR"
            raise UserError("is a file; a checkpoint is a folder", str(folder), fix)
        raise UserError("there is no such folder", str(folder), "give a folder that holds a BERT; none is downloaded")
    path = next((folder / name for name in CONFIG_NAMES if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"no {' or '.join(CONFIG_NAMES)} here", str(folder), "give a folder that holds a BERT")
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise UserError("not a JSON object", str(path))
    return config_from_dict(raw, str(path))


def config_from_dict(raw: dict[str, Any], where: str) -> BertConfig:
    """What a config.json holds -> BertConfig; where names the file in errors."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str | None) or model_type not in NORM_OF_MODEL_TYPE:
        raise UserError(f"model_type is {model_type!r}", where, "only bert and megatron-bert can be read")
    for key, only in (("is_decoder", False), ("add_cross_attention", False), ("position_embedding_type", "absolute")):
        if raw.get(key, only) not in (only, None):
            raise UserError(f"{key} is {raw[key]!r}, which this BERT does not do", where)
    known = {f.name: f for f in fields(BertConfig) if f.name not in OURS}
    values: dict[str, Any] = {}
    for name in known.keys() & raw.keys():
        value, default = raw[name], known[name].default
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        optional = name in ("pad_token_id", "classifier_dropout")
        if type(value) is not type(default) and not (optional and isinstance(value, (int, float, type(None)))):
            raise UserError(f"{name} is {value!r}, not of type {type(default).__name__}", where)
        values[name] = value
    extra = {key: value for key, value in raw.items() if key not in (*known, *OURS, *COUNTS)}
    extra |= labels_of(raw, where)
    names = raw.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise UserError(f"architectures is {names!r}, not a list of names", where)
    if names and model_type is None and not any(name.startswith(("Bert", "MegatronBert")) for name in names):
        fix = 'if it is a BERT all the same, write "model_type": "bert" into the file'
        raise UserError(f"names the architecture {names[0]!r} and no model_type", where, fix)
    try:
        return BertConfig(
            norm=NORM_OF_MODEL_TYPE[model_type],
            positions=raw.get("positions", "learned"),
            extra=extra,
            **values,
        )
    except UserError as error:
        raise UserError(error.problem, where, error.fix) from error


def labels_of(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """id2label and label2id where id2label is not given but the number of labels is, as old files have it."""
    names = raw.get("id2label")
    if names is not None and not isinstance(names, dict):
        raise UserError(f"id2label is {names!r}, not an object of names", where)
    if names and names.keys() != {str(i) for i in range(len(names))}:
        raise UserError(
            f"id2label has the keys {', '.join(names)[:60]}", where, f'"0" to "{len(names) - 1}" are wanted'
        )
    number = next((raw[key] for key in COUNTS if raw.get(key) is not None), None)
    if number is not None and (type(number) is not int or not 0 < number <= MOST_LABELS):
        raise UserError(f"num_labels is {number!r}, not a number from 1 to {MOST_LABELS:,}", where)
    return {} if names or number is None else name_labels(number)


def name_labels(number: int) -> dict[str, Any]:
    """Names for so many labels, as transformers names those without a name."""
    names = {str(i): f"LABEL_{i}" for i in range(number)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


def with_labels(extra: Mapping[str, object], number: int) -> dict[str, object]:
    """The unknown keys of a config, for another number of labels."""
    stale = ("label2id", "problem_type", "minibert")  # they spoke of the labels that were
    return {**{key: value for key, value in extra.items() if key not in stale}, **name_labels(number)}


def config_to_dict(config: BertConfig, class_name: str) -> dict[str, Any]:
    """What config.json holds for a float32 model of this class, so that transformers opens its namesake."""
    stale = ["dtype", "torch_dtype", "transformers_version"]  # true of the file that was read, not of this one
    if class_name == "BertForQuestionAnswering" and config.num_labels != 2:
        stale += ["id2label", "label2id", "num_labels"]  # transformers would make its span head as wide as these
    pre = config.norm == "pre"
    return {
        **{key: value for key, value in config.extra.items() if key not in stale},
        **{f.name: getattr(config, f.name) for f in fields(config) if f.name not in OURS},
        **({"positions": config.positions} if config.positions != "learned" else {}),
        "model_type": "megatron-bert" if pre else "bert",
        "architectures": [f"Megatron{class_name}" if pre else class_name],
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
