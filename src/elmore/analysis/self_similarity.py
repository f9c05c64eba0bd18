"""How contextual the vectors of each layer are (Ethayarajh, 2019).

Self-similarity is the mean cosine of the vectors of one word in different sentences:

    SelfSim(w) = 1 / (n^2 - n) * sum over j != k of cos(v_j, v_k)       w in n sentences

It is 1 if a layer ignores the context. Intra-sentence similarity is the mean cosine of the vectors
of a sentence with their mean:

    IntraSim(s) = 1 / n * sum over i of cos(v_i, mean(v))               s of n words

Both are high for any vectors that lie in a narrow cone. So the mean cosine of random words in
different sentences, the anisotropy of the layer, is subtracted.

J layers, W words of a sentence, N vectors, D dim.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from elmore.analysis.neighbors import unit
from elmore.analysis.results import Plot, Result, finding, layer_rows
from elmore.analysis.svg import BASELINE, ELMO, PAPER, new_figure, to_plot
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.progress import with_progress
from elmore.text.corpus import TextConfig, read_sentences

_MIN_SENTENCES = 5
"""A word must occur in this many sentences, as in Ethayarajh (2019)."""

_RANDOM_WORDS = 1_000
"""Random words that anisotropy is estimated from, as in Ethayarajh (2019)."""

_ISOTROPIC = 0.05
"""Mean cosine of random words below which vectors count as isotropic."""

_ANISOTROPY = "random words (anisotropy)"
_SELF, _INTRA = "self-similarity", "intra-sentence similarity"
_ADJUSTED = ", adjusted"


class Similarities(NamedTuple):
    """Mean cosines of each layer."""

    anisotropy: Float[np.ndarray, " J"]
    """Of random words in different sentences."""

    of_words: Float[np.ndarray, " J"]
    """Self-similarity, averaged over words."""

    of_sentences: Float[np.ndarray, " J"]
    """Intra-sentence similarity, averaged over sentences of at least two words."""

    num_words: int
    num_sentences: int
    """Numbers of words and sentences that the averages are over."""


def measure_self_similarity(embedder: Embedder, path: Path) -> Result:
    """Return self-similarity and intra-sentence similarity of each layer, raw and adjusted.

    Args:
        embedder: The model; its tokenizer and language are used.
        path: Text file, one paragraph per line, optionally compressed.
    """
    config = TextConfig(tokenizer=embedder.tokenizer, language=embedder.language)
    similarities = self_similarity(embedder, read_sentences(path, config))
    anisotropy = similarities.anisotropy
    columns = {
        _ANISOTROPY: anisotropy,
        _SELF: similarities.of_words,
        _SELF + _ADJUSTED: similarities.of_words - anisotropy,
        _INTRA: similarities.of_sentences,
        _INTRA + _ADJUSTED: similarities.of_sentences - anisotropy,
    }
    rows = layer_rows(len(anisotropy))
    scores = {
        row: {name: float(values[layer]) for name, values in columns.items()}
        for layer, row in enumerate(rows)
    }
    details = {
        f"words in {_MIN_SENTENCES} sentences or more": similarities.num_words,
        "sentences of at least two words": similarities.num_sentences,
    }
    return Result(scores, details, tuple(_findings(columns)))


def self_similarity(
    embedder: Embedder, sentences: Iterable[Sequence[str]], seed: int = 0
) -> Similarities:
    """Return the similarities of words and sentences.

    Repeated sentences count once, and a word that occurs several times in a sentence is represented
    by its first occurrence. Memory grows with the number of distinct words.

    Args:
        embedder: The model.
        sentences: Tokenized sentences.
        seed: Selects the random words.

    Raises:
        InputError: If the text is too short.
    """
    text = [list(words) for words in dict.fromkeys(map(tuple, sentences)) if words]
    counts = Counter(word for words in text for word in set(words))
    num_frequent = sum(count >= _MIN_SENTENCES for count in counts.values())
    num_sentences = sum(len(words) > 1 for words in text)
    if not num_frequent or len(counts) < 2:
        raise InputError(
            f"{len(text)} distinct sentences, of which no {_MIN_SENTENCES} share a word; expected "
            "a longer text"
        )
    chosen = _random_occurrences(text, np.random.default_rng(seed))
    zero = np.zeros((embedder.num_layers, embedder.dim), np.float32)
    sums = {word: zero.copy() for word, count in counts.items() if count >= _MIN_SENTENCES}
    random_vectors = []
    total = np.zeros(embedder.num_layers)
    embedded = embedder.stream(text)
    for number, (words, vectors) in enumerate(
        with_progress(embedded, "sentences embedded", len(text))
    ):
        normalized = unit(vectors)  # (J, W, D)
        for word, position in _first_positions(words):
            if word in sums:
                sums[word] += normalized[:, position]
        if number in chosen:
            random_vectors.append(normalized[:, chosen[number]].copy())
        if len(words) > 1:
            total += _cosines_with_mean(vectors, normalized)
    of_words = [mean_cosine(sums[word], counts[word]) for word in sums]
    return Similarities(
        anisotropy=mean_cosine(np.sum(random_vectors, axis=0), len(random_vectors)),
        of_words=np.mean(of_words, axis=0),
        of_sentences=total / max(num_sentences, 1),
        num_words=num_frequent,
        num_sentences=num_sentences,
    )


def mean_cosine(total: Float32[np.ndarray, "J D"], count: int) -> Float[np.ndarray, " J"]:
    """Return the mean cosine of all pairs of unit vectors, given their sum.

    The square of the sum is the sum of all products; those of vectors with themselves are 1.
    """
    squares = (total.astype(np.float64) ** 2).sum(axis=-1)
    return (squares - count) / (count * (count - 1))


def _cosines_with_mean(
    vectors: Float32[np.ndarray, "J W D"], normalized: Float32[np.ndarray, "J W D"]
) -> Float[np.ndarray, " J"]:
    """Return the mean cosine of the vectors of a sentence with their mean."""
    means = unit(vectors.mean(axis=1))  # (J, D)
    return np.einsum("jwd,jd->jw", normalized, means).mean(axis=1)


def _first_positions(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each distinct word with the position of its first occurrence."""
    yield from {word: position for position, word in reversed([*enumerate(words)])}.items()


