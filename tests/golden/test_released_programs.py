"""Oracles: AllenNLP 2.10.1 and bilm-tf 0.1.post5 themselves, whose vectors `make.py` has stored."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import elmore
from elmore.compat import allennlp
from tests.golden.models import (
    BATCHES,
    MIX_WEIGHTS,
    MODELS,
    READABLE,
    SAME_WEIGHTS,
    SENTENCES,
    digest,
    thin,
)
from tests.oracles.releases import VARIANTS, Release, write_release

# Float32 rounding: elmore is within 4e-7 of both programs in the small models. In the large one,
# where components reach 2.1, AllenNLP, bilm-tf and elmore are each about 1e-6 away from float64.
TOLERANCE, TOLERANCE_LARGE = 1e-6, 3e-6


class Golden(NamedTuple):
    """A model on disk, and what a released program computes with it."""

    name: str
    release: Release
    fresh: list[np.ndarray]
    """All layers of each of SENTENCES from a zero state: (J, W, D)."""
    carried: list[np.ndarray]
    """The same with the state of each row carried from batch to batch."""


@cache
def stored(program: str) -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name(f"{program}.npz")) as file:
        return dict(file)


def split(words: np.ndarray, sentences: Sequence[Sequence[str]] = SENTENCES) -> list[np.ndarray]:
    """Split an array of all words, whose second to last axis is the word, by sentence."""
    ends = np.cumsum([len(sentence) for sentence in sentences])
    assert ends[-1] == words.shape[-2]
    return np.split(words, ends[:-1], axis=-2)


def read(program: str, name: str, folder: Path) -> Golden:
    release = write_release(folder, MODELS[name])
    arrays, key = stored(program), SAME_WEIGHTS.get(name, name)
    carried, fresh = (split(arrays[f"{key}/{kind}"]) for kind in ("carried", "fresh"))
    return Golden(name, release, fresh, carried)


def load(release: Release) -> elmore.Embedder:
    return elmore.load(release.weights_file, options=release.options_file, device="cpu")


def assert_equal(found: Iterable[np.ndarray], golden: Golden, expected: list[np.ndarray]) -> None:
    atol = TOLERANCE_LARGE if golden.name == "large" else TOLERANCE
    for vectors, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(thin(vectors, golden.name), theirs, rtol=0, atol=atol)


PAIRS = [(program, name) for program, names in READABLE.items() for name in names]
PAIRS += [("bilm_tf", name) for name in SAME_WEIGHTS]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return read(*request.param, tmp_path)


@pytest.fixture(params=READABLE["allennlp"])
def of_allennlp(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return read("allennlp", request.param, tmp_path)


def test_every_variant_of_released_files_has_golden_vectors() -> None:
    assert VARIANTS.keys() <= {name for _, name in PAIRS}


@pytest.mark.parametrize("program", READABLE)
def test_the_programs_read_the_weights_that_are_drawn_here(program: str, tmp_path: Path) -> None:
    for name in READABLE[program]:
        release = write_release(tmp_path, MODELS[name])
        assert digest(release) == stored(program)[f"{name}/digest"], name


def test_state_and_clipping_matter() -> None:
    """Otherwise equal vectors would prove little."""
    for program in READABLE:
        arrays = stored(program)
        for name in READABLE[program]:
            assert np.abs(arrays[f"{name}/carried"] - arrays[f"{name}/fresh"]).max() > 0.05
        assert np.abs(arrays["usual/fresh"] - arrays["no clipping/fresh"]).max() > 0.1


def test_sentences_are_embedded_from_a_zero_state(golden: Golden) -> None:
    assert_equal(load(golden.release).embed(SENTENCES), golden, golden.fresh)


def test_carried_state_reads_the_rows_of_the_batches_as_texts(golden: Golden) -> None:
    """A row is one text: the sentences beside it in the batch do not matter."""
    elmo = load(golden.release)
    numbers = iter(range(len(SENTENCES)))
    batches = [[next(numbers) for _ in batch] for batch in BATCHES]
    for row in range(max(map(len, batches))):
        text = [batch[row] for batch in batches if row < len(batch)]
        found = elmo.embed([SENTENCES[i] for i in text], carry_state=True)
        assert_equal(found, golden, [golden.carried[i] for i in text])


def test_elmo_embedder_carries_state_by_row(of_allennlp: Golden) -> None:
    files = of_allennlp.release.options_file, of_allennlp.release.weights_file
    embedder = allennlp.ElmoEmbedder(*files)
    found = [vectors for batch in BATCHES for vectors in embedder.embed_batch(batch)]
    assert_equal(found, of_allennlp, of_allennlp.carried)
    embedder = allennlp.ElmoEmbedder(*files, stateful=False)
    found = [vectors for batch in BATCHES for vectors in embedder.embed_batch(batch)]
    assert_equal(found, of_allennlp, of_allennlp.fresh)


@torch.no_grad()
@pytest.mark.parametrize("stateful", [True, False])
def test_each_layer_of_allennlps_elmo(of_allennlp: Golden, stateful: bool) -> None:
    files = of_allennlp.release.options_file, of_allennlp.release.weights_file
    expected = of_allennlp.carried if stateful else of_allennlp.fresh
    num_layers = len(expected[0])
    for layer in range(num_layers):
        weights = [1.0 if j == layer else -9e10 for j in range(num_layers)]
        module = allennlp.Elmo(
            *files, 1, dropout=0, scalar_mix_parameters=weights, stateful=stateful
        ).eval()
        found = [vectors for batch in BATCHES for vectors in run(module, batch)]
        assert_equal(found, of_allennlp, [layers[layer] for layers in expected])


def run(module: allennlp.Elmo, batch: list[list[str]]) -> list[np.ndarray]:
    """Return the first representation of each sentence."""
    output = module(allennlp.batch_to_ids(batch))
    rows = zip(output["elmo_representations"][0], output["mask"].sum(dim=1), strict=True)
    return [row[:length].numpy() for row, length in rows]


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mix", {}),
        ("mix, layer norm", {"do_layer_norm": True}),
        ("mix, boundaries", {"keep_sentence_boundaries": True}),
    ],
)
def test_mixes_of_allennlps_elmo(tmp_path: Path, kind: str, options: dict[str, bool]) -> None:
    golden = read("allennlp", "usual", tmp_path)
    module = allennlp.Elmo(
        golden.release.options_file, golden.release.weights_file, 1,
        scalar_mix_parameters=MIX_WEIGHTS, **options,
    ).eval()  # fmt: skip
    found = [vectors for batch in BATCHES for vectors in run(module, batch)]
    sentences = [["<S>", *words, "</S>"] for words in SENTENCES] if "bound" in kind else SENTENCES
    assert_equal(found, golden, split(stored("allennlp")[f"usual/{kind}"], sentences))


@torch.no_grad()
@pytest.mark.parametrize(
    ("program", "kind", "options"),
    [
        ("allennlp", "mix", {}),
        ("allennlp", "mix, layer norm", {"layer_norm": "allennlp"}),
        ("bilm_tf", "mix", {}),
        ("bilm_tf", "mix, layer norm", {"layer_norm": "bilm-tf"}),
        ("bilm_tf", "mix, top", {"weights": "top"}),
    ],
)
def test_mixes_of_elmore(tmp_path: Path, program: str, kind: str, options: dict[str, str]) -> None:
    """In the first batch, before which the released programs have no state."""
    golden = read(program, "usual", tmp_path)
    elmo = load(golden.release)
    words = elmore.Elmo(elmo.bilm, **{"weights": MIX_WEIGHTS, **options}).eval()
    [mixed] = words(elmo.encode(BATCHES[0]))
    found = [row[: len(s)].numpy() for row, s in zip(mixed, BATCHES[0], strict=True)]
    expected = split(stored(program)[f"usual/{kind}"])[: len(BATCHES[0])]
    assert_equal(found, golden, expected)
