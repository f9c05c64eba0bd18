"""Engines that run a frozen biLM and own their copy of its weights.

`new_engine` returns the fastest engine for a model and its device.

    engine.py       the contract of all engines
    reference.py    plain PyTorch, on any device
    cpu.py          weight matrices packed for oneDNN or FBGEMM (packed.py)
    cuda.py         Triton kernels in captured CUDA graphs (layout.py, waves.py)

    batches.py      sentences -> numpy arrays, for `Embedder` (fetch.py copies them from a GPU)
    padded.py       padded batches -> padded layers, for `Elmo`
    word_cache.py   words -> token vectors, each distinct word encoded once, for both
"""

from elmore.bilm import kernels
from elmore.bilm.model import BiLM
from elmore.errors import InputError
from elmore.inference.engine import Engine


def new_engine(bilm: BiLM, *, int8: bool = False) -> Engine:
    """Return the fastest engine for a biLM on its device, in its dtype.

    The engine takes the model over and may take it apart to save memory: pass a copy of a model
    that is still needed.

    Args:
        bilm: The model.
        int8: Multiply the LSTM matrices in int8; needs an x86 CPU.
    """
    from elmore.inference.cpu import CpuEngine, int8_problem, worth_packing
    from elmore.inference.reference import ReferenceEngine

    bilm = bilm.eval().requires_grad_(False)
    weight = next(bilm.parameters())
    if int8:
        if problem := int8_problem(weight.device):
            raise InputError(problem)
        return CpuEngine(bilm.float(), int8=True)
    if worth_packing(bilm):
        return CpuEngine(bilm)
    if kernels.usable(weight) and bilm.config.project_cells:
        from elmore.inference.cuda import CudaEngine

        return CudaEngine(bilm)
    return ReferenceEngine(bilm)
