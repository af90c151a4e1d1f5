"""The queue: what comes, in which shares, what is scored again, and how the sample is drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from colabel import Run
from colabel.labels import Verdict, decide
from colabel.labels.artefact import Flag, LabelBlock
from colabel.serve import queue as queues
from colabel.serve.learning import fresh_centroids, rescore
from colabel.serve.queue import PERIOD, Pair, Queue, doubt_values
from colabel.teachers import CollectiveTeacher


@pytest.fixture
def queue(opened: Run) -> Queue:
    return Queue(opened.labels, opened.knowledge, opened.dataset)


def judge(queue: Queue, count: int, answer: str = "no") -> list[tuple[Pair, Verdict]]:
    """Judge the next pairs one after another."""
    given: list[tuple[Pair, Verdict]] = []
    for _ in range(count):
        for pair in queue.next("ann"):
            source = queue.source_of(pair.query_id, pair.passage_id, "ann")
            verdict = Verdict(pair.query_id, pair.passage_id, answer, "ann", source=source)  # type: ignore[arg-type]
            given.append((pair, verdict))
        said = [verdict for _, verdict in given]
        queue.update(said, decide(said))
    return given


def test_a_judged_pair_never_comes_back_and_everything_comes(queue: Queue) -> None:
    everything = queue.left() + len(queue._doubtful)
    given = judge(queue, everything + 20)
    pairs = [(pair.query_id, pair.passage_id) for pair, _ in given]
    assert len(set(pairs)) == len(pairs) == everything
    assert queue.next("ann") == [] and queue.left() == 0


def test_one_pair_in_ten_is_random_and_its_place_differs(queue: Queue) -> None:
    given = judge(queue, 40)
    random = [number for number, (pair, _) in enumerate(given) if pair.source == "random"]
    assert [number // PERIOD for number in random] == [0, 1, 2, 3]
    assert len({number % PERIOD for number in random}) > 1
    assert all(pair.source == verdict.source for pair, verdict in given)


def test_the_sample_is_drawn_evenly_and_counts_pairs_judged_otherwise(queue: Queue) -> None:
    assert len(queue._random) == queue.candidates == len({(one.query_id, one.row) for one in queue._random})
    visible = queue.dataset.labels("train")
    assert not any(one.passage_id in visible[one.query_id] for one in queue._random)
    shares = Counter(one.query_id for one in queue._random)
    assert set(shares) == set(queue.labels.query_ids)
    first, second, third = queue._random[:3]
    said = [
        Verdict(first.query_id, first.passage_id, "yes", "ann", source="missing"),
        Verdict(third.query_id, third.passage_id, "no", "ann", source="random"),
    ]
    queue.update(said, decide(said))
    assert [one and one.relevant for one in queue.sample()] == [True, None, False], "the second was passed over"
    assert second not in queue._random[queue._frontier :]


def test_a_yes_scores_the_query_again_as_its_teacher_would(queue: Queue, opened: Run) -> None:
    pair = next(one for one in queue._of("missing"))
    before = queue.teacher_scores(pair.query_id).copy()
    teacher = CollectiveTeacher(opened.knowledge)
    rows = queue.labels.query(pair.query_id).rows.astype(np.int64)[None]
    assert np.allclose(before, teacher.scores([pair.query_id], rows)[0], atol=1e-5)
    assert np.allclose(
        rescore(opened.knowledge, queue.labels, pair.query_id, queue.positives(pair.query_id)), before, atol=1e-4
    ), "with the labels of the run, nothing changes"
    said = [Verdict(pair.query_id, pair.passage_id, "yes", "ann", source="missing")]
    assert queue.update(said, decide(said)) == [pair.query_id]
    assert queue.update(said, decide(said)) == []
    after = queue.teacher_scores(pair.query_id)
    assert not np.allclose(after, before)
    assert pair.row in queue.positives(pair.query_id) and queue.found() == 1
    opened.knowledge.centroids([pair.query_id])
    assert fresh_centroids(opened.knowledge, pair.query_id, queue.positives(pair.query_id)).sigma.shape[0] == 1
    assert pair.row not in [one.row for one in queue._of("missing") if one.query_id == pair.query_id]
    queue.update([], {})
    assert np.array_equal(queue.teacher_scores(pair.query_id), before), "undone"
    assert queue.left() > 0 and next(queue._of("missing")).query_id


def test_two_judges_do_not_see_one_pair_at_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = queue.next("ann", 3), queue.next("bob", 3)
    assert queue.next("ann", 3) == mine
    assert not {(one.query_id, one.row) for one in mine} & {(one.query_id, one.row) for one in theirs}
    monkeypatch.setattr(queues, "_LEASE", 0.0)
    assert queue.next("cy", 3) == mine, "what nobody judged is given to others after a while"


def test_queries_can_be_skipped_or_chosen(queue: Queue) -> None:
    first = queue.next("ann")[0]
    assert queue.next("ann", skip={first.query_id})[0].query_id != first.query_id
    assert {one.query_id for one in queue.next("ann", 5, only={first.query_id})} == {first.query_id}
    assert queue.next("ann", only=set()) == []


def test_labels_below_the_mean_of_the_others_are_doubtful() -> None:
    flags = np.array([[Flag.LABELLED, 4, 4, Flag.LABELLED]], np.uint8)
    teacher = np.array([[1.0, 4.0, 2.0, 5.0]], np.float32)
    block = LabelBlock(["q"], np.array([[0, 1, 2, 3]], np.int32), teacher, teacher / 2.5, flags)
    assert doubt_values(block, (flags & Flag.LABELLED) == 0).tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_a_share_is_shown_to_a_second_judge_and_disputes_to_everybody(opened: Run) -> None:
    queue = Queue(opened.labels, opened.knowledge, opened.dataset, double=0.5)
    given = [verdict for _, verdict in judge(queue, 12)]
    assert "double" not in {one.source for one in given}, "nobody judges a pair twice"
    pairs = {(one.query_id, one.passage_id) for one in given}
    for _ in range(40):
        (pair,) = queue.next("bob")
        source = queue.source_of(pair.query_id, pair.passage_id, "bob")
        assert (source == "double") == ((pair.query_id, pair.passage_id) in pairs)
        given.append(Verdict(pair.query_id, pair.passage_id, "yes", "bob", source=source, id=len(given)))
        queue.update(given, decide(given))
    double = [one for one in given if one.source == "double"]
    assert 2 <= len(double) <= 10, "about half of twelve"
    assert set(queue.disputed()) == {(one.query_id, one.passage_id) for one in double}
    for name in ("ann", "bob", "cy"):
        assert queue.to_settle(name) == queue.disputed()
    first = queue.to_settle("ann")[0]
    for answer, left in (("no", len(double)), ("yes", len(double) - 1)):
        source = queue.source_of(*first, "ann")
        assert source == "disagreement"
        kept = [one for one in given if (one.query_id, one.passage_id, one.judge) != (*first, "ann")]
        now = [*kept, Verdict(*first, answer, "ann", source=source, id=1000)]  # type: ignore[arg-type]
        queue.update(now, decide(now))
        assert len(queue.disputed()) == left and first not in queue.to_settle("ann")
        queue.update(given, decide(given))
