"""Which objects are found, under which names."""

from __future__ import annotations

import logging
import sys

import pytest

from colabel.data.pydocs.harvest import Documented, harvest, name_rank


@pytest.fixture(scope="module")
def networkx_docs() -> list[Documented]:
    return harvest(("networkx",))[0]


def test_missing_library_is_skipped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with caplog.at_level(logging.WARNING):
        documented, versions = harvest(("networkx",))
    assert documented == []
    assert versions == {}
    assert "networkx" in caplog.text


def test_versions_name_what_was_found(networkx_docs: list[Documented]) -> None:
    import networkx

    assert harvest(("networkx",)) == (networkx_docs, {"networkx": networkx.__version__})


def test_equal_documentation_is_one_object(networkx_docs: list[Documented]) -> None:
    docs = [item.doc for item in networkx_docs]
    assert len(docs) == len(set(docs))
    (bfs,) = (item for item in networkx_docs if "networkx.bfs_edges" in item.names)
    assert bfs.name == "networkx.bfs_edges"
    assert "networkx.algorithms.traversal.breadth_first_search.bfs_edges" in bfs.names


def test_inherited_methods_belong_to_the_class_that_defines_them(networkx_docs: list[Documented]) -> None:
    (copy,) = (item for item in networkx_docs if "networkx.DiGraph.copy" in item.names)
    assert copy.name == "networkx.Graph.copy"


def test_only_public_names_of_the_library_lead(networkx_docs: list[Documented]) -> None:
    for item in networkx_docs:
        assert item.name.startswith("networkx.")
        assert not any(part.startswith("_") for part in item.name.split("."))
    names = {name for item in networkx_docs for name in item.names}
    assert "networkx.NetworkXError.with_traceback" not in names  # Python's own documentation


def test_shallow_and_short_names_first() -> None:
    names = ["torch.functional.einsum", "torch.einsum", "torch.abc"]
    assert sorted(names, key=name_rank) == ["torch.abc", "torch.einsum", "torch.functional.einsum"]
