"""Turn plain JSON into frozen dataclasses by their type hints, and back; a wrong value is named by its place."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_KEY = "key"
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # in no XML or UTF-8 file
_SCALARS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class UnreadableError(Exception):
    """A value is not what its type hint says; the message names its place in the document."""


def renamed(key: str, **options: Any) -> Any:
    """A dataclass field that has another name in JSON."""
    return dataclasses.field(metadata={_KEY: key}, **options)


def parse(kind: type[T], value: Any) -> T:
    """An instance of the dataclass ``kind`` from a JSON object. Keys that it does not know are ignored.

    Raises:
        UnreadableError: a key without a default is missing, or a value has the wrong type.
    """
    found: T = _parse(kind, value, "")
    return found


def plain(value: Any) -> Any:
    """JSON types of a dataclass; a number that is not finite becomes null.

    >>> plain((1.5, float("nan"), {"a": "b"}))
    [1.5, None, {'a': 'b'}]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_key(field): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool | None):
        return value
    if isinstance(value, numbers.Integral):  # numpy's too
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None


def printable(text: str) -> str:
    """The text with � for characters that no page can hold: controls and halves of surrogate pairs.

    >>> printable("a\\x00b\\ud800c")
    'a�b�c'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def _key(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get(_KEY, field.name))


@functools.cache
def _fields(kind: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {_key(field): (field, hints[field.name]) for field in dataclasses.fields(kind)}


def _parse(hint: Any, value: Any, place: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # the only unions are with None
        inner = next(one for one in arguments if one is not types.NoneType)
        missing = value is None or (isinstance(value, float) and not math.isfinite(value))
        return None if missing else _parse(inner, value, place)
    if dataclasses.is_dataclass(hint):
        return _parse_object(hint, _checked(Mapping, value, "an object", place), place)
    if origin is tuple:
        return _parse_list(arguments, _checked(list, value, "a list", place), place)
    if origin is Mapping:
        table = _checked(Mapping, value, "an object", place)
        return {key: _parse(arguments[1], inner, _inside(place, key)) for key, inner in table.items()}
    return _parse_scalar(hint, value, place)


def _parse_object(kind: Any, value: Mapping[str, Any], place: str) -> Any:
    found = {}
    for key, (field, hint) in _fields(kind).items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if key in value and not (optional and value[key] is None):
            found[field.name] = _parse(hint, value[key], _inside(place, key))
        elif not optional:
            raise UnreadableError(f"{place or 'the document'} has no '{key}'")
    return kind(**found)


def _parse_list(hints: tuple[Any, ...], value: list[Any], place: str) -> tuple[Any, ...]:
    if hints[-1] is Ellipsis:
        return tuple(_parse(hints[0], inner, f"{place}[{number}]") for number, inner in enumerate(value))
    if len(value) != len(hints):
        raise UnreadableError(f"{place}: expected {len(hints)} values, found {len(value)}")
    pairs = zip(hints, value, strict=True)
    return tuple(_parse(hint, inner, f"{place}[{number}]") for number, (hint, inner) in enumerate(pairs))


def _parse_scalar(kind: type, value: Any, place: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not right or (isinstance(value, float) and not math.isfinite(value)):
        raise UnreadableError(f"{place}: expected {_SCALARS[kind]}, found {_shown(value)}")
    return printable(value) if isinstance(value, str) else value


def _checked(kind: type, value: Any, expected: str, place: str) -> Any:
    if not isinstance(value, kind):
        raise UnreadableError(f"{place or 'the document'}: expected {expected}, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)[:60]


def _inside(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
