"""BERT's encoder, top to bottom: config, embeddings, layers, pooler.

Letters in shape comments: B batch, T tokens, M flat tokens (B * T, or those that are no padding), R chosen rows,
D hidden, N heads.
Parameter names are those of transformers' BertModel (norm="post") and MegatronBertModel (norm="pre"), so that a state
dict needs no renaming in either direction.
Sources: Devlin et al. 2019; Vaswani et al. 2017 (sinusoids); Xiong et al. 2020 and Shoeybi et al. 2019 (pre-LN).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from minibert.errors import UserError
from minibert.model.attention import RealTokens, Visible, attention
from minibert.model.draw import Embedding, Linear, draw_normal, sinusoids
from minibert.model.dropout import Dropout

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),  # the form of Google's own file
    "relu": F.relu,
}


LARGEST = {"num_hidden_layers": 10_000, "hidden_size": 1_000_000, "intermediate_size": 10_000_000}
MOST_ROWS = 100_000_000  # of a table of embeddings


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The shape of a BERT, with transformers' names and defaults.

    norm: "post" is classic BERT, "pre" is Megatron-BERT. positions: "sinusoidal" is a fixed table that is not trained.
    extra: keys of a config.json that mean nothing here; they are kept when it is written again.
    Raises: UserError, naming the offending value.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | None = None
    norm: str = "post"
    positions: str = "learned"
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if name.endswith(("_size", "_layers", "_heads", "_embeddings")):
                if size < 1:
                    raise UserError(f"{name} is {size}, not 1 or more")
                if size > LARGEST.get(name, MOST_ROWS):
                    raise UserError(
                        f"{name} is {size}, more than {LARGEST.get(name, MOST_ROWS):,}: no BERT has so many"
                    )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            rate = getattr(self, name)
            if rate is not None and not 0 <= rate < 1:
                raise UserError(f"{name} is {rate}", fix="a share, 0 or more and below 1")
        if not 0 < self.layer_norm_eps < math.inf or not 0 <= self.initializer_range < math.inf:
            raise UserError(
                f"layer_norm_eps is {self.layer_norm_eps}, initializer_range {self.initializer_range}",
                fix="finite numbers above 0; BERT has 1e-12 and 0.02",
            )  # fmt: skip
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise UserError(f"pad_token_id is {self.pad_token_id} of {self.vocab_size} tokens", fix="an id, or null")
        heads = self.num_attention_heads
        if self.hidden_size % heads:
            raise UserError(f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads ({heads})")
        for name, choices in (("hidden_act", [*ACTIVATIONS]), ("norm", ["post", "pre"])):
            if getattr(self, name) not in choices:
                raise UserError(f"{name} is {getattr(self, name)!r}", fix=f"one of {', '.join(choices)}")
        if self.positions not in ("learned", "sinusoidal"):
            raise UserError(f"positions is {self.positions!r}", fix="one of learned, sinusoidal")
        if self.positions == "sinusoidal" and self.hidden_size % 2:
            raise UserError(f"sinusoidal positions need an even hidden_size, not {self.hidden_size}")

    @property
    def num_labels(self) -> int:
        """Outputs of a classification or tagging head: as many as id2label names, two where it is not there."""
        return len(self.extra.get("id2label") or (0, 1))


@dataclass
class BertModelOutput:
    """last_hidden_state (B,T,D); pooler_output (B,D); hidden_states: 1 + layers x (B,T,D), the embeddings' first;
    attentions: layers x (B,N,T,T), each row a distribution over keys."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def norm_where(config: BertConfig, norm: str) -> nn.Module:
    """A LayerNorm in models of this norm; nothing, and no parameter, in others."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.norm == norm else nn.Identity()


class BertEmbeddings(nn.Module):
    """Word + position + type vectors; a LayerNorm follows in post-LN models only."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = norm_where(config, "post")
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, real: RealTokens | None = None) -> Tensor:
        """input_ids (B,T), token_type_ids (B,T) or None for all 0 -> (M,D): of all tokens, or of the real ones."""
        B, T = input_ids.shape
        positions = self.position_embeddings.weight
        limit = len(positions)
        if limit < T:
            raise ValueError(f"{T} tokens are more than max_position_embeddings ({limit})")
        types = self.token_type_embeddings.weight
        if token_type_ids is None and real is None:
            x = (self.word_embeddings(input_ids) + (types[0] + positions[:T])).view(B * T, -1)
        else:
            # One small table of (type, position), so that the large tensor is added to once.
            table = (types[:, None] + positions[:T]).flatten(0, 1)  # (types * T, D)
            places = torch.arange(T, device=input_ids.device).expand(B, T)
            if token_type_ids is not None:
                places = token_type_ids * T + places
            words, places = input_ids.flatten(), places.flatten()
            if real is not None:
                words, places = words.index_select(0, real.places), places.index_select(0, real.places)
            x = self.word_embeddings(words) + F.embedding(places, table)
        return self.dropout(self.LayerNorm(x))  # type: ignore[no-any-return]


