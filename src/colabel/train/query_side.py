"""Train the query encoder alone, against passage vectors as they lie in θ's index.

A step costs a pass of a few queries and none of any passage, so each query is compared with a whole list of candidates
and with random passages that the step shares, and nothing has to be indexed again. The student is an ordinary
checkpoint that searches θ's index.

    loss = KL(target ‖ softmax(score / (T · spread)))

``spread`` is the deviation of θ's scores over a query's candidates: temperatures are in units of the scores they meet.
Where there is a teacher, a second training learns the labels alone: which is better, or the mean of both, differs
between collections, and dev decides. The trained weights are then pulled back towards the start: α·student + (1 − α)·θ,
with the α of the highest measure on dev. α = 0 keeps θ.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colabel.artefacts import Spec, Workspace, build, fingerprint
from colabel.collective import Knowledge
from colabel.data import Dataset
from colabel.data.pieces import with_labelled_pieces
from colabel.data.splits import DEV, TRAIN, stable_fraction
from colabel.encode import Encoder, open_checkpoint
from colabel.encode.encoder import EncodedPassages, no_progress_bars
from colabel.encode.weights import weights_fingerprint
from colabel.errors import DataError
from colabel.index import Index
from colabel.measures import measure_run
from colabel.progress import SILENT, Progress
from colabel.ranking import Bm25, Ranking
from colabel.ranking.hybrid import standardise, union
from colabel.settings import QuerySideSettings
from colabel.teachers.protocol import FloatArray, IntArray, Teacher
from colabel.teachers.views import TELLING_WORDS, labelled_rows
from colabel.train.models import STAGE, TrainedModel, open_model
from colabel.train.pulling import ALPHAS, choose_alpha, describe_choice, mixed

log = logging.getLogger(__name__)

THETA_CANDIDATES, WORD_CANDIDATES, NEIGHBOUR_CANDIDATES = 100, 50, 30
"""Candidates of a training query: θ's first, BM25's first, and BM25's first for its labelled passages."""
SHARED_PASSAGES = 96
"""Random passages of a step: without them, scores outside the lists drift and search collapses while the loss falls."""
TARGET_ENTROPY = 0.5
"""Mean entropy of the teacher's part of a target, as a share of that of a uniform one; it sets the temperature."""
STUDENT_TEMPERATURE = 0.5
MOST_PASSES = 8
"""Passes over the training queries at most: a few hundred labels are learnt by heart long before 150 steps are over."""
WARMUP = 0.1
GRADIENT_CLIP = 2.0
COARSE = (0.5, 1.0)
"""Shares of the trained weights by which dev chooses between trainings and their mean."""
DEV_QUERIES = 200
DEV_DEPTH = 100
_SORTED = 8  # batches whose queries are sorted by length together
_TIMED_STEPS = 3
_HELD = 0.02  # target mass from which a candidate is always in its query's list


@dataclasses.dataclass(frozen=True)
class Lists:
    """What a query-side training learns from.

    Attributes:
        query_ids, texts: the training queries.
        rows: their candidates, int64 [queries, n], −1 where there are fewer.
        target: probability of each candidate, float32 [queries, n], rows sum to 1.
        spread: deviation of θ's scores over a query's candidates, float32 [queries].
        entropy: of the target, in nats, mean over queries.
        fingerprint: names everything that the lists depend on.
        trusted: which candidates people found not relevant, bool [queries, n]; None: none.
        hard: the target by labels alone, 0 for queries without any; None: ``target`` is just that, or there are none.
    """

    query_ids: Sequence[str]
    texts: Sequence[str]
    rows: IntArray
    target: FloatArray
    spread: FloatArray
    entropy: float
    fingerprint: str
    trusted: npt.NDArray[np.bool_] | None = None
    hard: FloatArray | None = None

    def lessons(self) -> dict[str, Lists]:
        """What is trained: the target, and where it comes from a teacher and from labels, the labels alone."""
        if self.hard is None:
            return {"target": self}
        known = np.flatnonzero(self.hard.any(axis=1))
        labels = Lists(
            [self.query_ids[one] for one in known.tolist()],
            [self.texts[one] for one in known.tolist()],
            self.rows[known],
            self.hard[known],
            self.spread[known],
            self.entropy,
            self.fingerprint,
            None if self.trusted is None else self.trusted[known],
        )
        return {"teacher": self, "labels": labels}


