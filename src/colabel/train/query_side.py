"""Train the query encoder alone, against passage vectors as they lie in θ's index.

A step costs a pass of a few queries and none of any passage, so each query is compared with a whole list of candidates
and with random passages that the step shares, and nothing has to be indexed again. The student is an ordinary
checkpoint that searches θ's index.

    loss = KL(target ‖ softmax(score / (T · spread)))

``spread`` is the deviation of θ's scores over a query's candidates: temperatures are in units of the scores they meet.
Where there is a teacher, there are several lessons, each trained from θ: which is best, or the mean of their weights,
differs between collections, and dev decides. Where labels are few, what queries made of the passages teach is averaged
with it, unless dev is clearly against that. The trained weights are then pulled back towards the start:
α·student + (1 − α)·θ, with the α of the highest measure on dev. α = 0 keeps θ.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colabel.artefacts import Spec, Workspace, build, fingerprint
from colabel.data import Dataset
from colabel.data.splits import DEV, stable_fraction
from colabel.encode import Encoder, open_checkpoint
from colabel.encode.encoder import EncodedPassages, features_of, no_progress_bars
from colabel.encode.weights import weights_fingerprint
from colabel.errors import DataError
from colabel.index import Index
from colabel.progress import Progress
from colabel.ranking import Bm25, Hybrid, LateInteraction
from colabel.ranking.hybrid import WEIGHTS, best_weight, by_weight
from colabel.settings import QuerySideSettings
from colabel.train.models import STAGE, TrainedModel, open_model
from colabel.train.pulling import ALPHAS, choose_alpha, describe_choice, mixed
from colabel.train.query_lists import Lists
from colabel.types import FloatArray, IntArray

log = logging.getLogger(__name__)

SHARED_PASSAGES = 96
"""Random passages of a step: without them, scores outside the lists drift and search collapses while the loss falls."""
STUDENT_TEMPERATURE = 0.5
MOST_PASSES = 8
"""Passes over the training queries at most: a few hundred labels are learnt by heart long before 150 steps are over."""
WARMUP = 0.1
GRADIENT_CLIP = 2.0
COARSE = (0.5, 1.0)
"""Shares of the trained weights by which dev chooses between trainings and their mean."""
DEV_QUERIES = 200
PASSAGES = "passages"
"""The lesson of queries made of the passages."""
SPOKEN = {"teacher": "the teacher", "labels": "labels alone", PASSAGES: "the passages"}
_SORTED = 8  # batches whose queries are sorted by length together
_TIMED_STEPS = 3
_HELD = 0.02  # target mass from which a candidate is always in its query's list


def steps_of(settings: QuerySideSettings, queries: int) -> int:
    """Steps of a training: those of the settings, and no more than ``MOST_PASSES`` passes over its queries.

    >>> steps_of(QuerySideSettings(), 121), steps_of(QuerySideSettings(), 5000)
    (32, 500)
    """
    return min(settings.steps, MOST_PASSES * -(-queries // settings.batch_queries))


def train_query_side(
    dataset: Dataset,
    index: Index,
    words: Bm25,
    start: Path,
    lessons: Callable[[], Mapping[str, Lists]],
    out: Path,
    *,
    taught: str,
    trained: Path,
    settings: QuerySideSettings,
    measure: str,
    name: str,
    seed: int,
    force: bool,
    device: str,
    progress: Progress,
) -> TrainedModel:
    """Train a student that searches ``index``; without labelled dev queries, it is the mean of its lessons and α 0.5.

    Args:
        words: BM25 over the same passages: the student is to be good alone and together with it.
        start: θ's checkpoint, whose vectors the index holds.
        lessons: makes, by name, what is trained, each from θ.
        taught: a fingerprint of the lessons, so that a finished student is known without making them.
        trained: a folder for the weights of each lesson, which students share.
        measure: by which lesson and α are chosen on the dev split.
        force: leave α = 0, which keeps θ, out.
    """
    labels = _dev_labels(dataset)
    weighed = (0.0,) if DEV in dataset.pseudo else WEIGHTS  # queries made of passages favour words
    inputs = {
        "start": weights_fingerprint(str(start)),
        "index": index.fingerprint,
        "words": words.fingerprint,
        "lists": taught,
        "dev": fingerprint([sorted(labels.items()), measure]),
    }
    kept = {**settings.as_dict(), "side": "query", "target": name, "shared": SHARED_PASSAGES}
    if force:
        kept["keep"] = "forced"

    def write(space: Workspace) -> Mapping[str, Any]:
        encoder, lists = open_checkpoint(start, device), lessons()
        weights = {
            one: _lesson(encoder, index, start, one, held, trained, settings, seed, progress)
            for one, held in lists.items()
        }
        beside = weights.pop(PASSAGES, None)
        if len(weights) > 1:
            weights["mean"] = _mean(list(weights.values()))

        def on_dev(one: str, alpha: float) -> FloatArray:
            """The measure of every dev query: mean over late interaction alone and the best hybrid with BM25.

            Alone, a student is compared with θ; together is how people search, and the two do not always agree.
            """
            before = {key: value.clone() for key, value in encoder.model.state_dict().items()}
            encoder.model.load_state_dict(_pulled(encoder, weights[one], alpha))
            both = Hybrid(LateInteraction(index, encoder=encoder), words)
            found = dict(by_weight(both, dataset.queries, labels, measure, dataset.relevant_from, weighed))
            encoder.model.load_state_dict(before)
            best = best_weight({weight: float(held.mean()) for weight, held in found.items()})
            log.debug("dev: α %g late %.4f hybrid %.4f (λ %g)", alpha, found[0.0].mean(), found[best].mean(), best)
            return np.asarray((found[0.0] + found[best]) / 2, dtype=np.float32)

        def coarse(one: str) -> dict[float, FloatArray]:
            return {alpha: on_dev(one, alpha) for alpha in COARSE} if labels else {}

        tried = {one: coarse(one) for one in weights}
        lesson = max(tried, key=lambda one: _best(tried[one]).mean()) if labels else [*weights][-1]
        if beside is not None:
            both = f"{lesson} and {PASSAGES}"
            weights[both] = _mean([weights[lesson], beside])
            tried[both] = coarse(both)
            if not labels or not _clearly(_best(tried[lesson]), _best(tried[both])):
                lesson = both
        rest = sorted(set(ALPHAS) - set(COARSE))
        found = {**tried[lesson], **{alpha: on_dev(lesson, alpha) for alpha in rest}} if labels else {}
        log.info("learned from %s", lesson)
        alpha = choose_alpha(found, name, force=force)
        encoder.model.load_state_dict(_pulled(encoder, weights[lesson], alpha))
        with no_progress_bars():
            encoder.model.save(str(space.folder), create_model_card=False)
        queries = sum(len(one.query_ids) for one in lists.values())
        choice = describe_choice(alpha, found, measure)
        summary = {**choice, "queries": queries, "lesson": lesson, "with_words": len(weighed) > 1}
        with space.file("training/summary.json") as path:
            path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        entropy = {one: held.entropy for one, held in lists.items()}
        return {**summary, "steps": settings.steps, "target_entropy": entropy}

    build(out, Spec(STAGE, kept, inputs, seed=seed), write)
    return open_model(out)


def _lesson(
    encoder: Encoder,
    index: Index,
    start: Path,
    name: str,
    lists: Lists,
    trained: Path,
    settings: QuerySideSettings,
    seed: int,
    progress: Progress,
) -> dict[str, Tensor]:
    """The weights that a lesson trains, kept in a folder of their own: another student may learn the same."""
    settings = dataclasses.replace(settings, steps=steps_of(settings, len(lists.query_ids)))
    inputs = {"start": weights_fingerprint(str(start)), "index": index.fingerprint, "lists": lists.fingerprint}
    out = trained / fingerprint([inputs, settings.as_dict(), seed])[:16]

    def write(space: Workspace) -> Mapping[str, Any]:
        task, store = progress.start(f"learning from {SPOKEN[name]}", settings.steps, "steps"), index.store
        lengths = store.lengths(np.arange(len(store)))
        weights = _Training(encoder, store.vectors, lengths, lists, settings, seed).run(task.advance)
        task.close()
        with space.file("weights.pt") as path:
            torch.save(weights, path)
        return {"steps": settings.steps, "queries": len(lists.query_ids)}

    build(out, Spec("lesson", {**settings.as_dict(), "shared": SHARED_PASSAGES}, inputs, seed=seed), write)
    found: dict[str, Tensor] = torch.load(out / "weights.pt", weights_only=True)
    return found


def step_seconds(
    encoder: Encoder,
    passages: EncodedPassages,
    queries: Sequence[str],
    settings: QuerySideSettings,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """How long a step takes on this machine: a few real ones over a sample, after which the encoder is as before."""
    starts, times = passages.offsets, list[float]()
    rows = np.tile(np.arange(len(starts) - 1), (len(queries), 1))
    target = np.full(rows.shape, 1.0 / rows.shape[1], dtype=np.float32)
    lists = Lists(queries, queries, rows, target, np.ones(len(queries), np.float32))

    def vectors(rows: IntArray) -> tuple[FloatArray, IntArray]:
        parts = [passages.vectors[starts[row] : starts[row + 1]] for row in rows]
        return np.concatenate(parts).astype(np.float32), np.cumsum([0, *map(len, parts)])

    few = dataclasses.replace(settings, steps=_TIMED_STEPS + 1)
    _Training(encoder, vectors, np.diff(starts), lists, few, 0).run(lambda: times.append(clock()))
    return float(np.median(np.diff(times)))  # the first step, which sets up the optimiser, is not in it


class _Training:
    """The steps.

    Args:
        stored: vectors of passages by their rows, one after another, and offsets.
        lengths: how many vectors every passage has.
    """

    def __init__(
        self,
        encoder: Encoder,
        stored: Callable[[IntArray], tuple[FloatArray, IntArray]],
        lengths: IntArray,
        lists: Lists,
        settings: QuerySideSettings,
        seed: int,
    ) -> None:
        self.encoder, self.stored, self.lists, self.settings = encoder, stored, lists, settings
        self.draw, self.filled = np.random.default_rng(seed), np.flatnonzero(lengths)

    def run(self, done: Callable[[], None]) -> dict[str, Tensor]:
        """Train and return the trained weights; the encoder has its own again. ``done`` is called after each step."""
        model, settings = self.encoder.model, self.settings
        start = {key: value.clone() for key, value in model.state_dict().items()}
        weights = [one for key, one in model.named_parameters() if "embeddings" not in key]
        optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
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
            done()
        trained = {key: one.detach().clone() for key, one in model.named_parameters() if "embeddings" not in key}
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
        output: Any = self.encoder.model(features_of(self.encoder.model, texts, "query"), task="query")
        vectors, mask = output["token_embeddings"], output["attention_mask"]
        found: Tensor = vectors * mask.unsqueeze(-1).to(vectors.dtype)
        return found

    def _vectors(self, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Stored vectors [*rows, longest, dimension] and which are tokens, bool [*rows, longest]."""
        stored, offsets = self.stored(rows.reshape(-1))
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


