"""Linear classifiers on frozen vectors with few labels: ELMo, a transformer and GloVe."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elmore.analysis.encoders import WORD_VECTORS, frozen_encoders
from elmore.analysis.pos import POS_FILES, read_conllu
from elmore.analysis.probe import LabeledVectors, ProbeConfig, probe_layers
from elmore.analysis.results import Cell, Plot, Result, layer_rows
from elmore.analysis.svg import BASELINE, ELMO, PAPER, mean_and_spread, new_figure, to_plot
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.progress import with_progress
from elmore.tasks.encoder import Encoder
from elmore.tasks.sentiment.data import read_sentiment
from elmore.text.sentences import Sentence

_SST_FILES = ("sst/train.txt", "sst/dev.txt", "sst/test.txt")
_EWT_FILES = tuple(f"pos/{name}" for name in POS_FILES)
FEW_LABELS_FILES = (*_SST_FILES, *_EWT_FILES, WORD_VECTORS)
"""Files below `tasks/` in the folder of all data."""

_SEEDS = range(5)
_PROBE = ProbeConfig(batch_size=32, learning_rate=0.01, max_epochs=100, patience=20)
_COLORS = (BASELINE, ELMO, PAPER)


class Labeled(NamedTuple):
    """A sentence with its label, or with one per word."""

    tokens: Sentence
    labels: Sequence[str]


class FewLabels(NamedTuple):
    """A task, and how many sentences are labeled."""

    name: str
    sizes: tuple[int, ...]
    """Numbers of labeled sentences, each capped at the size of the training set."""

    read: Callable[[Path], list[Labeled]]
    """Reads a training, dev or test file."""


def _read_sentiment(path: Path) -> list[Labeled]:
    return [Labeled(x.tokens, [x.label]) for x in read_sentiment(path, classes=2)]


def _read_tags(path: Path) -> list[Labeled]:
    return [Labeled(x.tokens, x.tags) for x in read_conllu(path, "upos")]


_TASKS = (
    FewLabels("SST, two classes", (100, 300, 1000), _read_sentiment),
    FewLabels("EWT, POS tags", (10, 30, 100), _read_tags),
)


def measure_few_labels(name: str, embedder: Embedder, files: Sequence[Path]) -> Result:
    """Return the test accuracy of linear classifiers with few labeled sentences.

    Args:
        name: Name of the biLM.
        embedder: The biLM.
        files: The files in the order of `FEW_LABELS_FILES`.

    Raises:
        NotAvailableError: If the transformer is not installed.
    """
    scores: dict[str, dict[str, Cell]] = {}
    best: dict[str, dict[str, str]] = {}
    sst, ewt, vectors = files[:3], files[3:6], files[6]
    texts = [
        [task.read(file) for file in paths] for task, paths in zip(_TASKS, (sst, ewt), strict=True)
    ]
    for row, _, load in frozen_encoders(name, embedder, vectors):
        encoder = load()
        for task, (train, dev, test) in zip(_TASKS, texts, strict=True):
            sizes = sorted({min(size, len(train)) for size in task.sizes})
            by_layer = score_few_labels(encoder, train, dev, test, sizes)
            layer = max(by_layer, key=lambda name: by_layer[name].dev)
            best.setdefault(task.name, {})[row] = layer
            for size, accuracies in by_layer[layer].test.items():
                scores.setdefault(row, {})[f"{task.name}, {size:,} sentences"] = accuracies
    return Result(scores, {f"layers for {task}": layers for task, layers in best.items()})


class LayerScores(NamedTuple):
    """Accuracies in percent with one layer."""

    dev: float
    """The mean over all sizes and seeds."""

    test: dict[int, list[float]]
    """Those of all seeds, by the number of labeled sentences."""


def score_few_labels(
    encoder: Encoder,
    train: Sequence[Labeled],
    dev: Sequence[Labeled],
    test: Sequence[Labeled],
    sizes: Sequence[int],
    seeds: Iterable[int] = _SEEDS,
) -> dict[str, LayerScores]:
    """Return the scores by layer. Each seed draws its own training sentences."""
    orders = {seed: np.random.default_rng(seed).permutation(len(train)) for seed in seeds}
    drawn = sorted({int(i) for order in orders.values() for i in order[: max(sizes)]})
    features = dict(zip(drawn, _embed(encoder, [train[i] for i in drawn]), strict=True))
    on_dev, on_test = (_join(_embed(encoder, part)) for part in (dev, test))
    dev_scores: dict[str, list[float]] = {}
    test_scores: dict[str, dict[int, list[float]]] = {}
    runs = [(size, seed) for size in sizes for seed in orders]
    for size, seed in with_progress(runs, "samples of labels", len(runs)):
        sample = _join([features[int(i)] for i in orders[seed][:size]])
        by_layer = probe_layers(sample, on_dev, on_test, _PROBE)
        for row, score in zip(layer_rows(encoder.num_layers), by_layer, strict=True):
            dev_scores.setdefault(row, []).append(100 * score.dev)
            test_scores.setdefault(row, {}).setdefault(size, []).append(100 * score.test)
    return {
        row: LayerScores(statistics.mean(dev_scores[row]), test_scores[row]) for row in dev_scores
    }


def _embed(encoder: Encoder, examples: Sequence[Labeled]) -> list[LabeledVectors]:
    """Return the vectors of each sentence: one per label, or the mean if there is only one."""
    if not examples:
        raise InputError("no labeled sentences")
    sentences = (x.tokens for x in examples)
    stream = with_progress(encoder.stream(sentences), "sentences embedded", len(examples))
    features = []
    for example, (_, vectors) in zip(examples, stream, strict=True):
        of_sentence = len(example.labels) == 1
        rows = vectors.mean(axis=1, keepdims=True) if of_sentence else vectors
        if rows.shape[1] != len(example.labels):
            raise InputError(f"{rows.shape[1]} words have {len(example.labels)} labels")
        layers = [torch.from_numpy(layer.astype(np.float16)) for layer in rows]
        features.append(LabeledVectors(layers, list(example.labels)))
    return features


def _join(parts: Sequence[LabeledVectors]) -> LabeledVectors:
    layers = zip(*(part.layers for part in parts), strict=True)
    labels = [label for part in parts for label in part.labels]
    return LabeledVectors([torch.cat(layer) for layer in layers], labels)


def plot_few_labels(result: Result) -> list[Plot]:
    """Plot the accuracy against the number of labeled sentences."""
    figure = new_figure(8, 3)
    panels = figure.subplots(1, len(_TASKS))
    for task, axes in zip(_TASKS, panels, strict=True):
        for (row, cells), color in zip(result.scores.items(), _COLORS, strict=False):
            accuracies = _accuracies(cells, task)
            means, spreads = zip(*map(mean_and_spread, accuracies.values()), strict=True)
            style = {"fmt": "o-", "markersize": 4, "capsize": 3, "color": color, "label": row}
            axes.errorbar(list(accuracies), means, yerr=spreads, **style)
        axes.set_xscale("log")
        axes.set_xticks(list(accuracies), [f"{size:,}" for size in accuracies])
        axes.minorticks_off()
        axes.set_title(task.name, fontsize=10)
        axes.set_xlabel("labeled sentences")
        axes.set_ylabel("test accuracy (%)")
        axes.grid(alpha=0.3)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False)
    caption = (
        "Linear classifiers on frozen vectors: accuracy against the number of labeled sentences. "
        "Error bars: standard deviation over five samples."
    )
    return [to_plot(figure, "few-labels", caption)]


def _accuracies(cells: Mapping[str, Cell], task: FewLabels) -> dict[int, list[float]]:
    """Return the accuracies of all samples by the number of labeled sentences."""
    return {
        int(column.removeprefix(f"{task.name}, ").split()[0].replace(",", "")): cell
        for column, cell in cells.items()
        if column.startswith(f"{task.name}, ") and isinstance(cell, list)
    }
