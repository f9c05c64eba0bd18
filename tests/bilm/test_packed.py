"""Oracle: the biLM as it is."""

import copy
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from elmore.bilm import packed
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.packed import PackedBiLM, worth_packing
from elmore.bilm.products import PackedFloat, can_pack
from elmore.checkpoint.pretrained import read_pretrained
from elmore.text.characters import encode_words
from elmore.text.sentences import TokenBatch, batch_sentences
from tests.oracles.releases import VARIANTS, write_release

SENTENCES = [["rates"], ["the", "bank", "of", "the", "river", "."] * 30, [], ["Banks", "fail"]]

needs_packing = pytest.mark.skipif(not can_pack(), reason="no oneDNN here")
needs_int8 = pytest.mark.skipif(not can_pack("int8"), reason="no x86 here")


def assert_as_exact(
    found: Tensor, bilm: BiLM, batch: TokenBatch, part: Callable[[Tensor], Tensor] = torch.clone
) -> None:
    """Oracle: the biLM in float64, from which the plain one is away by some rounding too."""
    plain = part(bilm(*batch).layers)
    exact = part(copy.deepcopy(bilm).double()(*batch).layers)
    rounding = float((plain - exact).abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=3 * rounding + 1e-6)


class Numbered(NamedTuple):
    """A batch as token vectors, and numbers of words and marks; equal ones have one number."""

    vectors: Tensor
    words: Tensor
    lengths: Tensor
    marks: Tensor


def numbered(bilm: BiLM, batch: TokenBatch) -> Numbered:
    B, T, *C = batch.ids.shape
    distinct, numbers = batch.ids.reshape(B * T, -1).unique(dim=0, return_inverse=True)
    numbers = numbers.view(B, T)
    lengths = batch.word_mask.sum(dim=1)
    marks = torch.stack([numbers[0, 0], numbers[0, lengths[0] + 1]])
    vectors = bilm.encode(distinct.view(-1, *C))
    return Numbered(vectors, numbers[:, 1:-1][batch.word_mask], lengths, marks)


def of_words(layers: Tensor, batch: TokenBatch) -> Tensor:
    """(B, J, T, D) -> (J, N, D), without marks and padding."""
    return layers[:, :, 1:-1].transpose(0, 1)[:, batch.word_mask]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[BiLM, TokenBatch]:
    release = write_release(tmp_path, VARIANTS[request.param])
    bilm, vocabulary, *_ = read_pretrained(release.weights_file)
    width = bilm.config.max_characters
    encode = vocabulary.encode_words if vocabulary else lambda words: encode_words(words, width)
    return bilm, batch_sentences(SENTENCES, encode)


@needs_packing
@torch.inference_mode()
def test_a_packed_twin_gives_the_same(variant: tuple[BiLM, TokenBatch]) -> None:
    bilm, batch = variant
    expected, found = bilm(*batch), PackedBiLM(bilm.config, bilm.state_dict())(*batch)
    assert_as_exact(found.layers, bilm, batch)
    for a, b in zip(found.state, expected.state, strict=True):
        torch.testing.assert_close(a.cell, b.cell, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a.output, b.output, rtol=1e-5, atol=1e-5)


@needs_packing
@torch.inference_mode()
def test_words_between_marks_are_read_as_with_them(variant: tuple[BiLM, TokenBatch]) -> None:
    bilm, batch = variant
    for twin in (bilm, PackedBiLM(bilm.config, bilm.state_dict())):
        found = twin.contextualize_words(*numbered(bilm, batch))
        assert_as_exact(found, bilm, batch, lambda layers: of_words(layers, batch))


@needs_packing
@torch.inference_mode()
def test_sentences_without_words_have_no_vectors(bilm: BiLM) -> None:
    batch = batch_sentences([[], []], lambda words: encode_words(words, 50))
    for twin in (bilm, PackedBiLM(bilm.config, bilm.state_dict())):
        found = twin.contextualize_words(*numbered(bilm, batch))
        assert found.shape == (3, 0, 2 * bilm.config.dim)


@needs_packing
@torch.inference_mode()
def test_no_sentences_have_no_layers(bilm: BiLM) -> None:
    twin = PackedBiLM(bilm.config, bilm.state_dict())
    x, mask = torch.zeros(0, 4, bilm.config.dim), torch.zeros(0, 4, dtype=torch.bool)
    assert twin.contextualize(x, mask).layers.shape == bilm.contextualize(x, mask).layers.shape


@needs_packing
@torch.inference_mode()
def test_a_mark_is_read_once_for_all_sentences(bilm: BiLM) -> None:
    """Oracle: rows counted by hand, in the second layer, which knows nothing of equal words."""
    batch = batch_sentences([["a", "b"], [], ["a", "b"]], lambda words: encode_words(words, 50))
    twin = PackedBiLM(bilm.config, bilm.state_dict())
    rows: list[int] = []
    for stack in (twin.forward_lstms, twin.backward_lstms):
        stack[1].input.register_forward_hook(lambda _, args, __: rows.append(len(args[0])))
    twin.contextualize_words(*numbered(bilm, batch))
    assert sorted(rows) == [1, 1, 4, 4]


