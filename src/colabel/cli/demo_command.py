"""``colabel demo``: what it prints, part by part, for somebody who knows neither the paper nor us."""

from __future__ import annotations

import json
import logging
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from colabel.cli import options
from colabel.cli.options import FOLDER, RUN_OUT, next_command
from colabel.cli.output import emit, table, terminal_progress

if TYPE_CHECKING:
    from colabel.findings import StudyDocument
    from colabel.findings.records import SystemResult
    from colabel.pipeline.demo import Answers, DemoResult, Indexed, Part, Suspected, Training

BASELINE, UNLABELLED = "colbert", "bootstrap"
TOLD_FILE = "demo.json"
"""All that a finished demo printed: told again without loading anything."""
_SEARCHES = {"bm25": "words (BM25)", "colbert": "vectors", "hybrid": "both (hybrid)"}
_ROWS = {
    "bm25": "words alone (BM25)",
    "colbert": "BEFORE: vectors, not trained",
    "hn-query": "trained on the visible labels alone",
    "views": "AFTER: trained on visible and suspected labels",
    "ceiling": "ceiling: trained on the hidden labels as well",
    "bootstrap": "without any label: trained on the passages alone",
    "hybrid": "BEFORE, words and vectors together (hybrid)",
    "hybrid-views": "AFTER, words and vectors together (hybrid)",
    "hybrid-bootstrap": "without any label, words and vectors together (hybrid)",
}
"""Rows of the table, for somebody who has not read the paper."""
_MEASURES = {
    "nDCG": "how high the right passages stand among the first {}, from 0 to 1",
    "RR": "1 divided by the place of the first right passage, 0 if it is not among the first {}",
    "R": "share of the right passages that are among the first {}",
}


@click.command("demo")
@click.option("--out", default=Path("demo"), show_default=True, type=FOLDER, help=RUN_OUT)
@click.option(
    "--minutes",
    type=float,
    help="How long it may take: collection and training are chosen to fit.  [default: 5, or as before in this folder]",
)
@options.set_option
def demo_command(out: Path, minutes: float | None, overrides: tuple[str, ...]) -> None:
    """Show the method on the documentation of the Python libraries that are installed. No download.

    Indexes them, searches by words, by vectors and by both, finds relevance labels that were hidden, trains on what it
    found, compares before and after, and writes a page. Examples:

      colabel demo --out demo

      colabel demo --minutes 20 --out longer

      colabel demo --minutes 120 --set study.systems=[] --set study.sweep=true --out paper

      colabel demo --set data.source=pydocs:500 --set query_side.steps=20 --out quick
    """
    shown = _shown_before(out, minutes, overrides)
    if shown is not None:
        emit(shown)
        return
    from colabel import demo

    _narrate()
    told: list[str] = []

    def show(part: Part) -> None:
        told.append("\n".join(part_lines(part)) + "\n")
        emit(told[-1])

    with terminal_progress() as progress:
        demo(out, minutes=minutes, overrides=overrides, progress=progress, show=show)
    told_of = {"call": overrides, "study": _study_mark(out), "text": "\n".join(told)}
    (out / TOLD_FILE).write_text(json.dumps(told_of, ensure_ascii=False), encoding="utf-8")


def _shown_before(out: Path, minutes: float | None, overrides: Sequence[str]) -> str | None:
    """What the same call printed, if nothing has changed since."""
    try:
        told = json.loads((out / TOLD_FILE).read_text(encoding="utf-8"))
        same_minutes = minutes in (None, json.loads((out / "budget.json").read_text(encoding="utf-8"))["minutes"])
        same = same_minutes and told["call"] == list(overrides) and told["study"] == _study_mark(out)
        return str(told["text"]) if same and (out / "report.html").exists() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _study_mark(out: Path) -> str:
    """Names what the report was measured from."""
    return (out / "study.manifest.json").read_text(encoding="utf-8")