class BertSelfAttention(nn.Module):
    """Query, key and value are three parameters (transformers' names) but one product."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.joint: nn.Module | None = None  # stands for the three in a model that only answers, see model.answering
        self.query = Linear(config.hidden_size, config.hidden_size)
        self.key = Linear(config.hidden_size, config.hidden_size)
        self.value = Linear(config.hidden_size, config.hidden_size)
        self.dropout = config.attention_probs_dropout_prob

    def joined(self) -> tuple[Tensor, Tensor]:
        """The three weights (3D,D) and biases (3D,) as one."""
        parts = (self.query, self.key, self.value)
        return torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])

    def forward(
        self, x: Tensor, batch: int, length: int, visible: Visible, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """x (M,D) of `batch` rows padded to `length`; visible (B,1,1,T) bool, None for everything, or the real tokens
        that x has -> context (M,D), weights (B,N,T,T) if asked for."""
        qkv = F.linear(x, *self.joined()) if self.joint is None else self.joint(x)  # (M,3D)
        rate = self.dropout if self.training else 0.0
        return attention(qkv, self.num_heads, batch, length, visible, rate, output_attentions)


class BertSubLayerOutput(nn.Module):
    """The end of a sub-layer: dense, dropout, residual and, in post-LN models, LayerNorm."""

    def __init__(self, config: BertConfig, size: int) -> None:
        super().__init__()
        self.dense = Linear(size, config.hidden_size)
        self.LayerNorm = norm_where(config, "post")
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, y: Tensor, residual: Tensor) -> Tensor:
        """y (R,size), residual (R,D) -> (R,D)."""
        return self.LayerNorm(residual + self.dropout(self.dense(y)))  # type: ignore[no-any-return]


class BertAttention(nn.Module):
    """Self-attention with its end; a LayerNorm before it in pre-LN models."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.ln = norm_where(config, "pre")
        self.self = BertSelfAttention(config)
        self.output = BertSubLayerOutput(config, config.hidden_size)

    def forward(
        self, x: Tensor, batch: int, length: int, visible: Visible, rows: Tensor | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        y, weights = self.self(self.ln(x), batch, length, visible, output_attentions)
        if rows is not None:
            x, y = x.index_select(0, rows), y.index_select(0, rows)
        return self.output(y, x), weights


class BertIntermediate(nn.Module):
    """The wide part of the feed-forward sub-layer."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class BertLayer(nn.Module):
    """Attention, then feed-forward."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.ln = norm_where(config, "pre")
        self.intermediate = BertIntermediate(config)
        self.output = BertSubLayerOutput(config, config.intermediate_size)

    def forward(
        self, x: Tensor, batch: int, length: int, visible: Visible, rows: Tensor | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """x (M,D) -> (M,D), or (R,D) where only the rows `rows` (R,) of it are wanted; weights as in self-attention."""
        x, weights = self.attention(x, batch, length, visible, rows, output_attentions)
        return self.output(self.intermediate(self.ln(x)), x), weights


class BertEncoder(nn.Module):
    """The layers; one more LayerNorm after the last in pre-LN models.

    gradient_checkpointing: keep what goes into a layer alone, and compute the layer anew for its gradient.
    """

    gradient_checkpointing = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])
        self.ln = norm_where(config, "pre")

    def forward(
        self, x: Tensor, batch: int, length: int, visible: Visible, rows: Tensor | None, output_attentions: bool
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """x (M,D) -> the states before the first and after each layer, the last normalised; each layer's weights."""
        states: list[Tensor] = [x]
        attentions: list[Tensor | None] = []
        for i, layer in enumerate(self.layer):
            last = i == len(self.layer) - 1
            arguments = (x, batch, length, visible, rows if last else None, output_attentions)
            if self.gradient_checkpointing and torch.is_grad_enabled():
                x, weights = checkpoint(layer, *arguments, use_reentrant=False)  # with the same dropout
            else:
                x, weights = layer(*arguments)
            states.append(self.ln(x) if last else x)
            attentions.append(weights)
        return states, attentions


class BertPooler(nn.Module):
    """The vector of [CLS] through a dense layer and tanh."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """The vectors of [CLS] (B,D) -> (B,D)."""
        return torch.tanh(self.dense(first))


class BertModel(nn.Module):
    """The encoder with its pooler (add_pooling_layer=False leaves the pooler out, as in a masked language model).

    A new model has BERT's classic initial values, drawn from torch's global generator.
    """

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        draw_normal(self, config.initializer_range)
        if config.positions == "sinusoidal":
            table = self.embeddings.position_embeddings.weight.requires_grad_(False)
            table.copy_(sinusoids(*table.shape, amplitude=math.sqrt(2) * config.initializer_range))

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None,
        token_type_ids: Tensor | None,
        rows: Tensor | None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """forward without the pooler, on flat rows: the last state (B*T,D), or (R,D) of the rows (R,) if given; all
        states if asked for, then without rows."""
        B, T = input_ids.shape
        real, visible = None, attention_mask
        if isinstance(attention_mask, RealTokens):
            real = attention_mask
            rows = None if rows is None else real.among(rows, B * T)
        elif attention_mask is not None:
            visible = attention_mask.bool()[:, None, None, :]  # (B,1,1,T)
        x = self.embeddings(input_ids, token_type_ids, real)
        states, weights = self.encoder(x, B, T, visible, rows, output_attentions)
        states = states if output_hidden_states else states[-1:]
        return states if real is None or rows is not None else [real.padded(x, B * T) for x in states], weights

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None = None,
        token_type_ids: Tensor | None = None,
        *,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> BertModelOutput:
        """Encode sentences.

        Args: input_ids (B,T) int64. attention_mask (B,T), not 0 where a token may be attended to; None says that
            nothing is padded and is faster; with RealTokens nothing is computed for padding. token_type_ids (B,T), None
            for all 0.
        Raises: ValueError where T is more than max_position_embeddings.
        """
        flat, weights = self.encode(
            input_ids, attention_mask, token_type_ids, None, output_attentions, output_hidden_states
        )
        states = [x.view(*input_ids.shape, -1) for x in flat]  # (B,T,D) each
        return BertModelOutput(
            last_hidden_state=states[-1],
            pooler_output=None if self.pooler is None else self.pooler(states[-1][:, 0]),
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=given(weights) if output_attentions else None,
        )


def given(weights: list[Tensor | None]) -> tuple[Tensor, ...]:
    """Those weights that were asked for."""
    return tuple(w for w in weights if w is not None)
