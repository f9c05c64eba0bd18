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
from jaxtyping import Float
from torch import Tensor

from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMState
from elmore.inference.engine import Engine, TokenRows

LONG = 8192
"""Sentences with more words than this are computed in chunks."""
_CHUNK = 2048

Select = Callable[[Float[Tensor, "J N D"]], Float[Tensor, "*J N D"]]
"""Selects, averages or sums layers, and converts them to the output dtype.

Each dimension is computed independently of the others.
"""


def run_batch(
    engine: Engine, tokens: TokenRows, start: BiLMState, select: Select
) -> Float[Tensor, "*J N 2*D"]:
    """Return selected layers of what `Engine.run` takes; one long sentence is run in chunks."""
    if len(tokens.lengths) == 1 and len(tokens.rows) > LONG:
        return _run_long(engine, tokens, start, select)
    return select(engine.run(tokens, start))


def _run_long(
    engine: Engine, tokens: TokenRows, start: BiLMState, select: Select
) -> Float[Tensor, "*J N 2*D"]:
    """Return the selected layers of one sentence; beside them, only two chunks are in memory."""
    N, D = len(tokens.rows), engine.config.dim
    bounds = np.linspace(0, N, -(-N // _CHUNK) + 1).astype(int).tolist()
    chunks = [slice(*ends) for ends in pairwise(bounds)]
    state = [LSTMState(h.expand(2, -1), c.expand(2, -1)) for h, c in start]
    result: Tensor | None = None
    for ahead, behind in zip(chunks, reversed(chunks), strict=True):
        rows = [tokens.rows[ahead], tokens.rows[behind]]
        lengths = np.array([len(words) for words in rows])
        both = TokenRows(tokens.table, np.concatenate(rows), lengths)
        layers, state = engine.run_with_state(both, state)
        forward = select(layers[:, : lengths[0], :D])
        backward = select(layers[:, lengths[0] :, D:])
        if result is None:
            shape = (*forward.shape[:-2], N, 2 * D)
            result = torch.empty(shape, dtype=forward.dtype, device=forward.device)
        result[..., ahead, :D] = forward
        result[..., behind, D:] = backward
    assert result is not None, "a long sentence has words"
    return result
