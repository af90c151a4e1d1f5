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
from colabel.reporting.records import Efficiency, Example, ExamplePassage, Ratio, Reached, Setting, SweepRow, System

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
    "per_seed": None,
    "comparisons": None,
    "label_quality": "labels",
    "suggestions": "labels",
    "prf_gain": "labels",
    "sweep": "sweep",
    "examples": "examples",
    "training": "training",
    "efficiency": "training",
    "recipe": "setup",
    "collective": "setup",
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


def test_letters_run_in_the_order_of_the_rows(tmp_path: Path) -> None:
    named = (("one", "hard"), ("two", "soft"), ("three", "hard"))
    systems = tuple(System(name, name.title(), group, means={"AP": 0.5}) for name, group in named)
    files = write_report(StudyDocument("order", ("AP",), systems=systems), tmp_path)
    rows = [line.split(" (")[0] for line in files.markdown.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:4] == ["| a One", "| b Three", "| c Two"]
    html = files.html.read_text()
    assert re.findall(r'<span class="letter">(\w)</span>(\w+)', html)[:3] == [
        ("a", "One"),
        ("b", "Three"),
        ("c", "Two"),
    ]


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


def unequal_seeds(**changes: object) -> StudyDocument:
    """Two seeds of a, whose first is the better, and one of b and of BM25."""
    systems = (
        System("bm25", "BM25", means={"AP": 0.61}, judged_only={"AP": 0.7}),
        System("a", "A", seeds=2, means={"AP": 0.5}, judged_only={"AP": 0.7}),
        System("b", "B", means={"AP": 0.55}, judged_only={"AP": 0.8}),
    )
    seeds = {"0": {"AP": {"q1": 0.5, "q2": 0.7}}, "1": {"AP": {"q1": 0.3, "q2": 0.5}}}
    return dataclasses.replace(StudyDocument("seeds", ("AP",), systems=systems, per_seed={"a": seeds}), **changes)


def test_a_value_of_one_seed_does_not_beat_a_mean_over_several(tmp_path: Path) -> None:
    document = unequal_seeds()
    assert document.comparable("AP") == pytest.approx({"bm25": 0.61, "a": 0.6, "b": 0.55})
    text = write_report(document, tmp_path).markdown.read_text()
    assert "- highest AP on seed 0, which all have: 0.610, BM25\n" in text
    without = unequal_seeds(systems=document.systems[1:])
    text = write_report(without, tmp_path).markdown.read_text()
    assert "- highest AP on seed 0, which all have: 0.600, A\n" in text
    assert "**All systems on the test queries; bold is the best on seed 0, which all have**" in text
    assert "| a A (a, 2 seeds) | **0.500** (seed 0: 0.600) |" in text
    assert "| b B (b) | 0.550 |" in text
    assert "| a A | 0.500 | 0.700 |\n| b B | 0.550 | 0.800 |" in text, "of means over different seeds none is the best"


def test_nothing_is_the_best_where_the_seeds_are_not_known_and_the_mean_where_all_have_as_many(tmp_path: Path) -> None:
    text = write_report(unequal_seeds(per_seed={}), tmp_path).markdown.read_text()
    assert "highest" not in text
    assert "**0." not in text
    equal = tuple(dataclasses.replace(system, seeds=2) for system in unequal_seeds().systems[1:])
    text = write_report(unequal_seeds(systems=equal), tmp_path).markdown.read_text()
    assert "- highest AP: 0.550, B\n" in text
    assert "| b B (b, 2 seeds) | **0.550** |" in text
    assert "seed 0" not in text


def test_what_costs_are_compared_on(rendered: ReportFiles, tmp_path: Path) -> None:
    text = rendered.markdown.read_text()
    target = "Time to reach nDCG@10 0.550 (1 % above the highest value before training, 0.545) on 90 dev queries"
    assert f"**{target}**" in text
    ratio = "| KD, one cross-encoder | Collective self-KD (β = 1) | 16,000 (against 16,000, ×5.00) |"
    assert f"{ratio} ×1.50 | ×7.50 | ×1.02 | ×1.10 | ×2.10 |" in text
    assert "| encoder passes | passes, equal pairs |" in text
    assert "| 16,000 | 16,000 | 80,900 |" in text
    before = Efficiency(
        target=0.5,
        reached=(Reached("a", "θ", 10, training=None), Reached("b", "θ")),
        ratios=(Ratio("b", "a", 7.5, 1.0, 2.0),),
    )
    text = write_report(StudyDocument("old", ("AP",), efficiency=before), tmp_path).markdown.read_text()
    assert "**Time to reach nDCG@10 0.500 on at most distil.evaluate\\_queries dev queries**" in text
    assert "| a | θ | 10 | – | – | – | – |\n| b | θ | – | – | not reached |" in text
    assert "| b | a | – | – | ×7.50 | ×1.00 | – | ×2.00 |" in text


