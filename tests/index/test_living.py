"""An index that changes answers as one that is built of what is left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from colabel import Bm25, Index, LateInteraction, RankSettings, build_index, search, verify
from colabel.artefacts.lock import folder_lock
from colabel.data import Dataset
from colabel.encode import Encoder
from colabel.errors import DataError, LockedError, UsageError
from colabel.index.living import MOST_SEGMENTS, LivingIndex
from colabel.settings import EncoderSettings, IndexSettings
from tests.conftest import WORDS
from tests.index.small import encoder_settings

QUESTIONS = ["glacier ice cave", "harbour in summer", "long narrow inlet"]


def passage(number: int, version: int = 0) -> dict[str, Any]:
    random = np.random.default_rng([number, version])
    text = " ".join(random.choice(WORDS, int(random.integers(1, 14))))
    return {"id": f"p{number:02d}", "text": "" if number == 5 else text, "price": number + version / 4}


def build(passages: list[dict[str, Any]], out: Path, model: Path, **index: Any) -> Index:
    settings = EncoderSettings(model=str(model), device="cpu")
    return build_index(Dataset.from_records(passages), out, encoder=settings, index=IndexSettings(**index))


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A late-interaction checkpoint: what is built from scratch has the projection of the first index."""
    out = tmp_path_factory.mktemp("first") / "index"
    build_index(Dataset.from_records([passage(0), passage(1)]), out, encoder=encoder_settings(tiny_model))
    return out / "encoder"


def answers(index: Index) -> dict[str, Any]:
    """All that an index says, by passage id."""
    assert index.passages is not None
    vectors = index.encoder.encode_queries(QUESTIONS).vectors
    found: dict[str, Any] = {"text": {one.id: one.text for one in index.passages}}
    rows, scores = index.search(vectors, len(index.store))
    for question, line, values in zip(QUESTIONS, rows, scores, strict=True):
        held = [(float(value), index.store.ids[row]) for row, value in zip(line, values, strict=True) if row >= 0]
        assert held == sorted(held, reverse=True)  # of equal scores the larger id first
        found[question] = {passage_id: score for score, passage_id in held}
        exact = index.store.score(vectors[:1], line[None, line >= 0])
        assert question != QUESTIONS[0] or np.allclose(exact[0], values[line >= 0], atol=1e-5)
    tokens, near = index.nearest_tokens(vectors[0], 3)
    found |= {"df": np.asarray(index.store.document_frequency), "near": near, "idf": index.idf(tokens)}
    found["where"] = {index.store.ids[row] for row in np.flatnonzero(index.where("price >= 10 and id < 'p30'"))}
    found["lengths"] = {
        index.store.ids[row]: int(index.store.lengths(np.array([row]))[0]) for row in range(len(index.store))
    }
    return found


def assert_same(index: Index, fresh: Index, scratch: Path) -> None:
    ours, theirs = answers(index), answers(fresh)
    assert ours["text"] == theirs["text"]
    assert ours["where"] == theirs["where"]
    assert ours["lengths"] == theirs["lengths"]
    np.testing.assert_array_equal(ours["df"], theirs["df"])
    np.testing.assert_allclose(ours["near"], theirs["near"], atol=2e-3)
    for question in QUESTIONS:  # vectors of other batches differ in their last bits
        assert ours[question].keys() == theirs[question].keys()
        for passage_id, score in ours[question].items():
            assert score == pytest.approx(theirs[question][passage_id], abs=5e-3)
    assert index.passages is not None
    assert fresh.passages is not None
    words = [
        Bm25(one.passages, RankSettings(), scratch / name) for name, one in (("a", index), ("b", fresh)) if one.passages
    ]
    ranked = [[[one.ids[row] for row in line if row >= 0] for line in one.rank(QUESTIONS, 10)[0]] for one in words]
    assert ranked[0] == ranked[1]


def test_any_changes_give_the_index_of_what_is_left(model: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    class Changes(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.folder = tmp_path_factory.mktemp("living")
            self.held = dict.fromkeys(range(6), 0)
            self.index = build([passage(number) for number in self.held], self.folder / "index", model)

        @rule(numbers=st.sets(st.integers(0, 40), min_size=1, max_size=5))
        def add(self, numbers: set[int]) -> None:
            new = sorted(numbers - self.held.keys())
            if numbers & self.held.keys():
                with pytest.raises(DataError, match="already"):
                    self.index.add([passage(number) for number in sorted(numbers)])
            if new:
                self.index = self.index.add([passage(number) for number in new])
                self.held |= dict.fromkeys(new, 0)

        @rule(numbers=st.sets(st.integers(0, 12), min_size=1, max_size=4), version=st.integers(1, 3))
        def update(self, numbers: set[int], version: int) -> None:
            self.index = self.index.add([passage(number, version) for number in sorted(numbers)], update=True)
            self.held |= dict.fromkeys(numbers, version)

        @precondition(lambda self: len(self.held) > 1)
        @rule(data=st.data())
        def delete(self, data: st.DataObject) -> None:
            gone = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1, max_size=len(self.held) - 1))
            self.index = self.index.delete([f"p{number:02d}" for number in gone])
            self.held = {number: version for number, version in self.held.items() if number not in gone}

        @rule()
        def compact(self) -> None:
            self.index = self.index.compact()
            assert len(list(self.index.folder.glob("segment-*"))) == 1
            assert not (self.index.folder / "tokens").exists()

        @precondition(lambda self: isinstance(self.index, LivingIndex))  # a plain one has no text without its data
        @rule()
        def open_again(self) -> None:
            self.index = Index.open(self.index.folder)

        @invariant()
        def holds_what_is_left(self) -> None:
            assert sorted(self.index.store.ids) == [f"p{number:02d}" for number in sorted(self.held)]

        def teardown(self) -> None:
            passages = [passage(number, version) for number, version in self.held.items()]
            if any(one["text"] for one in passages) and isinstance(self.index, LivingIndex):
                assert_same(self.index, build(passages, self.folder / "fresh", model), self.folder)
            shutil.rmtree(self.folder)

    run_state_machine_as_test(
        Changes, settings=settings(max_examples=4, stateful_step_count=8, phases=[Phase.generate])
    )  # type: ignore[no-untyped-call]


