"""The report as a reader gets it: whole, escaped, the same in all formats, and readable from an old study."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import colabel
from colabel.findings import StudyDocument, SystemResult
from colabel.reporting import ReportFiles, write_report, write_run_report
from colabel.reporting.numbers import Cell, Column, Section, Table, TableLine
from colabel.reporting.render import markdown, sections
from colabel.reporting.render import page as whole_page
from docs import results
from tests.conftest import Call
from tests.findings.studies import BAD, FAILED, MEASURES

VOID = {"br", "input", "link", "meta"}


class Checker(HTMLParser):
    """Collects what a page is made of; tags must close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html(rendered: ReportFiles) -> str:
    return rendered.html.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Checker:
    return Checker(html)


def test_the_page_is_whole_and_stands_alone(html: str, page: Checker) -> None:
    assert html.startswith("<!doctype html>\n<html")
    assert page.open == []
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "srcset", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), attributes
    assert not re.findall(r"(?:https?:)?//[a-z]", html.replace(BAD, ""), re.IGNORECASE)
    assert "@import" not in html
    assert len(page.all("script")) == len(page.all("style")) == 1


def test_no_id_stands_twice_and_every_reference_has_its_aim(html: str, page: Checker) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    aims = {attributes["href"][1:] for _, attributes in page.tags if (attributes.get("href") or "").startswith("#")}  # type: ignore[index]
    aims |= set(re.findall(r"url\(#([^)]+)\)", html))
    aims |= {aim for _, attributes in page.tags if (aim := attributes.get("aria-labelledby"))}
    assert aims <= set(ids)
    assert len(aims) > 20


def test_text_from_outside_is_escaped_everywhere(html: str, page: Checker) -> None:
    assert "<script>alert" not in html
    assert "".join(page.texts).count("alert(") >= 2  # a model and a note show it as it is


def test_every_section_and_plot_is_there(page: Checker) -> None:
    sections = [attributes["id"] for attributes in page.all("section")]
    expected = "glossary results notes effect new training labels sweep setup"
    assert sections == expected.split()
    drawn = {attributes["id"] for attributes in page.all("figure") if attributes.get("id")}
    wanted = {f"plot-difference-{place}" for place in range(3)}
    wanted |= {f"plot-precision-recall-{key}" for key in ("0-0", "0-1", "1-0")}
    assert wanted == drawn
    assert all(one["role"] == "img" and one["aria-label"] for one in page.all("svg"))


