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

_ALWAYS = "it is always {} now: leave the key out"
_MINING = "negatives that score close to the positive are no longer left out: leave the key out"
_BOARD = "training/log.jsonl holds all that was written for TensorBoard: leave the key out"
_BOTH = ("train", "distil")
_SHARED = ("schedule", "warmup", "precision", "measure", "evaluate_every", "evaluate_queries", "keep", "patience")
_FIXED = {"weight_decay": "0", "gradient_clip": "2", "evaluate_depth": "100", "save_every": "100", "log_every": "10"}
_READING = {
    **{"loss": '"listwise"', "random_negatives": "2, or cross_encoder.negatives where that is less", "pool": "100"},
    **{"warmup": "0.1", "weight_decay": "0.01", "precision": '"auto"', "batch_tokens": "8192", "save_seconds": "120"},
}
_MEASURED = {"timed_queries": "50", "quality_queries": "50", "examples": "5"}
RENAMED: dict[str, str] = {
    **{f"{section}.{key}": f"θ and students share it now: set fit.{key}" for section in _BOTH for key in _SHARED},
    **{f"{section}.{key}": _ALWAYS.format(value) for section in _BOTH for key, value in _FIXED.items()},
    **{f"{section}.{key}": _MINING for section in _BOTH for key in ("mining", "mining_margin", "mining_share")},
    **{f"{section}.keep_start": 'set fit.keep = "best-or-start"' for section in _BOTH},
    **{f"{section}.tensorboard": _BOARD for section in _BOTH},
    **{f"cross_encoder.{key}": _ALWAYS.format(value) for key, value in _READING.items()},
    "data.hide_seed": "which positives are kept is settled by the ids: leave the key out",
    "index.shard_passages": _ALWAYS.format("4,096 passages between two save points"),
    "collective.labelled_weight": "labelled passages are feedback alone or first, see collective.feedback",
    "compute.cpus": _ALWAYS.format("1 core per worker"),
    "compute.gpus": "a worker takes a GPU where the cluster has any: leave the key out",
    "compute.memory": "Ray chooses the size of its object store: leave the key out",
    "compute.retries": _ALWAYS.format("3 more attempts"),
    "compute.patience": _ALWAYS.format("600 seconds"),
    "compute.scratch": "what a node fetches lies in its temporary folder: set TMPDIR on the nodes",
    "encoder.batch_tokens": _ALWAYS.format("4096"),
    "encoder.projection_sample": _ALWAYS.format("512"),
    "encoder.projection_seed": _ALWAYS.format("0"),
    "train.teacher": "set train.theta",
    "train.scope": _ALWAYS.format('"batch"'),
    "labels.temperature": "exports take --temperature, and training has distil.teacher_temperature: leave the key out",
    "distil.others": "a teacher that knows any passage is asked, with others they are irrelevant: leave the key out",
    **{f"study.{key}": _ALWAYS.format(value) for key, value in _MEASURED.items()},
    "study.trials": "students are trained once, as [distil] says: try other settings in studies of their own",
    "study.dev_target": _ALWAYS.format("1 % above the best value before training"),
    "distil.hard_scope": _ALWAYS.format('"group"'),
}
"""Keys that earlier versions had → what to do instead. New names stand without quotes: the first quoted name of a
message is the key whose file and line are shown."""

Effect = Literal["always", "none", "evaluation", "teaching"]


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    effect: Effect = "always",
) -> Any:
    """Declare a field with its meaning and its allowed values; without a default it must be given.

    Args:
        effect: when the field changes what its stage makes, and so belongs to its fingerprint. ``none``: it never
            does, or an input of the stage names it already; ``evaluation``: where training is evaluated on dev;
            ``teaching``: where there is a teacher beside the labels.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": choices, "effect": effect}
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

    def effective(self, *also: Effect) -> dict[str, Any]:
        """The values that belong to a fingerprint: those that always have an effect, or one of ``also``."""
        named = {field.name for field in dataclasses.fields(self) if field.metadata["effect"] in ("always", *also)}
        return {name: value for name, value in self.as_dict().items() if name in named}

    @classmethod
    def from_manifest(cls, table: Mapping[str, Any]) -> typing.Self:
        """Build from what an artefact stores, perhaps of an earlier version: keys that went since are left out."""
        prefix = f"{cls.section}." if cls.section else ""
        return cls.from_mapping({key: value for key, value in table.items() if f"{prefix}{key}" not in RENAMED})

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> typing.Self:
        """Build from a TOML table; an unknown or missing key is an error that names the nearest valid one."""
        names = {field.name: field for field in dataclasses.fields(cls)}
        prefix = f"{cls.section}." if cls.section else ""
        for key in table:
            if key not in names:
                if instead := RENAMED.get(f"{prefix}{key}"):
                    raise SettingsError(f"'{prefix}{key}' is no longer a setting: {instead}")
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
    expected, base = allowed(hint, metadata), _without_none(hint)
    if value is None and type(None) in typing.get_args(hint):
        return None
    if _number_or_word(hint):
        if value in metadata["choices"]:
            return value
        metadata = {**metadata, "choices": None}
    converted = _convert(value, base)
    if converted is None:
        raise SettingsError(f"'{key}' is {_shown(value)} ({type(value).__name__}); expected {expected}")
    low, high, choices = metadata.get("low"), metadata.get("high"), metadata.get("choices")
    if base in (int, float):
        inside = (low is None or converted >= low) and (high is None or converted <= high)
        if not inside or not math.isfinite(converted):
            raise SettingsError(f"'{key}' is {value!r}; expected {expected}")
    if choices and converted not in choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint_text = f"; did you mean '{close[0]}'?" if close else ""
        raise SettingsError(f"'{key}' is {value!r}; expected {expected}{hint_text}")
    return converted


def _number_or_word(hint: Any) -> bool:
    """Whether a field takes a number or one of some words."""
    return bool(hint == int | str)


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

    >>> allowed(int, {"low": 1, "high": 100})
    'a whole number from 1 to 100'
    """
    choices, low, high = (metadata.get(name) for name in ("choices", "low", "high"))
    words = ", ".join(f"'{choice}'" for choice in choices or ())
    if _number_or_word(hint):
        return f"{allowed(int, {**metadata, 'choices': None})}, or {words}"
    if choices:
        return f"one of {words}"
    base = _without_none(hint)
    if base is not hint:
        return allowed(base, metadata) + " (or left out)"
    if isinstance(hint, type) and issubclass(hint, Settings):
        return f"a table [{hint.section}]"
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    names |= {tuple: "a list of strings", dict: "a table of strings"}
    text = names[typing.get_origin(hint) or hint]
    return text if low is None or high is None else f"{text} from {low:,} to {high:,}"


def _shown(value: Any) -> str:
    """A value as an error message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # an integer with thousands of digits
        return "a number with too many digits"
    return text if len(text) <= 80 else text[:77] + "…"
