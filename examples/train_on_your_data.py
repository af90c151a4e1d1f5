"""Train a retriever on your own collection and ask it something.

    python examples/train_on_your_data.py my-collection runs/mine

my-collection is a BEIR or MS MARCO folder with train labels (docs/data.md). Interrupted, the same call continues.
"""

import argparse
from pathlib import Path

import colabel
from colabel.settings import QuerySideSettings

parser = argparse.ArgumentParser()
parser.add_argument("collection")
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--model", default="minilm", help="any encoder or ColBERT checkpoint")
parser.add_argument("--ask", default="how are glacier caves formed")
arguments = parser.parse_args()

recipe = colabel.Recipe(
    data=colabel.DataSettings(source=arguments.collection),
    encoder=colabel.EncoderSettings(model=arguments.model, passage_length=96),
    query_side=QuerySideSettings(steps=arguments.steps),
)
result = colabel.run(recipe, arguments.out)  # teacher="collective" trains both sides, as the paper does

if result.evaluation:  # there are test labels
    for system, means in result.evaluation.means.items():
        print(system, *(f"{measure} {value:.4f}" for measure, value in means.items()), sep="\t")

found = colabel.open_run(arguments.out).search([arguments.ask], k=3)  # words and vectors together
for hit in found.hits():
    print(hit.rank, f"{hit.score:.2f}", hit.passage_id, hit.title)
