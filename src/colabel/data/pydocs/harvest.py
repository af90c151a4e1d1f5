"""Walk the libraries and collect every documented public object. Nothing is called, only looked at."""

from __future__ import annotations

import importlib
import logging
import operator
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

from colabel.data.pydocs.libraries import LEFT_OUT, MODULES, NAMESPACES

log = logging.getLogger(__name__)


class Sighting(NamedTuple):
    """A documented object seen under one of its names; ``defined`` is its name where it was defined."""

    name: str
    doc: str
    defined: str
    inherited: bool


@dataclass(frozen=True, slots=True)
class Documented:
    """A documentation string, all names that carry it (the best first, private ones last), and where it was defined.

    Equal strings are taken for one object: that covers aliases and inherited methods, whose identity Python
    does not keep (descriptors make a new object at each access).
    """

    names: tuple[str, ...]
    doc: str
    defined: str

    @property
    def name(self) -> str:
        """The canonical public name."""
        return self.names[0]


def name_rank(name: str) -> tuple[int, int, str]:
    """Shallow names first, then short ones: ``torch.einsum`` before ``torch.functional.einsum``."""
    return name.count("."), len(name), name


def harvest(libraries: tuple[str, ...] = tuple(MODULES)) -> tuple[list[Documented], dict[str, str]]:
    """Every documented object in order of its canonical name, and the version of each library found."""
    sightings: list[Sighting] = []
    versions: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in libraries:
            try:
                root = importlib.import_module(library)
            except (ImportError, OSError) as error:  # a shared library that does not load is an OSError
                log.warning("pydocs goes without %s, which cannot be imported: %s", library, error)
                continue
            versions[library] = str(root.__version__)
            sightings.extend(_library(library))
    return _grouped(sightings), versions


def _library(library: str) -> Iterator[Sighting]:
    for module_name in MODULES[library]:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            log.debug("this version of %s has no module %s", library, module_name)
            continue
        yield from _module(module, library)
    for path in NAMESPACES.get(library, ()):
        namespace = _attribute(importlib.import_module(library), path)
        if isinstance(namespace, type):
            name = f"{library}.{path}"
            if doc := _own_doc(namespace):
                yield Sighting(name, doc, name, inherited=False)
            yield from _members(namespace, name)


def _module(module: ModuleType, library: str) -> Iterator[Sighting]:
    declared = getattr(module, "__all__", None)
    # Without a declaration a module's imports look like its own names: only what was defined below it counts.
    required = library if declared is not None else module.__name__
    for attribute in sorted(set(declared if declared is not None else dir(module))):
        name = f"{module.__name__}.{attribute}"
        if attribute.startswith("_") or LEFT_OUT.fullmatch(name):
            continue
        value = _attribute(module, attribute)
        home = getattr(value, "__module__", None) or module.__name__
        if isinstance(value, ModuleType) or not callable(value) or not _within(home, required):
            continue
        if doc := _own_doc(value):
            yield Sighting(name, doc, f"{home}.{attribute}", inherited=False)
        if isinstance(value, type):
            yield from _members(value, name)


def _members(cls: type, path: str) -> Iterator[Sighting]:
    """Public methods and properties, looked up without running descriptors; what Python itself defines is left out."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        members = vars(owner)
        fresh = [name for name in members if not name.startswith("_") and name not in seen]
        seen.update(fresh)
        if owner.__module__.partition(".")[0] not in MODULES:
            continue
        for name in fresh:
            value = members[name]
            if (hasattr(type(value), "__get__") or isinstance(value, type)) and (doc := _own_doc(value)):
                defined = f"{owner.__module__}.{owner.__qualname__}.{name}"
                yield Sighting(f"{path}.{name}", doc, defined, inherited=owner is not cls)


def _own_doc(value: object) -> str | None:
    """The object's documentation, unless it only repeats that of its type (``5 .__doc__`` is that of ``int``)."""
    doc = getattr(value, "__doc__", None)
    if not isinstance(doc, str) or (not isinstance(value, type) and doc == type(value).__doc__):
        return None
    # What pybind11 writes for C++ overloads is a list of signatures.
    return None if "Overloaded function." in doc else doc


def _attribute(module: ModuleType, path: str) -> object:
    """What a dotted path means in a module; None where this version has no such thing, or only on demand."""
    try:
        return operator.attrgetter(path)(module)
    except (AttributeError, ImportError):
        return None


def _within(home: str, package: str) -> bool:
    return home == package or home.startswith(f"{package}.")


def _grouped(sightings: list[Sighting]) -> list[Documented]:
    by_doc: dict[str, list[Sighting]] = {}
    for sighting in sorted(set(sightings), key=lambda seen: (seen.inherited, name_rank(seen.name))):
        by_doc.setdefault(sighting.doc, []).append(sighting)
    groups = []
    for doc, group in by_doc.items():
        names = dict.fromkeys([*(seen.name for seen in group), *(seen.defined for seen in group)])
        groups.append(Documented(tuple(names), doc, group[0].defined))
    return sorted(groups, key=lambda group: name_rank(group.name))
