"""The cross-encoder as a teacher: it reads query and passage together, which is accurate and slow."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import Workspace, fingerprint, folder_lock, write_json
from colabel.artefacts.arrays import ROW_BITS, Keys, PairTable, pair_keys
from colabel.data import Dataset
from colabel.encode.colbert import choose_device
from colabel.encode.encoder import length_batches
from colabel.encode.weights import check_exists, weights_fingerprint
from colabel.errors import ArtefactError, DataError
from colabel.progress import SILENT, Progress
from colabel.teachers.pair_model import PairBatch, PairModel, PairPredictor, load_cross_encoder
from colabel.teachers.protocol import Knows

log = logging.getLogger(__name__)

_SAVE_SECONDS = 30.0
_NAMED = 8  # pairs that an error lists
_SPENT_FILE = "spent.json"
_PAIR = np.dtype([("query", "<i4"), ("row", "<i4"), ("score", "<f4")])


class CrossEncoderTeacher:
    """Raw logits of any sentence-transformers CrossEncoder with a single score.

    Each distinct pair of a call is scored once, in batches of similar length. With ``cache``, finished pairs are saved
    every half minute to a folder named by the fingerprint, and the same call continues there after a kill.
    """

    name = "cross-encoder"
    knows: Knows = "any"

    def __init__(
        self,
        model: str,
        dataset: Dataset,
        *,
        max_length: int = 256,
        batch_tokens: int = 8192,
        device: str = "auto",
        cache: Path | None = None,
        predictor: PairPredictor | None = None,
        progress: Progress = SILENT,
    ) -> None:
        check_exists(model)
        self._source, self._device, self._max_length = model, choose_device(device), max_length
        self._predictor, self._batch_tokens, self._progress = predictor, batch_tokens, progress
        self._passages, self._queries = dataset.passages, dataset.queries
        self._query_ids = list(dataset.queries)
        self._numbers = {query_id: number for number, query_id in enumerate(self._query_ids)}
        self.fingerprint = fingerprint(
            {
                "teacher": self.name,
                "weights": weights_fingerprint(model),
                "max_length": max_length,
                "passages": dataset.passages.fingerprint,
                "queries": fingerprint(list(dataset.queries.items())),
            }
        )
        self._cache = None if cache is None else PairCache(cache / self.fingerprint)

    @cached_property
    def _model(self) -> PairModel:
        """The model, loaded when the first pair must be scored: cached scores need none."""
        return PairModel(load_cross_encoder(self._source, self._device), self._max_length)

    @property
    def seconds_per_pair(self) -> float | None:
        """Mean seconds per pair, from the cache; None without one."""
        return None if self._cache is None else self._cache.seconds_per_pair

    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Logits float32 [queries, candidates]; −∞ where the row is −1."""
        candidate = rows >= 0
        try:
            numbers = np.array([self._numbers[query_id] for query_id in query_ids], dtype=np.int64)
        except KeyError as error:
            raise DataError(f"the dataset has no query {error}; is it the one that was ranked?") from None
        keys = pair_keys(numbers[:, None], rows)
        wanted, places = np.unique(keys[candidate], return_inverse=True)
        result = np.full(rows.shape, -np.inf, dtype=np.float32)
        if len(wanted):
            with contextlib.nullcontext() if self._cache is None else folder_lock(self._cache.folder):
                result[candidate] = self._score_pairs(wanted)[places]
        return result

    def _score_pairs(self, keys: Keys) -> npt.NDArray[np.float32]:
        """Scores of distinct pairs, from the cache where it has them.

        Batches are formed as if nothing were cached, so that a continued call gives the same bytes: rounding depends on
        the length that a pair is padded to.
        """
        scores = np.full(len(keys), np.nan, dtype=np.float32)
        if self._cache is not None:
            scores = self._cache.look_up(keys)
        if not np.isnan(scores).any():
            return scores
        queries, passages, lengths = self._texts(keys)
        batches = length_batches(lengths, self._batch_tokens)
        unknown = ([place for place in batch if np.isnan(scores[place])] for batch in batches)
        asked = [places for places in unknown if places]
        wanted = (
            PairBatch([(queries[place], passages[place]) for place in places], self._name(keys[places]))
            for places in asked
        )
        task = self._progress.start("scoring with the cross-encoder", len(keys), "pairs")
        task.advance(len(keys) - sum(map(len, asked)))
        unsaved: list[int] = []
        saved = time.perf_counter()
        here = ((number, self._model.predict(batch.pairs)) for number, batch in enumerate(wanted))
        try:
            for number, values in here if self._predictor is None else self._predictor.predict(wanted):
                places = asked[number]
                scores[places] = self._finite(values, keys[places])
                unsaved += places
                task.advance(len(places))
                if time.perf_counter() - saved >= _SAVE_SECONDS:
                    self._save(keys[unsaved], scores[unsaved], time.perf_counter() - saved)
                    unsaved, saved = [], time.perf_counter()
        finally:
            task.close()
            self._save(keys[unsaved], scores[unsaved], time.perf_counter() - saved)
        return scores

    def _save(self, keys: Keys, scores: npt.NDArray[np.float32], seconds: float) -> None:
        if self._cache is not None and len(keys):
            self._cache.add(keys, scores, seconds)

    def _name(self, keys: Keys) -> str:
        """The first pairs of a batch, for error messages."""
        pairs = ["({}, {})".format(*self._ids(key)) for key in keys[:_NAMED].tolist()]
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        return f"the pairs {', '.join(pairs)}{more}"

    def _ids(self, key: int) -> tuple[str, str]:
        return self._query_ids[key >> 32], self._passages.ids[key & ROW_BITS]

    def _texts(self, keys: Keys) -> tuple[list[str], list[str], list[int]]:
        """Query, passage and number of tokens of each pair; each distinct text is tokenised once."""
        numbers, query_places = np.unique(keys >> 32, return_inverse=True)
        rows, passage_places = np.unique(keys & ROW_BITS, return_inverse=True)
        reader = self._model.reader
        queries = reader.fit_queries([self._queries[self._query_ids[number]] for number in numbers])
        passages = [self._passages[int(row)].full_text for row in rows]
        query_tokens, passage_tokens = reader.count_tokens(queries), reader.count_tokens(passages)
        pairs = list(zip(query_places.tolist(), passage_places.tolist(), strict=True))
        lengths = [reader.pair_length(query_tokens[query], passage_tokens[row]) for query, row in pairs]
        return [queries[query] for query, _ in pairs], [passages[row] for _, row in pairs], lengths

    def _finite(self, scores: npt.NDArray[np.float32], keys: Keys) -> npt.NDArray[np.float32]:
        if not np.isfinite(scores).all():
            query_id, passage_id = self._ids(int(keys[~np.isfinite(scores)][0]))
            raise DataError(
                f"the cross-encoder gives no finite score for query '{query_id}', passage '{passage_id}'; its weights "
                "are damaged or overflow in half precision"
            )
        return scores


