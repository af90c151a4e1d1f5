"""Documents in pieces: what is cut where, and which document is the best."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colabel.data import Dataset, check, convert, load_dataset
from colabel.data.pieces import (
    best_documents,
    count_words,
    cut_passage,
    cut_text,
    one_per_document,
    with_labelled_pieces,
)
from colabel.data.string_table import StringTable
from colabel.errors import DataError, UsageError
from colabel.settings import DataSettings
from colabel.types import Passage

WriteBeir = Callable[..., Path]

ends = st.sampled_from([" ", " ", " ", ". ", "! ", "\n\n", "。", "\n"])
LONG = " ".join(f"Sentence {number} is about ice." for number in range(20))


@given(st.lists(ends, max_size=120), st.integers(1, 40))
def test_pieces_cover_the_whole_text_and_overlap_by_a_sixth_at_most(separators: list[str], words: int) -> None:
    text = "".join(f"w{number}{end}" for number, end in enumerate(separators))
    covered, before = np.zeros(len(text), dtype=bool), 0
    for piece in cut_text(text, words):
        start = text.index(piece)  # no word occurs twice
        assert count_words(piece) <= words
        assert count_words(text[start:before]) <= words // 6
        covered[start : start + len(piece)] = True
        before = start + len(piece)
    assert all(seen or letter.isspace() for seen, letter in zip(covered, text, strict=True))


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_short_document_is_unchanged(title: str, text: str) -> None:
    passage = Passage("d1", title, text, {"year": 2004})
    assert cut_passage(passage, max(1, count_words(text))) == [passage]


def test_pieces_end_with_sentences_and_repeat_the_title() -> None:
    pieces = cut_passage(Passage("d1", "Ice", LONG, {"year": 2004}), 32)
    assert [piece.id for piece in pieces] == ["d1#1", "d1#2", "d1#3", "d1#4"]
    assert {(piece.title, piece.metadata["year"]) for piece in pieces} == {("Ice", 2004)}
    assert all(piece.text.startswith("Sentence") and piece.text.endswith("ice.") for piece in pieces)
    assert pieces[0].text.endswith("Sentence 5 is about ice.")
    assert pieces[1].text.startswith("Sentence 5 is about ice. Sentence 6")


def test_what_has_no_spaces_or_no_sentences_is_cut_as_well() -> None:
    assert [len(piece) for piece in cut_text("氷" * 25, 12)] == [12, 12, 5]
    assert [count_words(piece) for piece in cut_text("ice " * 25, 12)] == [12, 12, 5]


@given(st.data())
def test_the_best_documents_are_those_of_the_highest_maximum(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    names = [f"d{number:02d}" for number, size in enumerate(sizes) for _ in range(size)]
    ids, queries = StringTable.of(names), 3
    every = st.lists(st.integers(0, 6), min_size=len(names), max_size=len(names))
    scores = np.array([data.draw(every) for _ in range(queries)], dtype=np.float32)
    ties = ids.tie_ranks()

    def search(depth: int) -> tuple[np.ndarray, np.ndarray]:
        order = np.lexsort((np.broadcast_to(ties, scores.shape), -scores), axis=1)[:, :depth]
        return order, np.take_along_axis(scores, order, 1)

    depth = data.draw(st.integers(1, len(names)))
    rows, values = best_documents(search, depth, ids)
    assert rows.shape == values.shape == (queries, depth)
    for line, held, own in zip(rows, values, scores, strict=True):
        best = {name: max(float(own[row]) for row, one in enumerate(names) if one == name) for name in names}
        wanted = sorted(best, key=lambda name: (best[name], name), reverse=True)[:depth]
        found = line[line >= 0]
        assert [names[row] for row in found] == wanted
        assert held[: len(found)].tolist() == [best[name] for name in wanted] == own[found].tolist()
        assert (line[len(wanted) :] == -1).all()


def test_rows_of_documents() -> None:
    ids = StringTable.of(["a", "b", "b", "b", "c"])
    assert ids.rows(["a", "b", "c"]).tolist() == [0, 1, 4]
    assert ids.first_of(np.array([[3, -1], [4, 1]])).tolist() == [[1, -1], [4, 1]]
    assert ids.all_of(np.array([2, 4])).tolist() == [1, 2, 3, 4]
    assert with_labelled_pieces(np.array([1, 0, 4, -1]), [3], ids).tolist() == [3, 0, 4, -1]
    whole = StringTable.of(["a", "b"])
    assert whole.first_rows is None
    assert whole.all_of(np.array([1, 0])).tolist() == [1, 0]
    rows, scores = np.array([[2, 1, 4, -1]]), np.array([[3.0, 2.0, 1.0, -np.inf]], dtype=np.float32)
    assert one_per_document(rows, scores, 3, ids)[0].tolist() == [[2, 4, -1]]


def test_a_collection_in_pieces(write_beir: WriteBeir, tmp_path: Path) -> None:
    folder = str(write_beir())
    whole, cut = load_dataset(folder), load_dataset(DataSettings(source=folder, chunk=6), cache=tmp_path / "cache")
    assert whole.passages.ids.first_rows is None
    assert [passage.id for passage in cut.passages][:4] == ["d1#1", "d1#2", "d2#1", "d2#2"]
    assert cut.passages.ids[:4] == ["d1", "d1", "d2", "d2"]
    assert cut.passages.get("d3") == whole.passages.get("d3")
    assert cut.labels("train") == whole.labels("train")
    assert cut.labels_fingerprint("train") == whole.labels_fingerprint("train")
    assert cut.passages.fingerprint != whole.passages.fingerprint
    with pytest.raises(UsageError, match="leave out"):
        convert(cut, tmp_path / "out")


def test_a_document_that_occurs_twice_is_refused() -> None:
    twice = [{"id": "d1", "text": LONG}, {"id": "d1", "text": LONG}]
    with pytest.raises(DataError, match="d1"):
        Dataset.from_records(twice, chunk=10)


def test_check_says_what_a_model_would_not_read(tmp_path: Path) -> None:
    (tmp_path / "documents.csv").write_text(f'id,text\nd1,"{LONG * 3}"\nd2,short\n')
    whole = check(str(tmp_path / "documents.csv"))
    assert (whole.pieces, whole.long) == (2, 1)
    assert whole.lost == pytest.approx((298 - 150) / 299)
    cut = check(DataSettings(source=str(tmp_path / "documents.csv"), chunk=120))
    assert (cut.passages, cut.pieces, cut.long, cut.lost) == (2, 4, 0, 0.0)
