from __future__ import annotations

import dataclasses
import itertools
import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from studies import BAD, FAILED, MEASURES

from colabel.pipeline.systems import SYSTEMS
from colabel.reporting import ReportFiles, StudyDocument, report, write_report
from colabel.reporting.figures import p_value
from colabel.reporting.markdown import markdown
from colabel.reporting.page import page as whole_page
from colabel.reporting.parts import Cell, Column, Row, Section, Table
from colabel.reporting.records import (
    Efficiency,
    Example,
    ExamplePassage,
    ExampleToken,
    FeedbackGain,
    Mean,
    Milliseconds,
    Ratio,
    Reached,
    Setting,
    SweepRow,
    System,
    Timing,
    TrainingCurve,
)
from colabel.reporting.sections import about

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
    expected = "glossary results notes effect queries unjudged time training labels sweep examples setup"
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
    "gain_difference": None,
    "sweep": "sweep",
    "examples": "examples",
    "training": "training",
    "efficiency": "training",
    "timing": None,
    "recipe": "setup",
    "settings": "setup",
    "models": "setup",
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
    assert f"{best.mean.mean:.3f}<sup>{''.join(best.beats_holm)}</sup>" in rows[0]
    assert f"**seed 0: {full_study.seed_means['collective-1']['0']['nDCG@10']:.3f}**" in rows[0]
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    for above, below in itertools.pairwise(bars):
        assert above == below or 0 in (above, below), "a row has as many cells as its table"
    assert f"failed: {FAILED.replace('_', chr(92) + '_')}" in text
    assert "```toml\n[data]" in text
    chapters = [line for line in lines if line.startswith("## ")]
    assert chapters[:3] == ["## Systems and symbols", "## Results", "## Notes"]


def test_a_group_has_one_heading_wherever_its_rows_stand() -> None:
    named = (("one", "hard"), ("two", "soft"), ("three", "hard"))
    table = Table("t", "rows", (Column("System", number=False),), tuple(Row((Cell(a),), group) for a, group in named))
    shown = whole_page("p", (), (Section("s", "S", (table,)),))
    assert [shown.count(f">{group}</span></th>") for group in ("hard", "soft")] == [1, 1]
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
    assert "| a A (a, 2 seeds) | 0.500 (**seed 0: 0.600**) |" in text, "its mean is not the best"
    html = write_report(without, tmp_path).html.read_text()
    assert '>0.500<span class="detail"><strong>seed\u00a00:\u00a00.600</strong></span>' in html
    assert "| b B (b) | 0.550 |" in text
    assert "| a A | 0.500 | 0.700 |\n| b B | 0.550 | 0.800 |" in text, "of means over different seeds none is the best"


def test_nothing_is_the_best_where_the_seeds_are_not_known_and_the_mean_where_all_have_as_many(tmp_path: Path) -> None:
    text = write_report(unequal_seeds(per_seed={}), tmp_path).markdown.read_text()
    assert "- highest" not in text
    assert "**0." not in text
    equal = tuple(dataclasses.replace(system, seeds=2) for system in unequal_seeds().systems[1:])
    text = write_report(unequal_seeds(systems=equal), tmp_path).markdown.read_text()
    assert "- highest AP: 0.550, B\n" in text
    assert "| b B (b, 2 seeds) | **0.550** |" in text
    assert "seed 0" not in text


def test_what_costs_are_compared_on(rendered: ReportFiles, tmp_path: Path) -> None:
    text = rendered.markdown.read_text()
    target = "Time to reach nDCG@10 0.550 (1 % above the highest value before training, 0.545) on 90 dev queries"
    assert f"**{target}, evaluated every 25 steps from 0 to 200**" in text
    assert "- Differences of less than one interval between evaluations, 25 steps, cannot be seen.\n" in text
    assert "- training until then: steps × the median seconds of a step over all students" in text
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
    assert "| b | – | ×1.00 | – | ×7.50 | ×2.00 |" in text
    assert "evaluat" not in text.split("## Training")[1].replace("evaluate\\_queries", ""), "when is not known"


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
    assert "## Sweep over f\\_p, f\\_c, f\\_e and β" in text
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
    assert "| feedback | labelled | top, differs |\n| feedback\\_passages (f\\_p) | 3 | 3 |\n| clusters" in text
    assert "| start | spread | – |" in text
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
    system = System("a", "A", means={"AP": 0.5}, judged_only={"AP": 0.6}, unjudged_share=0.7312)
    text = write_report(StudyDocument("u", ("AP",), systems=(system,)), tmp_path).markdown.read_text()
    assert text.replace("\u00a0", " ").count("unjudged of top 10 |") == 2
    assert text.count("| 73.1 % |") == 2
    note = "- unjudged of top 10: share without a judgement of the passages that all queries have in their top 10\n"
    assert text.replace("\u00a0", " ").count(note) == 2
    same = dataclasses.replace(system, judged_only={"AP": 0.5})
    text = write_report(StudyDocument("u", ("AP",), systems=(same,)), tmp_path).markdown.read_text()
    assert "judged only" not in text, "there is nothing to compare"
    old = StudyDocument.from_json(
        {"format": 1, "name": "u", "measures": ["AP"], "systems": [{"slug": "a", "title": "A", "unjudged": 7.3}]}
    )
    assert "njudged" not in write_report(old, tmp_path).markdown.read_text()


