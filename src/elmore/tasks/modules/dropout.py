"""Variational dropout (Gal and Ghahramani, 2016)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class VariationalDropout(nn.Module):
    """Dropout with the same mask for all words of a sentence."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Drop the same dimensions of every word; in evaluation mode, return `x`."""
        if not self.training or not self.p:
            return x
        return x * functional.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p)
