"""The pages in a real browser: keyboard, undo, two judges, search, dark, phone; and nothing from outside."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

import uvicorn
from playwright.sync_api import expect, sync_playwright

from colabel import Run
from colabel.labels import Verdict, VerdictStore
from colabel.serve import create_app
from colabel.serve.app import _listener

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def address(opened: Run) -> Iterator[str]:
    with serving(opened) as found:
        yield found


@contextlib.contextmanager
def serving(opened: Run) -> Iterator[str]:
    listener = _listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(opened), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://localhost:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


class Window:
    """A window of its own, which notes what went wrong in it."""

    def __init__(self, browser: Any, address: str, judge: str = "ann", **options: Any) -> None:
        self.context = browser.new_context(base_url=address, **options)
        self.context.set_default_timeout(20_000)
        self.context.add_init_script(f"localStorage.setItem('colabel-judge', '{judge}')")
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda asked: self._outside(asked.url, address))

    def _outside(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:")):
            self.wrong.append(f"asks {url}")

    def review(self) -> None:
        self.page.goto("/review")
        self.page.wait_for_selector("#pair:not([hidden])")

    def shown(self) -> str:
        return str(self.page.inner_text("#query") + " | " + self.page.inner_text("#candidate"))

    def press(self, key: str) -> None:
        """Press a key and wait for what it does."""
        self.page.evaluate("document.getElementById('toast').textContent = ''")
        self.page.keyboard.press(key)
        expect(self.page.locator("#toast")).not_to_be_empty()


def test_judge_by_keyboard_undo_and_reload(chromium: Any, address: str, opened: Run) -> None:
    window = Window(chromium, address)
    window.review()
    first = window.shown()
    window.press("y")
    assert "Kept: relevant" in window.page.inner_text("#toast")
    second = window.shown()
    assert second != first
    window.press("z")
    assert window.shown() == first, "the pair whose verdict was taken back is shown again"
    for key in ("n", "u", "2", "0"):
        window.press(key)
    store = VerdictStore(opened.folder / "verdicts")
    assert [(one.answer, one.grade) for one in store.current()] == [
        ("no", None),
        ("unsure", None),
        ("yes", 2),
        ("no", 0),
    ]
    assert len(store.history()) == 6, "undo keeps the history"
    before = window.shown()
    window.page.reload()
    window.page.wait_for_selector("#pair:not([hidden])")
    assert window.shown() == before, "a reload shows the same pair"
    query = window.page.inner_text("#query")
    window.press("s")
    assert window.page.inner_text("#query") != query
    window.page.keyboard.press("/")
    window.page.keyboard.type("fjord yes")
    assert len(store.current()) == 4, "letters that are typed are no verdicts"
    window.page.keyboard.press("Escape")
    window.page.keyboard.press("/")
    window.page.keyboard.type("fjord")
    window.page.keyboard.press("Enter")
    expect(window.page.locator("#query")).to_contain_text("fjord")
    assert window.wrong == []


def test_two_judges_in_two_windows_by_mouse_and_touch(chromium: Any, address: str, opened: Run) -> None:
    ann = Window(chromium, address, "ann")
    bob = Window(chromium, address, "bob", viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    ann.review()
    bob.review()
    assert ann.shown() != bob.shown(), "no pair is judged by two at once"
    ann.page.click("button[data-answer=yes]")
    bob.page.tap("button[data-grade='0']")
    for window in (ann, bob):
        expect(window.page.locator("#progress")).to_contain_text("1 verdict by you")
    assert {(one.judge, one.answer) for one in opened.verdicts()} == {("ann", "yes"), ("bob", "no")}
    assert bob.page.evaluate("document.documentElement.scrollWidth") <= 390
    bob.page.tap("#undo")
    expect(bob.page.locator("#progress")).to_contain_text("0 verdicts by you")
    assert [one.judge for one in opened.verdicts()] == ["ann"]
    bob.page.goto("/")
    assert bob.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "ann" in bob.page.inner_text("table") and "bob" not in bob.page.inner_text("table")
    assert ann.wrong == bob.wrong == []


def test_search_as_you_type_beside_another_ranker_and_judge(chromium: Any, address: str, opened: Run) -> None:
    window = Window(chromium, address, color_scheme="dark")
    window.page.goto("/search")
    window.page.keyboard.type("ice of the glacier")
    window.page.wait_for_selector("#first-hits .hit")
    assert window.page.locator("#first-hits mark.of-query").count() > 0
    window.page.select_option("#second", "bm25")
    window.page.wait_for_selector("#second-hits .hit .moved")
    assert "second=bm25" in window.page.url and "q=ice" in window.page.url
    window.page.select_option("[data-column=kind]", "fjord")
    window.page.wait_for_url("**filter=kind%3Dfjord*")
    expect(window.page.locator("#first-hits .hit:first-child")).to_contain_text("kind: fjord")
    expect(window.page.locator(".hit:has-text('kind: cave')")).to_have_count(0)
    window.page.reload()
    window.page.wait_for_selector("#first-hits .hit")
    expect(window.page.locator(".hit:has-text('kind: cave')")).to_have_count(0)
    window.page.select_option("[data-column=kind]", "")
    expect(window.page.locator(".hit:has-text('kind: cave')").first).to_be_visible()
    window.page.click("#first-hits .hit:first-child button:has-text('Not relevant')")
    window.page.wait_for_selector("#first-hits .hit:first-child button[aria-pressed=true]")
    (said,) = opened.verdicts()
    assert (said.answer, said.query, said.source) == ("no", "ice of the glacier", "search")
    window.page.reload()
    window.page.wait_for_selector("#first-hits .hit:first-child button[aria-pressed=true]")
    ground = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 150, "dark"
    assert window.wrong == []


def test_disagreements_are_settled_and_guidelines_shown(chromium: Any, opened: Run) -> None:
    (opened.folder / "guidelines.md").write_text("Relevant: <b>it answers</b>.")
    (one,) = opened.missing(1)
    for answer, judge in (("yes", "ann"), ("no", "bob")):
        opened.judge([(one.query_id, one.passage_id, answer)], judge)
    opened.verdict_store.add(Verdict(one.query_id, one.passage_id, "no", "program:x", reason="dry"))
    with serving(opened) as address:
        window = Window(chromium, address)
        window.page.goto("/")
        window.page.click("text=settle")
        window.page.wait_for_selector("#pair:not([hidden])")
        said = window.page.inner_text("#said")
        assert "ann: relevant" in said and "bob: not relevant" in said and "program:x: not relevant (dry)" in said
        window.page.click("text=Guidelines")
        expect(window.page.locator(".guidelines .text")).to_have_text("Relevant: <b>it answers</b>.")
        window.press("n")
        window.page.wait_for_selector("#empty:not([hidden])")
        assert window.wrong == []
    assert {(one.judge, one.answer) for one in opened.verdicts()} == {("ann", "no"), ("bob", "no")}


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => { canvas.fillStyle = '#000'; canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (colour) => { const [r, g, b] = colour.slice(0, 3).map((v) => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (one) => { for (; one; one = one.parentElement) { const style = getComputedStyle(one);
    if (!/, 0\\)|transparent/.test(style.backgroundColor)) return rgb(style.backgroundColor); }
    return [255, 255, 255]; };
  const poor = [];
  for (const one of document.querySelectorAll('main *, header *, .actions *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.offsetParent || one.closest('.unseen, svg')) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(ground(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${one.tagName} ${one.className} ${one.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
NAMED = """() => [...document.querySelectorAll('button, input, select, a')].filter((one) => one.offsetParent &&
  !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)"""


def serious(page: Any) -> list[str]:
    """Findings of axe-core of the kinds serious and critical. Its script is run by the driver, not by the page."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run()")["violations"]
    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_and_everything_has_a_name(chromium: Any, address: str, scheme: str) -> None:
    window = Window(chromium, address, color_scheme=scheme)
    for path, ready in (("/", ".card"), ("/review", "#pair:not([hidden])"), ("/search?q=ice&second=bm25", ".moved")):
        window.page.goto(path)
        window.page.wait_for_selector(ready)
        assert window.page.evaluate(CONTRAST) == [], path
        assert window.page.evaluate(NAMED) == [], path
        assert serious(window.page) == [], path
        assert window.page.locator("h1").count() == 1
        assert window.page.locator("[aria-live]").count() > 0
    window.page.goto("/review")
    window.page.wait_for_selector("#pair:not([hidden])")
    reached = set()
    for _ in range(25):
        window.page.keyboard.press("Tab")
        reached.add(window.page.evaluate("document.activeElement.dataset.answer || document.activeElement.id"))
    assert {"judge", "find", "yes", "no", "unsure", "skip", "undo"} <= reached, "without a mouse"
    assert window.wrong == []
