"""Measure rankings, ours or those of other programs, against a dataset's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colabel.data import Dataset
from colabel.data.problems import Strict
from colabel.data.trec import read_run
from colabel.errors import DataError, UsageError
from colabel.measures import DEFAULT_MEASURES, PerQuery, Run, mean_values, measure_run


@dataclass(frozen=True)
class Evaluation:
    """Values of one split: system → measure → query → value."""

    dataset: str
    split: str
    relevant_from: int
    per_query: Mapping[str, PerQuery]

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """System → measure → mean over queries."""
        return {system: mean_values(values) for system, values in self.per_query.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, with the values of every query."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "relevant_from": self.relevant_from,
            "means": self.means,
            "per_query": {system: dict(values) for system, values in self.per_query.items()},
        }


def evaluate(
    dataset: Dataset,
    runs: Mapping[str, Run | Path],
    *,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
) -> Evaluation:
    """Measure runs (in memory, TREC files, or folders that ``rank`` wrote) on the labels of a split.

    Queries that a run does not answer count 0; queries of a run that have no labels are left out.
    """
    labels = dataset.labels(split)
    per_query = {}
    for system, run in runs.items():
        answers = read_run_file(run) if isinstance(run, Path) else run
        if not any(query_id in labels for query_id in answers):
            raise DataError(
                f"{run if isinstance(run, Path) else system}: none of its {len(answers)} queries has labels in the "
                f"split '{split}' of {dataset.name}; is it a run of another split or collection?"
            )
        per_query[system] = measure_run(labels, answers, measures, relevant_from=dataset.relevant_from)
    return Evaluation(dataset.name, split, dataset.relevant_from, per_query)


def read_run_file(path: Path) -> dict[str, dict[str, float]]:
    """Query id → passage id → score of a TREC run file, or of a folder that ``rank`` wrote."""
    file = path / "run.trec" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{path}: no such run; expected a TREC run file or a folder that `colabel rank` wrote")
    run: dict[str, dict[str, float]] = {}
    for located in read_run(file, Strict()):
        scored = located.value
        answers = run.setdefault(scored.query_id, {})
        if scored.passage_id in answers:
            raise DataError(
                f"passage '{scored.passage_id}' stands twice for query '{scored.query_id}'; a run names each once",
                file=located.file,
                line=located.line,
            )
        answers[scored.passage_id] = scored.score
    if not run:
        raise DataError("the run file is empty", file=str(file))
    return run
