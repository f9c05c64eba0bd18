"""Search with faiss. Oracles: exact search of the corpus; all cosines in numpy; plain Python."""

import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.analysis.neighbors import Occurrence, nearest_neighbors
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.errors import InputError, MissingExtraError
from elmore.integrations.search import WordIndex, build_index
from elmore.integrations.search import build as build_module
from elmore.integrations.search import sentences as sentences_module
from elmore.integrations.search.build import BuiltIndex, _choose_kind, _factory
from elmore.integrations.search.sentences import SentenceFile, write_sentences

WORDS = ["the", "bank", "river", "play", "of", "in", "we", "they", "said", "new", "old", "went"]
RANDOM = random.Random(0)
LINES = [" ".join(RANDOM.choices(WORDS, k=RANDOM.randint(0, 9))) for _ in range(400)]
LINES += LINES[:40]  # repeated sentences


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    torch.manual_seed(0)
    return Embedder(BiLM(BiLMConfig.tiny()), device="cpu", tokenizer="whitespace")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture(autouse=True, scope="module")
def _few_queries() -> Iterator[None]:
    """Measure recall with 10 queries, which takes a tenth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "_QUERIES", 10)
        yield


@pytest.fixture(scope="module")
def flat(elmo: Embedder, text: Path, tmp_path_factory: pytest.TempPathFactory) -> BuiltIndex:
    """An exact index in several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "_BLOCK_WORDS", 50)
        patch.setattr(build_module, "_PART_BYTES", 50_000)
        return build_index(text, tmp_path_factory.mktemp("index") / "idx", model=elmo)


def test_flat_index_gives_the_results_of_an_exact_search(elmo: Embedder, flat: BuiltIndex) -> None:
    assert len(flat.manifest.parts) > 2
    assert flat.manifest.kind == "flat"
    assert flat.manifest.recall_at_10 == 1
    queries = [
        "we said the [bank]",
        f"[{LINES[0].split()[0]}] {LINES[0].partition(' ')[2]}",
        "[they]",
    ]
    queries += [Occurrence(line.split(), 0) for line in LINES[1:30] if line]
    results = WordIndex(flat.folder, verify=True).nearest_neighbors(elmo, queries, k=7)
    expected = nearest_neighbors(elmo, queries, LINES, k=7)
    for row, exact in zip(results, expected, strict=True):
        assert [n.similarity for n in row] == pytest.approx([n.similarity for n in exact], abs=1e-6)
        # Words in repeated sentences are equally similar.
        assert [str(n.occurrence) for n in row] == [str(n.occurrence) for n in exact]
        for neighbor in row:
            assert neighbor.occurrence.tokens == LINES[neighbor.line].split()


