"""Published results: a study's figures in one small JSON per collection, and the tables drawn from it.

``python -m docs.results STUDY NAME`` condenses a finished study (its ``metrics.json`` and ``study.json``) into
``docs/results/NAME.json``, a transfer beside the study it belongs to; ``make docs`` then writes the tables between the
comments of a page. The prose around them is written by people.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
COLLECTIONS = ("demo", "nfcorpus", "scifact", "cranfield", "semanlink")
ORDER = (
    *("bm25", "zero-shot", "colbert", "colbert-hn", "smoothing", "self-kd", "ce-kd", "ce3-kd"),
    *("collective-0.5", "collective-1", "collective-tuned", "mixed"),
    *("colbert-prf-0.5", "colbert-prf-1", "colbert-prf-tuned"),
    *("colbert-prf-rerank-0.5", "colbert-prf-rerank-1", "colbert-prf-rerank-tuned"),
)
MAIN = "nDCG@10"
REFERENCE = "colbert"
UNSEEDED = ("bm25", "zero-shot")  # draw nothing: one run stands for every seed
MOST_BYTES = 30_000
NONE = "–"
Record = dict[str, Any]


def condense(folder: Path) -> Record:
    """What the tables need of a study, and nothing per query."""
    metrics, study = (json.loads((folder / name).read_text("utf-8")) for name in ("metrics.json", "study.json"))
    finished = {slug: one for slug, one in metrics["systems"].items() if one["failed"] is None}
    found = {
        "name": metrics["name"],
        "dataset": {key: metrics["dataset"][key] for key in ("passages", "queries", "labels", "hidden")},
        "measures": metrics["measures"],
        "tests": {measure: table["family"] for measure, table in metrics["comparisons"].items()},
        "systems": {slug: _system(slug, one, metrics) for slug, one in finished.items()},
        "costs": {slug: one["seconds"] for slug, one in finished.items() if one["seconds"]},
        "stages": metrics["seconds"],
        "ratios": {
            ratio["slug"]: {key: value for key, value in ratio.items() if not isinstance(value, str)}
            for ratio in metrics["ratios"]
        },
        "label_quality": {
            one["title"]: {
                teacher: {grade: _interval(quality["average_precision"]) for grade, quality in grades.items()}
                for teacher, grades in one["teachers"].items()
            }
            for one in metrics["label_quality"]
        },
        "suggestions": {order: list(shares.values()) for order, shares in metrics["suggestions"].items()},
        "feedback": {
            split: {key: _interval(gain[key]) for key in ("gain", "precision")}
            for split, gain in metrics.get("prf_gain", {}).items()  # of studies before it was left out
        },
        "sweep": [
            [*(one[key] for key in ("feedback_passages", "clusters", "centroids", "beta")), one["measures"][MAIN]]
            for one in metrics["sweep"]
        ],
        "recipe": "\n".join(line for line in study["recipe"].splitlines() if line and not line.startswith("#")),
        "environment": {key: metrics["environment"][key] for key in ("cpu", "cores", "versions", "commit")},
    }
    rounded: Record = _rounded(found)
    return rounded


def _interval(found: Record) -> Record:
    return {key: found[key] for key in ("mean", "low", "high", "queries")}


def _system(slug: str, system: Record, metrics: Record) -> Record:
    per_seed = metrics["per_seed"].get(slug, {})
    found = {
        "title": system["title"],
        "seeds": 0 if slug in UNSEEDED else system["seeds"],
        "means": system["means"],
        "interval": system["intervals"][MAIN],
        "per_seed": {measure: [values[measure] for values in per_seed.values()] for measure in metrics["measures"]},
        "unjudged": system["unjudged_share"],
        "milliseconds": (system["milliseconds"] or {}).get("median"),
        "marks": {},
    }
    if not per_seed:
        del found["per_seed"]
    for measure, table in metrics["comparisons"].items():
        lines = {line["system"]: line for line in table["lines"]}
        if lines[REFERENCE]["letter"] in lines[slug]["beats_holm"]:
            found["marks"][measure] = "▲"
        elif lines[slug]["letter"] in lines[REFERENCE]["beats_holm"]:
            found["marks"][measure] = "▼"
        if measure == MAIN:
            found |= _against_reference(slug, table["pairs"])
    return found


def _against_reference(slug: str, pairs: Iterable[Record]) -> Record:
    """Difference to ColBERT with its p-values, whichever way round the pair was tested."""
    for pair in pairs:
        if slug != REFERENCE and {pair["system"], pair["against"]} == {slug, REFERENCE}:
            sign = 1 if pair["system"] == slug else -1
            return {
                "difference": sign * pair["test"]["difference"]["mean"],
                "p": pair["test"]["t_test"],
                "holm": pair["t_test_holm"],
            }
    return {}


def _rounded(value: Any) -> Any:
    """Six significant digits, so that a p-value of 1e-9 is not 0 and three places are rounded once."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read(name: str) -> Record:
    """The committed figures of a collection: ``study``, and ``transfer`` where there is one."""
    found: Record = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def write(name: str, figures: Record) -> Path:
    """Keep the figures of a collection.

    Raises:
        ValueError: they are too large to be committed.
    """
    text = json.dumps(figures, ensure_ascii=False, separators=(",", ":")).replace('},"', '},\n"') + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"{name}: {len(text.encode()):,} bytes of figures; at most {MOST_BYTES:,} are kept")
    path = FOLDER / f"{name}.json"
    path.write_text(text, encoding="utf-8")
    return path