def test_ratios_say_what_is_counted_on_which_side(full_study: StudyDocument, tmp_path: Path) -> None:
    files = write_report(full_study, tmp_path)
    text = files.markdown.read_text()
    lines = text[text.index("**Times as long") :].splitlines()
    assert lines[0] == (
        "**Times as long as Collective self-KD (β = 1); labelled pairs: 16,000 against 16,000 (×5.00)**"
    ), "what all rows share is no column"
    heads = "before training as run | training | overall as run | annotation for equal pairs | overall for equal pairs"
    assert lines[2] == f"| System | {heads} | paper: annotation | paper: overall |"
    seconds = "×1.50 (4 min 00 s / 2 min 40 s) | ×1.02 | ×1.10 | ×7.50 (20 min 00 s / 2 min 40 s) | ×2.10"
    assert lines[4] == f"| KD, one cross-encoder | {seconds} | ×2.67 | ×2.50 |"
    assert lines[5].endswith("| ×16.00 | – |")
    assert [line.split(": ")[0] for line in lines[7:11]] == [
        f"- {head}" for head in heads.split(" | ") if head != "training"
    ]
    assert lines[11].startswith("- Training the cross-encoders is in none of these figures")
    found = json.loads(files.metrics.read_text())["ratios"]["ce-kd"]
    assert (found["annotation"], found["against"]) == (7.5, "collective-1")
    assert found["seconds"]["annotation"] == [1200.0, 160.0]


def test_ratios_of_different_rows_name_their_pairs(full_study: StudyDocument, tmp_path: Path) -> None:
    ratios = (Ratio("ce-kd", "collective-1", 7.5, factor=2.0), Ratio("ce3-kd", "collective-0.5", 9.0, factor=3.0))
    document = dataclasses.replace(full_study, efficiency=Efficiency(ratios=ratios))
    text = write_report(document, tmp_path).markdown.read_text()
    assert "**Times as long**\n\n| System | against | labelled pairs | before training as run |" in text
    assert "| KD, one cross-encoder | Collective self-KD (β = 1) | 16,000 against 16,000 (×2.00) | – |" in text
    assert "| paper: " not in text


def test_definitions_stand_below_the_table_and_in_the_tooltip() -> None:
    columns = (
        Column("System", number=False),
        Column("one", hint="a & b"),
        Column("two", hint="a & b"),
        Column("three"),
    )
    table = Table("t", "rows", columns, (Row(tuple(map(Cell, "sabc"))),), ("As a whole.",))
    shown = whole_page("p", (), (Section("s", "S", (table,)),))
    assert '<ul class="explained"><li><b>one, two: </b>a &amp; b</li><li>As a whole.</li></ul></figure>' in shown
    assert shown.count('title="a &amp; b"') == 2
    text = markdown("p", (), (Section("s", "S", (table,)),))
    assert text.endswith("| s | a | b | c |\n\n- one, two: a &amp; b\n- As a whole.\n")
    bare = dataclasses.replace(table, columns=columns[:1], rows=(Row((Cell("s"),)),), notes=())
    assert "explained" not in whole_page("p", (), (Section("s", "S", (bare,)),)).split("<body>")[1]


