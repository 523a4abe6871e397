"""What stands on the encoder: heads for pre-training, classification, tagging, spans; the models with them.

Letters in shape comments: B batch, T tokens, P masked positions, R chosen rows, D hidden, V vocabulary, C labels.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minibert.model.attention import RealTokens
from minibert.model.bert import ACTIVATIONS, BertConfig, BertModel, given
from minibert.model.cross_entropy import IGNORED, summed_cross_entropy
from minibert.model.draw import Linear, draw_normal
from minibert.model.dropout import Dropout


@dataclass
class BertForPreTrainingOutput:
    """prediction_logits (B,T,V), or (P,V) with masked_positions; seq_relationship_logits (B,2), class 0 = IsNext."""

    loss: Tensor | None
    prediction_logits: Tensor
    seq_relationship_logits: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class MaskedLMOutput:
    """logits (B,T,V), or (P,V) with masked_positions."""

    loss: Tensor | None
    logits: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class SequenceClassifierOutput:
    """logits (B,C)."""

    loss: Tensor | None
    logits: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class TokenClassifierOutput:
    """logits (B,T,C), or (R,C) with positions."""

    loss: Tensor | None
    logits: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class QuestionAnsweringModelOutput:
    """start_logits, end_logits (B,T)."""

    loss: Tensor | None
    start_logits: Tensor
    end_logits: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the labels that are not -100; 0 and not NaN where all are. logits (...,C), labels (...)."""
    total = summed_cross_entropy(logits.flatten(0, -2), labels.flatten())
    return total / (labels != IGNORED).sum().clamp(min=1)


class BertPredictionHeadTransform(nn.Module):
    """Dense, activation, LayerNorm: (..., D) -> (..., D)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        draw_normal(self, config.initializer_range)

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(x)))  # type: ignore[no-any-return]


class BertLMPredictionHead(nn.Module):
    """(..., D) -> (..., V). The decoder's weight IS the word embeddings, its bias IS `bias`: tie() makes it so."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.decoder = Linear(config.hidden_size, config.vocab_size, device="meta")  # no second matrix is ever made

    def tie(self, words: nn.Embedding) -> None:
        self.decoder.weight, self.decoder.bias = words.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform(x))  # type: ignore[no-any-return]


class BertPreTrainingHeads(nn.Module):
    """The parts under `cls`."""

    def __init__(self, config: BertConfig, next_sentence: bool) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)
        if next_sentence:
            self.seq_relationship = Linear(config.hidden_size, 2)
            draw_normal(self.seq_relationship, config.initializer_range)


class BertLanguageModel(nn.Module):
    """What the two pre-training models share: an encoder, the tied head, and the path that skips what is not asked."""

    def __init__(self, config: BertConfig, next_sentence: bool) -> None:
        super().__init__()
        self.config = config
        self.bert = BertModel(config, add_pooling_layer=next_sentence)
        self.cls = BertPreTrainingHeads(config, next_sentence)
        self.tie_weights()

    def tie_weights(self) -> None:
        """To be called again whenever the word embeddings become another tensor."""
        self.cls.predictions.tie(self.bert.embeddings.word_embeddings)

    def states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None,
        token_type_ids: Tensor | None,
        masked_positions: Tensor | None,
        output_attentions: bool,
        output_hidden_states: bool,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]:
        """The vectors to predict from ((P,D) or (B,T,D)), those of [CLS] (B,D), hidden states and attentions if asked.

        With masked_positions the last layer computes its output for them and for [CLS] alone: nobody reads the rest.
        """
        B, T = input_ids.shape
        rows = None
        if masked_positions is not None and not output_hidden_states:
            rows = torch.cat((torch.arange(0, B * T, T, device=input_ids.device), masked_positions))
        flat, weights = self.bert.encode(
            input_ids, attention_mask, token_type_ids, rows, output_attentions, output_hidden_states
        )
        last = flat[-1]
        if rows is not None:
            first, chosen = last[:B], last[B:]
        else:
            first = last.view(B, T, -1)[:, 0]
            chosen = last.view(B, T, -1) if masked_positions is None else last.index_select(0, masked_positions)
        hidden = tuple(x.view(B, T, -1) for x in flat) if output_hidden_states else None
        return chosen, first, hidden, given(weights) if output_attentions else None