def training_lists(
    queries: Mapping[str, str],
    rows: IntArray,
    start_scores: FloatArray,
    positives: Mapping[str, Sequence[int]],
    teacher: Teacher | None,
    *,
    label_mass: float,
    trusted: Mapping[str, Sequence[int]] | None = None,
) -> Lists:
    """Targets over candidates: ``label_mass`` for the labelled passages, the rest shared out by the teacher.

    Where ``label_mass`` is 0, the labelled passages are left out: the student learns what the teacher says of others.

    Args:
        queries: query id → text, in the order of ``rows``.
        start_scores: θ's scores of the candidates.
        positives: query id → rows of its labelled passages, which must be candidates; a query without any learns
            from the teacher alone.
        teacher: None: hard labels, all mass on the labelled passages.
        trusted: query id → rows that people found not relevant: they get no mass, and stand in every list.
    """
    ids = list(queries)
    labelled = np.array([np.isin(line, list(positives[one])) for one, line in zip(ids, rows, strict=True)])
    labelled &= rows >= 0
    known = np.asarray(labelled.any(axis=1))
    for query, held in zip(ids, known, strict=True):
        if held or (teacher is not None and not positives[query]):
            continue
        raise DataError(f"no labelled passage of the training query '{query}' is among its candidates")
    free = (rows >= 0) & ~labelled
    judged = None
    if trusted:
        judged = free & np.array([np.isin(line, trusted.get(one, ())) for one, line in zip(ids, rows, strict=True)])
        free &= ~judged
    hard = labelled / np.maximum(labelled.sum(axis=1, keepdims=True), 1)
    if teacher is None:
        target = hard
    else:
        soft = sharpened(teacher.scores(ids, rows), free, TARGET_ENTROPY)
        mass = np.where(free.any(axis=1, keepdims=True), label_mass, 1.0) * known[:, None]
        target = mass * hard + (1 - mass) * soft
        if label_mass == 0:
            rows = np.where(labelled & (mass == 0), -1, rows)
    scores = np.where(free, start_scores, np.nan)
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(np.nanstd(scores, axis=1), nan=1.0)
    parts = [ids, list(queries.values()), rows.tolist(), np.round(target, 6).tolist()]
    parts += [] if judged is None else [judged.tolist()]
    return Lists(
        ids,
        list(queries.values()),
        rows,
        target.astype(np.float32),
        np.maximum(spread, 1e-3).astype(np.float32),
        float(_entropy(target).mean()),
        fingerprint(parts),
        judged,
        hard.astype(np.float32) if teacher is not None and label_mass > 0 else None,
    )


def candidate_rows(
    dataset: Dataset,
    knowledge: Knowledge,
    words: Bm25,
    word_ranking: Ranking,
    *,
    split: str = TRAIN,
    unlabelled: bool = False,
) -> tuple[dict[str, str], IntArray, dict[str, list[int]]]:
    """Training queries with a positive (id → text), their candidates int64 [queries, n], and rows of their positives.

    With ``unlabelled``, queries of which nothing is known are among them. Candidates are the judged passages, θ's and
    BM25's first ones, and what BM25 finds with the labelled passages' telling words.
    """
    store, ranked = knowledge.index.store, knowledge.ranking.query_ids
    labelled_of = labelled_rows(dataset, knowledge.index, split)
    found = {query: held for query, held in labelled_of.items() if ranked.row(query) >= 0}
    if not found:
        raise DataError(f"no query of the split '{split}' of {dataset.name} has a labelled passage with a text")
    if unlabelled:
        unknown = [query for query, held in dataset.labels(split).items() if not held and ranked.row(query) >= 0]
        found |= {query: [] for query in unknown}
    queries = {query: dataset.queries[query] for query in sorted(found)}
    labelled, trusted = [found[query] for query in queries], trusted_rows(dataset)
    parts = [
        _padded(labelled),
        _padded([trusted.get(query, []) for query in queries]),
        _padded([knowledge.ranking.query(query)[0][:THETA_CANDIDATES] for query in queries]),
        _padded([word_ranking.query(query)[0][:WORD_CANDIDATES] for query in queries]),
        words.rank_words(words.telling_words(labelled, TELLING_WORDS), NEIGHBOUR_CANDIDATES),
    ]
    ids = dataset.passages.ids
    if ids.first_rows is not None:  # another piece of a labelled document is no negative
        parts = [
            np.stack([with_labelled_pieces(*one, ids) for one in zip(part, labelled, strict=True)]) for part in parts
        ]
    rows = union(*parts)
    rows[(rows >= 0) & (store.lengths(rows) == 0)] = -1
    return queries, rows, {query: found[query] for query in queries}


