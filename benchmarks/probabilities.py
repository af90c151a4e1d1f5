"""Are probabilities of relevance right, and do they tell queries without an answer apart?

    python benchmarks/probabilities.py [--json FILE] [--data FOLDER/SPLIT[/RELEVANT_FROM] ...] [--work FOLDER]

Five-fold over the queries of a split, with untrained all-MiniLM-L6-v2 and BM25: what is fitted to the others says how
likely the passages of a query are relevant. Checked on the ten best passages of each query, of the judged ones where
people also judged passages as not relevant, and then on all judged ones as well, candidates or not. Where only a share
of the relevant passages is labelled, by our estimate, a label counts for as many more. Beside it late interaction per
token of the query as it is, and through a sigmoid fitted to the labels. ``chance`` is what the ECE of perfect
probabilities would be on so few pairs.

Then the relevant passages of every second query are taken out of the candidates: how well does the highest
probability, from the other queries and with a threshold of their own, tell the two kinds apart?
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import write_report

from colabel import Bm25, LateInteraction, build_index, load_dataset
from colabel.data import Dataset
from colabel.data.splits import stable_fraction
from colabel.ranking import Hybrid
from colabel.ranking.hybrid import POOL, Views, standardise
from colabel.ranking.probability import FEWEST_NEGATIVES, fit_relevance, grades_of, reliability
from colabel.settings import DataSettings, EncoderSettings, RankSettings

MOST_QUERIES, FOLDS = 400, 5


def measure(hybrid: Hybrid, data: Dataset, split: str) -> dict[str, Any]:
    queries = sorted(data.positives(split), key=lambda query: stable_fraction(query, "probability"))[:MOST_QUERIES]
    views = judged_views(hybrid, data, split, queries)
    grades = grades_of(views.rows, queries, data.labels(split), data.passages.ids)
    return measured(data.name, split, views, grades, data.relevant_from)


def judged_views(hybrid: Hybrid, data: Dataset, split: str, queries: list[str]) -> Views:
    """Both views of the candidates of some queries, and of all passages that are judged for them."""
    ids = data.passages.ids
    held = [ids.all_of(ids.rows(sorted(data.labels(split)[query]))) for query in queries]
    also = np.full((len(queries), max(map(len, held))), -1, dtype=np.int64)
    for place, rows in enumerate(held):
        also[place, : len(rows)] = rows
    return hybrid.views([data.queries[query] for query in queries], POOL, also=also)


def measured(collection: str, split: str, views: Views, grades: np.ndarray, relevant_from: int) -> dict[str, Any]:
    """All figures of some queries."""
    relevant, pool, judged = grades >= relevant_from, views.pool, grades >= 0
    complete = (judged & ~relevant & pool).sum() >= FEWEST_NEGATIVES
    taken = judged & pool if complete else pool
    ours, share = cross_validated(views, grades, relevant_from)
    said = {
        "": ours,
        "score per token": np.clip(views.similarity, 0.0, 1.0).astype(np.float64),
        "sigmoid": sigmoid_of(views, relevant, taken),
    }
    row: dict[str, Any] = {"collection": collection, "split": split, "queries": len(grades)}
    row |= {"basis": "judged pairs" if complete else "labels", "share of labels": round(share, 2)}
    checks = {"": (taken, 10)} | ({", all judged": (judged, judged.shape[1])} if complete else {})
    for suffix, (pairs, depth) in checks.items():
        for name, found in said.items():
            checked = reliability(found, relevant, pairs, 1.0 if name else share, shown=depth)
            if not name:
                row[f"pairs{suffix}"] = checked.pairs
                row[f"chance{suffix}"] = round(chance(found, pairs, depth), 3)
            row[f"ECE{' ' if name else ''}{name}{suffix}"] = round(checked.ece, 3)
            row[f"Brier{' ' if name else ''}{name}{suffix}"] = round(checked.brier, 3)
    return row | without_answer(views, grades, relevant_from)


def folds_of(count: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(count) % FOLDS


def some(views: Views, places: np.ndarray) -> Views:
    return Views(**{field.name: getattr(views, field.name)[places] for field in dataclasses.fields(Views)})


def cross_validated(views: Views, grades: np.ndarray, relevant_from: int) -> tuple[np.ndarray, float]:
    """Probabilities of each query's passages from a fit to the other queries, and the share of labels it found."""
    folds, found, shares = folds_of(len(grades)), np.zeros(grades.shape), []
    for fold in range(FOLDS):
        fitted = fit_relevance(some(views, folds != fold), grades[folds != fold], relevant_from)
        found[folds == fold] = np.nan_to_num(fitted.of(some(views, folds == fold)))
        shares.append(fitted.labelled[0])
    return found, float(np.mean(shares))


