"""Losses and Adagrad as in bilm-tf, in plain NumPy."""

import numpy as np

Params = dict[str, np.ndarray]


def probability(word: int, V: int) -> float:
    """Return the probability of a word in one log-uniform draw."""
    return np.log((word + 2) / (word + 1)) / np.log(V + 1)


def expected_count(word: int, V: int, tries: int) -> float:
    """Return the probability that a word occurs at least once in `tries` draws."""
    return 1 - (1 - probability(word, V)) ** tries


def sampled_nll(
    h: np.ndarray, target: int, weight: np.ndarray, bias: np.ndarray, sampled: list[int], tries: int
) -> float:
    """Return -log p(target) of one position, normalized over the target and the sampled words."""
    V = len(bias)

    def logit(word: int) -> float:
        return h @ weight[word] + bias[word] - np.log(expected_count(word, V, tries))

    # Accidental hits: a sampled word that equals the target is not a negative.
    logits = [logit(target)] + [logit(word) for word in sampled if word != target]
    return float(np.log(np.sum(np.exp(logits))) - logits[0])


def full_nll(h: np.ndarray, target: int, weight: np.ndarray, bias: np.ndarray) -> float:
    logits = weight @ h + bias
    return float(np.log(np.sum(np.exp(logits))) - logits[target])


def adagrad(
    params: Params, gradients: list[Params], *, lr: float, clip: float, accumulator: float
) -> Params:
    """Apply the gradients in order, each clipped to a global norm of `clip`."""
    params = {name: value.copy() for name, value in params.items()}
    sums = {name: np.full_like(value, accumulator) for name, value in params.items()}
    for gradient in gradients:
        norm = np.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
        for name, g in gradient.items():
            g = g * clip / max(norm, clip)
            sums[name] += g**2
            params[name] -= lr * g / np.sqrt(sums[name])
    return params
