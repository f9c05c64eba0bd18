"""The examples run."""

import runpy
from pathlib import Path

import pytest

from elmore.embedder import Embedder
from elmore.vectors.parquet import read_vectors

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_senses_shows_neighbors_and_writes_its_files(
    embedder: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    embedder.save("model")
    runpy.run_path(str(EXAMPLES / "senses.py"))["main"]("model")

    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 100
    [start] = [i for i, line in enumerate(printed) if line.startswith("By layer 0")]
    for line in printed[start + 1 : start + 6]:
        assert line.startswith("  1.000")
        assert " [play]" in line
    assert (tmp_path / "demo-output" / "senses.png").stat().st_size > 0
    sentences = (EXAMPLES / "sample.txt").read_text(encoding="utf-8").splitlines()
    rows = list(read_vectors(tmp_path / "demo-output" / "vectors.parquet"))
    assert [row.tokens for row in rows] == [sentence.split() for sentence in sentences]
