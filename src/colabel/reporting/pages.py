"""Results as pages of a documentation: Markdown, figures as JSON and a few plots, without any text of the collections.

A study NAME becomes ``NAME.md``, ``NAME.json`` and ``NAME/*.svg``; ``README.md`` compares all studies of the folder.
What people write about them is kept apart, in ``NAME.reading.md`` and ``README.reading.md``, and stands at the top.
``NAME/study.json`` has the figures of every query: the folder NAME can be rendered again when the study is gone.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from colabel.artefacts import write_text
from colabel.errors import ArtefactError, UsageError
from colabel.reporting.canvas import style
from colabel.reporting.document import TRANSFERRED, StudyDocument
from colabel.reporting.figures import NONE, figure
from colabel.reporting.markdown import escaped, markdown
from colabel.reporting.metrics import metrics
from colabel.reporting.page import standalone_svg
from colabel.reporting.parts import Plot, Plots, Section
from colabel.reporting.render import REPORT_FILES
from colabel.reporting.sections import about, sections
from colabel.reporting.seeds import best, comparable, single, unequal
from colabel.reporting.study_file import STUDY_FILE, read_study

INDEX = "README"
_INDEX_HEAD = "# Results\n"
_READING = ".reading"  # behind the name of a page: what somebody wrote about it
_PLOTS = ("difference-0", "precision-recall-", "dev-seconds", "cost-bars")
_MOST_BYTES = 60_000  # of a plot: a larger one stays in report.html
_DIGITS = 6  # significant ones: a p-value of 1e-9 is not 0
_START = r"(?:\.{1,2}|~)?/(?!/)"  # of a path with folders
_QUOTED = re.compile(rf"(?<=['\"]){_START}[^'\"\n]*/")  # may have spaces
_WHOLE = re.compile(rf"{_START}[^'\"\n]*/")
_FOLDERS = re.compile(rf"(?:(?<![\w/.~])|(?<=file://)){_START}(?:[^\s/'\"]+/)+")


def write_pages(study: Path, folder: Path, name: str | None = None) -> list[Path]:
    """Write the page of a finished study and the index of all pages in ``folder``; the same study, the same bytes.

    Args:
        study: its output folder.
        name: of the files; default: the name of the output folder.
    """
    name = name or study.resolve().name
    if not re.fullmatch(r"\w[\w.-]*", name) or name == INDEX or name.endswith(_READING):
        raise UsageError(
            f"'{name}' cannot be the name of a page; expected letters, digits, '.', '_' and '-', neither '{INDEX}' nor "
            f"ending in '{_READING}'"
        )
    _check_place(folder, name)
    kept = _rounded(public(read_study(study)).to_json())
    document = StudyDocument.from_json(kept)  # of what is kept, so that it gives the same page again
    with style():
        chapters = sections(document)
    drawn = {plot.key: plot for plot in _plots(chapters) if plot.key.startswith(_PLOTS)}
    images = {key: standalone_svg(plot) for key, plot in drawn.items()}
    images = {key: svg for key, svg in images.items() if len(svg.encode()) <= _MOST_BYTES}
    links = {key: f"{name}/{key}.svg" for key in images}
    text = markdown(document.name, about(document), chapters, images=links, reading=_reading(folder, name))
    (folder / name).mkdir(parents=True, exist_ok=True)
    for old in set((folder / name).glob("*.svg")) - {folder / link for link in links.values()}:
        if old.name.startswith(_PLOTS):
            old.unlink()
    for key, svg in images.items():
        write_text(folder / links[key], svg)
    write_text(folder / name / STUDY_FILE, json.dumps(kept, ensure_ascii=False) + "\n")
    write_text(folder / f"{name}.json", json.dumps(_metrics(document), indent=1, ensure_ascii=False) + "\n")
    write_text(folder / f"{name}.md", text)
    return [folder / f"{name}.md", folder / f"{name}.json", write_index(folder)]


def _check_place(folder: Path, name: str) -> None:
    """Refuse to replace what is no page: the files of a study, and what people wrote; or to end in the index."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; --pages takes a folder")
    place, page, index = folder / name, folder / f"{name}.md", folder / f"{INDEX}.md"
    files = sorted(place.iterdir()) if place.is_dir() else []
    ours = (STUDY_FILE, *REPORT_FILES)  # a page that is rendered again from its own folder has a report there, too
    foreign = [path for path in files if path.name not in ours and path.suffix != ".svg"]
    if page.exists() and not page.with_suffix(".json").exists():
        foreign.append(page)
    if index.exists() and not index.read_text(encoding="utf-8").startswith(_INDEX_HEAD):
        foreign.append(index)
    if foreign:
        raise UsageError(f"{foreign[0]} is of no page that colabel wrote; choose another --pages folder or --name")
    for path in _figures(folder):
        _read(path)