class PairCache:
    """Scored pairs, saved while they are being computed; the caller admits one writer.

    part-00000.npy   (query int32, row int32, score float32) [pairs]
    spent.json       how many pairs were scored, and the seconds that took
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._taken = 0
        self._table = PairTable(np.zeros(0, np.int64), np.zeros(0, np.float32))

    def look_up(self, keys: Keys) -> npt.NDArray[np.float32]:
        """Scores float32 of pair keys, NaN where a pair is not there; parts written since the last call are read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".tmp-*"):
            leftover.unlink()
        parts = [_read(path) for path in self._parts()[self._taken :]]
        if parts:
            pairs, known = np.concatenate(parts), self._table
            found = pair_keys(pairs["query"].astype(np.int64), pairs["row"].astype(np.int64))
            values = np.concatenate([known.values, pairs["score"]])
            self._table = PairTable.of(np.concatenate([known.keys, found]), values)
            self._taken += len(parts)
        return self._table.look_up(keys)

    def add(self, keys: Keys, scores: npt.NDArray[np.float32], seconds: float) -> None:
        """Write pairs as the next part, whole or not at all, and note what they took."""
        pairs = np.empty(len(keys), dtype=_PAIR)
        pairs["query"], pairs["row"], pairs["score"] = keys >> 32, keys & ROW_BITS, scores
        Workspace(self.folder).save(f"part-{len(self._parts()):05d}.npy", pairs)
        before = self._spent()
        write_json(self.folder / _SPENT_FILE, {"pairs": before[0] + len(keys), "seconds": before[1] + seconds})

    @property
    def seconds_per_pair(self) -> float | None:
        """Mean seconds per scored pair, cached ones not counted; None if none was scored."""
        pairs, seconds = self._spent()
        return seconds / pairs if pairs else None

    def _spent(self) -> tuple[int, float]:
        try:
            kept = json.loads((self.folder / _SPENT_FILE).read_text(encoding="utf-8"))
            return int(kept["pairs"]), float(kept["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0.0

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.npy"))


def _read(path: Path) -> np.ndarray:
    try:
        pairs = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArtefactError(f"{path} cannot be read ({error}); delete its folder and score again") from None
    if pairs.dtype != _PAIR or pairs.ndim != 1:
        raise ArtefactError(f"{path} holds no scores of pairs; delete its folder and score again")
    return np.asarray(pairs)
