"""All systems that the paper compares: everything that anybody asks of one stands in its entry here.

To add a system, add an entry. Tables, glossary, estimates, checks and the command line read it from here.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from colabel.errors import SettingsError
from colabel.settings import Recipe
from colabel.systems import students
from colabel.systems.students import Sources

if TYPE_CHECKING:
    from colabel.teachers import Teacher

Group = Literal["baseline", "hard labels", "distilled", "search time"]
Need = Literal[
    "bm25", "plain", "theta", "vectors", "knowledge", "cross-encoder", "cross-encoders", "scores", "smoothing"
]
"""What a system is made from.

bm25: BM25's ranking of the training queries; plain: the encoder before training; theta: the first retriever;
vectors: θ's own vectors score its labels; knowledge: collective knowledge of the training queries; cross-encoder:
the recipe's first; cross-encoders: all of them; scores: the file 'labels.scores';
smoothing: ε, 'labels.smoothing'.
"""
TUNED = "tuned"
"""Stands for β in the slug of a system whose β is the best on dev."""


@dataclasses.dataclass(frozen=True)
class System:
    """One system of the comparison.

    Attributes:
        slug: its name in files and settings; of a family in the registry, the slug without β.
        name: its name in tables, without β.
        about: its line in the glossary.
        teacher_name: what a student learns from, as ``run --teacher`` calls it; empty: not a student.
        seeded: whether it draws at random; one run of a system that does not stands for every seed.
        default, repeated: whether a study has it, and trains it with every seed, unless the recipe names others.
        betas: of a family: the β of its default members; empty for a system without β.
        beta: β of a member; None in others, and where it is still to be tuned.
        rerank: whether a search-time system only ranks the passages of its first search again.
        query_side: whether its student trains the query encoder alone, and searches θ's own index.
        ceiling: whether it learns from the hidden labels too: how much better labels could teach, never a product.
        unlabelled: whether it sees no label and no query but those of test, which only measure it.
        hybrid_of: slug of the system whose vectors it joins with BM25's words; empty: it is no hybrid.
        remembers: whether such a hybrid also has the labels of similar training queries.
        paper: how many times as long as collective self-KD the paper reports: annotation, and all of it.
    """

    slug: str
    name: str
    about: str
    needs: frozenset[Need] = frozenset()
    teacher_name: str = ""
    group: Group = "distilled"
    seeded: bool = True
    default: bool = True
    repeated: bool = False
    betas: tuple[str, ...] = ()
    beta: float | None = None
    tuned: bool = False
    rerank: bool = False
    query_side: bool = False
    ceiling: bool = False
    unlabelled: bool = False
    hybrid_of: str = ""
    remembers: bool = False
    paper: tuple[float, float] | None = None

    @property
    def title(self) -> str:
        """Its name in tables.

        >>> parse_system("collective-0.5").title
        'collective self-KD (β = 0.5)'
        """
        if not self.betas:
            return self.name
        if self.beta is None:
            return f"{self.name} (β tuned)"
        return f"{self.name} (β = {self.beta:g}{', tuned' if self.tuned else ''})"

    @property
    def family(self) -> str:
        """Its slug without β.

        >>> parse_system("colbert-prf-rerank-0.5").family, parse_system("colbert-hn").family
        ('colbert-prf-rerank', 'colbert-hn')
        """
        return self.slug.rsplit("-", 1)[0] if self.betas else self.slug

    @property
    def student(self) -> bool:
        """Whether a student is trained for it."""
        return bool(self.teacher_name)

    @property
    def from_plain(self) -> bool:
        """Whether its student starts from the plain encoder, as the paper's cross-encoder rows do, and not from θ."""
        return self.student and "plain" in self.needs

    @property
    def teacher(self) -> Callable[[Sources], Teacher] | None:
        """Makes the teacher whose scores its student learns; None: hard labels."""
        return students.MAKERS.get(self.teacher_name)

    @property
    def asked_directly(self) -> bool:
        """Whether its teacher scores any passage from stored vectors, so that a student asks it in every step."""
        return "vectors" in self.needs and not self.needs_cross_encoder

    @property
    def needs_cross_encoder(self) -> bool:
        """Whether its labels come, at least in part, from cross-encoders."""
        return bool(self.needs & {"cross-encoder", "cross-encoders"})

    @property
    def collective(self) -> bool:
        """Whether it learns collective scores and nothing else: the method that others are compared with."""
        return self.student and bool(self.betas)

    @property
    def made_as(self) -> str:
        """The slug of the student that is trained for it: where β was tuned, that of the β which was found."""
        return collective_slug(self.beta) if self.collective and self.tuned and self.beta is not None else self.slug

    def with_beta(self, beta: float) -> System:
        """The same system with the β that was found on dev."""
        return dataclasses.replace(self, beta=beta)

    def cross_encoder_count(self, recipe: Recipe) -> int:
        """How many cross-encoders teach it: all of the recipe's, the first, or none."""
        if "cross-encoders" in self.needs:
            return len(recipe.cross_encoder.checkpoints or recipe.cross_encoder.models)
        return int(self.needs_cross_encoder)


