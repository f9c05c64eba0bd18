"""Whether weights have changed."""

import torch
from torch import Tensor, nn


def fingerprint(module: nn.Module) -> list[tuple[int, int, int]]:
    """Return what changes with the weights: where they are, how often they were changed, their sum.

    PyTorch counts the versions of a tensor, but not those that fused optimizers make. So their bits
    are summed up too: for the paper's model in a hundredth of the time of 32 sentences.
    """
    weights = list(module.parameters())
    sums = torch.stack([_sum_of_bits(weight) for weight in weights]).tolist()
    return [(w.data_ptr(), _version(w), bits) for w, bits in zip(weights, sums, strict=True)]


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version  # those of inference mode have none


def _sum_of_bits(weight: Tensor) -> Tensor:
    """Add up a weight as whole numbers, of eight bytes where it can be cut into those."""
    flat = weight.detach().flatten()
    bounds = (int(flat.storage_offset()) * flat.itemsize, flat.nbytes)
    eights = all(bound % 8 == 0 for bound in bounds)
    return flat.view(torch.int64 if eights else torch.uint8).sum()
