"""In which order suggested labels should be reviewed: the share of hidden positives among the first ones.

    python benchmarks/suggestions.py [--json FILE] [--data pydocs:4000 …] [--index FOLDER …] [--seed 1]

One positive per training query is kept. As many suggestions as there are queries are taken, in each order, from the
labels of the self teacher (φ) and of the collective teacher with default settings. The formulas were chosen on
semanlink, cranfield and nfcorpus with --seed 0; the committed figures are of other hidden labels (--seed 1).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from common import write_report

from colabel.collective import collect
from colabel.data import hide_labels, load_dataset
from colabel.evaluation import suggestion_precision
from colabel.index import Index, build_index
from colabel.labels import ORDERS, find_missing, label
from colabel.settings import DataSettings, EncoderSettings
from colabel.teachers import CollectiveTeacher, SelfTeacher


def measure(source: str, index_folder: Path | None, seed: int, work: Path) -> list[dict[str, Any]]:
    data = DataSettings(source=source)
    dataset = hide_labels(load_dataset(data, cache=work / "data"), 1, seed)
    encoder = EncoderSettings(passage_length=96)
    index = (
        Index.open(index_folder) if index_folder else build_index(dataset, work / "index", data=data, encoder=encoder)
    )
    knowledge = collect(dataset, index, work / "knowledge", depth=100)
    rows = []
    for teacher in (SelfTeacher(index, knowledge.queries), CollectiveTeacher(knowledge)):
        labels = label(knowledge, dataset, teacher, work / "labels")
        row: dict[str, Any] = {"collection": dataset.name, "teacher": teacher.name}
        for order in ORDERS:
            missing = find_missing(labels, dataset, limit=len(labels), order=order)
            found = suggestion_precision(
                [(one.query_id, one.row) for one in missing], dataset, queries=len(labels), multiples=(1,)
            )
            row[order] = round(found[0].precision or 0.0, 3)
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", nargs="+", default=["pydocs:4000"])
    parser.add_argument("--index", nargs="+", type=Path, help="an index for each collection, instead of building one")
    parser.add_argument("--seed", type=int, default=1, help="which positives are kept")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for source, folder in zip(options.data, options.index or [None] * len(options.data), strict=True):
        with tempfile.TemporaryDirectory() as work:
            rows += measure(source, folder, options.seed, Path(work))
    write_report(options.json, {"hide_seed": options.seed, "precision at 1× suggestions": rows})


if __name__ == "__main__":
    main()
