"""Any BERT's checkpoint -> minibert's layout, which is Hugging Face's; with a word on each weight that was in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minibert.atomic import refuse_full, write_whole
from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import LoadReport, build_model, check_vocabulary, save_checkpoint, settle_labels
from minibert.checkpoint.names import Names, canonical, canonical_weights, map_names
from minibert.checkpoint.pretrained import HEADS, Head, choose_class, foreign_architecture
from minibert.checkpoint.weights import PICKLE, PICKLE_SHARDS, SAFETENSORS, SHARDS, read_weights
from minibert.console import Console
from minibert.errors import UserError, installing
from minibert.model.bert import BertConfig
from minibert.tokenization.tokenizer import BertTokenizer

SPARSE = 0.95  # of the embeddings: padding to a multiple of 64 or 128 is no reason to ask
TOLERANCE = 1e-4  # of outputs in float32; another order of computation gives 1e-6 to 1e-5
PER_TOKEN = ("prediction_logits", "start_logits", "end_logits", "last_hidden_state")
PER_TEXT = ("seq_relationship_logits", "pooler_output")


def convert(
    source: Path, out: Path, *, head: Head | None = None, tokenizer: Path | None = None, verify: bool = False,
    verbose: bool = False, console: Console | None = None,
) -> None:  # fmt: skip
    """Read a checkpoint of any known kind and write the five files that minibert and transformers open.

    Args: source: a folder, a file of weights with config.json beside it, or a TensorFlow checkpoint's name (with or
        without `.index`). head: what stands on the encoder; None: what the config names as its architecture, else what
        the weights hold. tokenizer: a folder or vocab.txt, where none lies beside the weights. verify: open the result
        (and the source, where it can) with transformers and compare the outputs. verbose: name each weight.
    Raises: UserError as load_model and BertTokenizer do, where out is not empty, and where outputs differ by more than
        1e-4; nothing is left behind then.
    """
    console = console or Console()
    refuse_full(out)
    if verify:
        import_transformers()
    folder = source if source.is_dir() else source.parent
    tensors, path = read_weights(source)
    config = load_config(folder)
    words = read_words(tokenizer or folder, given=tokenizer is not None)
    check_vocabulary(len(words), config, str(tokenizer or folder))
    words.model_max_length = min(words.model_max_length, config.max_position_embeddings)

    names = map_names(tensors, str(path))
    if head is None:
        cls = choose_class(config, {mapped.name for mapped in names.kept})
        why = "the config's architecture" if config.extra.get("architectures") else "as the weights are; see --head"
    else:
        cls, why = HEADS[head], f"--head {head}"
    as_named = cls.__name__ in str(config.extra.get("architectures"))
    config, weights = settle_labels(config, canonical_weights(tensors, str(path)))
    if not as_named:  # what a run says of its task is said of the head that it had
        config = replace(config, extra={key: value for key, value in config.extra.items() if key != "minibert"})
    model, report = build_model(cls, config, weights, str(path), seed=0)
    console.say(f"read: {path}, {len(tensors)} tensors")
    console.say(f"model: {cls.__name__} ({why}), {in_words(config, words)}")
    for line in account(model, names, report, why, verbose=verbose):
        console.say(line)
    if head is None and (problem := foreign_architecture(config)):
        console.warn(f"{problem}; --head takes another part")
    if len(words) < SPARSE * config.vocab_size:
        console.warn(
            f"the vocabulary has {len(words):,} tokens, the model {config.vocab_size:,} embeddings: is it whole?"
        )
    if report.fresh:
        console.warn(f"not in there, so they start fresh, untrained: {', '.join(report.fresh)}")

    def fill(partial: Path) -> None:
        save_checkpoint(model, words, partial)
        if verify:
            for line in compare(model, partial, source, report):
                console.say(line)

    write_whole(out, fill)
    console.say(f"done: {out}")


def read_words(place: Path, *, given: bool) -> BertTokenizer:
    """The tokenizer, with a hint at --tokenizer where there is none."""
    try:
        return BertTokenizer.from_pretrained(place)
    except UserError as error:
        if given or "no tokenizer here" not in error.problem:
            raise
        fix = "name the vocabulary that the model was trained with: --tokenizer DIR|vocab.txt"
        raise UserError("no tokenizer lies beside the weights", error.where, fix) from error


def in_words(config: BertConfig, words: BertTokenizer) -> str:
    """The sizes in a line."""
    case = "lower-cased" if words.lowercase else "cased"
    labels = len(config.extra.get("id2label") or ())
    return (
        f"{config.num_hidden_layers} layers, {config.hidden_size} wide, {len(words):,} tokens ({case})"
        + (f", {labels} labels" if labels else "")
    )  # fmt: skip


# ---- what became of each weight


def account(model: nn.Module, names: Names, report: LoadReport, why: str, *, verbose: bool) -> Iterator[str]:
    """Lines about all that was stored: mapped, and how; dropped, and why."""
    final = {canonical(name): name for name, _ in model.named_parameters()}
    mapped = [(weight.stored, final[weight.name], weight.changes) for weight in names.kept if weight.name in final]
    yield f"mapped: {len(mapped)} weights"
    changes = Counter(change for _, _, its_changes in mapped for change in its_changes)
    for change, number in changes.items():
        yield f"  {number:5}  {change}"
    if verbose:
        yield from (f"  {stored} -> {name}" for stored, name, _ in mapped)
    reasons = defaultdict(list)
    for stored, reason in names.dropped.items():
        reasons[reason].append(stored)
    hint = "" if why.startswith("--head") else "; see --head"
    for weight in names.kept:
        if weight.name in report.ignored:
            reasons[f"{type(model).__name__} has no such part{hint}"].append(weight.stored)
        elif weight.name not in final:
            reasons["the decoder is tied: it is the word embeddings and the one bias"].append(weight.stored)
    for reason, all_stored in reasons.items():
        shown = all_stored if verbose else all_stored[:3]
        more = ", ..." if len(all_stored) > len(shown) else ""
        yield f"dropped: {len(all_stored)} ({reason}): {', '.join(shown)}{more}"


# ---- the same, as transformers has it


def import_transformers() -> Any:
    """The library that --verify compares with. Raises: UserError where it is not installed."""
    try:
        import transformers
    except ImportError as error:
        fix = f"{installing('transformers')}, or leave --verify out"
        raise UserError("transformers is not installed", "--verify", fix) from error
    return transformers


def compare(model: nn.Module, copy: Path, source: Path, report: LoadReport) -> Iterator[str]:
    """What transformers makes of the copy, and of the source where it can open it.

    Raises: UserError where it finds other weights in the copy than minibert, or computes something else.
    """
    transformers = import_transformers()
    config: BertConfig = model.config  # type: ignore[assignment]
    name = ("Megatron" if config.norm == "pre" else "") + type(model).__name__
    with in_silence(transformers):
        try:
            peer, info = getattr(transformers, name).from_pretrained(copy, output_loading_info=True)
        except Exception as error:  # transformers and what it uses have errors of their own
            raise UserError(f"transformers cannot open the copy: {error}", "--verify") from error
        wrong = {key: value for key, value in info.items() if value}
        if wrong:
            raise UserError(f"transformers finds other weights in the copy: {wrong}", "--verify")
        yield f"verified: transformers' {name} opens the copy, {differ(model, peer.float(), 'the copy')}"
        theirs = any((source / name).is_file() for name in (SAFETENSORS, SHARDS, PICKLE, PICKLE_SHARDS))
        if not theirs or not (source / "config.json").is_file():  # without it transformers would take its defaults
            yield "not compared with SOURCE: transformers does not read it as it lies there"
            return
        try:
            peer, info = getattr(transformers, name).from_pretrained(source, output_loading_info=True)
        except Exception as error:  # noqa: BLE001
            yield f"not compared with SOURCE: transformers does not open it ({str(error).splitlines()[0]})"
            return
    lost = sorted(info["missing_keys"])
    unlike = {canonical(key) for key in lost} - {canonical(key) for key in report.fresh}
    if unlike:
        yield f"not compared with SOURCE: transformers misses {len(unlike)} weights there, {min(unlike)!r} for one"
    elif report.fresh:
        yield "not compared with SOURCE: it lacks what starts fresh"
    else:
        yield f"verified: transformers' {name} opens SOURCE, {differ(model, peer.float(), 'SOURCE')}"


def differ(ours: nn.Module, theirs: nn.Module, what: str) -> str:
    """The largest difference of all outputs, in words. Raises: UserError where it is too large, or no number."""
    batch = fixed_batch(ours.config)  # type: ignore[arg-type]
    with torch.inference_mode():
        a = ours.eval()(**batch)
        try:
            b = theirs.eval()(**batch)
        except Exception as error:  # a config may ask for what minibert does not do
            raise UserError(f"transformers cannot compute with {what}: {error}", "--verify") from error
    worst = 0.0
    keep = batch["attention_mask"].bool()
    for name in (*PER_TOKEN, *PER_TEXT, "logits"):
        mine, other = getattr(a, name, None), getattr(b, name, None)
        if mine is None or other is None:
            continue
        if name in PER_TOKEN or mine.ndim == 3:
            mine, other = mine[keep], other[keep]  # what padding gives is nobody's
        difference = (mine - other).abs().max().item()
        worst = max(worst, difference)
        if not difference <= TOLERANCE:  # nor where it is no number
            raise UserError(
                f"{name}: minibert and transformers on {what} differ by {difference:.2g}, more than {TOLERANCE:g}",
                "--verify", "nothing was written; please report it",
            )  # fmt: skip
    return f"largest difference of outputs {worst:.1e}"


def fixed_batch(config: BertConfig) -> dict[str, Tensor]:
    """Two pairs of texts, the second with padding: (2,T) each."""
    length = min(16, config.max_position_embeddings)
    ids = torch.randint(config.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
    keep, types = torch.ones_like(ids), torch.zeros_like(ids)
    keep[1, length - length // 3 :] = 0
    types[:, length // 2 :] = min(1, config.type_vocab_size - 1)
    return {"input_ids": ids, "attention_mask": keep, "token_type_ids": types * keep}


@contextmanager
def in_silence(transformers: Any) -> Iterator[None]:
    """No progress bars and warnings of a library that is asked on the side."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