def summary(measure: str, systems: Sequence[str] = (), at: str = "", *, transfers: bool = False) -> str:
    """A table of one measure: systems by collections, linked to their pages, which are ``at``."""
    studies = {name: read(name).get("transfer" if transfers else "study") for name in COLLECTIONS}
    columns = {name: study for name, study in studies.items() if study and measure in study["measures"]}
    titles = {slug: _of_all(one["title"]) for study in columns.values() for slug, one in study["systems"].items()}
    header = ["System", *(f"[{name}]({at}{name}.md{'#transfer' if transfers else ''})" for name in columns)]
    rows = [
        [titles[slug], *(cell(measure, slug, study, systems) for study in columns.values())]
        for slug in systems or sorted(titles, key=ORDER.index)
    ]
    if not systems:
        rows.append(["*pairs tested*", *(str(study["tests"][measure]) for study in columns.values())])
    return table(header, rows, right=len(columns))


def cell(measure: str, slug: str, study: Record, shown: Container[str] = ()) -> str:
    """A mean: bold where it is the best of those shown, marked where it differs significantly from ColBERT."""
    if slug not in study["systems"]:
        return NONE
    system = study["systems"][slug]
    few = "¹" if _unequal(study) and system["seeds"] == 1 else ""
    mark = f" {system['marks'][measure]}" if measure in system["marks"] else ""
    text = figure(system["means"][measure])
    values = {name: _comparable(measure, one, study) for name, one in study["systems"].items()}
    best = max(value for name, value in values.items() if not shown or name in shown)
    bold = figure(values[slug]) == figure(best)
    return f"**{text}**{few}{mark}" if bold else f"{text}{few}{mark}"


def _unequal(study: Record) -> bool:
    return len({system["seeds"] for system in study["systems"].values()} - {0}) > 1


def _comparable(measure: str, system: Record, study: Record) -> float:
    """The mean over seeds; the first seed where systems have different numbers, as the best of single runs is luck."""
    return float(
        system["per_seed"][measure][0] if _unequal(study) and "per_seed" in system else system["means"][measure]
    )


def _of_all(title: str) -> str:
    """A system's title for all studies: each has tuned its own β."""
    return re.sub(r"β = [^,()]+, tuned", "β tuned", title)


def study_tables(name: str) -> str:
    """The tables of the study on a collection's page."""
    study = read(name)["study"]
    parts = [_dataset(study), "## Test queries\n", _systems(study), _seeds(study)]
    parts += ["## Label quality\n", *_label_quality(study), _suggestions(study), _feedback(study)]
    parts += ["## Costs\n", _costs(study), _ratios(study), _sweep(study), "## How it was run\n", _run(study)]
    return "\n".join(part for part in parts if part)


def transfer_tables(name: str) -> str:
    """The tables of the transfer on a collection's page."""
    transfer = read(name)["transfer"]
    return "\n".join([_dataset(transfer), _systems(transfer), *_label_quality(transfer)])


def _dataset(study: Record) -> str:
    data = study["dataset"]
    counts = ", ".join(
        f"{data['queries'][split]:,} {split} queries with {data['labels'][split]:,} labels"
        for split in ("train", "dev", "test")
        if split in data["queries"]
    )
    hidden = f"; {data['hidden']:,} labels hidden" if data["hidden"] else ""
    return f"{data['passages']:,} passages; {counts}{hidden}.\n"


def _systems(study: Record) -> str:
    measures = study["measures"]
    header = ["System", *measures, f"95 % interval of {MAIN}", "− ColBERT", "p", "Holm", "unjudged", "ms"]
    rows = []
    for slug, system in sorted(study["systems"].items(), key=lambda item: ORDER.index(item[0])):
        low, high = system["interval"]
        rows.append(
            [
                system["title"],
                *(cell(measure, slug, study) for measure in measures),
                f"{figure(low)}–{figure(high)}",
                signed(system.get("difference")),
                p_value(system.get("p")),
                p_value(system.get("holm")),
                percent(system["unjudged"]),
                NONE if system["milliseconds"] is None else f"{system['milliseconds']:.1f}",
            ]
        )
    return table(header, rows, right=len(header) - 1)


