"""The objective of section 3.1: the joint log likelihood of both directions.

2 directions, B rows of the batch, T tokens, N distinct words, D dim, L LSTM layers.
"""

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from elmore.bilm import kernels
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Negatives, Softmax
from elmore.bilm.token_encoder import CharEncoder, word_ends
from elmore.text.windows import LMBatch


class LMOutput(NamedTuple):
    """The loss of one batch, and the LSTM states after its last tokens."""

    loss: Float[Tensor, ""]
    """Mean negative log likelihood per token, averaged over both directions."""

    losses: Float[Tensor, " 2"]
    """The mean negative log likelihood of each direction, detached, for logging."""

    state: BiLMState


class LanguageModel(nn.Module):
    """A biLM and the softmax layer that its two directions share.

    It has a single `forward`, so that DDP and FSDP can wrap it.
    """

    def __init__(self, bilm: BiLM, softmax: Softmax) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax

    def forward(
        self,
        batch: LMBatch,
        state: BiLMState | None = None,
        negatives: Negatives | None = None,
    ) -> LMOutput:
        """Return the loss of a batch: full softmax, or sampled softmax if `negatives` are given.

        Args:
            batch: A window of T tokens from each row of text.
            state: The state after the previous window; None for zeros.
            negatives: The sampled words.
        """
        use_kernels = kernels.usable(batch.words) and self.bilm.config.project_cells
        run = _run_kernels if use_kernels else _run_reference
        h, after = run(self.bilm, batch, state)
        h = self.bilm.dropout(h).flatten(0, -2)
        nll = self.softmax(h, batch.targets.mT.flatten(), negatives)
        losses = nll.unflatten(0, (2, -1)).mean(dim=1)
        # Truncated back-propagation through time: gradients stop at the start of the next window.
        after = [LSTMState(s.output.detach(), s.cell.detach()) for s in after]
        return LMOutput(losses.mean(), losses.detach(), after)


def _run_reference(
    bilm: BiLM, batch: LMBatch, state: BiLMState | None
) -> tuple[Float[Tensor, "2 T B D"], BiLMState]:
    """Return the top layer and the states of both directions, computed in plain PyTorch."""
    vectors = bilm.encode(batch.distinct.long())  # (N, D)
    x = functional.embedding(batch.words.long(), vectors)  # (2, B, T, D)
    forward, forward_state = bilm.run_direction(0, x[0], None, state, batch.keep_state[0])
    backward, backward_state = bilm.run_direction(1, x[1], None, state, batch.keep_state[1])
    top = torch.stack([forward[-1], backward[-1]]).transpose(1, 2)
    return top, forward_state + backward_state


def _run_kernels(
    bilm: BiLM, batch: LMBatch, state: BiLMState | None
) -> tuple[Float[Tensor, "2 T B D"], BiLMState]:
    """Return the same, computed by kernels that run both directions together."""
    from elmore.bilm.kernels.characters import encode
    from elmore.bilm.kernels.lstm import run_layer

    distinct, words = batch.distinct.long(), batch.words.mT.long()
    if isinstance(bilm.encode, CharEncoder):
        order = word_ends(distinct).argsort()  # each thread block gets words of similar length
        vectors = encode(bilm.encode, distinct[order])
        words = order.argsort()[words]
    else:
        vectors = bilm.encode(distinct)
    x = functional.embedding(words, vectors.to(kernels.compute_dtype(vectors)))  # (2, T, B, D)
    L = bilm.config.num_layers
    forward_state, backward_state = [], []
    pairs = zip(bilm.forward_lstms, bilm.backward_lstms, strict=True)
    for j, lstms in enumerate(cast("Iterable[tuple[ProjectedLSTM, ProjectedLSTM]]", pairs)):
        x = bilm.dropout(x)
        before = (state[j], state[L + j]) if state else None
        h, after = run_layer(x, lstms, before, batch.keep_state.mT)
        x = h + x if bilm.config.residual and j > 0 else h
        forward_state.append(after[0])
        backward_state.append(after[1])
    return x, forward_state + backward_state
