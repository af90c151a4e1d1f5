"""How the teacher of each system is made: one small function per teacher, by its name.

Libraries are imported where they are needed, so that asking the registry for names stays cheap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from colabel.errors import UsageError
from colabel.settings import CollectiveSettings

if TYPE_CHECKING:
    from colabel.collective import Knowledge
    from colabel.data import Dataset
    from colabel.progress import Progress
    from colabel.ranking import Bm25
    from colabel.teachers import CrossEncoderTeacher, Teacher


@dataclasses.dataclass(frozen=True)
class Sources:
    """What teachers are made from.

    Attributes:
        knowledge: collective knowledge of the training queries.
        collective: β and its scale.
        cross_encoders: as many as the system learns from.
        scores: the score file.
        bm25: opens BM25 over the collection; it is built where it is not there.
        own: a teacher object that the user gave.
    """

    dataset: Dataset
    knowledge: Knowledge
    collective: CollectiveSettings
    cross_encoders: tuple[CrossEncoderTeacher, ...]
    scores: Path | None
    bm25: Callable[[], Bm25]
    progress: Progress
    own: Teacher | None = None


def collective(sources: Sources) -> Teacher:
    """Collective scores: φ and β times the match with the collective centroids (Eq. 6)."""
    from colabel.teachers import CollectiveTeacher

    settings = sources.collective
    return CollectiveTeacher(sources.knowledge, beta=settings.beta, scale=settings.expansion_scale)


def views(sources: Sources) -> Teacher:
    """Vectors and words, from the query and from its labelled passages, with weights fitted where labels allow it."""
    from colabel.teachers.views import fitted_teacher

    return fitted_teacher(sources.knowledge, sources.bm25(), sources.dataset)


def neighbours(sources: Sources) -> Teacher:
    """One-shot labels: nearness to the labelled passages, found by BM25."""
    from colabel.teachers.neighbours import NeighbourTeacher
    from colabel.teachers.views import labelled_rows

    known = sources.knowledge
    return NeighbourTeacher(known.index, sources.bm25(), labelled_rows(sources.dataset, known.index, known.split))


def self_distillation(sources: Sources) -> Teacher:
    """θ's own scores φ."""
    from colabel.teachers import SelfTeacher

    return SelfTeacher(sources.knowledge.index, sources.knowledge.queries)


def cross_encoder(sources: Sources) -> Teacher:
    """One cross-encoder."""
    found = sources.cross_encoders
    if len(found) != 1:
        given = "none was named" if not found else f"{len(found)} were named (their mean is 'ensemble')"
        raise UsageError(f"the teacher 'cross-encoder' needs one model, and {given}; add --model FOLDER")
    return found[0]


def ensemble(sources: Sources) -> Teacher:
    """The mean of several cross-encoders."""
    from colabel.teachers import MeanTeacher

    found = sources.cross_encoders
    if len(found) < 2:
        raise UsageError(
            f"the teacher 'ensemble' needs two models or more, and {len(found)} were named; add --model FOLDER for each"
        )
    if len({one.fingerprint for one in found}) < len(found):
        raise UsageError("the teacher 'ensemble' was given one model twice; name each once")
    return MeanTeacher(found)


def mixed(sources: Sources) -> Teacher:
    """Collective scores and those of a cross-encoder, standardised and in equal parts."""
    from colabel.teachers import MixedTeacher

    return MixedTeacher(collective(sources), cross_encoder(sources), 0.5)


def score_file(sources: Sources) -> Teacher:
    """The scores of a file."""
    from colabel.teachers import ScoreFileTeacher

    if sources.scores is None:
        raise UsageError("the teacher 'scores' needs a score file; name it: labels.scores = FILE")
    return ScoreFileTeacher(sources.scores, sources.dataset, progress=sources.progress)


def own(sources: Sources) -> Teacher:
    """The object that the user gave."""
    if sources.own is None:
        raise UsageError("the teacher of this run is an object of Python; give it again: run(…, teacher=OBJECT)")
    return sources.own


MAKERS: dict[str, Callable[[Sources], Teacher]] = {
    "self": self_distillation,
    "cross-encoder": cross_encoder,
    "ensemble": ensemble,
    "collective": collective,
    "views": views,
    "bootstrap": views,
    "maxrep": neighbours,
    "mixed": mixed,
    "scores": score_file,
    "own": own,
}
"""By the name of the teacher, as ``run --teacher`` calls it."""
