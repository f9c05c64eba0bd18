"""Learning curves. Oracle: the numbers in the records."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from elmore.training.plots import plot_pretraining, plot_task


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collects all saved figures."""
    saved: list[Figure] = []
    savefig = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **k: (saved.append(figure), savefig(figure, *a, **k))
    )
    return saved


def curves(figure: Figure) -> list[tuple[list, list]]:
    lines = (line for axes in figure.axes for line in axes.lines)
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in lines]


def test_task_plot_labels_the_best_score(tmp_path: Path, figures: list[Figure]) -> None:
    scores = [0.25, 0.75, 0.5]
    records = [{"epoch": e, "loss": 4 - e, "dev": {"f1": s}} for e, s in enumerate(scores, 1)]
    plot_task(records, tmp_path / "curves.png", "f1")
    [figure] = figures
    assert curves(figure) == [([1, 2, 3], [3, 2, 1]), ([1, 2, 3], scores)]
    [text] = figure.axes[1].texts
    assert (text.get_text(), text.xy) == ("0.7500", (2, 0.75))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("heldout", [True, False])
def test_pretraining_plot_shows_loss_and_heldout_perplexity(
    tmp_path: Path, figures: list[Figure], heldout: bool
) -> None:
    records = [{"tokens": 10, "loss": 5.0}, {"tokens": 20, "loss": 4.0}]
    if heldout:
        records += [{"tokens": t, "heldout": {"average": p}} for t, p in ((15, 90.0), (20, 80.0))]
    plot_pretraining(records, tmp_path / "loss.png")
    [figure] = figures
    expected = [([10, 20], [5.0, 4.0]), ([15, 20], [90.0, 80.0])]
    assert curves(figure) == expected[: 1 + heldout]
    if heldout:
        assert figure.axes[1].texts[0].get_text() == "80.0"
