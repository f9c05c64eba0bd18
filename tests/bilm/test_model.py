"""The biLM. Oracles: a biLM in NumPy, for every variant of the released files; invariants."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.bilm.model import BiLM, flip
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.characters import encode_sentences
from tests.oracles import released_bilm
from tests.oracles.releases import VARIANTS, write_release

SENTENCE = ["The", "central", "bank", "raised", "its", "rates", "."]
SENTENCES = [
    ["the", "bank", "of", "the", "river", "."],
    [],
    ["Straße", "", "<S>", "</S>", "<UNK>", "\ud800x", "가나다라마바사아자차카타파하가나다라마"],
    ["rates"],
    ["antidisestablishmentarianism" * 3, "the", "bank"],
]


@pytest.mark.parametrize("name", VARIANTS)
def test_layers_of_every_released_variant_equal_numpy(name: str, tmp_path: Path) -> None:
    """All layers, with the state carried from each sentence to the next."""
    release = write_release(tmp_path, VARIANTS[name])
    pretrained = read_pretrained(release.weights_file)
    elmo = Embedder(pretrained.bilm, vocabulary=pretrained.vocabulary, device="cpu")
    actual = elmo.embed(SENTENCES, carry_state=True)

    state = None
    for words, vectors in zip(SENTENCES, actual, strict=True):
        expected, state = released_bilm.embed(
            words, release.weights, release.options, state, release.vocabulary
        )
        np.testing.assert_allclose(vectors, expected[:, 1:-1], atol=2e-6)


@torch.no_grad()
def test_each_direction_depends_only_on_its_side_of_the_context(bilm: BiLM) -> None:
    """Replacing word k changes only forward vectors from k on and backward vectors up to k."""
    k = 3  # position of "bank" after <S>
    changed = [*SENTENCE]
    changed[k - 1] = "shop"
    before = bilm(*encode_sentences([SENTENCE])).layers[0, 1:]  # (L, T, 2D)
    after = bilm(*encode_sentences([changed])).layers[0, 1:]
    forward, backward = (before - after).abs().amax(dim=0).chunk(2, dim=-1)  # (T, D) each

    assert (forward[:k] == 0).all()
    assert (forward[k:].amax(dim=-1) > 0).all()
    assert (backward[k + 1 :] == 0).all()
    assert (backward[: k + 1].amax(dim=-1) > 0).all()


@torch.no_grad()
def test_padding_does_not_change_vectors_and_is_zero_in_all_layers(bilm: BiLM) -> None:
    unpadded = bilm(*encode_sentences([SENTENCE]))
    padded = bilm(*encode_sentences([SENTENCE * 3, SENTENCE, []]))
    T = len(SENTENCE) + 2
    torch.testing.assert_close(padded.layers[1:2, :, :T], unpadded.layers)
    assert not padded.layers[1, :, T:].any()
    assert not padded.layers[2, :, 2:].any()
    for row, state in zip(padded.state, unpadded.state, strict=True):
        torch.testing.assert_close(row.output[1:2], state.output)
        torch.testing.assert_close(row.cell[1:2], state.cell)


@torch.no_grad()
def test_state_is_carried_only_if_passed_in(bilm: BiLM) -> None:
    batch = encode_sentences([SENTENCE])
    first, state = bilm(*batch)
    second, _ = bilm(*batch)
    carried, _ = bilm(*batch, state)
    assert torch.equal(first, second)
    assert not torch.allclose(first[:, 1:], carried[:, 1:])
    assert torch.equal(first[:, 0], carried[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_forward_layers_of_two_windows_with_carried_state_equal_one_long_window(
    bilm: BiLM, cut: int
) -> None:
    ids, mask = encode_sentences([SENTENCE])
    expected = bilm(ids, mask).layers
    first, state = bilm(ids[:, :cut], mask[:, :cut])
    second, _ = bilm(ids[:, cut:], mask[:, cut:], state)
    D = bilm.config.dim
    torch.testing.assert_close(torch.cat([first, second], dim=2)[..., :D], expected[..., :D])


def test_layer_0_is_the_token_vector_twice(bilm: BiLM) -> None:
    ids, mask = encode_sentences([SENTENCE])
    x = bilm.encode(ids)
    torch.testing.assert_close(bilm(ids, mask).layers[:, 0], torch.cat([x, x], dim=-1))


def test_dropout_is_active_only_in_training_mode(bilm: BiLM) -> None:
    batch = encode_sentences([SENTENCE])
    assert torch.equal(bilm(*batch).layers, bilm(*batch).layers)
    bilm.train()
    assert not torch.equal(bilm(*batch).layers, bilm(*batch).layers)


def test_every_parameter_has_a_gradient(bilm: BiLM) -> None:
    bilm(*encode_sentences([SENTENCE])).layers.square().sum().backward()
    for name, parameter in bilm.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_flip_reverses_sentences_but_not_padding() -> None:
    x = torch.tensor([[1.0, 2, 3, 0], [4, 5, 6, 7]])[..., None]
    assert flip(x, torch.tensor([3, 4]))[..., 0].tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]


def test_character_ids_of_another_width_are_rejected(bilm: BiLM) -> None:
    with pytest.raises(
        InputError, match=r"reads 50 characters per word, got ids of shape \(1, 9, 30\)"
    ):
        bilm(*encode_sentences([SENTENCE], width=30))