def public(document: StudyDocument) -> StudyDocument:
    """The study without texts and tokens of the collection, and without the folders of the machine that it ran on."""
    examples = tuple(
        dataclasses.replace(
            example,
            query="",
            tokens=(),
            passages=tuple(dataclasses.replace(one, title="", text="", matched=()) for one in example.passages),
        )
        for example in document.examples
    )
    systems = tuple(
        system if system.failed is None else dataclasses.replace(system, failed=without_folders(system.failed))
        for system in document.systems
    )
    return dataclasses.replace(
        document,
        examples=examples,
        systems=systems,
        recipe=without_folders(document.recipe),
        settings={name: without_folders(value) for name, value in document.settings.items()},
        models={role: without_folders(name) for role, name in document.models.items()},
        notes=tuple(map(without_folders, document.notes)),
    )


def without_folders(text: str) -> str:
    """The text with the folders of paths left out.

    >>> without_folders('source = "/home/me/data/caves" # see https://ir-measur.es/en/latest, and/or ../docs/x.md')
    'source = "…/caves" # see https://ir-measur.es/en/latest, and/or …/x.md'
    >>> without_folders("hf:/home/me/data/caves")
    'hf:…/caves'
    >>> without_folders("/home/Jane Doe/data/caves"), without_folders("file:///home/me/scratch/x")
    ('…/caves', 'file://…/x')
    """
    whole = _WHOLE.match(text)
    if whole and "\n" not in text and " " not in text[whole.end() :]:
        return f"…/{text[whole.end() :]}"
    return _FOLDERS.sub("…/", _QUOTED.sub("…/", text))


def write_index(folder: Path) -> Path:
    """Write the page that compares all studies of a folder: a table for each measure, systems by studies.

    Columns go by the names of pages, transfers after the studies.
    """
    read = {path.stem: _read(path) for path in _figures(folder)}
    studies = dict(sorted(read.items(), key=lambda item: TRANSFERRED in item[1]["name"]))
    measures = dict.fromkeys(measure for study in studies.values() for measure in study["measures"])
    lines = [_INDEX_HEAD.strip(), "", *_reading(folder, INDEX)]
    lines += [f"- [{escaped(study['name'])}]({name}.md)" for name, study in studies.items()]
    lines += [
        "",
        "The best of each column is bold. ▲ and ▼: significantly better and worse than ColBERT (paired t-test, Holm's "
        "correction over all pairs of the study, whose number stands below each column: among fewer rows a difference "
        "is significant sooner). Figures of several seeds are means.",
    ]
    if any(unequal(study["seeds"]) for study in studies.values()):
        lines[-1] += (
            " ¹ one seed, where others of the study have several; there, bold is the best on the first seed, which all "
            "have, and need not be the highest of the figures shown."
        )
    for measure in measures:
        lines += ["", f"## {escaped(measure)}", "", *_table(measure, studies)]
    path = folder / f"{INDEX}.md"
    write_text(path, "\n".join(lines).rstrip() + "\n")
    return path


