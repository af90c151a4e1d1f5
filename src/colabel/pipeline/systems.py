"""The systems that the paper compares, by the names that tables and files use."""

from __future__ import annotations

import dataclasses
import re

from colabel.errors import SettingsError
from colabel.settings import Recipe

_BETA = re.compile(r"(collective|colbert-prf-rerank|colbert-prf)-(tuned|\d+(?:\.\d+)?(?:e-\d+)?)")
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
"""All names; B stands for a number, β, or for 'tuned'."""
TUNED = "tuned"


@dataclasses.dataclass(frozen=True)
class System:
    """A row of the comparison.

    Attributes:
        slug: its name in files.
        kind: 'baseline' (needs no student), 'student', or 'search' (collective knowledge at search time).
        target: what a student learns: hard, uniform, self, cross-encoder, ensemble, collective, mixed or scores.
        beta: β of a collective row; None in others, and where it is still to be tuned.
        rerank: whether a search row only re-ranks.
    """

    slug: str
    title: str
    kind: str
    target: str = ""
    beta: float | None = None
    rerank: bool = False

    @property
    def tuned(self) -> bool:
        """Whether its β is the best on dev."""
        return self.slug.endswith(f"-{TUNED}")

    def with_beta(self, beta: float) -> System:
        """The same row with the β that was found on dev."""
        return dataclasses.replace(self, beta=beta, title=_collective_title(self, f"β = {beta:g}, tuned"))

    @property
    def made_as(self) -> str:
        """The slug of what is trained for it: a student whose β was tuned is the student of that β."""
        return collective_slug(self.beta) if self.tuned and self.target and self.beta is not None else self.slug

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

    >>> parse_system("collective-0.50").slug
    'collective-0.5'
    """
    if slug in _TITLES:
        kind = "student" if slug in _TARGETS else "baseline"
        return System(slug, _TITLES[slug], kind, _TARGETS.get(slug, ""))
    match = _BETA.fullmatch(slug)
    if match is None:
        raise SettingsError(
            f"there is no system '{slug}'; expected one of {', '.join(SYSTEMS)} (B a number, β, or 'tuned')"
        )
    name, wanted = match.groups()
    beta = None if wanted == TUNED else float(wanted)
    slug = f"{name}-{wanted if beta is None else _short(beta)}"  # 1.0 is 1: one system has one name
    target = "collective" if name == "collective" else ""
    system = System(slug, slug, "student" if target else "search", target, beta, name.endswith("rerank"))
    return dataclasses.replace(system, title=_collective_title(system, "β tuned" if beta is None else f"β = {beta:g}"))


def _collective_title(system: System, about: str) -> str:
    if system.kind == "student":
        return f"collective self-KD ({about})"
    return f"ColBERT-PRF {'re-ranker' if system.rerank else 'ranker'} ({about})"


def cross_encoder_count(system: System, recipe: Recipe) -> int:
    """How many cross-encoders teach a row: all of the recipe's, the first, or none."""
    if not system.needs_cross_encoder:
        return 0
    return len(recipe.cross_encoder.checkpoints or recipe.cross_encoder.models) if system.target == "ensemble" else 1


def collective_slug(beta: float) -> str:
    """The name of collective self-KD at a β.

    >>> collective_slug(1.0)
    'collective-1'
    """
    return f"collective-{_short(beta)}"


def _short(beta: float) -> str:
    short = f"{beta:g}"
    return short if float(short) == beta else repr(beta)
