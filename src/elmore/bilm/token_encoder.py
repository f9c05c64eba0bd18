"""Tokens -> context-independent vectors: x_k of section 3.1, layer 0 of the biLM.

N tokens, C characters per token, E character dim, F filters, D dim.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.bilm.config import Activation, BiLMConfig
from elmore.text.characters import NUM_CHARACTERS


def token_encoder(config: BiLMConfig) -> "CharEncoder | WordEncoder":
    """Return the token encoder of a config: from characters, or from word ids."""
    if config.vocab_size is not None:
        return WordEncoder(vocab_size=config.vocab_size, dim=config.dim)
    return CharEncoder(
        char_dim=config.char_dim,
        filters=config.filters,
        activation=config.activation,
        num_highways=config.num_highways,
        project=config.project_filters,
        dim=config.dim,
    )


class CharEncoder(nn.Module):
    """Character convolutions, max-pooling, highway layers and a projection to D (section 3.4)."""

    def __init__(
        self,
        *,
        char_dim: int,
        filters: Sequence[tuple[int, int]],
        activation: Activation,
        num_highways: int,
        project: bool,
        dim: int,
    ) -> None:
        super().__init__()
        F = sum(count for _, count in filters)
        self.embed = nn.Embedding(NUM_CHARACTERS, char_dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(char_dim, count, width) for width, count in filters)
        self.activation = nn.ReLU() if activation == "relu" else nn.Tanh()
        self.highways = nn.Sequential(*(Highway(F) for _ in range(num_highways)))
        self.project = nn.Linear(F, dim) if project else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as the released training code does."""
        nn.init.uniform_(self.embed.weight, -1, 1)
        for conv in self.convs:
            weight, bias = conv.parameters()
            if isinstance(self.activation, nn.ReLU):
                nn.init.uniform_(weight, -0.05, 0.05)
            else:
                nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
            nn.init.zeros_(bias)
        if isinstance(self.project, nn.Linear):
            nn.init.normal_(self.project.weight, std=self.project.in_features**-0.5)
            nn.init.zeros_(self.project.bias)
        with torch.no_grad():
            self.embed.weight[0] = 0

    def forward(self, ids: Int[Tensor, "*batch C"]) -> Float[Tensor, "*batch D"]:
        """Return the vector of each token."""
        x = self.embed(ids.flatten(0, -2)).transpose(1, 2)  # (N, E, C)
        # The activation is monotonic, so pooling first gives the same result at 1/C of the cost.
        x = torch.cat([conv(x).amax(dim=-1) for conv in self.convs], dim=-1)  # (N, F)
        x = self.project(self.highways(self.activation(x)))  # (N, D)
        return x.unflatten(0, ids.shape[:-1])


def word_ends(ids: Int[Tensor, "N C"]) -> Int[Tensor, " N"]:
    """Return the index at which the padding of each word starts: [b a t _ _ _] -> 3.

    The last id counts as padding, so the result is at most C - 1. All windows of a filter that
    start in the padding are equal, so max-pooling needs only those that start at or before it.
    """
    position = torch.arange(1, ids.shape[1] + 1, dtype=torch.int32, device=ids.device)
    return ((ids != ids[:, -1:]) * position).amax(dim=1)


class Highway(nn.Module):
    """Highway layer: y = g * relu(Wx + b) + (1 - g) * x (Srivastava et al., 2015)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        for linear in (self.transform, self.gate):
            nn.init.normal_(linear.weight, std=dim**-0.5)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)  # start close to the identity function

    def forward(self, x: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Return y for each input vector."""
        return torch.lerp(x, self.transform(x).relu(), self.gate(x).sigmoid())


class WordEncoder(nn.Module):
    """A table of word vectors, for biLMs that read word ids instead of characters."""

    def __init__(self, *, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size + 1, dim, padding_idx=0)
        nn.init.uniform_(self.embed.weight, -1, 1)
        with torch.no_grad():
            self.embed.weight[0] = 0

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch D"]:
        """Return the vector of each token."""
        return self.embed(ids)