def _figures(folder: Path) -> list[Path]:
    """The figures of all pages; JSON files without a page are of others."""
    return [path for path in sorted(folder.glob("*.json")) if path.with_suffix(".md").is_file()]


def results_table(folder: Path, measure: str, pages: Sequence[str], systems: Sequence[str], at: str) -> str:
    """Some systems on some studies of a folder, for a page elsewhere from which the folder is ``at``."""
    studies = {name: _read(folder / f"{name}.json") for name in pages}
    return "\n".join(_table(measure, studies, systems, at)) + "\n"


def _table(measure: str, studies: dict[str, Any], systems: Sequence[str] = (), at: str = "") -> list[str]:
    columns = {name: study for name, study in studies.items() if measure in study["measures"]}
    titles = {slug: _of_all(title) for study in columns.values() for slug, title in study["titles"].items()}
    header = ["System", *(f"[{escaped(name)}]({at}{name}.md)" for name in columns)]
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * len(columns)]
    for slug in systems or titles:
        cells = [_cell(measure, slug, study, systems or study["systems"]) for study in columns.values()]
        lines.append("| " + " | ".join([escaped(titles[slug]), *cells]) + " |")
    if not systems:
        tests = [str(_tests(measure, study)) for study in columns.values()]
        lines.append("| " + " | ".join(["*tests corrected for*", *tests]) + " |")
    return lines


def _tests(measure: str, study: dict[str, Any]) -> int:
    """How many pairs ▲ and ▼ were corrected for; files of earlier versions do not say, and then it is all."""
    found = study["significance"].get(measure, {}).get("tests")
    return math.comb(len(study["systems"]), 2) if found is None else int(found)


def _of_all(title: str) -> str:
    """A system's title for all studies: each has tuned its own β.

    >>> _of_all("collective self-KD (β = 0.25, tuned)")
    'collective self-KD (β tuned)'
    """
    return re.sub(r"β = [^,()]+, tuned", "β tuned", title)


def _cell(measure: str, slug: str, study: dict[str, Any], shown: Container[str]) -> str:
    value = study["systems"].get(slug, {}).get(measure)
    if value is None:
        return NONE
    beats = study["significance"].get(measure, {}).get("beats_holm", {})
    mark = " ▲" if "colbert" in beats.get(slug, ()) else " ▼" if slug in beats.get("colbert", ()) else ""
    seeds = study["seeds"]
    few = "¹" if single(slug, seeds) else ""
    values = comparable(measure, study["systems"], seeds, study["per_seed"])
    bold = slug in best({name: one for name, one in values.items() if name in shown})
    return f"**{figure(value)}**{few}{mark}" if bold else f"{figure(value)}{few}{mark}"


def _metrics(document: StudyDocument) -> dict[str, Any]:
    """The metrics with figures rounded, and of all pairs those with the reference."""
    found = metrics(document)
    for table in found["significance"].values():
        table["pairs"] = [pair for pair in table["pairs"] if document.reference in (pair["system"], pair["against"])]
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = {"name", "measures", "systems", "titles", "significance"} - found.keys()
    except (OSError, ValueError, AttributeError) as error:
        raise ArtefactError(f"{path} cannot be read ({error}); write it again with `colabel report --pages`") from None
    if missing:
        raise ArtefactError(f"{path} has no '{min(missing)}'; write it again with `colabel report --pages`")
    return {"seeds": {}, "per_seed": {}, **found}


def _plots(chapters: Sequence[Section]) -> list[Plot]:
    return [plot for chapter in chapters for part in chapter.parts if isinstance(part, Plots) for plot in part.plots]


def _reading(folder: Path, name: str) -> list[str]:
    """What somebody wrote about a page, as lines."""
    path = folder / f"{name}{_READING}.md"
    return [*path.read_text(encoding="utf-8").strip().splitlines(), ""] if path.is_file() else []
