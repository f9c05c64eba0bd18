"""The demo. Oracle: in layer 0, all occurrences of a word have the same vector."""

import runpy
from pathlib import Path

import pytest

from elmore.embedder import Embedder
from elmore.vectors.read import read_vectors

EXAMPLES = Path(__file__).parents[1] / "examples"
COLUMN = 50  # offset of the second column


def test_demo_prints_neighbors_and_writes_its_files(
    embedder: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    embedder.save("model")
    runpy.run_path(str(EXAMPLES / "demo.py"))["main"]("model")

    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 100
    # The nearest neighbors in layer 0 are other occurrences of the word.
    layer_0 = [line[COLUMN:] for line in printed if line[COLUMN:].count("[play]") == 1]
    assert len(layer_0) == 2 * 5
    assert all(line.strip().startswith("1.000") for line in layer_0)
    assert (tmp_path / "demo-output" / "senses.png").stat().st_size > 0
    sentences = (EXAMPLES / "sample.txt").read_text(encoding="utf-8").splitlines()
    rows = list(read_vectors(tmp_path / "demo-output" / "vectors.parquet"))
    assert [row.tokens for row in rows] == [sentence.split() for sentence in sentences]
