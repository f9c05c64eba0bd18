"""Settings of a run, from a TOML file and individual changes, and back to TOML."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from elmore.errors import InputError, as_input_error
from elmore.schema import from_mapping

T = TypeVar("T")


def read_settings(
    cls: type[T],
    recipe: Path | None,
    changes: Sequence[str] = (),
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    base: T | None = None,
) -> T:
    """Build a dataclass of settings.

    Args:
        cls: The dataclass.
        recipe: TOML file with some or all settings.
        changes: Settings such as `training.lr=1e-3`, which override all others.
        sections: Sections that replace those of the recipe.
        base: Default values, instead of those of the dataclass.

    Raises:
        InputError: If a setting is unknown or invalid.
    """
    values: dict[str, Any] = {} if base is None else asdict(base)  # type: ignore[call-overload]
    if recipe:
        _merge(values, read_toml(recipe))
    for name, section in (sections or {}).items():
        values[name] = dict(section)
    for change in changes:
        _merge(values, _parse_change(change))
    return from_mapping(cls, values, str(recipe or "settings"))


def _merge(values: dict[str, Any], updates: Mapping[str, Any]) -> None:
    """Update settings in place, section by section."""
    for name, value in updates.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            _merge(values[name], value)
        else:
            values[name] = value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raise `InputError` if it is not one."""
    with as_input_error(f"{path} is not TOML", tomllib.TOMLDecodeError, UnicodeDecodeError):
        return tomllib.loads(path.read_text(encoding="utf-8"))


def _parse_change(change: str) -> dict[str, Any]:
    """Parse a line of TOML, in which quotes around a string are optional."""
    name, equals, value = change.partition("=")
    for line in (change, f"{name} = {json.dumps(value.strip())}"):
        with suppress(tomllib.TOMLDecodeError):
            if equals:
                return tomllib.loads(line)
    raise InputError(f"{change}: expected section.name=value, as in training.lr=1e-3")


def write_settings(settings: Any, path: Path) -> None:
    """Write a dataclass as a TOML file for `read_settings`."""
    path.write_text("\n".join(_toml(asdict(settings), "")) + "\n", encoding="utf-8")


def list_changes(before: Any, now: Any) -> list[str]:
    """Return what differs between two dataclasses of settings, as `name was VALUE, not VALUE`."""
    old, new = (flatten(asdict(settings)) for settings in (before, now))
    return [
        f"{name} was {_toml_value(old.get(name))}, not {_toml_value(new.get(name))}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their full names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _toml(values: Mapping[str, Any], section: str) -> list[str]:
    """Return the lines of a table: first its values, then its sections."""
    lines = [f"[{section}]"] if section else []
    for name, value in values.items():
        if not isinstance(value, Mapping):
            lines.append(f"{name} = {_toml_value(value)}")
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += ["", *_toml(value, f"{section}.{name}" if section else name)]
    return lines


def _toml_value(value: Any) -> str:
    """Format a string, a number, a bool or a list: TOML and JSON write them alike."""
    return json.dumps("none" if value is None else value, ensure_ascii=False)  # TOML has no null
