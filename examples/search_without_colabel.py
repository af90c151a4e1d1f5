"""Search with a trained student in plain sentence-transformers: colabel is not imported.

    python examples/search_without_colabel.py runs/mine/students/collective-0.5/model "how are glacier caves formed" \\
        --passages passages.txt

passages.txt has one passage per line.
"""

import argparse
from pathlib import Path

from sentence_transformers import MultiVectorEncoder

parser = argparse.ArgumentParser()
parser.add_argument("model", help="folder of a student, or of θ")
parser.add_argument("question")
parser.add_argument("--passages", type=Path, required=True, help="text file, one passage per line")
arguments = parser.parse_args()

passages = arguments.passages.read_text(encoding="utf-8").splitlines()
model = MultiVectorEncoder(arguments.model)
documents = model.encode_document(passages)  # one matrix [tokens, dimension] per passage
question = model.encode_query([arguments.question])
scores = model.similarity(question, documents)[0]  # MaxSim
for place in scores.argsort(descending=True)[:3].tolist():
    print(f"{scores[place]:.3f}  {passages[place]}")
