"""``metrics.json``: the figures of a study for other programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from colabel.evaluation.comparison import Comparison
from colabel.reporting.document import StudyDocument
from colabel.reporting.reading import plain
from colabel.reporting.records import Efficiency, QualitySet


def metrics(document: StudyDocument) -> dict[str, Any]:
    """Plain JSON types.

    Keys: ``systems`` (slug → measure → mean), ``titles``, ``significance`` (measure → test, alpha, how many tests
    were corrected for and how many are significant then, for each slug the slugs that it beats without and with
    Holm's correction, and every pair with the seeds compared), ``seconds`` (``systems``: slug → part of the work →
    seconds; ``stages``: stage → seconds; ``to_target``: the measure, the value and when each student had it),
    ``ratios`` (slug of a cross-encoder row → how many times as long as ``against`` it takes, and the seconds of
    both), ``intervals`` and ``spread`` (slug → measure → …), ``seeds``, ``milliseconds``, ``per_seed`` (of systems
    with several: slug → seed → measure → mean), ``unjudged_share`` (of the passages in the top 10 of all queries),
    ``unanswered`` (slug → queries) and ``queries_without_relevant``, which count 0 in binary measures,
    ``label_quality`` (which queries → teacher → grade → AP), ``label_coverage`` (which queries → grade → how many
    relevant passages are candidates), ``suggestions`` and ``suggestions_recall`` (order → times as many as queries →
    share), ``feedback`` (split → gain of ColBERT-PRF …), ``feedback_difference`` (that
    gain on train less that on test), ``collective`` (setting → value), and ``failed`` (slug → sentence; those
    systems are nowhere else).
    """
    finished = document.finished
    found = {
        "name": document.name,
        "split": document.split,
        "measures": document.measures,
        "systems": {system.slug: system.means for system in finished},
        "titles": {system.slug: system.title for system in finished},
        "seeds": {system.slug: system.seeds for system in finished},
        "per_seed": document.seed_means,
        "intervals": {system.slug: system.intervals for system in finished if system.intervals},
        "spread": {system.slug: system.spread for system in finished if system.spread},
        "judged_only": {system.slug: system.judged_only for system in finished if system.judged_only},
        "unjudged_share": {
            system.slug: system.unjudged_share for system in finished if system.unjudged_share is not None
        },
        "unanswered": {system.slug: system.unanswered for system in finished if system.unanswered is not None},
        "queries_without_relevant": document.without_relevant,
        "milliseconds": {system.slug: system.milliseconds for system in finished if system.milliseconds},
        "significance": {measure: _significance(comparison) for measure, comparison in document.comparisons.items()},
        "seconds": {
            "systems": {system.slug: system.seconds for system in finished if system.seconds},
            "stages": document.seconds,
            "to_target": _to_target(document.efficiency),
        },
        "ratios": {ratio.slug: ratio for ratio in document.efficiency.ratios} if document.efficiency else {},
        "label_quality": {one.title: _average_precision(one) for one in document.label_quality},
        "label_coverage": {one.title: one.coverage for one in document.label_quality if one.coverage},
        "suggestions": document.suggestions,
        "suggestions_recall": document.suggestions_recall,
        "feedback": document.prf_gain,
        "feedback_difference": document.gain_difference,
        "collective": {setting.name: setting.value for setting in document.collective},
        "failed": {system.slug: system.failed for system in document.systems if system.failed is not None},
    }
    result: dict[str, Any] = plain(found)
    return result


def _average_precision(found: QualitySet) -> dict[str, Any]:
    return {
        teacher: {grade: quality.average_precision for grade, quality in grades.items()}
        for teacher, grades in found.teachers.items()
    }


def _to_target(found: Efficiency | None) -> dict[str, Any] | None:
    if found is None or found.target is None:
        return None
    students = {
        one.slug: {**dataclasses.asdict(one), "from_start": one.from_start, "from_plain": one.from_plain}
        for one in found.reached
    }
    return {
        "measure": found.measure,
        "value": found.target,
        "origin": found.origin,
        "queries": found.queries,
        "students": students,
    }


def _significance(comparison: Comparison) -> dict[str, Any]:
    slugs = {line.letter: line.system for line in comparison.lines}
    return {
        "test": comparison.test,
        "alpha": comparison.alpha,
        "baseline": comparison.baseline,
        "tests": comparison.family or len(comparison.pairs),
        "significant": comparison.significant,
        "randomisation_samples": comparison.samples,
        "beats": {line.system: [slugs.get(one, one) for one in line.beats] for line in comparison.lines},
        "beats_holm": {line.system: [slugs.get(one, one) for one in line.beats_holm] for line in comparison.lines},
        "pairs": [pair.as_dict() for pair in comparison.pairs],
    }
