"""Texts -> contextual vectors, from the encoder of any BERT; heads and the pooler have no part in it.

Letters in shape comments: B texts of a batch, T tokens, M = B * T rows, D hidden, L layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args, overload

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn

from minibert.checkpoint.config import load_config
from minibert.checkpoint.folder import check_vocabulary, load_model
from minibert.corpus.batches import Batch
from minibert.errors import UserError
from minibert.model.bert import BertConfig, BertModel
from minibert.tokenization.tokenizer import BertTokenizer
from minibert.training.devices import resolve_precision
from minibert.training.inference import infer

Pooling = Literal["mean", "cls", "none"]
Vectors: TypeAlias = NDArray[np.float32]
HOW = 'embed("runs/zh", texts) or embed(minibert.load("runs/zh"), texts)'


class Encoder(BertModel):
    """A BertModel without a pooler: no checkpoint lacks a part of it."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, add_pooling_layer=False)


@dataclass
class Row:
    """A text's ids with [CLS] and [SEP]; spans: where each token between them stands in the text, in characters."""

    ids: list[int]
    spans: list[tuple[int, int]]


class Embedder:
    """An encoder, its tokenizer, and which vectors are wanted.

    Args: source: a folder with a BERT in it, or (model, tokenizer) as minibert.load gives them; a model stays on its
        device. layer, pooling, max_length, normalize: as in `embed`. accelerator: None computes in this process alone.
    Raises: UserError for a folder that is no BERT and for an option that does not fit it.
    """

    terms: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, source: str | Path | tuple[nn.Module, BertTokenizer], *, layer: int = -1, pooling: Pooling = "mean",
        max_length: int | None = None, normalize: bool = False, precision: str = "fp32",
        accelerator: Accelerator | None = None,
    ) -> None:  # fmt: skip
        if pooling not in get_args(Pooling):
            raise UserError(f"there is no pooling {pooling!r}", "pooling", f"one of {', '.join(get_args(Pooling))}")
        path = source if isinstance(source, str | Path) else None
        if path is not None:
            config, self.tokenizer = load_config(path), BertTokenizer.from_pretrained(path)
        else:
            self.model, self.tokenizer = parts(source)
            config = self.model.config
        check_vocabulary(len(self.tokenizer), config, "the model" if path is None else str(path))
        self.layer = layer_number(layer, config.num_hidden_layers)
        self.max_length = length_limit(max_length, config, self.tokenizer)
        self.pooling, self.normalize, self.accelerator = pooling, normalize, accelerator
        precision = resolve_precision(precision)
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        self.width = config.hidden_size
        if path is not None:
            self.model, _ = load_model(Encoder, path, config=config)
            self.model.to(accelerator.device if accelerator else "cuda" if torch.cuda.is_available() else "cpu")

    def rows(self, texts: Sequence[str], *, spans: bool = False) -> tuple[list[Row], int]:
        """Each text's ids, and how many texts were cut to max_length. spans: wanted too, which takes longer."""
        tokenizer, room = self.tokenizer, self.max_length - 2
        listed = list(texts)
        sides = tokenizer.encode_with_offsets(listed) if spans else [(ids, []) for ids in tokenizer.encode(listed)]
        rows = [
            Row([tokenizer.cls_token_id, *ids[:room], tokenizer.sep_token_id], where[:room]) for ids, where in sides
        ]
        return rows, sum(len(ids) > room for ids, _ in sides)

    def vectors(
        self, rows: Sequence[Row], *, batch_size: int, progress: Callable[[float], None] = lambda share: None
    ) -> list[Vectors]:
        """Each row's vector (D,), or its tokens' (T,D) without [CLS] and [SEP]; in order, float32.

        Raises: UserError where they are not finite.
        """
        device = next(self.model.parameters()).device.type
        autocast: AbstractContextManager[Any] | None = torch.autocast(device, self.dtype) if self.dtype else None
        found, _ = infer(
            self.model, self, rows, pad_id=self.tokenizer.pad_token_id, batch_size=batch_size, autocast=autocast,
            accelerator=self.accelerator, progress=progress,
        )  # fmt: skip
        if not all(np.isfinite(vectors).all() for vectors in found):
            fix = "minibert embed --precision fp32" if self.dtype else "take a checkpoint from before it diverged"
            raise UserError("the model gives vectors that are not finite", fix=fix)
        return found

    # ---- what infer asks for

    def batch(self, features: Sequence[Row], pad_id: int) -> Batch:
        """input_ids (B,T); attention_mask (B,T), None where nothing is padded; lengths (B,)."""
        lengths = torch.tensor([len(row.ids) for row in features])
        T = int(lengths.max())
        ids = torch.tensor([row.ids + [pad_id] * (T - len(row.ids)) for row in features])
        full = bool((lengths == T).all())
        return {
            "input_ids": ids,
            "attention_mask": None if full else torch.arange(T) < lengths[:, None],
            "lengths": lengths,
        }

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """(B,D), or (B,T,D) without pooling; float32."""
        assert isinstance(model, BertModel)
        B, T = batch["input_ids"].shape
        firsts = torch.arange(0, B * T, T, device=batch["input_ids"].device) if self.pooling == "cls" else None
        x = states(model, batch["input_ids"], batch["attention_mask"], self.layer, firsts).float()
        if self.pooling != "cls":
            x = x.view(B, T, -1)
        if self.pooling == "mean":
            lengths = batch["lengths"][:, None]  # (B,1)
            keep = torch.arange(T, device=x.device) < lengths  # (B,T)
            x = (x * keep[:, :, None]).sum(1) / lengths
        return nn.functional.normalize(x, dim=-1) if self.normalize else x

    def losses(self, out: Any, batch: Batch) -> Tensor:
        """Vectors have no target."""
        raise NotImplementedError

    def outputs(self, out: Tensor, features: Sequence[Row]) -> list[Vectors]:
        """Each row's own vectors."""
        arrays = out.cpu().numpy()
        if self.pooling != "none":
            return list(arrays)
        # copies: a slice would keep the whole batch, padding and all, in memory
        return [array[1 : len(row.ids) - 1].copy() for array, row in zip(arrays, features, strict=True)]


