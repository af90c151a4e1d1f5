"""How many missing labels a judge finds with one verdict after another, by the order in which pairs are shown.

    python benchmarks/judging.py [--json FILE] [--svg FILE] [--data pydocs:4000 …] [--indexes FOLDER] [--seed 1]

One positive per training query is kept, the others are hidden, and a simulated judge knows them. Four orders: random
among the candidates (its expected count), φ's scores, the default teacher's suggestions as they stand, and the queue of
`colabel serve`, which learns from each verdict. The share of random pairs and of doubtful labels that the app mixes in
is left out. Nothing of dev or test is used. The model is the plain encoder, as in `colabel run`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write_report

from colabel.collective import collect
from colabel.data import hide_labels, load_dataset
from colabel.data.splits import hidden_labels
from colabel.index import Index, build_index
from colabel.labels import Verdict, decide, find_missing, label
from colabel.ranking import Bm25
from colabel.serve.queue import Queue
from colabel.settings import DataSettings, EncoderSettings, RankSettings
from colabel.teachers import SelfTeacher
from colabel.teachers.views import fitted_teacher

EVERY = 100
LENGTH = 128  # tokens of a passage


def measure(source: str, verdicts: int, seed: int, work: Path, finished: Path | None) -> dict[str, Any]:
    data = DataSettings(source=source)
    dataset = hide_labels(load_dataset(data, cache=work / "data"), 1, seed)
    if finished is not None and finished.exists():
        index = Index(finished, passages=dataset.passages)
        index.check_collection(dataset.passages)
    else:
        index = build_index(dataset, work / "index", data=data, encoder=EncoderSettings(passage_length=LENGTH))
    knowledge = collect(dataset, index, work / "knowledge", depth=100)
    words = Bm25(dataset.passages, RankSettings(), work / "bm25")
    hidden = {
        (query, passage)
        for query, held in hidden_labels(dataset).items()
        for passage, grade in held.items()
        if grade >= dataset.relevant_from
    }
    plain = label(knowledge, dataset, SelfTeacher(index, knowledge.queries), work / "labels-phi")
    taught = label(knowledge, dataset, fitted_teacher(knowledge, words, dataset), work / "labels")
    queue = Queue(taught, knowledge, dataset)
    within = among_candidates(queue, hidden)
    curves = {"random": [round(within / queue.candidates * n, 1) for n in marks(verdicts)]}
    for name, labels, order in (("φ", plain, "standout"), ("static", taught, queue.order)):
        found = find_missing(labels, dataset, limit=verdicts, order=order)
        curves[name] = counts([(one.query_id, one.passage_id) in hidden for one in found], verdicts)
    hits, said, slowest = [], [], []
    for _ in range(verdicts):
        pair = next((one for one in queue._waiting("missing", "judge", (), None)), None)
        if pair is None:
            break
        hits.append((pair.query_id, pair.passage_id) in hidden)
        said.append(Verdict(pair.query_id, pair.passage_id, "yes" if hits[-1] else "no", "judge", source="missing"))
        begun = time.perf_counter()
        queue.update(said, decide(said))
        slowest.append(time.perf_counter() - begun)
    curves["live"] = counts(hits, verdicts)
    found = {
        "collection": dataset.name,
        "queries": len(taught),
        "candidates": queue.candidates,
        "hidden": len(hidden),
        "hidden among candidates": within,
        "found": curves,
        "live / φ": round(curves["live"][-1] / curves["φ"][-1], 2),
        "seconds per verdict (median, 95 %)": np.quantile(slowest, [0.5, 0.95]).round(4).tolist(),
    }
    print(found, flush=True)
    return found


def among_candidates(queue: Queue, hidden: set[tuple[str, str]]) -> int:
    names, found = queue.labels.passage_ids, 0
    for block in queue.labels.blocks():
        for query_id, rows, free in zip(block.query_ids, block.rows, queue._free(block), strict=True):
            found += sum((query_id, names[row]) in hidden for row in rows[free].tolist())
    return found


def marks(verdicts: int) -> list[int]:
    return list(range(EVERY, verdicts + 1, EVERY))


def counts(hits: list[bool], verdicts: int) -> list[int]:
    return [sum(hits[:mark]) for mark in marks(verdicts)]


def draw(collections: list[dict[str, Any]], verdicts: int, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "colabel", "font.size": 9}
    from matplotlib import pyplot

    styles = {"live": ("#0b6b63", "-"), "static": ("#c07a1a", "-"), "φ": ("#5c656d", "--"), "random": ("#9aa3aa", ":")}
    figure, places = pyplot.subplots(1, len(collections), figsize=(2.6 * len(collections), 2.6), squeeze=False)
    for place, one in zip(places[0], collections, strict=True):
        for name, (colour, style) in styles.items():
            place.plot([0, *marks(verdicts)], [0, *one["found"][name]], color=colour, linestyle=style, label=name)
        place.set_title(one["collection"], fontsize=10)
        place.set_xlabel("verdicts")
        place.spines[["top", "right"]].set_visible(False)
    places[0][0].set_ylabel("missing labels found")
    places[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--data", nargs="*", default=["pydocs:4000"], help="none: draw what --add keeps")
    parser.add_argument("--work", type=Path, help="where indexes are kept, to measure again")
    parser.add_argument("--indexes", type=Path, help="runs of plain encoders, FOLDER/<collection>/index, used as is")
    parser.add_argument("--verdicts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="which positives are kept")
    parser.add_argument("--add", action="store_true", help="keep the collections that the JSON file has already")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(options.json.read_text()) if options.add and options.json and options.json.exists() else {}
    rows = {one["collection"]: one for one in known.get("judging", ())}
    for source in options.data:
        with tempfile.TemporaryDirectory() as fresh:
            name = Path(source).name.partition(":")[0]
            finished = options.indexes and options.indexes / name / "index"
            one = measure(source, options.verdicts, options.seed, (options.work or Path(fresh)) / name, finished)
            rows[one["collection"]] = one
        about = {"hide_seed": options.seed, "passage_tokens": LENGTH}
        write_report(options.json, {**about, "judging": list(rows.values())})
    if options.svg:
        draw(list(rows.values()), options.verdicts, options.svg)


if __name__ == "__main__":
    main()
