"""Oracle: the biLM as it is."""

from pathlib import Path

import pytest
import torch

from elmore.bilm import packed
from elmore.bilm.model import BiLM
from elmore.bilm.packed import can_pack, pack, worth_packing
from elmore.checkpoint.pretrained import read_pretrained
from elmore.text.characters import encode_words
from elmore.text.sentences import batch_sentences
from tests.oracles.releases import VARIANTS, write_release

SENTENCES = [["the", "bank", "of", "the", "river", "."] * 30, ["rates"], []]


@torch.inference_mode()
@pytest.mark.parametrize("name", VARIANTS)
def test_a_packed_twin_gives_the_same(name: str, tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS[name])
    bilm, vocabulary, *_ = read_pretrained(release.weights_file)
    if not can_pack():
        pytest.skip("no oneDNN here")
    width = bilm.config.max_characters
    encode = vocabulary.encode_words if vocabulary else lambda words: encode_words(words, width)
    batch = batch_sentences(SENTENCES, encode)
    expected, found = bilm(*batch), pack(bilm)(*batch)
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=2e-6)
    for a, b in zip(found.state, expected.state, strict=True):
        torch.testing.assert_close(a.cell, b.cell, rtol=1e-5, atol=2e-6)


def test_packing_is_for_large_matrices_in_float32_on_a_cpu(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not worth_packing(bilm)
    monkeypatch.setattr(packed, "_SMALLEST", 1)
    assert worth_packing(bilm) == can_pack()
    assert not worth_packing(bilm.bfloat16())
