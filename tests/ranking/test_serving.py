"""Exports of an index, tried by searching them: the first ten are those of our exact engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.conftest import WORDS

from colabel import Dataset, Index, build_index, export_index
from colabel.errors import DataError, MissingExtraError, UsageError
from colabel.ranking import serving
from colabel.settings import EncoderSettings, IndexSettings

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
Searched = list[tuple[str, float]]
QUESTIONS = [" ".join(WORDS[first : first + 3]) for first in range(0, 15, 3)]


def records() -> Iterator[dict[str, Any]]:
    choose = np.random.default_rng(3)
    for number in range(60):
        text = "" if number == 7 else " ".join(choose.choice(WORDS, size=choose.integers(2, 14)))
        yield {
            "id": f"p{number}",
            "title": "",
            "text": text,
            "unit price": number / 2,
            "made": "2026-01-02",
            "vectors": None if number % 2 else ["a", "b"],
        }


@pytest.fixture(scope="module")
def index(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return _index(tiny_model, tmp_path_factory.mktemp("serving") / "index")


def _index(model: Path, out: Path, chunk: int = 0, storage: str = "fp16") -> Index:
    settings = EncoderSettings(model=str(model), dimension=16, query_length=12, passage_length=24, device="cpu")
    dataset = Dataset.from_records(list(records()), chunk=chunk)
    return build_index(dataset, out, encoder=settings, index=IndexSettings(storage=storage))


def questions(index: Index) -> list[FloatArray]:
    """Query vectors without padding."""
    found = index.encoder.encode_queries(QUESTIONS).vectors.numpy()
    return [vectors[np.abs(vectors).sum(axis=1) > 0] for vectors in found]


def assert_same_ten(index: Index, search: Callable[[FloatArray], Searched], tolerance: float) -> None:
    """The same ten passages in the same order, but for passages whose scores differ by less than the tolerance."""
    import torch

    for vectors in questions(index):
        rows, scores = index.search(torch.from_numpy(vectors)[None], 20)
        ours = {index.store.ids[int(row)]: float(score) for row, score in zip(rows[0], scores[0], strict=True)}
        found = search(vectors)
        assert len(found) == len({passage_id for passage_id, _ in found}) == 10
        for (passage_id, score), expected in zip(found, scores[0].tolist(), strict=False):
            assert score == pytest.approx(ours[passage_id], abs=tolerance)
            assert score == pytest.approx(expected, abs=tolerance)


def max_sim(queries: FloatArray, passages: dict[str, FloatArray]) -> Searched:
    """MaxSim over whatever an export holds."""
    scores = {name: float((queries @ vectors.T).max(axis=1).sum()) for name, vectors in passages.items()}
    return sorted(scores.items(), key=lambda one: -one[1])[:10]


def test_lancedb_finds_the_same_ten(index: Index, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb", reason="the extra `export` is not installed")
    export_index(index, tmp_path / "out", "lancedb")
    table = lancedb.connect(tmp_path / "out").open_table("passages")

    def search(vectors: FloatArray) -> Searched:
        found = table.search(vectors, vector_column_name="vectors").distance_type("cosine").limit(10).to_list()
        return [(row["id"], len(vectors) - row["_distance"]) for row in found]  # it adds up 1 − cosine

    assert_same_ten(index, search, tolerance=0.01)  # it rounds queries to the float16 of the table
    cheap = table.search().where("`unit price` < 2 and made = date '2026-01-02'").to_list()
    assert sorted(row["id"] for row in cheap) == ["p0", "p1", "p2", "p3"]


def test_qdrant_finds_the_same_ten(index: Index, tmp_path: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="the extra `export` is not installed")
    export_index(index, tmp_path / "out", "qdrant")
    client = qdrant.QdrantClient(path=str(tmp_path / "out"))
    try:

        def search(vectors: FloatArray) -> Searched:
            points = client.query_points("passages", query=vectors.tolist(), limit=10).points
            return [(point.payload["id"], point.score) for point in points]

        assert_same_ten(index, search, tolerance=1e-4)
        assert client.count("passages").count == 59
        below = qdrant.models.FieldCondition(key='"unit price"', range=qdrant.models.Range(lt=2))
        cheap, _ = client.scroll("passages", scroll_filter=qdrant.models.Filter(must=[below]))
        assert sorted(point.payload["id"] for point in cheap) == ["p0", "p1", "p2", "p3"]
    finally:
        client.close()


def test_vespas_feed_holds_the_vectors_by_token(index: Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "out", "vespa")
    feed = [json.loads(line) for line in (tmp_path / "out" / "feed.jsonl").read_text().splitlines()]
    passages = {
        one["fields"]["id"]: np.stack(
            [np.frombuffer(bytes.fromhex(token), dtype=">f4") for token in one["fields"]["vectors"].values()]
        ).astype(np.float32)
        for one in feed
    }
    assert_same_ten(index, lambda vectors: max_sim(vectors, passages), tolerance=1e-4)
    assert [one["put"] for one in feed[6:8]] == ["id:colabel:passage::p6", "id:colabel:passage::p8"]  # p7 is empty
    assert {**feed[0]["fields"], "vectors": 0} == {
        "id": "p0",
        "title": "",
        "text": next(records())["text"],
        "unit_price": 0.0,
        "made": "2026-01-02",
        "vectors_": ["a", "b"],
        "vectors": 0,
    }
    schema = (tmp_path / "out" / "passage.sd").read_text()
    assert "field vectors type tensor<float>(token{}, x[16])" in schema
    assert "field vectors_ type array<string>" in schema
    assert "field unit_price type double" in schema
    assert schema.count("{") == schema.count("}")


@pytest.mark.parametrize(("storage", "kind"), [("fp16", "halffloat"), ("int8", "float")])
def test_parquet_holds_vectors_without_loss(tiny_model: Path, tmp_path: Path, storage: str, kind: str) -> None:
    index = _index(tiny_model, tmp_path / "index", storage=storage)
    manifest = export_index(index, tmp_path / "out", "parquet")
    assert (manifest.counts["passages"], manifest.counts["empty"]) == (59, 1)
    assert manifest.counts["tokens"] == index.store.tokens
    table = pq.read_table(tmp_path / "out" / "passages.parquet")
    assert table.column_names == ["id", "title", "text", "unit price", "made", "vectors_", "vectors"]
    assert table.schema.field("vectors").type.value_type.value_type == kind
    rows = [row for row in range(60) if row != 7]
    vectors, _ = index.store.vectors(rows)
    assert np.array_equal(np.concatenate([np.stack(one) for one in table["vectors"].to_pylist()]), vectors)
    assert table["id"].to_pylist() == [f"p{row}" for row in rows]


def test_blocks_and_pieces(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = _index(tiny_model, tmp_path / "index", chunk=6)
    export_index(index, tmp_path / "whole", "parquet")
    monkeypatch.setattr(serving, "_BLOCK", 7)
    export_index(index, tmp_path / "blocks", "parquet")
    whole, blocks = (pq.read_table(tmp_path / name / "passages.parquet") for name in ("whole", "blocks"))
    assert whole.equals(blocks)
    ids, documents = whole["id"].to_pylist(), whole["document_id"].to_pylist()
    assert len(set(ids)) == len(ids) > len(set(documents)) == 59
    assert [one.partition("#")[0] for one in ids] == documents


def test_an_interrupted_export_leaves_nothing_and_goes_on(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopping:
        def start(self, what: str, total: int | None, unit: str) -> Any:
            return self

        def advance(self, steps: int = 1) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            pass

    monkeypatch.setattr(serving, "_BLOCK", 20)
    formats = [name for name in serving.FORMATS if _there(name)]
    for format in formats:
        with pytest.raises((KeyboardInterrupt, OSError, RuntimeError)):
            export_index(index, tmp_path / format, format, progress=Stopping())
        assert not (tmp_path / format).exists()
        assert export_index(index, tmp_path / format, format).counts["passages"] == 59


def _there(format: str) -> bool:
    try:
        serving._library(format)
    except MissingExtraError:
        return False
    return True


def test_what_cannot_be_exported(
    index: Index, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="expected one of lancedb, qdrant, vespa, parquet"):
        export_index(index, tmp_path / "out", "csv")
    for format, module in (("lancedb", "lancedb"), ("qdrant", "qdrant_client")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(MissingExtraError, match=r"pip install 'colabel\[export\]'"):
            export_index(index, tmp_path / "out", format)
    monkeypatch.setattr(serving, "LOCAL_LIMIT", 10)
    with pytest.raises(UsageError, match="59 passages"):
        export_index(index, tmp_path / "out", "qdrant")
    gone = Index(index.folder)
    with pytest.raises(DataError, match="are gone"):
        export_index(gone, tmp_path / "out", "parquet")
    assert not (tmp_path / "out").exists()
