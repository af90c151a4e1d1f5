"""The report in a real browser: it sorts, switches, fits the screen, and asks for nothing from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from msgspec.structs import replace
from playwright.sync_api import sync_playwright

from colabel.findings import StudyDocument
from colabel.reporting import ReportFiles
from colabel.reporting.numbers import Cell, Column, Section, Table, TableLine
from colabel.reporting.render import page as whole_page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
NAMED = "#table-main tbody tr:not(.group) th"
ORDER = f"Array.from(document.querySelectorAll('{NAMED}'), cell => cell.lastChild.textContent)"
SCORE = "#table-main thead th:nth-child(2)"


class Page:
    """One open tab, which notes what it asks for and what goes wrong in it."""

    def __init__(self, tab: Any) -> None:
        self.tab, self.value, self.click, self.press = tab, tab.evaluate, tab.click, tab.keyboard.press
        self.asked: list[str] = []
        self.wrong: list[str] = []
        tab.on("request", lambda asked: self.asked.append(asked.url))
        tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        tab.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)

    def show(self, file: Path, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Load a file in a window of a given size."""
        self.tab.emulate_media(media=media, color_scheme="dark" if dark else "light")
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.goto(file.as_uri())


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Page(browser.new_page())
        browser.close()


def test_a_heading_sorts_turns_and_restores(page: Page, rendered: ReportFiles, full_study: StudyDocument) -> None:
    page.show(rendered.html, width=1280)
    names = [f"{one.slug}, {one.seeds} seeds" if one.seeds > 1 else one.slug for one in full_study.systems]
    values = {name: one.means.get("nDCG@10") for name, one in zip(names, full_study.systems, strict=True)}
    falling = sorted((name for name in names if values[name] is not None), key=lambda name: -values[name])  # type: ignore[operator]
    failed = [name for name in names if values[name] is None]
    assert page.value(ORDER) == names
    for state, order in (("descending", falling), ("ascending", falling[::-1]), ("none", names)):
        page.click(f"{SCORE} button")
        assert page.value(f"document.querySelector('{SCORE}').ariaSort") == state
        assert page.value(ORDER) == (order if state == "none" else [*order, *failed])
        groups = page.value("getComputedStyle(document.querySelector('#table-main .group')).display")
        assert (groups == "none") == (state != "none")


def test_the_keyboard_sorts_and_a_second_column_takes_over(page: Page, rendered: ReportFiles) -> None:
    page.show(rendered.html, width=1280)
    page.click(f"{SCORE} button")
    page.press("Tab")
    assert page.value("document.activeElement.textContent") == "RR@10"
    page.press("Enter")
    states = "Array.from(document.querySelectorAll('#table-main thead th'), head => head.ariaSort)"
    assert page.value(states)[:4] == ["none", "none", "descending", "none"]
    numbers = page.value(
        "Array.from(document.querySelectorAll('#table-main tbody td:nth-child(3)'), cell => Number(cell.dataset.value))"
    )
    assert numbers == sorted(numbers, reverse=True)
    assert "RR@10, descending" in page.value("document.getElementById('status').textContent")


def test_texts_sort_by_the_alphabet(page: Page, rendered: ReportFiles) -> None:
    page.show(rendered.html, width=1280)
    page.click("#table-versions thead th:first-child button")
    page.click("#table-versions thead th:first-child button")
    rows = page.value("Array.from(document.querySelectorAll('#table-versions tbody th'), cell => cell.textContent)")
    assert rows == ["torch", "Python", "colabel"]


def test_systems_sort_by_their_names_not_by_their_letters(page: Page, rendered: ReportFiles) -> None:
    page.show(rendered.html, width=1280)
    page.click("#table-main thead th:first-child button")
    names = page.value("Array.from(document.querySelectorAll('#table-main tbody th.named'), cell => cell.dataset.name)")
    assert len(names) > 3
    assert names == sorted(names, key=str.lower)
    letters = page.value("Array.from(document.querySelectorAll('#table-main .letter'), one => one.textContent)")
    assert letters != sorted(letters), "their order is another"


def test_numbers_within_names_sort_by_their_value_and_what_is_missing_last(page: Page, tmp_path: Path) -> None:
    names = ("β = 0.5", "–", "β = 0.25", "β = 10", "β = 9", "γ 2.10.0", "γ 2.9.1", "π 900, 12,000", "π 900, 4,800")
    table = Table(
        "t", "rows", (Column("System", number=False),), tuple(TableLine((Cell(name), Cell("1"))) for name in names)
    )
    table = replace(table, columns=(*table.columns, Column("AP")))
    (tmp_path / "page.html").write_text(whole_page("p", "", (), (Section("s", "S", (table,)),)), encoding="utf-8")
    page.show(tmp_path / "page.html", width=1280)
    text = "cell => cell.textContent.replaceAll('\\u00a0', ' ')"
    shown = f"Array.from(document.querySelectorAll('#table-t tbody th'), {text})"
    page.click("#table-t thead th:first-child button")
    rising = ["β = 0.25", "β = 0.5", "β = 9", "β = 10", "γ 2.9.1", "γ 2.10.0", "π 900, 4,800", "π 900, 12,000"]
    assert page.value(shown) == [*rising, "–"]
    page.click("#table-t thead th:first-child button")
    assert page.value(shown) == [*rising[::-1], "–"]


