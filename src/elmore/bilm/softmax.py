"""The probability of the next word: softmax over the vocabulary, or sampled softmax.

M positions, D dim, V words in the vocabulary, S sampled words.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from elmore.bilm import kernels

_LOGITS_AT_ONCE = 2**26  # 256 MB in float32


class Negatives(NamedTuple):
    """Words sampled as negatives, shared by all positions of a batch."""

    ids: Int[Tensor, " S"]
    """Distinct word ids."""

    tries: Float[Tensor, ""]
    """Number of draws until there were S distinct words, repeated words included."""


class Softmax(nn.Module):
    """The softmax layer, shared by both directions (section 3.1).

    Word ids are sorted by frequency, so log-uniform sampling approximates sampling by frequency.
    """

    def __init__(self, *, dim: int, vocab_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim))
        self.bias = nn.Parameter(torch.empty(vocab_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as the released training code does."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.bias)

    def forward(
        self,
        h: Float[Tensor, "M D"],
        targets: Int[Tensor, " M"],
        negatives: Negatives | None = None,
    ) -> Float[Tensor, " M"]:
        """Return -log p(target) at each position, by sampled softmax if `negatives` are given."""
        if negatives is None:
            return self._full(h, targets.long())
        if kernels.usable(h):
            from elmore.bilm.kernels.softmax import sampled_nll
        else:
            sampled_nll = _sampled_nll
        log_counts = log_expected_counts(negatives.tries, len(self.bias))  # (V,)
        return sampled_nll(h, targets.long(), self.weight, self.bias, negatives.ids, log_counts)

    def draw(self, num_samples: int, generator: torch.Generator | None = None) -> Negatives:
        """Draw words log-uniformly until there are `num_samples` distinct ones.

        The result depends on the state of the generator and on the type of the device.
        """
        # This simulates the draws without a loop and without a synchronization with the device. Let
        # each word k occur in continuous time, as a Poisson process with rate p(k). The order of
        # first occurrences is then the order in which successive draws would yield new words.
        p = log_uniform(len(self.bias), self.bias.device)
        arrival = torch.empty_like(p).exponential_(generator=generator) / p
        # Deviation: TensorFlow loops forever if there are fewer words than samples.
        first = arrival.topk(min(num_samples, len(p)), largest=False, sorted=False)
        # Each word may occur again before the last word occurs. These are the repeated draws.
        remaining = first.values.max() - first.values
        repeated = torch.poisson((remaining * p[first.indices]).sum(), generator=generator)
        return Negatives(first.indices, len(first.indices) + repeated)

    def _full(self, h: Tensor, targets: Tensor) -> Tensor:
        # M x V logits do not fit into memory: compute them for one block of rows at a time, and
        # recompute them in the backward pass.
        rows = max(1, _LOGITS_AT_ONCE // len(self.bias))
        blocks = zip(h.split(rows), targets.split(rows), strict=True)
        return torch.cat(
            [
                checkpoint(_full_nll, *block, self.weight, self.bias, use_reentrant=False)
                for block in blocks
            ]
        )


def log_uniform(vocab_size: int, device: torch.device) -> Float[Tensor, " V"]:
    """Return the log-uniform distribution p(k) = log((k + 2) / (k + 1)) / log(V + 1)."""
    k = torch.arange(vocab_size, dtype=torch.float32, device=device)
    return torch.log1p(1 / (k + 1)) / math.log(vocab_size + 1)


def log_expected_counts(tries: Float[Tensor, ""], vocab_size: int) -> Float[Tensor, " V"]:
    """Return the log probability that each word occurs at least once in `tries` draws."""
    p = log_uniform(vocab_size, tries.device)
    return torch.log(-torch.expm1(tries * torch.log1p(-p)))


def _full_nll(h: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(h, weight, bias), targets, reduction="none")


def _sampled_nll(
    h: Float[Tensor, "M D"],
    targets: Int[Tensor, " M"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"],
    sampled: Int[Tensor, " S"],
    log_counts: Float[Tensor, " V"],
) -> Float[Tensor, " M"]:
    """Return the sampled-softmax loss of each target (Jean et al., 2015)."""
    positive = (h * weight[targets]).sum(-1) + (bias - log_counts)[targets]  # (M,)
    negative = functional.linear(h, weight[sampled], (bias - log_counts)[sampled])  # (M, S)
    # Accidental hits: where a sampled word is the target itself, it is not a negative.
    negative = negative.masked_fill(sampled == targets[:, None], -torch.inf)
    return torch.logaddexp(positive, negative.logsumexp(-1)) - positive
