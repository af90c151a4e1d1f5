"""Checksums of files in blocks, so that a sample of a large artefact can be checked at little cost."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.errors import ArtefactError

MANIFEST_FILE = "manifest.json"
BLOCK = 1 << 20
"""Bytes under one sum."""
SAMPLE_BLOCKS, SAMPLE_BYTES = 24, 4 << 20
"""What is read at most when a process opens an artefact for the first time; of small ones that is all."""
DIGITS = 16
"""Of the sum of a block."""
_SEED = random.SystemRandom().random()  # other blocks in every process: what lies damaged for long is found


def block_sums(path: Path) -> str:
    """The sums of a file's blocks one after another, 16 hexadecimal digits each; of an empty file none.

    The file is read in blocks of 1 MiB. 64 bits of BLAKE2b find any damage; they are no proof against forgery.
    """
    with path.open("rb") as file:
        return "".join(iter(lambda: _sum(file.read(BLOCK)), ""))


def text_sum(table: Any) -> str:
    """The sum of plain JSON data."""
    return _sum(json.dumps(table, sort_keys=True).encode())


def _sum(block: bytes) -> str:
    return hashlib.blake2b(block, digest_size=DIGITS // 2).hexdigest() if block else ""


def check_sample(folder: Path, sums: Mapping[str, str]) -> None:
    """Compare some blocks of an artefact with their sums; the same ones whenever this process asks.

    Raises:
        ArtefactError: a block is not what was written.
    """
    counts = [(name, len(one) // DIGITS) for name, one in sums.items() if name != MANIFEST_FILE]
    total, left = sum(count for _, count in counts), SAMPLE_BYTES
    for place in random.Random(f"{_SEED} {folder}").sample(range(total), min(SAMPLE_BLOCKS, total)):
        name, number = _block(counts, place)
        with (folder / name).open("rb") as file:
            block = os.pread(file.fileno(), BLOCK, number * BLOCK)
        if _sum(block) != sums[name][number * DIGITS : (number + 1) * DIGITS]:
            raise ArtefactError(
                f"{folder / name} is damaged: {where(number)} is not what was written. Delete {folder} and build it "
                "again; `colabel verify` checks everything"
            )
        left -= len(block)
        if left <= 0:
            return


def _block(counts: Sequence[tuple[str, int]], place: int) -> tuple[str, int]:
    """The file, and the number within it, of the block at a place among all."""
    for name, count in counts:
        if place < count:
            return name, place
        place -= count
    raise IndexError(place)


def where(block: int) -> str:
    """A block of a file, for people."""
    return f"something in the {BLOCK >> 20} MiB from byte {block * BLOCK:,} on"