def test_teachers_are_compared_with_phi(rendered: ReportFiles) -> None:
    lines = rendered.markdown.read_text().replace("\u00a0", " ").splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("| Teacher |"))
    assert lines[head].endswith("| AP − φ |")
    assert lines[head + 2].startswith("| φ (base) |")
    assert lines[head + 2].endswith("| – |")
    assert lines[head + 3].endswith("| +0.050 \\[+0.010, +0.090\\] p = 0.0312 |")
    assert not any("AP − φ" in line for line in lines if "Test queries" in line), "nothing was tested there"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((), "never from labels**"),
        ((Setting("expansion_scale", "normalised", "paper"),), "(expansion\\_scale normalised; the paper: β·σ)**"),
        ((Setting("expansion_scale", "paper", "paper"),), "β multiplies σ (expansion\\_scale paper)**"),
    ],
)
def test_the_sweep_says_what_it_is_of(settings: tuple[Setting, ...], words: str, tmp_path: Path) -> None:
    sweep = tuple(SweepRow(3, 24, 10, beta, {"AP": beta}) for beta in (0.25, 0.5))
    files = write_report(StudyDocument("s", ("AP",), sweep=sweep, collective=settings), tmp_path)
    text = files.markdown.read_text()
    assert "## Sweep over the teacher's settings" in text
    ranker = (
        "**ColBERT-PRF as ranker (it searches again with the expanded query) on the dev queries, with feedback from"
    )
    line = next(line for line in text.splitlines() if line.startswith(ranker))
    assert line.endswith(words)
    assert "AP of ColBERT-PRF as ranker on dev queries over β" in files.html.read_text()


def test_settings_that_are_not_the_papers_are_seen_at_once(rendered: ReportFiles, tmp_path: Path) -> None:
    text = rendered.markdown.read_text()
    differing = "feedback = labelled, not top; expansion\\_scale = normalised, not paper"
    assert f"- not as in the paper: {differing}\n" in text.split("## ")[0]
    assert (
        "| feedback | labelled | top, differs |\n| feedback\\_passages (f\\_p) | 3 | 3 |\n| start | spread | – |"
        in text
    )
    same = StudyDocument("s", ("AP",), collective=(Setting("feedback", "top", "top"),))
    assert "not as in the paper" not in write_report(same, tmp_path).markdown.read_text()


def test_a_place_beyond_the_candidates_is_not_made_up(tmp_path: Path) -> None:
    passages = (ExamplePassage("d1", before=None, after=1, labelled=True), ExamplePassage("d2", before=7, after=2))
    known, unknown = Example("q1", passages=passages, candidates=1000), Example("q2", passages=passages)
    files = write_report(StudyDocument("e", ("AP",), examples=(known, unknown)), tmp_path)
    assert files.markdown.read_text().count("- 7 → 2 d2") == 2
    assert "- &gt; 1,000 → 1 **labelled** d1" in files.markdown.read_text()
    assert "- – → 1 **labelled** d1" in files.markdown.read_text()
    assert '<span class="move up">&gt; 1,000 → 1</span>' in files.html.read_text()


def test_the_share_of_unjudged_passages_has_a_column_where_it_is_known(tmp_path: Path) -> None:
    system = System("a", "A", means={"AP": 0.5}, judged_only={"AP": 0.5}, unjudged_share=0.7312)
    text = write_report(StudyDocument("u", ("AP",), systems=(system,)), tmp_path).markdown.read_text()
    assert text.replace("\u00a0", " ").count("unjudged of top 10 |") == 2
    assert text.count("| 73.1 % |") == 2
    assert "Unjudged: of the passages that all queries have in their top 10" in text
    old = StudyDocument.from_json(
        {"format": 1, "name": "u", "measures": ["AP"], "systems": [{"slug": "a", "title": "A", "unjudged": 7.3}]}
    )
    assert "njudged" not in write_report(old, tmp_path).markdown.read_text()
