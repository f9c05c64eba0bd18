"""A linear classifier of vectors, trained with early stopping on dev examples.

N training examples, M dev examples, D dim.
"""

import copy
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float, Float16, Int64
from torch import Tensor, nn

from elmore.schema import at_least, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeConfig:
    """How a probe is trained."""

    batch_size: Annotated[int, at_least(1)] = 256
    """Examples per step."""

    learning_rate: float = 3e-3
    """Learning rate of Adam."""

    max_epochs: Annotated[int, at_least(1)] = 50
    """Maximum number of epochs."""

    patience: Annotated[int, at_least(1)] = 5
    """Stop after this many epochs without improvement of the dev accuracy."""

    seed: int = 0
    """Seed for the order of the examples."""

    def __post_init__(self) -> None:
        check_settings(self, "probe")


def train_probe(
    x: Float[Tensor, "N D"],
    labels: Int64[Tensor, " N"],
    dev_x: Float[Tensor, "M D"],
    dev_labels: Int64[Tensor, " M"],
    config: ProbeConfig,
) -> nn.Linear:
    """Train a linear softmax classifier; return the one with the best dev accuracy."""
    probe = nn.Linear(x.shape[1], int(labels.max()) + 1)
    # The loss is convex, so zeros are as good as random weights, and need no seed.
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.Adam(probe.parameters(), lr=config.learning_rate)
    generator = torch.Generator().manual_seed(config.seed)
    best, best_accuracy, epochs_without_improvement = probe, -1.0, 0
    for _ in range(config.max_epochs):
        for batch in torch.randperm(len(x), generator=generator).split(config.batch_size):
            loss = nn.functional.cross_entropy(probe(x[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dev_accuracy = accuracy(probe, dev_x, dev_labels)
        if dev_accuracy > best_accuracy:
            best, best_accuracy = copy.deepcopy(probe), dev_accuracy
            epochs_without_improvement = 0
        else:
            epochs_without_improvement += 1
        if epochs_without_improvement == config.patience:
            break
    return best


@torch.inference_mode()
def accuracy(probe: nn.Linear, x: Float[Tensor, "N D"], labels: Int64[Tensor, " N"]) -> float:
    """Return the share of the examples whose label is predicted."""
    return (probe(x).argmax(dim=-1) == labels).double().mean().item()


def standardize(
    train: Float16[Tensor, "N D"], *others: Float16[Tensor, "_ D"]
) -> list[Float[Tensor, "_ D"]]:
    """Standardize each dimension with the mean and variance of the training examples.

    The transformation is linear, so the probe stays a linear function of the layer. It lets all
    layers and dimensions share one learning rate.
    """
    std, mean = torch.std_mean(train.float(), dim=0, correction=0)
    std = std.clamp(min=1e-6)  # avoids division by zero in constant dimensions
    return [(x.float() - mean).div_(std) for x in (train, *others)]
