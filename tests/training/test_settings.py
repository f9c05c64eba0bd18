"""Settings. Oracles: the settings before writing; tomllib."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from elmore.bilm.config import BiLMConfig
from elmore.errors import InputError
from elmore.pretrain.config import PretrainConfig, read_config
from elmore.training.settings import write_settings


def test_written_settings_are_read_back(tmp_path: Path) -> None:
    config = read_config(
        size="tiny",
        changes=[
            "bilm.cell_clip=none",
            "training.lr=1e-3",
            "training.betas=[0.5, 0.6]",
        ],
    )
    write_settings(config, tmp_path / "config.toml")
    tomllib.loads((tmp_path / "config.toml").read_text())
    assert read_config(tmp_path / "config.toml") == config
    assert config.bilm.cell_clip is None
    assert config.training.betas == (0.5, 0.6)


@dataclass
class Names:
    name: str = 'a "quoted" \\ name, \u00e9 and \U0001f600'
    none: str | None = None


def test_strings_are_escaped(tmp_path: Path) -> None:
    write_settings(Names(), tmp_path / "names.toml")
    written = tomllib.loads((tmp_path / "names.toml").read_text(encoding="utf-8"))
    assert written == {"name": Names().name, "none": "none"}


def test_changes_override_a_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text("[training]\nlr = 0.5\nstreams = 3\n[bilm]\ndim = 7\n")
    config = read_config(recipe, changes=["training.lr=0.25"])
    assert (config.training.lr, config.training.streams, config.bilm.dim) == (0.25, 3, 7)
    assert read_config(recipe, size="tiny").bilm == BiLMConfig.tiny()
    assert read_config() == PretrainConfig()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.lr", "expected section.name=value"),
        ("training.lrr=1", "unknown setting 'lrr'; did you mean 'lr'"),
        ("training.lr=fast", "training: lr: expected float, got 'fast'"),
        ("streams=4", "unknown setting 'streams'; did you mean 'training.streams'"),
        ("training.window=100_000_000", "training.window must be at most 10,000"),
        ("training.streams=2_000_000", "training.streams must be at most 1,000,000"),
        ("training.streams=600_000", "times training.window .20. must be at most 10,000,000"),
        ("training.negatives=100_000_000", "training.negatives must be at most 10,000,000"),
        ("vocabulary.max_size=1_000_000_000", "vocabulary.max_size must be at most 100,000,000"),
        ("training=1", "expected a table of settings"),
        ("training.lr.x=1", "expected float"),
        ("training.streams=0", "training.streams must be at least 1"),
        ("training.epochs=0", "training.epochs must be positive"),
        ("training.accumulate=3", "must be a multiple of training.accumulate"),
        ("training.warmup=1", "training.warmup must lie in"),
        ("run.heldout=0.5", "run.heldout must lie in"),
        ("bilm.vocab_size=10", "reads words, because vocab_size is set"),
        ("training.negatives=-1", "training.negatives must be at least 0"),
        ("training.epochs=inf", "training.epochs must be positive"),
        ("training.betas=[2.0, 0.9]", "training.betas must lie in"),
        ("training.seed=-1", "training.seed must be at least 0"),
        ("run.log_steps=0", "run.log_steps must be at least 1"),
        ("run.patience=0", "run.patience must be at least 1"),
        ("vocabulary.max_size=-5", "vocabulary.max_size must be at least 4"),
        ("training.optimizer=sgd", "expected 'adamw' or 'muon' or 'adagrad'"),
    ],
)
def test_invalid_settings_are_rejected_by_name(change: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(changes=[change])


def test_changing_one_setting_keeps_the_other_defaults() -> None:
    config = read_config(changes=["bilm.dropout=0.0"])
    assert config.bilm == replace(BiLMConfig.medium(), dropout=0.0)


def test_invalid_toml_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("lr: 3")
    with pytest.raises(InputError, match=r"r.toml is not TOML"):
        read_config(tmp_path / "r.toml")
