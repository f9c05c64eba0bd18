"""A biLM for inference on a CPU: the same numbers from weights that are laid out for it.

oneDNN multiplies in blocks. A plain matrix is cut into blocks anew for every product, and a
recurrent layer has a product for every token: that is most of its time. A packed one is cut once.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.bilm.model import BiLM

_REORDER = "_reorder_linear_weight"
_SMALLEST = 2**16  # below this, a product takes less time than to find out how to do it


def can_pack() -> bool:
    """Tell whether PyTorch has what packing needs."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, _REORDER)


def worth_packing(bilm: BiLM) -> bool:
    """Tell whether packed weights are of use: on a CPU, in float32, for large matrices."""
    weight = next(bilm.parameters())
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32
    return plain and bilm.config.dim * bilm.config.cell_dim >= _SMALLEST and can_pack()


def pack(bilm: BiLM) -> BiLM:
    """Return a twin that computes the same from packed copies of the matrices."""
    with torch.device("meta"):
        twin = BiLM(bilm.config)
    twin.load_state_dict(bilm.state_dict(), assign=True)
    for module in list(twin.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child))
    return twin.eval()


class PackedLinear(nn.Module):
    """nn.Linear with its matrix in oneDNN's own layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Apply the layer."""
        return torch.ops.mkldnn._linear_pointwise(
            x.contiguous(), self._weight, self._bias, "none", [], ""
        )
