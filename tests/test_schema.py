"""Dataclasses from mappings. Oracle: dataclasses and error messages written by hand."""

from dataclasses import asdict, dataclass, field
from typing import Annotated

import pytest

from elmore.bilm.config import BiLMConfig
from elmore.errors import InputError
from elmore.schema import POSITIVE, at_least, at_most, below, check, check_settings, from_mapping


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)


def test_config_is_read_back_from_its_dict() -> None:
    config = BiLMConfig.tiny()
    assert from_mapping(BiLMConfig, asdict(config), "here") == config


def test_nested_tables_are_read_and_integers_become_floats() -> None:
    actual = from_mapping(Outer, {"name": "a", "inner": {"rate": 1}}, "here")
    assert actual == Outer(name="a", inner=Inner(rate=1.0))
    assert isinstance(actual.inner.rate, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "here: the setting 'name' is missing"),
        ({"name": 3}, "here: name: expected str, got 3"),
        ({"name": "a", "inner": 3}, "here: inner: expected a table of settings, got 3"),
        ({"name": "a", "inner": {"rat": 1}}, "here: inner: unknown setting 'rat'; did you mean"),
        ({"name": "a", "zzz": 1}, "unknown setting 'zzz'; known: name, inner"),
    ],
)
def test_errors_name_the_invalid_setting(values: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_mapping(Outer, values, "here")


@dataclass(frozen=True, kw_only=True)
class Ranges:
    size: Annotated[int | None, at_least(3), at_most(1000)] = 3
    rate: Annotated[float, POSITIVE] = 0.5
    share: Annotated[float, below(1)] = 0.0
    pair: Annotated[tuple[float, float], below(1)] = (0.1, 0.9)

    def __post_init__(self) -> None:
        check_settings(self, "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 2}, "here.size must be at least 3, got 2"),
        ({"size": 1001}, "here.size must be at most 1,000, got 1001"),
        ({"rate": 0.0}, "here.rate must be positive and finite, got 0.0"),
        ({"rate": float("inf")}, "here.rate must be positive"),
        ({"rate": float("nan")}, "here.rate must be positive"),
        ({"share": 1.0}, r"here.share must lie in \[0, 1\), got 1.0"),
        ({"share": -0.1}, "here.share must lie in"),
        ({"rate": None}, "here.rate must be positive and finite, got None"),
        ({"pair": (0.1, 1.0)}, r"here.pair must lie in .* got 1.0"),
    ],
)
def test_errors_name_the_value_out_of_range(change: dict, message: str) -> None:
    assert Ranges() == Ranges(size=3)
    assert Ranges(size=None).size is None
    with pytest.raises(InputError, match=message):
        Ranges(**change)


def test_integers_beyond_floats_are_out_of_range() -> None:
    with pytest.raises(InputError, match="cell_clip must be positive"):
        from_mapping(BiLMConfig, {"cell_clip": 10**400}, "config.json")


@pytest.mark.parametrize("value", ["2", [1], None, float("nan")])
def test_values_that_cannot_be_compared_break_a_rule(value: object) -> None:
    with pytest.raises(InputError, match=r"^size must be at least 1, got "):
        check("size", value, at_least(1))