def test_every_tooltip_is_read_without_a_mouse(html: str, page: Checker) -> None:
    hints = {attributes["title"] for attributes in page.all("button") if attributes.get("title")}
    below = "".join(re.findall(r'<ul class="explained">.*?</ul>', html))
    assert len(hints) > 10
    assert [hint for hint in hints if f"</b>{escape(hint)}</li>" not in below] == []


def test_the_glossary_has_a_line_for_each_kind_of_row(rendered: ReportFiles, tmp_path: Path) -> None:
    text = rendered.markdown.read_text()
    chapter = text[text.index("## Systems and symbols") : text.index("## Results")]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in chapter.splitlines() if line.startswith("| ")]
    systems, symbols = rows[1 : rows.index("Symbol")], rows[rows.index("Symbol") + 1 :]
    assert systems == [
        "BM25",
        "Plain encoder, not trained",
        "ColBERT",
        "ColBERT-HN",
        "Uniform smoothing",
        "Self-KD",
        "KD, one cross-encoder",
        "KD, ensemble of three cross-encoders",
        "Collective self-KD",
        "Mixed",
        "ColBERT-PRF ranker",
        "ColBERT-PRF re-ranker",
    ]
    assert symbols == ["θ", "φ", "σ", "β", "f\\_p", "f\\_c", "f\\_e"]
    assert "| f\\_p | feedback passages of a query, at most; here 3 |" in chapter
    assert "<details><summary>" in chapter
    other = StudyDocument("x", ("AP",), systems=(System("mine", "Mine", means={"AP": 0.5}),))
    assert "Systems and symbols" not in write_report(other, tmp_path).markdown.read_text(), "nothing is known of it"


def test_every_row_that_a_study_can_have_is_in_the_glossary(tmp_path: Path) -> None:
    slugs = [slug.replace("-B", "-0.5") for slug in SYSTEMS]
    systems = tuple(System(slug, f"name of {slug}") for slug in slugs)
    text = write_report(StudyDocument("x", ("AP",), systems=systems), tmp_path).markdown.read_text()
    chapter = text[: text.index("**Symbols**")]
    assert [slug for slug in slugs if f"| name of {slug} |" not in chapter] == []


def test_intervals_say_what_they_are_and_what_they_leave_out(tmp_path: Path) -> None:
    once = System("a", "A", means={"AP": 0.5})
    several = System("b", "B", means={"AP": 0.5}, seeds=3)
    bm25 = System("bm25", "BM25", means={"AP": 0.5})
    kinds = "In brackets: interval of the mean, 95 % percentile bootstrap over queries."
    lacks = "Intervals of rows with one seed do not hold the variance of training."
    for systems, alone, spread in (
        ((once, several), True, True),
        ((once, bm25), True, False),
        ((bm25, several), False, True),
    ):
        text = write_report(StudyDocument("i", ("AP",), systems=systems), tmp_path).markdown.read_text()
        assert kinds in text
        assert (lacks in text, "±: standard deviation over seeds" in text) == (alone, spread)


def test_intervals_are_named_in_each_chapter_that_has_some(rendered: ReportFiles) -> None:
    chapters = rendered.html.read_text().split("<h2 ")
    told = [chapter for chapter in chapters if "95 % percentile bootstrap over queries" in chapter]
    assert [re.findall(r"^[^>]*>([^<]+)", chapter)[0] for chapter in told] == ["Results", "Effect", "Label quality"]


def test_markdown_has_no_words_about_plots_that_it_lacks(rendered: ReportFiles) -> None:
    chapters = re.findall("^## (.+)$", rendered.markdown.read_text(), re.MULTILINE)
    assert "Results" in chapters
    assert "Training" in chapters, "it has tables, too"
    assert not {"Effect", "Query by query"} & set(chapters)


def test_whether_judged_means_relevant(full_study: StudyDocument, tmp_path: Path) -> None:
    def unjudged(not_relevant: dict[str, int]) -> str:
        dataset = dataclasses.replace(full_study.dataset, not_relevant=not_relevant)  # type: ignore[type-var]
        document = dataclasses.replace(full_study, dataset=dataset)
        text = write_report(document, tmp_path).markdown.read_text()
        return text[text.index("## Passages without a judgement") : text.index("## Response time")]

    assert "Of the 411 judgements of the test queries, 37 are of passages that are not relevant.\n" in unjudged(
        {"test": 37}
    )
    none = unjudged({"train": 4, "test": 0})
    assert (
        "None of the 411 judgements of the test queries is of a passage that is not relevant: here judged means" in none
    )
    assert "judgements of" not in unjudged({}), "an old study does not tell"


