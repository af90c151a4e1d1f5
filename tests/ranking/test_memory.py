"""What was asked before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.collective.small import small_dataset, small_index

from colabel import Index
from colabel.artefacts import Builder, Spec, Workspace
from colabel.data import Dataset
from colabel.data.string_table import StringTable
from colabel.ranking import Bm25, Hybrid, LateInteraction
from colabel.ranking.hybrid import fit_memory_weight
from colabel.ranking.memory import RECALLED, STAGE, Asked, Memory, fit_memory, label_rows, probability, save_asked
from colabel.settings import RankSettings

ASKED = {f"glacier caves {number}": ["p001"] for number in range(12)} | {f"summer {n}": ["p003"] for n in range(12)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("asked"))


@pytest.fixture(scope="module")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(dataset, tiny_model, tmp_path_factory.mktemp("built"))


@pytest.fixture
def hybrid(dataset: Dataset, index: Index, tmp_path: Path) -> Hybrid:
    return Hybrid(LateInteraction(index), Bm25(dataset.passages, RankSettings(), tmp_path / "bm25"))


def kept(index: Index, folder: Path, asked: dict[str, list[str]], fit: tuple[float, float] | None) -> Path:
    """A finished artefact of some queries with their labels."""

    def write(space: Workspace) -> dict[str, object]:
        save_asked(space, asked, LateInteraction(index))
        return {"queries": len(asked), "fit": fit}

    with Builder() as builder:
        builder.build(folder, Spec(STAGE, {}, {}), write)
    return folder


def two_queries() -> Asked:
    """Two queries of one and of two tokens, with rows 7, and 7 and 9, as labels."""
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=np.float16)
    return Asked(vectors, np.array([0, 1, 3]), [np.array([7]), np.array([7, 9])])


def test_likeness_is_the_mean_of_maxsim_in_both_directions() -> None:
    query = np.array([[1.0, 0.0], [0.0, 0.0]], dtype=np.float32)  # one token, and padding
    found = two_queries().alike(query)
    assert found[7] == (pytest.approx(1.0), 0)
    assert found[9] == (pytest.approx(0.75), 1)  # 1 from here to there; from there 1 and 0
    assert set(two_queries().alike(query, without=0)) == {7, 9}
    assert two_queries().alike(query, without=0)[7][0] == pytest.approx(0.75)


def test_nothing_is_remembered_where_similar_queries_share_no_label(index: Index, tmp_path: Path) -> None:
    late, draw = LateInteraction(index), np.random.default_rng(0)
    texts = [f"ice {number}" for number in range(30)]
    vectors = [one[(one != 0).any(axis=1)].astype(np.float16) for one in late.encode(texts).numpy()]
    offsets = np.cumsum([0, *map(len, vectors)])
    alone = Asked(np.concatenate(vectors), offsets, [np.array([number]) for number in range(30)])
    assert fit_memory(alone) is None
    shared = [np.array([number % 2]) for number in range(30)]
    near = [np.tile(draw.normal(size=2) * 0.01 + (np.eye(2)[number % 2]), (2, 1)) for number in range(30)]
    fit = fit_memory(Asked(np.concatenate(near).astype(np.float16), np.arange(0, 61, 2), shared))
    assert fit is not None and fit[0] > 0
    unlike, like = probability(np.array([0.0, 1.0]), fit)
    assert unlike < 0.1 and like > 0.9


def test_a_hybrid_with_a_memory_answers_as_people_did(hybrid: Hybrid, index: Index, tmp_path: Path) -> None:
    folder = kept(index, tmp_path / "memory", ASKED, (20.0, -16.0))
    wanted = index.store.ids.rows(["p003"])[0]
    memory = Memory.open(folder, LateInteraction(index), 16.0)
    remembers = Hybrid(hybrid.late, hybrid.words, memory=memory)
    rows, scores = remembers.rank(["summer 3", "glacier caves 5"], 3)
    assert rows[0, 0] == wanted and rows[1, 0] == index.store.ids.rows(["p001"])[0]
    assert (np.diff(scores, axis=1) <= 0).all()
    shown = memory.reminders("summer 3", [int(wanted), 0])
    assert shown[0].startswith("summer") and not shown[1]
    nothing = np.zeros(len(index.store), dtype=bool)
    assert memory.recall(memory.reader.encode(["summer 3"]), nothing) == [{}]
    forgets = Memory.open(folder, LateInteraction(index), 0.0)
    assert forgets.recall(forgets.reader.encode(["summer 3"])) == [{}]
    as_before = Hybrid(hybrid.late, hybrid.words, memory=forgets)
    assert as_before.rank(["summer 3"], 5)[0].tolist() == hybrid.rank(["summer 3"], 5)[0].tolist()
    assert len({hybrid.fingerprint, as_before.fingerprint, remembers.fingerprint}) == 3


def test_labels_of_passages_that_are_gone_are_forgotten(index: Index, tmp_path: Path) -> None:
    folder = kept(index, tmp_path / "memory", {"summer": ["p003", "gone"]}, (20.0, -10.0))
    late = LateInteraction(index)
    found = Memory.open(folder, late).recall(late.encode(["summer"]))[0]
    assert list(found) == index.store.ids.rows(["p003"]).tolist() and len(found) <= RECALLED


def test_of_very_many_queries_some_are_remembered(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colabel.ranking.memory.MOST_ASKED", 10)
    memory = Memory.open(kept(index, tmp_path / "memory", ASKED, (20.0, -16.0)), LateInteraction(index))
    assert len(memory.texts) == len(memory.asked.labels) == 10 and set(memory.texts) < set(ASKED)


def test_dev_decides_whether_to_remember(hybrid: Hybrid, index: Index, tmp_path: Path) -> None:
    memory = Memory.open(kept(index, tmp_path / "memory", ASKED, (20.0, -16.0)), LateInteraction(index))
    remembers = Hybrid(hybrid.late, hybrid.words, memory=memory)
    queries = {f"q{number}": text for number, text in enumerate(ASKED)}
    answered = {query: {ASKED[text][0]: 1} for query, text in queries.items()}
    place, weight, values = fit_memory_weight([remembers, remembers], queries, answered)
    assert weight > 0 and values[f"{place}:{weight:g}"] > values["1:0"]
    best, _ = hybrid.rank(list(queries.values()), 1)
    other = {query: {hybrid.ids[int(row)]: 1} for query, (row,) in zip(queries, best, strict=True)}
    if all(next(iter(other[query])) != ASKED[text][0] for query, text in queries.items()):
        assert fit_memory_weight([remembers], queries, other)[1] == 0
    few = dict(list(answered.items())[:3])
    assert fit_memory_weight([hybrid, remembers], queries, few)[::2] == (1, {})


def test_labels_are_rows_of_the_searched_collection() -> None:
    found = label_rows([["a"], ["b", "a"], ["c"]], StringTable.of(["a", "b"]))
    assert [one.tolist() for one in found] == [[0], [1, 0], []]
