"""A run as the web app sees it: search, pairs to judge, verdicts, and figures. One thread at a time."""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import re
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from colabel import __version__
from colabel.data.splits import TEST, normalise_query
from colabel.errors import ArtefactError, ColabelError, DataError, UsageError
from colabel.labels import Verdict, decide, of_people
from colabel.labels.agreement import agreements, alpha
from colabel.labels.statistics import unlabelled
from colabel.labels.verdict_files import graded
from colabel.labels.verdicts import TYPED, Decision, check_person
from colabel.pipeline.again import compared
from colabel.pipeline.folder import Run, list_runs, open_run
from colabel.serve import evidence
from colabel.serve.api_records import (
    Bar,
    ChangeView,
    FacetView,
    Health,
    HitView,
    JudgeView,
    Overview,
    PairView,
    PassageView,
    Rank,
    SaidView,
    SearchResponse,
    Step,
    SuggestionsRequest,
    SuggestionsResponse,
    TrainingView,
    UndoResponse,
    VerdictRequest,
    VerdictResponse,
    VerdictView,
)
from colabel.serve.estimates import estimate_missing, precision
from colabel.serve.evidence import Match, Segment, Word, marked, piece_spans, words_of
from colabel.serve.facets import Facets
from colabel.serve.queue import Pair, Queue
from colabel.types import Passage

log = logging.getLogger(__name__)

_SHOWN_LABELS = 4  # labelled passages beside a candidate
_LONGEST = 12_000  # characters of a passage that are shown
_TELLING = 24  # telling words of the labelled passages that are looked for
_RANKED = 1000  # depth to which BM25's rank of a candidate is known
_CLOSE = 0.6  # similarity above which two different words count as close
_COMMON = 0.5  # idf below which a token tells nothing: it stands in 60 % of the passages
_KEPT = 1024  # passages whose words and tokens are kept in memory
_ENOUGH = 20  # random pairs from which on an estimate is worth a decision
_STALE = 0.05  # share of right suggestions below which it is time to stop


