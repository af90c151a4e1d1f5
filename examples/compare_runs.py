"""Is one run significantly better than another? For TREC run files of any program.

    python examples/compare_runs.py my-collection bm25.trec student.trec --measure nDCG@10

Paired, two-sided tests over the queries of the split, and bootstrap intervals (docs/evaluation.md).
"""

import argparse
from pathlib import Path

import colabel

parser = argparse.ArgumentParser()
parser.add_argument("collection")
parser.add_argument("runs", nargs="+", type=Path, help="the first is the baseline")
parser.add_argument("--measure", default="nDCG@10")
parser.add_argument("--split", default="test")
arguments = parser.parse_args()

dataset = colabel.load_dataset(arguments.collection)
runs = {str(path): path for path in arguments.runs}
evaluation = colabel.evaluate(dataset, runs, split=arguments.split, measures=[arguments.measure])
for name, means in evaluation.means.items():
    print(f"{name}: {arguments.measure} {means[arguments.measure]:.4f}")

for pair in colabel.compare(evaluation, arguments.measure, baseline=str(arguments.runs[0])).pairs:
    test, difference = pair.test, pair.test.difference
    print(
        f"{pair.system} against {pair.against}: {difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
    )
    print(f"  t-test p = {test.t_test}, randomisation p = {test.randomisation}, after Holm {pair.t_test_holm}")
    print(f"  better on {test.better} queries, equal on {test.equal}, worse on {test.worse}")
