"""A ranking of many queries: computed in blocks, kept as arrays and, where somebody reads it, as a TREC run file.

block-00000.rows.npy    int32 [queries, depth], rows of passages, −1 where there are fewer
block-00000.scores.npy  float32 [queries, depth]
queries.*.npy, ids.*.npy   query and passage ids
run.trec                the same as a TREC run file
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from colabel.artefacts import Manifest, Spec, Workspace, build, fingerprint, read_manifest
from colabel.data.scored_files import run_line
from colabel.data.string_table import StringTable
from colabel.errors import ArtefactError
from colabel.index.store import allow_open_files
from colabel.progress import SILENT, Progress
from colabel.types import FloatArray, Int32Array, IntArray, Mask, ScoredPassage

STAGE = "ranking"
BLOCK = 2048
"""Queries between two save points: 25 MB of arrays at depth 1,000; look-ups for so many at once are fast."""


class Ranker(Protocol):
    """Ranks passages for queries; ``fingerprint`` names all that its rankings depend on."""

    name: str
    fingerprint: str
    ids: StringTable

    def rank(self, texts: Sequence[str], depth: int, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """Rows int64 [queries, depth] and scores float32, best first, −1 and −∞ where there are fewer.

        Passages of equal score come in the order of ``StringTable.tie_ranks``, also at the cut. A document in pieces
        has one place, that of its best piece.
        """


class Ranking:
    """Reads a finished ranking."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder, STAGE)
        self.query_ids = StringTable.open(folder, "queries")
        self.passage_ids = StringTable.open(folder, "ids")
        self._blocks: int = self.manifest.counts["blocks"]
        if self.manifest.counts.get("block") != BLOCK:
            raise ArtefactError(f"{folder} was written by another version of colabel; rank again")

    def __len__(self) -> int:
        return len(self.query_ids)

    def blocks(self) -> Iterator[tuple[list[str], Int32Array, FloatArray]]:
        """Query ids, rows and scores, block by block."""
        for number in range(self._blocks):
            rows, scores = _load_block(self.folder, number)
            yield self.query_ids[number * BLOCK : number * BLOCK + len(rows)], rows, scores

    def query(self, query_id: str) -> tuple[Int32Array, FloatArray]:
        """Rows and scores of one query, without the places that are empty."""
        place = int(self.query_ids.known_rows([query_id], f"{self.folder} has no query")[0])
        rows, scores = (np.asarray(part[place % BLOCK]) for part in self._mapped[place // BLOCK])
        return rows[rows >= 0], scores[rows >= 0]

    @cached_property
    def _mapped(self) -> list[tuple[Int32Array, FloatArray]]:
        """Rows and scores of all blocks, on disk; their files stay open."""
        allow_open_files(2 * self._blocks + 256)
        return [_load_block(self.folder, number) for number in range(self._blocks)]

    def run(self) -> dict[str, dict[str, float]]:
        """Query id → passage id → score, for measuring."""
        answers: dict[str, dict[str, float]] = {}
        for block in self.blocks():
            answers |= as_run(*block, self.passage_ids)
        return answers

    @property
    def run_file(self) -> Path:
        """The TREC run file, where one was written."""
        return self.folder / "run.trec"


def as_run(
    query_ids: Iterable[str], rows: IntArray | Int32Array, scores: FloatArray, ids: StringTable
) -> dict[str, dict[str, float]]:
    """Query id → passage id → score of rows and scores [queries, k]; a row of −1 is no passage."""
    return {
        query_id: {ids[row]: score for row, score in zip(*line, strict=True) if row >= 0}
        for query_id, *line in zip(query_ids, rows.tolist(), scores.tolist(), strict=True)
    }


def rank(
    ranker: Ranker,
    queries: Mapping[str, str],
    out: Path | str,
    *,
    depth: int = 1000,
    only: Sequence[str] | Mask | None = None,
    exclude: Sequence[str] | None = None,
    tag: str = "",
    run_file: bool = True,
    progress: Progress = SILENT,
) -> Ranking:
    """Rank passages for every query (id → text) and write the ranking to ``out``; an interrupted run continues.

    Args:
        depth: passages per query.
        only: rank none but these passage ids, or the rows of a mask such as :meth:`colabel.Index.where` gives.
        exclude: leave these passage ids out.
        tag: the system's name in the run file, without white space; default: the ranker's.
        run_file: whether to write ``run.trec`` for other programs; rankings that only later stages read need none.
    """
    out = Path(out)
    allowed = allowed_rows(ranker.ids, only, exclude)
    settings = {"ranker": ranker.name, "depth": depth, "filtered": allowed is not None}
    inputs = {"ranker": ranker.fingerprint, "queries": fingerprint(list(queries.items()))}  # blocks go by position
    if allowed is not None:
        inputs["allowed"] = fingerprint(np.flatnonzero(allowed).tolist())

    def write(space: Workspace) -> Mapping[str, Any]:
        counts = _write(space, ranker, queries, depth, allowed, progress)
        if run_file:
            _write_run(space, ranker, list(queries), counts["blocks"], tag or ranker.name)
        return counts

    build(out, Spec(STAGE, settings, inputs, format=2), write)
    return Ranking(out)


def allowed_rows(ids: StringTable, only: Sequence[str] | Mask | None, exclude: Sequence[str] | None) -> Mask | None:
    """A mask over rows from lists of ids, or from a mask and such a list; None where every passage is allowed."""
    if only is None and not exclude:
        return None
    if isinstance(only, np.ndarray):
        allowed, only = only.copy(), ()
    else:
        allowed = np.full(len(ids), only is None)
    for wanted, value in ((only or (), True), (exclude or (), False)):
        rows = ids.known_rows(wanted, "the candidate filter does not fit the collection, which has no passage")
        allowed[ids.all_of(rows)] = value
    return allowed


def block_name(number: int) -> str:
    """``block-00000`` and so on."""
    return f"block-{number:05d}"


def _load_block(folder: Path, number: int) -> tuple[Int32Array, FloatArray]:
    names = (folder / f"{block_name(number)}.{part}.npy" for part in ("rows", "scores"))
    rows, scores = (np.load(name, mmap_mode="r", allow_pickle=False) for name in names)
    return rows, scores


def _write(
    space: Workspace, ranker: Ranker, queries: Mapping[str, str], depth: int, allowed: Mask | None, progress: Progress
) -> Mapping[str, Any]:
    query_ids, texts = list(queries), list(queries.values())
    blocks = range(0, len(query_ids), BLOCK)
    depth = min(depth, len(ranker.ids))
    task = progress.start(f"ranking with {ranker.name}", len(query_ids), "queries")
    for number, start in enumerate(blocks):
        batch = texts[start : start + BLOCK]
        if not space.done(f"{block_name(number)}.rows.npy"):
            rows, scores = ranker.rank(batch, depth, allowed)
            for part, values in (("scores", scores.astype(np.float32)), ("rows", rows.astype(np.int32))):
                space.save(f"{block_name(number)}.{part}.npy", values)
        task.advance(len(batch))
    task.close()
    StringTable.of(query_ids).save(space, "queries")
    ranker.ids.save(space, "ids")
    return {"queries": len(query_ids), "blocks": len(blocks), "block": BLOCK, "depth": depth}


def _write_run(space: Workspace, ranker: Ranker, query_ids: list[str], blocks: int, tag: str) -> None:
    with space.file("run.trec") as path, path.open("w", encoding="utf-8") as file:
        for number in range(blocks):
            rows, scores = _load_block(space.folder, number)
            for query_id, line, values in zip(query_ids[number * BLOCK :], rows, scores, strict=False):
                for place, (row, score) in enumerate(zip(line.tolist(), values.tolist(), strict=True), start=1):
                    if row >= 0:
                        scored = ScoredPassage(query_id, ranker.ids[row], place, score)
                        file.write(run_line(scored, tag) + "\n")
