"""Names of weights: what other programs wrote -> what the model calls them.

Known forms: transformers (with and without `bert.`), DistributedDataParallel (`module.`), torch.compile (`_orig_mod.`),
old LayerNorm names (`gamma`, `beta`), buffers that are no weights (`position_ids`), and the three ways in which a tied
decoder is stored: absent, in full, or its bias alone.
"""

from collections.abc import Mapping

from torch import Tensor

from minibert.errors import UserError

WRAPPERS = ("module.", "_orig_mod.")
ENCODER = ("embeddings.", "encoder.")
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
WORDS = "embeddings.word_embeddings.weight"
MLM_BIAS, DECODER_WEIGHT, DECODER_BIAS = (
    "cls.predictions.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
)


def canonical(name: str) -> str:
    """The name in a bare BertModel, without `bert.`; heads keep their own (`cls.predictions.bias`)."""
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith("LayerNorm" + old):
            name = name.removesuffix(old) + new
    return name


def canonical_weights(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Every weight under its canonical name, buffers left out, the decoder's bias under the name of the one it is.

    The decoder's weight stays, for the reader to compare with the word embeddings.
    Raises: UserError where two stored names mean the same weight.
    """
    weights: dict[str, Tensor] = {}
    sources: dict[str, str] = {}
    for stored, tensor in tensors.items():
        name = canonical(stored)
        if name in BUFFERS:
            continue
        if name in weights:
            raise UserError(f"both {sources[name]!r} and {stored!r} are the weight {name!r}", where)
        weights[name], sources[name] = tensor, stored
    bias = weights.pop(DECODER_BIAS, None)
    if bias is not None:
        weights.setdefault(MLM_BIAS, bias)
    return weights
