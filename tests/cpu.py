"""Markers that skip tests that this CPU does not support, with the reason."""

import pytest
import torch

import elmore
from elmore.errors import InputError


def int8_problem() -> str | None:
    """Return the reason why int8 is not available on this machine, or None if it is."""
    bilm = elmore.BiLM(elmore.BiLMConfig.tiny())
    try:
        elmore.Embedder(bilm, device="cpu", precision="int8")
    except InputError as error:
        return str(error)
    return None


needs_int8 = pytest.mark.skipif(int8_problem() is not None, reason=str(int8_problem()))
_onednn = torch.backends.mkldnn.is_available()
needs_onednn = pytest.mark.skipif(not _onednn, reason="this build of PyTorch has no oneDNN")
needs_onednn_bf16 = pytest.mark.skipif(
    not (_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason="oneDNN has no bfloat16 on this CPU",
)
