"""Feedback passages, extraction from every storage and engine, and its artefact."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from colabel import Index, build_index, collect, inspect, open_knowledge
from colabel.collective import choose_feedback, extract
from colabel.data import Dataset
from colabel.errors import ArtefactError, UsageError
from colabel.settings import CollectiveSettings, IndexSettings
from colabel.teachers import CollectiveTeacher
from tests.collective.small import SETTINGS, small_encoder
from tests.conftest import kill_once


@pytest.mark.parametrize(
    ("storage", "block", "engine"), [("int8", 40, "exact"), ("fp16", 40, "ivf"), ("int8", 1000, "ivf")]
)
def test_other_storage_blocks_and_engines(
    storage: str,
    block: int,
    engine: str,
    dataset: Dataset,
    index: Index,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same tokens and nearly the same centroids, also through the look-up by lists."""
    monkeypatch.setattr("colabel.index.store.BLOCK_PASSAGES", block)
    settings = IndexSettings(storage=storage, engine=engine)
    other = build_index(dataset, tmp_path / "index", encoder=small_encoder(tiny_model), index=settings)
    feedback = np.arange(30).reshape(10, 3)
    plain = extract(index, feedback, SETTINGS)
    found = extract(other, feedback, SETTINGS)
    same = 0.7 if storage == "int8" else 0.95  # 16 dimensions of eight bits move a few neighbours
    assert (found.token_ids == plain.token_ids).mean() > same
    monkeypatch.setattr("colabel.index.index.LOOKUP_FROM", 10)
    listed = extract(other, feedback, SETTINGS)
    assert (listed.token_ids == found.token_ids).mean() > 0.9
    assert listed.sigma.shape == found.sigma.shape


def test_no_centroid_falls_back_to_the_plain_query(
    dataset: Dataset,
    index: Index,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query without any feedback: there is nothing to cluster."""
    import colabel.collective.centroids as module

    def without(ranked: np.ndarray, settings: CollectiveSettings, labelled: list[list[int]]) -> np.ndarray:
        chosen = choose_feedback(ranked, settings, labelled)
        chosen[list(dataset.split_queries("train")).index("q3")] = -1
        return chosen

    monkeypatch.setattr(module, "choose_feedback", without)
    with caplog.at_level(logging.WARNING):
        knowledge = collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    assert "1 of 12 queries have no collective centroid" in caplog.text
    assert knowledge.counts["without_centroids"] == 1
    rows = np.arange(20)[None]
    taught, plain = (CollectiveTeacher(knowledge, beta=beta).scores(["q3"], rows) for beta in (1.0, 0.0))
    found = np.isfinite(plain)
    assert np.abs(taught[found] - plain[found]).max() < 1e-5
    assert not inspect(knowledge, "q3").tokens


CHILD = """
import sys, time
from pathlib import Path
from colabel import Index, collect, load_dataset
from colabel.collective import centroids
from colabel.ranking import rankings
from tests.collective.small import SETTINGS
data, index, out, stops = sys.argv[1:]
centroids.BLOCK = rankings.BLOCK = 5
original, blocks = centroids.extract, []
def extract(*arguments, **options):
    blocks.append(1)
    if stops == "yes" and len(blocks) == 2:
        Path(out + ".waits").touch()
        time.sleep(600)
    return original(*arguments, **options)
centroids.extract = extract
collect(load_dataset(data, cache=Path(data) / "cache"), Index.open(Path(index)), Path(out), settings=SETTINGS)
Path(out + ".blocks").write_text(str(len(blocks)))
"""


def test_a_kill_in_the_middle(words: Path, index: Index, tmp_path: Path) -> None:
    """The block that was finished is not extracted again, and the result is the same."""
    command = [sys.executable, "-c", CHILD, str(words), str(index.folder)]
    subprocess.run([*command, str(tmp_path / "whole"), "no"], check=True, timeout=240)
    kill_once((tmp_path / "cut.waits").exists, [*command, str(tmp_path / "cut"), "yes"], 240)
    with pytest.raises(ArtefactError, match="colabel collect"):
        open_knowledge(tmp_path / "cut")
    subprocess.run([*command, str(tmp_path / "cut"), "no"], check=True, timeout=240)
    assert [(tmp_path / f"{name}.blocks").read_text() for name in ("whole", "cut")] == ["3", "2"]
    files = sorted((tmp_path / "whole" / "centroids").glob("*.npy"))
    assert files
    for file in files:
        assert file.read_bytes() == (tmp_path / "cut" / "centroids" / file.name).read_bytes()


def feedback(mode: str, ranked: list[int], labelled: list[int] | None, passages: int = 3) -> list[int]:
    settings = CollectiveSettings(feedback=mode, feedback_passages=passages)
    found = choose_feedback(np.array([ranked]), settings, None if labelled is None else [labelled])
    return found[0].tolist()


def test_feedback_of_each_kind() -> None:
    assert feedback("top", [5, 6, 7, 8], [7]) == [5, 6, 7]
    assert feedback("labelled", [5, 6, 7, 8], [9, 7]) == [7, 9, -1], "the ranked one first"
    assert feedback("labelled-first", [5, 6, 7, 8], [7]) == [7, 5, 6]
    assert feedback("labelled-first", [5, 6], [9]) == [9, 5, 6]
    assert feedback("labelled", [5, 6, 7], list(range(10))) == [5, 6, 7], "at most f_p"


def test_labels_of_a_query_that_is_not_for_training_are_not_looked_at() -> None:
    for mode in ("labelled", "labelled-first"):
        assert feedback(mode, [5, 6, 7], None) == [5, 6, 7]
    assert feedback("labelled", [5, 6, 7], []) == [5, 6, 7], "a query without positives uses its top"
    with pytest.raises(UsageError, match="1 lists of positives do not fit 2 queries"):
        choose_feedback(np.zeros((2, 3), int), SETTINGS, [[1]])