def states(model: BertModel, input_ids: Tensor, mask: Tensor | None, layer: int, rows: Tensor | None) -> Tensor:
    """The states (M,D) after a layer, 0 the embeddings', or those of the rows (R,): what comes behind is not computed.

    The states of the last layer are those that heads see: in pre-LN models a LayerNorm has gone over them.
    """
    if layer == len(model.encoder.layer):
        return model.encode(input_ids, mask, None, rows)[0][-1]
    x: Tensor = model.embeddings(input_ids, None)
    visible = None if mask is None else mask[:, None, None, :]  # (B,1,1,T)
    for i, block in enumerate(model.encoder.layer[:layer], 1):
        x, _ = block(x, *input_ids.shape, visible, rows if i == layer else None, False)
    return x.index_select(0, rows) if rows is not None and layer == 0 else x


def parts(source: object) -> tuple[BertModel, BertTokenizer]:
    """The encoder in a (model, tokenizer) pair, and the tokenizer."""
    if not isinstance(source, tuple) or len(source) != 2:
        raise UserError(f"{type(source).__name__} is neither a path nor (model, tokenizer)", "embed", HOW)
    model, tokenizer = source
    encoder = model if isinstance(model, BertModel) else getattr(model, "bert", None)
    if not isinstance(encoder, BertModel) or not isinstance(tokenizer, BertTokenizer):
        names = f"({type(model).__name__}, {type(tokenizer).__name__})"
        raise UserError(f"{names} is no model and tokenizer of minibert", "embed", HOW)
    return encoder, tokenizer


def layer_number(layer: int, layers: int) -> int:
    """0 ... L of a layer that may be counted from the end."""
    if not -layers - 1 <= layer <= layers:
        fix = f"0 (the embeddings) to {layers} (the last), or -1 (the last) to {-layers - 1} (the embeddings)"
        raise UserError(f"there is no layer {layer}: the model has {layers}", "layer", fix)
    return layer if layer >= 0 else layers + 1 + layer


def length_limit(max_length: int | None, config: BertConfig, tokenizer: BertTokenizer) -> int:
    """Most tokens of a row: what the user says, or what the model and its tokenizer are made for."""
    positions = config.max_position_embeddings
    if max_length is None:
        return min(positions, tokenizer.model_max_length)
    if not 3 <= max_length <= positions:
        problem = f"max_length is {max_length}: the model has {positions} positions, [CLS] and [SEP] take two"
        raise UserError(problem, "max_length", f"3 to {positions}")
    return max_length


