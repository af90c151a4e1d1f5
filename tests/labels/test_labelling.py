from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colabel.collective.centroids import labels_used
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.labels import Flag, Labels, label, open_labels
from colabel.labels.artefact import Origin
from colabel.settings import LabelSettings
from tests.labels.conftest import MakeLabels, MakeWorld, Teacher

TWO = LabelSettings(candidates=2)
LABELLED, FEEDBACK, HARD = Flag.LABELLED, Flag.FEEDBACK, Flag.HARD_NEGATIVE


def test_candidates_scores_and_flags_by_hand(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world()
    labels = label(knowledge, dataset, Teacher(), tmp_path / "labels", settings=TWO)
    assert list(labels.query_ids) == ["q1", "q2"], "q3's positive is empty, q4 has none"
    assert (len(labels), labels.teacher, labels.split) == (2, "table", "train")
    [block] = labels.blocks()
    assert block.query_ids == ["q1", "q2"]
    assert block.rows.tolist() == [[0, 1, 3], [0, 1, 2]], "the top 2, then labelled positives beyond it"
    assert block.base == pytest.approx(np.array([[1.0, 0.8, 0.0], [1.0, 0.8, 0.6]])), "d4, d3: from stored vectors"
    assert block.teacher.tolist() == [[1.0, 3.0, 2.5], [1.0, 3.0, 2.0]]
    assert block.flags.tolist() == [[HARD, HARD | FEEDBACK, LABELLED | FEEDBACK], [LABELLED, HARD | FEEDBACK, LABELLED]]
    assert [values.dtype for values in (block.rows, block.teacher, block.base, block.flags)] == [
        np.int32,
        np.float32,
        np.float32,
        np.uint8,
    ]
    counts = labels.manifest.counts
    assert (counts["queries"], counts["pairs"], counts["scored"], counts["labelled"]) == (2, 6, 6, 3)
    assert (counts["feedback"], counts["hard_negatives"], counts["skipped_queries"]) == (3, 3, 2)
    assert counts["empty_positives"] == 1


def test_padding_comes_last_and_one_query_comes_without(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world("q1\td4\t1\nq1\td3\t1\nq2\td1\t1\n")
    labels = label(knowledge, dataset, Teacher(), tmp_path / "labels", settings=TWO)
    [block] = labels.blocks()
    assert block.rows.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1]]
    assert block.teacher[1].tolist() == [1.0, 3.0, -np.inf, -np.inf]
    assert block.base[1, 2:].tolist() == [-np.inf, -np.inf]
    assert block.flags[1, 2:].tolist() == [0, 0]
    one = labels.query("q2")
    assert (one.rows.tolist(), one.teacher.tolist(), one.flags.tolist()) == ([0, 1], [1.0, 3.0], [1, HARD | FEEDBACK])
    with pytest.raises(DataError, match="no labels of query 'q9'"):
        labels.query("q9")


def test_a_shallow_collection_has_no_holes(make_labels: MakeLabels) -> None:
    """The ranking has places without a passage; the labels have none before a candidate."""
    labels = make_labels(candidates=5, train="q1\td4\t1\n")
    [block] = labels.blocks()
    assert block.rows.tolist() == [[0, 1, 2, 3]]


class Second:
    """Scores the second candidate alone."""

    fingerprint = "second"

    def __call__(
        self, query_ids: Sequence[str], rows: npt.NDArray[np.int64], flags: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.bool_]:
        assert rows.dtype == np.int64
        assert flags.shape == rows.shape == (len(query_ids), rows.shape[1])
        return np.tile(np.arange(rows.shape[1]) == 1, (len(rows), 1))


class Strict(Teacher):
    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        assert (rows[:, [0, 2]] == -1).all(), "pairs that were not chosen are not asked for"
        return super().scores(query_ids, rows)


