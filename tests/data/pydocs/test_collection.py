"""Passages, near-duplicates, references, and the collection on disk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from colabel import load_dataset
from colabel.artefacts import fingerprint, read_manifest
from colabel.data.pydocs import collection
from colabel.data.pydocs.collection import (
    Collection,
    Entry,
    build,
    limited,
    passage_text,
    representatives,
    resolver,
    shingles,
    split_of,
    without,
    without_boilerplate,
)
from colabel.data.pydocs.docstrings import Block
from colabel.data.pydocs.harvest import MODULES, Documented, harvest
from colabel.data.splits import hidden_labels
from colabel.types import Passage, Query

LONG = "This longer description of {} has enough words, all of its own, to make {} a passage."


def documented(name: str, summary: str, body: str = "", see_also: str = "") -> Documented:
    body = body or LONG.format(name, name[::-1])
    doc = f"{summary}\n\n{body}\n\nSee Also\n--------\n{see_also}\n"
    return Documented((name,), doc)


def test_own_passage_references_and_query() -> None:
    first, second = build(
        [
            documented("numpy.add", "Add two numbers.", see_also="subtract : The inverse.\nnothing"),
            documented("numpy.subtract", "Subtract two numbers."),
        ]
    )
    assert first.query == Query("q:numpy.add", "Add two numbers.")
    assert first.related == ("numpy.subtract",)
    assert first.passage.id == first.passage.title == "numpy.add"
    assert first.passage.text == LONG.format("numpy.add", "dda.ypmun")
    assert second.query is None  # it refers to nothing


def test_shared_and_useless_summaries_are_no_queries() -> None:
    target = documented("numpy.target", "The target of all.")
    summaries = [
        "Add numbers quickly.",
        "add  numbers quickly",
        "Add.",
        "This is deprecated since long.",
        "word " * 41,
    ]
    askers = [documented(f"numpy.n{i}", summary, see_also="target") for i, summary in enumerate(summaries)]
    entries = build([target, *askers])
    assert len(entries) == 6
    assert [entry.query for entry in entries] == [None] * 6


def test_references_to_a_duplicate_mean_the_one_that_stands() -> None:
    body = LONG.format("head", "daeh")
    entries = build(
        [
            documented("pandas.Series.head", "First rows of a Series.", body),
            documented("pandas.DataFrame.head", "First rows of a DataFrame.", body.upper()),
            documented("pandas.tail", "Return the last rows.", see_also="DataFrame.head"),
        ]
    )
    assert [entry.passage.id for entry in entries] == ["pandas.Series.head", "pandas.tail"]
    assert entries[1].related == ("pandas.Series.head",)


def test_short_bodies_are_dropped() -> None:
    assert build([documented("numpy.pi", "The circle number.", "Only seven words stand in this body.")]) == ()


def test_boilerplate_goes_whatever_name_it_mentions() -> None:
    bodies = [(f"numpy.f{i}", [Block("", f"f{i} supports out."), Block("", f"Only {i}.")]) for i in range(3)]
    assert without_boilerplate(bodies, common=2) == [[Block("", f"Only {i}.")] for i in range(3)]
    assert without_boilerplate(bodies, common=3) == [body for _, body in bodies]


def test_passages_are_short() -> None:
    assert len(passage_text("", [Block("", "word " * 500)]).split()) == 130


def test_summary_is_taken_out() -> None:
    assert without("We ADD two, numbers! Really.", "Add two numbers.") == "We ! Really."
    assert without("Padd two numbers.", "Add two numbers.") == "Padd two numbers."


def test_limit_keeps_whole_neighbourhoods() -> None:
    ring = [documented(f"numpy.n{i}", f"Do the thing {i}.", see_also=f"n{(i + 1) % 20}") for i in range(20)]
    whole = Collection(build([*ring, *(documented(f"numpy.alone{i}", "Alone.") for i in range(20))]), {})
    assert limited(whole, None) == limited(whole, 40) == limited(whole, 1000) == whole
    kept: set[str] = set()
    for size in (1, 2, 7, 20, 30):
        part = limited(whole, size)
        ids = {entry.passage.id for entry in part.entries}
        assert len(ids) == size
        assert kept < ids
        assert all(ids.issuperset(entry.related) for entry in part.entries if entry.query)
        kept = ids
    assert sum(entry.query is not None for entry in limited(whole, 30).entries) == 20


def test_split_is_a_function_of_the_text() -> None:
    assert split_of(Query("a", "Add two numbers.")) == split_of(Query("b", "ADD  two numbers"))
    splits = [split_of(Query("q", f"Query number {i}")) for i in range(2000)]
    assert [round(splits.count(name) / 2000, 1) for name in ("train", "dev", "test")] == [0.7, 0.1, 0.2]


def naive(texts: list[str], similarity: float) -> list[int]:
    """The same by comparing every text with every one that stands."""
    sets = [shingles(text) for text in texts]
    result: list[int] = []
    for row, items in enumerate(sets):
        standing = [other for other in range(row) if result[other] == other]
        scores = [(len(items & sets[other]) / len(items | sets[other]), -other) for other in standing]
        score, other = max(scores, default=(0.0, 0))
        result.append(-other if score >= similarity else row)
    return result


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.8, 1.0])
def test_agrees_with_all_pairs(similarity: float) -> None:
    rng = random.Random(0)
    texts: list[str] = []
    for _ in range(300):
        text = (
            rng.choice(texts).split() if texts and rng.random() < 0.7 else rng.choices("abcdef", k=rng.randint(1, 30))
        )
        text = [word if rng.random() > 0.05 else rng.choice("abcdef") for word in text]
        texts.append(" ".join(text))
    result = representatives(texts, similarity)
    assert result == naive(texts, similarity)
    assert len(set(result)) < len(texts)


def test_punctuation_and_case_do_not_count() -> None:
    assert representatives(["Return the sum of a.", "return the (sum) of A", "Return the product of a."]) == [0, 0, 2]


NAMES = {
    "numpy.sort": "numpy.sort",
    "numpy.ma.sort": "numpy.ma.sort",
    "numpy.ma.sum": None,
    "numpy.sum": "numpy.sum",
    "numpy.ndarray.sort": "numpy.ndarray.sort",
    "scipy.signal.convolve": "scipy.signal.convolve",
    "scipy.ndimage.convolve": "scipy.ndimage.convolve",
    "scipy.signal.windows.hann": "scipy.signal.windows.hann",
    "pandas.DataFrame.merge": "pandas.merge",
    "pandas.merge": "pandas.merge",
    "pandas.Series.str.split": "pandas.Series.str.split",
}


@pytest.mark.parametrize(
    ("written", "seen_from", "meant"),
    [
        ("sort", "numpy.ma.argsort", "numpy.ma.sort"),
        ("sort", "numpy.ma.sort", "numpy.sort"),  # not itself: the next one outwards
        ("sum", "numpy.ma.prod", None),  # known, but without a passage: numpy.sum is not meant
        ("numpy.sort", "scipy.signal.convolve", "numpy.sort"),
        ("DataFrame.merge", "pandas.concat", "pandas.merge"),
        ("Series.str.split", "pandas.Series.str.join", "pandas.Series.str.split"),
        ("split", "pandas.Series.str.join", "pandas.Series.str.split"),
        ("hann", "scipy.stats.norm", "scipy.signal.windows.hann"),  # the only one in the library
        ("convolve", "scipy.stats.norm", None),  # one of two
        ("hann", "numpy.sort", None),  # of another library
        ("nonsense", "numpy.sort", None),
    ],
)
def test_resolve(written: str, seen_from: str, meant: str | None) -> None:
    assert resolver(NAMES)(written, seen_from) == meant


SMALL = Collection(
    (
        Entry(Passage("a.f", "a.f", "Adds two\nnumbers, 加."), Query("q:a.f", "Add two numbers"), ("a.g",)),
        Entry(Passage("a.g", "a.g", "Takes one from the other."), None, ()),
    ),
    {"numpy": "2"},
)


@pytest.fixture
def harvests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the libraries were walked, one entry each."""
    seen: list[int] = []

    def whole() -> Collection:
        seen.append(len(seen))
        return SMALL

    monkeypatch.setattr(collection, "whole_collection", whole)
    return seen