def sigmoid_of(views: Views, relevant: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """σ(a · score per token + b), fitted to the other queries."""
    from sklearn.linear_model import LogisticRegression

    folds, found = folds_of(len(taken)), np.zeros(taken.shape)
    x = np.where(np.isfinite(views.similarity), views.similarity, 0.0)
    for fold in range(FOLDS):
        here = taken & (folds != fold)[:, None]
        fitted = LogisticRegression(C=1e6).fit(x[here][:, None], relevant[here])
        asked = x[folds == fold]
        found[folds == fold] = fitted.predict_proba(asked.reshape(-1, 1))[:, 1].reshape(asked.shape)
    return found


def chance(probabilities: np.ndarray, taken: np.ndarray, shown: int) -> float:
    """The mean ECE of relevance drawn by the very probabilities."""
    draw = np.random.default_rng(0)
    drawn = (draw.random(probabilities.shape) < probabilities for _ in range(50))
    return float(np.mean([reliability(probabilities, one, taken, shown=shown).ece for one in drawn]))


def without_answer(views: Views, grades: np.ndarray, relevant_from: int) -> dict[str, Any]:
    """AUC of the highest probability of a query, and how often a threshold from other queries is right."""
    from sklearn.metrics import roc_auc_score

    removed = np.arange(len(grades)) % 2 == 1
    gone = (grades >= relevant_from) & removed[:, None] & views.pool
    pool = views.pool & ~gone
    changed = Views(
        np.where(gone, -1, views.rows),
        standardise(views.late, pool),
        standardise(views.words, pool),
        pool,
        np.where(gone, 0.0, views.similarity).astype(np.float32),
        np.where(gone, 0.0, views.coverage).astype(np.float32),
        views.asked,
    )
    folds, answer, right = folds_of(len(grades)), np.zeros(len(grades)), np.zeros(len(grades), dtype=bool)
    for fold in range(FOLDS):
        inside, outside = folds != fold, folds == fold
        fitted = fit_relevance(some(views, inside), grades[inside], relevant_from)
        best = np.nan_to_num(fitted.of(changed)).max(axis=1)
        answer[outside] = best[outside]
        limits = np.unique(best[inside])
        shares = [((best[inside] < limit) == removed[inside]).mean() for limit in limits]
        right[outside] = (best[outside] < limits[int(np.argmax(shares))]) == removed[outside]
    return {
        "AUC without answer": round(float(roc_auc_score(~removed, answer)), 3),
        "right": round(float(right.mean()), 3),
    }


def main() -> None:
    logging.getLogger("colabel").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", nargs="*", default=["pydocs:2000/test"], help="FOLDER/SPLIT or FOLDER/SPLIT/GRADE")
    parser.add_argument("--work", type=Path, help="keep the indexes there")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="colabel-bench-") as scratch:
        for place in options.data:
            source, split, grade = (place if place.rsplit("/", 1)[1].isdigit() else f"{place}/1").rsplit("/", 2)
            work = (options.work or Path(scratch)) / Path(source).name.replace(":", "-")
            data = load_dataset(DataSettings(source=source, relevant_from=int(grade)), cache=work / "data")
            index = build_index(data, work / "index", encoder=EncoderSettings(passage_length=128))
            rows.append(
                measure(Hybrid(LateInteraction(index), Bm25(data.passages, RankSettings(), work / "bm25")), data, split)
            )
            print("\n".join(f"{name:40} {value}" for name, value in rows[-1].items()), flush=True)
    write_report(options.json, {"passage_length": 128, "rows": rows})


if __name__ == "__main__":
    main()
