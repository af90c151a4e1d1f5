from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colabel.collective.knowledge import collect
from colabel.data import load_dataset
from colabel.errors import SettingsError
from colabel.index import build_index
from colabel.labels import label
from colabel.settings import CollectiveSettings, EncoderSettings
from colabel.teachers import CollectiveTeacher, CrossEncoderTeacher, MixedTeacher, SelfTeacher

ROWS = np.array([[0, 1, 2]])


def test_teachers_of_collective_knowledge(
    write_beir: Callable[..., Path], tiny_model: Path, tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    """β is the knowledge's unless one is given; β = 0 is 'self'; a mixture is labelled like any teacher."""
    dataset = load_dataset(str(write_beir()))
    encoder = EncoderSettings(model=str(tiny_model), dimension=16, passage_length=32, query_length=16, device="cpu")
    index = build_index(dataset, tmp_path / "index", encoder=encoder)
    small = CollectiveSettings(clusters=4, centroids=2, beta=0.5)
    knowledge = collect(dataset, index, tmp_path / "knowledge", settings=small)
    own, remembered = SelfTeacher(index, knowledge.queries), CollectiveTeacher(knowledge)
    zero = CollectiveTeacher(knowledge, beta=0.0)
    assert remembered.fingerprint == CollectiveTeacher(knowledge, beta=0.5).fingerprint != zero.fingerprint
    assert zero.scores(["q1"], ROWS) == pytest.approx(own.scores(["q1"], ROWS), abs=1e-5)
    assert not np.allclose(remembered.scores(["q1"], ROWS), own.scores(["q1"], ROWS))
    assert own.scores(["q1"], np.array([[0, -1]]))[0, 1] == -np.inf
    for bad in ({"beta": -1.0}, {"scale": "large"}):
        with pytest.raises(SettingsError):
            CollectiveTeacher(knowledge, **bad)  # type: ignore[arg-type]
    reader = CrossEncoderTeacher(str(tiny_cross_encoder), dataset, max_length=64, device="cpu")
    mixed = MixedTeacher(remembered, reader, 0.4)
    labels = label(knowledge, dataset, mixed, tmp_path / "labels")
    (block,) = labels.blocks()
    assert labels.teacher == "mixed"
    assert np.isfinite(block.teacher[block.rows >= 0]).all()
    assert block.teacher == pytest.approx(mixed.scores(block.query_ids, block.rows.astype(np.int64)), abs=1e-4)
