"""Collective knowledge of a split's queries: a folder with all that a teacher needs to score any pair.

queries/     token vectors of the queries (:mod:`colabel.encode.query_store`)
ranking/     θ's ranking of them
centroids/   collective centroids, σ, token ids and feedback passages; β is not in it
knowledge.json  the index and the split that it belongs to
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colabel.artefacts import assemble, read_manifest
from colabel.collective.centroids import STAGE, Centroids, build_centroids, read_part
from colabel.collective.expansion import expand, expansion_weights
from colabel.data import Dataset
from colabel.data.splits import TRAIN
from colabel.encode import QueryStore, build_query_store
from colabel.errors import ArtefactError, DataError, SettingsError
from colabel.index import Index
from colabel.progress import SILENT, Progress
from colabel.ranking import LateInteraction, Ranking, rank
from colabel.ranking.labelled_pieces import positive_rows
from colabel.ranking.late_interaction import Hit, hits
from colabel.settings import CollectiveSettings

log = logging.getLogger(__name__)

_FILE = "knowledge.json"


class Knowledge:
    """An opened knowledge folder.

    Attributes:
        counts: queries, and how many have fewer centroids than wanted or none.
        seconds: that the extraction took.
        labelled_fingerprint: names the labels that were feedback, as :func:`labels_used` does; None where none were.
    """

    def __init__(
        self, folder: Path, index: Index | None = None, open_index: Callable[[Path], Index] = Index.open
    ) -> None:
        self.folder = folder
        self.split, place, self.settings = _read(folder)
        self.queries = QueryStore(folder / "queries")
        self.ranking = Ranking(folder / "ranking")
        made = read_manifest(folder / "centroids", STAGE)
        self.fingerprint, self.counts, self.seconds = made.fingerprint, made.counts, made.seconds
        self.labelled_fingerprint, self._collected_from = made.inputs.get("labelled"), made.inputs["index"]
        self._place = Path(os.path.normpath(folder.resolve() / place))
        self._index, self._open_index = index, open_index

    @cached_property
    def index(self) -> Index:
        """The index from which it was collected."""
        index = self._index or self._open_index(self._place)
        if self._collected_from != index.fingerprint:
            raise ArtefactError(f"{index.folder} is not the index that {self.folder} was collected from; collect again")
        return index

    def centroids(self, query_ids: Sequence[str]) -> Centroids:
        """Collective centroids of some queries, [queries, f_e, …]."""
        vectors, sigma, tokens = (self._gather(query_ids, part) for part in ("vectors", "sigma", "tokens"))
        return Centroids(torch.from_numpy(vectors), torch.from_numpy(sigma), tokens)

    def feedback(self, query_ids: Sequence[str]) -> npt.NDArray[np.int32]:
        """Rows of their feedback passages, int32 [queries, f_p], −1 where there are fewer."""
        return self._gather(query_ids, "feedback")

    def _gather(self, query_ids: Sequence[str], part: str) -> npt.NDArray[Any]:
        folder, ids, size = self.folder / "centroids", self.ranking.query_ids, int(self.counts["block"])
        rows = ids.known_rows(query_ids, f"{folder} has to be collected again: it has no query")
        first = read_part(folder, 0, part)  # when needed: half a million queries have a thousand files, each kept open
        values = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
        for number in np.unique(rows // size):
            here = rows // size == number
            values[here] = read_part(folder, int(number), part)[rows[here] % size]
        return values


def collect(
    dataset: Dataset,
    index: Index,
    out: Path | str,
    *,
    settings: CollectiveSettings | None = None,
    split: str = TRAIN,
    depth: int = 1000,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Knowledge:
    """Rank a split's queries and extract their collective knowledge into ``out``; what is there already is kept.

    Labelled positives serve as feedback for the train split alone: for any other split the top f_p is used, whatever
    ``settings.feedback`` says.

    Args:
        depth: how deep θ's ranking goes; hard negatives come from its first 100.
        seed: of the k-means++ start.

    Example:
        >>> knowledge = collect(dataset, index, Path("knowledge"))  # doctest: +SKIP
    """
    out = Path(out)
    settings = settings or CollectiveSettings()
    if split != TRAIN and settings.feedback != "top":
        log.info(
            "split '%s': feedback is the top %d, as its labels are not for training", split, settings.feedback_passages
        )
        settings = settings.with_feedback("top")
    index.check_collection(dataset.passages)
    if (out / "manifest.json").exists():
        raise ArtefactError(f"{out} holds another result of colabel; nothing was written. Choose another output folder")
    queries = dataset.split_queries(split)
    if not queries:
        raise DataError(f"the split '{split}' of {dataset.name} has no queries")

    def make() -> Mapping[str, Any]:
        encoder = read_manifest(index.encoder_folder).fingerprint
        stored = build_query_store(lambda: index.encoder, encoder, queries, out / "queries", progress)
        ranker = _ReadQueries(index, queries, stored, progress)
        ranking = rank(ranker, queries, out / "ranking", depth=depth, run_file=False, progress=progress)
        labelled = positive_rows(dataset, split) if settings.feedback != "top" else None
        build_centroids(index, ranking, settings, out / "centroids", labelled=labelled, seed=seed, progress=progress)
        place = os.path.relpath(index.folder.resolve(), out.resolve())
        return {"split": split, "index": place, "settings": settings.as_dict()}

    assemble(out, _FILE, make)
    knowledge = Knowledge(out, index)
    if none := knowledge.counts["without_centroids"]:
        log.warning(
            "%d of %d queries have no collective centroid (no feedback with ordinary tokens); their teacher score is "
            "the plain score of the query",
            none,
            knowledge.counts["queries"],
        )
    return knowledge


class _ReadQueries(LateInteraction):
    """θ over queries whose vectors are stored already."""

    def __init__(self, index: Index, queries: Mapping[str, str], stored: QueryStore, progress: Progress) -> None:
        super().__init__(index, "theta", progress=progress)
        self._stored, self._ids = stored, {text: query_id for query_id, text in queries.items()}

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Their stored vectors."""
        return self._stored.vectors([self._ids[text] for text in texts])


