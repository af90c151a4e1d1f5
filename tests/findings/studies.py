"""A study as the runner would write it: every part filled, figures made up, tests and intervals real."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from colabel.evaluation import Evaluation, Interval, PairedTest, ResponseTimes, compare
from colabel.evaluation.comparison import Comparison
from colabel.evaluation.sweep import SweepPoint
from colabel.findings import StudyDocument
from colabel.findings import records as parts
from colabel.systems import parse_system

MEASURES = ("nDCG@10", "RR@10", "R@1000")
QUERIES = [f"q{number}" for number in range(40)]
BAD = '<script>alert("x")</script> & |pipe| $x_1$'

# slug, title, group, β, mean nDCG@10, seeds
ROWS: list[tuple[str, str, str, float | None, float, int]] = [
    ("bm25", "BM25", "baseline", None, 0.52, 1),
    ("zero-shot", "Plain encoder, not trained", "baseline", None, 0.38, 1),
    ("colbert", "ColBERT", "hard labels", None, 0.56, 3),
    ("colbert-hn", "ColBERT-HN", "hard labels", None, 0.58, 3),
    ("smoothing", "Uniform smoothing", "distilled", None, 0.57, 1),
    ("self-kd", "Self-KD", "distilled", None, 0.58, 1),
    ("ce-kd", "KD, one cross-encoder", "distilled", None, 0.60, 1),
    ("ce3-kd", "KD, ensemble of three cross-encoders", "distilled", None, 0.61, 1),
    ("collective-0.5", "Collective self-KD (β = 0.5)", "distilled", 0.5, 0.61, 3),
    ("collective-1", "Collective self-KD (β = 1)", "distilled", 1.0, 0.63, 3),
    ("mixed", "Mixed", "distilled", None, 0.62, 1),
    ("colbert-prf-0.5", "ColBERT-PRF ranker (β = 0.5)", "search time", 0.5, 0.59, 1),
    ("colbert-prf-rerank-0.5", "ColBERT-PRF re-ranker (β = 0.5)", "search time", 0.5, 0.58, 1),
]
FAILED = "out of memory at step 40; use smaller batches (train.batch = 16)"


def values(place: int, mean: float, measure: str) -> dict[str, float]:
    shared = np.random.default_rng(7).normal(0.0, 0.25, len(QUERIES))  # queries are easy or hard for all systems
    own = np.random.default_rng(100 + place).normal(0.0, 0.08, len(QUERIES))
    lift = {"nDCG@10": 0.0, "RR@10": 0.08, "R@1000": 0.3}[measure]
    found = np.clip(mean + lift + shared + own, 0.0, 1.0)
    if measure == "RR@10":
        found = np.where(found > 0.05, 1 / np.ceil(1 / np.maximum(found, 0.1)), 0.0)
    return {query: float(value) for query, value in zip(QUERIES, found, strict=True)}


@functools.cache
def comparisons() -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, Comparison]]:
    per_query = {
        row[0]: {measure: values(place, row[4], measure) for measure in MEASURES} for place, row in enumerate(ROWS)
    }
    evaluation = Evaluation("caves", "test", 1, per_query)
    baselines = {"nDCG@10": None, "RR@10": "colbert", "R@1000": "colbert"}  # every pair takes its time
    return per_query, {name: compare(evaluation, name, baseline=base, samples=99) for name, base in baselines.items()}


def systems() -> tuple[parts.SystemResult, ...]:
    _, compared = comparisons()
    lines = {(line.system, measure): line.mean for measure, found in compared.items() for line in found.lines}
    found = []
    for place, (slug, title, group, beta, _, seeds) in enumerate(ROWS):
        means = {measure: lines[slug, measure] for measure in MEASURES}
        trained = group in ("hard labels", "distilled")
        millisecond = 4.0 if slug == "bm25" else 60.0 if group == "search time" else 25.0
        found.append(
            parts.SystemResult(
                slug=slug,
                about=parse_system(slug).about,
                seeded=parse_system(slug).seeded,
                title=title,
                group=group,
                beta=beta,
                seeds=seeds,
                means={measure: mean.mean for measure, mean in means.items()},
                intervals={measure: (mean.low, mean.high) for measure, mean in means.items()},
                spread=dict.fromkeys(MEASURES, 0.004 if seeds > 1 else None),
                unjudged_share=0.25 + 0.01 * place,
                milliseconds=ResponseTimes(millisecond, millisecond * 1.1, millisecond * 1.6),
                seconds={"annotation": 40.0 * place, "training": 900.0 + 11 * place} if trained else {},
                pairs=16_000 if group == "distilled" else None,
                encoder_passes={"ce-kd": 16_000, "ce3-kd": 48_000}.get(slug, 4_200) if group == "distilled" else None,
            )
        )
    broken = parts.SystemResult(
        "collective-tuned",
        "Collective self-KD (tuned β)",
        "distilled",
        failed=FAILED,
        about=parse_system("collective-tuned").about,
    )
    return (*found[:10], broken, *found[10:])


def per_seed() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Seeds 0, 1 and 2 of every query, whose mean is the value of the query."""
    per_query, _ = comparisons()
    several = [row[0] for row in ROWS if row[5] > 1]
    return {
        slug: {
            str(seed): {name: {q: v + 0.004 * (1 - seed) for q, v in held.items()} for name, held in found.items()}
            for seed in range(3)
        }
        for slug, found in per_query.items()
        if slug in several
    }


