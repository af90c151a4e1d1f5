"""Measure rankings, ours or those of other programs, against a dataset's labels."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from colabel.data import Dataset
from colabel.data.load import EVERYTHING, collect_labels
from colabel.data.scored_files import read_scores
from colabel.data.text_lines import Strict, read_qrels
from colabel.errors import DataError, UsageError
from colabel.measures import PerQuery, Run, asks_judged, mean_values, measure_run, ranked, unreachable
from colabel.settings.tables import DEFAULT_MEASURES
from colabel.types import Qrels, ScoredPassage

log = logging.getLogger(__name__)

AnyRun = Run | Path | str | Callable[[], Run]
UNJUDGED_DEPTH = 10
_OTHER = "is it a run over another collection, or with other ids?"


@dataclass(frozen=True)
class Evaluation:
    """Values of one split: system → measure → query → value.

    ``unjudged`` is system → query → passages without a judgement among the first 10 of the run as it was given, and
    ``retrieved`` how many these first 10 are; ``judged_only`` says that such passages were taken out before measuring.
    ``unanswered_queries`` is system → labelled queries that its run (or that of some seed) has no passage for, and
    ``without_relevant`` counts the labelled queries without a relevant passage: 0 for every system in binary measures.
    ``unreachable`` has a sentence for every measure that asks for a grade which no label has.
    ``identities`` tells runs apart within one process: those of equal identity are the same run.
    """

    dataset: str
    split: str
    relevant_from: int
    per_query: Mapping[str, PerQuery]
    unjudged: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    retrieved: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    judged_only: bool = False
    without_relevant: int = 0
    unanswered_queries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    identities: Mapping[str, Hashable] = field(default_factory=dict)

    @property
    def queries(self) -> int:
        """How many labelled queries the means are over."""
        return max((len(held) for values in self.per_query.values() for held in values.values()), default=0)

    @property
    def unanswered(self) -> dict[str, int]:
        """System → how many labelled queries its run, or that of some seed, has no passage for."""
        return {system: len(held) for system, held in self.unanswered_queries.items()}

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """System → measure → mean over queries."""
        return {system: mean_values(values) for system, values in self.per_query.items()}

    @property
    def unjudged_share(self) -> dict[str, float]:
        """System → of the passages in the first 10 of all queries, the share without a judgement.

        Systems that find fewer than ten for some queries compare by it; one that finds nothing has none.
        """
        totals = {system: sum(counts.values()) for system, counts in self.retrieved.items()}
        return {system: sum(self.unjudged[system].values()) / total for system, total in totals.items() if total}

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, with the values of every query."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "relevant_from": self.relevant_from,
            "judged_only": self.judged_only,
            "queries": self.queries,
            "queries_without_relevant": self.without_relevant,
            "unanswered": self.unanswered,
            "unreachable": list(self.unreachable),
            "means": self.means,
            "unjudged_share_at_10": self.unjudged_share,
            "per_query": {system: dict(values) for system, values in self.per_query.items()},
        }


def evaluate(
    dataset: Dataset,
    runs: Mapping[str, AnyRun],
    *,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
    judged_only: bool = False,
) -> Evaluation:
    """Measure runs (in memory, or paths of run files or of folders that ``rank`` wrote) on the labels of a split.

    A run may also be a function that gives it: it is then in memory only while it is measured.

    Queries that a run does not answer count 0; queries of a run that have no labels are left out. With
    ``judged_only``, passages without a judgement are taken out of the runs first.
    """
    about = Evaluation(dataset.name, split, dataset.relevant_from, {}, judged_only=judged_only)
    return _evaluate(dataset.labels(split), runs, about, measures, dataset.passages.ids)


def evaluate_qrels(
    qrels: Path | str,
    runs: Mapping[str, AnyRun],
    *,
    relevant_from: int | None = None,
    measures: Sequence[str] = DEFAULT_MEASURES,
    judged_only: bool = False,
) -> Evaluation:
    """Measure runs on a label file alone (TREC, BEIR or JSONL), where no collection is at hand.

    Grades from ``relevant_from`` up are relevant; without it from 1, with a warning where there are higher grades.

    Grades below 0 (spam, or not judged, in some tracks) count as 0, as in trec_eval; Bpref and infAP, which ask what
    was judged, get them as they are.
    """
    if relevant_from is not None and relevant_from < 1:
        raise UsageError(f"'relevant_from' is {relevant_from}; expected 1 or more")
    qrels = Path(qrels)
    negative: dict[str, dict[str, int]] = {}
    labels = collect_labels(read_qrels(qrels, Strict()), EVERYTHING, EVERYTHING, Strict(), negative=negative)
    if negative:
        below = sum(map(len, negative.values()))
        log.warning("%s: %d grades below 0 count as 0, judged and not relevant", qrels, below)
    if not labels:
        raise DataError("the file has no labels", file=str(qrels))
    highest = max(grade for held in labels.values() for grade in held.values())
    if relevant_from is None and highest > 1:
        advice = "and binary measures count from 1; TREC DL counts from 2 (data.relevant_from)"
        log.warning("%s: grades go up to %d, %s", qrels, highest, advice)
    about = Evaluation(qrels.name, "labels", relevant_from or 1, {}, judged_only=judged_only)
    return _evaluate(labels, runs, about, measures, EVERYTHING, negative)


def _evaluate(
    labels: Qrels,
    runs: Mapping[str, AnyRun],
    about: Evaluation,
    measures: Sequence[str],
    passages: Container[object],
    negative: Qrels | None = None,
) -> Evaluation:
    """``about`` with the values of every run; ``negative`` are grades below 0, which stand as 0 in ``labels``."""
    asking = [name for name in measures if negative and asks_judged(name)]
    graded = {query: {**held, **(negative or {}).get(query, {})} for query, held in labels.items()} if asking else {}
    per_query, unjudged, retrieved, unanswered, identities = {}, {}, {}, {}, {}
    for system, given in runs.items():
        run = Path(given) if isinstance(given, str) else given
        answers = read_run_file(run) if isinstance(run, Path) else run() if callable(run) else run
        foreign = isinstance(run, Path)
        _check_run(answers, str(run) if foreign else system, labels, about, passages, foreign=foreign)
        unjudged[system] = unjudged_at(labels, answers)
        retrieved[system] = {query: float(min(UNJUDGED_DEPTH, len(answers.get(query, {})))) for query in labels}
        unanswered[system] = frozenset(query for query, count in retrieved[system].items() if not count)
        identities[system] = tuple(_identity(answers.get(query, {})) for query in labels)
        answers = without_unjudged(labels, answers) if about.judged_only else answers
        found = measure_run(labels, answers, measures, relevant_from=about.relevant_from)
        if asking:
            found |= measure_run(graded, answers, asking, relevant_from=about.relevant_from)
        per_query[system] = found
    without = sum(all(grade < about.relevant_from for grade in held.values()) for held in labels.values())
    if without == len(labels):
        raise DataError(
            f"no query of {about.dataset} has a passage of grade {about.relevant_from} or higher, so none is relevant; "
            "lower 'data.relevant_from'"
        )
    return replace(
        about,
        per_query=per_query,
        unjudged=unjudged,
        retrieved=retrieved,
        without_relevant=without,
        unanswered_queries=unanswered,
        unreachable=tuple(unreachable(measures, labels)),
        identities=identities,
    )


def _identity(scores: Mapping[str, float]) -> int:
    """The same number for the same passages with the same scores, in whatever order they stand."""
    values = array("d", (score for _, score in sorted(scores.items())))  # Python's hashes of −1.0 and −2.0 are the same
    return hash((tuple(sorted(scores)), values.tobytes()))


def _check_run(
    run: Run, name: str, labels: Qrels, about: Evaluation, passages: Container[object], *, foreign: bool
) -> None:
    """Refuse a run of something else, or without an order; warn of what is left out or unknown."""
    if not run:
        raise DataError(f"{name}: the run is empty")
    for query_id, held in run.items():
        odd = next((passage for passage, score in held.items() if math.isnan(score)), None)
        if odd is not None:
            raise DataError(
                f"{name}: passage '{odd}' of query '{query_id}' has the score nan, which has no place in a ranking; "
                "was the model's training stable?"
            )
    where = about.dataset if passages is EVERYTHING else f"the split '{about.split}' of {about.dataset}"
    without = sum(query_id not in labels for query_id in run)
    if without == len(run):
        raise DataError(
            f"{name}: none of its {len(run)} queries has labels in {where}; is it a run of another split or collection?"
        )
    if without:
        log.info("%s: %d of its %d queries have no labels in %s and are left out", name, without, len(run), where)
    finds = any(run.values())  # one that finds nothing at all is measured: 0
    if finds and not any(passage in passages for held in run.values() for passage in held):
        raise DataError(f"{name}: none of its passages is in {about.dataset}; {_OTHER}")
    shared = [query_id for query_id in run if query_id in labels and foreign]
    if shared and all(labels[query].get(passage) == score for query in shared for passage, score in run[query].items()):
        raise DataError(f"{name}: every score is the grade of a label, so this is a label file; expected a run")
    if foreign and passages is not EVERYTHING:
        found = {passage for held in run.values() for passage in held}
        unknown = sum(passage not in passages for passage in found)
        if unknown:
            log.warning("%s: %d of its %d passages are not in %s", name, unknown, len(found), about.dataset)
    if finds and not any(passage in held for query_id, held in labels.items() for passage in run.get(query_id, ())):
        log.warning("%s: none of its passages has a label; %s", name, _OTHER)


def run_file(path: Path) -> Path:
    """The TREC run file of a run: the file itself, or the one in a folder that ``rank`` wrote."""
    file = path / "run.trec" if path.is_dir() else path
    if not file.is_file():
        found = "a folder without run.trec" if path.is_dir() else "no such run"
        raise UsageError(f"{path}: {found}; expected a run file or a folder that `colabel rank` wrote")
    return file


def read_run_file(path: Path) -> dict[str, dict[str, float]]:
    """Query id → passage id → score of a run file (see ``colabel.data.scored_files``) or a folder that ``rank`` wrote.

    The score alone orders passages; where the ranks of a file contradict it, a warning says so.
    """
    file = run_file(path)
    run: dict[str, dict[str, float]] = {}
    before: dict[str, ScoredPassage] = {}
    contradicted: set[str] = set()
    for located in read_scores(file):
        scored = located.value
        answers = run.setdefault(scored.query_id, {})
        if scored.passage_id in answers:
            raise DataError(
                f"passage '{scored.passage_id}' stands twice for query '{scored.query_id}'; a run names each once",
                file=located.file,
                line=located.line or None,
            )
        answers[scored.passage_id] = scored.score
        last = before.get(scored.query_id, scored)
        if (scored.rank - last.rank) * (scored.score - last.score) > 0:
            contradicted.add(scored.query_id)
        before[scored.query_id] = scored
    if not run:
        raise DataError("the run file is empty", file=str(file))
    if contradicted:
        log.warning("%s: the ranks of %d queries contradict the scores; scores count", path, len(contradicted))
    return run


def unjudged_at(labels: Qrels, run: Run, depth: int = UNJUDGED_DEPTH) -> dict[str, float]:
    """Query id → how many of its first ``depth`` passages have no judgement, for every labelled query.

    A judgement is a label of any grade, 0 included.

    >>> unjudged_at({"q": {"a": 1, "b": 0}}, {"q": {"a": 3.0, "c": 2.0, "b": 1.0}}, depth=2)
    {'q': 1.0}
    """
    top = {query_id: ranked(run.get(query_id, {}))[:depth] for query_id in labels}
    return {query_id: float(sum(passage not in labels[query_id] for passage in held)) for query_id, held in top.items()}


def without_unjudged(labels: Qrels, run: Run) -> dict[str, Mapping[str, float]]:
    """The run without the passages that have no judgement, so that judged ones move up into their places.

    >>> without_unjudged({"q": {"a": 1}}, {"q": {"c": 2.0, "a": 1.0}, "unlabelled": {"a": 1.0}})
    {'q': {'a': 1.0}}
    """
    return {
        query_id: {passage: score for passage, score in answers.items() if passage in labels[query_id]}
        for query_id, answers in run.items()
        if query_id in labels
    }
