"""A run as the web app sees it: search, pairs to judge, and verdicts. One thread at a time."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from colabel import __version__
from colabel.data.splits import normalise_query
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.labels import Verdict, decide, of_people
from colabel.labels.artefact import unlabelled
from colabel.labels.verdict_files import graded
from colabel.labels.verdicts import Decision, check_person, typed_id
from colabel.pipeline.folder import Run
from colabel.ranking.highlights import Word, piece_spans, stems_of, words_of
from colabel.serve import api_records as records
from colabel.serve import evidence
from colabel.serve.evidence import Match, Segment, marked
from colabel.serve.facets import Facets
from colabel.serve.queue import Pair, Queue
from colabel.types import Passage

_SHOWN_LABELS = 4  # labelled passages beside a candidate
_LONGEST = 12_000  # characters of a passage that are shown
_TELLING = 24  # telling words of the labelled passages that are looked for
_RANKED = 1000  # depth to which BM25's rank of a candidate is known
_CLOSE = 0.6  # similarity above which two different words count as close
_COMMON = 0.5  # idf below which a token tells nothing: it stands in 60 % of the passages
_KEPT = 1024  # passages whose words and tokens are kept in memory


class ServedRun:
    """An opened run with its queue and verdicts.

    Everything but :meth:`take_back` and the store is for one thread at a time: tokenizers are not made for more.
    """

    def __init__(self, run: Run, *, double: float = 0.0) -> None:
        self.run = run
        self.store = run.verdict_store
        self.dataset = run.dataset
        self.language = run.recipe.rank.language
        self.ready = False
        self.searches = 0
        self._seen = -1
        self.verdicts: list[Verdict] = []
        self.programs: list[Verdict] = []
        self.decisions: Mapping[tuple[str, str], Decision] = {}
        self._found = functools.lru_cache(maxsize=256)(self._search)
        self._words = functools.lru_cache(maxsize=_KEPT)(lambda text: words_of(text, self.language))
        self._placed = functools.lru_cache(maxsize=_KEPT)(piece_spans)
        self._texts: dict[str, str] = {}
        for query_id, text in self.dataset.queries.items():
            self._texts.setdefault(normalise_query(text), query_id)
        self.queue: Queue | None = None
        self.why = ""
        try:
            self.queue = Queue(run.labels, run.knowledge, self.dataset, seed=run.recipe.seed, double=double)
        except (UsageError, ArtefactError, DataError) as error:
            self.why = f"There are no suggestions to review: {error}. Judge what you find by searching instead."
        self.refresh()

    def warm_up(self) -> None:
        """Load the models, so that the first search is as fast as the others."""
        try:
            self._search("warm up", "hybrid", 1)
        finally:
            self.ready = True

    def refresh(self) -> list[str]:
        """Take in verdicts and passages of other processes as well; ids of the queries that were scored again."""
        if self.run.refresh():
            self._found.cache_clear()
            self.__dict__.pop("facets", None)
        if self.queue:
            self.queue.gone = self.run.deleted
        last = self.store.last
        if last == self._seen:
            return []
        everything = self.store.current()
        self.verdicts, self.programs = of_people(everything), [one for one in everything if one.by_program]
        self.decisions = decide(self.verdicts)
        self._seen = last
        return self.queue.update(self.verdicts, self.decisions) if self.queue else []

    # --- search ---

    def search(
        self, query: str, ranker: str, k: int, min_probability: float = 0.0, filters: tuple[str, ...] = ()
    ) -> records.SearchResponse:
        """The best passages for a text, marked, of those that filters leave."""
        self.refresh()
        begun = time.perf_counter()
        self.searches += 1
        query_id = self.query_id(query)
        known = (self.dataset.labels(split).get(query_id, {}) for split in self.dataset.splits)
        labels = {passage_id: grade for held in known for passage_id, grade in held.items()}
        hits = []
        for one in self._found(query, ranker, k, min_probability, filters):
            decided = self.decisions.get((query_id, one.passage_id))
            verdict = decided.relevant if decided else None
            hits.append(msgspec.structs.replace(one, label=labels.get(one.passage_id), verdict=verdict))
        return records.SearchResponse(query, query_id, ranker, hits, time.perf_counter() - begun)

    @functools.cached_property
    def facets(self) -> Facets:
        """What the passages can be filtered by."""
        return Facets(self.run.index.metadata.table)

    def _search(
        self, query: str, ranker: str, k: int, min_probability: float = 0.0, filters: tuple[str, ...] = ()
    ) -> list[records.HitView]:
        """Hits of a search, without what is known of them by labels and verdicts."""
        allowed = self.facets.allowed(filters) if filters else None
        found = self.run.search(query, k, ranker=ranker, min_probability=min_probability, allowed=allowed)
        stems = stems_of([query], self.language)
        vectors = None
        if ranker != "bm25":
            late = self.run.late if ranker in ("hybrid", "student") else None
            index = self.run.index_of(ranker)
            encoder = index.encoder if late is None else late.encoder
            vectors = encoder.encode_queries([query]).vectors[0].numpy()
        hits: list[records.HitView] = []
        lines = zip(*(one[0].tolist() for one in (found.rows, found.scores, found.probabilities)), strict=True)
        for (row, score, likely), asked in zip(lines, found.asked(), strict=True):
            if row < 0:
                break
            passage = self.run.passages[row]
            match = Match("query", stems)
            if vectors is not None:
                match = self._vector_match("query", stems, vectors, index, row, passage)
            title, text = self._marked(passage, [match])
            metadata = {str(name): value for name, value in passage.metadata.items()}
            figures = len(hits) + 1, score, None if math.isnan(likely) else likely
            hits.append(
                records.HitView(*figures, passage.id, title, text, metadata, label=None, verdict=None, asked=asked)
            )
        return hits

    def query_id(self, text: str) -> str:
        """The id of the collection's query of this text, or one that a new text always gets."""
        return self._texts.get(normalise_query(text)) or typed_id(text)

    # --- review ---

    def suggestions(self, request: records.SuggestionsRequest) -> records.SuggestionsResponse:
        """The next pairs for a judge."""
        check_person(request.judge)
        self.refresh()
        judged = sum(one.judge == request.judge for one in self.verdicts)
        if self.queue is None:
            return records.SuggestionsResponse([], 0, judged, self.why)
        if request.queue == "disagreements":
            return self._disagreements(request, judged)
        only = self._matching(request.find) if request.find.strip() else None
        pairs = self.queue.next(request.judge, request.k, skip=set(request.skip), only=only)
        why = ""
        if not pairs:
            why = "Everything in the queue has been judged."
            if only is not None:
                why = "No pair is left whose query has these words."
            elif request.skip:
                why = "Only pairs of queries that you skipped are left."
        return records.SuggestionsResponse([self._pair(pair) for pair in pairs], self.queue.left(), judged, why)

    def _disagreements(self, request: records.SuggestionsRequest, judged: int) -> records.SuggestionsResponse:
        """Pairs on which people differ, with what each of them said."""
        queue = self._queue()
        waiting = [pair for pair in queue.to_settle(request.judge) if pair[0] not in request.skip]
        found = []
        for query_id, passage_id in waiting[: request.k]:
            row = self.dataset.passages.ids.row(passage_id)
            known = queue.labels.query_ids.row(query_id) >= 0
            pair = Pair(query_id, passage_id, row, "disagreement", 0.0)
            shown = self._pair(pair) if known else self._plain_pair(pair)
            found.append(msgspec.structs.replace(shown, said=self._said((query_id, passage_id))))
        why = "" if found else "There is no disagreement to settle."
        return records.SuggestionsResponse(found, len(waiting), judged, why)

    def _said(self, pair: tuple[str, str]) -> list[records.SaidView]:
        programs = [one for one in self.programs if (one.query_id, one.passage_id) == pair]
        said = [*self._queue().said(pair), *programs]
        return [records.SaidView(one.judge, one.answer, one.grade, one.reason) for one in said]

    def _plain_pair(self, pair: Pair) -> records.PairView:
        """A pair whose query has no labels: somebody searched for it."""
        query = next(one.query for one in self._queue().said((pair.query_id, pair.passage_id)))
        passage = self.dataset.passages[pair.row]
        title, text = self._marked(passage, [Match("query", stems_of([query], self.language))])
        shown = records.PassageView(pair.passage_id, title, text)
        return records.PairView(pair.query_id, [Segment(query)], shown, [], 0, [], [])

    def _matching(self, text: str) -> set[str]:
        """Ids of the queries that hold all words of a text, or have it as their id."""
        words = normalise_query(text).split()
        return {
            query_id
            for query_id, query in self.dataset.queries.items()
            if query_id == text.strip() or all(word in query.casefold() for word in words)
        }

    def _pair(self, pair: Pair) -> records.PairView:
        queue = self._queue()
        query = self.dataset.queries[pair.query_id]
        positives = [row for row in queue.positives(pair.query_id) if row != pair.row]
        stems = stems_of([query], self.language)
        telling, own = self.run.trained_bm25.telling_words([positives, [pair.row]], _TELLING)
        knowledge, index = queue.knowledge, queue.knowledge.index
        vectors = knowledge.queries.vectors([pair.query_id])[0].numpy()
        centroids = knowledge.centroids([pair.query_id])
        used = centroids.token_ids[0] >= 0
        expansion = centroids.vectors[0].numpy()[used]
        passage = self.dataset.passages[pair.row]
        asked = self._vector_match("query", stems, vectors, index, pair.row, passage)
        shared = self._vector_match("labelled", telling, expansion, index, pair.row, passage)
        words = self._words(self._text(passage))
        close = self._close(expansion, centroids.token_ids[0][used].tolist(), pair.row, passage, words)
        candidate_stems = {word.stem for word in words if word.stem}
        labelled = []
        shown = [row for row in positives if self.dataset.passages.ids[row] not in self.run.deleted]
        for row in shown[:_SHOWN_LABELS]:
            other = self.dataset.passages[row]
            same = Match("labelled", candidate_stems & set(telling))
            title, text = self._marked(other, [Match("query", stems), same])
            labelled.append(records.PassageView(other.id, title, text))
        title, text = self._marked(passage, [asked, shared])
        return records.PairView(
            query_id=pair.query_id,
            query=marked(query, words_of(query, self.language), [Match("query", stems & candidate_stems)]),
            candidate=records.PassageView(pair.passage_id, title, text),
            labelled=labelled,
            labels=len(positives),
            reasons=evidence.sentences(words, own, stems, telling, close, len(positives)),
            ranks=self._ranks(pair, query),
        )

    def _ranks(self, pair: Pair, query: str) -> list[records.Rank]:
        queue = self._queue()
        words, _ = self.run.trained_bm25.rank([query], _RANKED)
        theta, _ = queue.knowledge.ranking.query(pair.query_id)
        held = queue.labels.query(pair.query_id)
        scores = queue.teacher_scores(pair.query_id)
        own = scores[held.rows == pair.row]
        rivals = unlabelled(scores[None], held.flags[None])[0] & (held.rows != pair.row)
        rank = int((scores[rivals] > own[0]).sum()) + 1 if len(own) and np.isfinite(own[0]) else None
        return [
            records.Rank("BM25", _place(words[0], pair.row), len(words[0])),
            records.Rank("θ", _place(theta, pair.row), len(theta)),
            records.Rank("teacher", rank, len(held.rows)),
        ]

    def _close(
        self, expansion: np.ndarray, tokens: Sequence[int], row: int, passage: Passage, words: Sequence[Word]
    ) -> dict[str, str]:
        """Word of the passage → expansion token that is another word and near in meaning, nearest first."""
        index = self._queue().knowledge.index
        stored, _ = index.store.vectors([row])
        if not len(stored) or not len(expansion):
            return {}
        similarity = expansion @ stored.T
        pieces = index.encoder.tokens(tokens)
        spans = self._spans(index, row, passage)
        found: list[tuple[float, str, str]] = []
        for number, piece in enumerate(pieces):
            place = int(similarity[number].argmax())
            span, value = spans[place], float(similarity[number, place])
            word = next((one for one in words if span and one.start <= span[0] < one.end and one.stem), None)
            if word is None or value < _CLOSE or piece.startswith("##") or not re.fullmatch(r"\w{3,}", piece):
                continue
            if not word.text.lower().startswith(piece) and word.stem not in stems_of([piece], self.language):
                found.append((value, word.text.lower(), piece))
        return {word: piece for _, word, piece in sorted(found, reverse=True)}

    # --- marks ---

    def _vector_match(
        self, mark: str, stems: Collection[str], vectors: np.ndarray, index: Any, row: int, passage: Passage
    ) -> Match:
        stored, _ = index.store.vectors([row])
        served = evidence.best_matches(vectors, stored)
        ids, _ = index.store.passage_tokens([row])
        served[index.idf(ids) < _COMMON] = 0.0
        return Match(mark, stems, self._spans(index, row, passage), served.tolist())

    def _spans(self, index: Any, row: int, passage: Passage) -> list[tuple[int, int] | None]:
        ids, _ = index.store.passage_tokens([row])
        return self._placed(self._text(passage), tuple(index.encoder.tokens(ids.tolist())))

    def _text(self, passage: Passage) -> str:
        return passage.full_text[:_LONGEST]

    def _marked(self, passage: Passage, matches: Sequence[Match]) -> tuple[list[Segment], list[Segment]]:
        """Title and text with marks, which are found in both together, as models read them."""
        whole = self._text(passage)
        cut = len(passage.title) if passage.title and whole.startswith(passage.title) else 0
        segments = marked(whole, self._words(whole), matches)
        title, text = _split(segments, cut)
        if len(passage.full_text) > _LONGEST:
            text.append(Segment(" …"))
        return title, text

    # --- verdicts ---

    def check(self, request: records.VerdictRequest) -> Verdict:
        """The verdict that a request stands for."""
        check_person(request.judge)
        if (request.answer is None) == (request.grade is None):
            raise UsageError("give an answer (yes, no, unsure) or a grade, one of them")
        if (request.query_id is None) == (request.query is None):
            raise UsageError("give the id of a query or its text, one of them")
        known = self.dataset.passages.ids, self.run.index.store.ids
        if all(ids.row(request.passage_id) < 0 for ids in known):
            raise DataError(f"the collection has no passage '{request.passage_id}'")
        query_id, query = request.query_id or self.query_id(request.query or ""), request.query or ""
        if request.query_id is not None:
            if request.query_id not in self.dataset.queries:
                raise DataError(f"the collection has no query '{request.query_id}'")
            query = self.dataset.queries[request.query_id]
        elif not query.strip():
            raise UsageError("the query is empty; a query needs at least one word")
        source = "search"
        if self.queue is not None and request.query_id is not None:
            source = self.queue.source_of(query_id, request.passage_id, request.judge)
        if request.grade is not None:
            answer, grade = graded(request.grade, self.dataset.relevant_from)
            return Verdict(query_id, request.passage_id, answer, request.judge, grade, query, source)
        return Verdict(query_id, request.passage_id, request.answer or "unsure", request.judge, None, query, source)

    def kept(self, verdict: Verdict, begun: float) -> records.VerdictResponse:
        """What to answer once a verdict is on the disk: suggestions are scored again first."""
        changed = self.refresh()
        return records.VerdictResponse(view(verdict), verdict.query_id in changed, time.perf_counter() - begun)

    def take_back(self, judge: str, verdict_id: int | None) -> records.UndoResponse:
        """Undo a verdict, on the disk."""
        check_person(judge)
        undone = self.store.undo(judge, verdict_id)
        return records.UndoResponse(None if undone is None else view(undone))

    def recent(self, request: records.RecentRequest) -> records.RecentResponse:
        """The newest verdicts."""
        self.refresh()
        found = [one for one in reversed(self.verdicts) if request.judge in (None, one.judge)]
        return records.RecentResponse([view(one) for one in found[: request.k]])

    def health(self) -> records.Health:
        """Whether the server is well."""
        return records.Health("ok", __version__, self.ready, self.store.last, self.searches)

    def _queue(self) -> Queue:
        if self.queue is None:
            raise UsageError(self.why)
        return self.queue


def view(verdict: Verdict) -> records.VerdictView:
    """A verdict without where it came from: judges should not know which pairs are random."""
    return msgspec.convert(verdict, records.VerdictView, from_attributes=True)


def _place(rows: np.ndarray, row: int) -> int | None:
    found = np.flatnonzero(rows == row)
    return int(found[0]) + 1 if len(found) else None


def _split(segments: Sequence[Segment], cut: int) -> tuple[list[Segment], list[Segment]]:
    """Segments before and after a place of the text; the space between a title and its text is left out."""
    before: list[Segment] = []
    after: list[Segment] = []
    here = 0
    for one in segments:
        inside = max(0, min(len(one.text), cut - here))
        if inside:
            before.append(Segment(one.text[:inside], one.mark, one.strength))
        if rest := one.text[inside:]:
            rest = rest.lstrip() if not after and cut else rest
            if rest:
                after.append(Segment(rest, one.mark, one.strength))
        here += len(one.text)
    return before, after
