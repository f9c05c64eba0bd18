"""ScalarMix and Elmo. Oracles: Eq. (1) in plain Python; layer norm in NumPy; the plain biLM."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.inference import cpu
from elmore.inference.padded import PaddedRunner
from elmore.mix import Elmo, ScalarMix, max_pool, mean_pool
from elmore.text.characters import encode_sentences

SENTENCES = [["The", "bank", "of", "the", "river"], ["Banks", "fail"], []]


def elmo_vector(gamma: float, w: list[float], h: list[list[float]]) -> list[float]:
    """Compute Eq. (1) for one token, without torch. h[j] is its vector in layer j."""
    z = sum(math.exp(w_j) for w_j in w)
    return [
        gamma * sum(math.exp(w_j) / z * h_j[d] for w_j, h_j in zip(w, h, strict=True))
        for d in range(len(h[0]))
    ]


def test_scalar_mix_equals_equation_1() -> None:
    mix = ScalarMix(3)
    w, gamma = [0.3, -1.2, 2.0], 0.7
    with torch.no_grad():
        mix.w.copy_(torch.tensor(w))
        mix.gamma.fill_(gamma)
    layers = torch.randn(2, 3, 4, 5)
    mixed = mix(layers)
    for b in range(2):
        for t in range(4):
            expected = elmo_vector(gamma, w, layers[b, :, t].tolist())
            assert mixed[b, t].tolist() == pytest.approx(expected, abs=1e-6)


def test_initial_mix_is_the_average_of_the_layers() -> None:
    mix = ScalarMix(3)
    layers = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(mix(layers), layers.mean(dim=1))
    assert {name for name, _ in mix.named_parameters()} == {"w", "gamma"}


def test_fixed_weights_are_normalized_by_softmax_and_gamma_is_fixed() -> None:
    mix = ScalarMix(3, weights=[1.0, 2.0, 3.0])
    h = torch.randn(1, 3, 1, 2)
    expected = elmo_vector(1.0, [1.0, 2.0, 3.0], h[0, :, 0].tolist())
    assert mix(h)[0, 0].tolist() == pytest.approx(expected, abs=1e-6)
    assert not any(p.requires_grad for p in mix.parameters())


@pytest.mark.parametrize(
    ("weights", "pick"), [("top", lambda h: h[:, -1]), ("average", lambda h: h.mean(1))]
)
def test_only_gamma_is_learned_with_top_and_average(weights: str, pick) -> None:
    mix = ScalarMix(3, weights=weights)  # type: ignore[arg-type]
    layers = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(mix(layers), pick(layers))
    assert [name for name, p in mix.named_parameters() if p.requires_grad] == ["gamma"]
    assert mix.penalty() == 0


def test_penalty_is_the_squared_norm_of_the_weights() -> None:
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.w.copy_(torch.tensor([1.0, -2.0, 3.0]))
    assert mix.penalty().item() == pytest.approx(14)
    mix.penalty().backward()
    assert mix.w.grad.tolist() == [2, -4, 6]


def test_layer_norm_per_token_equals_pytorch() -> None:
    layers = torch.randn(2, 3, 4, 5)
    expected = torch.nn.LayerNorm(5, elementwise_affine=False)(layers).mean(dim=1)
    for layer_norm in (True, "token"):
        torch.testing.assert_close(ScalarMix(3, layer_norm=layer_norm)(layers), expected)


def normalize_batch(layer: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Normalize by one mean and variance over all tokens in `mask` and all dimensions."""
    values = layer[mask]
    return (layer - values.mean()) / np.sqrt(values.var() + 1e-12)


@pytest.mark.parametrize("convention", ["allennlp", "bilm-tf"])
def test_layer_norm_of_the_released_programs_equals_numpy(bilm: BiLM, convention: str) -> None:
    """The statistics of AllenNLP include boundary tokens, those of bilm-tf do not."""
    batch = encode_sentences(SENTENCES)
    elmo = Elmo(bilm, layer_norm=convention, dropout=0.0)  # type: ignore[arg-type]
    [mixed] = elmo(batch)
    layers = bilm(*batch).layers.detach().numpy()
    lengths = [len(words) for words in SENTENCES]
    included = np.zeros(batch.mask.shape, dtype=bool)
    for row, n in enumerate(lengths):
        included[row, (slice(0, n + 2) if convention == "allennlp" else slice(1, n + 1))] = True
    normed = [normalize_batch(layers[:, j], included) for j in range(3)]
    expected = np.mean(normed, axis=0)
    for row, n in enumerate(lengths):
        np.testing.assert_allclose(mixed[row, :n].detach(), expected[row, 1 : n + 1], atol=1e-5)
        assert not mixed[row, n:].any()


