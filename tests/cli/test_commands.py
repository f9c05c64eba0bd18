"""Commands, end to end, with valid and invalid input. Oracle: the Python API."""

import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import elmore
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.packages import INCLUDED, ModelPackage
from elmore.cli import _ARGUMENTS, _EXPORT_ARGUMENTS
from elmore.embedder import Embedder
from elmore.inference.batches import SentenceRunner
from elmore.text.vocabulary import Vocabulary
from elmore.vectors import parts
from tests.cli.conftest import assert_rejected
from tests.processes import Command

TEXT = "The bank raised its rates.\n\nHe sat by the bank of the river.\n"
ELMORE = [sys.executable, "-c", "from elmore.cli import main; main()"]


@pytest.fixture
def folder(bilm: elmore.BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model and a text file."""
    write_directory(bilm, tmp_path / "model", provenance={"made": "up"})
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- embed


@pytest.mark.parametrize("name", ["v.parquet", "v.arrow", "v.npz"])
def test_embed_writes_the_vectors_of_the_embedder(run, folder: Path, name: str) -> None:
    result = run("embed", "text.txt", "-m", "model", "-o", name)
    assert result.code == 0
    assert result.out.startswith(f"3 sentences -> {name} (15 words in ")
    expected = elmore.load("model").embed(TEXT.splitlines())
    for row, vectors in zip(elmore.read_vectors(name), expected, strict=True):
        assert row.tokens == elmore.tokenize(TEXT.splitlines()[row.id])
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)


@pytest.mark.parametrize("name", ["v.h5", "v.hdf5"])
@pytest.mark.parametrize("layers", ["top", 1])
def test_embed_writes_hdf5(run, folder: Path, name: str, layers: int | str) -> None:
    assert run("embed", "text.txt", "-m", "model", "-o", name, "--layers", layers).code == 0
    expected = elmore.load("model").embed(TEXT.splitlines(), layers=layers)
    with h5py.File(name) as file:
        for i, vectors in enumerate(expected):
            np.testing.assert_allclose(file[str(i)], vectors, atol=1e-6)


def test_embed_applies_its_options(run, folder: Path) -> None:
    Path("text.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    result = run(
        "embed", "text.txt.gz", "-m", "model", "-o", "deep/er/v.parquet", "--dtype", "float16",
        "--tokenizer", "whitespace", "--carry-state", "--device", "cpu", "--json",
    )  # fmt: skip
    report = json.loads(result.out)
    assert (report["sentences"], report["words"]) == (3, 13)
    elmo = elmore.load("model", tokenizer="whitespace")
    expected = elmo.embed(TEXT.splitlines(), carry_state=True)
    for row, vectors in zip(elmore.read_vectors("deep/er/v.parquet"), expected, strict=True):
        assert row.vectors.dtype == np.float16
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-3)


def test_embed_overwrites_only_with_the_option(run, folder: Path) -> None:
    embed = ("embed", "text.txt", "-m", "model", "-o")
    Path("v.parquet").write_text("precious")
    assert_rejected(run(*embed, "v.parquet"), "exists already")
    assert_rejected(run(*embed, "v.parquet", "--overwrite"), "elmore did not write v.parquet")
    assert Path("v.parquet").read_text() == "precious"
    assert run(*embed, "own.parquet").code == 0
    before = Path("own.parquet").read_bytes()
    assert_rejected(run(*embed, "own.parquet"), "exists already")
    assert run(*embed, "own.parquet", "--overwrite", "--layers", "top").code == 0
    assert Path("own.parquet").read_bytes() != before


def test_embed_reads_standard_input(folder: Path) -> None:
    subprocess.run(
        [*ELMORE, "embed", "-", "-m", "model", "-o", "v.parquet"],
        input=TEXT, text=True, check=True, capture_output=True,
    )  # fmt: skip
    assert len(list(elmore.read_vectors("v.parquet"))) == 3


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "text.txt is empty; expected one sentence per line"),
        (b"fine\n\xff\n", "text.txt, line 2: byte 0xff at position 0 is not UTF-8"),
        (b"a\0b\n", "text.txt, line 1: NUL character"),
        (b"x" * 10_000_000, "text.txt, line 1: more than 1,000,000 bytes without a line break"),
        (b"x " * 5_000_000 + b"\n", "text.txt, line 1: more than 1,000,000 bytes"),
    ],
)
def test_embed_rejects_invalid_text(run, folder: Path, raw: bytes, message: str) -> None:
    Path("text.txt").write_bytes(raw)
    assert_rejected(run("embed", "text.txt", "-m", "model", "-o", "v.parquet"), message)
    assert not Path("v.parquet").exists()


def test_embed_replaces_invalid_text_with_the_option(run, folder: Path) -> None:
    Path("text.txt").write_bytes(b"a \xff\nb\0c\n")
    result = run(
        "embed", "text.txt", "-m", "model", "-o", "v.parquet", "--replace-invalid",
        "--tokenizer", "whitespace",
    )  # fmt: skip
    assert result.code == 0
    assert [r.tokens for r in elmore.read_vectors("v.parquet")] == [["a", "\ufffd"], ["b\ufffdc"]]


def test_embed_keeps_blank_lines_as_empty_sentences(run, folder: Path) -> None:
    Path("text.txt").write_text("\n\nword\n \n")
    assert run("embed", "text.txt", "-m", "model", "-o", "v.parquet").code == 0
    assert [len(r.tokens) for r in elmore.read_vectors("v.parquet")] == [0, 0, 1, 0]


def test_embed_rejects_invalid_output_paths(run, folder: Path) -> None:
    embed = ("embed", "text.txt", "-m", "model", "-o")
    assert_rejected(run(*embed, "text.txt/v.parquet"), "text.txt")
    assert_rejected(run(*embed, "v.csv"), "expected a name that ends in .parquet")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-m", "nothing"), "nothing: no such model"),
        (("-m", "text.txt"), "text.txt"),
        (("-m", "model", "--layers", "7"), "a number from 0 to 2"),
        (("-m", "model", "--resume", "--carry-state"), "carry_state rules out resume"),
    ],
)
def test_embed_rejects_invalid_options(run, folder: Path, args: tuple, message: str) -> None:
    assert_rejected(run("embed", "text.txt", *args, "-o", "v.parquet"), message)
    assert not Path("v.parquet").exists()


def test_embed_rejects_a_missing_text_file(run, folder: Path) -> None:
    assert_rejected(run("embed", "missing.txt", "-m", "model", "-o", "v.parquet"), "missing.txt")
    assert {path.name for path in folder.iterdir()} == {"model", "text.txt"}
    assert_rejected(run("embed", "model", "-m", "model", "-o", "v.parquet"), "model is a directory")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("embed",), "TEXT is missing. Usage: elmore embed --output PATH [OPTIONS] TEXT [MORE...]"),
        (("embed", "t"), "--output is missing. Usage: elmore embed --output PATH"),
        (("export", "onnx"), "--output is missing. Usage: elmore export onnx --output PATH"),
        (("train", "ner", "--train", "t", "-o", "r"), "--dev is missing. Usage: elmore train"),
        (("embed", "t", "--output"), "requires an argument."),
        (("embed", "t", "-o", "v", "--layrs", "top"), "Did you mean "),
        (("emed",), "Unknown command "),
        (("embed", "--outptu", "v", "t"), 'Invalid value "--outptu" for '),
        (("predict", "run", "-x", "Ada left"), 'Invalid value "-x" for '),
        (("predict", "run", "--formt=a b"), 'Invalid value "--formt=a b" for '),
        (("embed", "-o", "v", "--", "-x.txt"), "-x.txt: No such file or directory"),
        (("predict", "run", "Ada", "left"), "unexpected argument 'left'. Usage: elmore predict"),
        (("predict", "run", " "), "expected a text or the name of a file, got an empty argument"),
        (("predict", "run", "--format", "task", "Ada left"), "Ada left: no such file"),
    ],
)
def test_invalid_usage_is_a_one_line_error(run, args: tuple, message: str) -> None:
    result = run(*args)
    assert_rejected(result, message)
    assert len(result.err.splitlines()) == 1


def test_help_is_printed_without_a_command(run) -> None:
    result = run()
    assert result.code == 0
    assert "Usage: elmore" in result.out


@pytest.mark.parametrize("name", ["v.arrow", "v.h5"])
def test_full_disk_leaves_no_partial_files(folder: Path, name: str) -> None:
    """A limit on the file size makes writes fail like a full disk."""
    Path("text.txt").write_text("a sentence of some words .\n" * 400)
    embed = ("embed", "text.txt", "-m", "model", "-o", name)
    assert_rejected(Command(*embed, prepare=limit_file_sizes).wait(), "too large")
    assert not Path(name).exists()
    assert not list(Path().rglob("*.tmp"))


def limit_file_sizes() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


def slow_down() -> None:
    """Write every sentence immediately, and sleep before each batch until the signal comes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
    parts.BATCH_BYTES = 1
    run = SentenceRunner._run

    def run_slowly(*args: Any) -> Any:
        time.sleep(1)
        return run(*args)

    SentenceRunner._run = run_slowly  # type: ignore[method-assign]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_resumed_embed_equals_an_uninterrupted_run(
    run, folder: Path, signum: signal.Signals
) -> None:
    count = 1200  # two batches
    lines = [f"sentence number {i} has some words ." for i in range(count)]
    Path("long.txt").write_text("\n".join(lines))
    embed = ["embed", "long.txt", "-m", "model", "--layers", "top"]
    command = Command(*embed, "-o", "v.parquet", prepare=slow_down)
    written = Path("v.parquet.parts")
    while command.running() and not any(
        part.stat().st_size > 10_000 for part in written.glob("*.arrow")
    ):
        time.sleep(0.01)
    command.send_signal(signum)
    interrupted = command.wait()
    assert interrupted.code == (-9 if signum == signal.SIGKILL else 130)
    assert "Traceback" not in interrupted.err
    assert ("--resume" in interrupted.err) == (signum != signal.SIGKILL)
    assert interrupted.err.count("elmore: interrupted") == (signum != signal.SIGKILL)
    assert not Path("v.parquet").exists()
    assert list(written.glob("*.arrow"))

    assert_rejected(run(*embed, "-o", "v.parquet"), "Use the resume option")
    done = run(*embed, "-o", "v.parquet", "--resume", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert report["sentences"] == count
    assert report["words"] < count * 7  # the rest was computed before the interruption
    requeued = [*embed, "-o", "v.parquet", "--resume"]
    assert run(*requeued).out == "v.parquet is complete: 1,200 sentences\n"
    assert run(*requeued, "--dtype", "float16").code == 2
    rows = list(elmore.read_vectors("v.parquet"))
    expected = elmore.load("model").embed(lines, layers="top")
    assert [row.id for row in rows] == list(range(count))
    for row, vectors in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-5)
    assert not written.exists()


