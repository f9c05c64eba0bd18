"""Files of word pairs. Oracles: scikit-learn's area under the curve, SciPy, cosines by hand."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from elmore.analysis.evaluation import Model
from elmore.analysis.pairs_file import area_under_curve, find_gold, measure_pairs
from elmore.analysis.parts import select_parts
from elmore.analysis.reproduce import reproduce
from elmore.embedder import Embedder
from elmore.errors import InputError
from tests.analysis.toy import ToyEmbedder, at_angle

EMBEDDER = ToyEmbedder({"x": at_angle(0, 0), "y": at_angle(60, 0), "z": at_angle(90, 0)})


def wic(*words: str) -> str:
    return "".join(f"w\tN\t0-1\t{first} .\t. {second}\n" for first, second in words)


def scws(*ratings: tuple[str, str, float]) -> str:
    return "".join(
        f"{n}\t{a}\tn\t{b}\tn\ta <b> {a} </b>\t<b> {b} </b> b\t{rating}\n"
        for n, (a, b, rating) in enumerate(ratings)
    )


def test_area_under_the_curve_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        values, same = random.integers(0, 6, size=15) / 5, random.random(15) < 0.5
        assert area_under_curve(values, same) == pytest.approx(roc_auc_score(same, values))
    assert area_under_curve(np.array([0.1, 0.2]), np.array([True, True])) == 0.5


def test_wic_with_and_without_labels(tmp_path: Path) -> None:
    data, gold = tmp_path / "mine.data.txt", tmp_path / "mine.gold.txt"
    data.write_text(wic("xx", "xy", "xz"))
    assert find_gold(data) is None
    plain = measure_pairs(EMBEDDER, data)
    assert plain.scores["layer 0"] == {"mean cosine": pytest.approx(0.5)}
    gold.write_text("T\nF\nT\n")
    assert find_gold(data) == gold
    result = measure_pairs(EMBEDDER, data, gold)
    assert result.scores["layer 0"] == {
        "mean cosine": pytest.approx(0.5),
        "mean cosine, same meaning": pytest.approx(0.5),
        "mean cosine, different meanings": pytest.approx(0.5),
        "area under the ROC curve": 0.5,
    }
    assert result.details == {"pairs": 3}
    gold.write_text("T\nT\nF\n")
    assert measure_pairs(EMBEDDER, data, gold).scores["layer 0"]["area under the ROC curve"] == 1
    gold.write_text("T\nT\nT\n")
    assert (
        "mean cosine, different meanings"
        not in measure_pairs(EMBEDDER, data, gold).scores["layer 0"]
    )


def test_scws_without_ratings_of_single_persons(tmp_path: Path) -> None:
    path = tmp_path / "ratings.tsv.gz"
    rated = [("x", "x", 9.0), ("x", "y", 2.0), ("x", "z", 3.0), ("y", "z", 5.0)]
    path.write_bytes(gzip.compress(scws(*rated).encode()))
    result = measure_pairs(EMBEDDER, path)
    cosines = [1, 0.5, 0, np.sqrt(3) / 2]
    expected = spearmanr(cosines, [rating for *_, rating in rated]).statistic
    assert result.scores["layer 0"]["Spearman's correlation"] == pytest.approx(expected)
    assert result.scores["layer 0"]["mean cosine"] == pytest.approx(np.mean(cosines))


@pytest.mark.parametrize("text", ["", "a b c\n", "a\tb\tc\td\te\tf\n"])
def test_other_formats_are_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"columns; expected 5 \(WiC\) or at least 8 \(SCWS\)"):
        measure_pairs(EMBEDDER, path)


def test_pairs_are_part_of_the_report(embedder: Embedder, tmp_path: Path) -> None:
    data = tmp_path / "mine.data.txt"
    data.write_text(wic("xx", "xy"))
    (tmp_path / "mine.gold.txt").write_text("T\nF\n")
    parts = select_parts(["pairs"], pairs=[data])
    model = Model("tiny", embedder, lambda: pytest.fail("needs no softmax"))
    outcomes = reproduce(model, parts, tmp_path, tmp_path / "out")
    record = outcomes.records["pairs-mine"]
    assert record["scores"]["layer 0"]["mean cosine, same meaning"] == pytest.approx(1)
    assert list(record["conditions"]["data"]) == ["mine.data.txt", "mine.gold.txt"]
    assert (
        "## Similarity of words in context, mine.data.txt"
        in (tmp_path / "out" / "report.md").read_text()
    )
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        select_parts([], pairs=[tmp_path / "none.txt"])