def teacher_quality(power: float) -> parts.TeacherQuality:
    difference = PairedTest(Interval(power / 10 - 0.06, 0.01, 0.09, 80), 0.0312, 0.03, 50, 10, 20)
    return parts.TeacherQuality(
        average_precision=Interval(0.3 + power / 10, 0.25 + power / 10, 0.35 + power / 10, 80),
        auc=Interval(0.8, 0.75, 0.85, 80),
        difference=None if power == 0.6 else difference,
        precision_at_recall=tuple(1 - 0.8 * (level / 10) ** power for level in range(11)),
    )


def study(**changes: Any) -> StudyDocument:
    """The whole study, with parts replaced."""
    per_query, compared = comparisons()
    settings = [
        (3, 24, 10, 1.0),
        (1, 24, 10, 1.0),
        (5, 24, 10, 1.0),
        (3, 12, 10, 1.0),
        (3, 24, 5, 1.0),
        (3, 24, 10, 0.5),
    ]
    sweep = [
        SweepPoint(*point, dict.fromkeys(MEASURES, 0.5 + 0.01 * point[0] + 0.001 * point[1])) for point in settings
    ]
    quality = {"φ (base)": 0.6, "cross-encoder": 1.1, "collective (β = 1)": 1.0}
    given: dict[str, Any] = {
        "name": "caves, one label kept",
        "measures": MEASURES,
        "dataset": parts.DatasetSummary(
            "caves",
            10_412,
            {"train": 809, "dev": 90, "test": 120},
            {"train": 809, "dev": 300, "test": 411},
            1_532,
        ),
        "systems": systems(),
        "student": "collective-0.5",
        "per_query": per_query,
        "per_seed": per_seed(),
        "comparisons": compared,
        "label_quality": (
            parts.QualitySet(
                "50 training queries, hidden labels among the candidates",
                {name: {grade: teacher_quality(power) for grade in ("1", "2")} for name, power in quality.items()},
                coverage={"1": parts.Coverage(1_200, 840, 1)},
            ),
            parts.QualitySet("Test queries", {"φ (base)": {"1": teacher_quality(0.6)}}),
        ),
        "new_queries": (parts.NewQueries("unseen passages", 40, {"colbert": 0.41, "collective-1": 0.44}),),
        "suggestions": {name: {"1": 0.41, "2": 0.33, "5": 0.2 + power / 10} for name, power in quality.items()},
        "sweep": tuple(sweep),
        "ratios": (
            parts.Ratio(
                "ce-kd", "collective-1", *(7.5, 1.02, 2.1, 1.5, 1.1, 5.0), paper_annotation=2.67, paper_overall=2.5
            ),
            parts.Ratio("ce3-kd", "collective-1", 22.0, 1.02, 5.9, factor=5.0, paper_annotation=16.0),
        ),
        "models": {"encoder": "minilm", "cross-encoder 1": BAD},
        "recipe": '[data]\nsource = "caves"\nkeep_labels = 1\n\n[train]\nsteps = 200\n',
        "collective": (
            parts.Setting("feedback", "labelled", "top"),
            parts.Setting("feedback_passages", "3", "3"),
            parts.Setting("clusters", "24", "24"),
            parts.Setting("centroids", "10", "10"),
            parts.Setting("beta", "0.5"),
            parts.Setting("token", "nearest", "nearest"),
            parts.Setting("start", "spread"),
            parts.Setting("expansion_scale", "normalised", "paper"),
        ),
        "environment": parts.Environment(
            {"Python": "3.11.2", "colabel": "0.1.0", "torch": "2.13.0"},
            "Some CPU @ 2.0GHz",
            2,
            "0123456789abcdef0123456789abcdef01234567",
            16 * 2**30,
            "computed on cpu",
        ),
        "seconds": {"index": 61.2, "annotation": 512.0, "training": 9_200.0, "evaluation": 33.3},
        "notes": ("Figures are of a small budget: 200 steps a row.", BAD),
    }
    return StudyDocument(**{**given, **changes})
