"""The state dict of AllenNLP's `Elmo`, from the HDF5 weights of a release, in NumPy."""

import numpy as np
import torch
from torch import Tensor


def gates(x: np.ndarray) -> np.ndarray:
    """Reorder the gates of an LSTM: TensorFlow has i, g, f, o, AllenNLP has i, f, g, o."""
    i, g, f, o = np.split(x, 4)
    return np.concatenate([i, f, g, o])


def state_dict(weights: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return the weights of AllenNLP's biLM, by the names that AllenNLP 2.10.1 gives them."""
    cnn, lstm = "_elmo_lstm._token_embedder", "_elmo_lstm._elmo_lstm"
    arrays: dict[str, np.ndarray] = {}
    for name, x in weights.items():
        match name.replace("_cnn_", "/").replace("CNN_high_", "CNN_high/").split("/"):
            case ["char_embed"]:
                padded = np.concatenate([np.zeros((1, x.shape[1]), x.dtype), x])
                arrays[f"{cnn}._char_embedding_weights"] = padded
            case ["CNN", "W", n]:
                arrays[f"{cnn}.char_conv_{n}.weight"] = x[0].transpose(2, 1, 0)
            case ["CNN", "b", n]:
                arrays[f"{cnn}.char_conv_{n}.bias"] = x
            case ["CNN_high", n, "W_transform"]:
                carry = weights[f"CNN_high_{n}/W_carry"]  # 1 - sigmoid(x) = sigmoid(-x)
                both = np.concatenate([x.T, -carry.T])
                arrays[f"{cnn}._highways._layers.{n}.weight"] = both
            case ["CNN_high", n, "b_transform"]:
                both = np.concatenate([x, -weights[f"CNN_high_{n}/b_carry"]])
                arrays[f"{cnn}._highways._layers.{n}.bias"] = both
            case ["CNN_proj", "W_proj"]:
                arrays[f"{cnn}._projection.weight"] = x.T
            case ["CNN_proj", "b_proj"]:
                arrays[f"{cnn}._projection.bias"] = x
            case [run, _, _, cell, _, kind]:
                direction = {"RNN_0": "forward", "RNN_1": "backward"}[run]
                layer = f"{lstm}.{direction}_layer_{cell.removeprefix('Cell')}"
                if kind == "W_0":
                    to_input, to_state = np.split(gates(x.T), [len(x) // 2], axis=1)
                    arrays[f"{layer}.input_linearity.weight"] = to_input
                    arrays[f"{layer}.state_linearity.weight"] = to_state
                elif kind == "B":
                    size = len(x) // 4
                    arrays[f"{layer}.state_linearity.bias"] = gates(x)
                    arrays[f"{layer}.state_linearity.bias"][size : 2 * size] += 1
                else:
                    arrays[f"{layer}.state_projection.weight"] = x.T
    return {name: torch.tensor(np.ascontiguousarray(x)) for name, x in arrays.items()}