def trusted_rows(dataset: Dataset) -> dict[str, list[int]]:
    """Query id → rows of the passages that people found not relevant."""
    ids = dataset.passages.ids
    found = {query: ids.all_of(ids.rows(sorted(held))) for query, held in dataset.trusted.items()}
    return {query: rows[rows >= 0].tolist() for query, rows in found.items()}


def _padded(lines: Sequence[Sequence[int] | npt.NDArray[np.integer]]) -> IntArray:
    rows = np.full((len(lines), max(map(len, lines), default=0)), -1, dtype=np.int64)
    for place, line in enumerate(lines):
        rows[place, : len(line)] = line
    return rows


def sharpened(scores: FloatArray, free: npt.NDArray[np.bool_], share: float) -> npt.NDArray[np.float64]:
    """softmax(z / T) over ``free``, with the one T at which its mean entropy is ``share`` of a uniform target's.

    z are the scores standardised per query, so that neither their scale nor their offset matters.
    """
    known = free & np.isfinite(scores)
    z = standardise(scores, known).astype(np.float64)
    widest = np.log(np.maximum(known.sum(axis=1), 2))
    low, high = 1e-3, 1e3
    for _ in range(50):
        temperature = np.sqrt(low * high)
        if (_entropy(_softmax(z / temperature, known)) / widest).mean() > share:
            high = temperature
        else:
            low = temperature
    return _softmax(z / low, known)


