"""A run as data: a TOML recipe, changes on top of it, and the resolved result beside the run."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from elmore.errors import InputError
from elmore.schema import from_mapping

T = TypeVar("T")


def read_settings(
    cls: type[T],
    recipe: Path | None,
    changes: Sequence[str] = (),
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    base: T | None = None,
) -> T:
    """Build a dataclass from a TOML file and changes on top of it.

    Args:
        cls: The dataclass; what nobody mentions has its defaults.
        recipe: TOML file.
        changes: Settings such as `training.lr=1e-3`.
        sections: Whole sections that take the place of the recipe's.
        base: Settings that hold where nothing else is said, in place of the dataclass's defaults.
    """
    values: dict[str, Any] = {} if base is None else asdict(base)  # type: ignore[call-overload]
    if recipe:
        _merge(values, _read_toml(recipe))
    for name, section in (sections or {}).items():
        values[name] = dict(section)
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise InputError(f"--set {change}: expected section.name=value, as in training.lr=1e-3")
        _insert(values, name.strip().split("."), _parse(value.strip()), change)
    return from_mapping(cls, values, str(recipe or "settings"))


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put settings on top of others, section by section."""
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            _merge(values[name], value)
        else:
            values[name] = value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error})") from error


def _parse(value: str) -> Any:
    """Read a value as TOML; what is no TOML value is a plain string."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _insert(values: dict[str, Any], path: list[str], value: Any, change: str) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise InputError(f"--set {change}: {name} is a value, not a section")
    values[path[-1]] = value


def write_settings(settings: Any, path: Path) -> None:
    """Write a dataclass as TOML that `read_settings` reads."""
    path.write_text("\n".join(_toml(asdict(settings), "")) + "\n", encoding="utf-8")


def _toml(values: Mapping[str, Any], section: str) -> list[str]:
    """Return the lines of a table: its own values, then its sections."""
    lines = [f"[{section}]"] if section else []
    for name, value in values.items():
        if not isinstance(value, Mapping):
            lines.append(f"{name} = {_toml_value(value)}")
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += ["", *_toml(value, f"{section}.{name}" if section else name)]
    return lines


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'  # TOML has no null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return repr(value)


def check_minutes(max_minutes: float | None) -> None:
    """Refuse a limit that leaves no time at all."""
    if max_minutes is not None and not max_minutes > 0:
        raise InputError(f"max_minutes must be positive, got {max_minutes}")
