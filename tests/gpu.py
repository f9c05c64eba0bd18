"""Where kernels run in tests: on a GPU, or in Triton's interpreter with TRITON_INTERPRET=1."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"

needs_kernels = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu" and not INTERPRET, reason="needs a CUDA device"),
]
