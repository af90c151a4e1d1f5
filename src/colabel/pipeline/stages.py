"""The stages of the method as calls: each takes what earlier ones returned, and writes to its place in one layout.

A stage that is up to date is opened, in a second without a model; every result, and every failure, is remembered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from colabel.artefacts import Builder, Spec, Stale, Workspace, fingerprint, write_json
from colabel.collective import Knowledge, collect
from colabel.data import Dataset, PassageTable, has_training_labels, load_dataset, with_training_queries
from colabel.data.splits import DEV, TEST, TRAIN, stable_fraction, with_hidden_labels, without_labels
from colabel.encode import prepare_encoder
from colabel.encode.query_generator import generate_queries
from colabel.encode.weights import is_late_interaction, resolve_model
from colabel.errors import ArtefactError
from colabel.evaluation import Evaluation, evaluate
from colabel.findings.unjudged import FILE as UNJUDGED
from colabel.findings.unjudged import find_unjudged
from colabel.index import Index, build_index
from colabel.labels import Labels, Verdict, apply_verdicts, decide, label
from colabel.labels.verdicts import RANDOM, of_people
from colabel.pipeline.layout import Layout
from colabel.progress import SILENT, Progress
from colabel.ranking import Bm25, Hybrid, LateInteraction, Ranker, Ranking, rank
from colabel.ranking.hybrid import POOL, Views, fit_memory_weight, fit_weight
from colabel.ranking.memory import STAGE as MEMORY
from colabel.ranking.memory import Memory, fit_memory, save_asked
from colabel.ranking.probability import FILE as PROBABILITY
from colabel.ranking.probability import Relevance, fit_relevance, grades_of, read_relevance, too_little
from colabel.settings import ComputeSettings, DistilSettings, Recipe
from colabel.systems import System
from colabel.systems.students import Sources
from colabel.teachers import CrossEncoderTeacher, DrawnTeacher, StoredTeacher, Teacher
from colabel.teachers.guarded import heeding, trusted_rows
from colabel.train import (
    DevSet,
    Groups,
    TrainedModel,
    candidates_from_ranking,
    describe_collective,
    dev_set,
    distil,
    groups_for,
    is_main_process,
    main_process_first,
    rerank_quality,
    train_cross_encoder,
    train_theta,
)
from colabel.train.dev import EVALUATE_DEPTH
from colabel.train.loop import check_device
from colabel.train.query_lists import Lists, candidate_rows, lessons_for
from colabel.train.query_side import PASSAGES, train_query_side

if TYPE_CHECKING:
    from colabel.cluster import Cluster

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")
"""What a run is evaluated by."""
CALIBRATION_QUERIES = 300
"""Dev queries to which probabilities are fitted, at most."""
RERANKED_QUERIES = 30
"""Dev queries on which cross-encoders are compared with θ, at most."""

_SECTIONS: dict[str, tuple[str, ...]] = {
    "encoder": ("encoder",),
    "bm25": ("rank",),
    "rank": ("rank",),
    "train": ("train", "fit"),
    "index": ("index",),
    "collect": ("collective",),
    "cross-encoder": ("cross_encoder",),
    "label": ("labels",),
    "distil": ("distil", "fit"),
    "query side": ("query_side", "fit"),
}
"""Stage → the tables of the recipe whose settings it has, for messages."""
_TOGETHER = ("train", "distil")


class LocalEngine:
    """This process; a :class:`~colabel.cluster.Cluster` does the same with its workers."""

    predictor = None  # a teacher's own model scores pairs
    build_index = staticmethod(build_index)

    def open_index(self, folder: Path, passages: PassageTable | None = None) -> Index:
        """Open a finished index."""
        return Index.open(folder)

    def close(self) -> None:
        """This process has no workers to end."""


Engine: TypeAlias = "LocalEngine | Cluster"
"""Who does the heavy work: indexes, and scores of cross-encoders."""


def choose_engine(settings: ComputeSettings) -> Engine:
    """The engine that the settings name."""
    if settings.engine == "local":
        return LocalEngine()
    from colabel.cluster import Cluster

    return Cluster(settings)


class Stages:
    """The stages of one seed.

    Every student starts from the same θ and sees the same groups of passages in the same order, so that nothing but
    its target differs from another's. Under ``torchrun`` process 0 makes each stage before the others open it; all
    train together.

    Attributes:
        at: where everything lies.
        pseudo: whether queries without labels teach as well, made of passages where there are no training labels.
        builder: makes artefacts; a dry one raises :class:`~colabel.artefacts.Stale` at the first that is not there.
        verdicts: what people judged, added to the labels of the training queries.
        own: a teacher object of the user's own.
    """

    def __init__(
        self,
        recipe: Recipe,
        at: Layout,
        seed: int | None = None,
        progress: Progress = SILENT,
        *,
        builder: Builder,
        verdicts: Sequence[Verdict] = (),
        own: Teacher | None = None,
        pseudo: bool = False,
    ) -> None:
        self.recipe, self.at, self.progress, self.builder = recipe, at, progress, builder
        self.verdicts, self.own = verdicts, own
        self.seed = recipe.seed if seed is None else seed
        self.pseudo = pseudo
        self.kept_data = True
        """Whether the collection is read from its own place: a dry run reads it elsewhere where it is not there yet."""
        self._opens = recipe.compute.engine != "local" and (builder.dry or not is_main_process())
        """Whether indexes of a cluster are only opened."""
        self._how: dict[str, Any] = {"device": recipe.encoder.device, "progress": progress}
        self._engine: list[Engine] = []
        self._scratch: list[Path] = []
        self._data: Dataset | None = None

    def with_seed(self, seed: int, at: Layout, recipe: Recipe | None = None, *, pseudo: bool = False) -> Stages:
        """The stages of another seed or recipe, which share engine and memory with these."""
        other = Stages(recipe or self.recipe, at, seed, self.progress, builder=self.builder, pseudo=pseudo)
        other._engine, other._scratch = self._engine, self._scratch
        return other

    def without_labels(self, *, trained: bool = False) -> Stages:
        """The stages of the same seed for a system that sees no labels: the plain encoder is θ, and its queries are
        made of the passages. With ``trained``, θ is that of these stages."""
        same = uses_checkpoint(self.recipe)
        own = self.at.own / ("passages" if trained and not same else "bootstrap")

        def make() -> Stages:
            at = Layout(self.at.out, own)
            at.rankings, at.lessons = own / "rankings", self.at.lessons
            at.index = self.at.index if trained or same else self.at.plain_index
            recipe = dataclasses.replace(self.recipe, train=dataclasses.replace(self.recipe.train, theta="take"))
            other = self.with_seed(self.seed, at, recipe, pseudo=True)
            other._data = other._with_queries(without_labels(self.dataset()))
            return other

        return self.builder.once(own, make)

    def __enter__(self) -> Self:
        self.builder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.builder.__exit__()
        while self._engine:
            self._engine.pop().close()
        while self._scratch:
            shutil.rmtree(self._scratch.pop(), ignore_errors=True)

    def engine(self) -> Engine:
        """Who does the heavy work; a cluster is started when it is first needed."""
        if not self._engine:
            self._engine.append(LocalEngine() if self._opens else choose_engine(self.recipe.compute))
        return self._engine[0]

    def _once(self, name: str, folder: Path, make: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """A stage by its name: made, or opened, once; all processes train together."""

        def first() -> T:
            cpu = check_device(self.recipe.encoder.device) == "cpu"
            with contextlib.nullcontext() if name in _TOGETHER else main_process_first(cpu=cpu):
                return make(*args, **given)

        try:
            return self.builder.once(folder, first)
        except Stale as stale:
            sections = _SECTIONS.get(name, ())
            keys = {key: f"{one}.{key}" for one in reversed(sections) for key in getattr(self.recipe, one).as_dict()}
            if name == "collect":
                keys["depth"] = "labels.candidates"  # θ ranks as many passages as are labelled
            raise stale.of(name, {**keys, "pairs": "the pairs that training draws"}) from None

    def dataset(self) -> Dataset:
        """The collection with its visible labels, and what people judged."""

        def load() -> Dataset:
            data = self.recipe.data
            try:
                loaded = load_dataset(data, cache=self.at.data, progress=self.progress)
            except Stale:  # a dry run reads the data that a run would read, and leaves nothing behind
                self.kept_data = False
                self._scratch.append(Path(tempfile.mkdtemp(prefix="colabel-plan-")))
                with Builder():
                    loaded = load_dataset(data, cache=self._scratch[-1], progress=self.progress)
            loaded = apply_verdicts(loaded, self.verdicts).dataset if self.verdicts else loaded
            return self._with_queries(loaded) if self.pseudo else loaded

        return self._once("data", self.at.data, load) if self._data is None else self._data

    def _with_queries(self, data: Dataset) -> Dataset:
        try:
            return training_data(data, self.recipe, self.at.generated, self.progress)
        except Stale:  # a dry run does not know the queries that a model is still to write
            self.kept_data = False
            return training_data(data, self.recipe)

    def encoder(self, data: Dataset) -> Path:
        """The plain encoder before training, with ColBERT's conventions."""
        at, settings = self.at.encoder, dataclasses.replace(self.recipe.encoder, backend="torch")  # nothing to index
        self._once("encoder", at, prepare_encoder, settings, data.passages, at)
        return at

    def bm25(self, data: Dataset) -> Bm25:
        """BM25 over the collection."""
        at = self.at.bm25
        return self._once("bm25", at, Bm25, data.passages, self.recipe.rank, at, self.progress)

    def rank(
        self, ranker: Ranker, queries: Mapping[str, str], out: Path, depth: int, tag: str = "", run_file: bool = True
    ) -> Ranking:
        """A ranking of some queries; only those of test queries need a run file for other programs."""
        how: dict[str, Any] = {"depth": depth, "tag": tag, "run_file": run_file, "progress": self.progress}
        return self._once("rank", out, rank, ranker, queries, out, **how)

    def bm25_ranking(self, data: Dataset, bm25: Bm25, split: str = TRAIN) -> Ranking:
        """BM25's ranking of a split's queries: θ's negatives, and what it is evaluated on."""
        depth = self.recipe.train.candidates if split == TRAIN else EVALUATE_DEPTH
        return self.rank(bm25, data.split_queries(split), self.at.bm25_ranking(split), depth, run_file=False)

    def train_theta(self, data: Dataset, plain: Path, bm25: Bm25) -> Path:
        """θ: trained from hard labels against BM25's negatives, or the recipe's own late-interaction checkpoint."""
        if uses_checkpoint(self.recipe):
            return plain
        negatives, fit, out = self.bm25_ranking(data, bm25), self.recipe.fit, self.at.theta
        dev = None
        if DEV in data.splits and fit.evaluate_every:
            ranked = self.bm25_ranking(data, bm25, DEV)
            dev = dev_set(data, ranked, queries=fit.evaluate_queries, depth=EVALUATE_DEPTH)
        how = {**self._how, "settings": self.recipe.train, "fit": fit, "seed": self.seed, "dev": dev}
        return self._once("train", out, train_theta, data, plain, negatives, out, **how).folder

    def index(self, data: Dataset, model: Path, out: Path) -> Index:
        """The collection indexed by a model."""
        recipe, encoder = self.recipe, dataclasses.replace(self.recipe.encoder, model=str(model))

        def make() -> Index:
            if not self._opens:
                return self.engine().build_index(
                    data, out, data=recipe.data, encoder=encoder, index=recipe.index, progress=self.progress
                )
            prepare_encoder(encoder, data.passages, out / "encoder")  # whether the index is of this very model
            try:
                return Index.open(out)
            except ArtefactError:
                raise Stale("index", out) from None

        return self._once("index", out, make)

    def collect(self, data: Dataset, index: Index) -> Knowledge:
        """θ's vectors and ranking of the training queries, their collective centroids and σ."""
        settings, at = self.recipe.collective, self.at.knowledge
        depth = max(self.recipe.labels.candidates, settings.feedback_passages)
        how: dict[str, Any] = {"depth": depth, "seed": self.seed, "progress": self.progress}
        return self._once("collect", at, collect, data, index, at, settings=settings, **how)

    def groups(self, data: Dataset, ranking: Ranking) -> Groups:
        """The queries and passages of every step, the same for all students of θ."""
        settings = self.recipe.distil
        depth = min(settings.candidates, self.recipe.labels.candidates)  # what is not labelled teaches nothing
        return self._draw("groups", data, ranking, depth, settings)

    def bm25_groups(self, data: Dataset, bm25: Bm25) -> Groups:
        """Pairs with BM25's negatives, for the students that the paper trains from the plain encoder."""
        settings = paper_settings(self.recipe)
        return self._draw("bm25-groups", data, self.bm25_ranking(data, bm25), settings.candidates, settings)

    def _draw(self, name: str, data: Dataset, ranking: Ranking, depth: int, settings: DistilSettings) -> Groups:
        def draw() -> Groups:
            return groups_for(candidates_from_ranking(data, ranking, depth=depth), settings, self.seed)

        return self._once("groups", self.at.own / name, draw)

    def dev_ranking(self, data: Dataset, index: Index) -> Ranking | None:
        """θ's ranking of the dev queries."""
        if DEV not in data.splits:
            return None
        ranker = LateInteraction(index, "theta", progress=self.progress)
        return self.rank(ranker, data.split_queries(DEV), self.at.dev_ranking, EVALUATE_DEPTH, run_file=False)

    def dev_set(self, data: Dataset, index: Index) -> DevSet | None:
        """θ's top passages of dev queries, on which students are evaluated while they are trained."""
        fit = self.recipe.fit
        ranking = self.dev_ranking(data, index) if fit.evaluate_every else None
        if ranking is None:
            return None
        return dev_set(data, ranking, queries=fit.evaluate_queries, depth=EVALUATE_DEPTH)

    def cross_encoders(self, data: Dataset, known: Knowledge, system: System) -> tuple[CrossEncoderTeacher, ...]:
        """The cross-encoders that teach a system: the recipe's, or trained from the same labels on θ's negatives."""
        settings, count = self.recipe.cross_encoder, system.cross_encoder_count(self.recipe)
        models = list(settings.checkpoints[:count])
        if not settings.checkpoints:
            for number, model in enumerate(settings.models[:count]):
                at = self.at.cross_encoder(number)
                how = {**self._how, "settings": settings, "seed": self.seed + number}
                self._once("cross-encoder", at, train_cross_encoder, data, known.ranking, model, at, **how)
                models.append(str(at))
        found = tuple(self.cross_encoder(data, model) for model in models)
        if is_main_process() and not self.builder.dry:
            self.compare_cross_encoders(data, known.index, found)
        return found

    def cross_encoder(self, data: Dataset, model: str) -> CrossEncoderTeacher:
        """A cross-encoder that reads pairs of this collection, with the scores that it gave before."""
        return cross_encoder(model, data, self.recipe, self.engine(), self.at.pairs, self.progress)

    def compare_cross_encoders(
        self, data: Dataset, index: Index, readers: tuple[CrossEncoderTeacher, ...]
    ) -> list[str]:
        """Whether each cross-encoder beats θ at ranking θ's top passages of some dev queries again."""
        ranking = self.dev_ranking(data, index) if readers else None
        if ranking is None or not data.positives(DEV):
            return []
        drawn = sorted(data.positives(DEV), key=lambda query_id: stable_fraction(query_id, "re-ranked"))
        labels = {query_id: data.labels(DEV)[query_id] for query_id in drawn[:RERANKED_QUERIES]}

        def compare(reader: CrossEncoderTeacher, number: int) -> str:
            found = rerank_quality(reader, ranking, labels, relevant_from=data.relevant_from)
            verdict = f"Cross-encoder {number} {found.verdict('θ')}"
            log.info("%s", verdict)
            return verdict

        return [
            self.builder.once(self.at.pairs / reader.fingerprint, functools.partial(compare, reader, number))
            for number, reader in enumerate(readers, start=1)
        ]

    def teacher(self, system: System, data: Dataset, known: Knowledge) -> Teacher | None:
        """Whose scores a student learns; None: hard labels."""
        readers = self.cross_encoders(data, known, system)
        if system.teacher is None:
            return None
        beta = self.recipe.collective.beta if system.beta is None else system.beta
        collective = dataclasses.replace(self.recipe.collective, beta=beta)
        scores = Path(self.recipe.labels.scores) if self.recipe.labels.scores else None
        given = (data, known, collective, readers, scores, lambda: self.bm25(data), self.progress, self.own)
        return system.teacher(Sources(*given))

    def label(self, system: System, data: Dataset, known: Knowledge, teacher: Teacher, groups: Groups) -> Labels:
        """A teacher's labels; a cross-encoder scores only the pairs that training draws."""
        at = self.at.labels(system)
        only = groups.pairs() if system.needs_cross_encoder else None
        how: dict[str, Any] = {"settings": self.recipe.labels, "only": only, "progress": self.progress}
        return self._once("label", at, label, known, data, teacher, at, **how)

    def teach(
        self, system: System, data: Dataset, known: Knowledge, teacher: Teacher | None, groups: Groups
    ) -> Teacher | None:
        """Whom the student asks in its steps.

        A collective or self teacher scores any passage from stored vectors: over the whole batch it is asked directly,
        and its labels are written for people and exports. Others are slow or know candidates only: their labels are
        written first, and the student reads those.
        """
        if teacher is None:
            return None
        if system.from_plain:  # BM25's negatives are no candidates of the labels
            drawn = DrawnTeacher(teacher, groups.query_ids, groups.rows, groups.fingerprint)
            return heeding(drawn, data)
        labels, whole_batch = self.label(system, data, known, teacher, groups), self.recipe.distil.scope == "batch"
        if whole_batch and system.asked_directly:
            return heeding(teacher, data)
        return heeding(StoredTeacher(labels, others_irrelevant=whole_batch), data)

    def distil(
        self, system: System, data: Dataset, start: Path, groups: Groups, teacher: Teacher | None, dev: DevSet | None
    ) -> TrainedModel:
        """A student: trained from θ, or from the plain encoder, with its teacher's scores or hard labels."""
        recipe, out = self.recipe, self.at.model(system)
        how = self._how | {
            "settings": paper_settings(recipe) if system.from_plain else recipe.distil,
            "fit": recipe.fit.unpulled() if system.from_plain else recipe.fit,  # its start is no θ to go back to
            "layers": recipe.train.layers,
            "smoothing": recipe.labels.smoothing if "smoothing" in system.needs else 0.0,
            "hard_scope": "batch" if system.from_plain else "group",
            "about": self._about(system),
        }
        return self._once("distil", out, distil, data, start, groups, teacher, out, seed=self.seed, dev=dev, **how)

    def train_query_side(
        self,
        system: System,
        data: Dataset,
        bm25: Bm25,
        theta: Path,
        known: Knowledge,
        teacher: Teacher | None,
        *,
        passages: bool = True,
    ) -> TrainedModel:
        """A student whose query encoder alone is trained, against the passage vectors of θ's index.

        Where labels are few, queries made of the passages teach as well, unless ``passages`` is false.
        """
        out, settings = self.at.model(system), self.recipe.query_side
        seen = with_hidden_labels(data) if system.ceiling else data
        lessons, taught = self._lessons(seen, bm25, known, teacher)
        labelled = 0 if TRAIN in data.pseudo else len(data.positives(TRAIN))
        if passages and labelled and made_queries(self.recipe, system, labelled):
            lessons, taught = self._beside(system, bm25, known, lessons, taught)
        how = {**self._how, "measure": self.recipe.fit.measure, "name": system.made_as, "seed": self.seed}
        how |= {"settings": settings, "trained": self.at.lessons, "force": self.recipe.fit.keep == "forced"}
        given = (seen, known.index, bm25, theta, lessons, out)
        return self._once("query side", out, functools.partial(train_query_side, *given, taught=taught, **how))

    def _lessons(
        self, data: Dataset, bm25: Bm25, known: Knowledge, teacher: Teacher | None
    ) -> tuple[Callable[[], dict[str, Lists]], str]:
        """What makes a query side's lists, by the teacher and by labels, and a fingerprint of what they will be."""
        ranked = self.bm25_ranking(data, bm25)
        mass = 0.0 if TRAIN in data.pseudo else self.recipe.query_side.label_mass  # it finds its own source unaided

        def make() -> dict[str, Lists]:
            queries, rows, positives = candidate_rows(data, known, bm25, ranked, unlabelled=teacher is not None)
            scores = known.index.store.score(known.queries.vectors(list(queries)), rows)
            return lessons_for(queries, rows, scores, positives, teacher, label_mass=mass, trusted=trusted_rows(data))

        parts = [known.fingerprint, bm25.fingerprint, ranked.manifest.fingerprint, data.labels_fingerprint(TRAIN), mass]
        return make, fingerprint([*parts, "" if teacher is None else teacher.fingerprint])

    def _beside(
        self, system: System, bm25: Bm25, known: Knowledge, lessons: Callable[[], dict[str, Lists]], taught: str
    ) -> tuple[Callable[[], dict[str, Lists]], str]:
        """The lessons with one more: what both views say of queries made of the passages, whatever is labelled."""
        other = self.without_labels(trained=True)
        data = other.dataset()
        if TRAIN not in data.splits:  # every query was left out
            return lessons, taught
        asked = other.collect(data, known.index)
        made, told = other._lessons(data, bm25, asked, other.teacher(system, data, asked))
        return lambda: {**lessons(), PASSAGES: made()["teacher"]}, fingerprint([taught, told])

    def hybrid(self, data: Dataset, late: LateInteraction, name: str) -> Hybrid:
        """A late-interaction ranker and BM25 together, with the weight that ranks dev queries best.

        Without dev labels the weight is estimated from real training queries, or the default.
        """
        bm25, measure, out = self.bm25(data), self.recipe.fit.measure, self.at.hybrid(name)
        labels = data.labels(DEV) if DEV in data.splits and DEV not in data.pseudo else {}  # they favour words
        known = [] if TRAIN not in data.splits else data.labels(TRAIN).items()
        real = [data.queries[query] for query, held in known if TRAIN not in data.pseudo or not held]
        judged = data.labels_fingerprint(DEV) if labels else fingerprint(real)
        spec = Spec("hybrid", {"measure": measure}, {"late": late.fingerprint, "bm25": bm25.fingerprint, "dev": judged})

        def fit(_: Workspace) -> Mapping[str, Any]:
            how: dict[str, Any] = {"measure": measure, "relevant_from": data.relevant_from, "unlabelled": real}
            found = fit_weight(Hybrid(late, bm25), data.split_queries(DEV) if labels else {}, labels, **how)
            values = {f"{weight:g}": value for weight, value in found.values.items()}
            return {"weight": found.weight, "queries": found.queries, "values": values}

        manifest = self._once("hybrid", out, self.builder.build, out, spec, fit)
        return Hybrid(late, bm25, float(manifest.counts["weight"]), name=name)

    def remembering(self, data: Dataset, hybrids: Sequence[Hybrid], name: str) -> Hybrid:
        """One of some hybrids over one index, with the labels of similar training queries, as dev ranks best.

        The last one as it is where nothing can be remembered: no labels, or none that two similar queries share.
        """
        last, measure, out = hybrids[-1], self.recipe.fit.measure, self.at.hybrid(name)
        index = last.late.index
        known = {} if TRAIN in data.pseudo or TRAIN not in data.splits else data.positives(TRAIN)
        labels = data.labels(DEV) if DEV in data.splits and DEV not in data.pseudo else {}
        reader, at = LateInteraction(index, MEMORY), self.at.memory(index.folder)

        def write(space: Workspace) -> Mapping[str, Any]:
            held: dict[str, list[str]] = {}
            for query, passages in known.items():
                held.setdefault(data.queries[query], []).extend(passages)
            asked = save_asked(space, held, reader)
            return {"queries": len(asked.labels), "fit": fit_memory(asked)}

        inputs = {one.name: one.fingerprint for one in hybrids}
        inputs |= {"memory": "", "dev": data.labels_fingerprint(DEV) if labels else ""}
        if known:
            spec = Spec(MEMORY, {}, {"index": index.fingerprint, "labels": data.labels_fingerprint(TRAIN)})
            made = self._once(MEMORY, at, self.builder.build, at, spec, write)
            inputs["memory"] = made.fingerprint if made.counts["fit"] else ""

        def fit(_: Workspace) -> Mapping[str, Any]:
            if not inputs["memory"]:
                return {"of": last.late.name, "words": last.weight, "weight": 0.0, "values": {}}
            memory = Memory.open(at, reader)
            trials = [Hybrid(one.late, one.words, one.weight, memory=memory) for one in hybrids]
            how: dict[str, Any] = {"measure": measure, "relevant_from": data.relevant_from}
            queries = data.split_queries(DEV) if labels else {}
            place, weight, values = fit_memory_weight(trials, queries, labels, **how)
            return {"of": hybrids[place].late.name, "words": hybrids[place].weight, "weight": weight, "values": values}

        spec = Spec("remembering", {"measure": measure}, inputs)
        counts = self._once("hybrid", out, self.builder.build, out, spec, fit).counts
        late = next(one.late for one in hybrids if one.late.name == counts["of"])
        memory = Memory.open(at, reader, float(counts["weight"])) if counts["weight"] else None
        return Hybrid(late, last.words, float(counts["words"]), name=name, memory=memory)

    def relevance(self, data: Dataset, hybrid: Hybrid) -> Relevance | None:
        """How likely hits are relevant, fitted to dev labels and random verdicts; None where there are too few."""
        out, asked = self.at.probability, DEV in data.splits and DEV not in data.pseudo
        people = of_people(self.verdicts)
        pairs = {(one.query_id, one.passage_id) for one in people if one.source == RANDOM}
        said = {pair: one.relevant for pair, one in decide(people).items() if pair in pairs}
        inputs = {
            "late": hybrid.late.fingerprint,
            "words": hybrid.words.fingerprint,
            **({} if hybrid.memory is None else {"memory": hybrid.memory.fingerprint}),
            "dev": data.labels_fingerprint(DEV) if asked else "",
            "verdicts": fingerprint(sorted(said.items())),
        }

        def fit(space: Workspace) -> Mapping[str, Any]:
            labelled = data.positives(DEV) if asked else ()
            drawn = sorted(labelled, key=lambda query: stable_fraction(query, "probability"))
            queries, why = drawn[:CALIBRATION_QUERIES], "no dev queries have labels"
            if queries:
                views = hybrid.views([data.queries[query] for query in queries], POOL)
                grades = grades_of(views.rows, queries, data.labels(DEV), data.passages.ids)
                why = too_little(views, grades, data.relevant_from)
            table: dict[str, Any] = {"why": why}
            if not why:
                sampled = _sampled(hybrid, data, said)
                table = dataclasses.asdict(fit_relevance(views, grades, data.relevant_from, verdicts=sampled))
            with space.file(PROBABILITY) as path:
                path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
            return {"why": table.get("why", ""), "queries": len(queries)}

        self._once("probability", out, self.builder.build, out, Spec("probability", {}, inputs), fit)
        return read_relevance(out)

    def unjudged(self, data: Dataset, rankers: Mapping[str, Ranker], student: str) -> None:
        """What can be known of a run whose test queries nobody judged."""
        out, made = self.at.unjudged, {name: one.fingerprint for name, one in rankers.items()}
        asked = {split: data.labels_fingerprint(split) for split in (TRAIN, DEV) if split in data.splits}

        def write(space: Workspace) -> Mapping[str, Any]:
            found = find_unjudged(data, rankers, student)
            with space.file(UNJUDGED) as path:
                path.write_bytes(msgspec.json.encode(found))
            return {"queries": found.asked}

        spec = Spec("unjudged", {"student": student}, {**made, **asked})
        self._once("unjudged", out, self.builder.build, out, spec, write)

    def _about(self, system: System) -> dict[str, Any]:
        """What the model card says of a system's teacher."""
        about: dict[str, Any] = {"system": system.made_as}
        if "knowledge" in system.needs:
            about |= describe_collective(self.recipe.collective, beta=system.beta)
        if system.needs_cross_encoder:
            models = self.recipe.cross_encoder.checkpoints or self.recipe.cross_encoder.models
            about["cross-encoders"] = ", ".join(models[: system.cross_encoder_count(self.recipe)])
        if "scores" in system.needs:
            about["scores"] = Path(self.recipe.labels.scores).name
        return about

    def evaluate(self, data: Dataset, rankers: Mapping[str, Ranker]) -> Evaluation | None:
        """The rankers on the test split; None where it has no labels."""
        if TEST not in data.splits:
            return None
        queries, depth = data.split_queries(TEST), self.recipe.rank.depth
        rankings = {name: self.rank(one, queries, self.at.run(name), depth) for name, one in rankers.items()}
        evaluation = evaluate(data, {name: one.run for name, one in rankings.items()}, measures=MEASURES)
        if not self.builder.dry:
            write_json(self.at.evaluation, evaluation.as_dict())
        return evaluation


