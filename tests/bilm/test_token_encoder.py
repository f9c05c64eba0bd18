"""The token encoder. Oracles: invariants; tests/bilm/test_model.py compares it with NumPy."""

import pytest
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.token_encoder import CharEncoder, Highway, token_encoder, word_ends
from elmore.text.characters import encode_words


def test_token_vector_does_not_depend_on_other_tokens() -> None:
    encoder = token_encoder(BiLMConfig.tiny())
    words = ["the", "bank", "", "Straße", "x" * 70]
    together = encoder(encode_words(words))
    separate = torch.cat([encoder(encode_words([word])) for word in words])
    torch.testing.assert_close(together, separate)


def test_leading_dimensions_are_preserved() -> None:
    encoder = token_encoder(BiLMConfig.tiny())
    ids = encode_words(list("abcdef"))
    torch.testing.assert_close(encoder(ids.view(2, 3, 50)).flatten(0, 1), encoder(ids))


def test_highway_layer_with_closed_gates_is_the_identity() -> None:
    highway = Highway(4)
    torch.nn.init.zeros_(highway.gate.weight)
    torch.nn.init.constant_(highway.gate.bias, -torch.inf)
    x = torch.randn(3, 4)
    torch.testing.assert_close(highway(x), x)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_weights_are_initialized_as_in_the_released_code(activation: str) -> None:
    encoder = CharEncoder(
        char_dim=16,
        filters=((3, 512),),
        activation=activation,  # type: ignore[arg-type]
        num_highways=1,
        project=True,
        dim=256,
    )
    conv = next(encoder.convs.parameters())
    expected = 0.1 / 12**0.5 if activation == "relu" else (3 * 16) ** -0.5
    assert conv.std().item() == pytest.approx(expected, rel=0.05)
    assert encoder.embed.weight[1:].std().item() == pytest.approx(2 / 12**0.5, rel=0.05)
    assert (encoder.embed.weight[0] == 0).all()
    assert encoder.project.weight.std().item() == pytest.approx(512**-0.5, rel=0.05)
    assert (encoder.highways[0].gate.bias == -2).all()


@pytest.mark.parametrize(
    "words", [["a", "bank"], ["", "river"], ["x" * 41], ["y" * 60], ["x" * 45, "z"]]
)
def test_padding_beyond_the_widest_filter_does_not_change_vectors(words: list[str]) -> None:
    encoder = CharEncoder(
        char_dim=4, filters=((1, 4), (7, 8)), activation="relu", num_highways=1, project=True, dim=5
    )
    with torch.no_grad():
        encoder.embed.weight.normal_()  # including the padding row
        for conv in encoder.convs:
            conv.weight.normal_()
    ids = encode_words(words)
    end = int(word_ends(ids).max())
    longest = max(len(word) for word in words)
    assert end == min(longest + 2, 49)  # word, begin and end; the last of 50 counts as padding
    torch.testing.assert_close(encoder(ids[:, : end + 7]), encoder(ids))
