"""Use any cross-encoder as a teacher beside the collective one, and see where the two disagree.

    python examples/cross_encoder_teacher.py my-collection work --cross-encoder cross-encoder/ms-marco-MiniLM-L6-v2

Both write the same kind of labels, so exports and reports do not depend on who the teacher was. A teacher of your
own needs name, fingerprint, knows and scores(query_ids, rows).
"""

import argparse
from pathlib import Path

import numpy as np

import colabel
from colabel.teachers import CrossEncoderTeacher

parser = argparse.ArgumentParser()
parser.add_argument("collection")
parser.add_argument("work", type=Path)
parser.add_argument("--cross-encoder", required=True, help="a folder or a hub id")
parser.add_argument("--model", default="minilm", help="any encoder or ColBERT checkpoint")
parser.add_argument("--max-length", type=int, default=256, help="tokens of a query and a passage together")
parser.add_argument("--candidates", type=int, default=20, help="passages scored per query")
arguments = parser.parse_args()

dataset = colabel.load_dataset(arguments.collection, cache=arguments.work / "data")
encoder = colabel.EncoderSettings(model=arguments.model, passage_length=96)
index = colabel.build_index(dataset, arguments.work / "index", encoder=encoder)
knowledge = colabel.collect(dataset, index, arguments.work / "knowledge")

cross_encoder = CrossEncoderTeacher(
    arguments.cross_encoder, dataset, max_length=arguments.max_length, cache=arguments.work / "pairs"
)
teachers = {"collective": colabel.CollectiveTeacher(knowledge), "cross-encoder": cross_encoder}
settings = colabel.LabelSettings(candidates=arguments.candidates)
labels = {
    name: colabel.label(knowledge, dataset, teacher, arguments.work / "labels" / name, settings=settings)
    for name, teacher in teachers.items()
}
for name, found in labels.items():
    print(f"{name}: {len(found)} queries labelled in {found.manifest.seconds:.1f} s")

agreed = 0
for query_id in labels["collective"].query_ids:
    best = [found.query(query_id) for found in labels.values()]
    agreed += len({int(one.rows[np.argmax(one.teacher)]) for one in best}) == 1
print(f"the two agree on the best passage of {agreed} of {len(labels['collective'])} queries")