def settle(recipe: Recipe) -> tuple[Recipe, str]:
    """The recipe, and in a sentence what will be done; both depend on whether there are training labels.

    Without any, 'train.theta = "auto"' takes the encoder as θ: what pseudo-queries teach is not worth a new index.
    """
    name = recipe.data.source
    if has_training_labels(recipe.data):
        return recipe, f"{name} has training labels: a student learns from them"
    if recipe.train.theta == "auto":
        recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, theta="take"))
    case = "has no training labels: a student learns from queries alone; some are made of its passages"
    return recipe, f"{name} {case}"


def training_data(data: Dataset, recipe: Recipe, generated: Path | None = None, progress: Progress = SILENT) -> Dataset:
    """The collection as a recipe trains on it: with pseudo-queries where it has no training labels.

    ``generated`` is where the queries of ``pseudo.generator`` are kept; None: it is not asked.
    """
    model, generate = recipe.pseudo.generator, None
    if model and generated is not None:
        how: dict[str, Any] = {"device": recipe.encoder.device, "progress": progress}
        generate = functools.partial(generate_queries, model=model, out=generated, **how)
    return with_training_queries(data, recipe.pseudo, holdout=recipe.data.holdout, seed=recipe.seed, generate=generate)


def _sampled(
    hybrid: Hybrid, data: Dataset, said: Mapping[tuple[str, str], bool | None]
) -> tuple[Views, npt.NDArray[np.int64]] | None:
    """Views of the pairs that were drawn at random and judged, one to a line, and what people said of them."""
    held = [(query, passage, answer) for (query, passage), answer in sorted(said.items()) if answer is not None]
    if not held:
        return None
    rows = data.passages.ids.rows([passage for _, passage, _ in held]).reshape(-1, 1)
    views = hybrid.views([data.queries[query] for query, _, _ in held], POOL, also=rows)
    return views, np.where(views.rows == rows, np.array([[int(answer)] for _, _, answer in held]), -1)