_ONE, _ALL = (2.67, 2.5), (16.0, 8.0)
_BETAS = ("0.5", "1", TUNED)

REGISTRY: tuple[System, ...] = (
    System("bm25", "BM25", "words alone, no model", group="baseline", seeded=False),
    System(
        "zero-shot",
        "plain encoder, untrained",
        "late interaction with the encoder as it is before any training",
        frozenset({"plain"}),
        group="baseline",
        seeded=False,
    ),
    System(
        "colbert",
        "ColBERT (θ)",
        "θ: late interaction trained on the visible labels with BM25's negatives (or a trained model taken as it is); "
        "the start of its students and the source of their hard negatives",
        frozenset({"theta"}),
        group="hard labels",
        repeated=True,
    ),
    System(
        "colbert-hn",
        "ColBERT-HN",
        "θ trained on with the visible labels and negatives from its own top passages; no teacher",
        frozenset({"theta"}),
        "hard",
        group="hard labels",
        repeated=True,
    ),
    System(
        "smoothing",
        "uniform smoothing",
        "as ColBERT-HN, with a share ε of every label spread evenly over the passages of a query",
        frozenset({"theta", "smoothing"}),
        "uniform",
        group="hard labels",
    ),
    System(
        "self-kd",
        "Self-KD",
        "a student of θ that learns θ's own scores φ",
        frozenset({"theta", "vectors"}),
        "self",
        repeated=True,
    ),
    System(
        "ce-kd",
        "KD, one cross-encoder",
        "a student of θ that learns the scores of one cross-encoder",
        frozenset({"theta", "cross-encoder"}),
        "cross-encoder",
        repeated=True,
        paper=_ONE,
    ),
    System(
        "ce3-kd",
        "KD, ensemble of cross-encoders",
        "a student of θ that learns the mean score of all cross-encoders",
        frozenset({"theta", "cross-encoders"}),
        "ensemble",
        paper=_ALL,
    ),
    System(
        "colbert-prf",
        "ColBERT-PRF ranker",
        "θ, not trained further: at search time the query is expanded with the collective centroids of its own top "
        "f_p passages and searched again",
        frozenset({"theta"}),
        group="search time",
        betas=_BETAS,
    ),
    System(
        "colbert-prf-rerank",
        "ColBERT-PRF re-ranker",
        "θ, not trained further: the query is expanded likewise, but only ranks the passages of its first search again",
        frozenset({"theta"}),
        group="search time",
        betas=_BETAS,
        rerank=True,
        default=False,  # it differs from the ranker only beyond the first places
    ),
    System(
        "collective",
        "collective self-KD",
        "a student of θ that learns collective scores: φ and β times how well a passage matches the collective "
        "centroids of the training query; its search costs what θ's does",
        frozenset({"theta", "vectors", "knowledge"}),
        "collective",
        betas=_BETAS,
        repeated=True,
    ),
    System(
        "hn-query",
        "ColBERT-HN, query side",
        "θ's query encoder trained on with the visible labels against lists of candidates; passages stay as indexed",
        frozenset({"theta"}),
        "hard-query",
        group="hard labels",
        query_side=True,
    ),
    System(
        "views",
        "two-view student",
        "θ's query encoder trained on with the visible labels and what vectors and words say of all other candidates, "
        "and where labels are few with queries made of the passages; passages stay as indexed",
        frozenset({"theta", "vectors", "knowledge"}),
        "views",
        query_side=True,
        repeated=True,
    ),
    System(
        "collective-query",
        "collective self-KD, query side",
        "θ's query encoder trained on with the visible labels and collective scores of all other candidates; passages "
        "stay as indexed",
        frozenset({"theta", "vectors", "knowledge"}),
        "collective",
        query_side=True,
        default=False,
    ),
    System(
        "ce-query",
        "KD, one cross-encoder, query side",
        "θ's query encoder trained on with the visible labels and a cross-encoder's scores of all other candidates; "
        "passages stay as indexed",
        frozenset({"theta", "cross-encoder"}),
        "cross-encoder",
        query_side=True,
        default=False,
    ),
    System(
        "maxrep",
        "MaxRep student, query side",
        "θ's query encoder trained on with the visible labels and one-shot labels: the nearest passages of a labelled "
        "one, by BM25; passages stay as indexed",
        frozenset({"theta"}),
        "maxrep",
        query_side=True,
        default=False,
    ),
    System(
        "ceiling",
        "ceiling: all labels, query side",
        "θ's query encoder trained on with the hidden labels as well: what a perfect teacher would reach. No product",
        frozenset({"theta"}),
        "hard-ceiling",
        group="hard labels",
        query_side=True,
        ceiling=True,
        default=False,
    ),
    System(
        "bootstrap",
        "bootstrapped, no labels",
        "the plain encoder's query side trained on queries made of the passages, as a run without any label does; "
        "passages stay as indexed",
        frozenset({"vectors", "knowledge"}),
        "bootstrap",
        query_side=True,
        default=False,
        unlabelled=True,
    ),
    System(
        "hybrid",
        "hybrid θ (with BM25)",
        "θ and BM25 together, standardised per query; the weight of BM25 is fitted on dev",
        frozenset({"theta"}),
        group="search time",
        hybrid_of="colbert",
    ),
    System(
        "memory",
        "hybrid θ (with BM25), remembering",
        "θ and BM25 together, and the labels of similar training queries: what was asked before is answered as it was "
        "then; for a student, with its vectors or those of θ, whichever dev prefers",
        frozenset({"theta"}),
        group="search time",
        default=False,
        hybrid_of="colbert",
        remembers=True,
    ),
    System(
        "mixed",
        "mixed (collective and cross-encoder)",
        "a student of θ that learns collective scores mixed with those of a cross-encoder",
        frozenset({"theta", "vectors", "knowledge", "cross-encoder"}),
        "mixed",
    ),
    System(
        "scores-kd",
        "KD, file of scores",
        "a student of θ that learns the scores of a file",
        frozenset({"theta", "scores"}),
        "scores",
        default=False,
    ),
    System(
        "own-kd",
        "KD, a teacher of your own",
        "a student of θ that learns the scores of a teacher object given in Python",
        frozenset({"theta"}),
        "own",
        default=False,
    ),
    System(
        "ce-kd-paper",
        "KD, one cross-encoder, as the paper",
        "one cross-encoder's scores learned as the paper trains such rows: from the plain encoder, on pairs with "
        "BM25's negatives, with the paper's loss",
        frozenset({"plain", "bm25", "cross-encoder"}),
        "cross-encoder",
        default=False,
        paper=_ONE,
    ),
    System(
        "ce3-kd-paper",
        "KD, ensemble, as the paper",
        "the mean score of all cross-encoders learned as the paper trains such rows",
        frozenset({"plain", "bm25", "cross-encoders"}),
        "ensemble",
        default=False,
        paper=_ALL,
    ),
)

