"""Oracle: the dataclass itself. Cases of wrong values are in tests/checkpoint/test_directory.py."""

from dataclasses import asdict, dataclass, field

import pytest

from elmore.bilm.config import BiLMConfig
from elmore.errors import InputError
from elmore.schema import from_mapping


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)


def test_a_dataclass_goes_round() -> None:
    config = BiLMConfig.tiny()
    assert from_mapping(BiLMConfig, asdict(config), "here") == config


def test_nested_tables_and_whole_numbers_for_floats() -> None:
    found = from_mapping(Outer, {"name": "a", "inner": {"rate": 1}}, "here")
    assert found == Outer(name="a", inner=Inner(rate=1.0))
    assert isinstance(found.inner.rate, float)


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
def test_what_is_wrong_is_named(values: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_mapping(Outer, values, "here")