def _seeds(study: Record) -> str:
    rows = [
        [system["title"], *(figure(value) for value in system["per_seed"][MAIN])]
        for system in study["systems"].values()
        if "per_seed" in system
    ]
    if not rows:
        return ""
    header = [f"{MAIN} by seed", *(str(number) for number in range(len(rows[0]) - 1))]
    return table(header, rows, right=len(header) - 1)


def _label_quality(study: Record) -> list[str]:
    parts = []
    for title, teachers in study["label_quality"].items():
        grades = list(dict.fromkeys(grade for found in teachers.values() for grade in found))
        header = [f"AP, {title[0].lower()}{title[1:]}", *(f"grade ≥ {grade}" for grade in grades)]
        rows = [
            [teacher, *(_average_precision(found.get(grade)) for grade in grades)]
            for teacher, found in teachers.items()
        ]
        parts.append(table(header, rows, right=len(grades)))
    return parts


def _average_precision(value: Record | None) -> str:
    return NONE if value is None else f"{figure(value['mean'])} [{figure(value['low'])}, {figure(value['high'])}]"


def _suggestions(study: Record) -> str:
    rows = [[order, *map(percent, shares)] for order, shares in study["suggestions"].items()]
    header = ["Suggested labels that are hidden positives", "1 × queries", "2 × queries", "5 × queries"]
    return table(header, rows, right=3) if rows else ""


def _feedback(study: Record) -> str:
    rows = [
        [split, f"{found['gain']['queries']:,}", percent(found["precision"]["mean"]), signed(found["gain"]["mean"])]
        for split, found in study["feedback"].items()
    ]
    header = ["Feedback from the top three", "queries", "relevant", f"ColBERT-PRF − ColBERT, {MAIN}"]
    return table(header, rows, right=3) if rows else ""


def _costs(study: Record) -> str:
    header = ["Minutes", "hard negatives", "annotation", "training"]
    rows = [
        [study["systems"][slug]["title"], *(_minutes(found.get(stage)) for stage in header[1:])]
        for slug, found in study["costs"].items()
    ]
    stages = ", ".join(f"{stage} {_minutes(seconds)}" for stage, seconds in study["stages"].items())
    return f"{table(header, rows, right=3)}\nStages that systems share, in minutes: {stages}.\n"


def _ratios(study: Record) -> str:
    header = ["Time relative to collective self-KD", "annotation as run", "with training", "annotation, equal pairs"]
    header += ["with training", "paper", "paper, with training"]
    keys = ("annotation_as_run", "overall_as_run", "annotation", "overall", "paper_annotation", "paper_overall")
    rows = [
        [study["systems"][slug]["title"], *(_times(ratio.get(key)) for key in keys)]
        for slug, ratio in study["ratios"].items()
    ]
    return table(header, rows, right=len(keys)) if rows else ""


def _sweep(study: Record) -> str:
    if not study["sweep"]:
        return ""
    best = max(point[-1] for point in study["sweep"])
    rows = [
        [
            *(f"{value:g}" for value in point[:-1]),
            f"**{figure(point[-1])}**" if point[-1] == best else figure(point[-1]),
        ]
        for point in study["sweep"]
    ]
    head = "## Sweep\n\nColBERT-PRF on the dev queries, with feedback from the top f_p passages.\n"
    return f"{head}\n{table(['f_p', 'f_c', 'f_e', 'β', MAIN], rows, right=5)}"


def _run(study: Record) -> str:
    about = study["environment"]
    versions = ", ".join(f"{library} {number}" for library, number in about["versions"].items())
    return (
        f"{about['cpu']}, {about['cores']} cores; {versions}; commit {about['commit']}. The recipe, with the keys "
        f"of that commit:\n\n```toml\n{study['recipe']}\n```\n"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> str:
    """A Markdown table whose last ``right`` columns are numbers."""
    rule = "|" + "---|" * (len(header) - right) + "---:|" * right
    lines = ["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def figure(value: float | None) -> str:
    """A measure, to three places."""
    return NONE if value is None else f"{round(value, 3) + 0.0:.3f}"


def signed(value: float | None) -> str:
    """A difference, to three places."""
    return NONE if value is None else f"{value:+.3f}".replace("-", "−")


def percent(value: float) -> str:
    """A share."""
    return f"{100 * value:.0f} %"


def p_value(value: float | None) -> str:
    """A p-value: two significant digits, never 0."""
    if value is None:
        return NONE
    return "<.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _minutes(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds / 60:.1f}"


def _times(value: float | None) -> str:
    return NONE if value is None else f"× {value:.1f}"


def main() -> None:
    """Condense a study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="output folder of `colabel study` or `colabel transfer`")
    parser.add_argument("name", help="collection it was trained on: the name of its page")
    parser.add_argument("--transfer", action="store_true", help="the study is a transfer to another collection")
    given = parser.parse_args()
    kept = read(given.name) if (FOLDER / f"{given.name}.json").exists() else {}
    write(given.name, kept | {"transfer" if given.transfer else "study": condense(given.study)})


if __name__ == "__main__":
    main()