def uses_checkpoint(recipe: Recipe) -> bool:
    """Whether a recipe's model is a late-interaction checkpoint that serves as θ without training."""
    if recipe.train.theta != "auto":
        return recipe.train.theta == "take"
    return is_late_interaction(resolve_model(recipe.encoder.model))


def made_queries(recipe: Recipe, system: System, labelled: int) -> int:
    """Queries made of the passages that teach a system: one without labels, and a two-view student beside a few."""
    few = system.teacher_name == "views" and labelled < recipe.pseudo.queries
    return round((1 - recipe.data.holdout) * recipe.pseudo.queries) if system.unlabelled or few else 0


def paper_settings(recipe: Recipe) -> DistilSettings:
    """How the paper trained its cross-encoder rows: pairs, KL at T = 0.25 and 0.75 × in-batch cross-entropy.

    As many passages per step as every other student has.
    """
    settings = recipe.distil
    return dataclasses.replace(
        settings,
        passages=2,
        batch_queries=max(1, settings.batch_queries * settings.passages // 2),
        candidates=recipe.train.candidates,
        scope="group",
        temperature=recipe.train.temperature,
        teacher_temperature=0.25,
        teacher_scale="raw",
        floor="none",
        hard_weight=0.75,
    )


def cross_encoder(
    model: str, data: Dataset, recipe: Recipe, engine: Engine, cache: Path, progress: Progress
) -> CrossEncoderTeacher:
    """A cross-encoder that reads pairs of a collection, on the engine, with the scores that ``cache`` holds."""
    length, device = recipe.cross_encoder.max_length, recipe.encoder.device
    predictor = None if engine.predictor is None else engine.predictor(model, length, device)
    return CrossEncoderTeacher(
        model, data, max_length=length, device=device, cache=cache, predictor=predictor, progress=progress
    )