def open_knowledge(
    folder: Path | str, index: Index | None = None, *, open_index: Callable[[Path], Index] = Index.open
) -> Knowledge:
    """Open a finished knowledge folder; ``open_index`` opens the index that it remembers, where none is given."""
    return Knowledge(Path(folder), index, open_index)


@dataclasses.dataclass(frozen=True)
class ExpansionToken:
    """A centroid's token: its piece of text, σ, and the weight with which the centroid counts."""

    token: str
    token_id: int
    sigma: float
    weight: float


@dataclasses.dataclass(frozen=True)
class Inspection:
    """A query with its feedback, its expansion, and its best passages by φ and by the teacher score."""

    query_id: str
    text: str
    beta: float
    feedback: list[Hit]
    tokens: list[ExpansionToken]
    before: list[Hit]
    after: list[Hit]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        table = dataclasses.asdict(self)
        return {{"text": "query", "tokens": "expansion"}.get(name, name): value for name, value in table.items()}


def inspect(knowledge: Knowledge, query_id: str, *, count: int = 5, beta: float | None = None) -> Inspection:
    """Show one query of a knowledge folder; ``before`` ranks by φ, ``after`` searches with the expanded query.

    Args:
        count: passages shown before and after.
        beta: None: that of the folder's settings.
    """
    text = knowledge.queries.text(query_id)
    index, settings = knowledge.index, knowledge.settings
    beta = settings.beta if beta is None else beta
    query = knowledge.queries.vectors([query_id])
    centroids = knowledge.centroids([query_id])
    weights = expansion_weights(centroids.sigma, knowledge.queries.lengths([query_id]), beta, settings.expansion_scale)
    kept = np.flatnonzero(centroids.token_ids[0] >= 0)
    ids, sigma, counted = (values[0][kept].tolist() for values in (centroids.token_ids, centroids.sigma, weights))
    tokens = [ExpansionToken(*one) for one in zip(index.encoder.tokens(ids), ids, sigma, counted, strict=True)]
    rows = knowledge.feedback([query_id]).astype(np.int64)
    rows = rows[:, rows[0] >= 0]
    feedback = hits(index, rows[0], index.store.score(query, rows)[0])  # labelled ones may stand anywhere in a ranking
    before, after = (
        hits(index, *(values[0] for values in index.search(asked, count)))
        for asked in (query, expand(query, centroids, beta, settings.expansion_scale))
    )
    return Inspection(query_id, text, beta, feedback, tokens, before, after)


def _read(folder: Path) -> tuple[str, str, CollectiveSettings]:
    path = folder / _FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return table["split"], table["index"], CollectiveSettings.from_manifest(table["settings"])
    except FileNotFoundError:
        what = "holds no finished knowledge" if folder.is_dir() else "does not exist"
        raise ArtefactError(
            f"{folder} {what}; make it with `colabel collect DATASET --index INDEX --out {folder}`"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, SettingsError) as error:
        raise ArtefactError(f"{path} cannot be read by this version ({error}); collect again") from None