def test_wrong_numbers_of_layers_are_rejected() -> None:
    with pytest.raises(InputError, match="expected 3 layers to mix, got 2"):
        ScalarMix(3)(torch.randn(1, 2, 4, 5))
    with pytest.raises(InputError, match="learned, average, top or 3 numbers"):
        ScalarMix(3, weights=[1.0, 2.0])


def test_elmo_runs_the_bilm_once_for_all_mixes(bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    run = PaddedRunner.__call__
    monkeypatch.setattr(PaddedRunner, "__call__", lambda *args: calls.append(1) or run(*args))
    at_input, at_output = Elmo(bilm, num_mixes=2, dropout=0.0)(encode_sentences(SENTENCES))
    assert len(calls) == 1
    assert at_input.shape == (3, 5, 32)
    torch.testing.assert_close(at_input, at_output)


@pytest.mark.usefixtures("packed_or_plain")
def test_frozen_elmo_does_not_change_if_another_elmo_trains_the_same_bilm(bilm: BiLM) -> None:
    """Nor do the vectors of an `Embedder` of that biLM."""
    batch = encode_sentences(SENTENCES)
    first, embedder = Elmo(bilm, dropout=0.0), Embedder(bilm, device="cpu")
    [before], vectors = first(batch), embedder.embed(SENTENCES)
    second = Elmo(bilm, dropout=0.0, frozen=False)
    assert second.bilm is bilm
    assert not any(p.requires_grad for p in first.bilm.parameters())
    optimizer = torch.optim.SGD(second.parameters(), lr=1.0)
    second(batch)[0].square().sum().backward()
    optimizer.step()
    assert torch.equal(first(batch)[0], before)
    for a, b in zip(embedder.embed(SENTENCES), vectors, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not torch.allclose(second(batch)[0], before, atol=0.1)


@pytest.mark.usefixtures("packed_or_plain")
def test_frozen_elmo_uses_its_current_weights(bilm: BiLM) -> None:
    """Oracle: the plain biLM, after weights were loaded, cast, or changed in place."""
    batch = encode_sentences(SENTENCES)
    elmo = Elmo(BiLM(bilm.config), dropout=0.0)
    task = torch.nn.ModuleDict({"elmo": elmo})
    elmo(batch)

    def average() -> torch.Tensor:
        plain = copy.deepcopy(elmo.bilm).eval()
        return plain(*batch).layers.mean(dim=1)[:, 1:-1] * batch.word_mask[..., None]

    task.load_state_dict(torch.nn.ModuleDict({"elmo": Elmo(bilm)}).state_dict())
    torch.testing.assert_close(elmo(batch)[0], average())
    torch.testing.assert_close(
        elmo(batch)[0][0], bilm(*batch).layers.mean(dim=1)[0, 1:-1], rtol=1e-5, atol=1e-6
    )
    task.double()
    assert elmo(batch)[0].dtype == torch.float64
    torch.testing.assert_close(elmo(batch)[0], average())
    task.float()
    with torch.no_grad():
        elmo.bilm.forward_lstms[0].input.weight.mul_(1.5)
    elmo.refresh()
    torch.testing.assert_close(elmo(batch)[0], average())


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_elmo_can_be_copied_after_its_first_call(
    bilm: BiLM, make_copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_MIN_WEIGHTS", 1)
    batch = encode_sentences(SENTENCES)
    elmo = Elmo(bilm, dropout=0.0)
    [expected] = elmo(batch)
    torch.testing.assert_close(make_copy(elmo)(batch)[0], expected)


def test_boundary_tokens_are_removed_and_padding_is_zero(bilm: BiLM) -> None:
    batch = encode_sentences(SENTENCES)
    [mixed] = Elmo(bilm, dropout=0.0)(batch)
    average = bilm(*batch).layers.mean(dim=1)
    torch.testing.assert_close(mixed[1, :2], average[1, 1:3])
    assert not mixed[1, 2:].any()
    assert not mixed[2].any()


def test_keep_boundaries_returns_boundary_tokens(bilm: BiLM) -> None:
    batch = encode_sentences(SENTENCES)
    [mixed] = Elmo(bilm, dropout=0.0, keep_boundaries=True)(batch)
    torch.testing.assert_close(mixed, bilm(*batch).layers.mean(dim=1))


def test_frozen_bilm_has_no_gradients_and_no_dropout(bilm: BiLM) -> None:
    elmo = Elmo(bilm, dropout=0.0).train()
    batch = encode_sentences(SENTENCES)
    first, second = elmo(batch)[0], elmo(batch)[0]
    assert torch.equal(first, second)
    first.sum().backward()
    assert all(p.grad is None for p in bilm.parameters())
    assert elmo.mixes[0].w.grad is not None


def test_unfrozen_bilm_has_gradients(bilm: BiLM) -> None:
    elmo = Elmo(bilm, dropout=0.0, frozen=False)
    elmo(encode_sentences(SENTENCES))[0].square().sum().backward()
    assert all(p.grad is not None for p in bilm.parameters())


@pytest.mark.usefixtures("packed_or_plain")
def test_bilm_can_be_unfrozen_and_frozen_again(bilm: BiLM) -> None:
    """Oracles: the gradients of an `Elmo` that is created unfrozen; the plain biLM."""
    batch = encode_sentences(SENTENCES)
    elmo, trained = Elmo(bilm, dropout=0.0).eval(), copy.deepcopy(bilm)
    [before] = elmo(batch)
    elmo.bilm.requires_grad_()
    assert not elmo.frozen
    for model in (elmo, Elmo(trained, dropout=0.0, frozen=False).eval()):
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model(batch)[0].square().sum().backward()
        optimizer.step()
    for name, weight in elmo.bilm.named_parameters():
        assert not torch.equal(weight, bilm.get_parameter(name)), name
        torch.testing.assert_close(weight, trained.get_parameter(name))
    elmo.requires_grad_(False)
    assert elmo.frozen
    [after] = elmo(batch)
    assert not torch.allclose(after, before, atol=0.1)
    torch.testing.assert_close(after, elmo.mix(elmo.bilm(*batch).layers, batch.mask)[0])


def test_unfrozen_bilm_has_dropout_in_training_mode(bilm: BiLM) -> None:
    elmo, batch = Elmo(bilm, dropout=0.0), encode_sentences(SENTENCES)
    elmo.bilm.requires_grad_()
    elmo.train()
    assert not torch.equal(elmo(batch)[0], elmo(batch)[0])
    elmo.bilm.requires_grad_(False)
    assert torch.equal(elmo(batch)[0], elmo(batch)[0])


def test_projection_dim_sets_the_output_dimension(bilm: BiLM) -> None:
    elmo = Elmo(bilm, num_mixes=2, projection_dim=7)
    assert elmo.dim == 7
    assert [x.shape for x in elmo(encode_sentences(SENTENCES))] == [(3, 5, 7)] * 2


def test_each_representation_has_its_own_dropout_mask(bilm: BiLM) -> None:
    elmo = Elmo(bilm, num_mixes=2, dropout=0.5).train()
    a, b = elmo(encode_sentences(SENTENCES))
    assert 0.2 < (a[0] == 0).float().mean() < 0.8
    assert not torch.equal(a == 0, b == 0)


def test_empty_batches_give_empty_results(bilm: BiLM) -> None:
    assert Elmo(bilm)(encode_sentences([]))[0].shape == (0, 0, 32)
    assert Elmo(bilm)(encode_sentences([[]]))[0].shape == (1, 0, 32)


def test_pooling_ignores_padding() -> None:
    vectors = torch.tensor([[[1.0, -5], [3, -7], [99, 99]], [[9, 9], [9, 9], [9, 9]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_pool(vectors, mask).tolist() == [[2, -6], [0, 0]]
    assert max_pool(vectors, mask).tolist() == [[3, -5], [0, 0]]
    assert max_pool(vectors[:, :0], mask[:, :0]).tolist() == [[0, 0], [0, 0]]


def test_elmo_errors_name_the_accepted_arguments() -> None:
    """Runs in a new process, because beartype checks the arguments first in this one."""
    program = """if True:
        import elmore
        bilm = elmore.BiLM(elmore.BiLMConfig.tiny())
        for call in (lambda: elmore.Elmo(elmore.Embedder(bilm)),
                     lambda: elmore.Elmo(bilm)([["He", "sat"]])):
            try:
                call()
            except TypeError as error:
                print(error)
    """
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    first, second = result.stdout.splitlines()
    assert "got Embedder" in first
    assert "`embedder.bilm`" in first
    assert "elmo(elmore.encode_sentences(sentences))" in second


def test_num_mixes_is_positive(bilm: BiLM) -> None:
    with pytest.raises(InputError, match="num_mixes must be at least 1, got 0"):
        Elmo(bilm, num_mixes=0)
