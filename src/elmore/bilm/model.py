"""The bidirectional language model of section 3.1.

B sentences, T tokens, C characters per token, D dim, L LSTM layers, J = L + 1 layers.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.bilm.config import BiLMConfig
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.token_encoder import token_encoder
from elmore.errors import InputError

BiLMState = list[LSTMState]
"""The states of the L forward LSTMs, then those of the L backward LSTMs."""


class BiLMOutput(NamedTuple):
    """The 2L + 1 vectors R_k of each token k, as L + 1 layers h_kj = [forward; backward].

    Layer 0 is the token vector repeated, [x_k; x_k], so that all layers have the same shape.
    """

    layers: Float[Tensor, "B J T 2*D"]
    state: BiLMState


class BiLM(nn.Module):
    """A forward and a backward LSTM language model that share one token encoder.

    The directions do not interact: layer j of each reads only layer j - 1 of the same direction.
    The weights of a new biLM are random; `elmore.load` reads trained ones.

    Args:
        config: The sizes.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.encode = token_encoder(config)
        self.forward_lstms = nn.ModuleList(_lstm(config) for _ in range(config.num_layers))
        self.backward_lstms = nn.ModuleList(_lstm(config) for _ in range(config.num_layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T *C"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState | None = None,
    ) -> BiLMOutput:
        """Return all layers, and the state after the batch.

        Pass this state to the next call if the next batch continues the same texts.
        """
        check_ids(ids, self.config)
        return self.contextualize(self.encode(ids), mask, state)

    def contextualize(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState | None = None,
    ) -> BiLMOutput:
        """Return all layers for precomputed token vectors x_k."""
        lengths = mask.sum(dim=1)
        h_forward, forward_state = self.run_direction(0, x, mask, state)
        h_backward, backward_state = self.run_direction(1, flip(x, lengths), mask, state)
        pairs = [(x, x)]
        pairs += [(f, flip(b, lengths)) for f, b in zip(h_forward, h_backward, strict=True)]
        layers = torch.stack([torch.cat(pair, dim=-1) for pair in pairs], dim=1)  # (B, J, T, 2D)
        return BiLMOutput(layers * mask[:, None, :, None], forward_state + backward_state)

    def run_direction(
        self,
        d: int,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"] | None,
        state: BiLMState | None,
        keep_state: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[list[Tensor], BiLMState]:
        """Run the LSTM layers of one direction; return the output and the state of each layer.

        Args:
            d: 0 for the forward direction, 1 for the backward direction.
            x: Token vectors in the order in which the direction reads them.
            mask: See `ProjectedLSTM`.
            state: The initial state of both directions; None for zeros.
            keep_state: See `ProjectedLSTM`.
        """
        outputs: list[Tensor] = []
        states: BiLMState = []
        for j, lstm in enumerate((self.forward_lstms, self.backward_lstms)[d]):
            x = self.dropout(x)
            before = state and state[d * self.config.num_layers + j]
            h, after = lstm(x, mask, before, keep_state)
            x = h + x if self.config.residual and j > 0 else h
            outputs.append(x)
            states.append(after)
        return outputs, states


def _lstm(config: BiLMConfig) -> ProjectedLSTM:
    return ProjectedLSTM(
        in_dim=config.dim,
        dim=config.dim,
        cell_dim=config.cell_dim,
        project=config.project_cells,
        cell_clip=config.cell_clip,
        projection_clip=config.projection_clip,
    )


def check_ids(ids: Int[Tensor, "B T *C"], config: BiLMConfig) -> None:
    """Raise if the shape of the ids does not match the config."""
    expected = () if config.vocab_size is not None else (config.max_characters,)
    if ids.shape[2:] != expected:
        unit = f"{expected[0]} characters" if expected else "one id"
        raise InputError(
            f"this biLM reads {unit} per word, got ids of shape {tuple(ids.shape)}. Encode with "
            "encode_sentences(sentences, width=bilm.config.max_characters), or with the "
            "vocabulary of a word-input model."
        )


def flip(x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
    """Reverse each sentence, but not its padding: [a b c _] -> [c b a _]."""
    t = torch.arange(x.shape[1], device=x.device)
    last = lengths[:, None] - 1
    index = torch.where(t <= last, last - t, t)  # (B, T)
    return x.gather(1, index[..., None].expand_as(x))
