"""How well teachers rank hidden positives, and what ColBERT-PRF adds at search time.

    python benchmarks/label_effect.py [--json FILE] [--data pydocs:4000 …] [--keep 1] [--model minilm] [--work FOLDER]

One positive per training query is kept, the others are hidden. Each feedback choice, scale and β is a teacher: its
scores rank the hidden positives among θ's top 100 (labelled passages removed). Intervals are bootstrapped over
queries; p is a paired t-test against φ. ColBERT-PRF is measured on the test split, β chosen on dev.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from common import write_report

from colabel.collective import Knowledge, PrfRanker, collect
from colabel.data import Dataset, load_dataset
from colabel.evaluation import compare, evaluate, label_quality, suggestion_precision
from colabel.index import Index, build_index
from colabel.labels import find_missing, label
from colabel.ranking import LateInteraction, rank
from colabel.settings import CollectiveSettings, DataSettings, EncoderSettings
from colabel.teachers import CollectiveTeacher, SelfTeacher

FEEDBACK = ("top", "labelled-first", "labelled")
BETAS = {"normalised": (0.25, 0.5, 1.0), "paper": (0.05, 0.1, 0.5, 1.0)}
PRF_BETAS = {"normalised": (0.1, 0.25, 0.5, 1.0), "paper": (0.02, 0.1, 0.5, 1.0)}
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")


def quality_row(labels: Any, dataset: Dataset) -> dict[str, Any]:
    """AP with its interval, AUC and precision at three levels of recall, and how many suggestions are hidden labels."""
    found = label_quality(labels, dataset).grades[dataset.relevant_from].as_dict()
    teacher = found["systems"]["teacher"]
    missing = find_missing(labels, dataset, limit=10 * len(labels))
    precision = suggestion_precision([(one.query_id, one.row) for one in missing], dataset, queries=len(labels))
    return {
        "queries": found["queries"],
        "AP": {key: teacher["average_precision"][key] for key in ("mean", "low", "high")},
        "p_against_phi": found["differences"]["teacher"]["AP"]["t_test"],
        "AUC": teacher["auc"]["mean"],
        "precision_at_recall": [teacher["precision_at_recall"][place]["mean"] for place in (1, 5, 9)],
        "suggestions": [one.precision for one in precision],
    }


def teachers(dataset: Dataset, index: Index, work: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for feedback in FEEDBACK:
        settings = CollectiveSettings(feedback=feedback)
        knowledge = collect(dataset, index, work / f"knowledge-{feedback}", settings=settings, depth=100)
        if "phi" not in rows:
            teacher = SelfTeacher(index, knowledge.queries)
            rows["phi"] = quality_row(label(knowledge, dataset, teacher, work / "labels-phi"), dataset)
            show("phi", rows["phi"])
        for scale, betas in BETAS.items():
            for beta in betas:
                name = f"{feedback} {scale} {beta:g}"
                rows[name] = quality_row(one_teacher(knowledge, dataset, beta, scale, work), dataset)
                show(name, rows[name])
    return rows


def one_teacher(knowledge: Knowledge, dataset: Dataset, beta: float, scale: str, work: Path) -> Any:
    teacher = CollectiveTeacher(knowledge, beta=beta, scale=scale)
    return label(knowledge, dataset, teacher, work / "labels")


def show(name: str, row: dict[str, Any]) -> None:
    ap = row["AP"]
    shares = " ".join(f"{share:.3f}" for share in row["suggestions"])
    print(
        f"  {name:<28} AP {ap['mean']:.4f} [{ap['low']:.4f}, {ap['high']:.4f}]  AUC {row['AUC']:.4f}  "
        f"suggestions {shares}",
        flush=True,
    )


def search_time(dataset: Dataset, index: Index, work: Path) -> dict[str, Any]:
    """ColBERT-PRF against plain search: every β on dev, the best one of each scale and kind on test."""
    found: dict[str, Any] = {"test": {}}
    chosen: dict[str, Any] = {"colbert": LateInteraction(index)}
    for scale, betas in PRF_BETAS.items():
        for rerank in (False, True):
            rankers = {}
            for beta in betas:
                settings = dataclasses.replace(CollectiveSettings(), beta=beta, expansion_scale=scale)
                rankers[f"{'rerank' if rerank else 'prf'} {scale} {beta:g}"] = PrfRanker(index, settings, rerank=rerank)
            dev = {"colbert": chosen["colbert"], **rankers} if "dev" in dataset.splits else {}
            means = measure(dataset, dev, "dev", work).means if dev else {}
            best = max(rankers, key=lambda name: means[name]["nDCG@10"]) if means else next(iter(rankers))
            chosen[best] = rankers[best]
    if "test" in dataset.splits:
        evaluation = measure(dataset, chosen, "test", work)
        pairs = compare(evaluation, "nDCG@10", baseline="colbert").pairs
        found["test"] = evaluation.means
        found["p_nDCG@10"] = {pair.system: pair.test.t_test for pair in pairs}
        for name, values in evaluation.means.items():
            p = found["p_nDCG@10"].get(name)
            figures = "  ".join(f"{measure} {value:.4f}" for measure, value in values.items())
            print(f"  {name:<28} {figures}" + (f"  p {p:.3f}" if p is not None else ""), flush=True)
    return found


def measure(dataset: Dataset, rankers: dict[str, Any], split: str, work: Path) -> Any:
    queries = dataset.split_queries(split)
    runs = {name: rank(ranker, queries, work / "run", depth=1000).run() for name, ranker in rankers.items()}
    return evaluate(dataset, runs, split=split, measures=MEASURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", nargs="+", default=["pydocs:4000"])
    parser.add_argument("--keep", type=int, default=1, help="labels kept per training query")
    parser.add_argument("--model", nargs="+", default=["minilm"], help="θ: one for all, or one per collection")
    parser.add_argument("--length", type=int, default=96, help="tokens per passage")
    options = parser.parse_args()
    models = options.model * len(options.data) if len(options.model) == 1 else options.model
    figures: dict[str, Any] = {}
    for source, model in zip(options.data, models, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            data = DataSettings(source=source, keep_labels=options.keep)
            dataset = load_dataset(data, cache=work / "data")
            encoder = EncoderSettings(model=model, passage_length=options.length)
            index = build_index(dataset, work / "index", data=data, encoder=encoder)
            kind = "untrained MiniLM" if model == "minilm" else "trained"
            print(f"{dataset.name}, {kind}", flush=True)
            rows = teachers(dataset, index, work)
            figures[f"{dataset.name}, {kind}"] = {"teachers": rows, "search": search_time(dataset, index, work)}
    write_report(options.json, {"keep": options.keep, "passage_tokens": options.length, "collections": figures})


if __name__ == "__main__":
    main()