def steps_of(settings: QuerySideSettings, queries: int) -> int:
    """Steps of a training: those of the settings, and no more than ``MOST_PASSES`` passes over its queries.

    >>> steps_of(QuerySideSettings(), 121), steps_of(QuerySideSettings(), 5000)
    (32, 150)
    """
    return min(settings.steps, MOST_PASSES * -(-queries // settings.batch_queries))


def train_query_side(
    dataset: Dataset,
    index: Index,
    start: Path,
    lists: Lists,
    out: Path,
    *,
    settings: QuerySideSettings | None = None,
    measure: str = "nDCG@10",
    name: str = "student",
    seed: int = 0,
    force: bool = False,
    device: str = "auto",
    progress: Progress = SILENT,
) -> TrainedModel:
    """Train a student that searches ``index``; without labelled dev queries, it is the mean of its lessons and α 0.5.

    Args:
        start: θ's checkpoint, whose vectors the index holds.
        measure: by which α is chosen on the dev split.
        force: leave α = 0, which keeps θ, out.
    """
    settings = settings or QuerySideSettings()
    settings = dataclasses.replace(settings, steps=steps_of(settings, len(lists.query_ids)))
    judged = _judged(dataset)
    inputs = {
        "start": weights_fingerprint(str(start)),
        "index": index.fingerprint,
        "lists": lists.fingerprint,
        "dev": fingerprint([sorted(judged.items()), measure]),
    }
    lessons = lists.lessons()
    kept = {**settings.as_dict(), "side": "query", "target": name, "shared": SHARED_PASSAGES, "lessons": [*lessons]}
    if force:
        kept["keep"] = "forced"

    def write(space: Workspace) -> Mapping[str, Any]:
        encoder = open_checkpoint(start, device)
        trained = {
            one: _Training(encoder, index.store, held, settings, seed).run(progress) for one, held in lessons.items()
        }
        if len(trained) > 1:
            trained["both"] = _mean(list(trained.values()))
        texts = {query: dataset.queries[query] for query in judged}

        def on_dev(one: str, alphas: Sequence[float]) -> dict[float, FloatArray]:
            return _choose(encoder, index, trained[one], texts, judged, measure, dataset.relevant_from, alphas)

        coarse = {one: on_dev(one, COARSE) for one in trained} if judged else {}
        lesson = max(coarse, key=lambda one: max(held.mean() for held in coarse[one].values()), default=[*trained][-1])
        found = {**coarse[lesson], **on_dev(lesson, sorted(set(ALPHAS) - set(COARSE)))} if judged else {}
        log.info("learned from %s", lesson)
        alpha = choose_alpha(found, name, force=force)
        _load(encoder, trained[lesson], alpha)
        with no_progress_bars():
            encoder.model.save(str(space.folder), create_model_card=False)
        summary = {**describe_choice(alpha, found, measure), "queries": len(lists.query_ids), "lesson": lesson}
        with space.file("training/summary.json") as path:
            path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        return {**summary, "steps": settings.steps, "target_entropy": lists.entropy}

    build(out, Spec(STAGE, kept, inputs, seed=seed), write)
    return open_model(out)


def step_seconds(
    encoder: Encoder,
    passages: EncodedPassages,
    queries: Sequence[str],
    settings: QuerySideSettings,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """How long a step takes on this machine: a few real ones over a sample, after which the encoder is as before."""
    rows = np.tile(np.arange(len(passages.offsets) - 1), (len(queries), 1))
    target = np.full(rows.shape, 1.0 / rows.shape[1], dtype=np.float32)
    lists = Lists(queries, queries, rows, target, np.ones(len(queries), np.float32), 0.0, "")
    ticks = _Ticks(clock)
    few = dataclasses.replace(settings, steps=_TIMED_STEPS + 1)
    _Training(encoder, _Sample(passages), lists, few, 0).run(ticks)
    return float(np.median(np.diff(ticks.times)))  # the first step, which sets up the optimiser, is not in it


class _Ticks:
    """Progress that notes when each step was done."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.times: list[float] = []
        self._clock = clock

    def start(self, what: str, total: int | None, unit: str) -> _Ticks:
        return self

    def advance(self, steps: int = 1) -> None:
        self.times.append(self._clock())

    def close(self) -> None:
        pass


class _Vectors(Protocol):
    """What a step reads of a token store."""

    def __len__(self) -> int: ...

    def lengths(self, rows: IntArray) -> IntArray:
        """How many stored tokens passages have."""

    def vectors(self, rows: Sequence[int] | IntArray) -> tuple[FloatArray, IntArray]:
        """Vectors of passages, and offsets."""


class _Sample:
    """Passages in memory, read like those of a store."""

    def __init__(self, passages: EncodedPassages) -> None:
        self._passages = passages

    def __len__(self) -> int:
        return len(self._passages.offsets) - 1

    def lengths(self, rows: IntArray) -> IntArray:
        return np.asarray(np.diff(self._passages.offsets)[rows])

    def vectors(self, rows: Sequence[int] | IntArray) -> tuple[FloatArray, IntArray]:
        starts = self._passages.offsets
        parts = [self._passages.vectors[starts[row] : starts[row + 1]] for row in rows]
        return np.concatenate(parts).astype(np.float32), np.cumsum([0, *map(len, parts)])


class _Training:
    """The steps."""

    def __init__(self, encoder: Encoder, store: _Vectors, lists: Lists, settings: QuerySideSettings, seed: int) -> None:
        self.encoder, self.store, self.lists, self.settings = encoder, store, lists, settings
        self.draw = np.random.default_rng(seed)
        lengths = self.store.lengths(np.arange(len(self.store)))
        self.filled = np.flatnonzero(lengths > 0)

    def run(self, progress: Progress) -> dict[str, Tensor]:
        """Train and return the weights; the encoder has its own again."""
        model, settings = self.encoder.model, self.settings
        start = {key: value.clone() for key, value in model.state_dict().items()}
        weights = [one for key, one in model.named_parameters() if "embeddings" not in key]
        optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
        task = progress.start("training the query side", settings.steps, "steps")
        for step, members in zip(range(settings.steps), self._batches(), strict=False):
            rise, fall = (step + 1) / max(1.0, WARMUP * settings.steps), (settings.steps - step) / settings.steps
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * min(rise, fall / (1 - WARMUP), 1.0)
            loss = self._loss(members)
            if not torch.isfinite(loss):
                raise DataError(
                    f"training diverged: the loss is {float(loss)} at step {step + 1}; lower 'query_side.learning_rate'"
                )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(weights, GRADIENT_CLIP)
            optimiser.step()
            task.advance()
        task.close()
        trained = {key: value.detach().clone() for key, value in model.state_dict().items()}
        model.load_state_dict(start)
        return trained

    def _batches(self) -> Iterator[IntArray]:
        """Batches of queries of like length, which need little padding, in random order."""
        size = min(self.settings.batch_queries, len(self.lists.query_ids))
        lengths = np.array([len(ids) for ids in self.encoder.model.tokenizer(list(self.lists.texts))["input_ids"]])
        while True:
            order = self.draw.permutation(len(self.lists.query_ids))
            for first in range(0, len(order), size * _SORTED):
                part = order[first : first + size * _SORTED]
                part = part[np.argsort(lengths[part], kind="stable")]
                for start in self.draw.permutation(np.arange(0, len(part) - size + 1, size)):
                    yield part[start : start + size]

    def _loss(self, members: IntArray) -> Tensor:
        rows, target = self._drawn(members)
        shared = self.draw.choice(self.filled, min(SHARED_PASSAGES, len(self.filled)), replace=False)
        queries = self._encode([self.lists.texts[one] for one in members])
        own = _own_scores(queries, *self._vectors(np.where(rows >= 0, rows, shared[0])))
        others = _shared_scores(queries, *self._vectors(shared))
        spread = torch.from_numpy(self.lists.spread[members]).to(queries.device)
        logits = torch.cat([own, others], dim=1) / (STUDENT_TEMPERATURE * spread[:, None])
        seen = [np.isin(shared, self.lists.rows[one]) for one in members]  # judged in lists, not by chance
        absent = torch.from_numpy(np.concatenate([rows < 0, np.array(seen)], axis=1)).to(queries.device)
        predicted = torch.log_softmax(logits.masked_fill(absent, -1e9), dim=1)[:, : rows.shape[1]]
        return -(torch.from_numpy(target).to(queries.device) * predicted).sum(dim=1).mean()

    def _drawn(self, members: IntArray) -> tuple[IntArray, FloatArray]:
        """Each query's list: all candidates that hold target mass, and others drawn over the whole range."""
        size = self.settings.passages
        rows = np.full((len(members), size), -1, dtype=np.int64)
        target = np.zeros((len(members), size), dtype=np.float32)
        for place, one in enumerate(members):
            candidates, mass = self.lists.rows[one], self.lists.target[one]
            places = np.flatnonzero(candidates >= 0)
            heaviest = places[np.argsort(-mass[places], kind="stable")][: size // 2]
            held = heaviest[mass[heaviest] >= _HELD]
            if self.lists.trusted is not None:
                held = np.concatenate([held, places[self.lists.trusted[one][places]][: size // 4]])
            rest = np.setdiff1d(places, held)
            if len(rest) > size - len(held):
                chance = 1.0 / (np.arange(len(rest)) + 10.0)  # candidates come best first: more from the top
                rest = self.draw.choice(rest, size - len(held), replace=False, p=chance / chance.sum())
            chosen = np.concatenate([held, rest])
            rows[place, : len(chosen)], target[place, : len(chosen)] = candidates[chosen], mass[chosen]
        return rows, target / target.sum(axis=1, keepdims=True)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Query vectors [queries, length, dimension] with gradients, zero where padded; no dropout, as in search."""
        model = self.encoder.model
        features = model.preprocess(list(texts), prompt=model.prompts.get("query"), task="query")
        features = {key: value.to(model.device) if hasattr(value, "to") else value for key, value in features.items()}
        output = model(features, task="query")
        found: Tensor = output["token_embeddings"] * output["attention_mask"].unsqueeze(-1).to(
            output["token_embeddings"].dtype
        )
        return found

    def _vectors(self, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Stored vectors [*rows, longest, dimension] and which are tokens, bool [*rows, longest]."""
        flat = rows.reshape(-1)
        stored, offsets = self.store.vectors(flat)
        lengths = np.diff(offsets)
        present = np.arange(lengths.max())[None] < lengths[:, None]
        padded = np.zeros((*present.shape, stored.shape[1]), dtype=np.float32)
        padded[present] = stored
        device = self.encoder.model.device
        return (
            torch.from_numpy(padded).view(*rows.shape, *padded.shape[1:]).to(device),
            torch.from_numpy(present).view(*rows.shape, -1).to(device),
        )


def _own_scores(queries: Tensor, passages: Tensor, present: Tensor) -> Tensor:
    """MaxSim of queries [b, l, d] with their own passages [b, n, t, d]: [b, n].

    Only the best token of each passage carries a gradient, so the others are compared outside the graph.
    """
    b, n, t, d = passages.shape
    with torch.no_grad():
        similarity = torch.matmul(passages.view(b, n * t, d), queries.transpose(1, 2)).view(b, n, t, -1)
        best = similarity.masked_fill_(~present[..., None], -1e4).argmax(dim=2)
    chosen = passages.gather(2, best[..., None].expand(-1, -1, -1, d))
    return torch.einsum("bnld,bld->bn", chosen, queries)


def _shared_scores(queries: Tensor, passages: Tensor, present: Tensor) -> Tensor:
    """MaxSim of queries [b, l, d] with passages [n, t, d] that all of them see: [b, n]."""
    n, t, d = passages.shape
    b, length, _ = queries.shape
    flat = queries.reshape(b * length, d)
    with torch.no_grad():
        similarity = torch.matmul(passages.view(n * t, d), flat.T).view(n, t, b * length)
        best = similarity.masked_fill_(~present[..., None], -1e4).argmax(dim=1)
    chosen = passages.gather(1, best[..., None].expand(-1, -1, d))
    return torch.einsum("nkd,kd->nk", chosen, flat).view(n, b, length).sum(dim=2).T


def _load(encoder: Encoder, trained: Mapping[str, Tensor], alpha: float) -> None:
    """Give the encoder, which holds the start, α·trained + (1 − α)·start."""
    encoder.model.load_state_dict(mixed(encoder.model.state_dict(), trained, alpha))


def _mean(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {
        key: torch.stack([state[key] for state in states]).mean(dim=0) if value.is_floating_point() else value
        for key, value in states[0].items()
    }


def _judged(dataset: Dataset) -> dict[str, dict[str, int]]:
    """Labels of the dev queries on which α is chosen: those with a relevant passage, drawn by their ids."""
    if DEV not in dataset.splits:
        return {}
    drawn = sorted(dataset.positives(DEV), key=lambda query: stable_fraction(query, "alpha"))[:DEV_QUERIES]
    return {query: dict(dataset.labels(DEV)[query]) for query in drawn}


def _choose(
    encoder: Encoder,
    index: Index,
    trained: Mapping[str, Tensor],
    texts: Mapping[str, str],
    labels: Mapping[str, Mapping[str, int]],
    measure: str,
    relevant_from: int,
    alphas: Sequence[float],
) -> dict[float, FloatArray]:
    """The measure of every dev query with every α, by searching the whole index."""
    start = {key: value.clone() for key, value in encoder.model.state_dict().items()}
    values = {}
    for alpha in alphas:
        _load(encoder, trained, alpha)
        rows, scores = index.search(encoder.encode_queries([texts[one] for one in labels]).vectors, DEV_DEPTH)
        encoder.model.load_state_dict(start)
        run = {
            query: {index.store.ids[int(row)]: float(score) for row, score in zip(line, held, strict=True) if row >= 0}
            for query, line, held in zip(labels, rows, scores, strict=True)
        }
        found = measure_run(labels, run, (measure,), relevant_from=relevant_from)[measure]
        values[alpha] = np.array(list(found.values()), dtype=np.float32)
    log.debug("dev %s by α: %s", measure, ", ".join(f"{one:g} {held.mean():.4f}" for one, held in values.items()))
    return values


def _softmax(logits: npt.NDArray[np.float64], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    masked = np.where(known, logits, -np.inf)
    highest = masked.max(axis=1, keepdims=True, initial=-1e300)
    weights = np.where(known, np.exp(masked - highest), 0.0)
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))


def _entropy(target: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Entropy of each line, in nats."""
    held = np.maximum(np.asarray(target, dtype=np.float64), 1e-300)
    return np.asarray(-(target * np.log(held)).sum(axis=1))