_ENTRIES = {entry.slug: entry for entry in REGISTRY}
_FAMILIES = "|".join(entry.slug for entry in REGISTRY if entry.betas)
_MEMBER = re.compile(rf"({_FAMILIES})-({TUNED}|\d+(?:\.\d+)?(?:e-\d+)?)")

SLUGS = tuple(f"{entry.slug}-B" if entry.betas else entry.slug for entry in REGISTRY)
"""All names; B stands for a number, β, or for 'tuned'."""
OWN = "own"
"""Stands for a teacher object, which only Python can give."""
LESSONS = tuple(
    dict.fromkeys(
        entry.teacher_name
        for entry in REGISTRY
        if entry.student and not entry.ceiling and not entry.unlabelled and entry.teacher_name != OWN
    )
)
"""What ``run --teacher`` calls what a student learns from: the teachers, and hard labels in their forms."""
TEACHERS = tuple(name for name in LESSONS if name in students.MAKERS)
"""What ``label --teacher`` calls the teachers."""
THETA, COLLECTIVE = "colbert", "collective"
DEFAULT_LESSON = "views"
"""What ``run`` teaches where nobody says: minutes on a plain CPU, and the collection is encoded once."""


def parse_system(slug: str) -> System:
    """A system by its slug.

    >>> parse_system("collective-0.50").slug
    'collective-0.5'
    """
    entry = _ENTRIES.get(slug)
    if entry is not None and not entry.betas:
        return entry
    for kind in (entry for entry in REGISTRY if entry.hybrid_of and slug.startswith(f"{entry.slug}-")):
        inner = parse_system(slug.removeprefix(f"{kind.slug}-"))
        name = kind.name.replace("θ (with BM25)", inner.title)
        about = kind.about.replace("θ", inner.title, 1)
        return dataclasses.replace(kind, slug=f"{kind.slug}-{inner.slug}", name=name, about=about, hybrid_of=inner.slug)
    match = _MEMBER.fullmatch(slug)
    if match is None:
        raise SettingsError(
            f"there is no system '{slug}'; expected one of {', '.join(SLUGS)} (B a number, β, or 'tuned')"
        )
    family, wanted = match.groups()
    beta = None if wanted == TUNED else float(wanted)
    slug = f"{family}-{wanted if beta is None else _short(beta)}"  # 1.0 is 1: one system has one slug
    return dataclasses.replace(_ENTRIES[family], slug=slug, beta=beta, tuned=beta is None)


