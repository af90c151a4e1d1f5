"""Where everything lies in the folder of a run or study."""

from __future__ import annotations

from pathlib import Path

from colabel.systems import System


class Layout:
    """Where everything lies: in ``out`` what all seeds share, in ``own`` what one seed makes.

    A run has one seed, and both are its folder; the seeds of a study are folders of it.
    """

    def __init__(self, out: Path, own: Path) -> None:
        self.out, self.own, self.rankings = out, own, out / "rankings"
        self.data, self.encoder, self.bm25 = out / "data", out / "start", out / "bm25"
        self.plain_index, self.sweep, self.evaluation = out / "zero-shot", out / "sweep", out / "evaluation.json"
        self.theta, self.index, self.knowledge = own / "theta", own / "index", own / "knowledge"
        self.pairs, self.dev_ranking = own / "pairs", own / "rankings" / "dev"
        self.probability, self.lessons = own / "probability", own / "lessons"
        self.unjudged, self.generated = own / "unjudged", out / "generated"
        self.live = own / "live"

    @classmethod
    def of(cls, out: Path, seed: int | None = None) -> Layout:
        """The layout of a run, or of one seed of a study."""
        return cls(out, out if seed is None else out / f"seed-{seed}")

    def bm25_ranking(self, split: str) -> Path:
        """BM25's ranking of a split's queries."""
        return self.rankings / f"bm25-{split}"

    def run(self, name: str) -> Path:
        """A system's ranking of the test queries."""
        return self.out / "runs" / name

    def cross_encoder(self, number: int) -> Path:
        """A cross-encoder that was trained from the labels."""
        return self.own / "cross-encoders" / str(number)

    def labels(self, system: System) -> Path:
        """A teacher's labels."""
        return self.own / "labels" / system.made_as

    def model(self, system: System) -> Path:
        """A student's checkpoint."""
        return self.own / "students" / system.made_as / "model"

    def student_index(self, system: System) -> Path:
        """The collection indexed by a student; by θ where its query side alone was trained."""
        return self.index if system.query_side else self.own / "students" / system.made_as / "index"

    def hybrid(self, name: str) -> Path:
        """The weight of BM25 in a hybrid, and that of its memory."""
        return self.own / "hybrid" / name

    def memory(self, index: Path) -> Path:
        """The labelled training queries, as the model of an index reads them."""
        return self.own / "memory" / index.relative_to(self.own)


PLACES = (
    *("data", "bm25", "sweep", "theta", "index", "start", "zero-shot", "knowledge", "pairs", "rankings", "runs"),
    *("cross-encoders", "labels", "lessons", "students", "bootstrap", "generated", "hybrid", "memory", "probability"),
    *("passages", "unjudged", "live", "curve", "seed-*", "versions", "verdicts", "collections"),
)
"""Names of the folders that a run or study may hold."""
