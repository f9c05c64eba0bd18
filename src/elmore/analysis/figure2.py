"""Figure 2: the layer weights that tasks learn, at the input and the output of their RNN."""

import numpy as np

from elmore.analysis.results import Cell, Plot, Result
from elmore.analysis.svg import new_figure, to_plot
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, finished

_DATASETS = tuple(name for name, dataset in DATASETS.items() if dataset.published)
_QUICK_DATASETS = ("squad", "snli", "sst5")
_PLACES = ("input", "output")
_DARK = 0.6


def figure2_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the figure."""
    return [run for dataset in _datasets(plan) for run in _runs(plan, dataset)]


def measure_figure2(plan: Plan, results: Results) -> Result:
    """Return the weights of all seeds by dataset, position and layer."""
    rows: dict[str, dict[str, Cell]] = {}
    for dataset in _datasets(plan):
        for place in _PLACES:
            weights = _weights(plan, results, dataset, place)
            if len(weights):
                rows[f"{DATASETS[dataset].title}, {place}"] = {
                    f"layer {layer}": of_layer.tolist() for layer, of_layer in enumerate(weights.T)
                }
    return Result(rows, {})


def plot_figure2(plan: Plan, results: Results) -> list[Plot]:
    """Plot a heat map of the weights, averaged over seeds."""
    names = [name for name in _datasets(plan) if len(_weights(plan, results, name, "input"))]
    if not names:
        return []
    figure = new_figure(7, 1.2 + 0.45 * len(names))
    panels = figure.subplots(1, len(_PLACES), sharey=True)
    for axes, place in zip(panels, _PLACES, strict=True):
        means = np.stack([_weights(plan, results, name, place).mean(axis=0) for name in names])
        image = axes.imshow(means, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, layer), weight in np.ndenumerate(means):
            color = "white" if weight > _DARK else "black"
            axes.text(layer, row, f"{weight:.2f}", ha="center", va="center", color=color)
        axes.set_xticks(range(means.shape[1]))
        axes.set_yticks(range(len(names)), [DATASETS[name].title for name in names])
        axes.set_xlabel("layer of the biLM")
        axes.set_title(f"ELMo at the {place}", fontsize=10)
    figure.colorbar(image, ax=panels, label="weight")
    caption = (
        "Softmax-normalized layer weights, mean over seeds. Layer 0 is the context-independent "
        "token layer. ELMo enters each model at both positions."
    )
    return [to_plot(figure, "figure2", caption)]


def _runs(plan: Plan, dataset: str) -> list[TrainingRun]:
    return plan.runs(dataset, plan.bilm, "elmo.place=both")


def _weights(plan: Plan, results: Results, dataset: str, place: str) -> np.ndarray:
    """Return the weights by seed and layer."""
    runs = finished(results, _runs(plan, dataset))
    return np.array([run.layer_weights[place] for run in runs])


def _datasets(plan: Plan) -> tuple[str, ...]:
    return _QUICK_DATASETS if plan.quick else _DATASETS
