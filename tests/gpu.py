"""The device for tests of Triton kernels: a GPU, or a CPU with Triton's interpreter."""

from importlib.util import find_spec

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

needs_kernels = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
]
