"""A linear-chain conditional random field (Lafferty et al., 2001) with constrained transitions.

B sentences, T words, K tags.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

FORBIDDEN = -1e4
"""Score of a forbidden transition; finite, so that no gradient becomes NaN."""


class Transitions(NamedTuple):
    """Scores of transitions between tags, of the first tag and of the last tag."""

    follow: Float[Tensor, "K K"]
    first: Float[Tensor, " K"]
    last: Float[Tensor, " K"]


def constraints(
    tags: Sequence[str], may_follow: Callable[[str | None, str | None], bool]
) -> Transitions:
    """Return 0 for allowed and `FORBIDDEN` for forbidden transitions.

    Args:
        tags: All tags.
        may_follow: Whether the second tag may follow the first; None is the boundary of a sentence.
    """

    def score(before: str | None, after: str | None) -> float:
        return 0.0 if may_follow(before, after) else FORBIDDEN

    return Transitions(
        torch.tensor([[score(before, after) for after in tags] for before in tags]),
        torch.tensor([score(None, tag) for tag in tags]),
        torch.tensor([score(tag, None) for tag in tags]),
    )


class CRF(nn.Module):
    """Learned transition scores on top of the tag scores of each word."""

    def __init__(self, allowed: Transitions) -> None:
        super().__init__()
        for name, score in allowed._asdict().items():
            self.register_buffer(f"allowed_{name}", score)
            setattr(self, name, nn.Parameter(torch.zeros_like(score)))

    def transitions(self) -> Transitions:
        """Return the learned scores plus the constraints."""
        return Transitions(
            *(getattr(self, n) + getattr(self, f"allowed_{n}") for n in Transitions._fields)
        )

    def forward(
        self,
        scores: Float[Tensor, "B T K"],
        tags: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, " B"]:
        """Return the negative log-likelihood of the tags of each sentence."""
        transitions = self.transitions()
        total = log_partition(scores, mask, transitions)
        return total - path_score(scores, tags, mask, transitions)

    def decode(self, scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"]) -> list[list[int]]:
        """Return the best tags of each sentence."""
        return viterbi(scores, mask, self.transitions())

    @torch.no_grad()
    def probabilities(
        self,
        scores: Float[Tensor, "B T K"],
        mask: Bool[Tensor, "B T"],
        tags: Sequence[tuple[int, int, Sequence[int]]],
    ) -> list[float]:
        """Return the probabilities of tags of adjacent words, whatever the other words' tags are.

        Args:
            scores: Tag scores of each word.
            mask: Which words are not padding.
            tags: The row of a sentence, the position of the first word, and one or more tags.
        """
        if not tags:
            return []
        # In double precision: the sums over a long sentence are large, their differences small.
        scores = scores.double()
        transitions = Transitions(*(x.double() for x in self.transitions()))
        before = torch.stack(forward_scores(scores, mask, transitions), dim=1)
        after = torch.stack(backward_scores(scores, mask, transitions), dim=1)
        total = (before[:, -1] + transitions.last).logsumexp(dim=1)
        # A few transfers from a GPU, however many spans there are.
        scores, before, after, total, follow = (
            x.cpu() for x in (scores, before, after, total, transitions.follow)
        )
        log_p = []
        for row, start, path in tags:
            last = start + len(path) - 1
            inner = scores[row, range(start + 1, last + 1), path[1:]].sum()
            steps = follow[path[:-1], path[1:]].sum()
            ends = before[row, start, path[0]] + after[row, last, path[-1]]
            log_p.append(ends + inner + steps - total[row])
        return torch.stack(log_p).exp().clamp(max=1).tolist()


def path_score(
    scores: Float[Tensor, "B T K"],
    tags: Int[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    transitions: Transitions,
) -> Float[Tensor, " B"]:
    """Return the score of the given tags of each sentence."""
    words = scores.gather(2, tags[..., None])[..., 0] * mask
    steps = transitions.follow[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
    end = tags.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
    return words.sum(1) + steps.sum(1) + transitions.first[tags[:, 0]] + transitions.last[end]


def log_partition(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], transitions: Transitions
) -> Float[Tensor, " B"]:
    """Return the log of the sum of exp(score) over all tag sequences."""
    last = forward_scores(scores, mask, transitions)[-1]
    return (last + transitions.last).logsumexp(dim=1)


def forward_scores(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], transitions: Transitions
) -> list[Float[Tensor, "B K"]]:
    """Return, for each word and tag, the log of the sum over all tag sequences that end there.

    This is the forward algorithm. At padding, the values of the last word are repeated.
    """
    total = [transitions.first + scores[:, 0]]
    for t in range(1, scores.shape[1]):
        step = (total[-1][:, :, None] + transitions.follow).logsumexp(dim=1) + scores[:, t]
        total.append(torch.where(mask[:, t, None], step, total[-1]))
    return total


def backward_scores(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], transitions: Transitions
) -> list[Float[Tensor, "B K"]]:
    """Return, for each word and tag, the log of the sum over all continuations after the word.

    This is the backward algorithm. The score of the word itself is not included.
    """
    total = [transitions.last.expand(len(scores), -1)]
    for t in range(scores.shape[1] - 1, 0, -1):
        step = (transitions.follow + (scores[:, t] + total[-1])[:, None]).logsumexp(dim=2)
        total.append(torch.where(mask[:, t, None], step, total[-1]))
    return total[::-1]


@torch.no_grad()
def viterbi(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], transitions: Transitions
) -> list[list[int]]:
    """Return the tag sequence with the highest score of each sentence."""
    best = transitions.first + scores[:, 0]  # (B, K)
    backpointers = []
    for t in range(1, scores.shape[1]):
        step, before = (best[:, :, None] + transitions.follow).max(dim=1)  # (B, K) each
        # At padding, scores stay as they are and backpointers point to the same tag.
        best = torch.where(mask[:, t, None], step + scores[:, t], best)
        same = torch.arange(best.shape[1], device=best.device).expand_as(before)
        backpointers.append(torch.where(mask[:, t, None], before, same))
    tag = (best + transitions.last).argmax(dim=1)  # (B,)
    path = [tag]
    for before in reversed(backpointers):
        tag = before.gather(1, tag[:, None])[:, 0]
        path.append(tag)
    tags = torch.stack(path[::-1], dim=1).tolist()
    return [row[:n] for row, n in zip(tags, mask.sum(1).tolist(), strict=True)]
