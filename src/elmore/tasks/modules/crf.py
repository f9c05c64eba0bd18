"""A linear-chain conditional random field (Lafferty et al., 2001), with tags that may not follow.

B sentences, T words, K tags.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

NEVER = -1e4
"""Score of what may not be; far from -inf, so that gradients stay numbers."""


class Chain(NamedTuple):
    """Scores of a tag after another, of the first tag and of the last one."""

    follow: Float[Tensor, "K K"]
    first: Float[Tensor, " K"]
    last: Float[Tensor, " K"]


def constraints(tags: Sequence[str], may_follow: Callable[[str | None, str | None], bool]) -> Chain:
    """Return 0 for what may be and `NEVER` for what may not; None is the edge of a sentence."""

    def score(before: str | None, after: str | None) -> float:
        return 0.0 if may_follow(before, after) else NEVER

    return Chain(
        torch.tensor([[score(before, after) for after in tags] for before in tags]),
        torch.tensor([score(None, tag) for tag in tags]),
        torch.tensor([score(tag, None) for tag in tags]),
    )


class CRF(nn.Module):
    """Learned scores of neighbors, on top of the scores of each word's tags."""

    def __init__(self, allowed: Chain) -> None:
        super().__init__()
        for name, score in allowed._asdict().items():
            self.register_buffer(f"allowed_{name}", score)
            setattr(self, name, nn.Parameter(torch.zeros_like(score)))

    def chain(self) -> Chain:
        """Return the scores of neighbors."""
        return Chain(*(getattr(self, n) + getattr(self, f"allowed_{n}") for n in Chain._fields))

    def forward(
        self,
        scores: Float[Tensor, "B T K"],
        tags: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, " B"]:
        """Return -log p(tags) of each sentence, over all sequences of tags."""
        chain = self.chain()
        return log_partition(scores, mask, chain) - path_score(scores, tags, mask, chain)

    def decode(self, scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"]) -> list[list[int]]:
        """Return the best tags of each sentence."""
        return viterbi(scores, mask, self.chain())


def path_score(
    scores: Float[Tensor, "B T K"],
    tags: Int[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    chain: Chain,
) -> Float[Tensor, " B"]:
    """Add up the scores along given tags."""
    words = scores.gather(2, tags[..., None])[..., 0] * mask
    steps = chain.follow[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
    end = tags.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
    return words.sum(1) + steps.sum(1) + chain.first[tags[:, 0]] + chain.last[end]


def log_partition(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], chain: Chain
) -> Float[Tensor, " B"]:
    """Add up exp(score) over all sequences of tags: the forward algorithm."""
    total = chain.first + scores[:, 0]  # (B, K)
    for t in range(1, scores.shape[1]):
        step = (total[:, :, None] + chain.follow).logsumexp(dim=1) + scores[:, t]
        total = torch.where(mask[:, t, None], step, total)
    return (total + chain.last).logsumexp(dim=1)


@torch.no_grad()
def viterbi(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], chain: Chain
) -> list[list[int]]:
    """Return the sequence of tags with the highest score, sentence by sentence."""
    best = chain.first + scores[:, 0]  # (B, K)
    came_from = []
    for t in range(1, scores.shape[1]):
        step, before = (best[:, :, None] + chain.follow).max(dim=1)  # (B, K) each
        # Padding stays where it is, so that the way back passes through it unchanged.
        best = torch.where(mask[:, t, None], step + scores[:, t], best)
        stay = torch.arange(best.shape[1], device=best.device).expand_as(before)
        came_from.append(torch.where(mask[:, t, None], before, stay))
    tag = (best + chain.last).argmax(dim=1)  # (B,)
    path = [tag]
    for before in reversed(came_from):
        tag = before.gather(1, tag[:, None])[:, 0]
        path.append(tag)
    tags = torch.stack(path[::-1], dim=1).tolist()
    return [row[:n] for row, n in zip(tags, mask.sum(1).tolist(), strict=True)]
