"""Feedback, the knowledge folder, ColBERT-PRF, inspection and sweep, on a tiny real model."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import WORDS

from colabel import Index, PrfRanker, build_index, collect, inspect, load_dataset, open_knowledge, search, sweep
from colabel.collective import Feedback, choose_feedback, expand, extract
from colabel.collective.extraction import most_frequent
from colabel.data import Dataset
from colabel.errors import ArtefactError, DataError, SettingsError, UsageError
from colabel.evaluation.sweeping import Grid
from colabel.index.lookup import TokenLookup, build_lookup
from colabel.index.nearest import nearest_exact
from colabel.settings import CollectiveSettings, DataSettings, EncoderSettings, IndexSettings
from colabel.teachers import CollectiveTeacher

SETTINGS = CollectiveSettings(feedback="labelled", clusters=6, centroids=4, beta=1.0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("words")
    random = np.random.default_rng(0)
    passages = [" ".join(random.choice(WORDS, size=random.integers(2, 18))) for _ in range(150)]
    passages[7] = ""
    lines = [json.dumps({"_id": f"p{number:03d}", "text": text}) for number, text in enumerate(passages)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = [json.dumps({"_id": f"q{number}", "text": " ".join(random.choice(WORDS, 4))}) for number in range(30)]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (folder / "qrels").mkdir()
    for split, numbers in (("train", range(12)), ("dev", range(12, 20)), ("test", range(20, 30))):
        rows = [f"q{number}\tp{(7 if number == 3 else number * 3):03d}\t1" for number in numbers]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return load_dataset(DataSettings(source=str(folder)), cache=folder / "cache")


@pytest.fixture(scope="module")
def index(dataset: Dataset, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    encoder = EncoderSettings(model=str(tiny_model), dimension=16, query_length=12, passage_length=24, device="cpu")
    return build_index(dataset, tmp_path_factory.mktemp("built") / "index", encoder=encoder)


def feedback(
    mode: str, ranked: list[int], labelled: list[int] | None, passages: int = 3
) -> tuple[list[int], list[float]]:
    settings = CollectiveSettings(feedback=mode, feedback_passages=passages)
    found = choose_feedback(np.array([ranked]), settings, None if labelled is None else [labelled])
    return found.rows[0].tolist(), found.weights[0].tolist()


def test_feedback_of_each_kind() -> None:
    assert feedback("top", [5, 6, 7, 8], [7])[0] == [5, 6, 7]
    assert feedback("labelled", [5, 6, 7, 8], [9, 7])[0] == [7, 9, -1], "the ranked one first"
    assert feedback("labelled-first", [5, 6, 7, 8], [7])[0] == [7, 5, 6]
    assert feedback("labelled-first", [5, 6], [9])[0] == [9, 5, 6]
    assert feedback("weighted", [5, 6, 7], [6, 99]) == ([5, 6, 7], [1.0, 3.0, 1.0])
    assert feedback("labelled", [5, 6, 7], list(range(10)))[0] == [5, 6, 7], "at most f_p"


def test_labels_of_a_query_that_is_not_for_training_are_not_looked_at() -> None:
    for mode in ("labelled", "labelled-first", "weighted"):
        assert feedback(mode, [5, 6, 7], None) == ([5, 6, 7], [1.0, 1.0, 1.0])
    assert feedback("labelled", [5, 6, 7], [])[0] == [5, 6, 7], "a query without positives uses its top"
    with pytest.raises(UsageError, match="1 lists of positives do not fit 2 queries"):
        choose_feedback(np.zeros((2, 3), int), SETTINGS, [[1]])


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


def test_no_centroid_falls_back_to_the_plain_query(
    dataset: Dataset,
    index: Index,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query without any feedback: there is nothing to cluster."""
    import colabel.collective.centroids as module

    def without(ranked: np.ndarray, settings: CollectiveSettings, labelled: list[list[int]]) -> Feedback:
        chosen = choose_feedback(ranked, settings, labelled)
        chosen.rows[list(dataset.split_queries("train")).index("q3")] = -1
        return chosen

    monkeypatch.setattr(module, "choose_feedback", without)
    with caplog.at_level(logging.WARNING):
        knowledge = collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    assert "1 of 12 queries have no collective centroid" in caplog.text
    assert knowledge.counts["without_centroids"] == 1
    rows = np.arange(20)[None]
    taught, plain = (CollectiveTeacher(knowledge, beta=beta).score(["q3"], rows) for beta in (1.0, 0.0))
    found = np.isfinite(plain)
    assert np.abs(taught[found] - plain[found]).max() < 1e-5
    assert not inspect(knowledge, "q3").tokens


