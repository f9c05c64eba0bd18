"""Products with matrices that oneDNN or FBGEMM has laid out for itself, on a CPU.

I inputs, O outputs.
"""

import warnings
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.bilm.softmax import Softmax

_LOGITS_AT_ONCE = 2**24  # 64 MB in float32

Arithmetic = Literal["float", "int8"]
"""`float` is that of the weights, float32 or bfloat16."""


def can_pack(arithmetic: Arithmetic = "float") -> bool:
    """Tell whether PyTorch has what packing needs."""
    if arithmetic == "int8" and "x86" not in torch.backends.quantized.supported_engines:
        return False
    return torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    )


def pack_matrix(
    weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None, arithmetic: Arithmetic
) -> "PackedFloat | PackedInt8":
    """Pack a matrix for the arithmetic that is wanted."""
    return (PackedInt8 if arithmetic == "int8" else PackedFloat)(weight, bias)


class PackedFloat(nn.Module):
    """x W^T + b, with the matrix in oneDNN's own layout."""

    def __init__(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Multiply."""
        return torch.ops.mkldnn._linear_pointwise(
            x.contiguous(), self._weight, self._bias, "none", [], ""
        )

    def unpack(self) -> tuple[Float[Tensor, "O I"], Float[Tensor, " O"] | None]:
        """Return the matrix, and what is added, as they were."""
        return self._weight.to_dense(), self._bias


class PackedConv(PackedFloat):
    """A convolution as a product of all windows with all filters: three times as fast for these.

    N words, E character dim, C characters, P = C - width + 1 windows, F filters.
    """

    def __init__(self, weight: Float[Tensor, "F E width"], bias: Float[Tensor, " F"]) -> None:
        super().__init__(weight.flatten(1), bias)
        self._filters, _, self._width = weight.shape

    def forward(self, x: Float[Tensor, "N E C"]) -> Float[Tensor, "N F P"]:
        """Apply all filters everywhere."""
        windows = x.unfold(2, self._width, 1).transpose(1, 2)  # (N, P, E, width)
        return super().forward(windows.flatten(2)).transpose(1, 2)

    def unpack(self) -> tuple[Float[Tensor, "F E width"], Float[Tensor, " F"] | None]:
        """Return filters and what is added as they were."""
        weight, bias = super().unpack()
        return weight.view(self._filters, -1, self._width), bias


class PackedInt8(nn.Module):
    """x W^T + b in whole numbers; a row of the matrix has a step of its own."""

    def __init__(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> None:
        super().__init__()
        weight = weight.detach().float().contiguous()
        step = weight.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zero = torch.zeros(len(step), dtype=torch.long)
        with warnings.catch_warnings():  # PyTorch would have us use a package of its own
            warnings.simplefilter("ignore")
            whole = torch.quantize_per_channel(weight, step, zero, 0, torch.qint8)
            self._weight = torch.ops.quantized.linear_prepack(
                whole, None if bias is None else bias.detach().float()
            )

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Multiply."""
        return torch.ops.quantized.linear_dynamic(x, self._weight, False)


class PackedSoftmax:
    """What `Softmax` computes over all words, from packed output vectors."""

    def __init__(self, softmax: Softmax) -> None:
        self._logits = PackedFloat(softmax.weight, softmax.bias)
        self._rows = max(1, _LOGITS_AT_ONCE // len(softmax.bias))

    def __call__(self, h: Float[Tensor, "M D"], targets: Int[Tensor, " M"]) -> Float[Tensor, " M"]:
        """Return -log p(target) at every position."""
        parts = zip(h.split(self._rows), targets.split(self._rows), strict=True)
        return torch.cat(
            [
                functional.cross_entropy(self._logits(some), right, reduction="none")
                for some, right in parts
            ]
        )
