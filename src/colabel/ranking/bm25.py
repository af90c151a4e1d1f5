"""BM25 by bm25s."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colabel.artefacts import Spec, Workspace, build
from colabel.data import PassageTable
from colabel.data.pieces import best_documents
from colabel.errors import SettingsError, UsageError
from colabel.progress import SILENT, Progress, track
from colabel.settings import RankSettings
from colabel.types import FloatArray, Int32Array, IntArray, Mask

log = logging.getLogger(__name__)

_STAGE = "bm25"
_BLOCK = 4096
_TOKENISER = 2  # raised whenever tokenise() changes


class Bm25:
    """Ranks by BM25 (Lucene's variant) over stemmed words without stop words."""

    name = "bm25"

    def __init__(self, passages: PassageTable, settings: RankSettings, out: Path, progress: Progress = SILENT) -> None:
        """Build the index in ``out``, or open it if it is there."""
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # importing it sets its logger to DEBUG
        self._language = settings.language
        kept = {"k1": settings.k1, "b": settings.b, "language": settings.language, "bm25s": bm25s.__version__}
        plan = Spec(_STAGE, kept, {"passages": passages.fingerprint}, format=_TOKENISER)
        build(out, plan, lambda space: _write(space, passages, settings, progress))
        self.ids = passages.ids
        self._passages = passages
        self.fingerprint = plan.fingerprint
        self._engine = bm25s.BM25.load(str(out / "bm25s"), mmap=True)
        self._tie_ranks = np.load(out / "tie_ranks.npy", allow_pickle=False)

    def rank(self, texts: Sequence[str], depth: int, allowed: Mask | None = None) -> tuple[IntArray, FloatArray]:
        """Rows and scores; passages that share no word with the query are not ranked."""
        mask = None if allowed is None else allowed.astype(np.float32)
        return self._rank(self._words(texts), min(depth, len(self.ids)), mask)

    def _rank(
        self, queries: Sequence[Sequence[str]], depth: int, mask: FloatArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        def search(depth: int) -> tuple[IntArray, FloatArray]:
            rows = np.full((len(queries), depth), -1, dtype=np.int64)
            scores = np.full((len(queries), depth), -np.inf, dtype=np.float32)
            for place, words in enumerate(queries):
                values = all_scores(self._engine, words, mask)
                found = best_rows(values, depth, self._tie_ranks)
                rows[place, : len(found)], scores[place, : len(found)] = found, values[found]
            return rows, scores

        return best_documents(search, depth, self.ids)

    def scores(self, texts: Sequence[str], rows: IntArray) -> FloatArray:
        """BM25 scores of given rows int64 [queries, n], float32 [queries, n]; −∞ where a row is −1.

        A passage that shares no word with the query has 0.
        """
        return self.word_scores(self._words(texts), rows)

    def word_scores(self, queries: Sequence[Sequence[str]], rows: IntArray) -> FloatArray:
        """The same for queries that are lists of stemmed words, such as :meth:`telling_words`."""
        scores = np.zeros(rows.shape, dtype=np.float32)
        for place, words in enumerate(queries):
            scores[place] = all_scores(self._engine, words)[rows[place]]
        scores[rows < 0] = -np.inf
        return scores

    def weights(self, texts: Sequence[str]) -> FloatArray:
        """Σ idf of each text's words, float32 [texts]: about what a passage could score at most."""
        found = [sum(map(self._idf, words)) for words in self._words(texts)]
        return np.maximum(np.array(found, dtype=np.float32), 1e-3)

    def rank_words(self, queries: Sequence[Sequence[str]], depth: int) -> IntArray:
        """The best rows int64 [queries, depth] for lists of stemmed words; −1 where there are fewer."""
        return self._rank(queries, depth)[0]

    def telling_words(self, passages: Sequence[Sequence[int]], count: int) -> list[list[str]]:
        """The ``count`` stemmed words of highest min(tf, 3) · idf of each group of passage rows, most telling first.

        idf = ln((N + 1) / (df + 1)); tf is capped, so that a word is not telling for being repeated.
        """
        wanted = sorted({row for group in passages for row in group})
        texts, idf = self._words([self._passages[row].full_text for row in wanted]), functools.cache(self._idf)
        known = (collections.Counter(word for word in words if word in self._engine.vocab_dict) for words in texts)
        worth = {
            row: {word: min(times, 3) * idf(word) for word, times in words.items()}
            for row, words in zip(wanted, known, strict=True)
        }
        found = []
        for group in passages:
            weights: dict[str, float] = {}
            for row in group:
                for word, value in worth[row].items():
                    weights[word] = weights.get(word, 0.0) + value
            found.append(sorted(weights, key=lambda word: (-weights[word], word))[:count])
        return found

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        return tokenise(list(texts), self._language) if len(texts) else []

    def _idf(self, word: str) -> float:
        starts, place = self._engine.scores["indptr"], self._engine.vocab_dict.get(word)
        frequency = 0 if place is None else int(starts[place + 1]) - int(starts[place])
        return math.log((len(self.ids) + 1) / (frequency + 1))


def best_rows(values: FloatArray, depth: int, tie_ranks: Int32Array) -> IntArray:
    """Rows of the ``depth`` highest positive scores, best first, equal scores in the order of ``tie_ranks``."""
    positive = np.flatnonzero(values > 0)
    if len(positive) > depth:
        threshold = np.partition(values[positive], len(positive) - depth)[len(positive) - depth]
        positive = positive[values[positive] >= threshold]
    order = np.lexsort((tie_ranks[positive], -values[positive]))
    return positive[order][:depth]


def tokenise(texts: list[str], language: str) -> list[list[str]]:
    """Lower-cased words of two letters and more, stemmed, English without stop words; "none" stems nothing."""
    import bm25s

    stop_words = "en" if language == "english" else None
    tokens: list[list[str]] = bm25s.tokenize(
        texts, stopwords=stop_words, stemmer=stemmer(language), return_ids=False, show_progress=False
    )
    return tokens


def stemmer(language: str) -> Any:
    """PyStemmer's stemmer of a language; None for "none"."""
    import Stemmer

    if language == "none":
        return None
    try:
        return Stemmer.Stemmer(language)
    except KeyError:
        known = ", ".join(sorted(Stemmer.algorithms()))
        raise SettingsError(f"'rank.language' is '{language}'; expected 'none' or one of {known}") from None


def word_index(texts: Iterable[str], settings: RankSettings) -> Any:
    """bm25s's index of some texts; of all but a block of them only the numbers of their words are in memory."""
    import bm25s

    numbers: dict[str, int] = {}
    held: list[list[int]] = []
    reader = iter(texts)
    while block := list(itertools.islice(reader, _BLOCK)):
        held += [
            [numbers.setdefault(word, len(numbers)) for word in words] for words in tokenise(block, settings.language)
        ]
    engine = bm25s.BM25(method="lucene", k1=settings.k1, b=settings.b)
    if not numbers:
        raise UsageError("no passage holds a word for BM25 to index (all are empty or stop words)")
    engine.index((held, numbers), show_progress=False)
    return engine


def all_scores(engine: Any, words: Iterable[str], mask: FloatArray | None = None) -> FloatArray:
    """The scores of every row of an index for the words of a question, float32 [rows]; 0 where it shares none."""
    known = [word for word in words if word in engine.vocab_dict]
    if not known:
        return np.zeros(engine.scores["num_docs"], dtype=np.float32)
    return np.asarray(engine.get_scores(known, weight_mask=mask))


def _write(space: Workspace, passages: PassageTable, settings: RankSettings, progress: Progress) -> Mapping[str, Any]:
    texts = (passage.full_text for passage in passages)
    reader = track(texts, progress, "indexing for BM25", len(passages), "passages")
    engine = word_index(reader, settings)
    engine.save(str(space.folder / "bm25s"))
    space.save("tie_ranks.npy", passages.ids.tie_ranks())
    return {"passages": len(passages), "terms": len(engine.vocab_dict)}
