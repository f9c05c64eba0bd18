"""Conversion of released weights. Oracle: golden vectors computed by bilm-tf."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.golden.models import BATCHES, SENTENCES
from tests.golden.test_released_programs import read

# The first row of bilm-tf's batches is one text with carried state. Its tokens have no spaces.
ROW = [SENTENCES.index(batch[0]) for batch in BATCHES]


@pytest.mark.parametrize("model", ["usual", "word input"])
def test_converted_released_files_give_the_vectors_of_bilm_tf(
    run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden = read("bilm_tf", model, tmp_path)
    weights, options = golden.release.weights_file, golden.release.options_file
    assert run("convert", weights, options, "-o", "folder").code == 0
    Path("back").mkdir()
    assert run("convert", "folder", "-o", "back/weights.hdf5").code == 0
    lines = [" ".join(SENTENCES[i]) for i in ROW]
    Path("text.txt").write_text("\n".join(lines), encoding="utf-8")
    for n, model_path in enumerate([weights, "folder", "back/weights.hdf5"]):
        for state, expected in (([], golden.fresh), (["--carry-state"], golden.carried)):
            output = Path(f"{n}{len(state)}.h5")
            result = run(
                "embed", "text.txt", "-m", model_path, "-o", output, "--tokenizer", "whitespace",
                "--device", "cpu", *state,
            )  # fmt: skip
            assert result.code == 0, result.err
            with h5py.File(output) as file:
                for line, i in enumerate(ROW):
                    np.testing.assert_allclose(file[str(line)], expected[i], rtol=0, atol=1e-6)