def test_pairs_that_were_not_chosen_have_no_score(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world()
    chosen = label(knowledge, dataset, Strict(), tmp_path / "chosen", settings=TWO, only=Second())
    [block] = chosen.blocks()
    assert np.array_equal(block.teacher[0], [np.nan, 3.0, np.nan], equal_nan=True)
    assert chosen.manifest.counts["scored"] == 2
    whole = label(knowledge, dataset, Teacher(), tmp_path / "whole", settings=TWO)
    assert whole.fingerprint != chosen.fingerprint


def test_a_teacher_may_know_nothing_of_some_pairs(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world()
    labels = label(knowledge, dataset, Teacher({0: 1.0}), tmp_path / "labels", settings=TWO)
    assert np.array_equal(labels.query("q1").teacher, [1.0, np.nan, np.nan], equal_nan=True)


def test_what_labels_depend_on(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world()
    first = label(knowledge, dataset, Teacher(), tmp_path / "a", settings=TWO)
    silent = Teacher()
    smooth = LabelSettings(candidates=2, smoothing=0.5)
    again = label(knowledge, dataset, silent, tmp_path / "a", settings=smooth)
    assert silent.asked == [], "up to date: smoothing is for students without a teacher"
    assert again.fingerprint == first.fingerprint
    deeper = label(knowledge, dataset, Teacher(), tmp_path / "b", settings=LabelSettings(candidates=3))
    other = label(knowledge, dataset, Teacher({0: 5.0}), tmp_path / "c", settings=TWO)
    knowledge.fingerprint = "more knowledge"
    newer = label(knowledge, dataset, Teacher(), tmp_path / "d", settings=TWO)
    labelled, same = make_world("q1\td1\t1\n", name="other")
    another = label(same, labelled, Teacher(), tmp_path / "e", settings=TWO)
    assert len({labels.fingerprint for labels in (first, deeper, other, newer, another)}) == 5


def test_the_order_of_the_label_file_does_not_matter(make_labels: MakeLabels) -> None:
    one = make_labels(train="q1\td4\t1\nq1\td3\t1\n", candidates=2, name="one")
    two = make_labels(train="q1\td3\t1\nq1\td4\t1\n", candidates=2, name="two")
    assert arrays_of(one) == arrays_of(two)


def arrays_of(labels: Labels) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(labels.folder.glob("*.npy"))}


MANY = "".join(f"q{number}\td{1 + number % 4}\t1\n" for number in range(1, 2501) if number % 10)


def test_an_interrupted_run_continues_to_the_same_bytes(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world(MANY, queries=2501)

    class Dies(Teacher):
        def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            if self.asked:
                raise KeyboardInterrupt
            return super().scores(query_ids, rows)

    with pytest.raises(KeyboardInterrupt):
        label(knowledge, dataset, Dies(), tmp_path / "labels", settings=TWO)
    assert not (tmp_path / "labels").exists()
    block = tmp_path / ".labels.partial" / "block-00000"
    assert block.with_name("block-00000.rows.npy").exists()
    (tmp_path / ".labels.partial" / "block-00001.teacher.npy").write_bytes(b"an array whose block has no rows yet")
    teacher = Teacher()
    continued = label(knowledge, dataset, teacher, tmp_path / "labels", settings=TWO)
    assert len(teacher.asked) == 2250 - 1024
    assert len(continued) == 2250
    whole = label(knowledge, dataset, Teacher(), tmp_path / "whole", settings=TWO)
    assert arrays_of(continued) == arrays_of(whole)
    assert continued.manifest.counts == whole.manifest.counts
    assert [len(part.query_ids) for part in whole.blocks()] == [1024, 1024, 202]
    far = whole.query("q2499")
    assert (far.rows[-1], far.flags[-1] & LABELLED) == (3, LABELLED)


def test_memory_does_not_grow_with_the_number_of_queries(make_world: MakeWorld, tmp_path: Path) -> None:
    peaks = []
    for count in (1_200, 4_800):
        train = "".join(f"q{number}\td4\t1\n" for number in range(1, count))
        dataset, knowledge = make_world(train, queries=count, name=f"n{count}")
        dataset.labels_fingerprint("train")  # kept by the dataset
        teacher = Forgetful()
        tracemalloc.start()
        label(knowledge, dataset, teacher, tmp_path / f"l{count}", settings=TWO)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], "four times the queries: ids take a few bytes each, arrays those of one block"


class Forgetful(Teacher):
    def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return super().scores([], rows)


def test_what_does_not_fit_is_refused_and_nothing_is_written(make_world: MakeWorld, tmp_path: Path) -> None:
    dataset, knowledge = make_world()
    other, foreign = make_world("q1\td5\t1\nq2\td1\t0\n", name="other")
    _, shallow = make_world(name="shallow", depth=3)
    more, _ = make_world("q1\td1\t1\nq5\td1\t1\n", queries=6, name="more")
    foreign.index._passages = other.passages.fingerprint
    out = tmp_path / "out" / "labels"
    with pytest.raises(DataError, match=r"no query of the split 'train' of other has a visible positive \(grade 1 or"):
        label(foreign, other, Teacher(), out)
    with pytest.raises(UsageError, match=r"'labels\.candidates' is 4, and .*shallow-knowledge ranked 3 passages"):
        label(shallow, dataset, Teacher(), out, settings=LabelSettings(candidates=4))
    with pytest.raises(ArtefactError, match="knows nothing of query 'q5' of the split 'train' of more"):
        label(knowledge, more, Teacher(), out, settings=TWO)
    knowledge.index._passages = "another collection"
    with pytest.raises(DataError, match="the collection is another one"):
        label(knowledge, dataset, Teacher(), out, settings=TWO)
    knowledge.split = "tran"
    with pytest.raises(DataError, match="no split 'tran'; it has: dev, train"):
        label(knowledge, dataset, Teacher(), out, settings=TWO)
    assert not out.parent.exists()


def test_knowledge_of_labels_that_are_not_visible_is_refused(make_world: MakeWorld, tmp_path: Path) -> None:
    """Whatever the kind of feedback: a hidden positive may be in it as a row or as a weight alone."""
    dataset, knowledge = make_world()
    positives = dataset.positives("train")
    query_id, passages = next(iter(positives.items()))
    more = {**positives, query_id: (*passages, "hidden-now")}
    knowledge.labelled_fingerprint = labels_used(more)
    words = "was collected with other labels than the split 'train' of small shows"
    with pytest.raises(ArtefactError, match=words):
        label(knowledge, dataset, Teacher(), tmp_path / "labels", settings=TWO)
    assert not list(tmp_path.glob("*labels*"))
    knowledge.labelled_fingerprint = labels_used({query_id: positives[query_id] for query_id in reversed(positives)})
    label(knowledge, dataset, Teacher(), tmp_path / "labels", settings=TWO)


def test_a_teacher_with_too_few_scores_is_refused(make_world: MakeWorld, tmp_path: Path) -> None:
    class Short(Teacher):
        def scores(self, query_ids: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            return super().scores(query_ids, rows)[:, :1]

    dataset, knowledge = make_world()
    with pytest.raises(UsageError, match=r"Short: scores.* shape \(2, 1\) .* shape \(2, 3\)"):
        label(knowledge, dataset, Short(), tmp_path / "labels", settings=TWO)


def test_open_labels(make_labels: MakeLabels, tmp_path: Path) -> None:
    labels = make_labels()
    again = open_labels(labels.folder)
    assert again.query("q1").rows.tolist() == labels.query("q1").rows.tolist()
    assert again.passage_ids[3] == "d4"
    assert again.origin() == Origin((tmp_path / "small-knowledge").resolve(), 0.5, "paper")
    moved = tmp_path / "elsewhere" / "small-labels"
    moved.parent.mkdir()
    labels.folder.rename(moved)
    assert open_labels(moved).origin().place == moved.parent / "small-knowledge", "moved together"
    (moved / "origin.json").write_text("[1]".ljust((moved / "origin.json").stat().st_size))
    with pytest.raises(ArtefactError, match=r"origin\.json cannot be read"):
        open_labels(moved).origin()
    with pytest.raises(ArtefactError, match="does not exist; expected the output folder"):
        open_labels(tmp_path / "none")