def test_what_is_read_back_is_what_was_harvested(tmp_path: Path, harvests: list[int]) -> None:
    assert collection.stored_collection(tmp_path / "pydocs", None) == SMALL
    assert collection.stored_collection(tmp_path / "pydocs", None) == SMALL
    assert harvests == [0]
    assert read_manifest(tmp_path / "pydocs", "pydocs").counts["versions"] == {"numpy": "2"}


def test_another_size_or_version_is_harvested_again(
    tmp_path: Path, harvests: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    collection.stored_collection(tmp_path / "pydocs", None)
    assert len(collection.stored_collection(tmp_path / "pydocs", 1).entries) == 1
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} of tomorrow")
    collection.stored_collection(tmp_path / "pydocs", 1)
    assert harvests == [0, 1, 2]


def test_a_dataset_with_a_cache_is_the_same_and_does_not_harvest_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = load_dataset("pydocs:80")
    load_dataset("pydocs:80", cache=tmp_path)
    monkeypatch.setattr(collection, "whole_collection", lambda: pytest.fail("harvested again"))
    monkeypatch.setattr(collection, "harvest", lambda: pytest.fail("harvested again"))
    again = load_dataset("pydocs:80", cache=tmp_path)
    assert list(again.passages) == list(fresh.passages)
    assert again.passages.fingerprint == fresh.passages.fingerprint
    assert again.provenance == fresh.provenance
    assert (dict(again.queries), hidden_labels(again)) == (dict(fresh.queries), hidden_labels(fresh))
    assert [again.labels(split) for split in again.splits] == [fresh.labels(split) for split in fresh.splits]


PROGRAM = """
{imports}
from test_collection import digest
print(digest({libraries!r}))
"""
OTHER_IMPORTS = """
import matplotlib.pyplot, networkx, torch, pandas
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer
"""


def digest(libraries: tuple[str, ...]) -> str:
    return fingerprint([str(entry) for entry in build(harvest(libraries)[0])])


@pytest.mark.parametrize(
    ("libraries", "imports"),
    [
        (("numpy", "pandas", "networkx"), "import networkx, pandas"),
        pytest.param(tuple(MODULES), OTHER_IMPORTS, marks=pytest.mark.slow),
    ],
)
def test_same_in_another_process(libraries: tuple[str, ...], imports: str) -> None:
    """Another hash seed, other imports in another order, experimental parts switched on: the same entries."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
    program = PROGRAM.format(imports=imports, libraries=libraries)
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == digest(libraries)