class BertForPreTraining(BertLanguageModel):
    """Masked words and next sentence, as transformers' namesake (MegatronBertForPreTraining where norm is "pre")."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, next_sentence=True)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None = None,
        token_type_ids: Tensor | None = None,
        *,
        masked_positions: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> BertForPreTrainingOutput:
        """Predict masked tokens and whether B follows A.

        Args: the first three as in BertModel. masked_positions (P,) int64: indices into the B*T tokens; only they go
            through the vocabulary. labels: ids to predict, -100 elsewhere, (B,T), or (P,) with masked_positions.
            next_sentence_label (B,): 0 = B follows A, 1 = it does not.
        Returns: logits; loss = sum of the mean losses of the labels given, None where none is. Differs from
            transformers: either label alone gives its loss, and labels that are all -100 give 0 instead of NaN.
        """
        chosen, first, hidden_states, attentions = self.states(
            input_ids, attention_mask, token_type_ids, masked_positions, output_attentions, output_hidden_states
        )
        assert self.bert.pooler is not None
        prediction_logits = self.cls.predictions(chosen)
        seq_relationship_logits = self.cls.seq_relationship(self.bert.pooler(first))
        pairs = ((prediction_logits, labels), (seq_relationship_logits, next_sentence_label))
        losses = [mean_cross_entropy(logits, gold) for logits, gold in pairs if gold is not None]
        loss = torch.stack(losses).sum() if losses else None
        return BertForPreTrainingOutput(
            loss, prediction_logits, seq_relationship_logits, hidden_states=hidden_states, attentions=attentions
        )


class BertForMaskedLM(BertLanguageModel):
    """Masked words alone: no pooler, no next-sentence head; arguments as in BertForPreTraining."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, next_sentence=False)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None = None,
        token_type_ids: Tensor | None = None,
        *,
        masked_positions: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> MaskedLMOutput:
        chosen, _, hidden_states, attentions = self.states(
            input_ids, attention_mask, token_type_ids, masked_positions, output_attentions, output_hidden_states
        )
        logits = self.cls.predictions(chosen)
        loss = None if labels is None else mean_cross_entropy(logits, labels)
        return MaskedLMOutput(loss, logits, hidden_states=hidden_states, attentions=attentions)


class BertWithHead(nn.Module):
    """What the models for tasks share: an encoder, dropout, and how to read off some of its rows."""

    def __init__(self, config: BertConfig, pooler: bool) -> None:
        super().__init__()
        self.config = config
        self.bert = BertModel(config, add_pooling_layer=pooler)
        rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = Dropout(rate)

    def linear(self, outputs: int) -> nn.Linear:
        """A head's dense layer with its initial values."""
        layer = Linear(self.config.hidden_size, outputs)
        draw_normal(layer, self.config.initializer_range)
        return layer

    def rows(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None,
        token_type_ids: Tensor | None,
        rows: Tensor | None,
        output_attentions: bool,
        output_hidden_states: bool,
    ) -> tuple[Tensor, tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]:
        """The last states (B*T,D), or (R,D) of the rows (R,) of them, which are all that the last layer then computes;
        hidden states and attentions if asked."""
        early = None if output_hidden_states else rows
        flat, weights = self.bert.encode(
            input_ids, attention_mask, token_type_ids, early, output_attentions, output_hidden_states
        )
        last = flat[-1] if rows is None or early is not None else flat[-1].index_select(0, rows)
        hidden = tuple(x.view(*input_ids.shape, -1) for x in flat) if output_hidden_states else None
        return last, hidden, given(weights) if output_attentions else None


