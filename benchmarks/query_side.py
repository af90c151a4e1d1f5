"""Query-side students, hybrids and bootstrapping on several collections, pooled: reads finished studies.

colabel study recipes/query-side.toml --set data.source=FOLDER --out STUDY      # for each collection and start
python benchmarks/query_side.py STUDY … [--json FILE]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import write_report
from scipy.stats import ttest_1samp

from colabel.findings.records import StudyDocument, read_study

MEASURE = "nDCG@10"
PAIRS = (
    *(("views", "hn-query"), ("hybrid-views", "hybrid-hn-query"), ("views", "colbert"), ("hybrid-views", "hybrid")),
    *(("ceiling", "hn-query"), ("hybrid", "colbert"), ("hybrid", "bm25")),
    *(("bootstrap", "colbert"), ("hybrid-bootstrap", "hybrid"), ("hybrid-bootstrap", "bm25")),
    *(("memory", "hybrid"), ("memory", "hybrid-hn-query"), ("memory-views", "hybrid-views")),
    *(("ce-query", "hn-query"), ("views", "ce-query"), ("collective-query", "hn-query")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    studies = [(*about(one), one) for one in map(read_study, options.studies)]
    found = {
        "measure": MEASURE,
        "means": [{"collection": name, "start": start, **means(one)} for start, name, one in studies],
        "new": [{"collection": name, "start": start, **line} for start, name, one in studies for line in new(one)],
        "differences": differences(studies),
    }
    for part in ("means", "new", "differences"):
        print(f"\n{part}")
        for line in found[part]:
            print("  ".join(f"{key} {value}" for key, value in line.items()))
    write_report(options.json, found)


def about(study: StudyDocument) -> tuple[str, str]:
    """The start that a study's students had, and its collection."""
    return Path(study.models.get("encoder", "minilm")).name, study.dataset.name if study.dataset else study.name


def means(study: StudyDocument) -> dict[str, Any]:
    counts: dict[str, Any] = {"queries": study.dataset.queries["test"] if study.dataset else 0}
    counts["seeds"] = max((one.seeds for one in study.finished if one.seeded), default=1)
    return counts | {one.slug: rounded(one.means[MEASURE], 3) for one in study.finished}


def new(study: StudyDocument) -> list[dict[str, Any]]:
    """Means over the test queries that training cannot have seen."""
    return [
        {"subset": one.name, "queries": one.queries, **{slug: rounded(held, 3) for slug, held in one.means.items()}}
        for one in study.new_queries
    ]


def values(study: StudyDocument, slug: str) -> Mapping[str, float]:
    return {query: value or 0.0 for query, value in study.per_query[slug][MEASURE].items()}


def differences(studies: list[tuple[str, str, StudyDocument]]) -> list[dict[str, Any]]:
    """Mean differences between two systems with a paired t-test, by study and over all queries of a start's studies."""
    lines: list[dict[str, Any]] = []
    for one, other in PAIRS:
        pooled: dict[str, list[float]] = defaultdict(list)
        for start, name, study in studies:
            if {one, other} <= {system.slug for system in study.finished}:
                first, second = values(study, one), values(study, other)
                held = [first[query] - second[query] for query in first]
                pooled[start] += held
                lines.append(line(one, other, name, start, held))
        lines += [line(one, other, "all", start, held) for start, held in pooled.items()]
    return lines


def line(one: str, other: str, collection: str, start: str, held: list[float]) -> dict[str, Any]:
    p = float(ttest_1samp(held, 0.0).pvalue) if np.ptp(held) else 1.0
    pair = {"pair": f"{one} − {other}", "collection": collection, "start": start}
    return {**pair, "queries": len(held), "difference": rounded(float(np.mean(held)), 4), "p": float(f"{p:.2g}")}


def rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)


if __name__ == "__main__":
    main()
