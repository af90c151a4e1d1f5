"""How a setting declares itself: its meaning and allowed values in one place, the check and the message from there."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from colabel.errors import SettingsError

_FIXED = "it is fixed now: leave the key out"
_SHARED = ("schedule", "warmup", "precision", "measure", "evaluate_every", "evaluate_queries", "keep", "patience")
_TRAINING = "weight_decay gradient_clip evaluate_depth save_every log_every mining mining_margin mining_share"
_GONE = {
    "train": f"{_TRAINING} scope",
    "distil": f"{_TRAINING} hard_scope",
    "cross_encoder": "loss random_negatives pool warmup weight_decay precision batch_tokens save_seconds",
    "data": "hide_seed",
    "index": "shard_passages",
    "collective": "labelled_weight",
    "compute": "cpus gpus memory retries patience",
    "encoder": "batch_tokens projection_sample projection_seed",
    "study": "timed_queries quality_queries examples dev_target",
}
RENAMED: dict[str, str] = {
    **{f"{section}.{key}": _FIXED for section, keys in _GONE.items() for key in keys.split()},
    **{f"{part}.{key}": f"set fit.{key}, for θ and students" for part in ("train", "distil") for key in _SHARED},
    **dict.fromkeys(("train.keep_start", "distil.keep_start"), 'set fit.keep = "best-or-start"'),
    **dict.fromkeys(("train.tensorboard", "distil.tensorboard"), "training/log.jsonl holds the same values"),
    "compute.scratch": "nothing is fetched to a node any more: leave the key out",
    "compute.storage": "shards lie in the folder of their index, which all nodes must see: leave the key out",
    "train.teacher": "set train.theta",
    "labels.temperature": "exports take --temperature, and training has distil.teacher_temperature: leave the key out",
    "distil.others": "a teacher that knows any passage is asked, with others they are irrelevant: leave the key out",
    "study.texts": "reports show no passages, `colabel inspect` does: leave the key out",
    "study.trials": "students are trained once, as [distil] says: try other settings in studies of their own",
}
"""Keys that earlier versions had → what to do instead. New names stand without quotes: the first quoted name of a
message is the key whose file and line are shown."""

REQUIRED: Any = dataclasses.MISSING
Effect = Literal["always", "none", "evaluation", "teaching"]


def setting(default: Any, help: str, within: tuple[float | str, ...] = (), *, effect: Effect = "always") -> Any:
    """Declare a field with its meaning and its allowed values.

    Args:
        within: the lowest and highest number, the words that it takes, or both.
        effect: when the field changes what its stage makes, and so belongs to its fingerprint. ``none``: it never
            does, or an input of the stage names it already; ``evaluation``: where training is evaluated on dev;
            ``teaching``: where there is a teacher beside the labels.
    """
    low, high = [one for one in within if not isinstance(one, str)] or (None, None)
    choices = tuple(one for one in within if isinstance(one, str))
    metadata = {"help": help, "low": low, "high": high, "choices": choices, "effect": effect}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of all settings: checks every field, then what the fields must fulfil together."""

    section: ClassVar[str] = ""

    def __init_subclass__(cls, section: str = "") -> None:
        cls.section = section

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = check_value(self._key(field.name), getattr(self, field.name), hints[field.name], field.metadata)
            object.__setattr__(self, field.name, value)
        self._check()

    def _check(self) -> None:
        """Refuse combinations that are impossible; overridden where fields depend on each other."""

    @classmethod
    def _key(cls, name: str) -> str:
        return f"{cls.section}.{name}" if cls.section else name

    def as_dict(self) -> dict[str, Any]:
        """All values as plain JSON types, for manifests and fingerprints."""
        return dataclasses.asdict(self)

    def effective(self, *also: Effect) -> dict[str, Any]:
        """The values that belong to a fingerprint: those that always have an effect, or one of ``also``."""
        named = {field.name for field in dataclasses.fields(self) if field.metadata["effect"] in ("always", *also)}
        return {name: value for name, value in self.as_dict().items() if name in named}

    @classmethod
    def from_manifest(cls, table: Mapping[str, Any]) -> typing.Self:
        """Build from what an artefact stores, perhaps of an earlier version: keys that went since are left out."""
        return cls.from_mapping({key: value for key, value in table.items() if cls._key(key) not in RENAMED})

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> typing.Self:
        """Build from a TOML table; an unknown or missing key is an error that names the nearest valid one."""
        names = {field.name: field for field in dataclasses.fields(cls)}
        for key in table:
            if key not in names:
                if instead := RENAMED.get(cls._key(key)):
                    raise SettingsError(f"'{cls._key(key)}' is no longer a setting: {instead}")
                raise SettingsError(f"unknown key '{cls._key(key)}'{nearest(key, names)}")
        for name, field in names.items():
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and name not in table:
                raise SettingsError(f"'{cls._key(name)}' is missing: {field.metadata['help']}")
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
    low, high, choices = metadata["low"], metadata["high"], metadata["choices"]
    base, expected = _without_none(hint), f"expected {allowed(hint, metadata)}"
    if value is None and type(None) in typing.get_args(hint):
        return None
    if isinstance(value, str) and value in choices:
        return value
    converted = _convert(value, base)
    if converted is None:
        raise SettingsError(f"'{key}' is {_shown(value)} ({type(value).__name__}); {expected}")
    if base in (int, float):
        inside = (low is None or converted >= low) and (high is None or converted <= high)
        if not inside or not math.isfinite(converted):
            raise SettingsError(f"'{key}' is {value!r}; {expected}")
    elif choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        raise SettingsError(f"'{key}' is {value!r}; {expected}" + (f"; did you mean '{close[0]}'?" if close else ""))
    return converted


def _without_none(hint: Any) -> Any:
    """The type of a field that may be left out, or that takes words beside it."""
    if not isinstance(hint, types.UnionType):
        return hint
    return next(one for one in typing.get_args(hint) if one is not type(None))


def _convert(value: Any, base: Any) -> Any:
    """``value`` in type ``base`` where that loses nothing (int → float, list → tuple), else None."""
    kind = typing.get_origin(base) or base
    if kind is tuple:
        return tuple(value) if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value) else None
    if kind is dict:
        strings = isinstance(value, Mapping) and all(isinstance(v, str) for pair in value.items() for v in pair)
        return dict(value) if strings else None
    if kind in (int, float):
        number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        too_large = isinstance(value, int) and abs(value) >= 2**63
        return kind(value) if number and not too_large else None
    return value if isinstance(value, kind) else None


def allowed(hint: Any, metadata: Mapping[str, Any]) -> str:
    """Say in words what a field takes.

    >>> allowed(int, {"low": 1, "high": 100, "choices": ()})
    'a whole number from 1 to 100'
    """
    low, high, words = metadata["low"], metadata["high"], ", ".join(f"'{choice}'" for choice in metadata["choices"])
    if words and low is None:
        return f"one of {words}"
    base = _without_none(hint)
    if isinstance(base, type) and issubclass(base, Settings):
        return f"a table [{base.section}]"
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    names |= {tuple: "a list of strings", dict: "a table of strings"}
    text = names[typing.get_origin(base) or base] + (f" from {low:,} to {high:,}" if low is not None else "")
    return f"{text}, or {words}" if words else f"{text} (or left out)" if base is not hint else text


def _shown(value: Any) -> str:
    """A value as an error message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # an integer with thousands of digits
        return "a number with too many digits"
    return text if len(text) <= 80 else text[:77] + "…"
