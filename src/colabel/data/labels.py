"""Queries and labels into memory, with what can be wrong between records: repeats, conflicts, unknown ids."""

from __future__ import annotations

from collections.abc import Container, Iterable

from colabel.data.problems import (
    BAD_GRADE,
    CONFLICTING_LABEL,
    DROPPED_LABEL,
    DUPLICATE_QUERY,
    HIDDEN_AND_VISIBLE,
    REPEATED_LABEL,
    REPEATED_QUERY,
    UNKNOWN_PASSAGE,
    UNKNOWN_QUERY,
    Kind,
    Problems,
)
from colabel.data.source import Located, Source
from colabel.types import Qrel, Qrels


def read_query_texts(
    source: Source, problems: Problems, places: dict[str, tuple[str, int]] | None = None
) -> dict[str, str]:
    """Query id → text of a source; the first of several with one id is kept. Fills ``places`` with (file, line)."""
    texts: dict[str, str] = {}
    for located in source.queries(problems):
        query = located.value
        if query.id not in texts:
            texts[query.id] = query.text
            if places is not None:
                places[query.id] = (located.file, located.line)
        elif texts[query.id] == query.text:
            problems.add(REPEATED_QUERY, located.file, located.line, f"query '{query.id}' stands twice")
        else:
            message = f"query '{query.id}' stands twice with different texts"
            problems.add(DUPLICATE_QUERY, located.file, located.line, message)
    return texts


def refuse_visible(hidden: Qrels, train: Qrels, file: str, problems: Problems) -> None:
    """Report labels that are hidden and visible at once: they would count as found again without being found."""
    for query_id, labels in hidden.items():
        for passage_id in labels.keys() & train.get(query_id, {}).keys():
            message = f"query '{query_id}', passage '{passage_id}' is both hidden and visible in train"
            problems.add(HIDDEN_AND_VISIBLE, file, None, message)


class Everything:
    """Holds whatever it is asked for: ids that nothing tells to be wrong."""

    def __contains__(self, value: object) -> bool:
        """Always."""
        return True


EVERYTHING = Everything()


class LabelReader:
    """Reads label streams against the queries and passages that exist.

    Attributes:
        negative: query id → passage id → the grade below 0 that was read as 0, where ``negative_is_zero``; elsewhere
            such grades are a problem.
    """

    def __init__(
        self,
        queries: Container[str],
        passages: Container[str],
        problems: Problems,
        *,
        drop_unknown: bool,
        negative_is_zero: bool = False,
    ) -> None:
        self._queries = queries
        self._passages = passages
        self._problems = problems
        self._drop_unknown = drop_unknown
        self._negative_is_zero = negative_is_zero
        self.negative: dict[str, dict[str, int]] = {}

    def read(self, stream: Iterable[Located[Qrel]]) -> dict[str, dict[str, int]]:
        """Query id → passage id → grade."""
        labels: dict[str, dict[str, int]] = {}
        for located in stream:
            label = located.value
            grade = self._counted(located)
            if grade is None or self._unknown(located):
                continue
            known = labels.setdefault(label.query_id, {})
            pair = f"query '{label.query_id}', passage '{label.passage_id}'"
            before = known.get(label.passage_id)
            if before is None:
                known[label.passage_id] = grade
            elif before == grade:
                self._report(REPEATED_LABEL, located, f"{pair} stands twice")
            else:
                self._report(CONFLICTING_LABEL, located, f"{pair} has grade {grade} here and {before} before")
        return labels

    def _counted(self, located: Located[Qrel]) -> int | None:
        """The grade that a label counts with; None for one that was reported."""
        grade = located.value.grade
        if grade >= 0:
            return grade
        if self._negative_is_zero:
            self.negative.setdefault(located.value.query_id, {})[located.value.passage_id] = grade
            return 0
        self._report(BAD_GRADE, located, f"the grade is {grade}; expected 0 or more")
        return None

    def _unknown(self, located: Located[Qrel]) -> bool:
        label = located.value
        if label.query_id not in self._queries:
            kind, what = UNKNOWN_QUERY, f"query '{label.query_id}'"
        elif label.passage_id not in self._passages:
            kind, what = UNKNOWN_PASSAGE, f"passage '{label.passage_id}'"
        else:
            return False
        self._report(DROPPED_LABEL if self._drop_unknown else kind, located, f"{what} does not exist")
        return True

    def _report(self, kind: Kind, located: Located[Qrel], message: str) -> None:
        self._problems.add(kind, located.file, located.line, message)
