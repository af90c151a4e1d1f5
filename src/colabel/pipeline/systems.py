"""The systems that the paper compares, by the names that tables and files use."""

from __future__ import annotations

import dataclasses
import re

from colabel.errors import SettingsError, UsageError
from colabel.settings import Recipe

_BETA = re.compile(r"(collective|colbert-prf-rerank|colbert-prf)-(\d+(?:\.\d+)?(?:e-\d+)?)")
_TITLES = {
    "bm25": "BM25",
    "zero-shot": "plain encoder, untrained",
    "colbert": "ColBERT (θ)",
    "colbert-hn": "ColBERT-HN",
    "smoothing": "uniform smoothing",
    "self-kd": "Self-KD",
    "ce-kd": "KD, one cross-encoder",
    "ce3-kd": "KD, ensemble of cross-encoders",
    "mixed": "mixed (collective and cross-encoder)",
    "scores-kd": "KD, file of scores",
    "ce-kd-paper": "KD, one cross-encoder, as the paper",
    "ce3-kd-paper": "KD, ensemble, as the paper",
}
_TARGETS = {
    "colbert-hn": "hard",
    "smoothing": "uniform",
    "self-kd": "self",
    "ce-kd": "cross-encoder",
    "ce3-kd": "ensemble",
    "mixed": "mixed",
    "scores-kd": "scores",
    "ce-kd-paper": "cross-encoder",
    "ce3-kd-paper": "ensemble",
}
SYSTEMS = (*_TITLES, "collective-B", "colbert-prf-B", "colbert-prf-rerank-B")
"""All names; B stands for a number, β."""


@dataclasses.dataclass(frozen=True)
class System:
    """A row of the comparison.

    Attributes:
        slug: its name in files.
        kind: 'baseline' (needs no student), 'student', or 'search' (collective knowledge at search time).
        target: what a student learns: hard, uniform, self, cross-encoder, ensemble, collective, mixed or scores.
        beta: β of a collective row.
        rerank: whether a search row only re-ranks.
    """

    slug: str
    title: str
    kind: str
    target: str = ""
    beta: float | None = None
    rerank: bool = False

    @property
    def from_plain(self) -> bool:
        """Whether it is trained as the paper trained its cross-encoder rows: from the plain encoder, BM25 negatives."""
        return self.slug.endswith("-paper")

    @property
    def needs_cross_encoder(self) -> bool:
        """Whether its labels come, in part, from cross-encoders."""
        return self.target in ("cross-encoder", "ensemble", "mixed")


def parse_system(slug: str) -> System:
    """A system by its name.

    >>> parse_system("collective-0.5").beta
    0.5
    """
    if slug in _TITLES:
        kind = "student" if slug in _TARGETS else "baseline"
        return System(slug, _TITLES[slug], kind, _TARGETS.get(slug, ""))
    match = _BETA.fullmatch(slug)
    if match is None:
        raise SettingsError(f"there is no system '{slug}'; expected one of {', '.join(SYSTEMS)} (B a number, β)")
    name, beta = match.group(1), float(match.group(2))
    if name == "collective":
        return System(slug, f"collective self-KD (β = {beta:g})", "student", "collective", beta)
    rerank = name.endswith("rerank")
    title = f"ColBERT-PRF {'re-ranker' if rerank else 'ranker'} (β = {beta:g})"
    return System(slug, title, "search", beta=beta, rerank=rerank)


def check_system(system: System, recipe: Recipe) -> None:
    """Refuse what cannot work before anything is trained for it."""
    settings = recipe.cross_encoder
    if system.target == "scores" and not recipe.labels.scores:
        raise UsageError("the teacher 'scores' needs a file of scores; name it: labels.scores = \"FILE\"")
    if system.target == "ensemble" and len(settings.checkpoints or settings.models) < 2:
        raise UsageError("the ensemble needs several cross-encoders; name them in 'cross_encoder.models'")
    if system.target == "scores" and recipe.distil.scope == "batch":
        raise UsageError("a file of scores does not hold every pair of a step; use distil.scope = 'group' with it")
    if system.needs_cross_encoder and not system.from_plain and recipe.distil.scope == "batch":
        raise UsageError(
            "'distil.scope' is 'batch', and a cross-encoder would have to score every query with every passage of a "
            "step; use scope 'group' for cross-encoder teachers"
        )


def collective_slug(beta: float) -> str:
    """The name of collective self-KD at a β.

    >>> collective_slug(1.0)
    'collective-1'
    """
    short = f"{beta:g}"
    return f"collective-{short if float(short) == beta else repr(beta)}"