def _narrate() -> None:
    """Log what the demo does, but not every row, nor that it cuts passages, which nobody needs to mend."""
    given = click.get_current_context().find_root().params
    if not (given["verbose"] or given["quiet"]):
        logging.getLogger("colabel").setLevel(logging.WARNING)
        logging.getLogger("colabel.encode.encoder").setLevel(logging.ERROR)
        logging.getLogger("colabel.pipeline.demo").setLevel(logging.INFO)


def part_lines(part: Part) -> Iterator[str]:
    """What is printed of a part of the demo."""
    from colabel.pipeline.demo import Indexed, Searched, Suspected, Training

    if isinstance(part, str):
        yield part
    elif isinstance(part, Indexed):
        yield from _indexed_lines(part)
    elif isinstance(part, Searched):
        yield "2. The same question, answered in three ways, before any training (* marks a right answer)"
        for example in part.examples:
            yield f"\n  {_short(example.query)}"
            yield from (
                f"    {_SEARCHES.get(slug, slug):<14}  {_answers(one)}" for slug, one in example.answers.items()
            )
    elif isinstance(part, Suspected):
        yield from _suspected_lines(part)
    elif isinstance(part, Training):
        yield from _training_lines(part)
    else:
        yield from demo_lines(part)


def _indexed_lines(part: Indexed) -> Iterator[str]:
    yield f"1. The collection: {part.passages:,} passages from the documentation of installed Python libraries"
    yield from _wrapped(
        f"A passage describes a function or a class. Every word of every passage is now a vector (this took "
        f"{part.seconds:.0f} s). There are {part.queries:,} training questions with {part.labels:,} labels: a label "
        "says that a passage answers a question. As in most real collections, labels are missing. Passages that the "
        f"documentation names under 'See Also' answer a question as well, and those {part.hidden:,} labels were hidden "
        "on purpose, to see how many are found again."
    )


def _suspected_lines(part: Suspected) -> Iterator[str]:
    first = part.shares[0]
    yield "3. Labels that are probably missing, found without any training"
    yield from _wrapped(
        "A passage is suspected to lack a label where its words and vectors are like those of the question, and like "
        "those of the passage that is labelled as its answer."
    )
    for share in part.shares:
        yield (
            f"  Of the {share.suggestions:,} strongest suspicions, {share.found:,} ({share.precision or 0:.0%}) are "
            f"hidden labels, and so right: {share.recall:.0%} of all {first.hidden:,}."
        )
    yield "  The strongest ('right': this label had been hidden; 'open': nobody has judged the pair):"
    for one, right in part.missing:
        words = dict.fromkeys(reason.token for reason in one.reasons if not reason.token.startswith("##"))
        why = f"   because of: {', '.join(list(words)[:3])}" if words else ""
        yield f"    {'right' if right else 'open':<5}  {_short(one.query, 60)}  →  {one.passage_id}{why}"


def _training_lines(part: Training) -> Iterator[str]:
    about = "" if part.seconds is None else f", about {max(part.seconds, 6) / 60:.1f} min"
    yield f"4. Training: {part.models} models, at most {part.steps:,} steps each{about}"
    yield from _wrapped(
        "What this buys: the model that reads questions learns from the visible and the suspected labels together; the "
        "passages stay as they are indexed. For comparison, another one learns from the visible labels alone, a third "
        "from all labels, the hidden ones included (the most that finding labels could bring), and a fourth from no "
        "label and no question at all: its questions are made of the passages."
    )


