"""A filter over metadata leaves, for every ranker, the ranking without the other passages."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.collective.small import SETTINGS, small_encoder
from tests.conftest import WORDS

from colabel import Bm25, Hybrid, Index, LateInteraction, PrfRanker, RankSettings, build_index, load_dataset, search
from colabel.errors import DataError
from colabel.settings import DataSettings, IndexSettings

TEXTS = ["glacier ice", "harbour in summer"]


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, random = tmp_path_factory.mktemp("shop") / "products.csv", np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "brand", "price"])
        for number in range(200):
            brand = "Acme" if number % 3 else "Other"
            writer.writerow([f"p{number:03d}", " ".join(random.choice(WORDS, 8)), brand, f"{number / 2:.2f}"])
    return path


@pytest.fixture(scope="module", params=["exact", "ivf"])
def index(
    products: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Index:
    out, data = tmp_path_factory.mktemp("index") / "index", DataSettings(source=str(products))
    dataset = load_dataset(data, cache=out / "data")
    settings = IndexSettings(engine=request.param)
    return build_index(dataset, out, data=data, encoder=small_encoder(tiny_model), index=settings)


def test_every_ranker_ranks_what_is_left(index: Index, tmp_path: Path) -> None:
    assert index.passages is not None
    late = LateInteraction(index)
    words = Bm25(index.passages, RankSettings(), tmp_path / "bm25")
    allowed = index.where("brand = 'Acme' and price < 30")
    assert allowed.sum() == 40
    for ranker in (late, words):
        everything, scores = ranker.rank(TEXTS, 200)
        rows, values = ranker.rank(TEXTS, 40, allowed)
        for place in range(len(TEXTS)):
            kept = (everything[place] >= 0) & allowed[everything[place]]
            assert rows[place][rows[place] >= 0].tolist() == everything[place][kept].tolist()
            np.testing.assert_allclose(values[place][: kept.sum()], scores[place][kept], rtol=1e-5)
    for other in (Hybrid(late, words), PrfRanker(index, SETTINGS), PrfRanker(index, SETTINGS, rerank=True)):
        rows, _ = other.rank(TEXTS, 40, allowed)
        assert all(sorted(line) == np.flatnonzero(allowed).tolist() for line in rows.tolist())
    for one in (late, words, Hybrid(late, words)):
        assert (one.rank(TEXTS, 3, np.zeros(200, bool))[0] == -1).all()


def test_search_and_an_index_without_its_collection(index: Index, products: Path, tmp_path: Path) -> None:
    hits = search(index, "glacier", 5, where="price >= 99")
    assert {hit.passage_id for hit in hits} == {"p198", "p199"}
    assert search(index, "glacier", where="price > 1000") == []
    copied = shutil.copytree(index.folder, tmp_path / "copy")
    shutil.rmtree(copied / "data")
    moved = products.rename(tmp_path / "moved.csv")
    try:
        assert Index.open(copied).where("price >= 99").sum() == 2  # kept with the index
        shutil.rmtree(copied / "metadata")
        with pytest.raises(DataError, match="collection is gone"):
            Index.open(copied).where("price >= 99")
    finally:
        moved.rename(products)


def test_commands(index: Index, products: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = call("search", index.folder, "glacier", "--where", "price < 1")
    assert code == 0 and "p000" in out and "p002" not in out
    code, _, err = call("search", index.folder, "glacier", "--where", "prize < 1")
    assert code == 2 and '"price" (double)' in err
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "glacier ice"}\n')
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp001\t1\n")
    data = [f"data.queries=['{tmp_path / 'queries.jsonl'}']", f"data.labels.test='{tmp_path / 'test.tsv'}'"]
    given = [part for one in data for part in ("--set", one)]
    for number, way in enumerate((["--bm25"], ["--index", index.folder])):
        code, _, err = call("rank", products, *way, *given, "--where", "price < 3", "--out", tmp_path / f"run{number}")
        assert code == 0, err
        lines = (tmp_path / f"run{number}" / "run.trec").read_text().splitlines()
        assert lines and {line.split()[2] for line in lines} <= {f"p{row:03d}" for row in range(6)}


def test_an_index_is_changed_by_commands(
    index: Index, products: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    copied = shutil.copytree(index.folder, tmp_path / "living")
    (tmp_path / "new.csv").write_text("id,text,brand,price\nnew,glacier cave,Acme,7.5\np000,ice ice,Acme,8\n")
    (tmp_path / "ids.txt").write_text("p001\np002\n\n")
    code, _, err = call("index", copied, "--add", tmp_path / "new.csv")
    assert code == 1 and "p000" in err and "--update" in err
    code, out, err = call("index", copied, "--update", tmp_path / "new.csv", "--delete", tmp_path / "ids.txt")
    assert code == 0 and "199 passages" in out, err
    code, out, _ = call("search", copied, "glacier cave", "--where", "price between 0.5 and 8", "-k", 30)
    assert code == 0 and "new" in out and "p000" in out and "p001" not in out and "p003" in out
    code, out, _ = call("index", copied, "--compact")
    assert code == 0 and "199 passages" in out
    code, out, _ = call("search", copied, "glacier cave", "-k", 1)
    assert code == 0 and "new" in out
    assert call("index", copied, "--compact", "--out", tmp_path / "x")[0] == 2
    assert call("index", copied, "--delete", tmp_path / "none.txt")[0] == 2
    assert call("index", products)[0] == 2
    (tmp_path / "recipe.json").write_text("{}")
    code, _, err = call("index", copied, "--compact")
    assert code == 2 and "the run itself" in err
