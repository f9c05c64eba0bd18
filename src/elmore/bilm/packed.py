"""A biLM for inference on a CPU: the same numbers from weights that are laid out for it.

oneDNN multiplies in blocks. A plain matrix is cut into blocks anew for every product, and a
recurrent layer has a product for every token: that is most of its time. A packed one is cut once.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.bilm.model import BiLM


def can_pack(bilm: BiLM) -> bool:
    """Tell whether a biLM is where packed weights are of use: on a CPU with oneDNN, in float32."""
    weight = next(bilm.parameters())
    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, _REORDER)
    return has_onednn and weight.device.type == "cpu" and weight.dtype == torch.float32


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


_REORDER = "_reorder_linear_weight"


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
