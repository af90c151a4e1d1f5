from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colabel.data import hide_labels, load_dataset
from colabel.errors import DataError, UsageError
from colabel.ranking import rank
from colabel.settings import DistilSettings
from colabel.train import Mining, Pool, draw_groups, groups_for, pool_from_ranking
from colabel.train.groups import Groups
from tests.train.small import Small, Spread, write_collection


@pytest.fixture(scope="module")
def pool(small: Small) -> Pool:
    return pool_from_ranking(small.dataset, small.train, depth=12)


def test_a_pool_has_the_top_of_the_ranking_and_the_visible_positives(small: Small, pool: Pool) -> None:
    assert pool.query_ids == sorted(f"q{number}" for number in range(10))
    assert [rows.tolist() for rows in pool.positives[:3]] == [[0, 1], [3], [6]]
    for number, query_id in enumerate(pool.query_ids):
        ranked, scores = small.train.query(query_id)
        rows, kept = pool.candidates(number)
        assert rows.tolist() == ranked[:12].tolist()
        assert kept.tolist() == scores[:12].tolist()
        negatives, _ = pool.negatives(number)
        assert negatives.tolist() == [row for row in ranked[:12].tolist() if row not in pool.positives[number]]


def test_groups_hold_a_positive_and_different_unlabelled_candidates(pool: Pool) -> None:
    groups = draw_groups(pool, count=95, size=5, seed=3)
    assert groups.rows.dtype == groups.queries.dtype == np.int32
    assert groups.filled == 0
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        assert rows[0] in pool.positives[query]
        assert len(set(rows)) == 5
        assert set(rows[1:]) <= set(pool.negatives(query)[0].tolist())
    for epoch in range(9):
        visited = groups.queries[10 * epoch : 10 * epoch + 10]
        assert sorted(visited.tolist()) == list(range(10)), "every query once in an epoch"
    orders = {tuple(groups.queries[10 * epoch : 10 * epoch + 10].tolist()) for epoch in range(9)}
    assert len(orders) == 9, "in an order of its own"
    first = groups.rows[groups.queries == 0][:, 0].tolist()
    assert first == [epoch % 2 for epoch in range(len(first))], "its positives in turn"


def test_groups_depend_on_the_seed_and_nothing_else(pool: Pool) -> None:
    ours, again = (draw_groups(pool, count=40, size=4, seed=1) for _ in range(2))
    assert ours.fingerprint == again.fingerprint
    assert ours.rows.tolist() == again.rows.tolist()
    longer = draw_groups(pool, count=77, size=4, seed=1)
    assert longer.rows[:40].tolist() == ours.rows.tolist(), "a longer run begins with a shorter one"
    assert longer.queries[:40].tolist() == ours.queries.tolist()
    other = draw_groups(pool, count=40, size=4, seed=2)
    assert other.rows.tolist() != ours.rows.tolist()
    assert len({ours.fingerprint, longer.fingerprint, other.fingerprint}) == 3


def test_some_negatives_from_anywhere(pool: Pool) -> None:
    groups = draw_groups(pool, count=200, size=6, seed=0, anywhere=3)
    assert groups.filled == 0
    assert groups.fingerprint != draw_groups(pool, count=200, size=6, seed=0).fingerprint
    outside = 0
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        near = set(pool.negatives(query)[0].tolist())
        assert len(set(rows)) == 6
        assert set(rows[1:3]) <= near
        assert not set(rows[1:]) & set(pool.positives[query].tolist())
        outside += len(set(rows[3:]) - near)
    assert outside > 200, "half of the collection is outside of a pool"


def test_small_pools_are_filled_from_the_whole_collection(small: Small) -> None:
    narrow = pool_from_ranking(small.dataset, small.train, depth=3)
    groups = draw_groups(narrow, count=20, size=6, seed=0)
    assert groups.filled >= 2 * 20
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        assert len(set(rows)) == 6
        assert not set(rows[1:]) & set(narrow.positives[query].tolist())
        assert set(narrow.negatives(query)[0].tolist()) <= set(rows)
    with pytest.raises(UsageError, match="a group has 41 passages, and the collection has 40"):
        draw_groups(narrow, count=1, size=41, seed=0)


@pytest.mark.parametrize(
    ("mining", "limit"), [(Mining("margin", 2.0), lambda own: own - 2.0), (Mining("share", 0.5), lambda own: 0.5 * own)]
)
def test_mining_leaves_out_what_looks_like_the_positive(small: Small, mining: Mining, limit: object) -> None:
    pool = pool_from_ranking(small.dataset, small.train, depth=20)
    groups = draw_groups(pool, count=30, size=3, seed=0, mining=mining)
    looked_at = left_out = 0
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        scores = dict(zip(*(part.tolist() for part in pool.candidates(query)), strict=True))
        others = [value for row, value in scores.items() if row not in pool.positives[query]]
        looked_at += len(others)
        if rows[0] in scores:
            highest = limit(scores[rows[0]])  # type: ignore[operator]
            left_out += sum(value > highest for value in others)
            for row in rows[1:]:
                assert row not in scores or scores[row] <= highest
    assert 0 < groups.mined[0] == left_out < looked_at == groups.mined[1]
    plain = draw_groups(pool, count=30, size=3, seed=0)
    assert plain.mined == (0, looked_at)
    assert plain.fingerprint != groups.fingerprint


