"""One training step of bilm-tf in plain numpy: losses and Adagrad, from the specification."""

import numpy as np

Params = dict[str, np.ndarray]


def probability(word: int, V: int) -> float:
    """Of one log-uniform draw."""
    return np.log((word + 2) / (word + 1)) / np.log(V + 1)


def expected_count(word: int, V: int, tries: int) -> float:
    """How probable a word is to be among the different words that `tries` draws gave."""
    return 1 - (1 - probability(word, V)) ** tries


def sampled_nll(
    h: np.ndarray, target: int, weight: np.ndarray, bias: np.ndarray, sampled: list[int], tries: int
) -> float:
    """-log p(target) of one position among the target and the sampled words."""
    V = len(bias)

    def logit(word: int) -> float:
        return h @ weight[word] + bias[word] - np.log(expected_count(word, V, tries))

    # Accidental hits: a sampled word that is the target is left out.
    logits = [logit(target)] + [logit(word) for word in sampled if word != target]
    return float(np.log(np.sum(np.exp(logits))) - logits[0])


def full_nll(h: np.ndarray, target: int, weight: np.ndarray, bias: np.ndarray) -> float:
    logits = weight @ h + bias
    return float(np.log(np.sum(np.exp(logits))) - logits[target])


def adagrad(
    params: Params, gradients: list[Params], *, lr: float, clip: float, accumulator: float
) -> Params:
    """Apply one gradient after the other, each scaled to a global norm of at most `clip`."""
    params = {name: value.copy() for name, value in params.items()}
    sums = {name: np.full_like(value, accumulator) for name, value in params.items()}
    for gradient in gradients:
        norm = np.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
        for name, g in gradient.items():
            g = g * clip / max(norm, clip)
            sums[name] += g**2
            params[name] -= lr * g / np.sqrt(sums[name])
    return params