def test_how_times_were_taken(full_study: StudyDocument, tmp_path: Path) -> None:
    def conditions(timing: Timing | None) -> str:
        text = write_report(dataclasses.replace(full_study, timing=timing), tmp_path).markdown.read_text()
        return text[text.index("## Response time") : text.index("**Milliseconds per query**")]

    known = conditions(full_study.timing)
    assert "One query at a time on one thread, from its text to its 1,000 best passages, encoding included" in known
    assert "50 queries are timed, after 10 to warm up, which do not count." in known
    assert "second search" in known
    assert "differences between these rows are noise" in known
    old = conditions(None)
    assert "on one thread, from its text to its ranked passages" in old
    assert "The first questions, which load the model and the index, are not timed." in old


def test_evaluation_points_that_are_not_regular_are_listed(tmp_path: Path) -> None:
    training = {"a": TrainingCurve(dev=((0, 0.0, 0.5), (100, 1.0, 0.5), (150, 2.0, 0.6)))}
    efficiency = Efficiency(target=0.5, reached=(Reached("a", "θ", 150),))
    document = StudyDocument("e", ("AP",), training=training, efficiency=efficiency)
    text = write_report(document, tmp_path).markdown.read_text()
    assert "dev queries, evaluated at steps 0, 100, 150**" in text
    assert "one interval between evaluations, 100 steps, cannot be seen" in text


def test_what_label_quality_and_feedback_are(rendered: ReportFiles, full_study: StudyDocument, tmp_path: Path) -> None:
    text = rendered.markdown.read_text().replace("\u00a0", " ")
    chapter = text[text.index("## Label quality") : text.index("## Sweep")]
    assert "precision is interpolated, the highest at that recall or beyond" in chapter
    assert "a score must also compare across queries, which averages do not ask for" in chapter
    held = "840 of the 1,200 relevant passages of these queries (70.0 %) are candidates, none in 1 query, left out"
    assert f"relevant from grade 1; {held}**" in chapter
    page = rendered.html.read_text().replace("\u00a0", " ")
    assert f"relevant from grade 1, averaged over queries; {held}" in page
    assert "relevant from grade 2**" in chapter, "where it is not known, nothing is said"
    assert "21.0 % of all" in chapter
    assert "| Suggested by | 1 × queries | 2 × queries | 5 × queries |" in chapter
    assert "- 1 × queries, 2 × queries, 5 × queries: of so many times as many suggestions" in chapter
    assert "| Split | queries | gain | ColBERT's nDCG@10 | relevant feedback |" in chapter
    assert (
        "ColBERT-PRF (β = 0.5) ranks ColBERT's top 100 again; the feedback of either split is each query's" in chapter
    )
    assert (
        "own top 3, never labels. Training queries are measured against all their labels, the 1,532 hidden" in chapter
    )
    assert "The gain on train less that on test is +0.028 \\[−0.002, +0.058\\] (the bootstrap draws" in chapter
    old = StudyDocument("o", ("AP",), prf_gain={"test": FeedbackGain(Mean(0.1))})
    text = write_report(old, tmp_path).markdown.read_text()
    assert "ColBERT-PRF ranks ColBERT's top passages again; the feedback of either split" in text
    assert "own top f\\_p, never labels.\n" in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({0.0: 0.5, 0.25: 0.6, 1.0: 0.7}, "1, AP 0.700. β = 0, which is ColBERT itself, is worse: 0.500.\n"),
        ({0.0: 0.8, 0.25: 0.6, 1.0: 0.6}, "0.25, AP 0.600. β = 0, which is ColBERT itself, is better: 0.800.\n"),
        ({0.0: 0.6, 0.25: 0.6}, "0.25, AP 0.600. β = 0, which is ColBERT itself, is as good: 0.600.\n"),
        ({0.25: 0.6}, "0.25, AP 0.600.\n"),
        ({0.0: 0.6}, None),
    ],
)
def test_the_best_beta_of_the_sweep(values: dict[float, float], words: str | None, tmp_path: Path) -> None:
    """With the study's own f_p, f_c and f_e: another point that is better does not count."""
    sweep = (
        *(SweepRow(3, 24, 10, beta, {"AP": value}) for beta, value in values.items()),
        SweepRow(1, 24, 10, 1.0, {"AP": 0.9}),
    )
    shape = (Setting("feedback_passages", "3"), Setting("clusters", "24"), Setting("centroids", "10"))
    text = write_report(StudyDocument("s", ("AP",), sweep=sweep, collective=shape), tmp_path).markdown.read_text()
    begin = "Best β above 0 on dev, with f\\_p = 3, f\\_c = 24, f\\_e = 10: "
    assert (f"{begin}{words}" in text) if words else "Best β" not in text
    old = write_report(StudyDocument("s", ("AP",), sweep=sweep), tmp_path).markdown.read_text()
    assert "Best β" not in old, "it is not known which points are the study's own"


