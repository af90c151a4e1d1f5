from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colabel.encode import Encoder, QueryStore, build_query_store
from colabel.errors import DataError

QUERIES = {"a": "what is ice", "b": "how are glacier caves formed in the summer", "c": "melt", "d": "water"}


@pytest.mark.parametrize("block", [1, 3, 100])
def test_stored_vectors_are_the_encoders(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("colabel.encode.query_store._BLOCK", block)
    build_query_store(lambda: encoder, "encoder", QUERIES, tmp_path / "store")
    store = QueryStore(tmp_path / "store")
    assert [store.text(query_id) for query_id in QUERIES] == list(QUERIES.values())
    for query_id, text in QUERIES.items():
        encoded = encoder.encode_queries([text])
        assert torch.allclose(store.vectors([query_id])[0], encoded.vectors[0][encoded.token_ids[0] >= 0], atol=1e-6)
    both = store.vectors(["c", "b"])
    lengths = store.lengths(["c", "b"]).tolist()
    assert both.shape[1] == max(lengths)
    assert not both[0, lengths[0] :].any(), "zero vectors behind a query's tokens"
    assert sorted(path.name for path in store.folder.iterdir() if path.name.startswith("part-")) == []
    with pytest.raises(DataError, match="no query 'e'"):
        store.vectors(["a", "e"])
    with pytest.raises(DataError, match="no query 'e'"):
        store.text("e")