def cut_note(cut: int, total: int, max_length: int) -> str:
    """What is said of texts that were cut."""
    return f"{cut:,} of {total:,} texts were longer than {max_length} tokens and cut at their end"


@overload
def embed(  # type: ignore[overload-overlap]
    path_or_model: str | Path | tuple[nn.Module, BertTokenizer], texts: str, layer: int = ..., pooling: Pooling = ...,
    max_length: int | None = ..., batch_size: int = ..., normalize: bool = ..., *, precision: str = ...,
) -> Vectors: ...  # fmt: skip
@overload
def embed(
    path_or_model: str | Path | tuple[nn.Module, BertTokenizer], texts: Iterable[str], layer: int = ...,
    pooling: Literal["mean", "cls"] = ..., max_length: int | None = ..., batch_size: int = ..., normalize: bool = ...,
    *, precision: str = ...,
) -> Vectors: ...  # fmt: skip
@overload
def embed(
    path_or_model: str | Path | tuple[nn.Module, BertTokenizer], texts: Iterable[str], layer: int = ..., *,
    pooling: Literal["none"], max_length: int | None = ..., batch_size: int = ..., normalize: bool = ...,
    precision: str = ...,
) -> list[Vectors]: ...  # fmt: skip
@overload
def embed(
    path_or_model: str | Path | tuple[nn.Module, BertTokenizer], texts: Iterable[str], layer: int = ...,
    pooling: Pooling = ..., max_length: int | None = ..., batch_size: int = ..., normalize: bool = ...,
    *, precision: str = ...,
) -> Vectors | list[Vectors]: ...  # fmt: skip


def embed(
    path_or_model: str | Path | tuple[nn.Module, BertTokenizer], texts: str | Iterable[str], layer: int = -1,
    pooling: Pooling = "mean", max_length: int | None = None, batch_size: int = 32, normalize: bool = False,
    *, precision: str = "fp32",
) -> Vectors | list[Vectors]:  # fmt: skip
    """Contextual vectors of texts, as numpy float32 arrays.

    Args: path_or_model: a minibert run or any folder with a BERT in it; or (model, tokenizer) as minibert.load gives
        them, so that repeated calls load nothing. texts: B texts; one string is one text, and the result has no B.
        layer: -1 the last, 0 the embeddings, 1 ... L; -L-1 ... -1 count from the end.
        pooling: "mean" over all tokens of a text, [CLS] and [SEP] among them, as sentence-transformers does; "cls": the
        vector of [CLS] as the layer gives it, without the pooler; "none": one vector a token, [CLS] and [SEP] left
        out, so that in a text of Han characters alone the index is the character's.
        max_length: most tokens of a text, [CLS] and [SEP] included; None: as many as the model takes. batch_size: most
        texts a forward pass. normalize: vectors of length 1. precision: fp32, bf16, fp16, auto.
    Returns: (B,D); with pooling="none" a list of (T_i,D). For one string (D,), or (T,D). A text's vector depends on no
        other text and not on the order, but for rounding.
    Warns where texts are longer than max_length: they are cut at their end, and counted.
    Raises: UserError for a folder that is no BERT, a layer or length that it does not have, what is no text, and for
        vectors that are not finite.
    """
    single = isinstance(texts, str)
    listed = [texts] if isinstance(texts, str) else as_texts(texts)
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}", "batch_size", "1 or more")
    embedder = Embedder(
        path_or_model, layer=layer, pooling=pooling, max_length=max_length, normalize=normalize, precision=precision
    )
    rows, cut = embedder.rows(listed)
    if cut:
        warnings.warn(cut_note(cut, len(rows), embedder.max_length), stacklevel=2)
    found = embedder.vectors(rows, batch_size=batch_size)
    if single:
        return found[0]
    if pooling == "none":
        return found
    return np.stack(found) if found else np.zeros((0, embedder.width), np.float32)


def as_texts(texts: Iterable[str]) -> list[str]:
    """Several texts as a list. Raises: UserError for what is no text."""
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise UserError(f"texts is of type {type(texts).__name__}", "texts", "a string or a list of strings")
    listed = list(texts)
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str):
            raise UserError(f"{text!r} is {type(text).__name__}, not a text", f"text {number}", "give strings")
    return listed
