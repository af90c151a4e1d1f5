"""The folder of a run, opened: search with its student, list missing labels, keep verdicts on them, and evaluate."""

from __future__ import annotations

import dataclasses
import logging
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from colabel.artefacts import DryBuilder, Stale, read_manifest
from colabel.collective import Knowledge, PrfRanker, open_knowledge
from colabel.data import Dataset, PassageTable, load_dataset
from colabel.data.formats.catalogue import read_before
from colabel.data.splits import DEV, TRAIN
from colabel.encode import Encoder
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.evaluation import Evaluation, evaluate
from colabel.findings import StudyDocument
from colabel.findings.results import evaluated
from colabel.findings.unjudged import read_unjudged
from colabel.index import Index
from colabel.labels import (
    Labels,
    MissingLabel,
    Verdict,
    VerdictStore,
    apply_verdicts,
    decide,
    missing_labels,
    of_people,
    open_labels,
    read_review,
)
from colabel.labels.verdict_files import new_verdicts, user_name
from colabel.pipeline.layout import Layout
from colabel.pipeline.live import Live, change_live, newest, open_live
from colabel.pipeline.preflight import learned, noted_recipe, noted_system, run_of, verdict_store
from colabel.pipeline.stages import MEASURES, training_data
from colabel.pipeline.versions import is_study
from colabel.progress import SILENT, Progress
from colabel.ranking import Bm25, Hybrid, LateInteraction, Ranker
from colabel.ranking.hybrid import DEFAULT_WEIGHT, POOL, Views
from colabel.ranking.late_interaction import Hit, hits
from colabel.ranking.memory import Memory
from colabel.ranking.probability import Relevance, read_relevance
from colabel.reporting import write_run_report
from colabel.systems import System, parse_system, systems_of
from colabel.teachers import Teacher
from colabel.train.pulling import by_alpha, verdict

if TYPE_CHECKING:
    import pandas as pd

    from colabel.pipeline.again import Retrained

log = logging.getLogger(__name__)

_ASKED = 64  # queries whose passages get probabilities at once
RANKERS = ("hybrid", "student", "colbert", "prf", "bm25")
"""What searches a run: its student and BM25 together, its student, θ, θ with ColBERT-PRF, or BM25."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The best passages for some texts, best first.

    Attributes:
        ids: passage ids [texts, k], "" where there are fewer.
        scores: float32 [texts, k], −∞ where there are fewer.
        rows: the passages' rows in the index, int64 [texts, k], −1 where there are fewer.
        probabilities: of being relevant, float32 [texts, k], NaN where there are fewer or the run could fit none.
    """

    texts: tuple[str, ...]
    ids: npt.NDArray[np.str_]
    scores: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float32]
    _index: Index
    _memory: Memory | None = None

    def hits(self, place: int = 0) -> list[Hit]:
        """The passages of one text, with titles and contents."""
        return hits(self._index, self.rows[place], self.scores[place], self.probabilities[place], self.asked(place))

    def asked(self, place: int = 0) -> list[str]:
        """For each passage of one text a similar training query that it is labelled for; "" where there is none."""
        rows = self.rows[place].tolist()
        return [""] * len(rows) if self._memory is None else self._memory.reminders(self.texts[place], rows)

    def to_pandas(self) -> pd.DataFrame:
        """A row per passage: query, rank, score, passage_id, title, text and probability."""
        import pandas as pd

        rows = [{"query": text, **hit.as_dict()} for place, text in enumerate(self.texts) for hit in self.hits(place)]
        return pd.DataFrame(rows, columns=["query", "rank", "score", "passage_id", "title", "text", "probability"])


