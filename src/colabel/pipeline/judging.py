"""Judges of a run: what they go by, a program that judges, and what becomes of verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colabel.data.splits import stable_fraction
from colabel.errors import UsageError
from colabel.labels import decide, of_people
from colabel.labels.programs import TIMEOUT, Question, ask_program
from colabel.pipeline.folder import Run
from colabel.progress import SILENT, Progress

GUIDELINES = "guidelines.md"
"""What judges should go by, in the folder of a run."""
OVERLAP = 200
"""Pairs that people decided and a program is asked about as well, at most."""


def guidelines(run: Run, path: Path | None = None) -> str:
    """What judges should go by: a file, or else ``guidelines.md`` in the folder; empty where there is none."""
    place = path or run.verdict_store.path.parents[1] / GUIDELINES
    if path is None and not place.exists():
        return ""
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{place} cannot be read as text ({error})") from None


def ask_judge(
    run: Run,
    command: str,
    judge: str,
    *,
    limit: int = 100,
    text: str = "",
    timeout: float = TIMEOUT,
    progress: Progress = SILENT,
) -> int:
    """Let a program judge as ``judge``, by the guidelines ``text``; how many verdicts are new.

    It is asked about pairs that people have decided, :data:`OVERLAP` at most, so that its agreement with them is known,
    and about the ``limit`` best suggestions. What it has judged already is not asked again, so an interrupted call is
    repeated to go on.
    """
    everything, data = run.verdicts(programs=True), run.dataset
    said = {(one.query_id, one.passage_id) for one in everything if one.judge == judge}
    judged = sorted(pair for pair, one in decide(of_people(everything)).items() if one.relevant is not None)
    overlap = sorted(judged, key=lambda pair: stable_fraction(pair[1], pair[0]))[:OVERLAP]
    best = [(one.query_id, one.passage_id) for one in run.missing(limit)] if limit else []
    queries = {**{one.query_id: one.query for one in everything}, **data.queries}  # also those that somebody typed
    questions = []
    for query_id, passage_id in dict.fromkeys([*overlap, *best]):
        row = data.passages.ids.row(passage_id)
        if (query_id, passage_id) not in said and row >= 0:
            passage = data.passages[row]
            questions.append(Question(query_id, passage_id, queries[query_id], passage.title, passage.text))
    if not questions:
        return 0
    how: Any = {"guidelines": text, "relevant_from": data.relevant_from, "timeout": timeout}
    task, kept = progress.start(f"{judge} judges", len(questions), "pairs"), 0
    try:
        for verdict in ask_program(command, questions, judge, **how):
            run.verdict_store.add(verdict)
            kept += 1
            task.advance()
    finally:
        task.close()
    return kept


def use_verdicts(run: Run) -> tuple[str, ...]:
    """The command that makes use of verdicts: a run is trained again; those of a study become a label file."""
    folder = str(run.folder)
    return ("labels", folder, "--with-labels", "--out", "train.qrels") if run.of_study else ("run", folder)
