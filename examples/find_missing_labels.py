"""Find relevant passages that nobody labelled, and learn how far the list can be trusted.

    python examples/find_missing_labels.py my-collection work

First some labels are hidden on purpose, to see how many of them the list finds. Then the list is built from all labels,
for people to review.
"""

import argparse
from pathlib import Path

import colabel
from colabel.evaluation import suggestion_precision

parser = argparse.ArgumentParser()
parser.add_argument("collection")
parser.add_argument("work", type=Path)
parser.add_argument("--model", default="minilm", help="any encoder or ColBERT checkpoint")
parser.add_argument("--limit", type=int, default=10)
arguments = parser.parse_args()


def suggestions(dataset: colabel.Dataset, name: str, limit: int) -> list:
    """Unlabelled passages that are probably relevant, best first."""
    knowledge = colabel.collect(dataset, index, arguments.work / name / "knowledge")
    teacher = colabel.CollectiveTeacher(knowledge)
    labels = colabel.label(knowledge, dataset, teacher, arguments.work / name / "labels")
    return colabel.missing_labels(labels, knowledge, dataset, limit=limit)


dataset = colabel.load_dataset(arguments.collection, cache=arguments.work / "data")
encoder = colabel.EncoderSettings(model=arguments.model, passage_length=96)
index = colabel.build_index(dataset, arguments.work / "index", encoder=encoder)

sparse = colabel.hide_labels(dataset, keep=1)  # one label per training query stays visible
queries = len(sparse.positives("train"))
found = [(one.query_id, one.passage_id) for one in suggestions(sparse, "hidden", 5 * queries)]
for share in suggestion_precision(found, sparse, queries=queries):
    print(f"of {share.suggestions} suggestions {share.found} are labels that were hidden ({share.hidden} in all)")

for one in suggestions(dataset, "all", arguments.limit):
    why = ", ".join(reason.token for reason in one.reasons[:3])
    print(f"{one.query!r} → {one.passage_id} {one.title} (because of {why})")
