"""The bidirectional language model of section 3.1.

B sentences, T tokens, C characters per token, D dim, L LSTM layers, J = L + 1 layers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.bilm.config import BiLMConfig
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.token_encoder import token_encoder
from elmore.errors import InputError

BiLMState = list[LSTMState]
"""L states of the forward LSTMs, then L of the backward ones."""


class BiLMOutput(NamedTuple):
    """R_k, the 2L + 1 vectors of every token, as L + 1 layers of [forward; backward].

    Layer 0 is the token vector twice, [x_k; x_k], so that all layers have one shape.
    """

    layers: Float[Tensor, "B J T 2*D"]
    state: BiLMState


class BiLM(nn.Module):
    """A forward and a backward LSTM language model that share one token encoder.

    The two directions never see each other: layer j of one reads layer j - 1 of the same.
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
        """Return all layers, and the state to pass on if the next batch continues this text."""
        check_ids(ids, self.config)
        return self.contextualize(self.encode(ids), mask, state)

    def contextualize(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState | None = None,
    ) -> BiLMOutput:
        """Run both directions over token vectors."""
        lengths = mask.sum(dim=1)
        L = self.config.num_layers
        before: Sequence[LSTMState | None] = state or [None] * (2 * L)
        ahead, ahead_state = self.run_stack(self.forward_lstms, x, mask, before[:L])
        behind, behind_state = self.run_stack(
            self.backward_lstms, flip(x, lengths), mask, before[L:]
        )
        pairs = [(x, x), *((a, flip(b, lengths)) for a, b in zip(ahead, behind, strict=True))]
        layers = torch.stack([torch.cat(pair, dim=-1) for pair in pairs], dim=1)  # (B, J, T, 2D)
        return BiLMOutput(layers * mask[:, None, :, None], ahead_state + behind_state)

    def run_stack(
        self,
        lstms: nn.ModuleList,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"] | None,
        before: Sequence[LSTMState | None],
        continues: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[list[Tensor], BiLMState]:
        """Run the layers of one direction; return each one's output and state."""
        outputs: list[Tensor] = []
        states: BiLMState = []
        for j, (lstm, state) in enumerate(zip(lstms, before, strict=True)):
            x = self.dropout(x)
            h, after = lstm(x, mask, state, continues)
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
    """Raise unless ids have the shape that a biLM reads."""
    expected = () if config.vocab_size is not None else (config.max_characters,)
    if ids.shape[2:] != expected:
        wants = f"{expected[0]} characters" if expected else "one id"
        raise InputError(
            f"this biLM reads {wants} per word, got ids of shape {tuple(ids.shape)}. Encode with "
            "encode_sentences(sentences, width=bilm.config.max_characters), or with the "
            "vocabulary of a word-input model."
        )


def flip(x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
    """Reverse each sentence and leave its padding where it is: [a b c _] -> [c b a _]."""
    t = torch.arange(x.shape[1], device=x.device)
    last = lengths[:, None] - 1
    index = torch.where(t <= last, last - t, t)  # (B, T)
    return x.gather(1, index[..., None].expand_as(x))