def test_mining_asks_for_the_score_of_a_positive_outside_the_pool(small: Small) -> None:
    class Constant:
        name = fingerprint = "constant"

        def score(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            return np.full(rows.shape, 7.0, dtype=np.float32)

    pool = pool_from_ranking(small.dataset, small.train, depth=20)
    mining = Mining("margin", 1.0)
    groups = draw_groups(pool, count=30, size=3, seed=0, mining=mining, scorer=Constant())
    outside = 0
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        scores = dict(zip(*(part.tolist() for part in pool.candidates(query)), strict=True))
        if rows[0] not in scores:
            outside += 1
            assert all(scores.get(row, 0.0) <= 6.0 for row in rows[1:])
    assert outside
    unaided = draw_groups(pool, count=30, size=3, seed=0, mining=mining)
    assert groups.mined[0] > unaided.mined[0]
    assert groups.fingerprint != unaided.fingerprint


def test_the_limit_of_mining() -> None:
    assert Mining().limit(3.0) == np.inf
    assert Mining("margin", 1.0).limit(3.0) == 2.0
    assert Mining("share", 0.5).limit(3.0) == 1.5
    assert Mining("share", 0.5).limit(-3.0) == -6.0, "below the positive as well"
    assert Mining("share", 0.5).limit(float("nan")) == np.inf, "a positive without a score says nothing"


def test_pairs_are_exactly_those_that_are_drawn(pool: Pool) -> None:
    groups = draw_groups(pool, count=25, size=3, seed=5)
    pairs = groups.pairs()
    drawn = {(int(q), int(r)) for q, rows in zip(groups.queries, groups.rows, strict=True) for r in rows}
    assert len(pairs) == len(drawn)
    ids = [*pool.query_ids, "stranger"]
    rows = np.tile(np.append(np.arange(pool.passages), -1), (len(ids), 1))
    chosen = pairs(ids, rows, np.zeros(rows.shape, np.uint8))
    assert {(q, r) for q in range(len(ids)) for r in range(rows.shape[1]) if chosen[q, r]} == drawn
    assert pairs.fingerprint == draw_groups(pool, count=25, size=3, seed=5).pairs().fingerprint


def _all(dataset: object, tmp_path: Path, name: str) -> Groups:
    ranking = rank(Spread(dataset), dataset.split_queries("train"), tmp_path / name, depth=20)  # type: ignore[arg-type,attr-defined]
    return groups_for(pool_from_ranking(dataset, ranking, depth=20), DistilSettings(passages=3), 0)  # type: ignore[arg-type]


def test_hidden_labels_change_nothing(small: Small, tmp_path: Path) -> None:
    """A dataset whose labels were hidden trains as one that never had them."""
    sparse = hide_labels(small.dataset, keep=1, seed=0)
    folder = write_collection(tmp_path / "never")
    lines = (folder / "qrels" / "train.tsv").read_text().splitlines(keepends=True)
    kept = sparse.labels("train")
    lines = [lines[0], *(line for line in lines[1:] if line.split("\t")[1] in kept[line.split("\t")[0]])]
    (folder / "qrels" / "train.tsv").write_text("".join(lines))
    never = load_dataset(str(folder))
    ours, theirs = _all(sparse, tmp_path, "a"), _all(never, tmp_path, "b")
    assert ours.fingerprint == theirs.fingerprint
    assert ours.rows.tolist() == theirs.rows.tolist()
    assert ours.fingerprint != _all(small.dataset, tmp_path, "c").fingerprint, "visible labels do matter"


def test_pools_that_do_not_fit(small: Small, tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "other")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row | {"_id": f"x{row['_id']}"}) + "\n" for row in rows))
    for split in ("train", "dev"):
        path = folder / "qrels" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\td", "\txd"))
    other = load_dataset(str(folder))
    with pytest.raises(DataError, match="made from another collection"):
        pool_from_ranking(other, small.train, depth=5)
    with pytest.raises(DataError, match="no split 'test'"):
        pool_from_ranking(small.dataset, small.train, depth=5, split="test")


def test_empty_positives_and_unranked_queries_are_counted(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "gaps")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    rows[3]["text"], rows[1]["text"] = "", " "
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = load_dataset(str(folder))
    asked = {query: text for query, text in dataset.split_queries("train").items() if query != "q5"}
    pool = pool_from_ranking(dataset, rank(Spread(dataset), asked, tmp_path / "r", depth=20), depth=20)
    assert pool.empty_positives == 2
    assert "q1" not in pool.query_ids
    assert pool.positives[0].tolist() == [0]
    assert pool.unranked == 1
    assert draw_groups(pool, count=9, size=3, seed=0).filled == 2
