"""Sentences too long for one batch: each direction reads them from its own end, chunk by chunk.

The LSTMs of the two directions are independent. While the forward LSTMs read chunk k from the
start, the backward LSTMs read chunk k from the end. Both chunks are rows of one batch:

    row 0  [a b] [c d] [e f]  ->   forward vectors and state are valid
    row 1  [e f] [c d] [a b]  ->   backward vectors and state are valid

The other halves are computed in vain. That takes less than twice the time, because both rows share
each read of the weights.

N tokens of a sentence, V token vectors, D dim, J layers.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMState
from elmore.inference.engine import Engine

LONG = 8192
"""Sentences with more words than this are computed in chunks."""
_CHUNK = 2048

Select = Callable[[Float[Tensor, "J N D"]], Float[Tensor, "*J N D"]]
"""Selects, averages or sums layers, and converts them to the output dtype.

Each dimension is computed independently of the others.
"""


def run_batch(
    engine: Engine,
    table: Float[Tensor, "V D"],
    table_rows: Int[np.ndarray, " N"],
    lengths: Int[np.ndarray, " B"],
    start: BiLMState,
    select: Select,
) -> Float[Tensor, "*J N 2*D"]:
    """Return selected layers of what `Engine.run` takes; one long sentence is run in chunks."""
    if len(lengths) == 1 and len(table_rows) > LONG:
        return _run_long(engine, table, table_rows, start, select)
    return select(engine.run(table, table_rows, lengths, start))


def _run_long(
    engine: Engine,
    table: Float[Tensor, "V D"],
    table_rows: Int[np.ndarray, " N"],
    start: BiLMState,
    select: Select,
) -> Float[Tensor, "*J N 2*D"]:
    """Return the selected layers of one sentence; beside them, only two chunks are in memory."""
    N, D = len(table_rows), engine.config.dim
    bounds = np.linspace(0, N, -(-N // _CHUNK) + 1).astype(int).tolist()
    chunks = [slice(*ends) for ends in pairwise(bounds)]
    state = [LSTMState(h.expand(2, -1), c.expand(2, -1)) for h, c in start]
    result: Tensor | None = None
    for ahead, behind in zip(chunks, reversed(chunks), strict=True):
        rows = [table_rows[ahead], table_rows[behind]]
        lengths = np.array([len(words) for words in rows])
        layers, state = engine.run_with_state(table, np.concatenate(rows), lengths, state)
        forward = select(layers[:, : lengths[0], :D])
        backward = select(layers[:, lengths[0] :, D:])
        if result is None:
            shape = (*forward.shape[:-2], N, 2 * D)
            result = torch.empty(shape, dtype=forward.dtype, device=forward.device)
        result[..., ahead, :D] = forward
        result[..., behind, D:] = backward
    assert result is not None, "a long sentence has words"
    return result
