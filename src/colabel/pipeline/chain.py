"""The paper's stages for one seed: θ → index → knowledge → labels → student → index."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from colabel.collective import Knowledge, collect, open_knowledge
from colabel.data.splits import DEV, TRAIN, stable_fraction
from colabel.index import Index
from colabel.labels import Labels, label, open_labels
from colabel.pipeline.checks import check_run, check_system, check_training
from colabel.pipeline.once import MadeOnce
from colabel.pipeline.systems import System, cross_encoder_count
from colabel.pipeline.workbench import Workbench
from colabel.ranking import LateInteraction, Ranking, rank
from colabel.settings import DistilSettings
from colabel.teachers import (
    CollectiveTeacher,
    SelfTeacher,
    Teacher,
    TeacherChoice,
    make_teacher,
)
from colabel.train import (
    AskedTeacher,
    DevPool,
    DrawnScores,
    Groups,
    HardLabels,
    StoredScores,
    Target,
    TrainedModel,
    describe_collective,
    dev_pool,
    distil,
    groups_for,
    is_main_process,
    main_process_first,
    pool_from_ranking,
    train_teacher,
)
from colabel.train.cross_encoder import train_cross_encoder
from colabel.train.fit import check_device
from colabel.train.reranking import rerank_quality

log = logging.getLogger(__name__)

DEV_QUERIES = 30
"""Dev queries on which cross-encoders are compared with θ, at most."""
CHOOSING_QUERIES = 200
"""Dev queries by which one of several students is chosen, where there are so many."""


@dataclasses.dataclass(frozen=True)
class StudentSettings:
    """How one student is trained: [distil], and ε of uniform smoothing."""

    distil: DistilSettings
    smoothing: float


class Chain:
    """All stages of one seed in a folder; each is made when it is first asked for and reused afterwards.

    Every student starts from the same θ and sees the same groups of passages in the same order, so that nothing but
    the target differs between two of them. Of several processes that train together the first makes the stages; the
    others open what it made, and so neither wait for its locks nor start workers of their own.
    """

    def __init__(
        self, bench: Workbench, out: Path, seed: int, *, settings: Callable[[System], StudentSettings] | None = None
    ) -> None:
        self.bench, self.out, self.seed = bench, out, seed
        self._settings = settings or self.own_settings
        self.recipe, self.progress = bench.recipe, bench.progress
        self._targets: dict[str, Target] = {}
        self._trained: dict[int, Path] = {}
        self._untrained: dict[int, Exception] = {}
        self._reranked: list[str] = []

    @MadeOnce
    def theta(self) -> Path:
        """θ: trained from hard labels against BM25's negatives, or the recipe's own late-interaction checkpoint."""
        if self.bench.takes_teacher:
            return self.bench.start
        settings = self.recipe.train
        trained = train_teacher(
            self.bench.dataset,
            self.bench.start,
            self.bench.bm25_ranking(TRAIN, settings.candidates),
            self.out / "theta",
            settings=settings,
            seed=self.seed,
            dev=self.bench.bm25_dev_pool,
            device=self.recipe.encoder.device,
            batch_tokens=self.recipe.encoder.batch_tokens,
            progress=self.progress,
        )
        return trained.folder

    @MadeOnce
    def index(self) -> Index:
        """The collection indexed by θ."""
        if not is_main_process():
            return Index.open(self.out / "index")
        return self.bench.build_index(self.out / "index", str(self.theta))

    @MadeOnce
    def knowledge(self) -> Knowledge:
        """θ's ranking of the training queries and their collective knowledge."""
        if not is_main_process():
            return open_knowledge(self.out / "knowledge", self.index)
        collective = self.recipe.collective
        depth = max(self.recipe.labels.candidates, collective.feedback_passages)
        return collect(
            self.bench.dataset,
            self.index,
            self.out / "knowledge",
            settings=collective,
            depth=depth,
            seed=self.seed,
            progress=self.progress,
        )

    @MadeOnce
    def groups(self) -> Groups:
        """The queries and passages of every step, the same for all students."""
        settings = self.recipe.distil
        depth = min(settings.candidates, self.recipe.labels.candidates)  # what is not labelled teaches nothing
        pool = pool_from_ranking(self.bench.dataset, self.knowledge.ranking, depth=depth)
        scorer = None if settings.mining == "none" else SelfTeacher(self.index, self.knowledge.queries)
        return groups_for(pool, settings, self.seed, scorer)

    @property
    def paper_settings(self) -> DistilSettings:
        """How the paper trained its cross-encoder rows: pairs, KL at T = 0.25 and 0.75 × in-batch cross-entropy.

        As many passages a step as every other student has.
        """
        settings = self.recipe.distil
        return dataclasses.replace(
            settings,
            passages=2,
            batch_queries=max(1, settings.batch_queries * settings.passages // 2),
            candidates=self.recipe.train.candidates,
            mining="none",
            scope="group",
            temperature=self.recipe.train.temperature,
            teacher_temperature=0.25,
            teacher_scale="raw",
            floor="none",
            hard_weight=0.75,
            hard_scope="batch",
        )

    @cached_property
    def bm25_groups(self) -> Groups:
        """Pairs with BM25's negatives, for the rows that the paper trained from the plain encoder."""
        ranking = self.bench.bm25_ranking(TRAIN, self.recipe.train.candidates)
        pool = pool_from_ranking(self.bench.dataset, ranking, depth=self.recipe.train.candidates)
        return groups_for(pool, self.paper_settings, self.seed)

    @cached_property
    def dev_ranking(self) -> Ranking | None:
        """θ's ranking of the dev queries."""
        if DEV not in self.bench.dataset.splits:
            return None
        queries = self.bench.dataset.split_queries(DEV)
        out = self.out / "rankings" / "dev"
        depth = self.recipe.distil.evaluate_depth
        return rank(
            LateInteraction(self.index, "theta", progress=self.progress),
            queries,
            out,
            depth=depth,
            progress=self.progress,
        )

    @cached_property
    def dev_pool(self) -> DevPool | None:
        """θ's top passages of dev queries, on which students are evaluated while they are trained."""
        settings = self.recipe.distil
        if not settings.evaluate_every or self.dev_ranking is None:
            return None
        return dev_pool(
            self.bench.dataset, self.dev_ranking, queries=settings.evaluate_queries, depth=settings.evaluate_depth
        )

    @cached_property
    def choosing_pool(self) -> DevPool | None:
        """What trained students are compared on to choose one: more dev queries than while they are trained."""
        settings = self.recipe.distil
        if self.dev_ranking is None:
            return None
        queries = max(settings.evaluate_queries, CHOOSING_QUERIES)
        return dev_pool(self.bench.dataset, self.dev_ranking, queries=queries, depth=settings.evaluate_depth)

    def cross_encoders(self, system: System) -> tuple[Path, ...]:
        """The cross-encoders that teach a system: all of an ensemble, else the first."""
        return tuple(map(self._cross_encoder, range(cross_encoder_count(system, self.recipe))))

    def _cross_encoder(self, number: int) -> Path:
        """One of the recipe's checkpoints, or one that is trained from the same labels on θ's hard negatives."""
        settings = self.recipe.cross_encoder
        if settings.checkpoints:
            return Path(settings.checkpoints[number])
        if number in self._untrained:
            raise self._untrained[number]
        if number not in self._trained:
            self._trained[number] = self._train_cross_encoder(number)
        return self._trained[number]

    def _train_cross_encoder(self, number: int) -> Path:
        settings = self.recipe.cross_encoder
        try:
            return train_cross_encoder(
                self.bench.dataset,
                self.knowledge.ranking,
                settings.models[number],
                self.out / "cross-encoders" / str(number),
                settings=settings,
                seed=self.seed + number,
                device=self.recipe.encoder.device,
                progress=self.progress,
            )
        except Exception as error:  # rows that need it do not try again
            self._untrained[number] = error
            raise

    def teacher(self, system: System) -> Teacher:
        """The teacher of a student's labels."""
        if system.target == "collective":
            return CollectiveTeacher(self.knowledge, beta=system.beta)
        models = tuple(map(str, self.cross_encoders(system)))
        choice = TeacherChoice(
            system.target,
            models=models,
            parts=("collective", "cross-encoder") if system.target == "mixed" else (),
            scores=Path(self.recipe.labels.scores) if system.target == "scores" else None,
            device=self.recipe.encoder.device,
            cache=self.out / "pairs" if models else None,
        )
        return make_teacher(
            choice,
            self.bench.dataset,
            knowledge=self.knowledge,
            collective=self.recipe.collective,
            labels=self.recipe.labels,
            cross_encoder=self.recipe.cross_encoder,
            predictor=self.bench.engine.predictor if is_main_process() else None,
            progress=self.progress,
        )

    def labels(self, system: System) -> Labels:
        """A teacher's labels; a cross-encoder scores only the pairs that training draws."""
        if not is_main_process():
            return open_labels(self.out / "labels" / system.made_as)
        only = self.groups.pairs() if system.needs_cross_encoder else None
        for found in self.cross_encoder_quality(system):
            log.info("%s", found)
        return label(
            self.knowledge,
            self.bench.dataset,
            self.teacher(system),
            self.out / "labels" / system.made_as,
            settings=self.recipe.labels,
            only=only,
            progress=self.progress,
        )

    def target(self, system: System) -> Target:
        """What a student learns from, made once: a dear teacher is not asked again, by no process of several."""
        if system.made_as not in self._targets:
            self._targets[system.made_as] = self._make_target(system)
        return self._targets[system.made_as]

    def _make_target(self, system: System) -> Target:
        if system.target == "hard":
            return HardLabels()
        if system.target == "uniform":
            return HardLabels(self.recipe.labels.smoothing)
        if system.from_plain:  # BM25's negatives are no candidates of the labels
            return DrawnScores(self.teacher(system), self.bm25_groups)
        labels, whole_batch = self.labels(system), self.recipe.distil.scope == "batch"
        asked = system.target in ("collective", "self") and self.recipe.distil.others == "teacher"
        if whole_batch and asked:
            return AskedTeacher(self.teacher(system))
        return StoredScores(labels, others_irrelevant=whole_batch)

    def own_settings(self, system: System) -> StudentSettings:
        """How a student is trained where nothing else was found to be better on dev."""
        distil = self.paper_settings if system.from_plain else self.recipe.distil
        return StudentSettings(distil, self.recipe.labels.smoothing)

    def student(self, system: System) -> TrainedModel:
        """A student, trained from θ."""
        check_system(system, self.recipe)
        return self.train_student(system, self._settings(system), self.student_folder(system) / "model")

    def train_student(self, system: System, settings: StudentSettings, out: Path) -> TrainedModel:
        """Train a student with some settings; the passages that it sees are those of the recipe's."""
        about: dict[str, Any] = {"system": system.made_as}
        if system.target in ("collective", "mixed"):
            about |= describe_collective(self.recipe.collective, beta=system.beta)
        if system.needs_cross_encoder:
            models = self.recipe.cross_encoder.checkpoints or self.recipe.cross_encoder.models
            about["cross-encoders"] = ", ".join(models[: cross_encoder_count(system, self.recipe)])
        if system.target == "scores":
            about["scores"] = Path(self.recipe.labels.scores).name
        return distil(
            self.bench.dataset,
            self.bench.start if system.from_plain else self.theta,
            self.bm25_groups if system.from_plain else self.groups,
            HardLabels(settings.smoothing) if system.target == "uniform" else self.target(system),
            out,
            settings=settings.distil,
            seed=self.seed,
            dev=self.dev_pool,
            device=self.recipe.encoder.device,
            batch_tokens=self.recipe.encoder.batch_tokens,
            about=about,
            progress=self.progress,
        )

    def train_together(self, system: System | None = None) -> Path:
        """θ, or a student, trained by all processes that ``torchrun`` started; whatever comes before by the first.

        One process alone does all of it, as ever.
        """
        if system is None:
            check_training(self.recipe, student=False)
        else:
            check_run(system, self.recipe)
        cpu = check_device(self.recipe.encoder.device) == "cpu"
        with main_process_first(cpu=cpu):
            _make(self.bench.start, self.bench.bm25_dev_pool)
            if not self.bench.takes_teacher:
                self.bench.bm25_ranking(TRAIN, self.recipe.train.candidates)
        theta = self.theta
        if system is None:
            return theta
        with main_process_first(cpu=cpu):
            _make(self.dev_pool, self.bm25_groups if system.from_plain else self.groups, self.target(system))
        return self.student(system).folder

    def cross_encoder_quality(self, system: System) -> list[str]:
        """Whether each cross-encoder of a system beats θ at ranking θ's top passages of some dev queries again."""
        folders = self.cross_encoders(system)
        if not folders or self.dev_ranking is None:
            return []
        dataset = self.bench.dataset
        drawn = sorted(dataset.positives(DEV), key=lambda query_id: stable_fraction(query_id, "re-ranked"))
        labels = {query_id: dataset.labels(DEV)[query_id] for query_id in drawn[:DEV_QUERIES]}
        if not labels:
            return []
        for number in range(len(self._reranked), len(folders)):
            teacher = self.bench.cross_encoder(str(folders[number]), self.out / "pairs")
            found = rerank_quality(teacher, self.dev_ranking, labels, relevant_from=dataset.relevant_from)
            self._reranked.append(f"Cross-encoder {number + 1} {found.verdict('θ')}")
        return self._reranked[: len(folders)]

    def student_index(self, system: System) -> Index:
        """The collection indexed by a student."""
        student = self.student(system)
        return self.bench.build_index(self.student_folder(system) / "index", str(student.folder))

    def student_folder(self, system: System) -> Path:
        """Where a student's model and index are."""
        return self.out / "students" / system.made_as


def _make(*stages: object) -> None:
    """Nothing: stages are made by being asked for."""
