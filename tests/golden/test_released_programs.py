"""Parity with released programs. Oracles: vectors of AllenNLP 2.10.1 and bilm-tf 0.1.post5."""

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
    stored_dims,
)
from tests.oracles.allennlp import state_dict
from tests.oracles.releases import VARIANTS, Release, write_release

# Float32 rounding: elmore is within 4e-7 of both programs in the small models. In the large one,
# where components reach 2.1, AllenNLP, bilm-tf and elmore are each about 1e-6 away from float64.
TOLERANCE, TOLERANCE_LARGE = 1e-6, 3e-6


class Golden(NamedTuple):
    """A model on disk, and its vectors by a released program."""

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


def assert_equal(actual: Iterable[np.ndarray], golden: Golden, expected: list[np.ndarray]) -> None:
    atol = TOLERANCE_LARGE if golden.name == "large" else TOLERANCE
    for vectors, reference in zip(actual, expected, strict=True):
        np.testing.assert_allclose(stored_dims(vectors, golden.name), reference, rtol=0, atol=atol)


PAIRS = [(program, name) for program, names in READABLE.items() for name in names]
PAIRS += [("bilm_tf", name) for name in SAME_WEIGHTS]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return read(*request.param, tmp_path)


@pytest.fixture(params=READABLE["allennlp"])
def allennlp_golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return read("allennlp", request.param, tmp_path)


def test_every_variant_of_released_files_has_golden_vectors() -> None:
    assert VARIANTS.keys() <= {name for _, name in PAIRS}


@pytest.mark.parametrize("program", READABLE)
def test_generated_weights_equal_those_of_the_golden_vectors(program: str, tmp_path: Path) -> None:
    for name in READABLE[program]:
        release = write_release(tmp_path, MODELS[name])
        assert digest(release) == stored(program)[f"{name}/digest"], name


def test_golden_vectors_depend_on_state_and_clipping() -> None:
    """Otherwise, the comparisons would not test them."""
    for program in READABLE:
        arrays = stored(program)
        for name in READABLE[program]:
            assert np.abs(arrays[f"{name}/carried"] - arrays[f"{name}/fresh"]).max() > 0.05
        assert np.abs(arrays["usual/fresh"] - arrays["no clipping/fresh"]).max() > 0.1


def test_embed_equals_the_released_programs_from_a_zero_state(golden: Golden) -> None:
    assert_equal(load(golden.release).embed(SENTENCES), golden, golden.fresh)


def test_embed_with_carried_state_equals_each_row_of_the_batches(golden: Golden) -> None:
    """Each row of the batches is one text, independent of the other rows."""
    elmo = load(golden.release)
    numbers = iter(range(len(SENTENCES)))
    batches = [[next(numbers) for _ in batch] for batch in BATCHES]
    for row in range(max(map(len, batches))):
        text = [batch[row] for batch in batches if row < len(batch)]
        actual = elmo.embed([SENTENCES[i] for i in text], carry_state=True)
        assert_equal(actual, golden, [golden.carried[i] for i in text])


def test_elmo_embedder_carries_the_state_of_each_row(allennlp_golden: Golden) -> None:
    files = allennlp_golden.release.options_file, allennlp_golden.release.weights_file
    embedder = allennlp.ElmoEmbedder(*files)
    actual = [vectors for batch in BATCHES for vectors in embedder.embed_batch(batch)]
    assert_equal(actual, allennlp_golden, allennlp_golden.carried)
    embedder = allennlp.ElmoEmbedder(*files, stateful=False)
    actual = [vectors for batch in BATCHES for vectors in embedder.embed_batch(batch)]
    assert_equal(actual, allennlp_golden, allennlp_golden.fresh)


@torch.no_grad()
@pytest.mark.parametrize("stateful", [True, False])
def test_each_layer_equals_that_of_allennlps_elmo(allennlp_golden: Golden, stateful: bool) -> None:
    files = allennlp_golden.release.options_file, allennlp_golden.release.weights_file
    expected = allennlp_golden.carried if stateful else allennlp_golden.fresh
    num_layers = len(expected[0])
    for layer in range(num_layers):
        weights = [1.0 if j == layer else -9e10 for j in range(num_layers)]
        module = allennlp.Elmo(
            *files, 1, dropout=0, scalar_mix_parameters=weights, stateful=stateful
        ).eval()
        actual = [vectors for batch in BATCHES for vectors in run(module, batch)]
        assert_equal(actual, allennlp_golden, [layers[layer] for layers in expected])


@torch.no_grad()
def test_bilm_of_a_state_dict_equals_that_of_allennlp(
    allennlp_golden: Golden, tmp_path: Path
) -> None:
    """Replaces other weights, which a first call has used."""
    name, release = allennlp_golden.name, allennlp_golden.release
    other = write_release(tmp_path / "other", MODELS[name], seed=1)
    for layer in range(num_layers := len(allennlp_golden.fresh[0])):
        weights = [1.0 if j == layer else -9e10 for j in range(num_layers)]
        module = allennlp.Elmo(
            other.options_file, other.weights_file, 1, dropout=0, scalar_mix_parameters=weights
        ).eval()
        run(module, BATCHES[0])
        mix = {k: v for k, v in module.state_dict().items() if k.startswith("scalar_mix_")}
        module.load_state_dict(mix | state_dict(release.weights))
        module.reset_states()
        actual = [vectors for batch in BATCHES for vectors in run(module, batch)]
        expected = [layers[layer] for layers in allennlp_golden.carried]
        assert_equal(actual, allennlp_golden, expected)


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
def test_compat_mixes_equal_those_of_allennlps_elmo(
    tmp_path: Path, kind: str, options: dict[str, bool]
) -> None:
    golden = read("allennlp", "usual", tmp_path)
    module = allennlp.Elmo(
        golden.release.options_file, golden.release.weights_file, 1,
        scalar_mix_parameters=MIX_WEIGHTS, **options,
    ).eval()  # fmt: skip
    actual = [vectors for batch in BATCHES for vectors in run(module, batch)]
    sentences = [["<S>", *words, "</S>"] for words in SENTENCES] if "bound" in kind else SENTENCES
    assert_equal(actual, golden, split(stored("allennlp")[f"usual/{kind}"], sentences))


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
def test_mixes_equal_those_of_the_released_programs(
    tmp_path: Path, program: str, kind: str, options: dict[str, str]
) -> None:
    """Only the first batch is compared: for later ones, the released programs carry state."""
    golden = read(program, "usual", tmp_path)
    elmo = load(golden.release)
    words = elmore.Elmo(elmo.bilm, **{"weights": MIX_WEIGHTS, **options}).eval()
    [mixed] = words(elmo.encode(BATCHES[0]))
    actual = [row[: len(s)].numpy() for row, s in zip(mixed, BATCHES[0], strict=True)]
    expected = split(stored(program)[f"usual/{kind}"])[: len(BATCHES[0])]
    assert_equal(actual, golden, expected)