def test_own_sentence_is_skipped_however_often_it_is_repeated(
    elmo: Embedder, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("we went on\n" * 60 + "they said\n")
    built = build_index(tmp_path / "text.txt", tmp_path / "idx", model=elmo)
    [results] = WordIndex(built.folder).nearest_neighbors(elmo, ["we [went] on"], k=3)
    assert sorted(str(n.occurrence) for n in results) == ["[they] said", "they [said]"]


def test_recall_is_that_of_a_search_by_brute_force(
    elmo: Embedder, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "_PROBES", 1)
    monkeypatch.setattr(build_module, "_QUERIES", 40)
    monkeypatch.setitem(build_module._CANDIDATES, "ivf-sq8", 1)
    measure, queries = build_module._recall, []
    monkeypatch.setattr(build_module, "_recall", lambda *a: queries.extend(a[2]) or measure(*a))
    manifest = build_index(text, tmp_path / "idx", model=elmo, kind="ivf-sq8").manifest
    index = WordIndex(tmp_path / "idx")
    vectors = elmo.embed(LINES, layers="top")
    rows = np.concatenate(vectors)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sentence_of = [line for line, v in zip(LINES, vectors, strict=True) for _ in v]
    shares = []
    for query in queries:
        target = elmo.embed([query.tokens], layers="top")[0][query.position]
        cosines = rows @ (target / np.linalg.norm(target))
        cosines[[line.split() == query.tokens for line in sentence_of]] = -1
        tenth = np.sort(cosines)[-10]
        [results] = index.nearest_neighbors(elmo, [query], k=10)
        shares.append(sum(n.similarity > tenth - 1e-5 for n in results) / 10)
    assert len(queries) == manifest.recall_queries == 40
    assert manifest.recall_at_10 == pytest.approx(np.mean(shares), abs=0.01)
    assert 0.2 < manifest.recall_at_10 < 1


def test_compressed_index_finds_most_neighbors(elmo: Embedder, text: Path, tmp_path: Path) -> None:
    manifest = build_index(text, tmp_path / "idx", model=elmo, layer=1, kind="ivf-sq8").manifest
    assert manifest.recall_at_10 > 0.95
    assert (manifest.layer, manifest.dim, manifest.lists) == (1, 32, manifest.words // 64)
    assert manifest.words == sum(len(line.split()) for line in LINES)
    assert manifest.sentences == len(LINES)


def test_product_quantization(
    elmo: Embedder, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"ivf-pq needs at least 10,000 words, got 1,\d+"):
        build_index(text, tmp_path / "idx", model=elmo, kind="ivf-pq")
    monkeypatch.setattr(build_module, "_MIN_PQ", 1000)
    # Codes of 4 bits instead of 8, which train much faster.
    monkeypatch.setattr(build_module, "_factory", lambda kind, dim: f"{_factory(kind, dim)}x4")
    manifest = build_index(text, tmp_path / "idx", model=elmo, kind="ivf-pq").manifest
    assert manifest.factory.endswith(",PQ4x4")
    assert manifest.recall_at_10 > 0.5
    [results] = WordIndex(tmp_path / "idx").nearest_neighbors(elmo, ["we said the [bank]"], k=3)
    [exact] = nearest_neighbors(elmo, ["we said the [bank]"], LINES, k=1)
    assert results[0].similarity > exact[0].similarity - 0.05


def test_kind_is_chosen_by_size() -> None:
    sizes = [1, 50_000, 50_001, 20_000_000, 20_000_001]
    assert [_choose_kind(n) for n in sizes] == ["flat", "flat", "ivf-sq8", "ivf-sq8", "ivf-pq"]
    assert [_factory("ivf-pq", dim) for dim in (2, 32, 50, 1024)] == ["PQ1", "PQ4", "PQ5", "PQ128"]


@settings(max_examples=50, deadline=None)
@given(corpus=st.lists(st.lists(st.text(st.characters(codec="utf-8")), max_size=4), max_size=12))
def test_sentences_and_words_are_found_by_number(
    corpus: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "sentences.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences_module, "_BATCH_SENTENCES", 3)
        write_sentences(path, iter(corpus))
        file = SentenceFile(path)
        assert list(file) == [file[line] for line in range(len(file))] == corpus
        owners = chain.from_iterable([line] * len(words) for line, words in enumerate(corpus))
        assert [file.line_of(word) for word in range(file.num_words)] == list(owners)
        assert [file.first_word(line) for line in range(len(file))] == [
            sum(map(len, corpus[:line])) for line in range(len(corpus))
        ]
    shutil.rmtree(path.parent)


def test_other_models_are_refused(elmo: Embedder, flat: BuiltIndex, bilm: BiLM) -> None:
    index = WordIndex(flat.folder)
    bilm.encode.embed.weight.data += 1
    other = Embedder(bilm, device="cpu", tokenizer="whitespace")
    with pytest.raises(InputError, match=f"built with another model.*{other.weights_hash}"):
        index.nearest_neighbors(other, ["a [play]"])
    moses = Embedder(elmo.bilm, device="cpu")
    assert moses.weights_hash == elmo.weights_hash
    with pytest.raises(
        InputError, match=r"tokenizer whitespace for en, but the model is loaded with moses for en"
    ):
        index.nearest_neighbors(moses, ["a [play]"])


def test_invalid_queries_are_rejected(elmo: Embedder, flat: BuiltIndex) -> None:
    index = WordIndex(flat.folder)
    with pytest.raises(InputError, match="k must be at least 1"):
        index.nearest_neighbors(elmo, ["a [play]"], k=0)
    with pytest.raises(InputError, match="expected one word in brackets"):
        index.nearest_neighbors(elmo, ["a play"])
    with pytest.raises(TypeError, match="expected a list of queries"):
        index.nearest_neighbors(elmo, "a [play]")
    assert index.nearest_neighbors(elmo, []) == []
    assert repr(index).endswith("of 440 sentences, flat, layer=top)")


def test_damaged_index_is_refused(flat: BuiltIndex, tmp_path: Path) -> None:
    folder = tmp_path / "idx"
    shutil.copytree(flat.folder, folder)
    part = folder / "words-00001.faiss"
    good = part.read_bytes()
    part.write_bytes(good[:-1])
    with pytest.raises(InputError, match=r"words-00001\.faiss is missing or damaged"):
        WordIndex(folder)
    part.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(InputError, match=r"words-00001\.faiss is damaged: its checksum"):
        WordIndex(folder, verify=True)
    part.write_bytes(b"x" * len(good))
    with pytest.raises(InputError, match="is not readable"):
        WordIndex(folder)
    part.unlink()
    with pytest.raises(InputError, match="is missing or damaged"):
        WordIndex(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="the setting 'elmore_version' is missing"):
        WordIndex(folder)
    with pytest.raises(InputError, match="no such file; expected an index"):
        WordIndex(tmp_path)


def test_a_few_words_are_indexed_without_a_warning_of_faiss(
    elmo: Embedder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("we went on\n")
    build_index(tmp_path / "text.txt", tmp_path / "idx", model=elmo)
    assert capfd.readouterr() == ("", "")


def test_only_an_index_is_replaced(elmo: Embedder, tmp_path: Path) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "idx"
    text.write_text("we said\n")
    output.mkdir()
    (output / "notes.txt").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        build_index(text, output, model=elmo)
    with pytest.raises(InputError, match="elmore did not write it"):
        build_index(text, output, model=elmo, overwrite=True)
    (output / "notes.txt").unlink()
    assert build_index(text, output, model=elmo).manifest.words == 2
    text.write_text("we said so\n")
    with pytest.raises(InputError, match="exists already"):
        build_index(text, output, model=elmo)
    assert build_index(text, output, model=elmo, overwrite=True).manifest.words == 3
    with pytest.raises(InputError, match="would replace the input"):
        build_index(text, tmp_path, model=elmo, overwrite=True)


def test_invalid_input_is_rejected_and_nothing_is_left(
    elmo: Embedder, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n")
    output = tmp_path / "idx"
    with pytest.raises(InputError, match="the text has no words"):
        build_index(blank, output, model=elmo)
    with pytest.raises(InputError, match="kind must be flat, ivf-sq8 or ivf-pq, got 'hnsw'"):
        build_index(text, output, model=elmo, kind="hnsw")
    with pytest.raises(InputError, match="layer must be top, average or a number"):
        build_index(text, output, model=elmo, layer="all")
    with pytest.raises(InputError, match="an Embedder is loaded already; pass device"):
        build_index(text, output, model=elmo, device="cpu")
    with pytest.raises(FileNotFoundError):
        build_index(tmp_path / "missing.txt", output, model=elmo)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[search\]"'):
        build_index(text, output, model=elmo)
    assert [path.name for path in tmp_path.iterdir()] == ["blank.txt"]


def test_killed_build_leaves_the_previous_index(
    elmo: Embedder, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "idx"
    (tmp_path / "old.txt").write_text("we said\n")
    build_index(tmp_path / "old.txt", output, model=elmo)
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    if os.fork() == 0:
        build_module._recall = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        build_index(text, output, model=elmo, overwrite=True)
        os._exit(1)
    _, status = os.wait()
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert len(list(tmp_path.glob(".idx.*.tmp"))) == 1
    build_index(tmp_path / "old.txt", output, model=elmo, overwrite=True)
    assert not list(tmp_path.glob(".idx*"))
