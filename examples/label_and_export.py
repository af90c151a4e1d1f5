"""Label a collection with the collective teacher and export the labels as a Hugging Face dataset.

    python examples/label_and_export.py my-collection work

No training: an index, what the labelled passages have in common, and scores for every training query's candidates.
The dataset fits MultiVectorDistillKLDivLoss and the other distillation losses of sentence-transformers.
"""

import argparse
from pathlib import Path

from datasets import load_from_disk

import colabel

parser = argparse.ArgumentParser()
parser.add_argument("collection")
parser.add_argument("work", type=Path)
parser.add_argument("--model", default="minilm", help="any encoder or ColBERT checkpoint")
parser.add_argument("--beta", type=float, default=0.5, help="weight of the expansion relative to the query")
parser.add_argument("--passages", type=int, default=8, help="passages per record, the labelled ones first")
arguments = parser.parse_args()

dataset = colabel.load_dataset(arguments.collection, cache=arguments.work / "data")
encoder = colabel.EncoderSettings(model=arguments.model, passage_length=96)
index = colabel.build_index(dataset, arguments.work / "index", encoder=encoder)
knowledge = colabel.collect(dataset, index, arguments.work / "knowledge")

query_id = knowledge.queries.ids[0]
shown = colabel.inspect(knowledge, query_id, count=1)
print(f"{shown.text!r} is expanded with", ", ".join(token.token for token in shown.tokens))

teacher = colabel.CollectiveTeacher(knowledge, beta=arguments.beta)
labels = colabel.label(knowledge, dataset, teacher, arguments.work / "labels")
out = arguments.work / "labels-hf"
colabel.export_labels(labels, dataset, out, "hf", temperature=0.5, passages=arguments.passages)

rows = load_from_disk(str(out))
print(f"{len(rows)} rows with the columns {', '.join(rows.column_names)}")
print(rows[0]["query"], rows[0]["scores"])
