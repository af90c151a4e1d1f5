"""How far the labels of a run are: counts, estimates, agreement, trainings, and what helps most now."""

from __future__ import annotations

import functools
import logging
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from colabel.data.splits import TEST
from colabel.errors import ColabelError
from colabel.labels import Verdict
from colabel.labels.agreement import agreements, alpha
from colabel.labels.verdicts import Decision
from colabel.pipeline.again import compared
from colabel.pipeline.folder import open_run
from colabel.pipeline.judging import use_verdicts
from colabel.pipeline.versions import list_runs
from colabel.serve.api_records import Bar, ChangeView, JudgeView, MissingEstimate, Overview, Share, Step, TrainingView
from colabel.serve.served import ServedRun

log = logging.getLogger(__name__)

_ENOUGH = 20  # random pairs from which on an estimate is worth a decision
_STALE = 0.05  # share of right suggestions below which it is time to stop


def overview(served: ServedRun) -> Overview:
    """How far the labels are."""
    served.refresh()
    queue, data, everything = served.queue, served.dataset, [*served.verdicts, *served.programs]
    split = queue.labels.split if queue else "train"
    positives = data.positives(split) if split in data.splits else {}
    return Overview(
        name=data.name,
        passages=len(data.passages),
        queries=len(positives),
        labels=sum(map(len, positives.values())),
        labels_per_query=histogram(map(len, positives.values())),
        missing=None if queue is None else estimate_missing(queue.candidates, queue.sample(), queue.found()),
        suggestions=precision(served.verdicts),
        doubtful=precision(served.verdicts, "doubtful"),
        left=queue.left() if queue else 0,
        judged=len(served.decisions),
        judges=by_judge(everything),
        days=by_day(served.verdicts),
        agreements=agreements(everything),
        alpha=alpha(served.verdicts),
        disagreements=len(queue.disputed()) if queue else 0,
        trainings=_trainings(served.run.folder),
        step=_step(served),
        why=served.why,
    )


def _trainings(folder: Path) -> list[TrainingView]:
    found = list_runs(folder)
    views = []
    for before, one in zip([None, *found], found, strict=False):
        name = "now" if one["folder"] == str(folder) else Path(one["folder"]).name
        change = None
        other = before is not None and before["folder"] != one["folder"]  # the systems of a study share theirs
        if before is not None and other and before["means"] and one["means"]:
            change = _change(before["folder"], one["folder"], tuple(sorted(one["means"].items())))
        views.append(TrainingView(name, one["student"], one["means"], change))
    return views


@functools.lru_cache(maxsize=64)
def _change(before: str, after: str, means: tuple[tuple[str, float], ...]) -> ChangeView | None:
    """What one training changed, by stored rankings of test queries; ``means`` tell results of a folder apart."""
    try:
        split, _, changes = compared(open_run(before), open_run(after))
    except ColabelError as error:
        log.warning("%s and %s cannot be compared: %s", before, after, error)
        return None
    if split != TEST or not changes:
        return None
    one = changes[0]
    return ChangeView(one.measure, one.after - one.before, one.low, one.high, one.p)


def _step(served: ServedRun) -> Step:
    """What helps most now."""
    again, queue = shlex.join(["colabel", *use_verdicts(served.run)]), served.queue
    if queue is None:
        return Step("Search, and judge what you find.", "/search")
    if not served.verdicts:
        return Step("Judge a first pair: ten take about two minutes.", "/review")
    new, right = queue.found(), precision([one for one in served.verdicts if one.source == "missing"][-30:])
    if not queue.left() or (right.of >= 20 and right.value < _STALE):
        text = f"The suggestions are used up. {new:,} new labels are ready: train again with them."
        return Step(text, command=again)
    sampled = estimate_missing(queue.candidates, queue.sample(), new).sample.of
    about = f" {_ENOUGH} random pairs make the estimate below useful; {sampled} are judged."
    text = f"Go on, or train again with the new labels ({new:,})." if new else "Go on."
    return Step(text + (about if sampled < _ENOUGH else ""), "/review", again if new else "")


def histogram(counts: Iterable[int]) -> list[Bar]:
    """How many queries have one label, two, and so on; rare large numbers share a bar.

    >>> [(bar.name, bar.value) for bar in histogram([1, 1, 3, 12])]
    [('1', 2), ('2', 0), ('3', 1), ('4', 0), ('5', 0), ('6–10', 0), ('11+', 1)]
    """
    found = Counter("11+" if one > 10 else "6–10" if one > 5 else str(one) for one in counts)
    return [Bar(name, found[name]) for name in ("1", "2", "3", "4", "5", "6–10", "11+")]


def by_judge(verdicts: Iterable[Verdict]) -> list[JudgeView]:
    """What each judge has done, most verdicts first."""
    found: dict[str, list[Verdict]] = {}
    for one in verdicts:
        found.setdefault(one.judge, []).append(one)
    views = []
    for judge, given in sorted(found.items(), key=lambda item: -len(item[1])):
        counts = Counter(one.answer for one in given)
        views.append(JudgeView(judge, counts["yes"], counts["no"], counts["unsure"], max(one.time for one in given)))
    return views


def by_day(verdicts: Iterable[Verdict], most: int = 14) -> list[Bar]:
    """Verdicts of each day on which there were any, the last ``most`` days."""
    found = Counter(one.time[:10] for one in verdicts)
    return [Bar(day, found[day]) for day in sorted(found)[-most:]]


def wilson(hits: int, of: int) -> Share:
    """Wilson's score interval, which holds for small counts and for shares near 0 as well.

    >>> share = wilson(1, 10)
    >>> round(share.low, 4), round(share.high, 4)
    (0.0179, 0.4042)
    """
    from scipy.stats import binomtest

    found = binomtest(hits, of).proportion_ci(method="wilson") if of else None
    return Share(hits, of, float(found.low), float(found.high)) if found else Share(0, 0, 0.0, 1.0)


def estimate_missing(candidates: int, sampled: Iterable[Decision | None], found: int) -> MissingEstimate:
    """Missing labels from a random sample of the candidates: None is a pair that was not judged, and left out.

    >>> yes, no = (Decision("q", "d", "", said, None, ()) for said in (True, False))
    >>> estimate_missing(100, [yes, no, no, None, no], found=3).estimate
    25.0
    """
    said = [one.relevant for one in sampled if one is not None and one.relevant is not None]
    share = wilson(sum(said), len(said))
    low, high = max(found, candidates * share.low), max(found, candidates * share.high)
    estimate = max(float(found), candidates * share.value) if said else None
    return MissingEstimate(candidates, share, found, estimate, float(low), float(high))


def precision(verdicts: Iterable[Verdict], source: str = "missing") -> Share:
    """Of the suggestions that were decided, how many were right."""
    answers = [one.answer for one in verdicts if one.source == source and one.answer != "unsure"]
    return wilson(answers.count("yes"), len(answers))