# --- convert, info, neighbors


def test_converted_models_give_the_same_vectors(run, folder: Path) -> None:
    assert run("convert", "model", "-o", "out/weights.hdf5").code == 0
    assert run("convert", "out/weights.hdf5", "out/options.json", "-o", "again").code == 0
    assert run("convert", "model", "-o", "half", "--dtype", "float16").code == 0
    assert run("convert", "model", "-o", "int8", "--dtype", "int8").code == 0
    expected = elmore.load("model").embed(["He sat."])[0]
    for name, tolerance in (("again", 1e-6), ("out", 1e-6), ("half", 1e-2), ("int8", 5e-2)):
        np.testing.assert_allclose(
            elmore.load(name).embed(["He sat."])[0], expected, atol=tolerance
        )


@pytest.mark.parametrize(
    "command",
    [command.__name__ for command in _ARGUMENTS]
    + [f"export {command.__name__}" for command in _EXPORT_ARGUMENTS],
)
def test_help_has_an_example_and_names_all_arguments(run, command: str) -> None:
    output = run(*command.split(), "--help").out
    assert f"elmore {command} " in output.partition("Parameters")[0].partition("\n\n")[2]
    assert "ARGS" not in output
    assert "COMMAND" not in output


def test_convert_rejects_invalid_input_and_keeps_existing_files(run, folder: Path) -> None:
    Path("options.json").write_text("precious")
    assert_rejected(run("convert", "model", "-o", "weights.hdf5"), "options.json exists already")
    assert_rejected(run("convert", "model", "-o", "model"), "model would replace the input model")
    assert_rejected(run("convert", "model", "-o", "."), ". would replace the input model")
    for value in ("nan", "inf", "0", "-3"):
        assert_rejected(
            run("convert", "model", "-o", "x", "--max-file-mb", value),
            "--max-file-mb must be positive",
        )
    assert_rejected(
        run("convert", "model", "-o", "out.bin"), "expected a directory, or a name that ends"
    )
    assert_rejected(run("convert", "model", "nope.json", "-o", "x"), "options is for HDF5 weights")
    assert_rejected(run("convert", "model", "--vocab", "nope.txt", "-o", "x"), "reads characters")
    assert_rejected(run("convert", "model", "-o", "x.h5", "--dtype", "int8"), "are for directories")
    Path("not.hdf5").write_text("no")
    assert_rejected(
        run("convert", "not.hdf5", "options.json", "-o", "x"), "is neither an HDF5 file nor an"
    )
    assert not Path("x").exists()
    assert Path("options.json").read_text() == "precious"


