"""A biLM in plain NumPy, with the parameter names and layouts of the released files.

It follows the released programs and computes one sentence at a time, without batching. It shares
no code with elmore, not even the character ids or the order of the gates.
"""

from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]
State = list[tuple[np.ndarray, np.ndarray]]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def raw_ids(word: str, width: int) -> list[int]:
    """Return character ids: bytes 0 to 255, special ids 256 to 260. elmore adds 1 for padding."""
    if word == "<S>":
        inside = [256]
    elif word == "</S>":
        inside = [257]
    else:
        inside = list(word.encode("utf-8", "ignore"))[: width - 2]
    ids = [258, *inside, 259]
    return ids + [260] * (width - len(ids))


def token_vector(word: str, weights: Weights, options: dict[str, Any]) -> np.ndarray:
    cnn = options["char_cnn"]
    width = cnn["max_characters_per_token"]
    chars = weights["char_embed"][raw_ids(word, width)]  # (C, E)
    pooled = []
    for n, (size, _) in enumerate(cnn["filters"]):
        kernel, bias = weights[f"CNN/W_cnn_{n}"][0], weights[f"CNN/b_cnn_{n}"]
        windows = [
            np.einsum("we,wen->n", chars[t : t + size], kernel) + bias
            for t in range(width - size + 1)
        ]
        maximum = np.max(windows, axis=0)
        pooled.append(np.tanh(maximum) if cnn["activation"] == "tanh" else np.maximum(maximum, 0))
    x = np.concatenate(pooled)
    for n in range(cnn.get("n_highway") or 0):
        high = f"CNN_high_{n}"
        carry = sigmoid(x @ weights[f"{high}/W_carry"] + weights[f"{high}/b_carry"])
        new = np.maximum(x @ weights[f"{high}/W_transform"] + weights[f"{high}/b_transform"], 0)
        x = carry * new + (1 - carry) * x
    if "CNN_proj/W_proj" in weights:
        x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return x


def run_lstm(
    xs: list[np.ndarray], cell: Weights, lstm: dict[str, Any], state: tuple[np.ndarray, np.ndarray]
) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    h, c = state
    outputs = []
    for x in xs:
        i, j, f, o = np.split(np.concatenate([x, h]) @ cell["W_0"] + cell["B"], 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        if lstm.get("cell_clip"):
            c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
        h = sigmoid(o) * np.tanh(c)
        if "W_P_0" in cell:
            h = h @ cell["W_P_0"]
            if lstm.get("proj_clip"):
                h = np.clip(h, -lstm["proj_clip"], lstm["proj_clip"])
        outputs.append(h)
    return outputs, (h, c)


def embed(
    words: list[str],
    weights: Weights,
    options: dict[str, Any],
    state: State | None = None,
    vocabulary: list[str] | None = None,
) -> tuple[np.ndarray, State]:
    """Return all layers of one sentence with boundary tokens, and the state after it."""
    lstm = options["lstm"]
    layers, dim, cells = lstm.get("n_layers", 1), lstm["projection_dim"], lstm["dim"]
    with_boundaries = ["<S>", *words, "</S>"]
    if vocabulary is None:
        tokens = [token_vector(word, weights, options) for word in with_boundaries]
    else:
        unknown = vocabulary.index("<UNK>")
        rows = [vocabulary.index(w) if w in vocabulary else unknown for w in with_boundaries]
        tokens = [weights["embedding"][row] for row in rows]
    before = state or [(np.zeros(dim), np.zeros(cells)) for _ in range(2 * layers)]
    after: State = []
    directions = []
    for d in range(2):
        xs = tokens if d == 0 else tokens[::-1]
        layer_outputs = []
        for n in range(layers):
            cell = cell_weights(weights, d, n)
            outputs, last = run_lstm(xs, cell, lstm, before[d * layers + n])
            after.append(last)
            if n > 0 and lstm.get("use_skip_connections"):
                outputs = [y + x for y, x in zip(outputs, xs, strict=True)]
            layer_outputs.append(outputs if d == 0 else outputs[::-1])
            xs = outputs
        directions.append(layer_outputs)
    result = [[np.concatenate([x, x]) for x in tokens]]
    for forward, backward in zip(*directions, strict=True):
        result.append([np.concatenate(pair) for pair in zip(forward, backward, strict=True)])
    return np.array(result), after


def cell_weights(weights: Weights, direction: int, layer: int) -> Weights:
    stacked = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    single = f"RNN_{direction}/RNN/LSTMCell"
    prefix = stacked if f"{stacked}/W_0" in weights else single
    return {
        name: weights[f"{prefix}/{name}"]
        for name in ("W_0", "B", "W_P_0")
        if f"{prefix}/{name}" in weights
    }
