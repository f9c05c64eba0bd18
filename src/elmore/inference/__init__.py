"""A frozen biLM, run fast: the layers of `elmore.bilm.model.BiLM`, from weights of its own.

Every engine has the contract of `engine.Engine`:

    encode(ids) -> token vectors                                  each word without context
    run(table, words, lengths, start) -> layers                   independent sentences
    run_with_state(table, tokens, lengths, state) -> layers, state    texts that continue

`reference.py` is plain PyTorch, `cpu.py` packs the weight matrices for oneDNN or FBGEMM, `cuda.py`
runs Triton kernels in captured CUDA graphs. Around them:

    word_cache.py   words -> rows of a table of token vectors, each distinct word encoded once
    batches.py      the batching loop of `Embedder`: sentences -> numpy arrays
    padded.py       padded batches, as `Elmo` has them -> layers as a padded tensor
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