def test_segments_stay_few_and_adding_encodes_what_is_added(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build([passage(number) for number in range(4)], tmp_path / "index", model)
    before = index.search(index.encoder.encode_queries(QUESTIONS).vectors, 4)
    read: list[str] = []
    encode = Encoder.encode_passages

    def count(self: Encoder, texts: list[str], *given: Any) -> Any:
        read.extend(texts)
        return encode(self, texts, *given)

    monkeypatch.setattr(Encoder, "encode_passages", count)
    for number in range(10, 10 + MOST_SEGMENTS + 3):
        index = index.add([passage(number)])
    assert len(read) == MOST_SEGMENTS + 3
    assert isinstance(index, LivingIndex)
    assert len(index.shards.segments) <= MOST_SEGMENTS + 1
    index = index.delete([f"p{number}" for number in range(10, 10 + MOST_SEGMENTS + 3)]).compact()
    assert len(read) == MOST_SEGMENTS + 3
    rows, scores = index.search(index.encoder.encode_queries(QUESTIONS).vectors, 4)
    assert (rows.tolist(), scores.tolist()) == (before[0].tolist(), before[1].tolist())  # old scores do not change
    assert verify(tmp_path / "index").damaged == ()


def test_a_residual_index_keeps_its_codec_and_its_scores(model: Path, tmp_path: Path) -> None:
    index = build([passage(number) for number in range(12)], tmp_path / "index", model, storage="residual")
    vectors = index.encoder.encode_queries(QUESTIONS).vectors
    old = [number for number in range(12) if number != 3]
    before, stored = index.store.score(vectors, np.tile(old, (3, 1))), index.store.vectors(old)[0]
    learnt = index.store.codec
    index = index.add([passage(number) for number in range(20, 30)]).delete(["p03", "p21"])
    assert isinstance(index, LivingIndex)
    for changed in (index, index.compact()):
        rows = changed.store.ids.rows([passage(number)["id"] for number in old])
        np.testing.assert_array_equal(changed.store.vectors(rows)[0], stored)
        np.testing.assert_allclose(changed.store.score(vectors, np.tile(rows, (3, 1))), before, atol=1e-5)
        for segment in changed.shards.segments:
            assert segment.index.store.codec.fingerprint == learnt.fingerprint
            for name, values in segment.index.store.codec.learnt.items():
                np.testing.assert_array_equal(values, learnt.learnt[name])
    other = build([passage(number) for number in range(20, 30)], tmp_path / "other", model, storage="residual")
    assert other.store.codec.fingerprint != learnt.fingerprint
    assert verify(tmp_path / "index").damaged == ()


def test_documents_in_pieces_and_the_approximate_engine(model: Path, tmp_path: Path) -> None:
    long = {"id": "long", "text": "a glacier cave. a narrow inlet. old summer harbour.", "price": 1}
    records = Dataset.from_records([long, *(passage(number) for number in range(60))], chunk=4)
    index = build_index(
        records, tmp_path / "index", encoder=EncoderSettings(model=str(model)), index=IndexSettings(engine="ivf")
    )
    more = Dataset.from_records([{**long, "id": "longer"}], chunk=4)
    index = index.add(more).delete(["long"])
    hits = search(index, "glacier cave", 60)
    assert [hit.passage_id for hit in hits].count("longer") == 1
    assert "long" not in {hit.passage_id for hit in hits}
    index = index.compact()
    assert index.engine == "ivf"
    assert search(index, "glacier cave", 1)[0].passage_id == hits[0].passage_id
    assert LateInteraction(index).rank(QUESTIONS, 3)[0].shape == (3, 3)


def test_mistakes_change_nothing(model: Path, tmp_path: Path) -> None:
    index = build([passage(number) for number in range(4)], tmp_path / "index", model)
    with pytest.raises(DataError, match="'p99'"):
        index.delete(["p01", "p99"])
    with pytest.raises(UsageError, match="no passage any more"):
        index.delete(["p00", "p01", "p02", "p03"])
    with folder_lock(index.folder), pytest.raises(LockedError):
        index.delete(["p01"])
    assert not isinstance(Index.open(index.folder), LivingIndex)
    changed = index.delete(["p01"])
    assert len(index.store) == 4  # who has it open sees what was there
    assert len(index.add([passage(9)]).store) == 4  # a change applies to the newest state
    with pytest.raises(UsageError, match="was changed"):
        build([passage(0)], tmp_path / "index", model)
    assert changed.where("price > 1").tolist() == [False, True, True]
