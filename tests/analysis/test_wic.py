"""WiC. Oracles: pairs and accuracies by hand, all thresholds tried one by one."""

from pathlib import Path

import numpy as np
import pytest

from elmore.analysis.data_files import find_files
from elmore.analysis.neighbors import Occurrence
from elmore.analysis.wic import WIC_FILES, best_threshold, measure_wic, read_wic
from elmore.analysis.word_pairs import WordPair
from elmore.errors import InputError
from tests.analysis.toy import ToyEmbedder, at_angle

LINE = "board\tN\t2-1\tRoom and board .\tThe boards creak ."


def write(folder: Path, name: str, data: str, gold: str) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    paths = folder / f"{name}.data.txt", folder / f"{name}.gold.txt"
    for path, text in zip(paths, (data, gold), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_pairs_and_labels_are_read(tmp_path: Path) -> None:
    other = "go\tV\t0-0\tGo home\tGo"
    pairs, same = read_wic(*write(tmp_path, "dev", f"{LINE}\n{other}\n", "F\nT\n"))
    assert same.tolist() == [False, True]
    assert pairs == [
        WordPair(
            Occurrence(["Room", "and", "board", "."], 2),
            Occurrence(["The", "boards", "creak", "."], 1),
        ),
        WordPair(Occurrence(["Go", "home"], 0), Occurrence(["Go"], 0)),
    ]


@pytest.mark.parametrize(
    ("data", "gold", "message"),
    [
        (LINE.replace("\t", " "), "T", "line 1: .* separated by tabs"),
        (LINE.replace("2-1", "2"), "T", "two indices such as 2-1"),
        (LINE.replace("2-1", "4-1"), "T", "line 1: index 4 in a sentence of 4 words"),
        (LINE, "1", r"dev\.gold\.txt, line 1: '1'; expected T or F"),
        (LINE, "T\nF", r"differ in length: .*data\.txt ends before"),
        (f"{LINE}\n{LINE}", "T", r"differ in length: .*gold\.txt ends before"),
        ("", "", "is empty"),
    ],
)
def test_malformed_files_are_rejected(tmp_path: Path, data: str, gold: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_wic(*write(tmp_path, "dev", data, gold))


def test_threshold_has_the_best_accuracy_of_all() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        similarities = random.integers(-3, 4, size=12) / 4  # with ties
        same = random.random(12) < 0.3 + 0.4 * (similarities > 0)
        candidates = np.arange(-1, 1.5, 0.125)  # between and at all possible similarities
        best = max(np.mean((similarities >= t) == same) for t in candidates)
        threshold = best_threshold(similarities, same)
        assert np.mean((similarities >= threshold) == same) == best


@pytest.mark.parametrize(
    ("same", "threshold"),
    [([0, 0, 1, 1], 0.5), ([1, 1, 1, 1], -1), ([0, 0, 0, 0], 2), ([1, 1, 0, 0], -1)],
)
def test_threshold_lies_between_similarities(same: list[int], threshold: float) -> None:
    similarities = np.array([0.1, 0.4, 0.6, 0.9])
    assert best_threshold(similarities, np.array(same, bool)) == pytest.approx(threshold)


def test_accuracies_with_a_threshold_from_the_training_set(tmp_path: Path) -> None:
    """Layer 0 separates the training pairs between 30 and 60 degrees; layer 1 is constant."""
    embedder = ToyEmbedder(
        {"x": at_angle(0, 0), **{f"a{angle}": at_angle(angle, 7) for angle in (20, 30, 40, 60, 80)}}
    )

    def lines(*angles: int) -> str:
        return "".join(f"w\tN\t0-1\tx y\ty a{angle}\n" for angle in angles)

    write(tmp_path / "train", "train", lines(20, 30, 60, 80, 80), "T\nT\nF\nF\nF\n")
    write(tmp_path / "dev", "dev", lines(20, 80), "T\nT\n")
    write(tmp_path / "test", "test", lines(20, 40, 60, 80), "T\nT\nF\nT\n")
    result = measure_wic(embedder, find_files(tmp_path, WIC_FILES))
    # Threshold: (cos 30 + cos 60) / 2 = 0.68, so 40 degrees (0.77) is the same meaning.
    assert result.details["thresholds"]["layer 0"] == pytest.approx(0.683, abs=1e-3)
    assert result.scores["layer 0"] == {"train": 100, "dev": 50, "test": 75}
    assert result.scores["layer 1"] == {"train": 60, "dev": 0, "test": 25}
    assert result.details["pairs"] == {"train": 5, "dev": 2, "test": 4}
