"""What the JSON API takes and gives. The description of the API is made from these."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from colabel.labels.agreement import Agreement
from colabel.labels.verdicts import HIGHEST_GRADE, LONGEST_JUDGE
from colabel.serve.evidence import Segment, Sentence

LONGEST_QUERY = 1000
MOST_HITS = 100
MOST_SKIPPED = 200
MOST_QUERIES = 32
_ID = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^\S+$")]
_Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_QUERY)]
_Judge = Annotated[str, Meta(min_length=1, max_length=LONGEST_JUDGE)]
_Answer = Literal["yes", "no", "unsure"]
_Ranker = Literal["hybrid", "student", "colbert", "prf", "bm25"]
_Filters = Annotated[list[Annotated[str, Meta(min_length=3, max_length=300)]], Meta(max_length=20)]


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all that is asked."""


class _Search(Request, frozen=True, kw_only=True):
    ranker: _Ranker = "hybrid"
    k: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 10
    min_probability: Annotated[float, Meta(ge=0, le=1)] = 0.0
    filter: _Filters = []


class SearchRequest(_Search, frozen=True):
    """A search: what, with which ranker, how many passages, how likely relevant, and of which.

    A filter is ``column=value``, ``column<=number`` or ``column>=number``.
    """

    query: _Text


class BatchRequest(_Search, frozen=True):
    """Several searches at once."""

    queries: Annotated[list[_Text], Meta(min_length=1, max_length=MOST_QUERIES)]


class SuggestionsRequest(Request, frozen=True):
    """The next pairs for a judge; ``skip`` holds ids of queries, ``find`` words of the query that is wanted.

    The queue ``disagreements`` has pairs on which people differ, with what each said.
    """

    judge: _Judge
    k: Annotated[int, Meta(ge=1, le=20)] = 1
    skip: Annotated[list[_ID], Meta(max_length=MOST_SKIPPED)] = []
    find: Annotated[str, Meta(max_length=LONGEST_QUERY)] = ""
    queue: Literal["suggestions", "disagreements"] = "suggestions"


class VerdictRequest(Request, frozen=True):
    """A verdict on a pair: an answer or a grade. The query is one of the collection, or a text that was searched.

    ``call`` names this call, so that it can be repeated after a lost answer.
    """

    judge: _Judge
    passage_id: _ID
    query_id: _ID | None = None
    query: _Text | None = None
    answer: _Answer | None = None
    grade: Annotated[int, Meta(ge=0, le=HIGHEST_GRADE)] | None = None
    call: Annotated[str, Meta(min_length=8, max_length=64)] | None = None


class UndoRequest(Request, frozen=True):
    """Take back the judge's last verdict, or one of theirs by its number."""

    judge: _Judge
    id: Annotated[int, Meta(ge=1, lt=1 << 53)] | None = None


class RecentRequest(Request, frozen=True):
    """The newest verdicts, of one judge or of all."""

    judge: _Judge | None = None
    k: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 20


class NothingRequest(Request, frozen=True):
    """Nothing is asked."""


class HitView(Struct, frozen=True):
    """A passage that was found; ``verdict`` is the judges' decision on it, ``label`` its grade in the collection.

    ``probability`` is that of being relevant, where the run could fit it; ``asked`` is a similar training query that
    the passage is labelled for.
    """

    rank: int
    score: float
    probability: float | None
    passage_id: str
    title: list[Segment]
    text: list[Segment]
    metadata: dict[str, Any]
    label: int | None
    verdict: bool | None
    asked: str = ""


class SearchResponse(Struct, frozen=True):
    """Hits, best first; ``query_id`` is that of the collection's query of this text, or one for a new text."""

    query: str
    query_id: str
    ranker: str
    hits: list[HitView]
    seconds: float


class BatchResponse(Struct, frozen=True):
    """The answers to several searches, in the order of the queries."""

    results: list[SearchResponse]


class PassageView(Struct, frozen=True):
    """A passage with its matching words marked."""

    passage_id: str
    title: list[Segment]
    text: list[Segment]