def demo_lines(result: DemoResult) -> Iterator[str]:
    """The table before and after, one sentence of what was found, examples, and where everything lies."""
    document, measure = result.document, result.document.measures[0]
    asked = len(document.per_query[result.student][measure])
    yield f"5. Before and after, on {asked} test questions (higher is better, 1 is perfect)\n"
    header = ["", *document.measures, f"{measure} against BEFORE", "ms/question"]
    yield table(header, [_row(document, system) for system in _ordered(document)])
    for name in document.measures:
        if name.partition("@")[0] in _MEASURES:
            yield f"  {name}: {_MEASURES[name.partition('@')[0]].format(name.partition('@')[2])}."
    yield "  p: how likely chance alone makes such a difference; below 0.05 counts as significant (paired t-test).\n"
    yield f"What was found: {finding(document, result.student)}"
    yield from unlabelled_lines(document)
    yield f"\nThe two test questions that gained most and the one that lost most ({measure}; * marks a right answer)"
    for example in result.examples:
        before, after = example.values
        yield f"\n  {_short(example.query)}   {before:.2f} → {after:.2f}"
        for name, answers in (("before", example.before), ("after", example.after)):
            yield f"    {name:<6}  {_answers(answers)}"
    yield f"\n6. The page with all figures: {result.report}"
    yield f"The trained model: {result.model}, a sentence-transformers checkpoint"
    yield next_command("search", result.report.parent, "smooth a noisy signal", "-k", 3)
    program = options.program()
    yield f"      judge the suspected labels in a browser: {program} serve {result.report.parent}"
    yield f"      and on your own data: {program} check DATASET, then {program} run DATASET --out runs/mine"


def _ordered(document: StudyDocument) -> list[SystemResult]:
    """The rows that the demo explains, in their order, then all others."""
    order = list(_ROWS)
    return sorted(document.finished, key=lambda one: order.index(one.slug) if one.slug in order else len(order))


def _row(document: StudyDocument, system: SystemResult) -> list[str]:
    """Means, the difference to the baseline with its p, and the response time."""
    test = _test(document, system.slug)
    taken = system.milliseconds
    values = [f"{system.means[measure]:.4f}" for measure in document.measures]
    against = "" if test is None else f"{test[0]:+.4f} ({_p(test[1])})"
    return [_ROWS.get(system.slug, system.title), *values, against, "" if taken is None else f"{taken.median:.1f}"]


def _test(document: StudyDocument, slug: str) -> tuple[float, float | None] | None:
    """The difference of a system to the baseline by the first measure, and its p."""
    pair = document.pair(document.measures[0], slug, BASELINE)
    return None if pair is None else (pair.difference_of(slug).mean, pair.test.t_test)


def _p(p: float | None) -> str:
    return "p not defined" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def finding(document: StudyDocument, student: str) -> str:
    """One plain sentence of what was found."""
    measure = document.measures[0]
    means = {one.slug: one.means[measure] or 0.0 for one in document.finished}
    before, after = means[BASELINE], means[student]
    difference, p = _test(document, student) or (after - before, None)
    verb = "did not change" if difference == 0 else "raised" if difference > 0 else "lowered"
    sure = "more than chance explains" if p is not None and p < 0.05 else "which may be chance"
    said = (
        f"training on visible and suspected labels {verb} {measure} from {before:.3f} to {after:.3f}, {sure} ({_p(p)})"
    )
    if "ceiling" in means:
        said += f"; all labels, had they been known, would have given {means['ceiling']:.3f}"
    best = max((slug for slug in means if slug != "ceiling"), key=lambda slug: means[slug])
    return f"{said}; the best search here is '{_ROWS.get(best, document.title(best))}' with {means[best]:.3f}."


def unlabelled_lines(document: StudyDocument) -> Iterator[str]:
    """What the passages alone are enough for, in one plain sentence."""
    measure = document.measures[0]
    means = {one.slug: one.means[measure] or 0.0 for one in document.finished}
    test = _test(document, UNLABELLED) if {UNLABELLED, f"hybrid-{UNLABELLED}", "bm25"} <= set(means) else None
    if test is not None:
        words, before, both = means["bm25"], means[BASELINE], means[f"hybrid-{UNLABELLED}"]
        yield (
            f"Without any label: training on questions made of the passages moved {measure} from {before:.3f} to "
            f"{means[UNLABELLED]:.3f} ({_p(test[1])}); together with words it is {both:.3f}, where words alone have "
            f"{words:.3f}."
        )


def _answers(answers: Answers) -> str:
    return ", ".join(f"{'*' * relevant}{one}" for one, relevant in answers)


def _short(text: str, width: int = 90) -> str:
    return textwrap.shorten(text, width, placeholder=" …")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="  ", subsequent_indent="  ")
