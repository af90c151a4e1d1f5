from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from colabel.data import load_dataset
from colabel.errors import ArtefactError, DataError, UsageError
from colabel.labels import Labels, export_labels, probabilities
from tests.labels.conftest import TRAIN, MakeLabels, Teacher

Export = Callable[..., Path]


@pytest.fixture
def export(tmp_path: Path) -> Export:
    def run(labels: Labels, format: str, **options: Any) -> Path:
        out = tmp_path / f"export-{format}"
        export_labels(labels, labels.dataset, out, format, **options)  # type: ignore[attr-defined]
        return out

    return run


def test_parquet_holds_every_pair(make_labels: MakeLabels, export: Export) -> None:
    out = export(make_labels(), "parquet", temperature=0.5)
    frame = pd.read_parquet(out / "labels.parquet")
    assert list(frame.columns) == [
        "query_id",
        "passage_id",
        "teacher_score",
        "base_score",
        "probability",
        "labelled",
        "feedback",
        "hard_negative",
        "suspect_rank",
    ]
    first = frame[frame.query_id == "q1"]
    assert first.passage_id.tolist() == ["d1", "d2", "d3", "d4"]
    assert first.teacher_score.tolist() == [1.0, 3.0, 2.0, 2.5]
    assert first.base_score.tolist() == pytest.approx([1.0, 0.8, 0.6, 0.0])
    assert first.probability.tolist() == pytest.approx(probabilities(np.array([[1.0, 3, 2, 2.5]]), 0.5)[0].tolist())
    assert first.labelled.tolist() == [False, False, False, True]
    assert first.feedback.tolist() == [False, True, False, True]
    assert first.hard_negative.tolist() == [True, True, True, False]
    assert first.suspect_rank.tolist() == [3, 1, 2, 0]
    assert frame.groupby("query_id").probability.sum().tolist() == pytest.approx([1, 1], abs=1e-6)


def test_a_pair_without_a_score_is_null(make_labels: MakeLabels, export: Export) -> None:
    out = export(make_labels(Teacher({0: 1.0, 3: 2.0})), "parquet")
    table = pyarrow.parquet.read_table(out / "labels.parquet").slice(0, 4).to_pydict()
    assert table["teacher_score"] == [1.0, None, None, 2.0]
    assert table["probability"][1:3] == [0.0, 0.0]
    assert table["suspect_rank"] == [1, 0, 0, 0]