def test_convert_ignores_a_vocabulary_that_it_does_not_replace(run, folder: Path) -> None:
    Path("vocab.txt").write_text("precious")
    run("convert", "model", "-o", "weights.hdf5")
    assert Path("vocab.txt").read_text() == "precious"
    assert Path("options.json").exists()


def test_convert_overwrites_models_only(run, folder: Path) -> None:
    """Oracle: the files before the command."""
    run("convert", "model", "-o", "own")
    for name, content in {
        "proj/thesis.tex": "x",
        "mixed/config.json": Path("own/config.json").read_text(),
        "mixed/thesis.tex": "x",
        "other/config.json": '{"model_type": "bert"}',
        "weights/options.json": "x",
    }.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    Path("file").write_text("x")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for output, message in {
        "proj": "proj has no config.json, so elmore did not write it",
        "mixed": "mixed contains thesis.tex",
        "other": "does not describe a biLM",
        "file": "file has no config.json",
        "weights/w.hdf5": "options.json exists already",
        "model": "would replace the input",
    }.items():
        assert_rejected(run("convert", "model", "-o", output, "--overwrite"), message)
    assert before == {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    run("convert", "model", "-o", "own", "--overwrite", "--dtype", "float16")
    assert Path("own/model.safetensors").stat().st_size < 0.6 * len(
        before[Path("own/model.safetensors")]
    )


def test_convert_overwrites_only_hdf5_files_of_elmore(run, folder: Path) -> None:
    """Oracle: the files before the command."""
    words = Vocabulary(["<S>", "</S>", "<UNK>", "bank"])
    bilm = elmore.BiLM(replace(elmore.BiLMConfig.tiny(), vocab_size=4))
    write_directory(bilm, Path("words"), vocabulary=words)
    convert = ("convert", "words", "-o", "out/w.hdf5")
    assert run(*convert).code == 0
    assert_rejected(run(*convert), "w.hdf5 exists already")
    assert run(*convert, "--overwrite").code == 0
    with h5py.File("other.hdf5", "w") as file:
        file["scores"] = [1.0, 2.0]
    for name, content in {
        "w.hdf5": Path("other.hdf5").read_bytes(),
        "options.json": b'{"lstm": {}}',
        "vocab.txt": b"my\nown\nwords\n",
    }.items():
        own = Path("out", name).read_bytes()
        Path("out", name).write_bytes(content)
        before = {path: path.read_bytes() for path in Path("out").iterdir()}
        assert_rejected(run(*convert, "--overwrite"), f"elmore did not write {Path('out', name)}")
        assert before == {path: path.read_bytes() for path in Path("out").iterdir()}
        Path("out", name).write_bytes(own)


def test_info_describes_a_model(run, folder: Path) -> None:
    facts = json.loads(run("info", "model", "--json").out)
    assert facts["parameters"] == sum(p.numel() for p in elmore.load("model").bilm.parameters())
    assert facts["provenance"] == {"made": "up"}
    text = run("info", "model").out
    assert "3 layers of 32 dimensions per word" in text
    assert "Model card" not in text
    Path("model", "README.md").write_text("# Model card\n\nRandom weights.\n")
    assert run("info", "model").out.endswith("# Model card\n\nRandom weights.\n")
    assert_rejected(run("info", "nowhere"), "nowhere: no such model")


def test_info_describes_the_installation_and_lists_the_models(
    run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = json.loads(run("info", "--json").out)
    assert facts["elmore"] == elmore.__version__
    packages = [ModelPackage("gone", "elmore_gone", "elmore-gone", "2.0"), INCLUDED]
    monkeypatch.setattr("elmore.checkpoint.packages.model_packages", lambda: packages)
    error, english = json.loads(run("info", "--json").out)["models"]
    assert error["name"] == "gone"
    assert english in facts["models"]
    *_, header, row, message = run("info").out.splitlines()
    assert header.split() == ["model", "language", "parameters", "size", "package", "path"]
    assert row.split() == [
        "en", "en", "28,027,744", "83.1", "MB", "elmore", elmore.__version__, english["path"],
    ]  # fmt: skip
    assert message.startswith("gone: the package elmore-gone 2.0 of the model gone is broken: ")


def test_info_says_where_a_model_is_installed(run, folder: Path) -> None:
    facts = json.loads(run("info", "en", "--json").out)
    assert facts["package"] == f"elmore {elmore.__version__}"
    assert Path(facts["path"], "config.json").is_file()
    assert "package" not in json.loads(run("info", "model", "--json").out)


def test_neighbors_of_layer_0_are_the_same_word(run, folder: Path) -> None:
    args = ("neighbors", "A [bank] of the river.", "--corpus", "text.txt", "-m", "model", "-k", "2")
    results = json.loads(run(*args, "--json", "--layer", "0").out)
    assert [neighbor["word"] for neighbor in results] == ["bank", "bank"]
    assert {neighbor["line"] for neighbor in results} == {0, 2}
    assert results[0]["similarity"] == pytest.approx(1, abs=1e-5)
    lines = run(*args).out.splitlines()
    assert len(lines) == 3
    assert "A [bank] of the river ." in lines[0]


def test_neighbors_tokenizes_the_query_in_the_language_of_the_text(run, folder: Path) -> None:
    """Oracle: the rules of Moses for Korean, which do not split syllables."""
    Path("text.txt").write_text("\uae40\uc5f0\uc544 \uc120\uc218\n")
    args = ("--corpus", "text.txt", "-m", "model", "-k", "1", "--language", "ko", "--json")
    [neighbor] = json.loads(run("neighbors", "[\uae40\uc5f0\uc544] .", *args).out)
    assert neighbor["word"] in ("\uae40\uc5f0\uc544", "\uc120\uc218")
    tokens = elmore.tokenize("\uae40\uc5f0\uc544", language="en")
    assert len(tokens) == 3  # in brackets, these would be refused


def test_neighbors_rejects_invalid_input(run, folder: Path) -> None:
    Path("blank.txt").write_text("\n\n")
    args = ("-m", "model", "--corpus")
    assert_rejected(
        run("neighbors", "no brackets", *args, "text.txt"), "expected one word in brackets"
    )
    assert_rejected(
        run("neighbors", "a [b] c", *args, "blank.txt"), "blank.txt has no words to compare"
    )
    assert_rejected(run("neighbors", "a [b] c", *args, "none.txt"), "none.txt")
    assert_rejected(
        run("neighbors", "a [b] c", *args, "text.txt", "-k", "0"), "k must be at least 1"
    )
    assert_rejected(
        run("neighbors", "a [b] c", *args, "text.txt", "--layer", "9"),
        "layer must be top, average or a number from 0 to 2, got 9",
    )


def test_closed_pipe_is_not_an_error(folder: Path) -> None:
    if os.name == "nt":
        pytest.skip("needs bash")
    command = " ".join(f"'{part}'" for part in [*ELMORE, "info", "model"])
    done = subprocess.run(
        f"set -o pipefail; {command} | true", shell=True, executable="/bin/bash",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("raw", [io.BytesIO(), _Terminal()], ids=["pipe", "terminal"])
def test_output_in_a_pipe_is_utf8(
    run, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: io.BytesIO
) -> None:
    """A terminal keeps its encoding, and gets escapes of characters that it does not have."""
    embedder.save(tmp_path / "\uc601\uc5b4")
    stdout = io.TextIOWrapper(raw, encoding="latin-1", write_through=True)
    monkeypatch.setattr(sys, "stdout", stdout)
    assert run("info", tmp_path / "\uc601\uc5b4").code == 0
    expected = "\\uc601\\uc5b4" if raw.isatty() else "\uc601\uc5b4"
    assert expected in raw.getvalue().decode("utf-8").splitlines()[0]