class Rank(Struct, frozen=True):
    """The candidate's place by one system; None: beyond what was ranked."""

    system: str
    rank: int | None
    of: int


class SaidView(Struct, frozen=True):
    """What one judge said about a pair on which people differ."""

    judge: str
    answer: _Answer
    grade: int | None
    reason: str


class PairView(Struct, frozen=True):
    """A pair to judge, beside what is known to be relevant; ``said`` is empty unless people differ on it."""

    query_id: str
    query: list[Segment]
    candidate: PassageView
    labelled: list[PassageView]
    labels: int
    reasons: list[Sentence]
    ranks: list[Rank]
    said: list[SaidView] = []


class SuggestionsResponse(Struct, frozen=True):
    """The next pairs; ``why`` says why there are none."""

    pairs: list[PairView]
    left: int
    judged: int
    why: str


class VerdictView(Struct, frozen=True):
    """A verdict that is kept."""

    id: int
    time: str
    judge: str
    query_id: str
    query: str
    passage_id: str
    answer: _Answer
    grade: int | None


class VerdictResponse(Struct, frozen=True):
    """The verdict that was kept; ``rescored`` says whether the query's suggestions were scored again."""

    verdict: VerdictView
    rescored: bool
    seconds: float


class UndoResponse(Struct, frozen=True):
    """The verdict that was taken back; None: there was none."""

    undone: VerdictView | None


class RecentResponse(Struct, frozen=True):
    """Verdicts, newest first."""

    verdicts: list[VerdictView]


class JudgeView(Struct, frozen=True):
    """What one judge has done."""

    judge: str
    yes: int
    no: int
    unsure: int
    last: str


class Share(Struct, frozen=True):
    """A share with Wilson's 95 % interval; ``low`` and ``high`` are 0 and 1 where nothing was counted."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share itself, NaN where nothing was counted."""
        return self.hits / self.of if self.of else math.nan


class MissingEstimate(Struct, frozen=True):
    """Labels that the candidates hold and nobody gave when the run was made.

    Attributes:
        candidates: unlabelled candidates of all queries, N.
        sample: of a random sample of them, how many were found relevant.
        found: how many were found by any way.
        estimate: N · share of the sample; None where nothing of the sample was judged.
        low, high: N · Wilson's interval; never less than was found.
    """

    candidates: int
    sample: Share
    found: int
    estimate: float | None
    low: float
    high: float


class Bar(Struct, frozen=True):
    """One bar of a chart."""

    name: str
    value: int


class FacetView(Struct, frozen=True):
    """A column to filter by: its values and how many passages have each, or the least and the greatest number."""

    column: str
    values: list[Bar]
    low: float | None
    high: float | None


class FacetsResponse(Struct, frozen=True):
    """Columns of the passages to filter by."""

    facets: list[FacetView]


class ChangeView(Struct, frozen=True):
    """How far a mean moved, with the 95 % interval of the difference and p of a paired t-test, where defined."""

    measure: str
    difference: float
    low: float | None
    high: float | None
    p: float | None


class TrainingView(Struct, frozen=True):
    """One result of the run folder: its student, what it reached on the test split, and the change from the one before.

    Means and change are those of the student and BM25 together.
    """

    name: str
    student: str
    means: dict[str, float]
    change: ChangeView | None


class Step(Struct, frozen=True):
    """What to do next, and where or with which command."""

    text: str
    link: str = ""
    command: str = ""


class Overview(Struct, frozen=True):
    """How far the labels of a run are."""

    name: str
    passages: int
    queries: int
    labels: int
    labels_per_query: list[Bar]
    missing: MissingEstimate | None
    suggestions: Share
    doubtful: Share
    left: int
    judged: int
    judges: list[JudgeView]
    days: list[Bar]
    agreements: list[Agreement]
    alpha: float | None
    disagreements: int
    trainings: list[TrainingView]
    step: Step
    why: str


class Health(Struct, frozen=True):
    """The server answers, and whether its models are loaded."""

    status: Literal["ok"]
    version: str
    ready: bool
    verdicts: int
    searches: int


class Problem(Struct, frozen=True):
    """Why a request was refused."""

    error: str