class ServedRun:
    """An opened run with its queue and verdicts.

    Everything but :meth:`keep` and :meth:`take_back` is for one thread at a time: tokenizers are not made for more.
    """

    def __init__(self, run: Run, *, double: float = 0.0) -> None:
        self.run = run
        self.store = run.verdict_store
        self.dataset = run.dataset
        self.language = run.recipe.rank.language
        self.ready = False
        self.searches = 0
        self._seen = -1
        self._verdicts: list[Verdict] = []
        self._programs: list[Verdict] = []
        self._decisions: Mapping[tuple[str, str], Decision] = {}
        self._found = functools.lru_cache(maxsize=256)(self._search)
        self._changed = functools.lru_cache(maxsize=64)(self._change)
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
        """Take in verdicts of other processes as well; ids of the queries that were scored again."""
        last = self.store.last
        if last == self._seen:
            return []
        everything = self.store.current()
        self._verdicts, self._programs = of_people(everything), [one for one in everything if one.by_program]
        self._decisions = decide(self._verdicts)
        self._seen = last
        return self.queue.update(self._verdicts, self._decisions) if self.queue else []

    # --- search ---

    def search(
        self, query: str, ranker: str, k: int, min_probability: float = 0.0, filters: tuple[str, ...] = ()
    ) -> SearchResponse:
        """The best passages for a text, marked, of those that filters leave."""
        self.refresh()
        begun = time.perf_counter()
        self.searches += 1
        query_id = self.query_id(query)
        labels = self._labels_of(query_id)
        found = self._found(query, ranker, k, min_probability, filters)
        hits = [
            HitView(
                rank=rank,
                score=score,
                probability=likely,
                passage_id=passage.id,
                title=title,
                text=text,
                metadata=metadata,
                label=labels.get(passage.id),
                verdict=self._decided(query_id, passage.id),
            )
            for rank, (passage, score, likely, title, text, metadata) in enumerate(found, start=1)
        ]
        return SearchResponse(query, query_id, ranker, hits, time.perf_counter() - begun)

    def facets(self) -> list[FacetView]:
        """What the passages can be filtered by."""
        return self._facets.views()

    @functools.cached_property
    def _facets(self) -> Facets:
        return Facets(self.run.index.metadata.table)

    def _search(
        self, query: str, ranker: str, k: int, min_probability: float = 0.0, filters: tuple[str, ...] = ()
    ) -> list[tuple[Passage, float, float | None, list[Segment], list[Segment], dict[str, Any]]]:
        allowed = self._facets.allowed(filters) if filters else None
        found = self.run.search(query, k, ranker=ranker, min_probability=min_probability, allowed=allowed)
        stems = evidence.stems_of([query], self.language)
        vectors = None
        if ranker != "bm25":
            late = self.run.late if ranker in ("hybrid", "student") else None
            index = self.run.theta_index if late is None else self.run.index
            encoder = index.encoder if late is None else late.encoder
            vectors = encoder.encode_queries([query]).vectors[0].numpy()
        hits = []
        lines = zip(*(one[0].tolist() for one in (found.rows, found.scores, found.probabilities)), strict=True)
        for row, score, likely in lines:
            if row < 0:
                break
            passage = self.dataset.passages[row]
            match = Match("query", stems)
            if vectors is not None:
                match = self._vector_match("query", stems, vectors, index, row, passage)
            title, text = self._marked(passage, [match])
            metadata = {str(name): value for name, value in passage.metadata.items()}
            hits.append((passage, score, None if math.isnan(likely) else likely, title, text, metadata))
        return hits

    def query_id(self, text: str) -> str:
        """The id of the collection's query of this text, or one that a new text always gets."""
        plain = normalise_query(text)
        digest = hashlib.blake2b(plain.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return self._texts.get(plain, f"{TYPED}{digest}")

    def _labels_of(self, query_id: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for split in self.dataset.splits:
            found |= self.dataset.labels(split).get(query_id, {})
        return found

    def _decided(self, query_id: str, passage_id: str) -> bool | None:
        one = self._decisions.get((query_id, passage_id))
        return one.relevant if one else None

    # --- review ---

    def suggestions(self, request: SuggestionsRequest) -> SuggestionsResponse:
        """The next pairs for a judge."""
        check_person(request.judge)
        self.refresh()
        judged = sum(one.judge == request.judge for one in self._verdicts)
        if self.queue is None:
            return SuggestionsResponse([], 0, judged, self.why)
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
        return SuggestionsResponse([self._pair(pair) for pair in pairs], self.queue.left(), judged, why)

    def _disagreements(self, request: SuggestionsRequest, judged: int) -> SuggestionsResponse:
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
        return SuggestionsResponse(found, len(waiting), judged, "" if found else "There is no disagreement to settle.")

    def _said(self, pair: tuple[str, str]) -> list[SaidView]:
        programs = [one for one in self._programs if (one.query_id, one.passage_id) == pair]
        return [
            SaidView(one.judge, one.answer, one.grade, one.reason) for one in [*self._queue().said(pair), *programs]
        ]

    def _plain_pair(self, pair: Pair) -> PairView:
        """A pair whose query has no labels: somebody searched for it."""
        query = next(one.query for one in self._queue().said((pair.query_id, pair.passage_id)))
        passage = self.dataset.passages[pair.row]
        title, text = self._marked(passage, [Match("query", evidence.stems_of([query], self.language))])
        shown = PassageView(pair.passage_id, title, text)
        return PairView(pair.query_id, [Segment(query)], shown, [], 0, [], [])

    def _matching(self, text: str) -> set[str]:
        """Ids of the queries that hold all words of a text, or have it as their id."""
        words = normalise_query(text).split()
        return {
            query_id
            for query_id, query in self.dataset.queries.items()
            if query_id == text.strip() or all(word in query.casefold() for word in words)
        }

    def _pair(self, pair: Pair) -> PairView:
        queue = self._queue()
        query = self.dataset.queries[pair.query_id]
        positives = [row for row in queue.positives(pair.query_id) if row != pair.row]
        stems = evidence.stems_of([query], self.language)
        telling, own = self.run.bm25.telling_words([positives, [pair.row]], _TELLING)
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
        for row in positives[:_SHOWN_LABELS]:
            other = self.dataset.passages[row]
            same = Match("labelled", candidate_stems & set(telling))
            title, text = self._marked(other, [Match("query", stems), same])
            labelled.append(PassageView(other.id, title, text))
        title, text = self._marked(passage, [asked, shared])
        return PairView(
            query_id=pair.query_id,
            query=marked(query, words_of(query, self.language), [Match("query", stems & candidate_stems)]),
            candidate=PassageView(pair.passage_id, title, text),
            labelled=labelled,
            labels=len(positives),
            reasons=evidence.sentences(words, own, stems, telling, close, len(positives)),
            ranks=self._ranks(pair, query),
        )

    def _ranks(self, pair: Pair, query: str) -> list[Rank]:
        queue = self._queue()
        words, _ = self.run.bm25.rank([query], _RANKED)
        theta, _ = queue.knowledge.ranking.query(pair.query_id)
        held = queue.labels.query(pair.query_id)
        scores = queue.teacher_scores(pair.query_id)
        own = scores[held.rows == pair.row]
        rivals = unlabelled(scores[None], held.flags[None])[0] & (held.rows != pair.row)
        rank = int((scores[rivals] > own[0]).sum()) + 1 if len(own) and np.isfinite(own[0]) else None
        return [
            Rank("BM25", _place(words[0], pair.row), len(words[0])),
            Rank("θ", _place(theta, pair.row), len(theta)),
            Rank("teacher", rank, len(held.rows)),
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
            if not word.text.lower().startswith(piece) and word.stem not in evidence.stems_of([piece], self.language):
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

    def check(self, request: VerdictRequest) -> Verdict:
        """The verdict that a request stands for."""
        check_person(request.judge)
        if (request.answer is None) == (request.grade is None):
            raise UsageError("give an answer (yes, no, unsure) or a grade, one of them")
        if (request.query_id is None) == (request.query is None):
            raise UsageError("give the id of a query or its text, one of them")
        if self.dataset.passages.ids.row(request.passage_id) < 0:
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

    def keep(self, verdict: Verdict, call: str | None) -> Verdict:
        """Write a verdict to the disk."""
        return self.store.add(verdict, call)

    def kept(self, verdict: Verdict, begun: float) -> VerdictResponse:
        """What to answer once a verdict is on the disk: suggestions are scored again first."""
        changed = self.refresh()
        return VerdictResponse(view(verdict), verdict.query_id in changed, time.perf_counter() - begun)

    def take_back(self, judge: str, verdict_id: int | None) -> UndoResponse:
        """Undo a verdict, on the disk."""
        check_person(judge)
        undone = self.store.undo(judge, verdict_id)
        return UndoResponse(None if undone is None else view(undone))

    def recent(self, judge: str | None, count: int) -> list[VerdictView]:
        """The newest verdicts."""
        self.refresh()
        found = [one for one in reversed(self._verdicts) if judge is None or one.judge == judge]
        return [view(one) for one in found[:count]]

    # --- figures ---

    def health(self) -> Health:
        """Whether the server is well."""
        return Health("ok", __version__, self.ready, self.store.last, self.searches)

    def overview(self) -> Overview:
        """How far the labels are."""
        self.refresh()
        queue, split = self.queue, self.queue.labels.split if self.queue else "train"
        positives = self.dataset.positives(split) if split in self.dataset.splits else {}
        missing = None if queue is None else estimate_missing(queue.candidates, queue.sample(), queue.found())
        right = precision(self._verdicts)
        return Overview(
            name=self.dataset.name,
            passages=len(self.dataset.passages),
            queries=len(positives),
            labels=sum(map(len, positives.values())),
            labels_per_query=histogram(map(len, positives.values())),
            missing=missing,
            suggestions=right,
            doubtful=precision(self._verdicts, "doubtful"),
            left=queue.left() if queue else 0,
            judged=len(self._decisions),
            judges=by_judge([*self._verdicts, *self._programs]),
            days=by_day(self._verdicts),
            agreements=agreements([*self._verdicts, *self._programs]),
            alpha=alpha(self._verdicts),
            disagreements=len(queue.disputed()) if queue else 0,
            trainings=self._trainings(),
            step=self._step(),
            why=self.why,
        )

    def _trainings(self) -> list[TrainingView]:
        here, found = str(self.run.folder), list_runs(self.run.folder)
        views = []
        for before, one in zip([None, *found], found, strict=False):
            name = "now" if one["folder"] == here else Path(one["folder"]).name
            change = None
            other = before is not None and before["folder"] != one["folder"]  # the systems of a study share theirs
            if before is not None and other and before["means"] and one["means"]:
                change = self._changed(before["folder"], one["folder"], tuple(sorted(one["means"].items())))
            views.append(TrainingView(name, one["student"], one["means"], change))
        return views

    def _change(self, before: str, after: str, means: tuple[tuple[str, float], ...]) -> ChangeView | None:
        """What one training changed, by stored rankings of test queries; ``means`` tell results of a folder apart."""
        try:
            split, _, changes = compared(open_run(before), open_run(after))
        except ColabelError as error:
            log.warning("%s and %s cannot be compared: %s", before, after, error)
            return None
        if split != TEST or not changes:
            return None
        one = changes[0]
        return ChangeView(one.measure, one.after - one.before, one.low, one.high, one.p)

    def _step(self) -> Step:
        """What helps most now."""
        again = shlex.join(["colabel", *self.run.use_verdicts])
        if self.queue is None:
            return Step("Search, and judge what you find.", "/search")
        new = self.queue.found()
        if not self._verdicts:
            return Step("Judge a first pair: ten take about two minutes.", "/review")
        last = [one for one in self._verdicts if one.source == "missing"][-30:]
        right = precision(last)
        if not self.queue.left() or (right.of >= 20 and right.value < _STALE):
            text = f"The suggestions are used up. {new:,} new labels are ready: train again with them."
            return Step(text, command=again)
        sampled = estimate_missing(self.queue.candidates, self.queue.sample(), new).sample.of
        about = f" {_ENOUGH} random pairs make the estimate below useful; {sampled} are judged."
        text = f"Go on, or train again with the new labels ({new:,})." if new else "Go on."
        return Step(text + (about if sampled < _ENOUGH else ""), "/review", again if new else "")

    def _queue(self) -> Queue:
        if self.queue is None:
            raise UsageError(self.why)
        return self.queue


def view(verdict: Verdict) -> VerdictView:
    """A verdict without where it came from: judges should not know which pairs are random."""
    return VerdictView(
        id=verdict.id,
        time=verdict.time,
        judge=verdict.judge,
        query_id=verdict.query_id,
        query=verdict.query,
        passage_id=verdict.passage_id,
        answer=verdict.answer,
        grade=verdict.grade,
    )


def histogram(counts: Iterable[int]) -> list[Bar]:
    """How many queries have one label, two, and so on; rare large numbers share a bar.

    >>> [(bar.name, bar.value) for bar in histogram([1, 1, 3, 12])]
    [('1', 2), ('2', 0), ('3', 1), ('4', 0), ('5', 0), ('6–10', 0), ('11+', 1)]
    """
    found = Counter("11+" if one > 10 else "6–10" if one > 5 else str(one) for one in counts)
    return [Bar(name, found[name]) for name in ("1", "2", "3", "4", "5", "6–10", "11+")]


def by_judge(verdicts: Iterable[Verdict]) -> list[JudgeView]:
    """What each judge has done, most verdicts first."""
    found: dict[str, list[Verdict]] = {}
    for one in verdicts:
        found.setdefault(one.judge, []).append(one)
    views = []
    for judge, given in sorted(found.items(), key=lambda item: -len(item[1])):
        counts = Counter(one.answer for one in given)
        views.append(JudgeView(judge, counts["yes"], counts["no"], counts["unsure"], max(one.time for one in given)))
    return views


def by_day(verdicts: Iterable[Verdict], most: int = 14) -> list[Bar]:
    """Verdicts of each day on which there were any, the last ``most`` days."""
    found = Counter(one.time[:10] for one in verdicts)
    return [Bar(day, found[day]) for day in sorted(found)[-most:]]


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
