from __future__ import annotations

from colabel.data.pydocs.collection import Collection, build, limited, split_of
from colabel.data.pydocs.docstring import Block
from colabel.data.pydocs.harvest import Documented
from colabel.data.pydocs.passage import passage_text, without, without_boilerplate
from colabel.types import Query

LONG = "This longer description of {} has enough words, all of its own, to make {} a passage."


def documented(name: str, summary: str, body: str = "", see_also: str = "") -> Documented:
    body = body or LONG.format(name, name[::-1])
    doc = f"{summary}\n\n{body}\n\nSee Also\n--------\n{see_also}\n"
    return Documented((name,), doc, name)


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


def test_passages_are_short_and_end_with_a_sentence() -> None:
    text = passage_text("", [Block("", "One sentence has five words. " * 60)])
    assert len(text.split()) == 130
    assert text.endswith("words.")
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
