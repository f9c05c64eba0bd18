"""Rules that map each HDF5 dataset of the released models to parameters of `BiLM`, and back."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig

CELL = "MultiRNNCell/Cell{}/LSTMCell"
ONLY_CELL = "LSTMCell"
"""HDF5 path of the cell in a one-layer model written by bilm-tf, which cannot read it itself."""


class Rule(NamedTuple):
    """Maps the HDF5 dataset `theirs` to the parameters `ours`, and back."""

    theirs: str
    ours: tuple[str, ...]
    read: Callable[[Tensor], tuple[Tensor, ...]]
    write: Callable[..., Tensor]


def same(theirs: str, ours: str) -> Rule:
    """Map a dataset to a parameter without a change."""
    return Rule(theirs, (ours,), lambda x: (x,), lambda x: x)


def transposed(theirs: str, ours: str) -> Rule:
    """Map a matrix to its transpose: TensorFlow computes x @ W, PyTorch x @ W.T."""
    return Rule(theirs, (ours,), lambda x: (x.T,), lambda x: x.T)


def convolution(theirs: str, ours: str) -> Rule:
    """Map a convolution: (1, width, in, out) <-> (out, in, width)."""
    return Rule(
        theirs, (ours,), lambda x: (x[0].permute(2, 1, 0),), lambda x: x.permute(2, 1, 0)[None]
    )


def table(theirs: str, ours: str) -> Rule:
    """Map an embedding table. Ours has a row for the padding id 0; theirs starts at id 1."""
    return Rule(
        theirs, (ours,), lambda x: (torch.cat([torch.zeros_like(x[:1]), x]),), lambda x: x[1:]
    )


def gates(theirs: str, ours: str, in_dim: int) -> Rule:
    """Map one matrix (in + out, 4H), gates i g f o, to input and recurrent ones, gates i f g o."""
    return Rule(
        theirs,
        (f"{ours}.input.weight", f"{ours}.recurrent.weight"),
        lambda x: (swap_gates(x[:in_dim].T), swap_gates(x[in_dim:].T)),
        lambda i, r: torch.cat([swap_gates(i).T, swap_gates(r).T]),
    )


def gate_bias(theirs: str, ours: str) -> Rule:
    """Map the bias of the gates. TensorFlow adds 1 to the forget gate at run time; ours has it."""

    def add_to_forget_gate(x: Tensor, value: int) -> Tensor:
        i, f, g, o = x.chunk(4)
        return torch.cat([i, f + value, g, o])

    return Rule(
        theirs,
        (f"{ours}.input.bias",),
        lambda x: (add_to_forget_gate(swap_gates(x), 1),),
        lambda x: swap_gates(add_to_forget_gate(x, -1)),
    )


def swap_gates(x: Tensor) -> Tensor:
    """Reorder gates along the first axis: [i g f o] <-> [i f g o]."""
    i, second, third, o = x.chunk(4)
    return torch.cat([i, third, second, o])


def rules(config: BiLMConfig, cell: str) -> Iterator[Rule]:
    """Yield one rule per dataset; `cell` is the HDF5 path of a layer, as a format string."""
    if config.vocab_size is not None:
        yield table("embedding", "encode.embed.weight")
    else:
        yield table("char_embed", "encode.embed.weight")
        for n in range(len(config.filters)):
            yield convolution(f"CNN/W_cnn_{n}", f"encode.convs.{n}.weight")
            yield same(f"CNN/b_cnn_{n}", f"encode.convs.{n}.bias")
        for n in range(config.num_highways):
            for ours, theirs in (("gate", "carry"), ("transform", "transform")):
                path = f"encode.highways.{n}.{ours}"
                yield transposed(f"CNN_high_{n}/W_{theirs}", f"{path}.weight")
                yield same(f"CNN_high_{n}/b_{theirs}", f"{path}.bias")
        if config.project_filters:
            yield transposed("CNN_proj/W_proj", "encode.project.weight")
            yield same("CNN_proj/b_proj", "encode.project.bias")
    for direction, lstms in enumerate(("forward_lstms", "backward_lstms")):
        for n in range(config.num_layers):
            ours, theirs = f"{lstms}.{n}", f"RNN_{direction}/RNN/{cell.format(n)}"
            yield gates(f"{theirs}/W_0", ours, config.dim)
            yield gate_bias(f"{theirs}/B", ours)
            if config.project_cells:
                yield transposed(f"{theirs}/W_P_0", f"{ours}.project.weight")
