"""The values that weights start with: normal draws, and the table of sinusoids."""

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    """nn.Linear without first values of its own: whoever makes one draws or loads them.

    On the meta device torch's own drawing would import its compiler, a second of every start.
    """

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class Embedding(nn.Embedding):
    """nn.Embedding without first values of its own, as Linear."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


@torch.no_grad()
def truncated_normal(shape: tuple[int, ...], std: float, generator: torch.Generator | None) -> Tensor:
    """N(0, std) with values beyond two sigma drawn again (Google's initialiser); on the CPU, or the default device.

    By redrawing and not by an inverse error function: that one's last bit depends on how threads split the tensor.
    """
    x = torch.randn(shape, generator=generator)
    flat = x.view(-1)
    far = (flat.abs() > 2).nonzero()[:, 0]
    while len(far):
        again = torch.randn(len(far), generator=generator)
        flat[far] = again
        far = far[again.abs() > 2]
    return x.mul_(std)


@torch.no_grad()
def draw_normal(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """BERT's classic initial values for everything in `module`, in the order of its modules; tied weights once.

    On the meta device, where a checkpoint's values come later, nothing.
    """
    drawn: set[int] = set()
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)) and part.weight.is_meta:
            continue
        if isinstance(part, (nn.Linear, nn.Embedding)) and id(part.weight) not in drawn:
            drawn.add(id(part.weight))
            part.weight.copy_(truncated_normal(tuple(part.weight.shape), std, generator))
        if isinstance(part, nn.Linear) and part.bias is not None:
            part.bias.zero_()
        if isinstance(part, nn.LayerNorm):
            part.reset_parameters()


def sinusoids(num_positions: int, size: int, *, amplitude: float, fastest: float = 1.0) -> Tensor:
    """Position table (num_positions, size): pairs (sin, cos) interleaved, frequencies fastest * 10000^(-2k/size).

    fastest is in radians per position; 1 is Vaswani's table, whose amplitude of 1 would drown words of N(0, .02).
    """
    rate = fastest * 10000.0 ** (-torch.arange(size // 2, dtype=torch.float64) / (size // 2))
    angle = torch.arange(num_positions, dtype=torch.float64)[:, None] * rate  # (positions, size/2)
    return (amplitude * torch.stack((angle.sin(), angle.cos()), dim=-1)).view(num_positions, size).float()
