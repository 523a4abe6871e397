"""Settings: one declaration gives the dataclass, the recipe key and the flag. Order: default < recipe < flag."""

from __future__ import annotations

import difflib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from minibert.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
LENGTHS = ("steps", "epochs", "minutes")  # the three ways to say how long; one of them at a time


def opt(default: T, help: str, *, flag: str | None = None, begins: str | None = None) -> T:
    """One setting: its default, its help with the unit, and its flag where that is not `--name`.

    begins: the section of `--help` that it is the first of; those that follow are in it too.
    """
    return field(default=default, metadata={"help": help, "flag": flag, "begins": begins})


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Everything that decides a pre-training run, apart from the corpus and the places of files."""

    text_field: str = opt("text", "field or column that holds the text in .jsonl and .parquet files", begins="Data")
    encoding: str = opt("utf-8", "encoding of text files, as Python names it: utf-8, gb18030, utf-16, cp1252 ...")
    language: str = opt("auto", "language code for finding sentence ends (en, zh, de ...); auto: told from each line")
    vocab_size: int = opt(8000, "entries of the vocabulary to train; never more, fewer if the corpus holds no more")
    lowercase: bool | None = opt(
        None, "lower-case the text, or keep the case (default: lower-case; a --tokenizer's own)",
        flag="--uncased/--cased",
    )  # fmt: skip
    strip_accents: bool | None = opt(
        None, "drop accents and other marks, or keep them (default: drop them when lower-casing, as BERT does)",
        flag="--strip-accents/--keep-accents",
    )  # fmt: skip
    max_length: int = opt(128, "tokens in an example, [CLS] and [SEP] included")
    long_length: int = opt(0, "tokens in an example of a second phase, as in BERT's paper; 0: one phase only")
    long_share: float = opt(0.1, "share of the training that the second phase takes, at the end")
    mask_rate: float = opt(0.15, "share of the tokens to predict")
    mask_unit: Literal["token", "word"] = opt("token", "hide single tokens or whole words (Chinese words need rjieba)")
    nsp: bool = opt(True, "train next-sentence prediction too; needs two documents or more")
    short_share: float = opt(0.1, "share of examples that are made shorter than the longest, at random")
    layers: int = opt(4, "Transformer layers", begins="Model")
    hidden_size: int = opt(256, "width of a token's vector")
    heads: int = opt(4, "attention heads in a layer; divides hidden-size")
    ffn_size: int = opt(0, "width inside the feed-forward part; 0: four times hidden-size")
    positions: Literal["learned", "sinusoidal"] = opt("learned", "position vectors: trained, or fixed sines")
    max_positions: int = opt(512, "longest input the model will ever take, in tokens")
    norm: Literal["post", "pre"] = opt("post", "LayerNorm after each part (classic BERT) or before it (Megatron-BERT)")
    activation: Literal["gelu", "gelu_new", "relu"] = opt("gelu", "activation of the feed-forward part")
    dropout: float = opt(0.1, "dropout on embeddings and on each part's output")
    attention_dropout: float = opt(0.0, "dropout on attention weights; above 0 the fast attention kernels are lost")
    init: Literal["normal", "neighbour"] = opt("normal", "initial weights: BERT's, or heads that start at neighbours")
    word_init: Literal["random", "cooccurrence"] = opt(
        "random", "first word vectors: random, or by which words stand near each other in the text"
    )
    neighbour_share: float = opt(0.5, "with init=neighbour: share of a layer's heads that start so, the rest are free")
    steps: int | None = opt(None, "length of training in optimizer steps", begins="Training")
    epochs: float | None = opt(None, "length of training in passes over the corpus")
    minutes: float | None = opt(None, "length of training by the clock; the schedule ends when the time does")
    batch_size: int = opt(32, "sequences per optimizer step, over all processes")
    optimizer: Literal["adamw", "muon"] = opt("adamw", "muon: Muon for the layers' matrices, AdamW for the rest")
    lr: float = opt(1e-3, "highest learning rate of AdamW")
    muon_lr: float = opt(0.02, "highest learning rate of Muon")
    muon_decay: float = opt(0.5, "Muon's weight decay: without it the layers' matrices grow with every step")
    warmup: float = opt(0.06, "optimizer steps until the highest rate; below 1: as a share of the training")
    weight_decay: float = opt(0.01, "AdamW's weight decay, on all but biases and LayerNorm")
    adam_beta2: float = opt(0.999, "AdamW's second beta")
    clip: float = opt(1.0, "largest norm of the gradient; 0: no clipping")
    seed: int = opt(0, "everything random follows from it")
    eval_share: float = opt(0.02, "share of the documents held out to measure on", begins="Measuring and saving")
    eval_examples: int = opt(512, "most examples in one measurement on held-out text")
    eval_every: int = opt(500, "optimizer steps between measurements; 0: only at the start and the end")
    save_every: int = opt(500, "optimizer steps between checkpoints; 0: only at the end")
    keep: int = opt(2, "newest checkpoints kept in RUN/checkpoints")
    log_every: int = opt(10, "optimizer steps between lines of log.jsonl")
    tracker: Literal["none", "tensorboard", "trackio"] = opt("none", "also log to TensorBoard or trackio, inside RUN")
    micro_batch_size: int = opt(
        32, "sequences per forward pass on one process; lower it when memory runs out", begins="Machine"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = opt("auto", "auto: bf16 where the hardware has it, else fp32")
    gradient_checkpointing: bool = opt(
        False, "keep less for the gradient and compute each layer anew: less memory, about a third slower"
    )
    compile: bool = opt(False, "compile the model with torch.compile: slower to start, faster steps")
    workers: int = opt(0, "processes that read and tokenise; 0: one for each core")

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            both = " and ".join(given) if given else "none of them"
            raise UserError(
                f"give one of steps, epochs and minutes; this has {both}", fix="add --steps N or --minutes M"
            )
        for name in ("steps", "epochs", "minutes", "lr", "muon_lr", "clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0 and (value > 0 or name == "clip")):
                bound = "0 or more" if name == "clip" else "above 0"
                raise UserError(f"{name} is {value}; it must be a finite number, {bound}", where=name)
        at_least = {
            "vocab_size": 16, "max_length": 5, "layers": 1, "hidden_size": 2, "heads": 1, "batch_size": 1,
            "micro_batch_size": 1, "eval_examples": 1, "log_every": 1, "keep": 1, "eval_every": 0, "save_every": 0,
            "workers": 0, "ffn_size": 0, "long_length": 0, "seed": 0, "warmup": 0, "weight_decay": 0,
            "muon_decay": 0,
        }  # fmt: skip
        at_most = {"seed": 2**63 - 1, "steps": 10**15, "vocab_size": 10**7, "warmup": 10**15, "weight_decay": 10**6}
        at_most |= {
            "muon_decay": 10**6,
            "layers": 10**4, "hidden_size": 10**6, "ffn_size": 10**7, "max_positions": 10**8, "batch_size": 10**8,
            "micro_batch_size": 10**8, "workers": 10**4,
        }  # fmt: skip
        check_bounds(self, at_least, at_most)
        for name in ("short_share", "neighbour_share", "long_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)}; it is a share, from 0 to 1", where=name)
        for name in ("dropout", "attention_dropout", "adam_beta2", "eval_share"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it lies from 0 to below 1", where=name)
        if not 0 < self.mask_rate <= 1:
            raise UserError(f"mask_rate is {self.mask_rate}; it is a share, above 0 and at most 1", where="mask_rate")
        if self.hidden_size % self.heads:
            raise UserError(
                f"hidden_size ({self.hidden_size}) is not a multiple of heads ({self.heads})",
                fix=f"take --heads {math.gcd(self.hidden_size, self.heads)} or another hidden size",
            )
        if self.batch_size % self.micro_batch_size:
            raise UserError(
                f"batch_size ({self.batch_size}) is not a multiple of micro_batch_size ({self.micro_batch_size})",
                fix=f"take --micro-batch-size {math.gcd(self.batch_size, self.micro_batch_size)}",
            )
        if self.minutes is not None and self.warmup >= 1:
            raise UserError(
                f"warmup is {self.warmup:g} steps, but the length is a time: nobody knows the number of steps",
                where="warmup", fix="give the warm-up as a share of the training, such as 0.06",
            )  # fmt: skip
        if self.long_length and self.long_length < self.max_length:
            raise UserError(f"long_length ({self.long_length}) is below max_length ({self.max_length})")
        if self.init == "neighbour" and (self.hidden_size // self.heads) % 2:
            raise UserError(f"init=neighbour needs an even head size; {self.hidden_size}/{self.heads} is odd")

    @property
    def length_name(self) -> str:
        """Which of steps, epochs and minutes is set."""
        return next(name for name in LENGTHS if getattr(self, name) is not None)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Everything that decides how a labelled file is learnt; each task adds its own settings and defaults to these."""

    input_format: str = opt(
        "auto", "how input files are laid out; auto: told from the name, or from the text itself", begins="Data"
    )
    encoding: str = opt("utf-8", "encoding of text files, as Python names it: utf-8, gb18030, utf-16, cp1252 ...")
    max_length: int = opt(128, "tokens in a row, [CLS] and [SEP] included")
    epochs: float = opt(3.0, "passes over the training file", begins="Training")
    batch_size: int = opt(32, "rows per optimizer step, over all processes")
    lr: float = opt(5e-5, "highest learning rate")
    warmup: float = opt(0.1, "optimizer steps until the highest rate; below 1: as a share of the training")
    weight_decay: float = opt(0.01, "weight decay, on all but biases and LayerNorm")
    adam_beta2: float = opt(0.999, "AdamW's second beta")
    clip: float = opt(1.0, "largest norm of the gradient; 0: no clipping")
    dropout: float = opt(0.1, "dropout on embeddings, on each part's output and before the head")
    attention_dropout: float = opt(0.1, "dropout on attention weights")
    freeze: str = opt("", "keep as they are: embeddings, or a number N for the embeddings and the first N layers")
    scratch: bool = opt(False, "start from random weights of the model's shape: shows what pre-training gives")
    seed: int = opt(0, "everything random follows from it")
    seeds: int = opt(1, "train so many times with seeds from --seed on; mean and deviation are given, the best is kept")
    best: str = opt(
        "", "dev metric that chooses the model that is kept (default: the task's own)", begins="Measuring and saving"
    )
    patience: int = opt(0, "end after so many measurements on dev without a better one; 0: never")
    eval_every: int = opt(0, "optimizer steps between measurements on dev; 0: at the end of each epoch")
    save_every: int = opt(0, "optimizer steps between checkpoints; 0: at each measurement only")
    keep: int = opt(1, "newest checkpoints kept in RUN/checkpoints, beside the best one")
    log_every: int = opt(10, "optimizer steps between lines of log.jsonl")
    tracker: Literal["none", "tensorboard", "trackio"] = opt("none", "also log to TensorBoard or trackio, inside RUN")
    micro_batch_size: int = opt(
        0, "rows per forward pass on one process; 0: all of them; lower it when memory runs out", begins="Machine"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = opt(
        "auto", "of training; auto: bf16 where the hardware has it, else fp32. Measuring is always fp32"
    )
    gradient_checkpointing: bool = opt(
        False, "keep less for the gradient and compute each layer anew: less memory, about a third slower"
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "lr", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0 and (value > 0 or name == "clip")):
                bound = "0 or more" if name == "clip" else "above 0"
                raise UserError(f"{name} is {value}; it must be a finite number, {bound}", where=name)
        at_least = {
            "max_length": 8, "batch_size": 1, "micro_batch_size": 0, "patience": 0, "eval_every": 0, "save_every": 0,
            "keep": 1, "log_every": 1, "seed": 0, "seeds": 1, "warmup": 0, "weight_decay": 0,
        }  # fmt: skip
        check_bounds(self, at_least, at_most={
            "seed": 2**63 - 10**6, "seeds": 10**5, "epochs": 10**6, "warmup": 10**15, "batch_size": 10**8,
        })  # fmt: skip
        for name in ("dropout", "attention_dropout", "adam_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it lies from 0 to below 1", where=name)
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise UserError(
                f"batch_size ({self.batch_size}) is not a multiple of micro_batch_size ({self.micro_batch_size})",
                fix=f"take --micro-batch-size {math.gcd(self.batch_size, self.micro_batch_size)}",
            )
        if self.freeze not in ("", "embeddings") and not self.freeze.isdecimal():
            raise UserError(f"freeze is {self.freeze!r}; it is 'embeddings' or a number of layers", where="freeze")


def check_bounds(settings: Any, at_least: Mapping[str, float], at_most: Mapping[str, float]) -> None:
    """Raises UserError, with the value and the bound, for the first setting that is out of them; None is in."""
    for name, least in at_least.items():
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UserError(f"{name} is {value}; the least is {least}", where=name)
    for name, most in at_most.items():
        value = getattr(settings, name)
        if value is not None and not value <= most:
            raise UserError(f"{name} is {value}; the most is {most}", where=name)


def kinds(config: type[Any]) -> dict[str, tuple[Any, bool]]:
    """For each field: its type (a Literal stays one) and whether it may be None."""
    found = {}
    for name, hint in get_type_hints(config).items():
        if get_origin(hint) is Literal:
            found[name] = (hint, False)
        else:
            parts = get_args(hint)
            found[name] = (parts[0], True) if type(None) in parts else (hint, False)
    return found


def checked(config: type[Any], name: str, value: Any, where: str) -> Any:
    """A value from a recipe, of the field's type; anything else is a UserError with place, value and the right type."""
    kind, optional = kinds(config)[name]
    if value is None and optional:
        return None
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise UserError(f"{name} is {value!r}; it is one of {', '.join(get_args(kind))}", where=where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**300:
        return float(value)
    if type(value) is not kind:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise UserError(f"{name} is {value!r}; it must be {words[kind]}", where=where)
    return value


def known_fields(config: type[Any]) -> dict[str, Field[Any]]:
    """The fields of a settings class by name."""
    return {f.name: f for f in fields(config)}


def sections(config: type[Any]) -> dict[str, str]:
    """For each field: its section of `--help`; the declarations say where one begins."""
    found, section = {}, ""
    for name, item in known_fields(config).items():
        section = item.metadata["begins"] or section
        found[name] = section
    return found


def resolve(config: type[T], *layers: tuple[str, Mapping[str, Any]]) -> T:
    """Settings from layers of (where, values), later ones winning; unknown names and wrong types are UserErrors.

    Of steps, epochs and minutes the last layer that names one wins over what earlier layers said.
    """
    values: dict[str, Any] = {}
    known = known_fields(config)
    stage = "pretrain" if config is PretrainConfig else "finetune"
    for where, layer in layers:
        for name in layer:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                fix = f"did you mean {near[0]!r}?" if near else f"`minibert {stage} --help` names them all"
                raise UserError(f"unknown setting {name!r}", where=where, fix=fix)
        if any(layer.get(name) is not None for name in LENGTHS):
            values = {name: value for name, value in values.items() if name not in LENGTHS}
        values.update({name: checked(config, name, value, where) for name, value in layer.items()})
    return config(**values)


def default_of(item: Field[Any]) -> Any:
    """A field's default."""
    return None if item.default is MISSING else item.default


def recipes_folder() -> Path:
    """Where the recipes lie: inside an installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "recipes"


def list_recipes(stage: str) -> dict[str, str]:
    """Name -> description of every recipe of a stage (pretrain, finetune)."""
    files = sorted((recipes_folder() / stage).glob("*.toml"))
    return {path.stem: str(_parse(path).get("description", "")) for path in files}


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except RecursionError as error:
        raise UserError("is not a settings file: it is nested too deep", where=str(path)) from error
    except ValueError as error:  # of all decoders; also for a whole number of more than 4,300 digits
        raise UserError(f"is not a settings file: {error}", where=str(path)) from error
    if not isinstance(found, dict):
        raise UserError("is not a settings file: it holds no table of settings", where=str(path))
    return found


def load_recipe(name: str, stage: str) -> tuple[str, dict[str, Any]]:
    """The settings of a recipe by name, of a TOML file, or of a run's settings.json.

    Returns: (where, settings); of a recipe for fine-tuning its task is among them.
    Raises: UserError if there is none, with names that are near.
    """
    path = Path(name)
    if path.suffix not in (".toml", ".json"):
        path = recipes_folder() / stage / f"{name}.toml"
        if not path.is_file():
            known = list_recipes(stage)
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {near[0]!r}?" if near else "a name from the list, or a .toml or .json file"
            raise UserError(f"there is no recipe {name!r}; known: {', '.join(known)}", where="--recipe", fix=fix)
    found = _parse(path)
    settings = found.get("settings", {}) if path.suffix == ".json" else found
    if not isinstance(settings, dict):
        raise UserError("'settings' is no table", where=str(path))
    if stage == "finetune" and "task" in found:
        settings = {"task": found["task"], **settings}
    return str(path), {key: value for key, value in settings.items() if key != "description"}