def test_how_examples_were_chosen(rendered: ReportFiles, tmp_path: Path) -> None:
    text = rendered.markdown.read_text()
    intro = text[text.index("## Examples") : text.index("### ")]
    assert "the collective teacher (β = 0.5) changed most: those whose passages rose furthest" in intro
    assert "the nearest token of the collection to each" in intro
    assert "A token that begins with \\#\\# continues a word." in intro
    assert "left out" not in intro
    bare = (Example("q", tokens=(ExampleToken("ice", 1.0),), passages=(ExamplePassage("d"),)),)
    frequent = (Setting("token", "most-frequent", "nearest"),)
    document = StudyDocument("e", ("AP",), examples=bare, collective=frequent, settings={"study.texts": "false"})
    intro = write_report(document, tmp_path).markdown.read_text()
    assert "the most frequent of the 10 nearest tokens to each" in intro
    assert "The texts of the collection are left out (study.texts = false); ids stand for them." in intro
    assert "\\#\\#" not in intro
    assert "(β" not in intro


def test_models_versions_and_all_settings_are_told(rendered: ReportFiles) -> None:
    text = rendered.markdown.read_text()
    assert "- encoder: minilm\n" in text.split("## ")[0]
    assert "| Python | 3.11.2 |\n| colabel | 0.1.0 |" in text
    assert "| encoder | minilm |\n| cross-encoder 1 | minilm:3 |\n\n- minilm is all-MiniLM-L6-v2" in text
    folded = text[text.index("<details><summary>All 3 settings, defaults included</summary>") :]
    assert "| data.source | caves |\n| study.texts | true |\n| seed | 0 |\n\n</details>" in folded


def test_an_old_study_is_rendered_without_what_it_does_not_know(full_study: StudyDocument, tmp_path: Path) -> None:
    old = json.loads(json.dumps(full_study.to_json()))
    for key in ("gain_difference", "timing", "settings", "models"):
        del old[key]
    del old["dataset"]["not_relevant"]
    for ratio in old["efficiency"]["ratios"]:
        ratio["paper"] = "×16 annotation, ×8 overall"
        del ratio["seconds"], ratio["paper_annotation"], ratio["paper_overall"]
    for gain in old["prf_gain"].values():
        del gain["depth"]
    for example in old["examples"]:
        del example["beta"]
    (tmp_path / "study.json").write_text(json.dumps(old))
    files = report(tmp_path)
    assert Checker(files.html.read_text()).open == []
    text = files.markdown.read_text()
    for words in (
        "judgements of the test",
        "The gain on train less",
        "queries are timed",
        "| paper: ",
        "- encoder: ",
        "None",
    ):
        assert words not in text


def test_the_top_says_what_the_student_gains_and_what_is_significant(full_study: StudyDocument) -> None:
    facts = dict(about(full_study))
    pair = next(
        one
        for one in full_study.comparisons["nDCG@10"].pairs
        if one.system.startswith("collective-") and one.against == "colbert"
    )
    student = full_study.title(pair.system)
    said = facts[f"nDCG@10, {student} − {full_study.title('colbert')}"]
    assert said.startswith(f"{pair.test.difference.mean:+.3f}".replace("-", "−"))
    assert said.endswith(f"after Holm's correction {p_value(pair.t_test_holm)}")
    number = sum(
        one.t_test_holm is not None and one.t_test_holm < 0.05 for one in full_study.comparisons["nDCG@10"].pairs
    )
    pairs = full_study.comparisons["nDCG@10"].family
    assert facts["significant after Holm's correction, nDCG@10"] == f"{number or 'none'} of {pairs} tests"
    turned = pair.difference_of("colbert")
    assert (turned.mean, turned.low, turned.high) == (
        -pair.test.difference.mean,
        -pair.test.difference.high,  # type: ignore[operator]
        -pair.test.difference.low,  # type: ignore[operator]
    )