def test_parquet_is_written_block_by_block(make_labels: MakeLabels, export: Export) -> None:
    train = "".join(f"q{number}\td1\t1\n" for number in range(1, 1501))
    labels = make_labels(train=train, queries=1501)
    file = pyarrow.parquet.ParquetFile(export(labels, "parquet") / "labels.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [4 * 1024, 4 * 476]


def test_trec_files_read_with_ir_measures(make_labels: MakeLabels, export: Export) -> None:
    out = export(make_labels(Teacher({0: 1.0, 1: 3.0, 3: 3.0})), "trec")
    run = list(ir_measures.read_trec_run(str(out / "run.trec")))
    first = [(scored.doc_id, scored.score) for scored in run if scored.query_id == "q1"]
    assert first == [("d4", 3.0), ("d2", 3.0), ("d1", 1.0)], "d3 has no score; of equal scores the larger id is first"
    assert (out / "run.trec").read_text().splitlines()[0] == "q1 Q0 d4 1 3 table"
    qrels = list(ir_measures.read_trec_qrels(str(out / "qrels.trec")))
    assert [(label.query_id, label.doc_id, label.relevance) for label in qrels][:2] == [
        ("q1", "d4", 1),
        ("q1", "d2", 0),
    ]
    assert len(qrels) == len(TRAIN.splitlines())
    assert ir_measures.calc_aggregate([ir_measures.RR @ 10], qrels, run)[ir_measures.RR @ 10] > 0


def rows_of(out: Path) -> list[dict[str, Any]]:
    from datasets import load_from_disk

    return list(load_from_disk(str(out / "train")))


def test_labelled_passages_come_first(make_labels: MakeLabels, export: Export) -> None:
    rows = rows_of(export(make_labels(), "pylate", temperature=2.0))
    assert rows[0] == {"query_id": "q1", "document_ids": ["d4", "d2", "d3", "d1"], "scores": [1.25, 1.5, 1.0, 0.5]}
    assert rows[1]["document_ids"] == ["d3", "d1", "d2", "d4"], "each group best first"


@pytest.mark.parametrize(("passages", "expected"), [(2, ["d3", "d2"]), (3, ["d3", "d1", "d2"])])
def test_a_cut_row_keeps_labelled_passages_and_one_other(
    make_labels: MakeLabels, export: Export, passages: int, expected: list[str]
) -> None:
    rows = rows_of(export(make_labels(), "pylate", passages=passages))
    assert rows[1]["document_ids"] == expected
    assert {len(row["scores"]) for row in rows} == {passages}


def test_what_is_left_out_is_said(make_labels: MakeLabels, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = make_labels()
    counts = export_labels(labels, labels.dataset, tmp_path / "two", "hf", passages=2).counts  # type: ignore[attr-defined]
    assert counts == {
        "passages": 2,
        "queries": 2,
        "pairs": 4,
        "short_queries": 0,
        "pairs_left_out": 4,
        "labelled_left_out": 1,
    }
    assert "1 labelled passages found no place" in caplog.text
    with pytest.raises(UsageError, match="no query has 5 scored candidates, the most is 4; ask for at most 4"):
        export_labels(labels, labels.dataset, tmp_path / "five", "hf", passages=5)  # type: ignore[attr-defined]
    assert not (tmp_path / "five").exists()


def test_short_rows_are_left_out(make_labels: MakeLabels, tmp_path: Path) -> None:
    labels = make_labels(candidates=2, train="q1\td4\t1\nq2\td1\t1\nq3\td3\t1\n")
    counts = export_labels(labels, labels.dataset, tmp_path / "x", "pylate", passages=3).counts  # type: ignore[attr-defined]
    assert (counts["queries"], counts["short_queries"], counts["pairs_left_out"]) == (2, 1, 2)
    assert [row["query_id"] for row in rows_of(tmp_path / "x")] == ["q1", "q3"]


def test_unscored_candidates_are_in_no_row(make_labels: MakeLabels, export: Export) -> None:
    rows = rows_of(export(make_labels(Teacher({0: 1.0, 1: 2.0})), "pylate"))
    assert [row["document_ids"] for row in rows] == [["d2", "d1"], ["d1", "d2"]]


def test_pylate_form_joins_by_id(make_labels: MakeLabels, export: Export) -> None:
    from datasets import load_from_disk
    from sentence_transformers.util import resolve_ids

    out = export(make_labels(candidates=2), "pylate")
    train, queries, documents = (load_from_disk(str(out / part)) for part in ("train", "queries", "documents"))
    assert train.column_names == ["query_id", "document_ids", "scores"]
    assert train[0] == {"query_id": "q1", "document_ids": ["d4", "d2", "d1"], "scores": [2.5, 3.0, 1.0]}
    assert queries.to_list() == [{"query_id": "q1", "text": "query 1"}, {"query_id": "q2", "text": "query 2"}]
    assert documents["document_id"][:] == ["d1", "d2", "d3", "d4"], "each passage once, none that no row names"
    train.set_transform(resolve_ids({"query_id": queries, "document_ids": documents}))
    assert train[0]["document_1"] == "text of\td4"
    assert sorted(path.name for path in out.iterdir()) == ["documents", "manifest.json", "queries", "train"]


def test_hf_form_trains_with_the_stock_loss(
    make_labels: MakeLabels, export: Export, tiny_model: Path, tmp_path: Path
) -> None:
    import torch
    from datasets import load_from_disk
    from sentence_transformers import MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
    from sentence_transformers.multi_vector_encoder.losses import MultiVectorDistillKLDivLoss

    from colabel.encode.colbert import load_or_convert
    from colabel.settings import EncoderSettings

    dataset = load_from_disk(str(export(make_labels(), "hf", temperature=0.5)))
    assert dataset.column_names == ["query", "document_1", "document_2", "document_3", "document_4", "scores"]
    assert dataset[0]["scores"] == [5.0, 6.0, 4.0, 2.0]
    settings = EncoderSettings(model=str(tiny_model), dimension=16, passage_length=24, query_length=12)
    model, _ = load_or_convert(str(tiny_model), settings, "cpu")
    before = {name: values.clone() for name, values in model.state_dict().items()}
    arguments = MultiVectorEncoderTrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    loss = MultiVectorDistillKLDivLoss(model)
    trainer = MultiVectorEncoderTrainer(model=model, args=arguments, train_dataset=dataset, loss=loss)
    value = trainer.train().training_loss
    assert math.isfinite(value)
    assert value > 0
    assert any(not torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_an_export_is_made_once(make_labels: MakeLabels, export: Export) -> None:
    labels = make_labels()
    stamp = (export(labels, "hf") / "manifest.json").stat().st_mtime_ns
    out = export(labels, "hf")
    assert (out / "manifest.json").stat().st_mtime_ns == stamp
    export(labels, "hf", temperature=3.0)
    assert (out / "manifest.json").stat().st_mtime_ns != stamp
    assert {path.name for path in out.iterdir()} == {
        "data-00000-of-00001.arrow",
        "dataset_info.json",
        "manifest.json",
        "state.json",
    }


def test_misuse(make_labels: MakeLabels, tmp_path: Path, write_beir: Callable[..., Path]) -> None:
    labels = make_labels()
    dataset = labels.dataset  # type: ignore[attr-defined]
    out = tmp_path / "x"
    for options, words in [
        ({"format": "csv"}, "'csv' is no export format; expected one of parquet, trec, hf, pylate"),
        ({"format": "parquet", "temperature": 0.0}, "the temperature is 0.0; expected a number above 0"),
        ({"format": "trec", "passages": 8}, "'trec' holds every pair"),
        ({"format": "hf", "passages": 1}, "1 passages per query teach nothing"),
    ]:
        with pytest.raises(UsageError, match=words):
            export_labels(labels, dataset, out, **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no split 'train'"):
        only_dev = write_beir("dev", qrels__train=None, qrels__test=None, qrels__dev="q1\td1\t1\n")
        export_labels(labels, load_dataset(str(only_dev)), out, "trec")
    other = make_labels(train="q1\td1\t1\n", name="other").dataset  # type: ignore[attr-defined]
    with pytest.raises(ArtefactError, match="other queries or labels than the split 'train' of other has"):
        export_labels(labels, other, out, "trec")
    assert not out.exists()