@needs_packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unpacked_weights_are_those_that_were_packed(
    variant: tuple[BiLM, TokenBatch], dtype: torch.dtype
) -> None:
    """Oracle: the state dict."""
    bilm = variant[0].to(dtype)
    found = dict(PackedBiLM(bilm.config, bilm.state_dict()).unpack())
    assert found.keys() == bilm.state_dict().keys()
    for name, weight in bilm.state_dict().items():
        assert torch.equal(found[name], weight), name


@needs_packing
def test_a_matrix_is_gone_when_it_is_packed(bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: weak references to the plain matrices, counted whenever one more is packed."""
    weights = {name: value.clone() for name, value in bilm.state_dict().items()}
    plain = [weakref.ref(value) for value in weights.values() if value.dim() > 1]
    alive = []
    init = PackedFloat.__init__

    def pack_and_count(self: PackedFloat, *args: Any) -> None:
        init(self, *args)
        alive.append(sum(ref() is not None for ref in plain))

    monkeypatch.setattr(PackedFloat, "__init__", pack_and_count)
    twin = PackedBiLM(bilm.config, weights)
    assert not weights
    one_more = 1  # which is being packed
    matrices = len(plain) - 1  # the table of characters stays as it is
    assert len(alive) == matrices
    assert all(left <= matrices - i + one_more for i, left in enumerate(alive))
    del twin
    assert not any(ref() is not None for ref in plain)


@needs_packing
@torch.inference_mode()
def test_a_word_that_comes_again_is_multiplied_once(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracles: the twin that knows nothing of words; counts of rows by hand."""
    sentences = [["a", "rose", "is", "a", "rose"], ["is", "it"], ["a"]]
    batch = batch_sentences(sentences, lambda words: encode_words(words, 50))
    twin = PackedBiLM(bilm.config, bilm.state_dict())
    expected = of_words(twin(*batch).layers, batch)
    row = 4 * bilm.config.cell_dim * 4  # bytes
    for most, products in ((9, [1, 4]), (3, [1, 2, 3, 2]), (1, [1, 2, 2, 1, 1, 1])):
        rows: list[int] = []
        monkeypatch.setattr(packed, "_BYTES_AT_ONCE", most * row)
        hook = twin.forward_lstms[0].input.register_forward_hook(
            lambda _, args, __, rows=rows: rows.append(len(args[0]))
        )
        found = twin.contextualize_words(*numbered(bilm, batch))
        hook.remove()
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
        # Steps: <S>; a is a; rose it; is; a; rose.
        assert rows == products


@needs_packing
@torch.inference_mode()
def test_state_goes_in_and_comes_out(bilm: BiLM) -> None:
    batch = batch_sentences(SENTENCES, lambda words: encode_words(words, 50))
    twin = PackedBiLM(bilm.config, bilm.state_dict())
    state = bilm(*batch).state
    before = [s.cell.clone() for s in state]
    expected, found = bilm(*batch, state), twin(*batch, state)
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=2e-6)
    assert all(torch.equal(s.cell, b) for s, b in zip(state, before, strict=True))


@needs_packing
@torch.inference_mode()
def test_the_gates_of_a_long_sentence_come_in_parts(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_sentences(SENTENCES, lambda words: encode_words(words, 50))
    twin = PackedBiLM(bilm.config, bilm.state_dict())
    whole = twin(*batch).layers
    row = 4 * bilm.config.cell_dim * 4  # bytes
    for rows in (0, 1, 5, 50):
        monkeypatch.setattr(packed, "_BYTES_AT_ONCE", rows * row)
        torch.testing.assert_close(twin(*batch).layers, whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("arithmetic", "dtype", "least"),
    [
        pytest.param("float", torch.bfloat16, 0.999, marks=needs_packing),
        pytest.param("int8", torch.float32, 0.995, marks=needs_int8),
    ],
)
@torch.inference_mode()
def test_fewer_digits_stay_close(arithmetic, dtype: torch.dtype, least: float) -> None:
    bilm = BiLM(BiLMConfig(dim=64, cell_dim=256)).eval()
    for parameter in bilm.parameters():
        parameter *= 1.5  # away from the small numbers that a biLM starts with
    batch = batch_sentences(SENTENCES, lambda words: encode_words(words, 50))
    expected = bilm(*batch).layers
    found = PackedBiLM(bilm.config, bilm.to(dtype).state_dict(), arithmetic)(*batch).layers.float()
    words = batch.mask[:, None].expand(expected.shape[:3])
    cosine = torch.cosine_similarity(found[words], expected[words], dim=-1)
    assert cosine.min() >= least
    assert cosine.mean() >= 0.999


def test_packing_is_for_large_matrices_on_a_cpu(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not worth_packing(bilm)
    monkeypatch.setattr(packed, "_SMALLEST", 1)
    assert worth_packing(bilm) == can_pack()
    assert not worth_packing(bilm.to("meta"))
