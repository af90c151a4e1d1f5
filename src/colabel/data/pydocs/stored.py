"""The collection on disk: harvested once, and again only when a library or the harvest itself has changed.

Harvesting imports seven libraries and reads ten thousand docstrings; reading the result back takes a moment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from colabel.artefacts import Plan, Workspace, build
from colabel.data.pydocs.collection import Collection, Entry, asked_by, limited, whole_collection
from colabel.data.pydocs.libraries import DISTRIBUTIONS
from colabel.types import Passage

_ENTRIES = "entries.jsonl"


def stored_collection(folder: Path, size: int | None) -> Collection:
    """The collection of ``size`` passages from an artefact in ``folder``, which is made where it is not up to date."""
    settings = {"size": size, "libraries": _installed(), "program": _program()}
    manifest = build(folder, Plan("pydocs", settings, {}), lambda space: _write(space, size))
    return Collection(tuple(_read(folder / _ENTRIES)), dict(manifest.counts["versions"]))


def _write(space: Workspace, size: int | None) -> dict[str, object]:
    collection = limited(whole_collection(), size)
    with space.file(_ENTRIES) as path, path.open("w", encoding="utf-8") as target:
        for passage, query, related in collection.entries:
            row = {"id": passage.id, "text": passage.text, "query": query.text if query else None, "related": related}
            target.write(json.dumps(row, ensure_ascii=False) + "\n")
    return {"passages": len(collection.entries), "versions": collection.versions}


def _read(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            name, text = row["id"], row["query"]
            yield Entry(Passage(name, name, row["text"]), asked_by(name, text) if text else None, tuple(row["related"]))


def _installed() -> dict[str, str]:
    """Library → version as its distribution states it, without importing any."""
    found = {}
    for library, distribution in DISTRIBUTIONS.items():
        try:
            found[library] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def _program() -> str:
    """Names the code of this package: other rules of harvesting make another collection."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
