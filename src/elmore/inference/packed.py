"""Linear and convolutional layers with weights packed for oneDNN or FBGEMM.

I inputs, O outputs.
"""

import warnings
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Return whether oneDNN packs matrices of a dtype on this CPU."""
    if not (
        torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    ):
        return False
    # oneDNN packs bfloat16 on CPUs with AVX-512 or AVX-NE-CONVERT only.
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def int8_supported() -> bool:
    """Return whether this build of PyTorch can multiply int8 matrices on this CPU."""
    return can_pack() and "x86" in torch.backends.quantized.supported_engines


def pack_layers(module: nn.Module) -> None:
    """Replace all linear and convolutional layers inside a module by packed ones."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child.weight, child.bias))
        elif isinstance(child, nn.Conv1d):
            setattr(module, name, PackedConv1d(child.weight, child.bias))
        else:
            pack_layers(child)


class PackedLinear(nn.Module):
    """x W^T + b, with the matrix in oneDNN's layout."""

    def __init__(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Return x W^T + b."""
        return torch.ops.mkldnn._linear_pointwise(
            x.contiguous(), self._weight, self._bias, "none", [], ""
        )


class PackedConv1d(PackedLinear):
    """A convolution as one product of all windows with all filters, which is faster here.

    N words, E character dim, C characters, P = C - width + 1 windows, F filters.
    """

    def __init__(
        self, weight: Float[Tensor, "F E width"], bias: Float[Tensor, " F"] | None
    ) -> None:
        super().__init__(weight.flatten(1), bias)
        self._width = weight.shape[2]

    def forward(self, x: Float[Tensor, "N E C"]) -> Float[Tensor, "N F P"]:
        """Return the convolution of x."""
        windows = x.unfold(2, self._width, 1).transpose(1, 2)  # (N, P, E, width)
        return super().forward(windows.flatten(2)).transpose(1, 2)


class PackedInt8(nn.Module):
    """x W^T + b in int8: dynamic quantization, per-channel weights, per-tensor activations."""

    def __init__(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> None:
        super().__init__()
        weight = weight.detach().float().contiguous()
        scale = weight.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zero_point = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():  # PyTorch deprecates its quantized tensors for torchao
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_channel(weight, scale, zero_point, 0, torch.qint8)
            self._weight = torch.ops.quantized.linear_prepack(
                quantized, None if bias is None else bias.detach().float()
            )
        self._reduce_range = not has_vnni()

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Return x W^T + b."""
        return torch.ops.quantized.linear_dynamic(x, self._weight, self._reduce_range)


@cache
def has_vnni() -> bool:
    """Return whether the CPU accumulates int8 products in int32 (VNNI).

    Without VNNI, pairs of products are added in int16 and saturate unless activations use 7 bits.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux: 7 bits are safe everywhere
        return False
    return "avx512_vnni" in flags or "avx_vnni" in flags
