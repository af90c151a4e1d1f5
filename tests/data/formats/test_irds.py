"""ir_datasets: its real code paths on a local data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import LABELS, PASSAGES, QUERIES
from tests.data.caves import assert_is_caves

from colabel.data import load_dataset
from colabel.errors import UsageError


class _Doc(NamedTuple):
    doc_id: str
    title: str
    text: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


@pytest.fixture
def irds_caves(tmp_path: Path) -> Iterator[str]:
    """A local data set in ir_datasets' own registry: its real code paths, no download."""
    import ir_datasets
    from ir_datasets.formats import TrecQrels, TsvQueries
    from ir_datasets.formats.base import BaseDocs

    class CaveDocs(BaseDocs):
        def docs_iter(self) -> Iterator[_Doc]:
            return (_Doc(row["_id"], row["title"], row["text"]) for row in PASSAGES)

        def docs_cls(self) -> type:
            return _Doc

        def docs_count(self) -> int:
            return len(PASSAGES)

        def docs_namespace(self) -> str:
            return "caves"

        def docs_lang(self) -> str:
            return "en"

    class Local:
        def __init__(self, path: Path) -> None:
            self._path = path

        def stream(self) -> object:
            return self._path.open("rb")

        def path(self) -> str:
            return str(self._path)

    docs = CaveDocs()
    names = ["caves-test-set"]
    ir_datasets.registry.register(names[0], ir_datasets.Dataset(docs))
    for split, labels in LABELS.items():
        ids = {query for query, _, _ in labels}
        (tmp_path / f"{split}.tsv").write_text("".join(f"{q}\t{t}\n" for q, t in QUERIES.items() if q in ids))
        (tmp_path / f"{split}.qrels").write_text("".join(f"{q} 0 {p} {g}\n" for q, p, g in labels))
        parts = (TsvQueries(Local(tmp_path / f"{split}.tsv")), TrecQrels(Local(tmp_path / f"{split}.qrels"), {}))
        names.append(f"caves-test-set/{split}")
        ir_datasets.registry.register(names[-1], ir_datasets.Dataset(docs, *parts))
    yield names[0]
    for name in names:
        del ir_datasets.registry._registered[name]


def test_ir_datasets(irds_caves: str) -> None:
    assert_is_caves(f"irds:{irds_caves}")
    assert_is_caves(f"irds:{irds_caves}/train+{irds_caves}/dev+{irds_caves}/test")
    assert load_dataset(f"irds:{irds_caves}/test").splits == ("test",)
    with pytest.raises(UsageError, match="both train"):
        load_dataset(f"irds:{irds_caves}/train+{irds_caves}/train")


def test_ir_datasets_unknown_id() -> None:
    with pytest.raises(UsageError, match="no such id; did you mean 'vaswani'"):
        load_dataset("irds:vaswanni")
