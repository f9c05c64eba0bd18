"""A linear classifier of vectors, trained with early stopping on dev examples.

N training examples, M dev examples, D dim.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float, Float16, Int64
from torch import Tensor, nn

from elmore.errors import InputError
from elmore.schema import at_least, check_settings

_UNKNOWN = -1  # a label that is not in the training examples: never predicted, so always wrong


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


class LabeledVectors(NamedTuple):
    """Inputs of the classifiers, one tensor per layer, and their labels."""

    layers: list[Float16[Tensor, "N D"]]
    labels: list[str]


class ProbeScores(NamedTuple):
    """Accuracies of a probe, from 0 to 1."""

    dev: float
    test: float


def probe_layers(
    train: LabeledVectors, dev: LabeledVectors, test: LabeledVectors, config: ProbeConfig
) -> Iterator[ProbeScores]:
    """Train a linear probe on each layer; yield its accuracies.

    Args:
        train: Training examples. Labels that do not occur in them count as errors elsewhere.
        dev: Examples for early stopping.
        test: Examples to evaluate.
        config: How a probe is trained.

    Raises:
        InputError: If a part has no examples.
    """
    parts = {"train": train, "dev": dev, "test": test}
    for name, part in parts.items():
        if not part.labels:
            raise InputError(f"no examples in {name}; expected labeled sentences")
    ids = {label: k for k, label in enumerate(sorted(set(train.labels)))}
    labels, dev_labels, test_labels = (
        torch.tensor([ids.get(label, _UNKNOWN) for label in part.labels]) for part in parts.values()
    )
    for layer in zip(train.layers, dev.layers, test.layers, strict=True):
        x, dev_x, test_x = standardize(*layer)
        probe = train_probe(x, labels, dev_x, dev_labels, config)
        yield ProbeScores(accuracy(probe, dev_x, dev_labels), accuracy(probe, test_x, test_labels))


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