class Run:
    """A finished run, with its recipe, the system of its student, and where everything lies.

    Models and data are opened when first needed and kept. Of a study, it is one of the systems of the first seed.
    """

    def __init__(self, folder: Path, system: str = "") -> None:
        self.folder = folder
        self.recipe, _ = noted_recipe(folder)
        self.of_study = is_study(folder)
        self.at = Layout.of(folder, self.recipe.seed if self.of_study else None)
        self._students = study_students(self.at) if self.of_study else [noted_system(folder)]
        names = [one.slug for one in self._students]
        if system and system not in names:
            raise UsageError(f"{folder} has no student '{system}'; it has: {', '.join(names) or 'none'}")
        if not names:
            raise ArtefactError(f"{folder}: no student of this study is trained yet; repeat `colabel study`")
        self.system: System = self._students[names.index(system) if system else 0]
        if not (self.student / "manifest.json").exists():
            raise ArtefactError(f"{folder}: the student '{self.system.slug}' is not trained yet; repeat `colabel run`")
        if self.of_study and not system:
            log.info("%s is a study: '%s' is taken, of its %d students the best on dev", folder, names[0], len(names))

    @property
    def student(self) -> Path:
        """The student's checkpoint."""
        return self.at.model(self.system)

    @property
    def index(self) -> Index:
        """What the student searches: the trained index, with what was added to the run and deleted from it since."""
        return self.live.index if self.live else self.trained_index

    @cached_property
    def live(self) -> Live | None:
        """The changed index and its BM25; None where nothing was added or deleted since training."""
        return open_live(self.at.live, self.trained_index, self.recipe.rank)

    @cached_property
    def trained_index(self) -> Index:
        """The collection indexed by the student, or by θ where its query side alone was trained."""
        return self.theta_index if self.system.query_side else Index.open(self.at.student_index(self.system))

    @cached_property
    def theta_index(self) -> Index:
        """The collection indexed by θ: what labels and knowledge were made of."""
        return Index.open(self.at.index)

    @property
    def passages(self) -> PassageTable:
        """The passages that are searched."""
        return self.index.passages or self.dataset.passages

    def change(
        self,
        *,
        add: Any = None,
        update: bool = False,
        delete: Iterable[str] = (),
        compact: bool = False,
        progress: Progress = SILENT,
    ) -> Self:
        """Add and delete passages without training: new ones are encoded by the model that encoded the others.

        All that searches finds them, here and in processes that open the run from now on; see
        :func:`colabel.index.living.change` for the arguments. Labels, knowledge and evaluations stay those of the
        passages that were there at training.
        """
        if self.of_study or run_of(self.folder) != self.folder:
            what = "a study, whose systems share one collection" if self.of_study else "an earlier result of a run"
            raise UsageError(f"{self.folder} is {what}; passages are added to a run and deleted from it")
        how = {"add": add, "update": update, "delete": list(delete), "compact": compact}
        changed = change_live(self.folder, self.trained_index, self.recipe, self._loaded(), progress, **how)
        self._open_again(lambda: changed.encoder)
        return self

    def add(self, passages: Any, *, update: bool = False, progress: Progress = SILENT) -> Self:
        """Add passages: a dataset, the path of one, or records; ``update`` replaces those with the same ids."""
        return self.change(add=passages, update=update, progress=progress)

    def delete(self, passage_ids: Iterable[str]) -> Self:
        """Delete passages; no answer names them any more."""
        return self.change(delete=passage_ids)

    def compact(self) -> Self:
        """Make the changed index one piece, without what was deleted."""
        return self.change(compact=True)

    def refresh(self) -> bool:
        """Open what other processes added or deleted since; whether there was anything."""
        number = newest(self.at.live, self.trained_index.store.fingerprint)
        if number is None or (self.live and number == self.live.index.generation):
            return False  # None: not changed, or trained again, which needs another opening
        self._open_again(self._loaded())
        return True

    def _loaded(self) -> Callable[[], Encoder] | None:
        """What gives the model of the index where it is loaded already."""
        loaded = vars(self.index).get("encoder")
        return None if loaded is None else lambda: loaded

    def _open_again(self, model: Callable[[], Encoder] | None) -> None:
        """Open the collection as it is now; models stay loaded."""
        reads = vars(self.late).get("encoder") if "late" in vars(self) else None
        for name in ("live", "late", "hybrid", "deleted"):
            vars(self).pop(name, None)
        self.live = open_live(self.at.live, self.trained_index, self.recipe.rank, model)
        if reads is not None:
            self.late.encoder = reads

    @cached_property
    def deleted(self) -> frozenset[str]:
        """Ids of the passages that were there at training and are not any more."""
        if self.live is None:
            return frozenset()
        ids = list(self.trained_index.store.ids)
        return frozenset(ids[place] for place in np.flatnonzero(self.live.index.store.ids.rows(ids) < 0))

    @cached_property
    def dataset(self) -> Dataset:
        """The collection with the labels and verdicts that were learned; refused where its passages have changed."""
        try:
            with DryBuilder(), read_before():
                loaded = load_dataset(self.recipe.data, cache=self.at.data)
                if not self.of_study:  # the systems of a study learn from labelled queries alone
                    loaded = training_data(loaded, self.recipe, self.at.generated)
            verdicts = learned(self.folder)
            return apply_verdicts(loaded, verdicts).dataset if verdicts else loaded
        except Stale:
            source = self.recipe.data.source
            raise DataError(f"{source} has changed since {self.folder} was made; repeat `colabel run`") from None

    @property
    def labels(self) -> Labels:
        """The teacher's labels; refused where the student learned without a teacher."""
        for system in (self.system, *self._students):
            if self.at.labels(system).exists():
                if system != self.system:
                    log.info("the labels are those of '%s', as '%s' has none", system.slug, self.system.slug)
                return open_labels(self.at.labels(system))
        raise UsageError(f"{self.folder}: the student '{self.system.slug}' learned from no teacher's labels")

    @property
    def knowledge(self) -> Knowledge:
        """What was collected for the training queries."""
        return open_knowledge(self.at.knowledge, self.theta_index)

    @property
    def bm25(self) -> Bm25:
        """BM25 over the passages that are searched."""
        return self.live.bm25 if self.live else self.trained_bm25

    @cached_property
    def trained_bm25(self) -> Bm25:
        """BM25 over the passages that were there at training."""
        passages = self.trained_index.passages or self.dataset.passages
        try:
            with DryBuilder():
                return Bm25(passages, self.recipe.rank, self.at.bm25)
        except Stale:
            raise ArtefactError(f"{self.at.bm25} does not fit the collection; repeat `colabel run`") from None

    @cached_property
    def late(self) -> LateInteraction:
        """The student alone."""
        return self._late(self.index)

    def _late(self, index: Index) -> LateInteraction:
        taught = self.student if self.system.query_side else None
        return LateInteraction(index, self.system.slug, student=taught, strict=True)

    @cached_property
    def hybrid(self) -> Hybrid:
        """The student and BM25 together, with the weight that ranked dev queries best, and what was asked before."""
        return self._hybrid(self.late, self.bm25)

    def _hybrid(self, late: LateInteraction, words: Bm25) -> Hybrid:
        remembers, fitted = (self.at.hybrid(f"{kind}-{self.system.slug}") for kind in ("memory", "hybrid"))
        if remembers.exists():
            counts, reader = read_manifest(remembers).counts, LateInteraction(late.index, "colbert", strict=True)
            at, weight = self.at.memory(self.trained_index.folder), float(counts["weight"])
            memory = Memory.open(at, reader, weight) if weight else None  # else nothing is remembered any more
            chosen = late if counts["of"] == self.system.slug else reader
            return Hybrid(chosen, words, float(counts["words"]), memory=memory)
        weight = float(read_manifest(fitted).counts["weight"]) if fitted.exists() else DEFAULT_WEIGHT
        return Hybrid(late, words, weight)

    @cached_property
    def trained_hybrid(self) -> Hybrid:
        """The same over the passages that were there at training."""
        return self._hybrid(self._late(self.trained_index), self.trained_bm25) if self.live else self.hybrid

    def index_of(self, ranker: str) -> Index:
        """The index that one of ``RANKERS`` searches."""
        if ranker not in ("colbert", "prf") or self.system.query_side:
            return self.index
        if self.live:
            raise UsageError(
                f"{self.folder} was changed since it was trained, the index of its student and not that of θ; search "
                "with hybrid, student or bm25"
            )
        return self.theta_index

    def ranker(self, name: str = "hybrid") -> Ranker:
        """One of ``RANKERS``."""
        if name not in RANKERS:
            raise UsageError(f"there is no ranker '{name}'; expected one of {', '.join(RANKERS)}")
        if name == "colbert":
            return LateInteraction(self.index_of(name), strict=True)
        if name == "prf":
            return PrfRanker(self.index_of(name), self.recipe.collective, seed=self.recipe.seed, strict=True)
        if name == "bm25":
            return self.bm25
        return self.late if name == "student" else self.hybrid

    @cached_property
    def relevance(self) -> Relevance | None:
        """What tells how likely a hit is relevant; None where it could not be fitted (:meth:`no_probabilities`)."""
        return read_relevance(self.at.probability) if self.at.probability.exists() else None

    def no_probabilities(self) -> UsageError:
        """Why hits have no probabilities."""
        why = "a study fits no probabilities" if self.of_study else "there are none yet; repeat `colabel run`"
        if self.at.probability.exists():
            why = str(read_manifest(self.at.probability).counts["why"])
        return UsageError(f"{self.folder}: no hit has a probability: {why}")

    def search(
        self,
        texts: str | Sequence[str],
        k: int = 10,
        *,
        ranker: str = "hybrid",
        where: str = "",
        min_probability: float = 0.0,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> Found:
        """The k best passages for a text, or for each of several; ``where`` as in :func:`colabel.search`.

        Args:
            min_probability: leave out what is less likely to be relevant; so nothing may be found.
            allowed: which passages may be found, bool [passages], where ``where`` is not given.
        """
        asked = (texts,) if isinstance(texts, str) else tuple(texts)
        if k < 1:
            raise UsageError(f"k is {k}; expected 1 or more")
        if min_probability and self.relevance is None:
            raise self.no_probabilities()
        chosen = self.ranker(ranker)
        views, allowed = None, self.index.where(where) if where else allowed
        if isinstance(chosen, Hybrid) and allowed is None:
            views = chosen.views(asked, k)
            rows, scores = chosen.best(views, k)
        else:
            rows, scores = chosen.rank(asked, min(k, len(chosen.ids)), allowed)
        likely = self.probabilities(asked, rows, views)
        if min_probability:
            rows = np.where(likely >= min_probability, rows, -1)
            order = np.argsort(rows < 0, axis=1, kind="stable")
            rows = np.take_along_axis(rows, order, 1)
            scores = np.where(rows < 0, -np.inf, np.take_along_axis(scores, order, 1)).astype(np.float32)
            likely = np.where(rows < 0, np.nan, np.take_along_axis(likely, order, 1)).astype(np.float32)
        ids = np.array([[chosen.ids[row] if row >= 0 else "" for row in line] for line in rows.tolist()], dtype=np.str_)
        return Found(asked, ids.reshape(rows.shape), scores, rows, likely, self.index, getattr(chosen, "memory", None))

    def probabilities(
        self, texts: Sequence[str], rows: npt.NDArray[np.int64], views: Views | None = None
    ) -> npt.NDArray[np.float32]:
        """How likely passages [texts, k] are relevant, float32 [texts, k]; NaN where that is not known.

        Args:
            views: what the hybrid says of the texts, where that is known.
        """
        if self.relevance is None:
            return np.full(rows.shape, np.nan, dtype=np.float32)
        if views is None:
            views = self.hybrid.views(texts, POOL, also=rows)
        return self.relevance.of_rows(views, rows)

    def missing(self, limit: int = 100, **options: Any) -> list[MissingLabel]:
        """Passages that seem to be relevant and have no label; ``options`` are those of ``missing_labels``.

        What people have judged relevant or not is not listed again, nor what was deleted. What was added is not
        listed before the run is trained again.
        """
        judged = {pair for pair, one in decide(self.verdicts()).items() if one.relevant is not None}
        left_out: dict[str, Any] = {"judged": judged, "gone": self.deleted}
        found = missing_labels(self.labels, self.knowledge, self.dataset, limit=limit, **left_out, **options)
        if self.relevance is None:
            return found
        asked: dict[str, dict[int, float]] = {}
        for one in found:
            asked.setdefault(one.query_id, {})[one.row] = 0.0
        for start in range(0, len(asked), _ASKED):
            queries = list(asked)[start : start + _ASKED]
            rows = np.array(list(zip_longest(*(asked[query] for query in queries), fillvalue=-1)), dtype=np.int64).T
            texts = [self.dataset.queries[query] for query in queries]
            likely = self.probabilities(texts, rows, self.trained_hybrid.views(texts, POOL, also=rows))
            for query, line, values in zip(queries, rows.tolist(), likely.tolist(), strict=True):
                asked[query] |= dict(zip(line, values, strict=True))
        return [dataclasses.replace(one, probability=asked[one.query_id][one.row]) for one in found]

    def missing_in_all(self) -> tuple[float, float, float] | None:
        """About how many labels the training queries lack, with the 95 % interval; None where that is not known."""
        data = self.dataset
        if self.relevance is None or TRAIN in data.pseudo:
            return None
        train, dev = (list(map(len, data.positives(split).values())) for split in (TRAIN, DEV))
        return self.relevance.missing(len(train), sum(train), sum(dev) / len(dev))

    def judge(self, rows: Any, judge: str = "") -> int:
        """Keep verdicts; how many of them are new.

        Args:
            rows: a table with the columns ``query_id``, ``passage_id`` and ``verdict`` (yes, no, unsure, or 0 to 3;
                empty: none): a DataFrame, dicts or tuples. Or the path of such a file, as :meth:`missing` fills it.
            judge: who judged; default: the user's name.
        """
        found = read_review(rows, self.dataset, judge or user_name())
        new = new_verdicts(found, self.verdict_store)
        self.verdict_store.add_all(new)
        return len(new)

    def again(
        self, *, teacher: Teacher | None = None, programs: bool = False, progress: Progress = SILENT
    ) -> Retrained:
        """Train again with the same recipe and all verdicts of people, and compare."""
        from colabel.pipeline.again import run_again

        done = run_again(self.folder, teacher=teacher, programs=programs, progress=progress)
        for name in [name for name, one in vars(Run).items() if isinstance(one, cached_property)]:
            self.__dict__.pop(name, None)  # what was opened was the earlier result
        return done

    @cached_property
    def verdict_store(self) -> VerdictStore:
        """Where people's verdicts are kept; a version shares those of its run."""
        return verdict_store(self.folder)

    def verdicts(self, *, programs: bool = False) -> list[Verdict]:
        """The standing verdict of each person on each pair, oldest first; with ``programs``, also what those said."""
        found = self.verdict_store.current()
        return found if programs else of_people(found)

    @property
    def rankings(self) -> dict[str, Path]:
        """System → its ranking of the test queries; empty where there are no test labels."""
        slug = self.system.slug
        names = ["bm25", "zero-shot", "colbert", slug, "hybrid", f"hybrid-{slug}"]
        if self.of_study:
            names = [one.slug for one in systems_of(self.recipe)]
        return {name: self.at.run(name) for name in names if self.at.run(name).exists()}

    def evaluate(self, measures: Sequence[str] = MEASURES) -> Evaluation:
        """The student beside BM25, the plain encoder and θ on the test split."""
        if not self.rankings:
            raise UsageError(f"{self.folder}: {self.recipe.data.source} has no test labels, so nothing was ranked")
        return evaluate(self.dataset, self.rankings, measures=measures)

    def report(self) -> Path:
        """Write the page of the run again: how good its student is, where it lies, and what to call next."""
        evaluation = self.evaluate() if self.rankings else None
        return write_page(self.folder, self.dataset, self.system, evaluation, self.recipe.seed)


def open_run(folder: Path | str, system: str = "") -> Run:
    """Open the folder of a finished run, an earlier version of it (``FOLDER/versions/0001``), or a study.

    Args:
        system: the student of a study; left out, the one that is best on dev.
    """
    return Run(Path(folder), system)


def study_students(at: Layout) -> list[System]:
    """The students of one seed of a study, the best on dev first; those that saw hidden labels are left out."""
    found = [parse_system(path.parent.parent.name) for path in sorted(at.own.glob("students/*/model/manifest.json"))]
    usable = [one for one in found if not one.ceiling and at.student_index(one).exists()]
    return sorted(usable, key=lambda one: -dev_gain(one, read_manifest(at.model(one)).counts))


def dev_gain(system: System, counts: Mapping[str, Any]) -> float:
    """By how much training a student from θ raised the measure on dev; −∞ where that is not known."""
    if "alpha" in counts:
        return float(counts.get("gain", [-math.inf])[0])
    before, after = counts.get("start_value"), counts.get("kept_value")
    return -math.inf if system.from_plain or before is None or after is None else float(after - before)


def write_page(folder: Path, data: Dataset, system: System, evaluation: Evaluation | None, seed: int = 0) -> Path:
    """The page of a run: how good its student is, where it lies, and what to call next."""
    document = StudyDocument(data.name, MEASURES)
    if evaluation is not None:
        systems = [system if slug == system.slug else parse_system(slug) for slug in evaluation.means]
        document = evaluated(data, systems, evaluation, seed=seed, student=system.slug)
    steps = next_commands(folder, system) + ([("serve", str(folder))] if evaluation is None else [])
    commands = [shlex.join(["colabel", *parts]) for parts in steps]
    student = Layout.of(folder).model(system)
    said = " ".join(filter(None, (verdict(student), by_alpha(student))))
    place = Layout.of(folder).probability
    relevance = read_relevance(place) if place.exists() else None
    unjudged = read_unjudged(Layout.of(folder).unjudged) if evaluation is None else None
    how: dict[str, Any] = {"student": student, "verdict": said, "relevance": relevance, "unjudged": unjudged}
    return write_run_report(document, folder, commands=commands, **how)


def next_commands(folder: Path, system: System) -> list[tuple[str, ...]]:
    """What one may want to call after a run."""
    search = ("search", str(folder), "your question")
    return [search, ("missing", str(folder))] if system.asked_directly else [search]
