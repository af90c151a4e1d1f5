"""The cross-encoder as a teacher: it reads query and passage together, which is accurate and slow."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colabel.artefacts import fingerprint, folder_lock
from colabel.artefacts.arrays import ROW_BITS, Keys, pair_keys
from colabel.data import Dataset
from colabel.encode.colbert import choose_device
from colabel.encode.encoder import length_batches
from colabel.encode.weights import check_exists, weights_fingerprint
from colabel.errors import DataError
from colabel.progress import SILENT, Progress
from colabel.teachers.cache import PairCache
from colabel.teachers.pair_model import PairBatch, PairModel, PairPredictor, load_cross_encoder
from colabel.teachers.protocol import Knows

log = logging.getLogger(__name__)

_SAVE_SECONDS = 30.0
_NAMED = 8  # pairs that an error lists


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
        self._predictor = predictor
        self._batch_tokens = batch_tokens
        self._passages = dataset.passages
        self._queries = dataset.queries
        self._query_ids = list(dataset.queries)
        self._numbers = {query_id: number for number, query_id in enumerate(self._query_ids)}
        self._progress = progress
        self.fingerprint = fingerprint(
            {
                "teacher": self.name,
                "weights": weights_fingerprint(model),
                "max_length": max_length,
                "passages": dataset.passages.fingerprint,
                "queries": fingerprint(list(dataset.queries.items())),
            }
        )
        self._cache_folder = None if cache is None else cache / self.fingerprint
        self._cache = None if self._cache_folder is None else PairCache(self._cache_folder)

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
        keys = pair_keys(self._query_numbers(query_ids)[:, None], rows)
        wanted, places = np.unique(keys[candidate], return_inverse=True)
        result = np.full(rows.shape, -np.inf, dtype=np.float32)
        if len(wanted):
            with contextlib.ExitStack() as stack:
                if self._cache_folder is not None:
                    stack.enter_context(folder_lock(self._cache_folder))
                result[candidate] = self._score_pairs(wanted)[places]
        return result

    def _query_numbers(self, query_ids: Sequence[str]) -> npt.NDArray[np.int64]:
        for query_id in query_ids:
            if query_id not in self._numbers:
                raise DataError(f"the dataset has no query '{query_id}'; is it the one that was ranked?")
        return np.array([self._numbers[query_id] for query_id in query_ids], dtype=np.int64)

    def _score_pairs(self, keys: Keys) -> npt.NDArray[np.float32]:
        """Scores of distinct pairs, from the cache where it has them.

        Batches are formed as if nothing were cached, so that a continued call gives the same bytes: rounding depends on
        the length that a pair is padded to.
        """
        scores = np.full(len(keys), np.nan, dtype=np.float32)
        if self._cache is not None:
            self._cache.load()
            scores = self._cache.look_up(keys)
        if not np.isnan(scores).any():
            return scores
        queries, passages, lengths = self._texts(keys)
        batches = list(length_batches(lengths, self._batch_tokens))
        unknown = [[place for place in batch if np.isnan(scores[place])] for batch in batches]
        asked = [places for places in unknown if places]
        with _Saving(self._cache, keys, scores, self._progress) as saving:
            saving.done([place for batch in batches for place in batch if not np.isnan(scores[place])], [], 0.0)
            wanted = (
                PairBatch([(queries[place], passages[place]) for place in places], self._name(keys[places]))
                for places in asked
            )
            started = time.perf_counter()
            for number, values in self._predicted(wanted):
                places = asked[number]
                scores[places] = self._finite(values, keys[places])
                now = time.perf_counter()
                saving.done(places, places, now - started)
                started = now
        return scores

    def _predicted(self, batches: Iterable[PairBatch]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The number of each batch and its scores, computed here or by the predictor."""
        if self._predictor is not None:
            return self._predictor.predict(batches)
        return ((number, self._model.predict(batch.pairs)) for number, batch in enumerate(batches))

    def _name(self, keys: Keys) -> str:
        """The first pairs of a batch, for error messages."""
        first = keys[:_NAMED].tolist()
        pairs = [f"({self._query_ids[key >> 32]}, {self._passages.ids[key & ROW_BITS]})" for key in first]
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        return f"the pairs {', '.join(pairs)}{more}"

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
            key = int(keys[int(np.flatnonzero(~np.isfinite(scores))[0])])
            query_id, passage_id = self._query_ids[key >> 32], self._passages.ids[key & ROW_BITS]
            raise DataError(
                f"the cross-encoder gives no finite score for query '{query_id}', passage '{passage_id}'; its weights "
                "are damaged or overflow in half precision"
            )
        return scores


class _Saving:
    """Reports progress and saves finished pairs every half minute, and when scoring ends or fails."""

    def __init__(
        self, cache: PairCache | None, keys: Keys, scores: npt.NDArray[np.float32], progress: Progress
    ) -> None:
        self._cache, self._keys, self._scores = cache, keys, scores
        self._task = progress.start("scoring with the cross-encoder", len(keys), "pairs")
        self._unsaved: list[int] = []
        self._seconds = 0.0
        self._saved = time.monotonic()

    def __enter__(self) -> _Saving:
        return self

    def __exit__(self, *_: object) -> None:
        self._task.close()
        self._save()

    def done(self, batch: list[int], new: list[int], seconds: float) -> None:
        """Record a finished batch: all its places, the newly scored ones, and their seconds."""
        self._task.advance(len(batch))
        self._unsaved += new
        self._seconds += seconds if new else 0.0
        if time.monotonic() - self._saved >= _SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        if self._cache is not None and self._unsaved:
            self._cache.add(self._keys[self._unsaved], self._scores[self._unsaved])
            self._cache.spend(len(self._unsaved), self._seconds)
        self._unsaved, self._seconds, self._saved = [], 0.0, time.monotonic()
