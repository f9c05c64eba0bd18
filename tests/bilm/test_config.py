"""Model sizes. Oracle: the published parameter counts of the released models."""

import pytest
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.errors import InputError


@pytest.mark.parametrize(
    ("size", "millions"), [("small", 13.6), ("medium", 28.0), ("original", 93.6)]
)
def test_presets_have_the_published_parameter_counts(size: str, millions: float) -> None:
    with torch.device("meta"):
        bilm = BiLM(getattr(BiLMConfig, size)())
    assert sum(p.numel() for p in bilm.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


def test_defaults_are_the_sizes_of_the_paper() -> None:
    """Section 3.4: two LSTM layers of 4096 units projected to 512; 2048 filters, two highways."""
    config = BiLMConfig()
    assert config == BiLMConfig.original()
    assert (config.num_layers, config.cell_dim, config.dim) == (2, 4096, 512)
    assert (config.num_filters, config.num_highways) == (2048, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"filters": ()}, "filters must be 1 to 100"),
        ({"filters": ((60, 4),)}, r"width from 1 to max_characters \(50\)"),
        ({"max_characters": 2}, "max_characters must be at least 3"),
        ({"activation": "gelu"}, "activation must be relu or tanh, got 'gelu'"),
        ({"cell_clip": -1.0}, "cell_clip must be positive"),
        ({"projection_clip": 1e308}, "projection_clip must be at most 1,000,000"),
        ({"project_cells": False}, r"cell_dim \(4096\) must equal dim \(512\)"),
        ({"project_filters": False}, r"must sum to dim \(512\), got 2048"),
        ({"vocab_size": 2}, "vocab_size must be at least 3"),
        ({"num_highways": -1}, "num_highways must be at least 0"),
        ({"num_highways": 101}, "num_highways must be at most 100"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BiLMConfig(**settings)