def test_rows_that_are_written_the_same_are_best_together(tmp_path: Path) -> None:
    systems = tuple(System(name, name, means={"AP": value}) for name, value in (("a", 0.50041), ("b", 0.5), ("c", 0.4)))
    files = write_report(StudyDocument("u", ("AP",), systems=systems), tmp_path)
    text = files.markdown.read_text()
    assert "- highest AP: 0.500, a; b\n" in text
    assert text.count("**0.500**") == 2


def test_the_main_table_for_a_paper(rendered: ReportFiles, full_study: StudyDocument, tmp_path: Path) -> None:
    text = rendered.latex.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.endswith(r"\\")][1:]
    shown = [system for system in full_study.systems if system.failed is None]
    assert len(rows) == len(shown) < len(full_study.systems)
    assert text.count(r"\midrule") == len({system.group for system in shown})
    line = full_study.comparisons["nDCG@10"].lines[-1]
    row = next(row for row in rows if f"({line.letter}) &" in row)
    assert f"{line.mean.mean:.3f}" in row
    assert (f"$^{{{''.join(line.beats_holm)}}}$" in row) == bool(line.beats_holm)
    assert any(one.beats_holm for one in full_study.comparisons["nDCG@10"].lines), "else the line above says nothing"
    assert r"$\beta$" in text and "β" not in text
    empty = write_report(StudyDocument("a_b % c", ("AP",)), tmp_path).latex.read_text()
    assert empty.count("\n") == 1, "no table without a system"


def test_what_counts_zero_and_how_many_seeds_are_behind_a_mean_is_said(tmp_path: Path) -> None:
    per_seed = {"colbert": {"0": {"AP": {"q": 0.4, "r": 0.0}}, "1": {"AP": {"q": 0.6, "r": 0.0}}}}
    systems = (
        System("bm25", "BM25", means={"AP": 0.1}, unanswered=1),
        System("colbert", "ColBERT", seeds=2, means={"AP": 0.25}, unanswered=0),
        System("self-kd", "Self-KD", means={"AP": 0.3}, milliseconds=Milliseconds(4.0, 4.0, 4.0)),
    )
    values = {system.slug: {"AP": {"q": 2 * system.means["AP"], "r": 0.0}} for system in systems}  # type: ignore[operator]
    document = StudyDocument(
        "u", ("AP",), systems=systems, per_query=values, per_seed=per_seed, without_relevant=1, relevant_from=2
    )
    files = write_report(document, tmp_path)
    for text in (files.html.read_text(), files.markdown.read_text(), files.latex.read_text()):
        assert "count 0 for every system in binary measures (nDCG goes by the grades): 1 of 2." in text
        assert "Queries without an answer, which count 0: BM25 1." in text
    paper = files.latex.read_text()
    assert r"System & seeds & AP & ms~/~query \\" in paper
    assert r"BM25 (a) & -- & 0.100" in paper
    assert r"ColBERT (b) & 2 & 0.250" in paper
    assert r"Self-KD (c) & 1 & \textbf{0.300}" in paper
    assert "ms~/~query: median response time, one query at a time, one thread." in paper
    found = json.loads(files.metrics.read_text())
    assert found["unanswered"] == {"bm25": 1, "colbert": 0}
    assert found["queries_without_relevant"] == 1


def test_how_many_tests_are_significant_is_the_comparisons_word(full_study: StudyDocument) -> None:
    """Of a study of an earlier version it is counted, unless some rows are others: then it is not known."""
    title = "significant after Holm's correction, nDCG@10"
    found = full_study.comparisons["nDCG@10"]
    counted = sum(pair.t_test_holm is not None and pair.t_test_holm < found.alpha for pair in found.pairs)

    def fact(significant: int | None, family: int) -> str | None:
        changed = dataclasses.replace(found, significant=significant, family=family)
        return dict(about(dataclasses.replace(full_study, comparisons={"nDCG@10": changed}))).get(title)

    assert fact(7, 99) == "7 of 99 tests"
    assert fact(None, len(found.pairs)) == fact(None, 0) == f"{counted or 'none'} of {len(found.pairs)} tests"
    assert fact(None, len(found.pairs) - 1) is None
