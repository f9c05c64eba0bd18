"""Figures 1 and 2. Oracles: results set by hand; the data of the drawn figure."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from elmore.analysis.figure1 import SHARES, measure_figure1, plot_figure1
from elmore.analysis.figure2 import measure_figure2, plot_figure2
from elmore.analysis.svg import mean_and_spread, new_figure, to_plot
from tests.analysis.training.fake import TINY, result

PLAN = replace(TINY, seeds=2)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures that were saved."""
    saved: list[Figure] = []
    write = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **k: (saved.append(figure), write(figure, *a, **k))
    )
    return saved


def test_figure1_has_scores_by_share(figures: list[Figure]) -> None:
    results = {
        "snli-baseline-share_0.1-0": result(50),
        "snli-tiny-share_0.01-0": result(52),
        "snli-tiny-share_0.01-1": result(56),
        "snli-baseline-0": result(60, curve=[55, 60, 59]),
        "snli-tiny-0": result(70, curve=[59, 60, 70]),
        "snli-baseline-1": result(60, curve=[60, 58]),
        "snli-tiny-1": result(60, curve=[60]),
        "srl-baseline-0": result(70, curve=[69, 70]),  # all training data only: not in the figure
        "srl-tiny-0": result(75, curve=[71, 75]),
    }
    scores, _, findings, _ = measure_figure1(PLAN, results)
    baseline, elmo = "SNLI (accuracy), baseline", "SNLI (accuracy), + ELMo"
    assert scores == {
        "1 % of the training data": {elmo: [52, 56]},
        "10 % of the training data": {baseline: [50]},
        "100 % of the training data": {baseline: [60, 60], elmo: [70, 60]},
    }
    assert findings == (
        "SNLI (accuracy): ELMo with 1 % of the data is better than the baseline with 10 %: "
        "undecided (+2.00; 1 pair of runs).",
        "SNLI (accuracy): the baseline has its best dev score after 1.5 epochs; ELMo exceeds it "
        "after 3.0; in 1 of 2 seeds, ELMo does not exceed it (all training data, mean over 2 "
        "seeds).",
        "EWT SRL (F1): the baseline has its best dev score after 2.0 epochs; ELMo exceeds it after "
        "1.0 (all training data, one seed).",
    )
    [plot] = plot_figure1(PLAN, results)
    [figure] = figures
    [axes] = figure.axes
    points = [container.lines[0].get_xydata().tolist() for container in axes.containers]
    assert points == [[[10, 50], [100, 60]], [[1, 54], [100, 65]]]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "share of the training data (%)"
    assert axes.get_ylabel() == "dev accuracy (%)"
    ElementTree.fromstring(plot.svg)


@pytest.mark.parametrize(
    ("with_few", "verdict"),
    [
        ((40, 41.5), "confirmed (+3.00; 95 % interval 3.00 to 3.00, 2 pairs of runs)"),
        ((51, 50), "not tested, because more data hardly helps the baseline here (50.50 with 1 %,"),
    ],
)
def test_figure1_needs_a_baseline_that_learns(with_few: tuple[float, ...], verdict: str) -> None:
    results = {
        "snli-baseline-share_0.01-0": result(with_few[0]),
        "snli-baseline-share_0.01-1": result(with_few[1]),
        "snli-baseline-share_0.1-0": result(50),
        "snli-baseline-share_0.1-1": result(52),
        "snli-tiny-share_0.01-0": result(53),
        "snli-tiny-share_0.01-1": result(55),
    }
    [sentence] = measure_figure1(PLAN, results).findings
    assert f"better than the baseline with 10 %: {verdict}" in sentence


def test_figure1_has_at_least_six_points_from_a_thousandth_to_all() -> None:
    assert len(SHARES) >= 6
    assert min(SHARES) == 0.001
    assert max(SHARES) == 1


def test_figure2_is_a_heat_map_of_the_weights(figures: list[Figure]) -> None:
    weights = {"input": [0.2, 0.5, 0.3], "output": [0.4, 0.4, 0.2]}
    results = {
        "coref-tiny-place_both-0": result(60, weights=weights),
        "coref-tiny-place_both-1": result(60, weights=weights | {"input": [0.0, 0.9, 0.1]}),
        "squad-tiny-0": result(80, weights=weights),  # at both positions by default
    }
    scores = measure_figure2(PLAN, results).scores
    assert list(scores) == [
        "SQuAD 1.1, input",
        "SQuAD 1.1, output",
        "OntoGUM coreference, input",
        "OntoGUM coreference, output",
    ]
    assert scores["OntoGUM coreference, input"] == {
        "layer 0": [0.2, 0.0], "layer 1": [0.5, 0.9], "layer 2": [0.3, 0.1],
    }  # fmt: skip
    [plot] = plot_figure2(PLAN, results)
    [figure] = figures
    at_input, at_output, _ = figure.axes  # and the color bar
    shown = at_input.images[0].get_array().tolist()
    assert shown == [pytest.approx([0.2, 0.5, 0.3]), pytest.approx([0.1, 0.7, 0.2])]
    assert at_output.get_title() == "ELMo at the output"
    assert ">0.70<" in plot.svg


def test_figures_without_results_are_not_drawn() -> None:
    assert plot_figure1(PLAN, {}) == plot_figure2(PLAN, {}) == []


def test_svg_is_reproducible_and_has_ids_of_its_own() -> None:
    def draw(name: str) -> str:
        figure = new_figure(3, 2)
        figure.add_subplot().plot([1, 2], label="a < b")
        return to_plot(figure, name, "").svg

    def ids(svg: str) -> set[str]:
        return {
            element.attrib["id"] for element in ElementTree.fromstring(svg).iterfind(".//*[@id]")
        }

    assert draw("one") == draw("one")
    assert draw("one").startswith("<svg")
    assert ids(draw("one"))
    assert not ids(draw("one")) & ids(draw("two"))


def test_single_score_has_no_spread() -> None:
    assert mean_and_spread([3.0]) == (3.0, 0.0)
    assert mean_and_spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