class BertForSequenceClassification(BertWithHead):
    """One answer for a text or a pair, from [CLS] through the pooler; as transformers' namesake."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, pooler=True)
        self.classifier = self.linear(config.num_labels)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None = None,
        token_type_ids: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args: the first three as in BertModel. labels: (B,) int64 classes; float32 (B,) or (B,1) where the config's
            problem_type is "regression" (or it has one label); 0/1 float32 (B,C) where it is
            "multi_label_classification".
        Returns: logits (B,C), and the mean loss where labels are given.
        """
        B, T = input_ids.shape
        first = torch.arange(B, device=input_ids.device) * T
        states, hidden_states, attentions = self.rows(
            input_ids, attention_mask, token_type_ids, first, output_attentions, output_hidden_states
        )
        assert self.bert.pooler is not None
        logits = self.classifier(self.dropout(self.bert.pooler(states)))
        loss = None if labels is None else self.loss(logits.float(), labels)
        return SequenceClassifierOutput(loss, logits, hidden_states=hidden_states, attentions=attentions)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of the config's problem_type; where that is not said, by the labels, as transformers does."""
        problem = self.config.extra.get("problem_type")
        if problem == "regression" or (problem is None and self.config.num_labels == 1):
            return F.mse_loss(logits.squeeze(-1), labels.squeeze(-1).float())
        if problem == "multi_label_classification" or (problem is None and labels.is_floating_point()):
            return F.binary_cross_entropy_with_logits(logits, labels.float())
        return mean_cross_entropy(logits, labels)


class BertForTokenClassification(BertWithHead):
    """A label for each token; as transformers' namesake."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, pooler=False)
        self.classifier = self.linear(config.num_labels)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None = None,
        token_type_ids: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> TokenClassifierOutput:
        """Tag tokens.

        Args: the first three as in BertModel. positions (R,) int64: indices into the B*T tokens that are to be tagged;
            nothing else is computed in the last layer. labels: classes, -100 elsewhere, (B,T), or (R,) with positions.
        """
        states, hidden_states, attentions = self.rows(
            input_ids, attention_mask, token_type_ids, positions, output_attentions, output_hidden_states
        )
        logits = self.classifier(self.dropout(states))  # (R,C)
        if positions is None:
            logits = logits.view(*input_ids.shape, -1)
        loss = None if labels is None else mean_cross_entropy(logits, labels)
        return TokenClassifierOutput(loss, logits, hidden_states=hidden_states, attentions=attentions)


class BertForQuestionAnswering(BertWithHead):
    """Where the answer starts and where it ends; as transformers' namesake, which has no dropout before this head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, pooler=False)
        self.qa_outputs = self.linear(2)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | RealTokens | None = None,
        token_type_ids: Tensor | None = None,
        *,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> QuestionAnsweringModelOutput:
        """Find spans.

        Args: the first three as in BertModel. start_positions, end_positions (B,) int64, both inclusive; a place
            outside the row counts for nothing.
        Returns: start_logits, end_logits (B,T); loss: the mean of the two mean losses, where positions are given.
        """
        T = input_ids.shape[1]
        states, hidden_states, attentions = self.rows(
            input_ids, attention_mask, token_type_ids, None, output_attentions, output_hidden_states
        )
        start_logits, end_logits = self.qa_outputs(states).view(*input_ids.shape, 2).unbind(-1)  # (B,T) each
        loss = None
        if start_positions is not None and end_positions is not None:
            sides = ((start_logits, start_positions), (end_logits, end_positions))
            inside = [(logits, gold.masked_fill((gold < 0) | (gold >= T), IGNORED)) for logits, gold in sides]
            loss = torch.stack([mean_cross_entropy(logits, gold) for logits, gold in inside]).mean()
        return QuestionAnsweringModelOutput(
            loss, start_logits, end_logits, hidden_states=hidden_states, attentions=attentions
        )
