"""JSON files, and frozen dataclasses from JSON or TOML, with errors that say what is accepted."""

import difflib
import json
import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from numbers import Integral
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from elmore.atomic import write_text
from elmore.errors import InputError

T = TypeVar("T")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object from a file.

    Args:
        path: The file.
        what: The expected contents, for error messages.

    Raises:
        InputError: If the file does not exist or is not a JSON object.
    """
    if not path.is_file():  # reading a named pipe would wait for a writer
        raise InputError(f"{path}: no such file; expected {what}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not only JSONDecodeError: huge integers
        raise InputError(f"{path} is not JSON ({error}); expected {what}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is not a JSON object; expected {what}")
    return values


def write_json(path: Path, content: Any) -> None:
    """Write an indented JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def from_mapping(cls: type[T], values: object, where: str) -> T:
    """Build a dataclass from a mapping of field names to values.

    Args:
        cls: The dataclass; nested dataclasses are built from nested mappings.
        values: The mapping, as read from JSON or TOML.
        where: Start of every error message: a file name, for example.

    Raises:
        InputError: If a setting is unknown, missing or of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: expected a table of settings, got {values!r:.60}")
    types_of = get_type_hints(cls)
    for name in values:
        if name not in types_of:
            sections = [
                f"{section}.{name}" for section in types_of if _has(types_of[section], name)
            ]
            near = sections or difflib.get_close_matches(str(name), types_of, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(types_of)}"
            raise InputError(f"{where}: unknown setting {name!r}; {hint}")
    for field in fields(cls):  # type: ignore[arg-type]
        required = field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in values:
            raise InputError(f"{where}: the setting {field.name!r} is missing")
    return cls(
        **{
            name: _convert(types_of[name], value, f"{where}: {name}")
            for name, value in values.items()
        }
    )


def _has(kind: Any, name: str) -> bool:
    """Whether a type is a dataclass with this field."""
    return is_dataclass(kind) and name in {field.name for field in fields(kind)}


def _convert(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON or TOML value to the annotated type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if type(None) in args and value in (None, "none"):  # TOML has no null
            return None
        kinds = [arg for arg in args if arg is not type(None)]
        return _convert(type(value) if type(value) in kinds else kinds[0], value, where)
    if origin is Literal and value in args:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        return from_mapping(kind, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        inner = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
        if len(inner) == len(value):
            return tuple(_convert(k, v, where) for k, v in zip(inner, value, strict=True))
    if kind is float and type(value) is int:
        return float(value) if abs(value) <= sys.float_info.max else math.inf
    if type(value) is kind:  # not isinstance: a bool is an int, too
        return value
    name = " or ".join(map(repr, args)) if origin is Literal else getattr(kind, "__name__", kind)
    raise InputError(f"{where}: expected {name}, got {value!r:.60}")


class Rule(NamedTuple):
    """A condition for a value: an argument, or a setting that has it in its `Annotated` type."""

    accepts: Callable[[Any], bool]
    text: str


INTEGER = Rule(
    lambda number: isinstance(number, Integral) and not isinstance(number, bool), "be an integer"
)
POSITIVE = Rule(lambda number: 0 < number < math.inf, "be positive and finite")
POSITIVE_OR_INF = Rule(lambda number: number > 0, "be positive")


def at_least(minimum: float) -> Rule:
    """Accept numbers from a minimum on."""
    return Rule(lambda number: number >= minimum, f"be at least {minimum}")


def at_most(maximum: float) -> Rule:
    """Accept numbers up to a maximum."""
    return Rule(lambda number: number <= maximum, f"be at most {maximum:,}")


def below(maximum: float) -> Rule:
    """Accept numbers from 0 to a maximum, which is excluded."""
    return Rule(lambda number: 0 <= number < maximum, f"lie in [0, {maximum})")


def one_of(*choices: object) -> Rule:
    """Accept only these values."""
    *names, last = map(str, choices)
    return Rule(choices.__contains__, f"be {', '.join(names)} or {last}")


def check(name: str, value: object, *rules: Rule, optional: bool = False) -> None:
    """Raise `InputError` if a value breaks a rule. None is accepted only if it is `optional`."""
    if value is None and optional:
        return
    for rule in rules:
        try:
            accepted = value is not None and rule.accepts(value)
        except TypeError:  # for a string in place of a number, for example
            accepted = False
        if not accepted:
            raise InputError(f"{name} must {rule.text}, got {value!r}")


def check_unchanged(
    before: Mapping[str, Any], now: Mapping[str, Any], where: str, advice: str
) -> None:
    """Raise `InputError` if a value is not what it was before; `where` starts the message."""
    for name, value in now.items():
        if before.get(name) != value:
            raise InputError(f"{where} {name} = {before.get(name)!r}, not {value!r}. {advice}")


def check_settings(settings: object, section: str = "") -> None:
    """Check all values of a dataclass: `Annotated` with rules, or `Literal`.

    Args:
        settings: The dataclass.
        section: Name of the settings in messages.

    Raises:
        InputError: If a value breaks a rule.
    """
    for name, kind in get_type_hints(type(settings), include_extras=True).items():
        plain = kind.__origin__ if get_origin(kind) is Annotated else kind
        choices = (one_of(*get_args(kind)),) if get_origin(kind) is Literal else ()
        rules = getattr(kind, "__metadata__", choices)
        full_name = f"{section}.{name}" if section else name
        value, optional = getattr(settings, name), type(None) in get_args(plain)
        for element in value if get_origin(plain) is tuple else (value,):
            check(full_name, element, *rules, optional=optional)