def test_plots_take_their_colours_from_the_page(html: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "currentColor" in drawings
    assert "var(--series-1)" in drawings
    assert not re.findall(r"(?:fill|stroke): #", drawings), "a fixed colour is unreadable on one of the two grounds"
    assert "font: " not in drawings
    assert "<metadata" not in drawings


def test_headings_can_be_sorted_by_mouse_and_keyboard(page: Checker) -> None:
    heads = [attributes for attributes in page.all("th") if attributes.get("scope") == "col"]
    assert heads
    assert {head["aria-sort"] for head in heads} == {"none"}
    assert len(heads) == len(page.all("button"))
    assert all(button["type"] == "button" for button in page.all("button"))


def test_the_main_table_shows_figures_letters_and_failures(html: str, full_study: StudyDocument) -> None:
    table = html[html.index('<table id="table-main"') :]
    table = table[: table.index("</table>")]
    comparison = full_study.comparisons["nDCG@10"]
    best = next(line for line in comparison.lines if line.system == "collective-1")
    assert best.beats_holm != best.beats, "the fixture should show the switch"
    assert f'<sup class="holm">{"".join(best.beats_holm)}</sup>' in table
    assert f'<sup class="raw">{"".join(best.beats)}</sup>' in table
    compared = full_study.seed_means["collective-1"]["0"]["nDCG@10"]
    assert f"<strong>seed\u00a00:\u00a0{compared:.3f}</strong>" in table, "by which the column is decided"
    assert f"<strong>{best.mean.mean:.3f}</strong>" not in table
    assert f"failed: {FAILED}" in table
    groups = re.findall(r'scope="rowgroup"[^>]*><span>([^<]+)', table)
    assert groups == ["baseline", "hard labels", "distilled", "search time"]


def test_systems_alone_failed_or_with_gaps(tmp_path: Path) -> None:
    systems = (
        SystemResult("a", "A", means={"AP": 0.5}),
        SystemResult("b", "B", failed="no luck"),
        SystemResult("c", "C $x$ 夏", means={"AP": None, "RR": 0.25}, seconds={"training": None}),
    )
    for chosen in (systems, systems[1:2]):
        document = StudyDocument("gaps", ("AP", "RR"), systems=chosen, reference="nowhere")
        html = write_report(document, tmp_path).html.read_text(encoding="utf-8")
        assert Checker(html).open == []
        assert "failed: no luck" in html
        assert ("C $x$ 夏" in html) == (len(chosen) > 1)


def test_markdown_has_the_same_tables(rendered: ReportFiles, full_study: StudyDocument) -> None:
    text = rendered.markdown.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert "<script" not in text
    rows = [line for line in lines if line.startswith("| j Collective self-KD (β = 1)")]
    best = next(line for line in full_study.comparisons["nDCG@10"].lines if line.system == "collective-1")
    assert f"{best.mean.mean:.3f}<sup>{''.join(best.beats_holm)}</sup>" in rows[0]
    assert f"**seed 0: {full_study.seed_means['collective-1']['0']['nDCG@10']:.3f}**" in rows[0]
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    for above, below in itertools.pairwise(bars):
        assert above == below or 0 in (above, below), "a row has as many cells as its table"
    assert f"failed: {FAILED.replace('_', chr(92) + '_')}" in text
    assert "```toml\n[data]" in text
    chapters = [line for line in lines if line.startswith("## ")]
    assert chapters[:3] == ["## Systems and symbols", "## Results", "## Notes"]


def test_markdown_has_no_words_about_plots_that_it_lacks(rendered: ReportFiles) -> None:
    chapters = re.findall("^## (.+)$", rendered.markdown.read_text(), re.MULTILINE)
    assert "Results" in chapters
    assert "Training" in chapters, "it has tables, too"
    assert "Effect" not in chapters


PARTS = {
    "notes": "notes",
    "per_query": None,
    "per_seed": None,
    "comparisons": None,
    "new_queries": None,
    "label_quality": "labels",
    "suggestions": "labels",
    "sweep": "sweep",
    "ratios": "training",
    "recipe": "setup",
    "models": "setup",
    "collective": "setup",
    "environment": "setup",
    "seconds": "setup",
    "dataset": None,
}


def test_any_part_may_stand_alone(full_study: StudyDocument) -> None:
    for part, key in PARTS.items():
        document = StudyDocument("alone", MEASURES, **{part: getattr(full_study, part)})
        chapters = sections(document)
        assert {chapter.key for chapter in chapters} == {"results", *filter(None, [key])}
        assert Checker(whole_page("alone", "", (), chapters)).open == []
        assert markdown("alone", "", (), chapters).startswith("# alone\n")


def test_a_group_has_one_heading_wherever_its_lines_stand() -> None:
    named = (("one", "hard"), ("two", "soft"), ("three", "hard"))
    lines = tuple(TableLine((Cell(name),), group) for name, group in named)
    shown = whole_page("p", "", (), (Section("s", "S", (Table("t", "c", (Column("System", number=False),), lines),)),))
    assert [shown.count(f">{group}</span></th>") for group in ("hard", "soft")] == [1, 1]
    assert shown.index(">one<") < shown.index(">three<") < shown.index(">two<")


def test_definitions_stand_below_the_table_and_in_the_tooltip() -> None:
    columns = (Column("System", number=False), Column("one", hint="a & b"), Column("two", hint="a & b"))
    table = Table("t", "c", columns, (TableLine(tuple(map(Cell, "sab"))),), ("As a whole.",))
    shown = whole_page("p", "", (), (Section("s", "S", (table,)),))
    assert "<li><b>one, two: </b>a &amp; b</li>\n<li>As a whole.</li>" in shown
    assert shown.count('title="a &amp; b"') == 2
    text = markdown("p", "", (), (Section("s", "S", (table,)),))
    assert text.endswith("| s | a | b |\n\n- one, two: a &amp; b\n- As a whole.\n")


def test_every_tooltip_is_read_without_a_mouse(html: str, page: Checker) -> None:
    hints = {attributes["title"] for attributes in page.all("button") if attributes.get("title")}
    below = unescape("".join(re.findall(r'<ul class="explained">.*?</ul>', html, re.DOTALL)))
    assert len(hints) > 10
    assert [hint for hint in hints if f"</b>{hint}</li>" not in below] == []


def test_seeds_and_queries_that_count_zero_stand_in_every_format(tmp_path: Path) -> None:
    per_seed = {"colbert": {"0": {"AP": {"q": 0.4, "r": 0.0}}, "1": {"AP": {"q": 0.6, "r": 0.0}}}}
    systems = (
        SystemResult("bm25", "BM25", seeded=False, means={"AP": 0.1}, unanswered=1),
        SystemResult("colbert", "ColBERT", seeds=2, means={"AP": 0.25}, unanswered=0),
        SystemResult("self-kd", "Self-KD", means={"AP": 0.3}),
    )
    values = {system.slug: {"AP": {"q": 2 * system.means["AP"], "r": 0.0}} for system in systems}  # type: ignore[operator]
    document = StudyDocument("u", ("AP",), systems=systems, per_query=values, per_seed=per_seed, without_relevant=7)
    files = write_report(document, tmp_path)
    for text in (files.html.read_text(), files.markdown.read_text()):
        assert "by the grades): 7." in text
        assert "BM25 1." in text
    found = json.loads(files.metrics.read_text())
    assert [found["systems"][slug]["unanswered"] for slug in ("bm25", "colbert")] == [1, 0]
    assert found["without_relevant"] == 7


def test_the_short_report_of_a_run(full_study: StudyDocument, tmp_path: Path) -> None:
    document = StudyDocument(
        "caves",
        full_study.measures,
        systems=full_study.systems,
        comparisons=full_study.comparisons,
        per_query=full_study.per_query,
        student="collective-0.5",
    )
    commands = ('colabel search runs/mine/index "<your question>"',)
    shown = write_run_report(document, tmp_path, student=Path("runs/mine/model"), commands=commands)
    page = Checker(shown.read_text())
    assert [one["id"] for one in page.all("section")] == ["results", "next"]
    assert page.open == []
    text = (tmp_path / "report.md").read_text()
    assert text.splitlines()[2].startswith("Collective self-KD (β = 0.5)")
    assert "runs/mine/model" in text
    assert commands[0] in text
    write_run_report(StudyDocument("caves", ("AP",)), tmp_path, student=Path("runs/mine/model"))
    text = (tmp_path / "report.md").read_text()
    assert "no test labels" in text.splitlines()[2]
    assert "## Results" not in text


SLUGS = {"bm25", "zero-shot", "colbert", "colbert-hn", "ce3-kd", "collective-1", "colbert-prf-rerank-0.5", "mixed"}


def test_rendering_again_gives_the_same_bytes(rendered: ReportFiles, tmp_path: Path) -> None:
    """In another process, with another order of sets and another user's plot settings."""
    shutil.copy(rendered.html.with_name("study.json"), tmp_path)
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nsvg.fonttype: path\naxes.grid: False\n")
    environment = {**os.environ, "PYTHONHASHSEED": "7", "MATPLOTLIBRC": str(tmp_path), "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-m", "colabel", "report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / name) for name in ("report.html", "report.md", "metrics.json")]
    for file in (rendered.html, rendered.markdown, rendered.metrics):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_metrics_for_other_programs(rendered: ReportFiles, full_study: StudyDocument) -> None:
    found = json.loads(rendered.metrics.read_text(encoding="utf-8"))
    assert found["systems"].keys() >= SLUGS
    assert [slug for slug, one in found["systems"].items() if one["failed"]] == ["collective-tuned"]
    assert {slug: one["means"] for slug, one in found["systems"].items()} == {
        system.slug: system.means for system in full_study.systems
    }
    pairs = found["comparisons"]["nDCG@10"]["pairs"]
    assert len(pairs) == 78
    assert {"system", "against", "test", "t_test_holm", "randomisation_holm"} <= pairs[0].keys()
    assert found["systems"]["zero-shot"]["unjudged_share"] == 0.26
    assert found["seconds"] == full_study.seconds
    assert "per_query" not in found
    assert found["per_seed"].keys() == {system.slug for system in full_study.finished if system.seeds > 1}
    seeds = [found["per_seed"]["colbert"][seed]["nDCG@10"] for seed in "012"]
    assert sum(seeds) / 3 == pytest.approx(found["systems"]["colbert"]["means"]["nDCG@10"])


def test_the_figures_of_a_results_page(rendered: ReportFiles, full_study: StudyDocument) -> None:
    found = results.condense(rendered.html.parent)
    ours = found["systems"]["collective-1"]
    assert ours["marks"] == dict.fromkeys(MEASURES, "▲")
    assert ours["means"]["nDCG@10"] == pytest.approx(full_study.systems[9].means["nDCG@10"], abs=1e-6)
    assert found["ratios"]["ce-kd"]["annotation"] == 7.5
    assert found["label_quality"]["Test queries"]["φ (base)"]["1"]["mean"] == pytest.approx(0.36)


def test_the_function_has_the_name_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"format": 2, "name": "x", "measures": ["AP"]}')
    files = colabel.report(tmp_path)
    written = {"study.json", "report.html", "report.md", "metrics.json"}
    assert {path.name for path in tmp_path.iterdir()} == written
    assert json.loads(files.metrics.read_text())["systems"] == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no study.json"),
        (b'{"format": 2,\n"name": }', "malformed"),
        (b'{"format": 2, "name": "\xff"}', "utf-8"),
        (b"[]", "`object`"),
        (b"{}", "format"),
        (b'{"format": 1, "name": "x"}', "format: expected 2, found 1"),
        (b'{"format": 2, "name": "x"}', "`measures`"),
    ],
)
def test_a_study_that_cannot_be_read(content: bytes | None, words: str, tmp_path: Path, call: Call) -> None:
    if content is not None:
        (tmp_path / "study.json").write_bytes(content)
    (tmp_path / "report.html").write_text("the last good one")
    code, out, err = call("report", tmp_path)
    assert (code, out) == (1, "")
    assert words in err
    assert (tmp_path / "report.html").read_text() == "the last good one"
    assert not (tmp_path / "metrics.json").exists()


def test_no_such_folder(tmp_path: Path, call: Call) -> None:
    (tmp_path / "file").write_text("")
    for name, words in (("none", "none does not exist"), ("file", "file is a file")):
        code, _, err = call("report", tmp_path / name)
        assert code == 1
        assert words in err
