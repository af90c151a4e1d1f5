"""Every example runs on a tiny collection and a tiny model, as a program of its own would."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colabel import EncoderSettings, load_dataset
from colabel.encode import prepare_encoder
from tests.docs.pages import ROOT
from tests.train.small import ENCODER, write_collection

Run = Callable[..., list[str]]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_collection(tmp_path_factory.mktemp("examples") / "small")
    (folder / "qrels" / "test.tsv").write_text((folder / "qrels" / "dev.tsv").read_text())
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    with (folder / "qrels" / "train.tsv").open("a") as labels:
        labels.writelines(f"q{number}\td{3 * number + 1}\t1\n" for number in range(1, 10))
    return folder


@pytest.fixture(scope="module")
def model(tiny_model: Path, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as a ColBERT checkpoint, which examples take as it is."""
    out = tmp_path_factory.mktemp("examples") / "colbert"
    prepare_encoder(EncoderSettings(model=str(tiny_model), **ENCODER), load_dataset(collection).passages, out)
    return out


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call an example with arguments and return what it printed."""

    def call(name: str, *arguments: object) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return call


def test_train_then_search_without_colabel(run: Run, collection: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    lines = run("train_on_your_data", collection, out, "--steps", 1, "--model", model, "--ask", "glacier ice")
    assert lines[0].startswith("bm25\tnDCG@10 0.")
    assert [line.split()[0] for line in lines] == [
        *("bm25", "colbert", "views", "hybrid", "hybrid-views"),
        *("1", "2", "3"),
    ]
    passages = tmp_path / "passages.txt"
    passages.write_text("cave of ice\nsummer season\nharbour\nlong fjord\n")
    lines = run("search_without_colabel", out / "start", "cave of ice", "--passages", passages)
    assert lines[0].endswith("cave of ice")
    assert len(lines) == 3
    first, second = (out / "runs" / name / "run.trec" for name in ("bm25", "views"))
    lines = run("compare_runs", collection, first, second, "--measure", "RR@10")
    assert lines[0].startswith(f"{first}: RR@10 0.")
    assert "after Holm" in lines[3]
    assert sum(int(word.strip(",")) for word in lines[4].split() if word.strip(",").isdigit()) == 10


def test_label_and_export(run: Run, collection: Path, model: Path, tmp_path: Path) -> None:
    lines = run("label_and_export", collection, tmp_path, "--model", model, "--passages", 4)
    assert "is expanded with" in lines[0]
    assert lines[1].endswith("columns query, document_1, document_2, document_3, document_4, scores")


def test_cross_encoder_teacher(run: Run, collection: Path, model: Path, tiny_model: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    cross = tmp_path / "cross"
    CrossEncoder(str(tiny_model), num_labels=1, device="cpu").save(str(cross), create_model_card=False)
    lines = run(
        "cross_encoder_teacher", collection, tmp_path, "--cross-encoder", cross, "--model", model, "--max-length", 64
    )
    assert lines[0].startswith("collective: 9 queries labelled")
    assert lines[1].startswith("cross-encoder: 9 queries labelled")
    assert lines[2].endswith("of 9 queries")


def test_find_missing_labels(run: Run, collection: Path, model: Path, tmp_path: Path) -> None:
    lines = run("find_missing_labels", collection, tmp_path, "--model", model, "--limit", 4)
    assert [line.split()[1] for line in lines[:3]] == ["9", "18", "45"]
    assert all("labels that were hidden (9 in all)" in line for line in lines[:3])
    assert len(lines) == 3 + 4
    assert all("because of" in line for line in lines[3:])


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_examples_are_short_explained_and_tested(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    documentation = ast.get_docstring(ast.parse(text))
    assert documentation and f"python examples/{path.name}" in documentation
    assert f'"{path.stem}"' in Path(__file__).read_text(encoding="utf-8")
