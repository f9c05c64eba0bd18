"""The layers that a caller wants: all, one of them, their average or their sum.

J layers, N words, D = 2 * config.dim.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from elmore.errors import InputError

Layers = Literal["all", "top", "average", "sum"] | int


def check_layers(layers: Layers, num_layers: int) -> None:
    """Raise `InputError` unless `layers` is valid for a model with `num_layers` layers."""
    names = ("all", "top", "average", "sum", *range(num_layers))
    if layers not in names or isinstance(layers, bool):
        raise InputError(
            f"layers must be all, top, average, sum or a number from 0 to {num_layers - 1}, "
            f"got {layers!r}"
        )


def check_layer(layer: Layers, num_layers: int, argument: str = "layer") -> None:
    """Raise `InputError` unless `layer` gives one vector per word, which `all` does not."""
    if layer not in ("top", "average", *range(num_layers)) or isinstance(layer, bool):
        raise InputError(
            f"{argument} must be top, average or a number from 0 to {num_layers - 1}, got {layer!r}"
        )


def select_layers(layers: Float[Tensor, "J N D"], which: Layers) -> Float[Tensor, "*J N D"]:
    """Return all layers, one of them, their average or their sum."""
    if which == "all":
        return layers
    if which == "sum":
        return layers.sum(dim=0)
    if which == "average":
        return layers.mean(dim=0)
    return layers[-1 if which == "top" else which]