def test_headings_are_printed_on_every_page(page: Page, tmp_path: Path) -> None:
    """A browser leaves room for a repeated heading but does not paint buttons in it, unless they have no box."""
    rows = tuple(TableLine((Cell(f"row {number}"), Cell("1"))) for number in range(150))
    table = Table("t", "rows", (Column("Pair", number=False), Column("randomisation")), rows)
    (tmp_path / "page.html").write_text(whole_page("p", "", (), (Section("s", "S", (table,)),)), encoding="utf-8")
    page.show(tmp_path / "page.html", width=680, media="print")
    assert page.value("getComputedStyle(document.querySelector('thead button')).display") == "contents"


def test_paper_shows_what_is_folded_and_which_letters(page: Page, rendered: ReportFiles) -> None:
    page.show(rendered.html, width=680, media="print")
    folded = "document.querySelectorAll('details:not([open])').length"
    before = page.value(folded)
    assert before > 0
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value(folded) == 0
    page.value("dispatchEvent(new Event('afterprint'))")
    assert page.value(folded) == before
    shown = (
        "Array.from(document.querySelectorAll('.printed')).filter(one => one.offsetHeight).map(one => one.textContent)"
    )
    assert page.value(shown) == ["Superscripts: Holm's correction."]


def test_the_switch_shows_letters_without_correction(page: Page, rendered: ReportFiles) -> None:
    page.show(rendered.html, width=1280)
    shown = "['holm', 'raw'].map(name => getComputedStyle(document.querySelector('#table-main .' + name)).display)"
    assert page.value(f"{shown}.map(how => how !== 'none')") == [True, False]
    page.click("input[value=raw]")
    assert page.value(f"{shown}.map(how => how !== 'none')") == [False, True]


@pytest.mark.parametrize(
    ("width", "media"), [(320, "screen"), (390, "screen"), (768, "screen"), (1280, "screen"), (680, "print")]
)
def test_nothing_is_wider_than_the_screen(page: Page, rendered: ReportFiles, width: int, media: str) -> None:
    page.show(rendered.html, width=width, media=media)
    page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.value("innerWidth") == width
    assert page.value("document.documentElement.scrollWidth") <= width
    frame = page.value("(one => [one.clientWidth, one.scrollWidth])(document.querySelector('#results .scroll'))")
    assert frame[0] <= width
    if width < 500:
        assert frame[1] > frame[0], "on a phone the table scrolls in its frame"
    if width == 1280 or media == "print":
        assert frame[1] == frame[0]
        wide = "Array.from(document.querySelectorAll('.scroll')).filter(one => one.scrollWidth > one.clientWidth)"
        tables = page.value(f"{wide}.map(one => one.querySelector('table').id)")
        assert [name for name in tables if not name.startswith("table-pairs-")] == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_plots_stand_out_from_the_ground(page: Page, rendered: ReportFiles, dark: bool) -> None:
    page.show(rendered.html, width=1280, dark=dark)

    def light(selector: str, style: str) -> float:
        colour = page.value(f"getComputedStyle(document.querySelector('{selector}')).{style}")
        return sum(map(float, colour.removeprefix("rgb(").removesuffix(")").split(","))) / 765

    ground = light("body", "backgroundColor")
    assert (ground < 0.2) == dark
    for selector, style in (("h1", "color"), ("td", "color"), ("#plot-difference-0 text", "fill")):
        assert abs(light(selector, style) - ground) > 0.6, selector


def test_nothing_is_asked_for_and_nothing_goes_wrong(page: Page, rendered: ReportFiles) -> None:
    page.asked.clear()
    page.wrong.clear()
    page.show(rendered.html, width=1280)
    page.value("0")
    assert {url for url in page.asked if not url.startswith("data:")} == {rendered.html.as_uri()}
    assert page.wrong == []


def test_scripts_in_texts_do_not_run(page: Page, rendered: ReportFiles, tmp_path: Path) -> None:
    """Even past the escaping, the page's own rules let no other script run."""
    text = rendered.html.read_text(encoding="utf-8")
    forged = text.replace("</main>", "<script>document.title = 'run'</script></main>")
    (tmp_path / "forged.html").write_text(forged, encoding="utf-8")
    page.show(tmp_path / "forged.html", width=1280)
    assert page.value("document.title") != "run"
    page.click(f"{SCORE} button")
    assert page.value(f"document.querySelector('{SCORE}').ariaSort") == "descending", "our own script runs"
