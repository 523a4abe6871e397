"""The tour: steps with words in two languages, shapes and the numbers of a forward pass. Shown by terminal and page.

Letters in shape comments: T tokens, D hidden, N heads, H head size, F the wide part of the feed-forward, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minibert.errors import UserError
from minibert.model.bert import BertSelfAttention
from minibert.trace.forward import HeadsOfLayer, Pass
from minibert.trace.steps import Chapter, Matrix, Step, Table, Tour, added, labels, num, share, superscript, times
from minibert.view.page import Both

TOP = 5
NEARLY_ALL = 0.9  # a weight that needs a word of explanation
ACTIVATION = {"gelu": "GELU", "gelu_new": "GELU", "relu": "ReLU"}


def tell(passed: Pass, text: str, *, layer: int = 1, head: int | None = None) -> Tour:
    """The tour of a pass. Args: layer, head: which of them is shown in full, from 1; without a head typical_head's.
    Raises: UserError if not there."""
    config = passed.config
    for name, number, most in (
        ("layer", layer, config.num_hidden_layers), ("head", head, config.num_attention_heads),
    ):  # fmt: skip
        if number is not None and not 1 <= number <= most:
            raise UserError(f"there is no {name} {number}", where=f"--{name}", fix=f"a number from 1 to {most}")
    row = passed.row
    masks = [i for i, token in enumerate(row) if token.token == "[MASK]"]
    followed = masks[0] if masks else 1
    why = Both("", "")
    if head is None:
        head, bits = typical_head(passed.weights[layer - 1][:, followed])
        who = labels(row)[followed]
        why = Both(
            f"of the layer's heads the one with the median entropy for “{who}”, {bits:.2f} bits; ",
            f"“{who}”的注意力熵在该层各头中居中，{bits:.2f} 比特；",
        )
    guide = Guide(passed, followed, layer - 1, head - 1)
    chapters = [guide.tokens(), guide.embeddings(), guide.attention(), guide.feed_forward(), guide.layers()]
    return Tour(text, followed, layer, head, why, passed, [*chapters, guide.answer(masks)])


def typical_head(weights: Tensor) -> tuple[int, float]:
    """weights (N,T) of one token -> the head, from 1, with the median entropy (of an even number the upper one), and
    that, in bits. So it is seldom one that looks at a single place, of which there is not much to see."""
    entropy = -(weights * weights.clamp(min=1e-30).log2()).sum(-1)
    head = int(entropy.argsort(stable=True)[len(entropy) // 2])
    return head + 1, float(entropy[head])


class Guide:
    """Makes the chapters. i: the followed token; layer, head: from 0."""

    def __init__(self, passed: Pass, i: int, layer: int, head: int) -> None:
        self.passed, self.i, self.layer, self.head = passed, i, layer, head
        self.config, self.row = passed.config, passed.row
        self.pre = self.config.norm == "pre"
        self.T, self.D = len(self.row), self.config.hidden_size
        self.N = self.config.num_attention_heads
        self.H = self.D // self.N
        self.labels = labels(self.row)
        self.who = f"“{self.labels[i]}”"
        self.name = f"bert.encoder.layer.{layer}"

    def out(self, part: str) -> Tensor:
        """What a part of the layer gave."""
        return self.passed.out[f"{self.name}.{part}" if part else self.name]

    def into(self, part: str) -> Tensor:
        """What a part of the layer was given."""
        return self.passed.into[f"{self.name}.{part}" if part else self.name]

    # ---- before the layers

    def tokens(self) -> Chapter:
        V = len(self.passed.tokenizer)
        unknown = sum(token.unknown for token in self.row)
        worked: list[Both] = []
        if unknown:
            worked.append(Both(
                f"{unknown} of {self.T - 2} tokens are not in the vocabulary: to the model they are all [UNK].",
                f"{self.T - 2} 个词元中有 {unknown} 个不在词表里：对模型来说它们都是 [UNK]。",
            ))  # fmt: skip
        followed = self.row[self.i]
        worked.append(same_in_both(f"{followed.token} → {followed.id}", f"{self.who}, its id", f"{self.who}的编号"))
        rows = [[str(i), token.text, token.token, str(token.id)] for i, token in enumerate(self.row)]
        columns = [Both("place", "位置"), Both("you wrote", "原文"), Both("token", "词元"), Both("id", "编号")]
        step = Step(
            Both("Cut the text into tokens and number them", "把文本切成词元并编号"),
            "text → [CLS] w₁ w₂ … [SEP] → ids", f"({self.T},)",
            Both(
                f"A model computes with numbers, so the text becomes tokens of a fixed vocabulary (here {V:,}"
                " entries,"
                " WordPiece), and each token its number. ## marks a piece that goes on with a word; a Chinese"
                " character is a token of its own. [CLS] and [SEP] mark the beginning and the end.",
                f"模型只会计算数字，所以先把文本切成固定词表（这里有 {V:,} 项，WordPiece）中的词元，再换成编号。"
                "## 表示接在前一片段之后；汉字每字一个词元。[CLS] 与 [SEP] 标记开头和结尾。",
            ),
            table=Table(columns, rows, 3, True, self.i), worked=worked,
        )  # fmt: skip
        return Chapter(Both("From text to numbers", "从文本到数字"), [step])

    def embeddings(self) -> Chapter:
        passed, i = self.passed, self.i
        base = passed.model.bert.embeddings
        word = passed.out["bert.embeddings.word_embeddings"]  # (T,D)
        position = base.position_embeddings.weight.detach()[: self.T]
        kind = base.token_type_embeddings.weight.detach()[0].expand(self.T, -1)
        x = passed.into["bert.embeddings.LayerNorm"]
        sinusoidal = self.config.positions == "sinusoidal"
        parts = torch.stack((word[i], position[i], kind[i], x[i]))
        steps = [
            Step(
                Both("Three embeddings, added", "三种嵌入相加"),
                "x = E_word[id] + E_position[place] + E_type[0]",
                f"({self.T}, {self.D}) = ({self.T}, {self.D}) + ({self.T}, {self.D}) + ({self.T}, {self.D})",
                Both(
                    f"Each token becomes a vector of {self.D} numbers: one row of a table says which word it is, one"
                    " where it stands"
                    + (" (sinusoids, fixed)" if sinusoidal else " (learnt)")
                    + ", one to which text it belongs. The three are added. Without the second the model could not tell"
                    " “dog bites man” from “man bites dog”.",
                    f"每个词元变成 {self.D} 维向量：一张表给出它是哪个词，一张表给出它在哪个位置"
                    + ("（正弦函数，固定不变）" if sinusoidal else "（学习得到）")
                    + "，一张表给出它属于哪段文本，三者相加。没有位置嵌入，模型就分不清“狗咬人”和“人咬狗”。",
                ),
                [
                    Matrix(
                        "E", Both(f"the rows that are added for {self.who}", f"{self.who}相加的各行"), parts,
                        [Both("word", "词"), Both("position", "位置"), Both("type", "类型"), Both("sum", "和")],
                    ),
                    Matrix("X", Both("the sums of all tokens", "所有词元的和"), x),
                ],
                worked=[same_in_both(
                    f"{added(word[i, 0], position[i, 0], kind[i, 0])} = {num(x[i, 0])}",
                    f"{self.who}, number 1", f"{self.who}第 1 个数",
                )],
            )
        ]  # fmt: skip
        if self.pre:
            steps[0] = with_worked(steps[0], Both(
                "This model is pre-LN: its LayerNorms stand before each sub-layer, none stands here.",
                "此模型为 pre-LN：LayerNorm 放在每个子层之前，这里没有。",
            ))  # fmt: skip
        else:
            steps.append(self.norm(
                x, passed.out["bert.embeddings.LayerNorm"], "X", Both("LayerNorm", "层归一化（LayerNorm）"), first=True
            ))  # fmt: skip
        return Chapter(Both("Embeddings", "嵌入"), steps)

    def norm(self, before: Tensor, after: Tensor, symbol: str, title: Both, *, first: bool = False) -> Step:
        """A LayerNorm of (T,D)."""
        i = self.i
        words = Both(
            "Each token's vector is brought to mean 0 and spread 1, then scaled by γ and shifted by β, which are"
            " learnt."
            " So the numbers stay in a range that the next layer knows.",
            "把每个词元的向量变为均值 0、标准差 1，再乘以 γ、加上 β（两者都是学到的），使数值保持在下一层熟悉的范围"
            "内。",
        )  # fmt: skip
        return Step(
            title, "y = γ · (x − mean) / √(variance + ε) + β", f"({self.T}, {self.D}) → ({self.T}, {self.D})",
            words if first else Both("As before: mean 0 and spread 1, then γ and β.", "同前：归一化，再乘 γ 加 β。"),
            [Matrix(f"LayerNorm({symbol})", Both("normalised", "归一化之后"), after)],
            worked=[same_in_both(
                f"{num(before[i].mean())}, {num(before[i].std(correction=0))} → {num(after[i].mean())},"
                f" {num(after[i].std(correction=0))}",
                f"{self.who}, mean and spread", f"{self.who}的均值与标准差",
            )],
        )  # fmt: skip

    # ---- the layer that is shown in full

    def attention(self) -> Chapter:
        h, T, H, D = self.head, self.T, self.H, self.D
        heads = self.passed.heads(self.layer)
        given = heads.context.view(T, self.N, H)[:, h]
        x = self.into("")
        part = self.passed.model.get_submodule(f"{self.name}.attention.self")
        assert isinstance(part, BertSelfAttention)
        w_query, b_query = (tensor.detach()[h * H] for tensor in part.joined())  # of the query's first number
        joining = self.passed.model.get_submodule(f"{self.name}.attention.output.dense")
        assert isinstance(joining, nn.Linear)
        joined = self.out("attention.output.dense")
        steps = []
        if self.pre:
            title = Both("LayerNorm before attention", "注意力之前的 LayerNorm")
            steps.append(self.norm(x, heads.x, "X", title, first=True))
        steps += [
            Step(
                Both(f"Queries, keys, values of head {h + 1}", f"第 {h + 1} 个头的 query、key、value"),
                "Q = X·W_Q + b_Q   K = X·W_K + b_K   V = X·W_V + b_V",
                f"({T}, {D}) · ({D}, {D}) → ({T}, {D}), {self.N} × ({T}, {H})",
                Both(
                    "Each token's vector is turned into three: a query (what it looks for), a key (what it offers"
                    " to be"
                    f" found by) and a value (what it hands over). The {D} numbers are shared out to {self.N} heads"
                    " of"
                    f" {H}, which work side by side.",
                    f"每个词元的向量变成三个：query（要找什么）、key（凭什么被找到）、value（交出什么）。{D} 个数分"
                    "给 "
                    f"{self.N} 个头，每头 {H} 个，各自并行计算。",
                ),
                [
                    Matrix("Q", Both("queries", "query"), heads.q[h]),
                    Matrix("K", Both("keys", "key"), heads.k[h]),
                    Matrix("V", Both("values", "value"), heads.v[h]),
                ],
                worked=[same_in_both(
                    f"x·w + b = {added(heads.x[self.i] @ w_query, b_query)} = {num(heads.q[h, self.i, 0])}",
                    f"{self.who}, number 1 of its query", f"{self.who}的 query 第 1 个数",
                )],
            ),
            *self.scores(heads),
            Step(
                Both("The weighted sum of the values", "对 value 加权求和"), "Z = A·V",
                f"({T}, {T}) · ({T}, {H}) → ({T}, {H})",
                Both(
                    "Each token takes the values of all tokens, each as much as its weight says: this is how what"
                    " stands"
                    " elsewhere in the sentence gets into its vector.",
                    "每个词元按权重取所有词元的 value 相加：句中别处的信息就这样进入它的向量。",
                ),
                [Matrix("Z", Both(f"what head {h + 1} gives", f"第 {h + 1} 个头的输出"), given)],
                worked=[self.weighted(heads)],
            ),
            Step(
                Both("Heads side by side, and the joining projection", "拼接各头，再做输出投影"),
                "O = [Z₁ … Z_N]·W_O + b_O", f"{self.N} × ({T}, {H}) → ({T}, {D}) · ({D}, {D}) → ({T}, {D})",
                Both(
                    f"The {self.N} heads are laid side by side, {self.N} × {H} = {D} numbers a token, and one"
                    " matrix mixes"
                    " them: only here do the heads come together.",
                    f"{self.N} 个头的结果首尾拼接，每个词元 {self.N} × {H} = {D} 个数，再乘一个矩阵混合：各头到这里"
                    "才汇合。",
                ),
                [
                    Matrix("[Z₁ … Z_N]", Both("heads side by side", "拼接后的各头"), heads.context),
                    Matrix("O", Both("joined", "投影之后"), joined),
                ],
                worked=[same_in_both(
                    f"z·w + b = {added(heads.context[self.i] @ joining.weight.detach()[0], joining.bias.detach()[0])}"
                    f" = {num(joined[self.i, 0])}",
                    f"{self.who}, number 1", f"{self.who}第 1 个数",
                )],
            ),
            *self.residual("attention.output", x, "O", Both("Add what came in", "加上输入（残差连接）"), first=True),
        ]  # fmt: skip
        number = self.layer + 1
        return Chapter(Both(f"Layer {number}: self-attention", f"第 {number} 层：自注意力"), steps)

    def scores(self, heads: HeadsOfLayer) -> list[Step]:
        h, i, T, H = self.head, self.i, self.T, self.H
        texts = self.labels
        dots, scores, weights = heads.dots[h], heads.scores[h], heads.weights[h]
        order = weights[i].argsort(descending=True, stable=True).tolist()
        wanted = [i, *(j for j in order if j != i)]
        j = order[0]
        others = "".join(f" + exp({num(scores[i, k])})" for k in order[1:2]) + (" + …" if T > 2 else "")
        return [
            Step(
                Both("Scores: each query times each key", "打分：每个 query 与每个 key 的点积"),
                "S = Q·Kᵀ", f"({T}, {H}) · ({H}, {T}) → ({T}, {T})",
                Both(
                    "The score of a pair of tokens is the dot product of the one's query and the other's key: large"
                    " where"
                    " they fit. A row is the token that looks, a column the one that is looked at.",
                    "一对词元的得分是前者 query 与后者 key 的点积，越匹配越大。行是发出注意力的词元，列是被看的词"
                    "元。",
                ),
                [Matrix("S", Both("scores before scaling", "缩放前的得分"), dots, columns=texts, wanted=wanted)],
                worked=[same_in_both(
                    f"q·k = {times(heads.q[h, i, 0], heads.k[h, j, 0])} + {times(heads.q[h, i, 1], heads.k[h, j, 1])}"
                    f" + … = {num(dots[i, j])}",
                    f"{self.who} to “{texts[j]}”", f"{self.who}对“{texts[j]}”",
                )],
            ),
            Step(
                Both("Scale by the root of the head size", "除以头维度的平方根"),
                f"S / √H = S / √{H} = S / {math.sqrt(H):.3g}", f"({T}, {T})",
                Both(
                    f"A dot product of {H} terms grows with √{H}. Undivided, such large scores drive softmax towards"
                    " one token, and hardly any gradient flows.",
                    f"{H} 项的点积大小随 √{H} 增长。若不缩放，得分过大，softmax 会偏向单个词元，梯度也几乎传不回来。",
                ),
                [Matrix("S / √H", Both("scores after scaling", "缩放后的得分"), scores, columns=texts, wanted=wanted)],
                worked=[
                    same_in_both(
                        f"{num(dots[i, j])} / {math.sqrt(H):.3g} = {num(scores[i, j])}",
                        f"{self.who} to “{texts[j]}”", f"{self.who}对“{texts[j]}”",
                    ),
                    same_in_both(
                        f"{share(dots[i].softmax(-1).max())} → {share(weights[i].max())}",
                        f"largest weight of {self.who} without scaling and with it",
                        f"{self.who}的最大权重，不缩放与缩放后",
                    ),
                    *self.one_place(weights[i]),
                ],
            ),
            Step(
                Both("Softmax: rows of weights", "softmax：得到每行的权重"),
                "A = softmax(S / √H)     A_ij = exp(s_ij) / Σ_k exp(s_ik)", f"({T}, {T})",
                Both(
                    "The exponential makes every score positive, dividing by the row's sum makes the row sum to 1:"
                    " so many"
                    " parts of each token's value.",
                    "取指数使得分都为正，再除以整行之和，使每行之和为 1：即各词元 value 所占的份额。",
                ),
                [Matrix(
                    "A", Both("attention weights", "注意力权重"), weights, columns=texts, wanted=wanted, shares=True,
                )],
                worked=[same_in_both(
                    f"exp({num(scores[i, j])}) / (exp({num(scores[i, j])}){others}) = {num(weights[i, j])}",
                    f"{self.who} to “{texts[j]}”", f"{self.who}对“{texts[j]}”",
                )],
            ),
        ]  # fmt: skip

    def one_place(self, weights: Tensor) -> list[Both]:
        """A word on a head that gives nearly all to one token. weights (T,) of the followed token."""
        j = int(weights.argmax())
        if weights[j] <= NEARLY_ALL:
            return []
        en = f"Even scaled, this head gives nearly all its weight to one token, “{self.labels[j]}”."
        zh = f"缩放之后，这个头仍把权重几乎全给了一个词元“{self.labels[j]}”。"
        if abs(j - self.i) == 1:
            en += " It looks at a neighbour, as some heads of many models do; minibert's recipes let some start so."
            zh += "它看的是相邻词元：许多模型都有这样的头，minibert 的配方在初始化时就设好几个。"
        return [Both(en, zh)]

    def weighted(self, heads: HeadsOfLayer) -> Both:
        """The first number of the head's output for the followed token, as a sum."""
        weights, values = heads.weights[self.head, self.i], heads.v[self.head, :, 0]
        best = weights.topk(min(3, self.T)).indices.tolist()
        terms = " + ".join(times(weights[j], values[j]) for j in best)
        total = heads.context.view(self.T, self.N, self.H)[self.i, self.head, 0]
        taken = [f"“{self.labels[j]}”" for j in best]
        return same_in_both(
            f"{terms} + … = {num(total)}", f"{self.who}, number 1, from {', '.join(taken)}, …",
            f"{self.who}第 1 个数，来自{'、'.join(taken)}等",
        )  # fmt: skip

    def residual(self, part: str, x: Tensor, symbol: str, title: Both, *, first: bool = False) -> list[Step]:
        """The sum of a sub-layer's input and output and, in post-LN models, its LayerNorm."""
        gave, total = self.out(f"{part}.dense"), self.into(f"{part}.LayerNorm")
        i = self.i
        step = Step(
            title, f"X + {symbol}", f"({self.T}, {self.D})",
            Both("As after the attention.", "与注意力之后相同。") if not first else Both(
                "The sub-layer's result is added to what came in (the residual path). So each sub-layer only has to"
                " say what"
                " is to change, and gradients reach the lowest layer unhindered.",
                "子层的结果与输入相加（残差连接）：每个子层只需给出要改变的部分，梯度也能直达最底层。",
            ),
            [Matrix(f"X + {symbol}", Both("the sum", "相加之后"), total)],
            worked=[same_in_both(
                f"{added(x[i, 0], gave[i, 0])} = {num(total[i, 0])}", f"{self.who}, number 1",
                f"{self.who}第 1 个数",
            )],
        )  # fmt: skip
        if self.pre:
            return [step]
        return [step, self.norm(total, self.out(part), f"X + {symbol}", Both("LayerNorm", "LayerNorm"))]

    def feed_forward(self) -> Chapter:
        T, D, W = self.T, self.D, self.config.intermediate_size
        x = self.out("attention")
        name = ACTIVATION[self.config.hidden_act]
        before, after = self.out("intermediate.dense"), self.out("intermediate")
        steps = []
        if self.pre:
            title = Both("LayerNorm before the feed-forward", "前馈网络之前的 LayerNorm")
            steps.append(self.norm(x, self.out("ln"), "X", title))
        steps += [
            Step(
                Both("Feed-forward: wider, bent, narrow again", "前馈网络：升维、激活、降维"),
                f"F = {name}(X·W₁ + b₁)·W₂ + b₂", f"({T}, {D}) · ({D}, {W}) → ({T}, {W}) · ({W}, {D}) → ({T}, {D})",
                Both(
                    f"Each token for itself, without looking at others: {D} numbers become {W}, the activation"
                    f" {name} lets"
                    f" positive ones through and holds negative ones near 0, and {W} become {D} again. Most of a"
                    " layer's weights are here.",
                    f"每个词元各算各的，不看别的词元：{D} 维升到 {W} 维，激活函数 {name} 让正数通过、把负数压到 0"
                    " 附近，"
                    f"再降回 {D} 维。一层的参数大半在这里。",
                ),
                [
                    Matrix("X·W₁ + b₁", Both("before the activation", "激活之前"), before),
                    Matrix(name, Both("after it", "激活之后"), after),
                    Matrix("F", Both("narrow again", "降维之后"), self.out("output.dense")),
                ],
                worked=[same_in_both(
                    f"{share((before[self.i] > 0).float().mean())}",
                    f"{self.who}: share of the {W} numbers that are positive before the activation",
                    f"{self.who}：激活之前为正的比例（共 {W} 个数）",
                )],
            ),
            *self.residual("output", x, "F", Both("Add what came in, once more", "再次加上输入（残差连接）")),
        ]  # fmt: skip
        number = self.layer + 1
        return Chapter(Both(f"Layer {number}: feed-forward", f"第 {number} 层：前馈网络"), steps)

    # ---- all layers, and the answer

    def layers(self) -> Chapter:
        i, L = self.i, self.config.num_hidden_layers
        rows: list[list[str | Both]] = []
        worked: list[Both] = []
        for layer in range(L):
            name = f"bert.encoder.layer.{layer}"
            x, y = self.passed.into[name][i], self.passed.out[name][i]
            weights = self.passed.weights[layer].mean(0)[i]
            best = weights.topk(min(2, self.T))
            looks = [f"“{self.labels[j]}” {share(w)}" for w, j in zip(best.values, best.indices.tolist(), strict=True)]
            alike = F.cosine_similarity(x, y, dim=0)
            both = Both(", ".join(looks), "，".join(looks))
            rows.append([str(layer + 1), both, num(x.norm()), num(y.norm()), num(alike)])
            if layer == self.layer:
                worked.append(same_in_both(
                    f"x·y / (|x|·|y|) = {num(x @ y)} / ({times(x.norm(), y.norm())}) = {num(alike)}",
                    f"the cosine in layer {layer + 1}", f"第 {layer + 1} 层的余弦",
                ))  # fmt: skip
        columns = [
            Both("layer", "层"), Both("looks most at (mean of heads)", "主要看（各头平均）"),
            Both("length in", "输入长度"), Both("length out", "输出长度"), Both("cosine", "余弦"),
        ]  # fmt: skip
        steps = [
            Step(
                Both(f"The same {L} times, each with its own weights", f"同样的计算重复 {L} 层，各层参数不同"),
                f"X⁽⁰⁾ → X⁽¹⁾ → … → X⁽{superscript(L)}⁾", f"({self.T}, {self.D}) → ({self.T}, {self.D})",
                Both(
                    f"What happens to {self.who} in each layer: where the layer's heads look, how long its vector"
                    " is before"
                    " and after, and how much the two point the same way (cosine 1: unchanged in direction).",
                    f"{self.who}在每一层发生了什么：这一层各头平均看向哪里、向量在前后的长度，以及两者方向的接近程度"
                    "（余弦为 1 表示方向不变）。",
                ),
                table=Table(columns, rows, 2, False, self.layer), worked=worked,
            )
        ]  # fmt: skip
        if self.pre:
            name = "bert.encoder.ln"
            steps.append(self.norm(
                self.passed.into[name], self.passed.out[name], "X",
                Both("The LayerNorm behind the last layer", "最后一层之后的 LayerNorm"),
            ))  # fmt: skip
        return Chapter(Both("Through all layers", "走过所有层"), steps)

    def answer(self, masks: list[int]) -> Chapter:
        passed, T, D = self.passed, self.T, self.D
        V = self.config.vocab_size
        t = passed.out["cls.predictions.transform"]
        name_of_norm = "cls.predictions.transform.LayerNorm"
        norm = passed.model.get_submodule(name_of_norm)
        assert isinstance(norm, nn.LayerNorm)
        y = passed.into[name_of_norm][self.i]
        spread = (y.var(correction=0) + norm.eps).sqrt()
        scaled = norm.weight.detach()[0] * (y[0] - y.mean()) / spread
        logits = passed.logits
        known = len(passed.tokenizer)  # a padded matrix has more rows than the vocabulary has tokens
        i = self.i
        best = int(logits[i, :known].argmax())
        word = passed.model.bert.embeddings.word_embeddings.weight.detach()[best]
        bias = passed.model.cls.predictions.bias.detach()[best]
        name = ACTIVATION[self.config.hidden_act]
        steps = [
            Step(
                Both("The head's own layer", "MLM 头的变换层"), f"t = LayerNorm({name}(X·W + b))",
                f"({T}, {D}) · ({D}, {D}) → ({T}, {D})",
                Both(
                    "The vectors of the last layer go once more through a dense layer, the activation and a"
                    " LayerNorm, to be"
                    " compared with words.",
                    "最后一层的向量再过一个全连接层、激活函数和 LayerNorm，准备与各个词比较。",
                ),
                [Matrix("t", Both("ready to be compared", "变换之后"), t)],
                worked=[same_in_both(
                    "γ · (y − mean) / √(variance + ε) + β"
                    f" = {added(scaled, norm.bias.detach()[0])} = {num(t[self.i, 0])}",
                    f"{self.who}, number 1, y being what {name} gave", f"{self.who}第 1 个数，y 为 {name} 的输出",
                )],
            ),
            Step(
                Both("Compare with every word", "与词表中每个词比较"), "logits = t·E_wordᵀ + b",
                f"({T}, {D}) · ({D}, {V}) → ({T}, {V})",
                Both(
                    f"Each vector is multiplied with all {V:,} word embeddings: the very matrix of the first step"
                    " (tied"
                    " weights), with one bias a word, which mostly says how frequent the word is.",
                    f"每个向量与全部 {V:,} 个词嵌入做点积：用的就是第一步那张词嵌入表（权重共享），再加上每个词一个"
                    "偏置，"
                    "偏置大体反映词频。",
                ),
                worked=[same_in_both(
                    f"t·e + b = {added(t[i] @ word, bias)} = {num(logits[i, best])}",
                    f"{self.who} to “{passed.tokenizer.tokens[best]}”",
                    f"{self.who}对“{passed.tokenizer.tokens[best]}”",
                )],
            ),
            self.guesses(logits, known, masks),
        ]  # fmt: skip
        return Chapter(Both("The answer", "给出答案"), steps)

    def guesses(self, logits: Tensor, known: int, masks: list[int]) -> Step:
        tokens = self.passed.tokenizer.tokens
        whole = logits[self.i].logsumexp(-1)
        logits, shares = logits[:, :known], logits.softmax(-1)[:, :known]
        best_of_all = int(logits[self.i].argmax())
        worked = same_in_both(
            f"exp(logit − log Σ exp) = exp({added(logits[self.i, best_of_all], -whole)})"
            f" = {num(shares[self.i, best_of_all])}",
            f"{self.who} to “{tokens[best_of_all]}”", f"{self.who}对“{tokens[best_of_all]}”",
        )  # fmt: skip
        rows: list[list[str]] = []
        if masks:
            columns = [
                Both("place", "位置"), Both("token", "词元"), Both("logit", "logit"), Both("probability", "概率"),
            ]  # fmt: skip
            for i in masks:
                best = logits[i].topk(min(TOP, len(tokens))).indices.tolist()
                rows += [[str(i), tokens[j], num(logits[i, j]), share(shares[i, j])] for j in best]
            words = Both(
                "At [MASK] the model does not see what stood there: the likeliest words are its answer.",
                "模型看不到 [MASK] 处原来是什么：概率最大的词就是它的答案。",
            )  # fmt: skip
            title = Both("Softmax: the five likeliest words for [MASK]", "softmax：[MASK] 处概率最大的五个词")
        else:
            columns = [
                Both("place", "位置"), Both("token", "词元"), Both("its first answer", "首选"),
                Both("probability", "概率"), Both("of the token itself", "该词元自身的概率"),
            ]  # fmt: skip
            for i, token in enumerate(self.row):
                j = int(logits[i].argmax())
                rows.append([str(i), self.labels[i], tokens[j], share(shares[i, j]), share(shares[i, token.id])])
            words = Both(
                "There is no [MASK] in the text: these are the answers at places where the model sees the token"
                " itself, so"
                " it can mostly repeat it. Put [MASK] in a word's place to see it guess.",
                "文本里没有 [MASK]：模型在每处都看得到该词元本身，多半只需照抄。把某个词换成 [MASK]，就能看它怎么"
                "猜。",
            )  # fmt: skip
            title = Both("Softmax: each token's own prediction", "softmax：每个词元处的预测")
        return Step(
            title, "p = softmax(logits)", f"({len(self.row)}, {self.config.vocab_size})", words,
            table=Table(columns, rows, 2 if masks else 3, not masks, None if masks else self.i), worked=[worked],
        )  # fmt: skip


def with_worked(step: Step, line: Both) -> Step:
    """A step with one more line."""
    return Step(step.title, step.formula, step.shape, step.words, step.matrices, step.table, [*step.worked, line])


def same_in_both(numbers: str, en: str, zh: str) -> Both:
    """A line of numbers, with what they are of."""
    return Both(f"{en}: {numbers}", f"{zh}：{numbers}")
