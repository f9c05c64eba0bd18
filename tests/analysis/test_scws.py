"""SCWS. Oracles: pairs by hand, SciPy's correlation, angles that the test chooses."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from elmore.analysis.neighbors import Occurrence
from elmore.analysis.scws import measure_scws, read_scws, spearman
from elmore.analysis.word_pairs import WordPair
from elmore.errors import InputError
from tests.analysis.toy import ToyEmbedder, at_angle


def line(first: str, second: str, rating: str) -> str:
    return "\t".join(["1", "nut", "n", "Brazil", "n", first, second, rating, *["0.0"] * 10]) + "\n"


LINE = line("the <b> nut </b> ( 1.4 )", "<b> Brazil </b> , Germany", "1.1")


def test_words_contexts_and_ratings_are_read(tmp_path: Path) -> None:
    (tmp_path / "ratings.txt").write_text(LINE + line("a <b> b </b>", "a <b> b </b>", "7"))
    first, second = read_scws(tmp_path / "ratings.txt")
    assert first.pair == WordPair(
        Occurrence(["the", "nut", "(", "1.4", ")"], 1), Occurrence(["Brazil", ",", "Germany"], 0)
    )
    assert [first.rating, second.rating] == [1.1, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\t".join(LINE.split("\t")[:7]), "line 1: 7 columns; expected at least 8"),
        (LINE.replace("1.1", "high"), "rating 'high'; expected a number"),
        (LINE.replace("<b> Brazil </b>", "Brazil"), "expected one word in <b>"),
        (LINE.replace("</b> ,", "<b> ,"), "expected one word in <b>"),
        (LINE.replace("Brazil </b>", "Brazil nut </b>"), "2 words in <b>"),
        (LINE, "1 pairs; a correlation needs at least two"),
    ],
)
def test_malformed_files_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ratings.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_scws(tmp_path / "ratings.txt")


def test_spearman_equals_that_of_scipy() -> None:
    random = np.random.default_rng(0)
    for size in (5, 50, 500):
        x, y = random.normal(size=size), random.integers(0, 5, size=size).astype(float)  # ties
        assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
        assert spearman(x, x**3) == pytest.approx(1)
        assert spearman(x, np.ones(size)) == 0


def test_scores_are_correlations_by_layer(tmp_path: Path) -> None:
    """Ratings fall with the angle in layer 0 and rise with it in layer 1.

    The average of both layers is at 45 degrees for all words, so it says nothing.
    """
    angles = (10, 40, 50, 80)
    table = {f"a{angle}": at_angle(angle, 90 - angle) for angle in angles}
    pairs = (
        line("the <b> x </b>", f"a <b> a{angle} </b> .", str(rating))
        for angle, rating in zip(angles, (9, 5, 4, 0.5), strict=True)
    )
    (tmp_path / "ratings.txt").write_text("".join(pairs))
    result = measure_scws(ToyEmbedder({"x": at_angle(0, 0), **table}), tmp_path / "ratings.txt")
    assert result.scores["layer 0"]["Spearman"] == pytest.approx(100)
    assert result.scores["layer 1"]["Spearman"] == pytest.approx(-100)
    assert result.scores["averaged layers"]["Spearman"] == 0
    assert result.details == {"pairs": 4}
