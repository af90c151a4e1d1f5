"""How a setting declares itself: its meaning and allowed values in one place, the check and the message from there."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from colabel.errors import SettingsError


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """Declare a field with its meaning and its allowed values; without a default it must be given."""
    metadata = {"help": help, "low": low, "high": high, "choices": choices}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of all settings: checks every field, then what the fields must fulfil together."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = check_value(self._key(field.name), getattr(self, field.name), hints[field.name], field.metadata)
            object.__setattr__(self, field.name, value)
        self.check()

    def check(self) -> None:
        """Refuse combinations that are impossible; overridden where fields depend on each other."""

    def _key(self, name: str) -> str:
        return f"{self.section}.{name}" if self.section else name

    def as_dict(self) -> dict[str, Any]:
        """All values as plain JSON types, for manifests and fingerprints."""
        return dataclasses.asdict(self)

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> typing.Self:
        """Build from a TOML table; an unknown or missing key is an error that names the nearest valid one."""
        names = {field.name: field for field in dataclasses.fields(cls)}
        prefix = f"{cls.section}." if cls.section else ""
        for key in table:
            if key not in names:
                raise SettingsError(f"unknown key '{prefix}{key}'{nearest(key, names)}")
        for name, field in names.items():
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and name not in table:
                raise SettingsError(f"'{prefix}{name}' is missing: {field.metadata['help']}")
        return cls(**table)


def nearest(key: str, valid: Iterable[str]) -> str:
    """Suggest the valid key that looks most like ``key``, and list them all where none does.

    >>> nearest("clsuters", ["clusters", "centroids"])
    "; did you mean 'clusters'? Valid keys: centroids, clusters"
    """
    valid = sorted(valid)
    close = difflib.get_close_matches(key, valid, n=1, cutoff=0.6)
    return (f"; did you mean '{close[0]}'?" if close else ".") + f" Valid keys: {', '.join(valid)}"


def check_value(key: str, value: Any, hint: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the value in its declared type, or raise a sentence with key, value and allowed range."""
    expected = allowed(hint, metadata)
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if optional and value is None:
        return None
    base = next(arg for arg in typing.get_args(hint) if arg is not type(None)) if optional else hint
    converted = _convert(value, base)
    if converted is _REFUSED:
        raise SettingsError(f"'{key}' is {_shown(value)} ({type(value).__name__}); expected {expected}")
    low, high, choices = metadata.get("low"), metadata.get("high"), metadata.get("choices")
    if isinstance(converted, int | float) and not isinstance(converted, bool):
        too_low = low is not None and converted < low
        too_high = high is not None and converted > high
        if too_low or too_high or not math.isfinite(converted):
            raise SettingsError(f"'{key}' is {value!r}; expected {expected}")
    if choices and converted not in choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint_text = f"; did you mean '{close[0]}'?" if close else ""
        raise SettingsError(f"'{key}' is {value!r}; expected {expected}{hint_text}")
    return converted


_REFUSED = object()


def _convert(value: Any, base: Any) -> Any:
    """``value`` in type ``base`` where that loses nothing (int → float, list → tuple), else _REFUSED."""
    origin = typing.get_origin(base)
    if base is bool or base is str:
        return value if isinstance(value, base) else _REFUSED
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 2**63):
        return value if base is bool else _REFUSED
    if base is int:
        return value if isinstance(value, int) else _REFUSED
    if base is float:
        return float(value) if isinstance(value, int | float) else _REFUSED
    if origin is tuple:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return _REFUSED
    if origin is dict:
        if isinstance(value, Mapping) and all(isinstance(v, str) for kv in value.items() for v in kv):
            return dict(value)
        return _REFUSED
    if isinstance(base, type) and issubclass(base, Settings):
        return value if isinstance(value, base) else _REFUSED
    raise TypeError(f"settings cannot hold {base}")


def allowed(hint: Any, metadata: Mapping[str, Any]) -> str:
    """Say in words what a field takes.

    >>> allowed(int, {"low": 1, "high": 100})
    'a whole number from 1 to 100'
    """
    choices = metadata.get("choices")
    if choices:
        return "one of " + ", ".join(f"'{choice}'" for choice in choices)
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    if isinstance(hint, types.UnionType):
        inner = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        return allowed(inner, metadata) + " (or left out)"
    origin = typing.get_origin(hint)
    if origin is tuple:
        return "a list of strings"
    if origin is dict:
        return "a table of strings"
    if isinstance(hint, type) and issubclass(hint, Settings):
        return f"a table [{hint.section}]"
    low, high = metadata.get("low"), metadata.get("high")
    text = names[hint]
    if low is not None and high is not None:
        return f"{text} from {low:,} to {high:,}"
    if low is not None:
        return f"{text} of at least {low:,}"
    return text if high is None else f"{text} of at most {high:,}"


def _shown(value: Any) -> str:
    """A value as an error message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # an integer with thousands of digits
        return "a number with too many digits"
    return text if len(text) <= 80 else text[:77] + "…"
