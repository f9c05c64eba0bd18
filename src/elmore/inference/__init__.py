"""Fast inference with a frozen biLM. `new_engine` returns the fastest engine for a model.

words -> WordCache -> table of token vectors, table row of each word -> Engine -> layers

    word_cache.py   words -> token vectors; each distinct word is encoded once
    engine.py       the interface of all engines
    reference.py    plain PyTorch, on any device
    cpu.py          weight matrices packed for oneDNN or FBGEMM (packed.py)
    cuda.py         Triton kernels in captured CUDA graphs (layout.py, waves.py)
    batches.py      sentences -> numpy arrays, for `Embedder`; fetch.py copies from a GPU
    padded.py       padded batches -> padded layers, for `Elmo`
"""

from elmore.bilm import kernels
from elmore.bilm.model import BiLM
from elmore.errors import InputError
from elmore.inference.cpu import CpuEngine, worth_packing
from elmore.inference.engine import Engine
from elmore.inference.packed import int8_supported
from elmore.inference.reference import ReferenceEngine


def new_engine(bilm: BiLM, *, int8: bool = False) -> Engine:
    """Return the fastest engine for a biLM on its device, in its dtype.

    The engine owns the model and may delete its layers to save memory: pass a copy if you still
    need it.

    Args:
        bilm: The model.
        int8: Multiply the LSTM matrices in int8.

    Raises:
        InputError: If int8 is not supported on the device of the model.
    """
    bilm = bilm.eval().requires_grad_(False)
    weight = next(bilm.parameters())
    if int8:
        if weight.device.type != "cpu":
            raise InputError(f"int8 needs an x86 CPU, not {weight.device}; try bf16")
        if not int8_supported():
            raise InputError("int8 needs an x86 CPU and PyTorch with FBGEMM; try bf16")
        return CpuEngine(bilm.float(), int8=True)
    if worth_packing(bilm):
        return CpuEngine(bilm)
    if kernels.usable(weight) and bilm.config.project_cells:
        from elmore.inference.cuda import CudaEngine

        return CudaEngine(bilm)
    return ReferenceEngine(bilm)