def _random_occurrences(
    text: Sequence[Sequence[str]], random: np.random.Generator
) -> dict[int, int]:
    """Draw random distinct words, each in a sentence of its own; return positions by sentence."""
    occurrences: dict[str, list[tuple[int, int]]] = {}
    for number, words in enumerate(text):
        for word, position in _first_positions(words):
            occurrences.setdefault(word, []).append((number, position))
    words = sorted(occurrences)
    positions: dict[int, int] = {}
    for index in random.permutation(len(words)):
        unused = [place for place in occurrences[words[index]] if place[0] not in positions]
        if unused and len(positions) < _RANDOM_WORDS:
            number, position = unused[random.integers(len(unused))]
            positions[number] = position
    return positions


def _findings(columns: Mapping[str, Float[np.ndarray, " J"]]) -> Iterator[str]:
    """Yield what Ethayarajh (2019) reports of ELMo, with the verdict of these numbers."""
    anisotropy, of_words = columns[_ANISOTROPY], columns[_SELF + _ADJUSTED]
    of_sentences = columns[_INTRA + _ADJUSTED]
    for claim, values, holds in (
        (
            f"above layer 0, vectors are anisotropic (mean cosine above {_ISOTROPIC})",
            anisotropy,
            (anisotropy[1:] > _ISOTROPIC).all(),
        ),
        (
            "the higher the layer, the more context-specific (adjusted self-similarity falls)",
            of_words,
            (np.diff(of_words) < 0).all(),
        ),
        (
            "the higher the layer, the more similar are the words of a sentence (adjusted)",
            of_sentences,
            (np.diff(of_sentences) > 0).all(),
        ),
    ):
        evidence = "by layer: " + ", ".join(f"{value:.3f}" for value in values)
        yield finding(f"Ethayarajh (2019), {claim}", bool(holds), evidence)


def plot_self_similarity(result: Result) -> list[Plot]:
    """Plot all similarities against the layer."""
    figure = new_figure(7, 3.2)
    panels = figure.subplots(1, 2, sharey=True)
    layers = range(len(result.scores))
    for axes, suffix, title in (
        (panels[0], "", "cosines"),
        (panels[1], _ADJUSTED, "minus those of random words"),
    ):
        for name, color, marker in ((_SELF, ELMO, "o"), (_INTRA, PAPER, "s")):
            values = [row[name + suffix] for row in result.scores.values()]
            axes.plot(layers, values, marker=marker, color=color, label=name)
        if not suffix:
            values = [row[_ANISOTROPY] for row in result.scores.values()]
            axes.plot(layers, values, "--", color=BASELINE, marker=".", label="random words")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("layer of the biLM")
        axes.set_xticks(layers)
        axes.axhline(0, color="black", linewidth=0.5)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("mean cosine")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    caption = (
        "Mean cosine of the vectors of one word in different sentences (self-similarity), of the "
        "words of a sentence with their mean, and of random words, by layer. Right: adjusted for "
        "anisotropy. A lower self-similarity means more influence of the context."
    )
    return [to_plot(figure, "self-similarity", caption)]
