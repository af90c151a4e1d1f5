"""Plots: differences with intervals, how precise teachers are at each recall, and how reliable probabilities are."""

from __future__ import annotations

from colabel.evaluation.significance import Interval
from colabel.findings.records import QualitySet, StudyDocument
from colabel.ranking.probability import Reliability
from colabel.reporting.numbers import Plot
from colabel.reporting.svg import MUTED, figure, finished, look, shortened, wrapped
from colabel.reporting.tables_labels import covered, teachers_at

_TICKS = 5  # more would run into each other where numbers have three decimals and a sign
_ROW = 0.36  # inches of height for a system


def group_looks(document: StudyDocument) -> dict[str, int]:
    """Group → number of its series, in the order of the systems."""
    names = dict.fromkeys(system.group for system in document.systems)
    return {name: place for place, name in enumerate(names)}


def difference(document: StudyDocument, place: int, measure: str) -> Plot | None:
    """Every system less the reference, query by query, with its interval; the reference itself stands at 0."""
    reference = document.system(document.reference)
    if measure not in document.comparisons or reference is None:
        return None
    pairs = {one.slug: document.pair(measure, one.slug, reference.slug) for one in document.finished}
    shown = [system for system in document.finished if pairs[system.slug] or system is reference]
    drawn, axes = figure(height=0.75 + _ROW * len(shown))
    groups = group_looks(document)
    axes.axvline(0.0, color=MUTED, linewidth=1, dashes=(4, 3))
    for row, system in enumerate(shown):
        colour, marker, _ = look(groups[system.group])
        pair = pairs[system.slug]
        value = pair.difference_of(system.slug) if pair else Interval(0.0, None, None, 0)
        if value.low is not None and value.high is not None:
            axes.plot([value.low, value.high], [row, row], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot([value.mean], [row], marker=marker, markersize=6, color=colour, linestyle="none")
    axes.set_yticks(range(len(shown)), [wrapped(system.title) for system in shown], linespacing=1.2)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=_TICKS)
    axes.set_title(f"{measure} − {shortened(reference.title, 24)}")
    caption = f"{measure} less that of {reference.title}, paired by query, with bootstrap intervals"
    return finished(drawn, f"difference-{place}", caption)


def precision_recall(document: StudyDocument, found: QualitySet, key: str, grade: str) -> Plot | None:
    """Precision over recall of every teacher, averaged over queries; a teacher has one look in all of these plots."""
    names = dict.fromkeys(name for one in document.label_quality for name in one.teachers)
    looks = {name: number for number, name in enumerate(names)}
    curves = {name: one.precision_at_recall for name, one in teachers_at(found, grade).items()}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    lines = [*found.title.split(", ", 1), f"relevant from grade {grade}, averaged over queries"]
    drawn, axes = figure(height=2.9 + 0.17 * (-(-len(curves) // 2) + len(lines) - 1))
    for name, curve in curves.items():
        number = looks[name]
        colour, marker, dashes = look(number)
        recall = [level / (len(curve) - 1) for level in range(len(curve))]
        axes.plot(
            recall, curve, color=colour, linestyle=dashes, marker=marker, markersize=3.5, label=shortened(name, 34)
        )
    axes.set(xlabel="recall of the relevant candidates", ylabel="interpolated precision")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    axes.set_title("\n".join(wrapped(line, 56) for line in lines))
    drawn.legend(loc="outside lower center", ncols=min(2, len(curves)), handlelength=2.6, columnspacing=1.2)
    caption = f"{found.title}: interpolated precision over recall of the relevant candidates, relevant from grade "
    caption += f"{grade}, averaged over queries{covered(found, grade)}"
    return finished(drawn, f"precision-recall-{key}", caption)


def reliability(found: Reliability) -> Plot:
    """The share of passages that are relevant over their probability; on the diagonal, the two agree."""
    drawn, axes = figure(height=3.2)
    colour, marker, _ = look(0)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, dashes=(4, 3))
    likely, observed = [one[0] for one in found.bins], [min(1.0, one[1]) for one in found.bins]
    axes.plot(likely, observed, color=colour, marker=marker, markersize=4)
    axes.set(xlabel="probability", ylabel="share that is relevant", xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    axes.set_title(f"ECE {found.ece:.3f}, Brier score {found.brier:.3f}")
    return finished(
        drawn, "reliability", f"how often passages are relevant, by probability, over {found.pairs:,} pairs"
    )
