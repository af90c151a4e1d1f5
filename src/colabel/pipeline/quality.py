"""How good a study's labels are, and examples of what changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from colabel.collective import PrfRanker
from colabel.data.splits import TEST
from colabel.errors import DataError
from colabel.evaluation import precision_recall, suggestion_precision
from colabel.evaluation.label_quality import label_quality
from colabel.labels import Flag, Labels, find_suspects
from colabel.measures import Run
from colabel.ranking import rank
from colabel.reporting.records import Example, ExamplePassage, ExampleToken, TeacherQuality

if TYPE_CHECKING:
    from colabel.pipeline.comparison import Study
    from colabel.pipeline.systems import System

Quality = dict[str, dict[str, TeacherQuality]]
_SHOWN = 4  # passages of an example


def label_findings(study: Study) -> tuple[Quality, dict[str, Mapping[str, float | None]]]:
    """Precision–recall of φ and of the teachers: on hidden labels where there are any, else on judged test queries."""
    quality: Quality = {}
    suggestions: dict[str, Mapping[str, float | None]] = {}
    dataset = study.bench.dataset
    for system in _labelled(study):
        labels = study.first.labels(system)
        try:
            found = label_quality(labels, dataset)
        except DataError:  # nothing is hidden
            return _judged_quality(study), {}
        for grade, one in found.grades.items():
            quality.setdefault("φ", {})[str(grade)] = TeacherQuality.of(one.systems["base"])
            quality.setdefault(system.title, {})[str(grade)] = TeacherQuality.of(one.systems["teacher"])
        suspects = find_suspects(labels, dataset, limit=5 * len(labels))
        pairs = [(one.query_id, one.row) for one in suspects]
        shares = suggestion_precision(pairs, dataset, queries=len(labels))
        suggestions[system.title] = {f"{one.multiple:g}": one.precision for one in shares}
    return quality, suggestions


def _labelled(study: Study) -> list[System]:
    """Systems whose labels hold scores of all candidates."""
    return [s for s in study.systems if s.target in ("self", "collective") and s.slug not in study.failed]


def _judged_quality(study: Study) -> Quality:
    """The same on test queries, whose feedback is their own top: φ and the teacher of each β on θ's top 100."""
    if "colbert" not in study.runs or "colbert" in study.failed:
        return {}
    dataset, index = study.bench.dataset, study.first.index
    queries = dataset.split_queries(TEST)
    runs: dict[str, Run] = {}
    for system in study.systems:
        if system.target != "collective" or system.beta is None:
            continue
        settings = dataclasses.replace(study.recipe.collective, beta=system.beta)
        ranker = PrfRanker(index, settings, rerank=True, seed=study.first.seed)
        out = study.out / "judged" / system.slug
        runs[system.title] = rank(ranker, queries, out, depth=100, progress=study.progress).run()
    plain = next(s for s in study.systems if s.slug == "colbert")
    base = rank(study.ranker(plain), queries, study.out / "judged" / "phi", depth=100, progress=study.progress).run()
    found = precision_recall({"φ": base, **runs}, dataset.labels(TEST))
    return {
        name: {str(grade): TeacherQuality.of(one.systems[name]) for grade, one in found.items()}
        for name in ("φ", *runs)
    }


def examples(study: Study) -> tuple[Example, ...]:
    """Training queries whose order of candidates the collective teacher changed most, at the top."""
    count = study.recipe.study.examples
    system = next((s for s in _labelled(study) if s.target == "collective"), None)
    if system is None or not count:
        return ()
    labels = study.first.labels(system)
    changes: list[tuple[float, str]] = []
    for block in labels.blocks():
        for query_id, base, teacher, rows in zip(block.query_ids, block.base, block.teacher, block.rows, strict=True):
            used = rows >= 0
            before, after = _places(base[used]), _places(teacher[used])
            changes.append((float(np.maximum(0, before - after)[after <= 3].sum()), query_id))
    best = sorted(changes, key=lambda change: (-change[0], change[1]))[:count]
    return tuple(_example(study, labels, query_id) for _, query_id in best)


def _example(study: Study, labels: Labels, query_id: str) -> Example:
    knowledge, dataset = study.first.knowledge, study.bench.dataset
    centroids = knowledge.centroids([query_id])
    kept = [place for place, token in enumerate(centroids.token_ids[0].tolist()) if token >= 0]
    pieces = knowledge.index.encoder.tokens([int(centroids.token_ids[0, place]) for place in kept])
    tokens = [ExampleToken(piece, float(centroids.sigma[0, place])) for piece, place in zip(pieces, kept, strict=True)]
    found = labels.query(query_id)
    before, after = _places(found.base), _places(found.teacher)
    passages = []
    for place in np.argsort(after)[:_SHOWN].tolist():
        row = int(found.rows[place])
        held = set(knowledge.index.store.passage_tokens([row])[0].tolist())
        matched = [piece for piece, k in zip(pieces, kept, strict=True) if int(centroids.token_ids[0, k]) in held]
        passage = dataset.passages[row]
        texts = (passage.title, passage.text) if study.recipe.study.texts else ("", "")
        labelled = bool(found.flags[place] & Flag.LABELLED)
        ranks = (int(before[place]), int(after[place]))
        passages.append(ExamplePassage(dataset.passages.ids[row], *texts, *ranks, labelled, None, tuple(matched)))
    text = dataset.queries[query_id] if study.recipe.study.texts else ""
    return Example(query_id, text, tuple(tokens), tuple(passages))


def _places(scores: np.ndarray) -> np.ndarray:
    """Places 1, 2, … of scores, best first, equal ones in their order."""
    places = np.empty(len(scores), dtype=np.int64)
    places[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return places
