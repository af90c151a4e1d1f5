"""Groups are drawn as they should be, and what the model sees of them is what it sees when it encodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colabel.data import hide_labels, load_dataset
from colabel.encode import prepare_encoder
from colabel.encode.colbert import load_checkpoint
from colabel.errors import DataError, UsageError
from colabel.ranking import rank
from colabel.settings import DistilSettings, EncoderSettings
from colabel.train import Candidates, candidates_from_ranking, draw_groups, groups_for
from colabel.train.groups import Groups, GroupTexts, collator_for
from colabel.train.objective import embed
from tests.train.small import ENCODER, Small, Spread, write_collection


@pytest.fixture(scope="module")
def candidates(small: Small) -> Candidates:
    return candidates_from_ranking(small.dataset, small.train, depth=12)


def test_a_pool_has_the_top_of_the_ranking_and_the_visible_positives(small: Small, candidates: Candidates) -> None:
    assert candidates.query_ids == sorted(f"q{number}" for number in range(10))
    assert [rows.tolist() for rows in candidates.positives[:3]] == [[0, 1], [3], [6]]
    for number, query_id in enumerate(candidates.query_ids):
        ranked, scores = small.train.query(query_id)
        rows, kept = candidates.ranked(number)
        assert rows.tolist() == ranked[:12].tolist()
        assert kept.tolist() == scores[:12].tolist()
        negatives = candidates.negatives(number)
        assert negatives.tolist() == [row for row in ranked[:12].tolist() if row not in candidates.positives[number]]


def test_groups_hold_a_positive_and_different_unlabelled_candidates(candidates: Candidates) -> None:
    groups = draw_groups(candidates, count=95, size=5, seed=3)
    assert groups.rows.dtype == groups.queries.dtype == np.int32
    assert groups.filled == 0
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        assert rows[0] in candidates.positives[query]
        assert len(set(rows)) == 5
        assert set(rows[1:]) <= set(candidates.negatives(query).tolist())
    for epoch in range(9):
        visited = groups.queries[10 * epoch : 10 * epoch + 10]
        assert sorted(visited.tolist()) == list(range(10)), "every query once in an epoch"
    orders = {tuple(groups.queries[10 * epoch : 10 * epoch + 10].tolist()) for epoch in range(9)}
    assert len(orders) == 9, "in an order of its own"
    first = groups.rows[groups.queries == 0][:, 0].tolist()
    assert first == [epoch % 2 for epoch in range(len(first))], "its positives in turn"


def test_groups_depend_on_the_seed_and_nothing_else(candidates: Candidates) -> None:
    ours, again = (draw_groups(candidates, count=40, size=4, seed=1) for _ in range(2))
    assert ours.fingerprint == again.fingerprint
    assert ours.rows.tolist() == again.rows.tolist()
    longer = draw_groups(candidates, count=77, size=4, seed=1)
    assert longer.rows[:40].tolist() == ours.rows.tolist(), "a longer run begins with a shorter one"
    assert longer.queries[:40].tolist() == ours.queries.tolist()
    other = draw_groups(candidates, count=40, size=4, seed=2)
    assert other.rows.tolist() != ours.rows.tolist()
    assert len({ours.fingerprint, longer.fingerprint, other.fingerprint}) == 3


def test_some_negatives_from_anywhere(candidates: Candidates) -> None:
    groups = draw_groups(candidates, count=200, size=6, seed=0, anywhere=3)
    assert groups.filled == 0
    assert groups.fingerprint != draw_groups(candidates, count=200, size=6, seed=0).fingerprint
    outside = 0
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        near = set(candidates.negatives(query).tolist())
        assert len(set(rows)) == 6
        assert set(rows[1:3]) <= near
        assert not set(rows[1:]) & set(candidates.positives[query].tolist())
        outside += len(set(rows[3:]) - near)
    assert outside > 200, "half of the collection is outside of a candidates"


def test_small_pools_are_filled_from_the_whole_collection(small: Small) -> None:
    narrow = candidates_from_ranking(small.dataset, small.train, depth=3)
    groups = draw_groups(narrow, count=20, size=6, seed=0)
    assert groups.filled >= 2 * 20
    for query, rows in zip(groups.queries.tolist(), groups.rows.tolist(), strict=True):
        assert len(set(rows)) == 6
        assert not set(rows[1:]) & set(narrow.positives[query].tolist())
        assert set(narrow.negatives(query).tolist()) <= set(rows)
    with pytest.raises(UsageError, match="a group has 41 passages, and the collection has 40"):
        draw_groups(narrow, count=1, size=41, seed=0)


def test_pairs_are_exactly_those_that_are_drawn(candidates: Candidates) -> None:
    groups = draw_groups(candidates, count=25, size=3, seed=5)
    pairs = groups.pairs()
    drawn = {(int(q), int(r)) for q, rows in zip(groups.queries, groups.rows, strict=True) for r in rows}
    assert len(pairs) == len(drawn)
    ids = [*candidates.query_ids, "stranger"]
    rows = np.tile(np.append(np.arange(candidates.passages), -1), (len(ids), 1))
    chosen = pairs(ids, rows, np.zeros(rows.shape, np.uint8))
    assert {(q, r) for q in range(len(ids)) for r in range(rows.shape[1]) if chosen[q, r]} == drawn
    assert pairs.fingerprint == draw_groups(candidates, count=25, size=3, seed=5).pairs().fingerprint


def _all(dataset: object, tmp_path: Path, name: str) -> Groups:
    ranking = rank(Spread(dataset), dataset.split_queries("train"), tmp_path / name, depth=20)  # type: ignore[arg-type,attr-defined]
    return groups_for(candidates_from_ranking(dataset, ranking, depth=20), DistilSettings(passages=3), 0)  # type: ignore[arg-type]


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
        candidates_from_ranking(other, small.train, depth=5)
    with pytest.raises(DataError, match="no split 'test'"):
        candidates_from_ranking(small.dataset, small.train, depth=5, split="test")


def test_empty_positives_and_unranked_queries_are_counted(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "gaps")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    rows[3]["text"], rows[1]["text"] = "", " "
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = load_dataset(str(folder))
    asked = {query: text for query, text in dataset.split_queries("train").items() if query != "q5"}
    candidates = candidates_from_ranking(dataset, rank(Spread(dataset), asked, tmp_path / "r", depth=20), depth=20)
    assert candidates.empty_positives == 2
    assert "q1" not in candidates.query_ids
    assert candidates.positives[0].tolist() == [0]
    assert candidates.unranked == 1
    assert draw_groups(candidates, count=9, size=3, seed=0).filled == 2


@pytest.fixture(params=[False, True], ids=["plain", "expanded"])
def model(request: pytest.FixtureRequest, small: Small, tiny_model: Path, tmp_path: Path) -> Any:
    settings = EncoderSettings(model=str(tiny_model), expand_queries=request.param, **ENCODER)
    prepare_encoder(settings, small.dataset.passages, tmp_path / "encoder")
    return load_checkpoint(str(tmp_path / "encoder"), "cpu")


def batch_of(small: Small, model: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    groups = draw_groups(candidates_from_ranking(small.dataset, small.train, depth=20), count=4, size=3, seed=0)
    texts = GroupTexts(small.dataset, groups)
    rows = [texts[number] for number in range(4)]
    return rows, collator_for(model)(rows)


def spied(model: Any, call: Any) -> list[dict[str, Any]]:
    """Features with which the encoder is called, while a function runs."""
    seen: list[dict[str, Any]] = []
    original = model.forward

    def forward(features: dict[str, Any], **kwargs: Any) -> Any:
        seen.append({name: value.clone() for name, value in features.items() if isinstance(value, torch.Tensor)})
        return original(features, **kwargs)

    model.forward = forward
    try:
        call()
    finally:
        model.forward = original
    return seen


@pytest.mark.parametrize("column", ["query", "passage"])
def test_tokens_in_training_are_those_of_encoding(small: Small, model: Any, column: str) -> None:
    rows, batch = batch_of(small, model)
    texts = [row["query"] for row in rows] if column == "query" else [text for row in rows for text in row["passage"]]
    encode = model.encode_query if column == "query" else model.encode_document
    for place, text in enumerate(texts):
        (seen,) = spied(model, lambda text=text: encode([text], show_progress_bar=False))
        length = seen["input_ids"].shape[1]
        for name in seen:
            if name in ("input_ids", "attention_mask", "token_type_ids", "query_expansion_positions"):
                ours = batch[f"{column}_{name}"][place]
                assert ours[:length].tolist() == seen[name][0].tolist()
                if name == "attention_mask":
                    assert not ours[length:].any()
        marker = "[unused0]" if column == "query" else "[unused1]"
        assert int(batch[f"{column}_input_ids"][place, 1]) == model.tokenizer.convert_tokens_to_ids(marker)


@pytest.mark.parametrize("column", ["query", "passage"])
def test_vectors_in_training_are_those_of_encoding(
    small: Small, model: Any, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorted by length and cut into several forward passes, they come back in their order."""
    monkeypatch.setattr("colabel.train.objective._TOKENS_ON_CPU", 30)
    rows, batch = batch_of(small, model)
    texts = [row["query"] for row in rows] if column == "query" else [text for row in rows for text in row["passage"]]
    features = {name.removeprefix(f"{column}_"): value for name, value in batch.items() if name.startswith(column)}
    model.train()
    vectors, mask = embed(model, features)
    model.eval()
    encode = model.encode_query if column == "query" else model.encode_document
    for place, theirs in enumerate(encode(texts, show_progress_bar=False, convert_to_numpy=False)):
        assert torch.allclose(vectors[place][mask[place].bool()], theirs, atol=1e-5)
    assert vectors.requires_grad


def test_the_mask_keeps_its_weights(small: Small, model: Any) -> None:
    """A module may write weights into the mask; they reach the scores as they are."""

    class Halve(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, features: dict[str, Any], task: str) -> Any:
            output = self.inner(features, task=task)
            output["attention_mask"] = output["attention_mask"].float() * 0.5
            return output

    _, batch = batch_of(small, model)
    features = {name.removeprefix("query_"): value for name, value in batch.items() if name.startswith("query_")}
    _, mask = embed(Halve(model), features)
    assert set(mask.unique().tolist()) <= {0.0, 0.5}