def default_slugs() -> tuple[str, ...]:
    """The systems of a study that names none."""
    own = ([f"{one.slug}-{beta}" for beta in one.betas] or [one.slug] for one in REGISTRY if one.default)
    return (*itertools.chain.from_iterable(own), "hybrid-views", "memory-views")


def systems_of(recipe: Recipe) -> list[System]:
    """The systems of a study, in the order of the recipe."""
    return [parse_system(slug) for slug in recipe.study.systems or default_slugs()]


def repeated_in(recipe: Recipe) -> frozenset[str]:
    """Slugs of the systems that a study trains with every seed: of a family the first member, unless named."""
    own = (f"{one.slug}-{one.betas[0]}" if one.betas else one.slug for one in REGISTRY if one.repeated)
    return frozenset(parse_system(slug).slug for slug in recipe.study.repeated or own)


def student_of(teacher: str, recipe: Recipe) -> System:
    """The system whose student ``run --teacher`` trains; the slug of one names it as well."""
    if teacher == COLLECTIVE:
        return parse_system(collective_slug(recipe.collective.beta))
    named = next((one.slug for one in REGISTRY if one.teacher_name == teacher), teacher)
    return parse_system(named)


def for_student(recipe: Recipe, system: System) -> Recipe:
    """The recipe of a run: where only the query side is trained, 'train.theta = "auto"' takes the encoder as it is."""
    if not system.query_side or recipe.train.theta != "auto":
        return recipe
    return dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, theta="take"))


def named_teacher(name: str, sources: Sources) -> Teacher:
    """The teacher that ``label --teacher`` names, one of ``TEACHERS``."""
    return students.MAKERS[name](sources)


def collective_slug(beta: float) -> str:
    """The slug of collective self-KD at a β.

    >>> collective_slug(1.0)
    'collective-1'
    """
    return f"{COLLECTIVE}-{_short(beta)}"


def _short(beta: float) -> str:
    short = f"{beta:g}"
    return short if float(short) == beta else repr(beta)