def test_beta_is_not_part_of_the_knowledge(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    first = collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    again = collect(dataset, index, tmp_path / "k", settings=replace(SETTINGS, beta=0.25, expansion_scale="paper"))
    assert again.fingerprint == first.fingerprint
    assert again.settings.beta == 0.25
    other = collect(dataset, index, tmp_path / "k", settings=replace(SETTINGS, centroids=3))
    assert other.fingerprint != first.fingerprint
    assert CollectiveTeacher(again, beta=0.5).fingerprint != CollectiveTeacher(again, beta=1.0).fingerprint


def test_a_kill_in_the_middle(dataset: Dataset, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import colabel.collective.centroids as module
    from colabel.ranking import rankings

    monkeypatch.setattr(module, "BLOCK", 5)
    monkeypatch.setattr(rankings, "BLOCK", 5)
    whole = collect(dataset, index, tmp_path / "whole", settings=SETTINGS)
    calls = 0

    def stops(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return extract(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "extract", stops)
    with pytest.raises(KeyboardInterrupt):
        collect(dataset, index, tmp_path / "cut", settings=SETTINGS)
    with pytest.raises(ArtefactError, match="holds no finished knowledge; make it with `colabel collect"):
        open_knowledge(tmp_path / "cut")
    collect(dataset, index, tmp_path / "cut", settings=SETTINGS)
    assert calls == 4, "the first block was not extracted again"
    for file in sorted((whole.folder / "centroids").glob("*.npy")):
        assert file.read_bytes() == (tmp_path / "cut" / "centroids" / file.name).read_bytes()


def test_moved_together_with_its_index(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    shutil.copytree(index.folder, tmp_path / "a" / "index")
    knowledge = collect(dataset, Index.open(tmp_path / "a" / "index"), tmp_path / "a" / "k", settings=SETTINGS)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = open_knowledge(tmp_path / "b" / "k")
    assert moved.index.folder == tmp_path / "b" / "index"
    assert moved.fingerprint == knowledge.fingerprint
    with pytest.raises(DataError, match="has no query 'nobody'"):
        moved.centroids(["nobody"])


def test_prf_at_beta_zero_is_plain_search(dataset: Dataset, index: Index) -> None:
    texts = list(dataset.split_queries("test").values())
    plain, _ = index.search(index.encoder.encode_queries(texts).vectors, 10)
    for rerank in (False, True):
        rows, _ = PrfRanker(index, replace(SETTINGS, beta=0.0), rerank=rerank).rank(texts, 10)
        assert (rows == plain).all()


def test_prf_is_search_with_the_expanded_query(dataset: Dataset, index: Index) -> None:
    texts = list(dataset.split_queries("test").values())
    queries = index.encoder.encode_queries(texts).vectors
    first, _ = index.search(queries, 150)
    settings = replace(SETTINGS, feedback="top")
    centroids = extract(index, choose_feedback(first, settings), settings).first(4)
    expected, scores = index.search(expand(queries, centroids, 1.0, "normalised"), 10)
    found, values = PrfRanker(index, SETTINGS).rank(texts, 10)
    assert (found == expected).all()
    assert np.abs(values - scores).max() < 1e-5
    again, _ = PrfRanker(index, SETTINGS, rerank=True).rank(texts, 10)
    for place in range(len(texts)):
        assert set(again[place]) == set(first[place, :10]), "the re-ranker finds no other passages"
    assert (again != first[:, :10]).any()
    assert len(search(index, "glacier ice", 3, ranker=PrfRanker(index, SETTINGS))) == 3


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
    with pytest.raises(DataError, match=r"has no query 'q99'; it has 12, such as"):
        inspect(knowledge, "q99")


def test_sweep_shares_work_and_continues(
    dataset: Dataset, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import colabel.evaluation.sweeping as module

    grid = Grid(feedback_passages=(1, 3), clusters=(4, 6), centroids=(2, 5), beta=(0.0, 1.0))
    calls: list[object] = []

    def counted(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return extract(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "extract", counted)
    points = sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=grid, full=True, depth=20)
    assert len(points) == 16 - 4 + 1, "five centroids of four clusters are impossible; the base point comes on top"
    assert len(calls) == 4, "clusters are shared between all β and f_e"
    plain = [point.measures for point in points if point.beta == 0]
    assert all(values == plain[0] for values in plain), "β = 0 is the plain ranking whatever the rest"
    ranker = PrfRanker(index, replace(SETTINGS, feedback_passages=1, clusters=6, centroids=5))
    queries = dataset.split_queries("dev")
    rows, scores = ranker.rank(list(queries.values()), 20)
    from colabel.measures import mean_values, measure_run

    run = {
        query_id: {index.store.ids[int(row)]: float(score) for row, score in zip(line, values, strict=True) if row >= 0}
        for query_id, line, values in zip(queries, rows, scores, strict=True)
    }
    chosen = next(p for p in points if (p.feedback_passages, p.clusters, p.centroids, p.beta) == (1, 6, 5, 1.0))
    expected = mean_values(measure_run(dataset.labels("dev"), run, list(chosen.measures)))
    assert chosen.measures == pytest.approx(expected)
    assert sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=grid, full=True, depth=20) == points
    assert len(calls) == 4, "a finished sweep is read, not computed"
    single = sweep(dataset, index, tmp_path / "one", settings=SETTINGS, grid=grid, rerank=True, depth=20)
    assert len(single) == 6


def test_sweep_refuses_nonsense(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    for wrong in (Grid(beta=(-1.0,)), Grid(feedback_passages=(0,))):
        with pytest.raises(SettingsError, match=r"'collective\.(beta|feedback_passages)' is"):
            sweep(dataset, index, tmp_path / "s", settings=SETTINGS, grid=wrong)
    with pytest.raises(SettingsError, match="no value for beta"):
        Grid(beta=())
    with pytest.raises(DataError, match="has no split 'other'"):
        sweep(dataset, index, tmp_path / "s", split="other")


def test_lookup_that_probes_everything_is_exact(index: Index, tmp_path: Path) -> None:
    build_lookup(index.store, tmp_path / "lookup")
    lookup = TokenLookup(tmp_path / "lookup", index.store, probes=10_000, reach=10.0)
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(300, 16, generator=random)
    vectors[0] = 0  # near everything alike
    ids, similarities = lookup.nearest(vectors, 10)
    expected_ids, expected = nearest_exact(vectors, index.store, 10)
    assert np.abs(similarities - expected).max() < 1e-5
    agree = (ids == expected_ids) | np.isclose(similarities, np.roll(similarities, 1, axis=1), atol=1e-6)
    assert agree[1:].mean() > 0.99, "only equal similarities may come in another order"
    assert not set(ids.ravel().tolist()) & set(index.store.special_token_ids)
    one_by_one = [lookup.nearest(vector[None], 10) for vector in vectors[1:20]]
    assert all((ids[place + 1] == found).all() for place, (found, _) in enumerate(one_by_one))


def test_lookup_with_few_probes_and_few_tokens(index: Index, tmp_path: Path) -> None:
    build_lookup(index.store, tmp_path / "lookup")
    lookup = TokenLookup(tmp_path / "lookup", index.store, probes=1, reach=0.0)
    ids, similarities = lookup.nearest(torch.randn(5, 16, generator=torch.Generator().manual_seed(1)), 400)
    assert ((ids == -1) == np.isneginf(similarities)).all()
    assert (np.diff(np.where(ids >= 0, similarities, -9.0), axis=1) <= 0).all(), "nearest first"
    with pytest.raises(ArtefactError, match="nothing"):
        TokenLookup(tmp_path / "nothing", index.store)


def test_large_stores_use_the_lookup(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    import colabel.index.index as module

    fresh = Index.open(index.folder)
    vectors = torch.nn.functional.normalize(torch.randn(40, 16, generator=torch.Generator().manual_seed(2)), dim=1)
    exact, _ = fresh.nearest_tokens(vectors, 10)
    monkeypatch.setattr(module, "LOOKUP_FROM", 10)
    listed, _ = fresh.nearest_tokens(vectors, 10)
    assert (index.folder / "lookup" / "manifest.json").exists()
    assert (most_frequent(listed) == most_frequent(exact)).mean() > 0.9


@pytest.mark.parametrize(
    ("storage", "shard", "engine"), [("int8", 40, "exact"), ("fp16", 40, "ivf"), ("int8", 1000, "ivf")]
)
def test_other_storage_shards_and_engines(
    storage: str,
    shard: int,
    engine: str,
    dataset: Dataset,
    index: Index,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same tokens and nearly the same centroids, also through the look-up by lists."""
    import colabel.index.index as module

    encoder = EncoderSettings(model=str(tiny_model), dimension=16, query_length=12, passage_length=24, device="cpu")
    settings = IndexSettings(storage=storage, shard_passages=shard, engine=engine)
    other = build_index(dataset, tmp_path / "index", encoder=encoder, index=settings)
    rows = np.arange(30).reshape(10, 3)
    feedback = Feedback(rows, np.ones(rows.shape, np.float32))
    plain = extract(index, feedback, SETTINGS)
    found = extract(other, feedback, SETTINGS)
    same = 0.7 if storage == "int8" else 0.95  # 16 dimensions of eight bits move a few neighbours
    assert (found.token_ids == plain.token_ids).mean() > same
    monkeypatch.setattr(module, "LOOKUP_FROM", 10)
    listed = extract(other, feedback, SETTINGS)
    assert (listed.token_ids == found.token_ids).mean() > 0.9
    assert listed.sigma.shape == found.sigma.shape


def test_a_read_only_index_still_looks_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    import colabel.index.index as module

    fresh = Index.open(index.folder)
    calls = []

    def refused(store: object, out: Path, *_: object) -> None:
        calls.append(out)
        if len(calls) == 1:
            raise ArtefactError("cannot be written")
        build_lookup(store, out)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "LOOKUP_FROM", 10)
    monkeypatch.setattr(module, "build_lookup", refused)
    ids, _ = fresh.nearest_tokens(torch.eye(16)[:4], 3)
    assert ids.shape == (4, 3)
    assert not calls[1].is_relative_to(index.folder)
    assert fresh.nearest_tokens(torch.zeros(0, 16), 3)[0].shape == (0, 3)


def test_collect_does_not_write_into_another_artefact(dataset: Dataset, index: Index, tmp_path: Path) -> None:
    collect(dataset, index, tmp_path / "k", settings=SETTINGS)
    with pytest.raises(ArtefactError, match="holds another result of colabel; nothing was written"):
        collect(dataset, index, tmp_path / "k" / "ranking", settings=SETTINGS)
    with pytest.raises(SettingsError, match="the expansion scale is 'papr'"):
        CollectiveTeacher(open_knowledge(tmp_path / "k"), scale="papr")
