"""The knowledge folder and its inspection."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from colabel import Index, collect, inspect, open_knowledge
from colabel.data import Dataset
from colabel.errors import ArtefactError, DataError, SettingsError
from colabel.teachers import CollectiveTeacher
from tests.collective.small import SETTINGS


def test_labelled_feedback_is_for_the_train_split(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    trained = collect(dataset, index, tmp_path / "train", settings=SETTINGS)
    positives = dataset.positives("train")
    for query_id in trained.queries.ids:
        row = int(dataset.passages.rows(positives[query_id])[0])
        empty = query_id == "q3"  # its labelled passage has no tokens: the top three serve instead
        expected = trained.ranking.query(query_id)[0][:3].tolist() if empty else [row, -1, -1]
        assert trained.feedback([query_id])[0].tolist() == expected
    for split in ("dev", "test"):
        judged = collect(dataset, index, tmp_path / split, settings=SETTINGS, split=split)
        assert judged.settings.feedback == "top"
        for query_id in judged.queries.ids:
            assert judged.feedback([query_id])[0].tolist() == judged.ranking.query(query_id)[0][:3].tolist()


def test_beta_is_not_part_of_the_knowledge(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    first = collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    again = collect(dataset, index, tmp_path / "k", settings=replace(SETTINGS, beta=0.25, expansion_scale="paper"))
    assert again.fingerprint == first.fingerprint
    assert again.settings.beta == 0.25
    other = collect(dataset, index, tmp_path / "k", settings=replace(SETTINGS, centroids=3))
    assert other.fingerprint != first.fingerprint
    assert CollectiveTeacher(again, beta=0.5).fingerprint != CollectiveTeacher(again, beta=1.0).fingerprint


def test_moved_together_with_its_index(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    shutil.copytree(index.folder, tmp_path / "a" / "index")
    knowledge = collect(dataset, Index.open(tmp_path / "a" / "index"), tmp_path / "a" / "k", settings=SETTINGS)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = open_knowledge(tmp_path / "b" / "k")
    assert moved.index.folder == tmp_path / "b" / "index"
    assert moved.fingerprint == knowledge.fingerprint
    with pytest.raises(DataError, match="has no query 'nobody'"):
        moved.centroids(["nobody"])


def test_inspection(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    knowledge = collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    seen = inspect(knowledge, "q1", count=2, beta=0.5)
    assert seen.text == dataset.queries["q1"]
    assert [hit.passage_id for hit in seen.feedback] == ["p003"]
    assert [token.sigma for token in seen.tokens] == sorted((token.sigma for token in seen.tokens), reverse=True)
    length = int(knowledge.queries.lengths(["q1"])[0])
    assert sum(token.weight for token in seen.tokens) == pytest.approx(0.5 * length, rel=1e-5)
    assert not {token.token_id for token in seen.tokens} & set(index.store.special_token_ids)
    json.dumps(seen.as_dict(), allow_nan=False)
    with pytest.raises(DataError, match=r"of 12 queries, .*has no query 'q99'"):
        inspect(knowledge, "q99")


def test_collect_does_not_write_into_another_artefact(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    with pytest.raises(ArtefactError, match="holds another result of colabel; nothing was written"):
        collect(dataset, index, tmp_path / "k" / "ranking", settings=SETTINGS)
    with pytest.raises(SettingsError, match="the expansion scale is 'papr'"):
        CollectiveTeacher(open_knowledge(tmp_path / "k"), scale="papr")
