"""`elmore index`, and `elmore neighbors` with an index. Oracle: `elmore neighbors --corpus`."""

import json
from pathlib import Path

import pytest

import elmore
from elmore.checkpoint.directory import write_directory
from tests.cli.conftest import assert_rejected

TEXT = "She wrote a play.\n\nThey play chess in the park.\nThe play was long.\nThe bank failed.\n"
QUERY = "We saw a [play]."


@pytest.fixture(autouse=True)
def folder(bilm: elmore.BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a model and a text file."""
    write_directory(bilm, tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)


def test_index_gives_the_neighbors_of_its_corpus(run) -> None:
    result = run("index", "text.txt", "-m", "model", "-o", "idx", "--layer", "0")
    sentences, summary = result.out.splitlines()
    assert sentences.startswith("5 sentences -> idx (21 words in ")
    assert summary.startswith("flat, 0.0 MB, recall@10 1.000 (mean of 21 words)")
    args = ("neighbors", QUERY, "-m", "model", "-k", "4")
    expected = run(*args, "--corpus", "text.txt", "--layer", "0").out
    assert expected.count("[play]") == 4
    assert run(*args, "--index", "idx").out == expected
    assert run(*args, "--index", "idx", "--layer", "0").out == expected
    neighbors = json.loads(run(*args, "--index", "idx", "--json").out)
    assert [n["line"] for n in neighbors[:3]] == [0, 2, 3]
    assert {n["word"] for n in neighbors[:3]} == {"play"}


def test_index_reports_as_json(run) -> None:
    facts = json.loads(run("index", "text.txt", "-m", "model", "-o", "idx", "--json").out)
    manifest = json.loads(Path("idx/manifest.json").read_text())
    assert facts | manifest == facts
    assert facts["folder"] == "idx"
    assert facts["model"]["weights_hash"] == elmore.load("model").weights_hash


def test_invalid_input_is_rejected(run) -> None:
    index = ("index", "text.txt", "-m", "model", "-o", "idx")
    assert_rejected(run(*index, "--kind", "ivf-pq"), "needs at least 10,000 words, got 21")
    assert_rejected(run(*index, "--layer", "3"), "a number from 0 to 2")
    assert_rejected(run("index", "none.txt", "-m", "model", "-o", "idx"), "none.txt")
    assert not Path("idx").exists()
    assert run(*index).code == 0
    assert_rejected(run(*index), "idx exists already")
    neighbors = ("neighbors", QUERY, "-m", "model")
    assert_rejected(run(*neighbors), "pass either --corpus or --index")
    assert_rejected(
        run(*neighbors, "--corpus", "text.txt", "--index", "idx"), "pass either --corpus or --index"
    )
    assert_rejected(
        run(*neighbors, "--index", "idx", "--layer", "0"), "the vectors of layer top, not 0"
    )
    assert_rejected(run(*neighbors, "--index", "model"), "expected an index")
    assert_rejected(
        run(*neighbors, "--index", "idx", "--tokenizer", "whitespace"),
        "was split by the tokenizer moses for en",
    )
    write_directory(elmore.BiLM(elmore.BiLMConfig.tiny()), Path("other"))
    assert_rejected(
        run("neighbors", QUERY, "-m", "other", "--index", "idx"), "idx was built with another model"
    )