def _pulled(encoder: Encoder, trained: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """All weights of a model that holds the start, with α·trained + (1 − α)·start where they were trained."""
    start = encoder.model.state_dict()
    return {**start, **mixed(start, trained, alpha)}


def _mean(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {key: torch.stack([state[key] for state in states]).mean(dim=0) for key in states[0]}


def _best(values: Mapping[float, FloatArray]) -> FloatArray:
    """The measure of every dev query at the α of the highest mean."""
    return max(values.values(), key=lambda held: float(held.mean()))


def _clearly(one: FloatArray, other: FloatArray) -> bool:
    """Whether one mean is above another by more than a standard error of the difference.

    >>> _clearly(np.array([0.5, 0.6]), np.array([0.4, 0.5])), _clearly(np.array([0.9, 0.1]), np.array([0.1, 0.8]))
    (True, False)
    """
    differences = one - other
    return bool(differences.mean() > differences.std() / len(differences) ** 0.5)


def _dev_labels(dataset: Dataset) -> dict[str, Mapping[str, int]]:
    """Labels of the dev queries that decide: those with a relevant passage, drawn by their ids; none without labels."""
    known = dataset.positives(DEV) if DEV in dataset.splits else {}
    drawn = sorted(known, key=lambda query: stable_fraction(query, "alpha"))[:DEV_QUERIES]
    return {query: dataset.labels(DEV)[query] for query in drawn}
