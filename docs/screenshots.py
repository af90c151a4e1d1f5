"""The screenshots of the web app: `make screenshots` trains a small run, lets two simulated people judge, and looks.

    python -m docs.screenshots [FOLDER]

FOLDER keeps the run (pydocs, one label of each query kept); the pictures go to docs/images.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from colabel import DataSettings, Recipe, Run, open_run, run
from colabel.data.splits import hidden_labels
from colabel.labels import Verdict, decide
from colabel.serve import create_app
from colabel.serve.app import _listener
from colabel.serve.queue import Queue
from colabel.settings import QuerySideSettings

IMAGES = Path(__file__).parent / "images"
MOST_BYTES = 150_000
GUIDELINES = "Relevant: the passage answers the query, or is about the very thing that it names.\n"
QUERY = "distribution of objects drawn from a bin"
SHOTS = {
    "review": ("/review", "#pair:not([hidden])"),
    "search": (f"/search?q={QUERY.replace(' ', '+')}&first=hybrid&second=bm25", "#second-hits .hit .moved"),
    "overview": ("/", ".card"),
}


def make_run(folder: Path) -> Run:
    """A small run with verdicts of two simulated people: one knows the hidden labels, the other slips now and then."""
    if not (folder / "evaluation.json").exists():
        recipe = Recipe(DataSettings(source="pydocs:300", keep_labels=1), query_side=QuerySideSettings(steps=5))
        run(recipe, folder)
    opened = open_run(folder)
    (folder / "guidelines.md").write_text(GUIDELINES, encoding="utf-8")
    if not opened.verdicts():
        judge_some(opened)
    return opened


def judge_some(opened: Run) -> None:
    """What anna says about 120 pairs of the queue, and ben about every sixth of them."""
    hidden, queue = hidden_labels(opened.dataset), Queue(opened.labels, opened.knowledge, opened.dataset)
    said: list[Verdict] = []
    for number in range(120):
        (pair,) = queue.next("anna")
        ids, right = (pair.query_id, pair.passage_id), pair.passage_id in hidden.get(pair.query_id, {})
        right |= pair.source == "doubtful"
        said.append(Verdict(*ids, "yes" if right else "no", "anna", source=pair.source))
        queue.update(said, decide(said))
        if number % 6 == 5:
            slip = number % 18 == 5
            opened.verdict_store.add(Verdict(*ids, "yes" if right != slip else "no", "ben", source="double"))
    opened.verdict_store.add_all(said)


@contextmanager
def served(opened: Run) -> Iterator[str]:
    """The app at an address of this machine."""
    listener = _listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(opened), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://localhost:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def window(browser: Browser, address: str, **options: object) -> Page:
    """A page of its own, in which anna judges."""
    context = browser.new_context(base_url=address, **options)  # type: ignore[arg-type]
    context.set_default_timeout(120_000)
    context.add_init_script("localStorage.setItem('colabel-judge', 'anna')")
    return context.new_page()


def take(page: Page, name: str, target: Path) -> None:
    """One picture, as a WebP of at most 150 kB."""
    path, ready = SHOTS[name]
    page.goto(path)
    page.wait_for_selector(ready)
    picture = Image.open(io.BytesIO(page.screenshot()))
    for quality in (90, 75, 60, 45):
        picture.save(target, quality=quality, method=6)
        if target.stat().st_size < MOST_BYTES:
            return


def main() -> None:
    """Make all of them; with a second argument, also for the eye alone: dark, and on a phone."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="colabel-shots-")) / "run"
    IMAGES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with served(make_run(folder)) as address, sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = window(browser, address, viewport={"width": 1200, "height": 780})
        for name in SHOTS:
            take(page, name, IMAGES / f"{name}.webp")
        for kind in sys.argv[2:3]:
            others = {
                "dark": {"viewport": {"width": 1200, "height": 780}, "color_scheme": "dark"},
                "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
            }
            for look, options in others.items():
                page = window(browser, address, **options)
                for name in SHOTS:
                    take(page, name, Path(kind) / f"{name}-{look}.webp")
        browser.close()


if __name__ == "__main__":
    main()
