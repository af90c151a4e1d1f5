"""Fingerprints: short names for contents. Equal contents have equal fingerprints, on any machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def fingerprint(value: Any) -> str:
    """Fingerprint of plain JSON data; the order of keys does not matter.

    >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    True
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(canonical.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def file_fingerprint(path: Path) -> str:
    """Fingerprint of a file's bytes, read in blocks of 1 MiB."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
