"""Padded batches. Oracle: the plain biLM on the same batch."""

import copy

import pytest
import torch
import torch.nn.functional as F

from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.padded import PaddedRunner
from elmore.text.characters import encode_sentences
from tests.inference.conftest import Case, random_state


@torch.no_grad()
def test_layers_and_state_equal_those_of_the_bilm(case: Case) -> None:
    runner = PaddedRunner(new_engine(copy.deepcopy(case.bilm)))
    state = None
    for _ in range(2):
        expected, actual = case.bilm(*case.padded, state), runner(*case.padded, state)
        torch.testing.assert_close(actual.layers, expected.layers, rtol=1e-5, atol=5e-6)
        assert not actual.layers.transpose(1, 2)[~case.padded.mask].any()
        for a, b in zip(actual.state, expected.state, strict=True):
            torch.testing.assert_close(a.cell, b.cell, rtol=1e-5, atol=1e-5)
        state = random_state(case.bilm.config, len(case.lengths))


@torch.no_grad()
@pytest.mark.parametrize("max_words", [1, 10, 1000])
def test_words_have_the_layers_of_their_sentences(case: Case, max_words: int) -> None:
    runner = PaddedRunner(new_engine(copy.deepcopy(case.bilm)))
    ids, mask = case.padded
    start = runner.start_state(torch.stack([ids[0, 0], ids[0, mask[0].sum() - 1]]))
    word_mask = F.pad(case.padded.word_mask, (1, 1))
    actual = runner.run_words(ids, word_mask, start, max_words=max_words)
    expected = case.words_of(case.expected()[0])
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=5e-6)
    empty = runner.run_words(ids[:0], mask[:0], start, max_words=max_words)
    assert empty.shape == (len(expected), 0, expected.shape[2])


@torch.no_grad()
def test_rows_without_tokens_keep_their_state(tiny: Case) -> None:
    runner = PaddedRunner(new_engine(copy.deepcopy(tiny.bilm)))
    ids, mask = tiny.padded
    mask = mask.clone()
    mask[1] = False
    state = random_state(tiny.bilm.config, len(ids))
    layers, after = runner(ids, mask, state)
    assert not layers[1].any()
    assert all(torch.equal(a.cell[1], b.cell[1]) for a, b in zip(after, state, strict=True))


def test_batch_without_sentences_gives_empty_layers(tiny: Case) -> None:
    runner = PaddedRunner(new_engine(copy.deepcopy(tiny.bilm)))
    assert runner(*encode_sentences([])).layers.shape == (0, 3, 2, 32)


def test_layers_can_be_used_in_autograd(tiny: Case) -> None:
    """The word cache is filled in inference mode, and the layers are computed under autocast."""
    runner = PaddedRunner(new_engine(copy.deepcopy(tiny.bilm)))
    with torch.inference_mode():
        runner(*tiny.padded)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layers = runner(*tiny.padded).layers
    assert layers.dtype == torch.float32
    scale = torch.ones((), requires_grad=True)
    (layers * scale).sum().backward()
    assert scale.grad == pytest.approx(layers.sum().item(), rel=1e-4)


def test_character_ids_of_another_width_are_rejected(tiny: Case) -> None:
    runner = PaddedRunner(new_engine(copy.deepcopy(tiny.bilm)))
    with pytest.raises(InputError, match="reads 50 characters per word"):
        runner(*encode_sentences([["a"]], width=30))
