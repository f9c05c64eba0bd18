"""The command `allennlp elmo`. Oracle: `ElmoEmbedder.embed_file`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore.compat.allennlp import ElmoEmbedder
from elmore.compat.allennlp_command import main
from tests.oracles.releases import VARIANTS, Release, write_release

TEXT = "the bank\nof a river .\nthe Straße\n"
Run = Callable[..., int]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    monkeypatch.chdir(tmp_path)
    Path("s.txt").write_text(TEXT, encoding="utf-8")
    return write_release(tmp_path, VARIANTS["usual"])


@pytest.fixture
def run(release: Release) -> Run:
    def run(*args: str, model: bool = True) -> int:
        files = ("--options-file", "options.json", "--weight-file", "weights.hdf5") if model else ()
        try:
            main(["elmo", *args, *files])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


def contents(path: str) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: dataset[...] for name, dataset in file.items()}


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--all"], {"output_format": "all"}),
        (
            ["--top", "--batch-size", "1", "--vocab-path", "v.txt"],
            {"output_format": "top", "batch_size": 1},
        ),
        (
            ["--average", "--forget-sentences", "--file-friendly-logging", "--cuda-device", "-1"],
            {"output_format": "average", "forget_sentences": True},
        ),
        (["--all", "--use-sentence-keys"], {"use_sentence_keys": True}),
    ],
)
def test_options_are_those_of_embed_file(release: Release, run: Run, flags, options) -> None:
    assert run("s.txt", "v.hdf5", *flags) == 0
    embedder = ElmoEmbedder(release.options_file, release.weights_file)
    embedder.embed_file(TEXT.splitlines(), "expected.hdf5", **options)
    actual, expected = contents("v.hdf5"), contents("expected.hdf5")
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)


def test_stateless_vectors_do_not_depend_on_the_batches(run: Run) -> None:
    for size in (1, 3):
        assert run("s.txt", f"{size}.hdf5", "--all", "--stateless", "--batch-size", f"{size}") == 0
    one, three = contents("1.hdf5"), contents("3.hdf5")
    for name in ("0", "1", "2"):
        np.testing.assert_allclose(one[name], three[name], atol=1e-6)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["s.txt", "s.txt", "--all"], "elmore: s.txt is an input file"),
        (["none.txt", "v.hdf5", "--all"], "elmore: none.txt: No such file or directory"),
        (
            ["s.txt", "v.hdf5", "--all", "--batch-size", "0"],
            "elmore: --batch-size must be at least",
        ),
        (["s.txt", "v.hdf5"], "one of the arguments --all --top --average is required"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    run: Run, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*args) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert Path("s.txt").read_text(encoding="utf-8") == TEXT
    assert not Path("v.hdf5").exists()


@pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
def test_output_never_replaces_the_model(
    run: Run, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(name).read_bytes()
    assert run("s.txt", name, "--all") == 2
    assert f"elmore: {name} is an input file" in capsys.readouterr().err
    assert Path(name).read_bytes() == before


def test_missing_model_is_an_error(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("s.txt", "v.hdf5", "--all", model=False) == 2
    assert "elmore downloads nothing, so download the two files" in capsys.readouterr().err


def test_urls_are_not_downloaded(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    url = "https://example.org/options.json"
    args = ("--options-file", url, "--weight-file", "weights.hdf5")
    assert run("s.txt", "v.hdf5", "--all", *args, model=False) == 2
    assert f"elmore: {url} is a URL; download the file first" in capsys.readouterr().err


def test_module_is_a_command(release: Release) -> None:
    command = [sys.executable, "-m", "elmore.compat.allennlp", "elmo", "s.txt"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "the following arguments are required: output_file" in result.stderr
