from __future__ import annotations

import dataclasses
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from studies import BAD, FAILED, MEASURES

from colabel.reporting import ReportFiles, StudyDocument, write_report
from colabel.reporting.page import page as whole_page
from colabel.reporting.parts import Cell, Column, Row, Section, Table
from colabel.reporting.records import System

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
    assert "".join(page.texts).count("alert(") >= 4  # token, query, title and text show it as it is


def test_every_section_and_plot_is_there(page: Checker) -> None:
    sections = [attributes["id"] for attributes in page.all("section")]
    expected = "notes results effect queries unjudged time training labels sweep examples setup"
    assert sections == expected.split()
    drawn = {attributes["id"] for attributes in page.all("figure") if attributes.get("id")}
    wanted = {f"plot-{kind}-{place}" for kind in ("effect", "difference") for place in range(3)}
    wanted |= {f"plot-scatter-{place}" for place in range(7)} | {"plot-response-bars", "plot-cost-bars", "plot-loss"}
    wanted |= {f"plot-precision-recall-0-{grade}-{kind}" for grade in (0, 1) for kind in ("averaged", "pooled")}
    wanted |= {"plot-dev-seconds", "plot-dev-steps", "plot-sweep-beta", "plot-sweep-feedback-passages"}
    assert wanted <= drawn
    assert not any(name.startswith("plot-precision-recall-1") for name in drawn), "a table without curves"
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
    table = html[html.index('<table id="table-main">') :]
    table = table[: table.index("</table>")]
    comparison = full_study.comparisons["nDCG@10"]
    best = next(line for line in comparison.lines if line.system == "collective-1")
    assert best.beats_holm != best.beats, "the fixture should show the switch"
    assert f'<sup class="holm">{"".join(best.beats_holm)}</sup>' in table
    assert f'<sup class="raw">{"".join(best.beats)}</sup>' in table
    assert f"<strong>{best.mean.mean:.3f}</strong>" in table
    assert f"failed: {FAILED}" in table
    groups = re.findall(r'scope="rowgroup"[^>]*>([^<]+)', table)
    assert groups == ["baseline", "hard labels", "distilled", "search time"]


def test_letters_follow_the_table_where_a_comparison_lettered_otherwise(
    full_study: StudyDocument, tmp_path: Path
) -> None:
    turned = dataclasses.replace(full_study.comparisons["nDCG@10"])
    names = {line.letter: line.system for line in turned.lines}
    letters = {system: f"x{place}" for place, system in enumerate(names.values())}
    lines = [
        dataclasses.replace(
            line,
            letter=letters[line.system],
            beats=tuple(letters[names[one]] for one in line.beats),
            beats_holm=tuple(letters[names[one]] for one in line.beats_holm),
        )
        for line in reversed(turned.lines)
    ]
    document = StudyDocument("x", ("nDCG@10",), systems=full_study.systems)
    same, other = (
        dataclasses.replace(document, comparisons={"nDCG@10": dataclasses.replace(turned, lines=tuple(found))})
        for found in (turned.lines, lines)
    )
    assert write_report(other, tmp_path).markdown.read_text() == write_report(same, tmp_path).markdown.read_text()


PARTS = {
    "notes": "notes",
    "per_query": None,
    "comparisons": None,
    "label_quality": "labels",
    "suggestions": "labels",
    "prf_gain": "labels",
    "sweep": "sweep",
    "examples": "examples",
    "training": "training",
    "efficiency": "training",
    "recipe": "setup",
    "environment": "setup",
    "seconds": "setup",
    "dataset": None,
}


@pytest.mark.parametrize("part", PARTS)
def test_any_part_may_stand_alone(part: str, full_study: StudyDocument, tmp_path: Path) -> None:
    document = StudyDocument("alone", MEASURES, **{part: getattr(full_study, part)})
    files = write_report(document, tmp_path)
    page = Checker(files.html.read_text(encoding="utf-8"))
    assert page.open == []
    shown = [attributes["id"] for attributes in page.all("section")]
    assert set(shown) == {"results", *filter(None, [PARTS[part]])}
    assert files.markdown.read_text(encoding="utf-8").startswith("# alone\n")


def test_systems_alone_failed_or_with_gaps(tmp_path: Path) -> None:
    systems = (
        System("a", "A", means={"AP": 0.5}),
        System("b", "B", failed="no luck"),
        System("c", "C $x$ 夏", means={"AP": None, "RR": 0.25}, seconds={"training": None}),
    )
    for chosen in (systems, systems[1:2]):
        document = StudyDocument("gaps", ("AP", "RR"), systems=chosen, reference="nowhere")
        html = write_report(document, tmp_path).html.read_text(encoding="utf-8")
        assert Checker(html).open == []
        assert "failed: no luck" in html
        assert ("C $x$ 夏" in html) == (len(chosen) > 1)


def test_many_queries_do_not_make_a_large_page(tmp_path: Path) -> None:
    queries = {f"q{number}": (number * 7919 % 10007) / 10007 for number in range(7000)}
    others = {query: 1 - value for query, value in queries.items()}
    document = StudyDocument(
        "large",
        ("AP",),
        systems=(System("colbert", "ColBERT"), System("s", "S", "distilled")),
        per_query={"colbert": {"AP": queries}, "s": {"AP": others}},
    )
    assert write_report(document, tmp_path).html.stat().st_size < 250_000


def test_markdown_has_the_same_tables(rendered: ReportFiles, full_study: StudyDocument) -> None:
    text = rendered.markdown.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert "<script" not in text
    rows = [line for line in lines if line.startswith("| j Collective self-KD (β = 1)")]
    best = next(line for line in full_study.comparisons["nDCG@10"].lines if line.system == "collective-1")
    assert f"**{best.mean.mean:.3f}**<sup>{''.join(best.beats_holm)}</sup>" in rows[0]
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    for above, below in itertools.pairwise(bars):
        assert above == below or 0 in (above, below), "a row has as many cells as its table"
    assert f"failed: {FAILED.replace('_', chr(92) + '_')}" in text
    assert "```toml\n[data]" in text
    assert [line for line in lines if line.startswith("## ")][:2] == ["## Notes", "## Results"]


def test_a_group_has_one_heading_wherever_its_rows_stand() -> None:
    named = (("one", "hard"), ("two", "soft"), ("three", "hard"))
    table = Table("t", "rows", (Column("System", number=False),), tuple(Row((Cell(a),), group) for a, group in named))
    shown = whole_page("p", (), (Section("s", "S", (table,)),))
    assert [shown.count(f">{group}</th>") for group in ("hard", "soft")] == [1, 1]
    assert shown.index(">one<") < shown.index(">three<") < shown.index(">two<")
