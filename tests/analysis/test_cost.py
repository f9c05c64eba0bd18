"""Cost of encoders. Oracles: a table of vectors; the number of weights counted by hand."""

import re
import subprocess

import numpy as np
import pytest

from elmore.analysis.cost import WordVectorEncoder, measure_cost
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.tasks.vectors import WordVectors

VECTORS = WordVectors(["the", "The", "bank"], np.arange(6, dtype=np.float32).reshape(3, 2))


def test_words_are_looked_up_as_they_are_then_in_lower_case() -> None:
    encoder = WordVectorEncoder(VECTORS)
    [(tokens, vectors)] = encoder.stream([["The", "BANK", "the", "river"]])
    assert tokens == ["The", "BANK", "the", "river"]
    assert vectors.tolist() == [[[2, 3], [4, 5], [0, 1], [0, 0]]]
    assert (encoder.num_layers, encoder.dim, encoder.num_parameters) == (1, 2, 6)
    assert encoder.embed([[]])[0].shape == (1, 0, 2)


def test_cost_is_measured_in_a_process(embedder: Embedder) -> None:
    cost = measure_cost("tiny", embedder, [["The", "bank", "."]] * 30)
    assert cost.words_per_second > 0
    assert cost.megabytes is None or 50 < cost.megabytes < 5000
    assert cost.parameters == sum(p.numel() for p in embedder.bilm.parameters())
    assert cost.threads >= 1


def test_failure_is_reported_in_one_line(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(command, 1, "", "Traceback:\nMemoryError: too large\n")

    monkeypatch.setattr(subprocess, "run", run)
    expected = "the cost of ELMo (tiny) cannot be measured: MemoryError: too large"
    with pytest.raises(InputError, match=re.escape(expected)):
        measure_cost("ELMo (tiny)", embedder, [["the"]])
